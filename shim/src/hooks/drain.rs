//! The conservative rule for functions without a handler of their own: what they concern is launched first, then they
//! are called on the calling thread. Work for a stream takes its turn in the stream's queue and counts as its command.

use super::turn;
use crate::boundary::{Call, Failure};
use crate::process::streams::{Found, Target};
use crate::process::{self, Process};
use hal_hip::real::Real;
use hip_sys::table::Class;
use hip_sys::types::hipStream_t;
use xqueue::{CostKey, Scope, Spec, XQueue};

/// The queues' side, for a call that counts as the program's own.
fn of(own: bool) -> Option<&'static Process> {
    process::get().filter(|_| own)
}

/// Functions that concern everything: frees, unloads, resets.
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn all<F: Copy, R: Failure>(call: Call<F>, invoke: impl FnOnce(F) -> R) -> R {
    let body = |real: F, own: bool| {
        if let Some(process) = of(own) {
            process.drain(Scope::Process);
        }
        invoke(real)
    };
    call.handle(body)
}

/// Work for one stream.
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn own<F: Copy, R: Failure>(
    call: Call<F>,
    per_thread: bool,
    stream: hipStream_t,
    invoke: impl FnOnce(F, hipStream_t) -> R,
) -> R {
    let class = call.class();
    let body = |real: F, own: bool| {
        let target = Target::of(own, stream, per_thread);
        match (class, target.found) {
            (Class::Capture, found) => capture(of(own), target.raw, found, || invoke(real, target.raw)),
            (_, None) => invoke(real, target.raw),
            (Class::Lifecycle | Class::Query, Some(found)) => {
                found.process.drain_queue(found.queue);
                invoke(real, target.raw)
            }
            (_, Some(found)) => turn::take(found, &turn::spec(CostKey::UNKNOWN), || invoke(real, target.raw)),
        }
    };
    call.handle(body)
}

/// Work for one stream of which the queue has to know more than that: what it must follow.
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn work<F: Copy, R: Failure>(
    call: Call<F>,
    (stream, per_thread): (hipStream_t, bool),
    spec: Spec<'_>,
    invoke: impl FnOnce(F, hipStream_t) -> R,
) -> R {
    let body = |real: F, own: bool| {
        let target = Target::of(own, stream, per_thread);
        let Some(found) = target.found else {
            if let (Some(process), Some(scope)) = (of(own), spec.scope) {
                process.drain(scope);
            }
            return invoke(real, target.raw);
        };
        turn::take(found, &spec, || invoke(real, target.raw))
    };
    call.handle(body)
}

/// What a command must follow that may wait for anything of the process.
pub(crate) fn after_all() -> Spec<'static> {
    Spec { scope: Some(Scope::Process), ..turn::spec(CostKey::UNKNOWN) }
}

/// What blocks its hardware queue until somebody ends that, perhaps a thread of this program: a wait for a value or a semaphore.
pub(crate) fn blocks() -> Spec<'static> {
    Spec { open: true, ..after_all() }
}

fn spec(completes: bool) -> Spec<'static> {
    Spec { completes, ..turn::spec(CostKey::UNKNOWN) }
}

/// Functions of two streams.
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn both<F: Copy, R: Failure>(
    call: Call<F>,
    streams: [hipStream_t; 2],
    invoke: impl FnOnce(F, [hipStream_t; 2]) -> R,
) -> R {
    let body = |real: F, own: bool| {
        let raw = streams.map(|stream| {
            let target = Target::of(own, stream, false);
            if let Some(found) = target.found {
                found.process.drain_queue(found.queue);
            }
            target.raw
        });
        invoke(real, raw)
    };
    call.handle(body)
}

/// Work for the default stream. `completes`: the call returns when it is done.
///
/// The `_spt` functions without a stream work on the runtime's own per-thread stream, for which another one stands here;
/// so that one is waited for before, and the runtime's after.
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn default<F: Copy, R: Failure>(
    call: Call<F>,
    per_thread: bool,
    completes: impl FnOnce(&Real) -> bool,
    invoke: impl FnOnce(F) -> R,
) -> R {
    let body = |real: F, own: bool| {
        let target = Target::of(own, hipStream_t::NULL, per_thread);
        let Some(found) = target.found else { return invoke(real) };
        turn::take(found, &spec(per_thread || completes(found.process.real)), || {
            if !per_thread {
                return invoke(real);
            }
            let synchronize = found.process.real.stream_synchronize;
            // SAFETY: the stream that stands for the calling thread's own.
            let _ = unsafe { synchronize(target.raw) };
            let result = invoke(real);
            if result.code() == 0 {
                // SAFETY: a handle that the runtime knows.
                let _ = unsafe { synchronize(hipStream_t::PER_THREAD) };
            }
            result
        })
    };
    call.handle(body)
}

/// Begins or ends a capture, or changes one. A stream that begins to capture has nothing pending, in flight or to be
/// marked: a mark would become a part of the graph.
fn capture<R: Failure>(
    process: Option<&'static Process>,
    stream: hipStream_t,
    found: Option<Found>,
    invoke: impl FnOnce() -> R,
) -> R {
    let Some(process) = process else { return invoke() };
    if let Some(found) = found {
        quiet(process, found.queue);
    }
    let result = process.captures.change(process.real, stream, invoke);
    captures_ended(process);
    if result.code() != 0 {
        // The question behind the call has taken its place as the last error.
        super::error::keep(process.real, hip_sys::types::hipError_t(result.code()));
    }
    result
}

/// A capture may have ended: where there is none any more there may be marks again.
pub(crate) fn captures_ended(process: &Process) {
    if !process.captures.any() {
        process.domain.queues().iter().for_each(|queue| queue.allow_marks());
    }
}

/// Waits until everything of a queue has completed and its marks have shown it, and nobody looks at them any more: from 6 on
/// an event of a stream that has begun to capture since ends the capture when it is queried (`ihipEventQuery`). What only the
/// program can end is not waited for: its marks are forsaken.
pub(crate) fn quiet(process: &Process, queue: &XQueue) {
    if crate::thread::Thread::current().is_in_callback() {
        return;
    }
    process.drain_queue(queue);
    if queue.is_open() {
        // Only the program can end it, perhaps this thread behind this call.
        return queue.forsake_marks();
    }
    let proof = queue.begin_sync();
    queue.wait_completed(process.domain.take_ticket());
    queue.synced(proof);
    queue.rest();
}

/// Functions that only ask or tell something about a stream, without work for it.
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn translate<F: Copy, R: Failure>(
    call: Call<F>,
    per_thread: bool,
    stream: hipStream_t,
    invoke: impl FnOnce(F, hipStream_t) -> R,
) -> R {
    let body = |real: F, own: bool| {
        let raw = match of(own) {
            Some(process) if per_thread || stream == hipStream_t::PER_THREAD => {
                process.stream(stream, per_thread).0
            }
            _ => stream,
        };
        invoke(real, raw)
    };
    call.handle(body)
}
