//! KFD events of one process, and the threads that wait for them.
//!
//! An event that resets itself wakes those who wait, and is gone: of two threads the one that was on its way into its wait
//! never hears of it. ROCr before 5.7 has such threads (all queues share one event), and the driver has told callers since ABI
//! 1.14 what they missed, if they say what they saw. Here the way into a wait is far longer than a system call, so that a
//! thread is told as well what others took since it looked, even if it says nothing: it wakes once for nothing, at worst.

use std::collections::BTreeMap;

use hip_sys::kfd::{self, EventData};

use crate::device::Time;
use crate::fuse::Unique;

/// Threads whose last look at an event is remembered.
const LOOKS: usize = 16;

/// One event.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) kind: u32,
    pub(super) auto_reset: bool,
    pub(super) signaled: bool,
    /// Counts its signals, for callers that say which one they saw last (ABI 1.14; 0 says nothing).
    pub(super) age: u64,
    /// Signals up to this one are owed to nobody.
    pub(super) settled: u64,
    /// Which signal each thread saw last, the latest look at the end.
    pub(super) seen: Vec<(i32, u64)>,
    /// What an exception event tells: an address (of a memory exception) and a device.
    pub(super) exception: Option<(u64, u32)>,
}

impl Event {
    /// Whether a signal has come that this thread has not seen, of those that others take away.
    pub(super) fn owes(&self, tid: i32) -> bool {
        let seen = self.seen.iter().find(|(other, _)| *other == tid).map_or(0, |(_, age)| *age);
        self.kind == kfd::EVENT_SIGNAL && self.auto_reset && self.age > seen.max(self.settled)
    }

    pub(super) fn seen_by(&mut self, tid: i32) {
        self.seen.retain(|(other, _)| *other != tid);
        if self.seen.len() == LOOKS {
            self.seen.remove(0);
        }
        self.seen.push((tid, self.age));
    }
}

/// The events of a process.
#[derive(Debug, Default)]
pub struct Events {
    pub(super) by_id: BTreeMap<u32, Event>,
}

impl Events {
    /// Creates an event; its id is also its slot in the event page. `None` when there are too many.
    pub fn create(&mut self, kind: u32, auto_reset: bool) -> Option<u32> {
        // Signal events have the slots of the page; 0 stays free because ROCr takes it for none.
        let (first, last) = match kind {
            kfd::EVENT_SIGNAL | kfd::EVENT_DEBUG => (1, kfd::SIGNAL_EVENT_LIMIT),
            _ => (kfd::SIGNAL_EVENT_LIMIT, 2 * kfd::SIGNAL_EVENT_LIMIT),
        };
        let id = (first..last).find(|id| !self.by_id.contains_key(id))?;
        let (settled, seen) = (1, Vec::new());
        let event = Event { kind, auto_reset, signaled: false, age: 1, settled, seen, exception: None };
        self.by_id.insert(id, event);
        Some(id)
    }

    /// Takes the signal of an event back; `false` if it is none that a program may change.
    pub fn reset(&mut self, id: u32) -> bool {
        let Some(event) = self.by_id.get_mut(&id).filter(|event| event.kind == kfd::EVENT_SIGNAL) else {
            return false;
        };
        event.signaled = false;
        event.settled = event.age;
        true
    }

    /// Whether the event has come and nobody has taken it.
    #[cfg(test)]
    pub fn is_signaled(&self, id: u32) -> bool {
        self.by_id.get(&id).is_some_and(|event| event.signaled)
    }

    /// Whether a program may signal this event.
    pub fn settable(&self, id: u32) -> bool {
        self.by_id.get(&id).is_some_and(|event| event.kind == kfd::EVENT_SIGNAL)
    }
}

/// An event that a thread waits for.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) data: EventData,
    /// The event has come.
    pub(super) activated: bool,
    /// It had not come when the wait began.
    pub(super) waits: bool,
    /// It has been destroyed meanwhile.
    pub(super) gone: bool,
}

/// A thread in WAIT_EVENTS.
#[derive(Debug)]
pub struct Waiter {
    pub(super) unique: Unique,
    pub(super) pid: i32,
    pub(super) tid: i32,
    /// When it gives up; `None` for never.
    pub(super) deadline: Option<Time>,
    /// The ioctl's argument, to be completed.
    pub(super) arguments: kfd::WaitEvents,
    pub(super) elements: Vec<Element>,
    /// Bytes the caller takes back.
    pub(super) out_size: usize,
}

impl Waiter {
    /// The process of the thread.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The request that is to be answered.
    pub fn unique(&self) -> Unique {
        self.unique
    }

    /// How the wait stands, as `test_event_condition` of `kfd_events.c` says it.
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

/// Fills in what an event tells beyond its having come; `false` if nothing.
pub(super) fn tell(event: &Event, data: &mut EventData) -> bool {
    match (event.kind, event.exception) {
        (kfd::EVENT_MEMORY, Some((va, gpu_id))) => {
            data.failure = [1, 0, 0, 0];
            data.va = va;
            data.gpu_id = gpu_id;
        }
        // Reset type (whole device), cause (it hung), whether memory is lost (yes), device (`kfd_hsa_hw_exception_data`).
        (kfd::EVENT_HW_EXCEPTION, Some((_, gpu_id))) => data.failure = [0, 0, 1, gpu_id],
        (kfd::EVENT_SIGNAL, _) if age(data) != 0 => {
            data.failure[0] = event.age as u32;
            data.failure[1] = (event.age >> 32) as u32;
        }
        _ => return false,
    }
    true
}

/// The signal that the caller saw last; 0 if it does not say.
pub(super) fn age(data: &EventData) -> u64 {
    u64::from(data.failure[0]) | u64::from(data.failure[1]) << 32
}
