//! What happens at a server, for people and their scripts.

use crate::ids::{DeviceId, Pid};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// Most events that a server keeps, and that wait for a person who follows them.
pub const EVENTS: usize = 1024;

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerEvent {
    /// The time of the server's wall clock, in microseconds since 1970.
    pub time_us: u64,
    /// The same on the server's `CLOCK_MONOTONIC`, in nanoseconds.
    #[serde(rename = "at_ns")]
    pub at: Time,
    /// What it was.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The kinds of events. Each program is named by its process, as the server sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(missing_docs, reason = "each program has the same two names, and `why` is a reason in words")]
pub enum EventKind {
    /// A program has connected.
    Joined {
        pid: Pid,
        name: String,
        /// Its user.
        uid: u32,
    },
    /// The connection of a program has ended.
    Left { pid: Pid, name: String, why: String },
    /// A program may run. Only while somebody follows events.
    Running { pid: Pid, name: String, why: String },
    /// A program may not run. Only while somebody follows events.
    Suspended { pid: Pid, name: String, why: String },
    /// The progress guard lets all programs run for a moment.
    Guard,
    /// A policy is in force.
    Policy {
        /// The process that asked for it.
        by: Pid,
        /// The policy with its parameters, such as "EDF slack-ms=5"; none if the policy of all devices decides on the
        /// device again.
        policy: Option<String>,
        /// The device; none for all devices without a policy of their own.
        device: Option<DeviceId>,
    },
    /// Scheduling was switched on or off.
    Switched {
        /// The process that asked for it.
        by: Pid,
        on: bool,
    },
    /// Hints were given from outside.
    Hinted {
        /// The process that gave them.
        by: Pid,
        /// The target, such as "queue 7 of pid 42".
        target: String,
        /// The hints, such as "priority 5".
        hints: String,
    },
    /// Settings of queues were changed from outside.
    Configured {
        /// The process that changed them.
        by: Pid,
        /// The target, such as "queue 7 of pid 42".
        target: String,
        /// The settings, such as "level 3, threshold 8".
        settings: String,
    },
    /// The configuration was read again.
    Reloaded {
        /// The mistake because of which nothing has changed.
        error: Option<String>,
    },
    /// Something was refused.
    Refused {
        /// The process that asked for it.
        pid: Pid,
        /// Its user.
        uid: u32,
        what: Refused,
        why: String,
    },
    /// Queues of a process were evicted by `xcli suspend`.
    Held {
        pid: Pid,
        name: String,
        /// Numbers of the queues, as the driver counts.
        queues: Vec<u32>,
    },
    /// Queues of a process were restored by `xcli resume`.
    Released {
        pid: Pid,
        name: String,
        /// Numbers of the queues, as the driver counts.
        queues: Vec<u32>,
    },
    /// Events are missing here, because the reader was too slow.
    Dropped {
        /// The number of events.
        count: u64,
    },
    /// A newer server knows more kinds.
    #[serde(other)]
    Unknown,
}

/// What was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// A connection.
    Connection,
    /// A queue of a program, which therefore runs unscheduled.
    Queue,
    /// A request of `xcli`.
    Request,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_flat_json() {
        let event = ServerEvent {
            time_us: 3,
            at: Time(5),
            kind: EventKind::Suspended { pid: Pid(42), name: "train".to_owned(), why: "w".to_owned() },
        };
        let text = r#"{"time_us":3,"at_ns":5,"event":"suspended","pid":42,"name":"train","why":"w"}"#;
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
        assert_eq!(serde_json::from_str::<ServerEvent>(text).unwrap(), event);
    }

    #[test]
    fn kinds_of_a_newer_server_are_unknown() {
        let text = r#"{"time_us":3,"at_ns":5,"event":"exploded","pid":42}"#;
        assert_eq!(serde_json::from_str::<ServerEvent>(text).unwrap().kind, EventKind::Unknown);
    }
}
