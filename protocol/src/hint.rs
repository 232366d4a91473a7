//! What a user tells a policy.

use crate::bounds::Priority;
use crate::ids::QueueId;
use serde::{Deserialize, Serialize};

/// A hint of a process about its own queues. What it says becomes an attribute of the queue and goes with the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hint {
    /// How urgent the queue is from now on.
    Priority {
        /// The queue.
        queue: QueueId,
        /// Its new priority.
        priority: Priority,
    },
}
