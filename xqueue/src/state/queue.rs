//! The XQueue: its parts, its locks and its getters, and the types that refer to queues. The paths of a
//! command are in `path/`.

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::utils::CachePadded;

use crate::config::{LaunchConfig, QueueConfig, TestMode};
use crate::error::HwError;
use crate::hw::HwQueue;
use crate::ids::{DeviceId, OrderClass, QueueId, Ticket};
use crate::permission::QueuePermission;
use crate::state::accounting::Accounting;
use crate::state::device::{Core, Device};
use crate::state::flight::{CompletionSnapshot, Flight};
use crate::state::pending;
use crate::state::ready::{Readiness, Ready};
use crate::state::stall::Stall;
use crate::state::storage::{CommandMemory, Slot};
use crate::submit_lock::{SubmitHeld, SubmitLock};
use crate::sync::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, spin_hint,
};

/// A preemptible software queue in front of one hardware queue.
pub struct XQueue {
    pub(crate) hot: CachePadded<Hot>,
    pub(crate) state: CachePadded<State>,
    pub(crate) pending: CachePadded<Mutex<Pending>>,
    /// Memory for the next deferred command, or null. Taken without a lock.
    spare: CachePadded<AtomicPtr<Slot>>,
    pub(crate) id: QueueId,
    pub(crate) tag: usize,
    pub(crate) class: OrderClass,
    pub(crate) core: Arc<Core>,
    pub(crate) device: Arc<Device>,
    pub(crate) hw: Arc<dyn HwQueue>,
    launch_config: AtomicU64,
    priority: AtomicI32,
    stream_priority: AtomicI32,
    /// The smallest ticket that a registered waiter wants the frontier to reach.
    pub(crate) awaited: AtomicU64,
    /// The progress of the threads that wait for a full window.
    pub(crate) stall: Mutex<Stall>,
    /// Notified, with the lock `pending`, when callers that wait for room may find some.
    pub(crate) room: Condvar,
    /// Commands below this ticket may be launched although the queue is suspended: others wait for them.
    pub(crate) inherit: AtomicU64,
    /// Pending commands below this ticket are discarded.
    pub(crate) drop_below: AtomicU64,
    pub(crate) sticky: AtomicU32,
    pub(crate) accounting: Mutex<Accounting>,
    pub(crate) direct_failed: AtomicU64,
    /// The number of completed launches that the observer knows, for a trace.
    pub(crate) traced_completed: AtomicU64,
    /// The number of callers that wait for the queue inside the runtime ([`crate::Wait`]).
    pub(crate) waits: AtomicU32,
    pub(crate) chaos: AtomicU64,
    /// The commands that wait on the device for other queues, in launch order.
    pub(crate) device_waits: Mutex<Vec<DeviceWait>>,
    /// True if `device_waits` is not empty.
    pub(crate) has_device_waits: AtomicBool,
    pub(crate) watch: WatchState,
}

/// The words that every launch changes. They are apart from the words that an append reads, because the
/// worker and an appending thread would contend for them at every command.
pub(crate) struct Hot {
    pub(crate) submit: SubmitLock,
    /// The first ticket that is not launched; `pending.rs` says which thread stores it.
    pub(crate) frontier: AtomicU64,
    /// The ticket of the last launch; written under the submit lock.
    pub(crate) last_ticket: AtomicU64,
    /// The items that the holder of the submit lock has taken from `pending`; others lock it for a look only.
    pub(crate) taken: Mutex<Taken>,
    /// The number of items taken and not launched.
    pub(crate) taken_left: AtomicUsize,
    pub(crate) deferred_launched: AtomicU64,
    pub(crate) flight: Flight,
}

/// The words that every call reads and few change.
pub(crate) struct State {
    pub(crate) permission: QueuePermission,
    pub(crate) ready: Readiness,
    /// True if it is to be noted that the program asks for completion, although the queue is idle.
    pub(crate) asks: AtomicBool,
}

/// The state of a queue at the watcher's last check.
#[derive(Default)]
pub(crate) struct WatchState {
    pub(crate) launched: AtomicU64,
    pub(crate) completed: AtomicU64,
    /// The rounds of the device's worker.
    pub(crate) rounds: AtomicU64,
    /// The first pending command.
    pub(crate) front: AtomicU64,
    /// Since when the worker has not responded although something may be launched.
    pub(crate) still_since: AtomicU64,
    /// The synchronizations since the last look that have left the queue ready.
    pub(crate) stays: AtomicU32,
}

/// An edge of the launch order: launched after everything of `queue` up to and including ticket `through`.
#[derive(Debug, Clone)]
pub struct After {
    /// The queue that is waited for.
    pub queue: Arc<XQueue>,
    /// The last command that counts.
    pub through: Ticket,
}

impl After {
    /// Returns true if something of it is not launched.
    pub fn is_open(&self) -> bool {
        !self.queue.is_launched(self.through)
    }

    /// Waits as [`XQueue::wait_launched`] does.
    pub fn wait_launched(&self) {
        self.queue.wait_launched(self.through.next());
    }
}

/// A set of queues.
#[derive(Debug, Clone, Copy)]
pub enum Scope<'a> {
    /// One queue.
    Queue(&'a XQueue),
    /// All queues of a device.
    Device(DeviceId),
    /// All queues of the process.
    Process,
}

impl Scope<'_> {
    /// Returns true if the queue belongs to the set.
    pub(crate) fn contains(&self, queue: &XQueue) -> bool {
        match self {
            Scope::Queue(one) => one.id == queue.id,
            Scope::Device(device) => queue.device.id == *device,
            Scope::Process => true,
        }
    }
}

/// An edge of a pending command: everything of `queue` below ticket `before`.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    pub(crate) queue: Arc<XQueue>,
    pub(crate) before: Ticket,
}

impl Edge {
    pub(crate) fn is_satisfied(&self) -> bool {
        self.queue.frontier() >= self.before
    }
}

pub(crate) type Item = pending::Item<Edge>;
pub(crate) type Taken = pending::Taken<Edge>;
pub(crate) type Pending = pending::Pending<Edge>;

/// The set that has completed once one command has: the command, everything in front of it, and everything
/// that these waited for by the default-stream rule.
#[derive(Debug, Clone)]
pub struct Completion {
    pub(crate) own: (Arc<XQueue>, CompletionSnapshot),
    pub(crate) dependencies: Vec<(Arc<XQueue>, CompletionSnapshot)>,
}

/// A command of a queue that waits, on the device, for other queues.
#[derive(Debug)]
pub(crate) struct DeviceWait {
    /// Its index among the launches of its queue.
    pub(crate) index: u64,
    pub(crate) evidence: Arc<Completion>,
}

/// The submit lock of one queue, held: the right to launch on it. Dropping it wakes the registered waiter.
pub(crate) struct Submit<'q> {
    queue: &'q XQueue,
    held: SubmitHeld,
}

impl std::ops::Deref for Submit<'_> {
    type Target = SubmitHeld;

    #[inline]
    fn deref(&self) -> &SubmitHeld {
        &self.held
    }
}

impl Drop for Submit<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.queue.hot.submit.release() {
            self.queue.wake();
        }
    }
}

impl XQueue {
    pub(crate) fn new(
        id: QueueId,
        core: Arc<Core>,
        device: Arc<Device>,
        hw: Arc<dyn HwQueue>,
        config: QueueConfig,
    ) -> Self {
        let (flags, seed) = match core.config.test {
            TestMode::Off => (0, 0),
            TestMode::Defer => (QueuePermission::TEST, 0),
            TestMode::Chaos(seed) => (QueuePermission::TEST, (seed ^ id.0.wrapping_mul(0x9e37)) | 1),
        };
        let flags = if config.covered { flags } else { flags | QueuePermission::UNCOVERED };
        Self {
            hot: CachePadded::new(Hot {
                submit: SubmitLock::new(),
                frontier: AtomicU64::new(Ticket::NONE.0),
                last_ticket: AtomicU64::new(0),
                taken: Mutex::new(Taken::default()),
                taken_left: AtomicUsize::new(0),
                deferred_launched: AtomicU64::new(0),
                flight: Flight::new(),
            }),
            state: CachePadded::new(State {
                permission: QueuePermission::new(flags),
                ready: Readiness::new(),
                asks: AtomicBool::new(false),
            }),
            pending: CachePadded::new(Mutex::new(Pending::new())),
            spare: CachePadded::new(AtomicPtr::new(ptr::null_mut())),
            id,
            tag: config.tag,
            class: config.class,
            core,
            device,
            hw,
            launch_config: AtomicU64::new(config.launch.pack()),
            priority: AtomicI32::new(config.priority),
            stream_priority: AtomicI32::new(config.stream_priority),
            awaited: AtomicU64::new(Ticket::NONE.0),
            stall: Mutex::new(Stall::default()),
            room: Condvar::new(),
            inherit: AtomicU64::new(0),
            drop_below: AtomicU64::new(0),
            sticky: AtomicU32::new(0),
            accounting: Mutex::new(Accounting::default()),
            direct_failed: AtomicU64::new(0),
            traced_completed: AtomicU64::new(0),
            waits: AtomicU32::new(0),
            chaos: AtomicU64::new(seed),
            device_waits: Mutex::new(Vec::new()),
            has_device_waits: AtomicBool::new(false),
            watch: WatchState { front: AtomicU64::new(Ticket::NONE.0), ..WatchState::default() },
        }
    }

    /// Opens the queue again after its destruction, in front of a hardware queue with nothing in flight.
    /// Returns false if it was not destroyed. Id, class, device and counters stay.
    pub(crate) fn reopen(&self, config: &QueueConfig) -> bool {
        let submit = loop {
            // Only the watcher may hold it, for a moment, to see that the queue is closed.
            match self.try_submit() {
                Some(submit) => break submit,
                None => spin_hint(),
            }
        };
        let mut pending = self.pending.lock();
        if !std::mem::replace(&mut pending.closed, false) {
            return false;
        }
        self.hot.flight.restart(&submit);
        self.device_waits.lock().clear();
        self.has_device_waits.store(false, Ordering::Release);
        self.sticky.store(0, Ordering::Release);
        self.drop_below.store(0, Ordering::Release);
        self.launch_config.store(config.launch.pack(), Ordering::Relaxed);
        self.priority.store(config.priority, Ordering::Relaxed);
        self.stream_priority.store(config.stream_priority, Ordering::Relaxed);
        drop(pending);
        self.state.permission.restart(config.covered);
        true
    }

    /// Returns the number of the queue.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Returns the device of the queue.
    pub fn device(&self) -> DeviceId {
        self.device.id
    }

    /// Returns the default-stream rule of the queue.
    pub fn class(&self) -> OrderClass {
        self.class
    }

    /// Returns the hardware queue behind this one.
    pub fn hw(&self) -> &Arc<dyn HwQueue> {
        &self.hw
    }

    /// Returns the window in force.
    pub fn launch_config(&self) -> LaunchConfig {
        LaunchConfig::unpack(self.launch_config.load(Ordering::Relaxed))
    }

    /// Changes the window from the next launch on. Takes no lock of the launch path.
    pub fn set_launch_config(&self, config: LaunchConfig) {
        self.launch_config.store(config.pack(), Ordering::Relaxed);
        self.wake();
    }

    /// Returns the rank of the queue among those that the worker of its device serves.
    pub fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Returns its place among the queues of its device, in the order in which the worker serves them: the priority, and
    /// between equal ones the stream's.
    pub(crate) fn rank(&self) -> (i32, i32) {
        (self.priority(), self.stream_priority.load(Ordering::Relaxed))
    }

    /// Changes [`QueueConfig::priority`] and [`QueueConfig::stream_priority`].
    pub fn set_rank(&self, priority: i32, stream_priority: i32) {
        let before = (
            self.priority.swap(priority, Ordering::Relaxed),
            self.stream_priority.swap(stream_priority, Ordering::Relaxed),
        );
        if before != (priority, stream_priority) {
            self.device.changed();
        }
    }

    /// Returns the first ticket that is not launched, [`Ticket::NONE`] if nothing is pending.
    #[inline]
    pub fn frontier(&self) -> Ticket {
        Ticket(self.hot.frontier.load(Ordering::Acquire))
    }

    /// Returns true if the command with this ticket, and all in front of it, are launched, failed or dropped.
    pub fn is_launched(&self, ticket: Ticket) -> bool {
        self.frontier() > ticket
    }

    /// Takes the sticky error of deferred commands. The first one is kept until it is taken.
    pub fn take_error(&self) -> Option<HwError> {
        if self.sticky.load(Ordering::Acquire) == 0 {
            return None;
        }
        HwError::from_code(self.sticky.swap(0, Ordering::AcqRel))
    }

    /// Returns the sticky error and leaves it in place.
    pub fn peek_error(&self) -> Option<HwError> {
        HwError::from_code(self.sticky.load(Ordering::Acquire))
    }

    /// Returns the number of launches by submitting threads, failed ones included.
    pub(crate) fn direct_launches(&self) -> u64 {
        let launched = self.hot.flight.launched();
        // Read second: a deferred launch counts here first, so that none is taken for a direct one.
        let deferred = self.hot.deferred_launched.load(Ordering::Acquire);
        launched.saturating_sub(deferred) + self.direct_failed.load(Ordering::Relaxed)
    }

    /// Returns the counters and the state of the queue.
    pub fn stats(&self) -> Stats {
        let direct = self.direct_launches();
        let in_flight = self.hot.flight.in_flight();
        let (pending, deferred) = {
            let pending = self.pending.lock();
            (pending.len() + self.hot.taken_left.load(Ordering::Acquire), pending.appended)
        };
        let launched = self.hot.flight.launched();
        let (suspensions, suspended) = self.accounting.lock().suspended();
        Stats {
            direct,
            deferred,
            forced: self.hot.flight.unordered(),
            launched,
            completed: self.hot.flight.completed(),
            pending,
            in_flight,
            suspensions,
            suspended,
            worked: self.hot.flight.worked.completed(),
            ready: self.is_ready(),
        }
    }

    #[inline]
    pub(crate) fn try_submit(&self) -> Option<Submit<'_>> {
        self.hot.submit.try_lock().map(|held| Submit { queue: self, held })
    }

    /// Takes the submit lock if it is free; otherwise registers a waiter, and the holder calls
    /// [`XQueue::wake`] at the end.
    pub(crate) fn submit_or_register(&self) -> Option<Submit<'_>> {
        self.hot.submit.lock_or_register().map(|held| Submit { queue: self, held })
    }

    /// Wakes the threads that could launch from this queue.
    pub(crate) fn wake(&self) {
        self.device.signal.notify();
        self.core.progress.notify();
    }

    /// Keeps the first error until it is taken.
    pub(crate) fn keep_error(&self, error: HwError) {
        let _ = self.sticky.compare_exchange(0, error.code(), Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns true if the queue has, or may have, unfinished commands.
    pub fn is_ready(&self) -> bool {
        self.state.ready.load() != Ready::No
    }

    /// Returns true for a default queue with blocking queues beside it: they wait for each other, and a
    /// marker that is recorded alone could disturb their launches.
    #[inline]
    pub fn has_foreign_launches(&self) -> bool {
        self.class == OrderClass::Default && self.device.blocking.load(Ordering::Acquire) != 0
    }

    /// Returns memory for the next command: that of an earlier one if there is any, otherwise fresh memory.
    #[inline]
    pub fn spare(&self) -> CommandMemory {
        self.take_spare().unwrap_or_else(CommandMemory::new)
    }

    fn take_spare(&self) -> Option<CommandMemory> {
        let raw = self.spare.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: the word holds null or a pointer from `into_raw`; the swap made this thread its only owner.
        unsafe { CommandMemory::from_raw(raw) }
    }

    /// Keeps this memory for the next command.
    pub(crate) fn offer_spare(&self, spare: CommandMemory) {
        let raw = self.spare.swap(spare.into_raw(), Ordering::AcqRel);
        // SAFETY: the former value is null or a pointer from `into_raw`; the swap made this thread its only
        // owner.
        drop(unsafe { CommandMemory::from_raw(raw) });
    }
}

impl Drop for XQueue {
    fn drop(&mut self) {
        self.take_spare();
    }
}

impl fmt::Debug for XQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XQueue")
            .field("id", &self.id)
            .field("device", &self.device.id)
            .field("class", &self.class)
            .field("frontier", &self.frontier())
            .field("in_flight", &self.hot.flight.in_flight())
            .finish_non_exhaustive()
    }
}

/// The counters and the state of one queue, read without stopping it: sums may be off by what moves
/// meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Commands launched by their submitting thread at once, failed ones included.
    pub direct: u64,
    /// Commands that were appended.
    pub deferred: u64,
    /// Commands launched outside the order, from inside user callbacks.
    pub forced: u64,
    /// Commands launched with success, forced ones excluded.
    pub launched: u64,
    /// Launched commands that are known to have completed.
    pub completed: u64,
    /// Commands not launched.
    pub pending: usize,
    /// Commands launched and not known to have completed.
    pub in_flight: u64,
    /// The number of suspensions.
    pub suspensions: u64,
    /// The total time of all suspensions.
    pub suspended: Duration,
    /// The device time of the completed commands, as far as the library knew their times when it launched
    /// them: commands that no window limits, and those of unknown time, count nothing. The times are upper
    /// bounds, learnt while other queues used the device as well.
    pub worked: Duration,
    /// True if the queue has unfinished commands.
    pub ready: bool,
}

impl Stats {
    /// Returns what was counted after these numbers of the same queue; `pending`, `in_flight` and `ready` stay.
    pub fn since(self, earlier: &Self) -> Self {
        Self {
            direct: self.direct.saturating_sub(earlier.direct),
            deferred: self.deferred.saturating_sub(earlier.deferred),
            forced: self.forced.saturating_sub(earlier.forced),
            launched: self.launched.saturating_sub(earlier.launched),
            completed: self.completed.saturating_sub(earlier.completed),
            suspensions: self.suspensions.saturating_sub(earlier.suspensions),
            suspended: self.suspended.saturating_sub(earlier.suspended),
            worked: self.worked.saturating_sub(earlier.worked),
            ..self
        }
    }
}
