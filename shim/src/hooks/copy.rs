//! One-dimensional copies and fills. What is asynchronous in the runtime can be deferred; where it returns only when the
//! copy is done, or would refuse it, the call is made in its turn on the calling thread.

use super::turn::{self, code};
use crate::boundary::Call;
use crate::process::streams::{Found, Target};
use hal_hip::command::{HipCommand, memory_key};
use hal_hip::memory::{self, Later};
use hal_hip::real::result;
use hip_sys::pfn;
use hip_sys::types::{
    hipDeviceptr_t, hipError_t, hipMemcpyDeviceToDevice, hipMemcpyDeviceToHost, hipMemcpyHostToDevice,
    hipMemcpyKind, hipStream_t, hipSuccess,
};
use std::ffi::c_void;
use xqueue::{Direct, Footprint};

/// The way of one asynchronous copy. `invoke` makes the real call with a source.
///
/// # Safety
///
/// The addresses are as the runtime wants them, and `invoke` may be called on any thread.
unsafe fn go(
    found: Found,
    dst: *const c_void,
    src: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
    invoke: impl Fn(*const c_void) -> hipError_t + 'static,
) -> hipError_t {
    let spec = turn::spec(memory_key(kind.0, bytes));
    if let Direct::Launched(_, launched) = found.queue.try_direct(&spec, || result(invoke(src))) {
        return code(launched);
    }
    let later = match turn::is_at_home(found) {
        true => memory::copy_later(found.process.real, dst, src, bytes, kind),
        false => Later::No,
    };
    let appended = match later {
        Later::No => return turn::take(found, &spec, || invoke(src)),
        Later::AsItIs => {
            // SAFETY: the addresses stay the caller's until the copy is done, as for the runtime itself.
            let command = unsafe { HipCommand::new("copy", Footprint::default(), move || invoke(src)) };
            turn::append(found, &spec, Box::new(command))
        }
        Later::Staged => {
            let mut staged: Vec<u8> = Vec::with_capacity(bytes);
            // SAFETY: the caller's source has this size, and so has the new memory.
            unsafe { std::ptr::copy_nonoverlapping(src.cast(), staged.as_mut_ptr(), bytes) };
            // SAFETY: so many bytes were written above.
            unsafe { staged.set_len(bytes) };
            let footprint = Footprint { arguments: 0, staged: bytes };
            // SAFETY: the call owns its source, which the runtime has read when it returns.
            let command =
                unsafe { HipCommand::new("copy", footprint, move || invoke(staged.as_ptr().cast())) };
            turn::append(found, &spec, Box::new(command))
        }
    };
    match appended {
        Ok(_) => hipSuccess,
        Err(error) => turn::refused(error),
    }
}

/// `hipMemcpyAsync` and its per-thread twin
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn copy_async(
    call: Call<pfn::hipMemcpyAsync>,
    per_thread: bool,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
    stream: hipStream_t,
) -> hipError_t {
    let body = |real: pfn::hipMemcpyAsync, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        // SAFETY: the caller's own addresses, or a copy of the source.
        let invoke = move |src| unsafe { real(dst, src, bytes, kind, raw) };
        match found {
            None => invoke(src),
            // SAFETY: the caller's promise; a copy belongs to no thread.
            Some(found) => unsafe { go(found, dst, src, bytes, kind, invoke) },
        }
    };
    // SAFETY: the call's type is that of its function.
    unsafe { call.handle(body) }
}

/// `hipMemcpyHtoDAsync`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn htod_async(
    call: Call<pfn::hipMemcpyHtoDAsync>,
    dst: hipDeviceptr_t,
    src: *const c_void,
    bytes: usize,
    stream: hipStream_t,
) -> hipError_t {
    let body = |real: pfn::hipMemcpyHtoDAsync, own| {
        let Target { raw, found } = Target::of(own, stream, false);
        // SAFETY: the caller's own addresses, or a copy of the source.
        let invoke = move |src| unsafe { real(dst, src, bytes, raw) };
        match found {
            None => invoke(src),
            // SAFETY: the caller's promise; a copy belongs to no thread.
            Some(found) => unsafe { go(found, dst, src, bytes, hipMemcpyHostToDevice, invoke) },
        }
    };
    // SAFETY: the call's type is that of its function.
    unsafe { call.handle(body) }
}

/// `hipMemcpyDtoHAsync`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn dtoh_async(
    call: Call<pfn::hipMemcpyDtoHAsync>,
    dst: *mut c_void,
    src: hipDeviceptr_t,
    bytes: usize,
    stream: hipStream_t,
) -> hipError_t {
    let body = |real: pfn::hipMemcpyDtoHAsync, own| {
        let Target { raw, found } = Target::of(own, stream, false);
        // SAFETY: the caller's own addresses.
        let invoke = move |src: *const c_void| unsafe { real(dst, src.cast_mut(), bytes, raw) };
        match found {
            None => invoke(src),
            // SAFETY: the caller's promise; a copy belongs to no thread.
            Some(found) => unsafe { go(found, dst, src, bytes, hipMemcpyDeviceToHost, invoke) },
        }
    };
    // SAFETY: the call's type is that of its function.
    unsafe { call.handle(body) }
}

/// `hipMemcpyDtoDAsync`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn dtod_async(
    call: Call<pfn::hipMemcpyDtoDAsync>,
    dst: hipDeviceptr_t,
    src: hipDeviceptr_t,
    bytes: usize,
    stream: hipStream_t,
) -> hipError_t {
    let body = |real: pfn::hipMemcpyDtoDAsync, own| {
        let Target { raw, found } = Target::of(own, stream, false);
        // SAFETY: the caller's own addresses.
        let invoke = move |src: *const c_void| unsafe { real(dst, src.cast_mut(), bytes, raw) };
        match found {
            None => invoke(src),
            // SAFETY: the caller's promise; a copy belongs to no thread.
            Some(found) => unsafe { go(found, dst, src, bytes, hipMemcpyDeviceToDevice, invoke) },
        }
    };
    // SAFETY: the call's type is that of its function.
    unsafe { call.handle(body) }
}

/// The asynchronous fills, whose values are of this size each
///
/// # Safety
///
/// `function` is the type of the call's function; its other promises are the runtime's.
pub(crate) unsafe fn fill<V: Copy + 'static>(
    call: Call<unsafe extern "C" fn(*mut c_void, V, usize, hipStream_t) -> hipError_t>,
    per_thread: bool,
    dst: *mut c_void,
    value: V,
    count: usize,
    size: usize,
    stream: hipStream_t,
) -> hipError_t {
    let body = |real: unsafe extern "C" fn(*mut c_void, V, usize, hipStream_t) -> hipError_t, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        // SAFETY: the caller's own arguments.
        let invoke = move || unsafe { real(dst, value, count, raw) };
        let Some(found) = found else { return invoke() };
        let bytes = count.saturating_mul(size);
        let spec = turn::spec(memory_key(16, bytes));
        if let Direct::Launched(_, launched) = found.queue.try_direct(&spec, || result(invoke())) {
            return code(launched);
        }
        if !turn::is_at_home(found) || !memory::fill_later(found.process.real, dst, bytes) {
            return turn::take(found, &spec, invoke);
        }
        // SAFETY: the memory stays the caller's until the fill is done, as for the runtime itself.
        let command = unsafe { HipCommand::new("fill", Footprint::default(), invoke) };
        match turn::append(found, &spec, Box::new(command)) {
            Ok(_) => hipSuccess,
            Err(error) => turn::refused(error),
        }
    };
    // SAFETY: the call's type is that of its function.
    unsafe { call.handle(body) }
}
