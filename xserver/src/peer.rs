//! The process at the other end of a connection.

use crate::access::Identity;
use crate::error::Refusal;
use host::handle::Handle;
use host::process::Status;
use host::user::is_same;
use protocol::ids::Pid;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;

/// `SO_PEERPIDFD` (Linux 6.5, `include/uapi/asm-generic/socket.h`), which the `libc` crate does not know.
const SO_PEERPIDFD: libc::c_int = 77;
/// The most groups of a process (`NGROUPS_MAX`, `include/uapi/linux/limits.h`).
const GROUPS: usize = 65_536;
/// The most bytes of `/proc/PID/cgroup` that are read.
const CGROUPS: u64 = 1 << 16;

/// The credentials of the process that has connected.
#[derive(Debug)]
pub(crate) struct Credentials {
    /// Its process id; 0 if it has none in this pid namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    gid: u32,
}

/// Reads the credentials of the peer.
pub(crate) fn credentials(socket: &OwnedFd) -> Result<Credentials, Errno> {
    let ucred: libc::ucred = option(socket, libc::SO_PEERCRED)?;
    Ok(Credentials { pid: u32::try_from(ucred.pid).unwrap_or(0), uid: ucred.uid, gid: ucred.gid })
}

/// What the rules of a server for all users are about.
pub(crate) fn identity(connection: &OwnedFd, who: &Credentials, socket: &Arc<Path>) -> Identity {
    let mut groups = groups(connection);
    groups.push(who.gid);
    Identity { uid: who.uid, groups, cgroup: cgroup(who.pid), socket: socket.clone() }
}

/// What a server of one user knows.
pub(crate) fn plain_identity(who: &Credentials, socket: &Arc<Path>) -> Identity {
    Identity { uid: who.uid, groups: Vec::new(), cgroup: None, socket: socket.clone() }
}

/// The supplementary groups of the peer when it connected (`SO_PEERGROUPS`, Linux 4.13); none if the kernel does not
/// tell.
fn groups(socket: &OwnedFd) -> Vec<u32> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut length = (groups.len() * size_of::<libc::gid_t>()) as libc::socklen_t;
        // SAFETY: `groups` has room for `length` bytes.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        // After ERANGE, `length` is what is needed.
        let count = length as usize / size_of::<libc::gid_t>();
        match result {
            0 => {
                groups.truncate(count);
                return groups;
            }
            _ if io::Error::last_os_error().raw_os_error() == Some(libc::ERANGE)
                && (groups.len() + 1..=GROUPS).contains(&count) =>
            {
                groups.resize(count, 0);
            }
            _ => return Vec::new(),
        }
    }
}

/// The control group of a process.
fn cgroup(pid: u32) -> Option<String> {
    let mut text = String::new();
    File::open(format!("/proc/{pid}/cgroup")).ok()?.take(CGROUPS).read_to_string(&mut text).ok()?;
    parse_cgroup(&text)
}

/// The path in the only hierarchy of version 2, else in the one that names services (cgroups(7)).
fn parse_cgroup(text: &str) -> Option<String> {
    let path = |controllers: &str| {
        text.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (own, path) = rest.split_once(':')?;
            (own == controllers).then(|| path.to_owned())
        })
    };
    path("name=systemd").or_else(|| path("")).or_else(|| path("pids"))
}

/// Checks that a process is in the same pid namespace as the server.
///
/// # Errors
/// It is not, or that is unknown.
pub(crate) fn check_namespace(pid: u32) -> Result<(), Refusal> {
    // A process without a number here is in a sibling or parent namespace.
    let status = if pid == 0 { None } else { Some(Status::read(pid)) };
    judge_numbers(status)
}

/// Judges the process ids of a process, which the kernel lists from our namespace down to its own; without
/// namespaces it lists none.
fn judge_numbers(status: Option<io::Result<Status>>) -> Result<(), Refusal> {
    match status {
        Some(Ok(status)) if status.numbers.len() < 2 => Ok(()),
        Some(Err(error)) => Err(Refusal::HiddenClient(error)),
        Some(Ok(_)) | None => Err(Refusal::OtherNamespace),
    }
}

/// The nice value of the first thread of a process, -20 (most urgent) to 19. None if there is no such process
/// here.
pub(crate) fn nice(pid: Pid) -> Option<i8> {
    // Number 0 would mean this process.
    let pid = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw)?;
    rustix::process::getpriority_process(Some(pid)).ok().and_then(|nice| i8::try_from(nice).ok())
}

/// Checks that a user may suspend a process without the server. The server may have more rights than the
/// user, such as `CAP_SYS_PTRACE` as a file capability, and must not lend them.
///
/// # Errors
/// The user may not.
pub(crate) fn check_may_suspend(uid: u32, pid: Pid) -> Result<(), Refusal> {
    if uid == 0 {
        return Ok(());
    }
    match Status::read(pid.0) {
        Ok(status) if status.is_of(uid) && is_same(uid, uid) => Ok(()),
        Ok(status) => {
            let user = status.uids.iter().take(3).find(|other| **other != uid).copied();
            Err(Refusal::ForeignProcess { pid, user })
        }
        Err(error) => Err(Refusal::HiddenProcess { pid, error }),
    }
}

/// Opens a handle of the process that connected, even if another process holds the socket now. None if the
/// kernel is too old and the process has no number here or is hidden by `/proc`.
///
/// # Errors
/// The process has ended ([`Errno::SRCH`]), or no descriptor is left.
pub(crate) fn process(socket: &OwnedFd, credentials: &Credentials) -> Result<Option<Handle>, Errno> {
    match option::<libc::c_int>(socket, SO_PEERPIDFD) {
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(fd) => return Ok(Some(Handle::of(credentials.pid, unsafe { OwnedFd::from_raw_fd(fd) }))),
        Err(Errno::NOPROTOOPT) => {}
        // The error for a process that was reaped differs between kernel versions.
        Err(Errno::SRCH | Errno::INVAL | Errno::NODATA) => return Err(Errno::SRCH),
        Err(error) => return Err(error),
    }
    if credentials.pid == 0 {
        return Ok(None);
    }
    match Handle::open(credentials.pid) {
        Ok(handle) => Ok(Some(handle)),
        // A process that /proc hides looks like a missing one.
        Err(_) if host::process::exists(credentials.pid) => Ok(None),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::SRCH)),
    }
}

/// Reads a socket option whose value consists of integers.
fn option<T: Copy>(socket: &OwnedFd, name: libc::c_int) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` has room for `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    // SAFETY: the bytes were zeroed and then written by the kernel; `T` consists of integers, for which all
    // bytes are valid.
    Ok(unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn control_group_is_that_of_the_service() {
        let parse = |text| parse_cgroup(text).unwrap_or_default();
        assert_eq!(parse("0::/user.slice/a.scope\n"), "/user.slice/a.scope");
        assert_eq!(parse("12:pids:/p\n1:name=systemd:/s:x\n0::/\n"), "/s:x");
        assert_eq!(parse("5:pids:/p\n4:cpu,cpuacct:/c\n"), "/p");
        assert_eq!((parse(""), parse("garbage\n::")), (String::new(), String::new()));
        assert!(cgroup(std::process::id()).is_some() && cgroup(u32::MAX).is_none());
    }

    #[test]
    fn nice_value_of_a_process_is_read() {
        let mut child = std::process::Command::new("nice").args(["-n", "7", "sleep", "60"]).spawn().unwrap();
        let own = nice(Pid(std::process::id())).unwrap();
        let begun = std::time::Instant::now();
        // Before `exec` the child has our nice value.
        while nice(Pid(child.id())) != Some((own + 7).min(19)) {
            assert!(begun.elapsed().as_secs() < 30, "{:?}", nice(Pid(child.id())));
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((nice(Pid(0)), nice(Pid(u32::MAX))), (None, None));
    }

    #[test]
    fn other_pid_namespace_is_refused() {
        assert!(check_namespace(std::process::id()).is_ok());
        let numbers = |numbers: &[u32]| {
            judge_numbers(Some(Ok(Status { numbers: numbers.to_vec(), ..Status::default() })))
        };
        assert!(numbers(&[42]).is_ok() && numbers(&[]).is_ok());
        for other in [numbers(&[42, 7]), check_namespace(0)] {
            assert!(matches!(other, Err(Refusal::OtherNamespace)), "{other:?}");
        }
        // A hidden process says nothing about namespaces.
        assert!(matches!(check_namespace(u32::MAX), Err(Refusal::HiddenClient(_))));
    }

    #[test]
    fn only_root_suspends_a_process_of_another_user() {
        let (pid, uid) = (Pid(std::process::id()), rustix::process::geteuid().as_raw());
        assert!(check_may_suspend(uid, pid).is_ok() && check_may_suspend(0, pid).is_ok());
        let refused = check_may_suspend(uid + 1, pid);
        assert!(
            matches!(refused, Err(Refusal::ForeignProcess { user: Some(user), .. }) if user == uid),
            "{refused:?}"
        );
        let unseen = check_may_suspend(uid + 1, Pid(u32::MAX));
        assert!(matches!(unseen, Err(Refusal::HiddenProcess { .. })), "{unseen:?}");
    }

    #[test]
    fn credentials_of_the_peer_are_read() {
        let (one, _other) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let who = credentials(&one).unwrap();
        assert_eq!((who.pid, who.uid), (std::process::id(), rustix::process::geteuid().as_raw()));
        let path: Arc<Path> = Path::new("/s").into();
        let found = identity(&one, &who, &path);
        assert_eq!((found.uid, &found.socket), (who.uid, &path));
        assert!(found.groups.contains(&rustix::process::getegid().as_raw()));
        let own = rustix::process::getgroups().unwrap();
        assert!(own.iter().all(|group| found.groups.contains(&group.as_raw())), "{found:?}");
        let process = process(&one, &who).unwrap().unwrap();
        assert!(process.pid() == who.pid && !process.has_ended());
    }
}
