//! Events. The runtime answers for all events, except those whose record is still deferred
//! (`process::events`).

use super::defer::INSTANT;
use super::turn::{self, code};
use super::{drain, made, sync};
use crate::boundary::Call;
use crate::process;
use crate::process::events::Events;
use crate::process::lost;
use crate::process::pools::Returning;
use crate::process::streams::{Found, Target};
use crate::process::subject;
use crate::thread::Thread;
use hal_hip::command::HipCommand;
use hal_hip::real::result;
use hip_sys::pfn;
use hip_sys::types::{
    hipError_t, hipErrorNotReady, hipEvent_t, hipIpcEventHandle_t, hipStream_t, hipSuccess,
};
use std::ffi::c_uint;
use std::sync::Arc;
use xqueue::{After, CommandSpec, Direct, Footprint, Scope};

/// The functions that create or open an event, which `note` notes.
///
/// # Safety
///
/// `event` is null or valid for the handle.
pub(crate) unsafe fn create<F: Copy>(
    call: Call<F>,
    event: *mut hipEvent_t,
    note: impl FnOnce(&Events, hipEvent_t),
    invoke: impl FnOnce(F) -> hipError_t,
) -> hipError_t {
    let note = |event| {
        if let Some(process) = process::get() {
            note(&process.events, event);
        }
    };
    // SAFETY: this function requires it.
    unsafe { made::note(call, event, note, invoke) }
}

/// `hipIpcGetEventHandle`, after which another process may wait for the event's last record
pub(crate) unsafe fn share(
    call: Call<pfn::hipIpcGetEventHandle>,
    handle: *mut hipIpcEventHandle_t,
    event: hipEvent_t,
) -> hipError_t {
    call.handle(|real, own| {
        if let Some(process) = process::for_call(own) {
            wait_until_recorded(process, event);
        }
        // SAFETY: the arguments are the caller's own.
        unsafe { real(handle, event) }
    })
}

/// The largest flag of a record: that of a record node in a graph.
const RECORD_FLAGS: c_uint = 1;

/// The functions that record an event.
///
/// # Safety
///
/// `invoke` may be called on any thread.
pub(crate) unsafe fn record<F: Copy + 'static>(
    call: Call<F>,
    per_thread: bool,
    event: hipEvent_t,
    (stream, flags): (hipStream_t, c_uint),
    invoke: impl Fn(F, hipStream_t) -> hipError_t + 'static,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        let Some(found) = found else {
            if let Some(process) = process::for_call(own) {
                process.events.foreign(event);
                process.pools.forget_record(event);
            }
            return invoke(real, raw);
        };
        let pools = &found.process.pools;
        let behind = pools.before_record(found.queue.id());
        pools.forget_record(event);
        record_on(found, event, flags, behind, move || invoke(real, raw))
    })
}

/// Records an event on a stream with a queue, after these returns to pools.
fn record_on(
    found: Found,
    event: hipEvent_t,
    flags: c_uint,
    behind: Vec<Arc<Returning>>,
    invoke: impl Fn() -> hipError_t + 'static,
) -> hipError_t {
    let events = &found.process.events;
    let after = events.before_record(event);
    let spec = CommandSpec { after: &after, ..turn::spec(INSTANT) }.about(subject::EVENT);
    // Inside a callback the call may bypass the queue.
    let queue = spec.may_wait.then_some(found.queue);
    let invoke = move || events.recording(event, queue, &invoke);
    if let Direct::Launched(_, recorded) = found.queue.try_direct(&spec, || result(invoke())) {
        if recorded.is_ok() {
            events.recorded(event);
        }
        return code(recorded);
    }
    let refused = event.is_null() || flags > RECORD_FLAGS;
    if refused || events.is_elsewhere(event, found.stream.hw.device()) {
        return invoke(); // The runtime refuses it, whatever is pending.
    }
    if flags != 0 || !events.is_on(event, found.stream.hw.device()) || !turn::is_at_home(found) {
        let recorded = turn::take(found, &spec, invoke);
        if recorded == hipSuccess {
            events.recorded(event);
        }
        return recorded;
    }
    let named = events.name(event);
    let call = turn::keeping(named.clone(), invoke);
    // SAFETY: the event is not destroyed before the command is dropped, and any thread may record it.
    let command = unsafe { HipCommand::new("event record", Footprint::default(), call) }.kept();
    turn::append(found, &spec, Box::new(command), |ticket| {
        events.record_deferred(event, &named, found.after(ticket));
        found.process.pools.recorded(event, (found.queue.id(), ticket), behind);
    })
}

pub(crate) unsafe fn wait(
    call: Call<pfn::hipStreamWaitEvent>,
    per_thread: bool,
    stream: hipStream_t,
    event: hipEvent_t,
    flags: c_uint,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        // SAFETY: the arguments are the caller's own.
        let invoke = move || unsafe { real(raw, event, flags) };
        let Some(found) = found else {
            if let Some(process) = process::for_call(own) {
                wait_until_recorded(process, event);
            }
            return invoke();
        };
        let events = &found.process.events;
        if found.process.captures.any_begun() {
            // The event may belong to a capture, which this stream then joins, so the stream must be quiet.
            wait_until_recorded(found.process, event);
            drain::quiet(found.process, found.queue);
            let code = invoke();
            found.process.captures.waited(found.process.real, raw);
            return code;
        }
        let after: Vec<_> = events.open_record(event).into_iter().collect();
        // A wait for another process's record can block a hardware queue, which streams share.
        let foreign = events.is_foreign(event);
        let scope = foreign.then_some(Scope::Process);
        let spec =
            CommandSpec { after: &after, scope, open: foreign, ..turn::spec(INSTANT) }.about(subject::EVENT);
        let queue = spec.may_wait.then_some(found.queue);
        let invoke = move || {
            let evidence = events.evidence(event);
            let code = invoke();
            if let (Some(queue), Some(evidence)) = (queue, evidence)
                && code == hipSuccess
                && events.is_last(event, &evidence)
            {
                queue.follow(evidence);
            }
            code
        };
        if let Direct::Launched(_, waits) = found.queue.try_direct(&spec, || result(invoke())) {
            return code(waits);
        }
        // From 6.0 on a wait has the flag of a wait node in a graph.
        let known = if found.process.real.major < 6 { 0 } else { 1 };
        if event.is_null() || flags > known {
            return invoke(); // The runtime refuses it, whatever is pending.
        }
        if flags != 0 || !events.is_live(event) || !turn::is_at_home(found) {
            return turn::take(found, &spec, invoke);
        }
        let named = events.name(event);
        let call = turn::keeping(named.clone(), invoke);
        // SAFETY: the event is not destroyed before the command is dropped, and any thread may make a stream
        // wait.
        let command =
            unsafe { HipCommand::new("wait for an event", Footprint::default(), call) }.reading_streams();
        turn::append(found, &spec, Box::new(command), |ticket| {
            events.wait_deferred(event, &named, found.after(ticket));
            if let Some(After { queue, through }) = after.first() {
                found.process.pools.waits(event, (queue.id(), *through), found.queue.id());
            }
        })
    })
}

/// Waits until the event's last record is launched. Does not wait inside a callback.
fn wait_until_recorded(process: &process::Process, event: hipEvent_t) {
    if let Some(record) = process.events.open_record(event)
        && !Thread::current().is_in_callback()
    {
        record.wait_launched();
    }
}

pub(crate) unsafe fn query(call: Call<pfn::hipEventQuery>, event: hipEvent_t) -> hipError_t {
    call.handle(|real, own| {
        // SAFETY: the argument is the caller's own.
        let invoke = || unsafe { real(event) };
        let Some(process) = process::for_call(own) else { return invoke() };
        if let Some(refused) = sync::refused_beside_capture(process, invoke) {
            return refused;
        }
        if process.events.open_record(event).is_some() {
            return sync::not_ready(process);
        }
        let evidence = process.events.evidence(event);
        if evidence.as_ref().is_some_and(|evidence| evidence.is_known())
            && lost::answer(process.real).is_none()
        {
            // The program may know of the completion, for example by synchronizing the stream. The runtime
            // may still answer "not ready", because it has not yet processed the commands before the marker.
            process.real.reset_last_error();
            return hipSuccess;
        }
        let code = invoke();
        if code == hipSuccess {
            process.events.seen(event, evidence);
        }
        code
    })
}

pub(crate) unsafe fn synchronize(call: Call<pfn::hipEventSynchronize>, event: hipEvent_t) -> hipError_t {
    call.handle(|real, own| {
        // SAFETY: the argument is the caller's own.
        let invoke = || unsafe { real(event) };
        let Some(process) = process::for_call(own) else { return invoke() };
        let queue = process.events.open_record(event).map(|record| record.queue);
        wait_until_recorded(process, event);
        let evidence = process.events.evidence(event);
        let code = invoke();
        if code == hipSuccess {
            process.events.seen(event, evidence);
        }
        sync::with_error(process, code, queue.as_deref().into_iter())
    })
}

pub(crate) unsafe fn elapsed_time(
    call: Call<pfn::hipEventElapsedTime>,
    ms: *mut f32,
    start: hipEvent_t,
    stop: hipEvent_t,
) -> hipError_t {
    call.handle(|real, own| {
        // SAFETY: the arguments are the caller's own.
        let invoke = || unsafe { real(ms, start, stop) };
        let Some(process) = process::for_call(own) else { return invoke() };
        let events = [start, stop];
        let open = events.map(|event| process.events.open_record(event).is_some());
        // The runtime checks null handles, flags and devices before the completion of both, and knows them.
        let decides = !ms.is_null() && !events.contains(&hipEvent_t::NULL);
        if decides && open != [false; 2] && process.events.are_timed(events) {
            // It also checks that both were ever recorded, which the time from the other event to itself
            // shows.
            let known = events.into_iter().zip(open).find_map(|(event, open)| (!open).then_some(event));
            // SAFETY: the place is the caller's, and so is the event.
            let of_itself = known.map_or(hipErrorNotReady, |event| unsafe { real(ms, event, event) });
            let asks = of_itself == hipSuccess || of_itself == hipErrorNotReady;
            return if asks { sync::not_ready(process) } else { of_itself };
        }
        let evidence = events.map(|event| process.events.evidence(event));
        let code = invoke();
        if code == hipSuccess {
            for (event, evidence) in events.into_iter().zip(evidence) {
                process.events.seen(event, evidence);
            }
        }
        code
    })
}

pub(crate) unsafe fn destroy(call: Call<pfn::hipEventDestroy>, event: hipEvent_t) -> hipError_t {
    call.handle(|real, own| {
        if let Some(process) = process::for_call(own) {
            process.pools.forget_record(event);
            if process.events.doom(event) {
                return hipSuccess;
            }
        }
        // SAFETY: the argument is the caller's own.
        unsafe { real(event) }
    })
}
