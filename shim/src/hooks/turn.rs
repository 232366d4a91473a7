//! Calls that are made on the calling thread: at once where the queue allows it, else in their turn.

use crate::boundary::Failure;
use crate::process::lost;
use crate::process::streams::Found;
use crate::thread::Thread;
use hip_sys::types::{hipError_t, hipErrorContextIsDestroyed, hipErrorUnknown, hipSuccess};
use xqueue::{
    CommandBox, CostKey, Direct, Footprint, HwError, HwResult, Spec, SubmitError, Ticket, hw_result,
};

/// The code of a queue's result.
#[inline(always)]
pub(crate) fn code(result: HwResult) -> hipError_t {
    match result {
        Ok(()) => hipSuccess,
        Err(error) => of(error),
    }
}

pub(crate) fn of(error: HwError) -> hipError_t {
    hipError_t(error.code())
}

/// What the queue has to know of a command of the calling thread.
#[inline(always)]
pub(crate) fn spec(key: CostKey) -> Spec<'static> {
    Spec { may_wait: !Thread::current().is_in_callback(), ..Spec::new(key) }
}

/// Makes the call on this thread, after everything in front of it: at once, or when its turn comes. Inside a callback
/// it is made at once, because nothing may wait there.
pub(crate) fn take<R: Failure>(found: Found, spec: &Spec<'_>, invoke: impl FnOnce() -> R) -> R {
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
            let _ = found.queue.launch_now(&mut call);
        } else if let Err(SubmitError::Closed) = found.queue.submit_in_turn(spec, &mut call) {
            let _ = call();
        }
    }
    // Without a result the program has dropped the call while it waited for its turn.
    result.unwrap_or_else(|| R::failure(hipErrorUnknown))
}

/// Why a command was not appended, as the caller gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(hipError_t);

/// Appends a command, unless the queue has just ended (the stream is gone), or the runtime refuses everything.
pub(crate) fn append(
    found: Found,
    spec: &Spec<'_>,
    command: impl Into<CommandBox>,
) -> Result<Ticket, Refusal> {
    if let Some(code) = lost::answer(found.process.real) {
        return Err(Refusal(code));
    }
    let ticket = found.queue.submit(spec, command).map_err(|_| Refusal(hipErrorContextIsDestroyed))?;
    // The program's call has succeeded, though the runtime knows nothing of it yet.
    found.process.real.forget_result();
    Ok(ticket)
}

/// The memory of a command that owns so many bytes of arguments.
pub(crate) fn arguments(bytes: usize) -> Footprint {
    Footprint { arguments: bytes, staged: 0 }
}

/// Whether a worker, whose current device is the queue's, would do what this thread does.
pub(crate) fn is_at_home(found: Found) -> bool {
    found.process.real.current_device() == found.stream.hw.device()
}

/// What the caller gets of it.
pub(crate) fn refused(refusal: Refusal) -> hipError_t {
    refusal.0
}
