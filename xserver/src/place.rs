//! Where a server listens: its directory, the lock that makes it the only one there, and its socket.

use anyhow::{Context, Result, bail, ensure};
use protocol::socket::{default_path, fault_of_directory, is_instance, private_directories};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{ErrorKind, Read, Seek, Write};
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
        let uid = rustix::process::geteuid().as_raw();
        let default = || default_path(uid, &instance.to_string_lossy(), Path::is_dir);
        let socket = std::path::absolute(socket.unwrap_or_else(default))?;
        let private = private_directories(uid, &socket);
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
    place: Place,
    /// Which file the socket is, to know it again.
    file: Identity,
    /// Whoever holds its lock is the server. The file stays where it is: a lock on a file that somebody may remove
    /// protects nothing.
    lock: File,
}

/// Which file it is: its device and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    number: u64,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), number: metadata.ino() }
    }

    /// That of what lies at this path; nothing if there is nothing.
    fn at(path: &Path) -> std::io::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(Self::of(&metadata))),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What has become of a server's place.
#[derive(Debug)]
pub(crate) enum Fate {
    /// Clients find the server there.
    Kept,
    /// The socket was gone, or another one, and is made anew.
    Renewed,
    /// Another server has it: clients find that one.
    Lost,
    /// Clients do not find the server, and nothing can be done about it now; why.
    Unreachable(String),
}

impl Listener {
    /// Takes a place, and whatever a dead server has left there.
    ///
    /// # Errors
    /// A server runs there, or the place cannot be used; which, in one line.
    pub fn new(place: &Place) -> Result<Self> {
        address(&place.socket)?;
        make_directories(place)?;
        let lock = take_lock(&place.socket)?;
        remove_stale(&place.socket)?;
        let (socket, file) = bind(&place.socket)?;
        Ok(Self { socket, place: place.clone(), file, lock })
    }

    /// Looks whether clients find the server, and sees to it that they do, unless another server is there. Directories may have been
    /// cleaned, and files removed by hand. After [`Fate::Renewed`] the socket is another one.
    pub fn look(&mut self) -> Fate {
        let path = self.place.socket.clone();
        let unreachable = |error: anyhow::Error| Fate::Unreachable(format!("{error:#}"));
        match (self.has_lock(), Identity::at(&path)) {
            (Ok(true), Ok(found)) if found == Some(self.file) => return Fate::Kept,
            (Err(error), _) | (_, Err(error)) => return unreachable(error.into()),
            (Ok(true), Ok(_)) => {}
            (Ok(false), Ok(_)) => {
                // Without its lock file another server may be there, or come just now: the lock decides anew.
                let taken = make_directories(&self.place).and_then(|()| take_lock(&path));
                match taken {
                    Ok(lock) => self.lock = lock,
                    Err(error) if error.is::<Taken>() => return Fate::Lost,
                    Err(error) => return unreachable(error),
                }
                if Identity::at(&path).is_ok_and(|found| found == Some(self.file)) {
                    return Fate::Kept;
                }
            }
        }
        match remove_stale(&path).and_then(|()| bind(&path)) {
            Ok((socket, file)) => {
                (self.socket, self.file) = (socket, file);
                Fate::Renewed
            }
            Err(error) => unreachable(error),
        }
    }

    /// Whether the lock that makes this the only server is the one that others find.
    fn has_lock(&self) -> std::io::Result<bool> {
        let own = Identity::of(&self.lock.metadata()?);
        Ok(Identity::at(&lock_path(&self.place.socket))? == Some(own))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another server's is not ours to remove: that has the lock of this path then.
        let is_ours = |path: &Path| Identity::at(path).is_ok_and(|found| found == Some(self.file));
        if self.has_lock().unwrap_or(false) && is_ours(&self.place.socket) {
            let _ = fs::remove_file(&self.place.socket);
        }
    }
}

fn address(path: &Path) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).with_context(|| format!("{} is too long", path.display()))
}

/// Listens at a path where nothing is. Which file it is there.
fn bind(path: &Path) -> Result<(OwnedFd, Identity)> {
    let address = address(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The socket file gets this mode (less the umask) from its first moment on.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    let made = || format!("cannot make the socket {}", path.display());
    rustix::net::bind(&socket, &address).with_context(made)?;
    let file = Identity::at(path).with_context(made)?.with_context(made)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((socket, file))
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
            bail!("{} {fault}", directory.display());
        }
    }
    Ok(())
}

/// Another server has the place.
#[derive(Debug)]
struct Taken(String);

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Taken {}

fn lock_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

/// Becomes the server of this socket.
fn take_lock(socket: &Path) -> Result<File> {
    let path = lock_path(socket);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    loop {
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
                return Err(Taken(format!("an xserver runs already at {}{who}", socket.display())).into());
            }
            Err(error) => return Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
        // It may have been removed between the two: then the lock keeps nobody away.
        let own = Identity::of(&lock.metadata()?);
        if Identity::at(&path).is_ok_and(|found| found == Some(own)) {
            // For messages only: a full disk does not keep the server from its work.
            let _ = lock.set_len(0).and_then(|()| lock.rewind());
            let _ = writeln!(lock, "{}", std::process::id());
            return Ok(lock);
        }
    }
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
    fn the_default_place_is_checked_whoever_names_it() {
        let uid = rustix::process::geteuid().as_raw();
        let default = Place::new("a".as_ref(), None).unwrap();
        assert_eq!(Place::new("50000".as_ref(), Some(default.socket.clone())).unwrap(), default);
        assert_eq!(default.private, private_directories(uid, default.socket()));
    }

    #[test]
    fn a_server_sees_to_it_that_it_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let place = at(directory.path().join("run/a.sock"));
        let found = || std::os::unix::net::UnixStream::connect(place.socket()).is_ok();
        let mut first = Listener::new(&place).unwrap();
        assert!(matches!(first.look(), Fate::Kept));
        fs::remove_file(place.socket()).unwrap();
        assert!(matches!(first.look(), Fate::Renewed) && found());
        fs::remove_file(lock_path(place.socket())).unwrap();
        assert!(matches!(first.look(), Fate::Kept) && found());
        assert!(Listener::new(&place).unwrap_err().is::<Taken>(), "it has the lock again");
        fs::remove_dir_all(directory.path().join("run")).unwrap();
        assert!(matches!(first.look(), Fate::Renewed) && found());
        // Not if the directory cannot be made.
        fs::remove_dir_all(directory.path().join("run")).unwrap();
        fs::write(directory.path().join("run"), "").unwrap();
        assert!(matches!(first.look(), Fate::Unreachable(why) if why.contains("run")));
        fs::remove_file(directory.path().join("run")).unwrap();
        assert!(matches!(first.look(), Fate::Renewed) && found());
    }

    #[test]
    fn another_servers_place_is_left_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let place = at(directory.path().join("run/a.sock"));
        let mut first = Listener::new(&place).unwrap();
        fs::remove_file(place.socket()).unwrap();
        fs::remove_file(lock_path(place.socket())).unwrap();
        let mut second = Listener::new(&place).unwrap();
        assert!(matches!(first.look(), Fate::Lost));
        drop(first);
        assert!(matches!(second.look(), Fate::Kept) && place.socket().exists());
        // Also one that has not been looked after.
        let old = std::mem::replace(&mut second, {
            fs::remove_dir_all(directory.path().join("run")).unwrap();
            Listener::new(&place).unwrap()
        });
        drop(old);
        assert!(matches!(second.look(), Fate::Kept));
        // What lies there and is no socket is somebody's.
        fs::remove_file(place.socket()).unwrap();
        fs::write(place.socket(), "mine").unwrap();
        assert!(matches!(second.look(), Fate::Unreachable(_)));
        drop(second);
        assert_eq!(fs::read(place.socket()).unwrap(), b"mine");
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
            format!("belongs to user {}; a server's directory is its user's alone", metadata.uid())
        );
        let error = Listener::new(&at("/proc/nothing/a.sock".into())).unwrap_err();
        assert!(format!("{error:#}").contains("/proc/nothing"), "{error:#}");
        let long = directory.path().join("x".repeat(120));
        assert!(Listener::new(&at(long)).unwrap_err().to_string().contains("too long"));
    }
}
