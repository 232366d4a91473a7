//! The device at work: packets are taken from the rings, kernels placed and ended, memory changed, signals completed.
//!
//! Everything happens in virtual time, which is the host's monotonic clock as it should have been: a packet begins at
//! the later of its arrival and its predecessor's end, however late the supervisor looks, so that lateness does not
//! add up. [`Machine::tick`] does all that is due; `pace.rs` decides when to call it again.

mod aql;
mod pace;
mod sdma;

pub use pace::{Pace, be_ordinary, now, run, sharpen};

use crate::device::{Progress, QueueKey, Time};
use crate::kernels::Effect;
use crate::machine::{Execution, Kind, Machine, Move, Queue, State, Then, Unusable};
use crate::space::{Fault, View};

/// Effects up to this many bytes are made at once, at the kernel's end; larger ones in slices of it.
const SLICE: u64 = 64 << 10;
/// Events handled in one tick before others get the lock.
const EVENTS_PER_TICK: usize = 2048;

/// What a tick leaves behind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outlook {
    /// No sooner than this something happens by itself that can be seen from outside.
    pub next: Option<Time>,
    /// Work is left that was due.
    pub more: bool,
    /// A packet waits for memory to change, which nobody announces.
    pub watching: bool,
    /// New packets were seen.
    pub arrived: bool,
}

impl Machine {
    /// Does everything that is due at `now`.
    pub fn tick(&mut self, now: Time) -> Outlook {
        let arrived = self.poll(now);
        // A completion lets what waits for it go on at its own time, however late we look; only then comes what else
        // may have changed memory.
        let mut more = self.catch_up(now);
        if !more {
            self.recheck(now);
            more = self.catch_up(now);
        }
        self.slice(now);
        self.wake(now);
        let (mut watching, mut front) = (false, None);
        for queue in self.processes.values_mut().flat_map(|process| process.queues.values_mut()) {
            watching |= queue.mapped && queue.state == State::Blocked;
            front = [front, queue.next()].into_iter().flatten().min();
        }
        let due = self.moves.iter().map(|m| if m.effect.is_done() { m.not_before } else { now });
        let ends = self.gpus.iter().filter_map(|gpu| gpu.model.next_visible());
        let driver = self.next_driver().map(|(at, _)| at);
        Outlook {
            next: due.chain(ends).chain(front).chain(self.next_deadline()).chain(driver).min(),
            more,
            watching,
            arrived,
        }
    }

    /// Looks at every ring.
    fn poll(&mut self, now: Time) -> bool {
        let mut arrived = false;
        let mut faults = Vec::new();
        for (&pid, process) in &mut self.processes {
            let live = |queue: &Queue| queue.state != State::Dead && queue.ring != 0;
            for (&id, queue) in process.queues.iter_mut().filter(|(_, queue)| live(queue)) {
                let view = View { arena: &self.arena, space: &process.space, pid, gpu: queue.gpu };
                match queue.poll(&view, now) {
                    Ok(any) => arrived |= any,
                    Err(fault) => faults.push((QueueKey { pid, id }, fault)),
                }
            }
        }
        for (key, fault) in faults {
            self.stop(now, key, fault.into());
        }
        arrived
    }

    /// Lets every packet that waits for memory look again, at `now`.
    fn recheck(&mut self, now: Time) {
        for process in self.processes.values_mut() {
            for queue in process.queues.values_mut().filter(|queue| queue.state == State::Blocked) {
                queue.state = State::Fetch;
                queue.ready_at = queue.ready_at.max(now);
            }
        }
    }

    /// Lets everything happen that is due at `now`, in its order; `true` if it was too much for once. A change made at
    /// `now` must find the device as it is then.
    pub fn catch_up(&mut self, now: Time) -> bool {
        (0..EVENTS_PER_TICK).all(|_| self.step(now))
    }

    /// Handles the earliest event that is due; `false` if there is none.
    fn step(&mut self, now: Time) -> bool {
        let ends = self.gpus.iter().enumerate().filter_map(|(i, gpu)| Some((gpu.model.next()?, i)));
        let end = ends.min();
        let fronts = self.processes.iter_mut().flat_map(|(&pid, process)| {
            process
                .queues
                .iter_mut()
                .filter_map(move |(&id, queue)| Some((queue.next()?, QueueKey { pid, id })))
        });
        let front = fronts.min();
        let driver = self.next_driver();
        let first = [end.map(|e| e.0), front.map(|f| f.0), driver.map(|d| d.0)].into_iter().flatten().min();
        // Nothing happens before what has happened already, whenever it was found out.
        let at = |t: Time| t.max(self.clock);
        match (end, front, driver) {
            _ if first.is_none_or(|first| first > now) => false,
            // What ends at the moment at which queues come off has ended.
            (Some((t, gpu)), ..) if first == Some(t) => {
                self.clock = at(t);
                let mut progress = Vec::new();
                self.gpus[gpu].model.advance(t, &mut progress);
                self.account_busy(gpu, t);
                self.apply(t, progress);
                true
            }
            (_, _, Some((t, gpu))) if first == Some(t) => {
                self.clock = at(t);
                self.drive(gpu, self.clock);
                true
            }
            (_, Some((t, key)), _) => {
                self.clock = at(t);
                if let Err(why) = self.packet(key, t) {
                    self.stop(now, key, why);
                }
                true
            }
            _ => false,
        }
    }

    /// Takes the packet at the head of a queue at `t`.
    fn packet(&mut self, key: QueueKey, t: Time) -> Result<(), Unusable> {
        match self.queue_mut(key).map(|queue| queue.kind) {
            Some(Kind::Aql) => self.aql_packet(key, t),
            Some(Kind::Sdma) => self.sdma_packet(key, t),
            None => Ok(()),
        }
    }

    /// Acts on what a model of compute units reported at `t`.
    pub fn apply(&mut self, t: Time, progress: Vec<Progress>) {
        for item in progress {
            match item {
                Progress::Launched(id) => {
                    let Some(key) = self.executions.get(&id).map(|execution| execution.queue) else {
                        continue;
                    };
                    if let Some(queue) = self.queue_mut(key)
                        && queue.state == State::Launching(id)
                    {
                        queue.state = State::Fetch;
                        queue.ready_at = queue.ready_at.max(t);
                    }
                }
                Progress::Done { id, start, end } => {
                    let Some(execution) = self.executions.remove(&id) else { continue };
                    let key = execution.queue;
                    if let Err(fault) = self.ended(execution, start, end) {
                        self.stop(end, key, fault.into());
                    }
                }
            }
        }
    }

    /// A kernel's last work-group has ended.
    fn ended(&mut self, execution: Execution, start: Time, end: Time) -> Result<(), Fault> {
        let Execution { queue: key, signal, mut effect } = execution;
        let Some(gpu) = self.queue_mut(key).map(|queue| queue.gpu) else { return Ok(()) };
        if effect.bytes() > SLICE {
            self.moves.push_back(Move {
                queue: key,
                effect,
                not_before: end,
                then: Then::Kernel { start, signal },
            });
            return Ok(());
        }
        if let Some(view) = self.view(key.pid, gpu) {
            finish(&mut effect, &view)?;
        }
        self.complete(key, signal, start, end)?;
        self.stats.completed(end, pace::now());
        Ok(())
    }

    /// A kernel is complete: its signal is, and what waited for it may go on.
    fn complete(&mut self, key: QueueKey, signal: u64, start: Time, end: Time) -> Result<(), Fault> {
        if let Some(queue) = self.queue_mut(key) {
            queue.counts.add("kernel");
            queue.outstanding -= 1;
            if queue.outstanding == 0 && queue.state == State::Barrier {
                queue.state = State::Fetch;
                queue.ready_at = queue.ready_at.max(end);
            }
        }
        self.signal(key, signal, start, end)
    }

    /// Completes a signal (`amd_signal_t` of ROCr's `amd_hsa_signal.h`): time stamps, value, interrupt.
    fn signal(&mut self, key: QueueKey, at: u64, start: Time, end: Time) -> Result<(), Fault> {
        let Some(process) = self.processes.get(&key.pid) else { return Ok(()) };
        let Some(queue) = process.queues.get(&key.id) else { return Ok(()) };
        if at == 0 {
            return Ok(());
        }
        let view = View { arena: &self.arena, space: &process.space, pid: key.pid, gpu: queue.gpu };
        // Read before the value falls: from then on the client may destroy the signal.
        let field = |offset: u64| at.wrapping_add(offset);
        let (mailbox, event) = (view.load_u64(field(16))?, view.load_u32(field(24))?);
        view.write(field(32), &start.to_le_bytes())?;
        view.write(field(40), &end.to_le_bytes())?;
        view.decrement(field(8))?;
        if mailbox != 0 {
            view.write(mailbox, &u64::from(event).to_le_bytes())?;
            self.raise(key, event, end);
        }
        self.recheck(end);
        Ok(())
    }

    /// Raises an event by its id: a signal's, or what the copy engine's trap names.
    fn raise(&mut self, key: QueueKey, event: u32, t: Time) {
        self.set_event(key.pid, event);
        self.wake(t);
    }

    /// Makes a slice of each large change of memory; those that are done and due are followed up.
    fn slice(&mut self, now: Time) {
        for _ in 0..self.moves.len() {
            let Some(mut item) = self.moves.pop_front() else { return };
            let key = item.queue;
            let Some(gpu) = self.queue_mut(key).map(|queue| queue.gpu) else { continue };
            let step = self.view(key.pid, gpu).map_or(Ok(()), |view| item.effect.step(&view, SLICE));
            let end = pace::now().max(item.not_before);
            let result = match step {
                Err(fault) => Err(fault),
                Ok(()) if !item.effect.is_done() || item.not_before > now => {
                    self.moves.push_back(item);
                    Ok(())
                }
                Ok(()) => self.moved(key, item.then, end),
            };
            if let Err(fault) = result {
                self.stop(now, key, fault.into());
            }
        }
    }

    fn moved(&mut self, key: QueueKey, then: Then, end: Time) -> Result<(), Fault> {
        match then {
            Then::Kernel { start, signal } => self.complete(key, signal, start, end),
            Then::NextPacket => {
                if let Some(queue) = self.queue_mut(key) {
                    queue.state = State::Fetch;
                    queue.ready_at = queue.ready_at.max(end);
                }
                Ok(())
            }
        }
    }
}

fn finish(effect: &mut Effect, view: &View<'_>) -> Result<(), Fault> {
    while !effect.is_done() {
        effect.step(view, SLICE)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hip_sys::kfd::{self, Ioctl as _, Plain as _};

    use super::*;
    use crate::arena::Arena;
    use crate::device::Shared;
    use crate::driver::Scheduler;
    use crate::ioctl::Call;
    use crate::kernels::Durations;
    use crate::machine::{Gpu, Process, Queue};
    use crate::space::{Backing, Range, View};
    use crate::topology::{ARCHS, GpuConfig, Part};

    const PID: i32 = 1;
    const RINGS: u64 = 0x1_0000;
    const RING: u64 = 0x1000;
    const INDICES: u64 = 0x1_3000;
    const SIGNALS: u64 = 0x1_4000;
    /// A kernel that nothing is known about.
    const KERNEL: Time = 5_000;

    /// A GPU with two queues of one process; signal `i` is at `SIGNALS + 64 * i` and holds 1.
    fn machine() -> Machine {
        let config =
            GpuConfig { arch: &ARCHS[0], gpu_id: 1, vram: 1 << 30, render_minor: 128, part: Part::whole(0) };
        let gpu = Gpu {
            config,
            used: 0,
            model: Box::new(Shared::new(3328)),
            scheduler: Scheduler::default(),
            busy_since: None,
            busy: 0,
        };
        let mut arena = Arena::new().unwrap();
        let at = arena.alloc(0x5000).unwrap();
        let mut process = Process::new(PID, "test".into(), 1);
        // Each ring is a mapping of its own, as the driver insists.
        for (at, va, len) in
            [(at, RINGS, RING), (at + RING, RINGS + RING, RING), (at + 0x2000, INDICES, 0x3000)]
        {
            process.space.insert(va, Range { len, backing: Backing::Arena(at), gpus: 1 });
        }
        for id in 0..2 {
            let indices = INDICES + 16 * u64::from(id);
            let ring = RINGS + RING * u64::from(id);
            process.queues.insert(id, Queue::new(0, Kind::Aql, ring, 0x1000, indices, indices + 8));
        }
        let mut machine = Machine::new(arena, vec![gpu], Durations::default());
        machine.processes.insert(PID, process);
        for i in 0..4 {
            view(&machine).write(SIGNALS + 64 * i + 8, &1u64.to_le_bytes()).unwrap();
        }
        machine
    }

    fn view(machine: &Machine) -> View<'_> {
        machine.view(PID, 0).unwrap()
    }

    /// Puts a packet of this header into a queue's ring, with one dependency (0 for none) and a completion signal.
    fn submit(machine: &Machine, id: u64, header: u16, dependency: u64, signal: u64) {
        let (view, index) = (view(machine), INDICES + 16 * id);
        let slot = view.load_u64(index).unwrap();
        let mut packet = [0u8; 64];
        packet[..2].copy_from_slice(&header.to_le_bytes());
        packet[8..16].copy_from_slice(&dependency.to_le_bytes());
        packet[56..].copy_from_slice(&(SIGNALS + 64 * signal).to_le_bytes());
        view.write(RINGS + RING * id + 64 * slot, &packet).unwrap();
        view.write(index, &(slot + 1).to_le_bytes()).unwrap();
    }

    /// A signal's value and its two time stamps.
    fn signal(machine: &Machine, i: u64) -> [u64; 3] {
        [8, 32, 40].map(|offset| view(machine).load_u64(SIGNALS + 64 * i + offset).unwrap())
    }

    #[test]
    fn what_waits_for_a_kernel_goes_on_at_its_end_however_late_the_device_looks() {
        let mut machine = machine();
        submit(&machine, 0, 2, 0, 0);
        submit(&machine, 1, 3, SIGNALS, 1);
        submit(&machine, 1, 2 | 1 << 8, 0, 2);
        assert_eq!(machine.tick(1_000).next, Some(1_000 + KERNEL));
        machine.tick(90_000);
        assert_eq!(signal(&machine, 0), [0, 1_000, 1_000 + KERNEL]);
        assert_eq!(signal(&machine, 1), [0, 1_000 + KERNEL, 1_000 + KERNEL]);
        assert_eq!(signal(&machine, 2), [0, 1_000 + KERNEL, 1_000 + 2 * KERNEL]);
    }

    #[test]
    fn a_barrier_for_any_signal_waits_for_the_first_of_them() {
        let mut machine = machine();
        // Signals 1 and 2 are named; both stand at 1.
        let (view, both) = (view(&machine), [SIGNALS + 64, SIGNALS + 128]);
        let mut packet = [0u8; 64];
        packet[..2].copy_from_slice(&5u16.to_le_bytes());
        packet[8..16].copy_from_slice(&both[0].to_le_bytes());
        packet[40..48].copy_from_slice(&both[1].to_le_bytes());
        packet[56..].copy_from_slice(&SIGNALS.to_le_bytes());
        view.write(RINGS, &packet).unwrap();
        view.write(INDICES, &1u64.to_le_bytes()).unwrap();
        assert!(machine.tick(1_000).watching);
        assert_eq!(signal(&machine, 0)[0], 1);
        self::view(&machine).write(both[1] + 8, &0u64.to_le_bytes()).unwrap();
        machine.tick(2_000);
        assert_eq!(signal(&machine, 0), [0, 2_000, 2_000]);
        // One that names none does not wait.
        submit(&machine, 1, 5, 0, 3);
        machine.tick(3_000);
        assert_eq!(signal(&machine, 3), [0, 3_000, 3_000]);
    }

    #[test]
    fn a_kernel_that_has_ended_is_not_taken_off_with_its_queue() {
        let mut machine = machine();
        submit(&machine, 0, 2, 0, 0);
        submit(&machine, 0, 2, 0, 1);
        submit(&machine, 0, 2 | 1 << 8, 0, 2);
        machine.tick(0);
        let update = |machine: &mut Machine, now: Time, queue_percentage: u32| {
            let update = kfd::UpdateQueue {
                ring_base_address: RINGS,
                ring_size: 0x1000,
                queue_percentage,
                ..Default::default()
            };
            let command = kfd::UpdateQueue::COMMAND;
            machine.ioctl(&Call {
                unique: 1,
                pid: PID,
                tid: PID,
                command,
                argument: update.as_bytes(),
                out_size: 0,
                now,
            });
            assert!(matches!(machine.answers.pop(), Some((1, Ok(_)))));
        };
        update(&mut machine, KERNEL + 2_000, 0);
        assert_eq!(signal(&machine, 0), [0, 0, KERNEL]);
        assert_eq!(signal(&machine, 1), [0, 0, KERNEL]);
        // The third had begun at the end of the others; what is left of it comes after the pause.
        machine.tick(1_000_000);
        update(&mut machine, 2_000_000, 100);
        machine.tick(3_000_000);
        assert_eq!(signal(&machine, 2), [0, KERNEL, 2_000_000 + KERNEL - 2_000]);
    }

    #[test]
    fn packets_of_nonsense_fault_and_harm_nobody() {
        for (header, signal) in [(2u16, u64::MAX), (3, u64::MAX), (5, u64::MAX - 7), (0, u64::MAX)] {
            for fill in [0xffu8, 0x80, 0] {
                for format in 0..3 {
                    let mut machine = machine();
                    let mut packet = [fill; 64];
                    packet[..2].copy_from_slice(&header.to_le_bytes());
                    packet[2] = format;
                    packet[56..].copy_from_slice(&signal.to_le_bytes());
                    view(&machine).write(RINGS, &packet).unwrap();
                    view(&machine).write(INDICES, &1u64.to_le_bytes()).unwrap();
                    submit(&machine, 1, 2, 0, 0);
                    for now in [0, 1, KERNEL, u64::MAX / 2] {
                        machine.tick(now);
                    }
                    assert_eq!(machine.processes.len(), 1);
                }
            }
        }
    }
}
