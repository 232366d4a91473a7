//! Host functions and callbacks in streams.
//!
//! CUDA refuses calls of CUDA on the thread that runs a host function; AMD's runtime lets them call HIP. So the function
//! runs on a thread of this crate, and the driver's thread waits for its end.

use std::ffi::{c_uint, c_void};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use hip_sys::types::*;

use crate::captures;
use crate::errors::{self, Answer};
use crate::state::api;
use crate::stream_table::{enter_on, per_thread};

/// What the program wants to be called.
#[derive(Clone, Copy, Debug)]
enum Call {
    Function(unsafe extern "C" fn(*mut c_void)),
    Callback(unsafe extern "C" fn(hipStream_t, hipError_t, *mut c_void), hipStream_t, hipError_t),
}

/// A call with the program's data.
#[derive(Clone, Copy, Debug)]
struct Job {
    call: Call,
    data: *mut c_void,
    /// True if it is made again and again, as part of a graph.
    kept: bool,
}

// SAFETY: the data is the program's, which asked for a call on another thread.
unsafe impl Send for Job {}

impl Job {
    fn make(self) {
        match self.call {
            // SAFETY: the program gave the function for this data.
            Call::Function(function) => unsafe { function(self.data) },
            // SAFETY: as above.
            Call::Callback(callback, stream, status) => unsafe { callback(stream, status, self.data) },
        }
    }
}

/// A thread that makes calls, one after the other.
#[derive(Debug)]
struct Helper {
    jobs: Sender<Job>,
    done: Receiver<()>,
}

/// Threads without a call to make.
static IDLE: Mutex<Vec<Helper>> = Mutex::new(Vec::new());

fn idle() -> std::sync::MutexGuard<'static, Vec<Helper>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Helper {
    fn start() -> Option<Helper> {
        let (jobs, incoming) = channel::<Job>();
        let (finished, done) = channel();
        let thread = std::thread::Builder::new().name("hip-cuda-call".to_owned());
        let run = move || {
            for job in incoming {
                job.make();
                if finished.send(()).is_err() {
                    break;
                }
            }
        };
        thread.spawn(run).ok().map(|_| Helper { jobs, done })
    }
}

/// Makes a call on a helper's thread and waits for its end.
fn run(job: Job) {
    let taken = idle().pop();
    let Some(helper) = taken.or_else(Helper::start) else {
        // Without a thread the call is made here: CUDA then refuses what it calls.
        return job.make();
    };
    if helper.jobs.send(job).is_ok() && helper.done.recv().is_ok() {
        idle().push(helper);
    }
}

unsafe extern "C" fn function_comes(data: *mut c_void) {
    // SAFETY: the data is the box that was given with this function. A graph gives it again.
    let job = unsafe { *data.cast::<Job>() };
    if !job.kept {
        // SAFETY: the only call with this box.
        drop(unsafe { Box::from_raw(data.cast::<Job>()) });
    }
    run(job);
}

unsafe extern "C" fn callback_comes(_: hipStream_t, status: c_uint, data: *mut c_void) {
    // SAFETY: the data is the box that was given with this callback, which comes once.
    let mut job = unsafe { *Box::from_raw(data.cast::<Job>()) };
    if let Call::Callback(callback, stream, _) = job.call {
        let status = errors::result(status).err().unwrap_or(hipSuccess);
        job.call = Call::Callback(callback, stream, status);
    }
    run(job);
}

/// The data of a host function that a graph makes again and again. It is never freed: graphs share it with their copies.
pub(crate) fn of_graph(
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
) -> (crate::driver::HostFunction, *mut c_void) {
    let job = Box::new(Job { call: Call::Function(function), data, kept: true });
    (function_comes, Box::into_raw(job).cast())
}

fn launch(stream: hipStream_t, function: hipHostFn_t, data: *mut c_void) -> Answer {
    let function = function.ok_or(hipErrorInvalidValue)?;
    let driver = enter_on(stream)?;
    let kept = captures::is_capturing(stream);
    let job = Box::into_raw(Box::new(Job { call: Call::Function(function), data, kept }));
    driver.host_function(stream, function_comes, job.cast()).inspect_err(|_| {
        // SAFETY: the driver has not taken it.
        drop(unsafe { Box::from_raw(job) });
    })
}

fn add(stream: hipStream_t, callback: hipStreamCallback_t, data: *mut c_void, flags: c_uint) -> Answer {
    let callback = callback.filter(|_| flags == 0).ok_or(hipErrorInvalidValue)?;
    let driver = enter_on(stream)?;
    if captures::is_capturing(stream) {
        // As a host function of the graph: CUDA has no callbacks in graphs.
        let job = Job { call: Call::Callback(callback, stream, hipSuccess), data, kept: true };
        return driver.host_function(stream, function_comes, Box::into_raw(Box::new(job)).cast());
    }
    let job = Job { call: Call::Callback(callback, stream, hipSuccess), data, kept: false };
    let job = Box::into_raw(Box::new(job));
    driver.stream_callback(stream, callback_comes, job.cast(), 0).inspect_err(|_| {
        // SAFETY: the driver has not taken it.
        drop(unsafe { Box::from_raw(job) });
    })
}

api! {
    [pfn] fn hipLaunchHostFunc(stream: hipStream_t, function: hipHostFn_t, data: *mut c_void) {
        launch(stream, function, data)
    }
    [pfn] fn hipLaunchHostFunc_spt(stream: hipStream_t, function: hipHostFn_t, data: *mut c_void) {
        launch(per_thread(stream), function, data)
    }
    [pfn] fn hipStreamAddCallback(stream: hipStream_t, callback: hipStreamCallback_t, data: *mut c_void,
        flags: c_uint) {
        add(stream, callback, data, flags)
    }
    [pfn] fn hipStreamAddCallback_spt(stream: hipStream_t, callback: hipStreamCallback_t, data: *mut c_void,
        flags: c_uint) {
        add(per_thread(stream), callback, data, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    unsafe extern "C" fn count(data: *mut c_void) {
        // SAFETY: the test passes a counter.
        unsafe { &*data.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_function_of_a_graph_is_called_again_and_again() {
        let counter = AtomicUsize::new(0);
        let (comes, data) = of_graph(count, (&raw const counter).cast_mut().cast());
        for _ in 0..3 {
            // SAFETY: as the driver calls it.
            unsafe { comes(data) };
        }
        assert_eq!(counter.load(Ordering::Relaxed), 3);
    }
}
