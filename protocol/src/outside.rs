//! Control of processes that are not clients: requests and answers about queues that the server evicts
//! through the driver's debugger interface.

use crate::ids::Pid;
use serde::{Deserialize, Serialize};

/// Most queues that one request names, so that it fits a frame.
pub const QUEUES: usize = 256;

/// The result of a request for one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspendStatus {
    /// The queue is in the requested state.
    Done,
    /// The queue does not exist, is being destroyed, or (in a release) is not evicted. Nothing was done.
    Invalid,
    /// The hardware failed. The state of the queue is unknown.
    Failed,
}

/// A queue and the result for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSuspendStatus {
    /// Number of the queue within its process, as the driver counts.
    pub queue: u32,
    /// The result.
    pub fate: SuspendStatus,
}

/// The results of a request to evict or restore queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fates {
    /// The process.
    pub pid: Pid,
    /// Name of the process.
    pub name: String,
    /// The queues of the request.
    pub queues: Vec<QueueSuspendStatus>,
    /// All queues of the process that are evicted now.
    pub held: Vec<u32>,
}

/// An evicted queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldQueue {
    /// Number of the queue within its process, as the driver counts.
    pub queue: u32,
    /// Milliseconds since the eviction.
    pub held_ms: u64,
}

/// A process with evicted queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The process.
    pub pid: Pid,
    /// Name of the process.
    pub name: String,
    /// The evicted queues, in ascending order.
    pub queues: Vec<HeldQueue>,
}

/// The queues of a process, as a debugger sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The process.
    pub pid: Pid,
    /// The queues; `None` if the server is not attached to the process.
    pub queues: Option<Vec<SeenQueue>>,
}

/// A queue as a debugger sees it. Addresses are those of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenQueue {
    /// Number of the queue within its process, as the driver counts.
    pub queue: u32,
    /// Address of the ring.
    pub ring_address: u64,
    /// Address of the write pointer.
    pub write_pointer_address: u64,
    /// Address of the read pointer.
    pub read_pointer_address: u64,
    /// Value of the write pointer: packets for a compute queue, bytes for any other. `None` if it cannot be
    /// read.
    pub write_pointer: Option<u64>,
    /// Value of the read pointer, in the same unit.
    pub read_pointer: Option<u64>,
    /// True if this server has evicted the queue.
    pub held: bool,
}
