//! The driver's scheduler of one GPU: the operation at work, the operations that wait, and the driver's
//! settings.

use std::collections::VecDeque;

use super::debug::{Batch, Parked};
use crate::device::{QueueKey, Time};
use crate::fuse::Reply;

/// The properties of the driver and the device that a user can choose.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The time that the device takes to save what runs on the queues of an eviction.
    pub save: Time,
    /// The time that it takes to restore that.
    pub restore: Time,
    /// True if waves are saved (CWSR). Otherwise an eviction waits until the kernels of the queue have ended.
    pub cwsr: bool,
    /// The time that the driver waits for an eviction before it resets the device
    /// (`queue_preemption_timeout_ms`).
    pub timeout: Time,
    /// The compute queue, counted from 1 over all that are created, that cannot be evicted while it has a
    /// kernel.
    pub stuck: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { save: 0, restore: 0, cwsr: true, timeout: 9_000_000_000, stuck: None }
    }
}

/// The change that an operation makes once the queues are evicted.
#[derive(Clone, Debug)]
pub enum Change {
    /// New properties of a queue take effect.
    Update(QueueKey),
    /// A queue is created.
    Create(QueueKey),
    /// A queue is destroyed.
    Destroy(QueueKey),
    /// A debugger suspends these queues.
    Suspend(Vec<QueueKey>),
    /// A debugger resumes these queues.
    Resume(Vec<QueueKey>),
    /// Nothing changes: all queues are evicted and restored.
    Refresh,
}

impl Change {
    pub fn queues(&self) -> &[QueueKey] {
        match self {
            Self::Update(key) | Self::Create(key) | Self::Destroy(key) => std::slice::from_ref(key),
            Self::Suspend(keys) | Self::Resume(keys) => keys,
            Self::Refresh => &[],
        }
    }
}

/// The action that follows an operation.
#[derive(Debug)]
pub enum Follow {
    /// No call waits for the operation.
    Nothing,
    /// The caller gets this answer, or the operation's error.
    Answer(Parked, Result<Reply, i32>),
    /// A suspend or resume goes on with the next device.
    Batch(Box<Batch>),
}

/// A change and the action that follows it.
#[derive(Debug)]
pub struct Operation {
    pub change: Change,
    pub follow: Follow,
}

/// The progress of the operation at work, with the time at which it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waves are being saved.
    Saving(Time),
    /// Kernels are awaited, until the driver gives up.
    Draining(Time),
    /// A queue cannot be evicted; at this time the driver gives up.
    Stuck(Time),
    /// Waves are being restored.
    Restoring(Time),
}

/// The operation that holds a GPU's lock.
#[derive(Debug)]
pub struct ActiveOperation {
    pub operation: Option<Operation>,
    pub stage: Stage,
    /// The queues that the operation has evicted.
    pub evicted: Vec<QueueKey>,
    /// The queues that the operation restores.
    pub restored: Vec<QueueKey>,
}

/// The driver's side of one GPU.
#[derive(Debug, Default)]
pub struct Scheduler {
    pub active: Option<ActiveOperation>,
    pub waiting: VecDeque<Operation>,
    /// The end of the device's reset.
    pub resetting: Option<Time>,
    /// The number of operations that evicted any queue.
    pub unmaps: u64,
    /// The number of those that saved waves.
    pub saves: u64,
    /// The time that went into saving and restoring.
    pub spent: Time,
    pub resets: u64,
}

impl Scheduler {
    pub fn report(&self) -> serde_json::Value {
        serde_json::json!({
            "unmaps": self.unmaps,
            "saves": self.saves,
            "save_restore_us": self.spent as f64 / 1000.0,
            "resets": self.resets,
        })
    }
}
