//! When the device should be clear for a queue: a forecaster with margins, bounds and a count of what came of it.

use super::margin::{Errors, Margin};
use super::seasonal::Seasonal;
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
}

/// What came of the windows. Each that was announced is, once it is over, hit, early or missed.
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
    /// Spent on clearing and waiting in vain for windows that were missed.
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
/// behind, where that costs only if no work comes. Nothing is expected
///
/// * before six errors are known;
/// * if the margin exceeds its bounds ([`Forecast::MOST`], [`Forecast::SHARE`]), as it does for random arrivals;
/// * once three windows in a row have been missed, until work arrives.
///
/// Whether a window is worth its cost is for its owner to say, who knows what others ask for on the same device.
#[derive(Debug, Default)]
pub struct Forecast {
    lead: Duration,
    pattern: Seasonal,
    /// The last arrival that counted, and the last of all.
    last: Option<Time>,
    latest: Option<Time>,
    errors: Errors,
    /// What was announced and is not over.
    open: Option<Window>,
    /// What was foreseen at the last arrival, if it can be relied upon.
    first: Option<(Time, Margin)>,
    /// Windows missed since then.
    misses: u32,
    counts: Counts,
}

impl Forecast {
    /// The smallest margin before and behind the expected time.
    pub const LEAST: Duration = Duration::from_micros(50);
    /// The largest margin before the expected time; the one behind may be twice that. If the errors ask for more, nothing
    /// is expected.
    pub const MOST: Duration = Duration::from_millis(20);
    /// The largest margin before the expected time as a part of the time since the arrival before: one in so many. This is
    /// how much of the time the device may stand clear before work that does come. The margin behind may be twice that.
    /// If the errors ask for more, nothing is expected.
    pub const SHARE: u32 = 10;
    /// Arrivals no farther apart than this are one: the smallest margin is too large a share of the time between them
    /// for any to be expected.
    pub const APART: Duration = Duration::from_micros(500);
    /// Windows that may be missed in a row.
    const MOST_MISSES: u32 = 3;

    /// What came of the windows.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Sets how long clearing the device takes, 0 at first; holds for windows that are announced from now on.
    pub fn set_lead(&mut self, lead: Duration) {
        self.lead = lead;
    }

    /// Work has arrived. An arrival no later than [`Forecast::APART`] after the one before counts as the same, unless
    /// a window has begun.
    pub fn arrived(&mut self, at: Time) {
        self.settle(at);
        if let Some(latest) = self.latest {
            self.latest = Some(latest.max(at));
            let begun = self.open.is_some_and(|window| window.start <= at);
            if at <= latest || (!begun && at.since(latest) <= Self::APART) {
                return;
            }
        }
        self.latest = Some(at);
        if let Some(window) = self.open.take() {
            if at < window.from {
                self.counts.early += 1;
            } else {
                self.counts.hit += 1;
                self.counts.waited = self.counts.waited.saturating_add(at.since(window.from));
            }
        }
        if let Some(foreseen) = self.nearest(at) {
            self.errors.note(foreseen, at);
        }
        self.misses = 0;
        self.last = Some(at);
        self.pattern.arrived(at);
        self.first = self.first();
    }

    /// When the device should be clear next; the answer stays the same until work arrives or the window is over.
    /// Nothing if nothing is expected.
    pub fn expect(&mut self, now: Time) -> Option<Window> {
        self.settle(now);
        if self.open.is_none() {
            let (expected, margin) = self.foresee(now)?;
            let until = Time(expected.0.saturating_add(margin.behind));
            let from = Time(expected.0.saturating_sub(margin.before)).max(now);
            let start = Time(from.0.saturating_sub(nanos(self.lead))).max(now);
            if until <= now {
                return None;
            }
            self.counts.announced += 1;
            self.open = Some(Window { start, from, until });
        }
        self.open
    }

    /// Ends a window that is over.
    fn settle(&mut self, now: Time) {
        if let Some(window) = self.open.filter(|window| window.until < now) {
            self.counts.missed += 1;
            self.counts.wasted = self.counts.wasted.saturating_add(window.until.since(window.start));
            self.open = None;
            self.misses += 1;
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
        let expected = if first > over { first } else { self.pattern.next(over)? };
        Some((expected, margin))
    }

    /// The first arrival that is foreseen and its margin, if that is within its bounds.
    fn first(&self) -> Option<(Time, Margin)> {
        let margin = self.errors.margin()?.at_least(nanos(Self::LEAST));
        let first = self.pattern.next(self.last?)?;
        let bound = Self::MOST.min(first.since(self.last?) / Self::SHARE);
        margin.within(nanos(bound)).then_some((first, margin))
    }

    /// What was foreseen nearest to an arrival, if it is not beyond all that would be expected.
    fn nearest(&self, at: Time) -> Option<Time> {
        let mut foreseen = self.pattern.next(self.last?)?;
        for _ in 0..Self::MOST_MISSES {
            match self.pattern.next(foreseen) {
                Some(further) if further.0.abs_diff(at.0) < foreseen.0.abs_diff(at.0) => foreseen = further,
                _ => return Some(foreseen),
            }
        }
        None
    }
}
