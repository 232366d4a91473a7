//! What a person asks a server for, through `xcli`: requests and replies, as JSON in frames of the kinds
//! [`crate::message::REQUEST`] and [`crate::message::REPLY`]. One connection may ask several times, one after the other.

mod policies;

pub use crate::hint::table::Said;
pub use policies::{InForce, Parameter, Policies, Policy, Ruling};

use crate::bounds::Priority;
use crate::codes::PreemptLevel;
use crate::hint::ProcessHints;
use crate::ids::{ClientId, DeviceId, Pid, QueueId};
use crate::operation::Permit;
use crate::outside::{Fates, Held, Snapshot};
use crate::status::QueueStatus;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A question or an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Who is connected, and what everybody does. Answered by [`Reply::List`].
    List,
    /// Lets every client run until [`Request::On`]. Answered by [`Reply::Done`].
    Off,
    /// Lets the policy decide again. Answered by [`Reply::Done`].
    On,
    /// Which policies there are, and which decide. Answered by [`Reply::Policies`].
    Policies,
    /// Lets a policy decide from now on. Answered by [`Reply::Done`].
    SetPolicy(Ruling),
    /// Takes a device's own policy away, so that the one of all devices decides there. Answered by [`Reply::Done`], also if
    /// it had none.
    ResetPolicy {
        /// The device.
        device: DeviceId,
    },
    /// Tells the policy something about programs that run; all of it, or nothing if anything cannot be. Answered by
    /// [`Reply::Done`].
    Hint {
        /// About whom.
        of: Target,
        /// What.
        said: Vec<Said>,
    },
    /// The asking process is, or becomes, a program that will connect as a client sooner or later: until it ends, the
    /// server counts as used, also when this connection is closed. Answered by [`Reply::Done`].
    Expect,
    /// Takes queues of a process off the hardware, client or not, until [`Request::Release`] or the server's end. Answered by
    /// [`Reply::Fates`], which can take as long as the driver waits for a queue (seconds).
    Hold {
        /// The process, as the server sees it.
        pid: Pid,
        /// The driver's numbers of at most [`crate::outside::QUEUES`] queues; if there are none, all compute queues that the
        /// process has.
        queues: Vec<u32>,
    },
    /// Puts back what was held. Answered by [`Reply::Fates`].
    Release {
        /// The process, as the server sees it.
        pid: Pid,
        /// As in [`Request::Hold`]; if there are none, all that are held, and the process is not debugged any more.
        queues: Vec<u32>,
    },
    /// What a server that holds queues of a process sees of all its queues. Answered by [`Reply::Snapshot`].
    Snapshot {
        /// The process, as the server sees it.
        pid: Pid,
    },
}

/// The target of a hint.
///
/// ```
/// use protocol::control::Target;
/// use protocol::ids::{Pid, QueueId};
///
/// let target = Target { pid: Some(Pid(42)), queue: Some(QueueId(7)) };
/// assert_eq!(target.to_string(), "queue 7 of pid 42");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// A process, as the server sees it. If it is missing, the queue must belong to only one process.
    pub pid: Option<Pid>,
    /// A queue of the process. If it is missing, a hint for queues goes to each queue that the process has now.
    pub queue: Option<QueueId>,
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

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To [`Request::List`].
    List(List),
    /// To [`Request::Policies`].
    Policies(Policies),
    /// To [`Request::Hold`] and [`Request::Release`].
    Fates(Fates),
    /// To [`Request::Snapshot`].
    Snapshot(Snapshot),
    /// It is done.
    Done,
    /// It cannot be done; why, one line.
    Error(String),
}

/// Everything that a server knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct List {
    /// The server.
    pub server: Server,
    /// Its clients, in the order of their coming.
    pub clients: Vec<Client>,
    /// The processes of which it holds queues, clients or not, by their numbers. An older server says nothing of them.
    #[serde(default)]
    pub held: Vec<Held>,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Its process.
    pub pid: Pid,
    /// When this was so, on the server's `CLOCK_MONOTONIC`, as all times here.
    #[serde(default)]
    pub now: Time,
    /// The name of the policy of all devices.
    pub policy: String,
    /// What decides where: that policy with its parameters, then those of single devices.
    #[serde(default)]
    pub policies: Vec<InForce>,
    /// Whether the policy decides; if not, everybody runs ([`Request::Off`]).
    pub on: bool,
    /// Milliseconds since it started.
    pub uptime_ms: u64,
    /// How often it let all run for a moment, because those that ran completed nothing.
    pub guard_runs: u64,
    /// How often it has decided. An older server does not say.
    #[serde(default)]
    pub decisions: u64,
}

/// A connected process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Its name at the server.
    pub client: ClientId,
    /// Its process, as the server sees it.
    pub pid: Pid,
    /// The program's name.
    pub name: String,
    /// What is said of it.
    #[serde(default)]
    pub hints: ProcessHints,
    /// What it may do, and why.
    pub permit: Permit,
    /// Since when it may run, or may not.
    #[serde(default)]
    pub since: Time,
    /// Why, in words: "nobody stands higher on its devices".
    pub reason: String,
    /// Whether it has yielded: it is stopped, traced or held from outside, and counts as idle.
    pub yielded: bool,
    /// Whether its numbers are up to date; a stopped process does not answer.
    pub fresh: bool,
    /// How deep a suspension reaches.
    pub preemption: Preemption,
    /// Launches that could not go at once and were made in their turn on the calling thread, by reason
    /// ([`crate::slow::SlowPath::name`]); those without any are left out. An older server does not say.
    #[serde(default)]
    pub slow_path: BTreeMap<String, u64>,
    /// Its queues.
    pub queues: Vec<Queue>,
}

/// How deep a suspension of a process reaches, and what became of those so far. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Preemption {
    /// The level in force: 1 launches no more, 3 takes its queues off the hardware, running kernels included.
    #[serde(with = "crate::codes::level_number")]
    pub in_force: PreemptLevel,
    /// By what, or why it is only 1 although more is asked for; empty if nobody asks for more.
    pub how: String,
    /// Suspensions in which its queues were taken off the hardware.
    pub holds: u64,
    /// Suspensions in which waiting was expected to cost less.
    pub waits: u64,
    /// Holds that failed and were taken back.
    pub failures: u64,
    /// For how long what was in flight at the last suspension was expected to run; nothing if that is unknown, or there was
    /// none.
    pub expected_ns: Option<u64>,
    /// What a hold costs, as measured lately; nothing if none was made.
    pub hold_ns: Option<u64>,
    /// What a release costs.
    pub release_ns: Option<u64>,
    /// Where these two are from ([`crate::cost::CostOrigin::name`]). An older server or client does not say.
    #[serde(default)]
    pub cost_origin: Option<String>,
    /// When the last request of the last hold was made, on the server's `CLOCK_MONOTONIC`.
    pub asked_at: Option<u64>,
    /// When its queues stood.
    pub stood_at: Option<u64>,
}

/// A queue of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// What the server knows of it.
    #[serde(flatten)]
    pub status: QueueStatus,
    /// The preemption level in force on it; `level` is the one asked for.
    #[serde(with = "crate::codes::level_number")]
    pub in_force: PreemptLevel,
    /// What it does at the moment.
    pub state: QueueState,
    /// The priority that its program has given it; the one that counts may have been hinted from outside. An older server does
    /// not say.
    #[serde(default)]
    pub own_priority: Option<Priority>,
}

impl Queue {
    /// Its name in its process.
    pub fn id(&self) -> QueueId {
        self.status.queue
    }

    /// Where its commands run.
    pub fn device(&self) -> DeviceId {
        self.status.device
    }

    /// Whether its program holds it by itself, whatever the process may do: it goes by the priority that it has given the queue
    /// itself, and hears of no other.
    pub fn is_held(&self) -> bool {
        self.own_priority.unwrap_or(self.status.priority) == Priority::NO_EXECUTE
    }

    /// Whether a hint from outside says that it never runs, although its program does not hold it: it counts for nothing, and
    /// launches whenever the process may run.
    pub fn is_disregarded(&self) -> bool {
        self.status.priority == Priority::NO_EXECUTE && !self.is_held()
    }
}

/// What a queue does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueState {
    /// It has no work.
    Idle,
    /// It has work and may run.
    Running,
    /// It has work and may not.
    Suspended,
}
