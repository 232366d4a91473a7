//! The argument of a request to the driver. Its address is the program's and may be invalid, which the driver
//! reports.

use agent::errno;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicU32;

/// A copy of a request's argument.
pub(super) struct Argument {
    pub(super) copy: Vec<u8>,
    /// The address at which the driver writes its answer, if it does.
    answer: Option<*mut u8>,
}

impl Argument {
    /// `_IOC_READ` of asm-generic/ioctl.h: the driver answers into the argument.
    const ANSWERS: u32 = 2 << 30;

    /// Copies the argument; `None` if it is shorter than the command says, or not writable although the
    /// driver writes it.
    pub(super) fn copy(command: u32, argument: *mut c_void) -> Option<Self> {
        let size = (command >> 16 & 0x3fff) as usize;
        let answers = command & Self::ANSWERS != 0;
        if argument.is_null() || size == 0 || !is_accessible(argument.addr(), size, answers) {
            return None;
        }
        let mut copy = vec![0; size];
        // SAFETY: `size` bytes are accessible there, and the copy is as long.
        unsafe { ptr::copy_nonoverlapping(argument.cast::<u8>(), copy.as_mut_ptr(), size) };
        Some(Self { copy, answer: answers.then_some(argument.cast()) })
    }

    /// Writes the driver's answer into the argument.
    pub(super) fn give_back(&self) {
        if let Some(answer) = self.answer {
            // SAFETY: `copy` has checked that as many bytes are writable there, and the driver would write
            // them.
            unsafe { ptr::copy_nonoverlapping(self.copy.as_ptr(), answer, self.copy.len()) };
        }
    }
}

/// Returns true if this many bytes can be read there and, if `writes`, written. Asks the kernel by the only
/// system call on memory that a program with threads cannot forbid: a futex operation that wakes no thread,
/// which reads a word or writes it unchanged.
fn is_accessible(address: usize, size: usize, writes: bool) -> bool {
    const PAGE: usize = 4096;
    /// `FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0)` of linux/futex.h.
    const OR_NOTHING: u32 = 2 << 28;
    let Some(end) = address.checked_add(size) else { return false };
    let no_waiters = AtomicU32::new(0);
    let is_bad = |result: libc::c_long| result < 0 && errno::get() == libc::EFAULT;
    let fits = |word: usize| {
        let (word, no_waiters) = (word as *mut u32, no_waiters.as_ptr());
        let operation = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the kernel reads a word, whose address may be invalid, and wakes no thread.
        let read = unsafe { libc::syscall(libc::SYS_futex, word, operation, 0, 0_usize, no_waiters, 0) };
        if is_bad(read) || !writes {
            return !is_bad(read);
        }
        let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the kernel writes the word unchanged, atomically, and wakes no thread.
        !is_bad(unsafe {
            libc::syscall(libc::SYS_futex, no_waiters, operation, 0, 0_usize, word, OR_NOTHING)
        })
    };
    let pages = (address & !(PAGE - 1)..end).step_by(PAGE);
    // One word of each page, but none before the argument's first one.
    pages.map(|page| page.max(address & !3)).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_accessible_detects_invalid_addresses() {
        let mut page = [0_u64; 512];
        let here = page.as_mut_ptr().addr();
        assert!(is_accessible(here + 1, 88, true) && is_accessible(here, 4096, true));
        assert_eq!(page, [0; 512]);
        let constant = c"constant".as_ptr().addr();
        assert!(is_accessible(constant, 8, false) && !is_accessible(constant, 8, true));
        for (address, size) in [(16, 8), (0, 1), (usize::MAX - 3, 8), (usize::MAX / 2, 8)] {
            assert!(!is_accessible(address, size, false), "{address:#x}");
        }
    }
}
