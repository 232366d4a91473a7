//! Whether the library was initialised, and whether a fork has taken it away since.

use std::sync::atomic::{AtomicBool, Ordering};

static INITIALISED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

/// Notes that the library is initialised, and that its forked children are not.
pub fn note() {
    extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    if !INITIALISED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler only stores a flag, and stays where it is because this library is never unmapped.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// Returns true if [`note`] was called, in this process or in one that it was forked from.
pub fn is_noted() -> bool {
    INITIALISED.load(Ordering::Acquire)
}

/// Returns true in a child of a process that had initialised the library.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}
