//! Handles of events that the program has destroyed. A new event can have the place of an old one, and so its handle. If it were
//! a mark, a program that uses the old handle by mistake would meet the mark, where the runtime (from 7 on) refuses a handle
//! that is none.

use crate::real::Real;
use hip_sys::types::{hipError_t, hipEvent_t, hipSuccess};
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Events that are made, at most, until one has another handle.
const MOST: usize = 16;
/// Handles that are kept: a program that destroys more uses none of them by mistake for so long.
const KEPT: usize = 4096;

/// The handles of one process. A forked child that starts has its own.
#[derive(Debug, Default)]
pub struct Ended(Mutex<BTreeSet<usize>>);

impl Ended {
    /// The program destroys this event; to be called before the runtime does.
    pub fn add(&self, event: hipEvent_t) {
        let mut all = self.0.lock();
        if event == hipEvent_t::NULL || !all.insert(event.as_raw()) {
            return;
        }
        if all.len() > KEPT {
            all.pop_first();
        }
    }

    /// The program has an event with this handle.
    pub fn remove(&self, event: hipEvent_t) {
        self.0.lock().remove(&event.as_raw());
    }

    fn has(&self, event: hipEvent_t) -> bool {
        self.0.lock().contains(&event.as_raw())
    }
}

/// An event of the library's own, with a handle that the program has not destroyed, if one is found soon.
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
        && real.ended.has(event)
    {
        // It keeps its place until there is another one.
        others.push(event);
        made = make();
    }
    let in_vain = others.len() == MOST;
    for event in others {
        if in_vain {
            // The allocator has more of them than that: the next marks take these, and nobody searches again and again.
            real.ended.remove(event);
        }
        // SAFETY: made above, and nobody else knows it.
        let _ = unsafe { (real.event_destroy)(event) };
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_known_until_they_are_events_again_and_not_without_bound() {
        let ended = Ended::default();
        let event = hipEvent_t::from_raw;
        ended.add(hipEvent_t::NULL);
        ended.add(event(8));
        assert!(ended.has(event(8)) && !ended.has(hipEvent_t::NULL));
        ended.remove(event(8));
        assert!(!ended.has(event(8)));
        (1..=2 * KEPT).for_each(|raw| ended.add(event(raw)));
        assert_eq!(ended.0.lock().len(), KEPT);
        assert!(ended.has(event(2 * KEPT)));
    }
}
