//! The errors of xcli that a user reads, and their texts. Errors of the system and of files come as `anyhow`
//! contexts.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// An error of xcli. Its text is one sentence: what happened, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Wrong usage that the parser of the command line cannot see. It ends xcli with exit code 2.
    Usage(&'static str),
    /// A policy or a parameter does not exist, or a value is out of its range. Wrong usage as well.
    Policy(String),
    NotAQueue,
    NotALevel,
    NotAnInstance,
    /// An address names another machine.
    RemoteServer,
    NoProcess(u32),
    /// `/proc` hides the process.
    HiddenProcess(u32),
    /// The process has ended, and its parent has not waited for it.
    EndedProcess(u32),
    /// The dynamic loader does not load the library, for this reason.
    LibraryRefused(String),
    /// The dynamic loader does not load the library and gives no reason.
    LibraryIgnored,
    /// The path of a report cannot be written.
    ReportPath {
        path: PathBuf,
        why: PathFault,
    },
    /// A part of a report was not reached in time.
    NoTimeLeft,
    /// A part of a report took longer than this.
    TooSlow(Duration),
    /// The code that makes a part of a report panicked.
    Panicked,
    /// xbench could not be run, or did not answer with its JSON.
    Xbench(String),
}

/// The reason why a report cannot be written to a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathFault {
    NotAFile,
    Exists,
    NotAName,
    NotWritable(rustix::io::Errno),
}

impl Error {
    /// Returns true if the command line is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::Policy(_) | Self::ReportPath { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) => f.write_str(text),
            Self::Policy(text) | Self::Xbench(text) => f.write_str(text),
            Self::NotAQueue => f.write_str("a queue is a number, as `xcli list` shows it"),
            Self::NotALevel => {
                let range = protocol::codes::PreemptLevel::RANGE;
                write!(f, "a level is a whole number from {} to {}", range.start(), range.end())
            }
            Self::NotAnInstance => f.write_str("an instance is 1 to 32 letters, digits, '-' and '_'"),
            Self::RemoteServer => f.write_str(
                "this build has no TCP: specify a server on this machine, by the path of its socket or as localhost",
            ),
            Self::NoProcess(pid) => write!(f, "there is no process {pid}"),
            Self::HiddenProcess(pid) => {
                write!(f, "/proc hides process {pid} from you: run xcli as the user of the process or as root")
            }
            Self::EndedProcess(pid) => {
                write!(f, "process {pid} has ended, and its parent has not waited for it yet")
            }
            Self::LibraryRefused(reason) => f.write_str(reason),
            Self::LibraryIgnored => f.write_str("the dynamic loader ignores it and gives no reason"),
            Self::ReportPath { path, why } => {
                write!(f, "{} ", path.display())?;
                match why {
                    PathFault::NotAFile => f.write_str("is not a regular file"),
                    PathFault::Exists => f.write_str("exists already; --force replaces it"),
                    PathFault::NotAName => f.write_str("is not the name of a file"),
                    PathFault::NotWritable(errno) => write!(f, "cannot be written: {errno}"),
                }
            }
            Self::NoTimeLeft => f.write_str("no time was left for this part"),
            Self::TooSlow(limit) => write!(f, "it did not end within {:.0} s", limit.as_secs_f64()),
            Self::Panicked => f.write_str("xcli failed while it made this part"),
        }
    }
}

impl std::error::Error for Error {}
