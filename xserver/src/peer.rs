//! Who is at the other end of a connection, as the kernel says.

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use std::mem::MaybeUninit;

/// `SO_PEERPIDFD` (Linux 6.5, `include/uapi/asm-generic/socket.h`), which the `libc` crate does not know.
const SO_PEERPIDFD: libc::c_int = 77;

/// The process that has connected.
#[derive(Debug)]
pub(crate) struct Credentials {
    /// Its name here; 0 if it has none in this pid namespace.
    pub pid: u32,
    /// Who runs it.
    pub uid: u32,
}

/// Asks who has connected.
pub(crate) fn credentials(socket: &OwnedFd) -> Result<Credentials, Errno> {
    let ucred: libc::ucred = option(socket, libc::SO_PEERCRED)?;
    Ok(Credentials { pid: u32::try_from(ucred.pid).unwrap_or(0), uid: ucred.uid })
}

/// Whether a server of this user takes somebody of that one.
pub(crate) fn is_welcome(own: u32, theirs: u32) -> bool {
    theirs == own || theirs == 0
}

/// Whether this process, by its name here, gives processes the same numbers as we do. One that cannot be looked up does not.
pub(crate) fn counts_as_we_do(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| has_one_number(&status))
}

/// The kernel lists a process's numbers from our namespace down to its own; without namespaces it lists none.
fn has_one_number(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_none_or(|numbers| numbers.split_whitespace().count() == 1)
}

/// A descriptor that becomes readable when the process that connected ends, whoever holds its socket then. Nothing if
/// the kernel is too old and the process has no name here; then its socket must do.
///
/// # Errors
/// The process is gone already ([`Errno::SRCH`]), or there are no descriptors left.
pub(crate) fn pidfd(socket: &OwnedFd, credentials: &Credentials) -> Result<Option<OwnedFd>, Errno> {
    match option::<libc::c_int>(socket, SO_PEERPIDFD) {
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(fd) => return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Err(Errno::NOPROTOOPT) => {}
        // What it says of a process that was reaped has changed from version to version.
        Err(Errno::SRCH | Errno::INVAL | Errno::NODATA) => return Err(Errno::SRCH),
        Err(error) => return Err(error),
    }
    let pid = i32::try_from(credentials.pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())).transpose()
}

/// A socket option whose value is plain data.
fn option<T: Copy>(socket: &OwnedFd, name: libc::c_int) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value has room for `length` bytes.
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
    // SAFETY: zeroed, then written by the kernel; used with structures of integers only.
    Ok(unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn only_the_own_user_and_root_are_welcome() {
        assert!(is_welcome(1000, 1000) && is_welcome(1000, 0) && is_welcome(0, 0));
        assert!(!is_welcome(1000, 1001) && !is_welcome(0, 1000));
    }

    #[test]
    fn whoever_counts_otherwise_is_known() {
        assert!(counts_as_we_do(std::process::id()));
        assert!(!counts_as_we_do(0) && !counts_as_we_do(u32::MAX));
        assert!(has_one_number("Name:\tx\nNSpid:\t42\n") && has_one_number("Name:\tx\n"));
        assert!(!has_one_number("Name:\tx\nNSpid:\t42\t7\n"));
    }

    #[test]
    fn the_kernel_knows_who_is_there() {
        let (one, _other) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let who = credentials(&one).unwrap();
        assert_eq!((who.pid, who.uid), (std::process::id(), rustix::process::geteuid().as_raw()));
        assert!(pidfd(&one, &who).unwrap().is_some());
    }
}
