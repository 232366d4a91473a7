//! Brief commands: what the observer is told of a queue whose only work is a small copy.

mod sim;

use parking_lot::Mutex;
use sim::{SimDevice, SimQueue, World, unlimited, until};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xqueue::{
    CommandSpec, Config, CostKey, DeviceId, Direct, Domain, Done, GRACE, Observer, Permission, QueueConfig,
    QueueId, ResumeFlags, SuspendFlags, XQueue,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Ready,
    Briefly,
    Idle,
}

/// An observer that tells brief work from other work, if `0` is true; what it was told, the last idle time, and when it
/// was told of an idle queue.
#[derive(Default)]
struct Seen(bool, Mutex<Vec<Told>>, Mutex<Option<Instant>>, Mutex<Vec<Instant>>);

impl Observer for Seen {
    fn turned_ready(&self, _: QueueId, _: usize, _: Instant) {
        self.1.lock().push(Told::Ready);
    }
    fn turned_idle(&self, _: QueueId, _: usize, since: Instant, _: Done) {
        self.1.lock().push(Told::Idle);
        *self.2.lock() = Some(since);
        self.3.lock().push(Instant::now());
    }
    fn counts_brief(&self) -> bool {
        self.0
    }
    fn turned_ready_briefly(&self, _: QueueId, _: usize, _: Instant, _: Duration) {
        self.1.lock().push(Told::Briefly);
    }
}

struct Bed {
    _domain: Domain,
    queue: Arc<XQueue>,
    seen: Arc<Seen>,
    world: Arc<World>,
}

impl Bed {
    fn new(counts_brief: bool) -> Self {
        Self::with(counts_brief, Config { watch: false, ..unlimited() })
    }

    fn with(counts_brief: bool, config: Config) -> Self {
        let seen = Arc::new(Seen(counts_brief, Mutex::default(), Mutex::default(), Mutex::default()));
        let domain = Domain::new(config, seen.clone());
        domain.add_device(DeviceId(0), Arc::new(SimDevice));
        let world = World::new();
        world.log.lock().queues.push(sim::HwState::default());
        let hw = Arc::new(SimQueue { world: world.clone(), index: 0 });
        let queue =
            domain.create_queue(DeviceId(0), hw, QueueConfig::default()).expect("the device is known");
        Self { _domain: domain, queue, seen, world }
    }

    fn launch(&self, brief: bool) {
        self.launch_as(CommandSpec { brief, ..CommandSpec::new(CostKey(1)) });
    }

    /// Launches one command, and some others when it has ended and this time has passed.
    fn request(&self, pause: Duration) -> Vec<Told> {
        self.request_behind(pause, true)
    }

    fn request_behind(&self, pause: Duration, ends: bool) -> Vec<Told> {
        self.launch_as(CommandSpec::new(CostKey(2)));
        if ends {
            self.world.set(0, |state| state.done = state.launched.len() as u64);
        }
        let begun = self.queue.ready_since().expect("it is ready");
        until("the pause is over", || begun.elapsed() >= pause);
        for key in 3..9 {
            self.launch_as(CommandSpec::new(CostKey(key)));
        }
        self.synchronize();
        self.told()
    }

    fn launch_as(&self, spec: CommandSpec<'_>) {
        let launched = self.queue.try_direct(&spec, || self.world.launch(0, 1));
        assert!(matches!(launched, Direct::Launched(_, Ok(()))));
    }

    fn synchronize(&self) {
        let proof = self.queue.begin_sync();
        self.queue.synced(proof);
        assert!(!self.queue.is_ready());
        assert_eq!(*self.seen.2.lock(), self.queue.idle_since());
    }

    /// Waits until the queue was idle for so long that its last work does not count any more.
    fn rest(&self) {
        until("the queue rests", || self.queue.idle_since().is_none_or(|since| since.elapsed() >= GRACE));
    }

    fn told(&self) -> Vec<Told> {
        std::mem::take(&mut *self.seen.1.lock())
    }
}

#[test]
fn more_work_behind_a_brief_command_turns_the_queue_ready() {
    for brief in [false, true] {
        let bed = Bed::new(true);
        bed.launch(true);
        assert!(bed.queue.is_ready(), "for everyone but the observer");
        assert_eq!(bed.told(), [Told::Briefly]);
        bed.launch(brief);
        bed.launch(true);
        assert_eq!(bed.told(), [Told::Ready]);
        bed.synchronize();
        assert_eq!(bed.told(), [Told::Idle]);
        assert!(bed.queue.idle_since().is_some());
    }
}

#[test]
fn brief_command_leaves_the_queue_idle_as_it_was() {
    let bed = Bed::new(true);
    bed.launch(false);
    bed.synchronize();
    // On a busy machine it can take long, and counts.
    until("a brief command is brief", || {
        bed.rest();
        bed.told();
        let idle_since = bed.queue.idle_since();
        bed.launch(true);
        bed.synchronize();
        assert_eq!(bed.told()[1..], [Told::Idle]);
        bed.queue.idle_since() == idle_since
    });
}

#[test]
fn late_brief_command_counts_and_so_do_those_behind_it() {
    let bed = Bed::new(true);
    bed.launch(true);
    until("it is late", || bed.queue.ready_since().is_some_and(|since| since.elapsed() >= GRACE));
    bed.synchronize();
    assert_eq!(bed.told(), [Told::Briefly, Told::Idle]);
    bed.rest();
    bed.launch(true);
    bed.synchronize();
    assert_eq!(bed.told(), [Told::Ready, Told::Idle]);
}

#[test]
fn brief_command_right_behind_work_counts() {
    let bed = Bed::new(true);
    // On a busy machine more than the grace can pass in between.
    until("a copy follows work at once", || {
        bed.launch(false);
        bed.synchronize();
        bed.told();
        bed.launch(true);
        let counts = bed.told() == [Told::Ready];
        bed.synchronize();
        counts
    });
}

#[test]
fn observer_that_does_not_tell_them_apart_sees_work() {
    let bed = Bed::new(false);
    bed.launch(true);
    bed.synchronize();
    assert_eq!(bed.told(), [Told::Ready, Told::Idle]);
}

/// Longer than what is learnt, and shorter than the grace.
const PAUSE: Duration = Duration::from_micros(500);

#[test]
fn first_command_before_a_pause_becomes_brief() {
    let bed = Bed::new(true);
    assert_eq!(bed.request(PAUSE), [Told::Ready, Told::Idle]);
    // A pause of more than the grace on a busy machine changes nothing.
    until("it is learnt", || bed.request(PAUSE) == [Told::Briefly, Told::Ready, Told::Idle]);
    until("a request without a pause ends that", || bed.request(Duration::ZERO)[0] == Told::Ready);
}

#[test]
fn request_of_one_command_never_becomes_brief() {
    let bed = Bed::new(true);
    for _ in 0..100 {
        bed.launch_as(CommandSpec::new(CostKey(2)));
        bed.synchronize();
        assert_eq!(bed.told(), [Told::Ready, Told::Idle]);
    }
}

#[test]
fn first_command_that_runs_on_through_the_pause_never_becomes_brief() {
    let bed = Bed::new(true);
    for _ in 0..50 {
        assert_eq!(bed.request_behind(PAUSE, false), [Told::Ready, Told::Idle]);
    }
}

#[test]
fn nothing_is_learnt_where_brief_work_is_not_told_apart() {
    let bed = Bed::new(false);
    for _ in 0..50 {
        assert_eq!(bed.request(PAUSE), [Told::Ready, Told::Idle]);
    }
}

/// The watcher looks often at a queue behind the window, because others wait for it to turn idle.
#[test]
fn queue_behind_the_window_stays_brief_until_its_command_counts() {
    let bed = Bed::with(true, Config { permission: Permission::limited(), ..Config::default() });
    let launch = |key: u64| {
        // The watcher may hold the lock.
        until("it is launched", || {
            let spec = CommandSpec::new(CostKey(key));
            matches!(bed.queue.try_direct(&spec, || bed.world.launch(0, 1)), Direct::Launched(_, Ok(())))
        });
        bed.world.set(0, |state| state.done = state.launched.len() as u64);
    };
    let pause = 2 * PAUSE;
    let seen = Cell::new(0);
    until("the queue is seen idle in pauses of learnt requests", || {
        bed.seen.3.lock().clear();
        // The queue turns ready between the two.
        let before = Instant::now();
        launch(2);
        let begun = Instant::now();
        until("the pause is over", || begun.elapsed() >= pause);
        launch(3);
        until("it is idle", || {
            bed.queue.synced(bed.queue.begin_sync());
            !bed.queue.is_ready()
        });
        if bed.told().starts_with(&[Told::Briefly, Told::Idle]) {
            let idle_after = bed.seen.3.lock()[0].duration_since(before);
            // A quarter of a millisecond before the earliest second command.
            assert!(idle_after >= pause - Duration::from_micros(250), "{idle_after:?}");
            seen.set(seen.get() + 1);
        }
        seen.get() == 5
    });
}

/// An observer that needs the report of an idle queue only while `0` is true.
#[derive(Default)]
struct Reports(AtomicBool, Seen);

impl Observer for Reports {
    fn turned_ready(&self, queue: QueueId, tag: usize, at: Instant) {
        self.1.turned_ready(queue, tag, at);
    }
    fn turned_idle(&self, queue: QueueId, tag: usize, since: Instant, done: Done) {
        self.1.turned_idle(queue, tag, since, done);
    }
    fn counts_brief(&self) -> bool {
        true
    }
    fn needs_idle_report(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn queue_stays_ready_until_the_watcher_looks_if_the_observer_needs_no_report() {
    let observer = Arc::new(Reports::default());
    let domain = Domain::new(Config { watch: true, ..unlimited() }, observer.clone());
    domain.add_device(DeviceId(0), Arc::new(SimDevice));
    let world = World::new();
    world.log.lock().queues.push(sim::HwState { auto: true, ..sim::HwState::default() });
    let hw = Arc::new(SimQueue { world: world.clone(), index: 0 });
    let queue = domain.create_queue(DeviceId(0), hw, QueueConfig::default()).expect("the device is known");
    let round_of = |key: u64| {
        until("it is launched", || {
            let spec = CommandSpec::new(CostKey(key));
            matches!(queue.try_direct(&spec, || world.launch(0, 1)), Direct::Launched(_, Ok(())))
        });
        queue.synced(queue.begin_sync());
        queue.is_ready()
    };
    let round = || round_of(1);
    let told = || std::mem::take(&mut *observer.1.1.lock());
    let idle = || until("the watcher turns it idle", || !queue.is_ready());
    // The watcher may be at the queue, and may look between two rounds if this thread is preempted there.
    until("a hundred rounds are told as one", || {
        idle();
        told();
        (0..100).filter(|_| round()).count() == 100 && told() == [Told::Ready]
    });
    idle();
    until("the observer knows", || !observer.1.1.lock().is_empty());
    assert_eq!(told(), [Told::Idle]);
    // A first command whose end the program asks for never becomes brief.
    for _ in 0..40 {
        let begun = Instant::now();
        round_of(2);
        until("the pause is over", || begun.elapsed() >= PAUSE);
        round_of(3);
        idle();
    }
    assert!(!told().contains(&Told::Briefly));
    until("a suspension that waits for idleness waits for completion", round);
    queue.suspend(SuspendFlags::WAIT_IDLE);
    queue.resume(ResumeFlags::NONE);
    observer.0.store(true, Ordering::SeqCst);
    // Each round is told at once now, unless the watcher holds a lock.
    until("a round ends idle", || !round());
}
