//! A dispatched kernel and its arguments in memory.

use crate::space::{Fault, View};

/// The fields of a kernel dispatch packet that say what the kernel does.
#[derive(Clone, Copy, Debug)]
pub struct Dispatch {
    /// Address of the kernel descriptor.
    pub object: u64,
    /// Address of the kernel's arguments.
    pub arguments: u64,
    /// Work-items in x, y, z.
    pub grid: [u32; 3],
    /// Work-items of a work-group in x.
    pub group: u32,
    /// The number of times that the device must be filled to place the grid.
    pub rounds: u64,
}

/// The arguments of a kernel by position, at the offsets that its metadata states.
pub(super) struct Arguments<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) base: u64,
    pub(super) layout: &'a [(u64, u64)],
}

impl Arguments<'_> {
    /// Returns argument `i`, zero-extended.
    pub(super) fn u64(&self, i: usize) -> Result<u64, Fault> {
        // Without metadata, every argument counts as 8 naturally aligned bytes.
        let (offset, size) = self.layout.get(i).copied().unwrap_or((i as u64 * 8, 8));
        let mut bytes = [0; 8];
        self.view.read(self.base.wrapping_add(offset), &mut bytes[..size.min(8) as usize])?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Returns argument `i` as four 64-bit words.
    pub(super) fn four(&self, i: usize) -> Result<[u64; 4], Fault> {
        let (offset, _) = self.layout.get(i).copied().unwrap_or((i as u64 * 32, 32));
        let word = |i: u64| self.view.load_u64(self.base.wrapping_add(offset).wrapping_add(i * 8));
        Ok([word(0)?, word(1)?, word(2)?, word(3)?])
    }
}
