//! Events.

use std::ffi::c_uint;
use std::sync::Arc;

use crate::abi::{
    Answer, CAPTURED_EVENT, EVENT_DISABLE_TIMING, EVENT_FLAGS, EVENT_INTERPROCESS, Handle, INVALID_HANDLE,
    INVALID_VALUE, NOT_READY,
};
use crate::engine;
use crate::gate::{Call, Out, enter};
use crate::graph::Kind;
use crate::ipc_event::SharedEvent;
use crate::state::Event;
use crate::stream::outcome;
use crate::work::{Stamp, Work};

/// `CU_EVENT_RECORD_EXTERNAL`: a record in a capture becomes a node.
const EXTERNAL: c_uint = 1;

fn record(event: Handle, argument: Handle, flags: c_uint) -> Answer {
    let mut call = enter()?;
    if flags > EXTERNAL {
        return Err(INVALID_VALUE);
    }
    let stream = call.stream(argument)?;
    let known = call.state.events.get(&event).ok_or(INVALID_HANDLE)?;
    if known.context != call.state.streams[&stream].context {
        return Err(INVALID_HANDLE);
    }
    let shared = known.shared.as_ref().map(|(page, _)| page.clone());
    if let Some(captured) = call.capture_of(stream)? {
        if flags == EXTERNAL {
            return call.add_captured(stream, Kind::EventRecord(event), Work::Nothing).map(|_| ());
        }
        if let Some(event) = call.state.events.get_mut(&event) {
            event.captured = Some(captured);
        }
        return Ok(());
    }
    if flags == EXTERNAL {
        return Err(INVALID_VALUE);
    }
    let stamp = Arc::new(Stamp::new(shared.map(|page| (page.clone(), page.record()))));
    let command = call.enqueue(argument, Work::Record(stamp.clone()), || Kind::Empty)?;
    if let Some(event) = call.state.events.get_mut(&event) {
        event.record = command.map(|command| (command, stamp));
        event.captured = None;
    }
    Ok(())
}

/// Prepares a query of an event. Returns the command of its last record, and its page if processes share it.
///
/// # Errors
/// `INVALID_HANDLE`; `CAPTURED_EVENT` if the last record was in a capture, which then becomes invalid.
fn asked(call: &mut Call, event: Handle) -> Answer<(Option<u64>, Option<Arc<SharedEvent>>)> {
    let known = call.state.events.get(&event).ok_or(INVALID_HANDLE)?;
    let command = known.record.as_ref().map(|(command, _)| *command);
    // Another process may have recorded it last.
    let shared = known.shared.as_ref().map(|(page, _)| page.clone());
    if let Some((capture, _)) = known.captured.clone() {
        if let Some(capture) = call.state.captures.get_mut(&capture) {
            capture.invalid = true;
        }
        return Err(CAPTURED_EVENT);
    }
    call.may_disturb()?;
    Ok((command, shared))
}

crate::api! {
    fn cuEventCreate(to: Out<Handle>, flags: c_uint) {
        let mut call = enter()?;
        let all = EVENT_FLAGS.iter().fold(0, |all, flag| all | flag);
        let interprocess = flags & EVENT_INTERPROCESS != 0;
        if to.is_null() || flags & !all != 0 || (interprocess && flags & EVENT_DISABLE_TIMING == 0) {
            return Err(INVALID_VALUE);
        }
        let shared = if interprocess { Some((Arc::new(SharedEvent::new()?), false)) } else { None };
        let (handle, context) = (call.state.handle(), call.context);
        call.state.events.insert(handle, Event { context, flags, record: None, captured: None, shared });
        to.set(handle)
    }

    /// A record that has not completed still runs.
    fn cuEventDestroy_v2(event: Handle) {
        let mut call = enter()?;
        call.state.events.remove(&event).map(|_| ()).ok_or(INVALID_HANDLE)
    }

    fn cuEventRecord(event: Handle, stream: Handle) {
        record(event, stream, 0)
    }

    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) {
        record(event, stream, flags)
    }

    fn cuEventQuery(event: Handle) {
        let mut call = enter()?;
        let (command, shared) = asked(&mut call, event)?;
        let done = shared.is_none_or(|page| page.reached(page.latest()))
            && command.is_none_or(|command| call.state.done(command));
        if done { Ok(()) } else { Err(NOT_READY) }
    }

    fn cuEventSynchronize(event: Handle) {
        let mut call = enter()?;
        let (command, shared) = asked(&mut call, event)?;
        if let Some(page) = shared {
            let record = page.latest();
            parking_lot::MutexGuard::unlocked(&mut call.state, || page.wait(record));
        }
        engine::wait(&mut call.state, command.as_slice());
        outcome(&call)
    }

    /// Milliseconds from the first event to the second one.
    fn cuEventElapsedTime(to: Out<f32>, start: Handle, end: Handle) {
        let call = enter()?;
        let of = |event: Handle| {
            let known = call.state.events.get(&event).ok_or(INVALID_HANDLE)?;
            if known.flags & EVENT_DISABLE_TIMING != 0 || known.captured.is_some() {
                return Err(INVALID_HANDLE);
            }
            known.record.clone().ok_or(INVALID_HANDLE)
        };
        let (start, end) = (of(start)?, of(end)?);
        if !call.state.done(start.0) || !call.state.done(end.0) {
            return Err(NOT_READY);
        }
        // A record that was skipped because of the context's error has no time.
        let (start, end) = (start.1.time().ok_or(NOT_READY)?, end.1.time().ok_or(NOT_READY)?);
        to.set(((end as f64 - start as f64) / 1e6) as f32)
    }
}
