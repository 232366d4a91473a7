//! What a person tells the policy about a program that runs.

use crate::bounds::{Cap, Priority, Timeslice, Utilization};
use crate::hint::Laxity;
use crate::ids::{Pid, QueueId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

/// Whom something is said of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// A process, as the server sees it. Without one the queue names it, if only one process has a queue of that name.
    pub pid: Option<Pid>,
    /// One of its queues. Without one, what concerns queues concerns each queue that the process has now.
    pub queue: Option<QueueId>,
}

/// Something that is said from now on, until it or the program says something else about the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// How urgent a queue is. The process itself does not hear of it: a queue of several is not kept from launching by
    /// [`Priority::NO_EXECUTE`], it only counts for nothing; and one that it holds itself by that priority cannot be given another.
    Priority(Priority),
    /// A share: the queue's if one is named, else the process's.
    Utilization(Utilization),
    /// The slice that the process asks for; if no process is named, all that are connected or will be.
    Timeslice(Timeslice),
    /// How many of the earliest deadlines the process asks to let run at once; nothing takes it back.
    KDeadline(Option<NonZeroU32>),
    /// Microseconds from the moment a queue turns ready to the time by which its work should be done; nothing takes it back.
    Deadline(Option<NonZeroU64>),
    /// When a queue turns critical; nothing takes it back.
    Laxity(Option<Laxity>),
    /// In how many microseconds work arrives on a queue; nothing takes it back.
    Arrival(Option<u64>),
    /// Whether a queue may be suspended while it has work.
    Preemptible(bool),
    /// The process owns the window that the user works in, and no other does.
    Window,
    /// Which job the process belongs to; nothing for none.
    Job(Option<NonZeroU64>),
    /// The most that the process gets of its devices; nothing takes it back.
    Cap(Option<Cap>),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, self.queue) {
            (Some(pid), Some(queue)) => write!(f, "queue {queue} of pid {pid}"),
            (Some(pid), None) => write!(f, "pid {pid}"),
            (None, Some(queue)) => write!(f, "queue {queue}"),
            (None, None) => f.write_str("all programs"),
        }
    }
}
