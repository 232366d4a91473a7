//! Kernel launches. A launch is made at once with the caller's own arguments if its queue admits it.
//! Otherwise it is deferred with copies of the arguments, or, if they cannot be copied, made in order on the
//! calling thread.
//!
//! A launch is deferred only if it is expected to succeed. What the runtime would refuse is left to it, so
//! that the caller gets the error from the call.

use super::module;
use super::turn::{self, code};
use crate::boundary::Call;
use crate::process::architecture::Sizes;
use crate::process::cooperative_cache;
use crate::process::occupancy::Handle;
use crate::process::slow_path::{self, Obstacle};
use crate::process::streams::{Found, Target};
use crate::process::subject;
use crate::process::{self, Process};
use crate::thread::Thread;
use agent::errno;
use hal_hip::args::KernelArgs;
use hal_hip::command::{HipCommand, HipLaunch, launch_key};
use hal_hip::exclusion;
use hal_hip::layout::{Kernel, Unknown};
use hal_hip::real::result;
use hip_sys::types::{dim3, hipError_t, hipEvent_t, hipFunction_t, hipStream_t, hipSuccess};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use protocol::slow::SlowPath;
use std::ffi::c_void;
use std::ptr;
use xqueue::{After, CommandSpec, Direct};

/// The further condition for deferring a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// None.
    Plain,
    /// All its blocks fit on the device at once.
    Cooperative,
    /// A condition that only the runtime can check.
    Unknown,
}

/// The way of a launch that cannot be made at once.
enum Plan {
    /// Append a command with copies of its arguments.
    Copy(&'static Kernel),
    /// Make the call on the calling thread when its turn comes. The obstacle forbids a copy.
    InOrder(Obstacle),
    /// Make the call at once, because the runtime refuses it.
    Refused,
}

/// Excludes launches during a captured launch, which sets a kernel's arguments without the runtime's own
/// lock.
#[inline(always)]
fn captured() -> Option<RwLockWriteGuard<'static, ()>> {
    process::get().filter(|process| process.captures.any()).and_then(Process::apart)
}

/// Excludes calls that set a kernel's arguments during a launch: a worker may launch a graph meanwhile.
fn launching(found: Found) -> Option<RwLockReadGuard<'static, ()>> {
    (found.process.keeps_apart() && !Thread::current().is_in_callback()).then(exclusion::launching)
}

pub(crate) struct Launch {
    function: *const c_void,
    /// True if `function` is a module's (`hipFunction_t`); otherwise it is a function of the host.
    of_module: bool,
    sizes: Sizes,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    /// The events to record before and after.
    events: [hipEvent_t; 2],
    /// True if the launch starts only when all work before it has completed.
    in_order: bool,
    kind: Kind,
}

impl Launch {
    /// A launch of a host function.
    #[inline(always)]
    pub(crate) fn of_function(
        function: *const c_void,
        (grid, block): (dim3, dim3),
        shared: usize,
        params: *mut *mut c_void,
    ) -> Self {
        let sizes = Sizes { grid, block, shared, work_items: false };
        let (extra, events) = (ptr::null_mut(), [hipEvent_t::NULL; 2]);
        let (of_module, in_order, kind) = (false, true, Kind::Plain);
        Self { function, of_module, sizes, params, extra, events, in_order, kind }
    }

    /// A launch of a module's kernel, whose function may take `extra`.
    #[inline(always)]
    pub(crate) fn of_module<const EXTRA: usize>(
        f: hipFunction_t,
        sizes: (dim3, dim3),
        shared: usize,
        params: *mut *mut c_void,
        extra: [*mut *mut c_void; EXTRA],
    ) -> Self {
        let launch = Self::of_function(f.0.cast_const(), sizes, shared, params);
        Self { of_module: true, extra: extra.first().copied().unwrap_or(ptr::null_mut()), ..launch }
    }

    #[inline(always)]
    pub(crate) fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    pub(crate) fn in_work_items(self) -> Self {
        Self { sizes: Sizes { work_items: true, ..self.sizes }, ..self }
    }

    /// Sets the events to record before and after, and whether the launch follows all work before it.
    pub(crate) fn with_events(self, events: [hipEvent_t; 2], in_order: bool) -> Self {
        Self { events, in_order, ..self }
    }

    fn blocks(&self) -> u64 {
        let Sizes { grid, block, work_items, .. } = self.sizes;
        if work_items { grid.count() / block.count().max(1) } else { grid.count() }
    }

    fn handle_of_kernel(&self) -> Handle {
        match self.of_module {
            false => Handle::Host(self.function),
            true => Handle::Module(hipFunction_t(self.function.cast_mut())),
        }
    }

    fn kernel(&self, found: Found) -> Result<&'static Kernel, Unknown> {
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
                    if module::note_past(found.process, found.stream.hw.stream(), host) =>
                {
                    kernels.find(host, device)
                }
                answer => answer,
            }
        })
    }

    fn plan(&self, found: Found, kernel: Result<&'static Kernel, Unknown>) -> Plan {
        match self.obstacle(found, kernel) {
            Ok(kernel) => Plan::Copy(kernel),
            Err(obstacle) => self.plan_without_copy(found, kernel, obstacle),
        }
    }

    /// Plans a launch that cannot be deferred.
    fn plan_without_copy(
        &self,
        found: Found,
        kernel: Result<&'static Kernel, Unknown>,
        obstacle: Obstacle,
    ) -> Plan {
        if self.is_refused(found, kernel.ok()) { Plan::Refused } else { Plan::InOrder(obstacle) }
    }

    /// Returns the kernel if the launch may be deferred, else the obstacle.
    fn obstacle(
        &self,
        found: Found,
        kernel: Result<&'static Kernel, Unknown>,
    ) -> Result<&'static Kernel, Obstacle> {
        if !turn::is_at_home(found) {
            return Err(Obstacle::Other(SlowPath::Device));
        }
        if !found.process.architectures.admit(found.stream.hw.device(), &self.sizes) {
            return Err(Obstacle::Other(SlowPath::Limits));
        }
        let kernel = kernel.map_err(Obstacle::Code)?;
        if self.sizes.block.count() > u64::from(kernel.threads) {
            return Err(Obstacle::Other(SlowPath::Limits));
        }
        let is_accepted =
            || found.process.cooperative.is_accepted(self.shape(found, kernel), self.sizes.grid.count());
        match self.kind {
            Kind::Plain => Ok(kernel),
            Kind::Cooperative if is_accepted() => Ok(kernel),
            Kind::Cooperative => Err(Obstacle::Other(SlowPath::Cooperative)),
            Kind::Unknown => Err(Obstacle::Other(SlowPath::Attributes)),
        }
    }

    /// Returns true if the runtime refuses the launch for its arguments or its kernel: the caller then need
    /// not wait. If that is uncertain, the launch in its turn shows it.
    fn is_refused(&self, found: Found, kernel: Option<&'static Kernel>) -> bool {
        let (process, device) = (found.process, found.stream.hw.device());
        let (at_home, major) = (turn::is_at_home(found), process.real.major);
        let twice = !self.params.is_null() && !self.extra.is_null();
        if self.function.is_null()
            || twice
            || self.sizes.are_refused(self.of_module, major)
            || at_home && process.architectures.refuse(device, &self.sizes, self.of_module, major)
            || kernel.is_some_and(|kernel| self.sizes.block.count() > u64::from(kernel.threads))
        {
            return true;
        }
        // The runtime must not be asked about an unknown module handle, which may be invalid.
        let is_asked = match self.kind {
            Kind::Plain | Kind::Unknown => kernel.is_none() && !self.of_module,
            Kind::Cooperative => kernel.is_some() || !self.of_module,
        };
        let Some(occupancy) = process.occupancy.as_ref().filter(|_| is_asked && at_home) else {
            return false;
        };
        match occupancy.max_blocks(self.handle_of_kernel(), self.sizes.block.count(), self.sizes.shared) {
            None => true,
            Some(most) => self.kind == Kind::Cooperative && self.blocks() > most,
        }
    }

    /// Returns the key under which an accepted cooperative launch is kept.
    fn shape(&self, found: Found, kernel: &'static Kernel) -> cooperative_cache::Shape {
        cooperative_cache::shape(
            kernel,
            found.stream.hw.device(),
            self.sizes.block.count(),
            self.sizes.shared,
        )
    }

    /// Makes the call in its turn on the calling thread. The first one for each reason is logged before it
    /// waits.
    fn take_turn(
        &self,
        found: Found,
        spec: &CommandSpec<'_>,
        kernel: Result<&'static Kernel, Unknown>,
        obstacle: Obstacle,
        invoke: impl FnOnce() -> hipError_t,
    ) -> hipError_t {
        // Inside a callback nothing waits.
        if spec.may_wait && slow_path::count(obstacle) {
            errno::kept(|| {
                // Called only if the line is logged: the runtime is asked for the name.
                let name = || match (kernel, found.process.names) {
                    (Ok(kernel), _) => kernel.name.to_string(),
                    (Err(_), Some(names)) => names.of(self.handle_of_kernel(), found.stream.hw.stream()),
                    (Err(_), None) => self.handle_of_kernel().to_string(),
                };
                tracing::info!(
                    "{}: a launch waits for its turn on the calling thread, because {obstacle}; \
                     others for this reason are only counted",
                    name()
                );
            });
        }
        turn::take(found, spec, || {
            let _launching = launching(found);
            invoke()
        })
    }

    /// Handles one call of a launch function. `invoke` makes the real call with a stream and arguments, and
    /// is called once.
    ///
    /// # Safety
    ///
    /// The arguments are as the launch function wants them, and `invoke` may be called on any thread with
    /// copies of them.
    #[inline(always)]
    pub(crate) unsafe fn handle<F: Copy + 'static>(
        self,
        call: Call<F>,
        (stream, per_thread): (hipStream_t, bool),
        invoke: impl Fn(F, hipStream_t, *mut *mut c_void, *mut *mut c_void) -> hipError_t + 'static,
    ) -> hipError_t {
        call.handle(|real: F, own| {
            let Target { raw, found } = Target::of(own, stream, per_thread);
            let invoke = move |params, extra| invoke(real, raw, params, extra);
            let Some(found) = found else {
                let _apart = if own { captured() } else { None };
                return invoke(self.params, self.extra);
            };
            let key = launch_key(self.function.addr(), self.sizes.grid, self.sizes.block);
            let spec = turn::spec(key).about(subject::kernel(self.function));
            if self.events != [hipEvent_t::NULL; 2] {
                // SAFETY: this function requires what `go_with_events` does.
                return unsafe { self.go_with_events(found, &spec, invoke) };
            }
            match found.queue.try_direct(&spec, || result(invoke(self.params, self.extra))) {
                Direct::Launched(_, launched) => code(launched),
                // SAFETY: this function requires what `go_later` does.
                Direct::NotNow => unsafe { self.go_later(found, &spec, invoke) },
            }
        })
    }

    /// Makes a launch that cannot be made at once.
    ///
    /// # Safety
    ///
    /// As for [`Launch::handle`].
    #[cold]
    #[inline(never)]
    unsafe fn go_later(
        self,
        found: Found,
        spec: &CommandSpec<'_>,
        invoke: impl Fn(*mut *mut c_void, *mut *mut c_void) -> hipError_t + 'static,
    ) -> hipError_t {
        let kernel = self.kernel(found);
        let (plan, invoke) = match self.plan(found, kernel) {
            Plan::Copy(copied) => {
                // SAFETY: this function requires it of the arguments; the layout is that of the kernel.
                let command =
                    unsafe { HipLaunch::new(copied, self.params, self.extra, invoke, found.queue.spare()) };
                match command {
                    Ok(command) => {
                        return turn::submit(found, spec, command);
                    }
                    Err((unfit, invoke)) => {
                        (self.plan_without_copy(found, kernel, Obstacle::Arguments(unfit)), invoke)
                    }
                }
            }
            plan => (plan, invoke),
        };
        let Plan::InOrder(obstacle) = plan else { return invoke(self.params, self.extra) };
        let code = self.take_turn(found, spec, kernel, obstacle, || invoke(self.params, self.extra));
        if code == hipSuccess
            && self.kind == Kind::Cooperative
            && turn::is_at_home(found)
            && let Ok(kernel) = kernel
        {
            found.process.cooperative.accepted(self.shape(found, kernel), self.sizes.grid.count());
        }
        code
    }

    /// Makes a launch that records events around itself.
    ///
    /// # Safety
    ///
    /// As for [`Launch::handle`].
    #[cold]
    #[inline(never)]
    unsafe fn go_with_events(
        self,
        found: Found,
        spec: &CommandSpec<'_>,
        invoke: impl Fn(*mut *mut c_void, *mut *mut c_void) -> hipError_t + 'static,
    ) -> hipError_t {
        let events = &found.process.events;
        let given: Vec<hipEvent_t> = self.events.into_iter().filter(|event| !event.is_null()).collect();
        given.iter().for_each(|event| found.process.pools.forget_record(*event));
        let after: Vec<After> = given.iter().flat_map(|event| events.before_record(*event)).collect();
        let spec = CommandSpec { after: &after, ..*spec };
        let [start, stop] = self.events;
        let queue = (spec.may_wait && self.in_order).then_some(found.queue);
        // The stop event shows the completion of the launch and all before it. The start event is not used.
        let invoke = move |params, extra| {
            events.recording(stop, queue, || events.recording(start, None, || invoke(params, extra)))
        };
        if let Direct::Launched(_, launched) =
            found.queue.try_direct(&spec, || result(invoke(self.params, self.extra)))
        {
            given.iter().for_each(|event| events.recorded(*event));
            return code(launched);
        }
        let kernel = self.kernel(found);
        let mut args = KernelArgs::new();
        let plan = match self.plan(found, kernel) {
            Plan::Copy(copied) => {
                let device = found.stream.hw.device();
                let copy = if given.iter().all(|event| events.is_on(*event, device)) {
                    // SAFETY: this function requires it of the arguments; the layout is that of the kernel.
                    unsafe { args.copy(&copied.layout, self.params, self.extra) }.map_err(Obstacle::Arguments)
                } else {
                    Err(Obstacle::Other(SlowPath::Events))
                };
                copy.map_or_else(
                    |obstacle| self.plan_without_copy(found, kernel, obstacle),
                    |()| Plan::Copy(copied),
                )
            }
            plan => plan,
        };
        let copied = match plan {
            Plan::Copy(copied) => copied,
            Plan::Refused => return invoke(self.params, self.extra),
            Plan::InOrder(obstacle) => {
                let invoke = || invoke(self.params, self.extra);
                let launched = self.take_turn(found, &spec, kernel, obstacle, invoke);
                given.iter().for_each(|event| events.recorded(*event));
                return launched;
            }
        };
        let named: Vec<_> = given.iter().map(|event| events.name(*event)).collect();
        let keeps_alive = named.clone();
        let call = move || {
            let _ = &keeps_alive;
            let _launching = exclusion::launching();
            args.pass(&invoke)
        };
        let bytes = size_of_val(&call);
        // SAFETY: this function requires it of `invoke`; the events are not destroyed before the command is
        // dropped.
        let command = unsafe { HipCommand::new(&copied.name, turn::arguments(bytes), call) };
        turn::append(found, &spec, Box::new(command), |ticket| {
            for (event, named) in given.iter().zip(&named) {
                events.record_deferred(*event, named, found.after(ticket));
            }
        })
    }
}

/// The handlers of the launch functions, by the shape of their arguments. The real call gets the caller's
/// arguments, but another stream and, where the launch is deferred, copies of `params` and `extra`.
macro_rules! launch {
    (function, $call:expr, $spt:expr, $kind:ident, ($f:ident, $grid:ident, $block:ident, $params:ident, $shared:ident, $stream:ident)) => {
        $crate::hooks::launch::Launch::of_function($f, ($grid, $block), $shared as usize, $params)
            .of_kind($crate::hooks::launch::Kind::$kind)
            .handle($call, ($stream, $spt), move |real, $stream, $params, _| real($f, $grid, $block, $params, $shared, $stream))
    };
    (function_with_events, $call:expr, ($f:ident, $grid:ident, $block:ident, $params:ident, $shared:ident, $stream:ident, $start:ident, $stop:ident, $flags:ident)) => {
        $crate::hooks::launch::Launch::of_function($f, ($grid, $block), $shared, $params)
            .with_events([$start, $stop], $flags == 0)
            .handle($call, ($stream, false), move |real, $stream, $params, _| real($f, $grid, $block, $params, $shared, $stream, $start, $stop, $flags))
    };
    (module, $call:expr, $kind:ident, ($f:ident, $gx:ident, $gy:ident, $gz:ident, $bx:ident, $by:ident, $bz:ident, $shared:ident, $stream:ident, $params:ident $(, $extra:ident)?)) => {
        $crate::hooks::launch::Launch::of_module($f, $crate::hooks::launch::sizes([$gx, $gy, $gz], [$bx, $by, $bz]), $shared as usize, $params, [$($extra)?])
            .of_kind($crate::hooks::launch::Kind::$kind)
            .handle($call, ($stream, false), move |real, $stream, $params, _extra| {
                $(let $extra = _extra;)?
                real($f, $gx, $gy, $gz, $bx, $by, $bz, $shared, $stream, $params $(, $extra)?)
            })
    };
    (module_with_events, $call:expr, ($f:ident, $gx:ident, $gy:ident, $gz:ident, $bx:ident, $by:ident, $bz:ident, $shared:ident, $stream:ident, $params:ident, $extra:ident, $start:ident, $stop:ident $(, $flags:ident)?)) => {
        $crate::hooks::launch::Launch::of_module($f, $crate::hooks::launch::sizes([$gx, $gy, $gz], [$bx, $by, $bz]), $shared, $params, [$extra])
            .in_work_items()
            .with_events([$start, $stop], true $(&& $flags == 0)?)
            .handle($call, ($stream, false), move |real, $stream, $params, $extra| {
                real($f, $gx, $gy, $gz, $bx, $by, $bz, $shared, $stream, $params, $extra, $start, $stop $(, $flags)?)
            })
    };
}
pub(crate) use launch;

#[inline(always)]
pub(crate) fn sizes(grid: [u32; 3], block: [u32; 3]) -> (dim3, dim3) {
    let [grid, block] = [grid, block].map(|[x, y, z]| dim3 { x, y, z });
    (grid, block)
}
