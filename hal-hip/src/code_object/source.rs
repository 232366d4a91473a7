//! The sources of a code object's bytes: memory of the program with an unknown length, or a part of another
//! source. Knows no format. (Slices and files are sources by themselves: `&[u8]`, `&ReadCache<File>`.)

use object::read::ReadRef;
use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

/// The largest extent of a code object or bundle. An offset beyond it is invalid and not followed.
pub(crate) const MAX_EXTENT: u64 = 1 << 34;

/// Memory of the program whose extent is known only from the headers in it.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    base: *const u8,
    lives: PhantomData<&'a [u8]>,
}

impl Memory<'_> {
    /// Creates a source at an address.
    ///
    /// # Safety
    ///
    /// During `'a` four bytes at `base`, and each range that the headers there name, can be read and are not
    /// written to.
    pub(crate) unsafe fn new(base: *const u8) -> Self {
        Self { base, lives: PhantomData }
    }
}

impl<'a> ReadRef<'a> for Memory<'a> {
    fn len(self) -> Result<u64, ()> {
        Ok(MAX_EXTENT)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        let end = offset.checked_add(size).filter(|end| *end <= MAX_EXTENT).ok_or(())?;
        let end = usize::try_from(end).map_err(|_| ())?;
        let (offset, size) = (offset as usize, size as usize);
        if size == 0 {
            return Ok(&[]);
        }
        if self.base.is_null() || self.base.addr().checked_add(end).is_none() {
            return Err(());
        }
        let start = self.base.wrapping_add(offset);
        // SAFETY: the parsers of this module request the first four bytes or a range that a header names,
        // which the caller of `new` guarantees to be readable and unchanged during 'a. It is not null, does
        // not wrap around, and is smaller than MAX_EXTENT, and so than isize::MAX.
        Ok(unsafe { slice::from_raw_parts(start, size) })
    }

    fn read_bytes_at_until(self, _: Range<u64>, _: u8) -> Result<&'a [u8], ()> {
        // A search for the end of a string could leave the ranges that the headers name; no parser here needs
        // it.
        Err(())
    }
}

/// A part of a source, as a source of its own.
#[derive(Clone, Copy)]
pub(crate) struct Part<R> {
    whole: R,
    offset: u64,
    size: u64,
}

impl<R> Part<R> {
    pub(crate) fn new(whole: R, offset: u64, size: u64) -> Self {
        Self { whole, offset, size }
    }

    /// The offset of its end in the whole; none if there is no such offset.
    pub(crate) fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }
}

impl<'a, R: ReadRef<'a>> ReadRef<'a> for Part<R> {
    fn len(self) -> Result<u64, ()> {
        Ok(self.size)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        offset.checked_add(size).filter(|end| *end <= self.size).ok_or(())?;
        self.whole.read_bytes_at(self.offset.checked_add(offset).ok_or(())?, size)
    }

    fn read_bytes_at_until(self, _: Range<u64>, _: u8) -> Result<&'a [u8], ()> {
        Err(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_refuses_reads_beyond_its_end() {
        let whole: &[u8] = b"0123456789";
        let part = Part::new(whole, 2, 5);
        assert_eq!(part.read_bytes_at(0, 5), Ok(&b"23456"[..]));
        assert_eq!(part.read_bytes_at(4, 1), Ok(&b"6"[..]));
        for (offset, size) in [(0, 6), (5, 1), (6, 0), (u64::MAX, 1), (1, u64::MAX)] {
            assert_eq!(part.read_bytes_at(offset, size), Err(()), "{offset} {size}");
        }
        assert_eq!(Part::new(whole, 8, 5).read_bytes_at(0, 5), Err(()), "the whole is shorter");
        assert_eq!(Part::new(whole, u64::MAX, 5).read_bytes_at(1, 1), Err(()));
    }

    #[test]
    fn memory_refuses_reads_of_invalid_ranges() {
        let bytes = b"abc";
        // SAFETY: only the three bytes are read below.
        let memory = unsafe { Memory::new(bytes.as_ptr()) };
        assert_eq!(memory.read_bytes_at(1, 2), Ok(&b"bc"[..]));
        assert_eq!(memory.read_bytes_at(1000, 0), Ok(&b""[..]));
        assert_eq!(memory.read_bytes_at(0, MAX_EXTENT + 1), Err(()));
        assert_eq!(memory.read_bytes_at(u64::MAX, 2), Err(()));
        // SAFETY: null is refused before anything is read.
        let null = unsafe { Memory::new(std::ptr::null()) };
        assert_eq!(null.read_bytes_at(0, 1), Err(()));
        // SAFETY: a range that wraps around is refused before anything is read.
        let last = unsafe { Memory::new(std::ptr::without_provenance(usize::MAX)) };
        assert_eq!(last.read_bytes_at(0, 4), Err(()));
    }
}
