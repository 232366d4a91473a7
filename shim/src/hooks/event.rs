//! Events. The runtime answers for all but those whose record is still deferred (`process::events`).

use super::turn::{self, code};
use super::{drain, sync};
use crate::boundary::Call;
use crate::process;
use crate::process::lost;
use crate::process::pools::Returning;
use crate::process::streams::{Found, Target};
use crate::thread::Thread;
use hal_hip::command::HipCommand;
use hal_hip::real::result;
use hip_sys::pfn;
use hip_sys::types::{
    hipError_t, hipErrorNotReady, hipEvent_t, hipIpcEventHandle_t, hipStream_t, hipSuccess,
};
use std::ffi::c_uint;
use std::sync::Arc;
use xqueue::{After, CostKey, Direct, Footprint, Scope, Spec};

/// Records and waits take no time on the device.
const KEY: CostKey = CostKey(2);

fn captures(found: Found) -> bool {
    found.process.captures.any_begun()
}

/// The functions that create an event.
///
/// # Safety
///
/// `F` is the type of the call's function; `event` is the caller's place for the handle.
pub(crate) unsafe fn create<F: Copy>(
    call: Call<F>,
    event: *mut hipEvent_t,
    flags: c_uint,
    invoke: impl FnOnce(F) -> hipError_t,
) -> hipError_t {
    let body = |real: F, own| {
        let code = invoke(real);
        if let Some(process) = process::get().filter(|_| own)
            && code == hipSuccess
            && !event.is_null()
        {
            // SAFETY: the runtime has just written the handle there.
            process.events.created(unsafe { *event }, flags);
        }
        code
    };
    call.handle(body)
}

/// `hipIpcOpenEventHandle`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn open(
    call: Call<pfn::hipIpcOpenEventHandle>,
    event: *mut hipEvent_t,
    handle: hipIpcEventHandle_t,
) -> hipError_t {
    let body = |real: pfn::hipIpcOpenEventHandle, own| {
        // SAFETY: the caller's own arguments.
        let code = unsafe { real(event, handle) };
        if let Some(process) = process::get().filter(|_| own && code == hipSuccess && !event.is_null()) {
            // SAFETY: the runtime has just written the handle there.
            process.events.opened(unsafe { *event });
        }
        code
    };
    call.handle(body)
}

/// `hipIpcGetEventHandle`: another process may wait for what was recorded until now.
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn share(
    call: Call<pfn::hipIpcGetEventHandle>,
    handle: *mut hipIpcEventHandle_t,
    event: hipEvent_t,
) -> hipError_t {
    let body = |real: pfn::hipIpcGetEventHandle, own| {
        if let Some(process) = process::get().filter(|_| own) {
            launched(process, event);
        }
        // SAFETY: the caller's own arguments.
        unsafe { real(handle, event) }
    };
    call.handle(body)
}

/// The flags that a record may have: none, and that of one for a graph to come.
const RECORD_FLAGS: c_uint = 1;

/// The functions that record an event.
///
/// # Safety
///
/// `F` is the type of the call's function; `invoke` calls it with the caller's arguments.
pub(crate) unsafe fn record<F: Copy + 'static>(
    call: Call<F>,
    per_thread: bool,
    event: hipEvent_t,
    (stream, flags): (hipStream_t, c_uint),
    invoke: impl Fn(F, hipStream_t) -> hipError_t + 'static,
) -> hipError_t {
    let body = |real: F, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        let Some(found) = found else {
            if let Some(process) = process::get().filter(|_| own) {
                process.events.foreign(event);
                process.pools.forget_record(event);
            }
            return invoke(real, raw);
        };
        let pools = &found.process.pools;
        let behind = pools.in_front_of_record(found.queue.id());
        pools.forget_record(event);
        record_on(found, event, flags, behind, move || invoke(real, raw))
    };
    call.handle(body)
}

/// One record on a stream with a queue, behind these returns to pools.
fn record_on(
    found: Found,
    event: hipEvent_t,
    flags: c_uint,
    behind: Vec<Arc<Returning>>,
    invoke: impl Fn() -> hipError_t + 'static,
) -> hipError_t {
    let events = &found.process.events;
    let after = events.before_record(event);
    let spec = Spec { after: &after, ..turn::spec(KEY) };
    // Inside a callback the call may be made beside the queue.
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
        return invoke(); // refused, whatever is in front of it
    }
    if flags != 0 || !events.is_on(event, found.stream.hw.device()) || !turn::is_at_home(found) {
        let recorded = turn::take(found, &spec, invoke);
        if recorded == hipSuccess {
            events.recorded(event);
        }
        return recorded;
    }
    let named = events.name(event);
    let holds = named.clone();
    let call = move || {
        let _ = &holds;
        invoke()
    };
    // SAFETY: the event is not destroyed before the command is dropped, and a record belongs to no thread.
    let command = unsafe { HipCommand::new("event record", Footprint::default(), call) }.kept();
    match turn::append(found, &spec, Box::new(command)) {
        Ok(ticket) => {
            events.record_deferred(event, &named, found.queue, ticket);
            found.process.pools.recorded(event, (found.queue.id(), ticket), behind);
            hipSuccess
        }
        Err(error) => turn::refused(error),
    }
}

/// `hipStreamWaitEvent` and its per-thread twin
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn wait(
    call: Call<pfn::hipStreamWaitEvent>,
    per_thread: bool,
    stream: hipStream_t,
    event: hipEvent_t,
    flags: c_uint,
) -> hipError_t {
    let body = |real: pfn::hipStreamWaitEvent, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        // SAFETY: the caller's own arguments.
        let invoke = move || unsafe { real(raw, event, flags) };
        let Some(found) = found else {
            if let Some(process) = process::get().filter(|_| own) {
                launched(process, event);
            }
            return invoke();
        };
        let events = &found.process.events;
        if captures(found) {
            // The event may be one of a capture, which this stream then joins: it must be quiet.
            launched(found.process, event);
            drain::quiet(found.process, found.queue);
            let code = invoke();
            found.process.captures.waited(found.process.real, raw);
            return code;
        }
        let after: Vec<_> = events.open_record(event).into_iter().collect();
        // A wait for another process's record can block a hardware queue that streams share.
        let foreign = events.is_foreign(event);
        let scope = foreign.then_some(Scope::Process);
        let spec = Spec { after: &after, scope, open: foreign, ..turn::spec(KEY) };
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
        // Where there are flags, there is the one of a wait by a graph to come; else they are refused.
        let known = if found.process.real.major < 6 { 0 } else { 1 };
        if event.is_null() || flags > known {
            return invoke(); // refused, whatever is in front of it
        }
        if flags != 0 || !events.is_live(event) || !turn::is_at_home(found) {
            return turn::take(found, &spec, invoke);
        }
        let named = events.name(event);
        let holds = named.clone();
        let call = move || {
            let _ = &holds;
            invoke()
        };
        // SAFETY: as for a record.
        let command =
            unsafe { HipCommand::new("wait for an event", Footprint::default(), call) }.reading_streams();
        match turn::append(found, &spec, Box::new(command)) {
            Ok(ticket) => {
                events.wait_deferred(event, &named, found.queue, ticket);
                if let Some(After { queue, through }) = after.first() {
                    found.process.pools.waits(event, (queue.id(), *through), found.queue.id());
                }
                hipSuccess
            }
            Err(error) => turn::refused(error),
        }
    };
    call.handle(body)
}

/// Waits until the event's last record is launched; inside a callback nothing waits.
fn launched(process: &process::Process, event: hipEvent_t) {
    if let Some(record) = process.events.open_record(event)
        && !Thread::current().is_in_callback()
    {
        record.queue.wait_launched(record.through.next());
    }
}

/// `hipEventQuery`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn query(call: Call<pfn::hipEventQuery>, event: hipEvent_t) -> hipError_t {
    let body = |real: pfn::hipEventQuery, own| {
        // SAFETY: the caller's own argument.
        let invoke = || unsafe { real(event) };
        let Some(process) = process::get().filter(|_| own) else { return invoke() };
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
            // The program can know it, by a synchronization of the stream for example. A stream's synchronization waits for
            // the mark behind, and until the runtime has gone through what lies in front it calls that not ready.
            process.real.forget_result();
            return hipSuccess;
        }
        let code = invoke();
        if code == hipSuccess {
            process.events.seen(event, evidence);
        }
        code
    };
    call.handle(body)
}

/// `hipEventSynchronize`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn synchronize(call: Call<pfn::hipEventSynchronize>, event: hipEvent_t) -> hipError_t {
    let body = |real: pfn::hipEventSynchronize, own| {
        // SAFETY: the caller's own argument.
        let invoke = || unsafe { real(event) };
        let Some(process) = process::get().filter(|_| own) else { return invoke() };
        let queue = process.events.open_record(event).map(|record| record.queue);
        launched(process, event);
        let evidence = process.events.evidence(event);
        let code = invoke();
        if code == hipSuccess {
            process.events.seen(event, evidence);
        }
        sync::with_error(process, code, queue.as_deref().into_iter())
    };
    call.handle(body)
}

/// `hipEventElapsedTime`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn elapsed_time(
    call: Call<pfn::hipEventElapsedTime>,
    ms: *mut f32,
    start: hipEvent_t,
    stop: hipEvent_t,
) -> hipError_t {
    let body = |real: pfn::hipEventElapsedTime, own| {
        // SAFETY: the caller's own arguments.
        let invoke = || unsafe { real(ms, start, stop) };
        let Some(process) = process::get().filter(|_| own) else { return invoke() };
        let events = [start, stop];
        let open = events.map(|event| process.events.open_record(event).is_some());
        // Null handles, flags and devices come before the question whether both are complete, and the runtime knows these.
        let decides = !ms.is_null() && !events.contains(&hipEvent_t::NULL);
        if decides && open != [false; 2] && process.events.are_timed(events) {
            // So does whether the other one was ever recorded: the runtime tells by the time of that one to itself.
            let known = events.into_iter().zip(open).find_map(|(event, open)| (!open).then_some(event));
            // SAFETY: the caller's place, and its event twice.
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
    };
    call.handle(body)
}

/// `hipEventDestroy`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn destroy(call: Call<pfn::hipEventDestroy>, event: hipEvent_t) -> hipError_t {
    let body = |real: pfn::hipEventDestroy, own| {
        if let Some(process) = process::get().filter(|_| own) {
            process.pools.forget_record(event);
            if process.events.doom(event) {
                return hipSuccess;
            }
        }
        // SAFETY: the caller's own argument.
        unsafe { real(event) }
    };
    call.handle(body)
}

/// What is not complete for the runtime either.
pub(crate) const NOT_READY: hipError_t = hipErrorNotReady;
