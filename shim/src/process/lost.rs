//! Whether the runtime still takes work. From 7 on a kernel that fails (a wrong address, a trap) does not end the process: every
//! call returns its error from then on (measured on 7.2.4). What the library would defer, or answer by itself, must do so too.
//!
//! The runtime is asked before that, and only if some call of the program has failed before: until then the program cannot
//! know.

use hal_hip::real::Real;
use hip_sys::types::{hipError_t, hipErrorNotReady};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a call of the program's own has ever failed.
static DOUBT: AtomicBool = AtomicBool::new(false);

/// A call of the program's own has returned this error.
pub(crate) fn failed(code: u32) {
    if code != hipErrorNotReady.0 && !DOUBT.load(Ordering::Relaxed) {
        DOUBT.store(true, Ordering::Relaxed);
    }
}

/// What the runtime answers to every call, if it does.
pub(crate) fn answer(real: &Real) -> Option<hipError_t> {
    if real.major < 7 || !DOUBT.load(Ordering::Relaxed) {
        return None;
    }
    real.answer_to_all()
}
