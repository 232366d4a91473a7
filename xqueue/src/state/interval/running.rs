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

/// What seen ends showed of foreseen ones. All are parts of the estimated time.
#[derive(Debug)]
pub(super) struct Drift {
    /// The time that intervals took on average.
    mean: i64,
    /// The average distance from that.
    spread: i64,
    /// The average distance of an end from the foreseen one.
    off: i64,
}

/// One, in the unit of a drift.
const PARTS: i64 = 1 << 20;
/// The bounds of the mean.
const MEAN: RangeInclusive<i64> = PARTS * 3 / 4..=PARTS * 2;
/// The bounds of the distance from foreseen ends. The least makes the worker look from time to time where nothing seems to be off.
const OFF: RangeInclusive<i64> = PARTS / 256..=PARTS / 2;
/// Below this a close watch of an end is short.
const CLOSE: i64 = PARTS / 32;
/// The part of the spread by which a time above the estimate is foreseen to be shorter than the mean: a launch that follows the
/// mean of times that vary is often late.
const CAREFUL: i64 = 2;
/// One end moves each by one part in so many of what it shows.
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
        let foreseen = self.since + drift.foreseen(end.takes);
        let since = end.ran.map_or(foreseen, |ran| ran.max(foreseen)).min(end.seen);
        let next = Self::new(end.upto, since, whole, None);
        let off = nanos(since.saturating_duration_since(foreseen))
            - nanos(foreseen.saturating_duration_since(since));
        let doubt = self.doubt(end.takes, drift);
        let gap = end.ran.map(|ran| end.seen.saturating_duration_since(ran));
        // An end farther off than it was doubted is told by any two polls.
        let bound = gap.filter(|gap| *gap < doubt || off.abs() > nanos(doubt));
        if self.bound.is_some() && (off != 0 || bound.is_some()) {
            drift.learn(off, self.foreseen + end.takes, bound);
        }
        match bound {
            Some(_) => Self { bound, ..next },
            None => Self { bound: self.bound, foreseen: self.foreseen + end.takes, ..next },
        }
    }
}

impl Default for Drift {
    fn default() -> Self {
        Self { mean: PARTS, spread: PARTS / 16, off: PARTS / 16 }
    }
}

impl Drift {
    /// Returns true if ends are mostly close to the foreseen ones.
    pub(super) fn is_small(&self) -> bool {
        self.off < CLOSE
    }

    /// Returns the time after which an interval of this estimated time probably ends.
    pub(super) fn foreseen(&self, takes: Duration) -> Duration {
        scaled(takes, self.pace())
    }

    /// Returns the parts of the estimated time after which an interval probably ends. Estimates that are too long are corrected in
    /// full, because with those the device idles.
    fn pace(&self) -> i64 {
        if self.mean > PARTS { PARTS.max(self.mean - CAREFUL * self.spread) } else { self.mean }
    }

    /// Learns that an end was at least so many nanoseconds later than foreseen, or earlier, after so long by the estimates. `gap`: how
    /// much later or earlier it can have been at most, if polls bounded it.
    fn learn(&mut self, late: i64, estimated: Duration, gap: Option<Duration>) {
        let part = |time: i64| time.saturating_mul(PARTS) / nanos(estimated).max(1);
        let shown = part(late);
        let took = (self.pace() + shown).clamp(*MEAN.start(), *MEAN.end());
        self.spread += ((took - self.mean).abs() - self.spread) / WEIGHT;
        self.mean += (took - self.mean) / WEIGHT;
        // A wide gap shows no end to be close to the foreseen one.
        if shown.abs() > self.off || gap.is_some_and(|gap| part(nanos(gap)) < self.off) {
            self.off = (self.off + (shown.abs() - self.off) / WEIGHT).clamp(*OFF.start(), *OFF.end());
        }
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns so many parts of a time, at most two hours.
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
    fn times_that_are_all_off_alike_are_followed() {
        let gap = Duration::from_micros(2);
        for percent in [80, 95, 99, 100, 101, 105, 120] {
            let mut drift = Drift::default();
            let farthest = follow(&mut drift, &[TAKES * percent / 100], 20, gap);
            assert!(farthest < TAKES / 10, "{percent} %: {farthest:?}");
            assert!(drift.is_small(), "{percent} %: {drift:?}");
        }
    }

    #[test]
    fn times_that_vary_are_foreseen_as_the_least_of_them() {
        let mut drift = Drift::default();
        follow(&mut drift, &[TAKES, TAKES * 6 / 5, TAKES * 11 / 10], 1, Duration::from_micros(2));
        let foreseen = drift.foreseen(TAKES);
        assert!(foreseen < TAKES * 21 / 20, "{foreseen:?}");
    }

    #[test]
    fn end_that_contradicts_the_doubt_is_learnt() {
        let begun = now();
        let learnt = |ran: Duration, seen: Duration| {
            // All is known closely, until this end.
            let mut drift = Drift { off: *OFF.start(), spread: 0, ..Drift::default() };
            let running = Running::new(0, begun, true, Some(Duration::ZERO));
            let end = End { upto: 1, takes: TAKES, ran: Some(begun + ran), seen: begun + seen };
            let next = running.next(end, true, &mut drift);
            (drift.off, drift.mean, next.doubt(Duration::ZERO, &drift))
        };
        let least = *OFF.start();
        // It ran for far longer than foreseen. The polls are far apart.
        let (off, mean, doubt) = learnt(2 * TAKES, 4 * TAKES);
        assert!(off > least && mean > PARTS && doubt == 2 * TAKES, "{off} {mean} {doubt:?}");
        // It had ended far earlier.
        let (off, mean, doubt) = learnt(Duration::ZERO, TAKES / 2);
        assert!(off > least && mean < PARTS && doubt == TAKES / 2, "{off} {mean} {doubt:?}");
        // Nothing contradicts that it ended in time, and nothing shows it either.
        let (off, mean, doubt) = learnt(Duration::ZERO, 2 * TAKES);
        assert!(off == least && mean == PARTS && doubt < TAKES, "{off} {mean} {doubt:?}");
    }

    #[test]
    fn end_between_far_polls_corrects_the_mean_alone() {
        let begun = now();
        let running = Running::new(0, begun, true, Some(Duration::ZERO));
        let mut drift = Drift::default();
        let doubt = running.doubt(TAKES, &drift);
        // It ran on after the foreseen end, for less than it was doubted.
        let ran = begun + TAKES + doubt / 2;
        let end = End { upto: 1, takes: TAKES, ran: Some(ran), seen: ran + TAKES };
        let next = running.next(end, true, &mut drift);
        assert_eq!((next.since, drift.off), (ran, Drift::default().off));
        assert!(drift.mean > PARTS && next.doubt(Duration::ZERO, &drift) == doubt, "{drift:?}");
    }

    #[test]
    fn commands_that_vary_are_doubted_sooner() {
        let doubt = |truly: &[Duration], every: u32| {
            let mut drift = Drift::default();
            follow(&mut drift, truly, every, Duration::from_micros(2));
            let running = Running::new(0, now(), true, Some(Duration::ZERO));
            (running.doubt(TAKES, &drift), drift.is_small())
        };
        let (equal, is_small) = doubt(&[TAKES], 20);
        assert!(equal < TAKES / 200 && is_small, "{equal:?}");
        let (varied, is_small) = doubt(&[TAKES, TAKES * 6 / 5, TAKES * 11 / 10], 1);
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
