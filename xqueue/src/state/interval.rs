//! The interval between two markers: its start, its probable length, and what its end teaches. Knows nothing
//! of counts, of the window or of polling threads.

mod keys;
mod running;

pub(crate) use keys::Keys;

use std::collections::VecDeque;
use std::time::Duration;

use crate::estimate::{Estimates, Watched};
use crate::hw::{CostKey, Marker};
use crate::state::interval::running::{Drift, End, Running};
use crate::sync::{Instant, now};

/// The longest time between the last sight of a running command and its end for the end to count as watched
/// closely.
const CLOSE: Duration = Duration::from_micros(5);
/// The commands from one marker to the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interval {
    pub(crate) mark: Marker,
    /// The index of the last command in front of the interval.
    pub(crate) start: u64,
    /// The index of its last command.
    pub(crate) upto: u64,
    /// The unordered launches in front of the marker.
    pub(crate) unordered_upto: u64,
    /// The sum of all costs up to its end.
    pub(crate) cost_upto: u64,
    /// The sum of all known times up to its end.
    pub(crate) worked_upto: u64,
    /// The time of the recording, where that helps to foresee the end.
    pub(crate) recorded: Option<Instant>,
    /// The latest time at which none of it had certainly started.
    pub(crate) unstarted: Option<Instant>,
    /// The latest time at which it was seen running.
    pub(crate) seen_running: Option<Instant>,
    pub(crate) keys: Keys,
}

impl Interval {
    /// Returns the estimated time, if all of it is known.
    fn takes(&self) -> Option<Duration> {
        self.keys.takes(self.upto - self.start)
    }

    /// Returns true if it is one command of which little is known.
    fn is_fresh(&self) -> bool {
        self.keys.fresh && self.upto - self.start == 1
    }

    /// Learns from the end: the interval took at most `upper`, and was seen running `gap` before its end.
    pub(crate) fn learn(&self, upper: Duration, [start, end]: [Duration; 2], estimates: &Estimates) {
        let commands = self.upto - self.start;
        if self.keys.len == 1 && self.keys.commands == commands {
            let each = upper / u32::try_from(commands).unwrap_or(u32::MAX).max(1);
            let close = CLOSE.max(upper / 32);
            let watched = match (start <= close, end <= close) {
                (true, true) => Watched::Both,
                (false, true) => Watched::End,
                (_, false) => Watched::Nothing,
            };
            estimates.learn(CostKey(self.keys.keys[0]), each, watched);
            if !self.keys.places {
                estimates.learn(CostKey(self.keys.placed), each, watched);
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Intervals {
    pub(crate) queue: VecDeque<Interval>,
    /// The keys since the last marker, or since nothing was in flight if that is later, and the index of the
    /// last command before them.
    pub(crate) since_marker: Keys,
    pub(crate) start: u64,
    /// A time at which no command behind this index had started: the bound of intervals yet to come.
    pub(crate) unstarted: Option<(Instant, u64)>,
    /// The sum of all costs when a launch last read the clock.
    pub(crate) followed: u64,
    /// True if the last interval that ended had a command of which little or nothing was known, so that its end was a
    /// surprise.
    pub(crate) ended_fresh: bool,
    /// The time at which the last interval that ended was last seen running, and the index of its last command:
    /// what follows started later.
    pub(crate) follows: Option<(Instant, u64)>,
    running: Option<Running>,
    drift: Drift,
    /// The index of the last command of the interval that ended last, and the time from its last sight to its end.
    ended: Option<(u64, Duration)>,
}

impl Intervals {
    /// Notes a launch behind this index with nothing in flight.
    pub(crate) fn begin(&mut self, behind: u64, since: Instant) {
        self.since_marker = Keys::default();
        self.start = behind;
        // It did not follow at once.
        self.follows = None;
        self.running = Some(Running::new(behind, since, false, Some(Duration::ZERO)));
        self.ended = Some((behind, Duration::ZERO));
    }

    /// Returns by how much the interval behind this index can have started later than its bound.
    pub(crate) fn start_gap(&self, start: u64) -> Duration {
        self.ended.filter(|(upto, _)| *upto == start).map_or(Duration::MAX, |(_, gap)| gap)
    }

    /// Notes a launch at this time, behind `completed` commands that have completed. If all in front of it
    /// has no marker and should have ended long ago, the launch has not waited for that: a program that
    /// launches late is not a slow device.
    pub(crate) fn follow(&mut self, at: Instant, completed: u64) {
        let marked = self.queue.back().is_some_and(|interval| interval.upto > completed);
        let takes = self.since_marker.takes(self.since_marker.commands);
        let running = self.running.as_mut().filter(|running| running.behind == self.start && !marked);
        if let (Some(running), Some(takes)) = (running, takes) {
            let ran = at.saturating_duration_since(running.since);
            running.since += ran.saturating_sub(takes);
        }
    }

    /// Returns the time since which the command behind this index is running.
    fn running_since(&self, behind: u64) -> Option<Instant> {
        self.running.filter(|running| running.behind == behind).map(|running| running.since)
    }

    /// Ends the first interval, which is this one. `seen`: the time at which a poll saw its end, if one did.
    /// Everything launched so far, up to index `launched`, follows it.
    pub(crate) fn end(&mut self, interval: &Interval, seen: Option<Instant>, launched: u64) {
        self.queue.pop_front();
        self.ended_fresh = interval.keys.fresh || interval.takes().is_none();
        self.follows = interval.seen_running.map(|at| (at, interval.upto));
        let gap = seen.zip(interval.seen_running).map(|(at, ran)| at.saturating_duration_since(ran));
        if self.ended.is_none_or(|(upto, _)| upto < interval.upto) {
            self.ended = Some((interval.upto, gap.unwrap_or(Duration::MAX)));
        }
        let Some(at) = seen else {
            self.running = self.running.filter(|running| running.behind >= interval.upto);
            return;
        };
        if self.running.is_some_and(|running| running.behind >= interval.upto) {
            // A thread knew of the end before, and something was launched since.
            return;
        }
        // Its successor was launched before `at`: it runs since then, or since the foreseen end, if no poll
        // saw the end.
        let whole = !self.queue.is_empty();
        let running = self.running.filter(|running| running.behind == interval.start);
        let next = match running.zip(interval.takes()) {
            Some((running, takes)) => {
                let end = End { upto: interval.upto, takes, ran: interval.seen_running, seen: at };
                running.next(end, whole, &mut self.drift)
            }
            None => Running::new(interval.upto, at, whole, gap),
        };
        self.running = (launched > interval.upto).then_some(next);
    }

    /// Notes that the first interval was seen running at this time. Returns its keys if it takes far longer
    /// than estimated, even if the device has run other queues for the time `others`.
    pub(crate) fn still_running(&mut self, at: Instant, others: Duration) -> Option<Keys> {
        let running = self.running.filter(|running| running.whole);
        let front = self.queue.front_mut()?;
        let since = running
            .filter(|running| running.behind == front.start)
            .map(|running| running.since.max(running.unheld));
        front.seen_running = Some(at);
        let keys = front.keys;
        let known = keys.known == front.upto - front.start && !keys.overflow;
        let ran = at.saturating_duration_since(since.filter(|_| known)?);
        (ran.saturating_sub(others) > 2 * Duration::from_nanos(keys.expected)).then_some(keys)
    }

    /// Notes that the first launch after a suspension comes at this time. Later launches run no earlier. No thread watched
    /// the ends of earlier ones.
    pub(crate) fn interrupt(&mut self, at: Instant) {
        self.unstarted = None;
        self.follows = None;
        if let Some(last) = self.queue.back_mut() {
            last.seen_running = Some(at);
        }
        self.hold(at);
    }

    /// Notes that another process may have had the device until this time: what runs has had it for no longer.
    pub(crate) fn hold(&mut self, at: Instant) {
        for interval in &mut self.queue {
            interval.unstarted = None;
        }
        if let Some(running) = &mut self.running {
            running.hold(at);
        }
    }

    /// Forgets the observed times: the device was, or will be, interrupted, so they show neither how long
    /// commands take nor when they end.
    pub(crate) fn forget_times(&mut self) {
        self.unstarted = None;
        self.follows = None;
        self.running = None;
        for interval in &mut self.queue {
            interval.recorded = None;
            interval.unstarted = None;
            interval.seen_running = None;
        }
    }

    /// Returns the longest estimated time of the launches behind the last marker, if all of them are known.
    fn unmarked(&self, launches: &Launches) -> Option<Duration> {
        if launches.upto <= launches.marked.max(launches.completed) {
            return Some(Duration::ZERO);
        }
        // Without a limit, and under a fixed one, no keys are kept.
        let commands = self.since_marker.commands;
        if self.start + commands == launches.upto { self.since_marker.takes(commands) } else { None }
    }

    /// Returns the estimated time of everything here, if all of it is known.
    pub(crate) fn takes(&self, launches: &Launches) -> Option<Duration> {
        let unmarked = self.unmarked(launches);
        self.queue.iter().map(Interval::takes).fold(unmarked, |sum, takes| Some(sum? + takes?))
    }

    /// Returns what can be foreseen.
    pub(crate) fn expectation(&self, launches: &Launches) -> Option<Expectation> {
        let mut intervals = self.queue.iter().skip_while(|interval| interval.upto <= launches.completed);
        let first = intervals.next();
        let (start, recorded) = first.map_or((self.start, None), |first| (first.start, first.recorded));
        let since = self.running_since(start).or(recorded)?;
        let tail = self.unmarked(launches);
        let behind = intervals.clone().map(Interval::takes).fold(tail, |sum, takes| Some(sum? + takes?));
        // Without a marker all that is in flight is one interval.
        let (takes, behind) = first.map_or((tail, Some(Duration::ZERO)), |first| (first.takes(), behind));
        let running = self.running.filter(|running| running.behind == start);
        Some(Expectation {
            doubt: running
                .map_or(Duration::MAX, |running| running.doubt(takes.unwrap_or(Duration::ZERO), &self.drift)),
            close: self.drift.is_small(),
            ran: now().saturating_duration_since(since),
            takes,
            behind,
            fresh: first.is_some_and(Interval::is_fresh),
            next_fresh: intervals.next().is_some_and(Interval::is_fresh),
        })
    }
}

/// The indices of the last launch, the last one with a marker, and the last one that is known to have
/// completed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launches {
    pub(crate) upto: u64,
    pub(crate) marked: u64,
    pub(crate) completed: u64,
}

/// The expected times of what is in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expectation {
    /// The time for which the first interval has been running, or the launched part of it had it run without
    /// a gap.
    pub(crate) ran: Duration,
    /// The estimated time of the first interval.
    pub(crate) takes: Option<Duration>,
    /// The estimated time of all that is launched behind it.
    pub(crate) behind: Option<Duration>,
    /// How far the end of the first interval may be from the estimated one.
    pub(crate) doubt: Duration,
    /// True if ends are mostly close to the estimated ones, so that a close watch of one is short.
    pub(crate) close: bool,
    /// True if it is one command of which little is known.
    pub(crate) fresh: bool,
    /// True if the next interval, which begins when it ends, is one command of which little is known.
    pub(crate) next_fresh: bool,
}

impl Expectation {
    /// Returns true if the first interval should have ended some time ago.
    pub(crate) fn is_overdue(&self) -> bool {
        self.takes.is_some_and(|takes| self.ran > takes + CLOSE.max(takes / 32))
    }

    /// Returns the estimated remaining time of the first interval, and of everything.
    pub(crate) fn remaining(&self) -> Option<(Duration, Duration)> {
        let first = self.takes?.saturating_sub(self.ran);
        Some((first, first + self.behind?))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::estimate::Estimate;

    fn launches(upto: u64, marked: u64, completed: u64) -> Launches {
        Launches { upto, marked, completed }
    }

    /// An interval of one command that takes a microsecond.
    fn interval(start: u64, upto: u64) -> Interval {
        let mut keys = Keys::default();
        keys.add(CostKey(7), CostKey(8), Some(Estimate { nanos: 1_000, fresh: false, settled: 0 }));
        let (mark, unordered_upto, cost_upto, worked_upto) = (Marker(upto), 0, 0, 0);
        let (recorded, unstarted, seen_running) = (None, None, None);
        Interval {
            mark,
            start,
            upto,
            unordered_upto,
            cost_upto,
            worked_upto,
            recorded,
            unstarted,
            seen_running,
            keys,
        }
    }

    #[test]
    fn what_follows_an_interval_started_after_its_last_sight() {
        let seen = now();
        let mut intervals = Intervals::default();
        intervals.queue.push_back(interval(0, 1));
        intervals.still_running(seen, Duration::ZERO);
        let first = intervals.queue[0];
        intervals.end(&first, Some(seen + Duration::from_micros(5)), 2);
        assert_eq!(intervals.follows, Some((seen, 1)));
        // The queue was empty for a while, which is no part of the next command's time.
        intervals.begin(1, seen + Duration::from_secs(1));
        assert_eq!(intervals.follows, None);
    }

    #[test]
    fn what_is_launched_after_a_suspension_runs_no_earlier() {
        let begun = now();
        let resumed = begun + Duration::from_millis(2);
        let mut intervals = Intervals::default();
        intervals.begin(0, begun);
        intervals.queue.push_back(interval(0, 1));
        intervals.queue[0].unstarted = Some(begun);
        let doubt =
            |intervals: &Intervals| intervals.expectation(&launches(1, 1, 0)).map(|expected| expected.doubt);
        assert!(doubt(&intervals).is_some_and(|doubt| doubt < Duration::from_millis(1)));
        intervals.interrupt(resumed);
        assert_eq!(doubt(&intervals), Some(Duration::MAX), "another process may have had the device");
        intervals.queue.push_back(interval(1, 2));
        let first = intervals.queue[0];
        assert_eq!(first.unstarted, None, "its end was not watched");
        intervals.end(&first, Some(resumed + Duration::from_micros(600)), 2);
        assert_eq!(intervals.running_since(1), Some(resumed));
        assert_eq!(intervals.follows, Some((resumed, 1)));
    }

    #[test]
    fn start_is_as_uncertain_as_the_end_in_front_of_it() {
        let begun = now();
        let late = Duration::from_micros(80);
        let mut intervals = Intervals::default();
        intervals.begin(0, begun);
        assert_eq!(intervals.start_gap(0), Duration::ZERO, "nothing was in flight");
        intervals.queue.extend([interval(0, 1), interval(1, 2)]);
        intervals.still_running(begun, Duration::ZERO);
        let first = intervals.queue[0];
        intervals.end(&first, Some(begun + late), 2);
        assert_eq!(intervals.start_gap(1), late);
        let second = intervals.queue[0];
        intervals.end(&second, Some(begun + 2 * late), 2);
        assert_eq!(intervals.start_gap(2), Duration::MAX, "nobody saw it run");
    }

    #[test]
    fn time_of_a_suspension_is_no_reason_to_forget_estimates() {
        let begun = now();
        let mut intervals = Intervals::default();
        intervals.queue.extend([interval(0, 1), interval(1, 2)]);
        intervals.end(&interval(0, 1), Some(begun), 2);
        let later = begun + Duration::from_secs(1);
        assert!(intervals.still_running(later, Duration::ZERO).is_some(), "far longer than foretold");
        intervals.interrupt(later);
        assert!(intervals.still_running(later, Duration::ZERO).is_none());
        let much_later = later + Duration::from_secs(1);
        assert!(
            intervals.still_running(much_later, Duration::ZERO).is_some(),
            "it ran on without a suspension"
        );
    }

    #[test]
    fn command_behind_one_of_unknown_time_is_a_surprise() {
        let ended = |known: Option<Estimate>| {
            let mut intervals = Intervals::default();
            let mut one = interval(0, 1);
            one.keys = Keys::default();
            one.keys.add(CostKey::UNKNOWN, CostKey::UNKNOWN, known);
            intervals.queue.push_back(one);
            intervals.end(&one, Some(now()), 1);
            intervals.ended_fresh
        };
        assert!(ended(None));
        assert!(!ended(Some(Estimate { nanos: 1_000, fresh: false, settled: 0 })));
    }

    #[test]
    fn several_commands_teach_the_time_at_a_place_only_if_all_are_there() {
        let learnt = |places: [u64; 2]| {
            let estimates = Estimates::new();
            let mut both = interval(0, 2);
            both.keys = Keys::default();
            for place in places {
                both.keys.add(CostKey(7), CostKey(place), None);
            }
            both.learn(Duration::from_micros(20), [Duration::ZERO; 2], &estimates);
            [7, 8].map(|key| estimates.get(CostKey(key)).map(|known| known.nanos))
        };
        assert_eq!(learnt([8, 8]), [Some(10_000), Some(10_000)]);
        assert_eq!(learnt([9, 8]), [Some(10_000), None]);
    }

    #[test]
    fn times_after_a_stop_of_the_device_are_forgotten() {
        let begun = now();
        let mut intervals = Intervals::default();
        intervals.queue.extend([interval(0, 1), interval(1, 2)]);
        intervals.end(&interval(0, 1), Some(begun), 2);
        intervals.queue[0].recorded = Some(begun);
        let later = begun + Duration::from_secs(1);
        assert!(intervals.expectation(&launches(2, 2, 1)).is_some());
        assert!(intervals.still_running(later, Duration::ZERO).is_some(), "far longer than foretold");
        assert!(
            intervals.still_running(later, Duration::from_secs(2)).is_none(),
            "another queue may have run"
        );
        intervals.forget_times();
        assert!(intervals.expectation(&launches(2, 2, 1)).is_none());
        assert_eq!(
            intervals.takes(&launches(2, 2, 1)),
            Some(Duration::from_micros(1)),
            "it takes no longer than that"
        );
        assert!(intervals.still_running(later, Duration::ZERO).is_none());
    }

    #[test]
    fn launches_without_a_marker_are_foreseen_from_their_start() {
        let mut intervals = Intervals::default();
        let known = |nanos| Some(Estimate { nanos, fresh: false, settled: 0 });
        intervals.since_marker.add(CostKey(7), CostKey(8), known(1_000));
        assert!(intervals.expectation(&launches(1, 0, 0)).is_none(), "its start was not seen");
        intervals.begin(1, now());
        assert_eq!(intervals.since_marker.commands, 0, "the launches before have ended");
        intervals.since_marker.add(CostKey(7), CostKey(8), known(3_000_000_000));
        let foreseen =
            |intervals: &Intervals, upto| intervals.expectation(&launches(upto, 0, 1))?.remaining();
        let (first, rest) = foreseen(&intervals, 2).expect("it is known");
        assert!(first == rest && first > Duration::from_secs(2));
        intervals.since_marker.add(CostKey(9), CostKey(9), None);
        assert_eq!(foreseen(&intervals, 3), None, "one more, without a limit");
        intervals.since_marker.add(CostKey(9), CostKey(9), None);
        assert_eq!(foreseen(&intervals, 3), None, "an unknown command may take for ever");
    }

    #[test]
    fn late_launches_do_not_count_as_a_slow_device() {
        let known = Some(Estimate { nanos: 1_000_000, fresh: false, settled: 0 });
        let begun = now();
        let mut intervals = Intervals::default();
        intervals.begin(0, begun);
        intervals.since_marker.add(CostKey(7), CostKey(8), known);
        intervals.follow(begun + Duration::from_micros(300), 0);
        assert_eq!(intervals.running_since(0), Some(begun), "the first one runs still");
        intervals.since_marker.add(CostKey(7), CostKey(8), known);
        let later = begun + Duration::from_secs(9);
        intervals.follow(later, 0);
        assert_eq!(intervals.running_since(0), Some(later - Duration::from_millis(2)), "both have ended");
        intervals.since_marker.add(CostKey(7), CostKey(8), known);
        // The late launch does not prove that the kernels are slow either.
        let mark = Interval { start: 0, upto: 3, keys: intervals.since_marker, ..interval(0, 3) };
        intervals.queue.push_back(mark);
        assert!(intervals.still_running(later + Duration::from_secs(9), Duration::ZERO).is_none());
        // Behind a marker the end is seen, not foreseen.
        intervals.follow(later + Duration::from_secs(9), 0);
        assert_eq!(intervals.running_since(0), Some(later - Duration::from_millis(2)));
    }

    #[test]
    fn next_interval_begins_at_the_seen_or_foreseen_end() {
        let begun = now();
        let mut intervals = Intervals::default();
        intervals.queue.extend([interval(0, 1), interval(1, 2)]);
        let seen = begun + Duration::from_secs(1);
        intervals.end(&interval(0, 1), Some(seen), 3);
        assert_eq!(intervals.running_since(1), Some(seen), "the start of the first one is unknown");
        // Behind the second one there is a launch without a marker.
        intervals.end(&interval(1, 2), Some(seen + Duration::from_secs(1)), 3);
        assert_eq!(intervals.running_since(2), Some(seen + Duration::from_micros(1)), "the end was foreseen");
        // A synchronisation shows no times; the start of later launches stays.
        let mut intervals = Intervals::default();
        intervals.queue.extend([interval(0, 1)]);
        intervals.begin(0, begun);
        intervals.end(&interval(0, 1), None, 1);
        assert_eq!(intervals.running_since(0), None);
        intervals.queue.extend([interval(0, 1)]);
        intervals.begin(1, begun);
        intervals.end(&interval(0, 1), None, 2);
        assert_eq!(intervals.running_since(1), Some(begun));
        // A late report must not override an earlier one.
        intervals.queue.extend([interval(0, 1)]);
        intervals.end(&interval(0, 1), Some(begun - Duration::from_micros(1)), 2);
        assert_eq!(intervals.running_since(1), Some(begun));
    }

    #[test]
    fn unnoted_launches_have_no_known_time() {
        let mut intervals = Intervals::default();
        let takes = |intervals: &Intervals, upto, completed| intervals.takes(&launches(upto, 0, completed));
        assert_eq!(takes(&intervals, 0, 0), Some(Duration::ZERO));
        assert_eq!(takes(&intervals, 1, 0), None, "a launch without a limit");
        intervals.since_marker.add(
            CostKey(7),
            CostKey(8),
            Some(Estimate { nanos: 1_000, fresh: false, settled: 0 }),
        );
        assert_eq!(takes(&intervals, 1, 0), Some(Duration::from_micros(1)));
        assert_eq!(takes(&intervals, 2, 0), None, "one more without");
        assert_eq!(takes(&intervals, 2, 1), None, "one more without, and the first one has completed");
        assert_eq!(takes(&intervals, 1, 1), Some(Duration::ZERO), "it has completed");
        intervals.since_marker.add(CostKey(9), CostKey(9), None);
        assert_eq!(takes(&intervals, 2, 0), None);
    }

    #[test]
    fn overdue_interval_counts_as_zero_and_the_rest_in_full() {
        let micros = Duration::from_micros;
        let (takes, behind) = (Some(micros(300)), Some(micros(40)));
        let expected = |ran| Expectation {
            ran,
            takes,
            behind,
            doubt: micros(0),
            close: false,
            fresh: false,
            next_fresh: false,
        };
        assert_eq!(expected(micros(100)).remaining(), Some((micros(200), micros(240))));
        assert_eq!(expected(micros(900)).remaining(), Some((micros(0), micros(40))));
        assert_eq!(Expectation { behind: None, ..expected(micros(0)) }.remaining(), None);
        assert_eq!(Expectation { takes: None, ..expected(micros(0)) }.remaining(), None);
    }
}
