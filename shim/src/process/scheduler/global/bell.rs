//! The descriptors by which a client and its server reach each other (see [`crate::descriptor`]).

pub(super) use crate::descriptor::Identity;
use crate::descriptor::lift;
use crate::errno;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The mark on an eventfd of ours. All eventfds of a machine share one inode, so they are told apart by what is kept with the
/// open file itself: the signal for its owner (`F_SETSIG`), which is never sent, because nobody asks for signals (`O_ASYNC`).
const MARK: c_int = 64;
/// Of asm-generic/fcntl.h.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;

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
    muted: AtomicBool,
    lost: AtomicBool,
}

impl Bell {
    pub(in super::super) fn new() -> Self {
        Self { number: AtomicI32::new(-1), muted: AtomicBool::new(true), lost: AtomicBool::new(false) }
    }

    /// Takes this eventfd from now on. One thread at a time.
    pub(super) fn hang(&self, eventfd: &OwnedFd) -> io::Result<()> {
        self.mute();
        let unusable = || io::Error::from(io::ErrorKind::InvalidData);
        Identity::of(eventfd.as_raw_fd()).filter(|found| found.kind == 0).ok_or_else(unusable)?;
        // SAFETY: takes numbers; no signal is ever sent for this file.
        if unsafe { libc::fcntl(eventfd.as_raw_fd(), F_SETSIG, MARK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let number = self.number.load(Ordering::Acquire);
        if self.is_ours(number) {
            // SAFETY: the number is ours; from now on it leads to the new file.
            if unsafe { libc::dup3(eventfd.as_raw_fd(), number, libc::O_CLOEXEC) } < 0 {
                return Err(io::Error::last_os_error());
            }
        } else {
            self.number.store(lift(eventfd)?, Ordering::Release);
        }
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

    /// Whether the number still leads to an eventfd with our mark.
    fn is_ours(&self, number: c_int) -> bool {
        // SAFETY: asks for a number; one that is no descriptor is an error, not undefined.
        number >= 0 && unsafe { libc::fcntl(number, F_GETSIG) } == MARK
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
