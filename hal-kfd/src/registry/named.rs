//! Queues that sessions suspend by number (`xsched/kfd.h`).
//!
//! Such a suspension is independent of the eviction of the whole process: a queue runs if no reason to evict
//! it applies. A queue has at most one session: the one that has suspended it, or that still has to resume it
//! because that failed.

use super::{Inner, Queue, Registry};
use crate::arbiter::Evictor;
use crate::kernel::Errno;

/// The reason why queues were not suspended or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no queue with this number.
    NotThere(u32),
    /// The queue with this number runs no kernels.
    NotCompute(u32),
    /// The request failed. Without an error, the driver ignored the queue: it is new to the debugger or being
    /// destroyed.
    Failed(Option<Errno>),
}

impl Registry {
    /// Suspends compute queues for a session: the named ones, or all. A queue that a session has suspended
    /// already stays with it.
    ///
    /// # Errors
    /// The reason of the first failure. The queues that this call has suspended are resumed. Where that fails
    /// as well, the queue stays with the session, and [`Registry::resume_for`] tries again.
    pub fn suspend_for(&self, session: u64, named: Option<&[u32]>) -> Result<(), Refused> {
        let mut inner = self.lock();
        let ids: Vec<u32> = match named {
            Some(ids) => ids.to_vec(),
            None => inner.ids(Queue::is_compute),
        };
        for id in &ids {
            let queue = inner.queues.get(id).ok_or(Refused::NotThere(*id))?;
            if !queue.is_compute() {
                return Err(Refused::NotCompute(*id));
            }
        }
        let mut begun = Vec::new();
        for id in ids {
            let Some(queue) = inner.queues.get_mut(&id) else { continue };
            if !queue.arbiter.is_evicted_by(Evictor::User) {
                queue.arbiter.set_evicted(Evictor::User, true);
                queue.session = Some(session);
                begun.push(id);
            }
            // For a queue that is evicted already this sends a request only if the state is unknown.
            if let Err(why) = inner.apply_to(id) {
                for id in begun {
                    // After a failure the queue stays with the session.
                    let _ = inner.resume(id);
                }
                return Err(why);
            }
        }
        Ok(())
    }

    /// Resumes queues: the named ones of any session, or all of this session. A failure does not keep the
    /// others from it.
    ///
    /// # Errors
    /// The reason of the first failure. The queue stays with its session, which can try again.
    pub fn resume_for(&self, session: u64, named: Option<&[u32]>) -> Result<(), Refused> {
        let mut inner = self.lock();
        let ids = match named {
            Some(ids) => ids.to_vec(),
            None => inner.ids(|queue| queue.session == Some(session)),
        };
        let mut first = Ok(());
        for id in ids {
            first = first.and(inner.resume(id));
        }
        first
    }
}

impl Inner {
    /// Resumes one queue.
    fn resume(&mut self, id: u32) -> Result<(), Refused> {
        self.queues.get_mut(&id).ok_or(Refused::NotThere(id))?.arbiter.set_evicted(Evictor::User, false);
        self.apply_to(id)?;
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.session = None;
        }
        Ok(())
    }

    /// Applies the wanted setting of one queue.
    fn apply_to(&mut self, id: u32) -> Result<(), Refused> {
        let evicted = self.queues.get(&id).is_some_and(|queue| queue.arbiter.held());
        if evicted && self.given_up.is_some() {
            return Err(Refused::Failed(self.given_up));
        }
        let outcome = self.apply(&[id]);
        if outcome.unsettled == 0 { Ok(()) } else { Err(Refused::Failed(outcome.error)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Failure;
    use crate::mechanism::MechanismKind;
    use crate::registry::tests::{BOTH, Bench, GPU};
    use hip_sys::kfd;

    const EIO: Option<Failure> = Some(Failure { errno: libc::EIO, after: false });
    const FAILED: Result<(), Refused> = Err(Refused::Failed(Some(Errno(libc::EIO))));

    fn runs(bench: &Bench, ids: &[u32]) -> Vec<bool> {
        ids.iter().map(|id| bench.kernel.runs(*id)).collect()
    }

    #[test]
    fn compute_queues_are_suspended_by_number_or_all() {
        for kind in BOTH {
            let mut bench = Bench::new(kind);
            let ids = [bench.compute(0), bench.compute(3), bench.create(GPU, kfd::QUEUE_TYPE_SDMA, 1)];
            assert_eq!(bench.registry.suspend_for(1, None), Ok(()));
            assert_eq!(runs(&bench, &ids), [false, false, true], "{kind:?}");
            assert_eq!(bench.registry.resume_for(1, Some(&ids[..1])), Ok(()));
            assert_eq!(runs(&bench, &ids), [true, false, true]);
            assert_eq!(bench.registry.resume_for(1, None), Ok(()));
            assert_eq!(runs(&bench, &ids), [true; 3]);
            // A missing queue or one of a copy engine fails the whole request.
            let wrong = [ids[0], 99];
            assert_eq!(bench.registry.suspend_for(1, Some(&wrong)), Err(Refused::NotThere(99)));
            let copies = [ids[0], ids[2]];
            assert_eq!(bench.registry.suspend_for(1, Some(&copies)), Err(Refused::NotCompute(ids[2])));
            assert_eq!(runs(&bench, &ids), [true; 3]);
            assert_eq!(bench.registry.resume_for(1, Some(&wrong)), Err(Refused::NotThere(99)));
        }
    }

    #[test]
    fn session_resumes_its_own_queues_and_any_named_queue() {
        for kind in BOTH {
            let mut bench = Bench::new(kind);
            let ids = [bench.compute(1), bench.compute(1)];
            bench.registry.suspend_for(1, Some(&ids[..1])).unwrap();
            bench.registry.suspend_for(2, None).unwrap();
            assert_eq!(bench.registry.resume_for(2, None), Ok(()));
            assert_eq!(
                runs(&bench, &ids),
                [false, true],
                "{kind:?}: the queue of the first session stays suspended"
            );
            assert_eq!(bench.registry.resume_for(2, Some(&ids[..1])), Ok(()));
            assert_eq!(runs(&bench, &ids), [true; 2]);
            // From now on the second session has both queues.
            bench.registry.suspend_for(2, None).unwrap();
            assert_eq!(bench.registry.resume_for(1, None), Ok(()));
            assert_eq!(runs(&bench, &ids), [false; 2], "{kind:?}");
        }
    }

    /// The driver reuses the number.
    #[test]
    fn destroyed_queue_is_forgotten_and_its_number_names_a_new_queue() {
        for kind in BOTH {
            let mut bench = Bench::new(kind);
            let (first, second) = (bench.compute(1), bench.compute(1));
            bench.registry.suspend_for(1, None).unwrap();
            bench.destroy(first).unwrap();
            assert_eq!(bench.registry.resume_for(1, None), Ok(()), "{kind:?}: the remaining queue runs");
            assert!(bench.kernel.runs(second));
            bench.registry.suspend_for(1, Some(&[second])).unwrap();
            bench.destroy(second).unwrap();
            let new = bench.compute(1);
            assert!([first, second].contains(&new));
            bench.registry.suspend_for(2, Some(&[new])).unwrap();
            assert_eq!(bench.registry.resume_for(1, None), Ok(()));
            assert!(!bench.kernel.runs(new), "{kind:?}: the queue belongs to the second session");
        }
    }

    #[test]
    fn failed_resume_is_tried_again() {
        for kind in BOTH {
            let mut bench = Bench::new(kind);
            let ids = [bench.compute(1), bench.compute(1)];
            bench.registry.suspend_for(1, None).unwrap();
            bench.kernel.fail([EIO; 3]);
            assert_eq!(bench.registry.resume_for(1, None), FAILED, "{kind:?}");
            assert_eq!(runs(&bench, &ids), [false, true], "all are tried");
            assert_eq!(bench.registry.resume_for(1, None), Ok(()));
            assert_eq!(runs(&bench, &ids), [true; 2], "{kind:?}");
            // A suspension that fails and cannot be undone.
            bench.kernel.fail([EIO; 6]);
            assert_eq!(bench.registry.suspend_for(1, Some(&ids)), FAILED);
            bench.registry.resume_for(1, None).unwrap();
            assert!(bench.registry.queues().iter().all(|queue| queue.session.is_none()));
            assert_eq!(bench.registry.reconcile().requests, 0);
            assert_eq!(runs(&bench, &ids), [true; 2], "{kind:?}");
        }
    }

    #[test]
    fn failed_suspend_resumes_its_own_queues_and_no_others() {
        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let ids = [bench.compute(1), bench.compute(1), bench.compute(1)];
        bench.registry.suspend_for(1, Some(&ids[..1])).unwrap();
        bench.kernel.fail([None, EIO, EIO, EIO]);
        assert_eq!(bench.registry.suspend_for(2, None), FAILED);
        assert_eq!(runs(&bench, &ids), [false, true, true]);
        // A queue of another session must be known to be evicted as well.
        bench.kernel.fail([EIO]);
        bench.runtime_update(ids[0], 50).unwrap_err();
        bench.kernel.fail([EIO; 3]);
        assert_eq!(bench.registry.suspend_for(2, Some(&ids[..1])), FAILED);
        assert_eq!(bench.registry.suspend_for(2, Some(&ids[..1])), Ok(()));
        assert_eq!(runs(&bench, &ids), [false, true, true]);
    }

    /// Every request succeeds, but the queue runs.
    #[test]
    fn queue_that_the_driver_ignores_is_not_suspended() {
        let mut bench = Bench::new(MechanismKind::DebugTrap);
        let ids = [bench.compute(1), bench.compute(1)];
        bench.kernel.0.lock().ignored.insert(ids[1]);
        assert_eq!(bench.registry.suspend_for(1, None), Err(Refused::Failed(None)));
        assert_eq!(runs(&bench, &ids), [true; 2]);
        assert_eq!(bench.registry.suspend_for(1, Some(&ids[..1])), Ok(()));
    }

    #[test]
    fn suspend_after_time_out_is_refused() {
        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let ids = [bench.compute(1), bench.compute(1)];
        let time_out = Errno(libc::ETIME);
        bench.kernel.fail([None, Some(Failure { errno: libc::ETIME, after: false })]);
        assert_eq!(bench.registry.suspend_for(1, None), Err(Refused::Failed(Some(time_out))));
        assert_eq!(runs(&bench, &ids), [true; 2]);
        bench.kernel.asked();
        assert_eq!(bench.registry.suspend_for(1, None), Err(Refused::Failed(Some(time_out))));
        assert_eq!(runs(&bench, &ids), [true; 2]);
        assert_eq!(bench.registry.resume_for(1, None), Ok(()));
        assert_eq!(bench.kernel.asked(), []);
    }

    #[test]
    fn scheduler_and_session_evict_independently() {
        for kind in BOTH {
            let mut bench = Bench::new(kind);
            let id = bench.compute(1);
            bench.registry.suspend_for(1, None).unwrap();
            bench.evict();
            assert_eq!(bench.registry.resume_for(1, None), Ok(()));
            assert!(!bench.kernel.runs(id), "{kind:?}");
            bench.registry.suspend_for(1, None).unwrap();
            bench.registry.restore(GPU);
            assert!(!bench.kernel.runs(id), "{kind:?}");
            bench.registry.shut_down();
            assert!(bench.kernel.runs(id), "{kind:?}");
        }
    }
}
