//! What the runtime has taken, and so takes again. Of cooperative launches it refuses one of more blocks than fit on the device
//! at once, and says so in the call; so only a launch that is not larger than one that it has taken before is sure to be taken
//! later. Of prefetches it takes all to a device, or none.

use hal_hip::layout::Kernel;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ptr;

/// What the number of blocks that fit depends on: the kernel by its address, device, threads of a block, shared memory.
pub(crate) type Shape = (usize, u32, u64, usize);

/// The most blocks of each shape that were taken.
#[derive(Default)]
pub(crate) struct CooperativeCache(Mutex<HashMap<Shape, u64>>);

/// The shape of a launch.
pub(crate) fn shape(kernel: &'static Kernel, device: u32, threads: u64, shared: usize) -> Shape {
    (ptr::from_ref(kernel).addr(), device, threads, shared)
}

impl CooperativeCache {
    /// Whether a launch of so many blocks is sure to be taken.
    pub(crate) fn is_taken(&self, shape: Shape, blocks: u64) -> bool {
        self.0.lock().get(&shape).is_some_and(|&most| blocks <= most)
    }

    /// One was taken.
    pub(crate) fn taken(&self, shape: Shape, blocks: u64) {
        let mut proven = self.0.lock();
        let most = proven.entry(shape).or_default();
        *most = blocks.max(*most);
    }

    /// Code is unloaded: a kernel at the same place may be another one.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_larger_is_proven_too_and_nothing_else() {
        let proven = CooperativeCache::default();
        let shape = (0x1000, 0, 64, 0);
        assert!(!proven.is_taken(shape, 1));
        proven.taken(shape, 8);
        proven.taken(shape, 4);
        assert!(proven.is_taken(shape, 8) && proven.is_taken(shape, 1));
        for other in [(0x2000, 0, 64, 0), (0x1000, 1, 64, 0), (0x1000, 0, 128, 0), (0x1000, 0, 64, 1)] {
            assert!(!proven.is_taken(other, 1), "{other:?}");
        }
        assert!(!proven.is_taken(shape, 9));
        proven.forget();
        assert!(!proven.is_taken(shape, 1));
    }
}
