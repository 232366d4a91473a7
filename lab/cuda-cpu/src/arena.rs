//! A device's memory: one sparse memory file, mapped twice.
//!
//! The program gets addresses of the first mapping. The CPU cannot access its pages, as in a GPU's memory,
//! except those of managed memory. The device works on the second mapping. Other processes map parts of the
//! file (IPC).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use parking_lot::Mutex;

use crate::abi::{Answer, INVALID_VALUE, OPERATING_SYSTEM, OUT_OF_MEMORY};

/// The granularity of allocations in bytes, because IPC maps whole pages.
pub const PAGE: usize = 4096;

/// Rounds up to whole pages. `None`: the result overflows.
pub fn pages(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(PAGE)
}

/// The memory of one device.
#[derive(Debug)]
pub struct Arena {
    file: OwnedFd,
    visible: usize,
    backing: usize,
    size: usize,
    free: Mutex<Free>,
}

/// The lengths of free ranges by offset, and their sum. No two ranges touch.
#[derive(Debug)]
struct Free {
    ranges: std::collections::BTreeMap<usize, usize>,
    bytes: usize,
}

/// Maps `size` bytes, anonymous or of a file, at an address that the kernel chooses.
fn map(size: usize, protection: i32, flags: i32, file: i32, offset: usize) -> Answer<usize> {
    // SAFETY: without MAP_FIXED the kernel chooses a range that nothing uses.
    let at = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, file, offset as libc::off_t) };
    if at == libc::MAP_FAILED { Err(OUT_OF_MEMORY) } else { Ok(at as usize) }
}

/// Maps anonymous memory, which stands for page-locked memory.
///
/// # Errors
/// `OUT_OF_MEMORY`.
pub fn map_host(size: usize) -> Answer<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    map(size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
}

/// Maps pages of a file, shared. With `host` the CPU can read and write them, otherwise it cannot access
/// them.
///
/// # Errors
/// `OUT_OF_MEMORY`.
pub fn map_file(file: &OwnedFd, offset: usize, size: usize, host: bool) -> Answer<usize> {
    let protection = if host { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    map(size, protection, libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd(), offset)
}

/// Ends a mapping made by [`map_host`] or [`map_file`].
///
/// # Safety
/// `at` and `size` describe one such mapping, and nothing uses it any more.
pub unsafe fn unmap(at: usize, size: usize) {
    // SAFETY: the caller guarantees that this is a mapping of this library that nothing uses any more.
    unsafe { libc::munmap(at as *mut libc::c_void, size) };
}

/// Makes a memory file of `size` zero bytes. It uses no memory until it is written.
///
/// # Errors
/// `OPERATING_SYSTEM`.
pub fn memory_file(size: usize) -> Answer<OwnedFd> {
    // SAFETY: the name is a C string; the call returns a new descriptor or -1.
    let file = unsafe { libc::memfd_create(c"cuda-cpu".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(OPERATING_SYSTEM);
    }
    // SAFETY: the call has just opened the descriptor, so nothing else owns it.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // SAFETY: the descriptor is open, and the call touches no memory of this process.
    let sized = unsafe { libc::ftruncate(file.as_raw_fd(), size as libc::off_t) };
    if sized == 0 { Ok(file) } else { Err(OPERATING_SYSTEM) }
}

impl Arena {
    /// Reserves the memory of a device.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`: there are no addresses. `OPERATING_SYSTEM`: there is no file.
    pub fn new(size: usize) -> Answer<Arena> {
        let file = memory_file(size)?;
        let visible = map_file(&file, 0, size, false)?;
        let backing = map_file(&file, 0, size, true)?;
        let free = Mutex::new(Free { ranges: [(0, size)].into(), bytes: size });
        Ok(Arena { file, visible, backing, size, free })
    }

    /// Returns the device's whole memory, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the bytes that can still be allocated.
    pub fn free_bytes(&self) -> usize {
        self.free.lock().bytes
    }

    /// Returns the file, which other processes open.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Returns the program's address of a byte in the file.
    pub fn visible(&self, offset: usize) -> usize {
        self.visible + offset
    }

    /// Returns the device's address of a byte in the file.
    pub fn backing(&self, offset: usize) -> usize {
        self.backing + offset
    }

    /// Allocates `len` bytes, a multiple of pages, and returns their offset in the file.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`; `INVALID_VALUE` if `len` is 0 or not a multiple of pages.
    pub fn allocate(&self, len: usize) -> Answer<usize> {
        if len == 0 || !len.is_multiple_of(PAGE) {
            return Err(INVALID_VALUE);
        }
        let mut free = self.free.lock();
        let found = free.ranges.iter().find(|(_, room)| **room >= len).map(|(at, room)| (*at, *room));
        let (at, room) = found.ok_or(OUT_OF_MEMORY)?;
        free.ranges.remove(&at);
        if room > len {
            free.ranges.insert(at + len, room - len);
        }
        free.bytes -= len;
        Ok(at)
    }

    /// Releases a range that [`Arena::allocate`] returned. The bytes are zero when they are allocated again.
    pub fn release(&self, at: usize, len: usize) {
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is open, and the range is the caller's allocation, so no other allocation
        // loses bytes.
        unsafe { libc::fallocate(self.file.as_raw_fd(), punch, at as libc::off_t, len as libc::off_t) };
        let mut free = self.free.lock();
        free.bytes += len;
        let (mut from, mut to) = (at, at + len);
        if let Some((before, room)) = free.ranges.range(..at).next_back().map(|(b, r)| (*b, *r))
            && before + room == at
        {
            free.ranges.remove(&before);
            from = before;
        }
        if let Some(behind) = free.ranges.remove(&to) {
            to += behind;
        }
        free.ranges.insert(from, to - from);
    }

    /// Permits the CPU to access these pages by the program's addresses, or forbids it again.
    ///
    /// # Errors
    /// `OPERATING_SYSTEM`.
    pub fn show(&self, at: usize, len: usize, host: bool) -> Answer {
        let protection = if host { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        // SAFETY: the range lies in this arena's own mapping, whose other parts keep their protection.
        let done = unsafe { libc::mprotect((self.visible + at) as *mut libc::c_void, len, protection) };
        if done == 0 { Ok(()) } else { Err(OPERATING_SYSTEM) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: this arena made both mappings. Every allocation holds the arena, so none exists any more.
        unsafe {
            unmap(self.visible, self.size);
            unmap(self.backing, self.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_ranges_join_and_are_used_again() {
        let arena = Arena::new(16 * PAGE).unwrap();
        let [a, b, c] = [4, 4, 8].map(|n| arena.allocate(n * PAGE).unwrap());
        assert_eq!((a, b, c), (0, 4 * PAGE, 8 * PAGE));
        assert_eq!(arena.allocate(PAGE), Err(OUT_OF_MEMORY));
        arena.release(a, 4 * PAGE);
        arena.release(c, 8 * PAGE);
        assert_eq!(arena.free_bytes(), 12 * PAGE);
        assert_eq!(arena.allocate(9 * PAGE), Err(OUT_OF_MEMORY));
        arena.release(b, 4 * PAGE);
        assert_eq!(arena.allocate(16 * PAGE), Ok(0));
        assert_eq!(arena.allocate(0), Err(INVALID_VALUE));
    }

    #[test]
    fn both_mappings_show_the_same_bytes() {
        let arena = Arena::new(4 * PAGE).unwrap();
        let at = arena.allocate(PAGE).unwrap();
        arena.show(at, PAGE, true).unwrap();
        // SAFETY: both addresses are mapped for reading and writing, for as long as the arena lives.
        unsafe {
            *(arena.visible(at) as *mut u32) = 7;
            assert_eq!(*(arena.backing(at) as *const u32), 7);
        }
        arena.release(at, PAGE);
        let again = arena.allocate(PAGE).unwrap();
        // SAFETY: the address is mapped for reading for as long as the arena lives.
        assert_eq!(unsafe { *(arena.backing(again) as *const u32) }, 0);
    }
}
