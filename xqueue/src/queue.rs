//! The XQueue itself: its parts, its locks, what can be read of it. The paths through it live in
//! `submit.rs` (in), `launch.rs` (out), `control.rs` (suspend, resume, wait, destroy) and
//! `ready.rs` (ready and idle).

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::utils::CachePadded;

use crate::config::{LaunchConfig, QueueConfig, TestMode};
use crate::domain::{Core, Device, nanos};
use crate::error::HwError;
use crate::evidence::Follow;
use crate::flight::Flight;
use crate::hw::HwQueue;
use crate::order::{DeviceId, Edge, OrderClass, QueueId, Scope, Ticket};
use crate::pending::{Pending, Taken};
use crate::permission::{OwnWord, Permission, Window};
use crate::ready::Books;
use crate::stall::Stall;
use crate::storage::Slot;
use crate::submit::Spec;
use crate::sync::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, TryLock,
};

/// A preemptible software queue in front of one hardware queue.
pub struct XQueue {
    pub(crate) hot: CachePadded<Hot>,
    pub(crate) state: CachePadded<State>,
    pub(crate) pending: CachePadded<Mutex<Pending>>,
    /// Memory for the next deferred command, or null; taken without a lock.
    pub(crate) spare: CachePadded<AtomicPtr<Slot>>,
    pub(crate) id: QueueId,
    pub(crate) tag: usize,
    pub(crate) class: OrderClass,
    pub(crate) core: Arc<Core>,
    pub(crate) device: Arc<Device>,
    pub(crate) hw: Arc<dyn HwQueue>,
    pub(crate) launch_config: AtomicU64,
    pub(crate) priority: AtomicI32,
    /// Whoever waits for the frontier to reach a ticket leaves the smallest one here.
    pub(crate) wanted: AtomicU64,
    /// Whether who waits for a launch has waited for too long.
    pub(crate) stall: Mutex<Stall>,
    /// With `pending`: callers that wait for room.
    pub(crate) room: Condvar,
    /// Commands below this ticket may be launched although the queue is held: others wait for them.
    pub(crate) inherit: AtomicU64,
    /// Pending commands below this ticket are discarded.
    pub(crate) drop_below: AtomicU64,
    pub(crate) sticky: AtomicU32,
    pub(crate) books: Mutex<Books>,
    pub(crate) direct_failed: AtomicU64,
    /// Callers that wait for the queue inside the runtime ([`crate::Wait`]).
    pub(crate) waits: AtomicU32,
    pub(crate) chaos: AtomicU64,
    /// The watcher's memory: what had been launched at its last look.
    pub(crate) seen: AtomicU64,
    /// Its commands that waited for others on the device, in launch order, and whether there are any.
    pub(crate) follows: Mutex<Vec<Follow>>,
    pub(crate) has_follows: AtomicBool,
    /// And what was known to have completed.
    pub(crate) seen_completed: AtomicU64,
    /// And how often the worker of the device had looked, and since when it has not although something may be launched.
    pub(crate) seen_rounds: AtomicU64,
    /// And what the first pending command was.
    pub(crate) seen_front: AtomicU64,
    pub(crate) still_since: AtomicU64,
}

/// What every launch changes, apart from what an append reads: the worker and a thread that appends would take these
/// words from each other at every command.
pub(crate) struct Hot {
    pub(crate) submit: TryLock,
    /// The first ticket that is not launched (see `pending.rs` for who stores it).
    pub(crate) frontier: AtomicU64,
    /// Ticket of the last launch; written under submit.
    pub(crate) last_ticket: AtomicU64,
    /// Taken from pending by the holder of submit; others lock it to look only.
    pub(crate) taken: Mutex<Taken>,
    /// Items taken and not launched.
    pub(crate) taken_left: AtomicUsize,
    pub(crate) deferred_launched: AtomicU64,
    pub(crate) flight: Flight,
}

/// What every call reads and few change.
pub(crate) struct State {
    pub(crate) own: OwnWord,
    pub(crate) ready: AtomicBool,
}

/// Submit of one queue: the right to launch on it. Whoever wished for it meanwhile is told at the end.
pub(crate) struct Submit<'q>(&'q XQueue);

impl Drop for Submit<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.hot.submit.release() {
            self.0.wake();
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
            TestMode::Defer => (OwnWord::TEST, 0),
            TestMode::Chaos(seed) => (OwnWord::TEST, (seed ^ id.0.wrapping_mul(0x9e37)) | 1),
        };
        let flags = if config.covered { flags } else { flags | OwnWord::FREE };
        let queue = Self {
            hot: CachePadded::new(Hot {
                submit: TryLock::new(),
                frontier: AtomicU64::new(Ticket::NONE.0),
                last_ticket: AtomicU64::new(0),
                taken: Mutex::new(Taken::default()),
                taken_left: AtomicUsize::new(0),
                deferred_launched: AtomicU64::new(0),
                flight: Flight::new(),
            }),
            state: CachePadded::new(State { own: OwnWord::new(flags), ready: AtomicBool::new(false) }),
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
            wanted: AtomicU64::new(Ticket::NONE.0),
            stall: Mutex::new(Stall::default()),
            room: Condvar::new(),
            inherit: AtomicU64::new(0),
            drop_below: AtomicU64::new(0),
            sticky: AtomicU32::new(0),
            books: Mutex::new(Books::default()),
            direct_failed: AtomicU64::new(0),
            waits: AtomicU32::new(0),
            chaos: AtomicU64::new(seed),
            seen: AtomicU64::new(0),
            follows: Mutex::new(Vec::new()),
            has_follows: AtomicBool::new(false),
            seen_completed: AtomicU64::new(0),
            seen_rounds: AtomicU64::new(0),
            seen_front: AtomicU64::new(Ticket::NONE.0),
            still_since: AtomicU64::new(0),
        };
        queue.note_permission();
        queue
    }

    /// Its name.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Its device.
    pub fn device(&self) -> DeviceId {
        self.device.id
    }

    /// Its default-stream rule.
    pub fn class(&self) -> OrderClass {
        self.class
    }

    /// The hardware queue behind it.
    pub fn hw(&self) -> &Arc<dyn HwQueue> {
        &self.hw
    }

    /// The window in force.
    pub fn launch_config(&self) -> LaunchConfig {
        LaunchConfig::unpack(self.launch_config.load(Ordering::Relaxed))
    }

    /// Changes the window from the next launch on. Takes no lock of the launch path.
    pub fn set_launch_config(&self, config: LaunchConfig) {
        self.launch_config.store(config.pack(), Ordering::Relaxed);
        self.wake();
    }

    /// Its place among the queues that the worker of its device serves.
    pub fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Changes [`XQueue::priority`].
    pub fn set_priority(&self, priority: i32) {
        self.priority.store(priority, Ordering::Relaxed);
        self.device.changed();
    }

    /// The first ticket that is not launched, [`Ticket::NONE`] if nothing is pending.
    #[inline]
    pub fn frontier(&self) -> Ticket {
        Ticket(self.hot.frontier.load(Ordering::Acquire))
    }

    /// Whether the command with this ticket, and all in front of it, are launched, failed or dropped.
    pub fn is_launched(&self, ticket: Ticket) -> bool {
        self.frontier() > ticket
    }

    /// Takes the sticky error of deferred commands. The first one is kept until taken.
    pub fn take_error(&self) -> Option<HwError> {
        if self.sticky.load(Ordering::Acquire) == 0 {
            return None;
        }
        HwError::from_code(self.sticky.swap(0, Ordering::AcqRel))
    }

    /// The sticky error, left in place.
    pub fn peek_error(&self) -> Option<HwError> {
        HwError::from_code(self.sticky.load(Ordering::Acquire))
    }

    /// Counters and state.
    pub fn stats(&self) -> Stats {
        let deferred_launched = self.hot.deferred_launched.load(Ordering::Acquire);
        let in_flight = self.hot.flight.in_flight();
        let (pending, deferred) = {
            let pending = self.pending.lock();
            (pending.len() + self.hot.taken_left.load(Ordering::Acquire), pending.appended)
        };
        let launched = self.hot.flight.launched();
        let (suspensions, suspended) = self.books.lock().suspended();
        Stats {
            direct: launched.saturating_sub(deferred_launched) + self.direct_failed.load(Ordering::Relaxed),
            deferred,
            forced: self.hot.flight.strays(),
            launched,
            completed: self.hot.flight.completed(),
            pending,
            in_flight,
            suspensions,
            suspended,
            ready: self.is_ready(),
        }
    }

    /// Submit, if nobody has it.
    #[inline]
    pub(crate) fn try_submit(&self) -> Option<Submit<'_>> {
        if self.hot.submit.try_lock() {
            return Some(Submit(self));
        }
        None
    }

    /// Submit, or a wish: then [`XQueue::wake`] comes when its holder is through.
    pub(crate) fn submit_or_wish(&self) -> Option<Submit<'_>> {
        if self.hot.submit.lock_or_wish() {
            return Some(Submit(self));
        }
        None
    }

    /// Wakes whoever could launch from this queue.
    pub(crate) fn wake(&self) {
        self.device.signal.notify();
        self.core.progress.notify();
    }

    /// Keeps the first error until somebody takes it.
    pub(crate) fn keep_error(&self, error: HwError) {
        let _ = self.sticky.compare_exchange(0, error.code(), Ordering::AcqRel, Ordering::Acquire);
    }

    /// The gang's permission as it concerns this queue, whose own word is `own`.
    #[inline]
    pub(crate) fn gate(&self, own: u64) -> Permission {
        if own & OwnWord::FREE == 0 { self.core.gate.load() } else { Permission::unlimited() }
    }

    /// Whether the window counts at present.
    pub(crate) fn is_limited(&self) -> bool {
        let own = self.state.own.load();
        self.gate(own).limit() || own & OwnWord::LIMIT != 0
    }

    /// How much estimated time the window admits at present, in nanoseconds; nothing without a limit.
    pub(crate) fn budget(&self) -> Option<u64> {
        let own = self.state.own.load();
        let gate = self.gate(own);
        let windows =
            [gate.limit().then(|| gate.window()), (own & OwnWord::LIMIT != 0).then(|| OwnWord::window(own))];
        let nanos = |window: Window| window.time().map_or(self.core.budget, nanos);
        let least = self.core.least_budget.load(Ordering::Relaxed);
        windows.into_iter().flatten().map(nanos).min().map(|budget| budget.max(least))
    }

    /// Whether a command with this ticket may be launched as far as permissions go.
    pub(crate) fn may_launch(&self, ticket: Ticket) -> bool {
        let own = self.state.own.load();
        self.gate(own).run() && (OwnWord::runs(own) || ticket.0 < self.inherit.load(Ordering::Acquire))
    }

    /// Calls `found` with every edge of a command that is not satisfied, until it returns false.
    pub(crate) fn unsatisfied(&self, spec: &Spec<'_>, before: Ticket, mut found: impl FnMut(Edge) -> bool) {
        let mut check = |queue: &Arc<XQueue>, before: Ticket| {
            queue.id == self.id || queue.frontier() >= before || found(Edge { queue: queue.clone(), before })
        };
        let rule = match self.class {
            OrderClass::Independent => None,
            OrderClass::Blocking => Some(OrderClass::Default),
            OrderClass::Default => Some(OrderClass::Blocking),
        };
        #[cfg(feature = "broken-order")]
        let rule = rule.filter(|_| !crate::broken::is(crate::broken::Fault::DefaultStream));
        if let Some(class) = rule
            && !self
                .device
                .queues
                .read()
                .iter()
                .filter(|queue| queue.class == class)
                .all(|queue| check(queue, before))
        {
            return;
        }
        #[cfg(feature = "broken-order")]
        let spec = &Spec {
            after: if crate::broken::is(crate::broken::Fault::Events) { &[] } else { spec.after },
            ..*spec
        };
        for after in spec.after {
            if !check(&after.queue, after.through.next().min(before)) {
                return;
            }
        }
        if let Some(scope) = spec.scope {
            self.core.each_queue(scope, |queue| check(queue, before));
        }
    }

    /// Whether anything that the command must follow is not launched.
    pub(crate) fn is_blocked_by_order(&self, spec: &Spec<'_>) -> bool {
        let mut blocked = false;
        self.unsatisfied(spec, self.core.tickets.bound(), |_| {
            blocked = true;
            false
        });
        blocked
    }

    /// Whether this is a default queue with blocking ones beside it: they wait for each other, and a mark that is
    /// recorded alone could disturb their launches.
    #[inline]
    pub fn has_foreign_launches(&self) -> bool {
        self.class == OrderClass::Default && self.device.blocking.load(Ordering::Acquire) != 0
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

/// Counters and state of one queue, read without stopping it: sums may be off by what moves meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Commands launched by their submitting thread at once, failed ones included.
    pub direct: u64,
    /// Commands that were appended.
    pub deferred: u64,
    /// Commands launched outside the order, from inside user callbacks.
    pub forced: u64,
    /// Commands launched with success, forced ones not included.
    pub launched: u64,
    /// Of these, known to have completed.
    pub completed: u64,
    /// Commands not launched.
    pub pending: usize,
    /// Commands launched and not known to have completed.
    pub in_flight: u64,
    /// How often the queue was held.
    pub suspensions: u64,
    /// How long in all.
    pub suspended: Duration,
    /// Whether it has unfinished commands.
    pub ready: bool,
}

impl Scope<'_> {
    /// Whether the queue belongs to the set.
    pub(crate) fn contains(&self, queue: &XQueue) -> bool {
        match self {
            Scope::Queue(one) => one.id == queue.id,
            Scope::Device(device) => queue.device.id == *device,
            Scope::Process => true,
        }
    }
}
