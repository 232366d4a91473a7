//! What a client tells the scheduler.
//!
//! Under the global scheduler readiness travels on a shared page and reaches the server as the same events.

use crate::bounds::Priority;
use crate::codes::PreemptLevel;
use crate::hint::Hint;
use crate::ids::{DeviceId, QueueId};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// Something has happened to a queue of the client. [`crate::status::Queues::apply`] says what it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// There is a new queue, idle and never used.
    QueueCreated {
        /// Its name.
        queue: QueueId,
        /// Where its commands run.
        device: DeviceId,
        /// How urgent it is at first.
        priority: Priority,
        /// The preemption level in force on it.
        level: PreemptLevel,
    },
    /// A queue is gone, with everything that was said of it.
    QueueDestroyed {
        /// Which one.
        queue: QueueId,
    },
    /// A queue has its first unfinished command.
    QueueReady {
        /// Which one.
        queue: QueueId,
        /// Since when.
        at: Time,
    },
    /// A queue has finished everything.
    QueueIdle {
        /// Which one.
        queue: QueueId,
        /// Since when.
        at: Time,
    },
    /// The user has said something about a queue.
    Hint(Hint),
}
