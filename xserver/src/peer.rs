//! Who is at the other end of a connection, as the kernel says.

use host::handle::Handle;
use host::process::Status;
use host::user::is_same;
use protocol::ids::Pid;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::test_kill_process;
use std::io;
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
    theirs == 0 || is_same(own, theirs)
}

/// Whether this process, by its name here, gives processes the same numbers as we do.
///
/// # Errors
/// It does not, or that cannot be known; a sentence for it.
pub(crate) fn counts_as_we_do(pid: u32) -> Result<(), String> {
    // One without a name here is in a namespace beside ours or above it.
    let status = if pid == 0 { None } else { Some(Status::read(pid)) };
    judge_numbers(status)
}

/// The kernel lists a process's numbers from our namespace down to its own; without namespaces it lists none.
fn judge_numbers(status: Option<io::Result<Status>>) -> Result<(), String> {
    match status {
        Some(Ok(status)) if status.numbers.len() < 2 => Ok(()),
        Some(Err(error)) => Err(format!(
            "the server cannot see your process in /proc ({error}; mounted with hidepid, or ProtectProc= of its service?), and \
             so does not know whether you give processes the same numbers"
        )),
        Some(Ok(_)) | None => {
            Err("you are in another pid namespace: the same number is another process here".to_owned())
        }
    }
}

/// The nice value of a process, -20 (most urgent) to 19: that of its first thread. Nothing if there is no such process, or it
/// has no number here.
pub(crate) fn nice(pid: Pid) -> Option<i8> {
    // Without a number this process itself would be meant.
    let pid = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw)?;
    rustix::process::getpriority_process(Some(pid)).ok().and_then(|nice| i8::try_from(nice).ok())
}

/// Refuses what this user might not do to a process itself: the server may have more rights than its user
/// (`CAP_SYS_PTRACE` as a file capability, say), and nobody gains any by asking it.
///
/// # Errors
/// Why not, one line.
pub(crate) fn may_hold(uid: u32, pid: Pid) -> Result<(), String> {
    if uid == 0 {
        return Ok(());
    }
    match Status::read(pid.0) {
        Ok(status) if status.is_of(uid) && is_same(uid, uid) => Ok(()),
        Ok(status) => {
            let foreign = status.uids.iter().take(3).find(|other| **other != uid);
            let whose = foreign.map_or_else(|| "somebody else".to_owned(), |other| format!("user {other}"));
            Err(format!("process {pid} acts for {whose}: only that user and root may ask for it"))
        }
        Err(error) => Err(format!("whose process {pid} is cannot be seen in /proc: {error}")),
    }
}

/// The process that connected, whoever holds its socket then. Nothing if the kernel is too old and the process has no name here,
/// or none in `/proc`; then its socket must do.
///
/// # Errors
/// The process is gone already ([`Errno::SRCH`]), or there are no descriptors left.
pub(crate) fn process(socket: &OwnedFd, credentials: &Credentials) -> Result<Option<Handle>, Errno> {
    match option::<libc::c_int>(socket, SO_PEERPIDFD) {
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(fd) => return Ok(Some(Handle::of(credentials.pid, unsafe { OwnedFd::from_raw_fd(fd) }))),
        Err(Errno::NOPROTOOPT) => {}
        // What it says of a process that was reaped has changed from version to version.
        Err(Errno::SRCH | Errno::INVAL | Errno::NODATA) => return Err(Errno::SRCH),
        Err(error) => return Err(error),
    }
    if credentials.pid == 0 {
        return Ok(None);
    }
    match Handle::open(credentials.pid) {
        Ok(handle) => Ok(Some(handle)),
        // Where /proc hides it, a process that is there looks as if it were not.
        Err(_) if exists(credentials.pid) => Ok(None),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::SRCH)),
    }
}

/// Whether there is a process with this number.
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.map(test_kill_process).is_some_and(|sent| matches!(sent, Ok(()) | Err(Errno::PERM)))
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
    fn a_nice_value_is_that_of_the_process_that_is_named() {
        let mut child = std::process::Command::new("nice").args(["-n", "7", "sleep", "60"]).spawn().unwrap();
        let own = nice(Pid(std::process::id())).unwrap();
        let begun = std::time::Instant::now();
        // First it is a copy of this process.
        while nice(Pid(child.id())) != Some((own + 7).min(19)) {
            assert!(begun.elapsed().as_secs() < 30, "{:?}", nice(Pid(child.id())));
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((nice(Pid(0)), nice(Pid(u32::MAX))), (None, None));
    }

    #[test]
    fn whoever_counts_otherwise_is_known() {
        assert_eq!(counts_as_we_do(std::process::id()), Ok(()));
        let numbers = |numbers: &[u32]| {
            judge_numbers(Some(Ok(Status { numbers: numbers.to_vec(), ..Status::default() })))
        };
        assert_eq!((numbers(&[42]), numbers(&[])), (Ok(()), Ok(())));
        for other in [numbers(&[42, 7]), counts_as_we_do(0)] {
            assert!(other.unwrap_err().starts_with("you are in another pid namespace"));
        }
        // As where hidepid hides it: that says nothing of namespaces.
        let hidden = counts_as_we_do(u32::MAX).unwrap_err();
        assert!(hidden.starts_with("the server cannot see your process in /proc"), "{hidden}");
    }

    #[test]
    fn nobody_but_root_asks_for_somebody_elses_process() {
        let (pid, uid) = (Pid(std::process::id()), rustix::process::geteuid().as_raw());
        assert_eq!((may_hold(uid, pid), may_hold(0, pid)), (Ok(()), Ok(())));
        let refused = may_hold(uid + 1, pid).unwrap_err();
        assert!(refused.starts_with(&format!("process {pid} acts for user {uid}: only")), "{refused}");
        let unseen = may_hold(uid + 1, Pid(u32::MAX)).unwrap_err();
        assert!(unseen.contains("cannot be seen in /proc"), "{unseen}");
    }

    #[test]
    fn the_kernel_knows_who_is_there() {
        let (one, _other) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let who = credentials(&one).unwrap();
        assert_eq!((who.pid, who.uid), (std::process::id(), rustix::process::geteuid().as_raw()));
        let process = process(&one, &who).unwrap().unwrap();
        assert!(process.pid() == who.pid && !process.has_ended());
    }
}
