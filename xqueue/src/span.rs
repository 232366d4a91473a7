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

/// The command behind this index, and all that follows it closely, runs since this time.
#[derive(Debug, Clone, Copy)]
struct Running {
    behind: u64,
    since: Instant,
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
    /// What is certainly running.
    running: Option<Running>,
}

impl Spans {
    /// A command is launched behind this index, and nothing was in flight.
    pub(crate) fn begin(&mut self, behind: u64, since: Instant) {
        self.since_mark = Keys::default();
        self.start = behind;
        self.running = Some(Running { behind, since });
    }

    /// Since when the command behind this index is certainly running.
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
        // Its successor was launched in front of `at`: it runs since then, or since the end that was foreseen, if nobody looked at it.
        let ended = self.running_since(span.start).and_then(|since| span.end(since));
        let since = ended.map_or(at, |ended| ended.min(at));
        self.running = (launched > span.upto).then_some(Running { behind: span.upto, since });
    }

    /// The first span was seen running at this time. Its keys, if it takes far longer than they foretell, even if the device has
    /// done something else for so long.
    pub(crate) fn still_running(&mut self, at: Instant, others: Duration) -> Option<Keys> {
        let since = self.running_since(self.queue.front()?.start);
        let front = self.queue.front_mut()?;
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

    /// How long the launches behind the last mark take at most, of which so many are in flight, if all of them are known.
    fn unmarked(&self, in_flight: u64) -> Option<Duration> {
        let commands = self.since_mark.commands;
        // Without a limit, and under a fixed one, nothing is noted.
        if in_flight > commands { None } else { self.since_mark.takes(commands) }
    }

    /// How long everything here takes, if all of it is known; so many launches in flight are behind the last mark.
    pub(crate) fn takes(&self, unmarked: u64) -> Option<Duration> {
        let unmarked = self.unmarked(unmarked);
        self.queue.iter().map(Span::takes).fold(unmarked, |sum, takes| Some(sum? + takes?))
    }

    /// What can be foreseen; so many commands have completed, and so many launches in flight are behind the last mark.
    pub(crate) fn expectation(&self, completed: u64, unmarked: u64) -> Option<Expectation> {
        let mut spans = self.queue.iter().skip_while(|span| span.upto <= completed);
        let first = spans.next();
        let (start, recorded) = first.map_or((self.start, None), |first| (first.start, first.recorded));
        let since = self.running_since(start).or(recorded)?;
        let tail = self.unmarked(unmarked);
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

/// What can be foreseen of what is in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expectation {
    /// How long the first span has been running at most.
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

    #[test]
    fn after_the_device_stood_nothing_is_overdue() {
        let mut keys = Keys::default();
        keys.add(CostKey(7), CostKey(8), Some(Estimate { nanos: 1_000, fresh: false }));
        let begun = now();
        let (recorded, unstarted, seen_running) = (Some(begun), Some(begun), None);
        let (mark, start, upto) = (Mark(1), 0, 1);
        let span =
            Span { mark, start, upto, strays_upto: 0, cost_upto: 0, recorded, unstarted, seen_running, keys };
        let mut spans = Spans::default();
        spans.begin(0, begun);
        spans.queue.push_back(span);
        let later = begun + Duration::from_secs(1);
        assert!(spans.expectation(0, 0).is_some());
        assert!(spans.still_running(later, Duration::ZERO).is_some(), "far longer than foretold");
        assert!(spans.still_running(later, Duration::from_secs(2)).is_none(), "something else may have run");
        spans.forget_times();
        assert!(spans.expectation(0, 0).is_none());
        assert_eq!(spans.takes(0), Some(Duration::from_micros(1)), "it takes no longer than that");
        assert!(spans.still_running(later, Duration::ZERO).is_none());
    }

    #[test]
    fn the_end_of_what_has_no_mark_is_foreseen_from_its_beginning() {
        let mut spans = Spans::default();
        let known = |nanos| Some(Estimate { nanos, fresh: false });
        spans.since_mark.add(CostKey(7), CostKey(8), known(1_000));
        assert!(spans.expectation(0, 1).is_none(), "nobody saw it begin");
        spans.begin(1, now());
        assert_eq!(spans.since_mark.commands, 0, "what came before has ended");
        spans.since_mark.add(CostKey(7), CostKey(8), known(3_000_000_000));
        let all = |spans: &Spans| spans.expectation(1, 1).and_then(|expected| expected.remaining());
        let (first, rest) = all(&spans).expect("it is known");
        assert!(first == rest && first > Duration::from_secs(2));
        spans.since_mark.add(CostKey(9), CostKey(9), None);
        assert!(
            spans.expectation(1, 2).and_then(|expected| expected.remaining()).is_none(),
            "that may take for ever"
        );
    }

    #[test]
    fn what_follows_a_span_began_when_that_was_seen_to_end() {
        let begun = now();
        let mut keys = Keys::default();
        keys.add(CostKey(7), CostKey(8), Some(Estimate { nanos: 1_000, fresh: false }));
        let span = |start, upto| Span {
            mark: Mark(upto),
            start,
            upto,
            strays_upto: 0,
            cost_upto: 0,
            recorded: None,
            unstarted: None,
            seen_running: None,
            keys,
        };
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
    }

    #[test]
    fn of_launches_that_nobody_noted_it_is_not_known_how_long_they_take() {
        let mut spans = Spans::default();
        assert_eq!(spans.takes(0), Some(Duration::ZERO));
        assert_eq!(spans.takes(1), None, "a launch without a limit");
        spans.since_mark.add(CostKey(7), CostKey(8), Some(Estimate { nanos: 1_000, fresh: false }));
        assert_eq!(spans.takes(1), Some(Duration::from_micros(1)));
        assert_eq!(spans.takes(2), None, "one more without");
        assert_eq!(spans.takes(0), Some(Duration::from_micros(1)), "it has completed: that is the most");
        spans.since_mark.add(CostKey(9), CostKey(9), None);
        assert_eq!(spans.takes(2), None);
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
