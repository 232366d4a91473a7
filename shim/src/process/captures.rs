//! The streams that may capture, as far as calls have shown. A launch asks the runtime only if there are any,
//! so an overestimate costs nothing but time.
//!
//! A stream captures because it began to, or because it waited for an event of a capture. When the capture
//! ends the runtime ends these branches too, except 5.2.3, which refuses launches on them from then on.

use hal_hip::real::RuntimeFunctions;
use hip_sys::types::{hipStream_t, hipStreamCaptureStatus, hipStreamCaptureStatusNone, hipSuccess};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Default)]
pub(crate) struct Captures {
    /// The streams that have begun a capture and not ended it.
    begun: AtomicUsize,
    /// The number of captures of both kinds.
    all: AtomicUsize,
    branches: Mutex<Vec<hipStream_t>>,
}

impl Captures {
    /// Returns true if any stream may capture.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.all.load(Ordering::Acquire) != 0
    }

    /// Returns true if there is a capture that an event may extend to another stream.
    #[inline(always)]
    pub(crate) fn any_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire) != 0
    }

    /// Makes a call that may begin or end a capture of this stream.
    pub(crate) fn change<R>(
        &self,
        real: &RuntimeFunctions,
        stream: hipStream_t,
        invoke: impl FnOnce() -> R,
    ) -> R {
        let before = is_capturing(real, stream);
        // Before the call, so that every later launch on this stream asks the runtime.
        self.begun.fetch_add(1, Ordering::AcqRel);
        self.all.fetch_add(1, Ordering::AcqRel);
        let result = invoke();
        let after = is_capturing(real, stream);
        self.less(1 + usize::from(before && !after) - usize::from(!before && after));
        if before && !after {
            self.look_at_branches(real);
        }
        result
    }

    /// Notes a successful wait for an event on this stream, which did not capture before.
    pub(crate) fn waited(&self, real: &RuntimeFunctions, stream: hipStream_t) {
        if !is_capturing(real, stream) {
            return;
        }
        let mut branches = self.branches.lock();
        if !branches.contains(&stream) {
            branches.push(stream);
            self.all.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Makes the call that destroys this stream, and its capture if there is one.
    pub(crate) fn destroy(
        &self,
        real: &RuntimeFunctions,
        stream: hipStream_t,
        invoke: impl FnOnce() -> hip_sys::types::hipError_t,
    ) -> hip_sys::types::hipError_t {
        let captures = self.any() && is_capturing(real, stream);
        let code = invoke();
        if captures && code == hipSuccess {
            let mut branches = self.branches.lock();
            match branches.iter().position(|branch| *branch == stream) {
                Some(index) => {
                    branches.swap_remove(index);
                    less(&self.all, 1);
                }
                None => self.less(1),
            }
        }
        code
    }

    /// Subtracts from the number of begun captures.
    fn less(&self, number: usize) {
        less(&self.begun, number);
        less(&self.all, number);
    }

    fn look_at_branches(&self, real: &RuntimeFunctions) {
        let mut branches = self.branches.lock();
        let before = branches.len();
        branches.retain(|branch| is_capturing(real, *branch));
        less(&self.all, before - branches.len());
    }
}

/// Subtracts, but not below zero: a capture that began before there were queues was not counted.
fn less(count: &AtomicUsize, number: usize) {
    let _ =
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| Some(count.saturating_sub(number)));
}

/// Returns true if the stream captures at present. The default streams never do.
pub(crate) fn is_capturing(real: &RuntimeFunctions, stream: hipStream_t) -> bool {
    if stream.is_legacy_default() {
        return false;
    }
    let mut status: hipStreamCaptureStatus = hipStreamCaptureStatusNone;
    // SAFETY: the program has passed the handle to the runtime, and the place for the answer is valid.
    let code = unsafe { (real.stream_is_capturing)(stream, &mut status) };
    code == hipSuccess && status != hipStreamCaptureStatusNone
}
