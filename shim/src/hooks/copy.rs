//! One-dimensional copies and fills. What is asynchronous in the runtime can be deferred; where it returns only when the
//! copy is done, or is not known to be, the call is made in its turn on the calling thread; what it refuses is refused at once.

use super::defer::{self, after_all_if};
use super::turn::{self, code};
use crate::boundary::Call;
use crate::process::streams::{Found, Target};
use hal_hip::command::{HipCommand, memory_key};
use hal_hip::memory::{self, Later, Rows};
use hal_hip::real::{Real, result};
use hal_hip::waits;
use hip_sys::pfn;
use hip_sys::types::{
    hipDeviceptr_t, hipError_t, hipMemcpyDeviceToDevice, hipMemcpyDeviceToHost, hipMemcpyHostToDevice,
    hipMemcpyKind, hipStream_t, hipSuccess,
};
use std::ffi::c_void;
use xqueue::{Direct, Footprint, Spec};

/// The way of one asynchronous copy. `invoke` makes the real call with a source.
///
/// # Safety
///
/// The addresses are as the runtime wants them, and `invoke` may be called on any thread.
pub(super) unsafe fn go(
    found: Found,
    dst: *const c_void,
    src: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
    invoke: impl Fn(*const c_void) -> hipError_t + 'static,
) -> hipError_t {
    let completes = waits::copy_async(found.process.real, dst, src, bytes, kind);
    let spec =
        Spec { completes, ..after_all_if(visits_others(found, [dst, src]), memory_key(kind.0, bytes)) };
    let later = |real: &Real| memory::copy_later(real, dst, src, bytes, kind);
    let source = || Rows::plane(src, bytes, bytes, 1);
    let invoke = move |staged: Option<*const c_void>| invoke(staged.unwrap_or(src));
    // SAFETY: the caller's promise.
    unsafe { go_later(found, &spec, later, source, invoke) }
}

/// The way of one asynchronous copy of any shape. `invoke` makes the real call, with its own source or with the rows of
/// `source` packed at the address that it is given; the latter only if `later` says that they are staged.
///
/// # Safety
///
/// As for [`go`]; where they are staged, the rows of `source` can be read.
pub(super) unsafe fn go_later(
    found: Found,
    spec: &Spec<'_>,
    later: impl FnOnce(&Real) -> Later,
    source: impl FnOnce() -> Rows,
    invoke: impl Fn(Option<*const c_void>) -> hipError_t + 'static,
) -> hipError_t {
    if let Direct::Launched(_, launched) = found.queue.try_direct(spec, || result(invoke(None))) {
        return code(launched);
    }
    let later = match turn::is_at_home(found) {
        true => later(found.process.real),
        false => Later::No,
    };
    let appended = match later {
        Later::Nothing => return invoke(None),
        Later::No => return turn::take(found, spec, || invoke(None)),
        Later::AsItIs => {
            // SAFETY: the addresses stay the caller's until the copy is done, as for the runtime itself.
            let command = unsafe { HipCommand::new("copy", Footprint::default(), move || invoke(None)) };
            turn::append(found, spec, Box::new(command))
        }
        Later::Staged => {
            // SAFETY: the caller's promise.
            let staged = unsafe { source().pack() };
            let footprint = Footprint { arguments: 0, staged: staged.len() };
            let call = move || invoke(Some(staged.as_ptr().cast()));
            // SAFETY: the call owns its source, which the runtime has read when it returns.
            let command = unsafe { HipCommand::new("copy", footprint, call) };
            turn::append(found, spec, Box::new(command))
        }
    };
    match appended {
        Ok(_) => hipSuccess,
        Err(error) => turn::refused(error),
    }
}

/// Whether a copy can run on the default stream of another device, which waits for that device's streams (`ihipMemcpyCommand`
/// of the runtime): then everything earlier in the process comes first.
pub(super) fn visits_others(found: Found, sides: [*const c_void; 2]) -> bool {
    let (real, home) = (found.process.real, found.stream.hw.device());
    real.devices > 1
        && sides.iter().any(|side| memory::device_of(real, *side).is_some_and(|device| device != home))
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
    call.handle(body)
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
    call.handle(body)
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
    call.handle(body)
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
    call.handle(body)
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
        let later = || memory::fill_later(found.process.real, dst, bytes);
        // SAFETY: the memory stays the caller's until the fill is done, as for the runtime itself.
        unsafe { defer::go(found, &spec, "fill", later, invoke) }
    };
    call.handle(body)
}
