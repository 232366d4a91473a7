//! Events: what happens to the queues of a client, as the scheduler receives it.
//!
//! Under the global scheduler readiness travels on a shared page and reaches the server as the same events.

use crate::bounds::Priority;
use crate::codes::PreemptLevel;
use crate::hint::Hint;
use crate::ids::{DeviceId, QueueId};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// An event of a queue. [`crate::status::Queues::apply`] defines its effect.
///
/// ```
/// use protocol::bounds::Priority;
/// use protocol::codes::PreemptLevel;
/// use protocol::event::Event;
/// use protocol::ids::{DeviceId, QueueId};
/// use protocol::status::Queues;
///
/// let (queue, device, priority) = (QueueId(1), DeviceId(51234), Priority::DEFAULT);
/// let mut queues = Queues::default();
/// queues.apply(&Event::QueueCreated { queue, device, priority, level: PreemptLevel::Block }).unwrap();
/// assert_eq!(queues.len(), 1);
/// assert!(queues.apply(&Event::QueueDestroyed { queue: QueueId(2) }).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "most fields are named after what they hold")]
pub enum Event {
    /// A queue was created. It is idle and was never used.
    QueueCreated {
        queue: QueueId,
        /// Device that runs its commands.
        device: DeviceId,
        priority: Priority,
        /// Preemption level in force.
        level: PreemptLevel,
    },
    /// A queue was destroyed, and its hints with it.
    QueueDestroyed { queue: QueueId },
    /// A queue became ready: it has an unfinished command.
    QueueReady { queue: QueueId, at: Time },
    /// A queue became idle: it has completed all its commands.
    QueueIdle { queue: QueueId, at: Time },
    /// The priority or the hints of a queue changed.
    Hint(Hint),
}
