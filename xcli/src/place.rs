//! Which server is meant: the path of its socket.

use anyhow::ensure;
use protocol::config::Config;
use protocol::socket;
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The longest path that fits a Unix socket address, in bytes.
const LONGEST: usize = 107;

/// What `-a` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// This machine: the server is found by its instance.
    Local,
    /// The path of a socket.
    Socket(PathBuf),
}

/// The word after `-p`.
///
/// # Errors
/// It cannot name an instance; the text says what can.
pub fn instance(word: &str) -> Result<String, String> {
    match socket::is_instance(word.as_ref()) {
        true => Ok(word.to_owned()),
        false => Err("an instance is 1 to 32 letters, digits, '-' and '_'".to_owned()),
    }
}

/// The word after `-a`.
///
/// # Errors
/// It names another machine.
pub fn address(word: &str) -> Result<Address, String> {
    // As users of XSched write it; in brackets if it is IPv6.
    let ip = word.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    if word.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback()) {
        Ok(Address::Local)
    } else if word.contains('/') {
        Ok(Address::Socket(PathBuf::from(word)))
    } else {
        Err("TCP is not in this build: only a server on this machine can be asked, by the path of its socket \
             or as localhost"
            .to_owned())
    }
}

/// A server's socket, and how it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Its path, absolute.
    pub socket: PathBuf,
    /// The words of the command line that named it, as a shell takes them; empty if the next command finds it without.
    pub said: String,
}

impl Place {
    /// By what the command line says, else by `XSCHED_SOCKET`, else by the rule that server and programs follow too.
    ///
    /// # Errors
    /// Address and instance contradict each other, or the path is too long.
    pub fn new(address: Option<Address>, instance: Option<&str>) -> anyhow::Result<Self> {
        let (config, errors) = Config::read(|name| std::env::var_os(name), policies::registry::BUILT);
        let variable = || -> anyhow::Result<Option<PathBuf>> {
            match errors.iter().find(|error| error.var == "XSCHED_SOCKET") {
                Some(error) => anyhow::bail!("XSCHED_SOCKET is not usable (expected {})", error.expected),
                None => Ok(config.socket.clone()),
            }
        };
        let default = Self::default_socket;
        let (socket, said) = match (address, instance) {
            (Some(Address::Socket(_)), Some(_)) => {
                anyhow::bail!("-a with a path names a server already: leave out -p")
            }
            (Some(Address::Socket(path)), None) => {
                let path = std::path::absolute(path)?;
                let said = format!("-a {}", quoted(&path.to_string_lossy()));
                (path, said)
            }
            (_, Some(instance)) => (default(instance), format!("-p {instance}")),
            (_, None) => (variable()?.unwrap_or_else(|| default(socket::INSTANCE)), String::new()),
        };
        let socket = std::path::absolute(socket)?;
        let length = socket.as_os_str().as_bytes().len();
        ensure!(
            length <= LONGEST,
            "the path of a socket has at most {LONGEST} bytes, {} has {length}",
            socket.display()
        );
        Ok(Self { socket, said })
    }

    /// The one that is meant if nobody says otherwise.
    pub fn by_default() -> Self {
        Self { socket: Self::default_socket(socket::INSTANCE), said: String::new() }
    }

    fn default_socket(instance: &str) -> PathBuf {
        let uid = rustix::process::geteuid().as_raw();
        socket::default_path(uid, instance, Path::is_dir)
    }

    /// A command to this server, for a person to type: `xcli -p night resume 42`.
    pub fn command(&self, words: &str) -> String {
        let said = if self.said.is_empty() { String::new() } else { format!("{} ", self.said) };
        format!("xcli {said}{words}")
    }

    /// For a program's environment.
    pub fn variable(&self) -> OsString {
        self.socket.clone().into_os_string()
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let harmless = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    if word.chars().all(harmless) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_can_be_asked() {
        for local in ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "::1", "[::1]"] {
            assert_eq!(address(local), Ok(Address::Local), "{local}");
        }
        assert_eq!(address("/run/x.sock"), Ok(Address::Socket("/run/x.sock".into())));
        assert_eq!(address("./x"), Ok(Address::Socket("./x".into())));
        for other in ["10.0.0.1", "gpu-host", "0.0.0.0", "", "127.0.0.1:50000"] {
            assert!(address(other).unwrap_err().contains("TCP is not in this build"), "{other}");
        }
    }

    #[test]
    fn a_place_is_named_once() {
        let path = || Some(Address::Socket("/a/b.sock".into()));
        assert_eq!(Place::new(path(), None).unwrap().socket, Path::new("/a/b.sock"));
        assert!(Place::new(path(), Some("7")).is_err());
        let by_name = Place::new(Some(Address::Local), Some("night")).unwrap().socket;
        assert!(by_name.ends_with("xsched/night.sock"), "{}", by_name.display());
        assert_eq!(Place::new(path(), None).unwrap().command("list"), "xcli -a /a/b.sock list");
        let by_name = Place::new(None, Some("night")).unwrap();
        assert_eq!(by_name.command("resume 42"), "xcli -p night resume 42");
        assert_eq!(Place::new(None, None).unwrap().command("list"), "xcli list");
        assert_eq!(quoted("/a b/it's"), "'/a b/it'\\''s'");
        let long = Place::new(Some(Address::Socket(format!("/{}", "x".repeat(107)).into())), None);
        assert!(long.unwrap_err().to_string().contains("at most 107 bytes"));
    }
}
