//! Host functions and callbacks of the program, which the runtime calls in the order of a stream. They are
//! wrapped, so that calls from inside them are recognised: nothing may wait there, because a marker behind
//! the callback blocks the stream.

use super::turn::{self, code};
use crate::boundary::Call;
use crate::process;
use crate::process::streams::{Found, Target};
use crate::process::subject;
use crate::thread::Thread;
use hal_hip::command::HipCommand;
use hal_hip::real::result;
use hip_sys::pfn;
use hip_sys::types::{hipError_t, hipHostFn_t, hipStream_t, hipStreamCallback_t, hipSuccess};
use std::ffi::{c_uint, c_void};
use xqueue::{CommandSpec, CostKey, Direct, Footprint};

/// A function of the program, and its data.
enum Wrapped {
    Host(hipHostFn_t, *mut c_void),
    /// A stream callback, with the program's handle of the stream.
    Stream(hipStreamCallback_t, hipStream_t, *mut c_void),
}

impl Wrapped {
    fn call(&self, status: hipError_t) {
        Thread::current().call_back(|| match *self {
            // SAFETY: function and data belong together by the program's call.
            Self::Host(Some(function), data) => unsafe { function(data) },
            // SAFETY: function and data belong together by the program's call.
            Self::Stream(Some(function), stream, data) => unsafe { function(stream, status, data) },
            _ => {}
        });
    }
}

/// Calls the program's function once, for `hipLaunchHostFunc`.
unsafe extern "C" fn host_once(data: *mut c_void) {
    // SAFETY: `hand_over` leaked this, and the runtime calls once.
    let wrapped = unsafe { Box::from_raw(data.cast::<Wrapped>()) };
    wrapped.call(hipSuccess);
}

/// Calls the program's function for a captured `hipLaunchHostFunc`. A graph may be launched many times, so
/// the wrapper is never freed.
unsafe extern "C" fn host_often(data: *mut c_void) {
    // SAFETY: `host_function` leaked this for good.
    let wrapped = unsafe { &*data.cast::<Wrapped>() };
    wrapped.call(hipSuccess);
}

/// Calls the program's function once, for `hipStreamAddCallback`.
unsafe extern "C" fn stream_once(_: hipStream_t, status: hipError_t, data: *mut c_void) {
    // SAFETY: `hand_over` leaked this, and the runtime calls once.
    let wrapped = unsafe { Box::from_raw(data.cast::<Wrapped>()) };
    wrapped.call(status);
}

/// Passes a wrapped function to the runtime, which owns it on success.
fn hand_over(wrapped: Wrapped, invoke: impl FnOnce(*mut c_void) -> hipError_t) -> hipError_t {
    let data = Box::into_raw(Box::new(wrapped));
    let code = invoke(data.cast());
    if code != hipSuccess {
        // SAFETY: the runtime has refused the function and will not call it.
        drop(unsafe { Box::from_raw(data) });
    }
    code
}

/// Makes the call that adds a callback, or defers it.
fn go(
    found: Found,
    mut wrapped: Option<Wrapped>,
    invoke: impl Fn(*mut c_void) -> hipError_t + 'static,
) -> hipError_t {
    // Open, because the function may wait for another thread.
    let spec = CommandSpec { open: true, ..turn::spec(CostKey::UNKNOWN) }.about(subject::HOST_FUNCTION);
    let mut take = || wrapped.take().map_or(hipSuccess, |wrapped| hand_over(wrapped, &invoke));
    if let Direct::Launched(_, launched) = found.queue.try_direct(&spec, || result(take())) {
        return code(launched);
    }
    if !turn::is_at_home(found) {
        return turn::take(found, &spec, take);
    }
    let call = move || wrapped.take().map_or(hipSuccess, |wrapped| hand_over(wrapped, &invoke));
    // SAFETY: function and data may be used on any thread, because the runtime calls the function on a thread
    // of its own.
    let command = unsafe { HipCommand::new("callback", Footprint::default(), call) };
    turn::submit(found, &spec, Box::new(command))
}

pub(crate) unsafe fn host_function(
    call: Call<pfn::hipLaunchHostFunc>,
    per_thread: bool,
    stream: hipStream_t,
    function: hipHostFn_t,
    data: *mut c_void,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        if let Some(found) = found
            && function.is_some()
        {
            // SAFETY: `host_once` gets the wrapper that `go` makes.
            let invoke = move |wrapped| unsafe { real(raw, Some(host_once), wrapped) };
            return go(found, Some(Wrapped::Host(function, data)), invoke);
        }
        if let Some(process) = process::get().filter(|_| own && function.is_some())
            && process.is_capturing(raw)
        {
            let wrapped = Box::leak(Box::new(Wrapped::Host(function, data)));
            // SAFETY: `host_often` gets a wrapper that is never freed.
            return unsafe { real(raw, Some(host_often), std::ptr::from_mut(wrapped).cast()) };
        }
        // SAFETY: the arguments are the caller's own.
        unsafe { real(raw, function, data) }
    })
}

pub(crate) unsafe fn stream_callback(
    call: Call<pfn::hipStreamAddCallback>,
    per_thread: bool,
    stream: hipStream_t,
    function: hipStreamCallback_t,
    data: *mut c_void,
    flags: c_uint,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        if let Some(found) = found
            && function.is_some()
            && flags == 0
        {
            // SAFETY: `stream_once` gets the wrapper that `go` makes.
            let invoke = move |wrapped| unsafe { real(raw, Some(stream_once), wrapped, flags) };
            return go(found, Some(Wrapped::Stream(function, stream, data)), invoke);
        }
        // SAFETY: the arguments are the caller's own.
        unsafe { real(raw, function, data, flags) }
    })
}
