//! What the library keeps for one process: its configuration and kernels from the first hook on ([`Base`]), its queues
//! from the first call that needs one ([`Process`]).
//!
//! Both are made once and never freed. A forked child makes new ones when it starts; the parent's are never looked at.
//! As long as there is no [`Process`] every call is forwarded: with `XSCHED_AUTO_XQUEUE` it comes into being with the
//! first call that uses a device, without it with the first function of the C interface that makes a queue.

pub(crate) mod architecture;
pub(crate) mod captures;
pub(crate) mod devices;
pub(crate) mod events;
pub(crate) mod fits;
pub(crate) mod graphs;
pub(crate) mod lost;
pub(crate) mod name;
pub(crate) mod past;
pub(crate) mod pools;
pub(crate) mod proven;
pub(crate) mod scheduler;
pub(crate) mod slow;
pub(crate) mod streams;

use crate::table::Entry;
use crate::thread::Thread;
use crate::{environment, kfd, lifecycle, runtime};
use architecture::{Architectures, Ask};
use captures::Captures;
use devices::Devices;
use events::Events;
use graphs::Graphs;
use hal_hip::exclusion;
use hal_hip::kernels::Kernels;
use hal_hip::map::HandleMap;
use hal_hip::queue::{HipDevice, HipQueue};
use hal_hip::real::Real;
use hip_sys::pfn;
use hip_sys::types::hipSuccess;
use host::thread_qos;
use parking_lot::{Mutex, RwLockWriteGuard};
use pools::{Following, Pools};
use protocol::config::{Config, SchedulerKind, TestMode};
use protocol::cost::{CostKey, HoldCost};
use proven::Proven;
use scheduler::Scheduler;
use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use streams::Stream;
use xqueue::{DeviceId, Domain, LaunchConfig, Permission, Scope, Stats, Ticket};

/// What exists from the first hook on.
pub(crate) struct Base {
    /// Never freed. Another one as long as nothing was made by it.
    config: AtomicPtr<Config>,
    pub(crate) kernels: Kernels,
    /// Streams that the program has made, by their handles.
    pub(crate) streams: HandleMap<Stream>,
    /// Streams that are gone, to be used again.
    pub(crate) retired: Mutex<Vec<&'static Stream>>,
    real: OnceLock<Option<&'static Real>>,
    /// Held by whoever makes the queues' side.
    making: Mutex<()>,
}

/// What exists from the first queue on.
pub(crate) struct Process {
    pub(crate) base: &'static Base,
    pub(crate) real: &'static Real,
    pub(crate) domain: Domain,
    pub(crate) events: Events,
    pub(crate) graphs: Graphs,
    pub(crate) pools: Pools,
    /// Cooperative launches that the runtime has taken.
    pub(crate) cooperative: Proven,
    /// Prefetches that it has taken, to each device.
    pub(crate) prefetches: Proven,
    /// What says which launches it would not take, if the runtime has it.
    pub(crate) fits: Option<fits::Functions>,
    /// What says how kernels are called, if the runtime has it.
    pub(crate) names: Option<slow::Names>,
    /// What is known of kernels that were registered past us.
    pub(crate) past: past::Past,
    /// Whether a stream can wait for a value in any memory, and not in signals only.
    pub(crate) waits_anywhere: bool,
    pub(crate) scheduler: Scheduler,
    pub(crate) devices: Devices,
    pub(crate) architectures: Architectures,
    /// The default stream of each device.
    pub(crate) defaults: Vec<&'static Stream>,
    /// Every stream that has a queue.
    pub(crate) queued: Mutex<Vec<&'static Stream>>,
    /// The hardware queues that the program has made, by their handles.
    pub(crate) wrapped: Mutex<HashMap<u64, &'static Stream>>,
    pub(crate) captures: Captures,
    /// How many times a queue was made or used again.
    pub(crate) made: AtomicUsize,
}

static BASE: AtomicPtr<Base> = AtomicPtr::new(ptr::null_mut());
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
/// Whether queues come by themselves, and there are none yet.
static WANTED: AtomicBool = AtomicBool::new(false);

/// How long the end of the process waits for a thread that is inside a call of the runtime.
const LAST_CALL: Duration = Duration::from_millis(500);

/// A process begins, before its first call is handled.
pub(crate) fn begin(config: Config) {
    let wanted = config.auto.enabled;
    kfd::begin(if wanted { config.auto.level } else { 1 });
    let streams = HandleMap::new();
    let (kernels, real, making) = (Kernels::new(), OnceLock::new(), Mutex::new(()));
    let base = Box::leak(Box::new(Base {
        config: AtomicPtr::new(leaked(config)),
        kernels,
        streams,
        retired: Mutex::new(Vec::new()),
        real,
        making,
    }));
    slow::clear();
    PROCESS.store(ptr::null_mut(), Ordering::Release);
    BASE.store(base, Ordering::Release);
    WANTED.store(wanted, Ordering::Release);
}

fn leaked(config: Config) -> *mut Config {
    Box::into_raw(Box::new(config))
}

/// The program has changed its environment before it used a device: this is what it says now.
pub(crate) fn configure(config: Config) {
    let Some(base) = base() else { return };
    let wanted = config.auto.enabled;
    kfd::set_asked(if wanted { config.auto.level } else { 1 });
    base.config.store(leaked(config), Ordering::Release);
    WANTED.store(wanted, Ordering::Release);
}

/// What there is from the first hook on. Only for calls that count as the program's own: then it is this process's.
#[inline(always)]
pub(crate) fn base() -> Option<&'static Base> {
    // SAFETY: null, or leaked by `begin`.
    unsafe { BASE.load(Ordering::Acquire).as_ref() }
}

/// The queues' side, if there is any. Only for calls that count as the program's own.
#[inline(always)]
pub(crate) fn get() -> Option<&'static Process> {
    // SAFETY: null, or leaked by `start`.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// Whether this is a forked child that has not started, and its parent had queues: then the runtime here is one whose
/// threads are gone and whose device is the parent's.
pub(crate) fn is_inherited() -> bool {
    lifecycle::is_fresh() && !PROCESS.load(Ordering::Acquire).is_null()
}

/// Makes the queues' side where the configuration wants it, with the first call that uses a device.
#[cold]
pub(crate) fn start_if_wanted(entry: &Entry) {
    if !lifecycle::uses_device(entry.class()) {
        return;
    }
    lifecycle::settle();
    if WANTED.load(Ordering::Acquire) && start().is_some() {
        WANTED.store(false, Ordering::Release);
    }
}

/// Makes the queues' side. Nothing if the runtime has no device. Makes HIP calls, perhaps the first ones of the process:
/// threads that come meanwhile wait, because in 5.2.3 two first calls of different functions at once find every device
/// twice.
pub(crate) fn start() -> Option<&'static Process> {
    if let Some(process) = get() {
        return Some(process);
    }
    lifecycle::settle();
    let base = base()?;
    let _making = base.making.lock();
    if let Some(process) = get() {
        return Some(process);
    }
    let real = base.real()?;
    let process: &'static Process = Box::leak(Box::new(Process::new(base, real)));
    PROCESS.store(ptr::from_ref(process).cast_mut(), Ordering::Release);
    // Again, because by now the runtime has registered whatever takes it apart.
    lifecycle::handle_exit();
    process.scheduler.begin(process);
    Some(process)
}

/// Whether anything was launched on a queue.
pub(crate) fn has_launched() -> bool {
    get().is_some_and(|process| {
        let queued = process.queued.lock().clone();
        queued.iter().filter_map(|stream| stream.queue()).any(|queue| queue.stats().launched != 0)
    })
}

/// Whether a server is to decide. It may not have come yet.
pub(crate) fn expects_server() -> bool {
    match get() {
        Some(process) => process.scheduler.expects_server(),
        None => base().is_some_and(|base| {
            let config = base.config();
            config.auto.enabled && config.scheduler_in_force() == SchedulerKind::Global
        }),
    }
}

/// What the server knows of a hold's cost.
pub(crate) fn cost_from_server(key: CostKey) -> Option<HoldCost> {
    get()?.scheduler.cost_from_server(key)
}

/// What is in force of the levels above 1 may be something else from now on.
pub(crate) fn level_changed() {
    if let Some(process) = get() {
        process.scheduler.changed();
    }
}

/// The end of the process: no thread of ours calls HIP any more when this returns, if that can be had in time.
pub(crate) fn end() {
    // Before the runtime waits for what it has running.
    let Some(process) = get() else { return kfd::end() };
    let holds = process.scheduler.end_holds();
    let totals = process.totals();
    tracing::debug!(
        "queues created={} direct={} deferred={} forced={} suspensions={} suspended_us={} holds={holds} pending={} {}",
        totals.queues,
        totals.direct,
        totals.deferred,
        totals.forced,
        totals.suspensions,
        totals.suspended.as_micros(),
        totals.pending,
        slow::Counts,
    );
    if !process.domain.quit(LAST_CALL) {
        tracing::warn!("a launch is still inside the HIP runtime while the process ends");
    }
}

/// Sums over queues.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    queues: usize,
    direct: u64,
    deferred: u64,
    forced: u64,
    suspensions: u64,
    suspended: Duration,
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

impl Base {
    /// What the environment says.
    pub(crate) fn config(&self) -> &'static Config {
        // SAFETY: leaked by `begin` or `configure`.
        unsafe { &*self.config.load(Ordering::Acquire) }
    }

    /// The functions of the runtime, if it has them all and knows a device.
    pub(crate) fn real(&self) -> Option<&'static Real> {
        if let Some(real) = self.real.get() {
            return *real;
        }
        let real: Option<&'static Real> = find_real().map(|real| &*Box::leak(Box::new(real)));
        // A runtime without a device may have one later; without the functions it stays so, at little cost.
        if real.is_some() { *self.real.get_or_init(|| real) } else { None }
    }
}

/// A function of the runtime under this type.
///
/// # Safety
///
/// `F` is the pointer type of the function of this name.
unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    let found = runtime::find(name)?;
    // SAFETY: the caller's promise; the size was checked.
    Some(unsafe { mem::transmute_copy::<NonNull<c_void>, F>(&found) })
}

macro_rules! functions {
    ($($name:ident),*) => {
        ($({
            let name = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()).ok()?;
            // SAFETY: `pfn` has a type for each function under its name.
            unsafe { function::<pfn::$name>(name) }?
        }),*)
    };
}

fn find_real() -> Option<Real> {
    let (count, version) = functions!(hipGetDeviceCount, hipRuntimeGetVersion);
    let (mut devices, mut number): (c_int, c_int) = (0, 0);
    // SAFETY: the runtime's function gets a place for its answer.
    let counted = unsafe { count(&mut devices) };
    // SAFETY: as above.
    let versioned = unsafe { version(&mut number) };
    let devices = u32::try_from(devices).ok().filter(|&devices| counted == hipSuccess && devices > 0)?;
    let number = if versioned == hipSuccess { number } else { 0 };
    // 5.2.3 and later count as 50221153; a runtime that says nothing is taken for one of today's kind.
    let number = u32::try_from(number).unwrap_or(0);
    let (major, minor) =
        if number < 10_000_000 { (6, 99) } else { (number / 10_000_000, number / 100_000 % 100) };
    let (event_create, event_destroy, event_record, event_query, stream_create, stream_destroy) = functions!(
        hipEventCreateWithFlags,
        hipEventDestroy,
        hipEventRecord,
        hipEventQuery,
        hipStreamCreateWithFlags,
        hipStreamDestroy
    );
    let (stream_synchronize, stream_is_capturing, get_device, set_device) =
        functions!(hipStreamSynchronize, hipStreamIsCapturing, hipGetDevice, hipSetDevice);
    let (exchange_capture_mode, pointer_attributes, address_range, stream_get_flags) = functions!(
        hipThreadExchangeStreamCaptureMode,
        hipPointerGetAttributes,
        hipMemGetAddressRange,
        hipStreamGetFlags
    );
    let (symbol_address, symbol_size, event_synchronize, event_elapsed, pointer_attribute) = functions!(
        hipGetSymbolAddress,
        hipGetSymbolSize,
        hipEventSynchronize,
        hipEventElapsedTime,
        hipPointerGetAttribute
    );
    Some(Real {
        event_create,
        event_destroy,
        event_record,
        event_query,
        event_synchronize,
        event_elapsed,
        stream_create,
        stream_destroy,
        stream_synchronize,
        stream_is_capturing,
        stream_get_flags,
        get_device,
        set_device,
        exchange_capture_mode,
        pointer_attributes,
        address_range,
        pointer_attribute,
        symbol_address,
        symbol_size,
        ended: Box::leak(Box::default()),
        devices,
        major,
        minor,
    })
}

/// What says what is in a graph, if the runtime has all of it.
fn graph_functions() -> Option<graphs::Functions> {
    let (nodes, node_type, child, destroy) = functions!(
        hipGraphGetNodes,
        hipGraphNodeGetType,
        hipGraphChildGraphNodeGetGraph,
        hipGraphExecDestroy
    );
    Some(graphs::Functions { nodes, node_type, child, destroy })
}

/// What says which launches the runtime would not take.
fn fits_functions() -> Option<fits::Functions> {
    let (host, module) =
        functions!(hipOccupancyMaxPotentialBlockSize, hipModuleOccupancyMaxPotentialBlockSize);
    Some(fits::Functions { host, module })
}

/// What says how kernels are called.
fn name_functions() -> Option<slow::Names> {
    // SAFETY: the types of `Names` are those of the functions of these names.
    let host = unsafe { function(c"hipKernelNameRefByPtr") }?;
    // SAFETY: as above.
    let module = unsafe { function(c"hipKernelNameRef") }?;
    Some(slow::Names { host, module })
}

/// What says what a device is.
fn architecture_function() -> Option<Ask> {
    // SAFETY: `pfn` has a type for each function under its name.
    let newer = unsafe { function::<pfn::hipGetDevicePropertiesR0600>(c"hipGetDevicePropertiesR0600") };
    newer.map(Ask::R0600).or_else(|| {
        // SAFETY: as above; where the newer one is not there this one has the older structure.
        unsafe { function::<pfn::hipGetDeviceProperties>(c"hipGetDeviceProperties") }.map(Ask::R0000)
    })
}

impl Process {
    fn new(base: &'static Base, real: &'static Real) -> Self {
        let config = xqueue::Config {
            // What limits a queue is the queue's own word: one without an XQueue of the program's is never held.
            permission: Permission::unlimited(),
            test: match base.config().test {
                None | Some(TestMode::NoInheritance | TestMode::NoGuard) => xqueue::TestMode::Off,
                Some(TestMode::Defer) => xqueue::TestMode::Defer,
                Some(TestMode::Chaos(seed)) => xqueue::TestMode::Chaos(seed),
            },
            inherit: base.config().test != Some(TestMode::NoInheritance),
            ..xqueue::Config::default()
        };
        // SAFETY: `pfn` has a type for each function under its name.
        let address = unsafe { function::<pfn::hipDeviceGetPCIBusId>(c"hipDeviceGetPCIBusId") };
        // SAFETY: as above.
        let properties =
            unsafe { function::<pfn::hipGetDevicePropertiesR0600>(c"hipGetDevicePropertiesR0600") };
        // SAFETY: as above.
        let current_pool = unsafe { function::<pfn::hipDeviceGetMemPool>(c"hipDeviceGetMemPool") };
        // SAFETY: as above.
        let attribute = unsafe { function::<pfn::hipMemPoolGetAttribute>(c"hipMemPoolGetAttribute") };
        // SAFETY: as above.
        let allocate = unsafe { function::<pfn::hipMallocFromPoolAsync>(c"hipMallocFromPoolAsync") };
        // SAFETY: as above.
        let free = unsafe { function::<pfn::hipFreeAsync>(c"hipFreeAsync") };
        let following = Following::of(real.major, (attribute, allocate, free));
        let scheduler = Scheduler::new();
        let domain = Domain::new(config, scheduler.observer());
        for device in 0..real.devices {
            let hw = HipDevice::new(real, device, || {
                Thread::current().adopt();
                // It is late by as long as others have the processor, and the device stands idle meanwhile.
                thread_qos::request_short_slice();
            });
            domain.add_device(DeviceId(device), Arc::new(hw));
        }
        let defaults = (0..real.devices).map(|device| Stream::default_of(real, device)).collect();
        // Before anybody asks for a kernel, which takes a queue.
        let architectures = Architectures::of(architecture_function(), real.devices);
        base.kernels.set_processors(architectures.processors());
        Self {
            base,
            real,
            domain,
            events: Events::new(real, base.config().auto.enabled),
            graphs: Graphs::new(graph_functions(), (real.major, real.minor), base.config().auto.enabled),
            pools: Pools::new(current_pool, following),
            cooperative: Proven::default(),
            prefetches: Proven::default(),
            fits: fits_functions(),
            names: name_functions(),
            past: past::Past::default(),
            // The runtime reads it as well when it starts, which is now or was before.
            waits_anywhere: std::env::var_os("GPU_STREAMOPS_CP_WAIT").is_none(),
            scheduler,
            devices: Devices::of(real, address, properties),
            architectures,
            defaults,
            queued: Mutex::new(Vec::new()),
            wrapped: Mutex::new(HashMap::new()),
            captures: Captures::new(),
            made: AtomicUsize::new(0),
        }
    }

    /// The window that the environment asks for.
    pub(crate) fn launch_config(&self) -> LaunchConfig {
        let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        match self.base.config().auto.launch_config() {
            None => LaunchConfig::Adaptive,
            Some((threshold, batch)) => {
                LaunchConfig::from_settings(Some(number(threshold)), Some(number(batch)))
            }
        }
    }

    /// Whether the runtime needs [`Self::apart`].
    pub(crate) fn keeps_apart(&self) -> bool {
        (self.real.major, self.real.minor) < (6, 3)
    }

    /// Held over a call that sets a kernel's arguments without the runtime's own lock (`hal_hip::exclusion`). Not inside a
    /// callback: a launch that is stuck inside the runtime may wait for that callback.
    #[cold]
    pub(crate) fn apart(&'static self) -> Option<RwLockWriteGuard<'static, ()>> {
        (self.keeps_apart() && !Thread::current().is_in_callback()).then(exclusion::setting_arguments)
    }

    /// The same over a call that makes a graph executable: 6.0 to 6.2 can make its packets then (`CaptureAQLPackets` in
    /// hipamd/src/hip_graph_internal.cpp), 5.x at its launch.
    pub(crate) fn apart_to_instantiate(&'static self) -> Option<RwLockWriteGuard<'static, ()>> {
        if self.real.major == 6 { self.apart() } else { None }
    }

    /// Waits until everything of the scope that was submitted until now is launched; inside a callback nothing waits.
    pub(crate) fn drain(&self, scope: Scope<'_>) {
        if !self.domain.has_pending() || Thread::current().is_in_callback() {
            return;
        }
        let now = self.domain.take_ticket();
        self.domain.wait_launched(scope, now);
    }

    /// The same for one queue.
    pub(crate) fn drain_queue(&self, queue: &xqueue::XQueue) {
        if queue.frontier() != Ticket::NONE {
            self.drain(Scope::Queue(queue));
        }
    }

    /// Waits until the runtime's handlers behind marks have run for what is complete ([`HipQueue::wait_for_handlers`]): until
    /// then completed commands hold their memory, which without marks they would not when a synchronous call returns.
    /// Only for calls that wait for the device.
    pub(crate) fn wait_for_handlers(&self) {
        if !HipQueue::has_handlers() || Thread::current().is_in_callback() || self.captures.any() {
            return;
        }
        if let Some(stream) = self.default_stream() {
            stream.hw.wait_for_handlers();
        }
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals { queues: self.made.load(Ordering::Acquire), ..Totals::default() };
        // One lock after the other, and let go before a queue's numbers take its locks, under which schedulers are told
        // of changes: a stream that comes or goes meanwhile may be missed.
        let retired = self.base.retired.lock().clone();
        let queued = self.queued.lock().clone();
        for queue in queued.iter().chain(&retired).filter_map(|stream| stream.queue()) {
            totals.add(&queue.stats());
        }
        totals
    }
}

/// Says what the configuration asks for and this build does not do.
pub(crate) fn warn_of_settings(config: &Config) {
    let level = config.auto.level;
    if level > 1 && config.scheduler_in_force() != SchedulerKind::Global && config.test.is_none() {
        tracing::warn!(
            "XSCHED_AUTO_XQUEUE_LEVEL={level}: without xserver level 1 is in force, since the hardware holds the whole process"
        );
    }
    let suspend = config.suspend;
    if suspend.sync_hw_queue || suspend.wait_all || suspend.wait_idle {
        // The agent that suspends waits for nothing: it must be there when the next queue turns ready.
        tracing::warn!(
            "XSCHED_SCHEDULER_SUSPEND_*: suspensions by a scheduler wait for nothing in this build \
             (those of XQueueSuspend wait as their flags say)"
        );
    }
    let said = |name| environment::get(name).is_some();
    match config.scheduler_in_force() {
        SchedulerKind::App if config.test.is_none() && !said("XSCHED_SCHEDULER") => {
            tracing::warn!(
                "XSCHED_AUTO_XQUEUE=ON without a scheduler: queues run until the program suspends them \
                 (XSCHED_SCHEDULER=LCL or GLB schedules, APP says that this is meant)"
            );
        }
        _ => {}
    }
}
