//! Kernel launches: at once with the caller's own arguments, else later with copies of them, else, where their sizes are
//! not known, in their turn on the calling thread.
//!
//! A launch is deferred only if it would succeed as far as can be told: what the runtime would refuse is left to it, so
//! that the caller gets the error from the call.

#![allow(clippy::too_many_arguments, reason = "the runtime's functions have as many")]

use super::turn::{self, code};
use crate::boundary::Call;
use crate::interpose::bindings;
use crate::process::architecture::Sizes;
use crate::process::cooperative_cache;
use crate::process::occupancy::Handle;
use crate::process::slow_path::{self, Obstacle};
use crate::process::streams::{Found, Target};
use crate::process::{self, Process};
use crate::thread::Thread;
use agent::errno;
use hal_hip::args::KernelArgs;
use hal_hip::command::{HipCommand, HipLaunch, launch_key};
use hal_hip::exclusion;
use hal_hip::layout::{Kernel, Unknown};
use hal_hip::real::result;
use hip_sys::pfn;
use hip_sys::types::{dim3, hipError_t, hipEvent_t, hipFunction_t, hipStream_t, hipSuccess};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use protocol::slow::SlowPath;
use std::ffi::{c_int, c_uint, c_void};
use xqueue::{After, Direct, Spec};

pub(super) fn dims(x: u32, y: u32, z: u32) -> dim3 {
    dim3 { x, y, z }
}

/// What must hold for a launch to be taken later, beyond what is asked of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing.
    Plain,
    /// All its blocks fit on the device at once.
    Cooperative,
    /// Only the runtime knows.
    Unknown,
}

/// What a launch that is captured, and not launched, holds: it goes by the kernel's own arguments as well.
#[inline(always)]
fn captured() -> Option<RwLockWriteGuard<'static, ()>> {
    process::get().filter(|process| process.captures.any()).and_then(Process::apart)
}

/// What a launch in its turn holds: a worker may launch a graph meanwhile.
fn beside(found: Found) -> Option<RwLockReadGuard<'static, ()>> {
    (found.process.keeps_apart() && !Thread::current().is_in_callback()).then(exclusion::launching)
}

/// What a launch is, for the way that it takes.
pub(super) struct Launch {
    function: *const c_void,
    grid: dim3,
    block: dim3,
    shared: usize,
    work_items: bool,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    /// Start and stop.
    events: [hipEvent_t; 2],
    /// Whether it starts only when all before it is complete.
    in_order: bool,
    kind: Kind,
    /// Whether `function` is a module's (`hipFunction_t`), and not one of the host's.
    of_module: bool,
}

impl Launch {
    /// A launch whose grid counts blocks and whose arguments are listed one by one.
    #[inline(always)]
    pub(super) fn of_function(
        function: *const c_void,
        (grid, block): (dim3, dim3),
        shared: usize,
        params: *mut *mut c_void,
    ) -> Self {
        let (extra, events) = (std::ptr::null_mut(), [hipEvent_t::NULL; 2]);
        let (work_items, in_order, kind) = (false, true, Kind::Plain);
        let of_module = false;
        Self { function, grid, block, shared, work_items, params, extra, events, in_order, kind, of_module }
    }

    /// A launch of a module's kernel whose grid counts blocks.
    #[inline(always)]
    pub(super) fn of_module(
        f: hipFunction_t,
        sizes: (dim3, dim3),
        shared: usize,
        params: *mut *mut c_void,
    ) -> Self {
        Self { of_module: true, ..Self::of_function(f.0.cast_const(), sizes, shared, params) }
    }

    /// The same as a launch of this kind.
    pub(super) fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The same with its arguments perhaps in one buffer.
    pub(super) fn with_extra(self, extra: *mut *mut c_void) -> Self {
        Self { extra, ..self }
    }

    /// A launch of a module's kernel whose grid counts threads.
    fn in_work_items(
        f: hipFunction_t,
        sizes: (dim3, dim3),
        shared: usize,
        [params, extra]: [*mut *mut c_void; 2],
        events: [hipEvent_t; 2],
    ) -> Self {
        Self { work_items: true, extra, events, ..Self::of_module(f, sizes, shared, params) }
    }

    fn sizes(&self) -> Sizes {
        Sizes { grid: self.grid, block: self.block, shared: self.shared, work_items: self.work_items }
    }

    /// Whether the runtime refuses it whatever kernel it is: the caller need not wait for that.
    fn is_hopeless(&self, found: Found) -> bool {
        let twice = !self.params.is_null() && !self.extra.is_null();
        let (process, device) = (found.process, found.stream.hw.device());
        if self.function.is_null() || twice || self.sizes().are_refused(self.of_module, process.real.major) {
            return true;
        }
        turn::is_at_home(found)
            && process.architectures.refuse(device, &self.sizes(), self.of_module, process.real.major)
    }

    /// Whether the runtime refuses it by what it knows of the kernel: the caller gets that at once as well. What is not
    /// known for certain is looked at by the launch itself, in its turn.
    fn is_refused(&self, found: Found) -> bool {
        if self.is_hopeless(found) {
            return true;
        }
        let kernel = self.known(found).ok();
        if kernel.is_some_and(|kernel| self.block.count() > u64::from(kernel.threads)) {
            return true;
        }
        // A module's handle that is not known may be anything.
        let is_asked = match self.kind {
            Kind::Plain | Kind::Unknown => kernel.is_none() && !self.of_module,
            Kind::Cooperative => kernel.is_some() || !self.of_module,
        };
        let Some(functions) =
            found.process.occupancy.as_ref().filter(|_| is_asked && turn::is_at_home(found))
        else {
            return false;
        };
        match functions.most_blocks(self.handle_of_kernel(), self.block.count(), self.shared) {
            None => true,
            Some(most) => self.kind == Kind::Cooperative && self.blocks() > most,
        }
    }

    fn handle_of_kernel(&self) -> Handle {
        match self.of_module {
            false => Handle::Host(self.function),
            true => Handle::Module(hipFunction_t(self.function.cast_mut())),
        }
    }

    /// The blocks of the grid.
    fn blocks(&self) -> u64 {
        if self.work_items { self.grid.count() / self.block.count().max(1) } else { self.grid.count() }
    }

    /// The kernel, if it can be launched later, or what stands against that.
    fn kernel(&self, found: Found) -> Result<&'static Kernel, Obstacle> {
        if !turn::is_at_home(found) {
            return Err(Obstacle::Other(SlowPath::Device));
        }
        if !found.process.architectures.admit(found.stream.hw.device(), &self.sizes()) {
            return Err(Obstacle::Other(SlowPath::Limits));
        }
        let kernel = self.known(found).map_err(Obstacle::Code)?;
        if self.block.count() > u64::from(kernel.threads) {
            return Err(Obstacle::Other(SlowPath::Limits));
        }
        match self.kind {
            Kind::Plain => Ok(kernel),
            Kind::Cooperative
                if found.process.cooperative.is_taken(self.shape(found, kernel), self.grid.count()) =>
            {
                Ok(kernel)
            }
            Kind::Cooperative => Err(Obstacle::Other(SlowPath::Cooperative)),
            Kind::Unknown => Err(Obstacle::Other(SlowPath::Attributes)),
        }
    }

    /// The kernel, if anything is known of it.
    fn known(&self, found: Found) -> Result<&'static Kernel, Unknown> {
        let (kernels, device) = (&found.process.base.kernels, found.stream.hw.device());
        kernels.find(self.function, device).or_else(|unknown| {
            let launches = Thread::current().launches();
            let host = match self.of_module {
                _ if !launches.is_null() => launches,
                true => return Err(unknown),
                false => self.function,
            };
            match kernels.find(host, device) {
                Err(Unknown::NotRegistered)
                    if found.process.note_past(found.stream.hw.stream(), host, bindings::leads_here) =>
                {
                    kernels.find(host, device)
                }
                answer => answer,
            }
        })
    }

    /// Counts a launch that is made in its turn, and says the first of its kind: before it waits, so that it is seen why.
    fn say_slow(&self, found: Found, spec: &Spec<'_>, obstacle: Obstacle) {
        // Inside a callback nothing waits.
        if !spec.may_wait || !slow_path::count(obstacle) {
            return;
        }
        let name = || match (self.known(found), found.process.names) {
            (Ok(kernel), _) => kernel.name.to_string(),
            (Err(_), Some(names)) => names.of(self.handle_of_kernel(), found.stream.hw.stream()),
            (Err(_), None) => self.handle_of_kernel().to_string(),
        };
        errno::kept(|| {
            tracing::info!(
                "{}: a launch waits for its turn on the calling thread, because {obstacle}; \
                 others for this reason are only counted",
                name()
            );
        });
    }

    /// What decides how many blocks of a cooperative launch fit.
    fn shape(&self, found: Found, kernel: &'static Kernel) -> cooperative_cache::Shape {
        cooperative_cache::shape(kernel, found.stream.hw.device(), self.block.count(), self.shared)
    }

    /// The runtime has taken the launch in its turn.
    fn taken(&self, found: Found) {
        if self.kind == Kind::Cooperative
            && turn::is_at_home(found)
            && let Ok(kernel) = self.known(found)
        {
            found.process.cooperative.taken(self.shape(found, kernel), self.grid.count());
        }
    }

    /// The arguments, copied, of a launch that records events.
    ///
    /// # Safety
    ///
    /// They are as the launch functions want them.
    unsafe fn copy(
        &self,
        found: Found,
        events: &[hipEvent_t],
    ) -> Result<(&'static Kernel, KernelArgs), Obstacle> {
        let kernel = self.kernel(found)?;
        let device = found.stream.hw.device();
        if !events.iter().all(|event| found.process.events.is_on(*event, device)) {
            return Err(Obstacle::Other(SlowPath::Events));
        }
        let mut args = KernelArgs::new();
        // SAFETY: the caller's promise; the layout is that of the kernel that the runtime would launch.
        unsafe { args.copy(&kernel.layout, self.params, self.extra) }.map_err(Obstacle::Arguments)?;
        Ok((kernel, args))
    }

    /// One call of a launch function. `invoke` makes the real call with a stream and arguments, and is called once.
    ///
    /// # Safety
    ///
    /// `F` is the type of the call's function; the arguments are as the launch functions want them.
    #[inline(always)]
    pub(super) unsafe fn handle<F: Copy + 'static>(
        self,
        call: Call<F>,
        (stream, per_thread): (hipStream_t, bool),
        invoke: impl Fn(F, hipStream_t, *mut *mut c_void, *mut *mut c_void) -> hipError_t + 'static,
    ) -> hipError_t {
        let body = |real: F, own| {
            let Target { raw, found } = Target::of(own, stream, per_thread);
            let invoke = move |params, extra| invoke(real, raw, params, extra);
            match found {
                None => {
                    let _apart = if own { captured() } else { None };
                    invoke(self.params, self.extra)
                }
                // SAFETY: the caller's promise; a launch belongs to no thread.
                Some(found) => unsafe { self.go(found, invoke) },
            }
        };
        call.handle(body)
    }

    /// The way of one launch. `invoke` makes the real call with arguments, and is called once.
    ///
    /// # Safety
    ///
    /// The arguments are as the launch functions want them, and `invoke` may be called on any thread.
    #[inline(always)]
    unsafe fn go(
        self,
        found: Found,
        invoke: impl Fn(*mut *mut c_void, *mut *mut c_void) -> hipError_t + 'static,
    ) -> hipError_t {
        let spec = turn::spec(launch_key(self.function.addr(), self.grid, self.block));
        if self.events != [hipEvent_t::NULL; 2] {
            // SAFETY: the caller's promise.
            return unsafe { self.go_with_events(found, &spec, invoke) };
        }
        match found.queue.try_direct(&spec, || result(invoke(self.params, self.extra))) {
            Direct::Launched(_, launched) => code(launched),
            // SAFETY: the caller's promise.
            Direct::NotNow => unsafe { self.later(found, &spec, invoke) },
        }
    }

    /// # Safety
    ///
    /// As for [`Launch::go`].
    #[cold]
    #[inline(never)]
    unsafe fn later(
        self,
        found: Found,
        spec: &Spec<'_>,
        invoke: impl Fn(*mut *mut c_void, *mut *mut c_void) -> hipError_t + 'static,
    ) -> hipError_t {
        let command = match self.kernel(found) {
            Err(obstacle) => Err((obstacle, invoke)),
            Ok(kernel) => {
                // SAFETY: the caller's promise; the layout is that of the kernel that the runtime would launch.
                let command =
                    unsafe { HipLaunch::new(kernel, self.params, self.extra, invoke, found.queue.spare()) };
                command.map_err(|(unfit, invoke)| (Obstacle::Arguments(unfit), invoke))
            }
        };
        match command.map(|command| turn::append(found, spec, command)) {
            Ok(Ok(_)) => hipSuccess,
            Ok(Err(error)) => turn::refused(error),
            Err((_, invoke)) if self.is_refused(found) => invoke(self.params, self.extra),
            Err((obstacle, invoke)) => {
                self.say_slow(found, spec, obstacle);
                let code = turn::take(found, spec, || {
                    let _beside = beside(found);
                    invoke(self.params, self.extra)
                });
                if code == hipSuccess {
                    self.taken(found);
                }
                code
            }
        }
    }

    /// A launch that records events around itself.
    ///
    /// # Safety
    ///
    /// As for [`Launch::go`].
    #[cold]
    #[inline(never)]
    unsafe fn go_with_events(
        self,
        found: Found,
        spec: &Spec<'_>,
        invoke: impl Fn(*mut *mut c_void, *mut *mut c_void) -> hipError_t + 'static,
    ) -> hipError_t {
        let events = &found.process.events;
        let given: Vec<hipEvent_t> = self.events.into_iter().filter(|event| !event.is_null()).collect();
        given.iter().for_each(|event| found.process.pools.forget_record(*event));
        let after: Vec<After> = given.iter().flat_map(|event| events.before_record(*event)).collect();
        let spec = Spec { after: &after, ..*spec };
        let [start, stop] = self.events;
        let queue = (spec.may_wait && self.in_order).then_some(found.queue);
        // The stop event shows the launch and all before it; the start event shows nothing that anybody asks for.
        let invoke = move |params, extra| {
            events.recording(stop, queue, || events.recording(start, None, || invoke(params, extra)))
        };
        if let Direct::Launched(_, launched) =
            found.queue.try_direct(&spec, || result(invoke(self.params, self.extra)))
        {
            given.iter().for_each(|event| events.recorded(*event));
            return code(launched);
        }
        // SAFETY: the caller's promise.
        let (kernel, mut args) = match unsafe { self.copy(found, &given) } {
            Ok(copied) => copied,
            Err(_) if self.is_refused(found) => return invoke(self.params, self.extra),
            Err(obstacle) => {
                self.say_slow(found, &spec, obstacle);
                let launched = turn::take(found, &spec, || {
                    let _beside = beside(found);
                    invoke(self.params, self.extra)
                });
                given.iter().for_each(|event| events.recorded(*event));
                return launched;
            }
        };
        let named: Vec<_> = given.iter().map(|event| events.name(*event)).collect();
        let holds = named.clone();
        let call = move || {
            let _ = &holds;
            let _inside = exclusion::launching();
            args.pass(&invoke)
        };
        let bytes = size_of_val(&call);
        // SAFETY: as above; the events are not destroyed before the command is dropped.
        let command = unsafe { HipCommand::new(&kernel.name, turn::arguments(bytes), call) };
        match turn::append(found, &spec, Box::new(command)) {
            Ok(ticket) => {
                for (event, named) in given.iter().zip(&named) {
                    events.record_deferred(*event, named, found.queue, ticket);
                }
                hipSuccess
            }
            Err(error) => turn::refused(error),
        }
    }
}

/// `hipLaunchKernel` and its per-thread twin
///
/// # Safety
///
/// That of the runtime's function.
#[inline(always)]
pub(crate) unsafe fn kernel(
    call: Call<pfn::hipLaunchKernel>,
    per_thread: bool,
    function: *const c_void,
    grid: dim3,
    block: dim3,
    args: *mut *mut c_void,
    shared: usize,
    stream: hipStream_t,
) -> hipError_t {
    let launch = Launch::of_function(function, (grid, block), shared, args);
    let invoke = move |real: pfn::hipLaunchKernel, stream, params, _| {
        // SAFETY: the arguments are the caller's own, or copies of them by their true sizes.
        unsafe { real(function, grid, block, params, shared, stream) }
    };
    // SAFETY: the call's type is that of its function; the caller's promise.
    unsafe { launch.handle(call, (stream, per_thread), invoke) }
}

/// `hipModuleLaunchKernel`
///
/// # Safety
///
/// That of the runtime's function.
#[inline(always)]
pub(crate) unsafe fn module_kernel(
    call: Call<pfn::hipModuleLaunchKernel>,
    f: hipFunction_t,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: hipStream_t,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> hipError_t {
    let sizes = (dims(gx, gy, gz), dims(bx, by, bz));
    let launch = Launch { extra, ..Launch::of_module(f, sizes, shared as usize, params) };
    let invoke = move |real: pfn::hipModuleLaunchKernel, stream, params, extra| {
        // SAFETY: as for `hipLaunchKernel`.
        unsafe { real(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra) }
    };
    // SAFETY: as for `hipLaunchKernel`.
    unsafe { launch.handle(call, (stream, false), invoke) }
}

/// `hipExtLaunchKernel`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn ext_kernel(
    call: Call<pfn::hipExtLaunchKernel>,
    function: *const c_void,
    grid: dim3,
    block: dim3,
    args: *mut *mut c_void,
    shared: usize,
    stream: hipStream_t,
    start: hipEvent_t,
    stop: hipEvent_t,
    flags: c_int,
) -> hipError_t {
    let events = [start, stop];
    let launch = Launch::of_function(function, (grid, block), shared, args);
    let launch = Launch { events, in_order: flags == 0, ..launch };
    let invoke = move |real: pfn::hipExtLaunchKernel, stream, params, _| {
        // SAFETY: as for `hipLaunchKernel`; the events live as long as a command names them.
        unsafe { real(function, grid, block, params, shared, stream, start, stop, flags) }
    };
    // SAFETY: as for `hipLaunchKernel`.
    unsafe { launch.handle(call, (stream, false), invoke) }
}

/// `hipExtModuleLaunchKernel` under both of its names
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn ext_module_kernel(
    call: Call<pfn::hipExtModuleLaunchKernel>,
    f: hipFunction_t,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: usize,
    stream: hipStream_t,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    start: hipEvent_t,
    stop: hipEvent_t,
    flags: u32,
) -> hipError_t {
    let sizes = (dims(gx, gy, gz), dims(bx, by, bz));
    let launch = Launch::in_work_items(f, sizes, shared, [params, extra], [start, stop]);
    let launch = Launch { in_order: flags == 0, ..launch };
    let invoke = move |real: pfn::hipExtModuleLaunchKernel, stream, params, extra| {
        // SAFETY: as for `hipExtLaunchKernel`.
        unsafe { real(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra, start, stop, flags) }
    };
    // SAFETY: as for `hipLaunchKernel`.
    unsafe { launch.handle(call, (stream, false), invoke) }
}

/// `hipHccModuleLaunchKernel` under both of its names
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn hcc_module_kernel(
    call: Call<pfn::hipHccModuleLaunchKernel>,
    f: hipFunction_t,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: usize,
    stream: hipStream_t,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    start: hipEvent_t,
    stop: hipEvent_t,
) -> hipError_t {
    let sizes = (dims(gx, gy, gz), dims(bx, by, bz));
    let launch = Launch::in_work_items(f, sizes, shared, [params, extra], [start, stop]);
    let invoke = move |real: pfn::hipHccModuleLaunchKernel, stream, params, extra| {
        // SAFETY: as for `hipExtLaunchKernel`.
        unsafe { real(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra, start, stop) }
    };
    // SAFETY: as for `hipLaunchKernel`.
    unsafe { launch.handle(call, (stream, false), invoke) }
}
