//! The memory of the simulated GPUs: one sparse memfd, which clients map through the render nodes and the
//! supervisor maps as a whole.
//!
//! The arena allocates offsets; `machine/` accounts how much memory each GPU has left.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// The granularity of allocations, bytes.
pub const PAGE: u64 = 4096;

/// The size of the offset space, bytes. Only touched pages exist. It is larger than any simulated VRAM, so
/// that fragmentation never makes an allocation fail that the accounting allows.
const SPACE: u64 = 8 << 40;

/// A sealed memfd and the free ranges of its offset space.
#[derive(Debug)]
pub struct Arena {
    fd: OwnedFd,
    base: *mut u8,
    free: BTreeMap<u64, u64>,
    /// Ranges that were freed and are not cleared yet.
    freed: Vec<(u64, u64)>,
}

// SAFETY: `base` is a mapping that the arena owns. Other processes share its bytes, so that all access goes
// through raw pointers or atomics, never through references.
unsafe impl Send for Arena {}
// SAFETY: `&Arena` gives out raw pointers only, as argued for `Send`; the free lists change through `&mut`
// only.
unsafe impl Sync for Arena {}

impl Arena {
    /// Creates the memfd, seals its size, so that no client can shrink it, and maps it.
    pub fn new() -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("gpu-sim-memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, SPACE)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: the kernel chooses the address, so that the new mapping replaces none.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                SPACE as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                0,
            )?
        };
        Ok(Self { fd, base: base.cast(), free: BTreeMap::from([(0, SPACE)]), freed: Vec::new() })
    }

    /// Returns the memfd, which clients open.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Allocates a zeroed range of `size` bytes, rounded up to pages. Returns its offset, or `None` if no
    /// range is left.
    pub fn alloc(&mut self, size: u64) -> Option<u64> {
        let size = round_up(size)?;
        let (offset, len) = self.free.iter().find(|(_, len)| **len >= size).map(|(o, l)| (*o, *l))?;
        self.free.remove(&offset);
        if len > size {
            self.free.insert(offset + size, len - size);
        }
        Some(offset)
    }

    /// Frees a range. It can be allocated again only after [`clear`] and [`Arena::recycle`], because clearing
    /// takes long.
    pub fn free(&mut self, offset: u64, size: u64) {
        self.freed.extend(round_up(size).map(|size| (offset, size)));
    }

    /// Returns the ranges that were freed since the last call.
    pub fn take_freed(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.freed)
    }

    /// Makes cleared ranges available for allocation.
    pub fn recycle(&mut self, ranges: Vec<(u64, u64)>) {
        for (mut start, size) in ranges {
            let mut end = start + size;
            if let Some((&before, &len)) = self.free.range(..start).next_back()
                && before + len == start
            {
                self.free.remove(&before);
                start = before;
            }
            if let Some(len) = self.free.remove(&end) {
                end += len;
            }
            self.free.insert(start, end - start);
        }
    }

    /// Returns the supervisor's address of `offset`.
    pub fn pointer(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset < SPACE);
        // SAFETY: every allocated offset lies inside the mapping of `SPACE` bytes.
        unsafe { self.base.add(offset as usize) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the arena owns the mapping of this size, and pointers into it are used only while the arena
        // is borrowed.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), SPACE as usize) };
    }
}

/// Returns the pages of these ranges to the system, so that the next owner reads zeros. A gigabyte takes
/// about 90 ms, too long under the machine's lock.
pub fn clear(memory: BorrowedFd<'_>, ranges: &[(u64, u64)]) {
    for &(offset, size) in ranges {
        // After a failure the next owner in this simulation sees old bytes, and nothing else happens.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(memory, flags, offset, size);
    }
}

fn round_up(size: u64) -> Option<u64> {
    if size == 0 || size > SPACE { None } else { Some(size.div_ceil(PAGE) * PAGE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_ranges_coalesce_and_are_zeroed() {
        let mut arena = Arena::new().unwrap();
        let a = arena.alloc(10_000).unwrap();
        let b = arena.alloc(1).unwrap();
        let c = arena.alloc(1 << 40).unwrap();
        assert!(a + 12_288 <= b && b + PAGE <= c);
        // SAFETY: the range is allocated, and no other thread uses it.
        unsafe { arena.pointer(a).write(7) };
        arena.free(b, 1);
        arena.free(a, 10_000);
        arena.free(c, 1 << 40);
        assert!(arena.alloc(PAGE).is_some_and(|d| d > c), "a range is reused only after it is cleared");
        arena.free(c + (1 << 40), PAGE);
        let freed = arena.take_freed();
        clear(arena.fd(), &freed);
        arena.recycle(freed);
        assert_eq!(arena.free, BTreeMap::from([(0, SPACE)]));
        let again = arena.alloc(PAGE).unwrap();
        assert_eq!(again, a);
        // SAFETY: the range is allocated again, and no other thread uses it.
        assert_eq!(unsafe { arena.pointer(again).read() }, 0);
    }

    #[test]
    fn size_is_sealed_and_impossible_allocations_are_refused() {
        let mut arena = Arena::new().unwrap();
        assert!(rustix::fs::ftruncate(arena.fd(), 4096).is_err());
        assert_eq!(arena.alloc(0), None);
        assert_eq!(arena.alloc(u64::MAX), None);
        assert_eq!(arena.alloc(SPACE + 1), None);
    }
}
