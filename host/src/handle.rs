//! Identifies one process, even if the kernel gives its pid to another one later.
//!
//! A pidfd identifies it (`pidfd_open`, Linux 5.3). Where the kernel has none, or a container's filter
//! forbids the call, the pid and the start time identify it (`starttime` of `proc_pid_stat`,
//! `fs/proc/array.c`).

use crate::process::Status;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Refers to one process, also after its end.
#[derive(Debug)]
pub struct Handle {
    pid: u32,
    identity: Identity,
}

/// Distinguishes the process from a later one with the same pid.
#[derive(Debug)]
enum Identity {
    Descriptor(OwnedFd),
    /// The start time, in clock ticks since the machine's start.
    StartTime(u64),
}

impl Handle {
    /// Opens the process that has this pid now.
    ///
    /// # Errors
    /// `ESRCH`: there is no such process, or `/proc` hides it on a kernel without pidfds. `EINVAL`, from
    /// Linux 6.9 on `ENOENT`: the pid is that of a thread. Any other error: no descriptor is left.
    pub fn open(pid: u32) -> io::Result<Self> {
        let number = libc::pid_t::try_from(pid).map_err(|_| none())?;
        // SAFETY: the call takes numbers only. It makes a descriptor (close-on-exec) or fails.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
        match i32::try_from(descriptor) {
            // SAFETY: the call above has just made this descriptor, and nothing else refers to it.
            Ok(new @ 0..) => Ok(Self::of(pid, unsafe { OwnedFd::from_raw_fd(new) })),
            _ => match io::Error::last_os_error() {
                // Older container runtimes answer EPERM to a call that they do not know.
                error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    Self::by_start_time(pid)
                }
                error => Err(error),
            },
        }
    }

    /// Makes a handle of a pidfd. `pid` is the pid in this namespace, or 0 if it has none.
    pub fn of(pid: u32, descriptor: OwnedFd) -> Self {
        Self { pid, identity: Identity::Descriptor(descriptor) }
    }

    /// Opens a process without a descriptor.
    fn by_start_time(pid: u32) -> io::Result<Self> {
        let status = Status::read(pid).map_err(|_| none())?;
        if status.process != pid {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (start_time, _) = stat(pid).ok_or_else(none)?;
        Ok(Self { pid, identity: Identity::StartTime(start_time) })
    }

    /// Returns the pid, which can belong to another process once this one has ended.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the pidfd, which becomes readable when the process ends. Without one, poll
    /// [`Self::has_ended`].
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.identity {
            Identity::Descriptor(descriptor) => Some(descriptor.as_fd()),
            Identity::StartTime(_) => None,
        }
    }

    /// Returns true once the process has ended.
    pub fn has_ended(&self) -> bool {
        match &self.identity {
            Identity::Descriptor(descriptor) => {
                let fd = descriptor.as_raw_fd();
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: the call reads and writes one `pollfd`, which outlives it.
                unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
            }
            Identity::StartTime(start_time) => {
                stat(self.pid).is_none_or(|(other, ended)| other != *start_time || ended)
            }
        }
    }
}

fn none() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

/// Returns the start time of a process, and true if it is a zombie.
fn stat(pid: u32) -> Option<(u64, bool)> {
    // The name of a process can be any bytes.
    parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

fn parse(text: &str) -> Option<(u64, bool)> {
    // "pid (name) state ppid ...", where the name can contain anything; the start time is field 22.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    Some((fields.nth(18)?.parse().ok()?, ended))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn start_time_is_found_after_any_name() {
        let text = "77 (a) Z 1) S 1 77 77 0 -1 4194560 1 0 0 0 2 3 0 0 20 0 1 0 4711 9 9\n";
        assert_eq!(parse(text), Some((4711, false)));
        assert_eq!(parse(&text.replace(" S ", " Z ")), Some((4711, true)));
        assert_eq!((parse("77 (a) S 1"), parse("")), (None, None));
    }

    #[test]
    fn process_is_identified_with_and_without_pidfd() {
        for open in [Handle::open, Handle::by_start_time] {
            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            let handle = open(child.id()).unwrap();
            assert!(handle.pid() == child.id() && !handle.has_ended());
            drop(child.stdin.take());
            // It is a zombie until its parent waits for it; then the pid is free.
            while !handle.has_ended() {
                std::thread::yield_now();
            }
            child.wait().unwrap();
            assert!(handle.has_ended());
            let not_there = open(u32::MAX >> 1).map(|_| ()).unwrap_err();
            assert_eq!(not_there.raw_os_error(), Some(libc::ESRCH));
        }
        let own = std::process::id();
        let other = Handle { pid: own, identity: Identity::StartTime(1) };
        assert!(other.has_ended(), "the pid belongs to another process");
        let thread = std::thread::spawn(|| {
            // SAFETY: the call takes no arguments and cannot fail.
            let own = unsafe { libc::gettid() };
            Handle::by_start_time(own.cast_unsigned()).map(|_| ()).unwrap_err().raw_os_error()
        });
        assert_eq!(thread.join().unwrap(), Some(libc::EINVAL));
    }
}
