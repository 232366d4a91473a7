//! One queue: the runtime's settings, the driver's, and the state of its ring.

use std::sync::atomic::{AtomicU64, Ordering};

use hip_sys::kfd;

use crate::arbiter::{Arbiter, Precedence};
use crate::units::{UnitLimit, Units};

/// Returns true if queues of this type (a `QUEUE_TYPE_` constant) run kernels.
pub fn is_compute(queue_type: u32) -> bool {
    matches!(queue_type, kfd::QUEUE_TYPE_COMPUTE | kfd::QUEUE_TYPE_COMPUTE_AQL)
}

/// A queue as the runtime created and changed it.
#[derive(Clone, Debug)]
pub struct Queue {
    /// The number within the process; a later queue may get it again.
    pub id: u32,
    /// The number within the registry; no other queue gets it.
    pub(crate) serial: u64,
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
    /// The mask of compute units that the runtime set last, in words of 32 bits; empty for none.
    pub cu_mask: Vec<u32>,
    /// The limit to some of its compute units, and what the driver knows of it.
    pub limit: UnitLimit,
    /// The wanted setting and the driver's.
    pub arbiter: Arbiter,
    /// The session that has suspended the queue by its number, or still has to resume it: see
    /// `Registry::suspend_for`.
    pub session: Option<u64>,
    /// With debug-trap: true if we have suspended the queue; `None` if unknown.
    pub suspended: Option<bool>,
    /// The write index up to which all packets are known to be complete.
    pub quiet: u64,
    /// The write index at the last eviction.
    pub(crate) last_written: u64,
    /// The activity at the last eviction, to compare queues: true if packets waited, and the number of
    /// packets written since the eviction before. The greater it is, the likelier is a running kernel.
    pub(crate) activity: (bool, u64),
}

impl Queue {
    /// Returns true if the queue runs kernels. Queues of copy engines are never evicted.
    pub fn is_compute(&self) -> bool {
        is_compute(self.queue_type)
    }

    /// Returns true if the driver is known to have the wanted mask. While the queue is evicted the mask does not matter,
    /// and its failure must not count as that of the eviction.
    pub(crate) fn is_limit_settled(&self) -> bool {
        self.arbiter.held() || self.limit.is_settled()
    }

    /// Limits the queue to so many of the units, behind those that go first.
    pub(crate) fn set_limit(&mut self, units: Units, keep: u32, merges: bool) {
        self.limit.set(units, keep);
        if merges {
            self.arbiter.set_precedence(Precedence::Behind);
        }
    }

    /// Removes the limit. `usual`: the place of the process's queues without one.
    pub(crate) fn remove_limit(&mut self, usual: Precedence) {
        self.limit.remove();
        // Also where the driver has refused the mask.
        if self.arbiter.precedence() == Precedence::Behind {
            self.arbiter.set_precedence(usual);
        }
    }

    /// Removes all reasons to evict the queue, and its limit.
    pub(crate) fn release(&mut self, usual: Precedence) {
        self.arbiter.restore();
        self.remove_limit(usual);
    }

    /// Returns true if the queue has packets that the device has not taken, or that are not known to be
    /// complete: equal indices only say that the last kernel was started. Also true if the indices cannot be
    /// read.
    ///
    /// # Safety
    /// The same as for [`Queue::written`].
    pub unsafe fn has_work(&self) -> bool {
        // SAFETY: this function has the same precondition.
        match unsafe { self.indices() } {
            Some((write, read)) => write != read || write != self.quiet,
            None => true,
        }
    }

    /// Returns true if a packet was ever written, or if that is unknown.
    ///
    /// # Safety
    /// The same as for [`Queue::written`].
    pub(crate) unsafe fn was_used(&self) -> bool {
        // SAFETY: this function has the same precondition.
        let written = unsafe { self.written() };
        written != Some(0)
    }

    /// Updates the activity.
    ///
    /// # Safety
    /// The same as for [`Queue::written`].
    pub(crate) unsafe fn update_activity(&mut self) {
        // SAFETY: this function has the same precondition.
        let Some((write, read)) = (unsafe { self.indices() }) else { return };
        let new = write.saturating_sub(std::mem::replace(&mut self.last_written, write));
        self.activity = (write != read, new);
    }

    /// Returns the write index: one past the last packet. `None` if it cannot be read.
    ///
    /// # Safety
    /// This process created the queue and has not freed the memory of its indices, which happens after
    /// DESTROY_QUEUE.
    pub unsafe fn written(&self) -> Option<u64> {
        // SAFETY: the address is that of an index of this queue, which is alive by the precondition.
        unsafe { load(self.write_pointer_address) }
    }

    /// Returns the read index: one past the last packet that the device has taken. `None` if it cannot be read.
    ///
    /// # Safety
    /// The same as for [`Queue::written`].
    pub(crate) unsafe fn read(&self) -> Option<u64> {
        // SAFETY: the address is that of an index of this queue, which is alive by the precondition.
        unsafe { load(self.read_pointer_address) }
    }

    /// Returns the write index and the read index.
    ///
    /// # Safety
    /// The same as for [`Queue::written`].
    unsafe fn indices(&self) -> Option<(u64, u64)> {
        // SAFETY: this function has the same precondition.
        unsafe { Some((self.written()?, self.read()?)) }
    }
}

/// Loads an index of a queue.
///
/// # Safety
/// The address is null, misaligned, or that of an index of a live queue in this process.
unsafe fn load(address: u64) -> Option<u64> {
    let at = address as *mut u64;
    if at.is_null() || !at.is_aligned() {
        return None;
    }
    // SAFETY: the address is aligned and, by the precondition, that of a live index, which the device and the
    // runtime change by atomic stores.
    Some(unsafe { AtomicU64::from_ptr(at) }.load(Ordering::Acquire))
}
