//! A page that the two programs share: what the low one has completed, as its kernels leave it there.

use anyhow::{Context, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::OpenOptions;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words on lines of their own.
const COMPLETED: usize = 0;
const STOP: usize = 8;
const PID: usize = 16;

/// The page, mapped.
#[derive(Debug)]
pub(super) struct Board(NonNull<c_void>);

impl Board {
    pub(super) const BYTES: usize = 4096;

    /// Maps the page of this file, which is made if it is not there.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot share {}", path.display());
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.with_context(cannot)?;
        file.set_len(Self::BYTES as u64).with_context(cannot)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; the file is as long as it.
        let address = unsafe { mmap(ptr::null_mut(), Self::BYTES, protection, MapFlags::SHARED, file, 0) };
        let address = address.with_context(cannot)?;
        Ok(Self(NonNull::new(address).context("a mapping at address 0")?))
    }

    /// Where kernels store how many of them have ended: its first word.
    pub(super) fn memory(&self) -> NonNull<c_void> {
        self.0
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        let word = self.0.as_ptr().cast::<AtomicU64>().wrapping_add(index);
        // SAFETY: one of the three indices above, so inside the page and aligned; the mapping lives as long as `self`, and
        // everybody touches it by atomic words only.
        unsafe { &*word }
    }

    /// Kernels of the low program that have ended.
    pub(super) fn completed(&self) -> u64 {
        self.word(COMPLETED).load(Ordering::Acquire)
    }

    /// The low program's process.
    pub(super) fn pid(&self) -> u32 {
        self.word(PID).load(Ordering::Acquire) as u32
    }

    pub(super) fn set_pid(&self, pid: u32) {
        self.word(PID).store(pid.into(), Ordering::Release);
    }

    /// Whether the low program is to end.
    pub(super) fn is_over(&self) -> bool {
        self.word(STOP).load(Ordering::Acquire) != 0
    }

    pub(super) fn end(&self) {
        self.word(STOP).store(1, Ordering::Release);
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: the mapping of `open`, unmapped once, here; no reference into it outlives `self`.
        let _ = unsafe { munmap(self.0.as_ptr(), Self::BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_the_other_reads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("board");
        let (low, urgent) = (Board::open(&path).unwrap(), Board::open(&path).unwrap());
        assert_eq!((urgent.completed(), urgent.pid(), low.is_over()), (0, 0, false));
        low.set_pid(77);
        low.word(COMPLETED).store(5, Ordering::Release);
        urgent.end();
        assert_eq!((urgent.completed(), urgent.pid(), low.is_over()), (5, 77, true));
    }
}
