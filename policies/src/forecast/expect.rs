//! When the device should be clear for a queue: a forecaster with margins, bounds and a count of what came of it.

use super::budget::Budget;
use super::margin::{Errors, Margin};
use super::{Forecaster, Method};
use crate::times::nanos;
use protocol::time::Time;
use std::time::Duration;

/// When the device should be clear, because work is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// When clearing has to begin, so that the device is clear at `from`; not before the time of the question.
    pub start: Time,
    /// From when on work may come.
    pub from: Time,
    /// Until when, this time included, it may come; after it the device is given back.
    pub until: Time,
    /// Whether this was hinted, not learnt.
    pub hinted: bool,
}

/// What the windows may cost. A value outside its range counts as the nearest one within.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// The smallest margin before and behind the expected time.
    pub least: Duration,
    /// The largest margin before the expected time, at least `least`; the one behind may be twice that. If the errors
    /// ask for more, nothing learnt is expected; a hint has these margins then.
    pub most: Duration,
    /// The largest margin before the expected time as a share of the time since the arrival before, 0 to 1: how much of
    /// the time the device may stand clear before work that does come. The margin behind may be twice that. If the
    /// errors ask for more, nothing learnt is expected.
    pub share: f64,
    /// The largest share of any horizon that may be spent on work that does not come, 0 to 1.
    pub budget: f64,
    /// The span over which the budget holds, at least a microsecond.
    pub horizon: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            least: Duration::from_micros(50),
            most: Duration::from_millis(20),
            share: 0.1,
            budget: 0.02,
            horizon: Duration::from_secs(10),
        }
    }
}

impl Parameters {
    /// Arrivals no farther apart than this are one: the smallest margin is too large a share of the time between them
    /// for any to be expected. At most a second.
    pub fn apart(&self) -> Duration {
        let most = Duration::from_secs(1);
        Duration::try_from_secs_f64(self.least.as_secs_f64() / self.share).unwrap_or(most).min(most)
    }

    fn within_ranges(self) -> Self {
        // What is no number stays so, and allows nothing.
        let share = |value: f64| value.clamp(0.0, 1.0);
        Self {
            least: self.least,
            most: self.most.max(self.least),
            share: share(self.share),
            budget: share(self.budget),
            horizon: self.horizon.max(Duration::from_micros(1)),
        }
    }
}

/// What came of the windows. Each that was announced is, once it is over, hit, early, missed or withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Windows that were given as an answer, each once.
    pub announced: u64,
    /// Work came within the window.
    pub hit: u64,
    /// Work came before the window.
    pub early: u64,
    /// Work did not come within the window or before.
    pub missed: u64,
    /// A hint took the window's place before work came.
    pub withdrawn: u64,
    /// Spent on clearing and waiting in vain: missed windows, and what had passed of those withdrawn.
    pub wasted: Duration,
    /// The device stood clear for work that did come.
    pub waited: Duration,
}

/// Expects a queue's next work.
///
/// Its owner tells of each arrival, that is of each time at which the queue turns from idle to ready, and asks while
/// the queue is idle. Times are never earlier than in the call before; an earlier one is harmless.
///
/// # What is expected
/// The next arrival that the method foresees, from a margin before it to a margin behind it. They follow the last 24
/// errors, early ones and late ones by themselves: of each side the two largest are left out, and the largest that
/// remains is taken one and a half times before, where the device stands clear meanwhile, and two and a half times
/// behind, where that costs only if no work comes. Nothing learnt is expected
///
/// * before six errors are known;
/// * if the margin exceeds its bounds ([`Parameters::most`], [`Parameters::share`]), as it does for random arrivals;
/// * once three windows in a row have been missed, until work arrives;
/// * if a miss could exceed the budget.
///
/// # Hints
/// [`announce`](Self::announce) says when the next work comes: until then or until its window is over nothing learnt is
/// expected. Hints have margins of their own, from their own errors, and are cut to the bounds; they share the budget.
/// The next arrival that counts, whatever it is, is the announced one. A later hint takes the place of an earlier one.
///
/// # The budget
/// What misses and withdrawn windows waste in any span as long as the horizon is at most the budget's share of it, for
/// any arrivals and any hints: a window is announced only if the budget could pay for all of it, clearing included.
#[derive(Debug)]
pub struct Forecast {
    parameters: Parameters,
    lead: Duration,
    method: Method,
    forecaster: Box<dyn Forecaster>,
    /// The last arrival that counted, and the last of all.
    last: Option<Time>,
    latest: Option<Time>,
    errors: Errors,
    hint_errors: Errors,
    budget: Budget,
    /// What was announced and is not over.
    open: Option<Window>,
    /// The hinted time that is not over.
    hint: Option<Time>,
    /// A hint that is to be compared with the next arrival.
    hinted: Option<Time>,
    /// What was foreseen at the last arrival, if it can be relied upon.
    first: Option<(Time, Margin)>,
    /// Learnt windows missed since then.
    misses: u32,
    learnt: Counts,
    hints: Counts,
}

impl Forecast {
    /// Learnt windows that may be missed in a row.
    const MOST_MISSES: u32 = 3;
    /// As long as too little is known of the hints, their margin is so many times the smallest.
    const UNKNOWN_HINT: u64 = 4;

    /// Expects nothing until it has learnt something or is told.
    pub fn new(method: Method, parameters: Parameters) -> Self {
        let parameters = parameters.within_ranges();
        Self {
            parameters,
            lead: Duration::ZERO,
            method,
            forecaster: method.forecaster(),
            last: None,
            latest: None,
            errors: Errors::default(),
            hint_errors: Errors::default(),
            budget: Budget::new(parameters.budget, parameters.horizon),
            open: None,
            hint: None,
            hinted: None,
            first: None,
            misses: 0,
            learnt: Counts::default(),
            hints: Counts::default(),
        }
    }

    /// How it learns.
    pub fn method(&self) -> Method {
        self.method
    }

    /// What came of the windows that were learnt.
    pub fn learnt(&self) -> Counts {
        self.learnt
    }

    /// What came of the windows that were hinted.
    pub fn hints(&self) -> Counts {
        self.hints
    }

    /// Sets how long clearing the device takes, 0 at first; holds for windows that are announced from now on.
    pub fn set_lead(&mut self, lead: Duration) {
        self.lead = lead;
    }

    /// Work has arrived. An arrival no later than [`Parameters::apart`] after the one before counts as the same, unless
    /// a window has begun.
    pub fn arrived(&mut self, at: Time) {
        self.settle(at);
        if let Some(latest) = self.latest {
            self.latest = Some(latest.max(at));
            let begun = self.open.is_some_and(|window| window.start <= at);
            if at <= latest || (!begun && at.since(latest) <= self.parameters.apart()) {
                return;
            }
        }
        self.latest = Some(at);
        if let Some(window) = self.open.take() {
            let counts = self.counts(window.hinted);
            if at < window.from {
                counts.early += 1;
            } else {
                counts.hit += 1;
                counts.waited = counts.waited.saturating_add(at.since(window.from));
            }
        }
        if let Some(hinted) = self.hinted.take() {
            self.hint_errors.note(hinted, at);
        }
        if let Some(foreseen) = self.nearest(at) {
            self.errors.note(foreseen, at);
        }
        self.hint = None;
        self.misses = 0;
        self.last = Some(at);
        self.forecaster.arrived(at);
        self.first = self.first();
    }

    /// The next work arrives at this time. False, and without effect, if that is not in the future.
    pub fn announce(&mut self, at: Time, now: Time) -> bool {
        if at <= now {
            return false;
        }
        self.settle(now);
        if let Some(window) = self.open.take() {
            let spent = now.since(window.start);
            let counts = self.counts(window.hinted);
            counts.withdrawn += 1;
            counts.wasted = counts.wasted.saturating_add(spent);
            self.budget.spend(spent, now);
        }
        self.hint = Some(at);
        self.hinted = Some(at);
        true
    }

    /// When the device should be clear next; the answer stays the same until work arrives, a hint comes or the window
    /// is over. Nothing if nothing is expected.
    pub fn expect(&mut self, now: Time) -> Option<Window> {
        self.settle(now);
        if self.open.is_none() {
            let (expected, margin) = match self.hint {
                Some(at) => (at, self.hint_margin()),
                None => self.foresee(now)?,
            };
            let until = Time(expected.0.saturating_add(margin.behind));
            let from = Time(expected.0.saturating_sub(margin.before)).max(now);
            let start = Time(from.0.saturating_sub(nanos(self.lead))).max(now);
            if until <= now || !self.budget.allows(until.since(start), now) {
                return None;
            }
            let hinted = self.hint.is_some();
            self.counts(hinted).announced += 1;
            self.open = Some(Window { start, from, until, hinted });
        }
        self.open
    }

    /// Ends a window that is over, and a hint.
    fn settle(&mut self, now: Time) {
        if let Some(window) = self.open.filter(|window| window.until < now) {
            let spent = window.until.since(window.start);
            let counts = self.counts(window.hinted);
            counts.missed += 1;
            counts.wasted = counts.wasted.saturating_add(spent);
            self.budget.spend(spent, now);
            self.open = None;
            if window.hinted {
                self.hint = None;
            } else {
                self.misses += 1;
            }
        }
        // One that the budget refused has no window.
        if self.open.is_none()
            && self.hint.is_some_and(|at| at.0.saturating_add(self.hint_margin().behind) < now.0)
        {
            self.hint = None;
        }
    }

    /// What the method foresees, with its margin, if it can be relied upon. Asked at every decision, so it is cheap
    /// where nothing is expected.
    fn foresee(&self, now: Time) -> Option<(Time, Margin)> {
        let (first, margin) = self.first?;
        if self.misses >= Self::MOST_MISSES {
            return None;
        }
        // Behind what has been missed.
        let over = Time(now.0.saturating_sub(margin.behind));
        let expected = if first > over { first } else { self.forecaster.next(over)? };
        Some((expected, margin))
    }

    /// The first arrival that is foreseen and its margin, if that is within its bounds.
    fn first(&self) -> Option<(Time, Margin)> {
        let margin = self.errors.margin()?.at_least(nanos(self.parameters.least));
        let first = self.forecaster.next(self.last?)?;
        let bound = first.since(self.last?).as_nanos() as f64 * self.parameters.share;
        let within = margin.within(nanos(self.parameters.most)) && margin.within(bound as u64);
        within.then_some((first, margin))
    }

    fn hint_margin(&self) -> Margin {
        let (least, most) = (nanos(self.parameters.least), nanos(self.parameters.most));
        let unknown = least.saturating_mul(Self::UNKNOWN_HINT);
        let margin = self.hint_errors.margin().unwrap_or(Margin { before: unknown, behind: unknown });
        margin.at_least(least).at_most(most)
    }

    /// What was foreseen nearest to an arrival, if it is not beyond all that would be expected.
    fn nearest(&self, at: Time) -> Option<Time> {
        let mut foreseen = self.forecaster.next(self.last?)?;
        for _ in 0..Self::MOST_MISSES {
            match self.forecaster.next(foreseen) {
                Some(further) if further.0.abs_diff(at.0) < foreseen.0.abs_diff(at.0) => foreseen = further,
                _ => return Some(foreseen),
            }
        }
        None
    }

    fn counts(&mut self, hinted: bool) -> &mut Counts {
        if hinted { &mut self.hints } else { &mut self.learnt }
    }
}
