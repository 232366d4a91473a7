//! The lease of the local policy: until when the suspensions that it asked for hold. A program can have a
//! thread of the library ended by a filter for system calls, or block it, so the suspensions of a policy that
//! stops answering must end.

use std::time::Duration;

use crate::config::nanos;
use crate::sync::{AtomicBool, AtomicU64, Instant, Ordering, now};

/// The time without activity after which another thread does a thread's work: ten times the longest sleep of
/// the watcher. Standing in too early costs one extra check.
pub(crate) const UNRESPONSIVE_AFTER: Duration = Duration::from_millis(100);

/// The origin of the moments that are stored in atomic words.
#[derive(Debug)]
pub(crate) struct Epoch(Instant);

impl Epoch {
    pub(crate) fn new() -> Self {
        Self(now())
    }

    /// Returns the nanoseconds from the creation of the domain to this moment; never 0.
    pub(crate) fn of(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.0).as_nanos()).unwrap_or(u64::MAX).max(1)
    }
}

/// The time until which the local policy's suspensions hold.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// A moment of the [`Epoch`]; 0 if there is no lease.
    until: AtomicU64,
    /// True if a thread has seen the expiry and granted the policy one extension: the whole process may have
    /// been stopped.
    extended: AtomicBool,
    /// True if the lease expired with a queue suspended.
    expired: AtomicBool,
    reported: AtomicBool,
}

impl Lease {
    /// Sets the end. Returns true if the lease has expired since the last call and its suspensions were
    /// ended.
    pub(crate) fn renew(&self, until: u64) -> bool {
        self.extended.store(false, Ordering::SeqCst);
        self.until.store(until, Ordering::SeqCst);
        let expired = self.expired.swap(false, Ordering::SeqCst);
        if expired {
            self.reported.store(false, Ordering::Relaxed);
        }
        expired
    }

    /// Ends the lease permanently: no policy decides any more.
    pub(crate) fn end(&self) {
        self.until.store(0, Ordering::SeqCst);
        self.expired.store(false, Ordering::SeqCst);
    }

    /// Returns true if the lease has expired, to exactly one of its callers.
    pub(crate) fn expires(&self, at: u64) -> bool {
        let until = self.until.load(Ordering::SeqCst);
        if until == 0 || at <= until {
            return false;
        }
        let expires = self.extended.swap(true, Ordering::SeqCst);
        let next = if expires { 0 } else { at.saturating_add(nanos(UNRESPONSIVE_AFTER)) };
        self.until.compare_exchange(until, next, Ordering::SeqCst, Ordering::Relaxed).is_ok() && expires
    }

    /// Notes that the expiry has ended suspensions. Returns true if that is not reported yet.
    pub(crate) fn note_expired(&self) -> bool {
        self.expired.store(true, Ordering::SeqCst);
        !self.reported.swap(true, Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn lease_past_its_end_is_extended_once() {
        let lease = Lease::default();
        assert!(!lease.expires(u64::MAX), "there is no policy");
        assert!(!lease.renew(10));
        assert!(!lease.expires(10) && !lease.expires(11));
        let later = 11 + nanos(UNRESPONSIVE_AFTER);
        assert!(!lease.expires(later), "the whole process may have been stopped");
        assert!(lease.expires(later + 1) && !lease.expires(u64::MAX), "reported once");
    }

    #[test]
    fn lease_after_the_policy_ended_never_expires() {
        let lease = Lease::default();
        lease.renew(10);
        lease.note_expired();
        lease.end();
        assert!(!lease.expires(u64::MAX) && !lease.expires(u64::MAX));
        assert!(!lease.renew(20), "the next policy has nothing to repeat");
    }
}
