//! Functions of the program that the runtime calls when a stream gets there. They are wrapped, so that what they call in
//! turn is known to come from inside a callback, where nothing may wait: a marker behind it blocks the stream.

use super::turn::{self, code};
use crate::boundary::Call;
use crate::process;
use crate::process::streams::Target;
use crate::thread::Thread;
use hal_hip::command::HipCommand;
use hal_hip::real::result;
use hip_sys::pfn;
use hip_sys::types::{hipError_t, hipHostFn_t, hipStream_t, hipStreamCallback_t, hipSuccess};
use std::ffi::{c_uint, c_void};
use xqueue::{CostKey, Direct, Footprint, Spec};

/// A function of the program's and what it gets.
enum Wrapped {
    Host(hipHostFn_t, *mut c_void),
    /// With the stream as the program knows it.
    Stream(hipStreamCallback_t, hipStream_t, *mut c_void),
}

impl Wrapped {
    fn call(&self, status: hipError_t) {
        Thread::current().call_back(|| match *self {
            // SAFETY: the program's own function with what the program gave for it.
            Self::Host(Some(function), data) => unsafe { function(data) },
            // SAFETY: as above.
            Self::Stream(Some(function), stream, data) => unsafe { function(stream, status, data) },
            _ => {}
        });
    }
}

/// What `hipLaunchHostFunc` is given: calls the program's function, once.
unsafe extern "C" fn host_once(data: *mut c_void) {
    // SAFETY: leaked by whoever launched this, and the runtime calls once.
    let wrapped = unsafe { Box::from_raw(data.cast::<Wrapped>()) };
    wrapped.call(hipSuccess);
}

/// The same for a graph, which may be launched many times: what it calls is never freed.
unsafe extern "C" fn host_often(data: *mut c_void) {
    // SAFETY: leaked for good by whoever captured this.
    let wrapped = unsafe { &*data.cast::<Wrapped>() };
    wrapped.call(hipSuccess);
}

/// What `hipStreamAddCallback` is given: calls the program's function, once.
unsafe extern "C" fn stream_once(_: hipStream_t, status: hipError_t, data: *mut c_void) {
    // SAFETY: leaked by whoever added this, and the runtime calls once.
    let wrapped = unsafe { Box::from_raw(data.cast::<Wrapped>()) };
    wrapped.call(status);
}

/// Hands a wrapped function to the runtime, which owns it if it takes it.
fn hand_over(wrapped: Wrapped, invoke: impl FnOnce(*mut c_void) -> hipError_t) -> hipError_t {
    let data = Box::into_raw(Box::new(wrapped));
    let code = invoke(data.cast());
    if code != hipSuccess {
        // SAFETY: the runtime has refused it, and will not call.
        drop(unsafe { Box::from_raw(data) });
    }
    code
}

/// The way of one callback through its queue.
fn go(
    found: crate::process::streams::Found,
    mut wrapped: Option<Wrapped>,
    invoke: impl Fn(*mut c_void) -> hipError_t + 'static,
) -> hipError_t {
    // The function may wait for what another thread does.
    let spec = Spec { open: true, ..turn::spec(CostKey::UNKNOWN) };
    let mut take = || wrapped.take().map_or(hipSuccess, |wrapped| hand_over(wrapped, &invoke));
    if let Direct::Launched(_, launched) = found.queue.try_direct(&spec, || result(take())) {
        return code(launched);
    }
    if !turn::is_at_home(found) {
        return turn::take(found, &spec, take);
    }
    let call = move || wrapped.take().map_or(hipSuccess, |wrapped| hand_over(wrapped, &invoke));
    // SAFETY: the function and its data are for any thread, as the runtime calls it on one of its own.
    let command = unsafe { HipCommand::new("callback", Footprint::default(), call) };
    match turn::append(found, &spec, Box::new(command)) {
        Ok(_) => hipSuccess,
        Err(error) => turn::refused(error),
    }
}

/// `hipLaunchHostFunc` and its per-thread twin
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn host_function(
    call: Call<pfn::hipLaunchHostFunc>,
    per_thread: bool,
    stream: hipStream_t,
    function: hipHostFn_t,
    data: *mut c_void,
) -> hipError_t {
    let body = |real: pfn::hipLaunchHostFunc, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        if let Some(found) = found
            && function.is_some()
        {
            // SAFETY: `host_once` gets what it was made for.
            let invoke = move |wrapped| unsafe { real(raw, Some(host_once), wrapped) };
            return go(found, Some(Wrapped::Host(function, data)), invoke);
        }
        if let Some(process) = process::get().filter(|_| own && function.is_some())
            && process.is_capturing(raw)
        {
            let wrapped = Box::leak(Box::new(Wrapped::Host(function, data)));
            // SAFETY: `host_often` gets what it was made for, which is never freed.
            return unsafe { real(raw, Some(host_often), std::ptr::from_mut(wrapped).cast()) };
        }
        // SAFETY: the caller's own arguments.
        unsafe { real(raw, function, data) }
    };
    call.handle(body)
}

/// `hipStreamAddCallback` and its per-thread twin
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn stream_callback(
    call: Call<pfn::hipStreamAddCallback>,
    per_thread: bool,
    stream: hipStream_t,
    function: hipStreamCallback_t,
    data: *mut c_void,
    flags: c_uint,
) -> hipError_t {
    let body = |real: pfn::hipStreamAddCallback, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        if let Some(found) = found
            && function.is_some()
            && flags == 0
        {
            // SAFETY: `stream_once` gets what it was made for.
            let invoke = move |wrapped| unsafe { real(raw, Some(stream_once), wrapped, flags) };
            return go(found, Some(Wrapped::Stream(function, stream, data)), invoke);
        }
        // SAFETY: the caller's own arguments.
        unsafe { real(raw, function, data, flags) }
    };
    call.handle(body)
}
