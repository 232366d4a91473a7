//! Files as another process sees them, which may have put anything there: a link, a FIFO, a device, a file of somebody else's that
//! was mounted over another one, a file system that never answers.
//!
//! Nothing but regular files and folders is opened, by paths without links; of a file no more than [`LONGEST`] bytes is read. Root
//! looks with the rights of the process's user, so that nothing is shown that the process could not read, and nobody waits for
//! longer than [`LIMIT`].

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

/// Nobody needs so long, but for a file system that does not answer.
const LIMIT: Duration = Duration::from_secs(5);
/// What the driver writes into a file of sysfs is a page at most.
const LONGEST: u64 = 64 * 1024;
/// Names of a folder.
const NAMES: usize = 65_536;
/// Where a class's link leads to in sysfs (`kfd_chardev.c`).
const LINKED: (&str, &str) = ("sys/class/kfd/kfd", "sys/devices/virtual/kfd/kfd");
/// `FUSE_SUPER_MAGIC` of fs/fuse/inode.c: a simulated device is a file there.
const FUSE: i64 = 0x6573_5546;

/// The root directory of a process.
#[derive(Debug)]
pub struct Root {
    folder: OwnedFd,
}

/// Does `work` with what a process sees.
///
/// # Errors
/// Its root directory cannot be entered, or what it sees does not answer.
pub fn look<T: Send + 'static>(pid: u32, work: impl FnOnce(&Root) -> T + Send + 'static) -> io::Result<T> {
    let root = Root::of(pid)?;
    let status = Status::read(pid)?;
    within(move || {
        if rustix::process::geteuid().is_root() {
            have_the_rights_of(&status)?;
        }
        Ok(work(&root))
    })
}

/// The KFD as a process sees it, and whether that is a simulated one.
///
/// # Errors
/// Its root directory cannot be entered (the outer one); there is none, it is something else, or may not be opened.
pub fn kfd(pid: u32) -> io::Result<io::Result<(Kfd, bool)>> {
    let root = Root::of(pid)?;
    let opened = within(move || {
        let device = root.find(Path::new("dev/kfd"))?;
        let about = fstat(&device)?;
        let simulated = match FileType::from_raw_mode(about.st_mode) {
            FileType::CharacterDevice if is_kfd(about.st_rdev) => false,
            // Whoever is not root cannot have made a file system with a file of root's.
            FileType::RegularFile if about.st_uid == 0 && rustix::fs::fstatfs(&device)?.f_type == FUSE => {
                true
            }
            _ => return Err(io::Error::new(ErrorKind::InvalidData, "what is there is no KFD")),
        };
        Ok((Kfd::open_at(&through(&device))?, simulated))
    });
    Ok(opened)
}

/// A descriptor's file, to be opened for more than a look.
fn through(descriptor: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

/// Whether a device is the driver's, by what the kernel has registered.
fn is_kfd(device: rustix::fs::Dev) -> bool {
    let devices = std::fs::read_to_string("/proc/devices").unwrap_or_default();
    let of_kfd = |line: &str| line.trim().strip_suffix(" kfd")?.parse::<u32>().ok();
    devices.lines().find_map(of_kfd) == Some(rustix::fs::major(device))
}

/// On a thread, which is left alone if it does not come back.
///
/// # Errors
/// The work's own, or it takes longer than [`LIMIT`].
pub fn within<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (tell, told) = sync_channel(1);
    Builder::new().name("foreign".to_owned()).spawn(move || drop(tell.send(work())))?;
    told.recv_timeout(LIMIT).unwrap_or_else(|error| {
        Err(match error {
            RecvTimeoutError::Timeout => ErrorKind::TimedOut.into(),
            RecvTimeoutError::Disconnected => io::Error::other("the thread that looks has ended"),
        })
    })
}

/// Gives up, for the calling thread alone, what the process's user has not: capabilities, groups, and root's files.
fn have_the_rights_of(status: &Status) -> io::Result<()> {
    /// `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h.
    const VERSION_3: u32 = 0x2008_0522;
    let file_system =
        |ids: &[u32]| ids.get(3).copied().ok_or_else(|| io::Error::from(ErrorKind::InvalidData));
    let (user, group) = (file_system(&status.uids)?, file_system(&status.gids)?);
    let none = [0_u32; 6];
    let header = [VERSION_3, 0];
    // The system calls themselves: the library's functions change all threads.
    // SAFETY: no group is read.
    checked(unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) })?;
    // SAFETY: takes a number. Returns the one before, also if it fails; the next one shows that.
    unsafe { libc::syscall(libc::SYS_setfsgid, group) };
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_setfsuid, user) };
    // SAFETY: as above: -1 is nobody, and changes nothing.
    let now = unsafe { libc::syscall(libc::SYS_setfsuid, -1) };
    if now != libc::c_long::from(user) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    // SAFETY: a header and two sets of three words, which live through the call.
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

    /// Finds what is at this path below the root, without opening it.
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

    /// The same; what is a link in sysfs is looked for where that leads to.
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
            return Err(io::Error::new(ErrorKind::InvalidData, "it is no regular file"));
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
