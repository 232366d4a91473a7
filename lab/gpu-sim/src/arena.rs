//! The memory behind the simulated GPUs: one sparse memfd that clients map through the render nodes and the
//! supervisor maps once, whole.
//!
//! Offsets are handed out here; how much of what a GPU may hold is accounted elsewhere (`machine.rs`).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Granularity of allocations, bytes.
pub const PAGE: u64 = 4096;

/// Size of the offset space, bytes. Sparse: only touched pages exist. Larger than any simulated VRAM, so that
/// fragmentation never makes an allocation fail that the accounting allows.
const SPACE: u64 = 8 << 40;

/// A sealed memfd and the free ranges of its offset space.
#[derive(Debug)]
pub struct Arena {
    fd: OwnedFd,
    base: *mut u8,
    free: BTreeMap<u64, u64>,
    /// Given back and not cleared yet.
    freed: Vec<(u64, u64)>,
}

// SAFETY: `base` is a mapping that the arena owns, and the bytes behind it are shared with other processes anyway: all
// access goes through raw pointers or atomics, never through plain references.
unsafe impl Send for Arena {}
// SAFETY: as for `Send`.
unsafe impl Sync for Arena {}

impl Arena {
    /// Creates the memfd, seals its size (a client may not shrink it under the supervisor) and maps it.
    pub fn new() -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("gpu-sim-memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, SPACE)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: a fresh mapping chosen by the kernel replaces nothing.
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

    /// The memfd, for clients to open.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes a zeroed range of at least `size` bytes (rounded up to pages); `None` if no range is left.
    pub fn alloc(&mut self, size: u64) -> Option<u64> {
        let size = round_up(size)?;
        let (offset, len) = self.free.iter().find(|(_, len)| **len >= size).map(|(o, l)| (*o, *l))?;
        self.free.remove(&offset);
        if len > size {
            self.free.insert(offset + size, len - size);
        }
        Some(offset)
    }

    /// Gives a range back. It is handed out again only after [`clear`] and [`Arena::recycle`]: clearing takes long.
    pub fn free(&mut self, offset: u64, size: u64) {
        self.freed.extend(round_up(size).map(|size| (offset, size)));
    }

    /// What has been given back since the last call.
    pub fn take_freed(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.freed)
    }

    /// Lets ranges that have been cleared be handed out again.
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

    /// The supervisor's address of `offset`.
    pub fn pointer(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset < SPACE);
        // SAFETY: every offset handed out lies inside the mapping of `SPACE` bytes.
        unsafe { self.base.add(offset as usize) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this size, and whoever got a pointer into it borrowed the arena.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), SPACE as usize) };
    }
}

/// Returns the pages of these ranges to the system, so that the next owner reads zeros. A gigabyte takes about 90 ms:
/// not to be done under the machine's lock.
pub fn clear(memory: BorrowedFd<'_>, ranges: &[(u64, u64)]) {
    for &(offset, size) in ranges {
        // Failure would leave old bytes to a next owner within the same simulation; nothing else depends on it.
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
    fn ranges_coalesce_and_come_back_zeroed() {
        let mut arena = Arena::new().unwrap();
        let a = arena.alloc(10_000).unwrap();
        let b = arena.alloc(1).unwrap();
        let c = arena.alloc(1 << 40).unwrap();
        assert!(a + 12_288 <= b && b + PAGE <= c);
        // SAFETY: the range was just allocated and is mapped.
        unsafe { arena.pointer(a).write(7) };
        arena.free(b, 1);
        arena.free(a, 10_000);
        arena.free(c, 1 << 40);
        assert!(arena.alloc(PAGE).is_some_and(|d| d > c), "nothing is reused before it is clear");
        arena.free(c + (1 << 40), PAGE);
        let freed = arena.take_freed();
        clear(arena.fd(), &freed);
        arena.recycle(freed);
        assert_eq!(arena.free, BTreeMap::from([(0, SPACE)]));
        let again = arena.alloc(PAGE).unwrap();
        assert_eq!(again, a);
        // SAFETY: as above.
        assert_eq!(unsafe { arena.pointer(again).read() }, 0);
    }

    #[test]
    fn the_size_is_sealed_and_absurd_sizes_refused() {
        let mut arena = Arena::new().unwrap();
        assert!(rustix::fs::ftruncate(arena.fd(), 4096).is_err());
        assert_eq!(arena.alloc(0), None);
        assert_eq!(arena.alloc(u64::MAX), None);
        assert_eq!(arena.alloc(SPACE + 1), None);
    }
}
