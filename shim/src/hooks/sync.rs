//! Synchronizations and queries. Deferred commands are launched first, or make the stream busy. A successful
//! call proves queues idle. Errors of deferred commands are returned here.
//!
//! The library's markers lie behind the program's commands, so the runtime may call a stream busy after its
//! last command has completed. The queue knows every completion that the program can know (docs/adr/0006),
//! and is asked first.

use super::{error, turn};
use crate::boundary::Call;
use crate::process;
use crate::process::lost;
use crate::process::streams::{Found, Target};
use hip_sys::pfn;
use hip_sys::types::{hipError_t, hipErrorNotReady, hipStream_t, hipSuccess};
use std::sync::Arc;
use xqueue::{CompletionSnapshot, DeviceId, OrderClass, Ticket, XQueue};

/// The answer for work that is still deferred.
pub(crate) fn not_ready(process: &process::Process) -> hipError_t {
    if let Some(code) = lost::answer(process.real) {
        return code;
    }
    error::keep(process.real, hipErrorNotReady);
    hipErrorNotReady
}

/// Replaces a success by the error of a deferred command, if there is one.
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
            error::keep(process.real, turn::error_code(error));
            return turn::error_code(error);
        }
    }
    code
}

/// Makes a call that returns when the work of these queues is done.
fn synchronized(
    process: &process::Process,
    queues: &[Arc<XQueue>],
    call: impl FnOnce() -> hipError_t,
) -> hipError_t {
    for queue in queues {
        process.drain_queue(queue);
    }
    // The wait shows the completion of a single busy queue. Of several, one may complete long before the
    // others.
    let mut busy = queues.iter().filter(|queue| !queue.is_known_complete());
    let only = busy.next().filter(|_| busy.next().is_none());
    let proofs: Vec<CompletionSnapshot> = queues.iter().map(|queue| queue.begin_sync()).collect();
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

/// Returns the default stream's queue if a query of this stream covers its work as well: for a blocking
/// stream before 6.0 (`hip::getQueue` in `hipStreamSynchronize_common` and `hipStreamQuery_common`; from 6.0
/// on they do not wait for it).
fn awaited_default(found: Found) -> Option<&'static Arc<XQueue>> {
    if found.queue.class() != OrderClass::Blocking || found.process.real.major >= 6 {
        return None;
    }
    found.process.defaults.get(found.stream.hw.device() as usize)?.queue()
}

pub(crate) unsafe fn device(call: Call<pfn::hipDeviceSynchronize>) -> hipError_t {
    call.handle(|real, own| {
        let Some(process) = process::for_call(own) else {
            // SAFETY: the function takes no argument.
            return unsafe { real() };
        };
        let device = DeviceId(process.real.current_device());
        let mut queues = process.domain.queues();
        queues.retain(|queue| queue.device() == device);
        // SAFETY: the function takes no argument.
        synchronized(process, &queues, || unsafe { real() })
    })
}

pub(crate) unsafe fn stream(
    call: Call<pfn::hipStreamSynchronize>,
    per_thread: bool,
    stream: hipStream_t,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        // SAFETY: the argument is the caller's own, or the stream in its place.
        let invoke = || unsafe { real(raw) };
        let Some(found) = found else { return invoke() };
        if found.queue.has_foreign_launches() {
            // The default stream waits for all streams that wait for it.
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
    })
}

/// Returns true if everything that a query of the stream covers is known to have completed. A query of the
/// default stream covers the streams that it waits for.
fn is_complete(found: Found) -> bool {
    found.queue.is_complete()
        && awaited_default(found).is_none_or(|queue| queue.is_complete())
        && (found.queue.class() != OrderClass::Default
            || found.process.default_kin(found.stream.hw.device()).iter().all(|queue| queue.is_complete()))
}

/// Returns the runtime's error if it refuses this query because of a capture. From 6.0 on a capture may
/// forbid queries of a stream, from 7.0 on also of an event, and a forbidden query ends it, so the runtime
/// has to be asked first.
pub(super) fn refused_beside_capture(
    process: &process::Process,
    invoke: impl Fn() -> hipError_t,
) -> Option<hipError_t> {
    if !process.captures.any() || process.real.major < 6 {
        return None;
    }
    let code = invoke();
    if code != hipSuccess && code != hipErrorNotReady {
        return Some(code);
    }
    process.real.reset_last_error();
    None
}

pub(crate) unsafe fn query(
    call: Call<pfn::hipStreamQuery>,
    per_thread: bool,
    stream: hipStream_t,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        // SAFETY: the argument is the caller's own, or the stream in its place.
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
            // The runtime is not asked: it might see the library's marker behind the program's last command.
            found.process.real.reset_last_error();
            return with_error(found.process, hipSuccess, own);
        }
        let proof = found.queue.begin_sync();
        let code = invoke();
        if code == hipSuccess && found.queue.class() != OrderClass::Default {
            found.queue.synced(proof);
        }
        with_error(found.process, code, own)
    })
}
