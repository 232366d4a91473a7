//! Ready and idle, and the books about suspensions.
//!
//! A queue is ready from its first unfinished command on. Both locks are held when it turns idle;
//! submit (direct) or pending (append) when it turns ready: so one change follows the other, and
//! nothing that is unfinished can be missed by the one who proves idleness.

use std::time::Duration;

use crate::flight::Proof;
use crate::order::Ticket;
use crate::queue::XQueue;
use crate::sync::{Instant, Ordering, now};

/// Times of one queue; a lock of its own, held for a moment only.
#[derive(Debug, Default)]
pub(crate) struct Books {
    held_since: Option<Instant>,
    suspended: Duration,
    suspensions: u64,
    ready_since: Option<Instant>,
    idle_since: Option<Instant>,
}

/// A call that waits inside the runtime for everything that has been launched on a queue. As long as there is one, nobody records
/// a mark only to see the tail complete: the runtime would let the recording thread wait as long (`hipEventRecord` beside
/// `hipStreamSynchronize`, seen with ROCm 5.2.3), and the return of the call proves as much.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Wait<'q> {
    queue: &'q XQueue,
    proof: Proof,
}

impl Wait<'_> {
    /// The call has returned with success. Turns the queue idle if nothing else is unfinished.
    pub fn succeeded(self) {
        // First this: until then nobody else records a mark, holding submit.
        self.queue.synced(self.proof);
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.queue.waits.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Books {
    pub(crate) fn suspended(&self) -> (u64, Duration) {
        let open = self.held_since.map_or(Duration::ZERO, |since| now().saturating_duration_since(since));
        (self.suspensions, self.suspended + open)
    }
}

impl XQueue {
    /// Whether the queue has, or may have, unfinished commands.
    pub fn is_ready(&self) -> bool {
        self.state.ready.load(Ordering::Acquire)
    }

    /// Since when the queue has been idle; nothing while it is ready or was never used.
    pub fn idle_since(&self) -> Option<Instant> {
        self.books.lock().idle_since.filter(|_| !self.is_ready())
    }

    /// Since when the queue has been ready; nothing while it is idle. However short the gap before was, and whether somebody looked
    /// meanwhile or not.
    pub fn ready_since(&self) -> Option<Instant> {
        self.books.lock().ready_since.filter(|_| self.is_ready())
    }

    /// For how much longer what runs at the moment will run, where that is foreseen: the times of all commands up to
    /// the next mark are known, and they are not overdue.
    pub fn busy_for(&self) -> Option<Duration> {
        let expected = self.hot.flight.expectation()?;
        expected.takes?.checked_sub(expected.ran)
    }

    /// Called under submit or under pending, with `ready` read as false.
    #[cold]
    pub(crate) fn turn_ready(&self) {
        // First the time: who sees the queue ready sees since when.
        self.books.lock().ready_since = Some(now());
        if !self.state.ready.swap(true, Ordering::SeqCst) {
            self.core.observer.turned_ready(self.id, self.tag);
            self.core.watcher.arm(&self.core);
        }
    }

    /// What a synchronisation that the caller begins now will prove.
    #[inline]
    pub fn begin_sync(&self) -> Proof {
        self.hot.flight.snapshot()
    }

    /// The caller is about to wait inside the runtime for everything that has been launched.
    pub fn begin_wait(&self) -> Wait<'_> {
        self.waits.fetch_add(1, Ordering::AcqRel);
        Wait { queue: self, proof: self.begin_sync() }
    }

    /// The synchronisation has returned with success: what the proof covers has completed. Turns the
    /// queue idle if nothing else is unfinished.
    pub fn synced(&self, proof: Proof) {
        self.hot.flight.complete(proof);
        self.settle();
        self.try_idle();
    }

    /// Turns idle if nothing is pending or in flight; if a lock is taken somebody is at work, and a
    /// later look will do.
    pub(crate) fn try_idle(&self) {
        // A first look without locks: submit is not taken from a launch in vain.
        let unfinished = || self.frontier() != Ticket::NONE || self.hot.flight.in_flight() != 0;
        if !self.is_ready() || unfinished() {
            return;
        }
        let Some(_submit) = self.try_submit() else {
            return;
        };
        let pending = self.pending.lock();
        if unfinished() {
            return;
        }
        if self.state.ready.swap(false, Ordering::SeqCst) {
            self.books.lock().idle_since = Some(now());
            self.core.observer.turned_idle(self.id, self.tag);
        }
        drop(pending);
    }

    /// After a change of a permission: how long the queue is held.
    pub(crate) fn note_permission(&self) {
        let mut books = self.books.lock();
        // Read under the lock: the last to note sees the last change.
        let held = !self.may_run();
        match (held, books.held_since) {
            (true, None) => {
                books.held_since = Some(now());
                books.suspensions += 1;
            }
            (false, Some(since)) => {
                books.suspended += now().saturating_duration_since(since);
                books.held_since = None;
            }
            _ => {}
        }
    }
}
