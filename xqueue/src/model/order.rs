//! The launch order between queues, and inheritance, while queues are suspended, resumed, emptied and destroyed.

use std::sync::Arc;

use loom::thread;

use super::{Bed, Part, check};
use crate::*;

impl Bed {
    fn with(classes: &[OrderClass]) -> Self {
        Self::of_classes(Permission::unlimited(), Bounds::default(), classes)
    }

    /// Independent queues.
    fn several(queues: usize) -> Self {
        Self::with(&vec![OrderClass::Independent; queues])
    }

    /// Everything that was launched, in its order; discarded commands as 100 more.
    fn all(&self) -> Vec<u32> {
        self.log.lock().expect("no panic").iter().map(|(_, id)| *id).collect()
    }
}

impl Part {
    fn after(&self, through: Ticket) -> [After; 1] {
        [After { queue: self.queue.clone(), through }]
    }

    fn turn_after(&self, id: u32, after: &[After]) -> bool {
        let spec = Spec { after, ..Spec::new(CostKey::UNKNOWN) };
        matches!(self.queue.submit_in_turn(&spec, || self.hw.launch(id)), Ok((_, Ok(()))))
    }

    /// What is still pending at a model's end goes, with no worker to launch it.
    fn release(&self) {
        self.queue.resume(ResumeFlags::NONE);
        self.queue.advance(10);
    }
}

/// What runs on the model's other thread while the first one submits.
fn meets(act: impl Fn(&XQueue) + Send + 'static, part: &Part) -> thread::JoinHandle<()> {
    let queue = part.queue.clone();
    thread::spawn(move || act(&queue))
}

#[test]
fn an_edge_holds_while_both_ends_are_suspended_and_resumed() {
    for awaited in [true, false] {
        check(move || {
            let bed = Bed::several(2);
            let worker = bed.worker();
            let (first, second) = (bed.part(0), bed.part(1));
            let shaken = if awaited { &first } else { &second };
            let shaking = meets(
                |queue| {
                    queue.suspend(SuspendFlags::NONE);
                    queue.resume(ResumeFlags::NONE);
                },
                shaken,
            );
            let record = first.defer(1).expect("open");
            second.defer_after(2, &first.after(record)).expect("open");
            second.queue.wait_launched(Ticket::NONE);
            shaking.join().expect("no panic");
            worker.stop();
            assert_eq!(bed.all(), [1, 2]);
        });
    }
}

#[test]
fn a_suspension_meets_the_inheritance_that_passes_it() {
    check(|| {
        let bed = Bed::several(2);
        let worker = bed.worker();
        let (low, high) = (bed.part(0), bed.part(1));
        let suspending = meets(|queue| queue.suspend(SuspendFlags::NONE), &low);
        let record = low.defer(1).expect("open");
        high.defer_after(2, &low.after(record)).expect("open");
        high.queue.wait_launched(Ticket::NONE);
        suspending.join().expect("no panic");
        worker.stop();
        assert_eq!(bed.all(), [1, 2], "nobody resumes it, and it is launched all the same");
    });
}

#[test]
fn inheritance_goes_through_a_chain_and_no_further_than_asked() {
    check(|| {
        let bed = Bed::several(3);
        let (low, middle, high) = (bed.part(0), bed.part(1), bed.part(2));
        for held in [&low, &middle] {
            held.queue.suspend(SuspendFlags::NONE);
        }
        let record = low.defer(1).expect("open");
        low.defer(11).expect("open");
        let record = middle.defer_after(2, &low.after(record)).expect("open");
        middle.defer(12).expect("open");
        high.defer_after(3, &middle.after(record)).expect("open");
        let worker = bed.worker();
        high.queue.wait_launched(Ticket::NONE);
        worker.stop();
        assert_eq!(bed.all(), [1, 2, 3]);
        low.release();
        middle.release();
        assert_eq!(bed.all(), [1, 2, 3, 11, 12]);
    });
}

#[test]
fn a_suspended_queue_lends_nothing_to_what_it_waits_for() {
    check(|| {
        let bed = Bed::several(2);
        let (low, middle) = (bed.part(0), bed.part(1));
        low.queue.suspend(SuspendFlags::NONE);
        let record = low.defer(1).expect("open");
        let suspending = meets(
            |queue| {
                queue.suspend(SuspendFlags::NONE);
                queue.resume(ResumeFlags::NONE);
            },
            &middle,
        );
        let worker = bed.worker();
        middle.queue.suspend(SuspendFlags::NONE);
        middle.defer_after(2, &low.after(record)).expect("open");
        suspending.join().expect("no panic");
        worker.stop();
        assert_eq!(bed.all(), [], "both are held");
        low.release();
        middle.release();
        assert_eq!(bed.all(), [1, 2]);
    });
}

#[test]
fn a_turn_waits_for_another_queue_and_lets_it_run() {
    check(|| {
        let bed = Bed::several(2);
        let worker = bed.worker();
        let (low, high) = (bed.part(0), bed.part(1));
        low.queue.suspend(SuspendFlags::NONE);
        let record = low.defer(1).expect("open");
        assert!(high.turn_after(2, &low.after(record)));
        worker.stop();
        assert_eq!(bed.all(), [1, 2]);
    });
}

#[test]
fn the_awaited_queue_is_destroyed_meanwhile() {
    check(|| {
        let bed = Bed::several(2);
        let worker = bed.worker();
        let (awaited, waiting) = (bed.part(0), bed.part(1));
        let record = awaited.defer(1).expect("open");
        let destroying = meets(|queue| queue.destroy(false), &awaited);
        waiting.defer_after(2, &awaited.after(record)).expect("open");
        waiting.queue.wait_launched(Ticket::NONE);
        destroying.join().expect("no panic");
        worker.stop();
        assert_eq!(bed.all(), [1, 2]);
    });
}

#[test]
fn the_waiting_queue_is_destroyed_while_the_awaited_one_is_held() {
    check(|| {
        let bed = Bed::several(2);
        let worker = bed.worker();
        let (awaited, waiting) = (bed.part(0), bed.part(1));
        awaited.queue.suspend(SuspendFlags::NONE);
        waiting.queue.suspend(SuspendFlags::NONE);
        let record = awaited.defer(1).expect("open");
        waiting.defer_after(2, &awaited.after(record)).expect("open");
        // Its own suspension ends with it, so it runs, and lends that to the other one.
        waiting.queue.destroy(false);
        worker.stop();
        assert_eq!(bed.all(), [1, 2]);
        assert!(waiting.defer(3).is_err());
    });
}

#[test]
fn two_destructions_meet_a_submission() {
    check(|| {
        let bed = Bed::several(1);
        let part = bed.part(0);
        let other = meets(|queue| queue.destroy(false), &part);
        let launched = matches!(part.direct(1), Direct::Launched(..));
        part.queue.destroy(true);
        other.join().expect("no panic");
        assert_eq!(bed.all().len(), usize::from(launched));
        assert!(part.defer(2).is_err());
    });
}

#[test]
fn what_is_dropped_holds_nobody() {
    check(|| {
        let bed = Bed::several(2);
        let worker = bed.worker();
        let (dropped, waiting) = (bed.part(0), bed.part(1));
        dropped.queue.suspend(SuspendFlags::NONE);
        dropped.defer(1).expect("open");
        let second = dropped.defer(2).expect("open");
        let dropping = meets(|queue| queue.resume(ResumeFlags::DROP_COMMANDS), &dropped);
        waiting.defer_after(3, &dropped.after(second)).expect("open");
        waiting.queue.wait_launched(Ticket::NONE);
        dropping.join().expect("no panic");
        worker.stop();
        // Each was launched by inheritance before the dropping, or dropped.
        let all: Vec<_> = bed.all().iter().map(|id| id % 100).collect();
        assert_eq!(all, [1, 2, 3]);
    });
}

#[test]
fn the_default_queue_keeps_its_place_among_blocking_ones() {
    check(|| {
        let bed = Bed::with(&[OrderClass::Default, OrderClass::Blocking]);
        let worker = bed.worker();
        let (default, blocking) = (bed.part(0), bed.part(1));
        let shaking = meets(
            |queue| {
                queue.suspend(SuspendFlags::NONE);
                queue.resume(ResumeFlags::NONE);
            },
            &blocking,
        );
        blocking.submit(1).expect("open");
        default.submit(2).expect("open");
        blocking.submit(3).expect("open");
        bed.domain.wait_launched(Scope::Process, Ticket::NONE);
        shaking.join().expect("no panic");
        worker.stop();
        assert_eq!(bed.all(), [1, 2, 3]);
    });
}

#[test]
fn the_whole_process_comes_first_where_that_is_asked() {
    check(|| {
        let bed = Bed::several(2);
        let worker = bed.worker();
        let (one, other) = (bed.part(0), bed.part(1));
        one.queue.suspend(SuspendFlags::NONE);
        one.defer(1).expect("open");
        let resuming = meets(|queue| queue.resume(ResumeFlags::NONE), &one);
        let spec = Spec { scope: Some(Scope::Process), ..Spec::new(CostKey::UNKNOWN) };
        if other.queue.try_direct(&spec, || other.hw.launch(2)) == Direct::NotNow {
            let _ = other.queue.submit_in_turn(&spec, || other.hw.launch(2)).expect("open");
        }
        resuming.join().expect("no panic");
        worker.stop();
        assert_eq!(bed.all(), [1, 2]);
    });
}

#[test]
fn a_wait_meets_the_permission_of_the_gang() {
    check(|| {
        let held = Permission::new(1, false, false, 1);
        let bed = Bed::new(held, Bounds::default(), 1);
        let worker = bed.worker();
        let part = bed.part(0);
        part.defer(1).expect("open");
        let waiting = {
            let queue = Arc::clone(&part.queue);
            thread::spawn(move || queue.wait_launched(Ticket::NONE))
        };
        bed.domain.store_permission(Permission::new(2, true, false, 1));
        waiting.join().expect("no panic");
        worker.stop();
        assert_eq!(bed.all(), [1]);
    });
}
