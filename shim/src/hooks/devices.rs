//! Launches on several devices at once. The runtime launches one after the other and, unless the flags say
//! otherwise, waits for all their streams before and after (`ihipLaunchCooperativeKernelMultiDevice`). Such a
//! call belongs to several queues: everything that the streams must follow is launched first, and each queue
//! counts the launch as an unordered one.

use crate::boundary::Call;
use crate::process::streams::{Found, Target};
use crate::process::{self, Process};
use crate::thread::Thread;
use hip_sys::types::{hipCooperativeLaunchMultiDeviceNoPostSync, hipError_t, hipStream_t, hipSuccess};
use std::ffi::c_uint;
use std::ptr;
use std::sync::Arc;
use xqueue::{OrderClass, XQueue, hw_result};

/// The most launches of a list; more than any process has devices, so the runtime refuses more.
const MOST: usize = 64;

/// The functions that launch on several devices. `stream` returns the stream of an entry of their list.
///
/// # Safety
///
/// `list` is null or has this length.
pub(crate) unsafe fn launch<F: Copy, C: Copy>(
    call: Call<F>,
    list: *mut C,
    length: usize,
    flags: c_uint,
    stream: impl Fn(&mut C) -> &mut hipStream_t,
    invoke: impl Fn(F, *mut C) -> hipError_t,
) -> hipError_t {
    call.handle(|real, own| {
        let process = process::get().filter(|_| own && !list.is_null() && length <= MOST);
        let Some(process) = process else { return invoke(real, list) };
        // SAFETY: the list is not null, so it has this length.
        let mut copy = unsafe { std::slice::from_raw_parts(list, length) }.to_vec();
        let mut queues: Vec<&'static Arc<XQueue>> = Vec::new();
        for launch in &mut copy {
            let stream = stream(launch);
            let target = Target::of(own, *stream, false);
            *stream = target.raw;
            let Some(found) = target.found else { continue };
            follow(process, found);
            if !queues.iter().any(|queue| ptr::eq(*queue, found.queue)) {
                queues.push(found.queue);
            }
        }
        let code = beside(&queues, &mut || invoke(real, copy.as_mut_ptr()));
        let waited = flags & hipCooperativeLaunchMultiDeviceNoPostSync == 0;
        if code == hipSuccess && waited && !Thread::current().is_in_callback() {
            // The runtime has waited for the streams. Only it can tell whether further work has come since.
            for queue in queues {
                let wait = queue.begin_wait();
                if queue.hw().synchronize().is_ok() {
                    wait.succeeded();
                }
            }
        }
        code
    })
}

/// Waits until everything that the next launch on this stream must follow is launched.
fn follow(process: &'static Process, found: Found) {
    process.drain_queue(found.queue);
    let device = found.stream.hw.device() as usize;
    if found.queue.class() == OrderClass::Blocking
        && let Some(queue) = process.defaults.get(device).and_then(|default| default.queue())
    {
        process.drain_queue(queue);
    }
}

/// Makes the call, and counts it as a launch of each of these queues.
fn beside(queues: &[&'static Arc<XQueue>], call: &mut dyn FnMut() -> hipError_t) -> hipError_t {
    let Some((first, others)) = queues.split_first() else { return call() };
    let mut code = hipSuccess;
    let _ = first.launch_unordered(|| {
        code = beside(others, call);
        hw_result(0)
    });
    code
}
