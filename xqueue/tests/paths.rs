//! The paths through one queue: direct, deferred and in-order launches, errors, back-pressure, suspension,
//! dropping, destruction, ready and idle.

mod sim;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sim::{Bed, unlimited, until, within};
use xqueue::{
    Bounds, CommandSpec, Config, CostKey, DeviceId, Direct, Domain, Done, Footprint, HwError, HwQueue,
    Observer, Permission, QueueConfig, QueueId, ResumeFlags, Scope, SubmitError, SuspendFlags, TestMode,
    Ticket,
};

#[test]
fn free_queue_launches_at_once_with_the_real_result() {
    let mut bed = Bed::new(unlimited());
    let q = bed.plain();
    for id in 0..1000 {
        assert!(matches!(bed.direct(q, id), Direct::Launched(_, Ok(()))));
    }
    bed.world.set(q, |state| state.fail_next = Some(719));
    let Direct::Launched(_, Err(error)) = bed.direct(q, 1000) else { panic!("the real error comes back") };
    assert_eq!(error.code(), 719);
    assert_eq!(bed.queues[q].take_error(), None, "a direct error is the caller's alone");
    let stats = bed.queues[q].stats();
    assert_eq!((stats.direct, stats.deferred, stats.launched), (1001, 0, 1000));
    assert_eq!(bed.world.launched(q), (0..1000).collect::<Vec<_>>());
}

#[test]
fn suspended_process_launches_within_its_share_only() {
    let mut bed = Bed::new(unlimited());
    let q = bed.plain();
    let suspended = |level: u8, share: u8| Permission::new(1, false, true, level).with_share(share);
    // Without a share, below level 3, or before the hardware queues are limited, nothing is launched.
    for (permission, in_share) in
        [(suspended(3, 0), true), (suspended(2, 16), true), (suspended(3, 16), false)]
    {
        bed.domain.store_permission(permission);
        bed.domain.set_in_share(in_share);
        assert_eq!(bed.direct(q, 0), Direct::NotNow, "{permission:?}");
        assert!(!bed.queues[q].may_run());
    }
    bed.defer(q, 0);
    bed.domain.set_in_share(true);
    bed.domain.wait_launched(Scope::Process, Ticket::NONE);
    assert_eq!(bed.world.launched(q), [0]);
    assert!(bed.queues[q].may_run() && !bed.domain.permission().run());
    // The word alone stops it.
    bed.domain.store_permission(suspended(3, 0));
    assert_eq!(bed.direct(q, 1), Direct::NotNow);
    bed.defer(q, 1);
    assert_eq!(bed.world.launched(q), [0]);
    bed.domain.store_permission(Permission::unlimited());
    bed.domain.set_in_share(false);
    bed.domain.wait_launched(Scope::Process, Ticket::NONE);
    assert_eq!(bed.world.launched(q), [0, 1]);
}

#[test]
fn tickets_ascend_over_all_queues() {
    let mut bed = Bed::new(unlimited());
    let (a, b) = (bed.plain(), bed.plain());
    let tickets: Vec<_> = (0..100).map(|id| bed.submit([a, b][id as usize % 2], id)).collect();
    assert!(tickets.is_sorted_by(|a, b| a < b));
}

#[test]
fn suspended_queue_defers_and_resumes_in_order() {
    let mut bed = Bed::new(unlimited());
    let q = bed.plain();
    bed.queues[q].suspend(SuspendFlags::NONE);
    bed.queues[q].suspend(SuspendFlags::NONE);
    for id in 0..100 {
        assert_eq!(bed.direct(q, id), Direct::NotNow);
        bed.defer(q, id);
    }
    assert!(bed.queues[q].is_suspended());
    assert_eq!(bed.world.launched(q), []);
    assert_eq!(bed.queues[q].stats().pending, 100);
    bed.queues[q].resume(ResumeFlags::NONE);
    assert!(!bed.queues[q].is_suspended(), "suspensions do not count");
    bed.queues[q].resume(ResumeFlags::NONE);
    bed.domain.wait_launched(Scope::Process, Ticket::NONE);
    assert_eq!(bed.world.launched(q), (0..100).collect::<Vec<_>>());
    let stats = bed.queues[q].stats();
    assert_eq!((stats.deferred, stats.suspensions, stats.pending), (100, 1, 0));
}

#[test]
fn process_and_policy_suspend_a_queue_as_well() {
    let mut bed = Bed::new(unlimited());
    let q = bed.plain();
    bed.domain.store_permission(Permission::new(1, false, false, 1));
    bed.queues[q].set_policy_run(false);
    let ticket = bed.submit(q, 1);
    bed.domain.store_permission(Permission::unlimited());
    assert!(!bed.queues[q].may_run());
    assert_eq!(bed.queues[q].frontier(), ticket);
    bed.queues[q].set_policy_run(true);
    bed.queues[q].wait_launched(Ticket::NONE);
    assert_eq!(bed.world.launched(q), [1]);
}

#[test]
fn followed_word_is_read_at_each_launch() {
    let mut bed = Bed::new(unlimited());
    let q = bed.plain();
    let word: &'static std::sync::atomic::AtomicU64 =
        Box::leak(Box::new(Permission::new(1, false, false, 1).word().into()));
    bed.domain.follow_permission(word);
    assert_eq!(bed.direct(q, 1), Direct::NotNow);
    word.store(Permission::new(2, true, false, 1).word(), std::sync::atomic::Ordering::SeqCst);
    assert!(matches!(bed.direct(q, 1), Direct::Launched(..)));
    assert_eq!(bed.domain.permission().generation(), 2);
    // The page is dead: the client runs on its own permission word.
    word.store(0, std::sync::atomic::Ordering::SeqCst);
    bed.domain.store_permission(Permission::unlimited());
    assert!(matches!(bed.direct(q, 2), Direct::Launched(..)));
}

#[test]
fn first_deferred_error_is_kept_until_taken() {
    let mut bed = Bed::new(unlimited());
    let q = bed.plain();
    bed.queues[q].suspend(SuspendFlags::NONE);
    bed.defer(q, 1);
    bed.defer(q, 2);
    bed.world.set(q, |state| state.fail_next = Some(700));
    bed.queues[q].resume(ResumeFlags::NONE);
    bed.queues[q].wait_launched(Ticket::NONE);
    assert_eq!(bed.world.launched(q), [2], "the failed one is not in flight");
    let error = HwError::from_code(700);
    assert_eq!(bed.queues[q].peek_error(), error);
    assert_eq!(bed.queues[q].wait_all().err(), error);
    assert_eq!(bed.queues[q].take_error(), None);
    assert!(bed.queues[q].wait_all().is_ok());
}

#[test]
fn in_order_launch_runs_on_its_own_thread_in_its_place() {
    let mut bed = Bed::new(unlimited());
    let q = bed.plain();
    bed.queues[q].suspend(SuspendFlags::NONE);
    bed.defer(q, 0);
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let (queue, world) = (bed.queues[q].clone(), bed.world.clone());
            let thread = std::thread::spawn(move || {
                let me = std::thread::current().id();
                queue.submit_in_order(&CommandSpec::new(CostKey(1)), || {
                    assert_eq!(std::thread::current().id(), me);
                    world.launch(q, 1 + 2 * n)
                })
            });
            until("the in-order launch is pending", || {
                bed.queues[q].stats().deferred == u64::from(2 + 2 * n)
            });
            bed.defer(q, 2 + 2 * n);
            thread
        })
        .collect();
    bed.queues[q].resume(ResumeFlags::NONE);
    for thread in threads {
        let (_, result) = thread.join().expect("no panic").expect("open");
        assert_eq!(result, Ok(()));
    }
    bed.queues[q].wait_launched(Ticket::NONE);
    assert_eq!(bed.world.launched(q), (0..9).collect::<Vec<_>>());
}

#[test]
fn full_pending_makes_its_caller_wait_holding_nothing() {
    let bounds = Bounds { commands: 4, arguments: 100, staged: 1000 };
    let mut bed = Bed::new(Config { bounds, ..unlimited() });
    let q = bed.plain();
    bed.queues[q].suspend(SuspendFlags::NONE);
    (0..4).for_each(|id| {
        bed.defer(q, id);
    });
    // Inside a user callback nothing waits.
    let spec = CommandSpec { may_wait: false, ..CommandSpec::new(CostKey(1)) };
    bed.defer_with(q, 4, &spec);
    let waiter = {
        let (queue, command) = (bed.queues[q].clone(), bed.command(q, 5));
        std::thread::spawn(move || queue.submit(&CommandSpec::new(CostKey(1)), command))
    };
    // The waiter holds nothing: control, getters and other submissions get through.
    bed.queues[q].suspend(SuspendFlags::NONE);
    assert_eq!(bed.queues[q].stats().deferred, 5);
    bed.queues[q].resume(ResumeFlags::NONE);
    waiter.join().expect("no panic").expect("open");
    bed.queues[q].wait_launched(Ticket::NONE);
    assert_eq!(bed.world.launched(q), (0..6).collect::<Vec<_>>());
}

#[test]
fn byte_bounds_admit_a_giant_alone() {
    let bounds = Bounds { commands: 100, arguments: 100, staged: 1000 };
    let mut bed = Bed::new(Config { bounds, ..unlimited() });
    let q = bed.plain();
    bed.queues[q].suspend(SuspendFlags::NONE);
    let spec = CommandSpec::new(CostKey(1));
    let sized = |id, arguments, staged| {
        let mut command = bed.command(q, id);
        command.footprint = Footprint { arguments, staged };
        command
    };
    bed.queues[q].submit(&spec, sized(0, 5000, 0)).expect("open");
    bed.queues[q].submit(&spec, sized(1, 0, 900)).expect("open");
    let (queue, third) = (bed.queues[q].clone(), sized(2, 1, 0));
    let waiter = std::thread::spawn(move || queue.submit(&CommandSpec::new(CostKey(1)), third));
    bed.queues[q].resume(ResumeFlags::NONE);
    waiter.join().expect("no panic").expect("open");
    bed.queues[q].wait_launched(Ticket::NONE);
    assert_eq!(bed.world.launched(q), [0, 1, 2]);
}

#[test]
fn control_comes_through_while_a_launch_blocks() {
    let mut bed = Bed::new(unlimited());
    let (q, other) = (bed.plain(), bed.plain());
    bed.world.set(q, |state| state.stuck = true);
    let stuck = {
        let (queue, world) = (bed.queues[q].clone(), bed.world.clone());
        std::thread::spawn(move || queue.try_direct(&CommandSpec::new(CostKey(1)), || world.launch(q, 0)))
    };
    bed.world.wait("the launch has begun", |log| log.queues[q].launching);
    bed.queues[q].suspend(SuspendFlags::NONE);
    bed.queues[q].set_policy_run(false);
    bed.domain.store_permission(Permission::new(7, false, true, 1));
    bed.domain.store_permission(Permission::unlimited());
    bed.queues[q].set_policy_run(true);
    assert_eq!(bed.direct(q, 1), Direct::NotNow);
    bed.defer(q, 1);
    assert!(matches!(bed.direct(other, 2), Direct::Launched(..)));
    bed.queues[q].resume(ResumeFlags::NONE);
    bed.world.set(q, |state| state.stuck = false);
    assert!(matches!(stuck.join().expect("no panic"), Direct::Launched(..)));
    bed.queues[q].wait_launched(Ticket::NONE);
    assert_eq!(bed.world.launched(q), [0, 1]);
}

#[test]
fn drop_discards_pending_commands_and_nothing_later() {
    let mut bed = Bed::new(unlimited());
    let q = bed.plain();
    bed.queues[q].suspend(SuspendFlags::NONE);
    (0..50).for_each(|id| {
        bed.defer(q, id);
    });
    let in_order = {
        let (queue, world) = (bed.queues[q].clone(), bed.world.clone());
        std::thread::spawn(move || {
            queue.submit_in_order(&CommandSpec::new(CostKey(1)), || world.launch(q, 50))
        })
    };
    until("the in-order launch is pending", || bed.queues[q].stats().deferred == 51);
    bed.queues[q].resume(ResumeFlags::DROP_COMMANDS);
    bed.submit(q, 51);
    assert_eq!(in_order.join().expect("no panic").err(), Some(SubmitError::Dropped));
    bed.queues[q].wait_launched(Ticket::NONE);
    assert_eq!(bed.world.launched(q), [51]);
    bed.world.get(q, |state| assert_eq!(state.discarded, (0..50).collect::<Vec<_>>()));
}

#[test]
fn destroy_launches_pending_commands_and_then_refuses() {
    let mut bed = Bed::new(unlimited());
    let (q, r) = (bed.plain(), bed.plain());
    for (queue, discard) in [(q, false), (r, true)] {
        bed.queues[queue].suspend(SuspendFlags::NONE);
        (0..10).for_each(|id| {
            bed.defer(queue, id);
        });
        bed.queues[queue].destroy(discard);
        bed.queues[queue].destroy(discard);
        assert_eq!(bed.direct(queue, 10), Direct::NotNow);
        let refused = bed.queues[queue].submit(&CommandSpec::new(CostKey(1)), bed.command(queue, 10));
        assert_eq!(refused, Err(SubmitError::Closed));
        let refused = bed.queues[queue].submit_in_order(&CommandSpec::new(CostKey(1)), || Ok(()));
        assert_eq!(refused.err(), Some(SubmitError::Closed));
        bed.world.get(queue, |state| assert!(state.live_marks.is_empty()));
    }
    assert_eq!(bed.world.launched(q).len(), 10);
    assert_eq!(bed.world.launched(r).len(), 0);
    assert!(bed.domain.queues().is_empty());
}

#[test]
fn suspend_flags_wait_as_documented() {
    let mut bed = Bed::new(Config::default());
    let q = bed.plain();
    (0..20).for_each(|id| {
        bed.submit(q, id);
    });
    let queue = bed.queues[q].clone();
    within("WAIT_ALL", move || queue.suspend(SuspendFlags::WAIT_ALL));
    bed.world.get(q, |state| assert_eq!(state.done, 20));
    bed.queues[q].resume(ResumeFlags::NONE);
    bed.submit(q, 20);
    let queue = bed.queues[q].clone();
    within("SYNC_HW_QUEUE", move || {
        queue.suspend(SuspendFlags::SYNC_HW_QUEUE);
        let stats = queue.stats();
        assert_eq!(stats.launched, stats.completed);
    });
    bed.queues[q].resume(ResumeFlags::NONE);
    bed.submit(q, 21);
    let queue = bed.queues[q].clone();
    within("WAIT_IDLE", move || {
        queue.suspend(SuspendFlags::WAIT_IDLE | SuspendFlags::SYNC_HW_QUEUE);
        assert!(!queue.is_ready());
    });
    assert!(bed.queues[q].is_suspended());
    let queue = bed.queues[q].clone();
    bed.defer(q, 22);
    within("a suspension of a suspended queue", move || {
        queue.suspend(SuspendFlags::WAIT_ALL | SuspendFlags::WAIT_IDLE | SuspendFlags::SYNC_HW_QUEUE);
    });
}

#[test]
fn wait_all_on_a_suspended_queue_waits_for_its_resumption() {
    let mut bed = Bed::new(unlimited());
    let q = bed.plain();
    bed.queues[q].suspend(SuspendFlags::NONE);
    bed.defer(q, 1);
    let queue = bed.queues[q].clone();
    let waiter = std::thread::spawn(move || queue.wait_all());
    assert_eq!(bed.queues[q].stats().launched, 0);
    bed.queues[q].resume(ResumeFlags::NONE);
    waiter.join().expect("no panic").expect("no error");
    bed.world.get(q, |state| assert_eq!(state.done, 1));
}

/// The policy that suspends a queue does not renew its lease: the watcher or a waiting thread resumes the
/// queue.
#[test]
fn expired_lease_resumes_what_the_policy_suspended() {
    let mut bed = Bed::new(Config { watch: true, ..unlimited() });
    let q = bed.plain();
    let hour = Duration::from_secs(3600);
    assert!(!bed.domain.renew_policy_lease(hour));
    bed.queues[q].set_policy_run(false);
    bed.submit(q, 0);
    assert!(!bed.queues[q].may_run());
    assert!(!bed.domain.renew_policy_lease(Duration::ZERO), "the lease has not expired before");
    until("it is launched", || bed.world.launched(q) == [0]);
    until("the renewal reports that", || bed.domain.renew_policy_lease(hour));
    assert!(bed.queues[q].may_run());
    // A policy that suspends nothing has nothing to renew.
    assert!(!bed.domain.renew_policy_lease(Duration::ZERO));
    bed.submit(q, 1);
    until("the watcher has looked", || !bed.queues[q].is_ready());
    assert!(!bed.domain.renew_policy_lease(hour));
}

#[derive(Default)]
struct Seen(Mutex<Vec<(QueueId, bool)>>);

const TAG: usize = 0x1234;

impl Observer for Seen {
    fn turned_ready(&self, queue: QueueId, tag: usize, _: Instant) {
        assert_eq!(tag, TAG);
        self.0.lock().push((queue, true));
    }
    fn turned_idle(&self, queue: QueueId, tag: usize, _: Instant, _: Done) {
        assert_eq!(tag, TAG);
        self.0.lock().push((queue, false));
    }
}

#[test]
fn ready_and_idle_alternate_and_idle_is_proved() {
    for watch in [false, true] {
        let seen = Arc::new(Seen::default());
        let config = Config { watch, ..unlimited() };
        let domain = Domain::new(config, seen.clone());
        domain.add_device(DeviceId(0), Arc::new(sim::SimDevice));
        let world = sim::World::new();
        world.log.lock().queues.push(sim::HwState { auto: watch, ..sim::HwState::default() });
        let hw = Arc::new(sim::SimQueue { world: world.clone(), index: 0 });
        let queue = domain
            .create_queue(DeviceId(0), hw.clone(), QueueConfig { tag: TAG, ..QueueConfig::default() })
            .expect("the device is known");
        assert!(!queue.is_ready() && queue.idle_since().is_none() && queue.ready_since().is_none());
        for round in 0..10 {
            let before = std::time::Instant::now();
            // The watcher may hold the submit lock for a moment.
            while queue.try_direct(&CommandSpec::new(CostKey(1)), || world.launch(0, round)) == Direct::NotNow
            {
            }
            if watch {
                until("the watcher proves it idle", || !queue.is_ready());
            } else {
                let early = queue.begin_sync();
                while queue.try_direct(&CommandSpec::new(CostKey(1)), || world.launch(0, round))
                    == Direct::NotNow
                {}
                queue.synced(early);
                assert!(queue.is_ready(), "the second launch is not covered");
                // It was idle before, and only this thread checked in between.
                assert!(queue.ready_since().expect("it is ready") >= before);
                let proof = queue.begin_sync();
                hw.synchronize().expect("it works");
                queue.synced(proof);
                assert!(!queue.is_ready());
            }
            assert!(queue.idle_since().is_some() && queue.ready_since().is_none());
        }
        // The watcher notifies the observer after the idleness can be seen.
        until("the last change is told", || seen.0.lock().len() >= 20);
        let seen = seen.0.lock();
        assert_eq!(seen.len(), 20);
        assert!(seen.iter().enumerate().all(|(n, &(id, ready))| id == queue.id() && ready == (n % 2 == 0)));
    }
}

#[test]
fn launch_inside_a_callback_ignores_pending_commands() {
    let mut bed = Bed::new(unlimited());
    let q = bed.plain();
    bed.queues[q].suspend(SuspendFlags::NONE);
    bed.defer(q, 1);
    assert!(bed.queues[q].launch_unordered(|| bed.world.launch(q, 0)).is_ok());
    let stats = bed.queues[q].stats();
    assert_eq!((stats.forced, stats.in_flight, stats.launched), (1, 1, 0));
    bed.queues[q].resume(ResumeFlags::NONE);
    bed.queues[q].wait_all().expect("no error");
    assert_eq!(bed.world.launched(q), [0, 1]);
    assert_eq!(bed.queues[q].stats().in_flight, 0);
    until("idle is proved, once the worker has let go of submit", || {
        bed.queues[q].wait_all().is_ok() && !bed.queues[q].is_ready()
    });
}

#[test]
fn test_modes_defer_and_suspend() {
    for test in [TestMode::Defer, TestMode::Chaos(42)] {
        let mut bed = Bed::new(Config { test, ..Config::default() });
        let (q, r) = (bed.plain(), bed.plain());
        for id in 0..200 {
            bed.submit([q, r][id as usize % 2], id);
        }
        let queues = bed.queues.clone();
        within("the program ends", move || {
            queues.iter().for_each(|queue| queue.wait_all().expect("no error"));
        });
        for (n, queue) in [q, r].into_iter().enumerate() {
            let stats = bed.queues[queue].stats();
            assert_eq!((stats.direct, stats.deferred), (0, 100));
            assert_eq!(stats.suspensions > 0, test != TestMode::Defer);
            let expected: Vec<_> = (0..100).map(|id| id * 2 + n as u32).collect();
            assert_eq!(bed.world.launched(queue), expected);
        }
    }
}

#[test]
fn many_threads_on_one_queue_lose_and_repeat_nothing() {
    let mut bed = Bed::new(Config::default());
    let q = bed.plain();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let bed = &bed;
            scope.spawn(move || {
                for n in 0..2000 {
                    let id = thread << 16 | n;
                    if n % 64 == 63 {
                        let in_order = bed.queues[q]
                            .submit_in_order(&CommandSpec::new(CostKey(2)), || bed.world.launch(q, id));
                        assert!(in_order.is_ok());
                    } else {
                        bed.submit(q, id);
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..200 {
                bed.queues[q].suspend(SuspendFlags::NONE);
                std::thread::yield_now();
                bed.queues[q].resume(ResumeFlags::NONE);
            }
        });
    });
    bed.queues[q].wait_all().expect("no error");
    let launched = bed.world.launched(q);
    assert_eq!(launched.len(), 8000);
    for thread in 0..4u32 {
        let own: Vec<_> = launched.iter().filter(|id| *id >> 16 == thread).collect();
        assert_eq!(own.len(), 2000);
        assert!(own.is_sorted_by(|a, b| a < b), "each thread's order is kept");
    }
    let stats = bed.queues[q].stats();
    assert_eq!(stats.direct + stats.deferred, 8000);
    assert_eq!((stats.launched, stats.completed, stats.pending), (8000, 8000, 0));
}

#[test]
fn destroyed_queue_reopens_for_another_hardware_queue() {
    let mut bed = Bed::new(unlimited());
    let q = bed.plain();
    let queue = bed.queues[q].clone();
    let config = QueueConfig { priority: 7, ..QueueConfig::default() };
    assert!(!bed.domain.reopen(&queue, &config), "it is open");
    for round in 0..50_u64 {
        let unfinished = round % 2 == 0;
        queue.suspend(SuspendFlags::NONE);
        queue.suspend(SuspendFlags::NONE);
        queue.set_policy_run(false);
        bed.defer(q, 1);
        bed.world.set(q, |state| state.fail_next = Some(7));
        bed.defer(q, 2);
        let old = queue.begin_sync();
        queue.destroy(unfinished);
        assert!(matches!(
            bed.queues[q].submit(&CommandSpec::new(CostKey(1)), bed.command(q, 3)),
            Err(SubmitError::Closed)
        ));
        assert_eq!(bed.domain.queues().len(), 0);
        assert!(bed.domain.reopen(&queue, &config) && !bed.domain.reopen(&queue, &config));
        bed.world.set(q, |state| {
            state.fail_next = None;
            state.launched.clear();
            state.done = 0;
            assert!(state.live_marks.is_empty());
        });
        assert_eq!(bed.domain.queues().len(), 1);
        assert_eq!((queue.is_suspended(), queue.priority(), queue.take_error()), (false, 7, None));
        assert!(queue.may_run() && queue.is_complete() && !queue.is_ready());
        bed.direct_soon(q, 4);
        queue.synced(old);
        assert!(!queue.is_complete(), "a proof of the queue before says nothing of this one");
        queue.wait_all().expect("no error");
        assert_eq!(bed.world.launched(q), [4]);
    }
}
