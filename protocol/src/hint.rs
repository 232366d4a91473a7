//! Hints: attributes of a queue or of a process by which users guide the policies.
//!
//! [`table`] lists every hint, one row each, with the state that they set. A client always sends its complete
//! state: the new one replaces the old one, so that sending it twice changes nothing and the order of single
//! hints does not matter.

mod laxity;
mod spec;
pub mod table;

pub use laxity::Laxity;
pub use table::{Hints, ProcessHints, QueueHints};

use crate::bounds::Priority;
use crate::ids::QueueId;
use serde::{Deserialize, Serialize};

/// A change of a queue's attributes, as an event of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "most fields are named after what they hold")]
pub enum Hint {
    /// The queue gets another priority.
    Priority { queue: QueueId, priority: Priority },
    /// The queue gets other hints.
    Queue { queue: QueueId, hints: QueueHints },
}
