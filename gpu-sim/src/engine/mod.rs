//! The device at work: packets are taken from the rings, kernels placed and ended, memory changed, signals completed.
//!
//! Everything happens in virtual time, which is the host's monotonic clock as it should have been: a packet begins at
//! the later of its arrival and its predecessor's end, however late the supervisor looks, so that lateness does not
//! add up. [`Machine::tick`] does all that is due; `pace.rs` decides when to call it again.

mod aql;
mod pace;
mod sdma;

pub use pace::{Pace, now, run};

use crate::device::{Progress, QueueKey, Time};
use crate::kernels::Effect;
use crate::machine::{Execution, Kind, Machine, Move, State, Then, Unusable};
use crate::space::{Fault, View};

/// Effects up to this many bytes are made at once, at the kernel's end; larger ones in slices of it.
const SLICE: u64 = 256 << 10;
/// Events handled in one tick before others get the lock.
const EVENTS_PER_TICK: usize = 2048;

/// What a tick leaves behind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outlook {
    /// When something ends by itself.
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
        self.recheck(now);
        let mut more = true;
        for _ in 0..EVENTS_PER_TICK {
            if !self.step(now) {
                more = false;
                break;
            }
        }
        self.slice(now);
        self.wake(now);
        let (mut watching, mut front) = (false, None);
        for queue in self.processes.values_mut().flat_map(|process| process.queues.values_mut()) {
            watching |= queue.active() && queue.state == State::Blocked;
            front = [front, queue.next()].into_iter().flatten().min();
        }
        let due = self.moves.iter().map(|m| if m.effect.is_done() { m.not_before } else { now });
        let ends = self.gpus.iter().filter_map(|gpu| gpu.model.next());
        Outlook {
            next: due.chain(ends).chain(front).chain(self.next_deadline()).min(),
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
            for (&id, queue) in process.queues.iter_mut().filter(|(_, queue)| queue.state != State::Dead) {
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
        match (end, front) {
            (Some((t, gpu)), front) if t <= now && front.is_none_or(|(at, _)| t <= at) => {
                let mut progress = Vec::new();
                self.gpus[gpu].model.advance(t, &mut progress);
                self.account_busy(gpu, t);
                self.apply(t, progress);
                true
            }
            (_, Some((t, key))) if t <= now => {
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
        let Some(process) = self.processes.get_mut(&key.pid) else { return Ok(()) };
        let Some(queue) = process.queues.get(&key.id) else { return Ok(()) };
        if at == 0 {
            return Ok(());
        }
        let view = View { arena: &self.arena, space: &process.space, pid: key.pid, gpu: queue.gpu };
        // Read before the value falls: from then on the client may destroy the signal.
        let (mailbox, event) = (view.load_u64(at + 16)?, view.load_u32(at + 24)?);
        view.write(at + 32, &start.to_le_bytes())?;
        view.write(at + 40, &end.to_le_bytes())?;
        view.decrement(at + 8)?;
        if mailbox != 0 {
            view.write(mailbox, &u64::from(event).to_le_bytes())?;
            process.events.set(event);
            self.wake(end);
        }
        self.recheck(end);
        Ok(())
    }

    /// Raises an event by its id (the copy engine's trap).
    fn raise(&mut self, key: QueueKey, event: u32, t: Time) {
        if let Some(process) = self.processes.get_mut(&key.pid) {
            process.events.set(event);
        }
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
