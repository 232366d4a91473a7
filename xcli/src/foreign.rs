//! Files as another process sees them. The process is not trusted: a path can lead to a link, a FIFO, a
//! device, a mounted file of another user, or a file system that never answers.
//!
//! Only regular files and folders are opened, by paths without links, and at most [`LONGEST`] bytes of a file
//! are read. Root reads with the rights of the process's user, so that xcli shows nothing that the process
//! could not read. Every access ends within [`LIMIT`].

use hal_kfd::Kfd;
use hal_kfd::topology::Files;
use host::process::Status;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

/// The time limit, in case a file system does not answer.
const LIMIT: Duration = Duration::from_secs(5);
/// The most bytes of a file that are read. A file of sysfs has at most one page.
const LONGEST: u64 = 64 * 1024;
/// The most names of a folder that are read.
const NAMES: usize = 65_536;
/// A link of sysfs and its target (`kfd_chardev.c`).
const LINKED: (&str, &str) = ("sys/class/kfd/kfd", "sys/devices/virtual/kfd/kfd");
/// `FUSE_SUPER_MAGIC` of fs/fuse/inode.c, the file system of a simulated device.
const FUSE: i64 = 0x6573_5546;

/// The root directory of a process.
#[derive(Debug)]
pub struct Root {
    folder: OwnedFd,
}

/// Runs `work` on the root directory of a process.
///
/// # Errors
/// The root directory cannot be entered, or its files do not answer.
pub fn look<T: Send + 'static>(pid: u32, work: impl FnOnce(&Root) -> T + Send + 'static) -> io::Result<T> {
    let root = Root::of(pid)?;
    let status = Status::read(pid)?;
    within(move || {
        if rustix::process::geteuid().is_root() {
            drop_rights_to(&status)?;
        }
        Ok(work(&root))
    })
}

/// Opens the KFD of a process. Returns true with it if it is simulated.
///
/// # Errors
/// Outer: the root directory cannot be entered. Inner: there is no KFD, or it cannot be opened.
pub fn kfd(pid: u32) -> io::Result<io::Result<(Kfd, bool)>> {
    let root = Root::of(pid)?;
    let opened = within(move || {
        let device = root.find(Path::new("dev/kfd"))?;
        let about = fstat(&device)?;
        let simulated = match FileType::from_raw_mode(about.st_mode) {
            FileType::CharacterDevice if is_kfd(about.st_rdev) => false,
            // Only root can mount a file system with a file that belongs to root.
            FileType::RegularFile if about.st_uid == 0 && rustix::fs::fstatfs(&device)?.f_type == FUSE => {
                true
            }
            _ => return Err(io::Error::new(ErrorKind::InvalidData, "the file is not a KFD")),
        };
        Ok((Kfd::open_at(&through(&device))?, simulated))
    });
    Ok(opened)
}

/// The path that reopens the file of an `O_PATH` descriptor.
fn through(descriptor: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

/// Returns true if the kernel has registered the device for the KFD driver.
fn is_kfd(device: rustix::fs::Dev) -> bool {
    let devices = std::fs::read_to_string("/proc/devices").unwrap_or_default();
    let of_kfd = |line: &str| line.trim().strip_suffix(" kfd")?.parse::<u32>().ok();
    devices.lines().find_map(of_kfd) == Some(rustix::fs::major(device))
}

/// Runs `work` on a thread, and abandons the thread after [`LIMIT`].
///
/// # Errors
/// `work` fails or takes too long.
pub fn within<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (sender, receiver) = sync_channel(1);
    Builder::new().name("foreign".to_owned()).spawn(move || drop(sender.send(work())))?;
    receiver.recv_timeout(LIMIT).unwrap_or_else(|error| {
        Err(match error {
            RecvTimeoutError::Timeout => ErrorKind::TimedOut.into(),
            RecvTimeoutError::Disconnected => io::Error::other("the thread that reads the files has ended"),
        })
    })
}

/// Drops rights of the calling thread that the process's user does not have: capabilities, groups, and access
/// to root's files.
fn drop_rights_to(status: &Status) -> io::Result<()> {
    /// `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h.
    const VERSION_3: u32 = 0x2008_0522;
    let file_system =
        |ids: &[u32]| ids.get(3).copied().ok_or_else(|| io::Error::from(ErrorKind::InvalidData));
    let (user, group) = (file_system(&status.uids)?, file_system(&status.gids)?);
    let none = [0_u32; 6];
    let header = [VERSION_3, 0];
    // Raw system calls, because the functions of the C library change all threads.
    // SAFETY: the kernel reads no group if the count is 0.
    checked(unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) })?;
    // Both calls return the old id even if they fail. Setting -1 fails, and so reads the id that is in force.
    // SAFETY: all three calls take integers only.
    let now = unsafe {
        libc::syscall(libc::SYS_setfsgid, group);
        libc::syscall(libc::SYS_setfsuid, user);
        libc::syscall(libc::SYS_setfsuid, -1)
    };
    if now != libc::c_long::from(user) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    // SAFETY: version 3 reads a header of two words and six words of data, which both live through the call.
    checked(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) })
}

fn checked(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Root {
    fn of(pid: u32) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { folder: openat(CWD, format!("/proc/{pid}/root"), flags, Mode::empty())? })
    }

    /// Finds a file below the root without opening it.
    fn find(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut here = openat(&self.folder, ".", flags, Mode::empty())?;
        for part in path.components() {
            let Component::Normal(name) = part else { return Err(ErrorKind::InvalidInput.into()) };
            here = openat(&here, name, flags, Mode::empty())?;
            if FileType::from_raw_mode(fstat(&here)?.st_mode) == FileType::Symlink {
                return Err(Errno::LOOP.into());
            }
        }
        Ok(here)
    }

    /// Finds a file below the root, and follows the known link of sysfs.
    fn find_linked(&self, path: &Path) -> io::Result<OwnedFd> {
        match (self.find(path), path.strip_prefix(LINKED.0)) {
            (Err(error), Ok(rest)) if error.raw_os_error() == Some(libc::ELOOP) => {
                self.find(&Path::new(LINKED.1).join(rest))
            }
            (found, _) => found,
        }
    }
}

impl Files for Root {
    fn text(&self, path: &Path) -> io::Result<String> {
        let found = self.find_linked(path)?;
        if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(ErrorKind::InvalidData, "it is not a regular file"));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, through(&found), flags, Mode::empty())?);
        let mut text = String::new();
        file.take(LONGEST).read_to_string(&mut text)?;
        Ok(text)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        let found = self.find_linked(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&found, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder)?.take(NAMES) {
            if let Ok(name) = entry?.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}
