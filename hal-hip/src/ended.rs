//! Handles of events that the program has destroyed. A new event can reuse the memory of an old one, and so
//! its handle. If that event were a marker, a program that uses the old handle by mistake would reach the
//! marker, where the runtime (from 7 on) refuses an invalid handle.

use hip_sys::types::hipEvent_t;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// The most handles that are kept: a program does not use one by mistake after destroying so many more.
const KEPT: usize = 4096;

/// The destroyed handles of one process. A forked child that starts HIP has its own.
#[derive(Debug, Default)]
pub struct Ended(Mutex<BTreeSet<usize>>);

impl Ended {
    /// Adds an event that the program destroys. Call it before the runtime destroys the event.
    pub fn add(&self, event: hipEvent_t) {
        let mut all = self.0.lock();
        if event == hipEvent_t::NULL || !all.insert(event.as_raw()) {
            return;
        }
        if all.len() > KEPT {
            all.pop_first();
        }
    }

    /// Removes a handle: the program has an event with this handle.
    pub fn remove(&self, event: hipEvent_t) {
        self.0.lock().remove(&event.as_raw());
    }

    pub(crate) fn has(&self, event: hipEvent_t) -> bool {
        self.0.lock().contains(&event.as_raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destroyed_handles_are_known_until_reused_and_within_a_bound() {
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
