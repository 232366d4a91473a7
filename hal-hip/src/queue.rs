//! A HIP stream as the hardware queue of an XQueue, and a HIP device for its worker.
//!
//! Markers are events of a pool: timing disabled, and no system-scope release where the runtime can leave it
//! out. They are recorded and queried, never synchronized. Events belong to a device, and handle 0 means the
//! caller's current device, so both are used with the queue's own device as the current one.

use crate::real::{RuntimeFunctions, result};
use hip_sys::types::{
    hipError_t, hipErrorNotReady, hipErrorUnknown, hipEvent_t, hipEventDisableSystemFence,
    hipEventDisableTiming, hipEventReleaseToDevice, hipStream_t, hipSuccess,
};
use parking_lot::Mutex;
use std::ffi::c_uint;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use xqueue::{HwDevice, HwError, HwQueue, HwResult, Marker};

/// The flags of a marker, best first.
const FLAGS: [c_uint; 3] = [
    hipEventDisableTiming | hipEventDisableSystemFence,
    hipEventDisableTiming | hipEventReleaseToDevice,
    hipEventDisableTiming,
];

/// The index of the flags that this process's runtime accepts.
static FLAGS_IN_USE: AtomicU32 = AtomicU32::new(0);

/// True if a marker was recorded since the last wait for the runtime's handlers.
static HANDLERS: AtomicBool = AtomicBool::new(false);

/// A HIP stream as a hardware queue.
pub struct HipQueue {
    real: &'static RuntimeFunctions,
    /// The handle. It changes only while no thread uses the queue.
    stream: AtomicUsize,
    device: u32,
    /// Events that no marker uses at present.
    pool: Mutex<Vec<hipEvent_t>>,
    /// The event of the last marker; 0 if there is none since the last wait for the handlers.
    last: AtomicUsize,
}

impl HipQueue {
    /// Creates the queue of the stream with this handle, which the real functions get, on this device.
    pub fn new(real: &'static RuntimeFunctions, stream: hipStream_t, device: u32) -> Self {
        let (stream, last) = (AtomicUsize::new(stream.as_raw()), AtomicUsize::new(0));
        Self { real, stream, device, pool: Mutex::new(Vec::new()), last }
    }

    /// Returns the handle of the stream.
    pub fn stream(&self) -> hipStream_t {
        hipStream_t::from_raw(self.stream.load(Ordering::Relaxed))
    }

    /// Replaces the stream, which has ended, by another one of the same device.
    pub fn renew(&self, stream: hipStream_t) {
        self.stream.store(stream.as_raw(), Ordering::Release);
    }

    /// Returns the index of the device in this process.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Gives the events of the pool back to the runtime, which is about to lose them.
    pub fn retire(&self) {
        self.last.store(0, Ordering::Relaxed);
        for event in std::mem::take(&mut *self.pool.lock()) {
            // SAFETY: an event of the pool: created here, used by no marker, and known to no one else.
            let _ = unsafe { (self.real.event_destroy)(event) };
        }
    }

    /// Waits until the hardware has completed everything in front of the last marker. Returns false if no
    /// marker was recorded since the last wait for the handlers.
    pub fn wait_for_markers(&self) -> bool {
        let event = hipEvent_t::from_raw(self.last.load(Ordering::Acquire));
        if event == hipEvent_t::NULL {
            return false;
        }
        // SAFETY: an event of this queue; only `retire` destroys them, and it clears `last` first.
        let _ = unsafe { (self.real.event_synchronize)(event) };
        true
    }

    /// Waits until the runtime's handlers have run for everything that the hardware has completed, of any
    /// stream.
    ///
    /// The runtime registers a handler behind each marker, and one thread of ROCr runs the handlers in any
    /// order (`AsyncEventsLoop`; `HsaAmdSignalHandler` in ROCclr). Until then commands hold their memory, and
    /// the handler reads signals of the stream. That thread runs the handlers of all completed signals before
    /// it takes new ones. So the handlers of signals that were complete before the first two events here have
    /// run once that of the third one has. To see that, hipEventElapsedTime waits for its events' handlers
    /// (`hip::Event::elapsedTime` of 5.2.3, 5.7.1, 6.2.2 and October 2024).
    ///
    /// The events wait for whatever a command of this stream would wait for. Do not call this inside a
    /// callback.
    pub fn wait_for_handlers(&self) {
        self.last.store(0, Ordering::Relaxed);
        HANDLERS.store(false, Ordering::Relaxed);
        self.on_device(|| {
            let mut pair = [hipEvent_t::NULL; 2];
            // SAFETY: the function writes a handle to each given place.
            let made =
                pair.iter_mut().all(|event| unsafe { (self.real.event_create)(event, 0) } == hipSuccess);
            let [first, second] = pair;
            if made && self.record(first) && self.record(second) && self.wait_for_both(first, second) {
                // The runtime leaks some memory for each event of a stream that ends, so one event is
                // recorded twice.
                let _ = self.record(first) && self.wait_for_both(second, first);
            }
            for event in pair.into_iter().filter(|event| *event != hipEvent_t::NULL) {
                // SAFETY: created above, and known to no one else.
                let _ = unsafe { (self.real.event_destroy)(event) };
            }
        });
    }

    /// Returns true if markers were recorded, in any queue, since the last [`HipQueue::wait_for_handlers`].
    pub fn has_handlers() -> bool {
        HANDLERS.load(Ordering::Relaxed)
    }

    fn record(&self, event: hipEvent_t) -> bool {
        // SAFETY: a live event of the caller, and a stream that lives at least as long as its queue.
        unsafe { (self.real.event_record)(event, self.stream()) == hipSuccess }
    }

    /// Waits for the handlers of two recorded events, of which `other` is the later one.
    fn wait_for_both(&self, one: hipEvent_t, other: hipEvent_t) -> bool {
        let mut ms = 0.0;
        // SAFETY: live events of the caller, and a place for the time.
        unsafe {
            (self.real.event_synchronize)(other) == hipSuccess
                && (self.real.event_elapsed)(&mut ms, one, other) == hipSuccess
        }
    }

    /// Runs `body` with the queue's device as the current one, which handles and events need.
    fn on_device<R>(&self, body: impl FnOnce() -> R) -> R {
        self.real.on_device(self.device, body)
    }

    fn event(&self) -> Result<hipEvent_t, HwError> {
        if let Some(event) = self.pool.lock().pop() {
            return Ok(event);
        }
        let first = FLAGS_IN_USE.load(Ordering::Relaxed);
        let mut code = hipErrorUnknown;
        for (index, flags) in (first..).zip(FLAGS.iter().skip(first as usize)) {
            match self.real.create_event(*flags) {
                Ok(event) => {
                    FLAGS_IN_USE.store(index, Ordering::Relaxed);
                    return Ok(event);
                }
                Err(refused) => code = refused,
            }
        }
        Err(error(code))
    }
}

fn error(code: hipError_t) -> HwError {
    HwError::from_code(code.0).unwrap_or(HwError::UNKNOWN)
}

impl fmt::Debug for HipQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HipQueue")
            .field("stream", &self.stream())
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl HwQueue for HipQueue {
    fn record_marker(&self) -> Result<Marker, HwError> {
        self.on_device(|| {
            let event = self.event()?;
            // SAFETY: an event of the pool, and a stream that lives at least as long as its queue.
            let code = unsafe { (self.real.event_record)(event, self.stream()) };
            if code != hipSuccess {
                self.pool.lock().push(event);
                return Err(error(code));
            }
            self.last.store(event.as_raw(), Ordering::Release);
            if !HANDLERS.load(Ordering::Relaxed) {
                HANDLERS.store(true, Ordering::Relaxed);
            }
            Ok(Marker(event.as_raw() as u64))
        })
    }

    fn query_marker(&self, mark: Marker) -> Result<bool, HwError> {
        let event = hipEvent_t::from_raw(mark.0 as usize);
        // SAFETY: the event of a marker that has not been released, so it is not destroyed.
        match unsafe { self.real.query_event(event) } {
            code if code == hipSuccess => Ok(true),
            code if code == hipErrorNotReady => {
                self.real.reset_last_error();
                Ok(false)
            }
            code => Err(error(code)),
        }
    }

    fn release_marker(&self, mark: Marker) {
        self.pool.lock().push(hipEvent_t::from_raw(mark.0 as usize));
    }

    fn synchronize(&self) -> HwResult {
        // SAFETY: the stream lives at least as long as its queue.
        self.on_device(|| result(unsafe { (self.real.stream_synchronize)(self.stream()) }))
    }

    fn reads_other_streams(&self) -> bool {
        self.stream() == hipStream_t::NULL
    }
}

/// A HIP device, which the worker and the watcher enter.
pub struct HipDevice {
    real: &'static RuntimeFunctions,
    device: u32,
    /// Prepares a thread of the library's own.
    adopt: fn(),
}

impl HipDevice {
    /// Creates the device with this index; `adopt` is called on each thread that works for it.
    pub fn new(real: &'static RuntimeFunctions, device: u32, adopt: fn()) -> Self {
        Self { real, device, adopt }
    }
}

impl fmt::Debug for HipDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HipDevice").field(&self.device).finish()
    }
}

impl HwDevice for HipDevice {
    fn enter(&self) {
        (self.adopt)();
        host::signals::block_all();
        // SAFETY: the call takes numbers only, and changes the timer slack of this thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
        self.real.relax_capture_mode();
        self.real.enter_device(self.device);
    }
}
