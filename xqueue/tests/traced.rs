//! The events of a trace that the observer gets.

mod sim;

use parking_lot::Mutex;
use sim::{Bed, SimDevice, unlimited, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use xqueue::{
    CommandSpec, CostKey, DeviceId, Direct, Domain, Done, How, Observer, QueueId, ResumeFlags, Subject,
    SuspendFlags, Traced, XQueue,
};

#[derive(Default)]
struct Seen {
    told: Mutex<Vec<(u64, Traced)>>,
    /// The times that were asked for.
    times: AtomicU64,
}

impl Observer for Seen {
    fn turned_ready(&self, _: QueueId, _: usize, _: Instant) {}
    fn turned_idle(&self, _: QueueId, _: usize, _: Instant, _: Done) {}
    fn traced_at(&self) -> u64 {
        self.times.fetch_add(1, Ordering::Relaxed)
    }
    fn traced(&self, at: u64, _: QueueId, event: Traced) {
        self.told.lock().push((at, event));
    }
}

impl Seen {
    fn take(&self) -> Vec<Traced> {
        let told = std::mem::take(&mut *self.told.lock());
        told.into_iter().map(|(_, event)| event).collect()
    }
}

fn bed() -> (Bed, Arc<Seen>, Arc<XQueue>) {
    let seen = Arc::new(Seen::default());
    let mut bed = Bed::new(unlimited());
    bed.domain = Domain::new(unlimited(), seen.clone());
    bed.domain.add_device(DeviceId(0), Arc::new(SimDevice));
    bed.plain();
    let queue = bed.queues[0].clone();
    (bed, seen, queue)
}

fn about(subject: u64) -> CommandSpec<'static> {
    CommandSpec::new(CostKey(1)).about(Subject(subject))
}

#[test]
fn each_way_of_a_launch_is_told_while_the_domain_is_traced() {
    let (bed, seen, queue) = bed();
    let launched = |how, number, subject| Traced::Launched { how, number, subject: Subject(subject) };
    assert!(matches!(bed.direct_with(0, 1, &about(7)), Direct::Launched(_, Ok(()))));
    assert_eq!(seen.take(), [], "nobody records");

    bed.domain.set_traced(true);
    seen.times.store(7, Ordering::Relaxed);
    assert!(matches!(bed.direct_with(0, 2, &about(8)), Direct::Launched(_, Ok(()))));
    assert_eq!(seen.told.lock()[0].0, 7, "the time of the call's begin");
    assert_eq!(seen.take(), [launched(How::Direct, 2, 8)]);

    bed.world.set(0, |state| state.fail_next = Some(1));
    assert!(matches!(bed.direct_with(0, 3, &about(9)), Direct::Launched(_, Err(_))));
    assert_eq!(seen.take(), [], "a launch that fails is none");

    queue.suspend(SuspendFlags::NONE);
    bed.defer_with(0, 4, &about(10));
    assert_eq!(seen.take(), [Traced::Submitted { subject: Subject(10) }]);
    queue.resume(ResumeFlags::NONE);
    bed.world.wait("the deferred launch", |log| log.queues[0].launched.len() == 3);
    until("it is told", || {
        seen.told.lock().iter().any(|(_, event)| *event == launched(How::Deferred, 3, 10))
    });
    seen.take();
    queue.submit_in_order(&about(11), || bed.world.launch(0, 5)).unwrap().1.unwrap();
    let told = seen.take();
    assert!(told.contains(&launched(How::InOrder, 4, 11)), "{told:?}");

    queue.wait_all().unwrap();
    let told = seen.take();
    assert!(told.contains(&Traced::Completed { number: 4 }), "{told:?}");
    queue.wait_all().unwrap();
    assert_eq!(seen.take(), [], "each completion is told once");

    let completes = CommandSpec { completes: true, ..about(12) };
    assert!(matches!(bed.direct_with(0, 6, &completes), Direct::Launched(_, Ok(()))));
    assert_eq!(seen.take(), [launched(How::Direct, 5, 12), Traced::Completed { number: 5 }]);

    bed.domain.set_traced(false);
    bed.direct_soon(0, 7);
    queue.wait_all().unwrap();
    assert_eq!(seen.take(), []);
}
