//! Events whose record, or a wait for them, is still deferred. Of all others the runtime knows everything.
//!
//! The runtime cannot know that an event will be recorded: it would call it complete. So a deferred record is noted
//! here, and whoever asks for the event is answered by it. A later record follows all waits for the older one, because
//! a wait means the record that was the last one when it was submitted. An event that is destroyed meanwhile is
//! destroyed with the last deferred command that names it.
//!
//! Of every event its last record is known as well, with what it proves: who sees the event complete knows that all in
//! front of the record is complete (`xqueue`'s evidence). An event that others record too, another process or a graph,
//! proves nothing.

use hal_hip::real::Real;
use hip_sys::types::{hipError_t, hipEvent_t, hipEventDisableTiming, hipEventInterprocess, hipSuccess};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::ffi::c_uint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use xqueue::{After, Evidence, Ticket, XQueue};

/// The events of a process that are more than the runtime knows.
pub(crate) struct Events {
    real: &'static Real,
    /// How many there are; zero is the common case.
    count: AtomicUsize,
    states: Mutex<HashMap<usize, State>>,
    /// Those that the program has made and not destroyed; and whether there is none that was not seen here.
    live: Mutex<HashSet<usize>>,
    from_the_start: bool,
    /// Where there are several devices: that of each event, because the runtime refuses a record on another one.
    devices: Mutex<HashMap<usize, u32>>,
    /// Events without timing: the runtime is not asked for the time of one whose record it does not know.
    untimed: Mutex<HashSet<usize>>,
    records: Records,
}

/// What is known of the last record of each event.
struct Records {
    /// By the event's handle, spread over several locks, each of which is held for a moment.
    shards: [Mutex<HashMap<usize, Record>>; 16],
    /// How many graphs have been launched. A graph may record events; then their earlier records prove nothing.
    graphs: AtomicU64,
}

enum Record {
    /// Somebody else may record the event, unseen.
    Foreign,
    Last {
        evidence: Arc<Evidence>,
        graphs: u64,
    },
}

impl Records {
    fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::new(HashMap::new())), graphs: AtomicU64::new(0) }
    }

    fn shard(&self, event: hipEvent_t) -> parking_lot::MutexGuard<'_, HashMap<usize, Record>> {
        // Handles are addresses of objects larger than this.
        self.shards[(event.as_raw() >> 6) % self.shards.len()].lock()
    }

    /// The event is about to be recorded anew, or gone.
    fn forget(&self, event: hipEvent_t) {
        let mut shard = self.shard(event);
        if let Some(Record::Last { .. }) = shard.get(&event.as_raw()) {
            shard.remove(&event.as_raw());
        }
    }
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
    /// `from_the_start`: there is no event yet that was not seen here.
    pub(crate) fn new(real: &'static Real, from_the_start: bool) -> Self {
        Self {
            real,
            count: AtomicUsize::new(0),
            states: Mutex::new(HashMap::new()),
            live: Mutex::new(HashSet::new()),
            from_the_start,
            devices: Mutex::new(HashMap::new()),
            untimed: Mutex::new(HashSet::new()),
            records: Records::new(),
        }
    }

    /// The program has made an event with these flags.
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

    /// The handle is one of an event again.
    fn forget_end(&self, event: hipEvent_t) {
        if self.real.major >= 7 {
            self.real.ended.remove(event);
        }
    }

    /// The program has opened another process's event.
    pub(crate) fn opened(&self, event: hipEvent_t) {
        self.forget_end(event);
        self.live.lock().insert(event.as_raw());
        self.foreign(event);
    }

    /// Whether the event is sure to be one that the program has and has not destroyed. Every other one is the runtime's to judge,
    /// with the call itself.
    pub(crate) fn is_live(&self, event: hipEvent_t) -> bool {
        !self.from_the_start || self.live.lock().contains(&event.as_raw())
    }

    /// Somebody else may record the event from now on, unseen.
    pub(crate) fn foreign(&self, event: hipEvent_t) {
        self.records.shard(event).insert(event.as_raw(), Record::Foreign);
    }

    /// Whether somebody else may record the event, unseen.
    pub(crate) fn is_foreign(&self, event: hipEvent_t) -> bool {
        matches!(self.records.shard(event).get(&event.as_raw()), Some(Record::Foreign))
    }

    /// A graph is launched, which may record any event.
    pub(crate) fn graph_launched(&self) {
        self.records.graphs.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes a call that records the event. `queue`: the queue that has let the call through, holding submit; without
    /// one the record proves nothing.
    pub(crate) fn recording(
        &self,
        event: hipEvent_t,
        queue: Option<&Arc<XQueue>>,
        call: impl FnOnce() -> hipError_t,
    ) -> hipError_t {
        // Before the call: who sees it complete from now on and finds no evidence only knows less.
        let graphs = self.records.graphs.load(Ordering::Acquire);
        self.records.forget(event);
        let evidence = queue.filter(|_| !event.is_null()).map(XQueue::evidence);
        let code = call();
        if let Some(evidence) = evidence.filter(|_| code == hipSuccess) {
            let record = Record::Last { evidence: Arc::new(evidence), graphs };
            let mut shard = self.records.shard(event);
            match shard.get(&event.as_raw()) {
                None => drop(shard.insert(event.as_raw(), record)),
                // Two threads record at once: nobody can tell which record is the last.
                Some(Record::Last { .. }) => drop(shard.remove(&event.as_raw())),
                Some(Record::Foreign) => {}
            }
        }
        code
    }

    /// What the last record of the event proves. To be asked before the runtime is.
    pub(crate) fn evidence(&self, event: hipEvent_t) -> Option<Arc<Evidence>> {
        match self.records.shard(event).get(&event.as_raw())? {
            Record::Last { evidence, graphs } if *graphs == self.records.graphs.load(Ordering::Acquire) => {
                Some(evidence.clone())
            }
            _ => None,
        }
    }

    /// Whether the record with this evidence is still the last one.
    pub(crate) fn is_last(&self, event: hipEvent_t, evidence: &Arc<Evidence>) -> bool {
        self.evidence(event).is_some_and(|last| Arc::ptr_eq(&last, evidence))
    }

    /// The event was seen complete; `evidence` was known of it before the runtime was asked.
    pub(crate) fn seen(&self, event: hipEvent_t, evidence: Option<Arc<Evidence>>) {
        if let Some(evidence) = evidence.filter(|evidence| self.is_last(event, evidence)) {
            self.records.forget(event);
            evidence.seen();
        }
    }

    /// Whether a record of the event on this device is sure to be one that the runtime takes.
    pub(crate) fn is_on(&self, event: hipEvent_t, device: u32) -> bool {
        !event.is_null()
            && self.is_live(event)
            && (self.real.devices <= 1 || self.devices.lock().get(&event.as_raw()) == Some(&device))
    }

    /// Whether the event is one of another device, so that the runtime refuses its record here.
    pub(crate) fn is_elsewhere(&self, event: hipEvent_t, device: u32) -> bool {
        self.real.devices > 1
            && self.devices.lock().get(&event.as_raw()).is_some_and(|known| *known != device)
    }

    /// Whether the runtime would tell the time between these two once both were complete, as far as their flags and
    /// devices go.
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
