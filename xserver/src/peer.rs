//! The process at the other end of a connection.

use crate::error::Refusal;
use host::handle::Handle;
use host::process::Status;
use host::user::is_same;
use protocol::ids::Pid;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;

/// `SO_PEERPIDFD` (Linux 6.5, `include/uapi/asm-generic/socket.h`), which the `libc` crate does not know.
const SO_PEERPIDFD: libc::c_int = 77;

/// The credentials of the process that has connected.
#[derive(Debug)]
pub(crate) struct Credentials {
    /// Its process id; 0 if it has none in this pid namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// Reads the credentials of the peer.
pub(crate) fn credentials(socket: &OwnedFd) -> Result<Credentials, Errno> {
    let ucred: libc::ucred = option(socket, libc::SO_PEERCRED)?;
    Ok(Credentials { pid: u32::try_from(ucred.pid).unwrap_or(0), uid: ucred.uid })
}

/// Returns true if a server of user `own` accepts clients of user `theirs`.
pub(crate) fn is_welcome(own: u32, theirs: u32) -> bool {
    theirs == 0 || is_same(own, theirs)
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
    fn only_the_own_user_and_root_are_accepted() {
        assert!(is_welcome(1000, 1000) && is_welcome(1000, 0) && is_welcome(0, 0));
        assert!(!is_welcome(1000, 1001) && !is_welcome(0, 1000));
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
        let process = process(&one, &who).unwrap().unwrap();
        assert!(process.pid() == who.pid && !process.has_ended());
    }
}
