//! The time at which the device should be clear for a queue: a forecast with margins, bounds and counters.

use super::margin::{Errors, Margin};
use super::seasonal::Seasonal;
use crate::times::nanos;
use protocol::time::Time;
use std::time::Duration;

/// A time at which the device should be clear, because work is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The time at which clearing has to begin, so that the device is clear at `from`; not before the time of
    /// the question.
    pub start: Time,
    /// The first time at which work may come.
    pub from: Time,
    /// The last time at which work may come; after it the device is given back.
    pub until: Time,
}

/// Counters of the windows. Each window that was announced and is over is a hit, early or missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Windows that were given as an answer, each once.
    pub announced: u64,
    /// Windows within which work came.
    pub hit: u64,
    /// Windows before which work came.
    pub early: u64,
    /// Windows without work in them or before.
    pub missed: u64,
    /// Time spent on clearing and waiting in vain, for windows that were missed.
    pub wasted: Duration,
    /// Time for which the device stood clear for work that did come.
    pub waited: Duration,
}

/// The forecast of a queue's next work.
///
/// The owner reports each arrival, which is each time at which the queue turns from idle to ready, and asks
/// while the queue is idle. Times are never earlier than in the call before; an earlier one is harmless.
///
/// # What is expected
/// The next arrival of the pattern is expected, from a margin before it to a margin after it. The margins
/// follow the last 24 errors, early and late ones separately. Of each side the two largest are left out. The
/// largest that remains counts one and a half times before the arrival, where the device stands clear
/// meanwhile, and two and a half times after it, where that costs only if no work comes. Nothing is expected
///
/// * before six errors are known;
/// * if the margin exceeds its bounds ([`Forecast::MOST`], [`Forecast::SHARE`]), as it does for random
///   arrivals;
/// * after three misses in a row, until work arrives.
///
/// The owner decides whether a window is worth its cost, because it knows what others ask for on the same
/// device.
#[derive(Debug, Default)]
pub struct Forecast {
    lead: Duration,
    pattern: Seasonal,
    /// The last arrival that counted, and the last of all.
    last: Option<Time>,
    latest: Option<Time>,
    errors: Errors,
    /// The window that was announced and is not over.
    open: Option<Window>,
    /// The next arrival as foreseen at the last one, if it is reliable.
    first: Option<(Time, Margin)>,
    /// The windows missed since then.
    misses: u32,
    counts: Counts,
}

impl Forecast {
    /// The smallest margin before and after the expected time.
    pub const LEAST: Duration = Duration::from_micros(50);
    /// The largest margin before the expected time; the one after it may be twice that. With larger errors
    /// nothing is expected.
    pub const MOST: Duration = Duration::from_millis(20);
    /// The largest margin before the expected time, as a part of the time since the arrival before: one in so
    /// many. This bounds the time for which the device stands clear before work that does come. The margin
    /// after it may be twice that. With larger errors nothing is expected.
    pub const SHARE: u32 = 10;
    /// Arrivals no farther apart than this count as one, because the smallest margin is too large a part of
    /// the time between them.
    pub const APART: Duration = Duration::from_micros(500);
    /// The number of windows that may be missed in a row.
    const MOST_MISSES: u32 = 3;

    /// Returns the counters of the windows.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Sets the time that clearing the device takes, 0 by default. It holds for windows that are announced
    /// from now on.
    pub fn set_lead(&mut self, lead: Duration) {
        self.lead = lead;
    }

    /// Enters an arrival. One that comes no later than [`Forecast::APART`] after the one before counts as the
    /// same, unless a window has begun.
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

    /// Returns the next time at which the device should be clear, or `None` if no work is expected. The
    /// answer stays the same until work arrives or the window is over.
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

    /// Returns the next arrival of the pattern with its margin, if it is reliable. Cheap where nothing is
    /// expected, because it is asked at every decision.
    fn foresee(&self, now: Time) -> Option<(Time, Margin)> {
        let (first, margin) = self.first?;
        if self.misses >= Self::MOST_MISSES {
            return None;
        }
        // The next one after those that were missed.
        let over = Time(now.0.saturating_sub(margin.behind));
        let expected = if first > over { first } else { self.pattern.next(over)? };
        Some((expected, margin))
    }

    /// Returns the first arrival of the pattern and its margin, if the margin is within its bounds.
    fn first(&self) -> Option<(Time, Margin)> {
        let margin = self.errors.margin()?.at_least(nanos(Self::LEAST));
        let first = self.pattern.next(self.last?)?;
        let bound = Self::MOST.min(first.since(self.last?) / Self::SHARE);
        margin.within(nanos(bound)).then_some((first, margin))
    }

    /// Returns the foreseen arrival nearest to a real one, if it is not beyond all that would be expected.
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
