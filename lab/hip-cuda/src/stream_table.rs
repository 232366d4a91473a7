//! The table of live streams. In HIP as in CUDA, the handles 0 and 1 are the default stream, and 2 is the
//! calling thread's own default stream.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use hip_sys::types::*;

use crate::driver::Driver;
use crate::errors::Answer;
use crate::legacy;
use crate::state::{self, started};

/// The default stream, which calls without a stream use.
pub(crate) const LEGACY: hipStream_t = hipStream_t::NULL;
/// The calling thread's own default stream, which functions with the suffix `_spt` use.
pub(crate) const OWN: hipStream_t = hipStream_t::PER_THREAD;

/// A stream's entry in the table.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) device: c_int,
    pub(crate) flags: c_uint,
    pub(crate) priority: c_int,
    /// The mask of compute units that the program asked for. CUDA has no such mask, so the stream uses all
    /// units.
    pub(crate) mask: Vec<u32>,
    pub(crate) number: u64,
}

static STREAMS: RwLock<Option<HashMap<usize, Stream>>> = RwLock::new(None);

/// Calls a function with a stream's entry.
///
/// # Errors
/// `hipErrorContextIsDestroyed` if there is no such stream.
pub(crate) fn find<T>(stream: hipStream_t, look: impl FnOnce(&Stream) -> T) -> Answer<T> {
    let streams = STREAMS.read().unwrap_or_else(PoisonError::into_inner);
    let found = streams.as_ref().and_then(|streams| streams.get(&stream.as_raw()));
    // The same error as from `isValid` in AMD's hip_stream.cpp.
    found.map(look).ok_or(hipErrorContextIsDestroyed)
}

/// Returns true for the handles of default streams.
pub(crate) fn is_default(stream: hipStream_t) -> bool {
    stream.as_raw() <= 2
}

/// Returns a stream's device. A default stream's device is the calling thread's.
///
/// # Errors
/// `hipErrorContextIsDestroyed` if there is no such stream.
pub(crate) fn device_of(stream: hipStream_t) -> Answer<c_int> {
    if is_default(stream) { Ok(state::device()) } else { find(stream, |stream| stream.device) }
}

/// Returns true if this stream and the default stream wait for each other.
pub(crate) fn is_blocking(stream: hipStream_t) -> bool {
    stream == hipStream_t::PER_THREAD
        || !is_default(stream) && find(stream, |stream| stream.flags == hipStreamDefault).unwrap_or(false)
}

/// Translates a stream argument of a function with the suffix `_spt`.
pub(crate) fn per_thread(stream: hipStream_t) -> hipStream_t {
    if stream.is_legacy_default() { hipStream_t::PER_THREAD } else { stream }
}

/// Checks a stream, makes its device current, and returns the driver.
///
/// # Errors
/// `hipErrorContextIsDestroyed` if there is no such stream.
pub(crate) fn enter_on(stream: hipStream_t) -> Answer<&'static Driver> {
    let driver = started()?.enter(device_of(stream)?)?;
    used(stream);
    Ok(driver)
}

static NUMBER: AtomicU64 = AtomicU64::new(1);

/// Adds a stream on the calling thread's device.
pub(crate) fn add(stream: hipStream_t, flags: c_uint, priority: c_int, mask: Vec<u32>) {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let new = Stream { device: state::device(), flags, priority, mask, number };
    let mut streams = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    streams.get_or_insert_default().insert(stream.as_raw(), new);
}

/// Removes a stream that is about to be destroyed. Once it is, another thread may get the same handle.
///
/// # Errors
/// `hipErrorContextIsDestroyed` if there is no such stream any more.
pub(crate) fn remove(stream: hipStream_t) -> Answer {
    let mut streams = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    let removed = streams.get_or_insert_default().remove(&stream.as_raw());
    removed.map(drop).ok_or(hipErrorContextIsDestroyed)
}

thread_local! {
    static ENDING: Ending = const { Ending(Cell::new(false)) };
}

/// Waits for the work in the thread's own stream when the thread ends, as AMD's runtime does (`~TlsData`
/// destroys the stream). CUDA does not wait.
struct Ending(Cell<bool>);

impl Drop for Ending {
    fn drop(&mut self) {
        // The main thread ends with the process, when the driver may be gone already.
        // SAFETY: these functions have no preconditions.
        let is_main = unsafe { libc::gettid() == libc::getpid() };
        if let (true, false, Ok(started)) = (self.0.get(), is_main, state::started()) {
            for device in 0..started.devices {
                let _ = started.enter_at_end(device).and_then(|driver| {
                    // So that waiting does not invalidate a capture of another thread.
                    driver.capture_mode(&mut { hipStreamCaptureModeRelaxed.0 })?;
                    driver.stream_synchronize(OWN)
                });
            }
        }
    }
}

/// Notes that a default stream may get work.
fn used(stream: hipStream_t) {
    if stream.is_legacy_default() {
        legacy::used(state::device());
    } else if stream == OWN {
        let _ = ENDING.try_with(|ending| ending.0.set(true));
    }
}
