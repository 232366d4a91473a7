//! Whether the program has forbidden system calls since it began to use the library: a seccomp filter may end the process
//! that opens a socket, and does not say so before.

use super::bell::Kept;
use std::ffi::{CStr, c_int};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// What the kernel says of the calling thread.
const STATUS: &CStr = c"/proc/thread-self/status";

/// The mode and the number of filters, as far as the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    mode: u64,
    filters: u64,
}

/// Those of the first agent, in a forked child as well: what its parent installed binds it too.
static FIRST: OnceLock<Option<Found>> = OnceLock::new();

/// The filters of the thread that made this.
#[derive(Debug)]
pub(super) struct Filters {
    /// Opened before there was a filter: the calls that read it are the ones that no program does without.
    status: Option<Kept>,
}

impl Filters {
    /// Of the calling thread, which is the one to ask for changes.
    pub(super) fn of_this_thread() -> Self {
        let filters = Self { status: open() };
        FIRST.get_or_init(|| filters.read());
        filters
    }

    /// Whether a filter was installed meanwhile. True as well where that cannot be seen any more; false where it never could.
    pub(super) fn have_changed(&mut self) -> bool {
        let first = FIRST.get().copied().flatten();
        // A program that closes what it does not know has no filter for that reason.
        if self.status.as_ref().is_some_and(|status| status.number().is_none()) {
            self.status = open();
        }
        first.is_some() && self.read() != first
    }

    fn read(&self) -> Option<Found> {
        let number = self.status.as_ref()?.number()?;
        // SAFETY: a number of ours, of a file that is read from its beginning.
        if unsafe { libc::lseek(number, 0, libc::SEEK_SET) } != 0 {
            return None;
        }
        let mut bytes = [0_u8; 4096];
        // SAFETY: pointer and length are those of the array.
        let length = unsafe { libc::read(number, bytes.as_mut_ptr().cast(), bytes.len()) };
        parse(bytes.get(..usize::try_from(length).ok()?)?)
    }
}

fn open() -> Option<Kept> {
    // SAFETY: a terminated path.
    let number: c_int = unsafe { libc::open(STATUS.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if number < 0 {
        return None;
    }
    // SAFETY: just opened, and nobody else knows the number.
    Kept::new(unsafe { OwnedFd::from_raw_fd(number) }).ok()
}

/// Nothing where the kernel knows no filters. Up to Linux 5.9 it does not tell how many there are.
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
    fn the_kernel_says_how_many_filters_there_are() {
        let old = b"Name:\tx\nSeccomp:\t2\nSpeculation_Store_Bypass:\tvulnerable\n";
        assert_eq!(parse(old), Some(Found { mode: 2, filters: 0 }));
        assert_eq!(parse(b"Seccomp:\t2\nSeccomp_filters:\t3\n"), Some(Found { mode: 2, filters: 3 }));
        assert_eq!(parse(b"Name:\tSeccomp: 1\n"), None);
    }

    #[test]
    fn who_installs_none_has_not_changed() {
        let mut filters = Filters::of_this_thread();
        assert!(!filters.have_changed());
        assert_eq!(filters.read(), filters.read(), "it is read from its beginning each time");
    }
}
