//! The way of a call whose arguments are plain values: at once, or as a command with the same values, or, where it could
//! fail or would not mean the same on another thread, in its turn on the calling thread. What is certain to be refused is refused at
//! once.

use super::drain;
use super::turn::{self, code};
use crate::boundary::Call;
use crate::process::streams::{Found, Target};
use crate::process::{self, Process};
use hal_hip::command::HipCommand;
use hal_hip::memory::Later;
use hal_hip::real::result;
use hip_sys::types::{hipError_t, hipStream_t, hipSuccess};
use xqueue::{CostKey, Direct, Footprint, Spec};

/// What takes no time on the device.
pub(crate) const INSTANT: CostKey = CostKey(2);

/// One call. `later` says what is certain of it, as far as can be told; it is asked only if the call cannot be made at once.
///
/// # Safety
///
/// `invoke` may be called and dropped on any thread, until the runtime itself would have no use any more for what it leads
/// to.
pub(crate) unsafe fn go(
    found: Found,
    spec: &Spec<'_>,
    name: &'static str,
    later: impl FnOnce() -> Later,
    invoke: impl Fn() -> hipError_t + 'static,
) -> hipError_t {
    if let Direct::Launched(_, launched) = found.queue.try_direct(spec, || result(invoke())) {
        return code(launched);
    }
    match turn::is_at_home(found).then(later) {
        Some(Later::Nothing) => return invoke(),
        Some(Later::AsItIs) => {}
        Some(Later::Staged | Later::No) | None => return turn::take(found, spec, invoke),
    }
    // SAFETY: the caller's promise.
    let command = unsafe { HipCommand::new(name, Footprint::default(), invoke) };
    match turn::append(found, spec, Box::new(command)) {
        Ok(_) => hipSuccess,
        Err(error) => turn::refused(error),
    }
}

/// A function of one stream, all of it.
///
/// # Safety
///
/// `F` is the type of the call's function; `invoke` is as for [`go`].
pub(crate) unsafe fn own<F: Copy + 'static>(
    call: Call<F>,
    (stream, per_thread): (hipStream_t, bool),
    (name, spec): (&'static str, Spec<'static>),
    later: impl FnOnce(&'static Process) -> Later,
    invoke: impl Fn(F, hipStream_t) -> hipError_t + 'static,
) -> hipError_t {
    let body = |real: F, own: bool| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        let Some(found) = found else {
            beside(own, &spec);
            return invoke(real, raw);
        };
        // SAFETY: the caller's promise.
        unsafe { go(found, &spec, name, || later(found.process), move || invoke(real, raw)) }
    };
    call.handle(body)
}

/// A call without a queue that follows others all the same.
pub(crate) fn beside(own: bool, spec: &Spec<'_>) {
    if let (Some(process), Some(scope)) = (process::get().filter(|_| own), spec.scope) {
        process.drain(scope);
    }
}

/// What follows everything earlier in the process, if `all`.
pub(crate) fn after_all_if(all: bool, key: CostKey) -> Spec<'static> {
    if all { Spec { key, ..drain::after_all() } } else { turn::spec(key) }
}
