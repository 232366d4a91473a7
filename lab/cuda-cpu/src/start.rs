//! Tracks whether the library is initialised, and whether this process is a forked child that must not use
//! it.

use std::sync::atomic::{AtomicBool, Ordering};

static INITIALISED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

/// Marks the library as initialised, and arranges that forked children are refused.
pub fn note() {
    extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    if !INITIALISED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler only stores a flag, and its code stays mapped because this library is never
        // unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// Returns true if [`note`] was called in this process or in an ancestor that it was forked from.
pub fn is_noted() -> bool {
    INITIALISED.load(Ordering::Acquire)
}

/// Returns true in a child of a process that had initialised the library.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}
