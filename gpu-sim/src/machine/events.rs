//! KFD events of one process, and the threads that wait for them.

use std::collections::BTreeMap;

use hip_sys::kfd::{self, EventData, Plain};

use super::Machine;
use crate::device::Time;
use crate::fuse::Unique;
use crate::space::client;

/// One event.
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    kind: u32,
    auto_reset: bool,
    signaled: bool,
    /// Counts its signals, for callers that say which one they saw last (ABI 1.14).
    age: u64,
    /// What a memory exception event tells.
    exception: Option<(u64, u32)>,
}

/// The events of a process.
#[derive(Debug, Default)]
pub struct Events {
    by_id: BTreeMap<u32, Event>,
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
        self.by_id.insert(id, Event { kind, auto_reset, ..Event::default() });
        Some(id)
    }

    /// Destroys an event.
    pub fn destroy(&mut self, id: u32) -> bool {
        self.by_id.remove(&id).is_some()
    }

    /// Signals an event.
    pub fn set(&mut self, id: u32) -> bool {
        let Some(event) = self.by_id.get_mut(&id) else { return false };
        event.signaled = true;
        event.age += 1;
        true
    }

    /// Takes the signal of an event back.
    pub fn reset(&mut self, id: u32) -> bool {
        let Some(event) = self.by_id.get_mut(&id) else { return false };
        event.signaled = false;
        true
    }

    /// Signals every memory exception event with an address; `false` if there is none.
    pub fn memory_exception(&mut self, va: u64, gpu_id: u32) -> bool {
        let mut any = false;
        for event in self.by_id.values_mut().filter(|event| event.kind == kfd::EVENT_MEMORY) {
            event.signaled = true;
            event.age += 1;
            event.exception = Some((va, gpu_id));
            any = true;
        }
        any
    }

    /// Whether an element's event has come: it is signaled, or its age is not the one the caller saw.
    fn ready(&self, data: &EventData) -> Option<bool> {
        let event = self.by_id.get(&data.event_id)?;
        let seen = age(data);
        Some(event.signaled || (event.kind == kfd::EVENT_SIGNAL && seen != 0 && seen != event.age))
    }

    /// Fills in what the caller is told of a signaled event, and resets it if it is so made.
    fn take(&mut self, data: &mut EventData) {
        let Some(event) = self.by_id.get_mut(&data.event_id) else { return };
        match (event.kind, event.exception) {
            (kfd::EVENT_MEMORY, Some((va, gpu_id))) if event.signaled => {
                data.failure = [1, 0, 0, 0];
                data.va = va;
                data.gpu_id = gpu_id;
            }
            (kfd::EVENT_SIGNAL, _) if age(data) != 0 => {
                data.failure[0] = event.age as u32;
                data.failure[1] = (event.age >> 32) as u32;
            }
            _ => {}
        }
        if event.auto_reset {
            event.signaled = false;
        }
    }
}

fn age(data: &EventData) -> u64 {
    u64::from(data.failure[0]) | u64::from(data.failure[1]) << 32
}

/// A thread in WAIT_EVENTS.
#[derive(Debug)]
pub struct Waiter {
    /// Its request.
    pub unique: Unique,
    /// Its process.
    pub pid: i32,
    /// When it gives up; `None` for never.
    pub deadline: Option<Time>,
    /// The ioctl's argument, to be completed.
    pub arguments: kfd::WaitEvents,
    /// The elements as the caller gave them.
    pub elements: Vec<EventData>,
    /// Bytes the caller takes back.
    pub out_size: usize,
}

impl Machine {
    /// Takes a waiting thread: it is answered at once if it need not wait.
    pub fn wait(&mut self, waiter: Waiter) {
        self.waiters.push(waiter);
        self.wake(0);
    }

    /// Answers every waiting thread whose events have come or whose time is over.
    pub fn wake(&mut self, now: Time) {
        let mut i = 0;
        while i < self.waiters.len() {
            match self.outcome(i, now) {
                None => i += 1,
                Some(result) => {
                    let mut waiter = self.waiters.swap_remove(i);
                    waiter.arguments.wait_result = result;
                    let answer = self.finish(&mut waiter);
                    self.answers.push((waiter.unique, answer));
                }
            }
        }
    }

    fn outcome(&self, i: usize, now: Time) -> Option<u32> {
        let waiter = &self.waiters[i];
        let Some(process) = self.processes.get(&waiter.pid) else { return Some(kfd::WAIT_RESULT_FAIL) };
        let (mut any, mut all) = (false, true);
        for element in &waiter.elements {
            match process.events.ready(element) {
                None => return Some(kfd::WAIT_RESULT_FAIL),
                Some(ready) => {
                    any |= ready;
                    all &= ready;
                }
            }
        }
        if any && (all || waiter.arguments.wait_for_all == 0) {
            Some(kfd::WAIT_RESULT_COMPLETE)
        } else if waiter.deadline.is_some_and(|deadline| deadline <= now) {
            Some(kfd::WAIT_RESULT_TIMEOUT)
        } else {
            None
        }
    }

    fn finish(&mut self, waiter: &mut Waiter) -> Result<Vec<u8>, i32> {
        if waiter.arguments.wait_result == kfd::WAIT_RESULT_COMPLETE
            && let Some(process) = self.processes.get_mut(&waiter.pid)
        {
            for element in &mut waiter.elements {
                if process.events.ready(element) == Some(true) {
                    process.events.take(element);
                }
            }
            let bytes: Vec<u8> =
                waiter.elements.iter().flat_map(|element| element.as_bytes().to_vec()).collect();
            client::write(waiter.pid, waiter.arguments.events_ptr, &bytes).map_err(|_| libc::EFAULT)?;
        }
        let mut out = waiter.arguments.as_bytes().to_vec();
        out.truncate(waiter.out_size);
        Ok(out)
    }

    /// The earliest time at which a waiting thread gives up.
    pub fn next_deadline(&self) -> Option<Time> {
        self.waiters.iter().filter_map(|waiter| waiter.deadline).min()
    }

    /// Answers the thread with EINTR: a signal came. `false` if no thread waits under this request.
    pub fn interrupt(&mut self, unique: Unique) -> bool {
        let Some(i) = self.waiters.iter().position(|waiter| waiter.unique == unique) else { return false };
        self.waiters.swap_remove(i);
        self.answers.push((unique, Err(libc::EINTR)));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_slots_and_are_reused() {
        let mut events = Events::default();
        assert_eq!(events.create(kfd::EVENT_SIGNAL, true), Some(1));
        assert_eq!(events.create(kfd::EVENT_SIGNAL, true), Some(2));
        assert!(events.create(kfd::EVENT_MEMORY, false).unwrap() >= kfd::SIGNAL_EVENT_LIMIT);
        assert!(events.destroy(1) && !events.destroy(1));
        assert_eq!(events.create(kfd::EVENT_SIGNAL, true), Some(1));
        for _ in 2..kfd::SIGNAL_EVENT_LIMIT - 1 {
            assert!(events.create(kfd::EVENT_SIGNAL, true).is_some());
        }
        assert_eq!(events.create(kfd::EVENT_SIGNAL, true), None);
    }

    #[test]
    fn an_auto_reset_event_wakes_once_and_ages() {
        let mut events = Events::default();
        let id = events.create(kfd::EVENT_SIGNAL, true).unwrap();
        let mut data = EventData { event_id: id, failure: [1, 0, 0, 0], ..EventData::default() };
        assert_eq!(events.ready(&EventData { event_id: id, ..EventData::default() }), Some(false));
        events.set(id);
        events.set(id);
        assert_eq!(events.ready(&data), Some(true));
        events.take(&mut data);
        assert_eq!(age(&data), 2);
        assert_eq!(events.ready(&data), Some(false));
        // A caller that missed one is told at once.
        data.failure[0] = 1;
        assert_eq!(events.ready(&data), Some(true));
        assert_eq!(events.ready(&EventData { event_id: 77, ..EventData::default() }), None);
    }

    #[test]
    fn a_memory_exception_tells_the_address() {
        let mut events = Events::default();
        assert!(!events.memory_exception(1, 2));
        let id = events.create(kfd::EVENT_MEMORY, false).unwrap();
        assert!(events.memory_exception(0x0dea_d000, 7));
        let mut data = EventData { event_id: id, ..EventData::default() };
        events.take(&mut data);
        assert_eq!((data.va, data.gpu_id, data.failure[0]), (0x0dea_d000, 7, 1));
    }
}
