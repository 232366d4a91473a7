//! Handles of events that the program has destroyed. A new event can have the place of an old one, and so its handle. If it were
//! a mark, a program that uses the old handle by mistake would meet the mark, where the runtime (from 7 on) refuses a handle
//! that is none.

use crate::real::Real;
use hip_sys::types::{hipError_t, hipEvent_t, hipSuccess};
use parking_lot::Mutex;
use std::collections::BTreeSet;

static ENDED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Events that are made, at most, until one has another handle.
const MOST: usize = 64;

/// The program destroys this event; to be called before the runtime does.
pub fn add(event: hipEvent_t) {
    if event != hipEvent_t::NULL {
        ENDED.lock().insert(event.as_raw());
    }
}

/// The program has an event with this handle.
pub fn remove(event: hipEvent_t) {
    ENDED.lock().remove(&event.as_raw());
}

fn has(event: hipEvent_t) -> bool {
    ENDED.lock().contains(&event.as_raw())
}

/// An event of the library's own, with a handle that the program has not destroyed.
pub(crate) fn create(real: &Real, flags: u32) -> Result<hipEvent_t, hipError_t> {
    let make = || {
        let mut event = hipEvent_t::NULL;
        // SAFETY: the runtime's function gets a place for the event.
        let code = unsafe { (real.event_create)(&mut event, flags) };
        if code == hipSuccess { Ok(event) } else { Err(code) }
    };
    let mut others = Vec::new();
    let mut made = make();
    while let Ok(event) = made
        && others.len() < MOST
        && has(event)
    {
        // It keeps its place until there is another one.
        others.push(event);
        made = make();
    }
    for event in others {
        // SAFETY: made above, and nobody else knows it.
        let _ = unsafe { (real.event_destroy)(event) };
    }
    made
}
