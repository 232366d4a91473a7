//! The conservative rules for functions without a handler of their own: everything in their scope is launched
//! first, then they are called on the calling thread. Work for a stream is made in order and counts as a
//! command of its queue.

use super::turn;
use crate::boundary::{Call, Failure};
use crate::process::streams::{Found, Target};
use crate::process::{self, Process};
use crate::thread::Thread;
use hal_hip::real::RuntimeFunctions;
use hip_sys::types::hipStream_t;
use interception::Class;
use xqueue::{CommandSpec, CostKey, Scope, XQueue};

/// Functions whose scope is the process: frees, unloads, resets.
pub(crate) fn all<F: Copy, R: Failure>(call: Call<F>, invoke: impl FnOnce(F) -> R) -> R {
    call.handle(|real, own| {
        if let Some(process) = process::for_call(own) {
            process.drain(Scope::Process);
        }
        invoke(real)
    })
}

/// Work for one stream.
pub(crate) fn own<F: Copy, R: Failure>(
    call: Call<F>,
    per_thread: bool,
    stream: hipStream_t,
    invoke: impl FnOnce(F, hipStream_t) -> R,
) -> R {
    let class = call.class();
    call.handle(|real, own| {
        let target = Target::of(own, stream, per_thread);
        match (class, target.found) {
            (Class::Capture, found) => {
                capture(process::for_call(own), target.raw, found, || invoke(real, target.raw))
            }
            (_, None) => invoke(real, target.raw),
            (Class::Lifecycle | Class::Query, Some(found)) => {
                found.process.drain_queue(found.queue);
                invoke(real, target.raw)
            }
            (_, Some(found)) => turn::take(found, &turn::spec(CostKey::UNKNOWN), || invoke(real, target.raw)),
        }
    })
}

/// Work for one stream, with a description for its queue.
pub(crate) fn work<F: Copy, R: Failure>(
    call: Call<F>,
    (stream, per_thread): (hipStream_t, bool),
    spec: CommandSpec<'_>,
    invoke: impl FnOnce(F, hipStream_t) -> R,
) -> R {
    call.handle(|real, own| {
        let target = Target::of(own, stream, per_thread);
        let Some(found) = target.found else {
            beside(own, &spec);
            return invoke(real, target.raw);
        };
        turn::take(found, &spec, || invoke(real, target.raw))
    })
}

/// Waits for what a call without a queue has to follow.
pub(crate) fn beside(own: bool, spec: &CommandSpec<'_>) {
    if let (Some(process), Some(scope)) = (process::for_call(own), spec.scope) {
        process.drain(scope);
    }
}

/// Describes a command that may wait for anything of the process.
pub(crate) fn after_all() -> CommandSpec<'static> {
    CommandSpec { scope: Some(Scope::Process), ..turn::spec(CostKey::UNKNOWN) }
}

/// Describes a command that may block its hardware queue until another thread of this program ends that: a
/// wait for a value or a semaphore.
pub(crate) fn blocks() -> CommandSpec<'static> {
    CommandSpec { open: true, ..after_all() }
}

fn spec(completes: bool) -> CommandSpec<'static> {
    CommandSpec { completes, ..turn::spec(CostKey::UNKNOWN) }
}

/// Functions of two streams.
pub(crate) fn both<F: Copy, R: Failure>(
    call: Call<F>,
    streams: [hipStream_t; 2],
    invoke: impl FnOnce(F, [hipStream_t; 2]) -> R,
) -> R {
    call.handle(|real, own| {
        let raw = streams.map(|stream| {
            let target = Target::of(own, stream, false);
            if let Some(found) = target.found {
                found.process.drain_queue(found.queue);
            }
            target.raw
        });
        invoke(real, raw)
    })
}

/// Work for the default stream. `completes` returns true if the call returns when the work is done.
///
/// The `_spt` functions without a stream work on the runtime's own per-thread stream. The library uses
/// another stream in its place, so that one is waited for before the call, and the runtime's after it.
pub(crate) fn default<F: Copy, R: Failure>(
    call: Call<F>,
    per_thread: bool,
    completes: impl FnOnce(&RuntimeFunctions) -> bool,
    invoke: impl FnOnce(F) -> R,
) -> R {
    call.handle(|real, own| {
        let target = Target::of(own, hipStream_t::NULL, per_thread);
        let Some(found) = target.found else { return invoke(real) };
        turn::take(found, &spec(per_thread || completes(found.process.real)), || {
            if !per_thread {
                return invoke(real);
            }
            let synchronize = found.process.real.stream_synchronize;
            // SAFETY: the stream was made by the library for the calling thread.
            let _ = unsafe { synchronize(target.raw) };
            let result = invoke(real);
            if result.code() == 0 {
                // SAFETY: the runtime knows this handle.
                let _ = unsafe { synchronize(hipStream_t::PER_THREAD) };
            }
            result
        })
    })
}

/// Makes a call that begins, ends or changes a capture. A stream that begins to capture must have no command
/// pending or in flight: a marker recorded later would become a part of the graph.
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
        // The library's query after the call has replaced the last error.
        super::error::keep(process.real, hip_sys::types::hipError_t(result.code()));
    }
    result
}

/// Allows markers again if no capture is left.
pub(crate) fn captures_ended(process: &Process) {
    if !process.captures.any() {
        process.domain.queues().iter().for_each(|queue| queue.allow_markers());
    }
}

/// Waits until all work of a queue has completed and its markers are not queried any more. From 6.0 on,
/// querying a marker of a stream that has begun to capture since ends the capture (`ihipEventQuery`). Work
/// that only the program can end is not waited for: its markers are given up.
pub(crate) fn quiet(process: &Process, queue: &XQueue) {
    if Thread::current().is_in_callback() {
        return;
    }
    process.drain_queue(queue);
    if queue.is_open() {
        // Only the program can end the work, perhaps this thread after this call.
        return queue.abandon_markers();
    }
    let proof = queue.begin_sync();
    queue.wait_completed(process.domain.take_ticket());
    queue.synced(proof);
    queue.rest();
}

/// Functions that query or set something of a stream, without work for it.
pub(crate) fn translate<F: Copy, R: Failure>(
    call: Call<F>,
    per_thread: bool,
    stream: hipStream_t,
    invoke: impl FnOnce(F, hipStream_t) -> R,
) -> R {
    call.handle(|real, own| {
        let raw = match process::for_call(own) {
            Some(process) if per_thread || stream == hipStream_t::PER_THREAD => {
                process.stream(stream, per_thread).0
            }
            _ => stream,
        };
        invoke(real, raw)
    })
}
