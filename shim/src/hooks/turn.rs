//! Calls in the order of a queue: made on the calling thread, at once or in their turn, or appended as
//! commands.

use crate::boundary::Failure;
use crate::process::lost;
use crate::process::streams::Found;
use crate::thread::Thread;
use hip_sys::types::{hipError_t, hipErrorContextIsDestroyed, hipErrorUnknown, hipSuccess};
use xqueue::{
    CommandBox, CommandSpec, CostKey, Direct, Footprint, HwError, HwResult, SubmitError, Ticket, hw_result,
};

#[inline(always)]
pub(crate) fn code(result: HwResult) -> hipError_t {
    match result {
        Ok(()) => hipSuccess,
        Err(error) => error_code(error),
    }
}

pub(crate) fn error_code(error: HwError) -> hipError_t {
    hipError_t(error.code())
}

/// Describes a command of the calling thread to its queue.
#[inline(always)]
pub(crate) fn spec(key: CostKey) -> CommandSpec<'static> {
    CommandSpec { may_wait: !Thread::current().is_in_callback(), ..CommandSpec::new(key) }
}

/// Makes the call on this thread, at once or when its turn comes. Inside a callback it is made at once,
/// because nothing may wait there.
pub(crate) fn take<R: Failure>(found: Found, spec: &CommandSpec<'_>, invoke: impl FnOnce() -> R) -> R {
    let mut invoke = Some(invoke);
    let mut result = None;
    let mut call = || {
        let Some(invoke) = invoke.take() else { return Ok(()) };
        let value = invoke();
        let code = value.code();
        result = Some(value);
        hw_result(code)
    };
    if let Direct::NotNow = found.queue.try_direct(spec, &mut call) {
        if !spec.may_wait {
            let _ = found.queue.launch_unordered(&mut call);
        } else if let Err(SubmitError::Closed) = found.queue.submit_in_order(spec, &mut call) {
            let _ = call();
        }
    }
    // There is no result if the queue has dropped the call while it waited for its turn.
    result.unwrap_or_else(|| R::failure(hipErrorUnknown))
}

/// Appends a command, which `appended` then notes. Returns the code for the caller: an error if the queue has
/// just ended because its stream is gone, or if the runtime refuses every call.
pub(crate) fn append(
    found: Found,
    spec: &CommandSpec<'_>,
    command: impl Into<CommandBox>,
    appended: impl FnOnce(Ticket),
) -> hipError_t {
    if let Some(code) = lost::answer(found.process.real) {
        return code;
    }
    let Ok(ticket) = found.queue.submit(spec, command) else { return hipErrorContextIsDestroyed };
    // The program's call has succeeded, which the runtime does not know yet.
    found.process.real.reset_last_error();
    appended(ticket);
    hipSuccess
}

/// Appends a command that nothing notes.
pub(crate) fn submit(found: Found, spec: &CommandSpec<'_>, command: impl Into<CommandBox>) -> hipError_t {
    append(found, spec, command, |_| ())
}

/// Returns the call of a command that keeps a value alive until it is dropped.
pub(crate) fn keeping<T, R>(kept: T, call: impl Fn() -> R) -> impl Fn() -> R {
    move || {
        let _ = &kept;
        call()
    }
}

/// Returns the footprint of a command that owns this many bytes of arguments.
pub(crate) fn arguments(bytes: usize) -> Footprint {
    Footprint { arguments: bytes, staged: 0 }
}

/// Returns true if the thread's current device is the queue's, as a worker's is.
pub(crate) fn is_at_home(found: Found) -> bool {
    found.process.real.current_device() == found.stream.hw.device()
}
