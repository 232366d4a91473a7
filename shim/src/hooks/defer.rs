//! Calls whose arguments are plain values: made at once, or deferred with the same values. A call that could
//! fail, or would mean something else on another thread, is made in order on the calling thread. A call that
//! the runtime certainly refuses is made at once.

use super::drain;
use super::turn::{self, code};
use crate::boundary::Call;
use crate::process::Process;
use crate::process::streams::{Found, Target};
use hal_hip::command::HipCommand;
use hal_hip::memory::Deferral;
use hal_hip::real::result;
use hip_sys::types::{hipError_t, hipStream_t};
use xqueue::{CommandSpec, CostKey, Direct, Footprint};

/// The key of commands that take no time on the device.
pub(crate) const INSTANT: CostKey = CostKey(2);

/// Makes one call, or defers it. `later` says whether it may be deferred, and is asked only if the call
/// cannot be made at once.
///
/// # Safety
///
/// `invoke` may be called and dropped on any thread. The memory that it leads to stays valid as long as
/// natively the runtime would need it.
pub(crate) unsafe fn go(
    found: Found,
    spec: &CommandSpec<'_>,
    name: &'static str,
    later: impl FnOnce() -> Deferral,
    invoke: impl Fn() -> hipError_t + 'static,
) -> hipError_t {
    if let Direct::Launched(_, launched) = found.queue.try_direct(spec, || result(invoke())) {
        return code(launched);
    }
    match turn::is_at_home(found).then(later) {
        Some(Deferral::Nothing) => return invoke(),
        Some(Deferral::AsItIs) => {}
        Some(Deferral::Staged | Deferral::No) | None => return turn::take(found, spec, invoke),
    }
    // SAFETY: this function requires it of `invoke`.
    let command = unsafe { HipCommand::new(name, Footprint::default(), invoke) };
    turn::submit(found, spec, Box::new(command))
}

/// Handles one call of a function that works on one stream.
///
/// # Safety
///
/// As for [`go`].
pub(crate) unsafe fn own<F: Copy + 'static>(
    call: Call<F>,
    (stream, per_thread): (hipStream_t, bool),
    (name, spec): (&'static str, CommandSpec<'static>),
    later: impl FnOnce(&'static Process) -> Deferral,
    invoke: impl Fn(F, hipStream_t) -> hipError_t + 'static,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        let Some(found) = found else {
            drain::beside(own, &spec);
            return invoke(real, raw);
        };
        // SAFETY: this function requires what `go` does.
        unsafe { go(found, &spec, name, || later(found.process), move || invoke(real, raw)) }
    })
}

/// Describes a command that follows everything earlier in the process if `all` is true.
pub(crate) fn after_all_if(all: bool, key: CostKey) -> CommandSpec<'static> {
    if all { CommandSpec { key, ..drain::after_all() } } else { turn::spec(key) }
}
