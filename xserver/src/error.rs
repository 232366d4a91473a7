//! The reasons for which the server refuses a request, and their texts.

use hal_kfd::attach::Problem;
use protocol::bounds::{Priority, Utilization};
use protocol::control::Target;
use protocol::ids::{Pid, QueueId};
use std::io;

/// The reason why a request is refused. Its text is one line.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say what the variants mean")]
pub enum Refusal {
    /// A policy or a parameter does not exist, or a value is out of its range.
    #[error("{0}")]
    Policy(String),
    #[error("{0} devices have their own policies already")]
    TooManyPolicies(usize),
    #[error("the server already waits for {0} programs, which is the maximum for one user")]
    TooManyExpected(usize),
    #[error("invalid request: {0}")]
    Invalid(serde_json::Error),
    #[error(
        "the library in process {0} is older than this server and takes no settings: restart the program"
    )]
    TakesNoSettings(Pid),
    #[error(
        "process {0} does not read what the server sends, perhaps because it is stopped: try again when it runs"
    )]
    DoesNotRead(Pid),
    #[error("specify a process or a queue")]
    NoTarget,
    #[error("the request contains no hint")]
    NoHint,
    #[error("{0} has no queue")]
    NoQueues(Target),
    #[error("process {0} is not connected")]
    NotConnected(Pid),
    /// The process has only these queues.
    #[error("process {pid} has no queue {queue} (it has {})", listed(queues))]
    NoSuchQueue { pid: Pid, queue: QueueId, queues: Vec<QueueId> },
    #[error("no connected program has a queue {0}")]
    UnknownQueue(QueueId),
    /// These clients, by process and name, have a queue of that number.
    #[error("several programs have a queue {queue}: specify --pid ({})", clients.join(", "))]
    AmbiguousQueue { queue: QueueId, clients: Vec<String> },
    #[error(
        "the program suspends queue {queue} of pid {pid} itself, by its own priority {priority}: only the program can \
         change that{}",
        if *has_others { "; specify another queue with -x" } else { "" }
    )]
    HeldByProgram { pid: Pid, queue: QueueId, priority: Priority, has_others: bool },
    #[error(
        "only an administrator of this server can do that: root, or a user whose rule in its configuration says `administer \
         = true` (yours is {rule:?})"
    )]
    NotAdministrator { rule: String },
    #[error(
        "only an administrator of this server can do that, or a user whose rule in its configuration says `set_policy = true` \
         (yours is {rule:?})"
    )]
    SetsNoPolicies { rule: String },
    #[error(
        "process {pid} belongs to another user: by the rule {rule:?} of the server's configuration you may see it, but not \
         change it"
    )]
    OnlySeen { pid: Pid, rule: String },
    #[error(
        "priority {priority} is above {most}, the highest that the rule {rule:?} of the server's configuration permits"
    )]
    AboveLimit { priority: Priority, most: Priority, rule: String },
    #[error(
        "share {share} is above {most}, the largest that the rule {rule:?} of the server's configuration permits"
    )]
    ShareAboveLimit { share: Utilization, most: Utilization, rule: String },
    #[error("this server has no configuration file: only the server for all users has one")]
    NoConfiguration,
    #[error("{0} MiB of lists that nobody has read are on their way")]
    TooManyUnread(usize),
    #[error("the server already reads its configuration")]
    Reloading,
    /// The file has a mistake, and the configuration in force has not changed.
    #[error("the configuration has not changed: {0}")]
    BadConfiguration(String),
    #[error("you are in another pid namespace, where numbers mean other processes")]
    OtherNamespace,
    #[error(
        "the server cannot see your process in /proc ({0}), and so cannot check that you are in the same pid namespace. \
         Is /proc mounted with hidepid, or does the server's service have ProtectProc=?"
    )]
    HiddenClient(io::Error),
    #[error(
        "process {pid} has rights of {}: only that user and root can suspend it",
        user.map_or_else(|| "another user".to_owned(), |user| format!("user {user}"))
    )]
    ForeignProcess { pid: Pid, user: Option<u32> },
    #[error("the server cannot see the owner of process {pid} in /proc: {error}")]
    HiddenProcess { pid: Pid, error: io::Error },
    #[error("there is no process {0}")]
    NoProcess(Pid),
    #[error("{0} is not a process id")]
    NotAProcess(Pid),
    #[error("{0} is a thread, not a process")]
    Thread(Pid),
    #[error("process {0} has ended")]
    EndedProcess(Pid),
    #[error("the server cannot watch process {pid}: {error}")]
    CannotWatch { pid: Pid, error: io::Error },
    #[error("a request can name at most {0} queues")]
    TooManyQueues(usize),
    #[error("{0} processes are suspended already")]
    TooManyProcesses(usize),
    #[error("this server has suspended no queue of process {0}")]
    NotSuspended(Pid),
    #[error("the server cannot start a thread for process {pid}: {error}")]
    NoThread { pid: Pid, error: io::Error },
    /// The thread has ended unexpectedly, and the driver has restored the queues.
    #[error("the server's thread for process {0} has failed: its queues are resumed")]
    Lost(Pid),
    #[error("the server (pid {own}) cannot open /dev/kfd: {0}", own = std::process::id())]
    NoDevice(io::Error),
    #[error("queue {queue} of process {pid} is for copies: only queues for kernels can be suspended")]
    CopyQueue { pid: Pid, queue: u32 },
    #[error("process {pid} ({name}) has no queue for kernels")]
    NoComputeQueue { pid: Pid, name: String },
    /// The debugger interface of the driver fails.
    #[error("process {pid} ({name}): {problem}")]
    Debugger { pid: Pid, name: String, problem: Problem },
}

fn listed(queues: &[QueueId]) -> String {
    let queues: Vec<_> = queues.iter().map(ToString::to_string).collect();
    if queues.is_empty() { "none".to_owned() } else { queues.join(", ") }
}
