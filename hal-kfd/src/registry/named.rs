//! Queues held by who named them, for sessions that come and go (`xsched/kfd.h`).
//!
//! That stays beside what holds the whole process: a queue runs when nobody holds it. A queue has one such session at most, the
//! one that holds it or that still has to put it back because that failed; it is noted with the queue, and goes with it.

use super::{Inner, Outcome, Registry};
use crate::kernel::{Errno, Kernel};
use crate::queue::By;

/// Why queues were not suspended or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no queue of this number.
    NotThere(u32),
    /// The queue of this number runs no kernels.
    NotCompute(u32),
    /// The request failed, or (without an error) the driver left the queue alone: it is new to the debugger or being destroyed.
    Failed(Option<Errno>),
}

impl Registry {
    /// Takes compute queues off the hardware for a session: the named ones, or all. Those that a session has already stay its.
    ///
    /// # Errors
    /// Why the first that failed did. What this call has taken off is put back; where that fails as well it stays the
    /// session's, and [`Registry::resume_for`] tries again.
    pub fn suspend_for(&self, session: u64, named: Option<&[u32]>) -> Result<(), Refused> {
        let mut inner = self.lock();
        let ids: Vec<u32> = match named {
            Some(ids) => ids.to_vec(),
            None => inner.queues.values().filter(|queue| queue.is_compute()).map(|queue| queue.id).collect(),
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
            if !queue.arbiter.held_by(By::User) {
                queue.arbiter.hold(By::User, true);
                queue.session = Some(session);
                begun.push(id);
            }
            // What is held already is asked for again if that is not sure.
            if let Err(why) = inner.reach(&*self.kernel, id) {
                for id in begun {
                    // It stays the session's.
                    let _ = inner.put_back(&*self.kernel, id);
                }
                return Err(why);
            }
        }
        Ok(())
    }

    /// Puts queues back: the named ones, whosever they are, or all of a session's. All of them are tried.
    ///
    /// # Errors
    /// Why the first that failed did. It stays its session's, so that it can be tried again.
    pub fn resume_for(&self, session: u64, named: Option<&[u32]>) -> Result<(), Refused> {
        let mut inner = self.lock();
        let of_session = |inner: &Inner| {
            inner
                .queues
                .values()
                .filter(|queue| queue.session == Some(session))
                .map(|queue| queue.id)
                .collect()
        };
        let ids = named.map_or_else(|| of_session(&inner), <[u32]>::to_vec);
        let mut first = Ok(());
        for id in ids {
            first = first.and(inner.put_back(&*self.kernel, id));
        }
        first
    }
}

impl Inner {
    /// Nobody who names queues holds this one any more.
    fn put_back(&mut self, kernel: &dyn Kernel, id: u32) -> Result<(), Refused> {
        self.queues.get_mut(&id).ok_or(Refused::NotThere(id))?.arbiter.hold(By::User, false);
        self.reach(kernel, id)?;
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.session = None;
        }
        Ok(())
    }

    /// Brings the driver where it is to be for one queue.
    fn reach(&mut self, kernel: &dyn Kernel, id: u32) -> Result<(), Refused> {
        let held = self.queues.get(&id).is_some_and(|queue| queue.arbiter.held());
        if held && self.given_up.is_some() {
            return Err(Refused::Failed(self.given_up));
        }
        let mut outcome = Outcome::default();
        self.apply(kernel, &[id], &mut outcome);
        if outcome.unsettled == 0 { Ok(()) } else { Err(Refused::Failed(outcome.error)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Failure;
    use crate::mechanism::Kind;
    use crate::registry::tests::{BOTH, Bench, GPU};
    use hip_sys::kfd;

    const EIO: Option<Failure> = Some(Failure { errno: libc::EIO, after: false });
    const FAILED: Result<(), Refused> = Err(Refused::Failed(Some(Errno(libc::EIO))));

    fn runs(bench: &Bench, ids: &[u32]) -> Vec<bool> {
        ids.iter().map(|id| bench.kernel.runs(*id)).collect()
    }

    #[test]
    fn compute_queues_are_taken_by_name_or_all_of_them_whatever_is_in_them() {
        for kind in BOTH {
            let mut bench = Bench::new(kind);
            let ids = [bench.compute(0), bench.compute(3), bench.create(GPU, kfd::QUEUE_TYPE_SDMA, 1)];
            assert_eq!(bench.registry.suspend_for(1, None), Ok(()));
            assert_eq!(runs(&bench, &ids), [false, false, true], "{kind:?}");
            assert_eq!(bench.registry.resume_for(1, Some(&ids[..1])), Ok(()));
            assert_eq!(runs(&bench, &ids), [true, false, true]);
            assert_eq!(bench.registry.resume_for(1, None), Ok(()));
            assert_eq!(runs(&bench, &ids), [true; 3]);
            // All or nothing, also of what is not there or copies.
            let wrong = [ids[0], 99];
            assert_eq!(bench.registry.suspend_for(1, Some(&wrong)), Err(Refused::NotThere(99)));
            let copies = [ids[0], ids[2]];
            assert_eq!(bench.registry.suspend_for(1, Some(&copies)), Err(Refused::NotCompute(ids[2])));
            assert_eq!(runs(&bench, &ids), [true; 3]);
            assert_eq!(bench.registry.resume_for(1, Some(&wrong)), Err(Refused::NotThere(99)));
        }
    }

    #[test]
    fn a_session_puts_back_what_it_has_taken_and_anybody_what_is_named() {
        for kind in BOTH {
            let mut bench = Bench::new(kind);
            let ids = [bench.compute(1), bench.compute(1)];
            bench.registry.suspend_for(1, Some(&ids[..1])).unwrap();
            bench.registry.suspend_for(2, None).unwrap();
            assert_eq!(bench.registry.resume_for(2, None), Ok(()));
            assert_eq!(runs(&bench, &ids), [false, true], "{kind:?}: the first one's stays");
            assert_eq!(bench.registry.resume_for(2, Some(&ids[..1])), Ok(()));
            assert_eq!(runs(&bench, &ids), [true; 2]);
            // From now on it is the other one's, and none of the first one's business.
            bench.registry.suspend_for(2, None).unwrap();
            assert_eq!(bench.registry.resume_for(1, None), Ok(()));
            assert_eq!(runs(&bench, &ids), [false; 2], "{kind:?}");
        }
    }

    /// The driver gives a number again.
    #[test]
    fn a_queue_that_ends_is_forgotten_and_the_next_of_its_number_is_another() {
        for kind in BOTH {
            let mut bench = Bench::new(kind);
            let (first, second) = (bench.compute(1), bench.compute(1));
            bench.registry.suspend_for(1, None).unwrap();
            bench.destroy(first).unwrap();
            assert_eq!(bench.registry.resume_for(1, None), Ok(()), "{kind:?}: what is there is back");
            assert!(bench.kernel.runs(second));
            bench.registry.suspend_for(1, Some(&[second])).unwrap();
            bench.destroy(second).unwrap();
            let new = bench.compute(1);
            assert!([first, second].contains(&new));
            bench.registry.suspend_for(2, Some(&[new])).unwrap();
            assert_eq!(bench.registry.resume_for(1, None), Ok(()));
            assert!(!bench.kernel.runs(new), "{kind:?}: it is the second session's");
        }
    }

    #[test]
    fn what_could_not_be_put_back_is_tried_again() {
        for kind in BOTH {
            let mut bench = Bench::new(kind);
            let ids = [bench.compute(1), bench.compute(1)];
            bench.registry.suspend_for(1, None).unwrap();
            bench.kernel.fail([EIO; 3]);
            assert_eq!(bench.registry.resume_for(1, None), FAILED, "{kind:?}");
            assert_eq!(runs(&bench, &ids), [false, true], "all are tried");
            assert_eq!(bench.registry.resume_for(1, None), Ok(()));
            assert_eq!(runs(&bench, &ids), [true; 2], "{kind:?}");
            // As by a suspension that fails and cannot be taken back.
            bench.kernel.fail([EIO; 6]);
            assert_eq!(bench.registry.suspend_for(1, Some(&ids)), FAILED);
            bench.registry.resume_for(1, None).unwrap();
            assert!(bench.registry.queues().iter().all(|queue| queue.session.is_none()));
            assert_eq!(bench.registry.settle().requests, 0);
            assert_eq!(runs(&bench, &ids), [true; 2], "{kind:?}");
        }
    }

    #[test]
    fn if_one_fails_those_that_were_taken_go_on_and_those_of_others_do_not() {
        let mut bench = Bench::new(Kind::UpdateQueue);
        let ids = [bench.compute(1), bench.compute(1), bench.compute(1)];
        bench.registry.suspend_for(1, Some(&ids[..1])).unwrap();
        bench.kernel.fail([None, EIO, EIO, EIO]);
        assert_eq!(bench.registry.suspend_for(2, None), FAILED);
        assert_eq!(runs(&bench, &ids), [false, true, true]);
        // Neither is it good enough that somebody else wants it off.
        bench.kernel.fail([EIO]);
        bench.runtime_update(ids[0], 50).unwrap_err();
        bench.kernel.fail([EIO; 3]);
        assert_eq!(bench.registry.suspend_for(2, Some(&ids[..1])), FAILED);
        assert_eq!(bench.registry.suspend_for(2, Some(&ids[..1])), Ok(()));
        assert_eq!(runs(&bench, &ids), [false, true, true]);
    }

    /// Every request succeeds, and the queue runs.
    #[test]
    fn a_queue_that_the_driver_leaves_alone_is_not_suspended() {
        let mut bench = Bench::new(Kind::DebugTrap);
        let ids = [bench.compute(1), bench.compute(1)];
        bench.kernel.0.lock().left_alone.insert(ids[1]);
        assert_eq!(bench.registry.suspend_for(1, None), Err(Refused::Failed(None)));
        assert_eq!(runs(&bench, &ids), [true; 2]);
        assert_eq!(bench.registry.suspend_for(1, Some(&ids[..1])), Ok(()));
    }

    #[test]
    fn after_a_time_out_nothing_is_taken() {
        let mut bench = Bench::new(Kind::UpdateQueue);
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
    fn the_scheduler_and_a_session_hold_beside_each_other() {
        for kind in BOTH {
            let mut bench = Bench::new(kind);
            let id = bench.compute(1);
            bench.registry.suspend_for(1, None).unwrap();
            bench.hold();
            assert_eq!(bench.registry.resume_for(1, None), Ok(()));
            assert!(!bench.kernel.runs(id), "{kind:?}");
            bench.registry.suspend_for(1, None).unwrap();
            bench.registry.release(GPU);
            assert!(!bench.kernel.runs(id), "{kind:?}");
            bench.registry.shut_down();
            assert!(bench.kernel.runs(id), "{kind:?}");
        }
    }
}
