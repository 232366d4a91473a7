//! The launch order between queues, and inheritance, while queues are suspended, resumed, emptied and
//! destroyed.

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

    /// Returns everything that was launched, in order; 100 is added to discarded commands.
    fn all(&self) -> Vec<u32> {
        self.log.lock().expect("no panic").iter().map(|(_, id)| *id).collect()
    }
}

impl Part {
    fn after(&self, through: Ticket) -> [After; 1] {
        [After { queue: self.queue.clone(), through }]
    }

    fn in_order_after(&self, id: u32, after: &[After]) -> bool {
        let spec = CommandSpec { after, ..CommandSpec::new(CostKey::UNKNOWN) };
        matches!(self.queue.submit_in_order(&spec, || self.hw.launch(id)), Ok((_, Ok(()))))
    }

    /// Launches what is still pending at a model's end, in place of a worker.
    fn release(&self) {
        self.queue.resume(ResumeFlags::NONE);
        self.queue.advance(10);
    }
}

/// Starts the model's other thread, which runs while the first one submits.
fn meets(act: impl Fn(&XQueue) + Send + 'static, part: &Part) -> thread::JoinHandle<()> {
    let queue = part.queue.clone();
    thread::spawn(move || act(&queue))
}

#[test]
fn edge_holds_while_either_end_is_suspended_and_resumed() {
    for awaited in [true, false] {
        check(move || {
            let bed = Bed::several(2);
            let worker = bed.worker();
            let (first, second) = (bed.part(0), bed.part(1));
            let suspended = if awaited { &first } else { &second };
            let suspending = meets(
                |queue| {
                    queue.suspend(SuspendFlags::NONE);
                    queue.resume(ResumeFlags::NONE);
                },
                suspended,
            );
            let record = first.defer(1).expect("open");
            second.defer_after(2, &first.after(record)).expect("open");
            second.queue.wait_launched(Ticket::NONE);
            suspending.join().expect("no panic");
            worker.stop();
            assert_eq!(bed.all(), [1, 2]);
        });
    }
}

#[test]
fn suspension_beside_inheritance_does_not_block_it() {
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
        assert_eq!(bed.all(), [1, 2], "it stays suspended, and is launched all the same");
    });
}

#[test]
fn inheritance_follows_a_chain_and_goes_no_further() {
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
fn suspended_waiter_grants_no_inheritance() {
    check(|| {
        let bed = Bed::several(2);
        let (low, middle) = (bed.part(0), bed.part(1));
        low.queue.suspend(SuspendFlags::NONE);
        let record = low.defer(1).expect("open");
        let suspending = meets(
            |queue| {
                queue.set_policy_run(false);
                queue.set_policy_run(true);
            },
            &middle,
        );
        let worker = bed.worker();
        middle.queue.suspend(SuspendFlags::NONE);
        middle.defer_after(2, &low.after(record)).expect("open");
        suspending.join().expect("no panic");
        worker.stop();
        assert_eq!(bed.all(), [], "both are suspended");
        low.release();
        middle.release();
        assert_eq!(bed.all(), [1, 2]);
    });
}

#[test]
fn in_order_launch_lets_the_awaited_queue_run() {
    check(|| {
        let bed = Bed::several(2);
        let worker = bed.worker();
        let (low, high) = (bed.part(0), bed.part(1));
        low.queue.suspend(SuspendFlags::NONE);
        let record = low.defer(1).expect("open");
        assert!(high.in_order_after(2, &low.after(record)));
        worker.stop();
        assert_eq!(bed.all(), [1, 2]);
    });
}

#[test]
fn awaited_queue_destroyed_meanwhile_keeps_the_order() {
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
fn waiting_queue_destroyed_beside_a_suspended_one_keeps_the_order() {
    check(|| {
        let bed = Bed::several(2);
        let worker = bed.worker();
        let (awaited, waiting) = (bed.part(0), bed.part(1));
        awaited.queue.suspend(SuspendFlags::NONE);
        waiting.queue.suspend(SuspendFlags::NONE);
        let record = awaited.defer(1).expect("open");
        waiting.defer_after(2, &awaited.after(record)).expect("open");
        // Its own suspension ends with it, so it runs, and the other one inherits that.
        waiting.queue.destroy(false);
        worker.stop();
        assert_eq!(bed.all(), [1, 2]);
        assert!(waiting.defer(3).is_err());
    });
}

#[test]
fn two_destructions_beside_a_submission_end() {
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
fn dropped_command_blocks_no_other_queue() {
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
        // Each was launched by inheritance before the drop, or dropped.
        let all: Vec<_> = bed.all().iter().map(|id| id % 100).collect();
        assert_eq!(all, [1, 2, 3]);
    });
}

#[test]
fn default_queue_keeps_its_place_among_blocking_ones() {
    check(|| {
        let bed = Bed::with(&[OrderClass::Default, OrderClass::Blocking]);
        let worker = bed.worker();
        let (default, blocking) = (bed.part(0), bed.part(1));
        let suspending = meets(
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
        suspending.join().expect("no panic");
        worker.stop();
        assert_eq!(bed.all(), [1, 2, 3]);
    });
}

#[test]
fn process_scope_launches_everything_earlier_first() {
    check(|| {
        let bed = Bed::several(2);
        let worker = bed.worker();
        let (one, other) = (bed.part(0), bed.part(1));
        one.queue.suspend(SuspendFlags::NONE);
        one.defer(1).expect("open");
        let resuming = meets(|queue| queue.resume(ResumeFlags::NONE), &one);
        let spec = CommandSpec { scope: Some(Scope::Process), ..CommandSpec::new(CostKey::UNKNOWN) };
        if other.queue.try_direct(&spec, || other.hw.launch(2)) == Direct::NotNow {
            let _ = other.queue.submit_in_order(&spec, || other.hw.launch(2)).expect("open");
        }
        resuming.join().expect("no panic");
        worker.stop();
        assert_eq!(bed.all(), [1, 2]);
    });
}

#[test]
fn permission_of_the_process_ends_a_wait() {
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
