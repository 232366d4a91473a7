//! Reads the write and read indices of the queues. They show which queues have work, and whether a device takes packets.

use super::{Marker, Registry};

impl Registry {
    /// Returns the present write indices of a device's queues, for [`Registry::note_complete`].
    ///
    /// # Safety
    /// The same as for [`Registry::evict`].
    pub unsafe fn marker(&self, gpu_id: u32) -> Marker {
        let inner = self.lock();
        // Without evictions, destructions may pass this registry by.
        if inner.given_up.is_some() {
            return Marker(Vec::new());
        }
        let queues = inner.queues.values().filter(|queue| queue.gpu_id == gpu_id && queue.is_compute());
        // SAFETY: a destruction takes this lock first, so that the queues are alive; they belong to this
        // process by the precondition.
        Marker(
            queues.filter_map(|queue| Some((queue.id, queue.serial, unsafe { queue.written() }?))).collect(),
        )
    }

    /// Records that all packets before the mark are complete: a synchronization that began after the mark has
    /// returned. A queue without packets since then has no work.
    pub fn note_complete(&self, mark: &Marker) {
        let mut inner = self.lock();
        for (id, serial, written) in &mark.0 {
            if let Some(queue) = inner.queues.get_mut(id).filter(|queue| queue.serial == *serial) {
                queue.quiet = queue.quiet.max(*written);
            }
        }
    }

    /// Counts the compute queues of all devices that have work; `None` while a request is under way. Does not
    /// wait.
    ///
    /// # Safety
    /// The same as for [`Registry::evict`].
    pub unsafe fn count_with_work(&self) -> Option<usize> {
        let inner = self.inner.try_lock()?;
        // Without evictions, destructions may pass this registry by.
        if inner.given_up.is_some() {
            return Some(0);
        }
        let queues = inner.queues.values().filter(|queue| queue.is_compute());
        // SAFETY: a destruction takes this lock first, so that the queue is alive; it belongs to this process
        // by the precondition.
        Some(queues.filter(|queue| unsafe { queue.has_work() }).count())
    }

    /// Returns how many packets the devices have taken from the compute queues that exist: the sum of their read
    /// indices. `None` while a request is under way. Does not wait.
    ///
    /// A device writes a read index when it takes packets, possibly several at a time. So the sum stands still during a
    /// long kernel. It also changes when a queue is destroyed.
    ///
    /// # Safety
    /// The same as for [`Registry::evict`].
    pub unsafe fn taken(&self) -> Option<u64> {
        let inner = self.inner.try_lock()?;
        // Without evictions, destructions may pass this registry by.
        if inner.given_up.is_some() {
            return Some(0);
        }
        let queues = inner.queues.values().filter(|queue| queue.is_compute());
        // SAFETY: a destruction takes this lock first, so that the queues are alive; they belong to this process
        // by the precondition.
        Some(queues.filter_map(|queue| unsafe { queue.read() }).fold(0, u64::wrapping_add))
    }
}
