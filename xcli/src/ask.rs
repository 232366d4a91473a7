//! Requests to a server and their replies.

use crate::endpoint::Endpoint;
use crate::table::plain;
use host::user::{is_same, is_unmapped};
use protocol::control::{List, Policies, Reply, Request};
use protocol::frame::{Decoder, Frame, REPLY_LIMIT};
use protocol::message::{REPLY, REQUEST, ToClient};
use protocol::socket::SYSTEM_SOCKET;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recvmsg, socket_with,
};
use std::fmt;
use std::io::{self, ErrorKind, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time limit for an answer. A healthy server takes milliseconds.
const LIMIT: Duration = Duration::from_secs(2);

/// The reason why a request has no reply, as one sentence.
#[derive(Debug)]
pub struct Failure {
    path: PathBuf,
    /// The server's process, if known.
    pid: Option<i32>,
    limit: Duration,
    /// The kind of failure.
    pub cause: Cause,
}

/// The kind of failure of a request.
#[derive(Debug)]
pub enum Cause {
    /// No process listens on the socket.
    Absent,
    /// The server belongs to a user that is not trusted.
    Foreign { uid: u32 },
    /// The server does not accept the connection or does not answer in time.
    Silent,
    /// The server closed the connection without an answer; it may be ending.
    Closed,
    /// The server closed the connection after answers: it has ended, or other connections need the room.
    Over,
    /// The server refused, for this reason.
    Refused(String),
    /// The answer does not follow the protocol, for this reason.
    Protocol(String),
    /// A system call failed.
    System(io::Error),
    /// Standard output cannot be written.
    Output(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            Cause::Absent => {
                return write!(
                    f,
                    "no xserver runs: no process listens on {path}. `xcli run` starts one together with a program"
                );
            }
            Cause::System(error) if error.kind() == ErrorKind::PermissionDenied => {
                return write!(f, "the xserver behind {path} belongs to another user");
            }
            Cause::Output(error) => return write!(f, "cannot write to standard output: {error}"),
            _ => write!(f, "the xserver behind {path}")?,
        }
        if let Some(pid) = self.pid {
            write!(f, " (pid {pid})")?;
        }
        match &self.cause {
            Cause::Foreign { uid } => {
                let own = rustix::process::geteuid().as_raw();
                if *uid == own {
                    // All users that this user namespace does not map have the same number.
                    return f.write_str(
                        " belongs to a user that this user namespace does not map: xcli does not trust it",
                    );
                }
                write!(f, " belongs to uid {uid}, not to you (uid {own}) or root: xcli does not trust it")
            }
            Cause::Silent => write!(f, " did not answer within {} s: is it stopped?", self.limit.as_secs()),
            Cause::Closed => f.write_str(" closed the connection without an answer"),
            Cause::Over => {
                f.write_str(" closed the connection: it has ended, or has made room for another xcli")
            }
            Cause::Refused(why) => write!(f, " refused: {}", plain(why)),
            Cause::Protocol(why) => write!(f, " sent an invalid answer: {why}"),
            Cause::System(error) => write!(f, " cannot be reached: {error}"),
            Cause::Absent | Cause::Output(_) => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => Self::Absent,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Silent,
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::System(error),
        }
    }
}

/// Sends a request, and waits at most 2 s for the reply.
///
/// # Errors
/// There is no reply, or the reply is a [`Reply::Error`].
pub fn ask(endpoint: &Endpoint, request: &Request) -> Result<Reply, Failure> {
    ask_within(endpoint, request, LIMIT)
}

/// Asks for the list of clients.
///
/// # Errors
/// Those of [`ask`], or the reply answers another request.
pub fn list(endpoint: &Endpoint) -> anyhow::Result<List> {
    Session::new(endpoint).list()
}

/// Asks for the policies.
///
/// # Errors
/// Those of [`ask`], or the reply answers another request.
pub fn policies(endpoint: &Endpoint) -> anyhow::Result<Policies> {
    match ask(endpoint, &Request::Policies)? {
        Reply::Policies(policies) => Ok(policies),
        other => Err(unexpected(&other)),
    }
}

/// The error for a reply that answers another request.
pub fn unexpected(reply: &Reply) -> anyhow::Error {
    anyhow::anyhow!("the server sent a reply to another request: {reply:?}")
}

/// Sends a request whose reply carries no data.
///
/// # Errors
/// Those of [`ask`], or the reply answers another request.
pub fn order(endpoint: &Endpoint, request: &Request) -> anyhow::Result<()> {
    match ask(endpoint, request)? {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Sends a request that takes the server up to `limit`. The connection still has to be accepted within 2 s.
///
/// # Errors
/// Those of [`ask`].
pub fn ask_within(endpoint: &Endpoint, request: &Request, limit: Duration) -> Result<Reply, Failure> {
    Session::new(endpoint).ask_within(request, limit)
}

/// A connection for several requests. It is made for the first one, and again after a failure.
#[derive(Debug)]
pub struct Session {
    path: PathBuf,
    stream: Option<UnixStream>,
    /// The server's process, if known.
    pid: Option<i32>,
}

impl Session {
    /// A session without a connection.
    pub fn new(endpoint: &Endpoint) -> Self {
        Self { path: endpoint.socket.clone(), stream: None, pid: None }
    }

    /// Sends a request, and waits at most 2 s for the reply.
    ///
    /// # Errors
    /// Those of [`ask`].
    pub fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        self.ask_within(request, LIMIT)
    }

    /// Sends a request that takes the server up to `limit`.
    ///
    /// # Errors
    /// Those of [`ask`].
    pub fn ask_within(&mut self, request: &Request, limit: Duration) -> Result<Reply, Failure> {
        let was_open = self.stream.is_some();
        let result = match self.exchange(request, limit) {
            // A server that is full ends the connections that wait for nothing; another server may have started.
            Err(Cause::Closed) if was_open => self.exchange(request, limit),
            result => result,
        };
        let refusal = |reply| match reply {
            Reply::Error(why) => Err(Cause::Refused(why)),
            reply => Ok(reply),
        };
        result.and_then(refusal).map_err(|cause| Failure {
            path: self.path.clone(),
            pid: self.pid,
            limit,
            cause,
        })
    }

    /// Asks for the list of clients.
    ///
    /// # Errors
    /// Those of [`ask`], or the reply answers another request.
    pub fn list(&mut self) -> anyhow::Result<List> {
        match self.ask(&Request::List)? {
            Reply::List(list) => Ok(list),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a request that has more than one reply. Waits at most 2 s for the first one, and for as long as it takes for the
    /// others. Ends when `take` returns false.
    ///
    /// # Errors
    /// Those of [`ask`]; the server closes the connection.
    pub fn follow(
        mut self,
        request: &Request,
        mut take: impl FnMut(Reply) -> io::Result<bool>,
    ) -> anyhow::Result<()> {
        let result = self.receive_all(request, Some(LIMIT), |reply, _| take(reply));
        self.result(result)
    }

    /// The same for replies with files, which `take` takes out, and for which there is no limit of time.
    ///
    /// # Errors
    /// Those of [`Session::follow`].
    pub fn follow_files(
        mut self,
        request: &Request,
        take: impl FnMut(Reply, &mut Vec<OwnedFd>) -> io::Result<bool>,
    ) -> anyhow::Result<()> {
        let result = self.receive_all(request, None, take);
        self.result(result)
    }

    fn result(self, result: Result<(), Cause>) -> anyhow::Result<()> {
        Ok(result.map_err(|cause| Failure { path: self.path, pid: self.pid, limit: LIMIT, cause })?)
    }

    fn receive_all(
        &mut self,
        request: &Request,
        limit: Option<Duration>,
        mut take: impl FnMut(Reply, &mut Vec<OwnedFd>) -> io::Result<bool>,
    ) -> Result<(), Cause> {
        let stream = self.connected()?;
        send(&stream, request)?;
        let mut receiver = Receiver::new();
        let mut until = limit.map(|limit| Instant::now() + limit);
        let mut is_first = true;
        loop {
            let reply = match receiver.receive(&stream, until.take()) {
                Err(Cause::Closed) if !is_first => return Err(Cause::Over),
                Ok(Reply::Error(why)) => return Err(Cause::Refused(why)),
                reply => reply?,
            };
            is_first = false;
            if !take(reply, &mut receiver.files).map_err(Cause::Output)? {
                return Ok(());
            }
        }
    }

    /// Takes the connection, or makes one.
    fn connected(&mut self) -> Result<UnixStream, Cause> {
        if let Some(stream) = self.stream.take() {
            return Ok(stream);
        }
        self.pid = None;
        let stream = connect_to(&self.path)?;
        self.pid = check_peer(&stream, &self.path)?;
        Ok(stream)
    }

    fn exchange(&mut self, request: &Request, limit: Duration) -> Result<Reply, Cause> {
        let until = Instant::now() + limit;
        let stream = self.connected()?;
        let reply = exchange(&stream, request, until)?;
        self.stream = Some(stream);
        Ok(reply)
    }
}

/// Connects. A server whose backlog is full delays xcli by [`LIMIT`] at most.
fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(LIMIT))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Checks that the server belongs to root or to this user. Returns its process id, unless it has none in this
/// pid namespace. In a user namespace that does not map the server's user, such as that of a container without root, the path has
/// to say who it is: only an administrator can make the directory of the server for all users.
fn check_peer(stream: &UnixStream, path: &Path) -> Result<Option<i32>, Cause> {
    let peer = credentials(stream)?;
    let own = rustix::process::geteuid().as_raw();
    let is_system = path == Path::new(SYSTEM_SOCKET);
    if peer.uid != 0 && !is_same(peer.uid, own) && !(is_system && is_unmapped(peer.uid)) {
        return Err(Cause::Foreign { uid: peer.uid });
    }
    Ok(Some(peer.pid).filter(|pid| *pid > 0))
}

/// Reads the credentials of the listening process. `rustix` cannot represent a process that has no number in
/// this namespace.
fn credentials(stream: &UnixStream) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (socket, value) = (stream.as_raw_fd(), (&raw mut peer).cast());
    // SAFETY: `value` points to a `ucred` of `length` bytes, in which every bit pattern is valid.
    match unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut length) } {
        0 => Ok(peer),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends one frame and receives one, before `until`.
fn exchange(stream: &UnixStream, request: &Request, until: Instant) -> Result<Reply, Cause> {
    send(stream, request)?;
    Receiver::new().receive(stream, Some(until))
}

fn send(mut stream: &UnixStream, request: &Request) -> Result<(), Cause> {
    let payload = serde_json::to_vec(request).map_err(io::Error::from)?;
    match stream.write_all(&Frame::encode(REQUEST, &payload)) {
        // A server that accepts no more clients has sent its refusal and closed the connection already.
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => Ok(()),
        written => Ok(written?),
    }
}

/// The input of a connection: a frame that is not complete yet, and files.
struct Receiver {
    decoder: Decoder,
    /// The files that have come, in the order of their frames.
    files: Vec<OwnedFd>,
}

impl Receiver {
    fn new() -> Self {
        Self { decoder: Decoder::new(REPLY_LIMIT), files: Vec::new() }
    }

    /// Receives one frame, before `until` if that is given.
    fn receive(&mut self, stream: &UnixStream, until: Option<Instant>) -> Result<Reply, Cause> {
        let invalid = |why: String| Cause::Protocol(plain(&why));
        let mut part = vec![0; 64 * 1024];
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(|error| invalid(error.to_string()))? {
                // A server that accepts no more clients sends the refusal for a preloaded program.
                if let Ok(ToClient::Refused { reason }) = ToClient::decode(&frame) {
                    return Err(Cause::Refused(reason));
                }
                if frame.kind != REPLY {
                    return Err(invalid(format!("a frame of kind {:#x}", frame.kind)));
                }
                return serde_json::from_slice(&frame.payload).map_err(|error| invalid(error.to_string()));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Cause::Silent);
            }
            stream.set_read_timeout(left)?;
            match self.read(stream, &mut part) {
                Ok(0) => return Err(Cause::Closed),
                Ok(n) => self.decoder.push(&part[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads bytes, and the files that come with them: at most one for each frame, and one in each read.
    fn read(&mut self, stream: &UnixStream, part: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(stream, &mut [IoSliceMut::new(part)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.files.extend(files);
            }
        }
        Ok(got.bytes)
    }
}
