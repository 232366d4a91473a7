//! A HIP stream as the hardware queue of an XQueue, and a HIP device as the place where a worker launches.
//!
//! Marks are events of a pool: timing disabled, no system-scope release where the runtime knows how to leave it out.
//! They are recorded and queried, never synchronized. Events belong to a device, and handle 0 means the caller's current
//! device, so both are used with the queue's own device as the current one.

use crate::ended;
use crate::real::{Real, result};
use hip_sys::types::{
    hipError_t, hipErrorNotReady, hipErrorUnknown, hipEvent_t, hipEventDisableSystemFence,
    hipEventDisableTiming, hipEventReleaseToDevice, hipStream_t, hipSuccess,
};
use parking_lot::Mutex;
use std::ffi::c_uint;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use xqueue::{HwDevice, HwError, HwQueue, HwResult, Mark};

/// The flags for a mark, best first.
const FLAGS: [c_uint; 3] = [
    hipEventDisableTiming | hipEventDisableSystemFence,
    hipEventDisableTiming | hipEventReleaseToDevice,
    hipEventDisableTiming,
];

/// Index of the flags that this process's runtime takes.
static FLAGS_IN_USE: AtomicU32 = AtomicU32::new(0);

/// Whether a mark was recorded since the runtime's handlers were waited for last.
static HANDLERS: AtomicBool = AtomicBool::new(false);

/// A stream.
pub struct HipQueue {
    real: &'static Real,
    /// The handle. It changes only while nobody uses the queue.
    stream: AtomicUsize,
    device: u32,
    /// Events that no mark uses at present.
    pool: Mutex<Vec<hipEvent_t>>,
    /// The event of the mark that was recorded last; 0 if there is none since the handlers were waited for.
    last: AtomicUsize,
}

impl HipQueue {
    /// The stream with this handle, which the real functions get, on this device.
    pub fn new(real: &'static Real, stream: hipStream_t, device: u32) -> Self {
        let (stream, last) = (AtomicUsize::new(stream.as_raw()), AtomicUsize::new(0));
        Self { real, stream, device, pool: Mutex::new(Vec::new()), last }
    }

    /// The handle.
    pub fn stream(&self) -> hipStream_t {
        hipStream_t::from_raw(self.stream.load(Ordering::Relaxed))
    }

    /// Stands for another stream of the same device from now on; the one before has ended.
    pub fn renew(&self, stream: hipStream_t) {
        self.stream.store(stream.as_raw(), Ordering::Release);
    }

    /// Its device, as the process counts.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Gives the events of the pool back to the runtime, which is about to lose them.
    pub fn retire(&self) {
        self.last.store(0, Ordering::Relaxed);
        for event in std::mem::take(&mut *self.pool.lock()) {
            // SAFETY: an event that was made here, that no mark uses, and that nobody else knows.
            let _ = unsafe { (self.real.event_destroy)(event) };
        }
    }

    /// Waits until the hardware has completed what lies in front of the last mark. False: there is no mark for
    /// whose handler nobody has waited.
    pub fn wait_for_marks(&self) -> bool {
        let event = hipEvent_t::from_raw(self.last.load(Ordering::Acquire));
        if event == hipEvent_t::NULL {
            return false;
        }
        // SAFETY: an event of this queue's, which are destroyed by `retire` only.
        let _ = unsafe { (self.real.event_synchronize)(event) };
        true
    }

    /// Waits until the runtime's handlers have dealt with all that the hardware has completed, of any stream.
    ///
    /// Behind each mark the runtime registers a handler, and one thread of ROCr's runs them in any order
    /// (`AsyncEventsLoop`; `HsaAmdSignalHandler` in ROCclr). Until then commands hold their memory, and the handler reads
    /// signals of the stream. That thread runs the handlers of all completed signals before it takes new ones, so those
    /// that were complete before the first two events here have run when the third one's is seen to have;
    /// hipEventElapsedTime waits for its events' handlers (`hip::Event::elapsedTime` of 5.2.3, 5.7.1, 6.2.2 and
    /// October 2024).
    ///
    /// The events wait for what a command of this stream would wait for. Not to be called inside a callback.
    pub fn wait_for_handlers(&self) {
        self.last.store(0, Ordering::Relaxed);
        HANDLERS.store(false, Ordering::Relaxed);
        self.on_device(|| {
            let mut pair = [hipEvent_t::NULL; 2];
            // SAFETY: the runtime's function gets places for the events.
            let made =
                pair.iter_mut().all(|event| unsafe { (self.real.event_create)(event, 0) } == hipSuccess);
            let [first, second] = pair;
            if made && self.record(first) && self.record(second) && self.wait_for_both(first, second) {
                // The runtime leaves some memory behind for each event of a stream that ends: no more than is needed.
                let _ = self.record(first) && self.wait_for_both(second, first);
            }
            for event in pair.into_iter().filter(|event| *event != hipEvent_t::NULL) {
                // SAFETY: made above, and nobody else knows it.
                let _ = unsafe { (self.real.event_destroy)(event) };
            }
        });
    }

    /// Whether marks were recorded, in any queue, since [`HipQueue::wait_for_handlers`] was called last.
    pub fn has_handlers() -> bool {
        HANDLERS.load(Ordering::Relaxed)
    }

    fn record(&self, event: hipEvent_t) -> bool {
        // SAFETY: an event of the caller's, and a stream that lives at least as long as its queue.
        unsafe { (self.real.event_record)(event, self.stream()) == hipSuccess }
    }

    /// Waits for the handlers of two events that were recorded, the other one last.
    fn wait_for_both(&self, one: hipEvent_t, other: hipEvent_t) -> bool {
        let mut ms = 0.0;
        // SAFETY: an event of the caller's.
        let done = unsafe { (self.real.event_synchronize)(other) } == hipSuccess;
        // SAFETY: events of the caller's, and a place for the time.
        done && unsafe { (self.real.event_elapsed)(&mut ms, one, other) } == hipSuccess
    }

    /// Runs `body` where handles and events mean what they mean for this queue.
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
            match ended::create(self.real, *flags) {
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
    fn record_mark(&self) -> Result<Mark, HwError> {
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
            Ok(Mark(event.as_raw() as u64))
        })
    }

    fn query_mark(&self, mark: Mark) -> Result<bool, HwError> {
        let event = hipEvent_t::from_raw(mark.0 as usize);
        // SAFETY: the event of a mark that has not been released.
        match unsafe { self.real.query_event(event) } {
            code if code == hipSuccess => Ok(true),
            code if code == hipErrorNotReady => {
                self.real.forget_result();
                Ok(false)
            }
            code => Err(error(code)),
        }
    }

    fn release_mark(&self, mark: Mark) {
        self.pool.lock().push(hipEvent_t::from_raw(mark.0 as usize));
    }

    fn synchronize(&self) -> HwResult {
        // SAFETY: the stream lives at least as long as its queue.
        self.on_device(|| result(unsafe { (self.real.stream_synchronize)(self.stream()) }))
    }

    fn reads_others(&self) -> bool {
        self.stream() == hipStream_t::NULL
    }
}

/// A device; what its worker and the watcher do first.
pub struct HipDevice {
    real: &'static Real,
    device: u32,
    /// What the process's library does with a thread of its own.
    adopt: fn(),
}

impl HipDevice {
    /// The device with this number; `adopt` is called on each thread that works for it.
    pub fn new(real: &'static Real, device: u32, adopt: fn()) -> Self {
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
        // The program's signals are for the program's threads.
        let mut all = std::mem::MaybeUninit::uninit();
        // SAFETY: fills the set that it is given.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: the set was filled above; only this thread's mask changes.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut()) };
        // SAFETY: a number for this thread only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
        self.real.leave_captures();
        self.real.enter_device(self.device);
    }
}
