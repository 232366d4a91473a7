//! A page that both programs share: kernels of the low one store there how many have completed.

use anyhow::{Context, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::OpenOptions;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// Indices of words, each on a cache line of its own.
const COMPLETED: usize = 0;
const STOP: usize = 8;
const PID: usize = 16;

#[derive(Debug)]
pub(super) struct SharedPage(NonNull<c_void>);

impl SharedPage {
    pub(super) const BYTES: usize = 4096;

    /// Maps the page of this file, and creates the file if it does not exist.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot share {}", path.display());
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.with_context(cannot)?;
        file.set_len(Self::BYTES as u64).with_context(cannot)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address of the new mapping, and the file is as long as the mapping.
        let address = unsafe { mmap(ptr::null_mut(), Self::BYTES, protection, MapFlags::SHARED, file, 0) };
        let address = address.with_context(cannot)?;
        Ok(Self(NonNull::new(address).context("a mapping at address 0")?))
    }

    /// Returns the memory of the first word, in which kernels store how many have completed.
    pub(super) fn memory(&self) -> NonNull<c_void> {
        self.0
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        let word = self.0.as_ptr().cast::<AtomicU64>().wrapping_add(index);
        // SAFETY: `index` is one of the three constants, so the word is inside the page and aligned; the
        // mapping lives as long as `self`, and both programs and all kernels access it by atomic words only.
        unsafe { &*word }
    }

    pub(super) fn completed(&self) -> u64 {
        self.word(COMPLETED).load(Ordering::Acquire)
    }

    pub(super) fn pid(&self) -> u32 {
        self.word(PID).load(Ordering::Acquire) as u32
    }

    pub(super) fn set_pid(&self, pid: u32) {
        self.word(PID).store(pid.into(), Ordering::Release);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.word(STOP).load(Ordering::Acquire) != 0
    }

    pub(super) fn stop(&self) {
        self.word(STOP).store(1, Ordering::Release);
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: `open` made the mapping, only this call unmaps it, and no reference into it outlives
        // `self`.
        let _ = unsafe { munmap(self.0.as_ptr(), Self::BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_through_one_mapping_shows_in_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("page");
        let (low, urgent) = (SharedPage::open(&path).unwrap(), SharedPage::open(&path).unwrap());
        assert_eq!((urgent.completed(), urgent.pid(), low.is_stopped()), (0, 0, false));
        low.set_pid(77);
        low.word(COMPLETED).store(5, Ordering::Release);
        urgent.stop();
        assert_eq!((urgent.completed(), urgent.pid(), low.is_stopped()), (5, 77, true));
    }
}
