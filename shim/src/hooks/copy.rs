//! One-dimensional copies and fills. A copy that is asynchronous in the runtime may be deferred. One that
//! returns only when it is done, or may do so, is made in order on the calling thread. One that the runtime
//! refuses is made at once.

use super::defer::{self, after_all_if};
use super::turn::{self, code};
use crate::boundary::Call;
use crate::process::Process;
use crate::process::streams::{Found, Target};
use crate::process::subject;
use hal_hip::command::{HipCommand, memory_key};
use hal_hip::memory::{self, Deferral, Rows};
use hal_hip::real::{RuntimeFunctions, result};
use hal_hip::waits;
use hip_sys::types::{hipError_t, hipMemcpyHostToDevice, hipMemcpyKind, hipStream_t};
use std::ffi::c_void;
use xqueue::{CommandSpec, Direct, Footprint};

/// The most bytes of a copy to the device that counts as brief: 3 µs at 24 GB/s.
const BRIEF: usize = 64 * 1024;

/// Makes one asynchronous copy, or defers it. `invoke` makes the real call with a source.
///
/// # Safety
///
/// The addresses meet the contract of the runtime's function, and `invoke` may be called on any thread.
pub(super) unsafe fn go(
    found: Found,
    dst: *const c_void,
    src: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
    invoke: impl Fn(*const c_void) -> hipError_t + 'static,
) -> hipError_t {
    let completes = waits::copy_async(found.process.real, dst, src, bytes, kind);
    let spec = CommandSpec {
        completes,
        brief: kind == hipMemcpyHostToDevice && bytes <= BRIEF,
        ..after_all_if(visits_others(found, [dst, src]), memory_key(kind.0, bytes))
    }
    .about(subject::COPY);
    let later = |real: &RuntimeFunctions| memory::copy_deferral(real, dst, src, bytes, kind);
    let source = || Rows::plane(src, bytes, bytes, 1);
    let invoke = move |staged: Option<*const c_void>| invoke(staged.unwrap_or(src));
    // SAFETY: this function requires what `go_later` does; the source has `bytes` bytes.
    unsafe { go_later(found, &spec, later, source, invoke) }
}

/// Makes one asynchronous copy of any shape, or defers it. `invoke` makes the real call with its own source
/// or, if `later` says that the copy is staged, with the rows of `source` packed at the given address.
///
/// # Safety
///
/// As for [`go`]; if the copy is staged, the rows of `source` can be read.
pub(super) unsafe fn go_later(
    found: Found,
    spec: &CommandSpec<'_>,
    later: impl FnOnce(&RuntimeFunctions) -> Deferral,
    source: impl FnOnce() -> Rows,
    invoke: impl Fn(Option<*const c_void>) -> hipError_t + 'static,
) -> hipError_t {
    if let Direct::Launched(_, launched) = found.queue.try_direct(spec, || result(invoke(None))) {
        return code(launched);
    }
    let later = match turn::is_at_home(found) {
        true => later(found.process.real),
        false => Deferral::No,
    };
    match later {
        Deferral::Nothing => invoke(None),
        Deferral::No => turn::take(found, spec, || invoke(None)),
        Deferral::AsItIs => {
            // SAFETY: the memory stays valid until the copy is done, as natively.
            let command = unsafe { HipCommand::new("copy", Footprint::default(), move || invoke(None)) };
            turn::submit(found, spec, Box::new(command))
        }
        Deferral::Staged => {
            // SAFETY: this function requires that the rows can be read.
            let staged = unsafe { source().pack() };
            let footprint = Footprint { arguments: 0, staged: staged.len() };
            let call = move || invoke(Some(staged.as_ptr().cast()));
            // SAFETY: the call owns its source, and the runtime has read it when the call returns.
            let command = unsafe { HipCommand::new("copy", footprint, call) };
            turn::submit(found, spec, Box::new(command))
        }
    }
}

/// Returns true if a copy may run on the default stream of another device, which waits for that device's
/// streams (`ihipMemcpyCommand` of the runtime). Everything earlier in the process then comes first.
pub(super) fn visits_others(found: Found, sides: [*const c_void; 2]) -> bool {
    let (real, home) = (found.process.real, found.stream.hw.device());
    real.devices > 1
        && sides.iter().any(|side| memory::device_of(real, *side).is_some_and(|device| device != home))
}

/// The asynchronous copies of bytes. `invoke` makes the real call with a source.
///
/// # Safety
///
/// The addresses meet the contract of the runtime's function, which may be called on any thread.
pub(crate) unsafe fn copy<F: Copy + 'static>(
    call: Call<F>,
    (stream, per_thread): (hipStream_t, bool),
    (dst, src, bytes): (*const c_void, *const c_void, usize),
    kind: hipMemcpyKind,
    invoke: impl Fn(F, *const c_void, hipStream_t) -> hipError_t + 'static,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        let invoke = move |src| invoke(real, src, raw);
        match found {
            None => invoke(src),
            // SAFETY: this function requires what `go` does.
            Some(found) => unsafe { go(found, dst, src, bytes, kind, invoke) },
        }
    })
}

/// The asynchronous fills with values of this size
pub(crate) unsafe fn fill<V: Copy + 'static>(
    call: Call<unsafe extern "C" fn(*mut c_void, V, usize, hipStream_t) -> hipError_t>,
    per_thread: bool,
    dst: *mut c_void,
    value: V,
    count: usize,
    size: usize,
    stream: hipStream_t,
) -> hipError_t {
    let bytes = count.saturating_mul(size);
    let later = |process: &Process| memory::fill_deferral(process.real, dst, bytes);
    let invoke = move |real: unsafe extern "C" fn(_, _, _, _) -> _, stream| {
        // SAFETY: the arguments are the caller's own.
        unsafe { real(dst, value, count, stream) }
    };
    let command = ("fill", turn::spec(memory_key(16, bytes)).about(subject::FILL));
    // SAFETY: the memory stays valid until the fill is done, as natively.
    unsafe { defer::own(call, (stream, per_thread), command, later, invoke) }
}
