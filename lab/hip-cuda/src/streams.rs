//! The calls about streams.

use std::ffi::{c_int, c_uint, c_ulonglong};

use hip_sys::types::*;

use crate::errors::Answer;
use crate::state::{self, api, enter, get, put, required};
use crate::stream_table::{add, device_of, enter_on, find, is_blocking, is_default, per_thread, remove};
use crate::{blobs, captures, legacy};

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
    add(made, flags, priority, mask);
    put(place, made)
}

fn destroy(stream: hipStream_t) -> Answer {
    // AMD's runtime does not let programs destroy default streams either. Null is one of them.
    if is_default(stream) {
        return Err(hipErrorInvalidHandle);
    }
    let driver = enter_on(stream)?;
    captures::forget(stream);
    let device = device_of(stream)?;
    // AMD's runtime waits for the stream's work here (`hip::Stream::terminate`); CUDA does not. A capture has
    // no work, so a refusal does not matter.
    let waited = captures::aside(driver, || driver.stream_synchronize(stream));
    remove(stream)?;
    if waited == Err(hipErrorInvalidContext) {
        // CUDA has dropped the context of a thread that ends and runs destructors of other libraries.
        let elsewhere = std::thread::spawn(move || {
            let driver = state::started()?.enter(device)?;
            let _ = captures::aside(driver, || driver.stream_synchronize(stream));
            driver.stream_destroy(stream)
        });
        elsewhere.join().unwrap_or(Err(hipErrorUnknown))
    } else {
        driver.stream_destroy(stream)
    }
}

/// Up to 5.x, waits for and queries of a blocking stream include the default stream (`hipStreamSynchronize`
/// and `hipStreamQuery` in hip_stream.cpp).
fn with_legacy(stream: hipStream_t, ask: impl FnOnce(hipStream_t) -> Answer) -> Answer {
    if blobs::major() >= 6 || !is_blocking(stream) || captures::any() {
        return Ok(());
    }
    let device = device_of(stream)?;
    if !legacy::is_busy(device) {
        return Ok(());
    }
    let uses = legacy::uses(device);
    ask(hipStream_t::NULL)?;
    legacy::waited(device, uses);
    Ok(())
}

/// Waits until all work in a stream has completed.
pub(crate) fn synchronize(stream: hipStream_t) -> Answer {
    let driver = enter_on(stream)?;
    let uses = legacy::uses(state::device());
    // AMD permits waits for and queries of other streams during a capture; CUDA permits them only in relaxed mode.
    captures::aside(driver, || driver.stream_synchronize(stream))?;
    if stream.is_legacy_default() {
        legacy::waited(state::device(), uses);
    }
    with_legacy(stream, |legacy| driver.stream_synchronize(legacy))
}

/// Waits for all work on the calling thread's device.
fn synchronize_device() -> Answer {
    let driver = enter()?;
    let uses = legacy::uses(state::device());
    driver.context_synchronize()?;
    legacy::waited(state::device(), uses);
    Ok(())
}

/// Submits work to a default stream and waits for it.
///
/// # Errors
/// `hipErrorStreamCaptureImplicit` while any stream captures, and the errors of the work.
pub(crate) fn now(stream: hipStream_t, work: impl FnOnce() -> Answer) -> Answer {
    captures::refuse_implicit()?;
    work()?;
    synchronize(stream)
}

fn query(stream: hipStream_t) -> Answer {
    let driver = enter_on(stream)?;
    captures::aside(driver, || driver.stream_query(stream))?;
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

/// Returns the mask of all compute units: one bit for each.
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
    [pfn] fn hipDeviceSynchronize() { synchronize_device() }
    [pfn] fn hipCtxSynchronize() { synchronize_device() }
}
