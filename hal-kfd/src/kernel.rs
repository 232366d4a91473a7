//! The driver as something that executes ioctls, and the descriptor through which the real one is reached.

use std::ffi::{CStr, CString};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use hip_sys::kfd::Ioctl;

/// Where the device is.
const DEVICE: &CStr = c"/dev/kfd";

/// An errno of the driver's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// The last error of the calling thread.
    fn last() -> Self {
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
pub trait Kernel: Send + Sync + fmt::Debug {
    /// Executes `command` with this argument, which the driver may change. Returns what the call returns.
    ///
    /// # Errors
    /// The driver's errno. An interrupted call is repeated and never reported.
    fn execute(&self, command: u32, argument: &mut [u8]) -> Result<i32, Errno>;

    /// Where its devices are described; nowhere, if they are made up.
    fn sys(&self) -> Option<&Path> {
        Some(Path::new("/sys"))
    }
}

/// Typed calls.
pub trait KernelExt: Kernel {
    /// Executes the request that belongs to the argument.
    ///
    /// # Errors
    /// As [`Kernel::execute`].
    fn call<A: Ioctl>(&self, argument: &mut A) -> Result<i32, Errno> {
        let mut bytes = argument.as_bytes().to_vec();
        let result = self.execute(A::COMMAND, &mut bytes);
        *argument = A::from_bytes(&bytes);
        result
    }
}

impl<K: Kernel + ?Sized> KernelExt for K {}

/// The real driver, or a simulated one that stands in its place: a descriptor of `/dev/kfd`.
#[derive(Debug)]
pub struct Kfd {
    descriptor: OwnedFd,
}

/// What tells one file from another, however it was opened.
type Identity = (libc::dev_t, libc::ino_t, libc::dev_t, libc::mode_t);

fn identity(stat: &libc::stat) -> Identity {
    (stat.st_dev, stat.st_ino, stat.st_rdev, stat.st_mode & libc::S_IFMT)
}

fn device() -> Option<libc::stat> {
    // SAFETY: plain integers, for which zeros are valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a terminated path and a structure to be filled, both alive through the call.
    (unsafe { libc::stat(DEVICE.as_ptr(), &raw mut stat) } == 0).then_some(stat)
}

fn stat_of(fd: RawFd) -> Option<libc::stat> {
    // SAFETY: plain integers, for which zeros are valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a structure to be filled, alive through the call; any number may be asked about.
    (unsafe { libc::fstat(fd, &raw mut stat) } == 0).then_some(stat)
}

impl Kfd {
    /// Whether there is a driver at all.
    pub fn exists() -> bool {
        device().is_some()
    }

    /// Whether it is a simulated one: the real one is a character device, `gpu-sim`'s is a file.
    pub fn is_simulated() -> bool {
        device().is_some_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG)
    }

    /// Opens the device. In a process that has it open already this is the same context.
    ///
    /// # Errors
    /// There is none, or the process may not use it.
    pub fn open() -> io::Result<Self> {
        Self::open_c(DEVICE)
    }

    /// Opens the device where another root has it, for example a container's, to ask what it is.
    ///
    /// # Errors
    /// As [`Kfd::open`].
    pub fn open_at(path: &Path) -> io::Result<Self> {
        Self::open_c(&CString::new(path.as_os_str().as_bytes())?)
    }

    fn open_c(path: &CStr) -> io::Result<Self> {
        // SAFETY: a terminated path.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else knows the number.
        Ok(Self { descriptor: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// A number of the device that this is: of the driver itself where it is a device file, which containers have copies of, and of
    /// one simulation where it is a simulated one. Nothing if the kernel does not say.
    pub(crate) fn device(&self) -> Option<u64> {
        let stat = stat_of(self.descriptor.as_raw_fd())?;
        Some(if stat.st_mode & libc::S_IFMT == libc::S_IFREG { stat.st_dev } else { stat.st_rdev })
    }

    /// Whether `fd` is the same device as this one, known by what it is, wherever it was opened.
    pub fn is_same(&self, fd: RawFd) -> bool {
        let own = stat_of(self.descriptor.as_raw_fd());
        own.is_some_and(|own| stat_of(fd).is_some_and(|other| identity(&own) == identity(&other)))
    }

    /// A duplicate of `fd` if that is the KFD, known by what it is: the type byte of its ioctls is the console's as well. The
    /// duplicate belongs to the same context (from ABI 1.19 on a process can have several), and stays when the program
    /// closes its own.
    pub fn recognise(fd: RawFd) -> Option<Self> {
        let (stat, device) = (stat_of(fd)?, device()?);
        if identity(&stat) != identity(&device) {
            return None;
        }
        // SAFETY: any number may be duplicated.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest_number()) };
        // SAFETY: just made, and nobody else knows the number.
        (copy >= 0).then(|| Self { descriptor: unsafe { OwnedFd::from_raw_fd(copy) } })
    }
}

/// The lowest number for a descriptor of ours in a process of somebody else's: programs count on the low ones, and close
/// some that they do not know. 700, or three quarters of what the process may have.
pub fn lowest_number() -> RawFd {
    const LOWEST: u64 = 700;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills the structure that it is given.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    RawFd::try_from(LOWEST.min(limit.rlim_cur - limit.rlim_cur / 4)).unwrap_or(0).max(3)
}

/// A descriptor of the KFD that belongs to the program: its own way to the driver.
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
            // Not by libc's function, which may be our own: this is called from inside it.
            // SAFETY: the driver reads and writes as many bytes as the command says, and there are.
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
    fn a_descriptor_is_known_by_what_it_is() {
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
