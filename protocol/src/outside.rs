//! Control of processes that are not clients: what is asked and told of queues that the server's process holds through the
//! driver's debugger.

use crate::ids::Pid;
use serde::{Deserialize, Serialize};

/// Queues that one request names at most, so that it fits a frame.
pub const QUEUES: usize = 256;

/// What became of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It is as asked.
    Done,
    /// There is no such queue, it is being destroyed, or (in a release) it is not held; nothing was done.
    Invalid,
    /// The hardware failed; its state is unknown.
    Failed,
}

/// A queue and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueFate {
    /// The driver's number of it, within its process.
    pub queue: u32,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a request to hold or release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fates {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// The queues that the request was about.
    pub queues: Vec<QueueFate>,
    /// All queues of the process that are held now.
    pub held: Vec<u32>,
}

/// A queue that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldQueue {
    /// The driver's number of it, within its process.
    pub queue: u32,
    /// For so many milliseconds.
    pub held_ms: u64,
}

/// A process of which queues are held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// Its queues that are held, by their numbers.
    pub queues: Vec<HeldQueue>,
}

/// What a debugger sees of a process's queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The process.
    pub pid: Pid,
    /// Its queues; nothing if the server is not attached to the process, and so sees none.
    pub queues: Option<Vec<SeenQueue>>,
}

/// A queue as a debugger sees it. Addresses are the process's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenQueue {
    /// The driver's number of it, within its process.
    pub queue: u32,
    /// Where its ring is.
    pub ring_address: u64,
    /// Where its write pointer is.
    pub write_pointer_address: u64,
    /// Where its read pointer is.
    pub read_pointer_address: u64,
    /// What the write pointer says: packets of a compute queue, else bytes. Nothing if it cannot be read.
    pub write_pointer: Option<u64>,
    /// What the read pointer says, likewise.
    pub read_pointer: Option<u64>,
    /// Whether this server holds it.
    pub held: bool,
}
