//! What the kernel driver does with hardware queues: which are mapped, how they are taken off and put back, and what
//! that costs. Facts: Linux 6.12 `kfd_device_queue_manager.c`.
//!
//! Each GPU has one driver lock (`dqm_lock`): what changes its queues is an [`Operation`], and operations of a GPU happen
//! one after the other in virtual time. Under the hardware scheduler of gfx9 (HWS) nearly each of them takes **all** queues
//! of the device off and puts those that are still wanted back; under that of gfx11 (MES) only the queue that it is about.
//! A caller waits until the queues are off; that they are put back happens behind it.

mod debug;
mod exceptions;
mod faults;
mod queues;
mod sysfs;
#[cfg(test)]
mod tests;

pub use debug::{Blocked, Debug, Parked};
pub use exceptions::notify;
pub use faults::{Failure, Faults};
pub use sysfs::Sysfs;

use std::collections::VecDeque;

use crate::device::{QueueKey, Time};
use crate::fuse::{Reply, Unique};
use crate::machine::{Kind, Machine, State};

/// How long a device that is being reset takes no operations.
const RESET: Time = 20_000_000;

/// What the driver and the device are like.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long the device takes to save what runs on the queues that it is to take off.
    pub save: Time,
    /// How long it takes to bring that back.
    pub restore: Time,
    /// Waves are saved (CWSR); otherwise taking a queue off waits until its kernels have ended.
    pub cwsr: bool,
    /// How long the driver waits for queues to come off before it resets the device (`queue_preemption_timeout_ms`).
    pub timeout: Time,
    /// The compute queue, counted from 1 over all that are created, that never comes off while a kernel of its is there.
    pub stuck: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { save: 0, restore: 0, cwsr: true, timeout: 9_000_000_000, stuck: None }
    }
}

/// What an operation changes, once the queues are off.
#[derive(Clone, Debug)]
pub enum Change {
    /// A queue's properties take effect.
    Update(QueueKey),
    /// A queue has come into being.
    Create(QueueKey),
    /// A queue goes.
    Destroy(QueueKey),
    /// These were suspended for a debugger.
    Suspend(Vec<QueueKey>),
    /// These are suspended no more.
    Resume(Vec<QueueKey>),
    /// Nothing: everything is taken off and put back.
    Refresh,
}

impl Change {
    fn queues(&self) -> &[QueueKey] {
        match self {
            Self::Update(key) | Self::Create(key) | Self::Destroy(key) => std::slice::from_ref(key),
            Self::Suspend(keys) | Self::Resume(keys) => keys,
            Self::Refresh => &[],
        }
    }
}

/// What follows an operation.
#[derive(Debug)]
pub enum Follow {
    /// Nobody waits for it.
    Nothing,
    /// The caller gets this answer, or the operation's error.
    Answer(Parked, Result<Reply, i32>),
    /// The next device of a suspend or resume.
    Batch(Box<debug::Batch>),
}

/// A change and what follows it.
#[derive(Debug)]
pub struct Operation {
    /// What changes.
    pub change: Change,
    /// What comes then.
    pub follow: Follow,
}

/// How far the operation at work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waves are being saved.
    Saving(Time),
    /// Kernels are awaited, until the driver gives up.
    Draining(Time),
    /// A queue does not come off; then the driver gives up.
    Stuck(Time),
    /// Waves are being restored.
    Restoring(Time),
}

/// The operation that holds a GPU's lock.
#[derive(Debug)]
struct Work {
    operation: Option<Operation>,
    stage: Stage,
    /// What was mapped and is off now.
    off: Vec<QueueKey>,
    /// What is being put back.
    back: Vec<QueueKey>,
}

/// The driver's side of one GPU.
#[derive(Debug, Default)]
pub struct Scheduler {
    work: Option<Work>,
    waiting: VecDeque<Operation>,
    /// Until when the device is being reset.
    resetting: Option<Time>,
    /// Operations that took any queue off.
    pub unmaps: u64,
    /// Of those, how many saved waves.
    pub saves: u64,
    /// Time that went into saving and restoring.
    pub spent: Time,
    /// Resets.
    pub resets: u64,
}

impl Scheduler {
    /// What is told of it in statistics.
    pub fn report(&self) -> serde_json::Value {
        serde_json::json!({
            "unmaps": self.unmaps,
            "saves": self.saves,
            "save_restore_us": self.spent as f64 / 1000.0,
            "resets": self.resets,
        })
    }
}

impl Machine {
    /// Hands an operation to a GPU's driver at `now`.
    pub(super) fn operate(&mut self, now: Time, gpu: usize, operation: Operation) {
        let scheduler = &mut self.gpus[gpu].scheduler;
        if scheduler.resetting.is_some_and(|until| until > now) {
            self.finish(now, operation, Err(libc::EIO));
            return;
        }
        scheduler.waiting.push_back(operation);
        while self.next_driver_of(gpu).is_some_and(|at| at <= now) {
            self.drive(gpu, now);
        }
    }

    /// When a driver has something to do, and for which GPU.
    pub fn next_driver(&self) -> Option<(Time, usize)> {
        (0..self.gpus.len()).filter_map(|gpu| Some((self.next_driver_of(gpu)?, gpu))).min()
    }

    fn next_driver_of(&self, gpu: usize) -> Option<Time> {
        let scheduler = &self.gpus[gpu].scheduler;
        match &scheduler.work {
            None => (!scheduler.waiting.is_empty()).then_some(0),
            Some(work) => match work.stage {
                Stage::Saving(at) | Stage::Stuck(at) | Stage::Restoring(at) => Some(at),
                Stage::Draining(limit) => Some(if self.drained(&work.off) { 0 } else { limit }),
            },
        }
    }

    fn drained(&self, off: &[QueueKey]) -> bool {
        off.iter().all(|key| self.queue(*key).is_none_or(|queue| queue.outstanding == 0))
    }

    /// Takes a GPU's driver one step on at `t`, when that is due.
    pub fn drive(&mut self, gpu: usize, t: Time) {
        let Some(work) = self.gpus[gpu].scheduler.work.take() else {
            if let Some(operation) = self.gpus[gpu].scheduler.waiting.pop_front() {
                self.begin(gpu, operation, t);
            }
            return;
        };
        match work.stage {
            Stage::Draining(limit) if limit <= t && !self.drained(&work.off) => self.hang(gpu, work, t),
            Stage::Stuck(_) => self.hang(gpu, work, t),
            Stage::Saving(_) | Stage::Draining(_) => self.unmapped(gpu, work, t),
            Stage::Restoring(_) => self.mapped(gpu, &work.back, t),
        }
    }

    /// The queues that an operation takes off.
    fn coming_off(&self, gpu: usize, change: &Change) -> Vec<QueueKey> {
        let named = change.queues();
        let mes = self.gpus[gpu].config.arch.mes;
        // What costs nothing and is put back at once is not taken off: nobody could tell.
        let free = self.settings.cwsr && self.settings.save == 0 && self.settings.restore == 0;
        let mut stuck = false;
        let mut off = Vec::new();
        for (&pid, process) in &self.processes {
            for (&id, queue) in process.queues.iter().filter(|(_, queue)| queue.gpu == gpu && queue.mapped) {
                let key = QueueKey { pid, id };
                let named = named.contains(&key);
                if !named && mes {
                    continue;
                }
                stuck |= queue.stuck && queue.outstanding > 0;
                let stays_off = !queue.wanted() || matches!(change, Change::Destroy(_));
                off.push((key, named && stays_off));
            }
        }
        off.retain(|(_, stays_off)| !free || stuck || *stays_off);
        off.into_iter().map(|(key, _)| key).collect()
    }

    fn begin(&mut self, gpu: usize, operation: Operation, t: Time) {
        if let Change::Suspend(keys) = &operation.change {
            for key in keys.clone() {
                if let Some(queue) = self.queue_mut(key) {
                    (queue.suspended, queue.active) = (true, false);
                }
            }
        }
        let off = self.coming_off(gpu, &operation.change);
        for key in &off {
            if let Some(queue) = self.queue_mut(*key) {
                queue.mapped = false;
            }
        }
        let is_stuck = |key: &QueueKey| self.queue(*key).is_some_and(|q| q.stuck && q.outstanding > 0);
        let stage = if off.iter().any(is_stuck) {
            Stage::Stuck(t.saturating_add(self.settings.timeout))
        } else if !self.settings.cwsr {
            Stage::Draining(t.saturating_add(self.settings.timeout))
        } else {
            Stage::Saving(t.saturating_add(self.save(gpu, &off, t)))
        };
        let scheduler = &mut self.gpus[gpu].scheduler;
        scheduler.unmaps += u64::from(!off.is_empty());
        scheduler.work = Some(Work { operation: Some(operation), stage, off, back: Vec::new() });
    }

    /// Saves what runs on these queues; returns how long that takes.
    fn save(&mut self, gpu: usize, off: &[QueueKey], t: Time) -> Time {
        let compute: Vec<QueueKey> =
            off.iter().copied().filter(|key| self.queue(*key).is_some_and(|q| q.kind == Kind::Aql)).collect();
        let mut saved = 0;
        for key in &compute {
            let runs = self.gpus[gpu].model.runs(*key);
            if let Some(queue) = self.queue_mut(*key) {
                queue.saved |= runs;
            }
            saved += u64::from(runs);
        }
        let mut progress = Vec::new();
        self.gpus[gpu].model.hold(t, &compute, &mut progress);
        self.account_busy(gpu, t);
        self.apply(t, progress);
        let cost = self.cost(gpu, self.settings.save, saved);
        let scheduler = &mut self.gpus[gpu].scheduler;
        scheduler.saves += u64::from(saved > 0);
        scheduler.spent = scheduler.spent.saturating_add(cost);
        cost
    }

    /// HWS saves or restores everything at once, MES one queue after the other.
    fn cost(&self, gpu: usize, each: Time, queues: u64) -> Time {
        if self.gpus[gpu].config.arch.mes { each.saturating_mul(queues) } else { each * queues.min(1) }
    }

    /// The queues are off: the change takes effect, the caller goes on, and what is wanted is put back.
    fn unmapped(&mut self, gpu: usize, mut work: Work, t: Time) {
        let Some(operation) = work.operation.take() else { return };
        for key in operation.change.queues().to_vec() {
            match operation.change {
                Change::Destroy(_) => {
                    self.forget_queue(t, key);
                    continue;
                }
                Change::Resume(_) => {
                    if let Some(queue) = self.queue_mut(key) {
                        queue.suspended = false;
                    }
                }
                _ => {}
            }
            if let Some(queue) = self.queue_mut(key) {
                queue.active = queue.wanted();
            }
        }
        let mes = self.gpus[gpu].config.arch.mes;
        let named = operation.change.queues();
        let mut back = Vec::new();
        let mut saved = 0;
        for (&pid, process) in &self.processes {
            for (&id, queue) in &process.queues {
                let key = QueueKey { pid, id };
                let ours = queue.gpu == gpu && (!mes || named.contains(&key));
                if ours && queue.active && !queue.mapped && queue.state != State::Dead {
                    back.push(key);
                    saved += u64::from(queue.saved);
                }
            }
        }
        let cost = self.cost(gpu, self.settings.restore, saved);
        let scheduler = &mut self.gpus[gpu].scheduler;
        scheduler.spent = scheduler.spent.saturating_add(cost);
        work.back = back;
        work.stage = Stage::Restoring(t.saturating_add(cost));
        self.gpus[gpu].scheduler.work = Some(work);
        self.finish(t, operation, Ok(()));
    }

    /// The queues run again.
    fn mapped(&mut self, gpu: usize, back: &[QueueKey], t: Time) {
        for key in back {
            if let Some(queue) = self.queue_mut(*key) {
                (queue.mapped, queue.saved) = (true, false);
                // Packets that arrived meanwhile begin now, not when they came.
                queue.ready_at = queue.ready_at.max(t);
            }
        }
        let mut progress = Vec::new();
        self.gpus[gpu].model.resume(t, back, &mut progress);
        self.account_busy(gpu, t);
        self.apply(t, progress);
    }

    /// Queues did not come off in time: the device is reset, for everybody.
    fn hang(&mut self, gpu: usize, mut work: Work, t: Time) {
        self.reset(gpu, t);
        let waiting = std::mem::take(&mut self.gpus[gpu].scheduler.waiting);
        if let Some(operation) = work.operation.take() {
            self.finish(t, operation, Err(libc::ETIME));
        }
        for operation in waiting {
            self.finish(t, operation, Err(libc::EIO));
        }
    }

    /// Everything on the device is lost, and every process on it is told (`kfd_signal_reset_event`).
    fn reset(&mut self, gpu: usize, t: Time) {
        let scheduler = &mut self.gpus[gpu].scheduler;
        (scheduler.resetting, scheduler.resets) = (Some(t + RESET), scheduler.resets + 1);
        let mut lost = Vec::new();
        for (&pid, process) in &mut self.processes {
            for (&id, queue) in process.queues.iter_mut().filter(|(_, queue)| queue.gpu == gpu) {
                (queue.state, queue.mapped, queue.active) = (State::Dead, false, false);
                (queue.reset, queue.saved) = (true, false);
                lost.push(QueueKey { pid, id });
            }
        }
        self.executions.retain(|_, execution| !lost.contains(&execution.queue));
        self.moves.retain(|m| !lost.contains(&m.queue));
        let mut progress = Vec::new();
        for key in &lost {
            self.gpus[gpu].model.remove(t, *key, &mut progress);
        }
        self.account_busy(gpu, t);
        let gpu_id = self.gpus[gpu].config.gpu_id;
        lost.dedup_by_key(|key| key.pid);
        for key in lost {
            self.hardware_exception(key.pid, gpu_id);
        }
        self.wake(t);
    }

    /// An operation has come to its end.
    fn finish(&mut self, t: Time, operation: Operation, result: Result<(), i32>) {
        if let (Change::Create(key), Err(_)) = (&operation.change, result) {
            self.forget_queue(t, *key);
        }
        if let (Change::Destroy(key), Err(_)) = (&operation.change, result) {
            // The driver lets it go even so (`pqm_destroy_queue`).
            self.forget_queue(t, *key);
        }
        if let (Change::Resume(keys), Err(_)) = (&operation.change, result) {
            // To the driver they are suspended no more even so (`resume_single_queue`).
            for key in keys {
                if let Some(queue) = self.queue_mut(*key) {
                    queue.suspended = false;
                }
            }
        }
        match operation.follow {
            Follow::Nothing => {
                if let Change::Resume(keys) = &operation.change
                    && let Some(pid) = keys.first().map(|key| key.pid)
                {
                    self.unblock(t, pid);
                }
            }
            Follow::Answer(parked, answer) => self.settle(t, parked, result.and(answer)),
            Follow::Batch(batch) => self.batch_done(t, *batch, operation.change.queues(), result),
        }
    }

    /// Answers a call whose operation is over, and lets the calls go on that waited for the same process's lock.
    pub(super) fn settle(&mut self, t: Time, parked: Parked, answer: Result<Reply, i32>) {
        self.uninterruptible.remove(&parked.unique);
        self.answers.push((parked.unique, answer));
        if let Some(process) = self.processes.get_mut(&parked.domain) {
            process.locked = false;
        }
        self.unlock(t, parked.domain);
    }

    /// Lets the calls that wait for a process's lock go on, at `t`.
    fn unlock(&mut self, t: Time, pid: i32) {
        // One of them may be answered at once and come here again: the loop that is under way goes on with the next, or
        // many of them would be nested deeper than the stack is.
        let Some(process) = self.processes.get_mut(&pid).filter(|process| !process.unlocking) else { return };
        process.unlocking = true;
        while let Some(process) = self.processes.get_mut(&pid)
            && !process.locked
            && let Some(call) = process.parked.pop_front()
        {
            self.uninterruptible.remove(&call.unique);
            self.execute(&call.call(t));
        }
        if let Some(process) = self.processes.get_mut(&pid) {
            process.unlocking = false;
        }
    }

    /// Takes a process's queues away with it; under HWS that is an update of each device like any other.
    pub(super) fn forget_queues(&mut self, now: Time, pid: i32) {
        let Some(process) = self.processes.get(&pid) else { return };
        let queues: Vec<(u32, usize, bool)> =
            process.queues.iter().map(|(id, queue)| (*id, queue.gpu, queue.mapped)).collect();
        for (id, ..) in &queues {
            self.forget_queue(now, QueueKey { pid, id: *id });
        }
        for gpu in 0..self.gpus.len() {
            let any = queues.iter().any(|(_, at, mapped)| *at == gpu && *mapped);
            if any && !self.gpus[gpu].config.arch.mes {
                self.operate(now, gpu, Operation { change: Change::Refresh, follow: Follow::Nothing });
            }
        }
    }

    /// Whether a call must wait until it is over, come what may.
    pub fn is_uninterruptible(&self, unique: Unique) -> bool {
        self.uninterruptible.contains(&unique)
    }
}
