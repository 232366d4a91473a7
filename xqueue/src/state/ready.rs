//! The word that says whether a queue is ready, and the rule for brief work.
//!
//! A program that uploads the inputs of its next step, and waits for each upload, works on the host most of
//! that time: the device needs a few microseconds for each. To suspend others meanwhile would cost them the
//! device, and the program would gain next to nothing. So a queue whose only work is one brief command
//! ([`crate::CommandSpec::brief`]) is reported as brief, and the observer need not count it as ready before
//! [`GRACE`] has passed. If it is idle again by then, it counts as idle all the time.
//!
//! A brief command can take longer: it may have to wait for another program's long kernel. Then the queue has
//! turned ready late, once, and the next brief commands turn it ready at once: [`FIRST_PAUSE`] of them, and each
//! time twice as many until one is in time again.
//!
//! Commands behind which the program usually pauses are brief as well, by another rule (`state/prelude.rs`).

use std::time::Duration;

use crate::hw::CostKey;
use crate::sync::{AtomicU32, Instant, Ordering};

/// The time for which a queue with one brief command may count as idle. The device needs microseconds, but the
/// program waits until it is woken, on a busy machine for hundreds of microseconds.
pub const GRACE: Duration = Duration::from_millis(1);
/// The time for which the queue must have been idle before, so that a small copy between two kernels does not
/// hide that the program is at work.
const REST: Duration = Duration::from_micros(200);
/// The fewest and the most brief commands that count in full after one that took longer than [`GRACE`].
const FIRST_PAUSE: u32 = 4;
const LONGEST_PAUSE: u32 = 1024;

/// The readiness of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// The queue has no unfinished command.
    No,
    /// One brief command may be unfinished, of which the observer was told that.
    Briefly,
    /// One command may be unfinished, which the observer counts. The next one shows how long the program has
    /// waited behind it.
    First,
    /// Something may be unfinished.
    Yes,
}

impl Ready {
    const fn word(self) -> u32 {
        match self {
            Ready::No => 0,
            Ready::Briefly => 1,
            Ready::First => 2,
            Ready::Yes => 3,
        }
    }

    const fn of(word: u32) -> Self {
        match word {
            0 => Ready::No,
            1 => Ready::Briefly,
            2 => Ready::First,
            _ => Ready::Yes,
        }
    }
}

/// A command that comes to a queue that is not fully ready.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turning {
    /// [`crate::CommandSpec::brief`].
    pub(crate) brief: bool,
    /// The key of the command; unknown if it can be no prelude.
    pub(crate) key: CostKey,
    /// True if the caller holds the submit lock.
    pub(crate) has_submit: bool,
}

impl Turning {
    /// A command that counts at once.
    pub(crate) const PLAIN: Self = Self { brief: false, key: CostKey::UNKNOWN, has_submit: false };
}

/// A queue's readiness as an atomic word.
#[derive(Debug)]
pub(crate) struct Readiness(AtomicU32);

impl Readiness {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(Ready::No.word()))
    }

    pub(crate) fn load(&self) -> Ready {
        Ready::of(self.0.load(Ordering::SeqCst))
    }

    /// Returns true if the observer knows that the queue is ready, and the next command shows nothing new.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Ready::Yes.word()
    }

    /// Stores a readiness and returns the former one.
    pub(crate) fn swap(&self, ready: Ready) -> Ready {
        Ready::of(self.0.swap(ready.word(), Ordering::SeqCst))
    }

    /// Turns [`Ready::First`] into [`Ready::Yes`]. Returns false if the queue is in another state.
    pub(crate) fn fill(&self) -> bool {
        let (from, to) = (Ready::First.word(), Ready::Yes.word());
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Turns an idle queue ready in this way. Returns false if it is not idle.
    pub(crate) fn begin(&self, ready: Ready) -> bool {
        let (from, to) = (Ready::No.word(), ready.word());
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// The rule by which brief commands count.
#[derive(Debug)]
pub(crate) struct BriefRule {
    /// The number of brief commands that still count in full.
    pause: u32,
    /// The length of the next pause.
    next: u32,
}

impl Default for BriefRule {
    fn default() -> Self {
        Self { pause: 0, next: FIRST_PAUSE }
    }
}

impl BriefRule {
    /// Returns true if a brief command, submitted now to a queue that is idle since then, may count as brief.
    pub(crate) fn admits(&mut self, idle_since: Option<Instant>, at: Instant) -> bool {
        if idle_since.is_some_and(|since| at.saturating_duration_since(since) < REST) {
            return false;
        }
        let admits = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        admits
    }

    /// Judges a brief command that has completed after so long. Returns true if it was brief.
    pub(crate) fn judge(&mut self, took: Duration) -> bool {
        let brief = took < GRACE;
        if brief {
            self.next = FIRST_PAUSE;
        } else {
            self.pause = self.next;
            self.next = (2 * self.next).min(LONGEST_PAUSE);
        }
        brief
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::now;

    #[test]
    fn only_an_idle_queue_begins_a_brief_spell() {
        let ready = Readiness::new();
        let begin_brief = || ready.begin(Ready::Briefly);
        assert!(begin_brief() && !begin_brief());
        assert!(!ready.is_full());
        assert_eq!(ready.swap(Ready::Yes), Ready::Briefly);
        assert!(ready.is_full() && !begin_brief());
        assert_eq!(ready.swap(Ready::No), Ready::Yes);
        assert_eq!(ready.load(), Ready::No);
    }

    #[test]
    fn commands_behind_a_late_one_count_in_full() {
        let mut rule = BriefRule::default();
        let at = now();
        assert!(rule.admits(None, at));
        assert!(rule.judge(GRACE / 2));
        for pause in [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE] {
            assert!(rule.admits(None, at));
            assert!(!rule.judge(GRACE));
            assert!((0..pause).all(|_| !rule.admits(None, at)));
        }
        assert!(rule.admits(None, at));
        assert!(rule.judge(GRACE / 2));
        assert!(rule.admits(None, at) && !rule.judge(GRACE));
        assert_eq!(rule.pause, FIRST_PAUSE);
    }

    #[test]
    fn queue_that_was_at_work_a_moment_ago_admits_none() {
        let mut rule = BriefRule::default();
        let idle = now();
        assert!(!rule.admits(Some(idle), idle + REST / 2));
        assert!(rule.admits(Some(idle), idle + REST));
    }
}
