//! Connecting to a server and the handshake. Everything that the server sends is checked before it is used.

use crate::clock::now;
use crate::descriptor::CheckedFd;
use host::user::{is_same, is_unmapped};
use protocol::frame::{Decoder, REQUEST_LIMIT};
use protocol::message::{ToClient, ToServer, WELCOME_DESCRIPTORS};
use protocol::page::{CLIENT_BYTES, ClockOffset, SERVER_BYTES};
use protocol::time::Time;
use std::ffi::c_int;
use std::fmt;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// The longest time until the server's answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// The server's answer to an accepted client.
#[derive(Debug)]
pub(super) struct Welcome {
    pub(super) socket: CheckedFd,
    pub(super) server_page: OwnedFd,
    pub(super) client_page: OwnedFd,
    pub(super) eventfd: OwnedFd,
    pub(super) offset: ClockOffset,
    /// The server's process id.
    pub(super) server: u32,
}

/// The reason for having no server.
#[derive(Debug)]
pub(super) enum Failure {
    /// No server listens, or it does not answer.
    Absent(io::Error),
    /// The server refuses this process, for this reason.
    Refused(String),
    /// The server's answer cannot be used, for this reason.
    Broken(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(error) => error.fmt(f),
            Self::Refused(reason) => write!(f, "it refuses this process: {reason}"),
            Self::Broken(reason) => write!(f, "it cannot be used: {reason}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Absent(error)
    }
}

fn broken(reason: impl Into<String>) -> Failure {
    Failure::Broken(reason.into())
}

/// Converts the result of a system call that returns -1 on failure.
fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Connects without waiting. Fails at once if no server listens, or if a stopped server has let its queue of
/// connections fill up.
pub(super) fn connect(path: &Path) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: a successful call makes a new descriptor, which nothing else knows.
    let socket = unsafe { OwnedFd::from_raw_fd(checked(libc::socket(libc::AF_UNIX, kind, 0))?) };
    // SAFETY: the address consists of numbers, for which zeros are valid.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: address and length are those of the variable.
    checked(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

/// Sends the hello and waits for the answer, at most `limit`. `is_system`: the socket is that of the server for all
/// users, whose directory only an administrator can make.
pub(super) fn handshake(
    socket: OwnedFd,
    name: &str,
    is_system: bool,
    limit: Duration,
) -> Result<Welcome, Failure> {
    check_peer(&socket, is_system)?;
    let socket = CheckedFd::new(socket)?;
    let asked = now();
    let hello = ToServer::Hello { pid: std::process::id(), name: name.to_owned() }.encode();
    // A new socket has room for more than this.
    if send(&socket, &hello)? != hello.len() {
        return Err(Failure::Absent(io::ErrorKind::WouldBlock.into()));
    }
    let mut decoder = Decoder::new(REQUEST_LIMIT);
    let mut files = Vec::new();
    let frame = loop {
        if let Some(frame) = decoder.next_frame().map_err(|error| broken(error.to_string()))? {
            break frame;
        }
        let left = limit.saturating_sub(now().since(asked));
        if left.is_zero() || !wait_for_input(&socket, left)? {
            return Err(Failure::Absent(io::ErrorKind::TimedOut.into()));
        }
        let mut bytes = [0; 1024];
        match receive(&socket, &mut bytes, &mut files) {
            Ok(0) => return Err(broken("it closes the connection")),
            Ok(length) => decoder.push(&bytes[..length]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let answered = now();
    match ToClient::decode(&frame).map_err(|error| broken(error.to_string()))? {
        ToClient::Refused { reason } => Err(Failure::Refused(reason)),
        ToClient::Trace {} | ToClient::TraceEnd {} | ToClient::Configure { .. } => {
            Err(broken("it sends something else than a welcome"))
        }
        ToClient::Welcome { .. } if !decoder.is_empty() => Err(broken("more than a welcome comes")),
        ToClient::Welcome { client: _, now: theirs, server } => {
            let files: [OwnedFd; WELCOME_DESCRIPTORS] = files
                .try_into()
                .map_err(|files: Vec<_>| broken(format!("it sends {} descriptors", files.len())))?;
            let [server_page, client_page, eventfd] = files;
            check_files(&server_page, &client_page, &eventfd)?;
            let offset = ClockOffset::new(asked, theirs, answered);
            Ok(Welcome { socket, server_page, client_page, eventfd, offset, server })
        }
    }
}

/// Returns the difference of the server's clock to this process's; wraps around.
pub(super) fn clock_difference(offset: ClockOffset) -> u64 {
    const MIDDLE: u64 = 1 << 63;
    offset.to_server(Time(MIDDLE)).0.wrapping_sub(MIDDLE)
}

/// Checks that the server is this user's, or root's. For a server that a service manager has started, the kernel reports
/// who listens: the manager. In a user namespace that does not map that user, such as that of a container without root, the path
/// has to say it.
fn check_peer(socket: &OwnedFd, is_system: bool) -> Result<(), Failure> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let number = socket.as_raw_fd();
    let credentials = (&raw mut peer).cast();
    // SAFETY: pointer and length are those of `peer`, which the call fills.
    checked(unsafe {
        libc::getsockopt(number, libc::SOL_SOCKET, libc::SO_PEERCRED, credentials, &mut length)
    })?;
    // SAFETY: the call takes nothing and returns a number.
    let own = unsafe { libc::geteuid() };
    if peer.uid == 0 || is_same(peer.uid, own) || is_system && is_unmapped(peer.uid) {
        return Ok(());
    }
    Err(broken(format!("it belongs to user {}", peer.uid)))
}

/// Checks the files, so that no later access to them can fail or block.
fn check_files(server_page: &OwnedFd, client_page: &OwnedFd, eventfd: &OwnedFd) -> Result<(), Failure> {
    /// `F_SEAL_FUTURE_WRITE` of linux/fcntl.h.
    const FUTURE_WRITE: c_int = 0x10;
    let size_sealed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    check_page("client's", client_page, CLIENT_BYTES, size_sealed | libc::F_SEAL_SEAL)?;
    // Kernels before Linux 5.1 do not know this seal: they return EINVAL before they check whether the file
    // takes more seals (`memfd_add_seals`, mm/memfd.c), and the server could not set it either.
    // SAFETY: the call takes numbers, and changes nothing because the page takes no more seals.
    let known = unsafe { libc::fcntl(client_page.as_raw_fd(), libc::F_ADD_SEALS, FUTURE_WRITE) } == 0
        || io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL);
    let read_only = if known { FUTURE_WRITE } else { 0 };
    let seals = size_sealed | libc::F_SEAL_SEAL | read_only;
    check_page("server's", server_page, SERVER_BYTES, seals)?;
    // SAFETY: the call takes numbers and returns flags.
    let flags = checked(unsafe { libc::fcntl(eventfd.as_raw_fd(), libc::F_GETFL) })?;
    if flags & libc::O_NONBLOCK == 0 {
        return Err(broken("its eventfd could block"));
    }
    Ok(())
}

fn check_page(whose: &str, page: &OwnedFd, bytes: usize, seals: c_int) -> Result<(), Failure> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a successful call fills the structure.
    let size = unsafe {
        checked(libc::fstat(page.as_raw_fd(), stat.as_mut_ptr()))?;
        stat.assume_init().st_size
    };
    if usize::try_from(size) != Ok(bytes) {
        return Err(broken(format!("the {whose} page has {size} bytes instead of {bytes}")));
    }
    // SAFETY: the call takes numbers; a file without seals is an error.
    let found = checked(unsafe { libc::fcntl(page.as_raw_fd(), libc::F_GET_SEALS) }).unwrap_or(0);
    if found & seals != seals {
        return Err(broken(format!("the {whose} page has the seals {found:#x} instead of {seals:#x}")));
    }
    Ok(())
}

/// Returns the socket's number.
///
/// # Errors
/// The program has closed the socket.
pub(super) fn number(socket: &CheckedFd) -> io::Result<c_int> {
    socket.number().ok_or_else(|| io::Error::other("this program has closed the socket"))
}

/// Waits for data or the end of the connection. Returns false if neither comes within the limit.
fn wait_for_input(socket: &CheckedFd, limit: Duration) -> io::Result<bool> {
    let number = number(socket)?;
    let mut polled = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
    // Rounded up, so that the caller never spins.
    let limit = c_int::try_from(limit.as_millis() + 1).unwrap_or(c_int::MAX);
    // SAFETY: pointer and count are those of one structure.
    Ok(checked(unsafe { libc::poll(&mut polled, 1, limit) })? > 0)
}

/// Sends as much as there is room for, and returns its length.
pub(super) fn send(socket: &CheckedFd, bytes: &[u8]) -> io::Result<usize> {
    let number = number(socket)?;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: pointer and length are those of the slice.
    let sent = unsafe { libc::send(number, bytes.as_ptr().cast(), bytes.len(), flags) };
    match usize::try_from(sent) {
        Ok(sent) => Ok(sent),
        Err(_) => match io::Error::last_os_error() {
            error if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            error => Err(error),
        },
    }
}

/// Receives the available bytes and the files that come with them. Returns 0 at the end of the connection.
pub(super) fn receive(socket: &CheckedFd, bytes: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<usize> {
    /// Room for more descriptors than may come, so that too many are noticed.
    const ROOM: usize = 2 * WELCOME_DESCRIPTORS;
    // Of 64-bit words, because control messages are aligned to them.
    let mut control = [0_u64; 2 + ROOM.div_ceil(2)];
    let number = number(socket)?;
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the header consists of numbers and pointers, for which zeros are valid.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control);
    // SAFETY: all pointers and lengths of the header are those of the variables here.
    let length = unsafe { libc::recvmsg(number, &mut header, libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the header is as the successful call has left it.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&header) };
    while !message.is_null() {
        // SAFETY: the message lies inside `control`, which is aligned.
        let libc::cmsghdr { cmsg_len, cmsg_level, cmsg_type } = unsafe { *message };
        if (cmsg_level, cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: the function only computes a length.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = cmsg_len.saturating_sub(head) / size_of::<c_int>();
            // SAFETY: the message lies inside `control`, so its data does as well.
            let first: *const c_int = unsafe { libc::CMSG_DATA(message) }.cast();
            for index in 0..count {
                // SAFETY: the kernel has written `count` numbers there, each of a descriptor that it has just
                // made.
                files.push(unsafe { OwnedFd::from_raw_fd(first.add(index).read_unaligned()) });
            }
        }
        // SAFETY: the header is as the call has left it, and the message lies in its control data.
        message = unsafe { libc::CMSG_NXTHDR(&header, message) };
    }
    Ok(length)
}
