//! Models for the model checker: small programs on the real XQueue, run under every interleaving (up to a
//! bound of preemptions) that loom's memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p xqueue --lib --release` runs them with two preemptions;
//! `LOOM_MAX_PREEMPTIONS=3` searches deeper and takes longer. The hardware completes at every query, so
//! nothing here waits for time. Each model ends with all its threads joined: a lost wake-up is a deadlock,
//! which loom reports.

use std::sync::{Arc, Mutex};

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use crate::state::device::Core;
use crate::sync::{Signal, TryLock, store_load_barrier};
use crate::*;

mod order;

/// Launches in order, as (queue, command). A plain mutex: no interleavings of its own.
type Log = Arc<Mutex<Vec<(usize, u32)>>>;

struct Hw {
    index: usize,
    log: Log,
    /// True during a launch: the checker finds two launches at a time on one queue.
    busy: AtomicBool,
    fails: AtomicBool,
    /// True once no marker may be made or queried.
    at_rest: AtomicBool,
}

impl Hw {
    fn launch(&self, command: u32) -> HwResult {
        assert!(!self.busy.swap(true, Ordering::Relaxed), "two launches meet");
        let failed = self.fails.load(Ordering::Relaxed);
        if !failed {
            self.log.lock().expect("no panic").push((self.index, command));
        }
        self.busy.store(false, Ordering::Relaxed);
        // loom does not see the plain mutex of the log; this barrier orders the readers of the log.
        store_load_barrier();
        hw_result(if failed { 7 } else { 0 })
    }
}

impl HwQueue for Hw {
    fn record_marker(&self) -> Result<Marker, HwError> {
        assert!(!self.at_rest.load(Ordering::SeqCst), "a marker is made");
        Ok(Marker(1))
    }
    fn query_marker(&self, _: Marker) -> Result<bool, HwError> {
        assert!(!self.at_rest.load(Ordering::SeqCst), "a marker is queried");
        Ok(true)
    }
    fn release_marker(&self, _: Marker) {}
    fn synchronize(&self) -> HwResult {
        Ok(())
    }
}

struct Device;

impl HwDevice for Device {
    fn enter(&self) {}
}

struct Command(Arc<Hw>, u32);

impl HwCommand for Command {
    fn launch(&mut self, _: &dyn HwQueue) -> HwResult {
        self.0.launch(self.1)
    }
    fn discard(&mut self, _: &dyn HwQueue) -> bool {
        self.0.log.lock().expect("no panic").push((self.0.index, self.1 + 100));
        false
    }
    fn name(&self) -> &str {
        "model"
    }
}

struct Bed {
    domain: Domain,
    queues: Vec<(Arc<XQueue>, Arc<Hw>)>,
    log: Log,
}

/// The part of the bed that a thread of a model owns; loom wants each to own its part.
#[derive(Clone)]
struct Part {
    queue: Arc<XQueue>,
    hw: Arc<Hw>,
}

impl Part {
    fn direct(&self, id: u32) -> Direct {
        self.queue.try_direct(&CommandSpec::new(CostKey::UNKNOWN), || self.hw.launch(id))
    }

    fn defer(&self, id: u32) -> Result<Ticket, SubmitError> {
        self.defer_after(id, &[])
    }

    fn defer_after(&self, id: u32, after: &[After]) -> Result<Ticket, SubmitError> {
        let spec = CommandSpec { after, ..CommandSpec::new(CostKey::UNKNOWN) };
        self.queue.submit(&spec, Box::new(Command(self.hw.clone(), id)))
    }

    fn submit(&self, id: u32) -> Result<Ticket, SubmitError> {
        match self.direct(id) {
            Direct::Launched(ticket, _) => Ok(ticket),
            Direct::NotNow => self.defer(id),
        }
    }

    fn in_order(&self, id: u32) -> Result<(Ticket, HwResult), SubmitError> {
        self.queue.submit_in_order(&CommandSpec::new(CostKey::UNKNOWN), || self.hw.launch(id))
    }
}

impl Bed {
    fn new(permission: Permission, bounds: Bounds, queues: usize) -> Self {
        Self::of_classes(permission, bounds, &vec![OrderClass::Independent; queues])
    }

    fn of_classes(permission: Permission, bounds: Bounds, classes: &[OrderClass]) -> Self {
        let config = Config { permission, bounds, watch: false, ..Config::default() };
        let domain = Domain::new(config, Arc::new(NullObserver));
        domain.add_device(DeviceId(0), Arc::new(Device));
        let log = Log::default();
        let queues = (0..classes.len())
            .map(|index| {
                let hw = Arc::new(Hw {
                    index,
                    log: log.clone(),
                    busy: AtomicBool::new(false),
                    fails: AtomicBool::new(false),
                    at_rest: AtomicBool::new(false),
                });
                let config = QueueConfig {
                    class: classes[index],
                    launch: LaunchConfig::from_settings(Some(2), Some(1)),
                    ..QueueConfig::default()
                };
                let queue = domain.create_queue(DeviceId(0), hw.clone(), config);
                (queue.expect("the device is known"), hw)
            })
            .collect();
        Self { domain, queues, log }
    }

    fn free() -> Self {
        Self::new(Permission::unlimited(), Bounds::default(), 1)
    }

    fn part(&self, index: usize) -> Part {
        let (queue, hw) = self.queues[index].clone();
        Part { queue, hw }
    }

    /// Runs the worker's own loop on a thread of the model.
    fn worker(&self) -> Worker {
        let core = self.domain.core().clone();
        let device = core.device(DeviceId(0)).expect("it is known");
        let theirs = core.clone();
        let thread = thread::spawn(move || crate::threads::worker::run(&theirs, &device));
        Worker { core, thread }
    }

    fn launched(&self, index: usize) -> Vec<u32> {
        let log = self.log.lock().expect("no panic");
        log.iter().filter(|(q, _)| *q == index).map(|(_, id)| *id).collect()
    }
}

struct Worker {
    core: Arc<Core>,
    thread: thread::JoinHandle<()>,
}

impl Worker {
    fn stop(self) {
        self.core.stop.store(true, crate::sync::Ordering::Release);
        self.core.wake_all();
        self.thread.join().expect("no panic");
    }
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.max_branches = 100_000;
    builder.check(model);
}

#[test]
fn registered_waiter_is_always_woken() {
    check(|| {
        let lock = Arc::new(TryLock::new());
        let signal = Arc::new(Signal::new());
        let held = Arc::new(AtomicUsize::new(0));
        let body = |lock: &TryLock, signal: &Signal, held: &AtomicUsize| {
            loop {
                let key = signal.key();
                if lock.lock_or_register() {
                    break;
                }
                signal.wait(key);
            }
            assert_eq!(held.fetch_add(1, Ordering::Relaxed), 0);
            held.fetch_sub(1, Ordering::Relaxed);
            if lock.release() {
                signal.notify();
            }
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (lock, signal, held) = (lock.clone(), signal.clone(), held.clone());
                thread::spawn(move || body(&lock, &signal, &held))
            })
            .collect();
        body(&lock, &signal, &held);
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

#[test]
fn concurrent_submits_launch_both() {
    check(|| {
        let bed = Bed::free();
        let worker = bed.worker();
        let other = bed.part(0);
        let thread = thread::spawn(move || other.submit(1).expect("open"));
        bed.part(0).submit(2).expect("open");
        thread.join().expect("no panic");
        bed.domain.wait_launched(Scope::Process, Ticket::NONE);
        worker.stop();
        let mut launched = bed.launched(0);
        launched.sort_unstable();
        assert_eq!(launched, [1, 2]);
        assert!(!bed.domain.has_pending());
    });
}

#[test]
fn queue_at_rest_touches_no_marker() {
    check(|| {
        let bed = Bed::free();
        let (part, other) = (bed.part(0), bed.part(0));
        assert!(matches!(part.direct(1), Direct::Launched(..)));
        let thread = thread::spawn(move || other.queue.check_completion());
        part.queue.synced(part.queue.begin_sync());
        part.queue.rest();
        part.hw.at_rest.store(true, Ordering::SeqCst);
        thread.join().expect("no panic");
    });
}

#[test]
fn submits_beside_the_worker_launch_in_order() {
    check(|| {
        let bed = Bed::free();
        let worker = bed.worker();
        let part = bed.part(0);
        part.defer(1).expect("open");
        // Direct if the worker is through, otherwise behind it: in order either way.
        part.submit(2).expect("open");
        part.submit(3).expect("open");
        part.queue.wait_launched(Ticket::NONE);
        worker.stop();
        assert_eq!(bed.launched(0), [1, 2, 3]);
    });
}

#[test]
fn window_of_two_bounds_and_drains() {
    check(|| {
        let bed = Bed::new(Permission::limited(), Bounds::default(), 1);
        let worker = bed.worker();
        let part = bed.part(0);
        for id in 1..=4 {
            part.defer(id).expect("open");
        }
        part.queue.wait_launched(Ticket::NONE);
        worker.stop();
        assert_eq!(bed.launched(0), [1, 2, 3, 4]);
        assert!(part.queue.stats().in_flight <= 2);
    });
}

#[test]
fn suspend_and_resume_beside_a_wait_launch_everything() {
    check(|| {
        let bed = Bed::free();
        let worker = bed.worker();
        let part = bed.part(0);
        let other = bed.part(0);
        let thread = thread::spawn(move || {
            other.queue.suspend(SuspendFlags::NONE);
            other.queue.resume(ResumeFlags::NONE);
        });
        part.submit(1).expect("open");
        part.submit(2).expect("open");
        part.queue.wait_launched(Ticket::NONE);
        thread.join().expect("no panic");
        worker.stop();
        assert_eq!(bed.launched(0), [1, 2]);
    });
}

#[test]
fn suspension_lets_at_most_the_decided_launch_begin() {
    check(|| {
        let bed = Bed::free();
        let worker = bed.worker();
        let part = bed.part(0);
        for id in 1..=3 {
            part.defer(id).expect("open");
        }
        part.queue.suspend(SuspendFlags::NONE);
        store_load_barrier();
        let at_return = bed.launched(0).len();
        worker.stop();
        assert!(bed.launched(0).len() <= at_return + 1);
        part.queue.resume(ResumeFlags::NONE);
        part.queue.advance(10);
        assert_eq!(bed.launched(0), [1, 2, 3]);
    });
}

#[test]
fn synchronous_suspension_ends_with_nothing_in_flight() {
    check(|| {
        let bed = Bed::free();
        let part = bed.part(0);
        let other = bed.part(0);
        let thread = thread::spawn(move || {
            let _ = other.direct(1);
        });
        part.queue.suspend(SuspendFlags::SYNC_HW_QUEUE);
        let stats = part.queue.stats();
        assert_eq!((stats.launched, stats.in_flight), (stats.completed, 0));
        let at_return = bed.launched(0).len();
        thread.join().expect("no panic");
        assert_eq!(bed.launched(0).len(), at_return);
    });
}

#[test]
fn in_order_launch_comes_between_its_neighbours() {
    check(|| {
        let bed = Bed::free();
        let worker = bed.worker();
        let part = bed.part(0);
        part.defer(1).expect("open");
        let (_, result) = part.in_order(2).expect("open");
        assert_eq!(result, Ok(()));
        part.submit(3).expect("open");
        part.queue.wait_launched(Ticket::NONE);
        worker.stop();
        assert_eq!(bed.launched(0), [1, 2, 3]);
    });
}

#[test]
fn two_in_order_launches_without_a_worker_launch_both() {
    check(|| {
        let bed = Bed::free();
        let other = bed.part(0);
        let thread = thread::spawn(move || other.in_order(1).is_ok());
        assert!(bed.part(0).in_order(2).is_ok());
        assert!(thread.join().expect("no panic"));
        assert_eq!(bed.launched(0).len(), 2);
    });
}

#[test]
fn back_pressure_lets_every_caller_go() {
    check(|| {
        let bounds = Bounds { commands: 1, ..Bounds::default() };
        let bed = Bed::new(Permission::unlimited(), bounds, 1);
        let worker = bed.worker();
        let part = bed.part(0);
        for id in 1..=3 {
            part.defer(id).expect("open");
        }
        part.queue.wait_launched(Ticket::NONE);
        worker.stop();
        assert_eq!(bed.launched(0), [1, 2, 3]);
    });
}

#[test]
fn deferred_error_is_taken_once() {
    check(|| {
        let bed = Bed::free();
        let worker = bed.worker();
        let part = bed.part(0);
        part.hw.fails.store(true, Ordering::Relaxed);
        part.defer(1).expect("open");
        part.defer(2).expect("open");
        let other = bed.part(0);
        let thread = thread::spawn(move || other.queue.take_error().is_some());
        part.queue.wait_launched(Ticket::NONE);
        let taken = thread.join().expect("no panic");
        let mine = part.queue.take_error().is_some();
        worker.stop();
        assert!(taken || mine, "one of the two gets it");
        assert!(part.queue.take_error().is_none());
    });
}

#[test]
fn destroy_beside_submit_launches_what_was_accepted() {
    check(|| {
        let bed = Bed::free();
        let worker = bed.worker();
        let part = bed.part(0);
        part.defer(1).expect("open");
        let other = bed.part(0);
        let thread = thread::spawn(move || other.defer(2).is_ok());
        part.queue.destroy(false);
        let accepted = thread.join().expect("no panic");
        worker.stop();
        assert_eq!(bed.launched(0).len(), 1 + usize::from(accepted));
        assert!(!bed.domain.has_pending());
    });
}

#[test]
fn suspended_queue_launches_what_a_running_one_waits_for() {
    check(|| {
        let bed = Bed::new(Permission::unlimited(), Bounds::default(), 2);
        let worker = bed.worker();
        let (low, high) = (bed.part(0), bed.part(1));
        low.queue.suspend(SuspendFlags::NONE);
        let record = low.defer(1).expect("open");
        low.defer(2).expect("open");
        let after = [After { queue: low.queue.clone(), through: record }];
        high.defer_after(3, &after).expect("open");
        high.queue.wait_launched(Ticket::NONE);
        worker.stop();
        assert_eq!(*bed.log.lock().expect("no panic"), [(0, 1), (1, 3)]);
        low.queue.resume(ResumeFlags::NONE);
        low.queue.advance(10);
        assert_eq!(bed.launched(0), [1, 2]);
    });
}

#[test]
fn drop_beside_the_worker_discards_once() {
    check(|| {
        let bed = Bed::free();
        let worker = bed.worker();
        let part = bed.part(0);
        part.queue.suspend(SuspendFlags::NONE);
        part.defer(1).expect("open");
        part.queue.resume(ResumeFlags::DROP_COMMANDS);
        part.submit(2).expect("open");
        part.queue.wait_launched(Ticket::NONE);
        worker.stop();
        assert_eq!(bed.launched(0), [101, 2]);
    });
}

#[test]
fn idle_is_never_claimed_over_unfinished_work() {
    check(|| {
        let bed = Bed::free();
        let part = bed.part(0);
        let other = bed.part(0);
        let thread = thread::spawn(move || {
            let snapshot = other.queue.begin_sync();
            other.queue.synced(snapshot);
        });
        let launched = matches!(part.direct(1), Direct::Launched(..));
        thread.join().expect("no panic");
        let stats = part.queue.stats();
        assert!(stats.ready || stats.in_flight == 0);
        assert!(!launched || stats.ready || stats.completed == 1);
    });
}

#[test]
fn evidence_covers_its_launch_and_nothing_later() {
    check(|| {
        let bed = Bed::free();
        let (part, one, two) = (bed.part(0), bed.part(0), bed.part(0));
        let noted = Arc::new(loom::sync::Mutex::new(None));
        let notes = noted.clone();
        let recording = thread::spawn(move || {
            let call = || {
                let evidence = one.queue.evidence();
                let result = one.hw.launch(1);
                *notes.lock().expect("no panic") = Some(evidence);
                result
            };
            let _ = one.queue.try_direct(&CommandSpec::new(CostKey::UNKNOWN), call);
        });
        let other = thread::spawn(move || matches!(two.direct(2), Direct::Launched(..)));
        // Perhaps before the call that noted it has been counted.
        let evidence = noted.lock().expect("no panic").clone();
        if let Some(evidence) = &evidence {
            evidence.seen();
        }
        recording.join().expect("no panic");
        let _ = other.join().expect("no panic");
        let position = bed.launched(0).iter().position(|id| *id == 1).map_or(0, |index| index as u64 + 1);
        let stats = part.queue.stats();
        assert_eq!(stats.completed, if evidence.is_some() { position } else { 0 });
        assert!(stats.ready || stats.launched == stats.completed);
        assert_eq!(part.queue.is_complete(), stats.launched == stats.completed);
    });
}

#[test]
fn device_wait_completes_what_it_waited_for() {
    check(|| {
        let bed = Bed::new(Permission::unlimited(), Bounds::default(), 2);
        let (awaited, waiting) = (bed.part(0), bed.part(1));
        let later = bed.part(0);
        let mut evidence = None;
        let spec = CommandSpec::new(CostKey::UNKNOWN);
        let _ = awaited.queue.try_direct(&spec, || {
            evidence = Some(Arc::new(awaited.queue.evidence()));
            awaited.hw.launch(1)
        });
        let thread = thread::spawn(move || matches!(later.direct(2), Direct::Launched(..)));
        let _ = waiting.queue.try_direct(&spec, || {
            waiting.queue.follow(evidence.take().expect("the record was launched"));
            waiting.hw.launch(3)
        });
        let snapshot = waiting.queue.begin_sync();
        waiting.queue.synced(snapshot);
        let late = thread.join().expect("no panic");
        assert!(waiting.queue.is_complete());
        assert_eq!(awaited.queue.stats().completed, 1);
        assert_eq!(awaited.queue.is_complete(), !late);
    });
}

/// The scheduling thread is gone: what it suspended is launched, whenever it was submitted.
#[test]
fn expired_lease_beside_submit_launches() {
    check(|| {
        let bed = Bed::free();
        let worker = bed.worker();
        let (part, core) = (bed.part(0), bed.domain.core().clone());
        core.lease.renew(1);
        part.queue.set_policy_run(false);
        let thread = thread::spawn(move || {
            core.end_policy_lease(2);
            core.end_policy_lease(u64::MAX);
        });
        part.submit(1).expect("open");
        part.queue.wait_launched(Ticket::NONE);
        thread.join().expect("no panic");
        worker.stop();
        assert_eq!(bed.launched(0), [1]);
    });
}

/// The scheduling thread is only late: its suspension counts, or the renewal reports that it has to be
/// repeated.
#[test]
fn expired_lease_beside_renewal_is_reported() {
    check(|| {
        let bed = Bed::free();
        let (part, core) = (bed.part(0), bed.domain.core().clone());
        core.lease.renew(1);
        part.queue.set_policy_run(false);
        let thread = thread::spawn(move || {
            core.end_policy_lease(2);
            core.end_policy_lease(u64::MAX - 1);
        });
        bed.domain.core().lease.renew(u64::MAX);
        part.queue.set_policy_run(false);
        thread.join().expect("no panic");
        let lapsed = bed.domain.core().lease.renew(u64::MAX);
        assert!(lapsed || !part.queue.may_run());
        part.queue.set_policy_run(true);
    });
}
