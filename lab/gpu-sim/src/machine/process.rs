//! A process that has opened the KFD: its address space, allocations, events and queues.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::{Events, Execution, Machine, Move, ProcessStats, Queue};
use crate::device::{QueueKey, Time};
use crate::driver::Debug;
use crate::ioctl::OwnedCall;
use crate::kernels::Kernel;
use crate::space::Space;
use crate::unexecuted::Tally;

/// Memory that a process has allocated.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// Index of its GPU.
    pub gpu: usize,
    /// GPU virtual address.
    pub va: u64,
    /// Bytes.
    pub size: u64,
    /// Where it lies in the arena, if it does.
    pub offset: Option<u64>,
    /// Whether it counts as device memory.
    pub vram: bool,
}

/// A process.
#[derive(Debug)]
pub struct Process {
    /// Its GPU address space.
    pub space: Space,
    /// By handle.
    pub allocations: HashMap<u64, Allocation>,
    /// Its events.
    pub events: Events,
    /// By KFD queue id.
    pub queues: BTreeMap<u32, Queue>,
    /// Number of its doorbell pages in the KFD file.
    pub doorbell: u64,
    /// Kernels found so far, by descriptor address; `None` where no code object says what it is.
    pub kernels: HashMap<u64, Option<Kernel>>,
    /// What is reported at its end.
    pub stats: ProcessStats,
    /// Handle for the next allocation.
    pub next_handle: u64,
    /// Its debug session.
    pub debug: Debug,
    /// A call of its holds the driver's lock of the process (`kfd_process.mutex`).
    pub locked: bool,
    /// Calls that wait for that lock.
    pub parked: VecDeque<OwnedCall>,
    /// They are being let go on, one after the other.
    pub unlocking: bool,
    /// What it asked for that is not simulated, and users have been told.
    pub told: HashSet<&'static str>,
    /// Where its kernels that are not executed are counted: at its launcher's, if that is known.
    pub unexecuted: Option<Arc<Tally>>,
}

impl Process {
    /// A process that has just opened the KFD.
    pub fn new(pid: i32, name: String, doorbell: u64) -> Self {
        Self {
            space: Space::default(),
            allocations: HashMap::new(),
            events: Events::default(),
            queues: BTreeMap::new(),
            doorbell,
            kernels: HashMap::new(),
            stats: ProcessStats::new(pid, name),
            next_handle: 1,
            debug: Debug::default(),
            locked: false,
            parked: VecDeque::new(),
            unlocking: false,
            told: HashSet::new(),
            unexecuted: None,
        }
    }

    /// The smallest free queue id.
    pub fn free_queue_id(&self) -> u32 {
        (0..)
            .zip(self.queues.keys())
            .find(|(id, used)| id != *used)
            .map_or(self.queues.len() as u32, |(id, _)| id)
    }
}

/// Why a process cannot go on with its GPU work.
#[derive(Debug)]
pub enum Unusable {
    /// An address that is not mapped: what a GPU reports as a page fault.
    Fault(crate::space::Fault),
    /// Something that is not simulated.
    Unknown(String),
}

impl From<crate::space::Fault> for Unusable {
    fn from(fault: crate::space::Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Machine {
    /// Stops the process's GPU work: a fault is reported as a GPU does, by a memory exception event, which makes the
    /// runtime abort with its own message; anything else ends the process with a sentence.
    pub fn stop(&mut self, now: Time, key: QueueKey, why: Unusable) {
        let gpu_id = self.queue_mut(key).map(|queue| queue.gpu).map_or(0, |gpu| self.gpus[gpu].config.gpu_id);
        match why {
            Unusable::Fault(fault) => {
                if let Some(process) = self.processes.get_mut(&key.pid) {
                    process.queues.values_mut().for_each(|queue| queue.state = super::State::Dead);
                }
                if self.memory_exception(key.pid, fault.va, gpu_id) {
                    self.wake(now);
                } else {
                    self.fail(key.pid, format!("memory fault at {:#x} on queue {}", fault.va, key.id));
                }
            }
            Unusable::Unknown(reason) => self.fail(key.pid, reason),
        }
        let of_process = |queue: QueueKey| queue.pid == key.pid;
        self.executions.retain(|_, execution: &mut Execution| !of_process(execution.queue));
        self.moves.retain(|m: &Move| !of_process(m.queue));
    }
}
