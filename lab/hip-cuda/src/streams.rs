//! Streams: a table of those that live, and the calls about them. The handles 0, 1 and 2 are the default stream, the
//! same by its explicit name, and the calling thread's own, in HIP as in CUDA.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use hip_sys::types::*;

use crate::errors::Answer;
use crate::state::{self, api, enter, enter_on, get, put, required};
use crate::{blobs, captures};

/// What the table knows of a stream.
#[derive(Clone, Debug)]
struct Stream {
    device: c_int,
    flags: c_uint,
    priority: c_int,
    /// The compute units that the program asked for. CUDA has no such mask, and the stream uses all.
    mask: Vec<u32>,
    number: u64,
}

static STREAMS: RwLock<Option<HashMap<usize, Stream>>> = RwLock::new(None);

fn find<T>(stream: hipStream_t, look: impl FnOnce(&Stream) -> T) -> Answer<T> {
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
fn is_blocking(stream: hipStream_t) -> bool {
    stream == hipStream_t::PER_THREAD
        || !is_default(stream) && find(stream, |stream| stream.flags == hipStreamDefault).unwrap_or(false)
}

/// The handle that a function with the suffix `_spt` means.
pub(crate) fn per_thread(stream: hipStream_t) -> hipStream_t {
    if stream.is_legacy_default() { hipStream_t::PER_THREAD } else { stream }
}

fn create(place: *mut hipStream_t, flags: c_uint, priority: c_int, mask: Vec<u32>) -> Answer {
    required(place)?;
    if flags > hipStreamNonBlocking {
        return Err(hipErrorInvalidValue);
    }
    let driver = enter()?;
    let (mut least, mut greatest) = (0, 0);
    driver.priority_range(&mut least, &mut greatest)?;
    let priority = priority.clamp(greatest, least);
    let mut made = hipStream_t::NULL;
    driver.stream_create(&mut made, flags, priority)?;
    let mut streams = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    let streams = streams.get_or_insert_default();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    streams.insert(made.as_raw(), Stream { device: state::device(), flags, priority, mask, number });
    put(place, made)
}

static NUMBER: AtomicU64 = AtomicU64::new(1);

fn destroy(stream: hipStream_t) -> Answer {
    if stream.is_null() {
        return Err(hipErrorInvalidHandle);
    }
    if is_default(stream) {
        // As AMD, which does not end its own streams.
        return Err(hipErrorInvalidHandle);
    }
    let driver = enter_on(stream)?;
    captures::forget(stream);
    let device = device_of(stream)?;
    // AMD's runtime waits for the stream's work here (`hip::Stream::terminate`), CUDA does not. During a capture there is none.
    if driver.stream_synchronize(stream) == Err(hipErrorInvalidContext) {
        // A thread that ends, in the destructors of other libraries, has no context any more.
        let elsewhere = std::thread::spawn(move || {
            let driver = state::started()?.enter(device)?;
            let _ = driver.stream_synchronize(stream);
            driver.stream_destroy(stream)
        });
        elsewhere.join().unwrap_or(Err(hipErrorUnknown))?;
    } else {
        driver.stream_destroy(stream)?;
    }
    let mut streams = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    streams.get_or_insert_default().remove(&stream.as_raw());
    Ok(())
}

/// True while the default stream may have work that nobody has waited for.
static LEGACY_BUSY: AtomicBool = AtomicBool::new(false);

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
pub(crate) fn used(stream: hipStream_t) {
    if stream.is_legacy_default() {
        LEGACY_BUSY.store(true, Ordering::Release);
    } else if stream == OWN {
        let _ = ENDING.try_with(|ending| ending.0.set(true));
    }
}

/// Up to 5.x waits for and queries of a blocking stream are about the default stream as well (`hipStreamSynchronize` and
/// `hipStreamQuery` in hip_stream.cpp).
fn with_legacy(stream: hipStream_t, ask: impl FnOnce(hipStream_t) -> Answer) -> Answer {
    if blobs::major() >= 6 || !LEGACY_BUSY.load(Ordering::Acquire) || !is_blocking(stream) || captures::any()
    {
        return Ok(());
    }
    ask(hipStream_t::NULL)?;
    LEGACY_BUSY.store(false, Ordering::Release);
    Ok(())
}

/// Waits until everything in the stream has completed.
pub(crate) fn synchronize(stream: hipStream_t) -> Answer {
    let driver = enter_on(stream)?;
    driver.stream_synchronize(stream)?;
    if stream.is_legacy_default() {
        LEGACY_BUSY.store(false, Ordering::Release);
    }
    with_legacy(stream, |legacy| driver.stream_synchronize(legacy))
}

/// The default stream, in which calls without a stream do their work.
pub(crate) const LEGACY: hipStream_t = hipStream_t::NULL;
/// The calling thread's own, for functions with the suffix `_spt`.
pub(crate) const OWN: hipStream_t = hipStream_t::PER_THREAD;

/// Does work in a default stream and waits for it.
///
/// # Errors
/// `hipErrorStreamCaptureImplicit` while a stream that the default stream waits for captures.
pub(crate) fn now(stream: hipStream_t, work: impl FnOnce() -> Answer) -> Answer {
    captures::refuse_implicit()?;
    work()?;
    synchronize(stream)
}

fn query(stream: hipStream_t) -> Answer {
    let driver = enter_on(stream)?;
    driver.stream_query(stream)?;
    with_legacy(stream, |legacy| driver.stream_query(legacy))
}

fn flags(stream: hipStream_t, place: *mut c_uint) -> Answer {
    required(place)?;
    enter_on(stream)?;
    put(place, if is_default(stream) { hipStreamDefault } else { find(stream, |stream| stream.flags)? })
}

fn priority(stream: hipStream_t, place: *mut c_int) -> Answer {
    required(place)?;
    enter_on(stream)?;
    put(place, if is_default(stream) { 0 } else { find(stream, |stream| stream.priority)? })
}

fn wait_event(stream: hipStream_t, event: hipEvent_t, flags: c_uint) -> Answer {
    crate::events::check(event)?;
    if flags > u32::from(blobs::major() >= 7) {
        return Err(hipErrorInvalidValue);
    }
    enter_on(stream)?.stream_wait(stream, event, flags)
}

/// The masks that a device with so many compute units can have: a bit for each.
fn all_units() -> Answer<Vec<u32>> {
    let mut units = 0;
    enter()?.device_attribute(&mut units, crate::devices::MULTIPROCESSORS, state::device())?;
    let units = usize::try_from(units).unwrap_or(0);
    let mut mask = vec![u32::MAX; units.div_ceil(32)];
    if let (Some(last), rest @ 1..) = (mask.last_mut(), units % 32) {
        *last = (1 << rest) - 1;
    }
    Ok(mask)
}

api! {
    [pfn] fn hipStreamCreate(stream: *mut hipStream_t) { create(stream, hipStreamDefault, 0, Vec::new()) }
    [pfn] fn hipStreamCreateWithFlags(stream: *mut hipStream_t, flags: c_uint) { create(stream, flags, 0, Vec::new()) }
    [pfn] fn hipStreamCreateWithPriority(stream: *mut hipStream_t, flags: c_uint, priority: c_int) {
        create(stream, flags, priority, Vec::new())
    }
    [pfn] fn hipExtStreamCreateWithCUMask(stream: *mut hipStream_t, size: u32, mask: *const u32) {
        if size == 0 {
            return Err(hipErrorInvalidValue);
        }
        let words = (0..size as usize).map(|index| get(mask.wrapping_add(index))).collect::<Answer<Vec<u32>>>()?;
        create(stream, hipStreamDefault, 0, words)
    }
    [pfn] fn hipExtStreamGetCUMask(stream: hipStream_t, size: u32, mask: *mut u32) {
        required(mask)?;
        enter_on(stream)?;
        let all = all_units()?;
        if (size as usize) < all.len() {
            return Err(hipErrorInvalidValue);
        }
        let chosen = if is_default(stream) { Vec::new() } else { find(stream, |stream| stream.mask.clone())? };
        for (index, all) in all.into_iter().enumerate() {
            put(mask.wrapping_add(index), chosen.get(index).map_or(all, |chosen| chosen & all))?;
        }
        Ok(())
    }
    [pfn] fn hipStreamDestroy(stream: hipStream_t) { destroy(stream) }
    [pfn] fn hipStreamSynchronize(stream: hipStream_t) { synchronize(stream) }
    [pfn] fn hipStreamSynchronize_spt(stream: hipStream_t) { synchronize(per_thread(stream)) }
    [pfn] fn hipStreamQuery(stream: hipStream_t) { query(stream) }
    [pfn] fn hipStreamQuery_spt(stream: hipStream_t) { query(per_thread(stream)) }
    [pfn] fn hipStreamWaitEvent(stream: hipStream_t, event: hipEvent_t, flags: c_uint) {
        wait_event(stream, event, flags)
    }
    [pfn] fn hipStreamWaitEvent_spt(stream: hipStream_t, event: hipEvent_t, flags: c_uint) {
        wait_event(per_thread(stream), event, flags)
    }
    [pfn] fn hipStreamGetFlags(stream: hipStream_t, place: *mut c_uint) { flags(stream, place) }
    [pfn] fn hipStreamGetFlags_spt(stream: hipStream_t, place: *mut c_uint) { flags(per_thread(stream), place) }
    [pfn] fn hipStreamGetPriority(stream: hipStream_t, place: *mut c_int) { priority(stream, place) }
    [pfn] fn hipStreamGetPriority_spt(stream: hipStream_t, place: *mut c_int) { priority(per_thread(stream), place) }
    [pfn] fn hipStreamGetDevice(stream: hipStream_t, place: *mut hipDevice_t) {
        required(place)?;
        put(place, device_of(stream)?)
    }
    [pfn] fn hipStreamGetId(stream: hipStream_t, place: *mut c_ulonglong) {
        required(place)?;
        put(place, if is_default(stream) { stream.as_raw() as u64 } else { find(stream, |stream| stream.number)? })
    }
    [value] fn hipGetStreamDeviceId(stream: hipStream_t) -> c_int {
        device_of(stream).unwrap_or(-1)
    }
    [pfn] fn hipStreamAttachMemAsync(stream: hipStream_t, address: *mut std::ffi::c_void, length: usize, flags: c_uint) {
        required(address)?;
        if !matches!(flags, 1 | 2 | 4) || crate::memory::find(address.cast_const()).is_none() {
            return Err(hipErrorInvalidValue);
        }
        let _ = length;
        enter_on(stream).map(drop)
    }
    [pfn] fn hipDeviceSynchronize() {
        enter()?.context_synchronize()?;
        LEGACY_BUSY.store(false, Ordering::Release);
        Ok(())
    }
    [pfn] fn hipCtxSynchronize() {
        enter()?.context_synchronize()?;
        LEGACY_BUSY.store(false, Ordering::Release);
        Ok(())
    }
}
