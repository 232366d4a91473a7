//! Why the core refuses a message of a client.

use crate::limits::{DEVICES, QUEUES};
use protocol::status::StatusError;

/// The rule that a client's message breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say what the variants mean")]
pub enum Fault {
    #[error("it sent a second hello")]
    Hello,
    /// The queue does not exist, or exists already.
    #[error("{0}")]
    Queue(StatusError),
    #[error("slot {0} is in use or does not exist")]
    Slot(u32),
    #[error("it is not connected")]
    Client,
}

/// The limit by which a queue is refused. Its process then runs unscheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say what the variants mean")]
pub enum NoRoom {
    #[error("the server has {QUEUES} queues, which is the maximum")]
    Queues,
    #[error("user {uid} has {most} queues, which is the maximum for one user")]
    QueuesOfUser { uid: u32, most: usize },
    #[error("the programs have queues on {DEVICES} devices, which is the maximum")]
    Devices,
    #[error("the program has queues on {0} devices, which is the maximum for one program")]
    DevicesOfProcess(usize),
}
