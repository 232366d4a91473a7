//! The control protocol of `xcli`: requests to a server and its replies, as JSON in frames of the kinds
//! [`crate::message::REQUEST`] and [`crate::message::REPLY`]. One connection may make several requests, one
//! after the other.

mod events;
mod policies;

pub use crate::hint::table::HintUpdate;
pub use events::{EVENTS, EventKind, Refused, ServerEvent};
pub use policies::{Parameter, Policies, Policy, PolicyInForce, PolicyOrder};

use crate::bounds::{Priority, Utilization};
use crate::codes::PreemptLevel;
use crate::hint::ProcessHints;
use crate::ids::{ClientId, DeviceId, Pid, QueueId};
use crate::operation::Permit;
use crate::outside::{Fates, Held, Snapshot};
use crate::status::QueueStatus;
use crate::time::Time;
use crate::totals::{QueueTimes, Totals};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

/// A request of a user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Asks for the clients and their state. Answered by [`Reply::List`].
    List,
    /// Lets every client run until [`Request::On`]. Answered by [`Reply::Done`].
    Off,
    /// Lets the policy decide again. Answered by [`Reply::Done`].
    On,
    /// Asks for the available policies and those in force. Answered by [`Reply::Policies`].
    Policies,
    /// Sets a policy. Answered by [`Reply::Done`].
    SetPolicy(PolicyOrder),
    /// Removes the policy of a device, so that the policy of all devices decides there. Answered by
    /// [`Reply::Done`], also if the device had none.
    ResetPolicy {
        /// The device.
        device: DeviceId,
    },
    /// Updates hints of running programs, either all of them or, if one is impossible, none. Answered by
    /// [`Reply::Done`].
    Hint {
        /// The target.
        of: Target,
        /// The updates.
        said: Vec<HintUpdate>,
    },
    /// Changes settings of queues. Answered by [`Reply::Done`] when the server has sent the settings to the programs.
    Configure {
        /// The target; a process without a queue means all of its queues.
        of: Target,
        /// The settings.
        settings: QueueSettings,
    },
    /// Reads the configuration file again. Answered by [`Reply::Done`].
    Reload,
    /// Asks for the configuration in force. Answered by [`Reply::Config`].
    Config,
    /// Asks for the names of priorities. Answered by [`Reply::Priorities`].
    Priorities,
    /// Announces a client: the requesting process is, or becomes, a program that will connect. Until it ends,
    /// the server counts as used, even after this connection is closed. Answered by [`Reply::Done`].
    Expect,
    /// Evicts queues of a process, client or not, until [`Request::Release`] or the end of the server.
    /// Answered by [`Reply::Fates`], which can take as long as the driver waits for a queue (seconds).
    Hold {
        /// The process, as the server sees it.
        pid: Pid,
        /// Numbers of at most [`crate::outside::QUEUES`] queues, as the driver counts; if empty, all compute
        /// queues of the process.
        queues: Vec<u32>,
    },
    /// Restores queues. Answered by [`Reply::Fates`].
    Release {
        /// The process, as the server sees it.
        pid: Pid,
        /// Numbers of queues, as for [`Request::Hold`]; if empty, all evicted queues, and the server detaches
        /// from the process.
        queues: Vec<u32>,
    },
    /// Asks for what has happened. Answered by one [`Reply::Events`] with the newest `recent` of the events that the server
    /// keeps and the person may see. With `follow`, that reply also says which programs run now, more replies follow
    /// until the connection is closed, and no further request is allowed on it.
    Events {
        /// The number of events, at most [`EVENTS`].
        recent: u32,
        /// True if more replies are wanted.
        follow: bool,
    },
    /// Asks for the traces of all programs that the person may see. Answered by one [`Reply::Traced`] for each program that
    /// writes one, also for those that connect later. The programs write until the connection is closed, and no further
    /// request is allowed on it.
    Trace,
    /// Asks for all queues of a process of which the server has evicted some. Answered by
    /// [`Reply::Snapshot`].
    Snapshot {
        /// The process, as the server sees it.
        pid: Pid,
    },
}

/// A program that is traced, or of which nothing can be traced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedProgram {
    /// The client.
    pub client: ClientId,
    /// The process, as the server sees it; 0 if it has no number there.
    pub pid: Pid,
    /// The name of the program.
    pub name: String,
    /// Why it writes no trace, for users; then no file comes with the reply.
    pub missing: Option<String>,
}

/// Settings of a queue. What is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSettings {
    /// The requested preemption level, 1 to 3.
    pub level: Option<u8>,
    /// The most commands in flight, from 1 on.
    pub threshold: Option<NonZeroU32>,
    /// Commands from one marker to the next, from 1 on. One above the threshold counts as the threshold.
    pub batch_size: Option<NonZeroU32>,
}

impl fmt::Display for QueueSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.level.map(|level| format!("level {level}"));
        let threshold = self.threshold.map(|number| format!("threshold {number}"));
        let batch_size = self.batch_size.map(|number| format!("batch size {number}"));
        let given: Vec<_> = [level, threshold, batch_size].into_iter().flatten().collect();
        f.write_str(&given.join(", "))
    }
}

/// The target of a hint or of settings.
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
    /// A queue of the process. If it is missing, a hint for queues goes to each queue that the process has
    /// now.
    pub queue: Option<QueueId>,
}

impl Target {
    /// Returns true if a queue of the target's process is meant.
    pub fn includes(&self, queue: QueueId) -> bool {
        self.queue.is_none_or(|typed| queue.is_meant_by(typed))
    }
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

/// A reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a reply is sent at once, and few exist at a time")]
pub enum Reply {
    /// To [`Request::List`].
    List(List),
    /// To [`Request::Policies`].
    Policies(Policies),
    /// To [`Request::Hold`] and [`Request::Release`].
    Fates(Fates),
    /// To [`Request::Snapshot`].
    Snapshot(Snapshot),
    /// To [`Request::Config`].
    Config(ConfigInForce),
    /// To [`Request::Priorities`]: the names of the configuration; a server of one user has none.
    Priorities(BTreeMap<String, Priority>),
    /// To [`Request::Events`], in the order in which they happened.
    Events(Vec<ServerEvent>),
    /// To [`Request::Trace`]: one program. A memory file to read comes with the first byte of the frame
    /// ([`crate::trace::Trace`]), unless the program writes no trace.
    Traced(TracedProgram),
    /// The request was carried out.
    Done,
    /// The request cannot be carried out. One line says why.
    Error(String),
}

/// The configuration of a server for all users.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigInForce {
    /// The file, or `None` for a server of one user, which has none.
    pub file: Option<std::path::PathBuf>,
    /// The keys in the order of the documentation. `[[listen]]`, `[[rule]]` and `[[device]]` appear once for each entry.
    pub keys: Vec<ConfigKey>,
}

/// A key of the configuration file with the value in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigKey {
    /// The table and the key, such as `limits.queues_per_user` or `rule[0].name`.
    pub name: String,
    /// The value, as TOML.
    pub value: String,
    /// Where the value comes from.
    pub from: ConfigOrigin,
}

/// The origin of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigOrigin {
    /// Nobody has set it.
    Default,
    /// The file.
    File,
    /// A request of `xcli`, since the server has started.
    Request,
}

/// The state of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct List {
    /// The server.
    pub server: Server,
    /// The clients, in the order in which they connected.
    pub clients: Vec<Client>,
    /// The processes with queues that the server has evicted, clients or not, in ascending order. Missing
    /// from an older server.
    #[serde(default)]
    pub held: Vec<Held>,
    /// True if the server may have more clients, which it shows only to their users and to administrators. Missing from
    /// an older server.
    #[serde(default)]
    pub partial: bool,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Process id.
    pub pid: Pid,
    /// Time of the reply, on the server's `CLOCK_MONOTONIC`, like all times here.
    #[serde(default)]
    pub now: Time,
    /// Name of the policy of all devices.
    pub policy: String,
    /// The policies in force: that of all devices, then those of single devices.
    #[serde(default)]
    pub policies: Vec<PolicyInForce>,
    /// True if the policy decides; if false, every client runs ([`Request::Off`]).
    pub on: bool,
    /// Milliseconds since it started.
    pub uptime_ms: u64,
    /// Number of times that the progress guard let all clients run.
    pub guard_runs: u64,
    /// Number of decisions. Missing from an older server.
    #[serde(default)]
    pub decisions: u64,
    /// What it has counted, for who may see all programs. Missing from an older server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
    /// The programs with queues on a GPU that are no clients, for who may see all programs. Missing from an older server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outsiders: Vec<Outsider>,
}

/// A program that uses a GPU and is not scheduled by the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outsider {
    /// The process.
    pub pid: Pid,
    /// Its name, empty if it is hidden.
    pub name: String,
}

/// A connected process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Name at the server.
    pub client: ClientId,
    /// Process id, as the server sees it.
    pub pid: Pid,
    /// The program's name.
    pub name: String,
    /// Its user and what the user may do, from a server for all users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Hints of the process.
    #[serde(default)]
    pub hints: ProcessHints,
    /// The hints in force that the configuration gives to the program by its name. Missing if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<Given>,
    /// Permission and its reason.
    pub permit: Permit,
    /// Time at which the permission to run last changed.
    #[serde(default)]
    pub since: Time,
    /// The reason in words, such as "nothing ranks higher on its devices".
    pub reason: String,
    /// True if the client has yielded: it is stopped, traced, or evicted by `xcli suspend`, and counts as
    /// idle.
    pub yielded: bool,
    /// True if the numbers are up to date. A stopped process does not answer.
    pub fresh: bool,
    /// The time in which it was suspended. Missing from an older server.
    #[serde(default)]
    pub waiting: Option<Waiting>,
    /// Level and statistics of preemption.
    pub preemption: Preemption,
    /// Number of times that it was suspended while it had work. Missing from an older server.
    #[serde(default)]
    pub preemptions: Option<u64>,
    /// Number of commands that have completed, as the client says. Missing from an older server.
    #[serde(default)]
    pub completed: Option<u64>,
    /// In-order launches of the calling thread, by reason ([`crate::slow::SlowPath::name`]), without zeros.
    /// Missing from an older server.
    #[serde(default)]
    pub slow_path: BTreeMap<String, u64>,
    /// Features that the program lacks because its library is older than the server: [`LACKS_TRACES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// Queues.
    pub queues: Vec<Queue>,
}

/// [`Client::lacks`]: the program writes no trace.
pub const LACKS_TRACES: &str = "traces";

/// The user of a client, as the server sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The rule of the configuration that says what the program may do.
    pub rule: String,
    /// The highest priority that the rule permits.
    pub max_priority: Priority,
    /// The largest share that the rule permits. Missing from an older server.
    #[serde(default)]
    pub max_share: Utilization,
    /// The deepest preemption level that the rule permits. Missing from an older server.
    #[serde(default = "deepest", with = "crate::codes::level_number")]
    pub max_level: PreemptLevel,
    /// The control group, such as `/system.slice/docker-0123.scope`; `None` if the server cannot see it.
    pub cgroup: Option<String>,
}

/// The level that the rules of older servers permit.
fn deepest() -> PreemptLevel {
    PreemptLevel::Interrupt
}

/// Hints that the configuration gives to a program by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The pattern of the entry that matches the program's name.
    pub program: String,
    /// The hints that neither the program nor a person has set for all of its queues: names as those of `xcli hint`, with
    /// their values before the limits of the rule.
    pub hints: BTreeMap<String, String>,
}

/// The time in which a client was suspended while it had work, and the device's work for others meanwhile. Each
/// time is a part of the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Waiting {
    /// Nanoseconds since it connected.
    pub connected_ns: u64,
    /// Nanoseconds for which it had work and was suspended.
    pub suspended_ns: u64,
    /// Nanoseconds of these for which another client ran that had unfinished work on the same devices: the device
    /// worked for others for at most so long.
    pub others_had_work_ns: u64,
    /// Nanoseconds of these for which the device worked for the others, as far as they know the times of their
    /// kernels; `None` if they know none.
    pub others_worked_ns: Option<u64>,
}

/// The preemption level of a process, and statistics of its suspensions. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Preemption {
    /// The level in force: 1 launches no further command, 3 evicts the queues, running kernels included.
    #[serde(with = "crate::codes::level_number")]
    pub in_force: PreemptLevel,
    /// The mechanism, or the reason why the level is only 1 although more is requested; empty if no more is
    /// requested.
    pub how: String,
    /// Suspensions in which the queues were evicted.
    pub holds: u64,
    /// Suspensions in which waiting was expected to cost less.
    pub waits: u64,
    /// Evictions that failed and were taken back.
    pub failures: u64,
    /// Expected remaining duration of the commands in flight at the last suspension; `None` if unknown, or if
    /// there was no suspension.
    pub expected_ns: Option<u64>,
    /// Recently measured cost of an eviction; `None` before the first one.
    pub hold_ns: Option<u64>,
    /// Recently measured cost of a restore.
    pub release_ns: Option<u64>,
    /// Origin of these two costs ([`crate::cost::CostOrigin::name`]). Missing from an older server or client.
    #[serde(default)]
    pub cost_origin: Option<String>,
    /// Time of the last request of the last eviction, on the server's `CLOCK_MONOTONIC`.
    pub asked_at: Option<u64>,
    /// Time at which all queues were evicted.
    pub stood_at: Option<u64>,
}

/// A queue of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// The server's state of the queue.
    #[serde(flatten)]
    pub status: QueueStatus,
    /// Preemption level in force; `level` is the requested one.
    #[serde(with = "crate::codes::level_number")]
    pub in_force: PreemptLevel,
    /// Current state.
    pub state: QueueState,
    /// Priority that the program itself has set; a hint may have set another one in force. Missing from an
    /// older server.
    #[serde(default)]
    pub own_priority: Option<Priority>,
    /// Its times. Missing from an older server.
    #[serde(default)]
    pub times: Option<QueueTimes>,
}

impl Queue {
    /// Returns the name of the queue in its process.
    pub fn id(&self) -> QueueId {
        self.status.queue
    }

    /// Returns the device that runs its commands.
    pub fn device(&self) -> DeviceId {
        self.status.device
    }

    /// Returns true if the program itself holds the queue, whatever the permission of the process: the
    /// program goes by the priority that it has set itself, and does not learn of hints.
    pub fn is_held(&self) -> bool {
        self.own_priority.unwrap_or(self.status.priority) == Priority::NO_EXECUTE
    }

    /// Returns true if a hint says that the queue never runs, but its program does not hold it: the queue
    /// counts for nothing, and launches whenever the process may run.
    pub fn is_disregarded(&self) -> bool {
        self.status.priority == Priority::NO_EXECUTE && !self.is_held()
    }
}

/// The state of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueState {
    /// The queue has no work.
    Idle,
    /// The queue has work and may run.
    Running,
    /// The queue has work and may not run.
    Suspended,
}
