//! The errors of xcli that a user reads, and their texts. Errors of the system and of files come as `anyhow`
//! contexts.

use protocol::codes::PreemptLevel;
use std::path::PathBuf;
use std::time::Duration;

/// An error of xcli. Its text is one sentence: what happened, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Wrong usage that the parser of the command line cannot see. It ends xcli with exit code 2.
    #[error("{0}")]
    Usage(&'static str),
    /// A policy or a parameter does not exist, or a value is out of its range. Wrong usage as well.
    #[error("{0}")]
    Policy(String),
    #[error("a queue is a number, as `xcli list` shows it")]
    NotAQueue,
    #[error("a level is a whole number from {} to {}", PreemptLevel::RANGE.start(), PreemptLevel::RANGE.end())]
    NotALevel,
    #[error("an instance is 1 to 32 letters, digits, '-' and '_'")]
    NotAnInstance,
    /// An address names another machine.
    #[error(
        "this build has no TCP: specify a server on this machine, by the path of its socket or as localhost"
    )]
    RemoteServer,
    #[error(
        "metrics are served at a port of a loopback address, such as 127.0.0.1:9477, or at the absolute path of a Unix socket"
    )]
    NotLoopback,
    /// An address for metrics cannot be used.
    #[error("cannot listen at {place}: {why}")]
    CannotListen { place: String, why: String },
    /// The token for metrics cannot be read.
    #[error("cannot read the token from {}: {why}", path.display())]
    Token { path: PathBuf, why: String },
    #[error("there is no process {0}")]
    NoProcess(u32),
    #[error("/proc hides process {0} from you: run xcli as the user of the process or as root")]
    HiddenProcess(u32),
    #[error("process {0} has ended, and its parent has not waited for it yet")]
    EndedProcess(u32),
    /// The dynamic loader does not load the library, for this reason.
    #[error("{0}")]
    LibraryRefused(String),
    #[error("the dynamic loader ignores it and gives no reason")]
    LibraryIgnored,
    /// A report cannot be written to this path.
    #[error("{} {why}", path.display())]
    ReportPath { path: PathBuf, why: PathFault },
    #[error("no time was left for this part")]
    NoTimeLeft,
    #[error("it did not end within {:.0} s", .0.as_secs_f64())]
    TooSlow(Duration),
    #[error("xcli failed while it made this part")]
    Panicked,
    /// xbench could not be run, or did not answer with its JSON.
    #[error("{0}")]
    Xbench(String),
}

/// The reason why a report cannot be written to a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    #[error("is not a regular file")]
    NotAFile,
    #[error("exists already; --force replaces it")]
    Exists,
    #[error("is not the name of a file")]
    NotAName,
    #[error("cannot be written: {0}")]
    NotWritable(rustix::io::Errno),
}

impl Error {
    /// Returns true if the command line is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::Policy(_) | Self::ReportPath { .. })
    }
}
