//! The end of kernels and copies: memory changes, signals complete, events are raised, and waiting packets
//! look again.

use std::sync::atomic::Ordering;

use crate::clock;
use crate::device::{Model, Progress, QueueKey, Time};
use crate::machine::{Execution, Machine, Move, State, Then};
use crate::space::{Fault, View};

/// The size up to which an effect is made at once at the kernel's end, and the slice of larger effects,
/// bytes.
const SLICE: u64 = 64 << 10;

/// Makes every packet that waits for memory check it again at `now`.
pub fn recheck(machine: &mut Machine, now: Time) {
    for process in machine.processes.values_mut() {
        for queue in process.queues.values_mut().filter(|queue| queue.state == State::Blocked) {
            queue.state = State::Fetch;
            queue.ready_at = queue.ready_at.max(now);
        }
    }
}

/// Changes the model of a GPU's compute units at `t`, and handles the progress that it reports.
pub fn run_model(
    machine: &mut Machine,
    gpu: usize,
    t: Time,
    change: impl FnOnce(&mut dyn Model, &mut Vec<Progress>),
) {
    let mut progress = Vec::new();
    change(&mut *machine.gpus[gpu].model, &mut progress);
    machine.account_busy(gpu, t);
    apply(machine, t, progress);
}

/// Handles the progress that a model of compute units has reported at `t`.
fn apply(machine: &mut Machine, t: Time, progress: Vec<Progress>) {
    for item in progress {
        match item {
            Progress::Launched(id) => {
                let Some(key) = machine.work.executions.get(&id).map(|execution| execution.queue) else {
                    continue;
                };
                if let Some(queue) = machine.queue_mut(key)
                    && queue.state == State::Launching(id)
                {
                    queue.state = State::Fetch;
                    queue.ready_at = queue.ready_at.max(t);
                }
            }
            Progress::Done { id, start, end } => {
                let Some(execution) = machine.work.executions.remove(&id) else { continue };
                let key = execution.queue;
                if let Err(fault) = end_kernel(machine, execution, start, end) {
                    machine.stop(end, key, fault.into());
                }
            }
        }
    }
}

/// Ends a kernel whose last work-group has ended: makes its effect, or begins it if it is large.
fn end_kernel(machine: &mut Machine, execution: Execution, start: Time, end: Time) -> Result<(), Fault> {
    let Execution { queue: key, signal, alone, mut effect } = execution;
    let Some(gpu) = machine.queue_mut(key).map(|queue| queue.gpu) else { return Ok(()) };
    if let Some(timeline) = &mut machine.timeline {
        timeline.executed(gpu, key.pid, alone);
    }
    if effect.bytes() > SLICE {
        machine.work.moves.push_back(Move {
            queue: key,
            effect,
            not_before: end,
            then: Then::Kernel { start, signal },
        });
        return Ok(());
    }
    if let Some(view) = machine.view(key.pid, gpu) {
        effect.finish(&view, SLICE)?;
    }
    complete_kernel(machine, key, signal, start, end)?;
    machine.stats.completed(end, clock::now());
    Ok(())
}

/// Completes a kernel: its signal completes, and packets that waited for it continue.
fn complete_kernel(
    machine: &mut Machine,
    key: QueueKey,
    signal: u64,
    start: Time,
    end: Time,
) -> Result<(), Fault> {
    if let Some(queue) = machine.queue_mut(key) {
        queue.counts.add("kernel");
        queue.outstanding -= 1;
        let gpu = queue.gpu;
        if queue.outstanding == 0 && queue.state == State::Barrier {
            queue.state = State::Fetch;
            queue.ready_at = queue.ready_at.max(end);
        }
        if let Some(timeline) = &mut machine.timeline {
            timeline.ended(gpu, key.pid, end);
        }
    }
    complete_signal(machine, key, signal, start, end)
}

/// Completes a signal (`amd_signal_t` of ROCr's `amd_hsa_signal.h`): time stamps, value, interrupt.
pub fn complete_signal(
    machine: &mut Machine,
    key: QueueKey,
    at: u64,
    start: Time,
    end: Time,
) -> Result<(), Fault> {
    let Some(process) = machine.processes.get(&key.pid) else { return Ok(()) };
    let Some(queue) = process.queues.get(&key.id) else { return Ok(()) };
    if at == 0 {
        return Ok(());
    }
    let view = View { arena: &machine.memory.arena, space: &process.space, pid: key.pid, gpu: queue.gpu };
    // Read the fields before the decrement, after which the client can destroy the signal.
    let field = |offset: u64| at.wrapping_add(offset);
    let (mailbox, event) = (view.load_u64(field(16))?, view.load_u32(field(24))?);
    view.write(field(32), &start.to_le_bytes())?;
    view.write(field(40), &end.to_le_bytes())?;
    view.atomic(field(8))?.fetch_sub(1, Ordering::AcqRel);
    if mailbox != 0 {
        view.write(mailbox, &u64::from(event).to_le_bytes())?;
        raise(machine, key, event, end);
    }
    recheck(machine, end);
    Ok(())
}

/// Raises an event of a signal or of a copy engine's trap packet.
pub fn raise(machine: &mut Machine, key: QueueKey, event: u32, t: Time) {
    machine.set_event(key.pid, event);
    machine.wake(t);
}

/// Makes a slice of each large change of memory, and completes those that are done and due.
pub fn slice(machine: &mut Machine, now: Time) {
    for _ in 0..machine.work.moves.len() {
        let Some(mut item) = machine.work.moves.pop_front() else { return };
        let key = item.queue;
        let Some(gpu) = machine.queue_mut(key).map(|queue| queue.gpu) else { continue };
        let step = machine.view(key.pid, gpu).map_or(Ok(()), |view| item.effect.step(&view, SLICE));
        let end = clock::now().max(item.not_before);
        let result = match step {
            Err(fault) => Err(fault),
            Ok(()) if !item.effect.is_done() || item.not_before > now => {
                machine.work.moves.push_back(item);
                Ok(())
            }
            Ok(()) => complete_move(machine, key, item.then, end),
        };
        if let Err(fault) = result {
            machine.stop(now, key, fault.into());
        }
    }
}

/// Starts the action that follows a change of memory.
fn complete_move(machine: &mut Machine, key: QueueKey, then: Then, end: Time) -> Result<(), Fault> {
    match then {
        Then::Kernel { start, signal } => complete_kernel(machine, key, signal, start, end),
        Then::NextPacket => {
            if let Some(queue) = machine.queue_mut(key) {
                queue.state = State::Fetch;
                queue.ready_at = queue.ready_at.max(end);
            }
            Ok(())
        }
    }
}
