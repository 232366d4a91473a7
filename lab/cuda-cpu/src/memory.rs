//! The table of memory that the device reaches, and checked ranges of it.
//!
//! Commands hold the memory that they use, so that a mapping ends only when nothing uses it any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use parking_lot::RwLock;

use crate::abi::{Answer, CUresult, Handle, ILLEGAL_ADDRESS, INVALID_VALUE};
use crate::arena::{self, Arena};

/// `CUDA_ERROR_MISALIGNED_ADDRESS`.
const MISALIGNED_ADDRESS: CUresult = 716;

/// What memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of a device only.
    Device,
    /// Of a device and reachable by the CPU.
    Managed,
    /// Page-locked memory of the host, allocated by this library.
    Pinned,
    /// Memory of the program that it has registered.
    Registered,
    /// Another process's device memory.
    Imported,
}

/// The memory behind a mapping, which is given back with it.
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
    /// Allocates `size` bytes of a device, in whole pages.
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

    /// Allocates memory of the host.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`.
    pub fn host(size: usize) -> Answer<Arc<Block>> {
        let len = arena::pages(size).ok_or(crate::abi::OUT_OF_MEMORY)?;
        let base = arena::map_host(len)?;
        Ok(Arc::new(Block { base, backing: base, owner: Owner::Host { len } }))
    }

    /// Memory of the program, which must stay mapped until it is unregistered.
    pub fn program(base: usize) -> Arc<Block> {
        Arc::new(Block { base, backing: base, owner: Owner::Program })
    }

    /// `len` bytes at `offset` of another process's memory file.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`: no addresses.
    pub fn import(file: &std::os::fd::OwnedFd, offset: usize, len: usize) -> Answer<Arc<Block>> {
        let base = arena::map_file(file, offset, len, false)?;
        let backing = arena::map_file(file, offset, len, true)?;
        Ok(Arc::new(Block { base, backing, owner: Owner::Import { backing, len } }))
    }

    /// Where it lies in the memory file of its device, and of how many bytes. `None`: it is no allocation of a device.
    pub fn in_file(&self) -> Option<(usize, usize)> {
        match self.owner {
            Owner::Arena { at, len, .. } => Some((at, len)),
            _ => None,
        }
    }

    /// The bytes that it has, which may be more than were asked for.
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
            // SAFETY: this block made the mapping, and nothing holds the block any more.
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
    /// How many bytes the program asked for.
    pub size: usize,
    /// What it is.
    pub kind: Kind,
    /// The device it belongs to.
    pub device: usize,
    /// The flags of `cuMemHostAlloc` or `cuMemHostRegister`.
    pub flags: u32,
    /// The pool it comes from, or 0.
    pub pool: Handle,
    /// A number that no other allocation has (`CU_POINTER_ATTRIBUTE_BUFFER_ID`).
    pub id: u64,
}

impl Mapping {
    /// Its first address.
    pub fn base(&self) -> usize {
        self.block.base
    }

    /// True if the CPU can use it by its address.
    pub fn on_host(&self) -> bool {
        matches!(self.kind, Kind::Pinned | Kind::Registered)
    }
}

/// In the flags of a mapping: a node of a graph allocated it.
pub const OF_GRAPH: u32 = 1 << 31;

/// Memory that a graph allocates: it ends with the last node, or launch, that holds it.
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

/// Makes memory known, in the place of what had the same address.
pub fn insert(mapping: Mapping) -> Arc<Mapping> {
    let mapping = Arc::new(mapping);
    TABLE.write().insert(mapping.base(), mapping.clone());
    mapping
}

/// Forgets the allocation that begins at `base`, and returns it.
pub fn remove(base: usize) -> Option<Arc<Mapping>> {
    TABLE.write().remove(&base)
}

/// Forgets all allocations of a device and of the host that were made for it.
pub fn forget(device: usize) {
    let mut table = TABLE.write();
    let gone: Vec<_> = table.extract_if(.., |_, mapping| mapping.device == device).collect();
    drop(table);
    // The memory is given back without the lock.
    drop(gone);
}

/// True if one of these bytes is known.
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

/// The same for an argument of a call.
///
/// # Errors
/// `INVALID_VALUE`.
pub fn checked(address: usize, len: usize) -> Answer<Span> {
    span(address, len).ok_or(INVALID_VALUE)
}

/// The same for an address in a kernel's arguments.
///
/// # Errors
/// `ILLEGAL_ADDRESS`, or the error of a misaligned one.
pub fn reached(address: usize, count: usize, size: usize) -> Answer<Span> {
    let len = count.checked_mul(size).ok_or(ILLEGAL_ADDRESS)?;
    if !address.is_multiple_of(size) {
        return Err(MISALIGNED_ADDRESS);
    }
    span(address, len).ok_or(ILLEGAL_ADDRESS)
}

impl Span {
    /// What it lies in.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where this process reads and writes it. The bytes stay mapped for as long as the span lives; the program and other
    /// streams may write them at any time.
    pub fn pointer(&self) -> *mut u8 {
        (self.mapping.block.backing + self.at) as *mut u8
    }

    /// Its whole words of 64 bits. Its address must be aligned.
    pub fn words(&self) -> &[AtomicU64] {
        debug_assert!(self.pointer().cast::<AtomicU64>().is_aligned());
        // SAFETY: the bytes are mapped while the span is borrowed, they are aligned as `reached` has checked, any bytes
        // are a word, and atomics may be written by others.
        unsafe { std::slice::from_raw_parts(self.pointer().cast(), self.len / 8) }
    }

    /// Its whole words of 32 bits. Its address must be aligned.
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
