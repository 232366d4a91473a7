//! What runs: the time since when, and how far that may be off. Knows no markers and no keys.
//!
//! The end of one interval is the start of the next. Mostly nobody looks at that time, so the end is only foreseen. Estimates are
//! some percent off, and commands vary, so foreseen starts drift from the true ones, from interval to interval. What polls saw bounds
//! the drift. How fast it grows is learnt, and with it the time of the next look.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::sync::Instant;

/// A running command: the one behind the index `behind`, which runs since this time or will soon.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    pub(super) behind: u64,
    pub(super) since: Instant,
    /// The time from which it has had the device without a suspension, as far as is known.
    pub(super) unheld: Instant,
    /// True if its whole interval had been launched by then: it runs without a gap.
    pub(super) whole: bool,
    /// The most by which the last start that polls bounded can have been off; none if they bounded none.
    bound: Option<Duration>,
    /// The estimated time of the intervals behind that start whose ends were only foreseen.
    foreseen: Duration,
}

/// How an interval ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// The index of its last command.
    pub(super) upto: u64,
    /// Its estimated time.
    pub(super) takes: Duration,
    /// The time at which a poll last saw it running, if one did.
    pub(super) ran: Option<Instant>,
    /// The time at which a poll saw its end.
    pub(super) seen: Instant,
}

/// What seen ends showed of foreseen ones.
#[derive(Debug)]
pub(super) struct Drift {
    /// The parts of the estimated time after which the next interval starts.
    pace: i64,
    /// The parts of the estimated time by which ends are off.
    off: i64,
}

/// One, in the unit of a drift.
const PARTS: i64 = 1 << 20;
/// The bounds of the pace: it corrects estimates that are too long, because with those the device idles. Commands that vary take
/// longer than their estimate, the least of recent times, and a launch that follows their mean is often late.
const PACE: RangeInclusive<i64> = PARTS * 3 / 4..=PARTS;
/// The bounds of the other one. The least makes the worker look from time to time where nothing seems to be off.
const OFF: RangeInclusive<i64> = PARTS / 256..=PARTS / 2;
/// Below this a close watch of an end is short.
const CLOSE: i64 = PARTS / 48;
/// One end moves both by one part in so many of what it shows.
const WEIGHT: i64 = 8;

impl Running {
    /// Begins at a time that is off by at most `bound`, if that is known.
    pub(super) fn new(behind: u64, since: Instant, whole: bool, bound: Option<Duration>) -> Self {
        Self { behind, since, unheld: since, whole, bound, foreseen: Duration::ZERO }
    }

    /// Notes that another process may have had the device until this time.
    pub(super) fn hold(&mut self, at: Instant) {
        self.unheld = at;
        self.bound = None;
    }

    /// Returns how far its end may be from the foreseen one if it takes so long by its estimate.
    pub(super) fn doubt(&self, takes: Duration, drift: &Drift) -> Duration {
        let of_drift = || scaled(self.foreseen + takes, drift.off);
        self.bound.map_or(Duration::MAX, |bound| bound.saturating_add(of_drift()))
    }

    /// Returns what runs behind its end, and lets that end correct the drift. `whole`: see there.
    pub(super) fn next(&self, end: End, whole: bool, drift: &mut Drift) -> Self {
        let foreseen = self.since + scaled(end.takes, drift.pace);
        let since = end.ran.map_or(foreseen, |ran| ran.max(foreseen)).min(end.seen);
        let next = Self::new(end.upto, since, whole, None);
        let gap = end.ran.map(|ran| end.seen.saturating_duration_since(ran));
        let Some(gap) = gap.filter(|gap| *gap < self.doubt(end.takes, drift)) else {
            return Self { bound: self.bound, foreseen: self.foreseen + end.takes, ..next };
        };
        if self.bound.is_some() {
            let late = nanos(since.saturating_duration_since(foreseen));
            let early = nanos(foreseen.saturating_duration_since(since));
            drift.learn(late - early, self.foreseen + end.takes);
        }
        Self { bound: Some(gap), ..next }
    }
}

impl Default for Drift {
    fn default() -> Self {
        Self { pace: PARTS, off: PARTS / 16 }
    }
}

impl Drift {
    /// Returns true if ends are mostly close to the foreseen ones.
    pub(super) fn is_small(&self) -> bool {
        self.off < CLOSE
    }

    /// Learns that an end was so many nanoseconds later than foreseen, after so long.
    fn learn(&mut self, late: i64, foreseen: Duration) {
        let shown = late.saturating_mul(PARTS) / nanos(foreseen).max(1);
        let shown = shown.clamp(-PARTS / 2, PARTS / 2);
        self.pace = (self.pace + shown / WEIGHT).clamp(*PACE.start(), *PACE.end());
        self.off = (self.off + (shown.abs() - self.off) / WEIGHT).clamp(*OFF.start(), *OFF.end());
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns so many parts of a time. A time of more than two hours counts as two hours.
fn scaled(time: Duration, parts: i64) -> Duration {
    Duration::from_nanos((nanos(time).saturating_mul(parts) / PARTS).unsigned_abs())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::now;

    const TAKES: Duration = Duration::from_micros(100);

    /// Lets intervals end one after the other whose true time is this one. A poll looks at every `every`th end, and sees the
    /// command running `gap` before. Returns the farthest that a start was off in the second half.
    fn follow(drift: &mut Drift, truly: &[Duration], every: u32, gap: Duration) -> Duration {
        let mut truth = now();
        let mut running = Running::new(0, truth, true, Some(Duration::ZERO));
        let mut farthest = Duration::ZERO;
        const INTERVALS: u32 = 2_000;
        for index in 1..=INTERVALS {
            truth += truly[index as usize % truly.len()];
            let (ran, seen) = match index % every == 0 {
                true => (Some(truth - gap), truth),
                // Much later.
                false => (None, truth + TAKES),
            };
            let end = End { upto: u64::from(index), takes: TAKES, ran, seen };
            running = running.next(end, true, drift);
            if index > INTERVALS / 2 {
                let off = |a: Instant, b: Instant| a.saturating_duration_since(b);
                farthest = farthest.max(off(running.since, truth)).max(off(truth, running.since));
            }
        }
        farthest
    }

    #[test]
    fn estimates_that_are_too_long_are_corrected() {
        let gap = Duration::from_micros(2);
        for percent in [80, 95, 99] {
            let mut drift = Drift::default();
            let truly = TAKES * percent / 100;
            let farthest = follow(&mut drift, &[truly], 20, gap);
            assert!(farthest < TAKES / 10, "{percent} %: {farthest:?}");
            assert!(drift.is_small(), "{percent} %: {drift:?}");
        }
    }

    #[test]
    fn start_is_off_by_no_more_than_a_look_shows() {
        let gap = Duration::from_micros(6);
        for more in [0, 5, 30] {
            let truly = TAKES + Duration::from_micros(more);
            let farthest = follow(&mut Drift::default(), &[truly], 1, gap);
            assert!(farthest <= gap, "{more}: {farthest:?}");
        }
    }

    #[test]
    fn commands_that_vary_are_doubted_sooner() {
        let doubt = |truly: &[Duration]| {
            let mut drift = Drift::default();
            follow(&mut drift, truly, 1, Duration::from_micros(2));
            let running = Running::new(0, now(), true, Some(Duration::ZERO));
            (running.doubt(TAKES, &drift), drift.is_small())
        };
        let (equal, is_small) = doubt(&[TAKES]);
        assert!(equal < TAKES / 200 && is_small, "{equal:?}");
        let (varied, is_small) = doubt(&[TAKES, TAKES * 6 / 5, TAKES * 11 / 10]);
        assert!(varied > TAKES / 20 && !is_small, "{varied:?}");
    }

    #[test]
    fn doubt_grows_until_a_poll_sees_an_end() {
        let begun = now();
        let mut drift = Drift::default();
        let mut running = Running::new(0, begun, true, Some(Duration::ZERO));
        let first = running.doubt(TAKES, &drift);
        assert!(!first.is_zero());
        let unseen = End { upto: 1, takes: TAKES, ran: None, seen: begun + 2 * TAKES };
        running = running.next(unseen, true, &mut drift);
        assert_eq!(running.doubt(TAKES, &drift), 2 * first);
        let seen = begun + 2 * TAKES;
        let gap = Duration::from_micros(1);
        let closely = End { upto: 2, takes: TAKES, ran: Some(seen - gap), seen };
        running = running.next(closely, true, &mut drift);
        assert!(running.doubt(Duration::ZERO, &drift) == gap);
        running.hold(seen);
        assert_eq!(running.doubt(TAKES, &drift), Duration::MAX, "another process may have had the device");
        let late = End { upto: 3, takes: TAKES, ran: Some(seen + 9 * TAKES), seen: seen + 9 * TAKES + gap };
        let before = drift.off;
        running = running.next(late, true, &mut drift);
        assert_eq!((running.doubt(Duration::ZERO, &drift), drift.off), (gap, before));
    }
}
