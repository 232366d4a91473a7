//! Where a server listens: its directory, the lock that makes it the only one there, and its socket.

use anyhow::{Context, Result, bail, ensure};
use protocol::socket::{default_path, is_instance};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    socket: PathBuf,
    /// How many directories above the socket are ours: nobody else may own them or enter them.
    private: usize,
}

impl Place {
    /// The place of an instance, or another one if somebody says so (`XSCHED_SOCKET`).
    ///
    /// # Errors
    /// No instance can have this name.
    pub fn new(instance: &OsStr, socket: Option<PathBuf>) -> Result<Self> {
        ensure!(
            is_instance(instance),
            "{instance:?} cannot name an instance: letters, digits, '-' and '_', at most 32"
        );
        if let Some(socket) = socket {
            return Ok(Self { socket, private: 0 });
        }
        let uid = rustix::process::geteuid().as_raw();
        let name = instance.to_string_lossy();
        let socket = default_path(uid, &name, Path::is_dir);
        // `/tmp/xsched-UID` as well, which anybody could have made.
        let private = if socket.starts_with("/tmp") { 2 } else { 1 };
        Ok(Self { socket, private })
    }

    /// The socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

/// A place that was taken, until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    pub socket: OwnedFd,
    path: PathBuf,
    /// Whoever holds its lock is the server. The file stays where it is: a lock on a file that somebody may remove
    /// protects nothing.
    _lock: File,
}

impl Listener {
    /// Takes a place, and whatever a dead server has left there.
    ///
    /// # Errors
    /// A server runs there, or the place cannot be used; which, in one line.
    pub fn new(place: &Place) -> Result<Self> {
        let path = place.socket.clone();
        let address =
            SocketAddrUnix::new(&path).with_context(|| format!("{} is too long", path.display()))?;
        make_directories(place)?;
        let lock = take_lock(&path)?;
        remove_stale(&path)?;
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        // The socket file gets this mode (less the umask) from its first moment on.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&socket, &address)
            .with_context(|| format!("cannot make the socket {}", path.display()))?;
        let listener = Self { socket, path, _lock: lock };
        rustix::net::listen(&listener.socket, BACKLOG)?;
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Whoever holds the lock owns the path.
        let _ = fs::remove_file(&self.path);
    }
}

fn make_directories(place: &Place) -> Result<()> {
    let parents: Vec<_> = place.socket.ancestors().skip(1).filter(|path| *path != Path::new("")).collect();
    if let Some(directory) = parents.first() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.with_context(|| format!("cannot make the directory {}", directory.display()))?;
    }
    for directory in parents.into_iter().take(place.private) {
        let metadata = fs::symlink_metadata(directory)
            .with_context(|| format!("cannot look at {}", directory.display()))?;
        if let Some(fault) = fault_of_directory(&metadata, rustix::process::geteuid().as_raw()) {
            bail!("{} {fault}; a server's directory is its user's alone", directory.display());
        }
    }
    Ok(())
}

/// Why this cannot be a directory that only its user enters.
fn fault_of_directory(metadata: &Metadata, uid: u32) -> Option<String> {
    if !metadata.is_dir() {
        Some("is not a directory".to_owned())
    } else if metadata.uid() != uid {
        Some(format!("belongs to user {}", metadata.uid()))
    } else if metadata.mode() & 0o077 != 0 {
        Some(format!("has the mode {:o} instead of 700", metadata.mode() & 0o777))
    } else {
        None
    }
}

/// Becomes the server of this socket.
fn take_lock(socket: &Path) -> Result<File> {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let lock = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
        .with_context(|| format!("cannot make the lock {}", path.display()))?;
    let mut lock = File::from(lock);
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            // For the message only; the holder may be just about to write it.
            let _ = (&lock).take(20).read_to_string(&mut pid);
            let pid = pid.trim();
            let who = if pid.is_empty() { String::new() } else { format!(" (process {pid})") };
            bail!("an xserver runs already at {}{who}", socket.display());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())?;
    Ok(lock)
}

/// Removes the socket of a server that ended without doing so itself. Only the holder of the lock may.
fn remove_stale(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", path.display())),
        Ok(metadata) if metadata.file_type().is_socket() => {
            fs::remove_file(path).with_context(|| format!("cannot remove the old socket {}", path.display()))
        }
        Ok(_) => bail!("{} is there and is not a socket", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn at(path: PathBuf) -> Place {
        Place { socket: path, private: 1 }
    }

    #[test]
    fn an_instance_has_its_place_unless_somebody_says_otherwise() {
        let place = Place::new("50000".as_ref(), None).unwrap();
        assert!(place.socket().ends_with("xsched/50000.sock"));
        assert!(place.private >= 1);
        let other = Place::new("50000".as_ref(), Some("/x/y".into())).unwrap();
        assert_eq!((other.socket(), other.private), (Path::new("/x/y"), 0));
        let error = Place::new("../x".as_ref(), None).unwrap_err().to_string();
        assert!(error.contains("cannot name an instance"), "{error}");
    }

    #[test]
    fn one_place_has_one_server() {
        let directory = tempfile::tempdir().unwrap();
        let place = at(directory.path().join("run/a.sock"));
        let first = Listener::new(&place).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(place.socket()), 0o600);
        assert_eq!(mode(place.socket().parent().unwrap()), 0o700);
        let error = Listener::new(&place).unwrap_err().to_string();
        assert!(error.contains("runs already") && error.contains(&std::process::id().to_string()), "{error}");
        drop(first);
        assert!(!place.socket().exists());
        drop(Listener::new(&place).unwrap());
    }

    #[test]
    fn what_a_dead_server_left_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place { socket: directory.path().join("a.sock"), private: 0 };
        drop(std::os::unix::net::UnixListener::bind(place.socket()).unwrap());
        assert!(place.socket().exists());
        drop(Listener::new(&place).unwrap());
        fs::write(place.socket(), "mine").unwrap();
        let error = Listener::new(&place).unwrap_err().to_string();
        assert!(error.contains("is not a socket"), "{error}");
        assert_eq!(fs::read(place.socket()).unwrap(), b"mine");
    }

    #[test]
    fn a_directory_that_others_enter_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        fs::create_dir(&run).unwrap();
        fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
        let error = Listener::new(&at(run.join("a.sock"))).unwrap_err().to_string();
        assert!(error.contains("has the mode 755"), "{error}");
        let metadata = fs::metadata(&run).unwrap();
        assert_eq!(
            fault_of_directory(&metadata, metadata.uid() + 1).unwrap(),
            format!("belongs to user {}", metadata.uid())
        );
        let error = Listener::new(&at("/proc/nothing/a.sock".into())).unwrap_err();
        assert!(format!("{error:#}").contains("/proc/nothing"), "{error:#}");
        let long = directory.path().join("x".repeat(120));
        assert!(Listener::new(&at(long)).unwrap_err().to_string().contains("too long"));
    }
}
