//! The process's devices and queues, the gang's permission word, and what all of them share. A
//! [`Domain`] is one launch order: everything of one process belongs to one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::utils::CachePadded;

use crate::config::{Config, QueueConfig};
use crate::estimate::Estimates;
use crate::flight::{DENSE, Proof, SPARSE};
use crate::hw::{HwDevice, HwQueue, Observer};
use crate::lease::{Epoch, Lease};
use crate::order::{DeviceId, OrderClass, QueueId, Scope, Ticket, Tickets};
use crate::permission::{Gate, Permission};
use crate::queue::XQueue;
use crate::sync::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, RwLock, Signal, now, pause,
};
use crate::thread::Helper;
use crate::watcher::Watcher;
use crate::worker;

/// What every queue reaches.
pub(crate) struct Core {
    pub(crate) tickets: CachePadded<Tickets>,
    pub(crate) gate: CachePadded<Gate>,
    /// Queues with something pending. Zero: nothing of the process can be out of order.
    pub(crate) backlog: CachePadded<AtomicUsize>,
    /// Launches that somebody asked to hear of, permissions, wishes.
    pub(crate) progress: Signal,
    devices: RwLock<Arc<[Arc<Device>]>>,
    pub(crate) config: Config,
    /// The budget in nanoseconds, and what it is at least at present.
    pub(crate) budget: u64,
    pub(crate) least_budget: AtomicU64,
    /// Launches from one mark to the next where nothing limits them.
    pub(crate) mark_spacing: AtomicU32,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) watcher: Watcher,
    pub(crate) epoch: Epoch,
    pub(crate) lease: Lease,
    pub(crate) stop: AtomicBool,
    /// Pending commands beside which no other thread may launch.
    pub(crate) exclusive: AtomicUsize,
    next_queue: AtomicU64,
}

/// One device.
pub(crate) struct Device {
    pub(crate) id: DeviceId,
    pub(crate) hw: Arc<dyn HwDevice>,
    pub(crate) queues: RwLock<Arc<[Arc<XQueue>]>>,
    /// Grows when `queues` or a priority changes.
    pub(crate) version: AtomicU64,
    /// Queues of the class `Blocking`.
    pub(crate) blocking: AtomicUsize,
    pub(crate) signal: Signal,
    pub(crate) estimates: Estimates,
    has_worker: AtomicBool,
    worker: Mutex<Helper>,
    /// Counts the looks of the worker.
    pub(crate) rounds: AtomicU64,
    /// What they were when the watcher last launched in its place.
    pub(crate) left_at: AtomicU64,
}

impl Core {
    pub(crate) fn device(&self, id: DeviceId) -> Option<Arc<Device>> {
        self.devices.read().iter().find(|d| d.id == id).cloned()
    }

    /// Calls `visit` with every queue of the scope until it returns false; holds no lock meanwhile.
    pub(crate) fn each_queue(&self, scope: Scope<'_>, mut visit: impl FnMut(&Arc<XQueue>) -> bool) {
        let devices = self.devices.read().clone();
        for device in devices.iter() {
            let queues = device.queues.read().clone();
            for queue in queues.iter().filter(|queue| scope.contains(queue)) {
                if !visit(queue) {
                    return;
                }
            }
        }
    }

    /// Wakes every worker and everybody who waits for a launch or a permission.
    pub(crate) fn wake_all(&self) {
        let devices = self.devices.read().clone();
        for device in devices.iter() {
            device.signal.notify();
        }
        self.progress.notify();
    }
}

impl Device {
    /// Wakes the worker, which is created by the first call. False: there is none.
    pub(crate) fn wake_worker(self: &Arc<Self>, core: &Arc<Core>) -> bool {
        self.signal.notify();
        cfg!(loom) || self.has_worker.load(Ordering::Acquire) || self.start_worker(core)
    }

    #[cold]
    fn start_worker(self: &Arc<Self>, core: &Arc<Core>) -> bool {
        let mut worker = self.worker.lock();
        if core.stop.load(Ordering::Acquire) && !worker.is_there() {
            return false;
        }
        let (device, theirs) = (self.clone(), core.clone());
        let without = "no worker thread: submitting threads launch themselves";
        let there = worker.start("giveway-launch", without, move || worker::run(&theirs, &device));
        self.has_worker.store(there, Ordering::Release);
        there
    }

    /// Where no watcher thread could be made, or none has looked for a while, looks for completion and idleness on this device, and
    /// whether the policy still decides. True: so it is.
    pub(crate) fn stand_in_for_watcher(&self, core: &Core) -> bool {
        let at = core.epoch.of(now());
        let absent = core.watcher.is_absent(at);
        if absent {
            core.end_policy(at);
            let queues = self.queues.read().clone();
            queues.iter().filter(|queue| queue.is_ready()).for_each(|queue| queue.look());
        }
        absent
    }

    /// The list of queues or their priorities changed.
    pub(crate) fn changed(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.signal.notify();
    }

    fn add(&self, queue: Arc<XQueue>) {
        if queue.class == OrderClass::Blocking {
            self.blocking.fetch_add(1, Ordering::AcqRel);
        }
        let mut queues = self.queues.write();
        *queues = queues.iter().cloned().chain([queue]).collect();
        drop(queues);
        self.changed();
    }

    pub(crate) fn remove(&self, queue: &XQueue) {
        let mut queues = self.queues.write();
        let before = queues.len();
        *queues = queues.iter().filter(|q| q.id != queue.id).cloned().collect();
        let removed = queues.len() != before;
        drop(queues);
        if removed && queue.class == OrderClass::Blocking {
            self.blocking.fetch_sub(1, Ordering::AcqRel);
        }
        self.changed();
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.id).finish()
    }
}

/// A budget in nanoseconds; one that is as good as none leaves room for sums.
pub(crate) fn nanos(budget: Duration) -> u64 {
    u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX / 4)
}

/// What a process has on its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outstanding {
    /// Commands launched and not known to have completed.
    pub commands: u64,
    /// A thread has the right to launch on some queue: what it launches may not be counted yet.
    pub launching: bool,
    /// How long the commands will probably take, one after the other; nothing where one is unknown.
    pub remaining: Option<Duration>,
}

/// Everything that a process had launched at a moment.
#[derive(Debug)]
pub struct Snapshot(Vec<(Arc<XQueue>, Proof)>);

/// The queues of one process, in one launch order. Dropping it ends all of them: what is pending is
/// discarded, the threads are joined.
pub struct Domain {
    core: Arc<Core>,
}

impl Domain {
    /// A domain without devices. The observer hears of every queue.
    pub fn new(config: Config, observer: Arc<dyn Observer>) -> Self {
        let core = Core {
            tickets: CachePadded::new(Tickets::new()),
            gate: CachePadded::new(Gate::new(config.permission)),
            backlog: CachePadded::new(AtomicUsize::new(0)),
            progress: Signal::new(),
            devices: RwLock::new(Arc::new([])),
            config,
            budget: nanos(config.budget),
            least_budget: AtomicU64::new(0),
            mark_spacing: AtomicU32::new(SPARSE),
            observer,
            watcher: Watcher::new(config.watch),
            epoch: Epoch::new(),
            lease: Lease::new(),
            stop: AtomicBool::new(false),
            exclusive: AtomicUsize::new(0),
            next_queue: AtomicU64::new(1),
        };
        Self { core: Arc::new(core) }
    }

    /// Makes a device known; the first call with an id counts.
    pub fn add_device(&self, id: DeviceId, hw: Arc<dyn HwDevice>) {
        let mut devices = self.core.devices.write();
        if devices.iter().any(|device| device.id == id) {
            return;
        }
        let device = Arc::new(Device {
            id,
            hw,
            queues: RwLock::new(Arc::new([])),
            version: AtomicU64::new(0),
            blocking: AtomicUsize::new(0),
            signal: Signal::new(),
            estimates: Estimates::new(),
            has_worker: AtomicBool::new(false),
            worker: Mutex::new(Helper::new()),
            rounds: AtomicU64::new(0),
            left_at: AtomicU64::new(u64::MAX),
        });
        *devices = devices.iter().cloned().chain([device]).collect();
    }

    /// A new XQueue in front of `hw`; nothing if the device is not known.
    pub fn create_queue(
        &self,
        device: DeviceId,
        hw: Arc<dyn HwQueue>,
        config: QueueConfig,
    ) -> Option<Arc<XQueue>> {
        let device = self.core.device(device)?;
        let id = QueueId(self.core.next_queue.fetch_add(1, Ordering::Relaxed));
        let queue = Arc::new(XQueue::new(id, self.core.clone(), device.clone(), hw, config));
        device.add(queue.clone());
        Some(queue)
    }

    /// Opens a queue anew that [`XQueue::destroy`] has ended, for a program that makes and destroys hardware queues all
    /// the time: the object behind `hw` stands for another one, of the same device and default-stream rule, in which
    /// nothing is in flight. Counters go on. False: the queue is not at its end.
    pub fn reopen(&self, queue: &Arc<XQueue>, config: &QueueConfig) -> bool {
        let reopened = config.class == queue.class && queue.reopen(config);
        if reopened {
            queue.device.add(queue.clone());
        }
        reopened
    }

    /// All queues that exist, by device and in the order of their creation.
    pub fn queues(&self) -> Vec<Arc<XQueue>> {
        let mut all = Vec::new();
        self.core.each_queue(Scope::Process, |queue| {
            all.push(queue.clone());
            true
        });
        all
    }

    /// Takes a ticket for a call that is not a command.
    pub fn take_ticket(&self) -> Ticket {
        self.core.tickets.take()
    }

    /// Whether any queue of the process has something pending.
    pub fn has_pending(&self) -> bool {
        self.core.backlog.load(Ordering::Acquire) != 0
    }

    /// A command is about to be submitted beside whose launch no other thread may launch anything: until
    /// [`Domain::end_exclusive`] nothing is launched directly while anything is pending. Costs direct
    /// launches nothing, because they look at what is pending anyway.
    pub fn begin_exclusive(&self) {
        self.core.exclusive.fetch_add(1, Ordering::AcqRel);
    }

    /// That command has been launched or dropped.
    pub fn end_exclusive(&self) {
        self.core.exclusive.fetch_sub(1, Ordering::AcqRel);
    }

    /// A drain: waits, holding nothing, until everything of the scope with a ticket below `before` is
    /// launched, failed or dropped.
    pub fn wait_launched(&self, scope: Scope<'_>, before: Ticket) {
        if !self.has_pending() {
            return;
        }
        #[cfg(feature = "broken-order")]
        if crate::broken::is(crate::broken::Fault::Drain) {
            return;
        }
        self.core.each_queue(scope, |queue| {
            queue.wait_launched(before);
            true
        });
    }

    /// The gang's permission in force.
    pub fn permission(&self) -> Permission {
        self.core.gate.load()
    }

    /// Sets the gang's own permission word and stops following another one. Never waits for a launch.
    pub fn store_permission(&self, permission: Permission) {
        self.core.gate.store(permission);
        self.permission_changed();
    }

    /// Follows a word that somebody else writes, for example on a page that the server shares. Who
    /// sees that word change calls [`Domain::permission_changed`].
    #[cfg(not(loom))]
    pub fn follow_permission(&self, word: &'static std::sync::atomic::AtomicU64) {
        self.core.gate.follow(word);
        self.permission_changed();
    }

    /// The adaptive window of every queue admits at least so much estimated time, until another is said. For who takes what is
    /// in flight off the hardware, so that it holds nobody up.
    pub fn widen_windows(&self, least: Duration) {
        self.core.least_budget.store(nanos(least), Ordering::Relaxed);
    }

    /// Whether somebody waits for this process to complete something: then launches that nothing limits are marked
    /// more densely, so that its progress shows while much is in flight.
    pub fn show_progress(&self, show: bool) {
        let spacing = if show { DENSE } else { SPARSE };
        if self.core.mark_spacing.swap(spacing, Ordering::Relaxed) != spacing && show {
            self.core.each_queue(Scope::Process, |queue| {
                queue.hot.flight.want_mark();
                true
            });
        }
    }

    /// What the process has on its devices at this moment. Reads words and short locks, no hardware.
    pub fn outstanding(&self) -> Outstanding {
        let mut all = Outstanding { commands: 0, launching: false, remaining: Some(Duration::ZERO) };
        self.core.each_queue(Scope::Process, |queue| {
            // First: who has counted its launch by the time of the other look has let go of it.
            all.launching |= queue.hot.submit.is_held();
            let commands = queue.hot.flight.in_flight();
            if commands != 0 {
                all.commands += commands;
                let flight = &queue.hot.flight;
                all.remaining = all.remaining.zip(flight.remaining()).map(|(sum, this)| sum + this);
            }
            true
        });
        all
    }

    /// Everything whose launch has begun, to be asked later whether it has completed; nothing while a launch is on its way.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let mut all = Some(Vec::new());
        self.core.each_queue(Scope::Process, |queue| {
            // First: a launch that was under way before this look is counted when nobody has submit any more.
            let proof = (!queue.hot.submit.is_held()).then(|| queue.hot.flight.whole_snapshot()).flatten();
            match (&mut all, proof) {
                (Some(proofs), Some(proof)) => proofs.push((queue.clone(), proof)),
                _ => all = None,
            }
            all.is_some()
        });
        all.map(Snapshot)
    }

    /// Whether everything in the snapshot is known to have completed. Makes no call to the hardware.
    pub fn is_complete(&self, snapshot: &Snapshot) -> bool {
        snapshot.0.iter().all(|(queue, proof)| queue.hot.flight.covers(*proof))
    }

    /// Has the watcher look soon at what has completed: where nothing may be launched nobody else does.
    pub fn look_soon(&self) {
        self.core.watcher.wake();
    }

    /// The process's queues are being taken off the hardware, or put back: what was seen of times until now teaches and
    /// foretells nothing.
    pub fn forget_times(&self) {
        self.core.each_queue(Scope::Process, |queue| {
            queue.hot.flight.forget_times();
            true
        });
    }

    /// The policy holds what it holds ([`XQueue::set_policy_run`]) for so long from now on, and then every queue runs, whether the
    /// thread that decides says so or not. To be called before it holds anything, and again in time. True: the time before had
    /// ended with something held, which runs since then.
    pub fn keep_policy(&self, span: Duration) -> bool {
        self.core.lease.renew(self.core.epoch.of(now() + span))
    }

    /// Nobody decides any more who calls [`Domain::keep_policy`].
    pub fn end_policy(&self) {
        self.core.lease.end();
    }

    /// The permission word has changed: books it and wakes whoever may launch now. Never waits for a
    /// launch; fit for a thread that must not call the hardware.
    pub fn permission_changed(&self) {
        self.core.each_queue(Scope::Process, |queue| {
            queue.note_permission();
            true
        });
        self.core.wake_all();
    }

    /// The process is about to end: no thread of the domain makes another call to the hardware after this has
    /// returned true. What is pending stays so. Waits at most `limit`, because a thread may be inside a call.
    pub fn quit(&self, limit: Duration) -> bool {
        self.core.stop.store(true, Ordering::Release);
        self.core.wake_all();
        self.core.watcher.wake();
        let end = now() + limit;
        loop {
            let workers = self.core.devices.read().clone();
            let alive = |device: &Arc<Device>| device.worker.lock().is_alive();
            if !workers.iter().any(alive) && !self.core.watcher.is_alive() {
                return true;
            }
            if now() >= end {
                return false;
            }
            pause();
        }
    }

    #[cfg(loom)]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // A gang that is held must not keep its process from ending.
        self.core.gate.store(Permission::unlimited());
        for queue in self.queues() {
            queue.destroy(true);
        }
        self.core.stop.store(true, Ordering::Release);
        self.core.wake_all();
        self.core.watcher.stop();
        for device in self.core.devices.read().iter() {
            let worker = device.worker.lock().take();
            if let Some(worker) = worker {
                let _ = worker.join();
            }
        }
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("permission", &self.permission())
            .field("queues", &self.queues())
            .finish_non_exhaustive()
    }
}
