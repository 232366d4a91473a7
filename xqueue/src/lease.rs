//! What the threads of the library do for each other. None of them is indispensable: a program can have one ended by a filter for
//! system calls, or block it.
//!
//! * The thread that decides holds queues for a time only ([`crate::Domain::keep_policy`]), which it renews. Whoever looks at
//!   the queues anyway sees the end of that time, and lets all of them run.
//! * The watcher launches what a worker leaves ([`crate::watcher`]).
//! * Where the watcher has not looked for a while, a worker that may not launch what is pending looks, and so does a thread of the
//!   program that waits.

use std::time::Duration;

use crate::domain::{Core, nanos};
use crate::order::Scope;
use crate::permission::OwnWord;
use crate::sync::{AtomicBool, AtomicU64, Instant, Ordering, now};

/// For how long a thread may do nothing before another one does its work: ten times as long as the watcher sleeps at most. Too
/// early is no harm but a look too many.
pub(crate) const SILENCE: Duration = Duration::from_millis(100);

/// Moments as numbers, so that they fit atomic words.
#[derive(Debug)]
pub(crate) struct Epoch(Instant);

impl Epoch {
    pub(crate) fn new() -> Self {
        Self(now())
    }

    /// Nanoseconds from the beginning of the domain; never 0.
    pub(crate) fn of(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.0).as_nanos()).unwrap_or(u64::MAX).max(1)
    }
}

/// Until when what the process's policy holds is held.
#[derive(Debug)]
pub(crate) struct Lease {
    /// A moment of the [`Epoch`]; 0: it has come.
    until: AtomicU64,
    /// Somebody has seen that it has come, and gives the one who decides a moment more: whoever looks may have been stopped as long.
    doubted: AtomicBool,
    /// Something was held then.
    lapsed: AtomicBool,
    said: AtomicBool,
}

impl Lease {
    pub(crate) fn new() -> Self {
        let off = || AtomicBool::new(false);
        Self { until: AtomicU64::new(0), doubted: off(), lapsed: off(), said: off() }
    }

    /// Sets the end. True: somebody has let queues run since the last call.
    pub(crate) fn renew(&self, until: u64) -> bool {
        self.doubted.store(false, Ordering::SeqCst);
        self.until.store(until, Ordering::SeqCst);
        let lapsed = self.lapsed.swap(false, Ordering::SeqCst);
        if lapsed {
            self.said.store(false, Ordering::Relaxed);
        }
        lapsed
    }

    /// Nobody decides any more who has to renew it.
    pub(crate) fn end(&self) {
        self.until.store(0, Ordering::SeqCst);
        self.lapsed.store(false, Ordering::SeqCst);
    }

    /// Whether the end has come: for one caller of all.
    fn ends(&self, at: u64) -> bool {
        let until = self.until.load(Ordering::SeqCst);
        if until == 0 || at <= until {
            return false;
        }
        let ends = self.doubted.swap(true, Ordering::SeqCst);
        let next = if ends { 0 } else { at.saturating_add(nanos(SILENCE)) };
        self.until.compare_exchange(until, next, Ordering::SeqCst, Ordering::Relaxed).is_ok() && ends
    }
}

impl Core {
    /// Lets every queue run that the policy holds, if it has not renewed its time until this moment.
    pub(crate) fn end_policy(&self, at: u64) {
        if !self.lease.ends(at) {
            return;
        }
        // A policy that holds nothing has nothing to renew.
        let mut held = false;
        self.each_queue(Scope::Process, |queue| {
            if queue.state.own.has(OwnWord::POLICY) {
                held = true;
                queue.set_policy_run(true);
            }
            true
        });
        if held {
            self.lease.lapsed.store(true, Ordering::SeqCst);
        }
        if held && !self.lease.said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the thread that schedules this program's queues does not answer: they run unscheduled until it does"
            );
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn whoever_decides_has_a_moment_more_after_the_end_was_seen() {
        let lease = Lease::new();
        assert!(!lease.ends(u64::MAX), "nobody decides");
        assert!(!lease.renew(10));
        assert!(!lease.ends(10) && !lease.ends(11));
        let later = 11 + nanos(SILENCE);
        assert!(!lease.ends(later), "it may have been the process that stood still");
        assert!(lease.ends(later + 1) && !lease.ends(u64::MAX), "once");
    }

    #[test]
    fn the_lease_of_a_policy_that_decides_no_more_never_ends() {
        let lease = Lease::new();
        lease.renew(10);
        lease.lapsed.store(true, Ordering::SeqCst);
        lease.end();
        assert!(!lease.ends(u64::MAX) && !lease.ends(u64::MAX));
        assert!(!lease.renew(20), "what the next one holds has not run");
    }
}
