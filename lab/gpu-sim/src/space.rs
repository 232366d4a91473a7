//! The GPU address space of one process: its virtual ranges, the memory behind them, and the GPUs that may
//! access them.
//!
//! The supervisor reads and writes clients' memory only through [`View`], which checks every access against
//! this map. A [`Fault`] is the equivalent of a page fault of a real GPU.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;

use crate::arena::Arena;

/// The memory behind a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Memory of the arena from this offset on.
    Arena(u64),
    /// Memory of the client process from this address on (userptr).
    Client(u64),
    /// A page of the KFD file (doorbells, registers), which packets may not access.
    Device,
}

/// A range of virtual addresses.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The length, bytes.
    pub len: u64,
    pub backing: Backing,
    /// The GPUs on which it is mapped: bit `i` for GPU `i`.
    pub gpus: u32,
}

/// An access to an address that is not mapped on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The first address that is not accessible.
    pub va: u64,
}

/// The ranges of one process, by first address.
#[derive(Debug, Default)]
pub struct Space {
    ranges: BTreeMap<u64, Range>,
}

impl Space {
    /// Adds a range. Returns false if it is empty or overlaps another.
    pub fn insert(&mut self, va: u64, range: Range) -> bool {
        let Some(end) = va.checked_add(range.len) else { return false };
        if range.len == 0 || self.ranges.range(..end).next_back().is_some_and(|(at, r)| at + r.len > va) {
            return false;
        }
        self.ranges.insert(va, range);
        true
    }

    pub fn remove(&mut self, va: u64) -> Option<Range> {
        self.ranges.remove(&va)
    }

    pub fn get_mut(&mut self, va: u64) -> Option<&mut Range> {
        self.ranges.get_mut(&va)
    }

    /// Returns the range that contains `va`, with its first address.
    pub fn find(&self, va: u64) -> Option<(u64, Range)> {
        let (&start, &range) = self.ranges.range(..=va).next_back()?;
        (va - start < range.len).then_some((start, range))
    }
}

/// A process's memory as one GPU sees it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub arena: &'a Arena,
    pub space: &'a Space,
    /// The process, for userptr ranges.
    pub pid: i32,
    pub gpu: usize,
}

/// A piece of an access that lies within one range.
enum Piece {
    Here(*mut u8),
    Client(u64),
}

impl View<'_> {
    fn piece(&self, va: u64, want: u64) -> Result<(Piece, u64), Fault> {
        let (start, range) = self.space.find(va).ok_or(Fault { va })?;
        if range.gpus & (1 << self.gpu) == 0 {
            return Err(Fault { va });
        }
        let skip = va - start;
        let len = want.min(range.len - skip);
        match range.backing {
            Backing::Arena(offset) => Ok((Piece::Here(self.arena.pointer(offset + skip)), len)),
            Backing::Client(address) => Ok((Piece::Client(address.wrapping_add(skip)), len)),
            Backing::Device => Err(Fault { va }),
        }
    }

    /// Returns the supervisor's address of `len` bytes at `va`, if they lie in one range of shared memory and
    /// `va` is aligned to `align`. Clients can change the bytes at any time.
    pub fn pointer(&self, va: u64, len: u64, align: u64) -> Result<*mut u8, Fault> {
        match self.piece(va, len)? {
            (Piece::Here(p), n) if n == len && va.is_multiple_of(align) => Ok(p),
            _ => Err(Fault { va }),
        }
    }

    pub fn read(&self, mut va: u64, mut out: &mut [u8]) -> Result<(), Fault> {
        while !out.is_empty() {
            let (piece, n) = self.piece(va, out.len() as u64)?;
            let (now, rest) = out.split_at_mut(n as usize);
            match piece {
                // SAFETY: `piece` has checked that `n` bytes at `p` lie in the arena's mapping, and `now` has
                // as many.
                Piece::Here(p) => unsafe { std::ptr::copy(p, now.as_mut_ptr(), now.len()) },
                Piece::Client(address) => client::read(self.pid, address, now).map_err(|_| Fault { va })?,
            }
            va += n;
            out = rest;
        }
        Ok(())
    }

    pub fn write(&self, mut va: u64, mut data: &[u8]) -> Result<(), Fault> {
        while !data.is_empty() {
            let (piece, n) = self.piece(va, data.len() as u64)?;
            let (now, rest) = data.split_at(n as usize);
            match piece {
                // SAFETY: `piece` has checked that `n` bytes at `p` lie in the arena's mapping, and `now` has
                // as many.
                Piece::Here(p) => unsafe { std::ptr::copy(now.as_ptr(), p, now.len()) },
                Piece::Client(address) => client::write(self.pid, address, now).map_err(|_| Fault { va })?,
            }
            va += n;
            data = rest;
        }
        Ok(())
    }

    pub fn load<const N: usize>(&self, va: u64) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.read(va, &mut bytes)?;
        Ok(bytes)
    }

    pub fn bytes<const N: usize>(&self, va: u64) -> Result<Bytes<N>, Fault> {
        self.load(va).map(Bytes)
    }

    pub fn load_u32(&self, va: u64) -> Result<u32, Fault> {
        self.load(va).map(u32::from_le_bytes)
    }

    pub fn load_u64(&self, va: u64) -> Result<u64, Fault> {
        self.load(va).map(u64::from_le_bytes)
    }

    /// Returns a 64-bit location that clients change atomically: the value of a signal, or the index of a
    /// queue.
    pub fn atomic(&self, va: u64) -> Result<&AtomicI64, Fault> {
        let p = self.pointer(va, 8, 8)?;
        // SAFETY: `pointer` has checked that eight aligned bytes lie in the arena's mapping, which outlives
        // the borrow of the arena. This process accesses them atomically only; other processes race as they
        // would with a GPU.
        Ok(unsafe { AtomicI64::from_ptr(p.cast()) })
    }

    /// Copies `len` bytes. If both ranges are shared memory they may overlap, as for `memmove`.
    pub fn copy(&self, dst: u64, src: u64, len: u64) -> Result<(), Fault> {
        if let (Ok(d), Ok(s)) = (self.pointer(dst, len, 1), self.pointer(src, len, 1)) {
            // SAFETY: `pointer` has checked that `len` bytes at both addresses lie in the arena's mapping;
            // they may overlap.
            unsafe { std::ptr::copy(s, d, len as usize) };
            return Ok(());
        }
        let mut buffer = vec![0; len.min(1 << 20) as usize];
        let mut done = 0;
        while done < len {
            let n = (len - done).min(buffer.len() as u64);
            let part = &mut buffer[..n as usize];
            self.read(src + done, part)?;
            self.write(dst + done, part)?;
            done += n;
        }
        Ok(())
    }

    /// Writes `pattern` over and over for `len` bytes.
    pub fn fill(&self, dst: u64, pattern: &[u8], len: u64) -> Result<(), Fault> {
        let whole = (1usize << 16).div_ceil(pattern.len()) * pattern.len();
        let block: Vec<u8> = pattern.iter().copied().cycle().take(whole.min(len as usize)).collect();
        let mut done = 0;
        while done < len {
            let n = (len - done).min(block.len() as u64);
            self.write(dst + done, &block[..n as usize])?;
            done += n;
        }
        Ok(())
    }
}

/// Bytes that a client wrote, with the little-endian numbers in them.
pub struct Bytes<const N: usize>([u8; N]);

impl<const N: usize> Bytes<N> {
    pub fn array<const M: usize>(&self, at: usize) -> [u8; M] {
        std::array::from_fn(|i| self.0[at + i])
    }

    pub fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }
}

/// The memory of a client process, which the kernel reads and writes for the supervisor.
pub mod client {
    use crate::call::Answer;

    /// Fills `out` from `pid`'s address `at`. Fails with EFAULT, as the driver does.
    pub fn read(pid: i32, at: u64, out: &mut [u8]) -> Answer<()> {
        let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
        let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: out.len() };
        // SAFETY: `local` describes `out`, which is borrowed mutably; the kernel checks the remote address.
        whole(unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) }, out.len())
    }

    /// Writes `data` to `pid`'s address `at`. Fails with EFAULT, as the driver does.
    pub fn write(pid: i32, at: u64, data: &[u8]) -> Answer<()> {
        let local = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
        let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: data.len() };
        // SAFETY: the kernel only reads from `local`, which describes `data`, and it checks the remote
        // address.
        whole(
            unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) },
            data.len(),
        )
    }

    /// Checks that the process has mapped the whole range and may read it, and write it if `writes` is set.
    /// The errors are those of the driver, which pins the pages (`init_user_pages` in amdgpu_amdkfd_gpuvm.c,
    /// `hmm_vma_fault` in mm/hmm.c of Linux 6.12): EFAULT for unmapped pages, EPERM for missing permissions.
    pub fn check_mapped(pid: i32, at: u64, len: u64, writes: bool) -> Answer<()> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|_| libc::EFAULT)?;
        covered(&maps, at, len, writes)
    }

    /// Checks a range against the text of `/proc/PID/maps`.
    fn covered(maps: &str, at: u64, len: u64, writes: bool) -> Answer<()> {
        let end = at.checked_add(len).ok_or(libc::EFAULT)?;
        let mut upto = at;
        for line in maps.lines() {
            let mut words = line.split_ascii_whitespace();
            let range = words.next().and_then(|range| range.split_once('-'));
            let Some((start, stop)) = range else { continue };
            let address = |text| u64::from_str_radix(text, 16).map_err(|_| libc::EFAULT);
            let (start, stop) = (address(start)?, address(stop)?);
            if stop <= upto {
                continue;
            }
            // Mappings are in ascending order: one beyond the range, or beyond a gap in it, ends the search.
            if upto >= end || start > upto {
                break;
            }
            let permissions = words.next().unwrap_or_default();
            if !permissions.starts_with('r') || writes && permissions.as_bytes().get(1) != Some(&b'w') {
                return Err(libc::EPERM);
            }
            upto = stop;
        }
        if upto >= end { Ok(()) } else { Err(libc::EFAULT) }
    }

    fn whole(n: isize, want: usize) -> Answer<()> {
        if n == want.cast_signed() { Ok(()) } else { Err(libc::EFAULT) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        const MAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0
3000-4000 r--p 00000000 08:01 77   /usr/lib/a file
6000-7000 rw-s 00000000 00:00 0    [heap]
7000-8000 ---p 00000000 00:00 0
";

        #[test]
        fn range_is_mapped_if_no_page_is_missing() {
            let covered = |at, len, writes| covered(MAPS, at, len, writes);
            assert_eq!(covered(0x1000, 0x2000, true), Ok(()));
            assert_eq!(covered(0x1800, 0x800, true), Ok(()));
            assert_eq!(covered(0x1000, 0x3000, false), Ok(()), "a range over two mappings");
            assert_eq!(covered(0x1000, 0x3000, true), Err(libc::EPERM), "the second mapping is read-only");
            assert_eq!(
                covered(0x6000, 0x2000, false),
                Err(libc::EPERM),
                "the second mapping is inaccessible"
            );
            for (at, len) in
                [(0x800, 0x1000), (0x3000, 0x2000), (0x4000, 0x1000), (0x5000, 0x2000), (0x9000, 1)]
            {
                assert_eq!(covered(at, len, false), Err(libc::EFAULT), "{at:x}");
            }
            assert_eq!(covered(u64::MAX, 2, false), Err(libc::EFAULT));
        }

        #[test]
        fn maps_of_this_process_are_read() {
            let mine = vec![0_u8; 1 << 16];
            let pid = i32::try_from(std::process::id()).expect("a pid");
            assert_eq!(check_mapped(pid, mine.as_ptr().addr() as u64, mine.len() as u64, true), Ok(()));
            assert!(check_mapped(pid, mine.as_ptr().addr() as u64, 1 << 46, true).is_err());
        }
    }
}

/// Memory for tests: ranges of shared memory on GPU 0.
#[cfg(test)]
pub mod testing {
    use super::{Arena, Backing, Range, Space, View};

    pub struct Memory {
        arena: Arena,
        space: Space,
    }

    impl Memory {
        /// Makes zeroed ranges of these addresses and lengths.
        pub fn new(ranges: &[(u64, u64)]) -> Self {
            let (mut arena, mut space) = (Arena::new().unwrap(), Space::default());
            for &(va, len) in ranges {
                let offset = arena.alloc(len).unwrap();
                assert!(space.insert(va, Range { len, backing: Backing::Arena(offset), gpus: 1 }));
            }
            Self { arena, space }
        }

        pub fn view(&self) -> View<'_> {
            View { arena: &self.arena, space: &self.space, pid: 0, gpu: 0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(len: u64, backing: Backing, gpus: u32) -> Range {
        Range { len, backing, gpus }
    }

    #[test]
    fn access_crosses_ranges_and_faults_at_unmapped_address() {
        let mut arena = Arena::new().unwrap();
        let (a, b) = (arena.alloc(4096).unwrap(), arena.alloc(4096).unwrap());
        let mut space = Space::default();
        assert!(space.insert(0x10000, range(4096, Backing::Arena(b), 1)));
        assert!(space.insert(0x11000, range(4096, Backing::Arena(a), 3)));
        let view = View { arena: &arena, space: &space, pid: 0, gpu: 0 };
        view.write(0x10ffe, &[1, 2, 3, 4]).unwrap();
        assert_eq!(view.load_u32(0x10ffe), Ok(0x0403_0201));
        view.copy(0x10000, 0x10ffe, 4).unwrap();
        assert_eq!(view.load_u32(0x10000), Ok(0x0403_0201));
        assert_eq!(view.write(0x11ffe, &[1, 2, 3]), Err(Fault { va: 0x12000 }));
        let other = View { gpu: 1, ..view };
        assert_eq!(other.load_u32(0x10000), Err(Fault { va: 0x10000 }));
        assert!(other.load_u32(0x11000).is_ok());
        assert!(view.pointer(0x10ffe, 4, 1).is_err());
        assert!(view.atomic(0x10004).is_err());
    }

    #[test]
    fn client_memory_is_accessed_through_the_kernel() {
        let arena = Arena::new().unwrap();
        let mut mine = [5u8; 64];
        let mut space = Space::default();
        space.insert(0x5000, range(64, Backing::Client(mine.as_mut_ptr() as u64), 1));
        let pid = i32::try_from(std::process::id()).unwrap();
        let view = View { arena: &arena, space: &space, pid, gpu: 0 };
        view.fill(0x5000, &[1, 2, 3], 64).unwrap();
        assert_eq!(view.load_u32(0x5000 + 60), Ok(u32::from_le_bytes([1, 2, 3, 1])));
        assert_eq!(std::hint::black_box(&mut mine)[..4], [1, 2, 3, 1]);
    }

    proptest! {
        #[test]
        fn ranges_never_overlap(tries in proptest::collection::vec((0u64..64, 1u64..16), 1..40)) {
            let mut space = Space::default();
            let mut owner = [None; 96];
            for (i, (at, len)) in tries.into_iter().enumerate() {
                let slots = &mut owner[at as usize..(at + len) as usize];
                let free = slots.iter().all(Option::is_none);
                prop_assert_eq!(space.insert(at, range(len, Backing::Device, 1)), free);
                if free {
                    slots.fill(Some(i));
                }
            }
            for (va, slot) in owner.iter().enumerate() {
                prop_assert_eq!(space.find(va as u64).is_some(), slot.is_some());
            }
        }
    }
}
