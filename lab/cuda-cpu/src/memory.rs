//! The table of memory that the device can access, and checked ranges of it.
//!
//! Commands hold the memory that they use, so a mapping ends only when nothing uses it any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use parking_lot::RwLock;

use crate::abi::{Answer, CUresult, Handle, ILLEGAL_ADDRESS, INVALID_VALUE};
use crate::arena::{self, Arena};

/// `CUDA_ERROR_MISALIGNED_ADDRESS`.
const MISALIGNED_ADDRESS: CUresult = 716;

/// The kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Device memory that the CPU cannot access.
    Device,
    /// Device memory that the CPU can access.
    Managed,
    /// Page-locked host memory, allocated by this library.
    Pinned,
    /// The program's memory, registered.
    Registered,
    /// Another process's device memory.
    Imported,
}

/// The source of a block's memory, to which dropping the block returns it.
#[derive(Debug)]
enum Owner {
    Arena { arena: Arc<Arena>, at: usize, len: usize, shown: bool },
    Host { len: usize },
    Program,
    Import { backing: usize, len: usize },
}

/// One piece of memory.
#[derive(Debug)]
pub struct Block {
    base: usize,
    backing: usize,
    owner: Owner,
}

impl Block {
    /// Allocates at least `size` bytes of a device, in whole pages.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`.
    pub fn device(arena: &Arc<Arena>, size: usize, managed: bool) -> Answer<Arc<Block>> {
        let len = arena::pages(size).ok_or(crate::abi::OUT_OF_MEMORY)?;
        let at = arena.allocate(len)?;
        let owner = Owner::Arena { arena: arena.clone(), at, len, shown: managed };
        let block = Block { base: arena.visible(at), backing: arena.backing(at), owner };
        if managed {
            arena.show(at, len, true)?;
        }
        Ok(Arc::new(block))
    }

    /// Allocates at least `size` bytes of host memory, in whole pages.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`.
    pub fn host(size: usize) -> Answer<Arc<Block>> {
        let len = arena::pages(size).ok_or(crate::abi::OUT_OF_MEMORY)?;
        let base = arena::map_host(len)?;
        Ok(Arc::new(Block { base, backing: base, owner: Owner::Host { len } }))
    }

    /// Describes the program's memory, which must stay mapped until it is unregistered.
    pub fn program(base: usize) -> Arc<Block> {
        Arc::new(Block { base, backing: base, owner: Owner::Program })
    }

    /// Maps `len` bytes at `offset` of another process's memory file.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`: there are no addresses.
    pub fn import(file: &std::os::fd::OwnedFd, offset: usize, len: usize) -> Answer<Arc<Block>> {
        let base = arena::map_file(file, offset, len, false)?;
        let backing = arena::map_file(file, offset, len, true)?;
        Ok(Arc::new(Block { base, backing, owner: Owner::Import { backing, len } }))
    }

    /// Returns its offset and length in the device's memory file. `None`: it is not an allocation of a
    /// device.
    pub fn in_file(&self) -> Option<(usize, usize)> {
        match self.owner {
            Owner::Arena { at, len, .. } => Some((at, len)),
            _ => None,
        }
    }

    /// Returns its size in bytes, which may exceed the size that was asked for. 0 for the program's memory.
    pub fn capacity(&self) -> usize {
        match self.owner {
            Owner::Arena { len, .. } | Owner::Host { len } | Owner::Import { len, .. } => len,
            Owner::Program => 0,
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match &self.owner {
            Owner::Arena { arena, at, len, shown } => {
                if *shown {
                    let _ = arena.show(*at, *len, false);
                }
                arena.release(*at, *len);
            }
            // SAFETY: this block made the mapping, and users of the memory hold the block, so none exists any
            // more.
            Owner::Host { len } => unsafe { arena::unmap(self.base, *len) },
            // SAFETY: as above, for its two mappings.
            Owner::Import { backing, len } => unsafe {
                arena::unmap(self.base, *len);
                arena::unmap(*backing, *len);
            },
            Owner::Program => {}
        }
    }
}

/// An allocation as the program knows it.
#[derive(Debug)]
pub struct Mapping {
    /// The memory.
    pub block: Arc<Block>,
    /// The size that the program asked for, in bytes.
    pub size: usize,
    /// The kind of memory.
    pub kind: Kind,
    /// The device that it belongs to.
    pub device: usize,
    /// The flags of `cuMemHostAlloc` or `cuMemHostRegister`.
    pub flags: u32,
    /// The pool that it comes from, or 0.
    pub pool: Handle,
    /// A unique number (`CU_POINTER_ATTRIBUTE_BUFFER_ID`).
    pub id: u64,
}

impl Mapping {
    /// Returns its first address.
    pub fn base(&self) -> usize {
        self.block.base
    }

    /// Returns true if it is host memory.
    pub fn on_host(&self) -> bool {
        matches!(self.kind, Kind::Pinned | Kind::Registered)
    }
}

/// A flag of mappings that a node of a graph allocated.
pub const OF_GRAPH: u32 = 1 << 31;

/// Memory that a graph allocates. It is freed with the last node or launch that holds it.
#[derive(Debug)]
pub struct Owned(pub Arc<Mapping>);

impl Drop for Owned {
    fn drop(&mut self) {
        if find(self.0.base()).is_some_and(|known| Arc::ptr_eq(&known, &self.0)) {
            remove(self.0.base());
        }
    }
}

static TABLE: RwLock<BTreeMap<usize, Arc<Mapping>>> = RwLock::new(BTreeMap::new());

/// Returns the allocation that `address` lies in.
pub fn find(address: usize) -> Option<Arc<Mapping>> {
    let table = TABLE.read();
    let (_, mapping) = table.range(..=address).next_back()?;
    (address - mapping.base() < mapping.size.max(1)).then(|| mapping.clone())
}

/// Adds an allocation to the table. It replaces an entry of the same address.
pub fn insert(mapping: Mapping) -> Arc<Mapping> {
    let mapping = Arc::new(mapping);
    TABLE.write().insert(mapping.base(), mapping.clone());
    mapping
}

/// Removes the allocation that begins at `base` from the table, and returns it.
pub fn remove(base: usize) -> Option<Arc<Mapping>> {
    TABLE.write().remove(&base)
}

/// Removes all allocations of a device from the table, with the host memory that was allocated for it.
pub fn forget(device: usize) {
    let mut table = TABLE.write();
    let gone: Vec<_> = table.extract_if(.., |_, mapping| mapping.device == device).collect();
    drop(table);
    // The memory is released without the lock.
    drop(gone);
}

/// Returns true if the range overlaps an allocation.
pub fn overlaps(base: usize, size: usize) -> bool {
    let end = base.saturating_add(size);
    let table = TABLE.read();
    table.range(..end).next_back().is_some_and(|(at, mapping)| at + mapping.size > base)
}

/// Bytes inside one allocation.
#[derive(Clone, Debug)]
pub struct Span {
    mapping: Arc<Mapping>,
    at: usize,
    len: usize,
}

/// Returns the `len` bytes at `address` if all of them lie in one allocation.
pub fn span(address: usize, len: usize) -> Option<Span> {
    let mapping = find(address)?;
    let at = address - mapping.base();
    (len <= mapping.size - at.min(mapping.size)).then_some(Span { mapping, at, len })
}

/// Like [`span`], for an argument of a call.
///
/// # Errors
/// `INVALID_VALUE`.
pub fn checked(address: usize, len: usize) -> Answer<Span> {
    span(address, len).ok_or(INVALID_VALUE)
}

/// Like [`span`], for `count` elements of `size` bytes at an address in a kernel's arguments.
///
/// # Errors
/// `ILLEGAL_ADDRESS`, or `CUDA_ERROR_MISALIGNED_ADDRESS`.
pub fn reached(address: usize, count: usize, size: usize) -> Answer<Span> {
    let len = count.checked_mul(size).ok_or(ILLEGAL_ADDRESS)?;
    if !address.is_multiple_of(size) {
        return Err(MISALIGNED_ADDRESS);
    }
    span(address, len).ok_or(ILLEGAL_ADDRESS)
}

impl Span {
    /// Returns the allocation that it lies in.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the address at which this process reads and writes it. The bytes stay mapped for as long as
    /// the span lives. The program and other streams may write them at any time.
    pub fn pointer(&self) -> *mut u8 {
        (self.mapping.block.backing + self.at) as *mut u8
    }

    /// Returns its whole words of 64 bits. Its address must be aligned.
    pub fn words(&self) -> &[AtomicU64] {
        debug_assert!(self.pointer().cast::<AtomicU64>().is_aligned());
        // SAFETY: the bytes stay mapped while the span is borrowed, the callers have checked the alignment
        // (`reached` and `stream::word`), any bytes are a valid word, and others may write atomics at the
        // same time.
        unsafe { std::slice::from_raw_parts(self.pointer().cast(), self.len / 8) }
    }

    /// Returns its whole words of 32 bits. Its address must be aligned.
    pub fn halves(&self) -> &[AtomicU32] {
        debug_assert!(self.pointer().cast::<AtomicU32>().is_aligned());
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(self.pointer().cast(), self.len / 4) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_lie_inside_one_allocation() {
        let block = Block::host(100).unwrap();
        let base = block.base;
        insert(Mapping { block, size: 100, kind: Kind::Pinned, device: 0, flags: 0, pool: 0, id: 1 });
        assert_eq!(span(base, 100).map(|s| s.len()), Some(100));
        assert!(span(base + 1, 100).is_none() && span(base + 100, 0).is_none());
        assert!(span(base.wrapping_sub(1), 1).is_none());
        assert_eq!(reached(base + 1, 1, 8).err(), Some(MISALIGNED_ADDRESS));
        assert_eq!(reached(base, usize::MAX, 8).err(), Some(ILLEGAL_ADDRESS));
        assert!(overlaps(base + 99, 1) && !overlaps(base + 100, 1));
        let held = span(base, 8).unwrap();
        assert!(remove(base).is_some() && span(base, 1).is_none());
        held.words()[0].store(5, std::sync::atomic::Ordering::Relaxed);
    }
}
