//! What a scheduler tells a client: who runs, who is limited, and why.

use crate::bounds::Priority;
use crate::ids::{ClientId, DeviceId, Pid, QueueId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a decision is about: under the global scheduler a gang, under the local one a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UnitId {
    /// A process on all its devices.
    Gang(ClientId),
    /// A queue of the deciding process.
    Queue(QueueId),
}

/// The permission that a unit has from now on. Complete: carrying one out twice is carrying it out once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Who.
    pub unit: UnitId,
    /// What.
    pub permit: Permit,
}

/// What a unit may do, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permit {
    /// Whether it may launch.
    pub run: bool,
    /// Whether its window limits what it has in flight. A suspended unit has this bit as well: it counts when
    /// something other than the policy (a lease that ended, the progress guard) lets the unit run.
    pub limit: bool,
    /// Why it runs or does not.
    pub reason: Reason,
}

/// Why a unit runs or does not. Displayed, it completes "runs: ..." or "suspended: ...".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// Nobody more urgent runs where it would.
    Unrivalled,
    /// Its priority says never.
    NoExecute,
    /// Somebody more urgent runs where it would.
    Outranked {
        /// Who.
        by: Rival,
        /// The unit's own priority, for comparison.
        own: Priority,
    },
    /// Whoever is more urgent completes nothing, perhaps because they wait for somebody suspended: all run for a
    /// moment.
    Guard,
    /// Nobody decides: all run until somebody switches deciding on again.
    Off,
}

/// A queue that stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rival {
    /// Its process.
    pub pid: Pid,
    /// The queue from which the process has its priority.
    pub queue: QueueId,
    /// Where it stands in the way.
    pub device: DeviceId,
    /// Its priority.
    pub priority: Priority,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unrivalled => f.write_str("nobody of higher priority runs on its devices"),
            Self::NoExecute => write!(f, "priority {} never runs", Priority::NO_EXECUTE),
            Self::Outranked { by, own } => {
                write!(f, "queue {} of pid {} has priority {} > {own}", by.queue, by.pid, by.priority)
            }
            Self::Guard => f.write_str("those of higher priority complete nothing, all run for a moment"),
            Self::Off => f.write_str("scheduling is switched off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_a_sentence() {
        let priority = |number| Priority::try_from(number).unwrap();
        let by =
            Rival { pid: Pid(4242), queue: QueueId(7), device: DeviceId(51_234), priority: priority(10) };
        let reason = Reason::Outranked { by, own: priority(1) };
        assert_eq!(reason.to_string(), "queue 7 of pid 4242 has priority 10 > 1");
        assert_eq!(Reason::NoExecute.to_string(), "priority -256 never runs");
    }
}
