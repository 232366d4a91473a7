//! What lies between two marks: when it began, how long it will probably take, and what its end teaches. Knows nothing of
//! counts, of the window or of who polls.

use std::collections::VecDeque;
use std::time::Duration;

use crate::estimate::{Estimate, Estimates};
use crate::hw::{CostKey, Mark};
use crate::sync::{Instant, now};

/// A command that was seen running so long before its end was watched closely.
const CLOSE: Duration = Duration::from_micros(5);
/// Different keys that a span remembers.
const KEYS: usize = 4;

/// The commands from one mark to the next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) mark: Mark,
    /// Index of the last command in front of the span.
    pub(crate) start: u64,
    /// Index of its last command.
    pub(crate) upto: u64,
    /// Forced launches in front of the mark.
    pub(crate) strays_upto: u64,
    /// Sum of all costs up to its end.
    pub(crate) cost_upto: u64,
    /// When, where that helps to foresee the end.
    pub(crate) recorded: Option<Instant>,
    /// The latest time at which none of it had certainly started.
    pub(crate) unstarted: Option<Instant>,
    /// The latest time at which it was seen running.
    pub(crate) seen_running: Option<Instant>,
    pub(crate) keys: Keys,
}

impl Span {
    /// How long it will probably take, if all of it is known.
    fn takes(&self) -> Option<Duration> {
        self.keys.takes(self.upto - self.start)
    }

    /// It is one command of which little is known.
    fn is_fresh(&self) -> bool {
        self.keys.fresh && self.upto - self.start == 1
    }

    /// It took at most `upper`, and was seen running `gap` before its end.
    pub(crate) fn learn(&self, upper: Duration, gap: Duration, estimates: &Estimates) {
        let commands = self.upto - self.start;
        if self.keys.len == 1 && self.keys.commands == commands {
            let each = upper / u32::try_from(commands).unwrap_or(u32::MAX).max(1);
            let close = gap <= CLOSE.max(upper / 32);
            estimates.learn(CostKey(self.keys.keys[0]), each, close);
            if commands == 1 {
                estimates.learn(CostKey(self.keys.placed), each, close);
            }
        }
    }

    /// When it will have ended, having begun at `since`; it was certainly running until it was last seen.
    pub(crate) fn end(&self, since: Instant) -> Option<Instant> {
        let foreseen = since + self.takes()?;
        Some(self.seen_running.map_or(foreseen, |seen| seen.max(foreseen)))
    }
}

/// The keys of a span, as long as they are few and all known.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Keys {
    keys: [u64; KEYS],
    len: usize,
    /// Commands that the keys stand for.
    pub(crate) commands: u64,
    overflow: bool,
    /// Sum of the times that the known ones will probably take, and how many those are.
    expected: u64,
    known: u64,
    /// At least one of them is worth a close look: it can be learnt, and little is known.
    fresh: bool,
    /// The last one's key at its place in the program.
    placed: u64,
}

/// The command behind this index runs since this time, or will soon.
#[derive(Debug, Clone, Copy)]
struct Running {
    behind: u64,
    since: Instant,
    /// Its whole span had been launched by then: it runs without a gap.
    whole: bool,
}

impl Keys {
    /// How long so many commands will probably take, if the keys stand for all of them and are known.
    pub(crate) fn takes(&self, commands: u64) -> Option<Duration> {
        (self.known == commands).then(|| Duration::from_nanos(self.expected))
    }

    /// How long all of them will probably take, if all are known and none needs a closer look.
    pub(crate) fn settled(&self) -> Option<u64> {
        (self.known == self.commands && !self.fresh).then_some(self.expected)
    }

    pub(crate) fn add(&mut self, key: CostKey, placed: CostKey, known: Option<Estimate>) {
        self.placed = placed.0;
        if let Some(known) = known {
            self.expected += known.nanos;
            self.known += 1;
        }
        self.fresh |= key != CostKey::UNKNOWN && known.is_none_or(|known| known.fresh);
        self.commands += 1;
        if self.keys[..self.len].contains(&key.0) {
            return;
        }
        if self.len == KEYS {
            self.overflow = true;
            return;
        }
        self.keys[self.len] = key.0;
        self.len += 1;
    }

    /// Where what is learnt of them is kept.
    pub(crate) fn learnt(&self) -> impl Iterator<Item = CostKey> + '_ {
        self.keys[..self.len].iter().chain([&self.placed]).map(|&key| CostKey(key))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Spans {
    pub(crate) queue: VecDeque<Span>,
    /// Keys since the last mark, or since nothing was in flight, if that is later; and the index of the last command before them.
    pub(crate) since_mark: Keys,
    pub(crate) start: u64,
    /// At this time no command behind this index had started: the bound of spans yet to come.
    pub(crate) unstarted: Option<(Instant, u64)>,
    /// What is running.
    running: Option<Running>,
}

impl Spans {
    /// A command is launched behind this index, and nothing was in flight.
    pub(crate) fn begin(&mut self, behind: u64, since: Instant) {
        self.since_mark = Keys::default();
        self.start = behind;
        self.running = Some(Running { behind, since, whole: false });
    }

    /// A command is launched at this time, behind so many that have completed. If all in front of it has no mark and should have ended
    /// long ago, it has not waited for that: a program that launches late is not a device that is slow.
    pub(crate) fn follow(&mut self, at: Instant, completed: u64) {
        let marked = self.queue.back().is_some_and(|span| span.upto > completed);
        let takes = self.since_mark.takes(self.since_mark.commands);
        let running = self.running.as_mut().filter(|running| running.behind == self.start && !marked);
        if let (Some(running), Some(takes)) = (running, takes) {
            let ran = at.saturating_duration_since(running.since);
            running.since += ran.saturating_sub(takes);
        }
    }

    /// Since when the command behind this index is running.
    fn running_since(&self, behind: u64) -> Option<Instant> {
        self.running.filter(|running| running.behind == behind).map(|running| running.since)
    }

    /// The first span, which is this one, has completed: it was seen at this time, or is known from elsewhere. What is launched
    /// by now, up to this index, follows it.
    pub(crate) fn end(&mut self, span: &Span, seen: Option<Instant>, launched: u64) {
        self.queue.pop_front();
        let Some(at) = seen else {
            self.running = self.running.filter(|running| running.behind >= span.upto);
            return;
        };
        if self.running.is_some_and(|running| running.behind >= span.upto) {
            // Somebody else knew of the end before, and has launched something since.
            return;
        }
        // Its successor was launched in front of `at`: it runs since then, or since the end that was foreseen, if nobody looked at it.
        let ended = self.running_since(span.start).and_then(|since| span.end(since));
        let since = ended.map_or(at, |ended| ended.min(at));
        let whole = !self.queue.is_empty();
        self.running = (launched > span.upto).then_some(Running { behind: span.upto, since, whole });
    }

    /// The first span was seen running at this time. Its keys, if it takes far longer than they foretell, even if the device has
    /// done something else for so long.
    pub(crate) fn still_running(&mut self, at: Instant, others: Duration) -> Option<Keys> {
        let running = self.running.filter(|running| running.whole);
        let front = self.queue.front_mut()?;
        let since = running.filter(|running| running.behind == front.start).map(|running| running.since);
        front.seen_running = Some(at);
        let keys = front.keys;
        let known = keys.known == front.upto - front.start && !keys.overflow;
        let ran = at.saturating_duration_since(since.filter(|_| known)?);
        (ran > 2 * Duration::from_nanos(keys.expected) + others).then_some(keys)
    }

    /// The device stood for a while, or will: what was seen of times until now teaches and foretells nothing.
    pub(crate) fn forget_times(&mut self) {
        self.unstarted = None;
        self.running = None;
        for span in &mut self.queue {
            span.recorded = None;
            span.unstarted = None;
            span.seen_running = None;
        }
    }

    /// How long the launches behind the last mark take at most, up to the one of this index, if all of them are known.
    fn unmarked(&self, launches: &Launches) -> Option<Duration> {
        if launches.upto <= launches.marked.max(launches.completed) {
            return Some(Duration::ZERO);
        }
        // Without a limit, and under a fixed one, nothing is noted.
        let commands = self.since_mark.commands;
        if self.start + commands == launches.upto { self.since_mark.takes(commands) } else { None }
    }

    /// How long everything here takes, if all of it is known.
    pub(crate) fn takes(&self, launches: &Launches) -> Option<Duration> {
        let unmarked = self.unmarked(launches);
        self.queue.iter().map(Span::takes).fold(unmarked, |sum, takes| Some(sum? + takes?))
    }

    /// What can be foreseen.
    pub(crate) fn expectation(&self, launches: &Launches) -> Option<Expectation> {
        let mut spans = self.queue.iter().skip_while(|span| span.upto <= launches.completed);
        let first = spans.next();
        let (start, recorded) = first.map_or((self.start, None), |first| (first.start, first.recorded));
        let since = self.running_since(start).or(recorded)?;
        let tail = self.unmarked(launches);
        let behind = spans.clone().map(Span::takes).fold(tail, |sum, takes| Some(sum? + takes?));
        // Without a mark all that is in flight is one span.
        let (takes, behind) = first.map_or((tail, Some(Duration::ZERO)), |first| (first.takes(), behind));
        Some(Expectation {
            ran: now().saturating_duration_since(since),
            takes,
            behind,
            fresh: first.is_some_and(Span::is_fresh),
            next_fresh: spans.next().is_some_and(Span::is_fresh),
        })
    }
}

/// The last launch, the last one with a mark, and the last one that is known to have completed, by their indices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launches {
    pub(crate) upto: u64,
    pub(crate) marked: u64,
    pub(crate) completed: u64,
}

/// What can be foreseen of what is in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expectation {
    /// How long the first span has been running, or as much of it as was launched, had it run without a gap.
    pub(crate) ran: Duration,
    /// How long it will probably take.
    pub(crate) takes: Option<Duration>,
    /// And all that is launched behind it.
    pub(crate) behind: Option<Duration>,
    /// It is one command of which little is known.
    pub(crate) fresh: bool,
    /// So is the one behind it, which begins when it ends.
    pub(crate) next_fresh: bool,
}

impl Expectation {
    /// The first span should have ended some time ago.
    pub(crate) fn is_overdue(&self) -> bool {
        self.takes.is_some_and(|takes| self.ran > takes + CLOSE.max(takes / 32))
    }

    /// How long the first span will probably go on, and all of it.
    pub(crate) fn remaining(&self) -> Option<(Duration, Duration)> {
        let first = self.takes?.saturating_sub(self.ran);
        Some((first, first + self.behind?))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn launches(upto: u64, marked: u64, completed: u64) -> Launches {
        Launches { upto, marked, completed }
    }

    /// A span of one command that takes a microsecond.
    fn span(start: u64, upto: u64) -> Span {
        let mut keys = Keys::default();
        keys.add(CostKey(7), CostKey(8), Some(Estimate { nanos: 1_000, fresh: false }));
        let (mark, strays_upto, cost_upto) = (Mark(upto), 0, 0);
        let (recorded, unstarted, seen_running) = (None, None, None);
        Span { mark, start, upto, strays_upto, cost_upto, recorded, unstarted, seen_running, keys }
    }

    #[test]
    fn after_the_device_stood_nothing_is_overdue() {
        let begun = now();
        let mut spans = Spans::default();
        spans.queue.extend([span(0, 1), span(1, 2)]);
        spans.end(&span(0, 1), Some(begun), 2);
        spans.queue[0].recorded = Some(begun);
        let later = begun + Duration::from_secs(1);
        assert!(spans.expectation(&launches(2, 2, 1)).is_some());
        assert!(spans.still_running(later, Duration::ZERO).is_some(), "far longer than foretold");
        assert!(spans.still_running(later, Duration::from_secs(2)).is_none(), "something else may have run");
        spans.forget_times();
        assert!(spans.expectation(&launches(2, 2, 1)).is_none());
        assert_eq!(
            spans.takes(&launches(2, 2, 1)),
            Some(Duration::from_micros(1)),
            "it takes no longer than that"
        );
        assert!(spans.still_running(later, Duration::ZERO).is_none());
    }

    #[test]
    fn the_end_of_what_has_no_mark_is_foreseen_from_its_beginning() {
        let mut spans = Spans::default();
        let known = |nanos| Some(Estimate { nanos, fresh: false });
        spans.since_mark.add(CostKey(7), CostKey(8), known(1_000));
        assert!(spans.expectation(&launches(1, 0, 0)).is_none(), "nobody saw it begin");
        spans.begin(1, now());
        assert_eq!(spans.since_mark.commands, 0, "what came before has ended");
        spans.since_mark.add(CostKey(7), CostKey(8), known(3_000_000_000));
        let foreseen = |spans: &Spans, upto| spans.expectation(&launches(upto, 0, 1))?.remaining();
        let (first, rest) = foreseen(&spans, 2).expect("it is known");
        assert!(first == rest && first > Duration::from_secs(2));
        spans.since_mark.add(CostKey(9), CostKey(9), None);
        assert_eq!(foreseen(&spans, 3), None, "one more, without a limit");
        spans.since_mark.add(CostKey(9), CostKey(9), None);
        assert_eq!(foreseen(&spans, 3), None, "that may take for ever");
    }

    #[test]
    fn a_program_that_launches_late_is_no_device_that_is_slow() {
        let known = Some(Estimate { nanos: 1_000_000, fresh: false });
        let begun = now();
        let mut spans = Spans::default();
        spans.begin(0, begun);
        spans.since_mark.add(CostKey(7), CostKey(8), known);
        spans.follow(begun + Duration::from_micros(300), 0);
        assert_eq!(spans.running_since(0), Some(begun), "the first one runs still");
        spans.since_mark.add(CostKey(7), CostKey(8), known);
        let later = begun + Duration::from_secs(9);
        spans.follow(later, 0);
        assert_eq!(spans.running_since(0), Some(later - Duration::from_millis(2)), "both have ended");
        spans.since_mark.add(CostKey(7), CostKey(8), known);
        // Nor does that prove that its kernels are slow.
        let mark = Span { start: 0, upto: 3, keys: spans.since_mark, ..span(0, 3) };
        spans.queue.push_back(mark);
        assert!(spans.still_running(later + Duration::from_secs(9), Duration::ZERO).is_none());
        // Behind what has a mark, whether it has ended is seen there.
        spans.follow(later + Duration::from_secs(9), 0);
        assert_eq!(spans.running_since(0), Some(later - Duration::from_millis(2)));
    }

    #[test]
    fn what_follows_a_span_began_when_that_was_seen_to_end() {
        let begun = now();
        let mut spans = Spans::default();
        spans.queue.extend([span(0, 1), span(1, 2)]);
        let seen = begun + Duration::from_secs(1);
        spans.end(&span(0, 1), Some(seen), 3);
        assert_eq!(spans.running_since(1), Some(seen), "nobody knows when the first one began");
        // Behind the second one there is a launch without a mark.
        spans.end(&span(1, 2), Some(seen + Duration::from_secs(1)), 3);
        assert_eq!(spans.running_since(2), Some(seen + Duration::from_micros(1)), "the end was foreseen");
        // What a synchronisation proved says nothing of times; what began since stays.
        let mut spans = Spans::default();
        spans.queue.extend([span(0, 1)]);
        spans.begin(0, begun);
        spans.end(&span(0, 1), None, 1);
        assert_eq!(spans.running_since(0), None);
        spans.queue.extend([span(0, 1)]);
        spans.begin(1, begun);
        spans.end(&span(0, 1), None, 2);
        assert_eq!(spans.running_since(1), Some(begun));
        // Who was slow to say that it has seen the end does not know better.
        spans.queue.extend([span(0, 1)]);
        spans.end(&span(0, 1), Some(begun - Duration::from_micros(1)), 2);
        assert_eq!(spans.running_since(1), Some(begun));
    }

    #[test]
    fn of_launches_that_nobody_noted_it_is_not_known_how_long_they_take() {
        let mut spans = Spans::default();
        let takes = |spans: &Spans, upto, completed| spans.takes(&launches(upto, 0, completed));
        assert_eq!(takes(&spans, 0, 0), Some(Duration::ZERO));
        assert_eq!(takes(&spans, 1, 0), None, "a launch without a limit");
        spans.since_mark.add(CostKey(7), CostKey(8), Some(Estimate { nanos: 1_000, fresh: false }));
        assert_eq!(takes(&spans, 1, 0), Some(Duration::from_micros(1)));
        assert_eq!(takes(&spans, 2, 0), None, "one more without");
        assert_eq!(takes(&spans, 2, 1), None, "one more without, and the first one has completed");
        assert_eq!(takes(&spans, 1, 1), Some(Duration::ZERO), "it has completed");
        spans.since_mark.add(CostKey(9), CostKey(9), None);
        assert_eq!(takes(&spans, 2, 0), None);
    }

    #[test]
    fn what_is_overdue_counts_as_nothing_and_what_is_behind_it_in_full() {
        let micros = Duration::from_micros;
        let (takes, behind) = (Some(micros(300)), Some(micros(40)));
        let expected = |ran| Expectation { ran, takes, behind, fresh: false, next_fresh: false };
        assert_eq!(expected(micros(100)).remaining(), Some((micros(200), micros(240))));
        assert_eq!(expected(micros(900)).remaining(), Some((micros(0), micros(40))));
        assert_eq!(Expectation { behind: None, ..expected(micros(0)) }.remaining(), None);
        assert_eq!(Expectation { takes: None, ..expected(micros(0)) }.remaining(), None);
    }
}
