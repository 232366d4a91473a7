//! Eviction and restoration of hardware queues by the kernel driver, and their costs. Facts: Linux 6.12
//! `kfd_device_queue_manager.c`.
//!
//! Each GPU has one driver lock (`dqm_lock`). A change of its queues is an [`Operation`], and the operations
//! of a GPU follow one another in virtual time. With the hardware scheduler of gfx9 (HWS), nearly every
//! operation evicts **all** queues of the device and restores those that should run. With that of gfx11
//! (MES), it evicts only the queue that changes. The caller waits for the eviction; the restoration happens
//! after its answer.

use hip_sys::kfd;

use super::batch::{batch_done, unblock};
use crate::device::{Properties, QueueKey, Time};
use crate::fuse::Reply;
use crate::machine::{ActiveOperation, Change, Follow, Kind, Machine, Operation, Parked, Stage, State};
use crate::packets::run_model;

/// The time for which a device that is being reset takes no operations.
pub const RESET: Time = 20_000_000;

/// Begins an operation of a GPU's driver at `now`, or queues it behind others.
pub fn operate(machine: &mut Machine, now: Time, gpu: usize, change: Change, follow: Follow) {
    let operation = Operation { change, follow };
    let scheduler = &mut machine.gpus[gpu].scheduler;
    if scheduler.resetting.is_some_and(|until| until > now) {
        finish(machine, now, operation, Err(libc::EIO));
        return;
    }
    scheduler.waiting.push_back(operation);
    while next_due_of(machine, gpu).is_some_and(|at| at <= now) {
        drive(machine, gpu, now);
    }
}

/// Returns the next time at which a driver must act, and its GPU.
pub fn next_due(machine: &Machine) -> Option<(Time, usize)> {
    (0..machine.gpus.len()).filter_map(|gpu| Some((next_due_of(machine, gpu)?, gpu))).min()
}

fn next_due_of(machine: &Machine, gpu: usize) -> Option<Time> {
    let scheduler = &machine.gpus[gpu].scheduler;
    match &scheduler.active {
        None => (!scheduler.waiting.is_empty()).then_some(0),
        Some(active) => match active.stage {
            Stage::Saving(at) | Stage::Stuck(at) | Stage::Restoring(at) => Some(at),
            Stage::Draining(limit) => Some(if drained(machine, &active.evicted) { 0 } else { limit }),
        },
    }
}

fn drained(machine: &Machine, off: &[QueueKey]) -> bool {
    off.iter().all(|key| machine.queue(*key).is_none_or(|queue| queue.outstanding == 0))
}

/// Takes the driver of a GPU to its next stage at `t`, which must be due.
pub fn drive(machine: &mut Machine, gpu: usize, t: Time) {
    let Some(active) = machine.gpus[gpu].scheduler.active.take() else {
        if let Some(operation) = machine.gpus[gpu].scheduler.waiting.pop_front() {
            begin(machine, gpu, operation, t);
        }
        return;
    };
    match active.stage {
        Stage::Restoring(_) => finish_restoration(machine, gpu, &active.restored, t),
        Stage::Draining(limit) if limit > t || drained(machine, &active.evicted) => {
            finish_eviction(machine, gpu, active, t);
        }
        Stage::Saving(_) => finish_eviction(machine, gpu, active, t),
        Stage::Draining(_) | Stage::Stuck(_) => hang(machine, gpu, active, t),
    }
}

fn queues_to_evict(machine: &Machine, gpu: usize, change: &Change) -> Vec<QueueKey> {
    let named = change.queues();
    let mes = machine.gpus[gpu].config.arch.mes;
    // An eviction that costs nothing and is restored at once has no effect, and is skipped.
    let settings = &machine.driver.settings;
    let free = settings.cwsr && settings.save == 0 && settings.restore == 0;
    let mut stuck = false;
    let mut off = Vec::new();
    for (&pid, process) in &machine.processes {
        for (&id, queue) in process.queues.iter().filter(|(_, queue)| queue.gpu == gpu && queue.mapped) {
            let key = QueueKey { pid, id };
            let named = named.contains(&key);
            if !named && mes {
                continue;
            }
            stuck |= queue.stuck && queue.outstanding > 0;
            let stays_off = !queue.should_run() || matches!(change, Change::Destroy(_));
            off.push((key, named && stays_off));
        }
    }
    off.retain(|(_, stays_off)| !free || stuck || *stays_off);
    off.into_iter().map(|(key, _)| key).collect()
}

fn begin(machine: &mut Machine, gpu: usize, operation: Operation, t: Time) {
    if let Change::Suspend(keys) = &operation.change {
        machine.each_queue(keys, |queue| (queue.suspended, queue.active) = (true, false));
    }
    let off = queues_to_evict(machine, gpu, &operation.change);
    machine.each_queue(&off, |queue| queue.mapped = false);
    let is_stuck = |key: &QueueKey| machine.queue(*key).is_some_and(|q| q.stuck && q.outstanding > 0);
    let stage = if off.iter().any(is_stuck) {
        Stage::Stuck(t.saturating_add(machine.driver.settings.timeout))
    } else if !machine.driver.settings.cwsr {
        Stage::Draining(t.saturating_add(machine.driver.settings.timeout))
    } else {
        let saved = t.saturating_add(save(machine, gpu, &off, t));
        note_switching(machine, gpu, &operation.change, t, saved);
        Stage::Saving(saved)
    };
    let scheduler = &mut machine.gpus[gpu].scheduler;
    scheduler.unmaps += u64::from(!off.is_empty());
    scheduler.active =
        Some(ActiveOperation { operation: Some(operation), stage, evicted: off, restored: Vec::new() });
}

/// Returns those of these queues that are compute queues.
fn compute_queues(machine: &Machine, keys: &[QueueKey]) -> Vec<QueueKey> {
    let compute = |key: &QueueKey| machine.queue(*key).is_some_and(|queue| queue.kind == Kind::Aql);
    keys.iter().copied().filter(compute).collect()
}

/// Saves the running waves of these queues. Returns the time that it takes.
fn save(machine: &mut Machine, gpu: usize, off: &[QueueKey], t: Time) -> Time {
    let compute = compute_queues(machine, off);
    let mut saved = 0;
    for key in &compute {
        let runs = machine.gpus[gpu].model.runs(*key);
        if let Some(queue) = machine.queue_mut(*key) {
            queue.saved |= runs;
        }
        saved += u64::from(runs);
    }
    run_model(machine, gpu, t, |model, progress| model.evict(t, &compute, progress));
    note_off(machine, gpu, &compute, t);
    let cost = cost(machine, gpu, machine.driver.settings.save, saved);
    let scheduler = &mut machine.gpus[gpu].scheduler;
    scheduler.saves += u64::from(saved > 0);
    scheduler.spent = scheduler.spent.saturating_add(cost);
    cost
}

/// Returns the time for saving or restoring: HWS handles all queues at once, MES one after the other.
fn cost(machine: &Machine, gpu: usize, each: Time, queues: u64) -> Time {
    if machine.gpus[gpu].config.arch.mes { each.saturating_mul(queues) } else { each * queues.min(1) }
}

/// Finishes the eviction: the change takes effect, the caller is answered, and the restoration begins.
fn finish_eviction(machine: &mut Machine, gpu: usize, mut active: ActiveOperation, t: Time) {
    let Some(operation) = active.operation.take() else { return };
    let named = operation.change.queues();
    if matches!(active.stage, Stage::Draining(_)) {
        let compute = compute_queues(machine, &active.evicted);
        note_off(machine, gpu, &compute, t);
    }
    if let Change::Destroy(key) = operation.change {
        forget_queue(machine, t, key);
    }
    machine.each_queue(named, |queue| {
        queue.suspended &= !matches!(operation.change, Change::Resume(_));
        queue.active = queue.should_run();
    });
    named.iter().for_each(|key| apply_properties(machine, *key, t));
    let mes = machine.gpus[gpu].config.arch.mes;
    let mut back = Vec::new();
    let mut saved = 0;
    for (&pid, process) in &machine.processes {
        for (&id, queue) in &process.queues {
            let key = QueueKey { pid, id };
            let ours = queue.gpu == gpu && (!mes || named.contains(&key));
            if ours && queue.active && !queue.mapped && queue.state != State::Dead {
                back.push(key);
                saved += u64::from(queue.saved);
            }
        }
    }
    let cost = cost(machine, gpu, machine.driver.settings.restore, saved);
    let scheduler = &mut machine.gpus[gpu].scheduler;
    scheduler.spent = scheduler.spent.saturating_add(cost);
    active.restored = back;
    let restored = t.saturating_add(cost);
    note_switching(machine, gpu, &operation.change, t, restored);
    active.stage = Stage::Restoring(restored);
    machine.gpus[gpu].scheduler.active = Some(active);
    finish(machine, t, operation, Ok(()));
}

/// Makes the priority and the mask of a compute queue take effect.
fn apply_properties(machine: &mut Machine, key: QueueKey, t: Time) {
    let Some(queue) = machine.queue(key).filter(|queue| queue.kind == Kind::Aql) else { return };
    let (gpu, priority) = (queue.gpu, queue.priority);
    let per_unit = machine.gpus[gpu].config.arch.waves_per_cu();
    let properties = Properties { priority, slots: queue.compute_units.map(|units| units * per_unit) };
    if machine.gpus[gpu].model.properties(key) == properties {
        return;
    }
    run_model(machine, gpu, t, |model, progress| model.set_properties(t, key, properties, progress));
}

/// Finishes the restoration: the queues run again.
fn finish_restoration(machine: &mut Machine, gpu: usize, back: &[QueueKey], t: Time) {
    machine.each_queue(back, |queue| {
        (queue.mapped, queue.saved) = (true, false);
        // Packets that arrived meanwhile begin now.
        queue.ready_at = queue.ready_at.max(t);
    });
    note_on(machine, gpu, back, t);
    run_model(machine, gpu, t, |model, progress| model.restore(t, back, progress));
}

/// Records that these compute queues are off the hardware.
fn note_off(machine: &mut Machine, gpu: usize, off: &[QueueKey], t: Time) {
    if let Some(timeline) = &mut machine.timeline {
        off.iter().for_each(|key| timeline.off(gpu, *key, t));
    }
}

/// Records that these queues are on the hardware again, or gone.
fn note_on(machine: &mut Machine, gpu: usize, back: &[QueueKey], t: Time) {
    if let Some(timeline) = &mut machine.timeline {
        back.iter().for_each(|key| timeline.on(gpu, *key, t));
    }
}

/// Records that an operation saves or restores running work.
fn note_switching(machine: &mut Machine, gpu: usize, change: &Change, from: Time, to: Time) {
    if let Some(timeline) = &mut machine.timeline {
        // The operations without a queue are no process's request.
        timeline.switching(gpu, change.queues().first().map_or(0, |key| key.pid), from, to);
    }
}

/// Resets the device after an eviction timed out, for every process.
fn hang(machine: &mut Machine, gpu: usize, mut active: ActiveOperation, t: Time) {
    reset(machine, gpu, t);
    let waiting = std::mem::take(&mut machine.gpus[gpu].scheduler.waiting);
    if let Some(operation) = active.operation.take() {
        finish(machine, t, operation, Err(libc::ETIME));
    }
    for operation in waiting {
        finish(machine, t, operation, Err(libc::EIO));
    }
}

/// Drops all queues and work of the device, and notifies every process on it (`kfd_signal_reset_event`).
fn reset(machine: &mut Machine, gpu: usize, t: Time) {
    let scheduler = &mut machine.gpus[gpu].scheduler;
    (scheduler.resetting, scheduler.resets) = (Some(t + RESET), scheduler.resets + 1);
    let mut lost = Vec::new();
    for (&pid, process) in &mut machine.processes {
        for (&id, queue) in process.queues.iter_mut().filter(|(_, queue)| queue.gpu == gpu) {
            (queue.state, queue.mapped, queue.active) = (State::Dead, false, false);
            (queue.reset, queue.saved) = (true, false);
            lost.push(QueueKey { pid, id });
        }
    }
    note_on(machine, gpu, &lost, t);
    machine.work.forget(|key| lost.contains(&key));
    // All work of the device is forgotten, so that no progress has an effect.
    run_model(machine, gpu, t, |model, progress| lost.iter().for_each(|key| model.remove(t, *key, progress)));
    let gpu_id = machine.gpus[gpu].config.gpu_id;
    lost.dedup_by_key(|key| key.pid);
    for key in lost {
        machine.exception(key.pid, kfd::EVENT_HW_EXCEPTION, 0, gpu_id);
    }
    machine.wake(t);
}

/// Finishes an operation and starts the action that follows.
fn finish(machine: &mut Machine, t: Time, operation: Operation, result: Result<(), i32>) {
    match &operation.change {
        // The driver destroys a queue despite the error (`pqm_destroy_queue`).
        Change::Create(key) | Change::Destroy(key) if result.is_err() => forget_queue(machine, t, *key),
        // The driver counts queues as resumed despite the error (`resume_single_queue`).
        Change::Resume(keys) if result.is_err() => {
            machine.each_queue(keys, |queue| queue.suspended = false);
        }
        _ => {}
    }
    match operation.follow {
        Follow::Nothing => {
            if let Change::Resume(keys) = &operation.change
                && let Some(pid) = keys.first().map(|key| key.pid)
            {
                unblock(machine, t, pid);
            }
        }
        Follow::Answer(parked, answer) => answer_parked(machine, t, parked, result.and(answer)),
        Follow::Batch(batch) => batch_done(machine, t, *batch, operation.change.queues(), result),
    }
}

/// Answers a call whose operation has ended, and releases the lock of its process.
pub fn answer_parked(machine: &mut Machine, t: Time, parked: Parked, answer: Result<Reply, i32>) {
    machine.calls.uninterruptible.remove(&parked.unique);
    machine.outbox.answers.push((parked.unique, answer));
    if let Some(process) = machine.processes.get_mut(&parked.domain) {
        process.locked = false;
    }
    unlock(machine, t, parked.domain);
}

/// Marks the lock of a process as free at `t`. The engine executes the calls that wait for it after this
/// operation has returned, because many of them would nest too deeply.
pub fn unlock(machine: &mut Machine, t: Time, pid: i32) {
    machine.calls.unlocked.push_back((pid, t));
}

/// Removes a queue and keeps its counts.
pub fn forget_queue(machine: &mut Machine, now: Time, key: QueueKey) {
    let Some(process) = machine.processes.get_mut(&key.pid) else { return };
    let Some(queue) = process.queues.remove(&key.id) else { return };
    machine.driver.sysfs.remove(key.pid, key.id);
    process.stats.retire(key.id, machine.gpus[queue.gpu].config.gpu_id, &queue);
    note_on(machine, queue.gpu, &[key], now);
    machine.work.forget(|other| other == key);
    // The slots that become free let other kernels start.
    run_model(machine, queue.gpu, now, |model, progress| model.remove(now, key, progress));
}

/// Removes all queues of a process. With HWS, each device then evicts and restores the other queues.
pub fn forget_queues(machine: &mut Machine, now: Time, pid: i32) {
    let Some(process) = machine.processes.get(&pid) else { return };
    let queues: Vec<(u32, usize, bool)> =
        process.queues.iter().map(|(id, queue)| (*id, queue.gpu, queue.mapped)).collect();
    for (id, ..) in &queues {
        forget_queue(machine, now, QueueKey { pid, id: *id });
    }
    for gpu in 0..machine.gpus.len() {
        let any = queues.iter().any(|(_, at, mapped)| *at == gpu && *mapped);
        if any && !machine.gpus[gpu].config.arch.mes {
            operate(machine, now, gpu, Change::Refresh, Follow::Nothing);
        }
    }
}
