//! The state that all queues of a process share, and that of each device. [`Core`], [`Device`] and [`XQueue`]
//! refer to each other; no other file of the crate takes part in that circle.

use std::sync::Arc;

use crossbeam::utils::CachePadded;

use crate::config::{Config, nanos};
use crate::estimate::Estimates;
use crate::hw::{HwDevice, Observer};
use crate::ids::{DeviceId, OrderClass, QueueId, Tickets};
use crate::permission::ProcessPermission;
use crate::state::flight::SPARSE;
use crate::state::lease::{Epoch, Lease};
use crate::state::queue::{Scope, XQueue};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, RwLock, Signal, now};
use crate::threads::service::ServiceThread;
use crate::threads::watcher_handle::WatcherHandle;

/// The loops of the library's threads. The domain hands them in, so that a queue can start a thread without
/// knowing what it runs.
pub(crate) struct Loops {
    pub(crate) worker: fn(&Core, &Device),
    pub(crate) watcher: fn(&Core),
}

/// The state of a process.
pub(crate) struct Core {
    pub(crate) tickets: CachePadded<Tickets>,
    pub(crate) permission: CachePadded<ProcessPermission>,
    /// The number of queues with something pending. At 0 nothing of the process can be out of order.
    pub(crate) backlog: CachePadded<AtomicUsize>,
    /// Notified after a launch that a waiter has registered for, a change of permissions, or a release of a
    /// submit lock with a registered waiter.
    pub(crate) progress: Signal,
    pub(crate) devices: RwLock<Arc<[Arc<Device>]>>,
    pub(crate) config: Config,
    /// The budget in nanoseconds, and its present lower bound.
    pub(crate) budget: u64,
    pub(crate) least_budget: AtomicU64,
    /// See [`crate::Domain::set_in_share`].
    pub(crate) in_share: AtomicBool,
    /// Launches from one marker to the next where nothing limits them.
    pub(crate) marker_spacing: AtomicU32,
    pub(crate) observer: Arc<dyn Observer>,
    /// True while the observer wants events for a trace.
    pub(crate) traced: AtomicBool,
    loops: Loops,
    pub(crate) watcher: WatcherHandle,
    pub(crate) epoch: Epoch,
    pub(crate) lease: Lease,
    pub(crate) stop: AtomicBool,
    /// The number of pending commands beside which no other thread may launch.
    pub(crate) exclusive: AtomicUsize,
    next_queue: AtomicU64,
}

/// The state of one device.
pub(crate) struct Device {
    pub(crate) id: DeviceId,
    pub(crate) hw: Arc<dyn HwDevice>,
    pub(crate) queues: RwLock<Arc<[Arc<XQueue>]>>,
    /// Grows with every change of `queues` or of a priority.
    pub(crate) version: AtomicU64,
    /// The number of queues of the class `Blocking`.
    pub(crate) blocking: AtomicUsize,
    pub(crate) signal: Signal,
    pub(crate) estimates: Estimates,
    has_worker: AtomicBool,
    worker: Mutex<ServiceThread>,
    /// The number of the worker's rounds.
    pub(crate) rounds: AtomicU64,
    /// The value of `rounds` when the watcher last launched in the worker's place.
    pub(crate) rounds_replaced: AtomicU64,
    /// The lateness in nanoseconds that nearly all sleeps of the worker stay below. Only the worker writes it.
    pub(crate) lateness: AtomicU64,
}

impl Core {
    pub(crate) fn new(config: Config, observer: Arc<dyn Observer>, loops: Loops) -> Self {
        Self {
            tickets: CachePadded::new(Tickets::new()),
            permission: CachePadded::new(ProcessPermission::new(config.permission)),
            backlog: CachePadded::new(AtomicUsize::new(0)),
            progress: Signal::new(),
            devices: RwLock::new(Arc::new([])),
            config,
            budget: nanos(config.budget),
            least_budget: AtomicU64::new(0),
            marker_spacing: AtomicU32::new(SPARSE),
            observer,
            traced: AtomicBool::new(false),
            loops,
            watcher: WatcherHandle::new(config.watch),
            epoch: Epoch::new(),
            lease: Lease::default(),
            stop: AtomicBool::new(false),
            in_share: AtomicBool::new(false),
            exclusive: AtomicUsize::new(0),
            next_queue: AtomicU64::new(1),
        }
    }

    /// Adds a device; the first call with an id counts.
    pub(crate) fn add_device(&self, id: DeviceId, hw: Arc<dyn HwDevice>) {
        let mut devices = self.devices.write();
        if devices.iter().any(|device| device.id == id) {
            return;
        }
        let device = Arc::new(Device::new(id, hw));
        *devices = devices.iter().cloned().chain([device]).collect();
    }

    pub(crate) fn device(&self, id: DeviceId) -> Option<Arc<Device>> {
        self.devices.read().iter().find(|d| d.id == id).cloned()
    }

    pub(crate) fn next_queue_id(&self) -> QueueId {
        QueueId(self.next_queue.fetch_add(1, Ordering::Relaxed))
    }

    /// Calls `visit` with every queue of the scope until it returns false. Holds no lock meanwhile.
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

    /// Calls `visit` with every queue of the process, as [`Core::each_queue`] does.
    pub(crate) fn for_each_queue(&self, mut visit: impl FnMut(&Arc<XQueue>)) {
        self.each_queue(Scope::Process, |queue| {
            visit(queue);
            true
        });
    }

    /// Wakes every worker and every thread that waits for a launch or a permission.
    pub(crate) fn wake_all(&self) {
        let devices = self.devices.read().clone();
        for device in devices.iter() {
            device.signal.notify();
        }
        self.progress.notify();
    }

    /// Makes the watcher check from now on, and starts its thread at the first call.
    pub(crate) fn arm_watcher(self: &Arc<Self>) {
        self.watcher.arm(
            || self.epoch.of(now()),
            |thread| {
                if self.stop.load(Ordering::Acquire) {
                    return thread.is_there();
                }
                let core = self.clone();
                let without = "no watcher thread: idleness is seen by those who wait for it";
                thread.start("giveway-watch", without, move || (core.loops.watcher)(&core))
            },
        );
    }
}

impl Device {
    fn new(id: DeviceId, hw: Arc<dyn HwDevice>) -> Self {
        Self {
            id,
            hw,
            queues: RwLock::new(Arc::new([])),
            version: AtomicU64::new(0),
            blocking: AtomicUsize::new(0),
            signal: Signal::new(),
            estimates: Estimates::new(),
            has_worker: AtomicBool::new(false),
            worker: Mutex::new(ServiceThread::default()),
            rounds: AtomicU64::new(0),
            rounds_replaced: AtomicU64::new(u64::MAX),
            lateness: AtomicU64::new(0),
        }
    }

    /// Wakes the worker, which the first call starts. Returns false if there is none.
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
        let (device, shared) = (self.clone(), core.clone());
        let without = "no worker thread: submitting threads launch themselves";
        let there = worker.start("giveway-launch", without, move || (shared.loops.worker)(&shared, &device));
        self.has_worker.store(there, Ordering::Release);
        there
    }

    pub(crate) fn has_live_worker(&self) -> bool {
        self.worker.lock().is_alive()
    }

    /// Joins the worker, after the caller has set `stop` and woken it.
    pub(crate) fn join_worker(&self) {
        let worker = self.worker.lock().take();
        if let Some(worker) = worker {
            let _ = worker.join();
        }
    }

    /// Announces a change of the queues or of their priorities.
    pub(crate) fn changed(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.signal.notify();
    }

    pub(crate) fn add(&self, queue: Arc<XQueue>) {
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
