//! The cooperative launches that the runtime has accepted, and so accepts again. It refuses a launch with
//! more blocks than fit on the device at once, by the call's error. Only a launch that is not larger than an
//! accepted one may therefore be deferred.

use hal_hip::layout::Kernel;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ptr;

/// The inputs of occupancy: the kernel's address, the device, the threads of a block, and the shared memory.
pub(crate) type Shape = (usize, u32, u64, usize);

/// The largest accepted number of blocks for each shape.
#[derive(Default)]
pub(crate) struct CooperativeCache(Mutex<HashMap<Shape, u64>>);

pub(crate) fn shape(kernel: &'static Kernel, device: u32, threads: u64, shared: usize) -> Shape {
    (ptr::from_ref(kernel).addr(), device, threads, shared)
}

impl CooperativeCache {
    /// Returns true if the runtime accepts a launch of so many blocks.
    pub(crate) fn is_accepted(&self, shape: Shape, blocks: u64) -> bool {
        self.0.lock().get(&shape).is_some_and(|&most| blocks <= most)
    }

    pub(crate) fn accepted(&self, shape: Shape, blocks: u64) {
        let mut shapes = self.0.lock();
        let most = shapes.entry(shape).or_default();
        *most = blocks.max(*most);
    }

    /// Forgets everything: code is unloaded, and another kernel may get the same address.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_accepted_covers_only_launches_that_are_not_larger() {
        let cache = CooperativeCache::default();
        let shape = (0x1000, 0, 64, 0);
        assert!(!cache.is_accepted(shape, 1));
        cache.accepted(shape, 8);
        cache.accepted(shape, 4);
        assert!(cache.is_accepted(shape, 8) && cache.is_accepted(shape, 1));
        for other in [(0x2000, 0, 64, 0), (0x1000, 1, 64, 0), (0x1000, 0, 128, 0), (0x1000, 0, 64, 1)] {
            assert!(!cache.is_accepted(other, 1), "{other:?}");
        }
        assert!(!cache.is_accepted(shape, 9));
        cache.forget();
        assert!(!cache.is_accepted(shape, 1));
    }
}
