//! Queues that keep a share of the compute units instead of being evicted.
//!
//! A limited queue goes on with its work, on fewer units. The request (SET_CU_MASK) takes the queue off the hardware
//! and puts it back with the new mask, so that running waves are saved and go on within the mask; it costs
//! about what an eviction costs. A limit is merged with the mask that the runtime sets, and the runtime's mask
//! is restored when the limit is removed.

use hip_sys::kfd::{self, Plain as _};

use super::Registry;
use crate::kernel::{Errno, Kernel};
use crate::mechanism::MechanismKind;
use crate::outcome::Outcome;
use crate::units::{Units, refuses_mask};

/// The largest number of bits of a compute unit mask that the driver reads (`max_num_cus` of
/// `kfd_ioctl_set_cu_mask`).
const MAX_CU_MASK: u32 = 1024;

impl Registry {
    /// Limits the compute queues of a device to `keep` of its units: those that have ever been used, and those that are
    /// created from now on. A further call limits the queues that were used for the first time meanwhile.
    /// [`Registry::restore`] removes the limits.
    ///
    /// Returns `None` if a queue could not be limited: what was limited stays so until the queues are
    /// restored, and no queue is limited from then on ([`Registry::refuses_limits`]). The caller evicts them instead.
    ///
    /// # Safety
    /// The same as for [`Registry::evict`].
    pub unsafe fn limit(&self, gpu_id: u32, units: Units, keep: u32) -> Option<Outcome> {
        let mut inner = self.lock();
        if inner.given_up.is_some() || inner.refuses_limits.is_some() {
            return None;
        }
        if units.pair > 1 && inner.mechanism.kind() == MechanismKind::DebugTrap {
            // On gfx11 the driver refuses a debugger once a mask was set (`kfd_dbg_set_queue_workaround`), so evictions
            // would fail from then on.
            inner.refuses_limits = Some(Errno(libc::EBUSY));
            return None;
        }
        // SAFETY: this function has the same precondition.
        let ids = unsafe { inner.with_work(gpu_id, true) };
        let merges = inner.mechanism.merges();
        inner.limited.insert(gpu_id, (units, keep));
        for id in &ids {
            if let Some(queue) = inner.queues.get_mut(id) {
                queue.set_limit(units, keep, merges);
            }
        }
        let outcome = inner.apply(&ids);
        let limited = |id| inner.queues.get(id).is_some_and(|queue| queue.limit.is_set());
        if outcome.unsettled == 0 && ids.iter().all(limited) {
            return Some(outcome);
        }
        inner.refuses_limits = outcome.error.or(Some(Errno(libc::EIO)));
        None
    }

    /// Returns the reason why no queue is limited any more: the driver refused it, or it failed. `None` while it is
    /// possible, as far as is known.
    pub fn refuses_limits(&self) -> Option<Errno> {
        self.lock().refuses_limits
    }

    /// Executes SET_CU_MASK of the runtime, and limits the queue again if it was limited.
    pub(super) fn set_cu_mask(
        &self,
        runtime: &dyn Kernel,
        command: u32,
        argument: &mut [u8],
    ) -> Result<i32, Errno> {
        let mut inner = self.lock();
        let asked = kfd::SetCuMask::from_bytes(argument);
        let result = runtime.execute(command, argument);
        if let Some(queue) = inner.queues.get_mut(&asked.queue_id) {
            match result {
                Ok(_) => {
                    // As many bits as the driver reads; it ignores the rest and requires no alignment.
                    let mut mask = vec![0u32; asked.num_cu_mask.min(MAX_CU_MASK) as usize / 32];
                    let bytes = size_of_val(mask.as_slice());
                    // SAFETY: the driver has just read as many bytes at this address for the caller, which
                    // waits for this call; `mask` is a new allocation of the same size.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            asked.cu_mask_ptr as *const u8,
                            mask.as_mut_ptr().cast::<u8>(),
                            bytes,
                        );
                    }
                    queue.cu_mask = mask;
                    queue.limit.runtime_set();
                    if !queue.limit.is_settled() {
                        inner.apply(&[asked.queue_id]);
                    }
                }
                Err(errno) if refuses_mask(errno) => {}
                Err(_) => {
                    queue.arbiter.invalidate();
                    queue.limit.invalidate();
                }
            }
        }
        inner.note_answer(result);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Failure;
    use crate::registry::tests::{BOTH, Bench, GPU, SET, UNITS, UPDATE};
    use std::collections::BTreeSet;

    const ALL: [u32; 2] = [u32::MAX; 2];
    const EIO: Option<Failure> = Some(Failure { errno: libc::EIO, after: true });

    #[test]
    fn used_queues_are_limited_and_restored() {
        for kind in BOTH {
            let mut bench = Bench::new(kind);
            let (used, unused) = (bench.compute(3), bench.compute(0));
            bench.drain(used);
            let sdma = bench.create(GPU, kfd::QUEUE_TYPE_SDMA, 64);
            let elsewhere = bench.create(GPU + 1, kfd::QUEUE_TYPE_COMPUTE_AQL, 3);
            bench.kernel.asked();
            let outcome = bench.limit().unwrap();
            assert_eq!((outcome.queues, outcome.requests, outcome.error), (1, 1, None), "{kind:?}");
            assert_eq!(bench.kernel.asked(), [SET]);
            assert_eq!(bench.kernel.mask(used), [0xff, 0]);
            assert!([used, unused, sdma, elsewhere].iter().all(|id| bench.kernel.runs(*id)));
            assert_eq!(bench.registry.held_devices(), BTreeSet::from([GPU]));
            // Nothing is to be done again, until a further queue is used.
            assert_eq!(bench.limit().unwrap().requests, 0);
            bench.write(unused, 9);
            assert_eq!(bench.limit().unwrap().requests, 1);
            assert_eq!(bench.kernel.mask(unused), [0xff, 0]);
            // A new queue is limited before its creator knows it.
            let new = bench.compute(0);
            assert_eq!(bench.kernel.mask(new), [0xff, 0]);
            let outcome = bench.registry.restore(GPU);
            assert_eq!((outcome.requests, outcome.unsettled), (3, 0));
            assert_eq!([used, unused, new].map(|id| bench.kernel.mask(id)), [ALL; 3], "{kind:?}");
            let next = bench.compute(0);
            assert!(bench.kernel.mask(next).is_empty());
            assert!([sdma, elsewhere].iter().all(|id| bench.kernel.mask(*id).is_empty()));
            assert!(bench.registry.held_devices().is_empty());
            assert_eq!(bench.registry.restore(GPU).requests, 0);
        }
    }

    #[test]
    fn mask_of_the_runtime_is_merged_and_restored() {
        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let id = bench.compute(3);
        bench.runtime_mask(id, &[0xf0f0_f0f0, 0]).unwrap();
        bench.limit().unwrap();
        assert_eq!(bench.kernel.mask(id), [0xf0f0, 0]);
        // The runtime's new mask is limited as well.
        bench.kernel.asked();
        bench.runtime_mask(id, &[!0xffff, 0xff]).unwrap();
        assert_eq!(bench.kernel.asked(), [SET, SET]);
        assert_eq!(bench.kernel.mask(id), [0xff_0000, 0]);
        // A mask that is within the limit stays.
        bench.runtime_mask(id, &[0xf, 0]).unwrap();
        assert_eq!(bench.kernel.mask(id), [0xf, 0]);
        bench.kernel.asked();
        bench.registry.restore(GPU);
        assert_eq!(bench.kernel.asked(), [], "the driver has the runtime's mask");
        bench.limit().unwrap();
        assert_eq!(bench.kernel.mask(id), [0xf, 0]);
    }

    #[test]
    fn refused_mask_of_the_runtime_keeps_the_limit() {
        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let id = bench.compute(3);
        bench.limit().unwrap();
        assert_eq!(bench.runtime_mask(id, &[]), Err(Errno(libc::EINVAL)));
        assert_eq!(bench.kernel.mask(id), [0xff, 0]);
        // After another error the driver may have either mask, so that the limit is sent again.
        bench.kernel.fail([EIO]);
        assert_eq!(bench.runtime_mask(id, &[0xf000, 0]), Err(Errno(libc::EIO)));
        assert!(bench.registry.has_pending());
        assert_eq!(bench.registry.reconcile().unsettled, 0);
        assert_eq!(bench.kernel.mask(id), [0xff, 0]);
        bench.registry.restore(GPU);
        assert_eq!(bench.kernel.mask(id), ALL);
    }

    #[test]
    fn refused_limit_is_not_tried_again() {
        for errno in [libc::EBUSY, libc::EINVAL] {
            let mut bench = Bench::new(MechanismKind::UpdateQueue);
            let ids = [bench.compute(3), bench.compute(3)];
            bench.kernel.fail([None, Some(Failure { errno, after: false })]);
            bench.kernel.asked();
            assert_eq!(bench.limit(), None);
            assert_eq!(bench.kernel.asked(), [SET, SET]);
            assert_eq!(bench.registry.refuses_limits(), Some(Errno(errno)));
            assert_eq!(bench.registry.given_up(), None, "evictions go on");
            // The caller evicts instead, whatever becomes of the masks.
            assert_eq!(bench.evict().queues, 2);
            assert!(ids.iter().all(|id| !bench.kernel.runs(*id)));
            bench.kernel.asked();
            bench.registry.restore(GPU);
            // The limit is removed first, while the queue is off the hardware.
            assert_eq!(bench.kernel.asked(), [SET, UPDATE, UPDATE]);
            assert!(ids.iter().all(|id| bench.kernel.runs(*id)));
            assert!(ids.iter().all(|id| bench.kernel.mask(*id) != [0xff, 0]));
            assert_eq!(bench.limit(), None);
            assert_eq!(bench.kernel.asked(), []);
        }
    }

    #[test]
    fn failed_requests_are_repeated() {
        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let id = bench.compute(3);
        bench.kernel.fail([EIO, EIO]);
        let outcome = bench.limit().unwrap();
        assert_eq!((outcome.unsettled, outcome.error), (0, Some(Errno(libc::EIO))));
        assert_eq!(bench.kernel.mask(id), [0xff, 0]);
        // A removal that fails stays pending.
        bench.kernel.fail([EIO; 3]);
        assert_eq!(bench.registry.restore(GPU).unsettled, 1);
        assert!(bench.registry.has_pending());
        assert_eq!(bench.registry.reconcile().unsettled, 0);
        assert!(!bench.registry.has_pending());
        assert_eq!(bench.kernel.mask(id), ALL);
        // A limit that fails for good is not tried again, and is removed like any other.
        bench.kernel.fail([EIO; 3]);
        assert_eq!(bench.limit(), None);
        assert_eq!(bench.registry.refuses_limits(), Some(Errno(libc::EIO)));
        bench.registry.restore(GPU);
        assert_eq!(bench.kernel.mask(id), ALL);
    }

    #[test]
    fn debug_trap_limits_nothing_where_masks_keep_debuggers_out() {
        let mut bench = Bench::new(MechanismKind::DebugTrap);
        let id = bench.compute(3);
        // SAFETY: the indices live as long as the bench.
        assert_eq!(unsafe { bench.registry.limit(GPU, Units { pair: 2, ..UNITS }, 8) }, None);
        assert!(bench.kernel.mask(id).is_empty());
        assert_eq!(bench.evict().queues, 1);
    }

    #[test]
    fn masks_that_fail_keep_nothing_from_being_evicted() {
        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let id = bench.compute(3);
        // Limiting and the removal of the limit: each fails three times, and an update behind it succeeds.
        bench.kernel.fail([EIO, EIO, EIO, None, EIO, EIO, EIO]);
        assert_eq!(bench.limit(), None);
        assert_eq!(bench.registry.restore(GPU).unsettled, 1);
        bench.kernel.asked();
        let outcome = bench.evict();
        assert_eq!((outcome.queues, outcome.unsettled, outcome.error), (1, 0, None));
        assert_eq!(bench.kernel.asked(), [UPDATE]);
        assert!(!bench.registry.has_pending());
        assert_eq!(bench.registry.restore(GPU).unsettled, 0);
        assert!(bench.kernel.runs(id));
        assert_eq!(bench.kernel.mask(id), ALL);
    }

    #[test]
    fn time_out_removes_every_limit_once() {
        for errno in [libc::ETIME, libc::EACCES] {
            let mut bench = Bench::new(MechanismKind::UpdateQueue);
            let ids = [bench.compute(3), bench.compute(3)];
            bench.kernel.fail([None, Some(Failure { errno, after: true })]);
            assert_eq!(bench.limit(), None);
            assert_eq!(bench.registry.given_up(), Some(Errno(errno)));
            assert!(bench.registry.held_devices().is_empty());
            assert_eq!(ids.map(|id| bench.kernel.mask(id)), [ALL; 2]);
            bench.kernel.asked();
            assert_eq!(bench.limit(), None);
            assert_eq!(bench.kernel.asked(), []);
        }
    }

    #[test]
    fn end_and_destruction_leave_no_limit() {
        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let ids = [bench.compute(3), bench.compute(3)];
        bench.limit().unwrap();
        bench.kernel.asked();
        bench.destroy(ids[0]).unwrap();
        assert_eq!(bench.kernel.asked(), [0x03], "the mask goes with the queue");
        bench.registry.shut_down();
        assert_eq!(bench.kernel.mask(ids[1]), ALL);
        let id = bench.compute(3);
        bench.limit().unwrap();
        bench.registry.abandon(Errno(libc::EOPNOTSUPP));
        assert_eq!(bench.kernel.mask(id), ALL);
        assert_eq!(bench.limit(), None);
    }
}
