//! One request to a server, and its reply.

use crate::place::Place;
use crate::table::plain;
use protocol::control::{Reply, Request};
use protocol::frame::{Decoder, Frame, REPLY_LIMIT};
use protocol::message::{REPLY, REQUEST};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
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
                let own = rustix::process::geteuid();
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
        pid = Some(check_peer(&stream)?);
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

/// Nobody is believed but root's servers and the user's own. Returns the server's process id.
fn check_peer(stream: &UnixStream) -> Result<i32, Cause> {
    let peer = socket_peercred(stream).map_err(io::Error::from)?;
    if peer.uid != rustix::process::geteuid() && !peer.uid.is_root() {
        return Err(Cause::Foreign { uid: peer.uid.as_raw() });
    }
    Ok(peer.pid.as_raw_nonzero().get())
}

/// One frame there and one back, before `until`.
fn exchange(mut stream: &UnixStream, request: &Request, until: Instant) -> Result<Reply, Cause> {
    let nonsense = |why: String| Cause::Nonsense(plain(&why));
    let payload = serde_json::to_vec(request).map_err(io::Error::from)?;
    stream.write_all(&Frame::encode(REQUEST, &payload))?;
    let mut decoder = Decoder::new(REPLY_LIMIT);
    let mut part = [0; 64 * 1024];
    loop {
        if let Some(frame) = decoder.next_frame().map_err(|error| nonsense(error.to_string()))? {
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
