//! Detection of seccomp filters that the program installs after the library has started. A filter may kill
//! the process when it opens a socket, without a warning.

use crate::descriptor::CheckedFd;
use std::ffi::{CStr, c_int};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// The status of the calling thread.
const STATUS: &CStr = c"/proc/thread-self/status";

/// The seccomp mode and the number of filters; 0 filters where the kernel does not show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    mode: u64,
    filters: u64,
}

/// The filters of the first agent. A forked child keeps its parent's, because the parent's filters apply to
/// it too.
static FIRST: OnceLock<Option<Found>> = OnceLock::new();

/// The filters of the thread that made this value.
#[derive(Debug)]
pub(super) struct Filters {
    /// Opened before there was a filter. Reading it needs only system calls that every program needs.
    status: Option<CheckedFd>,
}

impl Filters {
    /// Starts to watch the calling thread. Only this thread may ask for changes.
    pub(super) fn of_this_thread() -> Self {
        let filters = Self { status: open() };
        FIRST.get_or_init(|| filters.read());
        filters
    }

    /// Returns true if a filter was installed meanwhile, or the status cannot be read any more. Returns false
    /// if it could never be read.
    pub(super) fn have_changed(&mut self) -> bool {
        let first = FIRST.get().copied().flatten();
        // The program has closed the descriptor, which does not mean that it has a filter.
        if self.status.as_ref().is_some_and(|status| status.number().is_none()) {
            self.status = open();
        }
        first.is_some() && self.read() != first
    }

    fn read(&self) -> Option<Found> {
        let number = self.status.as_ref()?.number()?;
        // SAFETY: the call takes numbers, of a file that only this type uses.
        if unsafe { libc::lseek(number, 0, libc::SEEK_SET) } != 0 {
            return None;
        }
        let mut bytes = [0_u8; 4096];
        // SAFETY: pointer and length are those of the array.
        let length = unsafe { libc::read(number, bytes.as_mut_ptr().cast(), bytes.len()) };
        parse(bytes.get(..usize::try_from(length).ok()?)?)
    }
}

fn open() -> Option<CheckedFd> {
    // SAFETY: the path is a C string.
    let number: c_int = unsafe { libc::open(STATUS.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if number < 0 {
        return None;
    }
    // SAFETY: the descriptor was just opened, and nothing else knows it.
    CheckedFd::new(unsafe { OwnedFd::from_raw_fd(number) }).ok()
}

/// Parses a status; `None` where the kernel has no seccomp. Up to Linux 5.9 it does not show the number of
/// filters.
fn parse(status: &[u8]) -> Option<Found> {
    let number = |name: &str| {
        let value =
            |line: &[u8]| std::str::from_utf8(line.strip_prefix(name.as_bytes())?).ok()?.trim().parse().ok();
        status.split(|byte| *byte == b'\n').find_map(value)
    };
    Some(Found { mode: number("Seccomp:")?, filters: number("Seccomp_filters:").unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_status_gives_mode_and_filters() {
        let old = b"Name:\tx\nSeccomp:\t2\nSpeculation_Store_Bypass:\tvulnerable\n";
        assert_eq!(parse(old), Some(Found { mode: 2, filters: 0 }));
        assert_eq!(parse(b"Seccomp:\t2\nSeccomp_filters:\t3\n"), Some(Found { mode: 2, filters: 3 }));
        assert_eq!(parse(b"Name:\tSeccomp: 1\n"), None);
    }

    #[test]
    fn have_changed_without_new_filter_is_false() {
        let mut filters = Filters::of_this_thread();
        assert!(!filters.have_changed());
        assert_eq!(filters.read(), filters.read(), "each read starts at the beginning");
    }
}
