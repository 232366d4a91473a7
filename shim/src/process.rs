//! The state of one process: its configuration and kernels from the first hook on ([`Base`]), its queues from
//! the first call that needs one ([`Process`]).
//!
//! Both are made once and never freed. A forked child makes new ones when it starts, and never reads the
//! parent's. As long as there is no [`Process`], every call is forwarded.

pub(crate) mod architecture;
pub(crate) mod captures;
pub(crate) mod commands;
pub(crate) mod cooperative_cache;
pub(crate) mod devices;
pub(crate) mod events;
mod functions;
pub(crate) mod graphs;
mod handles;
pub(crate) mod lost;
pub(crate) mod occupancy;
pub(crate) mod past;
pub(crate) mod pools;
pub(crate) mod slow_path;
pub(crate) mod stream_hints;
pub(crate) mod streams;
pub(crate) mod subject;
pub(crate) mod this_process;

use crate::lifecycle;
use crate::thread::Thread;
use agent::{EvictionPause, Scheduler};
use architecture::Architectures;
use captures::Captures;
use commands::Commands;
use cooperative_cache::CooperativeCache;
use devices::Devices;
use events::Events;
use graphs::Graphs;
use hal_hip::exclusion;
use hal_hip::kernels::Kernels;
use hal_hip::map::HandleMap;
use hal_hip::queue::{HipDevice, HipQueue};
use hal_hip::real::RuntimeFunctions;
use handles::Handles;
use host::thread_qos;
use parking_lot::{Mutex, RwLockWriteGuard};
use pools::Pools;
use protocol::config::{Config, TestMode};
use std::collections::{BTreeSet, HashMap};
use std::ffi::c_int;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use streams::Stream;
use xqueue::{DeviceId, Domain, LaunchConfig, Permission, Scope, Stats, Ticket};

/// The state from the first hook on.
pub(crate) struct Base {
    /// Leaked when it is replaced, which happens only before anything was made from it.
    config: AtomicPtr<Config>,
    pub(crate) kernels: Kernels,
    /// The streams that the program has made, by their handles.
    pub(crate) streams: HandleMap<Stream>,
    /// The destroyed streams, to be reused.
    pub(crate) retired: Mutex<Vec<&'static Stream>>,
    real: OnceLock<&'static RuntimeFunctions>,
    /// Lets one thread at a time make the [`Process`].
    making: Mutex<()>,
}

/// The state from the first queue on.
pub(crate) struct Process {
    pub(crate) base: &'static Base,
    pub(crate) real: &'static RuntimeFunctions,
    pub(crate) domain: Domain,
    pub(crate) events: Events,
    pub(crate) graphs: Graphs,
    pub(crate) pools: Pools,
    pub(crate) cooperative: CooperativeCache,
    /// The devices to which the runtime has accepted a prefetch, and so accepts all; -1 is the host.
    pub(crate) prefetches: Mutex<BTreeSet<c_int>>,
    pub(crate) occupancy: Option<occupancy::Functions>,
    pub(crate) names: Option<slow_path::Names>,
    pub(crate) past: past::Past,
    /// True if a stream can wait for a value in any memory, not only in signals.
    pub(crate) waits_anywhere: bool,
    pub(crate) scheduler: Scheduler,
    pub(crate) devices: Devices,
    pub(crate) architectures: Architectures,
    pub(crate) defaults: Vec<&'static Stream>,
    /// The handles of XQueues.
    pub(crate) handles: Handles,
    /// The streams that have a queue.
    pub(crate) queued: Mutex<Vec<&'static Stream>>,
    /// The hardware queues that the program has made, by their handles.
    pub(crate) wrapped: Mutex<HashMap<u64, &'static Stream>>,
    /// The commands that the program has made.
    pub(crate) commands: Mutex<Commands>,
    pub(crate) captures: Captures,
    /// The number of parts with hints that have ended and still count, at most (`stream_hints`).
    pub(crate) ended_parts: AtomicU32,
    /// The number of queues made or reused.
    pub(crate) made: AtomicUsize,
}

static BASE: AtomicPtr<Base> = AtomicPtr::new(ptr::null_mut());
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
/// Starts a process, before its first call is handled.
pub(crate) fn begin(config: Config) {
    let base = Box::leak(Box::new(Base {
        config: AtomicPtr::new(Box::into_raw(Box::new(config))),
        kernels: Kernels::new(),
        streams: HandleMap::new(),
        retired: Mutex::new(Vec::new()),
        real: OnceLock::new(),
        making: Mutex::new(()),
    }));
    PROCESS.store(ptr::null_mut(), Ordering::Release);
    BASE.store(base, Ordering::Release);
}

/// Returns the state from the first hook on. Only for calls that count as the program's own: then it is this
/// process's.
#[inline(always)]
pub(crate) fn base() -> Option<&'static Base> {
    // SAFETY: the pointer is null, or was leaked by `begin`.
    unsafe { BASE.load(Ordering::Acquire).as_ref() }
}

/// Returns the state from the first queue on, if there is one. Only for calls that count as the program's
/// own.
#[inline(always)]
pub(crate) fn get() -> Option<&'static Process> {
    // SAFETY: the pointer is null, or was leaked by `make`.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// Returns the state from the first queue on, if there is one and the call is the program's own.
#[inline(always)]
pub(crate) fn for_call(own: bool) -> Option<&'static Process> {
    get().filter(|_| own)
}

/// Returns true in a forked child that has not started and whose parent had queues: the runtime's threads are
/// gone there, and its device is the parent's.
pub(crate) fn is_inherited() -> bool {
    lifecycle::is_fresh() && !PROCESS.load(Ordering::Acquire).is_null()
}

/// Makes the [`Process`], unless there is one; `None` if the runtime has no device. `begin` runs for a new
/// one. Other threads wait meanwhile.
pub(crate) fn make(
    scheduler: impl FnOnce() -> Scheduler,
    begin: impl FnOnce(&'static Process),
) -> Option<&'static Process> {
    let base = base()?;
    let _making = base.making.lock();
    if let Some(process) = get() {
        return Some(process);
    }
    let process: &'static Process = Box::leak(Box::new(Process::new(base, base.real()?, scheduler())));
    PROCESS.store(ptr::from_ref(process).cast_mut(), Ordering::Release);
    begin(process);
    Some(process)
}

/// Sums over all queues, as the line at the end of the process shows them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    queues: usize,
    direct: u64,
    deferred: u64,
    forced: u64,
    suspensions: u64,
    suspended: Duration,
    evictions: u64,
    pending: usize,
}

impl Totals {
    fn add(&mut self, stats: &Stats) {
        self.direct += stats.direct;
        self.deferred += stats.deferred;
        self.forced += stats.forced;
        self.suspensions += stats.suspensions;
        self.suspended += stats.suspended;
        self.pending += stats.pending;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queues, direct, deferred, forced, suspensions, evictions, pending, .. } = self;
        let suspended = self.suspended.as_micros();
        write!(f, "created={queues} direct={direct} deferred={deferred} forced={forced} ")?;
        write!(f, "suspensions={suspensions} suspended_us={suspended} holds={evictions} pending={pending}")
    }
}

impl Base {
    pub(crate) fn config(&self) -> &'static Config {
        // SAFETY: the pointer was leaked by `begin` or `set_config`.
        unsafe { &*self.config.load(Ordering::Acquire) }
    }

    /// Replaces the configuration: the program has changed its environment before it used a device.
    pub(crate) fn set_config(&self, config: Config) {
        self.config.store(Box::into_raw(Box::new(config)), Ordering::Release);
    }

    /// Returns the functions of the runtime, if it has them all and a device.
    pub(crate) fn real(&self) -> Option<&'static RuntimeFunctions> {
        if let Some(real) = self.real.get() {
            return Some(real);
        }
        // Not stored if there is none: a runtime without a device may have one later.
        let real = functions::real()?;
        Some(self.real.get_or_init(|| Box::leak(Box::new(real))))
    }
}

impl Process {
    fn new(base: &'static Base, real: &'static RuntimeFunctions, scheduler: Scheduler) -> Self {
        let config = xqueue::Config {
            // A queue's own permission limits it: a stream without an XQueue is never suspended.
            permission: Permission::unlimited(),
            test: match base.config().test {
                Some(TestMode::Defer) => xqueue::TestMode::Defer,
                Some(TestMode::Chaos(seed)) => xqueue::TestMode::Chaos(seed),
                _ => xqueue::TestMode::Off,
            },
            inherit: base.config().test != Some(TestMode::NoInheritance),
            preludes: base.config().test != Some(TestMode::NoPreludes),
            ..xqueue::Config::default()
        };
        // SAFETY: `Stream::queue_config` gives every queue of this domain the tag of its stream's slot.
        let observer = unsafe { scheduler.observer() };
        let domain = Domain::new(config, observer);
        for device in 0..real.devices {
            let hw = HipDevice::new(real, device, || {
                Thread::current().adopt();
                // While others have the processor, this thread is late, and the device idles.
                thread_qos::request_short_slice();
            });
            domain.add_device(DeviceId(device), Arc::new(hw));
        }
        let defaults = (0..real.devices).map(|device| Stream::default_of(real, device)).collect();
        // Before any look-up of a kernel, which needs a queue.
        let architectures = Architectures::of(functions::device_properties(), real.devices);
        base.kernels.set_processors(architectures.processors());
        Self {
            base,
            real,
            domain,
            events: Events::new(real, base.config().auto.enabled),
            graphs: Graphs::new(functions::graphs(), (real.major, real.minor), base.config().auto.enabled),
            pools: Pools::new(functions::current_pool(), functions::following(real)),
            cooperative: CooperativeCache::default(),
            prefetches: Mutex::default(),
            occupancy: functions::occupancy(),
            names: functions::names(),
            past: past::Past::default(),
            // The runtime reads this variable when it starts, which is at this time or earlier.
            waits_anywhere: std::env::var_os("GPU_STREAMOPS_CP_WAIT").is_none(),
            scheduler,
            devices: functions::devices(real),
            architectures,
            defaults,
            handles: Handles::new(),
            queued: Mutex::new(Vec::new()),
            wrapped: Mutex::new(HashMap::new()),
            commands: Mutex::default(),
            captures: Captures::default(),
            ended_parts: AtomicU32::new(0),
            made: AtomicUsize::new(0),
        }
    }

    pub(crate) fn launch_config(&self) -> LaunchConfig {
        let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        match self.base.config().auto.launch_config() {
            None => LaunchConfig::Adaptive,
            Some((threshold, batch)) => {
                LaunchConfig::from_settings(Some(number(threshold)), Some(number(batch)))
            }
        }
    }

    /// Returns true if the runtime needs [`Self::apart`].
    pub(crate) fn keeps_apart(&self) -> bool {
        (self.real.major, self.real.minor) < (6, 3)
    }

    /// Excludes launches during a call that sets a kernel's arguments without the runtime's own lock
    /// (`hal_hip::exclusion`). Does nothing inside a callback: a launch that is stuck inside the runtime may
    /// wait for that callback.
    #[cold]
    pub(crate) fn apart(&'static self) -> Option<RwLockWriteGuard<'static, ()>> {
        (self.keeps_apart() && !Thread::current().is_in_callback()).then(exclusion::lock_graph_arguments)
    }

    /// Excludes launches during a call that makes a graph executable: 6.0 to 6.2 may make its packets then
    /// (`CaptureAQLPackets` in hipamd/src/hip_graph_internal.cpp), 5.x makes them at its launch.
    pub(crate) fn apart_to_instantiate(&'static self) -> Option<RwLockWriteGuard<'static, ()>> {
        if self.real.major == 6 { self.apart() } else { None }
    }

    /// Restores all hardware queues for a call that must find none evicted, until the result is dropped.
    pub(crate) fn pause_evictions(&self) -> Option<EvictionPause<'_>> {
        self.scheduler.pause_evictions(&self.domain)
    }

    /// Waits until everything of the scope that was submitted so far is launched. Inside a callback it does
    /// not wait.
    pub(crate) fn drain(&self, scope: Scope<'_>) {
        if !self.domain.has_pending() || Thread::current().is_in_callback() {
            return;
        }
        let now = self.domain.take_ticket();
        self.domain.wait_launched(scope, now);
    }

    /// Waits until everything that was submitted to the queue so far is launched.
    pub(crate) fn drain_queue(&self, queue: &xqueue::XQueue) {
        if queue.frontier() != Ticket::NONE {
            self.drain(Scope::Queue(queue));
        }
    }

    /// Waits until the runtime's handlers behind markers have run for completed commands
    /// ([`HipQueue::wait_for_handlers`]). Until then the commands hold their memory, which natively they
    /// would not when a synchronous call returns. Only for calls that wait for the device.
    pub(crate) fn wait_for_handlers(&self) {
        if !HipQueue::has_handlers() || Thread::current().is_in_callback() || self.captures.any() {
            return;
        }
        if let Some(stream) = self.default_stream() {
            stream.hw.wait_for_handlers();
        }
    }

    /// Returns the sums over all queues, with the number of evictions.
    pub(crate) fn totals(&self, evictions: u64) -> Totals {
        let queues = self.made.load(Ordering::Acquire);
        let mut totals = Totals { queues, evictions, ..Totals::default() };
        // The lists are cloned, one after the other: `stats` takes a queue's locks, under which the scheduler
        // hears of changes. A stream that comes or goes meanwhile may be missed.
        let retired = self.base.retired.lock().clone();
        let queued = self.queued.lock().clone();
        for queue in queued.iter().chain(&retired).filter_map(|stream| stream.queue()) {
            totals.add(&queue.stats());
        }
        totals
    }
}
