//! The endpoint of a server: the path of its socket, and the options that name it.

use crate::error::Error;
use anyhow::ensure;
use protocol::config::Config;
use protocol::socket;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// This machine: the server is found by its instance.
    Local,
    /// The path of a socket.
    Socket(PathBuf),
}

/// Parses the value of `-p`.
pub fn instance(word: &str) -> Result<String, Error> {
    match socket::is_instance(word.as_ref()) {
        true => Ok(word.to_owned()),
        false => Err(Error::NotAnInstance),
    }
}

/// Parses the value of `-a`.
///
/// # Errors
/// The address names another machine.
pub fn address(word: &str) -> Result<Address, Error> {
    // Users of XSched write an IP address, in brackets if it is IPv6.
    let ip = word.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    if word.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback()) {
        Ok(Address::Local)
    } else if word.contains('/') {
        Ok(Address::Socket(PathBuf::from(word)))
    } else {
        Err(Error::RemoteServer)
    }
}

/// A server's socket, and the options that name it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// The absolute path of the socket.
    pub socket: PathBuf,
    /// The options that named it, quoted for a shell; empty if xcli finds it without options.
    pub options: String,
}

impl Endpoint {
    /// Finds the endpoint by the command line, else by `XSCHED_SOCKET`, else by the default rule, which
    /// servers and programs share.
    ///
    /// # Errors
    /// Both a path and an instance are given, or the path is too long.
    pub fn new(address: Option<Address>, instance: Option<&str>) -> anyhow::Result<Self> {
        let (config, errors) = Config::read(|name| std::env::var_os(name), policies::registry::BUILT);
        let variable = || -> anyhow::Result<Option<PathBuf>> {
            match errors.iter().find(|error| error.var == "XSCHED_SOCKET") {
                Some(error) => anyhow::bail!("XSCHED_SOCKET is not valid: expected {}", error.expected),
                None => Ok(config.socket.clone()),
            }
        };
        let default = Self::default_socket;
        let (socket, options) = match (address, instance) {
            (Some(Address::Socket(_)), Some(_)) => {
                return Err(Error::Usage("-a with a path and -p both name a server: use one of them").into());
            }
            (Some(Address::Socket(path)), None) => {
                let path = std::path::absolute(path)?;
                let options = format!("-a {}", quoted(&path.to_string_lossy()));
                (path, options)
            }
            (_, Some(instance)) => (default(instance), format!("-p {instance}")),
            (_, None) => (variable()?.unwrap_or_else(Self::first_socket), String::new()),
        };
        let socket = std::path::absolute(socket)?;
        let length = socket.as_os_str().as_bytes().len();
        ensure!(
            length <= socket::LONGEST_PATH,
            "a socket path can have at most {} bytes, but {} has {length}: use a shorter one",
            socket::LONGEST_PATH,
            socket.display()
        );
        Ok(Self { socket, options })
    }

    /// The default endpoint of this user.
    pub fn default_of_user() -> Self {
        Self { socket: Self::first_socket(), options: String::new() }
    }

    /// The server for all users if it is there, else the one of this user.
    fn first_socket() -> PathBuf {
        let system = PathBuf::from(socket::SYSTEM_SOCKET);
        if is_served(&system) { system } else { Self::default_socket(socket::INSTANCE) }
    }

    fn default_socket(instance: &str) -> PathBuf {
        let uid = rustix::process::geteuid().as_raw();
        socket::default_path(uid, instance, Path::is_dir)
    }

    /// A command for this server that a user can type, such as `xcli -p night resume 42`.
    pub fn command(&self, words: &str) -> String {
        let space = if self.options.is_empty() { "" } else { " " };
        format!("xcli {}{space}{words}", self.options)
    }

    /// The value of `XSCHED_SOCKET` for a program.
    pub fn variable(&self) -> OsString {
        self.socket.clone().into_os_string()
    }
}

/// Returns true if a server listens on a socket that this user may use.
fn is_served(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(socket) = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) else {
        return false;
    };
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    // A server that is busy or stopped has let its queue fill up.
    matches!(rustix::net::connect(&socket, &address), Ok(()) | Err(rustix::io::Errno::AGAIN))
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let harmless = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    if word.chars().all(harmless) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_another_machine_is_refused() {
        for local in ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "::1", "[::1]"] {
            assert_eq!(address(local), Ok(Address::Local), "{local}");
        }
        assert_eq!(address("/run/x.sock"), Ok(Address::Socket("/run/x.sock".into())));
        assert_eq!(address("./x"), Ok(Address::Socket("./x".into())));
        for other in ["10.0.0.1", "gpu-host", "0.0.0.0", "", "127.0.0.1:50000"] {
            assert!(address(other) == Err(Error::RemoteServer), "{other}");
        }
    }

    #[test]
    fn endpoint_is_named_by_path_or_instance() {
        let path = || Some(Address::Socket("/a/b.sock".into()));
        assert_eq!(Endpoint::new(path(), None).unwrap().socket, Path::new("/a/b.sock"));
        assert!(Endpoint::new(path(), Some("7")).is_err());
        let by_name = Endpoint::new(Some(Address::Local), Some("night")).unwrap().socket;
        assert!(by_name.ends_with("xsched/night.sock"), "{}", by_name.display());
        assert_eq!(Endpoint::new(path(), None).unwrap().command("list"), "xcli -a /a/b.sock list");
        let by_name = Endpoint::new(None, Some("night")).unwrap();
        assert_eq!(by_name.command("resume 42"), "xcli -p night resume 42");
        assert_eq!(Endpoint::new(None, None).unwrap().command("list"), "xcli list");
        assert_eq!(quoted("/a b/it's"), "'/a b/it'\\''s'");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        assert!(!is_served(&path));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(is_served(&path));
        drop(listener);
        assert!(!is_served(&path), "the file is left, and nobody listens");
        let long = Endpoint::new(Some(Address::Socket(format!("/{}", "x".repeat(107)).into())), None);
        assert!(long.unwrap_err().to_string().contains("at most 107 bytes"));
    }
}
