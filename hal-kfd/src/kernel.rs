//! Execution of the driver's ioctls, and the descriptor of the real driver.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use hip_sys::kfd::Ioctl;

/// The path of the device.
const DEVICE: &str = "/dev/kfd";

/// An error number of the driver.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// Returns the last error of the calling thread.
    pub(crate) fn last() -> Self {
        Self(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({self})")
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

/// Executes ioctls of the KFD.
///
/// [`Kfd`] is the real driver. A test can put its own in place:
///
/// ```
/// use hal_kfd::{Errno, Kernel, KernelExt};
/// use hip_sys::kfd::{GetVersion, Ioctl, Plain};
///
/// /// A driver that knows one request.
/// #[derive(Debug)]
/// struct OnlyVersion;
///
/// impl Kernel for OnlyVersion {
///     fn execute(&self, command: u32, argument: &mut [u8]) -> Result<i32, Errno> {
///         if command != GetVersion::COMMAND {
///             return Err(Errno(libc::ENOTTY));
///         }
///         let version = GetVersion { major: 1, minor: 14 };
///         argument.copy_from_slice(version.as_bytes());
///         Ok(0)
///     }
/// }
///
/// let mut version = GetVersion::default();
/// assert!(OnlyVersion.call(&mut version).is_ok());
/// assert_eq!((version.major, version.minor), (1, 14));
/// ```
pub trait Kernel: Send + Sync + fmt::Debug {
    /// Executes `command` with this argument, which the driver may change. Returns the result of the call.
    ///
    /// # Errors
    /// The driver's errno. An interrupted call is repeated and never reported.
    fn execute(&self, command: u32, argument: &mut [u8]) -> Result<i32, Errno>;

    /// Returns the folder that describes the devices; `None` for a made-up driver.
    fn sys(&self) -> Option<&Path> {
        Some(Path::new("/sys"))
    }
}

/// Typed calls.
pub trait KernelExt: Kernel {
    /// Executes the request that belongs to the argument.
    ///
    /// # Errors
    /// The same as for [`Kernel::execute`].
    fn call<A: Ioctl>(&self, argument: &mut A) -> Result<i32, Errno> {
        let mut bytes = argument.as_bytes().to_vec();
        let result = self.execute(A::COMMAND, &mut bytes);
        *argument = A::from_bytes(&bytes);
        result
    }
}

impl<K: Kernel + ?Sized> KernelExt for K {}

/// A descriptor of `/dev/kfd`: the real driver, or a simulated one in its place.
#[derive(Debug)]
pub struct Kfd {
    descriptor: OwnedFd,
}

/// The identity of a file, independent of its descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    file_system: u64,
    inode: u64,
    device: u64,
    is_regular: bool,
}

impl Identity {
    fn new(file_system: u64, inode: u64, device: u64, mode: u32) -> Self {
        Self { file_system, inode, device, is_regular: mode & libc::S_IFMT == libc::S_IFREG }
    }

    /// Returns the identity of the device's path.
    fn of_device() -> Option<Self> {
        let file = fs::metadata(DEVICE).ok()?;
        Some(Self::new(file.dev(), file.ino(), file.rdev(), file.mode()))
    }

    fn of(fd: RawFd) -> Option<Self> {
        // SAFETY: `stat` consists of integers, for which zeros are valid.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the call fills `stat`, which outlives it. It fails if `fd` is not open.
        let done = unsafe { libc::fstat(fd, &raw mut stat) } == 0;
        done.then(|| Self::new(stat.st_dev, stat.st_ino, stat.st_rdev, stat.st_mode))
    }
}

impl Kfd {
    /// Returns true if there is a driver.
    pub fn exists() -> bool {
        Identity::of_device().is_some()
    }

    /// Returns true if the driver is simulated: the real device is a character device, that of `gpu-sim` is a
    /// file.
    pub fn is_simulated() -> bool {
        Identity::of_device().is_some_and(|file| file.is_regular)
    }

    /// Opens the device. In a process that has it open already this is the same context.
    ///
    /// # Errors
    /// There is no device, or the process may not use it.
    pub fn open() -> io::Result<Self> {
        Self::open_at(Path::new(DEVICE))
    }

    /// Opens the device below another root, for example that of a container, to identify it.
    ///
    /// # Errors
    /// The same as for [`Kfd::open`].
    pub fn open_at(path: &Path) -> io::Result<Self> {
        Ok(Self { descriptor: File::options().read(true).write(true).open(path)?.into() })
    }

    /// Returns a number that identifies the driver: the device number of a device file, which is the same for
    /// the copies in containers, or the file system of a simulated device. `None` if the kernel does not
    /// report it.
    pub(crate) fn device(&self) -> Option<u64> {
        let own = Identity::of(self.descriptor.as_raw_fd())?;
        Some(if own.is_regular { own.file_system } else { own.device })
    }

    /// Returns true if `fd` refers to the same device file as this one.
    pub fn is_same(&self, fd: RawFd) -> bool {
        let own = Identity::of(self.descriptor.as_raw_fd());
        own.is_some() && own == Identity::of(fd)
    }

    /// Returns a duplicate of `fd` if that is the KFD. The file decides, because consoles use the type byte
    /// of its ioctls as well. The duplicate belongs to the same context (from ABI 1.19 on a process can have
    /// several), and stays open when the program closes its own.
    pub fn recognise(fd: RawFd) -> Option<Self> {
        if Identity::of(fd)? != Identity::of_device()? {
            return None;
        }
        // SAFETY: the call takes numbers only. It fails if `fd` is not open.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest_number()) };
        // SAFETY: the call above has just made this descriptor, and nothing else refers to it.
        (copy >= 0).then(|| Self { descriptor: unsafe { OwnedFd::from_raw_fd(copy) } })
    }
}

/// Returns the lowest number for a descriptor of the library in a user's program: 700, or three quarters of
/// the process's limit. Programs expect the low numbers to be free, and some close low descriptors that they
/// did not open.
pub fn lowest_number() -> RawFd {
    const LOWEST: u64 = 700;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure, which outlives it.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    RawFd::try_from(LOWEST.min(limit.rlim_cur - limit.rlim_cur / 4)).unwrap_or(0).max(3)
}

/// The descriptor of the KFD that the program opened.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor(pub RawFd);

impl Kernel for Kfd {
    fn execute(&self, command: u32, argument: &mut [u8]) -> Result<i32, Errno> {
        Descriptor(self.descriptor.as_raw_fd()).execute(command, argument)
    }
}

impl Kernel for Descriptor {
    fn execute(&self, command: u32, argument: &mut [u8]) -> Result<i32, Errno> {
        let size = (command >> 16 & 0x3fff) as usize;
        if argument.len() < size {
            return Err(Errno(libc::EINVAL));
        }
        loop {
            // A system call, because libc's `ioctl` may be the interposed one, which calls this function.
            // SAFETY: the driver reads and writes as many bytes as `command` says, and `argument` is at least
            // as long.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_ioctl,
                    libc::c_long::from(self.0),
                    libc::c_ulong::from(command),
                    argument.as_mut_ptr(),
                )
            };
            if result >= 0 {
                return Ok(result as i32);
            }
            let errno = Errno::last();
            if errno != Errno(libc::EINTR) {
                return Err(errno);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_of_another_file_is_not_recognised() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(Kfd::recognise(null.as_raw_fd()).is_none());
        assert!(Kfd::recognise(-1).is_none());
        if let Ok(kfd) = Kfd::open() {
            let copy = Kfd::recognise(kfd.descriptor.as_raw_fd()).expect("the device itself");
            assert_ne!(copy.descriptor.as_raw_fd(), kfd.descriptor.as_raw_fd());
            assert!(copy.is_same(kfd.descriptor.as_raw_fd()) && !copy.is_same(null.as_raw_fd()));
        }
    }

    #[test]
    fn a_short_argument_is_refused() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let kfd = Kfd { descriptor: null.into() };
        let mut version = hip_sys::kfd::GetVersion::default();
        assert_eq!(kfd.call(&mut version), Err(Errno(libc::ENOTTY)), "that is passed on");
        let command = hip_sys::kfd::GetVersion::COMMAND;
        assert_eq!(kfd.execute(command, &mut [0; 7]), Err(Errno(libc::EINVAL)));
    }
}
