//! Events whose record, or a wait for them, is still deferred. Of all others the runtime knows everything.
//!
//! The runtime cannot know that an event will be recorded: it would call it complete. So a deferred record is noted
//! here, and whoever asks for the event is answered by it. A later record follows all waits for the older one, because
//! a wait means the record that was the last one when it was submitted. An event that is destroyed meanwhile is
//! destroyed with the last deferred command that names it.

use hal_hip::real::Real;
use hip_sys::types::hipEvent_t;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use xqueue::{After, Ticket, XQueue};

/// The events of a process that are more than the runtime knows.
pub(crate) struct Events {
    real: &'static Real,
    /// How many there are; zero is the common case.
    count: AtomicUsize,
    states: Mutex<HashMap<usize, State>>,
    /// Where there are several devices: that of each event, because the runtime refuses a record on another one.
    devices: Mutex<HashMap<usize, u32>>,
}

struct State {
    named: Arc<Named>,
    /// The last record, where it was deferred.
    record: Option<After>,
    /// Waits for the last record that were deferred.
    waits: Vec<After>,
}

/// An event that deferred commands name.
pub(crate) struct Named {
    real: &'static Real,
    event: hipEvent_t,
    /// The program has destroyed it.
    doomed: AtomicBool,
}

impl Drop for Named {
    fn drop(&mut self) {
        if self.doomed.load(Ordering::Acquire) {
            // SAFETY: the program has given the event up, and no command names it any more.
            let _ = unsafe { (self.real.event_destroy)(self.event) };
        }
    }
}

fn is_open(after: &After) -> bool {
    !after.queue.is_launched(after.through)
}

impl State {
    /// Forgets what has been launched. True: nothing is left.
    fn settle(&mut self) -> bool {
        self.record = self.record.take().filter(is_open);
        self.waits.retain(is_open);
        self.record.is_none() && self.waits.is_empty()
    }
}

impl Events {
    pub(crate) fn new(real: &'static Real) -> Self {
        Self {
            real,
            count: AtomicUsize::new(0),
            states: Mutex::new(HashMap::new()),
            devices: Mutex::new(HashMap::new()),
        }
    }

    /// The program has made an event.
    pub(crate) fn created(&self, event: hipEvent_t) {
        if self.real.devices > 1 {
            self.devices.lock().insert(event.as_raw(), self.real.current_device());
        }
    }

    /// Whether a record of the event on this device is sure to be one that the runtime takes.
    pub(crate) fn is_on(&self, event: hipEvent_t, device: u32) -> bool {
        !event.is_null()
            && (self.real.devices <= 1 || self.devices.lock().get(&event.as_raw()) == Some(&device))
    }

    /// Runs `body` with the event's state, if it has one that still matters.
    fn with<R>(&self, event: hipEvent_t, body: impl FnOnce(&mut State) -> R) -> Option<R> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut states = self.states.lock();
        let state = states.get_mut(&event.as_raw())?;
        if state.settle() {
            states.remove(&event.as_raw());
            self.count.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(body(state))
    }

    fn note(&self, event: hipEvent_t, named: &Arc<Named>, change: impl FnOnce(&mut State)) {
        let mut states = self.states.lock();
        let state = states.entry(event.as_raw()).or_insert_with(|| {
            self.count.fetch_add(1, Ordering::AcqRel);
            State { named: named.clone(), record: None, waits: Vec::new() }
        });
        change(state);
    }

    /// The event for a deferred command that names it.
    pub(crate) fn name(&self, event: hipEvent_t) -> Arc<Named> {
        let known = self.with(event, |state| state.named.clone());
        known.unwrap_or_else(|| Arc::new(Named { real: self.real, event, doomed: AtomicBool::new(false) }))
    }

    /// What a record must follow: the record before, and the waits for it.
    pub(crate) fn before_record(&self, event: hipEvent_t) -> Vec<After> {
        self.with(event, |state| state.waits.iter().chain(&state.record).cloned().collect())
            .unwrap_or_default()
    }

    /// The last record, if it is still deferred: what a wait, a query or a synchronization is about.
    pub(crate) fn open_record(&self, event: hipEvent_t) -> Option<After> {
        self.with(event, |state| state.record.clone()).flatten()
    }

    /// A record was launched at once: the runtime knows it.
    pub(crate) fn recorded(&self, event: hipEvent_t) {
        self.with(event, |state| {
            state.record = None;
            state.waits.clear();
        });
    }

    /// A record was deferred.
    pub(crate) fn record_deferred(
        &self,
        event: hipEvent_t,
        named: &Arc<Named>,
        queue: &Arc<XQueue>,
        ticket: Ticket,
    ) {
        self.note(event, named, |state| {
            state.record = Some(After { queue: queue.clone(), through: ticket });
            state.waits.clear();
        });
    }

    /// A wait was deferred.
    pub(crate) fn wait_deferred(
        &self,
        event: hipEvent_t,
        named: &Arc<Named>,
        queue: &Arc<XQueue>,
        ticket: Ticket,
    ) {
        self.note(event, named, |state| state.waits.push(After { queue: queue.clone(), through: ticket }));
    }

    /// The program destroys the event. True: deferred commands name it, and the last of them destroys it.
    pub(crate) fn doom(&self, event: hipEvent_t) -> bool {
        if self.real.devices > 1 {
            self.devices.lock().remove(&event.as_raw());
        }
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut states = self.states.lock();
        let Some(mut state) = states.remove(&event.as_raw()) else { return false };
        self.count.fetch_sub(1, Ordering::AcqRel);
        drop(states);
        if state.settle() && Arc::strong_count(&state.named) == 1 {
            return false;
        }
        state.named.doomed.store(true, Ordering::Release);
        true
    }
}
