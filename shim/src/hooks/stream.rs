//! Creation, destruction and reset of streams.

use super::{drain, made};
use crate::boundary::Call;
use crate::process;
use crate::process::streams;
use crate::thread::Thread;
use hal_hip::exclusion;
use hip_sys::pfn;
use hip_sys::types::{hipError_t, hipStream_t, hipStreamNonBlocking};
use std::ffi::{c_int, c_uint};
use std::ptr;
use xqueue::{OrderClass, Scope};

/// The functions that create a stream with these flags and HIP's priority.
///
/// # Safety
///
/// `stream` is null or valid for the handle.
pub(crate) unsafe fn create<F: Copy>(
    call: Call<F>,
    stream: *mut hipStream_t,
    flags: c_uint,
    priority: c_int,
    invoke: impl FnOnce(F) -> hipError_t,
) -> hipError_t {
    let independent = flags & hipStreamNonBlocking != 0;
    let class = if independent { OrderClass::Independent } else { OrderClass::Blocking };
    let priority = streams::priority_of(priority);
    let note = |handle| agent::errno::kept(|| streams::remember(handle, class, priority));
    // SAFETY: this function requires it.
    unsafe { made::note(call, stream, note, invoke) }
}

pub(crate) unsafe fn destroy(call: Call<pfn::hipStreamDestroy>, stream: hipStream_t) -> hipError_t {
    call.handle(|real, own| {
        let base = process::base().filter(|_| own && stream.as_raw() > hipStream_t::PER_THREAD.as_raw());
        let gone = base.and_then(|base| Some((base, base.streams.remove(stream.as_raw())?)));
        let _ended = gone.zip(process::get()).and_then(|((_, gone), process)| gone.end(process));
        let process = process::for_call(own);
        // The runtime may wait for running work, and destroys hardware queues.
        let _pause = process.and_then(|process| process.pause_evictions());
        let invoke = || {
            let _apart = process.and_then(|_| exclusion::lock_stream_end());
            // SAFETY: the argument is the caller's own.
            unsafe { real(stream) }
        };
        let code = match process.filter(|_| gone.is_some()) {
            Some(process) => {
                let code = process.captures.destroy(process.real, stream, invoke);
                drain::captures_ended(process);
                code
            }
            None => invoke(),
        };
        if let Some((base, gone)) = gone {
            gone.retire(base);
        }
        code
    })
}

/// `hipDeviceReset`, which destroys the device's streams and all modules
pub(crate) unsafe fn reset(call: Call<pfn::hipDeviceReset>) -> hipError_t {
    call.handle(|real, own| {
        let mut gone = Vec::new();
        let base = process::base().filter(|_| own);
        let mut _begun = None;
        if let Some(base) = base {
            if let Some(process) = process::get() {
                process.drain(Scope::Process);
                process.pools.forget();
                process.cooperative.forget();
                let device = process.real.current_device();
                // The queues that are waited for below must not be evicted.
                _begun = process.pause_evictions();
                // The reset destroys the events of markers, also those of retired streams.
                let is_here = |stream: &&&streams::Stream| stream.hw.device() == device;
                base.retired.lock().iter().filter(is_here).for_each(|stream| stream.hw.retire());
                let all: Vec<_> = process.queued.lock().clone();
                for stream in all.into_iter().filter(|stream| stream.hw.device() == device) {
                    let Some(queue) = stream.queue() else { continue };
                    if !Thread::current().is_in_callback() {
                        drain::quiet(process, queue);
                    }
                    let is_default = process.defaults.iter().any(|other| ptr::eq(*other, stream));
                    if is_default {
                        queue.release_markers();
                        stream.hw.retire();
                    } else {
                        base.streams.remove(stream.hw.stream().as_raw());
                        drop(stream.end(process));
                        stream.hw.retire();
                        gone.push(stream);
                    }
                }
            }
            base.kernels.remove_modules();
        }
        let process = process::for_call(own);
        let _pause = process.and_then(|process| process.pause_evictions());
        let _apart = process.and_then(|_| exclusion::lock_stream_end());
        // SAFETY: the function takes no argument.
        let code = unsafe { real() };
        if let Some(base) = base {
            gone.into_iter().for_each(|stream| stream.retire(base));
        }
        code
    })
}
