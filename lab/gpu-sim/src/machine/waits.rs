//! Waiting for events, signalling them, and answering the threads that wait.

use hip_sys::kfd::{self, EventData, Plain as _};

use super::debug::Awaited;
use super::events::{Element, Events, Waiter, age, fill_in};
use super::state::Machine;
use crate::call::Call;
use crate::device::Time;
use crate::fuse::{Reply, Unique};
use crate::space::client;

impl Machine {
    /// Begins a wait for the events in `elements`. [`Machine::wake`] answers it, immediately if they are
    /// signaled.
    pub fn wait(
        &mut self,
        call: &Call,
        arguments: kfd::WaitEvents,
        elements: impl Iterator<Item = EventData>,
    ) -> Result<(), i32> {
        let events = &mut self.processes.get_mut(&call.pid).ok_or(libc::EBADF)?.events;
        let elements = elements
            .map(|data| {
                let event = events.by_id.get_mut(&data.event_id).ok_or(libc::EINVAL)?;
                let missed = match age(&data) {
                    0 => event.was_missed_by(call.tid),
                    seen => event.kind == kfd::EVENT_SIGNAL && seen != event.age,
                };
                let activated = event.signaled || missed;
                event.signaled &= !event.auto_reset;
                Ok(Element { data, activated, waits: !activated, gone: false })
            })
            .collect::<Result<_, i32>>()?;
        let timeout = u64::from(arguments.timeout) * 1_000_000;
        self.calls.waiters.push(Waiter {
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

    /// Signals an event for every waiting thread; if there is one, an auto-reset event is reset. Returns
    /// false if there is no such event.
    pub fn set_event(&mut self, pid: i32, id: u32) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else { return false };
        let Some(event) = process.events.by_id.get_mut(&id) else { return false };
        let mut waited = false;
        for element in elements(&mut self.calls.waiters, pid, id) {
            element.activated = true;
            waited |= element.waits;
        }
        event.signaled = !event.auto_reset || !waited;
        event.age += 1;
        true
    }

    /// Destroys an event, and makes the waits for it fail. Returns false if there is no such event.
    pub fn destroy_event(&mut self, pid: i32, id: u32) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else { return false };
        for element in elements(&mut self.calls.waiters, pid, id) {
            element.gone = true;
        }
        process.events.by_id.remove(&id).is_some()
    }

    /// Signals every exception event of a process and this kind: of memory, with an address, or of hardware, when
    /// the device was reset because it hung. Returns false if there is none.
    pub fn exception(&mut self, pid: i32, kind: u32, va: u64, gpu_id: u32) -> bool {
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

    /// Answers every waiting thread whose events were signaled or whose time has passed.
    pub fn wake(&mut self, now: Time) {
        let over = |waiter: &Waiter| {
            waiter.outcome() != kfd::WAIT_RESULT_TIMEOUT || waiter.deadline.is_some_and(|end| end <= now)
        };
        for mut waiter in self.calls.waiters.extract_if(.., |waiter| over(waiter)) {
            waiter.arguments.wait_result = waiter.outcome();
            if let Some(process) = self.processes.get_mut(&waiter.pid) {
                for element in waiter.elements.iter().filter(|element| element.activated && !element.gone) {
                    if let Some(event) = process.events.by_id.get_mut(&element.data.event_id) {
                        event.seen_by(waiter.tid);
                    }
                }
            }
            let events = self.processes.get(&waiter.pid).map(|process| &process.events);
            self.outbox.answers.push((waiter.unique, finish(&mut waiter, events)));
        }
    }

    /// Returns the earliest end of a wait.
    pub fn next_deadline(&self) -> Option<Time> {
        self.calls.waiters.iter().filter_map(|waiter| waiter.deadline).min()
    }

    /// Interrupts the thread that waits with this request (EINTR), because of a signal. Returns false if
    /// there is none.
    pub fn interrupt(&mut self, unique: Unique) -> bool {
        if self.calls.uninterruptible.contains(&unique) || self.interrupt_blocked(unique) {
            return true;
        }
        let Some(i) = self.calls.waiters.iter().position(|waiter| waiter.unique == unique) else {
            return false;
        };
        let waiter = self.calls.waiters.swap_remove(i);
        self.outbox.answers.push((unique, Err(libc::EINTR)));
        // The signals of auto-reset events that it took are available again.
        for element in waiter.elements.iter().filter(|element| element.activated && !element.gone) {
            let id = element.data.event_id;
            let events = self.processes.get(&waiter.pid).map(|process| &process.events.by_id);
            if events.and_then(|events| events.get(&id)).is_some_and(|event| event.auto_reset) {
                self.set_event(waiter.pid, id);
            }
        }
        true
    }

    /// Interrupts a call that waits for a debugger. Returns false if there is none.
    fn interrupt_blocked(&mut self, unique: Unique) -> bool {
        let Some(at) = self.calls.blocked.iter().position(|blocked| blocked.unique == unique) else {
            return false;
        };
        let blocked = self.calls.blocked.swap_remove(at);
        if matches!(blocked.awaited, Awaited::Debugger(_))
            && let Some(process) = self.processes.get_mut(&blocked.pid)
        {
            process.debug.retry = true;
        }
        self.outbox.answers.push((unique, Err(libc::EINTR)));
        true
    }
}

/// Returns the elements of all waits for an event.
fn elements(waiters: &mut [Waiter], pid: i32, id: u32) -> impl Iterator<Item = &mut Element> {
    let of_process = waiters.iter_mut().filter(move |waiter| waiter.pid == pid);
    of_process.flat_map(|waiter| &mut waiter.elements).filter(move |element| element.data.event_id == id)
}

/// Writes the data of the signaled events to the caller, and encodes the answer.
fn finish(waiter: &mut Waiter, events: Option<&Events>) -> Result<Reply, i32> {
    match waiter.arguments.wait_result {
        kfd::WAIT_RESULT_FAIL => return Err(libc::EIO),
        kfd::WAIT_RESULT_COMPLETE => {
            let mut at = waiter.arguments.events_ptr;
            for element in &mut waiter.elements {
                let event = events.and_then(|events| events.by_id.get(&element.data.event_id));
                let event = event.filter(|_| !element.gone).ok_or(libc::EINVAL)?;
                if element.activated && fill_in(event, &mut element.data) {
                    client::write(waiter.pid, at, element.data.as_bytes())?;
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

    /// Waits by request `unique` for 10 ms from time 0 on; the elements are written back to `data`.
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
        let call = Call { unique, pid, tid, command: 0, argument: Vec::new(), out_size: 24, now: 0 };
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

    /// Returns the requests that were answered since the last call, with their result or errno.
    fn answered(machine: &mut Machine) -> Vec<(Unique, Result<u32, i32>)> {
        let result = |reply: Reply| kfd::WaitEvents::from_bytes(&reply.out).wait_result;
        machine.outbox.answers.drain(..).map(|(unique, answer)| (unique, answer.map(result))).collect()
    }

    #[test]
    fn event_ids_are_slots_and_are_reused() {
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
    fn auto_reset_event_wakes_all_waiting_threads_and_no_later_one() {
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
        // Without a waiting thread, the next one gets the signal, once.
        machine.set_event(pid, id);
        wait(&mut machine, pid, 5, &mut [of(id)], false).unwrap();
        assert_eq!(answered(&mut machine), [(5, Ok(0))]);
        wait(&mut machine, pid, 6, &mut [of(id)], false).unwrap();
        assert_eq!(answered(&mut machine), []);
    }

    #[test]
    fn thread_about_to_wait_gets_a_signal_that_another_took() {
        let (mut machine, pid) = machine();
        let [shared, other] = [true, true].map(|reset| create(&mut machine, pid, kfd::EVENT_SIGNAL, reset));
        // The first thread waits for both events, and takes the one that the second is about to wait for.
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
        // A program resets the event: no thread gets the signal.
        machine.set_event(pid, shared);
        machine.processes.get_mut(&pid).unwrap().events.reset(shared);
        wait_as(&mut machine, pid, 9, 4, &mut [of(shared)], false).unwrap();
        assert_eq!(answered(&mut machine), []);
    }

    #[test]
    fn caller_that_states_the_last_seen_signal_misses_none() {
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
        assert_eq!(answered(&mut machine), [(3, Ok(0))], "another thread took the second signal");
        assert_eq!(age(&std::hint::black_box(data)[0]), 3);
    }

    #[test]
    fn wait_handles_all_no_and_missing_events() {
        let (mut machine, pid) = machine();
        let ids = [false, true].map(|auto_reset| create(&mut machine, pid, kfd::EVENT_SIGNAL, auto_reset));
        wait(&mut machine, pid, 1, &mut ids.map(of), true).unwrap();
        machine.set_event(pid, ids[1]);
        machine.wake(1);
        assert_eq!(answered(&mut machine), []);
        // A signal handler interrupts the wait: the event is not lost.
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
    fn memory_exception_reports_the_address() {
        let (mut machine, pid) = machine();
        assert!(!machine.exception(pid, kfd::EVENT_MEMORY, 1, 2));
        let id = create(&mut machine, pid, kfd::EVENT_MEMORY, false);
        assert!(machine.exception(pid, kfd::EVENT_MEMORY, 0x0dea_d000, 7));
        let mut data = [of(id)];
        wait(&mut machine, pid, 1, &mut data, false).unwrap();
        let reported = std::hint::black_box(data)[0];
        assert_eq!((reported.va, reported.gpu_id, reported.failure[0]), (0x0dea_d000, 7, 1));
    }
}
