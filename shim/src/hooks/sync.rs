//! Synchronizations and queries: what is deferred is launched first, or answered for. A success of the runtime proves
//! queues idle. Errors of deferred commands come out here.
//!
//! A queue's own marks lie behind the program's commands, so that the runtime calls a stream busy whose last command has
//! long completed. What a program can know, the books know too (docs/adr/0006), and they are asked first.

use super::event::NOT_READY;
use super::{error, turn};
use crate::boundary::Call;
use crate::process;
use crate::process::lost;
use crate::process::streams::{Found, Target};
use hip_sys::pfn;
use hip_sys::types::{hipError_t, hipStream_t, hipSuccess};
use std::sync::Arc;
use xqueue::{DeviceId, OrderClass, Proof, Ticket, XQueue};

/// The answer for what is deferred still.
pub(crate) fn not_ready(process: &process::Process) -> hipError_t {
    if let Some(code) = lost::answer(process.real) {
        return code;
    }
    error::keep(process.real, NOT_READY);
    NOT_READY
}

/// The result, or in place of a success the error of a deferred command.
pub(crate) fn with_error<'q>(
    process: &process::Process,
    code: hipError_t,
    queues: impl Iterator<Item = &'q XQueue>,
) -> hipError_t {
    if code != hipSuccess {
        return code;
    }
    for queue in queues {
        if let Some(error) = queue.take_error() {
            error::keep(process.real, turn::of(error));
            return turn::of(error);
        }
    }
    code
}

/// Makes a call that returns when these queues' work is done.
fn synchronized(
    process: &process::Process,
    queues: &[Arc<XQueue>],
    call: impl FnOnce() -> hipError_t,
) -> hipError_t {
    for queue in queues {
        process.drain_queue(queue);
    }
    // Of several that work, one may be done long before the others, and only a mark would show it.
    let mut busy = queues.iter().filter(|queue| !queue.is_known_complete());
    let only = busy.next().filter(|_| busy.next().is_none());
    let proofs: Vec<Proof> = queues.iter().map(|queue| queue.begin_sync()).collect();
    let wait = only.map(|queue| queue.begin_wait());
    let code = call();
    if code == hipSuccess {
        for (queue, proof) in queues.iter().zip(proofs) {
            queue.synced(proof);
        }
        process.graphs.sweep();
    }
    drop(wait);
    with_error(process, code, queues.iter().map(|queue| &**queue))
}

/// The default stream's queue, where whoever asks whether this stream is done asks for that one's work as well: with a
/// blocking stream, before 6.0 (`hip::getQueue` in `hipStreamSynchronize_common` and `hipStreamQuery_common`; from 6.0 on
/// they take the stream without that wait).
fn awaited_default(found: Found) -> Option<&'static Arc<XQueue>> {
    if found.queue.class() != OrderClass::Blocking || found.process.real.major >= 6 {
        return None;
    }
    found.process.defaults.get(found.stream.hw.device() as usize)?.queue()
}

/// `hipDeviceSynchronize`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn device(call: Call<pfn::hipDeviceSynchronize>) -> hipError_t {
    let body = |real: pfn::hipDeviceSynchronize, own| {
        let Some(process) = process::get().filter(|_| own) else {
            // SAFETY: it takes no argument.
            return unsafe { real() };
        };
        let device = DeviceId(process.real.current_device());
        let mut queues = process.domain.queues();
        queues.retain(|queue| queue.device() == device);
        // SAFETY: it takes no argument.
        synchronized(process, &queues, || unsafe { real() })
    };
    call.handle(body)
}

/// `hipStreamSynchronize` and its per-thread twin
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn stream(
    call: Call<pfn::hipStreamSynchronize>,
    per_thread: bool,
    stream: hipStream_t,
) -> hipError_t {
    let body = |real: pfn::hipStreamSynchronize, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        // SAFETY: the caller's own argument, or the stream that stands for it.
        let invoke = || unsafe { real(raw) };
        let Some(found) = found else { return invoke() };
        if found.queue.has_foreign_launches() {
            // The default stream waits for all that wait for it.
            let kin = found.process.default_kin(found.stream.hw.device());
            return synchronized(found.process, &kin, invoke);
        }
        let begin = |queue: &'static Arc<XQueue>| {
            found.process.drain_queue(queue);
            (queue, queue.begin_sync())
        };
        let (default, (_, proof)) = (awaited_default(found).map(begin), begin(found.queue));
        let wait = found.queue.begin_wait();
        let code = invoke();
        if code == hipSuccess {
            if let Some((queue, proof)) = default {
                queue.synced(proof);
            }
            found.queue.synced(proof);
            found.process.graphs.sweep();
        }
        drop(wait);
        with_error(found.process, code, std::iter::once(&**found.queue))
    };
    call.handle(body)
}

/// Whether everything that a query of the stream is about is known to have completed. With the default stream that is
/// all that it waits for as well.
fn is_complete(found: Found) -> bool {
    found.queue.is_complete()
        && awaited_default(found).is_none_or(|queue| queue.is_complete())
        && (found.queue.class() != OrderClass::Default
            || found.process.default_kin(found.stream.hw.device()).iter().all(|queue| queue.is_complete()))
}

/// From 6 on a capture can forbid a query of a stream, from 7 on that of an event, and ends by it: that is the runtime's to
/// say, whatever is known here. What it says, if it refuses this one.
pub(super) fn refused_beside_capture(
    process: &process::Process,
    invoke: impl Fn() -> hipError_t,
) -> Option<hipError_t> {
    if !process.captures.any() || process.real.major < 6 {
        return None;
    }
    let code = invoke();
    if code != hipSuccess && code != NOT_READY {
        return Some(code);
    }
    process.real.forget_result();
    None
}

/// `hipStreamQuery` and its per-thread twin
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn query(
    call: Call<pfn::hipStreamQuery>,
    per_thread: bool,
    stream: hipStream_t,
) -> hipError_t {
    let body = |real: pfn::hipStreamQuery, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        // SAFETY: the caller's own argument, or the stream that stands for it.
        let invoke = || unsafe { real(raw) };
        let Some(found) = found else { return invoke() };
        if let Some(refused) = refused_beside_capture(found.process, invoke) {
            return refused;
        }
        let is_open = |queue: &XQueue| queue.frontier() != Ticket::NONE;
        let open = match found.queue.class() {
            OrderClass::Default if found.process.domain.has_pending() => {
                found.process.default_kin(found.stream.hw.device()).iter().any(|queue| is_open(queue))
            }
            _ => is_open(found.queue) || awaited_default(found).is_some_and(|queue| is_open(queue)),
        };
        if open {
            return not_ready(found.process);
        }
        let own = std::iter::once(&**found.queue);
        if is_complete(found) && lost::answer(found.process.real).is_none() {
            // A mark behind the program's last command is not the program's business, so the runtime is not asked.
            found.process.real.forget_result();
            return with_error(found.process, hipSuccess, own);
        }
        let proof = found.queue.begin_sync();
        let code = invoke();
        if code == hipSuccess && found.queue.class() != OrderClass::Default {
            found.queue.synced(proof);
        }
        with_error(found.process, code, own)
    };
    call.handle(body)
}
