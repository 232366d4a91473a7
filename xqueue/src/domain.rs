//! The domain: the devices and queues of one process, in one launch order, and the requests that concern all
//! of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, QueueConfig, nanos};
use crate::hw::{HwDevice, HwQueue, Observer};
use crate::ids::{DeviceId, Ticket};
use crate::permission::Permission;
use crate::state::device::{Core, Loops};
use crate::state::flight::{CompletionSnapshot, DENSE, SPARSE};
use crate::state::queue::{Scope, XQueue};
use crate::sync::{Ordering, now, pause};
use crate::threads::{watcher, worker};

/// The work of a process that is in flight on its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outstanding {
    /// Commands launched and not known to have completed.
    pub commands: u64,
    /// True if a thread holds the submit lock of a queue: its launch may not be counted yet.
    pub launching: bool,
    /// The estimated time of the commands, one after the other; none if one of them is unknown.
    pub remaining: Option<Duration>,
}

/// Everything that a process had launched at a moment.
#[derive(Debug)]
pub struct Snapshot(Vec<(Arc<XQueue>, CompletionSnapshot)>);

/// The queues of one process, in one launch order. Dropping it ends all of them: what is pending is
/// discarded, the threads are joined.
pub struct Domain {
    core: Arc<Core>,
}

impl Domain {
    /// Creates a domain without devices. The observer is notified about every queue.
    pub fn new(config: Config, observer: Arc<dyn Observer>) -> Self {
        let loops = Loops { worker: worker::run, watcher: watcher::run };
        Self { core: Arc::new(Core::new(config, observer, loops)) }
    }

    /// Adds a device; the first call with an id counts.
    pub fn add_device(&self, id: DeviceId, hw: Arc<dyn HwDevice>) {
        self.core.add_device(id, hw);
    }

    /// Creates an XQueue in front of `hw`; none if the device is not known.
    pub fn create_queue(
        &self,
        device: DeviceId,
        hw: Arc<dyn HwQueue>,
        config: QueueConfig,
    ) -> Option<Arc<XQueue>> {
        let device = self.core.device(device)?;
        let id = self.core.next_queue_id();
        let queue = Arc::new(XQueue::new(id, self.core.clone(), device.clone(), hw, config));
        queue.note_permission();
        device.add(queue.clone());
        Some(queue)
    }

    /// Opens a queue again that [`XQueue::destroy`] has ended, for a program that creates and destroys
    /// hardware queues repeatedly: the object behind `hw` stands for another hardware queue, of the same
    /// device and default-stream rule, in which nothing is in flight. Counters go on. Returns false if the
    /// queue is not destroyed.
    pub fn reopen(&self, queue: &Arc<XQueue>, config: &QueueConfig) -> bool {
        let reopened = config.class == queue.class && queue.reopen(config);
        if reopened {
            queue.note_permission();
            queue.try_idle(true);
            queue.device.add(queue.clone());
        }
        reopened
    }

    /// Returns all queues that exist, by device and in the order of their creation.
    pub fn queues(&self) -> Vec<Arc<XQueue>> {
        let mut all = Vec::new();
        self.core.for_each_queue(|queue| all.push(queue.clone()));
        all
    }

    /// Takes a ticket for a call that is not a command.
    pub fn take_ticket(&self) -> Ticket {
        self.core.tickets.take()
    }

    /// Returns true if any queue of the process has something pending.
    pub fn has_pending(&self) -> bool {
        self.core.backlog.load(Ordering::Acquire) != 0
    }

    /// Announces a command beside whose launch no other thread may launch. Until [`Domain::end_exclusive`]
    /// nothing is launched directly while anything is pending. Costs direct launches nothing, because they
    /// read the backlog anyway.
    pub fn begin_exclusive(&self) {
        self.core.exclusive.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that the command has been launched or dropped.
    pub fn end_exclusive(&self) {
        self.core.exclusive.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits, holding nothing, until everything of the scope with a ticket below `before` is launched, failed
    /// or dropped: a drain.
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

    /// Returns the process permission, as its owner wrote it.
    pub fn permission(&self) -> Permission {
        self.core.permission.load()
    }

    /// Sets the process's own permission word and stops following another one. Never waits for a launch.
    pub fn store_permission(&self, permission: Permission) {
        self.core.permission.store(permission);
        self.permission_changed();
    }

    /// Follows a word that another process writes, for example on a page that the server shares. The thread
    /// that sees the word change calls [`Domain::permission_changed`].
    #[cfg(not(loom))]
    pub fn follow_permission(&self, word: &'static std::sync::atomic::AtomicU64) {
        self.core.permission.follow(word);
        self.permission_changed();
    }

    /// Makes the adaptive window of every queue admit at least so much estimated time, until the next call.
    /// For a caller that evicts what is in flight, so that it delays no other process.
    pub fn set_least_window(&self, least: Duration) {
        self.core.least_budget.store(nanos(least), Ordering::Relaxed);
    }

    /// Sets whether another process waits for this one to complete something. If so, launches that nothing
    /// limits get markers more densely, so that progress shows while much is in flight.
    pub fn show_progress(&self, show: bool) {
        let spacing = if show { DENSE } else { SPARSE };
        if self.core.marker_spacing.swap(spacing, Ordering::Relaxed) != spacing && show {
            self.core.for_each_queue(|queue| queue.hot.flight.request_marker());
        }
    }

    /// Sets whether the observer wants events for a trace ([`Observer::traced`]). What a thread does at this moment may
    /// still be told, or already not.
    pub fn set_traced(&self, traced: bool) {
        self.core.traced.store(traced, Ordering::Relaxed);
    }

    /// Returns what the process has in flight at this moment. Reads words and takes short locks; makes no
    /// call to the hardware.
    pub fn outstanding(&self) -> Outstanding {
        let mut all = Outstanding { commands: 0, launching: false, remaining: Some(Duration::ZERO) };
        self.core.for_each_queue(|queue| {
            // The lock first: a launch that is counted by the second read has released the lock by then.
            all.launching |= queue.hot.submit.is_held();
            let commands = queue.hot.flight.in_flight();
            if commands != 0 {
                all.commands += commands;
                let flight = &queue.hot.flight;
                all.remaining = all.remaining.zip(flight.remaining()).map(|(sum, this)| sum + this);
            }
        });
        all
    }

    /// Returns everything whose launch has begun, to be passed to [`Domain::is_complete`] later; none while a
    /// launch is being made.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let mut all = Some(Vec::new());
        self.core.each_queue(Scope::Process, |queue| {
            // The lock first: once it is free, a launch that was being made before is counted.
            let snapshot = (!queue.hot.submit.is_held()).then(|| queue.hot.flight.whole_snapshot()).flatten();
            match (&mut all, snapshot) {
                (Some(snapshots), Some(snapshot)) => snapshots.push((queue.clone(), snapshot)),
                _ => all = None,
            }
            all.is_some()
        });
        all.map(Snapshot)
    }

    /// Returns true if everything in the snapshot is known to have completed. Makes no call to the hardware.
    pub fn is_complete(&self, snapshot: &Snapshot) -> bool {
        snapshot.0.iter().all(|(queue, snapshot)| queue.hot.flight.covers(*snapshot))
    }

    /// Makes the watcher check for completion soon: where nothing may be launched no other thread does.
    pub fn wake_watcher(&self) {
        self.core.watcher.wake();
    }

    /// Forgets the times observed so far: the process's hardware queues are being evicted or restored, and
    /// interrupted commands show neither how long they take nor when they end.
    pub fn forget_times(&self) {
        self.core.for_each_queue(|queue| queue.hot.flight.forget_times());
    }

    /// Notes that the program has evicted or restored its hardware queues itself, without a suspension of the queues here. Does what
    /// [`Domain::forget_times`] does, and keeps what completes meanwhile from counting as a late launch.
    pub fn note_eviction(&self) {
        self.core.for_each_queue(|queue| {
            queue.hot.flight.forget_times();
            queue.hot.flight.note_suspension();
        });
    }

    /// Notes that the hardware queues are limited to the share of the compute units that the permission leaves a
    /// suspended process ([`Permission::share`]), or that they no longer are. Within its share it launches as far as
    /// its window admits. Nothing is learnt from its times meanwhile, because commands take longer than they
    /// do alone.
    pub fn set_in_share(&self, in_share: bool) {
        if self.core.in_share.swap(in_share, Ordering::SeqCst) != in_share {
            self.forget_times();
            self.permission_changed();
        }
    }

    /// Lets the local policy's suspensions ([`XQueue::set_policy_run`]) hold for this time; then every queue
    /// runs, even if the scheduling thread does not respond. Call it before the first suspension, and again
    /// in time. Returns true if the former time had ended with a queue suspended, which runs since then.
    pub fn renew_policy_lease(&self, interval: Duration) -> bool {
        self.core.lease.renew(self.core.epoch.of(now() + interval))
    }

    /// Ends the lease of the local policy: nothing calls [`Domain::renew_policy_lease`] any more.
    pub fn end_policy_lease(&self) {
        self.core.lease.end();
    }

    /// Accounts for a change of the permission word and wakes the threads that may launch now. Never waits
    /// for a launch; fit for a thread that must not call the hardware.
    pub fn permission_changed(&self) {
        self.core.for_each_queue(|queue| queue.note_permission());
        self.core.wake_all();
    }

    /// Stops the threads, because the process is about to end. Once this has returned true no thread of the
    /// domain makes another call to the hardware. What is pending stays so. Waits at most `limit`, because a
    /// thread may be inside a call.
    pub fn quit(&self, limit: Duration) -> bool {
        self.core.stop.store(true, Ordering::Release);
        self.core.wake_all();
        self.core.watcher.wake();
        let end = now() + limit;
        loop {
            let devices = self.core.devices.read().clone();
            if !devices.iter().any(|device| device.has_live_worker()) && !self.core.watcher.is_alive() {
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
        // A suspended process must still be able to end.
        self.core.permission.store(Permission::unlimited());
        for queue in self.queues() {
            queue.destroy(true);
        }
        self.core.stop.store(true, Ordering::Release);
        self.core.wake_all();
        self.core.watcher.stop();
        self.core.devices.read().iter().for_each(|device| device.join_worker());
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
