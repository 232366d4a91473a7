//! The table of the streams that live. The handles 0, 1 and 2 are the default stream, the same by its explicit name, and
//! the calling thread's own, in HIP as in CUDA.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use hip_sys::types::*;

use crate::driver::Driver;
use crate::errors::Answer;
use crate::state::{self, started};

/// The default stream, in which calls without a stream do their work.
pub(crate) const LEGACY: hipStream_t = hipStream_t::NULL;
/// The calling thread's own, for functions with the suffix `_spt`.
pub(crate) const OWN: hipStream_t = hipStream_t::PER_THREAD;

/// What the table knows of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) device: c_int,
    pub(crate) flags: c_uint,
    pub(crate) priority: c_int,
    /// The compute units that the program asked for. CUDA has no such mask, and the stream uses all.
    pub(crate) mask: Vec<u32>,
    pub(crate) number: u64,
}

static STREAMS: RwLock<Option<HashMap<usize, Stream>>> = RwLock::new(None);

/// Looks at a stream.
///
/// # Errors
/// `hipErrorContextIsDestroyed` for what is no stream.
pub(crate) fn find<T>(stream: hipStream_t, look: impl FnOnce(&Stream) -> T) -> Answer<T> {
    let streams = STREAMS.read().unwrap_or_else(PoisonError::into_inner);
    let found = streams.as_ref().and_then(|streams| streams.get(&stream.as_raw()));
    // As `isValid` in AMD's hip_stream.cpp.
    found.map(look).ok_or(hipErrorContextIsDestroyed)
}

/// Returns true for the handles that are no objects.
pub(crate) fn is_default(stream: hipStream_t) -> bool {
    stream.as_raw() <= 2
}

/// The device of a stream: for a default stream the calling thread's.
///
/// # Errors
/// `hipErrorContextIsDestroyed` for what is no stream.
pub(crate) fn device_of(stream: hipStream_t) -> Answer<c_int> {
    if is_default(stream) { Ok(state::device()) } else { find(stream, |stream| stream.device) }
}

/// Returns true if the default stream waits for this one and the other way round.
pub(crate) fn is_blocking(stream: hipStream_t) -> bool {
    stream == hipStream_t::PER_THREAD
        || !is_default(stream) && find(stream, |stream| stream.flags == hipStreamDefault).unwrap_or(false)
}

/// The handle that a function with the suffix `_spt` means.
pub(crate) fn per_thread(stream: hipStream_t) -> hipStream_t {
    if stream.is_legacy_default() { hipStream_t::PER_THREAD } else { stream }
}

/// The driver, with the device of a stream as the current one; checks that there is such a stream.
///
/// # Errors
/// `hipErrorContextIsDestroyed` for what is no stream.
pub(crate) fn enter_on(stream: hipStream_t) -> Answer<&'static Driver> {
    let driver = started()?.enter(device_of(stream)?)?;
    used(stream);
    Ok(driver)
}

static NUMBER: AtomicU64 = AtomicU64::new(1);

/// Adds a stream of the calling thread's device.
pub(crate) fn add(stream: hipStream_t, flags: c_uint, priority: c_int, mask: Vec<u32>) {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let new = Stream { device: state::device(), flags, priority, mask, number };
    let mut streams = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    streams.get_or_insert_default().insert(stream.as_raw(), new);
}

/// Removes a stream that is destroyed.
pub(crate) fn remove(stream: hipStream_t) {
    let mut streams = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    streams.get_or_insert_default().remove(&stream.as_raw());
}

/// True while the default stream may have work that nobody has waited for.
pub(crate) static LEGACY_BUSY: AtomicBool = AtomicBool::new(false);

thread_local! {
    static ENDING: Ending = const { Ending(Cell::new(false)) };
}

/// Waits for the work in the thread's own stream when the thread ends, as AMD's runtime does (`~TlsData`, which destroys
/// the stream). CUDA leaves the work to itself.
struct Ending(Cell<bool>);

impl Drop for Ending {
    fn drop(&mut self) {
        // At the end of the process there may be no driver any more.
        // SAFETY: these functions only read.
        let is_main = unsafe { libc::gettid() == libc::getpid() };
        if let (true, false, Ok(started)) = (self.0.get(), is_main, state::started()) {
            for device in 0..started.devices {
                let _ = started.enter_at_end(device).and_then(|driver| driver.stream_synchronize(OWN));
            }
        }
    }
}

/// Notes that there will be work in a stream.
fn used(stream: hipStream_t) {
    if stream.is_legacy_default() {
        LEGACY_BUSY.store(true, Ordering::Release);
    } else if stream == OWN {
        let _ = ENDING.try_with(|ending| ending.0.set(true));
    }
}
