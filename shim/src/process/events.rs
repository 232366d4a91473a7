//! Events whose record or wait is still deferred. The runtime knows everything about all other events.
//!
//! The runtime does not know that a deferred record is to come, and would call the event complete. The record
//! is therefore noted here, and queries of the event are answered from it. A later record follows all waits
//! for the older one, because a wait refers to the last record when it was submitted. If the program destroys
//! the event meanwhile, the last deferred command that names it destroys it.
//!
//! The last record of every event is noted with the work that it proves complete: once the event is complete,
//! all work before the record is (`xqueue`'s evidence). An event that another process or a graph may record
//! proves nothing.

use hal_hip::real::RuntimeFunctions;
use hip_sys::types::{hipError_t, hipEvent_t, hipEventDisableTiming, hipEventInterprocess, hipSuccess};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::ffi::c_uint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use xqueue::{After, Completion, XQueue};

/// The events of a process, as far as the runtime does not know them.
pub(crate) struct Events {
    real: &'static RuntimeFunctions,
    /// The number of `states`; zero is the common case.
    count: AtomicUsize,
    states: Mutex<HashMap<usize, State>>,
    /// The events that the program has made and not destroyed.
    live: Mutex<HashSet<usize>>,
    /// True if `live` has all of them.
    from_the_start: bool,
    /// The device of each event if there are several: the runtime refuses a record on another one.
    devices: Mutex<HashMap<usize, u32>>,
    /// The events without timing, for queries of times while a record is deferred.
    untimed: Mutex<HashSet<usize>>,
    records: Records,
}

/// The last record of each event.
#[derive(Default)]
struct Records {
    /// The records by their events' handles, spread over several locks, each of which is held shortly.
    shards: [Mutex<HashMap<usize, Record>>; 16],
    /// The number of graph launches. A graph may record any event, after which its earlier record proves
    /// nothing.
    graphs: AtomicU64,
}

enum Record {
    /// Another process may record the event, or a record was not seen.
    Foreign,
    Last {
        evidence: Arc<Completion>,
        graphs: u64,
    },
}

impl Records {
    fn shard(&self, event: hipEvent_t) -> parking_lot::MutexGuard<'_, HashMap<usize, Record>> {
        // Handles are addresses of objects larger than 64 bytes.
        self.shards[(event.as_raw() >> 6) % self.shards.len()].lock()
    }

    /// Forgets a record: the event is about to be recorded again, or is destroyed.
    fn forget(&self, event: hipEvent_t) {
        let mut shard = self.shard(event);
        if let Some(Record::Last { .. }) = shard.get(&event.as_raw()) {
            shard.remove(&event.as_raw());
        }
    }
}

struct State {
    named: Arc<Named>,
    /// The last record, if it is deferred.
    record: Option<After>,
    /// The deferred waits for the last record.
    waits: Vec<After>,
}

/// An event that deferred commands name.
pub(crate) struct Named {
    real: &'static RuntimeFunctions,
    event: hipEvent_t,
    /// True once the program has destroyed it.
    doomed: AtomicBool,
}

impl Drop for Named {
    fn drop(&mut self) {
        if self.doomed.load(Ordering::Acquire) {
            // SAFETY: the program has destroyed the event, and no command names it any more.
            let _ = unsafe { (self.real.event_destroy)(self.event) };
        }
    }
}

impl State {
    /// Forgets launched commands. Returns true if nothing is left.
    fn settle(&mut self) -> bool {
        self.record = self.record.take().filter(After::is_open);
        self.waits.retain(After::is_open);
        self.record.is_none() && self.waits.is_empty()
    }
}

impl Events {
    /// Makes the events of a process; `from_the_start` is true if the program has no event yet.
    pub(crate) fn new(real: &'static RuntimeFunctions, from_the_start: bool) -> Self {
        Self {
            real,
            count: AtomicUsize::new(0),
            states: Mutex::default(),
            live: Mutex::default(),
            from_the_start,
            devices: Mutex::default(),
            untimed: Mutex::default(),
            records: Records::default(),
        }
    }

    /// Notes an event that the program has made with these flags.
    pub(crate) fn created(&self, event: hipEvent_t, flags: c_uint) {
        self.records.shard(event).remove(&event.as_raw());
        self.forget_end(event);
        self.live.lock().insert(event.as_raw());
        if flags & hipEventDisableTiming != 0 {
            self.untimed.lock().insert(event.as_raw());
        }
        if flags & hipEventInterprocess != 0 {
            self.foreign(event);
        }
        if self.real.devices > 1 {
            self.devices.lock().insert(event.as_raw(), self.real.current_device());
        }
    }

    /// Forgets that an event with this handle was destroyed.
    fn forget_end(&self, event: hipEvent_t) {
        if self.real.major >= 7 {
            self.real.ended.remove(event);
        }
    }

    /// Notes that the program has opened another process's event.
    pub(crate) fn opened(&self, event: hipEvent_t) {
        self.forget_end(event);
        self.live.lock().insert(event.as_raw());
        self.foreign(event);
    }

    /// Returns true if the event certainly exists. For any other event the runtime has to decide, by the call
    /// itself.
    pub(crate) fn is_live(&self, event: hipEvent_t) -> bool {
        !self.from_the_start || self.live.lock().contains(&event.as_raw())
    }

    /// Notes that another process may record the event, or that a record was not seen.
    pub(crate) fn foreign(&self, event: hipEvent_t) {
        self.records.shard(event).insert(event.as_raw(), Record::Foreign);
    }

    pub(crate) fn is_foreign(&self, event: hipEvent_t) -> bool {
        matches!(self.records.shard(event).get(&event.as_raw()), Some(Record::Foreign))
    }

    /// Notes the launch of a graph, which may record any event.
    pub(crate) fn graph_launched(&self) {
        self.records.graphs.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes a call that records the event. `queue` is the queue that admitted the call and holds its submit
    /// lock. Without a queue the record proves nothing.
    pub(crate) fn recording(
        &self,
        event: hipEvent_t,
        queue: Option<&Arc<XQueue>>,
        call: impl FnOnce() -> hipError_t,
    ) -> hipError_t {
        // Before the call: a thread that sees the event complete meanwhile must not use the old evidence.
        let graphs = self.records.graphs.load(Ordering::Acquire);
        self.records.forget(event);
        let evidence = queue.filter(|_| !event.is_null()).map(XQueue::evidence);
        let code = call();
        if let Some(evidence) = evidence.filter(|_| code == hipSuccess) {
            let record = Record::Last { evidence: Arc::new(evidence), graphs };
            let mut shard = self.records.shard(event);
            match shard.get(&event.as_raw()) {
                None => drop(shard.insert(event.as_raw(), record)),
                // Two threads record at once, and the last record is unknown.
                Some(Record::Last { .. }) => drop(shard.remove(&event.as_raw())),
                Some(Record::Foreign) => {}
            }
        }
        code
    }

    /// Returns what the last record of the event proves. Has to be called before the runtime is asked.
    pub(crate) fn evidence(&self, event: hipEvent_t) -> Option<Arc<Completion>> {
        match self.records.shard(event).get(&event.as_raw())? {
            Record::Last { evidence, graphs } if *graphs == self.records.graphs.load(Ordering::Acquire) => {
                Some(evidence.clone())
            }
            _ => None,
        }
    }

    /// Returns true if the record with this evidence is still the last one.
    pub(crate) fn is_last(&self, event: hipEvent_t, evidence: &Arc<Completion>) -> bool {
        self.evidence(event).is_some_and(|last| Arc::ptr_eq(&last, evidence))
    }

    /// Notes that the event was seen complete. `evidence` is what its record proved before the runtime was
    /// asked.
    pub(crate) fn seen(&self, event: hipEvent_t, evidence: Option<Arc<Completion>>) {
        if let Some(evidence) = evidence.filter(|evidence| self.is_last(event, evidence)) {
            self.records.forget(event);
            evidence.seen();
        }
    }

    /// Returns true if the runtime certainly accepts a record of the event on this device.
    pub(crate) fn is_on(&self, event: hipEvent_t, device: u32) -> bool {
        !event.is_null()
            && self.is_live(event)
            && (self.real.devices <= 1 || self.devices.lock().get(&event.as_raw()) == Some(&device))
    }

    /// Returns true if the event is known to belong to another device, so that the runtime refuses its record
    /// here.
    pub(crate) fn is_elsewhere(&self, event: hipEvent_t, device: u32) -> bool {
        self.real.devices > 1
            && self.devices.lock().get(&event.as_raw()).is_some_and(|known| *known != device)
    }

    /// Returns true if the flags and devices of both events allow to measure the time between them.
    pub(crate) fn are_timed(&self, events: [hipEvent_t; 2]) -> bool {
        let [one, other] = events.map(|event| event.as_raw());
        let untimed = self.untimed.lock();
        if untimed.contains(&one) || untimed.contains(&other) {
            return false;
        }
        drop(untimed);
        let devices = self.devices.lock();
        self.real.devices <= 1 || devices.get(&one) == devices.get(&other)
    }

    /// Runs `body` with the event's state, if any of its commands is still deferred.
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

    /// Returns the event for a deferred command, which keeps it alive.
    pub(crate) fn name(&self, event: hipEvent_t) -> Arc<Named> {
        let known = self.with(event, |state| state.named.clone());
        known.unwrap_or_else(|| Arc::new(Named { real: self.real, event, doomed: AtomicBool::new(false) }))
    }

    /// Returns the commands that a record must follow: the record before, and the waits for it.
    pub(crate) fn before_record(&self, event: hipEvent_t) -> Vec<After> {
        self.with(event, |state| state.waits.iter().chain(&state.record).cloned().collect())
            .unwrap_or_default()
    }

    /// Returns the last record, if it is still deferred. Waits, queries and synchronizations refer to it.
    pub(crate) fn open_record(&self, event: hipEvent_t) -> Option<After> {
        self.with(event, |state| state.record.clone()).flatten()
    }

    /// Notes a record that was made at once: the runtime knows it.
    pub(crate) fn recorded(&self, event: hipEvent_t) {
        self.with(event, |state| {
            state.record = None;
            state.waits.clear();
        });
    }

    pub(crate) fn record_deferred(&self, event: hipEvent_t, named: &Arc<Named>, record: After) {
        self.note(event, named, |state| {
            state.record = Some(record);
            state.waits.clear();
        });
    }

    pub(crate) fn wait_deferred(&self, event: hipEvent_t, named: &Arc<Named>, wait: After) {
        self.note(event, named, |state| state.waits.push(wait));
    }

    /// Notes that the program destroys the event. Returns true if deferred commands name it: the last of them
    /// destroys it.
    pub(crate) fn doom(&self, event: hipEvent_t) -> bool {
        self.records.shard(event).remove(&event.as_raw());
        if self.live.lock().remove(&event.as_raw()) && self.real.major >= 7 {
            self.real.ended.add(event);
        }
        self.untimed.lock().remove(&event.as_raw());
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
