//! Host functions and callbacks in streams.
//!
//! AMD's runtime lets host functions call HIP; CUDA refuses CUDA calls on the thread that runs a host
//! function. So this crate runs the function on a thread of its own, and the driver's thread waits until it
//! returns.

use std::ffi::{c_uint, c_void};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use hip_sys::types::*;

use crate::captures;
use crate::errors::{self, Answer};
use crate::state::api;
use crate::stream_table::{enter_on, per_thread};

/// The program's function.
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
    /// True if a graph makes the call, possibly several times.
    kept: bool,
}

// SAFETY: this crate only passes the data to the program's function, and HIP calls such functions on another
// thread.
unsafe impl Send for Job {}

impl Job {
    fn make(self) {
        match self.call {
            // SAFETY: the program passed the function together with this data, for a call on another thread.
            Call::Function(function) => unsafe { function(self.data) },
            // SAFETY: as above.
            Call::Callback(callback, stream, status) => unsafe { callback(stream, status, self.data) },
        }
    }
}

/// A thread that makes calls one after another.
#[derive(Debug)]
struct Helper {
    jobs: Sender<Job>,
    done: Receiver<()>,
}

/// The threads that are idle.
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

/// Makes a call on a helper thread and waits until it returns.
fn run(job: Job) {
    let taken = idle().pop();
    let Some(helper) = taken.or_else(Helper::start) else {
        // No thread can be started, so the call runs here, where CUDA refuses the calls that it makes.
        return job.make();
    };
    if helper.jobs.send(job).is_ok() && helper.done.recv().is_ok() {
        idle().push(helper);
    }
}

unsafe extern "C" fn function_comes(data: *mut c_void) {
    // SAFETY: the data is the box that was passed with this function. The box of a graph is never freed.
    let job = unsafe { *data.cast::<Job>() };
    if !job.kept {
        // SAFETY: outside a graph the driver calls the function once, so nothing else uses the box.
        drop(unsafe { Box::from_raw(data.cast::<Job>()) });
    }
    run(job);
}

unsafe extern "C" fn callback_comes(_: hipStream_t, status: c_uint, data: *mut c_void) {
    // SAFETY: the data is the box that was passed with this callback, and the driver calls it once.
    let mut job = unsafe { *Box::from_raw(data.cast::<Job>()) };
    if let Call::Callback(callback, stream, _) = job.call {
        let status = errors::result(status).err().unwrap_or(hipSuccess);
        job.call = Call::Callback(callback, stream, status);
    }
    run(job);
}

/// Makes the driver's function and data for a graph's host node. The data is never freed, because copies of
/// the graph share it.
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
        // SAFETY: the driver refused the call, so nothing else uses the box.
        drop(unsafe { Box::from_raw(job) });
    })
}

fn add(stream: hipStream_t, callback: hipStreamCallback_t, data: *mut c_void, flags: c_uint) -> Answer {
    let callback = callback.filter(|_| flags == 0).ok_or(hipErrorInvalidValue)?;
    let driver = enter_on(stream)?;
    if captures::is_capturing(stream) {
        // CUDA has no callbacks in graphs, so the callback becomes a host function.
        let job = Job { call: Call::Callback(callback, stream, hipSuccess), data, kept: true };
        return driver.host_function(stream, function_comes, Box::into_raw(Box::new(job)).cast());
    }
    let job = Job { call: Call::Callback(callback, stream, hipSuccess), data, kept: false };
    let job = Box::into_raw(Box::new(job));
    driver.stream_callback(stream, callback_comes, job.cast(), 0).inspect_err(|_| {
        // SAFETY: the driver refused the call, so nothing else uses the box.
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
        // SAFETY: the test passes a pointer to a counter that outlives the calls.
        unsafe { &*data.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn a_function_of_a_graph_is_called_again_and_again() {
        let counter = AtomicUsize::new(0);
        let (comes, data) = of_graph(count, (&raw const counter).cast_mut().cast());
        for _ in 0..3 {
            // SAFETY: function and data belong together, as when the driver calls them.
            unsafe { comes(data) };
        }
        assert_eq!(counter.load(Ordering::Relaxed), 3);
    }
}
