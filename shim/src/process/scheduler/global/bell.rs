//! Descriptors in a process that belongs to somebody else: a program may close all it does not know, and use the numbers
//! again. So they lie at high numbers, and before one is used it is looked at whether it is still what it was.

use crate::errno;
use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// The lowest number for descriptors of the library's own, where the limit of the process allows it.
const LOWEST: u64 = 700;

/// What a number leads to, as far as it tells our files from the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    inode: u64,
    /// The type bits of its mode; none for an eventfd and its kin.
    kind: u32,
}

impl Identity {
    /// Nothing if the number leads nowhere.
    pub(super) fn of(number: c_int) -> Option<Self> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: fills the structure that it is given; a number that is no descriptor is an error, not undefined.
        if unsafe { libc::fstat(number, stat.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: the call succeeded, so it was filled.
        let stat = unsafe { stat.assume_init() };
        Some(Self { inode: stat.st_ino, kind: stat.st_mode & libc::S_IFMT })
    }
}

/// Moves a descriptor to a high number.
fn lift(file: &OwnedFd) -> io::Result<c_int> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills the structure that it is given.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let lowest = LOWEST.min(limit.rlim_cur - limit.rlim_cur / 4);
    let lowest = c_int::try_from(lowest).unwrap_or(0);
    // SAFETY: duplicates a descriptor that is open.
    let number = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) };
    if number < 0 { Err(io::Error::last_os_error()) } else { Ok(number) }
}

/// A file that only the agent uses.
#[derive(Debug)]
pub(super) struct Kept {
    number: c_int,
    identity: Identity,
}

impl Kept {
    /// Moves it to a high number.
    pub(super) fn new(file: OwnedFd) -> io::Result<Self> {
        let number = lift(&file)?;
        let identity = Identity::of(number).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { number, identity })
    }

    /// The number, if it still leads to the file.
    pub(super) fn number(&self) -> Option<c_int> {
        (Identity::of(self.number) == Some(self.identity)).then_some(self.number)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(number) = self.number() {
            // SAFETY: it is still ours, and nothing else knows it.
            unsafe { libc::close(number) };
        }
    }
}

/// An eventfd that any thread may write. Its number, once it has one, is never closed here: a thread that is about to
/// write must not meet somebody else's file.
#[derive(Debug)]
pub(crate) struct Bell {
    /// -1 as long as there is none.
    number: AtomicI32,
    inode: AtomicU64,
    muted: AtomicBool,
    lost: AtomicBool,
}

impl Bell {
    pub(in super::super) fn new() -> Self {
        Self {
            number: AtomicI32::new(-1),
            inode: AtomicU64::new(0),
            muted: AtomicBool::new(true),
            lost: AtomicBool::new(false),
        }
    }

    /// Takes this eventfd from now on. One thread at a time.
    pub(super) fn hang(&self, eventfd: &OwnedFd) -> io::Result<()> {
        self.mute();
        let unusable = || io::Error::from(io::ErrorKind::InvalidData);
        let identity =
            Identity::of(eventfd.as_raw_fd()).filter(|found| found.kind == 0).ok_or_else(unusable)?;
        let number = self.number.load(Ordering::Acquire);
        if self.is_ours(number) {
            // SAFETY: the number is ours; from now on it leads to the new file.
            if unsafe { libc::dup3(eventfd.as_raw_fd(), number, libc::O_CLOEXEC) } < 0 {
                return Err(io::Error::last_os_error());
            }
        } else {
            self.number.store(lift(eventfd)?, Ordering::Release);
        }
        self.inode.store(identity.inode, Ordering::Release);
        self.lost.store(false, Ordering::Release);
        self.muted.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Makes an eventfd of the process's own, if there is none, or if the program has closed it.
    /// True: it is new.
    pub(super) fn provide(&self) -> io::Result<(c_int, bool)> {
        let number = self.number.load(Ordering::Acquire);
        if !self.is_muted() && self.is_ours(number) {
            return Ok((number, false));
        }
        // SAFETY: makes a new descriptor.
        let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made above, and known to nobody else.
        self.hang(&unsafe { OwnedFd::from_raw_fd(made) })?;
        Ok((self.number.load(Ordering::Acquire), true))
    }

    /// Nobody is at its end any more.
    pub(super) fn mute(&self) {
        self.muted.store(true, Ordering::SeqCst);
    }

    /// Whether ringing would do nothing.
    pub(in super::super) fn is_muted(&self) -> bool {
        self.muted.load(Ordering::Acquire)
    }

    /// Whether the program has closed it.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The program's inodes may be the same only if its file is of the same kin, and then at worst somebody of the
    /// program is woken in vain: all of that kin share one inode.
    fn is_ours(&self, number: c_int) -> bool {
        let ours = Identity { inode: self.inode.load(Ordering::Acquire), kind: 0 };
        number >= 0 && Identity::of(number) == Some(ours)
    }

    /// Wakes whoever is at its end. Leaves errno alone, and never blocks.
    #[cold]
    pub(in super::super) fn ring(&self) {
        if self.is_muted() {
            return;
        }
        errno::kept(|| {
            let number = self.number.load(Ordering::Acquire);
            if !self.is_ours(number) {
                self.lost.store(true, Ordering::Release);
                self.mute();
                return;
            }
            let one = 1_u64.to_ne_bytes();
            // SAFETY: pointer and length are those of the array. If it cannot be written it is full, which wakes as well.
            unsafe { libc::write(number, one.as_ptr().cast(), one.len()) };
        });
    }

    /// Takes back all rings so far.
    pub(super) fn answer(&self) {
        let number = self.number.load(Ordering::Acquire);
        if self.is_ours(number) {
            let mut count = [0_u8; 8];
            // SAFETY: pointer and length are those of the array; it does not block.
            unsafe { libc::read(number, count.as_mut_ptr().cast(), count.len()) };
        }
    }
}
