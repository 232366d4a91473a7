//! Descriptors of the library in a process that belongs to the program.
//!
//! A program may close descriptors that it does not know, and reuse their numbers. The library therefore
//! keeps its own at high numbers, and checks before each use that a number still leads to the same file.

use hal_kfd::kernel::lowest_number;
use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

/// The identity of an open file, as far as it tells the library's files from the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The device of the file.
    pub device: u64,
    /// The inode of the file.
    pub inode: u64,
    /// The type bits of the file's mode; 0 for an eventfd and other anonymous files, which all share one
    /// inode.
    pub kind: u32,
}

impl Identity {
    /// Returns the identity of the file behind a number; `None` if there is no file.
    pub fn of(number: c_int) -> Option<Self> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the call fills the structure if it succeeds; a number that is no descriptor is an error.
        let stat = unsafe {
            if libc::fstat(number, stat.as_mut_ptr()) != 0 {
                return None;
            }
            stat.assume_init()
        };
        Some(Self { device: stat.st_dev, inode: stat.st_ino, kind: stat.st_mode & libc::S_IFMT })
    }
}

/// Duplicates a descriptor to a high number.
///
/// # Errors
/// The kernel refuses another descriptor.
pub fn lift(file: &OwnedFd) -> io::Result<c_int> {
    // SAFETY: `file` is an open descriptor.
    let number = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest_number()) };
    if number < 0 { Err(io::Error::last_os_error()) } else { Ok(number) }
}

/// A descriptor of the library that is checked before each use.
#[derive(Debug)]
pub(crate) struct CheckedFd {
    number: c_int,
    identity: Identity,
}

impl CheckedFd {
    /// Moves the descriptor to a high number.
    pub(crate) fn new(file: OwnedFd) -> io::Result<Self> {
        let number = lift(&file)?;
        let identity = Identity::of(number).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { number, identity })
    }

    /// Returns the number if it still leads to the file.
    pub(crate) fn number(&self) -> Option<c_int> {
        (Identity::of(self.number) == Some(self.identity)).then_some(self.number)
    }
}

impl Drop for CheckedFd {
    fn drop(&mut self) {
        if let Some(number) = self.number() {
            // SAFETY: the number still leads to the library's own file, which nothing else uses.
            unsafe { libc::close(number) };
        }
    }
}
