//! The real HIP functions that queues, markers and pointer look-ups need. The caller that has found the
//! runtime fills in the table; nothing here looks up symbols.

use crate::ended::Ended;
use hip_sys::pfn;
use hip_sys::types::{hipError_t, hipEvent_t, hipStreamCaptureMode, hipStreamCaptureModeRelaxed, hipSuccess};
use std::cell::Cell;
use std::ffi::c_int;
use xqueue::{HwError, HwResult, hw_result};

/// Pointers to functions of the runtime, all of one runtime.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "each is the function of its name")]
pub struct RuntimeFunctions {
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
    pub stream_get_priority: pfn::hipStreamGetPriority,
    pub get_device: pfn::hipGetDevice,
    pub set_device: pfn::hipSetDevice,
    pub exchange_capture_mode: pfn::hipThreadExchangeStreamCaptureMode,
    pub pointer_attributes: pfn::hipPointerGetAttributes,
    pub address_range: pfn::hipMemGetAddressRange,
    pub pointer_attribute: pfn::hipPointerGetAttribute,
    pub symbol_address: pfn::hipGetSymbolAddress,
    pub symbol_size: pfn::hipGetSymbolSize,
    /// Handles of events that the program has destroyed. Kept from 7 on only: earlier runtimes accept any
    /// handle.
    pub ended: &'static Ended,
    /// The number of devices that the process sees.
    pub devices: u32,
    /// The runtime's major version.
    pub major: u32,
    /// The runtime's minor version.
    pub minor: u32,
}

/// The most events that are created until one has a handle that the program has not destroyed.
const MOST: usize = 16;

thread_local! {
    /// True on the library's own threads, which captures do not concern.
    static RELAXED: Cell<bool> = const { Cell::new(false) };
}

/// Converts a code of the runtime into a result of `xqueue`.
#[inline]
pub fn result(code: hipError_t) -> HwResult {
    hw_result(code.0)
}

impl RuntimeFunctions {
    /// Returns the calling thread's current device.
    #[inline]
    pub fn current_device(&self) -> u32 {
        if self.devices <= 1 { 0 } else { u32::try_from(self.query_device().1).unwrap_or(0) }
    }

    /// Calls the real `hipGetDevice`.
    #[inline]
    fn query_device(&self) -> (hipError_t, c_int) {
        let mut device = 0;
        // SAFETY: the function writes one number to the given place.
        let code = unsafe { (self.get_device)(&mut device) };
        (code, device)
    }

    /// Resets this thread's last error to success where the runtime keeps the result of every call as the
    /// last error (up to 6.x): the program has not made the call whose result it would find.
    #[inline]
    pub fn reset_last_error(&self) {
        if self.keeps_every_result() {
            let _ = self.query_device();
        }
    }

    /// Returns true if the last error is the result of the last call, success included. From 7.0 on only
    /// errors are kept, `hipErrorNotReady` not among them, and the last call's result is a separate state
    /// (`hipExtGetLastError`).
    #[inline]
    pub fn keeps_every_result(&self) -> bool {
        self.major < 7
    }

    /// Returns true if the end of a stream waits only for its last handler, and the other handlers read freed
    /// signals (`~HwQueueTracker` in ROCclr's `rocvirtual.cpp`, which waits for all of them from 6.2 on).
    pub fn stream_end_outruns_handlers(&self) -> bool {
        (self.major, self.minor) < (6, 2)
    }

    /// Returns the error with which the runtime answers every call, if it does: then also a call that cannot
    /// fail otherwise. It is the calling thread's last error afterwards, as after any other call.
    pub fn persistent_error(&self) -> Option<hipError_t> {
        let (code, _) = self.query_device();
        (code != hipSuccess).then_some(code)
    }

    /// Makes the runtime keep an unusual error as this thread's last one, and returns it: the library's own
    /// error counts as long as the runtime still keeps this one. None if the runtime accepts the call.
    pub fn plant_error(&self) -> Option<HwError> {
        // SAFETY: null is permitted; the runtime refuses it.
        HwError::from_code(unsafe { self.query_event(hipEvent_t::NULL) }.0)
    }

    /// Switches the calling thread, one of the library's own, permanently to the relaxed capture mode.
    pub fn relax_capture_mode(&self) {
        let _ = self.exchange(hipStreamCaptureModeRelaxed);
        RELAXED.set(true);
    }

    /// Sets the calling thread's capture mode and returns the former one.
    fn exchange(&self, mut mode: hipStreamCaptureMode) -> hipStreamCaptureMode {
        // SAFETY: the function reads a mode from the given place and writes the former one there.
        let _ = unsafe { (self.exchange_capture_mode)(&mut mode) };
        mode
    }

    /// Queries an event for the library, in the relaxed capture mode where that matters. From 7.0 on the
    /// query of a thread that captures, or that is in global mode beside any capture, is refused and ends the
    /// capture (`capture_beside_work`); 5.2.3 and 6.4.3 permit it.
    ///
    /// # Safety
    ///
    /// `event` is null or an event.
    pub(crate) unsafe fn query_event(&self, event: hipEvent_t) -> hipError_t {
        // SAFETY: the caller guarantees null, which the runtime refuses, or an event.
        let query = || unsafe { (self.event_query)(event) };
        if self.major < 7 || RELAXED.get() {
            return query();
        }
        let before = self.exchange(hipStreamCaptureModeRelaxed);
        let code = query();
        self.exchange(before);
        code
    }

    /// Creates an event of the library's own, with a handle that the program has not destroyed, if one is
    /// found soon.
    pub(crate) fn create_event(&self, flags: u32) -> Result<hipEvent_t, hipError_t> {
        let create = || {
            let mut event = hipEvent_t::NULL;
            // SAFETY: the function writes a handle to the given place.
            let code = unsafe { (self.event_create)(&mut event, flags) };
            if code == hipSuccess { Ok(event) } else { Err(code) }
        };
        let mut others = Vec::new();
        let mut created = create();
        while let Ok(event) = created
            && others.len() < MOST
            && self.ended.has(event)
        {
            // It keeps its handle until another one is found.
            others.push(event);
            created = create();
        }
        let in_vain = others.len() == MOST;
        for event in others {
            if in_vain {
                // The allocator reuses more handles than that: the next markers take these, and no call
                // searches again.
                self.ended.remove(event);
            }
            // SAFETY: created above, and known to no one else.
            let _ = unsafe { (self.event_destroy)(event) };
        }
        created
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
        // SAFETY: the function accepts any number, and refuses one that is no device.
        let code = unsafe { (self.set_device)(device) };
        if code != hipSuccess {
            tracing::error!(device, %code, "the device cannot be made the current one");
        }
    }
}
