//! Simulated hardware: queues that complete their commands in order, and a log of all launches. There is no
//! time. A queue completes one command for every query of a marker (`auto`), or when the test asks for it. It
//! asserts the guarantees that the crate gives the hardware: one launch at a time on a queue, one query at a
//! time, no query of a released marker.
#![allow(dead_code)]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use xqueue::{
    CommandSpec, Config, CostKey, DeviceId, Direct, Domain, Footprint, HwCommand, HwDevice, HwError, HwQueue,
    HwResult, LaunchConfig, Marker, NullObserver, OrderClass, Permission, QueueConfig, Ticket, XQueue,
};

/// A time that only a hang reaches.
pub const HANG: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct HwState {
    pub launched: Vec<u32>,
    pub discarded: Vec<u32>,
    pub done: u64,
    pub most_in_flight: u64,
    pub marks: Vec<u64>,
    pub live_marks: HashMap<u64, u64>,
    pub auto: bool,
    pub fail_next: Option<u32>,
    pub fail_marks: bool,
    pub launching: bool,
    pub querying: bool,
    /// While set, a launch blocks inside the call.
    pub stuck: bool,
}

#[derive(Default)]
pub struct Log {
    pub order: Vec<(usize, u32)>,
    pub queues: Vec<HwState>,
    next_mark: u64,
}

pub struct World {
    pub log: Mutex<Log>,
    pub changed: Condvar,
}

impl World {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { log: Mutex::new(Log::default()), changed: Condvar::new() })
    }

    pub fn launch(&self, queue: usize, command: u32) -> HwResult {
        let mut log = self.log.lock();
        assert!(
            !std::mem::replace(&mut log.queues[queue].launching, true),
            "two launches at a time on queue {queue}"
        );
        while log.queues[queue].stuck {
            self.changed.notify_all();
            self.changed.wait(&mut log);
        }
        let state = &mut log.queues[queue];
        state.launching = false;
        if let Some(code) = state.fail_next.take() {
            self.changed.notify_all();
            return Err(HwError::from_code(code).expect("a code"));
        }
        state.launched.push(command);
        let in_flight = state.launched.len() as u64 - state.done;
        state.most_in_flight = state.most_in_flight.max(in_flight);
        log.order.push((queue, command));
        self.changed.notify_all();
        Ok(())
    }

    pub fn complete(&self, queue: usize, count: u64) {
        let mut log = self.log.lock();
        let state = &mut log.queues[queue];
        state.done = (state.done + count).min(state.launched.len() as u64);
    }

    pub fn set(&self, queue: usize, change: impl FnOnce(&mut HwState)) {
        change(&mut self.log.lock().queues[queue]);
        self.changed.notify_all();
    }

    pub fn get<T>(&self, queue: usize, read: impl FnOnce(&HwState) -> T) -> T {
        read(&self.log.lock().queues[queue])
    }

    pub fn launched(&self, queue: usize) -> Vec<u32> {
        self.get(queue, |state| state.launched.clone())
    }

    /// Waits for a condition of the hardware's log.
    pub fn wait(&self, what: &str, done: impl Fn(&Log) -> bool) {
        let mut log = self.log.lock();
        while !done(&log) {
            assert!(!self.changed.wait_for(&mut log, HANG).timed_out(), "hang: {what}");
        }
    }
}

pub struct SimQueue {
    pub world: Arc<World>,
    pub index: usize,
}

impl HwQueue for SimQueue {
    fn record_marker(&self) -> Result<Marker, HwError> {
        let mut log = self.world.log.lock();
        log.next_mark += 1;
        let id = log.next_mark;
        let state = &mut log.queues[self.index];
        if state.fail_marks {
            return Err(HwError::from_code(999).expect("a code"));
        }
        let upto = state.launched.len() as u64;
        state.marks.push(upto);
        state.live_marks.insert(id, upto);
        drop(log);
        self.world.changed.notify_all();
        Ok(Marker(id))
    }

    fn query_marker(&self, mark: Marker) -> Result<bool, HwError> {
        let mut log = self.world.log.lock();
        let state = &mut log.queues[self.index];
        assert!(!std::mem::replace(&mut state.querying, true));
        if state.auto {
            state.done = (state.done + 1).min(state.launched.len() as u64);
        }
        let upto = *state.live_marks.get(&mark.0).expect("a live marker");
        let done = state.done >= upto;
        state.querying = false;
        Ok(done)
    }

    fn release_marker(&self, mark: Marker) {
        let mut log = self.world.log.lock();
        let live = log.queues[self.index].live_marks.remove(&mark.0);
        assert!(live.is_some(), "a marker is released once");
    }

    fn synchronize(&self) -> HwResult {
        let mut log = self.world.log.lock();
        let state = &mut log.queues[self.index];
        state.done = state.launched.len() as u64;
        Ok(())
    }
}

pub struct SimDevice;

impl HwDevice for SimDevice {
    fn enter(&self) {}
}

pub struct Command {
    pub world: Arc<World>,
    pub queue: usize,
    pub id: u32,
    pub footprint: Footprint,
}

impl HwCommand for Command {
    fn launch(&mut self, _: &dyn HwQueue) -> HwResult {
        self.world.launch(self.queue, self.id)
    }
    fn discard(&mut self, _: &dyn HwQueue) -> bool {
        let mut log = self.world.log.lock();
        log.queues[self.queue].discarded.push(self.id);
        drop(log);
        self.world.changed.notify_all();
        false
    }
    fn footprint(&self) -> Footprint {
        self.footprint
    }
    fn name(&self) -> &str {
        "simulated"
    }
}

/// A domain over simulated queues.
pub struct Bed {
    pub world: Arc<World>,
    pub domain: Domain,
    pub queues: Vec<Arc<XQueue>>,
}

/// A configuration without a limit, and without a watcher that may hold the submit lock for a moment.
pub fn unlimited() -> Config {
    Config { permission: Permission::unlimited(), watch: false, ..Config::default() }
}

impl Bed {
    pub fn new(config: Config) -> Self {
        let domain = Domain::new(config, Arc::new(NullObserver));
        for device in 0..2 {
            domain.add_device(DeviceId(device), Arc::new(SimDevice));
        }
        Self { world: World::new(), domain, queues: Vec::new() }
    }

    /// Adds a queue that completes as it is polled; returns its index.
    pub fn queue(&mut self, device: u32, class: OrderClass, launch: LaunchConfig) -> usize {
        let index = self.queues.len();
        self.world.log.lock().queues.push(HwState { auto: true, ..HwState::default() });
        let hw = SimQueue { world: self.world.clone(), index };
        let config = QueueConfig { class, launch, ..QueueConfig::default() };
        let queue =
            self.domain.create_queue(DeviceId(device), Arc::new(hw), config).expect("the device is known");
        self.queues.push(queue);
        index
    }

    pub fn plain(&mut self) -> usize {
        self.queue(0, OrderClass::Independent, LaunchConfig::Adaptive)
    }

    pub fn command(&self, queue: usize, id: u32) -> Box<Command> {
        Box::new(Command { world: self.world.clone(), queue, id, footprint: Footprint::default() })
    }

    pub fn direct(&self, queue: usize, id: u32) -> Direct {
        self.direct_with(queue, id, &CommandSpec::new(CostKey(1)))
    }

    pub fn direct_with(&self, queue: usize, id: u32, spec: &CommandSpec<'_>) -> Direct {
        self.queues[queue].try_direct(spec, || self.world.launch(queue, id))
    }

    /// Launches directly, once the launch in front of it has released the submit lock.
    pub fn direct_soon(&self, queue: usize, id: u32) {
        until("the queue is free", || matches!(self.direct(queue, id), Direct::Launched(_, Ok(()))));
    }

    /// Launches as the shim does: at once if possible, otherwise deferred.
    pub fn submit(&self, queue: usize, id: u32) -> Ticket {
        self.submit_with(queue, id, &CommandSpec::new(CostKey(1)))
    }

    pub fn submit_with(&self, queue: usize, id: u32, spec: &CommandSpec<'_>) -> Ticket {
        match self.direct_with(queue, id, spec) {
            Direct::Launched(ticket, _) => ticket,
            Direct::NotNow => self.defer_with(queue, id, spec),
        }
    }

    pub fn defer(&self, queue: usize, id: u32) -> Ticket {
        self.defer_with(queue, id, &CommandSpec::new(CostKey(1)))
    }

    pub fn defer_with(&self, queue: usize, id: u32, spec: &CommandSpec<'_>) -> Ticket {
        self.queues[queue].submit(spec, self.command(queue, id)).expect("the queue is open")
    }
}

/// Runs `body` on a thread of its own; a hang becomes a failure that names it.
pub fn within<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || {
        let _ = sender.send(body());
    });
    match receiver.recv_timeout(HANG) {
        Ok(value) => {
            let _ = thread.join();
            value
        }
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
            panic!("{what}: {:?}", thread.join().err().map(|_| "panicked"))
        }
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("hang: {what}"),
    }
}

/// Waits for a condition that sends no notification.
pub fn until(what: &str, done: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed() < HANG, "hang: {what}");
        std::thread::yield_now();
    }
}
