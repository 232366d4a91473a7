//! The real HIP functions that queues, marks and pointer look-ups need. Whoever has found the runtime fills the table in;
//! nothing here looks anything up.

use crate::ended::Ended;
use hip_sys::pfn;
use hip_sys::types::{hipError_t, hipEvent_t, hipStreamCaptureMode, hipStreamCaptureModeRelaxed, hipSuccess};
use std::cell::Cell;
use std::ffi::c_int;
use xqueue::{HwError, HwResult};

/// Pointers to functions of the runtime, all of one runtime.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "each is the function of its name")]
pub struct Real {
    pub event_create: pfn::hipEventCreateWithFlags,
    pub event_destroy: pfn::hipEventDestroy,
    pub event_record: pfn::hipEventRecord,
    pub event_query: pfn::hipEventQuery,
    pub event_synchronize: pfn::hipEventSynchronize,
    pub event_elapsed: pfn::hipEventElapsedTime,
    pub stream_create: pfn::hipStreamCreateWithFlags,
    pub stream_destroy: pfn::hipStreamDestroy,
    pub stream_synchronize: pfn::hipStreamSynchronize,
    pub stream_is_capturing: pfn::hipStreamIsCapturing,
    pub stream_get_flags: pfn::hipStreamGetFlags,
    pub get_device: pfn::hipGetDevice,
    pub set_device: pfn::hipSetDevice,
    pub exchange_capture_mode: pfn::hipThreadExchangeStreamCaptureMode,
    pub pointer_attributes: pfn::hipPointerGetAttributes,
    pub address_range: pfn::hipMemGetAddressRange,
    pub pointer_attribute: pfn::hipPointerGetAttribute,
    pub symbol_address: pfn::hipGetSymbolAddress,
    pub symbol_size: pfn::hipGetSymbolSize,
    /// Handles that were events of the program. Kept from 7 on only: before, the runtime takes any.
    pub ended: &'static Ended,
    /// How many devices the process sees.
    pub devices: u32,
    /// The runtime's major version.
    pub major: u32,
    /// And the minor one.
    pub minor: u32,
}

thread_local! {
    /// Whether this thread is one of ours, which captures do not concern.
    static RELAXED: Cell<bool> = const { Cell::new(false) };
}

/// The code of the runtime as the result that queues carry.
#[inline]
pub fn result(code: hipError_t) -> HwResult {
    match HwError::from_code(code.0) {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

impl Real {
    /// The calling thread's current device.
    #[inline]
    pub fn current_device(&self) -> u32 {
        if self.devices <= 1 {
            return 0;
        }
        let mut device: c_int = 0;
        // SAFETY: the runtime's function gets a place for its answer.
        let _ = unsafe { (self.get_device)(&mut device) };
        u32::try_from(device).unwrap_or(0)
    }

    /// Makes this thread's last error a success where the runtime keeps the result of every call as the last error (up to
    /// 6.x): the program has not made the call whose result it would find.
    #[inline]
    pub fn forget_result(&self) {
        if self.keeps_every_result() {
            let mut device: c_int = 0;
            // SAFETY: the runtime's function gets a place for its answer.
            let _ = unsafe { (self.get_device)(&mut device) };
        }
    }

    /// Whether the last error is what the last call returned, whatever that was. From 7.0 on only errors are kept, of which
    /// `hipErrorNotReady` is none, and the last call's result is another state (`hipExtGetLastError`).
    #[inline]
    pub fn keeps_every_result(&self) -> bool {
        self.major < 7
    }

    /// Whether a stream's end waits for its last handler only, and leaves signals to the others that are gone
    /// (`~HwQueueTracker` in ROCclr's `rocvirtual.cpp`, which looks after them from 6.2 on).
    pub fn end_outruns_handlers(&self) -> bool {
        (self.major, self.minor) < (6, 2)
    }

    /// The error that the runtime gives every call, if it does: then it also gives it to one that cannot fail otherwise. That
    /// is the calling thread's last error afterwards, as after any other call.
    pub fn answer_to_all(&self) -> Option<hipError_t> {
        let mut device: c_int = 0;
        // SAFETY: the runtime's function gets a place for its answer.
        let code = unsafe { (self.get_device)(&mut device) };
        (code != hipSuccess).then_some(code)
    }

    /// Makes the runtime keep an error that no program is likely to meet as this thread's last one, and returns which: an
    /// error of the library's own holds as long as the runtime still keeps it. Nothing if the runtime calls it none.
    pub fn leave_error(&self) -> Option<HwError> {
        // SAFETY: the runtime refuses a handle that is no event.
        HwError::from_code(unsafe { self.query_event(hipEvent_t::NULL) }.0)
    }

    /// Captures do not concern the calling thread, which is one of ours.
    pub fn leave_captures(&self) {
        let _ = self.exchange(hipStreamCaptureModeRelaxed);
        RELAXED.set(true);
    }

    /// The calling thread's capture mode from now on; returns the one before.
    fn exchange(&self, mut mode: hipStreamCaptureMode) -> hipStreamCaptureMode {
        // SAFETY: the runtime's function gets a mode, and a place for the one before.
        let _ = unsafe { (self.exchange_capture_mode)(&mut mode) };
        mode
    }

    /// Queries an event for ourselves, where no capture forbids it. From 7.0 on the query of a thread that captures, or that
    /// is in global mode beside any capture, is refused and ends the capture (`capture_beside_work`); 5.2.3 and 6.4.3 do not
    /// care.
    ///
    /// # Safety
    ///
    /// Null or an event.
    pub(crate) unsafe fn query_event(&self, event: hipEvent_t) -> hipError_t {
        // SAFETY: the caller's promise.
        let query = || unsafe { (self.event_query)(event) };
        if self.major < 7 || RELAXED.get() {
            return query();
        }
        let before = self.exchange(hipStreamCaptureModeRelaxed);
        let code = query();
        self.exchange(before);
        code
    }

    /// Runs `body` with this device as the calling thread's current one.
    pub fn on_device<R>(&self, device: u32, body: impl FnOnce() -> R) -> R {
        let before = self.current_device();
        if before == device {
            return body();
        }
        self.enter_device(device);
        let result = body();
        self.enter_device(before);
        result
    }

    /// Makes this the calling thread's current device.
    pub fn enter_device(&self, device: u32) {
        let Ok(device) = c_int::try_from(device) else { return };
        // SAFETY: the runtime's function takes any number, and refuses what is no device.
        let code = unsafe { (self.set_device)(device) };
        if code != hipSuccess {
            tracing::error!(device, %code, "the device cannot be made the current one");
        }
    }
}
