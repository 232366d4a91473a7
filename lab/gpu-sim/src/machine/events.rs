//! KFD events of one process, and the threads that wait for them.
//!
//! An event that resets itself wakes those who wait, and is gone: of two threads the one that was on its way into its wait
//! never hears of it. ROCr before 5.7 has such threads (all queues share one event), and the driver has told callers since ABI
//! 1.14 what they missed, if they say what they saw. Here the way into a wait is far longer than a system call, so that a
//! thread is told as well what others took since it looked, even if it says nothing: it wakes once for nothing, at worst.

use std::collections::BTreeMap;

use hip_sys::kfd::{self, EventData, Plain};

use super::Machine;
use crate::device::Time;
use crate::fuse::{Reply, Unique};
use crate::ioctl::Call;
use crate::space::client;

/// Threads whose last look at an event is remembered.
const LOOKS: usize = 16;

/// One event.
#[derive(Clone, Debug)]
struct Event {
    kind: u32,
    auto_reset: bool,
    signaled: bool,
    /// Counts its signals, for callers that say which one they saw last (ABI 1.14; 0 says nothing).
    age: u64,
    /// Signals up to this one are owed to nobody.
    settled: u64,
    /// Which signal each thread saw last, the latest look at the end.
    seen: Vec<(i32, u64)>,
    /// What an exception event tells: an address (of a memory exception) and a device.
    exception: Option<(u64, u32)>,
}

impl Event {
    /// Whether a signal has come that this thread has not seen, of those that others take away.
    fn owes(&self, tid: i32) -> bool {
        let seen = self.seen.iter().find(|(other, _)| *other == tid).map_or(0, |(_, age)| *age);
        self.kind == kfd::EVENT_SIGNAL && self.auto_reset && self.age > seen.max(self.settled)
    }

    fn seen_by(&mut self, tid: i32) {
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
struct Element {
    data: EventData,
    /// The event has come.
    activated: bool,
    /// It had not come when the wait began.
    waits: bool,
    /// It has been destroyed meanwhile.
    gone: bool,
}

/// A thread in WAIT_EVENTS.
#[derive(Debug)]
pub struct Waiter {
    unique: Unique,
    pid: i32,
    tid: i32,
    /// When it gives up; `None` for never.
    deadline: Option<Time>,
    /// The ioctl's argument, to be completed.
    arguments: kfd::WaitEvents,
    elements: Vec<Element>,
    /// Bytes the caller takes back.
    out_size: usize,
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
    fn outcome(&self) -> u32 {
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

impl Machine {
    /// Begins a wait for the events in `elements`; [`Machine::wake`] answers it, at once if it need not wait.
    pub fn wait(
        &mut self,
        call: &Call<'_>,
        arguments: kfd::WaitEvents,
        elements: impl Iterator<Item = EventData>,
    ) -> Result<(), i32> {
        let events = &mut self.processes.get_mut(&call.pid).ok_or(libc::EBADF)?.events;
        let elements = elements
            .map(|data| {
                let event = events.by_id.get_mut(&data.event_id).ok_or(libc::EINVAL)?;
                let missed = match age(&data) {
                    0 => event.owes(call.tid),
                    seen => event.kind == kfd::EVENT_SIGNAL && seen != event.age,
                };
                let activated = event.signaled || missed;
                event.signaled &= !event.auto_reset;
                Ok(Element { data, activated, waits: !activated, gone: false })
            })
            .collect::<Result<_, i32>>()?;
        let timeout = u64::from(arguments.timeout) * 1_000_000;
        self.waiters.push(Waiter {
            unique: call.unique,
            pid: call.pid,
            tid: call.tid,
            deadline: (arguments.timeout != kfd::TIMEOUT_INFINITE).then(|| call.now + timeout),
            arguments,
            elements,
            out_size: call.out_size,
        });
        Ok(())
    }

    /// Signals an event: every thread that waits for it has it, and if there is one an event that resets by itself is
    /// reset. `false` if there is no such event.
    pub fn set_event(&mut self, pid: i32, id: u32) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else { return false };
        let Some(event) = process.events.by_id.get_mut(&id) else { return false };
        let mut waited = false;
        for element in elements(&mut self.waiters, pid, id) {
            element.activated = true;
            waited |= element.waits;
        }
        event.signaled = !event.auto_reset || !waited;
        event.age += 1;
        true
    }

    /// Destroys an event; waits for it fail.
    pub fn destroy_event(&mut self, pid: i32, id: u32) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else { return false };
        for element in elements(&mut self.waiters, pid, id) {
            element.gone = true;
        }
        process.events.by_id.remove(&id).is_some()
    }

    /// Signals every memory exception event of a process with an address; `false` if there is none.
    pub fn memory_exception(&mut self, pid: i32, va: u64, gpu_id: u32) -> bool {
        self.exception(pid, kfd::EVENT_MEMORY, va, gpu_id)
    }

    /// Signals every hardware exception event of a process: this device was reset because it hung.
    pub fn hardware_exception(&mut self, pid: i32, gpu_id: u32) -> bool {
        self.exception(pid, kfd::EVENT_HW_EXCEPTION, 0, gpu_id)
    }

    fn exception(&mut self, pid: i32, kind: u32, va: u64, gpu_id: u32) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else { return false };
        let mut ids = Vec::new();
        for (id, event) in &mut process.events.by_id {
            if event.kind == kind {
                event.exception = Some((va, gpu_id));
                ids.push(*id);
            }
        }
        ids.iter().for_each(|id| _ = self.set_event(pid, *id));
        !ids.is_empty()
    }

    /// Answers every waiting thread whose events have come or whose time is over.
    pub fn wake(&mut self, now: Time) {
        let over = |waiter: &Waiter| {
            waiter.outcome() != kfd::WAIT_RESULT_TIMEOUT || waiter.deadline.is_some_and(|end| end <= now)
        };
        for mut waiter in self.waiters.extract_if(.., |waiter| over(waiter)) {
            waiter.arguments.wait_result = waiter.outcome();
            if let Some(process) = self.processes.get_mut(&waiter.pid) {
                for element in waiter.elements.iter().filter(|element| element.activated && !element.gone) {
                    if let Some(event) = process.events.by_id.get_mut(&element.data.event_id) {
                        event.seen_by(waiter.tid);
                    }
                }
            }
            let events = self.processes.get(&waiter.pid).map(|process| &process.events);
            self.answers.push((waiter.unique, finish(&mut waiter, events)));
        }
    }

    /// The earliest time at which a waiting thread gives up.
    pub fn next_deadline(&self) -> Option<Time> {
        self.waiters.iter().filter_map(|waiter| waiter.deadline).min()
    }

    /// Answers the thread with EINTR: a signal came. `false` if no thread waits under this request.
    pub fn interrupt(&mut self, unique: Unique) -> bool {
        if self.is_uninterruptible(unique) || self.interrupt_blocked(unique) {
            return true;
        }
        let Some(i) = self.waiters.iter().position(|waiter| waiter.unique == unique) else { return false };
        let waiter = self.waiters.swap_remove(i);
        self.answers.push((unique, Err(libc::EINTR)));
        // What it had of events that reset by themselves is given back.
        for element in waiter.elements.iter().filter(|element| element.activated && !element.gone) {
            let id = element.data.event_id;
            let events = self.processes.get(&waiter.pid).map(|process| &process.events.by_id);
            if events.and_then(|events| events.get(&id)).is_some_and(|event| event.auto_reset) {
                self.set_event(waiter.pid, id);
            }
        }
        true
    }
}

/// Everything that waits for an event.
fn elements(waiters: &mut [Waiter], pid: i32, id: u32) -> impl Iterator<Item = &mut Element> {
    let of_process = waiters.iter_mut().filter(move |waiter| waiter.pid == pid);
    of_process.flat_map(|waiter| &mut waiter.elements).filter(move |element| element.data.event_id == id)
}

/// Writes what the caller is told of the events that have come, and encodes the answer.
fn finish(waiter: &mut Waiter, events: Option<&Events>) -> Result<Reply, i32> {
    match waiter.arguments.wait_result {
        kfd::WAIT_RESULT_FAIL => return Err(libc::EIO),
        kfd::WAIT_RESULT_COMPLETE => {
            let mut at = waiter.arguments.events_ptr;
            for element in &mut waiter.elements {
                let event = events.and_then(|events| events.by_id.get(&element.data.event_id));
                let event = event.filter(|_| !element.gone).ok_or(libc::EINVAL)?;
                if element.activated && tell(event, &mut element.data) {
                    client::write(waiter.pid, at, element.data.as_bytes()).map_err(|_| libc::EFAULT)?;
                }
                at = at.wrapping_add(size_of::<EventData>() as u64);
            }
        }
        _ => {}
    }
    let mut out = waiter.arguments.as_bytes().to_vec();
    out.truncate(waiter.out_size);
    Ok(Reply { result: 0, out })
}

/// Fills in what an event tells beyond its having come; `false` if nothing.
fn tell(event: &Event, data: &mut EventData) -> bool {
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
fn age(data: &EventData) -> u64 {
    u64::from(data.failure[0]) | u64::from(data.failure[1]) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::kernels::Durations;
    use crate::machine::Process;

    fn machine() -> (Machine, i32) {
        let pid = std::process::id().cast_signed();
        let mut machine = Machine::new(Arena::new().unwrap(), Vec::new(), Durations::default());
        machine.processes.insert(pid, Process::new(pid, "test".into(), 1));
        (machine, pid)
    }

    fn create(machine: &mut Machine, pid: i32, kind: u32, auto_reset: bool) -> u32 {
        machine.processes.get_mut(&pid).unwrap().events.create(kind, auto_reset).unwrap()
    }

    /// A wait by request `unique` for 10 ms from 0 on; the elements are written back to `data`.
    fn wait(
        machine: &mut Machine,
        pid: i32,
        unique: Unique,
        data: &mut [EventData],
        all: bool,
    ) -> Result<(), i32> {
        wait_as(machine, pid, pid, unique, data, all)
    }

    fn wait_as(
        machine: &mut Machine,
        pid: i32,
        tid: i32,
        unique: Unique,
        data: &mut [EventData],
        all: bool,
    ) -> Result<(), i32> {
        let call = Call { unique, pid, tid, command: 0, argument: &[], out_size: 24, now: 0 };
        let arguments = kfd::WaitEvents {
            events_ptr: data.as_mut_ptr() as u64,
            num_events: data.len() as u32,
            wait_for_all: all.into(),
            timeout: 10,
            ..kfd::WaitEvents::default()
        };
        machine.wait(&call, arguments, data.iter().copied())?;
        machine.wake(0);
        Ok(())
    }

    fn of(id: u32) -> EventData {
        EventData { event_id: id, ..EventData::default() }
    }

    /// Requests that have been answered since the last call, with their result or errno.
    fn answered(machine: &mut Machine) -> Vec<(Unique, Result<u32, i32>)> {
        let result = |reply: Reply| kfd::WaitEvents::from_bytes(&reply.out).wait_result;
        machine.answers.drain(..).map(|(unique, answer)| (unique, answer.map(result))).collect()
    }

    #[test]
    fn ids_are_slots_and_are_reused() {
        let (mut machine, pid) = machine();
        assert_eq!(create(&mut machine, pid, kfd::EVENT_SIGNAL, true), 1);
        assert_eq!(create(&mut machine, pid, kfd::EVENT_SIGNAL, true), 2);
        assert!(create(&mut machine, pid, kfd::EVENT_MEMORY, false) >= kfd::SIGNAL_EVENT_LIMIT);
        assert!(machine.destroy_event(pid, 1) && !machine.destroy_event(pid, 1));
        let events = &mut machine.processes.get_mut(&pid).unwrap().events;
        assert_eq!(events.create(kfd::EVENT_SIGNAL, true), Some(1));
        for _ in 2..kfd::SIGNAL_EVENT_LIMIT - 1 {
            assert!(events.create(kfd::EVENT_SIGNAL, true).is_some());
        }
        assert_eq!(events.create(kfd::EVENT_SIGNAL, true), None);
    }

    #[test]
    fn an_event_that_resets_itself_wakes_all_who_wait_and_nobody_later() {
        let (mut machine, pid) = machine();
        let id = create(&mut machine, pid, kfd::EVENT_SIGNAL, true);
        for unique in 1..4 {
            wait(&mut machine, pid, unique, &mut [of(id)], false).unwrap();
        }
        assert_eq!(answered(&mut machine), []);
        assert!(machine.set_event(pid, id));
        machine.wake(1);
        assert_eq!(answered(&mut machine), [(1, Ok(0)), (2, Ok(0)), (3, Ok(0))]);
        wait(&mut machine, pid, 4, &mut [of(id)], false).unwrap();
        assert_eq!(answered(&mut machine), []);
        machine.wake(10_000_000);
        assert_eq!(answered(&mut machine), [(4, Ok(kfd::WAIT_RESULT_TIMEOUT))]);
        // Signaled with nobody waiting: the next one has it, once.
        machine.set_event(pid, id);
        wait(&mut machine, pid, 5, &mut [of(id)], false).unwrap();
        assert_eq!(answered(&mut machine), [(5, Ok(0))]);
        wait(&mut machine, pid, 6, &mut [of(id)], false).unwrap();
        assert_eq!(answered(&mut machine), []);
    }

    #[test]
    fn a_thread_on_its_way_into_a_wait_hears_of_what_another_took() {
        let (mut machine, pid) = machine();
        let [shared, other] = [true, true].map(|reset| create(&mut machine, pid, kfd::EVENT_SIGNAL, reset));
        // One waits for both, and takes what the other one is about to wait for.
        machine.set_event(pid, shared);
        wait_as(&mut machine, pid, 7, 1, &mut [of(shared), of(other)], false).unwrap();
        assert_eq!(answered(&mut machine), [(1, Ok(0))]);
        wait_as(&mut machine, pid, 8, 2, &mut [of(shared)], false).unwrap();
        assert_eq!(answered(&mut machine), [(2, Ok(0))]);
        for tid in [7, 8] {
            wait_as(&mut machine, pid, tid, 3, &mut [of(shared)], false).unwrap();
            assert_eq!(answered(&mut machine), [], "{tid} has seen it");
            machine.wake(10_000_000);
            assert_eq!(answered(&mut machine), [(3, Ok(kfd::WAIT_RESULT_TIMEOUT))]);
        }
        // A program takes it back: nobody is told.
        machine.set_event(pid, shared);
        machine.processes.get_mut(&pid).unwrap().events.reset(shared);
        wait_as(&mut machine, pid, 9, 4, &mut [of(shared)], false).unwrap();
        assert_eq!(answered(&mut machine), []);
    }

    #[test]
    fn a_caller_that_says_what_it_saw_misses_nothing() {
        let (mut machine, pid) = machine();
        let id = create(&mut machine, pid, kfd::EVENT_SIGNAL, true);
        let mut data = [EventData { failure: [1, 0, 0, 0], ..of(id) }];
        wait(&mut machine, pid, 1, &mut data, false).unwrap();
        assert_eq!(answered(&mut machine), [], "a new event has age 1");
        machine.set_event(pid, id);
        machine.wake(1);
        machine.set_event(pid, id);
        wait(&mut machine, pid, 2, &mut [of(id)], false).unwrap();
        assert_eq!(answered(&mut machine).len(), 2);
        assert_eq!(age(&std::hint::black_box(data)[0]), 2);
        wait(&mut machine, pid, 3, &mut data, false).unwrap();
        assert_eq!(answered(&mut machine), [(3, Ok(0))], "the second signal was another's");
        assert_eq!(age(&std::hint::black_box(data)[0]), 3);
    }

    #[test]
    fn waits_for_all_for_none_and_for_what_is_not_there() {
        let (mut machine, pid) = machine();
        let ids = [false, true].map(|auto_reset| create(&mut machine, pid, kfd::EVENT_SIGNAL, auto_reset));
        wait(&mut machine, pid, 1, &mut ids.map(of), true).unwrap();
        machine.set_event(pid, ids[1]);
        machine.wake(1);
        assert_eq!(answered(&mut machine), []);
        // A signal handler runs in between: the event is not lost.
        assert!(machine.interrupt(1) && !machine.interrupt(1));
        assert_eq!(answered(&mut machine), [(1, Err(libc::EINTR))]);
        wait(&mut machine, pid, 2, &mut ids.map(of), true).unwrap();
        machine.set_event(pid, ids[0]);
        machine.wake(1);
        assert_eq!(answered(&mut machine), [(2, Ok(0))]);
        wait(&mut machine, pid, 3, &mut [], false).unwrap();
        assert_eq!(answered(&mut machine), [(3, Ok(0))]);
        assert_eq!(wait(&mut machine, pid, 4, &mut [of(77)], false), Err(libc::EINVAL));
        wait(&mut machine, pid, 5, &mut [of(ids[1])], false).unwrap();
        machine.destroy_event(pid, ids[1]);
        machine.wake(1);
        assert_eq!(answered(&mut machine), [(5, Err(libc::EIO))]);
    }

    #[test]
    fn a_memory_exception_tells_the_address() {
        let (mut machine, pid) = machine();
        assert!(!machine.memory_exception(pid, 1, 2));
        let id = create(&mut machine, pid, kfd::EVENT_MEMORY, false);
        assert!(machine.memory_exception(pid, 0x0dea_d000, 7));
        let mut data = [of(id)];
        wait(&mut machine, pid, 1, &mut data, false).unwrap();
        let told = std::hint::black_box(data)[0];
        assert_eq!((told.va, told.gpu_id, told.failure[0]), (0x0dea_d000, 7, 1));
    }
}
