//! The debug session of a process, and the calls that wait for a debugger or for an operation.

use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use hip_sys::kfd::debug::{self, DbgTrap};

use super::events::Waiter;
use crate::call::Call;
use crate::device::Time;
use crate::fuse::{Reply, Unique};

/// A call that an operation answers.
#[derive(Clone, Copy, Debug)]
pub struct Parked {
    pub unique: Unique,
    /// The process whose lock is held until then.
    pub domain: i32,
}

impl Parked {
    pub fn of(call: &Call, domain: i32) -> Self {
        Self { unique: call.unique, domain }
    }
}

/// A call that waits, and that a signal may interrupt.
#[derive(Debug)]
pub struct Blocked {
    pub unique: Unique,
    pub pid: i32,
    /// The event that ends the wait.
    pub awaited: Awaited,
}

/// The event that a blocked call waits for.
#[derive(Debug)]
pub enum Awaited {
    /// The queue is resumed; this call destroys it then.
    Resume(u32, Call),
    /// The debugger answers; the caller gets this reply then.
    Debugger(Reply),
}

/// The calls that have not been answered.
#[derive(Debug, Default)]
pub struct Calls {
    /// Threads in WAIT_EVENTS.
    pub waiters: Vec<Waiter>,
    /// Calls that wait for a debugger.
    pub blocked: Vec<Blocked>,
    /// Calls that wait and must not be interrupted.
    pub uninterruptible: HashSet<Unique>,
    /// Processes whose lock has become free, and the time: the calls that wait for it can go on.
    pub unlocked: VecDeque<(i32, Time)>,
}

/// The debug session of a process.
#[derive(Debug, Default)]
pub struct Debug {
    pub enabled: bool,
    pub runtime: debug::RuntimeInfo,
    /// The debugging process, if not the process itself.
    pub debugger: Option<i32>,
    /// The exceptions that the debugger is notified of.
    pub reported: u64,
    pub raised: u64,
    pub devices: Vec<u64>,
    /// The flags that the debugger has set.
    pub flags: u32,
    /// The number of the debugger's answers that no call of RUNTIME_ENABLE has waited for yet.
    pub answers: u32,
    /// True if RUNTIME_ENABLE was interrupted while it waited.
    pub retry: bool,
    /// The descriptor that gets a byte for each exception.
    pub descriptor: Option<Arc<OwnedFd>>,
}

/// A suspend or resume that goes on from device to device.
#[derive(Debug)]
pub struct Batch {
    pub parked: Parked,
    /// The call to be answered, and its argument.
    pub call: Call,
    pub argument: DbgTrap,
    /// True for a suspend, false for a resume.
    pub suspend: bool,
    /// The ids that the caller named, with their result bits; `None` for all.
    pub ids: Option<Vec<u32>>,
    pub array: u64,
    /// The exceptions to clear.
    pub clear: u64,
    pub gpu: usize,
    /// The number of queues that were suspended or resumed.
    pub total: u32,
}
