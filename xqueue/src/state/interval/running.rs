//! The command that runs on a hardware queue: when it started, and how uncertain that time is. This module knows neither markers
//! nor keys.
//!
//! The start of an interval is the end of the one in front of it. Mostly no thread polls at that time, so the library foresees the
//! end from the estimates. These are some percent off, and commands vary, so the error grows from interval to interval. Polls bound
//! it. `Drift` learns how fast it grows, which decides when the worker looks next (ADR 0036).

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
    /// The largest possible error of the last start that polls bounded. None if polls have not bounded any.
    bound: Option<Duration>,
    /// The estimated time of all intervals since that start. Their ends were foreseen, and no poll bounded them.
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

/// The learnt error of foreseen ends. Every field is a fraction of the estimated time, in units of 1/[`PARTS`].
#[derive(Debug)]
pub(super) struct Drift {
    /// The average time of an interval.
    mean: i64,
    /// The average deviation from the mean.
    spread: i64,
    /// The average error of a foreseen end.
    off: i64,
}

/// The value of a fraction of one.
const PARTS: i64 = 1 << 20;
/// The bounds of the mean.
const MEAN: RangeInclusive<i64> = PARTS * 3 / 4..=PARTS * 2;
/// The bounds of the error. The lower bound makes the worker look from time to time even if all ends seem to be foreseen well.
const OFF: RangeInclusive<i64> = PARTS / 256..=PARTS / 2;
/// The error below which a close watch of an end is short.
const CLOSE: i64 = PARTS / 32;
/// If intervals take longer than estimated, the foreseen time is the mean minus this many times the spread. A launch that follows
/// the mean of varying times is often late.
const CAREFUL: i64 = 2;
/// Each observed end moves the averages by 1/`WEIGHT` of its deviation.
const WEIGHT: i64 = 8;

impl Running {
    /// Starts the command behind this index at `since`. `bound` is the largest possible error of that time, if it is known.
    pub(super) fn new(behind: u64, since: Instant, whole: bool, bound: Option<Duration>) -> Self {
        Self { behind, since, unheld: since, whole, bound, foreseen: Duration::ZERO }
    }

    /// Notes that another process may have had the device until this time.
    pub(super) fn hold(&mut self, at: Instant) {
        self.unheld = at;
        self.bound = None;
    }

    /// Returns the probable error of its foreseen end, for an interval with the estimated time `takes`.
    pub(super) fn doubt(&self, takes: Duration, drift: &Drift) -> Duration {
        let of_drift = || scaled(self.foreseen + takes, drift.off);
        self.bound.map_or(Duration::MAX, |bound| bound.saturating_add(of_drift()))
    }

    /// Returns the command that runs after this end, and corrects `drift` by it. `whole` is [`Running::whole`] of that command.
    pub(super) fn next(&self, end: End, whole: bool, drift: &mut Drift) -> Self {
        let foreseen = self.since + drift.foreseen(end.takes);
        let since = end.ran.map_or(foreseen, |ran| ran.max(foreseen)).min(end.seen);
        let next = Self::new(end.upto, since, whole, None);
        let off = nanos(since.saturating_duration_since(foreseen))
            - nanos(foreseen.saturating_duration_since(since));
        let doubt = self.doubt(end.takes, drift);
        let gap = end.ran.map(|ran| end.seen.saturating_duration_since(ran));
        // An error larger than expected shows even between polls that are far apart.
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

    /// Returns the foreseen time of an interval with this estimated time.
    fn foreseen(&self, takes: Duration) -> Duration {
        scaled(takes, self.pace())
    }

    /// Returns the foreseen time of an interval as a fraction of its estimated time. It corrects estimates that are too long in full,
    /// because they let the device idle.
    fn pace(&self) -> i64 {
        if self.mean > PARTS { PARTS.max(self.mean - CAREFUL * self.spread) } else { self.mean }
    }

    /// Learns from an end that came at least `late` nanoseconds after the foreseen one (before it, if negative). `estimated` is the
    /// estimated time since the last bounded start. `gap` is the time between the polls around the end, if they bounded it.
    fn learn(&mut self, late: i64, estimated: Duration, gap: Option<Duration>) {
        let part = |time: i64| time.saturating_mul(PARTS) / nanos(estimated).max(1);
        let shown = part(late);
        let took = (self.pace() + shown).clamp(*MEAN.start(), *MEAN.end());
        self.spread += ((took - self.mean).abs() - self.spread) / WEIGHT;
        self.mean += (took - self.mean) / WEIGHT;
        // Polls that are far apart do not show that the foreseen end was right.
        if shown.abs() > self.off || gap.is_some_and(|gap| part(nanos(gap)) < self.off) {
            self.off = (self.off + (shown.abs() - self.off) / WEIGHT).clamp(*OFF.start(), *OFF.end());
        }
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns a fraction of a time. A result of more than two hours is cut off.
fn scaled(time: Duration, parts: i64) -> Duration {
    Duration::from_nanos((nanos(time).saturating_mul(parts) / PARTS).unsigned_abs())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::now;

    const TAKES: Duration = Duration::from_micros(100);

    /// Runs intervals whose true times are `truly`, in turn. A poll sees every `every`th end, and another one `gap` before it saw the
    /// interval running. Returns the largest error of a start in the second half.
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
