//! Identifies one process, even if the kernel gives its pid to another one later.
//!
//! A pidfd names it (`pidfd_open`, Linux 5.3). Where the kernel has none, or a container's filter forbids the call, the process is
//! known by its number and the moment at which it began (`starttime` of `proc_pid_stat`, `fs/proc/array.c`).

use crate::process::Status;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// A process, also after its end.
#[derive(Debug)]
pub struct Handle {
    pid: u32,
    way: Way,
}

/// How it is told from another one with its number.
#[derive(Debug)]
enum Way {
    Descriptor(OwnedFd),
    /// When it began, in clock ticks since the machine's start.
    Begun(u64),
}

impl Handle {
    /// The process that has this number now.
    ///
    /// # Errors
    /// There is none (`ESRCH`, also if `/proc` hides it from a kernel without pidfds); the number is a thread's (`EINVAL`,
    /// `ENOENT` from Linux 6.9 on); there is no descriptor left.
    pub fn open(pid: u32) -> io::Result<Self> {
        let number = libc::pid_t::try_from(pid).map_err(|_| none())?;
        // SAFETY: makes a descriptor (which is closed by exec) or fails.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
        match i32::try_from(descriptor) {
            // SAFETY: just made, and nobody else has it.
            Ok(new @ 0..) => Ok(Self::of(pid, unsafe { OwnedFd::from_raw_fd(new) })),
            _ => match io::Error::last_os_error() {
                // EPERM is what older container runtimes answer to a call that they do not know.
                error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    Self::by_its_begin(pid)
                }
                error => Err(error),
            },
        }
    }

    /// The process of a pidfd, with its number here; 0 if it has none.
    pub fn of(pid: u32, descriptor: OwnedFd) -> Self {
        Self { pid, way: Way::Descriptor(descriptor) }
    }

    /// Without a descriptor.
    fn by_its_begin(pid: u32) -> io::Result<Self> {
        let status = Status::read(pid).map_err(|_| none())?;
        if status.process != pid {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (begun, _) = stat(pid).ok_or_else(none)?;
        Ok(Self { pid, way: Way::Begun(begun) })
    }

    /// Its number, which may be another process's once it has ended.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Becomes readable when the process ends. Without one it has to be [asked](Self::has_ended).
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.way {
            Way::Descriptor(descriptor) => Some(descriptor.as_fd()),
            Way::Begun(_) => None,
        }
    }

    /// Whether it has ended. Its number may be another process's from then on.
    pub fn has_ended(&self) -> bool {
        match &self.way {
            Way::Descriptor(descriptor) => {
                let fd = descriptor.as_raw_fd();
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one description, which lives through the call; it does not wait.
                unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
            }
            Way::Begun(begun) => stat(self.pid).is_none_or(|(other, ended)| other != *begun || ended),
        }
    }
}

fn none() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

/// When a process began, and whether it has ended and only its parent has not heard of that.
fn stat(pid: u32) -> Option<(u64, bool)> {
    // A name is any bytes.
    parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

fn parse(text: &str) -> Option<(u64, bool)> {
    // "pid (name) state ppid ...", where the name may hold anything; the begin is field 22.
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
    fn the_begin_is_found_behind_any_name() {
        let text = "77 (a) Z 1) S 1 77 77 0 -1 4194560 1 0 0 0 2 3 0 0 20 0 1 0 4711 9 9\n";
        assert_eq!(parse(text), Some((4711, false)));
        assert_eq!(parse(&text.replace(" S ", " Z ")), Some((4711, true)));
        assert_eq!((parse("77 (a) S 1"), parse("")), (None, None));
    }

    #[test]
    fn a_process_is_known_with_a_descriptor_and_without() {
        for open in [Handle::open, Handle::by_its_begin] {
            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            let handle = open(child.id()).unwrap();
            assert!(handle.pid() == child.id() && !handle.has_ended());
            drop(child.stdin.take());
            // It is a zombie until it is waited for; then its number is nobody's.
            while !handle.has_ended() {
                std::thread::yield_now();
            }
            child.wait().unwrap();
            assert!(handle.has_ended());
            let not_there = open(u32::MAX >> 1).map(|_| ()).unwrap_err();
            assert_eq!(not_there.raw_os_error(), Some(libc::ESRCH));
        }
        let own = std::process::id();
        let other = Handle { pid: own, way: Way::Begun(1) };
        assert!(other.has_ended(), "the number is another process's");
        let thread = std::thread::spawn(|| {
            // SAFETY: takes nothing.
            let own = unsafe { libc::gettid() };
            Handle::by_its_begin(own.cast_unsigned()).map(|_| ()).unwrap_err().raw_os_error()
        });
        assert_eq!(thread.join().unwrap(), Some(libc::EINVAL));
    }
}
