//! The endpoint of a server: its directory, the lock that makes it the only server, and its socket.

use anyhow::{Context, Result, bail, ensure};
use protocol::socket::{SYSTEM_SOCKET, default_path, directory_fault, is_instance, private_directories};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The endpoint of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    socket: PathBuf,
    /// The number of directories above the socket that must belong to this user and be closed to others.
    private: usize,
    /// The permissions of the socket's file, and of a directory that is created for it.
    modes: (u32, u32),
}

/// The permissions of what only its user may reach.
const PRIVATE: (u32, u32) = (0o600, 0o700);
/// The permissions of the directory of a socket for all users.
const OPEN_DIRECTORY: u32 = 0o755;

impl Endpoint {
    /// The endpoint of an instance, unless `XSCHED_SOCKET` specifies another socket.
    ///
    /// # Errors
    /// The name of the instance is invalid.
    pub fn new(instance: &OsStr, socket: Option<PathBuf>) -> Result<Self> {
        ensure!(
            is_instance(instance),
            "{instance:?} is not the name of an instance: use 1 to 32 letters, digits, '-' and '_'"
        );
        let uid = rustix::process::geteuid().as_raw();
        let default = || default_path(uid, &instance.to_string_lossy(), Path::is_dir);
        let socket = std::path::absolute(socket.unwrap_or_else(default))?;
        let private = private_directories(uid, &socket);
        Ok(Self { socket, private, modes: PRIVATE })
    }

    /// The endpoint of the server for all users, unless `XSCHED_SOCKET` specifies another socket.
    ///
    /// # Errors
    /// The current directory is unknown.
    pub fn of_system(socket: Option<PathBuf>) -> Result<Self> {
        let socket = std::path::absolute(socket.unwrap_or_else(|| SYSTEM_SOCKET.into()))?;
        Ok(Self::open(socket, 0o666))
    }

    /// A socket with these permissions.
    pub(crate) fn open(socket: PathBuf, mode: u32) -> Self {
        Self { socket, private: 0, modes: (mode, OPEN_DIRECTORY) }
    }

    /// The socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

/// An endpoint in use, until this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    pub socket: OwnedFd,
    /// The path, for the rules about connections.
    pub path: Arc<Path>,
    endpoint: Endpoint,
    /// What this process has made; none if the service manager has made the socket.
    made: Option<Made>,
}

/// The files of a socket.
#[derive(Debug)]
struct Made {
    /// The identity of the socket's file.
    file: Identity,
    /// The process that holds this lock is the server. The file is never removed, because a lock on a removed
    /// file protects nothing.
    lock: File,
}

/// The identity of a file: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    number: u64,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), number: metadata.ino() }
    }

    /// The identity of the file at a path, if there is one.
    fn at(path: &Path) -> std::io::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(Self::of(&metadata))),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[derive(Debug)]
pub(crate) enum EndpointStatus {
    /// Clients can connect.
    Kept,
    /// The socket was missing or replaced, and has been created again.
    Renewed,
    /// Another server uses the endpoint.
    Lost,
    /// Clients cannot connect, for this reason.
    Unreachable(String),
}

impl Listener {
    /// Starts to listen, and replaces the socket of a dead server.
    ///
    /// # Errors
    /// Another server uses the endpoint, or it cannot be created.
    pub fn new(endpoint: &Endpoint) -> Result<Self> {
        address(&endpoint.socket)?;
        make_directories(endpoint)?;
        let lock = take_lock(&endpoint.socket)?;
        remove_stale(&endpoint.socket)?;
        let (socket, file) = bind(endpoint)?;
        let (path, made) = (endpoint.socket.as_path().into(), Some(Made { file, lock }));
        Ok(Self { socket, path, endpoint: endpoint.clone(), made })
    }

    /// Takes a socket that the service manager has created and listens on. Clients see the credentials of the process that
    /// called `listen` (`init_peercred`, net/unix/af_unix.c), so this process must not call it again.
    ///
    /// # Errors
    /// The descriptor is not a listening Unix socket with a path.
    pub fn adopt(socket: OwnedFd) -> Result<Self> {
        let address = rustix::net::getsockname(&socket).context("the descriptor is not a socket")?;
        let address = SocketAddrUnix::try_from(address).ok();
        let path = address.as_ref().and_then(SocketAddrUnix::path_bytes).map(OsStr::from_bytes);
        let path = PathBuf::from(path.context("the descriptor is not a Unix socket with a path")?);
        ensure!(
            rustix::net::sockopt::socket_acceptconn(&socket).unwrap_or(false),
            "nothing listens on {}",
            path.display()
        );
        rustix::io::ioctl_fionbio(&socket, true)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        let endpoint = Endpoint::open(path.clone(), 0);
        Ok(Self { socket, path: path.into(), endpoint, made: None })
    }

    /// Checks that clients can connect, and creates missing files again, unless another server uses the
    /// endpoint. After [`EndpointStatus::Renewed`] the socket is a new one.
    pub fn check(&mut self) -> EndpointStatus {
        let path = self.endpoint.socket.clone();
        let Some(made) = &mut self.made else {
            return match fs::symlink_metadata(&path) {
                Ok(found) if found.file_type().is_socket() => EndpointStatus::Kept,
                _ => EndpointStatus::Unreachable(format!(
                    "{} is gone: restart its socket unit",
                    path.display()
                )),
            };
        };
        let unreachable = |error: anyhow::Error| EndpointStatus::Unreachable(format!("{error:#}"));
        match (made.has_lock(&path), Identity::at(&path)) {
            (Ok(true), Ok(found)) if found == Some(made.file) => return EndpointStatus::Kept,
            (Err(error), _) | (_, Err(error)) => return unreachable(error.into()),
            (Ok(true), Ok(_)) => {}
            (Ok(false), Ok(_)) => {
                // Without the lock file another server may have started: take the lock again.
                let taken = make_directories(&self.endpoint).and_then(|()| take_lock(&path));
                match taken {
                    Ok(lock) => made.lock = lock,
                    Err(error) if error.is::<Taken>() => return EndpointStatus::Lost,
                    Err(error) => return unreachable(error),
                }
                if Identity::at(&path).is_ok_and(|found| found == Some(made.file)) {
                    return EndpointStatus::Kept;
                }
            }
        }
        match remove_stale(&path).and_then(|()| bind(&self.endpoint)) {
            Ok((socket, file)) => {
                (self.socket, made.file) = (socket, file);
                EndpointStatus::Renewed
            }
            Err(error) => unreachable(error),
        }
    }
}

impl Made {
    /// Returns true if the lock that this server holds is still the file beside the socket.
    fn has_lock(&self, socket: &Path) -> std::io::Result<bool> {
        let own = Identity::of(&self.lock.metadata()?);
        Ok(Identity::at(&lock_path(socket))? == Some(own))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(made) = &self.made else { return };
        // If another server has the lock at this path, the socket is not ours.
        let is_ours = |path: &Path| Identity::at(path).is_ok_and(|found| found == Some(made.file));
        if made.has_lock(&self.endpoint.socket).unwrap_or(false) && is_ours(&self.endpoint.socket) {
            let _ = fs::remove_file(&self.endpoint.socket);
        }
    }
}

fn address(path: &Path) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).with_context(|| format!("the path {} is too long for a socket", path.display()))
}

/// Listens at a free path. Returns the socket and the identity of its file.
fn bind(endpoint: &Endpoint) -> Result<(OwnedFd, Identity)> {
    let Endpoint { socket: path, modes: (mode, _), .. } = endpoint;
    let address = address(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The socket file is created with this mode (less the umask).
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(*mode & PRIVATE.0))?;
    let made = || format!("cannot create the socket {}", path.display());
    rustix::net::bind(&socket, &address).with_context(made)?;
    let file = Identity::at(path).with_context(made)?.with_context(made)?;
    if mode & !PRIVATE.0 != 0 {
        open_to_others(path, *mode).with_context(made)?;
    }
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((socket, file))
}

/// Gives the file of a socket its permissions, whatever the umask is. If somebody else can write to the directory, another
/// file may be there by now: a link is not followed, and only a socket is changed.
fn open_to_others(path: &Path, mode: u32) -> std::io::Result<()> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if kind != rustix::fs::FileType::Socket {
        return Err(ErrorKind::InvalidInput.into());
    }
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::set_permissions(link, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

fn make_directories(endpoint: &Endpoint) -> Result<()> {
    let parents: Vec<_> = endpoint.socket.ancestors().skip(1).filter(|path| *path != Path::new("")).collect();
    if let Some(directory) = parents.first() {
        let made = DirBuilder::new().recursive(true).mode(endpoint.modes.1).create(directory);
        made.with_context(|| format!("cannot create the directory {}", directory.display()))?;
    }
    for directory in parents.into_iter().take(endpoint.private) {
        let metadata = fs::symlink_metadata(directory)
            .with_context(|| format!("cannot look at {}", directory.display()))?;
        if let Some(fault) = directory_fault(&metadata, rustix::process::geteuid().as_raw()) {
            bail!("{} {fault}", directory.display());
        }
    }
    Ok(())
}

/// The error that another server uses the endpoint.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Taken(String);

fn lock_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

fn take_lock(socket: &Path) -> Result<File> {
    let path = lock_path(socket);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    loop {
        let lock = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
            .with_context(|| format!("cannot create the lock {}", path.display()))?;
        let mut lock = File::from(lock);
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                // For the message only. The holder may not have written its number yet.
                let _ = (&lock).take(20).read_to_string(&mut pid);
                let pid = pid.trim();
                let process = if pid.is_empty() { String::new() } else { format!(" (process {pid})") };
                let text = format!("another xserver already listens on {}{process}", socket.display());
                return Err(Taken(text).into());
            }
            Err(error) => return Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
        // The file may have been removed since it was opened; then the lock protects nothing.
        let own = Identity::of(&lock.metadata()?);
        if Identity::at(&path).is_ok_and(|found| found == Some(own)) {
            // For messages only: an error does not matter.
            let _ = lock.set_len(0).and_then(|()| lock.rewind());
            let _ = writeln!(lock, "{}", std::process::id());
            return Ok(lock);
        }
    }
}

/// Removes the socket of a dead server. Only the holder of the lock may do so.
fn remove_stale(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", path.display())),
        Ok(metadata) if metadata.file_type().is_socket() => {
            fs::remove_file(path).with_context(|| format!("cannot remove the old socket {}", path.display()))
        }
        Ok(_) => bail!("{} exists and is not a socket: remove it, or choose another path", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn at(path: PathBuf) -> Endpoint {
        Endpoint { socket: path, private: 1, modes: PRIVATE }
    }

    #[test]
    fn instance_has_a_default_socket() {
        let endpoint = Endpoint::new("50000".as_ref(), None).unwrap();
        assert!(endpoint.socket().ends_with("xsched/50000.sock"));
        assert!(endpoint.private >= 1);
        let other = Endpoint::new("50000".as_ref(), Some("/x/y".into())).unwrap();
        assert_eq!((other.socket(), other.private), (Path::new("/x/y"), 0));
        let error = Endpoint::new("../x".as_ref(), None).unwrap_err().to_string();
        assert!(error.contains("is not the name of an instance"), "{error}");
    }

    #[test]
    fn endpoint_has_one_server() {
        let directory = tempfile::tempdir().unwrap();
        let endpoint = at(directory.path().join("run/a.sock"));
        let first = Listener::new(&endpoint).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(endpoint.socket()), 0o600);
        assert_eq!(mode(endpoint.socket().parent().unwrap()), 0o700);
        let error = Listener::new(&endpoint).unwrap_err().to_string();
        assert!(
            error.contains("already listens on") && error.contains(&std::process::id().to_string()),
            "{error}"
        );
        drop(first);
        assert!(!endpoint.socket().exists());
        drop(Listener::new(&endpoint).unwrap());
    }

    #[test]
    fn socket_for_all_users_has_its_permissions_whatever_the_umask() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("run/all.sock");
        let listener = Listener::new(&Endpoint::open(socket.clone(), 0o666)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&socket), mode(socket.parent().unwrap()) & 0o700), (0o666, 0o700));
        drop(listener);
        // A link in place of the socket is not followed.
        let (victim, link) = (directory.path().join("victim"), directory.path().join("link"));
        fs::write(&victim, "").unwrap();
        fs::set_permissions(&victim, PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        assert!(open_to_others(&link, 0o666).is_err() && open_to_others(&victim, 0o666).is_err());
        assert_eq!(mode(&victim), 0o600);
        let narrow = directory.path().join("run/narrow.sock");
        let _listener = Listener::new(&Endpoint::open(narrow.clone(), 0o400)).unwrap();
        assert_eq!(mode(&narrow), 0o400);
    }

    #[test]
    fn socket_of_the_service_manager_is_taken_and_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let made = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mut listener = Listener::adopt(made.into()).unwrap();
        assert_eq!(*listener.path, *path);
        assert!(matches!(listener.check(), EndpointStatus::Kept));
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        fs::remove_file(&path).unwrap();
        assert!(matches!(listener.check(), EndpointStatus::Unreachable(why) if why.contains("is gone")));
        fs::write(&path, "mine").unwrap();
        drop(listener);
        assert!(path.exists());
        let (one, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Listener::adopt(one.into()).is_err());
        assert!(Listener::adopt(fs::File::open("/dev/null").unwrap().into()).is_err());
    }

    #[test]
    fn default_endpoint_is_private_even_if_specified() {
        let uid = rustix::process::geteuid().as_raw();
        let default = Endpoint::new("a".as_ref(), None).unwrap();
        assert_eq!(Endpoint::new("50000".as_ref(), Some(default.socket.clone())).unwrap(), default);
        assert_eq!(default.private, private_directories(uid, default.socket()));
    }

    #[test]
    fn missing_files_are_created_again() {
        let directory = tempfile::tempdir().unwrap();
        let endpoint = at(directory.path().join("run/a.sock"));
        let found = || std::os::unix::net::UnixStream::connect(endpoint.socket()).is_ok();
        let mut first = Listener::new(&endpoint).unwrap();
        assert!(matches!(first.check(), EndpointStatus::Kept));
        fs::remove_file(endpoint.socket()).unwrap();
        assert!(matches!(first.check(), EndpointStatus::Renewed) && found());
        fs::remove_file(lock_path(endpoint.socket())).unwrap();
        assert!(matches!(first.check(), EndpointStatus::Kept) && found());
        assert!(Listener::new(&endpoint).unwrap_err().is::<Taken>(), "the lock is held again");
        fs::remove_dir_all(directory.path().join("run")).unwrap();
        assert!(matches!(first.check(), EndpointStatus::Renewed) && found());
        // A file in place of the directory.
        fs::remove_dir_all(directory.path().join("run")).unwrap();
        fs::write(directory.path().join("run"), "").unwrap();
        assert!(matches!(first.check(), EndpointStatus::Unreachable(why) if why.contains("run")));
        fs::remove_file(directory.path().join("run")).unwrap();
        assert!(matches!(first.check(), EndpointStatus::Renewed) && found());
    }

    #[test]
    fn endpoint_of_another_server_is_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        let endpoint = at(directory.path().join("run/a.sock"));
        let mut first = Listener::new(&endpoint).unwrap();
        fs::remove_file(endpoint.socket()).unwrap();
        fs::remove_file(lock_path(endpoint.socket())).unwrap();
        let mut second = Listener::new(&endpoint).unwrap();
        assert!(matches!(first.check(), EndpointStatus::Lost));
        drop(first);
        assert!(matches!(second.check(), EndpointStatus::Kept) && endpoint.socket().exists());
        // Also without a check before.
        let old = std::mem::replace(&mut second, {
            fs::remove_dir_all(directory.path().join("run")).unwrap();
            Listener::new(&endpoint).unwrap()
        });
        drop(old);
        assert!(matches!(second.check(), EndpointStatus::Kept));
        // A file that is not a socket is not touched.
        fs::remove_file(endpoint.socket()).unwrap();
        fs::write(endpoint.socket(), "mine").unwrap();
        assert!(matches!(second.check(), EndpointStatus::Unreachable(_)));
        drop(second);
        assert_eq!(fs::read(endpoint.socket()).unwrap(), b"mine");
    }

    #[test]
    fn only_the_socket_of_a_dead_server_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let endpoint = Endpoint { socket: directory.path().join("a.sock"), private: 0, modes: PRIVATE };
        drop(std::os::unix::net::UnixListener::bind(endpoint.socket()).unwrap());
        assert!(endpoint.socket().exists());
        drop(Listener::new(&endpoint).unwrap());
        fs::write(endpoint.socket(), "mine").unwrap();
        let error = Listener::new(&endpoint).unwrap_err().to_string();
        assert!(error.contains("is not a socket"), "{error}");
        assert_eq!(fs::read(endpoint.socket()).unwrap(), b"mine");
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
            directory_fault(&metadata, metadata.uid() + 1).unwrap(),
            format!("belongs to user {}; a server's directory is its user's alone", metadata.uid())
        );
        let error = Listener::new(&at("/proc/nothing/a.sock".into())).unwrap_err();
        assert!(format!("{error:#}").contains("/proc/nothing"), "{error:#}");
        let long = directory.path().join("x".repeat(120));
        assert!(Listener::new(&at(long)).unwrap_err().to_string().contains("too long"));
    }
}
