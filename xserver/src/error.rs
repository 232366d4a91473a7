//! The reasons for which the server refuses a request, and their texts.

use hal_kfd::attach::Problem;
use protocol::bounds::Priority;
use protocol::control::Target;
use protocol::ids::{Pid, QueueId};
use std::fmt;

/// The reason why a request is refused. Its text is one line.
#[derive(Debug)]
#[expect(missing_docs, reason = "most variants and all fields are named after what they hold")]
pub enum Refusal {
    /// A policy or a parameter does not exist, or a value is out of its range.
    Policy(String),
    /// This many devices have their own policies.
    TooManyPolicies(usize),
    /// This many programs are expected.
    TooManyExpected(usize),
    /// The request cannot be parsed.
    Invalid(serde_json::Error),
    /// A hint names no process and no queue.
    NoTarget,
    /// A request for hints contains none.
    NoHint,
    /// A hint for queues is given for a process without queues.
    NoQueues(Target),
    NotConnected(Pid),
    /// The process has only these queues.
    NoSuchQueue {
        pid: Pid,
        queue: QueueId,
        queues: Vec<QueueId>,
    },
    /// No client has the queue.
    UnknownQueue(QueueId),
    /// These clients, by process and name, have a queue of that number.
    AmbiguousQueue {
        queue: QueueId,
        clients: Vec<String>,
    },
    /// The program itself suspends the queue by its priority.
    HeldByProgram {
        pid: Pid,
        queue: QueueId,
        priority: Priority,
        has_others: bool,
    },
    /// The client is in another pid namespace.
    OtherNamespace,
    /// `/proc` hides the client from the server.
    HiddenClient(std::io::Error),
    /// The process belongs to another user.
    ForeignProcess {
        pid: Pid,
        user: Option<u32>,
    },
    /// `/proc` hides the process from the server.
    HiddenProcess {
        pid: Pid,
        error: std::io::Error,
    },
    NoProcess(Pid),
    NotAProcess(Pid),
    /// The number is that of a thread.
    Thread(Pid),
    EndedProcess(Pid),
    /// The end of the process cannot be watched.
    CannotWatch {
        pid: Pid,
        error: std::io::Error,
    },
    /// A request names more queues than this.
    TooManyQueues(usize),
    /// Queues of this many processes are suspended.
    TooManyProcesses(usize),
    /// The server has suspended no queue of the process.
    NotSuspended(Pid),
    /// The server cannot start a thread.
    NoThread {
        pid: Pid,
        error: std::io::Error,
    },
    /// The thread of the process has ended unexpectedly, and the driver has restored the queues.
    Lost(Pid),
    /// The server cannot open the device.
    NoDevice(std::io::Error),
    /// The queue is for copies.
    CopyQueue {
        pid: Pid,
        queue: u32,
    },
    NoComputeQueue {
        pid: Pid,
        name: String,
    },
    /// The debugger interface of the driver fails.
    Debugger {
        pid: Pid,
        name: String,
        problem: Problem,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(why) => f.write_str(why),
            Self::TooManyPolicies(count) => write!(f, "{count} devices have their own policies already"),
            Self::TooManyExpected(count) => write!(f, "the server already waits for {count} programs"),
            Self::Invalid(error) => write!(f, "invalid request: {error}"),
            Self::NoTarget => f.write_str("specify a process or a queue for these hints"),
            Self::NoHint => f.write_str("the request contains no hint"),
            Self::NoQueues(target) => write!(f, "{target} has no queue to which the hints could apply"),
            Self::NotConnected(pid) => write!(f, "process {pid} is not connected"),
            Self::NoSuchQueue { pid, queue, queues } => {
                let queues: Vec<_> = queues.iter().map(ToString::to_string).collect();
                let queues = if queues.is_empty() { "none".to_owned() } else { queues.join(", ") };
                write!(f, "process {pid} has no queue {queue} (it has {queues})")
            }
            Self::UnknownQueue(queue) => write!(f, "no connected program has a queue {queue}"),
            Self::AmbiguousQueue { queue, clients } => {
                write!(f, "several programs have a queue {queue}: specify --pid ({})", clients.join(", "))
            }
            Self::HeldByProgram { pid, queue, priority, has_others } => {
                write!(
                    f,
                    "the program suspends queue {queue} of pid {pid} itself, by its own priority {priority}: only the program can \
                     change that"
                )?;
                f.write_str(if *has_others { "; specify another queue with -x" } else { "" })
            }
            Self::OtherNamespace => {
                f.write_str("you are in another pid namespace, where numbers mean other processes")
            }
            Self::HiddenClient(error) => write!(
                f,
                "the server cannot see your process in /proc ({error}), and so cannot check that you are in the same pid namespace. \
                 Is /proc mounted with hidepid, or does the server's service have ProtectProc=?"
            ),
            Self::ForeignProcess { pid, user: Some(user) } => {
                write!(f, "process {pid} has rights of user {user}: only that user and root can suspend it")
            }
            Self::ForeignProcess { pid, user: None } => {
                write!(f, "process {pid} has rights of another user: only that user and root can suspend it")
            }
            Self::HiddenProcess { pid, error } => {
                write!(f, "the server cannot see the owner of process {pid} in /proc: {error}")
            }
            Self::NoProcess(pid) => write!(f, "there is no process {pid}"),
            Self::NotAProcess(pid) => write!(f, "{pid} is not a process id"),
            Self::Thread(pid) => write!(f, "{pid} is a thread, not a process"),
            Self::EndedProcess(pid) => write!(f, "process {pid} has ended"),
            Self::CannotWatch { pid, error } => write!(f, "the server cannot watch process {pid}: {error}"),
            Self::TooManyQueues(most) => write!(f, "a request can name at most {most} queues"),
            Self::TooManyProcesses(count) => write!(f, "{count} processes are suspended already"),
            Self::NotSuspended(pid) => write!(f, "this server has suspended no queue of process {pid}"),
            Self::NoThread { pid, error } => {
                write!(f, "the server cannot start a thread for process {pid}: {error}")
            }
            Self::Lost(pid) => {
                write!(f, "the server's thread for process {pid} has failed: its queues are resumed")
            }
            Self::NoDevice(error) => {
                write!(f, "the server (pid {}) cannot open /dev/kfd: {error}", std::process::id())
            }
            Self::CopyQueue { pid, queue } => {
                write!(
                    f,
                    "queue {queue} of process {pid} is for copies: only queues for kernels can be suspended"
                )
            }
            Self::NoComputeQueue { pid, name } => {
                write!(f, "process {pid} ({name}) has no queue for kernels")
            }
            Self::Debugger { pid, name, problem } => write!(f, "process {pid} ({name}): {problem}"),
        }
    }
}

impl std::error::Error for Refusal {}
