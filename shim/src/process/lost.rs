//! The state of a runtime that refuses all work. From 7.0 on a failed kernel (a wrong address, a trap) does
//! not end the process: every call returns its error from then on (measured on 7.2.4). A call that the
//! library defers or answers by itself has to return that error too.
//!
//! The library asks the runtime first, but only once a call of the program has failed: until then the program
//! cannot know.

use hal_hip::real::RuntimeFunctions;
use hip_sys::types::{hipError_t, hipErrorNotReady};
use std::sync::atomic::{AtomicBool, Ordering};

/// True once a call of the program's own has failed.
static DOUBT: AtomicBool = AtomicBool::new(false);

/// Notes an error that a call of the program's own has returned.
pub(crate) fn failed(code: u32) {
    if code != hipErrorNotReady.0 && !DOUBT.load(Ordering::Relaxed) {
        DOUBT.store(true, Ordering::Relaxed);
    }
}

/// Returns the error that the runtime returns for every call, if it does.
pub(crate) fn answer(real: &RuntimeFunctions) -> Option<hipError_t> {
    if real.major < 7 || !DOUBT.load(Ordering::Relaxed) {
        return None;
    }
    real.persistent_error()
}
