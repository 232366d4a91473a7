//! Functions of the C interface that find and describe XQueues: `XQueueGetForStream`, `XQueueStats`, `XQueueList`.

use super::access::{put, queue, run};
use super::stream_of;
use crate::process;
use crate::process::Process;
use crate::process::streams::Stream;
use hip_sys::types::hipStream_t;
use protocol::codes::{QueueState, QueueStatistics, XResult};
use std::ffi::c_int;

/// Returns the handle of a stream's XQueue, which exists from now on if all streams have one.
pub(super) fn handle_of_stream(process: &'static Process, stream: &'static Stream) -> Result<u64, XResult> {
    if process.base.config().auto.enabled {
        let _ = stream.queue_in(process);
    }
    match stream.handle() {
        0 => Err(XResult::ErrorNotFound),
        handle => Ok(handle),
    }
}

pub(super) unsafe extern "C" fn get_for_stream(xq: *mut u64, stream: hipStream_t) -> c_int {
    run(|| {
        if xq.is_null() {
            return Err(XResult::ErrorInvalidValue);
        }
        let (process, stream) = stream_of(stream)?;
        // SAFETY: the place is null or valid by the interface.
        unsafe { put(xq, handle_of_stream(process, stream)?) }
    })
}

pub(super) unsafe extern "C" fn statistics(xq: u64, place: *mut QueueStatistics, size: usize) -> c_int {
    run(|| {
        if place.is_null() || size != size_of::<QueueStatistics>() {
            return Err(XResult::ErrorInvalidValue);
        }
        let (process, stream, queue) = queue(xq)?;
        if stream.settle_hints(process) {
            process.scheduler.changed();
        }
        let stats = stream.stats();
        let (threshold, batch_size) = queue.launch_config().settings().unwrap_or((0, 0));
        let state = if queue.is_known_complete() { QueueState::Idle } else { QueueState::Ready };
        let statistics = QueueStatistics {
            direct: stats.direct,
            deferred: stats.deferred,
            pending: stats.pending as u64,
            launched: stats.launched,
            in_flight: stats.in_flight,
            suspensions: stats.suspensions,
            suspended_ns: u64::try_from(stats.suspended.as_nanos()).unwrap_or(u64::MAX),
            device_ns: u64::try_from(stats.worked.as_nanos()).unwrap_or(u64::MAX),
            threshold: threshold.into(),
            batch_size: batch_size.into(),
            priority: queue.priority(),
            level: stream.level().number(),
            state: state.number(),
            running: queue.may_run().into(),
        };
        // SAFETY: the place is null or valid by the interface, for the size that was checked.
        unsafe { put(place, statistics) }
    })
}

pub(super) unsafe extern "C" fn list(queues: *mut u64, count: *mut usize) -> c_int {
    run(|| {
        // SAFETY: the pointer is null or valid by the interface.
        let count = unsafe { count.as_mut() }.ok_or(XResult::ErrorInvalidValue)?;
        if queues.is_null() && *count != 0 {
            return Err(XResult::ErrorInvalidValue);
        }
        let handles: Vec<u64> = match process::get() {
            None => Vec::new(),
            Some(process) => {
                let queued = process.queued.lock();
                queued.iter().map(|stream| stream.handle()).filter(|handle| *handle != 0).collect()
            }
        };
        for (index, handle) in handles.iter().take(*count).enumerate() {
            // SAFETY: the caller's place has room for so many handles by the interface.
            unsafe { queues.add(index).write(*handle) };
        }
        *count = handles.len();
        Ok(())
    })
}
