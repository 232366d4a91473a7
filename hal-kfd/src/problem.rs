//! The reasons why another process's queues cannot be controlled.

use std::fmt;

use host::process::Untraceable;

use crate::capabilities::Refusal;
use crate::kernel::Errno;

/// The reason why the queues of a process cannot be controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is no such process.
    NoProcess,
    /// The process must not be traced, for this reason.
    NotTraceable(Untraceable),
    /// The process has not opened the device.
    NoDevice,
    /// Another debugger debugs its GPU work already.
    Debugged,
    /// The session has ended without a request of ours, and the queues run again. That happens when another
    /// process that tried to debug this one, and failed, ends: `kfd_ioctl_set_debug_trap` records the last
    /// process that tried as the debugger.
    Lost,
    /// Its runtime has not enabled debugging (ROCr before 5.5 never does), or a device cannot be debugged
    /// (gfx11 with masked queues).
    NotEnabled,
    /// The driver is too old, or schedules queues without the hardware scheduler.
    NotSupported,
    /// An eviction is unsafe on this machine.
    Unsafe(Refusal),
    /// The device could not evict a queue in time, and is being reset.
    Hung(Errno),
    /// The request failed with another error.
    Failed(Errno),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess => f.write_str("there is no such process"),
            Self::NotTraceable(why) => write!(f, "the process must not be traced: {why}"),
            Self::NoDevice => f.write_str("the process has not opened /dev/kfd"),
            Self::Debugged => f.write_str("the GPU work of the process is being debugged already"),
            Self::Lost => f.write_str("the suspension was lost to another debugger, and the process goes on"),
            Self::NotEnabled => f.write_str(
                "the runtime of the process has not enabled debugging, as before ROCm 5.5, or a device of it cannot be debugged",
            ),
            Self::NotSupported => {
                f.write_str("the driver has no debugger: it is older than KFD 1.13, or hardware scheduling is off")
            }
            Self::Unsafe(refusal) => refusal.fmt(f),
            Self::Hung(errno) => write!(f, "a queue could not be evicted in time, and the driver resets the GPU ({errno})"),
            Self::Failed(errno) => write!(f, "the driver refused: {errno}"),
        }
    }
}

/// Returns the problem behind an error of a session's request on a process; `begun` is true if there is a
/// session.
pub fn problem(pid: libc::pid_t, errno: Errno, begun: bool) -> Problem {
    match errno.0 {
        libc::ESRCH => Problem::NoDevice,
        libc::EALREADY => Problem::Debugged,
        libc::EINVAL if begun => Problem::Lost,
        libc::EPERM if begun => Problem::NotEnabled,
        libc::EPERM => Problem::NotTraceable(Untraceable::of(pid.cast_unsigned())),
        libc::EINVAL | libc::ENOTTY if !begun => Problem::NotSupported,
        libc::ETIME | libc::EIO => Problem::Hung(errno),
        _ => Problem::Failed(errno),
    }
}
