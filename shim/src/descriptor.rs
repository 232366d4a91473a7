//! Descriptors of ours in a process that belongs to somebody else: a program may close all it does not know, and use the
//! numbers again. So they lie at high numbers, and before one is used it is looked at whether it is still what it was.

use hal_kfd::kernel::lowest_number;
use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

/// What a number leads to, as far as it tells our files from the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// The type bits of its mode; none for an eventfd and its kin, which all share one inode.
    pub(crate) kind: u32,
}

impl Identity {
    /// Nothing if the number leads nowhere.
    pub(crate) fn of(number: c_int) -> Option<Self> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: fills the structure that it is given; a number that is no descriptor is an error, not undefined.
        if unsafe { libc::fstat(number, stat.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: the call succeeded, so it was filled.
        let stat = unsafe { stat.assume_init() };
        Some(Self { device: stat.st_dev, inode: stat.st_ino, kind: stat.st_mode & libc::S_IFMT })
    }
}

/// Moves a descriptor to a high number.
pub(crate) fn lift(file: &OwnedFd) -> io::Result<c_int> {
    // SAFETY: duplicates a descriptor that is open.
    let number = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest_number()) };
    if number < 0 { Err(io::Error::last_os_error()) } else { Ok(number) }
}
