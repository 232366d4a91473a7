//! The machine: its GPUs, the processes that use them, its memory, and what is under way.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use hip_sys::kfd;

use super::debug::{Calls, Parked};
use super::faults::Faults;
use super::process::{Allocation, Process, Unusable};
use super::queue::{Queue, State};
use super::scheduler::{Scheduler, Settings};
use super::shared::Shared;
use super::stats::Stats;
use super::sysfs::Sysfs;
use super::timeline::Timeline;
use crate::arena::Arena;
use crate::call::{Answer, Call};
use crate::device::{Model, QueueKey, Time, WorkId};
use crate::fuse::{Reply, Unique};
use crate::kernels::{Durations, Effect};
use crate::space::View;
use crate::topology::GpuConfig;

#[derive(Debug)]
pub struct Gpu {
    pub config: GpuConfig,
    /// Device memory in use, bytes.
    pub used: u64,
    pub model: Box<dyn Model>,
    /// The driver's operations on its queues.
    pub scheduler: Scheduler,
    pub busy_since: Option<Time>,
    /// The time with any work-group running, up to `busy_since`.
    pub busy: Time,
}

impl Gpu {
    pub fn new(config: GpuConfig, model: Box<dyn Model>) -> Self {
        Self { config, used: 0, model, scheduler: Scheduler::default(), busy_since: None, busy: 0 }
    }
}

/// A kernel that has been handed to the compute units.
#[derive(Debug)]
pub struct Execution {
    pub queue: QueueKey,
    /// Address of its completion signal, or 0.
    pub signal: u64,
    /// The time that it takes alone on the device.
    pub alone: Time,
    /// Its effect on memory, which is made at its end.
    pub effect: Effect,
}

/// A large change of memory, which is made in steps.
#[derive(Debug)]
pub struct Move {
    pub queue: QueueKey,
    pub effect: Effect,
    /// The earliest end, as the model says.
    pub not_before: Time,
    pub then: Then,
}

#[derive(Debug)]
pub enum Then {
    /// The kernel that made it is complete.
    Kernel {
        /// The time at which its first work-group was placed.
        start: Time,
        /// Its completion signal, or 0.
        signal: u64,
    },
    /// The copy engine takes its next packet.
    NextPacket,
}

/// Kernels and copies that have begun and are not complete.
#[derive(Debug, Default)]
pub struct Work {
    pub executions: HashMap<WorkId, Execution>,
    pub moves: VecDeque<Move>,
    last_id: WorkId,
}

impl Work {
    /// Returns a new id for a kernel execution; ids grow.
    pub fn new_id(&mut self) -> WorkId {
        self.last_id += 1;
        self.last_id
    }

    /// Forgets the work of these queues.
    pub fn forget(&mut self, of: impl Fn(QueueKey) -> bool) {
        self.executions.retain(|_, execution| !of(execution.queue));
        self.moves.retain(|m| !of(m.queue));
    }
}

#[derive(Debug)]
pub struct Memory {
    pub arena: Arena,
    pub shared: Shared,
    /// Host memory that clients have allocated, bytes.
    pub host_used: u64,
    pub host_limit: u64,
}

/// Messages that the holder of the lock sends once it has released the lock.
#[derive(Debug, Default)]
pub struct Outbox {
    pub answers: Vec<(Unique, Answer<Reply>)>,
    /// Processes to be ended, with the reason.
    pub failures: Vec<(i32, String)>,
    /// Messages to users about processes that go on.
    pub remarks: Vec<(i32, String)>,
    pub notices: Vec<Arc<OwnedFd>>,
}

impl Outbox {
    pub fn answer(&mut self, call: &Call, reply: Reply) -> Answer<()> {
        self.answers.push((call.unique, Ok(reply)));
        Ok(())
    }
}

/// The driver's state that belongs to no single GPU or process.
#[derive(Debug, Default)]
pub struct DriverState {
    pub settings: Settings,
    pub sysfs: Sysfs,
    pub faults: Option<Faults>,
    pub compute_queues: u32,
}

#[derive(Debug)]
pub struct Machine {
    /// The GPUs, by index.
    pub gpus: Vec<Gpu>,
    /// The processes that have opened the KFD, by process id.
    pub processes: BTreeMap<i32, Process>,
    pub memory: Memory,
    pub work: Work,
    pub calls: Calls,
    pub driver: DriverState,
    /// Messages to be sent outside the lock.
    pub outbox: Outbox,
    pub durations: Durations,
    pub stats: Stats,
    /// The record of the run, if one is wanted.
    pub timeline: Option<Timeline>,
    /// The time of the last event.
    pub clock: Time,
}

impl Machine {
    pub fn new(arena: Arena, gpus: Vec<Gpu>, durations: Durations) -> Self {
        let host_limit = crate::topology::host_memory();
        Self {
            gpus,
            processes: BTreeMap::new(),
            memory: Memory { arena, shared: Shared::default(), host_used: 0, host_limit },
            work: Work::default(),
            calls: Calls::default(),
            driver: DriverState::default(),
            outbox: Outbox::default(),
            durations,
            stats: Stats::default(),
            timeline: None,
            clock: 0,
        }
    }

    pub fn gpu_index(&self, gpu_id: u32) -> Option<usize> {
        self.gpus.iter().position(|gpu| gpu.config.gpu_id == gpu_id)
    }

    /// Returns the process, if it has opened the device.
    pub fn process(&mut self, pid: i32) -> Answer<&mut Process> {
        self.processes.get_mut(&pid).ok_or(libc::EBADF)
    }

    pub fn queue(&self, key: QueueKey) -> Option<&Queue> {
        self.processes.get(&key.pid)?.queues.get(&key.id)
    }

    /// Gives a call the lock of a process until the call is answered.
    pub fn lock(&mut self, parked: &Parked) {
        self.calls.uninterruptible.insert(parked.unique);
        if let Some(process) = self.processes.get_mut(&parked.domain) {
            process.locked = true;
        }
    }

    pub fn queue_mut(&mut self, key: QueueKey) -> Option<&mut Queue> {
        self.processes.get_mut(&key.pid)?.queues.get_mut(&key.id)
    }

    /// Changes each of these queues that exists.
    pub fn each_queue(&mut self, keys: &[QueueKey], mut change: impl FnMut(&mut Queue)) {
        for key in keys {
            self.queue_mut(*key).map(&mut change);
        }
    }

    /// Returns a process's memory as a GPU sees it.
    pub fn view(&self, pid: i32, gpu: usize) -> Option<View<'_>> {
        let process = self.processes.get(&pid)?;
        Some(View { arena: &self.memory.arena, space: &process.space, pid, gpu })
    }

    /// Ends a process for a reason: it asked for what this device does not simulate.
    pub fn fail(&mut self, pid: i32, reason: String) {
        self.stop_queues(pid);
        self.outbox.failures.push((pid, reason));
    }

    fn stop_queues(&mut self, pid: i32) {
        let queues = self.processes.get_mut(&pid).into_iter().flat_map(|process| process.queues.values_mut());
        queues.for_each(|queue| queue.state = State::Dead);
    }

    /// Stops the process's GPU work. A fault is reported as a GPU does, by a memory exception event, which
    /// makes the runtime abort with its own message. Any other reason ends the process with a message.
    pub fn stop(&mut self, now: Time, key: QueueKey, why: Unusable) {
        let gpu_id = self.queue_mut(key).map(|queue| queue.gpu).map_or(0, |gpu| self.gpus[gpu].config.gpu_id);
        match why {
            Unusable::Fault(fault) => {
                self.stop_queues(key.pid);
                if self.exception(key.pid, kfd::EVENT_MEMORY, fault.va, gpu_id) {
                    self.wake(now);
                } else {
                    self.fail(key.pid, format!("memory fault at {:#x} on queue {}", fault.va, key.id));
                }
            }
            Unusable::Unknown(reason) => self.fail(key.pid, reason),
        }
        self.work.forget(|queue| queue.pid == key.pid);
    }

    /// Tells users that a call fails because its request is not simulated, once for each process and request.
    pub fn not_simulated(&mut self, pid: i32, what: &'static str) {
        if self.processes.get_mut(&pid).is_some_and(|process| process.remarked.insert(what)) {
            self.outbox.remarks.push((pid, format!("{what} is not simulated; the call fails")));
        }
    }

    /// Removes a process without queues: its memory and waiting calls.
    pub fn remove_process(&mut self, pid: i32) {
        let Some(mut process) = self.processes.remove(&pid) else { return };
        let parked = process.parked.drain(..).map(|call| call.unique).inspect(|unique| {
            self.calls.uninterruptible.remove(unique);
        });
        let blocked = self.calls.blocked.extract_if(.., |blocked| blocked.pid == pid);
        let waiters = self.calls.waiters.extract_if(.., |waiter| waiter.pid == pid);
        let interrupted =
            parked.chain(blocked.map(|call| call.unique)).chain(waiters.map(|call| call.unique));
        self.outbox.answers.extend(interrupted.map(|unique| (unique, Err(libc::EINTR))));
        for allocation in std::mem::take(&mut process.allocations).into_values() {
            self.release(&allocation);
        }
        self.driver.sysfs.forget(pid);
        self.stats.processes.push(std::mem::take(&mut process.stats));
    }

    /// Frees the memory of an allocation, unless another process shares it.
    pub fn release(&mut self, allocation: &Allocation) {
        if let Some(offset) = allocation.offset.filter(|offset| self.memory.shared.remove_user(*offset)) {
            self.memory.arena.free(offset, allocation.size);
            if allocation.vram {
                self.gpus[allocation.gpu].used -= allocation.size;
            } else {
                self.memory.host_used -= allocation.size;
            }
        }
    }

    /// Shows in sysfs how much memory of a device a process has allocated, after a change by this allocation.
    pub fn show_memory(&self, pid: i32, changed: &Allocation) {
        let Some(process) = self.processes.get(&pid).filter(|_| changed.vram) else { return };
        let same = |other: &&Allocation| other.vram && !other.imported && other.gpu == changed.gpu;
        let used = process.allocations.values().filter(same).map(|allocation| allocation.size).sum();
        self.driver.sysfs.show_memory(pid, self.gpus[changed.gpu].config.gpu_id, used);
    }

    /// Accounts for a change of a GPU's compute units at `now`: in its busy time, and in the timeline.
    pub fn account_busy(&mut self, gpu: usize, now: Time) {
        if let Some(timeline) = &mut self.timeline {
            timeline.running(gpu, now, &*self.gpus[gpu].model);
        }
        let gpu = &mut self.gpus[gpu];
        match (gpu.busy_since, gpu.model.busy()) {
            (None, true) => gpu.busy_since = Some(now),
            (Some(since), false) => {
                gpu.busy += now.saturating_sub(since);
                gpu.busy_since = None;
            }
            _ => {}
        }
    }

    pub fn report(&self, now: Time) -> serde_json::Value {
        let gpus = self.gpus.iter().map(|gpu| {
            let running = gpu.busy_since.map_or(0, |since| now.saturating_sub(since));
            serde_json::json!({
                "gpu_id": gpu.config.gpu_id,
                "arch": gpu.config.arch.name,
                "vram_bytes": gpu.config.vram,
                "vram_used_bytes": gpu.used,
                "busy_us": (gpu.busy + running) as f64 / 1000.0,
                "driver": gpu.scheduler.report(),
            })
        });
        let mut processes = self.stats.processes.clone();
        for process in self.processes.values() {
            let mut stats = process.stats.clone();
            for (id, queue) in &process.queues {
                stats.retire(*id, self.gpus[queue.gpu].config.gpu_id, queue);
            }
            processes.push(stats);
        }
        let failed = self.driver.faults.as_ref().map_or(0, |faults| faults.count);
        self.stats.report(gpus.collect(), &processes, failed)
    }
}
