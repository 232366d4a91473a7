//! Steps that the functions of the C interface share: start the library, find an object by its handle, write a result.

use crate::process::streams::Stream;
use crate::process::{self, Process};
use crate::startup;
use protocol::codes::XResult;
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use xqueue::XQueue;

/// The next handle of a hardware queue; none is used twice.
static NEXT_HARDWARE_QUEUE: AtomicU64 = AtomicU64::new(1);

pub(super) type Outcome = Result<(), XResult>;

/// Runs the body of a function of the interface, as inside the runtime, after the library has started.
/// Returns its result as a number.
pub(super) fn run(body: impl FnOnce() -> Outcome) -> c_int {
    startup::started(XResult::ErrorNotSupported, body).err().unwrap_or(XResult::Success).number()
}

/// Returns the process, which the first call makes.
pub(super) fn process() -> Result<&'static Process, XResult> {
    startup::start_queues().ok_or(XResult::ErrorHardware)
}

pub(super) fn hardware_queue(handle: u64) -> Result<(&'static Process, &'static Stream), XResult> {
    let process = process::get().ok_or(XResult::ErrorNotFound)?;
    let stream = process.wrapped.lock().get(&handle).copied();
    stream.map(|stream| (process, stream)).ok_or(XResult::ErrorNotFound)
}

pub(super) fn queue(handle: u64) -> Result<(&'static Process, &'static Stream, Arc<XQueue>), XResult> {
    let process = process::get().filter(|_| handle != 0).ok_or(XResult::ErrorNotFound)?;
    let queued = process.queued.lock();
    let stream = queued.iter().copied().find(|stream| stream.handle() == handle);
    let queue = stream.and_then(|stream| Some((stream, stream.queue()?.clone())));
    queue.map(|(stream, queue)| (process, stream, queue)).ok_or(XResult::ErrorNotFound)
}

/// Writes a result to the caller's place.
///
/// # Safety
///
/// `place` is null or valid.
pub(super) unsafe fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(XResult::ErrorInvalidValue);
    }
    // SAFETY: the place is not null, so it is valid.
    unsafe { place.write(value) };
    Ok(())
}

/// Returns the handle of a stream as a hardware queue, which the first call makes.
pub(super) fn handle_of(process: &'static Process, stream: &'static Stream) -> u64 {
    let mut wrapped = process.wrapped.lock();
    let same = |(_, other): &(&u64, &&'static Stream)| ptr::eq(**other, stream);
    wrapped.iter().find(same).map(|(handle, _)| *handle).unwrap_or_else(|| {
        let handle = NEXT_HARDWARE_QUEUE.fetch_add(1, Ordering::Relaxed);
        wrapped.insert(handle, stream);
        handle
    })
}
