//! One queue of a registry: what was asked for, what the driver has, and what can be seen of its ring.

use std::sync::atomic::{AtomicU64, Ordering};

use hip_sys::kfd;

use crate::queue::Arbiter;

/// A queue as the runtime created and changed it.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Within the process; a later queue may get it again.
    pub id: u32,
    /// Within the registry; no other queue gets it.
    pub(super) serial: u64,
    /// The device's KFD id.
    pub gpu_id: u32,
    /// A `QUEUE_TYPE_` constant.
    pub queue_type: u32,
    /// Address of the write index.
    pub write_pointer_address: u64,
    /// Address of the read index.
    pub read_pointer_address: u64,
    /// Address of the area where waves are saved; 0 for none.
    pub save_area: u64,
    /// The mask of compute units that the runtime set last, in words of 32; empty for none.
    pub cu_mask: Vec<u32>,
    /// What is wanted and what the driver has.
    pub arbiter: Arbiter,
    /// The session that holds it by name, or has to put it back: see [`super::Registry::suspend_for`].
    pub session: Option<u64>,
    /// The debugger's way: whether we have suspended it, if that is known.
    pub suspended: Option<bool>,
    /// The write index up to which everything is known to be complete.
    pub quiet: u64,
    /// The write index at the last look.
    pub(super) looked: u64,
    /// How likely it was then that something runs from it, to be compared: packets waited, and so many had come since the
    /// look before.
    pub(super) rush: (bool, u64),
}

impl Queue {
    /// Whether kernels run from it. Copy engines are never held.
    pub fn is_compute(&self) -> bool {
        matches!(self.queue_type, kfd::QUEUE_TYPE_COMPUTE | kfd::QUEUE_TYPE_COMPUTE_AQL)
    }

    /// Whether it has packets that the device has not taken, or that were not proved complete since: equal indices alone
    /// say that the last kernel was started. `true` where nothing can be seen.
    ///
    /// # Safety
    /// As [`Queue::written`].
    pub unsafe fn has_work(&self) -> bool {
        // SAFETY: as the caller promises.
        let write = unsafe { load(self.write_pointer_address) };
        // SAFETY: as the caller promises.
        let read = unsafe { load(self.read_pointer_address) };
        match (write, read) {
            (Some(write), Some(read)) => write != read || write != self.quiet,
            _ => true,
        }
    }

    /// Notes how likely it is that something runs from it.
    ///
    /// # Safety
    /// As [`Queue::written`].
    pub(super) unsafe fn look(&mut self) {
        // SAFETY: as the caller promises.
        let write = unsafe { load(self.write_pointer_address) };
        // SAFETY: as the caller promises.
        let read = unsafe { load(self.read_pointer_address) };
        let (Some(write), Some(read)) = (write, read) else { return };
        let new = write.saturating_sub(std::mem::replace(&mut self.looked, write));
        self.rush = (write != read, new);
    }

    /// One past the last packet; `None` where that cannot be seen.
    ///
    /// # Safety
    /// The process is the one that created the queue, and has not given its indices' memory back (which it does after
    /// DESTROY_QUEUE).
    pub unsafe fn written(&self) -> Option<u64> {
        // SAFETY: as the caller promises.
        unsafe { load(self.write_pointer_address) }
    }
}

/// An index of a queue.
///
/// # Safety
/// The address is null, misaligned, or that of an index of a live queue in this process.
unsafe fn load(address: u64) -> Option<u64> {
    let at = address as *mut u64;
    if at.is_null() || !at.is_aligned() {
        return None;
    }
    // SAFETY: as the caller promises; the device and the runtime change it by atomic stores.
    let index = unsafe { AtomicU64::from_ptr(at) };
    Some(index.load(Ordering::Acquire))
}
