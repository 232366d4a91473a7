//! A small HTTP server on loopback or a Unix socket: GET and HEAD, one request a connection.
//!
//! A reader that is slow or sends nonsense costs one of a few threads for some seconds, and nothing else.

use crate::error::Error;
use rustix::fs::Mode;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// The most connections that are served at a time.
const CONNECTIONS: usize = 8;
/// The time for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest head of a request, in bytes.
const HEAD: usize = 8 * 1024;
/// The most header fields.
const FIELDS: usize = 64;
/// The pause after a failure to accept, such as that no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A port of a loopback address.
    Loopback(SocketAddr),
    /// The absolute path of a Unix socket.
    Path(PathBuf),
}

/// Parses the value of `--listen`.
///
/// # Errors
/// It is neither a loopback address with a port nor an absolute path.
pub fn address(word: &str) -> Result<Address, Error> {
    if word.starts_with('/') {
        return Ok(Address::Path(word.into()));
    }
    match word.replacen("localhost:", "127.0.0.1:", 1).parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(Address::Loopback(address)),
        _ => Err(Error::NotLoopback),
    }
}

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// On loopback.
    Loopback(TcpListener),
    /// At a path.
    Path(UnixListener, PathBuf),
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(socket) => match socket.local_addr() {
                Ok(address) => write!(f, "http://{address}/metrics"),
                Err(error) => write!(f, "an unknown address ({error})"),
            },
            Self::Path(_, path) => write!(f, "{} (GET /metrics)", path.display()),
        }
    }
}

impl Listener {
    /// Starts to listen. The file of a Unix socket can be used by its user and group, and replaces one of a process that has
    /// ended.
    ///
    /// # Errors
    /// The address is in use or cannot be used.
    pub fn new(address: &Address) -> anyhow::Result<Self> {
        let fault = |place: String, error: io::Error| Error::CannotListen { place, why: error.to_string() };
        match address {
            Address::Loopback(address) => {
                let socket = TcpListener::bind(address).map_err(|error| fault(address.to_string(), error))?;
                Ok(Self::Loopback(socket))
            }
            Address::Path(path) => {
                let fault = |error| fault(path.display().to_string(), error);
                let is_socket =
                    std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
                let refuses = || {
                    let connected = UnixStream::connect(path);
                    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
                };
                if is_socket && refuses() {
                    std::fs::remove_file(path).map_err(fault)?;
                }
                // No other thread runs yet, so no other file gets this mask.
                let before = rustix::process::umask(Mode::from_raw_mode(0o117));
                let socket = UnixListener::bind(path);
                rustix::process::umask(before);
                Ok(Self::Path(socket.map_err(fault)?, path.clone()))
            }
        }
    }

    /// Returns true if file permissions say who can connect.
    pub fn is_private(&self) -> bool {
        matches!(self, Self::Path(..))
    }

    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Loopback(socket) => Box::new(socket.accept()?.0),
            Self::Path(socket, _) => Box::new(socket.accept()?.0),
        })
    }

    /// Serves until the socket breaks.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn serve(self, answer: impl Fn(&Asked) -> Said + Send + Sync + 'static) -> io::Result<()> {
        let (answer, served) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        loop {
            let mut stream = match self.accept() {
                Ok(stream) => stream,
                Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotConnected) => {
                    return Err(error);
                }
                Err(_) => {
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            if served.load(SeqCst) >= CONNECTIONS {
                let _ = stream
                    .limit(PAUSE)
                    .and_then(|()| Said::text(503, "too many requests\n").send(&mut stream, true));
                continue;
            }
            served.fetch_add(1, SeqCst);
            let (answer, counted) = (answer.clone(), Served(served.clone()));
            // Without a thread the connection is closed and no longer counted.
            let _ = thread::Builder::new().name("http".to_owned()).spawn(move || {
                let _counted = counted;
                // A reader that has gone needs no answer.
                let _ = converse(&mut *stream, &*answer);
            });
        }
    }
}

/// Counts a connection until it is dropped.
struct Served(Arc<AtomicUsize>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A connection.
trait Stream: Read + Write + Send {
    /// Limits the time of each read and write.
    fn limit(&self, time: Duration) -> io::Result<()>;
    /// Ends the writing side.
    fn finish(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time)).and_then(|()| self.set_write_timeout(Some(time)))
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time)).and_then(|()| self.set_write_timeout(Some(time)))
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// Reads a request and answers it.
fn converse(stream: &mut dyn Stream, answer: &dyn Fn(&Asked) -> Said) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let (said, has_body) = match read(stream, until)? {
        Ok(asked) => (answer(&asked), !asked.is_head),
        Err(said) => (said, true),
    };
    stream.limit(PATIENCE)?;
    said.send(&mut *stream, has_body)?;
    stream.finish()?;
    // Closing with unread bytes would make the kernel drop the answer.
    let _ = io::copy(&mut stream.take(HEAD as u64), &mut io::sink());
    Ok(())
}

/// Reads a request. The inner error is the answer to one that cannot be served.
fn read(stream: &mut dyn Stream, until: Instant) -> io::Result<Result<Asked, Said>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.limit(left)?;
        match stream.read(&mut part) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => head.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        match Asked::parse(&head) {
            Ok(Some(asked)) => return Ok(Ok(asked)),
            Ok(None) if head.len() >= HEAD => return Ok(Err(Said::text(431, "the request is too long\n"))),
            Ok(None) => {}
            Err(said) => return Ok(Err(said)),
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    is_head: bool,
    target: String,
    authorization: Option<Vec<u8>>,
}

impl Asked {
    /// Parses the head of a request; `None` if it is not complete.
    fn parse(bytes: &[u8]) -> Result<Option<Self>, Said> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(bytes) {
            Err(httparse::Error::TooManyHeaders) => {
                return Err(Said::text(431, "the request has too many fields\n"));
            }
            Err(_) => return Err(Said::text(400, "this is not HTTP/1\n")),
            Ok(status) if status.is_partial() => return Ok(None),
            Ok(_) => {}
        }
        let is_head = match request.method {
            Some("GET") => false,
            Some("HEAD") => true,
            _ => {
                return Err(Said {
                    more: "Allow: GET, HEAD\r\n",
                    ..Said::text(405, "only GET and HEAD are served\n")
                });
            }
        };
        let authorization =
            request.headers.iter().find(|field| field.name.eq_ignore_ascii_case("authorization"));
        Ok(Some(Self {
            is_head,
            target: request.path.unwrap_or("/").to_owned(),
            authorization: authorization.map(|field| field.value.to_owned()),
        }))
    }

    /// The path without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or("/")
    }

    /// Returns true if the request has this token. The time that this takes does not depend on where they differ.
    pub fn bears(&self, token: &str) -> bool {
        let own = self.authorization.as_deref().and_then(|value| {
            let (scheme, token) = value.split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
        });
        own.is_some_and(|own| {
            let differing = own.iter().zip(token.as_bytes()).fold(0, |sum, (one, other)| sum | one ^ other);
            own.len() == token.len() && differing == 0
        })
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    status: u16,
    /// The content type.
    kind: &'static str,
    /// Further header lines.
    more: &'static str,
    body: String,
}

impl Said {
    /// An answer of plain text.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", more: "", body: body.into() }
    }

    /// What was asked for, of this content type.
    pub fn found(kind: &'static str, body: String) -> Self {
        Self { status: 200, kind, more: "", body }
    }

    /// The answer to a request without the token.
    pub fn unauthorized() -> Self {
        Self { more: "WWW-Authenticate: Bearer\r\n", ..Self::text(401, "the token is missing or wrong\n") }
    }

    fn send(&self, mut stream: impl Write, has_body: bool) -> io::Result<()> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            _ => "Internal Server Error",
        };
        let Self { status, kind, more, body } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n{more}\r\n"
        );
        stream.write_all(head.as_bytes())?;
        if has_body { stream.write_all(body.as_bytes()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_loopback_and_paths_are_addresses() {
        let loopback = |text: &str| Ok(Address::Loopback(text.parse().unwrap()));
        assert_eq!(address("127.0.0.1:9477"), loopback("127.0.0.1:9477"));
        assert_eq!(address("localhost:1"), loopback("127.0.0.1:1"));
        assert_eq!(address("[::1]:0"), loopback("[::1]:0"));
        assert_eq!(address("/run/m.sock"), Ok(Address::Path("/run/m.sock".into())));
        for wrong in ["0.0.0.0:9477", ":9477", "9477", "127.0.0.1", "[::]:1", "example.org:1", "m.sock", ""] {
            assert_eq!(address(wrong), Err(Error::NotLoopback), "{wrong}");
        }
    }

    /// Serves with one answer, and returns what a reader that sends these bytes gets.
    fn exchange(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.sock");
        let listener = Listener::new(&Address::Path(path.clone())).unwrap();
        thread::spawn(move || listener.serve(|asked| Said::text(200, format!("path {}\n", asked.path()))));
        let mut stream = UnixStream::connect(&path).unwrap();
        // An answer can come before everything is sent.
        let _ = stream.write_all(bytes);
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }

    #[test]
    fn requests_are_answered() {
        let ok = exchange(b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(ok.starts_with("HTTP/1.1 200 OK\r\n") && ok.ends_with("\r\n\r\npath /a\n"), "{ok}");
        assert!(ok.contains("Content-Length: 8\r\n") && ok.contains("Connection: close\r\n"), "{ok}");
        let head = exchange(b"HEAD / HTTP/1.0\r\n\r\n");
        assert!(head.contains("Content-Length: 7\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for (bytes, status) in [
            (&b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"[..], "405 "),
            (b"\x16\x03\x01\x02", "400 "),
            (
                &b"GET / HTTP/1.1\r\n"
                    .iter()
                    .chain(b"a: b\r\n".repeat(FIELDS + 1).iter())
                    .chain(b"\r\n")
                    .copied()
                    .collect::<Vec<_>>()[..],
                "431 ",
            ),
            (&[&b"GET /"[..], &[b'a'; HEAD]].concat(), "431 "),
        ] {
            let said = exchange(bytes);
            assert!(said.starts_with(&format!("HTTP/1.1 {status}")), "{status}: {said}");
        }
    }

    #[test]
    fn token_counts_as_a_whole() {
        let asked = |value: &str| {
            let text = format!("GET / HTTP/1.1\r\nAuthorization: {value}\r\n\r\n");
            Asked::parse(text.as_bytes()).unwrap().unwrap()
        };
        assert!(asked("Bearer secret").bears("secret") && asked("bearer  secret ").bears("secret"));
        for wrong in ["Bearer secre", "Bearer secret1", "Basic secret", "secret", "Bearer ", "B"] {
            assert!(!asked(wrong).bears("secret"), "{wrong}");
        }
        assert!(!Asked::parse(b"GET / HTTP/1.1\r\n\r\n").unwrap().unwrap().bears("secret"));
    }

    #[test]
    fn idle_readers_do_not_keep_others_out_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.sock");
        let listener = Listener::new(&Address::Path(path.clone())).unwrap();
        thread::spawn(move || listener.serve(|_| Said::text(200, "here\n")));
        let ask = || {
            let mut stream = UnixStream::connect(&path).unwrap();
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            text
        };
        let idle: Vec<_> = (0..CONNECTIONS).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let start = Instant::now();
        while !ask().starts_with("HTTP/1.1 503") {
            assert!(start.elapsed() < PATIENCE, "all threads serve idle readers");
        }
        while !ask().starts_with("HTTP/1.1 200") {
            assert!(start.elapsed() < 10 * PATIENCE, "idle readers are dropped");
            thread::yield_now();
        }
        drop(idle);
    }

    #[test]
    fn socket_of_a_process_that_has_ended_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.sock");
        let address = Address::Path(path.clone());
        let first = Listener::new(&address).unwrap();
        let mode = std::fs::metadata(&path).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&mode) & 0o777, 0o660);
        assert!(Listener::new(&address).unwrap_err().to_string().contains("in use"));
        drop(first);
        Listener::new(&address).unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "kept").unwrap();
        Listener::new(&Address::Path(file.clone())).unwrap_err();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = Asked::parse(&bytes);
        }
    }
}
