//! One request to a server, and its reply.

use crate::place::Place;
use crate::table::plain;
use host::user::is_same;
use protocol::control::{Reply, Request};
use protocol::frame::{Decoder, Frame, REPLY_LIMIT};
use protocol::message::{REPLY, REQUEST, ToClient};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a server may take to answer; one that is well takes milliseconds.
const LIMIT: Duration = Duration::from_secs(2);

/// Why there is no reply. Displayed, it is one sentence.
#[derive(Debug)]
pub struct Failure {
    /// The socket.
    path: PathBuf,
    /// The server's process, if it is known.
    pid: Option<i32>,
    /// How long it had.
    limit: Duration,
    /// What went wrong.
    pub cause: Cause,
}

/// What went wrong between us and a server.
#[derive(Debug)]
pub enum Cause {
    /// Nobody listens.
    Absent,
    /// It belongs to somebody who is not believed.
    Foreign {
        /// To whom.
        uid: u32,
    },
    /// It takes no connection, or does not answer, in time.
    Silent,
    /// It closed the connection: it is just ending, or does not like us.
    Closed,
    /// It says so itself.
    Refused(String),
    /// What it says makes no sense; why.
    Nonsense(String),
    /// The system says so.
    System(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            Cause::Absent => {
                return write!(
                    f,
                    "no xserver runs here (nobody listens on {path}); `xcli run` starts one with its program"
                );
            }
            Cause::System(error) if error.kind() == ErrorKind::PermissionDenied => {
                return write!(f, "the xserver behind {path} belongs to another user");
            }
            _ => write!(f, "the xserver behind {path}")?,
        }
        if let Some(pid) = self.pid {
            write!(f, " (pid {pid})")?;
        }
        match &self.cause {
            Cause::Foreign { uid } => {
                let own = rustix::process::geteuid().as_raw();
                if *uid == own {
                    // Without a name in this user namespace all look the same.
                    return write!(
                        f,
                        " may be anybody's: this user namespace does not map its user; it is not asked"
                    );
                }
                write!(f, " belongs to uid {uid}, neither to you (uid {own}) nor to root: it is not asked")
            }
            Cause::Silent => write!(f, " does not answer within {} s: is it stopped?", self.limit.as_secs()),
            Cause::Closed => f.write_str(" closed the connection without an answer"),
            Cause::Refused(why) => write!(f, " says: {}", plain(why)),
            Cause::Nonsense(why) => write!(f, " gives an answer that makes no sense: {why}"),
            Cause::System(error) => write!(f, " cannot be asked: {error}"),
            Cause::Absent => Ok(()),
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

/// Asks the server, which has 2 s to answer.
///
/// # Errors
/// There is no reply, or a [`Reply::Error`].
pub fn ask(place: &Place, request: &Request) -> Result<Reply, Failure> {
    ask_within(place, request, LIMIT)
}

/// Asks the server to do something, of which there is nothing to tell.
///
/// # Errors
/// As of [`ask`], or the reply is to something else.
pub fn order(place: &Place, request: &Request) -> anyhow::Result<()> {
    match ask(place, request)? {
        Reply::Done => Ok(()),
        other => anyhow::bail!("the server answers something that makes no sense here: {other:?}"),
    }
}

/// Asks the server something that it may have to wait for itself. To take the question it has 2 s all the same.
///
/// # Errors
/// As [`ask`].
pub fn ask_within(place: &Place, request: &Request, limit: Duration) -> Result<Reply, Failure> {
    let until = Instant::now() + limit;
    let mut pid = None;
    let mut work = || -> Result<Reply, Cause> {
        let stream = connect_to(&place.socket)?;
        pid = check_peer(&stream)?;
        match exchange(&stream, request, until)? {
            Reply::Error(why) => Err(Cause::Refused(why)),
            reply => Ok(reply),
        }
    };
    let result = work();
    result.map_err(|cause| Failure { path: place.socket.clone(), pid, limit, cause })
}

/// Connects; a server whose backlog is full keeps nobody waiting longer than [`LIMIT`].
fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(LIMIT))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Nobody is believed but root's servers and the user's own. Returns the server's process id, nothing if it has none in this pid
/// namespace.
fn check_peer(stream: &UnixStream) -> Result<Option<i32>, Cause> {
    let peer = credentials(stream)?;
    if peer.uid != 0 && !is_same(peer.uid, rustix::process::geteuid().as_raw()) {
        return Err(Cause::Foreign { uid: peer.uid });
    }
    Ok(Some(peer.pid).filter(|pid| *pid > 0))
}

/// Who listens there. What `rustix` makes of it has no value for a process without a number here.
fn credentials(stream: &UnixStream) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (socket, place) = (stream.as_raw_fd(), (&raw mut peer).cast());
    // SAFETY: fills the structure that it is given, of the length that it is given.
    match unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut length) } {
        0 => Ok(peer),
        _ => Err(io::Error::last_os_error()),
    }
}

/// One frame there and one back, before `until`.
fn exchange(mut stream: &UnixStream, request: &Request, until: Instant) -> Result<Reply, Cause> {
    let nonsense = |why: String| Cause::Nonsense(plain(&why));
    let payload = serde_json::to_vec(request).map_err(io::Error::from)?;
    match stream.write_all(&Frame::encode(REQUEST, &payload)) {
        // A server that takes nobody more has said so, and closed before it was asked.
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
        written => written?,
    }
    let mut decoder = Decoder::new(REPLY_LIMIT);
    let mut part = [0; 64 * 1024];
    loop {
        if let Some(frame) = decoder.next_frame().map_err(|error| nonsense(error.to_string()))? {
            // A server that takes nobody more does not know yet who has come.
            if let Ok(ToClient::Refused { reason }) = ToClient::decode(&frame) {
                return Err(Cause::Refused(reason));
            }
            if frame.kind != REPLY {
                return Err(nonsense(format!("a frame of kind {:#x}", frame.kind)));
            }
            return serde_json::from_slice(&frame.payload).map_err(|error| nonsense(error.to_string()));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Cause::Silent);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => return Err(Cause::Closed),
            Ok(n) => decoder.push(&part[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}
