//! Learns which commands only begin a request.
//!
//! Many programs launch one short kernel, work on the host for a while, and then launch the rest of the
//! request. To suspend others from the first kernel on costs them the pause, and the program gains nothing from
//! it. If the commands with a key have always been followed by such a pause, the next one counts as brief
//! (`state/ready.rs`): others run for a part of the pause, or until the second command comes.
//!
//! A key is learnt in two steps. The first [`TIMED`] requests only take the time from the first command to the
//! second, which costs no marker. After that the first command has a marker, and the second one must find it
//! complete: then its end lies within the pause, and nobody waits for it. A program that asks for its end does.
//!
//! The command counts from a moment on that lies [`LEAD`] before the earliest second command of the last
//! requests. So others are gone by then, and the program does not wait for that. A wrong guess costs the
//! program what it was to be spared, so each halves what was learnt. More than one request in five cannot be
//! wrong for long.

use std::time::Duration;

use crate::hw::CostKey;
use crate::state::ready::GRACE;
use crate::sync::Instant;

/// The time before the second command from which on the first one counts: others have this time to drain their
/// window, or to be evicted.
const LEAD: Duration = Duration::from_micros(250);
/// The shortest pause that counts. Of the shortest one others get 150 µs; to let them in and out costs the
/// device about 100 µs where they are evicted, and less elsewhere.
const LEAST: Duration = Duration::from_micros(400);
/// The requests that are only timed.
const TIMED: u8 = 8;
/// The requests after which commands with the key count as brief.
const PROVEN: u8 = 16;
/// The highest score. After one wrong guess, four right ones are needed.
const HIGHEST: u8 = 24;
/// Of the brief commands, one in so many has a marker to prove again that it is short.
const VERIFIED: u8 = 8;
/// The longest pause behind which a command is the second one of a request, where the queue was seen idle
/// meanwhile.
const MOST: Duration = Duration::from_millis(10);
/// The pauses of a key that are kept.
const PAUSES: usize = 8;
/// The keys that a queue knows.
const KEYS: usize = 4;

/// How the first command of a request counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Begin {
    /// The time for which it may count as brief; zero if it may not.
    pub(crate) brief: Duration,
    /// A marker behind it is to show that it is short.
    pub(crate) marked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    key: CostKey,
    score: u8,
    /// The number of its uses, which wraps.
    uses: u8,
    /// The last pauses that were long enough, microseconds.
    pauses: [u32; PAUSES],
}

impl Default for Known {
    fn default() -> Self {
        Self::new(CostKey::UNKNOWN, 0)
    }
}

impl Known {
    fn new(key: CostKey, score: u8) -> Self {
        Self { key, score, uses: 0, pauses: [0; PAUSES] }
    }

    /// Returns the time for which the command may count as brief.
    fn brief(&self) -> Duration {
        let least = self.pauses.iter().min().filter(|_| self.score >= PROVEN).copied().unwrap_or(0);
        Duration::from_micros(least.into()).saturating_sub(LEAD).min(GRACE)
    }

    /// Notes a pause that was long enough.
    fn note(&mut self, pause: Duration) {
        self.pauses.rotate_left(1);
        self.pauses[PAUSES - 1] = u32::try_from(pause.as_micros()).unwrap_or(u32::MAX);
    }
}

/// A request of which only the first command has come.
#[derive(Debug, Clone, Copy)]
struct Begun {
    key: CostKey,
    at: Instant,
    /// The time for which it counts as brief.
    brief: Duration,
    marked: bool,
    /// The command was seen complete, and the program had not asked for that.
    seen_complete: bool,
}

/// What is known of the first commands of a queue's requests.
#[derive(Debug, Default)]
pub(crate) struct Preludes {
    known: [Known; KEYS],
    begun: Option<Begun>,
}

impl Preludes {
    /// Notes a command that comes to an idle queue. It is the first one of a request, unless it follows one that
    /// was seen complete a moment ago.
    pub(crate) fn begin(&mut self, key: CostKey, at: Instant) -> Begin {
        const PLAIN: Begin = Begin { brief: Duration::ZERO, marked: false };
        if let Some(begun) = &self.begun {
            // A loop of one kernel is no request with a prelude.
            if begun.key != key && at.saturating_duration_since(begun.at) <= MOST {
                self.follow(at, None);
                return PLAIN;
            }
            self.refute();
        }
        if key == CostKey::UNKNOWN {
            return PLAIN;
        }
        let (mut brief, mut marked) = (Duration::ZERO, false);
        if let Some(known) = self.of(key) {
            known.uses = known.uses.wrapping_add(1);
            brief = known.brief();
            marked = known.score >= TIMED && (brief.is_zero() || known.uses.is_multiple_of(VERIFIED));
        }
        self.begun = Some(Begun { key, at, brief, marked, seen_complete: false });
        Begin { brief, marked }
    }

    /// Returns true if the second command of a request is to be noted.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Returns true if the next [`Self::follow`] wants to know whether the first command is complete.
    pub(crate) fn wants_proof(&self) -> bool {
        self.begun.is_some_and(|begun| begun.marked)
    }

    /// Notes the second command of a request. `complete` says whether the first one is complete by now; `None`
    /// if that was not asked.
    pub(crate) fn follow(&mut self, at: Instant, complete: Option<bool>) {
        let Some(begun) = self.begun.take() else { return };
        let pause = at.saturating_duration_since(begun.at);
        // Earlier than promised, it finds the others still at work.
        let waited = pause >= LEAST && pause >= begun.brief;
        let Some(known) = self.of(begun.key) else {
            if waited {
                self.learn(begun.key, pause);
            }
            return;
        };
        if waited {
            known.note(pause);
        }
        let complete = if begun.seen_complete { Some(true) } else { complete.filter(|_| begun.marked) };
        match complete {
            _ if !waited => known.score /= 2,
            Some(false) => known.score = 0,
            None if known.score >= TIMED => {}
            _ => known.score = (known.score + 1).min(HIGHEST),
        }
    }

    /// Notes that the queue has turned idle. If the second command has not come and the program has asked for the
    /// end of the first one, that is the request.
    pub(crate) fn turned_idle(&mut self, by_program: bool) {
        match &mut self.begun {
            Some(_) if by_program => self.refute(),
            Some(begun) => begun.seen_complete = true,
            None => {}
        }
    }

    /// Returns true if the program has not asked for the end of a first command that was seen complete.
    pub(crate) fn is_open(&self) -> bool {
        self.begun.is_some_and(|begun| begun.seen_complete)
    }

    fn refute(&mut self) {
        if let Some(begun) = self.begun.take()
            && let Some(known) = self.of(begun.key)
        {
            known.score /= 2;
        }
    }

    fn of(&mut self, key: CostKey) -> Option<&mut Known> {
        self.known.iter_mut().find(|known| known.key == key)
    }

    /// Begins to learn a key, in place of the one of which least is known.
    fn learn(&mut self, key: CostKey, pause: Duration) {
        if let Some(least) = self.known.iter_mut().min_by_key(|known| known.score) {
            *least = Known::new(key, 1);
            least.note(pause);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::now;

    const KEY: CostKey = CostKey(7);
    const PAUSE: Duration = LEAST;

    /// A request whose second command comes after this pause.
    fn request(preludes: &mut Preludes, key: CostKey, pause: Duration, complete: bool) -> Begin {
        let at = now();
        let begin = preludes.begin(key, at);
        assert_eq!(begin.marked, preludes.wants_proof());
        preludes.follow(at + pause, begin.marked.then_some(complete));
        begin
    }

    fn is_brief(begin: Begin) -> bool {
        !begin.brief.is_zero()
    }

    fn learnt() -> Preludes {
        let mut preludes = Preludes::default();
        for _ in 0..PROVEN {
            assert!(!is_brief(request(&mut preludes, KEY, PAUSE, true)));
        }
        preludes
    }

    #[test]
    fn first_command_is_timed_then_proven_then_brief() {
        let mut preludes = Preludes::default();
        let begins: Vec<Begin> = (0..64).map(|_| request(&mut preludes, KEY, PAUSE, true)).collect();
        assert_eq!(begins.iter().position(|begin| begin.marked), Some(TIMED.into()));
        assert_eq!(begins.iter().position(|begin| is_brief(*begin)), Some(PROVEN.into()));
        let marked = begins.iter().filter(|begin| is_brief(**begin) && begin.marked).count();
        assert_eq!(marked, 48 / usize::from(VERIFIED));
    }

    #[test]
    fn command_is_brief_until_a_while_before_the_earliest_second_one() {
        let mut preludes = learnt();
        let longer = PAUSE + Duration::from_micros(100);
        assert_eq!(request(&mut preludes, KEY, longer, true).brief, LEAST - LEAD);
        for _ in 1..PAUSES {
            request(&mut preludes, KEY, longer, true);
        }
        assert_eq!(request(&mut preludes, KEY, PAUSE, true).brief, longer - LEAD);
        assert_eq!(request(&mut preludes, KEY, longer, true).brief, LEAST - LEAD);
        for _ in 0..PAUSES {
            request(&mut preludes, KEY, 3 * GRACE, true);
        }
        assert_eq!(request(&mut preludes, KEY, PAUSE, true).brief, GRACE);
    }

    #[test]
    fn short_pauses_are_not_learnt() {
        let mut preludes = Preludes::default();
        let short = PAUSE - Duration::from_nanos(1);
        assert!((0..100).all(|_| !is_brief(request(&mut preludes, KEY, short, true))));
        // Nor where every second one is short.
        assert!((0..100).all(|index| {
            let pause = if index % 2 == 0 { PAUSE } else { short };
            !is_brief(request(&mut preludes, KEY, pause, true))
        }));
    }

    #[test]
    fn wrong_guesses_are_bounded() {
        let mut preludes = learnt();
        let short = PAUSE / 2;
        let wrong = (0..1_000).filter(|_| is_brief(request(&mut preludes, KEY, short, true))).count();
        assert!(wrong <= 1, "{wrong}");
        // One in five is short: at most one in five is guessed wrong.
        let wrong = (0..1_000)
            .filter(|index| {
                let pause = if index % 5 == 0 { short } else { PAUSE };
                is_brief(request(&mut preludes, KEY, pause, true)) && pause == short
            })
            .count();
        assert!(wrong <= 200, "{wrong}");
    }

    #[test]
    fn long_first_command_is_never_brief() {
        let mut preludes = Preludes::default();
        assert!((0..100).all(|_| !is_brief(request(&mut preludes, KEY, PAUSE, false))));
        // One that turns long is noticed by the next marker.
        let mut preludes = learnt();
        let brief = (0..100).filter(|_| is_brief(request(&mut preludes, KEY, PAUSE, false))).count();
        assert!(brief < VERIFIED.into(), "{brief}");
    }

    #[test]
    fn request_of_one_command_is_no_prelude() {
        let mut preludes = learnt();
        assert!(is_brief(preludes.begin(KEY, now())));
        preludes.turned_idle(true);
        assert!(!is_brief(preludes.begin(KEY, now())));
        preludes.turned_idle(true);
        for _ in 0..100 {
            assert!(!is_brief(preludes.begin(KEY, now())));
            preludes.turned_idle(true);
        }
    }

    #[test]
    fn queue_may_turn_idle_in_the_pause() {
        let mut preludes = Preludes::default();
        let mut at = now();
        let mut request = |rest: CostKey| {
            let begin = preludes.begin(KEY, at);
            preludes.turned_idle(false);
            let second = preludes.begin(rest, at + PAUSE);
            assert_eq!(second, Begin { brief: Duration::ZERO, marked: false });
            preludes.turned_idle(true);
            at += 2 * MOST;
            is_brief(begin)
        };
        assert_eq!((0..64).position(|_| request(CostKey(8))), Some(PROVEN.into()));
        // The same command again is the next request.
        let mut preludes = Preludes::default();
        assert!((0..64).all(|index| {
            let begin = preludes.begin(KEY, at + index * PAUSE);
            preludes.turned_idle(false);
            !is_brief(begin)
        }));
    }

    #[test]
    fn program_that_asks_for_the_end_later_refutes_as_well() {
        let mut preludes = learnt();
        assert!(is_brief(preludes.begin(KEY, now())));
        preludes.turned_idle(false);
        assert!(preludes.is_open());
        preludes.turned_idle(true);
        assert!(!preludes.is_open());
        assert!(!is_brief(preludes.begin(KEY, now())));
    }

    #[test]
    fn pause_shorter_than_promised_is_a_wrong_guess() {
        let mut preludes = Preludes::default();
        for _ in 0..PROVEN {
            request(&mut preludes, KEY, 3 * GRACE, true);
        }
        assert_eq!(request(&mut preludes, KEY, GRACE / 2, true).brief, GRACE);
        assert!(!is_brief(request(&mut preludes, KEY, 3 * GRACE, true)));
    }

    #[test]
    fn unknown_commands_and_many_keys() {
        let mut preludes = Preludes::default();
        assert!((0..100).all(|_| !is_brief(request(&mut preludes, CostKey::UNKNOWN, PAUSE, true))));
        let mut preludes = learnt();
        // Others come and go, and what is known well stays.
        for key in 100..200 {
            request(&mut preludes, CostKey(key), PAUSE, true);
        }
        assert!(is_brief(request(&mut preludes, KEY, PAUSE, true)));
    }
}
