//! Events. CUDA has no flags for fences and scopes (bits 29 to 31): its events always order memory.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::sync::{PoisonError, RwLock};

use hip_sys::types::*;

use crate::driver::Driver;
use crate::errors::Answer;
use crate::state::{self, api, enter, put, required, started};
use crate::stream_table::{enter_on, per_thread};
use crate::{blobs, captures, stream_table};

/// An event's entry in the table.
#[derive(Clone, Copy, Debug)]
struct Event {
    device: c_int,
    flags: c_uint,
    /// True once it has been recorded. Until then AMD's runtime treats it as complete, and it has no time.
    recorded: bool,
}

static EVENTS: RwLock<Option<HashMap<usize, Event>>> = RwLock::new(None);

/// The flags that all releases accept. Others are refused.
const KNOWN: c_uint = 7 | 0xE000_0000;

fn find(event: hipEvent_t) -> Answer<Event> {
    let events = EVENTS.read().unwrap_or_else(PoisonError::into_inner);
    events.as_ref().and_then(|events| events.get(&event.as_raw()).copied()).ok_or(hipErrorInvalidHandle)
}

/// Refuses a handle that is not an event's.
pub(crate) fn check(event: hipEvent_t) -> Answer {
    find(event).map(drop)
}

fn change(event: hipEvent_t, change: impl FnOnce(&mut Event)) {
    let mut events = EVENTS.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(event) = events.get_or_insert_default().get_mut(&event.as_raw()) {
        change(event);
    }
}

fn keep(event: hipEvent_t, flags: c_uint, recorded: bool) {
    let mut events = EVENTS.write().unwrap_or_else(PoisonError::into_inner);
    events.get_or_insert_default().insert(event.as_raw(), Event { device: state::device(), flags, recorded });
}

/// Adds another process's event to the table.
pub(crate) fn opened(event: hipEvent_t) {
    keep(event, hipEventInterprocess | hipEventDisableTiming, true);
}

fn create(place: *mut hipEvent_t, flags: c_uint) -> Answer {
    required(place)?;
    let releases = flags & 0xC000_0000;
    if flags & !KNOWN != 0
        || releases == 0xC000_0000
        || flags & hipEventInterprocess != 0 && flags & hipEventDisableTiming == 0
    {
        return Err(hipErrorInvalidValue);
    }
    let mut made = hipEvent_t::NULL;
    enter()?.event_create(&mut made, flags & 7)?;
    keep(made, flags, false);
    put(place, made)
}

/// Marks an event as recorded, because a graph will record it.
pub(crate) fn recorded_by_graph(event: hipEvent_t) {
    change(event, |event| event.recorded = true);
}

/// Records an event in a stream.
///
/// # Errors
/// `hipErrorInvalidHandle` if there is no such event, or if the event and the stream belong to different
/// devices.
pub(crate) fn record(event: hipEvent_t, stream: hipStream_t) -> Answer {
    let found = find(event)?;
    let device = stream_table::device_of(stream)?;
    if found.device != device {
        return Err(hipErrorInvalidHandle);
    }
    let driver = started()?.enter(device)?;
    driver.event_record(event, stream)?;
    if !found.recorded {
        change(event, |event| event.recorded = true);
    }
    Ok(())
}

/// Asks about an event or waits for it. Before 7 AMD permits that during captures; CUDA permits it only in relaxed
/// mode.
fn beside_captures(ask: impl FnOnce(&Driver) -> Answer) -> Answer {
    let driver = enter()?;
    if blobs::major() < 7 { captures::aside(driver, || ask(driver)) } else { ask(driver) }
}

api! {
    [pfn] fn hipEventCreate(event: *mut hipEvent_t) { create(event, hipEventDefault) }
    [pfn] fn hipEventCreateWithFlags(event: *mut hipEvent_t, flags: c_uint) { create(event, flags) }
    [pfn] fn hipEventDestroy(event: hipEvent_t) {
        let mut events = EVENTS.write().unwrap_or_else(PoisonError::into_inner);
        // It leaves the table first: once it is destroyed, another thread may get the same handle.
        let found = events.get_or_insert_default().remove(&event.as_raw());
        drop(events);
        let found = found.ok_or(hipErrorInvalidHandle)?;
        started()?.enter(found.device)?.event_destroy(event)
    }
    [pfn] fn hipEventRecord(event: hipEvent_t, stream: hipStream_t) { record(event, stream) }
    [pfn] fn hipEventRecord_spt(event: hipEvent_t, stream: hipStream_t) { record(event, per_thread(stream)) }
    [pfn] fn hipEventRecordWithFlags(event: hipEvent_t, stream: hipStream_t, flags: c_uint) {
        match flags {
            0 => record(event, stream),
            // External: in a capture the record becomes a node. Elsewhere it is a record like any other, which CUDA
            // refuses.
            1 if captures::is_capturing(stream) => {
                check(event)?;
                enter_on(stream)?.event_record_flags(event, stream, 1)?;
                recorded_by_graph(event);
                Ok(())
            }
            1 => record(event, stream),
            _ => Err(hipErrorInvalidValue),
        }
    }
    [pfn] fn hipEventQuery(event: hipEvent_t) {
        find(event)?;
        beside_captures(|driver| driver.event_query(event))
    }
    [pfn] fn hipEventSynchronize(event: hipEvent_t) {
        find(event)?;
        beside_captures(|driver| driver.event_synchronize(event))
    }
    [pfn] fn hipEventElapsedTime(milliseconds: *mut f32, start: hipEvent_t, stop: hipEvent_t) {
        required(milliseconds)?;
        let (from, to) = (find(start)?, find(stop)?);
        let timed = |event: Event| event.recorded && event.flags & hipEventDisableTiming == 0;
        if !timed(from) || !timed(to) || from.device != to.device {
            return Err(hipErrorInvalidHandle);
        }
        let mut measured = 0.0;
        started()?.enter(from.device)?.event_elapsed(&mut measured, start, stop)?;
        put(milliseconds, measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_event_is_refused() {
        assert_eq!(check(hipEvent_t::NULL), Err(hipErrorInvalidHandle));
        assert_eq!(check(hipEvent_t::from_raw(0x1234)), Err(hipErrorInvalidHandle));
        assert_eq!(create(std::ptr::null_mut(), 0), Err(hipErrorInvalidValue));
        let mut event = hipEvent_t::NULL;
        assert_eq!(create(&mut event, 0x100), Err(hipErrorInvalidValue));
        assert_eq!(create(&mut event, hipEventInterprocess), Err(hipErrorInvalidValue));
    }
}
