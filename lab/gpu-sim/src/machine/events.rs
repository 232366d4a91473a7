//! The KFD events of a process, and the threads that wait for them.
//!
//! An auto-reset event wakes all waiting threads and is reset. A thread that is about to wait misses it. ROCr
//! before 5.7 has such threads, because all queues share one event. Since ABI 1.14 the driver reports missed
//! signals to callers that state the last signal they saw. In the simulation the path into a wait takes far
//! longer than a system call. Therefore a thread that states nothing is also woken for the signals that other
//! threads took since its last wait; at worst it wakes once without need.

use std::collections::BTreeMap;

use hip_sys::kfd::{self, EventData};

use crate::device::Time;
use crate::fuse::Unique;

/// The number of threads of an event whose last seen signal is kept.
const WATCHERS: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) kind: u32,
    pub(super) auto_reset: bool,
    pub(super) signaled: bool,
    /// The number of signals, for callers that state the last one they saw (ABI 1.14; 0 states nothing).
    pub(super) age: u64,
    /// The signal up to which no thread counts as having missed one.
    pub(super) acknowledged: u64,
    /// The last signal that each thread saw; the thread that looked last is at the end.
    pub(super) seen: Vec<(i32, u64)>,
    /// The data of an exception event: an address (of a memory exception) and a device.
    pub(super) exception: Option<(u64, u32)>,
}

impl Event {
    /// Returns true if this thread has missed a signal that other threads took.
    pub(super) fn was_missed_by(&self, tid: i32) -> bool {
        let seen = self.seen.iter().find(|(other, _)| *other == tid).map_or(0, |(_, age)| *age);
        self.kind == kfd::EVENT_SIGNAL && self.auto_reset && self.age > seen.max(self.acknowledged)
    }

    pub(super) fn seen_by(&mut self, tid: i32) {
        self.seen.retain(|(other, _)| *other != tid);
        if self.seen.len() == WATCHERS {
            self.seen.remove(0);
        }
        self.seen.push((tid, self.age));
    }
}

#[derive(Debug, Default)]
pub struct Events {
    pub(super) by_id: BTreeMap<u32, Event>,
}

impl Events {
    /// Creates an event. Returns its id, which is also its slot in the event page; `None` if there are too
    /// many.
    pub fn create(&mut self, kind: u32, auto_reset: bool) -> Option<u32> {
        // Signal events use the slots of the page; ROCr takes slot 0 for no event.
        let (first, last) = match kind {
            kfd::EVENT_SIGNAL | kfd::EVENT_DEBUG => (1, kfd::SIGNAL_EVENT_LIMIT),
            _ => (kfd::SIGNAL_EVENT_LIMIT, 2 * kfd::SIGNAL_EVENT_LIMIT),
        };
        let id = (first..last).find(|id| !self.by_id.contains_key(id))?;
        let (acknowledged, seen) = (1, Vec::new());
        let event = Event { kind, auto_reset, signaled: false, age: 1, acknowledged, seen, exception: None };
        self.by_id.insert(id, event);
        Some(id)
    }

    /// Resets an event. Returns false if a program may not change it.
    pub fn reset(&mut self, id: u32) -> bool {
        let Some(event) = self.by_id.get_mut(&id).filter(|event| event.kind == kfd::EVENT_SIGNAL) else {
            return false;
        };
        event.signaled = false;
        event.acknowledged = event.age;
        true
    }

    #[cfg(test)]
    pub fn is_signaled(&self, id: u32) -> bool {
        self.by_id.get(&id).is_some_and(|event| event.signaled)
    }

    /// Returns true if a program may signal this event.
    pub fn can_be_set(&self, id: u32) -> bool {
        self.by_id.get(&id).is_some_and(|event| event.kind == kfd::EVENT_SIGNAL)
    }
}

#[derive(Debug)]
pub(super) struct Element {
    pub(super) data: EventData,
    /// True once the event was signaled.
    pub(super) activated: bool,
    /// True if the event was not signaled when the wait began.
    pub(super) waits: bool,
    /// True once the event was destroyed.
    pub(super) gone: bool,
}

/// A thread in WAIT_EVENTS.
#[derive(Debug)]
pub struct Waiter {
    pub(super) unique: Unique,
    pub(super) pid: i32,
    pub(super) tid: i32,
    /// The time at which the wait ends; `None` for never.
    pub(super) deadline: Option<Time>,
    /// The ioctl's argument, which the answer completes.
    pub(super) arguments: kfd::WaitEvents,
    pub(super) elements: Vec<Element>,
    /// The number of bytes that the caller takes back.
    pub(super) out_size: usize,
}

impl Waiter {
    /// Returns the state of the wait, as `test_event_condition` of `kfd_events.c` does.
    pub(super) fn outcome(&self) -> u32 {
        let mut all = true;
        for element in &self.elements {
            if element.gone {
                return kfd::WAIT_RESULT_FAIL;
            }
            if element.activated && self.arguments.wait_for_all == 0 {
                return kfd::WAIT_RESULT_COMPLETE;
            }
            all &= element.activated;
        }
        if all { kfd::WAIT_RESULT_COMPLETE } else { kfd::WAIT_RESULT_TIMEOUT }
    }
}

/// Fills in the data of an event. Returns false if it has none.
pub(super) fn fill_in(event: &Event, data: &mut EventData) -> bool {
    match (event.kind, event.exception) {
        (kfd::EVENT_MEMORY, Some((va, gpu_id))) => {
            data.failure = [1, 0, 0, 0];
            data.va = va;
            data.gpu_id = gpu_id;
        }
        // Reset type (whole device), cause (it hung), whether memory is lost (yes), device
        // (`kfd_hsa_hw_exception_data`).
        (kfd::EVENT_HW_EXCEPTION, Some((_, gpu_id))) => data.failure = [0, 0, 1, gpu_id],
        (kfd::EVENT_SIGNAL, _) if age(data) != 0 => {
            data.failure[0] = event.age as u32;
            data.failure[1] = (event.age >> 32) as u32;
        }
        _ => return false,
    }
    true
}

/// Returns the last signal that the caller states to have seen; 0 if it states none.
pub(super) fn age(data: &EventData) -> u64 {
    u64::from(data.failure[0]) | u64::from(data.failure[1]) << 32
}
