//! Launches that were neither made at once nor deferred: their number for each reason. The first one of each
//! is logged.

use hal_hip::args::CopyError;
use hal_hip::layout::Unknown;
use hip_sys::types::{hipFunction_t, hipStream_t};
use protocol::page::ClientHeader;
use protocol::slow::SlowPath;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use super::occupancy::Handle;

/// The obstacle to deferring a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The kernel's code is unknown.
    Code(Unknown),
    /// The arguments cannot be copied.
    Arguments(CopyError),
    /// Any other.
    Other(SlowPath),
}

impl Obstacle {
    fn reason(self) -> SlowPath {
        match self {
            Self::Code(_) => SlowPath::Code,
            Self::Arguments(_) => SlowPath::Arguments,
            Self::Other(reason) => reason,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason().why())?;
        match self {
            Self::Code(unknown) => write!(f, " ({unknown})"),
            Self::Arguments(unfit) => write!(f, " ({unfit})"),
            Self::Other(_) => Ok(()),
        }
    }
}

/// The counts of this process. They are statistics: nothing depends on them.
static COUNTS: [AtomicU32; SlowPath::ALL.len()] = [const { AtomicU32::new(0) }; SlowPath::ALL.len()];

/// Counts one. Returns true if it is the first one for its reason.
pub(crate) fn count(obstacle: Obstacle) -> bool {
    let count = COUNTS.get(obstacle.reason().number());
    // A counter saturates.
    let add = |count: &AtomicU32| {
        count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_add(1))
            .unwrap_or(u32::MAX)
    };
    count.map(add) == Some(0)
}

/// Clears the counts, which a forked child inherits from its parent.
pub(crate) fn clear() {
    COUNTS.iter().for_each(|count| count.store(0, Ordering::Relaxed));
}

/// Writes the counts into the client's page, for the server.
pub(crate) fn write(page: &ClientHeader) {
    for (word, count) in page.slow.iter().zip(&COUNTS) {
        word.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The counts in the line at the end of the process: `slow=5 slow_code=3 slow_device=2`.
pub(crate) struct Counts;

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = COUNTS.each_ref().map(|count| count.load(Ordering::Relaxed));
        write!(f, "slow={}", counts.iter().map(|count| u64::from(*count)).sum::<u64>())?;
        let reasons = SlowPath::ALL.iter().zip(counts).filter(|(_, count)| *count != 0);
        for (reason, count) in reasons {
            write!(f, " slow_{}={count}", reason.name())?;
        }
        Ok(())
    }
}

/// The functions of the runtime that return kernel names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    /// `hipKernelNameRefByPtr`
    pub(crate) host: unsafe extern "C" fn(*const c_void, hipStream_t) -> *const c_char,
    /// `hipKernelNameRef`
    pub(crate) module: unsafe extern "C" fn(hipFunction_t) -> *const c_char,
}

impl Names {
    /// Returns the name of a kernel, or its address if the runtime knows no name.
    pub(crate) fn of(self, handle: Handle, stream: hipStream_t) -> String {
        let name = match handle {
            // SAFETY: any address may be asked for; the stream is that of the launch.
            Handle::Host(function) => unsafe { (self.host)(function, stream) },
            // SAFETY: the program launches this handle, so it is valid.
            Handle::Module(function) => unsafe { (self.module)(function) },
        };
        if name.is_null() {
            return handle.to_string();
        }
        // SAFETY: the string is the runtime's, and lives as long as the kernel.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_returns_true_once_per_reason() {
        clear();
        assert_eq!(Counts.to_string(), "slow=0");
        let (code, other) = (Obstacle::Code(Unknown::NotRegistered), Obstacle::Code(Unknown::ValueKind));
        assert_eq!([code, other, code].map(count), [true, false, false]);
        assert!(count(Obstacle::Other(SlowPath::Device)) && !count(Obstacle::Other(SlowPath::Device)));
        assert_eq!(Counts.to_string(), "slow=5 slow_code=3 slow_device=2");
        let sentence = code.to_string();
        assert_eq!(
            sentence,
            "the sizes of the kernel's arguments are not known (the kernel was not registered)"
        );
        clear();
        assert!(count(code));
        clear();
    }
}
