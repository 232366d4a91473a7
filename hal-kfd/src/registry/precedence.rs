//! Queues that go before those of other processes.
//!
//! A queue has a priority in the driver (`queue_priority` of `CREATE_QUEUE` and `UPDATE_QUEUE`). A change takes a request
//! for each queue, which saves and restores running waves as an eviction does. So a process goes first for as long as less
//! urgent ones are there, and not only while it has work. A limited queue of high priority costs such a request more at
//! each limit and each restoration.

use super::{Inner, Registry};
use crate::arbiter::Precedence;
use crate::outcome::Outcome;

impl Registry {
    /// Lets all compute queues go before those of other processes, or gives them back the priority that the runtime set.
    /// Queues that are created from now on follow. Limited queues follow once their limit is removed.
    ///
    /// Nothing changes with debug-trap, whose evictions know no priority, and after a queue could not be changed.
    pub fn put_first(&self, first: bool) -> Outcome {
        let mut inner = self.lock();
        let usual = if first { Precedence::First } else { Precedence::Own };
        let refused = inner.refuses_precedence || inner.given_up.is_some() || !inner.mechanism.merges();
        if inner.usual == usual || first && refused {
            return Outcome::default();
        }
        let mut outcome = inner.place(usual);
        if inner.given_up.is_some() {
            // No request is sent to a device that is being reset.
            inner.mark(Precedence::Own);
        } else if first && outcome.unsettled != 0 {
            inner.refuses_precedence = true;
            let undone = inner.place(Precedence::Own);
            (outcome.requests, outcome.took) =
                (outcome.requests + undone.requests, outcome.took + undone.took);
        }
        outcome
    }

    /// Returns true if the compute queues go before those of other processes.
    pub fn is_first(&self) -> bool {
        self.lock().usual == Precedence::First
    }
}

impl Inner {
    /// Gives all compute queues that are not limited this place.
    fn place(&mut self, usual: Precedence) -> Outcome {
        let ids = self.mark(usual);
        self.apply(&ids)
    }

    /// Wants this place for all compute queues that are not limited, and returns them. Sends nothing.
    pub(super) fn mark(&mut self, usual: Precedence) -> Vec<u32> {
        self.usual = usual;
        let ids = self.ids(|queue| queue.is_compute() && !queue.limit.is_set());
        for id in &ids {
            if let Some(queue) = self.queues.get_mut(id) {
                queue.arbiter.set_precedence(usual);
            }
        }
        ids
    }
}

#[cfg(test)]
mod tests {
    use crate::fake::Failure;
    use crate::mechanism::MechanismKind;
    use crate::registry::tests::{BOTH, Bench, GPU, SET, UPDATE};
    use hip_sys::kfd;

    fn priorities<const N: usize>(bench: &Bench, ids: [u32; N]) -> [u32; N] {
        ids.map(|id| bench.kernel.queue(id).kept.priority)
    }

    #[test]
    fn compute_queues_go_first_and_return_to_their_own_priority() {
        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let (used, unused) = (bench.compute(3), bench.compute(0));
        let sdma = bench.create(GPU, kfd::QUEUE_TYPE_SDMA, 64);
        bench.kernel.asked();
        let outcome = bench.registry.put_first(true);
        assert_eq!((outcome.queues, outcome.requests, outcome.error), (2, 2, None));
        assert!(bench.registry.is_first());
        // One made from now on is made so.
        let new = bench.compute(0);
        assert_eq!(priorities(&bench, [used, unused, new, sdma]), [12, 12, 12, 7]);
        assert_eq!(bench.registry.put_first(true).requests, 0);
        // The runtime's updates and our evictions keep it.
        bench.runtime_update(used, 50).unwrap();
        bench.evict();
        assert!(!bench.kernel.runs(used));
        bench.registry.restore(GPU);
        assert_eq!(priorities(&bench, [used]), [12]);
        assert_eq!(bench.kernel.queue(used).kept.percentage, 50);
        assert_eq!(bench.registry.put_first(false).requests, 3);
        assert_eq!(priorities(&bench, [used, unused, new, sdma]), [7; 4]);
        assert!(!bench.registry.is_first());
    }

    #[test]
    fn limited_queues_stay_behind() {
        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let id = bench.compute(3);
        bench.runtime_priority(id, 15).unwrap();
        bench.kernel.asked();
        bench.limit().unwrap();
        assert_eq!(bench.kernel.asked(), [SET, UPDATE]);
        assert_eq!(priorities(&bench, [id]), [10]);
        // What is made first meanwhile is so without the limit.
        assert_eq!(bench.registry.put_first(true).requests, 0);
        let new = bench.compute(0);
        assert_eq!(priorities(&bench, [id, new]), [10, 7]);
        bench.registry.restore(GPU);
        assert_eq!(priorities(&bench, [id, new]), [15, 12]);
        bench.registry.put_first(false);
        assert_eq!(priorities(&bench, [id, new]), [15, 7]);
    }

    #[test]
    fn queue_whose_mask_is_refused_gets_its_priority_back() {
        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let id = bench.compute(3);
        bench.runtime_priority(id, 15).unwrap();
        bench.kernel.fail([Some(Failure { errno: libc::EBUSY, after: false })]);
        assert_eq!(bench.limit(), None);
        bench.registry.restore(GPU);
        assert_eq!(priorities(&bench, [id]), [15]);
    }

    #[test]
    fn place_that_fails_is_given_back_for_good() {
        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let ids = [bench.compute(3), bench.compute(3)];
        let failure = Some(Failure { errno: libc::EIO, after: true });
        bench.kernel.fail([None, failure, failure, failure]);
        assert_ne!(bench.registry.put_first(true).error, None);
        assert_eq!(priorities(&bench, ids), [7; 2]);
        assert!(!bench.registry.is_first() && !bench.registry.has_pending());
        assert!(ids.iter().all(|id| bench.kernel.runs(*id)));
        bench.kernel.asked();
        assert_eq!(bench.registry.put_first(true).requests, 0);
        assert_eq!(bench.evict().queues, 2, "evictions go on");
        // One that failed once only is repeated.
        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let id = bench.compute(3);
        bench.kernel.fail([failure]);
        assert_eq!(bench.registry.put_first(true).unsettled, 0);
        assert_eq!(priorities(&bench, [id]), [12]);
    }

    #[test]
    fn queues_of_another_mechanism_and_after_a_reset_keep_their_priority() {
        let mut bench = Bench::new(MechanismKind::DebugTrap);
        let id = bench.compute(3);
        bench.registry.put_first(true);
        let new = bench.compute(3);
        assert_eq!(priorities(&bench, [id, new]), [7; 2]);
        bench.limit().unwrap();
        assert_eq!(priorities(&bench, [id, new]), [7; 2]);

        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let id = bench.compute(3);
        bench.kernel.fail([Some(Failure { errno: libc::ETIME, after: false })]);
        bench.registry.put_first(true);
        assert!(bench.registry.given_up().is_some());
        assert!(bench.kernel.runs(id) && !bench.registry.is_first());
        bench.kernel.asked();
        assert_eq!(bench.registry.put_first(true).requests, 0);
        assert_eq!(bench.kernel.asked(), []);
    }

    #[test]
    fn end_restores_without_a_request_for_the_place() {
        for kind in BOTH {
            let mut bench = Bench::new(kind);
            bench.compute(3);
            bench.registry.put_first(true);
            bench.kernel.asked();
            bench.registry.shut_down();
            assert!(!bench.kernel.asked().contains(&UPDATE), "{kind:?}: the queues end with the process");
        }
    }
}
