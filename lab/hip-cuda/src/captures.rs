//! Stream capture. CUDA captures; this module adds the rules in which AMD differs.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_uint, c_ulonglong};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hip_sys::types::*;

use crate::driver::Driver;
use crate::errors::Answer;
use crate::graphs;
use crate::state::{api, enter, get, put, required};
use crate::stream_table::{enter_on, per_thread};

/// A capture that has begun and not yet ended.
#[derive(Clone, Copy, Debug)]
struct Origin {
    mode: u32,
    thread: libc::pid_t,
}

/// The streams in which captures have begun.
static ORIGINS: Mutex<Option<HashMap<usize, Origin>>> = Mutex::new(None);
/// The number of entries in `ORIGINS`. Calls without any capture read only this number, without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The calling thread's mode (`hipThreadExchangeStreamCaptureMode`).
    static MODE: Cell<u32> = const { Cell::new(0) };
}

fn origins() -> MutexGuard<'static, Option<HashMap<usize, Origin>>> {
    ORIGINS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if any stream of the process captures.
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Forgets a stream's capture, because the capture ends or the stream is destroyed.
pub(crate) fn forget(stream: hipStream_t) {
    if any() {
        let mut origins = origins();
        let origins = origins.get_or_insert_default();
        origins.remove(&stream.as_raw());
        COUNT.store(origins.len(), Ordering::Release);
    }
}

/// Returns true if the stream takes part in a capture, valid or invalidated.
pub(crate) fn is_capturing(stream: hipStream_t) -> bool {
    any() && status(stream).is_ok_and(|status| status != hipStreamCaptureStatusNone.0)
}

fn status(stream: hipStream_t) -> Answer<u32> {
    let mut status = 0;
    enter_on(stream)?.is_capturing(stream, &mut status)?;
    Ok(status)
}

/// Makes a call in relaxed mode, in which captures do not affect it.
pub(crate) fn relaxed(driver: &Driver, call: impl FnOnce() -> Answer) -> Answer {
    let mut mode = hipStreamCaptureModeRelaxed.0;
    driver.capture_mode(&mut mode)?;
    let result = call();
    driver.capture_mode(&mut mode)?;
    result
}

/// Makes a call that AMD permits beside captures of other streams, and CUDA only in relaxed mode.
pub(crate) fn aside(driver: &Driver, call: impl FnOnce() -> Answer) -> Answer {
    if any() { relaxed(driver, call) } else { call() }
}

fn own_thread() -> libc::pid_t {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

/// Invalidates all captures, through a call that CUDA refuses during a capture.
fn invalidate() {
    if let Ok(driver) = enter() {
        let _ = driver.context_synchronize();
    }
}

/// Refuses a synchronous call while any stream captures, and invalidates the captures
/// (`CHECK_STREAM_CAPTURING` in AMD's hip_internal.hpp).
pub(crate) fn refuse_implicit() -> Answer {
    if !any() {
        return Ok(());
    }
    invalidate();
    Err(hipErrorStreamCaptureImplicit)
}

/// Refuses a call that is unsafe during a capture in the thread's mode (`CHECK_STREAM_CAPTURE_SUPPORTED`).
pub(crate) fn refuse_unsafe() -> Answer {
    if !any() || MODE.get() == hipStreamCaptureModeRelaxed.0 {
        return Ok(());
    }
    if origins()
        .as_ref()
        .is_some_and(|origins| origins.values().any(|origin| origin.mode != hipStreamCaptureModeRelaxed.0))
    {
        invalidate();
        return Err(hipErrorStreamCaptureUnsupported);
    }
    Ok(())
}

fn begin(stream: hipStream_t, mode: hipStreamCaptureMode) -> Answer {
    if mode.0 > hipStreamCaptureModeRelaxed.0 {
        return Err(hipErrorInvalidValue);
    }
    if stream.is_legacy_default() {
        return Err(hipErrorStreamCaptureUnsupported);
    }
    let driver = enter_on(stream)?;
    if is_capturing(stream) {
        return Err(hipErrorIllegalState);
    }
    driver.capture_begin(stream, mode.0)?;
    let mut origins = origins();
    let origins = origins.get_or_insert_default();
    origins.insert(stream.as_raw(), Origin { mode: mode.0, thread: own_thread() });
    COUNT.store(origins.len(), Ordering::Release);
    Ok(())
}

/// Refuses the end of a capture on a stream that did not begin it, or by another thread (`hipStreamEndCapture` in
/// hip_graph.cpp). AMD's runtime leaves the capture valid. CUDA may not, so it does not see these calls.
fn may_end(stream: hipStream_t) -> Answer {
    let origin = origins().as_ref().and_then(|origins| origins.get(&stream.as_raw()).copied());
    match origin {
        None if is_capturing(stream) => Err(hipErrorStreamCaptureUnmatched),
        Some(Origin { mode, thread }) if mode != hipStreamCaptureModeRelaxed.0 && thread != own_thread() => {
            Err(hipErrorStreamCaptureWrongThread)
        }
        _ => Ok(()),
    }
}

fn end(stream: hipStream_t, place: *mut hipGraph_t) -> Answer {
    required(place)?;
    if stream.is_legacy_default() {
        return Err(hipErrorIllegalState);
    }
    let driver = enter_on(stream)?;
    let mut graph = hipGraph_t::NULL;
    let result = may_end(stream).and_then(|()| {
        let ended = driver.capture_end(stream, &mut graph);
        forget(stream);
        ended
    });
    if result.is_ok() {
        graphs::keep(graph);
    }
    // Null if the capture failed.
    put(place, graph)?;
    result
}

/// Where a query about a capture writes its results. Each pointer may be null.
#[derive(Clone, Copy, Debug)]
struct Places {
    status: *mut hipStreamCaptureStatus,
    id: *mut c_ulonglong,
    graph: *mut hipGraph_t,
    dependencies: *mut *const hipGraphNode_t,
    count: *mut usize,
}

fn info(stream: hipStream_t, places: Places) -> Answer {
    let (mut status, mut id, mut graph) = (0, 0, hipGraph_t::NULL);
    let (mut dependencies, mut count) = (ptr::null(), 0);
    enter_on(stream)?.capture_info(
        stream,
        &mut status,
        &mut id,
        &mut graph,
        &mut dependencies,
        &mut count,
    )?;
    put(places.status, hipStreamCaptureStatus(status))?;
    if status != hipStreamCaptureStatusNone.0 {
        let _ = put(places.id, id);
    }
    if status == 1 {
        if !places.dependencies.is_null() {
            graphs::keep_nodes(dependencies, count, graph)?;
        }
        let _ = (put(places.graph, graph), put(places.dependencies, dependencies), put(places.count, count));
    }
    Ok(())
}

const fn short(status: *mut hipStreamCaptureStatus, id: *mut c_ulonglong) -> Places {
    Places { status, id, graph: ptr::null_mut(), dependencies: ptr::null_mut(), count: ptr::null_mut() }
}

fn ask(stream: hipStream_t, place: *mut hipStreamCaptureStatus) -> Answer {
    required(place)?;
    put(place, hipStreamCaptureStatus(status(stream)?))
}

api! {
    [pfn] fn hipStreamBeginCapture(stream: hipStream_t, mode: hipStreamCaptureMode) { begin(stream, mode) }
    [pfn] fn hipStreamBeginCapture_spt(stream: hipStream_t, mode: hipStreamCaptureMode) {
        begin(per_thread(stream), mode)
    }
    [pfn] fn hipStreamEndCapture(stream: hipStream_t, graph: *mut hipGraph_t) { end(stream, graph) }
    [pfn] fn hipStreamEndCapture_spt(stream: hipStream_t, graph: *mut hipGraph_t) { end(per_thread(stream), graph) }
    [pfn] fn hipStreamIsCapturing(stream: hipStream_t, status: *mut hipStreamCaptureStatus) { ask(stream, status) }
    [pfn] fn hipStreamIsCapturing_spt(stream: hipStream_t, status: *mut hipStreamCaptureStatus) {
        ask(per_thread(stream), status)
    }
    [pfn] fn hipStreamGetCaptureInfo(stream: hipStream_t, status: *mut hipStreamCaptureStatus, id: *mut c_ulonglong) {
        required(status)?;
        info(stream, short(status, id))
    }
    [pfn] fn hipStreamGetCaptureInfo_spt(stream: hipStream_t, status: *mut hipStreamCaptureStatus,
        id: *mut c_ulonglong) {
        required(status)?;
        info(per_thread(stream), short(status, id))
    }
    [pfn] fn hipStreamGetCaptureInfo_v2(stream: hipStream_t, status: *mut hipStreamCaptureStatus,
        id: *mut c_ulonglong, graph: *mut hipGraph_t, dependencies: *mut *const hipGraphNode_t, count: *mut usize) {
        required(status)?;
        info(stream, Places { status, id, graph, dependencies, count })
    }
    [pfn] fn hipStreamGetCaptureInfo_v2_spt(stream: hipStream_t, status: *mut hipStreamCaptureStatus,
        id: *mut c_ulonglong, graph: *mut hipGraph_t, dependencies: *mut *const hipGraphNode_t, count: *mut usize) {
        required(status)?;
        info(per_thread(stream), Places { status, id, graph, dependencies, count })
    }
    [pfn] fn hipStreamUpdateCaptureDependencies(stream: hipStream_t, dependencies: *mut hipGraphNode_t, count: usize,
        flags: c_uint) {
        graphs::check_nodes(dependencies, count)?;
        if flags > 1 {
            return Err(hipErrorInvalidValue);
        }
        if status(stream)? != 1 {
            return Err(hipErrorIllegalState);
        }
        enter_on(stream)?.capture_update(stream, dependencies, count, flags)
    }
    [pfn] fn hipThreadExchangeStreamCaptureMode(mode: *mut hipStreamCaptureMode) {
        let wanted = get(mode)?;
        if wanted.0 > hipStreamCaptureModeRelaxed.0 {
            return Err(hipErrorInvalidValue);
        }
        let mut exchanged = wanted.0;
        enter()?.capture_mode(&mut exchanged)?;
        MODE.set(wanted.0);
        put(mode, hipStreamCaptureMode(exchanged))
    }
}
