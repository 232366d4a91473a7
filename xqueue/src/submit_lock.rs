//! The submit lock of a queue: the right to launch on it. A leaf, so that `flight` can ask for the proof of
//! holding it without knowing the queue.

use crate::sync::TryLock;

/// The submit lock. It is only ever tried; a thread that needs it registers as a waiter.
#[derive(Debug)]
pub(crate) struct SubmitLock(TryLock);

/// Proof that the caller holds the submit lock.
#[derive(Debug)]
pub(crate) struct SubmitHeld(());

impl SubmitLock {
    pub(crate) fn new() -> Self {
        Self(TryLock::new())
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<SubmitHeld> {
        // The value is built only where the lock was taken: it is the proof.
        if self.0.try_lock() { Some(SubmitHeld(())) } else { None }
    }

    /// Takes the lock if it is free; otherwise registers a waiter, which [`SubmitLock::release`] reports.
    pub(crate) fn lock_or_register(&self) -> Option<SubmitHeld> {
        if self.0.lock_or_register() { Some(SubmitHeld(())) } else { None }
    }

    /// Releases the lock. Returns true if a waiter has registered meanwhile and has to be woken.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        self.0.release()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.is_held()
    }
}
