//! Notifying another thread or process by an eventfd, from any thread and without blocking.

use crate::descriptor::{Identity, lift};
use crate::errno;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The marker of the library's eventfds. All eventfds share one inode, so they are told apart by a property
/// of the open file: the signal for its owner (`F_SETSIG`). That signal is never sent, because `O_ASYNC` is
/// never set.
const MARKER: c_int = 64;
/// `F_SETSIG` and `F_GETSIG` of asm-generic/fcntl.h.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;

/// An eventfd that any thread may write. Its number is never closed once it is used: a thread that is about
/// to write must not meet a file of the program.
#[derive(Debug)]
pub(crate) struct Notifier {
    /// The eventfd's number; -1 while there is none.
    number: AtomicI32,
    muted: AtomicBool,
    lost: AtomicBool,
    /// True from a call of [`Notifier::notify_once`] to the next [`Notifier::take`].
    announced: AtomicBool,
}

impl Notifier {
    pub(crate) fn new() -> Self {
        let [muted, lost, announced] = [true, false, false].map(AtomicBool::new);
        Self { number: AtomicI32::new(-1), muted, lost, announced }
    }

    /// Uses this eventfd from now on. Only one thread at a time may call this.
    pub(crate) fn attach(&self, eventfd: &OwnedFd) -> io::Result<()> {
        self.mute();
        let unusable = || io::Error::from(io::ErrorKind::InvalidData);
        Identity::of(eventfd.as_raw_fd()).filter(|found| found.kind == 0).ok_or_else(unusable)?;
        // SAFETY: the call takes numbers; no signal is ever sent for this file.
        if unsafe { libc::fcntl(eventfd.as_raw_fd(), F_SETSIG, MARKER) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let number = self.number.load(Ordering::Acquire);
        if is_marked(number) {
            // SAFETY: the number is the library's own; it leads to the new file from now on.
            if unsafe { libc::dup3(eventfd.as_raw_fd(), number, libc::O_CLOEXEC) } < 0 {
                return Err(io::Error::last_os_error());
            }
        } else {
            self.number.store(lift(eventfd)?, Ordering::Release);
        }
        self.lost.store(false, Ordering::Release);
        self.announced.store(false, Ordering::SeqCst);
        self.muted.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Returns the number of the eventfd, and true if it is new. Makes one if there is none, or if the
    /// program has closed it.
    pub(crate) fn get_or_make(&self) -> io::Result<(c_int, bool)> {
        let number = self.number.load(Ordering::Acquire);
        if !self.is_muted() && is_marked(number) {
            return Ok((number, false));
        }
        // SAFETY: the call makes a new descriptor.
        let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and nothing else knows it.
        self.attach(&unsafe { OwnedFd::from_raw_fd(made) })?;
        Ok((self.number.load(Ordering::Acquire), true))
    }

    /// Turns notifications off: no receiver is left.
    pub(crate) fn mute(&self) {
        self.muted.store(true, Ordering::SeqCst);
    }

    /// Returns true if a notification would do nothing.
    pub(crate) fn is_muted(&self) -> bool {
        self.muted.load(Ordering::Acquire)
    }

    /// Returns true if the program has closed the eventfd.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Wakes the receiver. Keeps errno, and never blocks.
    #[cold]
    pub(crate) fn notify(&self) {
        if self.is_muted() {
            return;
        }
        errno::kept(|| {
            let number = self.number.load(Ordering::Acquire);
            if !is_marked(number) {
                self.lost.store(true, Ordering::Release);
                self.mute();
                return;
            }
            let one = 1_u64.to_ne_bytes();
            // SAFETY: pointer and length are those of the array. The write fails only if the counter is full,
            // which wakes the receiver as well.
            unsafe { libc::write(number, one.as_ptr().cast(), one.len()) };
        });
    }

    /// Wakes the receiver like [`Notifier::notify`]. Makes no system call while a notification is on its way: the receiver
    /// has not called [`Notifier::take`], and looks at what has changed only after that.
    ///
    /// The receiver must call `take` after each sleep, and its sleeps must be bounded: a thread that is killed in this function
    /// can leave a notification announced and not sent.
    #[cold]
    pub(crate) fn notify_once(&self) {
        // This exchange and the one in `take` order the caller's change before the receiver's look at it.
        if !self.announced.swap(true, Ordering::SeqCst) {
            self.notify();
        }
    }

    /// Takes all notifications so far. `some`: the eventfd is ready to read.
    pub(crate) fn take(&self, some: bool) {
        if some {
            self.drain();
        }
        self.announced.swap(false, Ordering::SeqCst);
    }

    fn drain(&self) {
        let number = self.number.load(Ordering::Acquire);
        if is_marked(number) {
            let mut count = [0_u8; 8];
            // SAFETY: pointer and length are those of the array; the file does not block.
            unsafe { libc::read(number, count.as_mut_ptr().cast(), count.len()) };
        }
    }
}

/// Returns true if the number leads to an eventfd with the library's marker.
fn is_marked(number: c_int) -> bool {
    // SAFETY: the call takes a number; one that is no descriptor is an error.
    number >= 0 && unsafe { libc::fcntl(number, F_GETSIG) } == MARKER
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of notifications that the receiver finds.
    fn found(notifier: &Notifier) -> u64 {
        let number = notifier.number.load(Ordering::Acquire);
        let mut count = [0; 8];
        // SAFETY: pointer and length are those of the array; the file does not block.
        let read = unsafe { libc::read(number, count.as_mut_ptr().cast(), count.len()) };
        if read == 8 { u64::from_ne_bytes(count) } else { 0 }
    }

    #[test]
    fn receiver_is_notified_once_until_it_takes_the_notification() {
        let notifier = Notifier::new();
        assert!(notifier.get_or_make().unwrap().1, "a new eventfd");
        notifier.notify_once();
        notifier.notify_once();
        assert_eq!(found(&notifier), 1);
        notifier.notify_once();
        assert_eq!(found(&notifier), 0, "the receiver has not taken the first one");
        notifier.take(true);
        notifier.notify_once();
        notifier.notify();
        assert_eq!(found(&notifier), 2, "others notify in any case");
        // The receiver has slept for as long as it may, and found nothing.
        notifier.take(false);
        notifier.notify_once();
        assert_eq!(found(&notifier), 1);
    }

    #[test]
    fn new_eventfd_is_notified_again() {
        let notifier = Notifier::new();
        notifier.get_or_make().unwrap();
        notifier.notify_once();
        notifier.mute();
        assert!(notifier.get_or_make().unwrap().1, "a new eventfd");
        notifier.notify_once();
        assert_eq!(found(&notifier), 1);
    }
}
