//! The state of the simulated machine: its GPUs, the processes that use them, and the device memory.
//!
//! One lock guards it. `ioctl.rs` changes it on behalf of clients, `engine/` as time passes.

mod events;
mod process;
mod queue;
mod shared;
mod stats;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use events::{Events, Waiter};
pub use process::{Allocation, Process, Unusable};
pub use queue::{Kind, Queue, State};
pub use shared::Shared;
pub use stats::{Counts, ProcessStats, Stats};

use crate::arena::Arena;
use crate::device::{Model, QueueKey, Time, WorkId};
use crate::driver::{Blocked, Faults, Parked, Scheduler, Settings, Sysfs};
use crate::fuse::{Reply, Unique};
use crate::kernels::{Durations, Effect};
use crate::space::View;
use crate::topology::GpuConfig;

/// One simulated GPU.
#[derive(Debug)]
pub struct Gpu {
    /// What it is.
    pub config: GpuConfig,
    /// Device memory in use, bytes.
    pub used: u64,
    /// Its compute units.
    pub model: Box<dyn Model>,
    /// What the driver is doing with its queues.
    pub scheduler: Scheduler,
    /// Since when any work-group runs.
    pub busy_since: Option<Time>,
    /// Time with any work-group running, up to `busy_since`.
    pub busy: Time,
}

/// A kernel that has been handed to the compute units.
#[derive(Debug)]
pub struct Execution {
    /// Where it came from.
    pub queue: QueueKey,
    /// Address of its completion signal, or 0.
    pub signal: u64,
    /// What it does to memory when it ends.
    pub effect: Effect,
}

/// A change of memory that is made in steps, because it is large.
#[derive(Debug)]
pub struct Move {
    /// Whose.
    pub queue: QueueKey,
    /// What is left of it.
    pub effect: Effect,
    /// Its end is never earlier than the model says.
    pub not_before: Time,
    /// What follows.
    pub then: Then,
}

/// What follows a [`Move`].
#[derive(Debug)]
pub enum Then {
    /// The kernel that made it is complete.
    Kernel {
        /// When its first work-group was placed.
        start: Time,
        /// Its completion signal, or 0.
        signal: u64,
    },
    /// The copy engine takes its next packet.
    NextPacket,
}

/// The machine.
#[derive(Debug)]
pub struct Machine {
    /// Memory behind everything.
    pub arena: Arena,
    /// By index.
    pub gpus: Vec<Gpu>,
    /// By process id.
    pub processes: BTreeMap<i32, Process>,
    /// Threads in WAIT_EVENTS.
    pub waiters: Vec<Waiter>,
    /// Kernels on the compute units.
    pub executions: HashMap<WorkId, Execution>,
    /// Large changes of memory under way.
    pub moves: VecDeque<Move>,
    /// Memory that several processes may have.
    pub shared: Shared,
    /// Kernel times by name.
    pub durations: Durations,
    /// Host memory that clients hold, and may hold, bytes.
    pub host_used: u64,
    /// See `host_used`.
    pub host_limit: u64,
    /// What is reported at the end.
    pub stats: Stats,
    /// Processes to be ended, with the reason.
    pub failures: Vec<(i32, String)>,
    /// What users are to be told of processes that go on.
    pub remarks: Vec<(i32, String)>,
    /// Answers to waiting threads that the holder of the lock must send.
    pub answers: Vec<(Unique, Result<Reply, i32>)>,
    /// Descriptors that are to get a byte, outside the lock.
    pub notices: Vec<Arc<OwnedFd>>,
    /// How the driver is set up.
    pub settings: Settings,
    /// Where queues are shown.
    pub sysfs: Sysfs,
    /// Calls that fail on request.
    pub faults: Option<Faults>,
    /// Calls that wait for a debugger.
    pub blocked: Vec<Blocked>,
    /// Calls that wait and must not be interrupted.
    pub uninterruptible: HashSet<Unique>,
    /// Compute queues created so far.
    pub compute_queues: u32,
    /// When the last event happened.
    pub clock: Time,
    next_work: WorkId,
}

impl Machine {
    /// A machine with these GPUs.
    pub fn new(arena: Arena, gpus: Vec<Gpu>, durations: Durations) -> Self {
        Self {
            arena,
            gpus,
            processes: BTreeMap::new(),
            waiters: Vec::new(),
            executions: HashMap::new(),
            moves: VecDeque::new(),
            shared: Shared::default(),
            durations,
            host_used: 0,
            host_limit: crate::topology::host_memory(),
            stats: Stats::default(),
            failures: Vec::new(),
            remarks: Vec::new(),
            answers: Vec::new(),
            notices: Vec::new(),
            settings: Settings::default(),
            sysfs: Sysfs::default(),
            faults: None,
            blocked: Vec::new(),
            uninterruptible: HashSet::new(),
            compute_queues: 0,
            clock: 0,
            next_work: 0,
        }
    }

    /// Index of the GPU with this id.
    pub fn gpu_index(&self, gpu_id: u32) -> Option<usize> {
        self.gpus.iter().position(|gpu| gpu.config.gpu_id == gpu_id)
    }

    /// A new name for a kernel execution; names grow.
    pub fn new_work(&mut self) -> WorkId {
        self.next_work += 1;
        self.next_work
    }

    /// The queue, if it exists.
    pub fn queue(&self, key: QueueKey) -> Option<&Queue> {
        self.processes.get(&key.pid)?.queues.get(&key.id)
    }

    /// A call takes the lock of a process and keeps it until it is answered.
    pub fn lock(&mut self, parked: &Parked) {
        self.uninterruptible.insert(parked.unique);
        if let Some(process) = self.processes.get_mut(&parked.domain) {
            process.locked = true;
        }
    }

    /// The queue, if it exists, to be changed.
    pub fn queue_mut(&mut self, key: QueueKey) -> Option<&mut Queue> {
        self.processes.get_mut(&key.pid)?.queues.get_mut(&key.id)
    }

    /// A process's memory as a GPU sees it.
    pub fn view(&self, pid: i32, gpu: usize) -> Option<View<'_>> {
        let process = self.processes.get(&pid)?;
        Some(View { arena: &self.arena, space: &process.space, pid, gpu })
    }

    /// Ends a process with a reason: for what a real device would do differently than this one can.
    pub fn fail(&mut self, pid: i32, reason: String) {
        if let Some(process) = self.processes.get_mut(&pid) {
            for queue in process.queues.values_mut() {
                queue.state = State::Dead;
            }
        }
        self.failures.push((pid, reason));
    }

    /// A call of the process asks for what is not simulated, and fails: says so, once for each process and matter.
    pub fn not_simulated(&mut self, pid: i32, what: &'static str) {
        if self.processes.get_mut(&pid).is_some_and(|process| process.told.insert(what)) {
            self.remarks.push((pid, format!("{what} is not simulated; the call fails")));
        }
    }

    /// Takes a queue off its device for good and keeps its counts.
    pub fn forget_queue(&mut self, now: Time, key: QueueKey) {
        let Some(process) = self.processes.get_mut(&key.pid) else { return };
        let Some(queue) = process.queues.remove(&key.id) else { return };
        self.sysfs.remove(key.pid, key.id);
        process.stats.retire(key.id, self.gpus[queue.gpu].config.gpu_id, &queue);
        self.executions.retain(|_, execution| execution.queue != key);
        self.moves.retain(|m| m.queue != key);
        let mut progress = Vec::new();
        self.gpus[queue.gpu].model.remove(now, key, &mut progress);
        self.account_busy(queue.gpu, now);
        // Its slots may have let others start.
        self.apply(now, progress);
    }

    /// Forgets a process: queues, memory, waiting threads.
    pub fn remove_process(&mut self, now: Time, pid: i32) {
        self.catch_up(now);
        self.debugger_gone(now, pid);
        self.forget_queues(now, pid);
        let Some(mut process) = self.processes.remove(&pid) else { return };
        for call in process.parked.drain(..) {
            self.uninterruptible.remove(&call.unique);
            self.answers.push((call.unique, Err(libc::EINTR)));
        }
        for blocked in self.blocked.extract_if(.., |blocked| blocked.pid == pid) {
            self.answers.push((blocked.unique, Err(libc::EINTR)));
        }
        for allocation in std::mem::take(&mut process.allocations).into_values() {
            self.release(&allocation);
        }
        for waiter in self.waiters.extract_if(.., |waiter| waiter.pid() == pid) {
            self.answers.push((waiter.unique(), Err(libc::EINTR)));
        }
        self.sysfs.forget(pid);
        self.stats.processes.push(std::mem::take(&mut process.stats));
    }

    /// Gives an allocation's memory back.
    pub fn release(&mut self, allocation: &Allocation) {
        // Another process may still have it.
        if let Some(offset) = allocation.offset.filter(|offset| self.shared.remove_user(*offset)) {
            self.arena.free(offset, allocation.size);
            if allocation.vram {
                self.gpus[allocation.gpu].used -= allocation.size;
            } else {
                self.host_used -= allocation.size;
            }
        }
    }

    /// Follows the busy state of a GPU's compute units at `now`.
    pub fn account_busy(&mut self, gpu: usize, now: Time) {
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

    /// The statistics as JSON, at `now`.
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
        let failed = self.faults.as_ref().map_or(0, |faults| faults.count);
        self.stats.report(gpus.collect(), &processes, failed)
    }
}
