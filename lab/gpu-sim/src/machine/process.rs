//! A process that has opened the KFD: its address space, allocations, events and queues.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::debug::Debug;
use super::events::Events;
use super::queue::Queue;
use super::stats::ProcessStats;
use crate::call::Call;
use crate::kernels::Kernel;
use crate::space::Space;
use crate::unexecuted::LaunchCounts;

#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    pub gpu: usize,
    pub va: u64,
    pub size: u64,
    /// The offset in the arena, if it lies there.
    pub offset: Option<u64>,
    /// True if it counts as device memory.
    pub vram: bool,
    /// True if another process has allocated it.
    pub imported: bool,
}

#[derive(Debug, Default)]
pub struct Process {
    pub space: Space,
    pub allocations: HashMap<u64, Allocation>,
    pub events: Events,
    pub queues: BTreeMap<u32, Queue>,
    /// The number of its doorbell pages in the KFD file.
    pub doorbell: u64,
    /// Kernels found so far, by descriptor address; `None` where no code object says what it is.
    pub kernels: HashMap<u64, Option<Kernel>>,
    /// The statistics that are reported at its end.
    pub stats: ProcessStats,
    pub next_handle: u64,
    pub debug: Debug,
    /// True while one of its calls holds the driver's lock of the process (`kfd_process.mutex`).
    pub locked: bool,
    /// Calls that wait for that lock.
    pub parked: VecDeque<Call>,
    /// Requests that are not simulated and that users were informed of.
    pub remarked: HashSet<&'static str>,
    /// The counts of kernels that are not executed: those of its launcher, if that is known.
    pub unexecuted: Option<Arc<LaunchCounts>>,
}

impl Process {
    pub fn new(pid: i32, name: String, doorbell: u64) -> Self {
        Self { doorbell, stats: ProcessStats::new(pid, name), next_handle: 1, ..Self::default() }
    }

    pub fn free_queue_id(&self) -> u32 {
        (0..).find(|id| !self.queues.contains_key(id)).unwrap_or(u32::MAX)
    }
}

/// The reason why a process cannot go on with its GPU work.
#[derive(Debug)]
pub enum Unusable {
    /// An address is not mapped: a GPU reports a page fault.
    Fault(crate::space::Fault),
    /// A packet or kernel is not simulated.
    Unknown(String),
}

impl From<crate::space::Fault> for Unusable {
    fn from(fault: crate::space::Fault) -> Self {
        Self::Fault(fault)
    }
}
