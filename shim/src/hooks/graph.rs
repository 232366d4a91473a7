//! Executable graphs (`process::graphs`). A launch is one command. A change of a graph waits until its
//! earlier launches have been launched, and for nothing else.

use super::defer::after_all_if;
use super::{error, turn};
use crate::boundary::{Call, Failure};
use crate::process::graphs;
use crate::process::streams::{Found, Target};
use crate::process::subject;
use crate::process::{self, Process};
use hal_hip::command::HipCommand;
use hal_hip::real::result;
use hip_sys::types::{
    hipError_t, hipErrorInvalidValue, hipGraph_t, hipGraphExec_t, hipGraphInstantiateParams, hipStream_t,
    hipSuccess,
};
use xqueue::{CommandSpec, CostKey, Direct, Footprint, Scope};

/// A function that works with an executable graph on a stream.
type OnStream = unsafe extern "C" fn(hipGraphExec_t, hipStream_t) -> hipError_t;

/// The key for the expected duration of a graph.
fn key(exec: hipGraphExec_t) -> CostKey {
    hal_hip::command::memory_key(32, exec.as_raw())
}

/// `hipGraphLaunch`, its per-thread twin, and `hipGraphUpload`
pub(crate) unsafe fn launch(
    call: Call<OnStream>,
    per_thread: bool,
    exec: hipGraphExec_t,
    stream: hipStream_t,
) -> hipError_t {
    call.handle(|real, own| {
        if let Some(refused) = process::for_call(own).and_then(|process| refused(process, exec)) {
            return refused;
        }
        let Target { raw, found } = Target::of(own, stream, per_thread);
        let invoke = move || {
            let _apart = process::for_call(own).and_then(Process::apart);
            // SAFETY: the arguments are the caller's own; a command keeps the graph alive.
            unsafe { real(exec, raw) }
        };
        let Some(found) = found.filter(|_| !exec.is_null()) else { return invoke() };
        if found.process.graphs.all_plain() {
            let spec = turn::spec(key(exec)).about(subject::GRAPH);
            return match found.queue.try_direct(&spec, || result(invoke())) {
                Direct::Launched(_, launched) => turn::code(launched),
                Direct::NotNow => later(found, &spec, exec, invoke),
            };
        }
        let plain = found.process.graphs.find(exec).is_some_and(|exec| exec.is_plain());
        // Any other graph may record events, wait for them, or free memory.
        let spec = after_all_if(!plain, key(exec)).about(subject::GRAPH);
        let invoke = move || {
            if !plain {
                found.process.events.graph_launched();
                found.process.pools.forget_records();
            }
            invoke()
        };
        match found.queue.try_direct(&spec, || result(invoke())) {
            Direct::Launched(_, launched) => turn::code(launched),
            Direct::NotNow if plain => later(found, &spec, exec, invoke),
            Direct::NotNow => turn::take(found, &spec, invoke),
        }
    })
}

/// Returns the error for a graph that the program has destroyed, if it has: the runtime would still accept
/// it.
fn refused(process: &Process, exec: hipGraphExec_t) -> Option<hipError_t> {
    process.graphs.has_ended(exec).then(|| {
        error::keep(process.real, hipErrorInvalidValue);
        hipErrorInvalidValue
    })
}

/// A guard during which nothing is launched directly while a worker launches a graph, which old runtimes do
/// not support (`hal_hip::exclusion`).
struct Exclusive(Option<&'static Process>);

impl Exclusive {
    fn begin(process: &'static Process) -> Self {
        let process = process.keeps_apart().then_some(process);
        if let Some(process) = process {
            process.domain.begin_exclusive();
        }
        Self(process)
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        if let Some(process) = self.0 {
            process.domain.end_exclusive();
        }
    }
}

/// Makes a launch that cannot be made at once.
fn later(
    found: Found,
    spec: &CommandSpec<'_>,
    exec: hipGraphExec_t,
    invoke: impl Fn() -> hipError_t + 'static,
) -> hipError_t {
    let known = found.process.graphs.find(exec).filter(|_| turn::is_at_home(found));
    let Some(exec) = known else { return turn::take(found, spec, invoke) };
    let call = turn::keeping((exec.clone(), Exclusive::begin(found.process)), invoke);
    // SAFETY: the graph is not destroyed before the command is dropped, and any thread may launch it.
    let command = unsafe { HipCommand::new("graph", Footprint::default(), call) };
    turn::append(found, spec, Box::new(command), |ticket| exec.deferred(found.after(ticket)))
}

/// The functions that set a kernel's arguments in a graph that is not executable. They only exclude workers'
/// launches.
pub(crate) fn describe<F: Copy>(call: Call<F>, invoke: impl FnOnce(F) -> hipError_t) -> hipError_t {
    call.handle(|real, own| {
        let _apart = process::for_call(own).and_then(Process::apart);
        invoke(real)
    })
}

/// The functions that change an executable graph.
pub(crate) fn change<F: Copy>(
    call: Call<F>,
    exec: hipGraphExec_t,
    invoke: impl FnOnce(F) -> hipError_t,
) -> hipError_t {
    call.handle(|real, own| {
        if let Some(process) = process::for_call(own) {
            if let Some(refused) = refused(process, exec) {
                return refused;
            }
            match process.graphs.find(exec) {
                Some(exec) => exec.wait_launched(),
                None => process.drain(Scope::Process),
            }
        }
        let _apart = process::for_call(own).and_then(Process::apart);
        invoke(real)
    })
}

/// `hipGraphExecDestroy`
pub(crate) unsafe fn destroy_exec(
    call: Call<unsafe extern "C" fn(hipGraphExec_t) -> hipError_t>,
    exec: hipGraphExec_t,
) -> hipError_t {
    call.handle(|real, own| {
        if let Some(process) = process::for_call(own) {
            process.graphs.sweep();
            if let Some(refused) = refused(process, exec) {
                return refused;
            }
            if process.graphs.doom(exec) {
                process.real.reset_last_error();
                return hipSuccess;
            }
        }
        // SAFETY: the argument is the caller's own.
        unsafe { real(exec) }
    })
}

/// The functions that make a graph executable. They follow no pending command, but may set the kernels'
/// arguments.
///
/// # Safety
///
/// `exec` is null or valid for the handle.
pub(crate) unsafe fn instantiate<F: Copy>(
    call: Call<F>,
    exec: *mut hipGraphExec_t,
    graph: hipGraph_t,
    invoke: impl FnOnce(F) -> hipError_t,
) -> hipError_t {
    call.handle(|real, own| {
        let code = {
            let _apart = process::for_call(own).and_then(Process::apart_to_instantiate);
            invoke(real)
        };
        if let Some(process) = process::for_call(own) {
            // SAFETY: this function requires what `made` does.
            unsafe { made(process, code, exec, graph) };
        }
        code
    })
}

/// Notes a new executable graph.
///
/// # Safety
///
/// As for [`instantiate`].
unsafe fn made(process: &Process, code: hipError_t, exec: *mut hipGraphExec_t, graph: hipGraph_t) {
    if code == hipSuccess && !exec.is_null() {
        // SAFETY: the runtime has just written the handle there.
        let handle = unsafe { *exec };
        process.graphs.made(handle, graph);
        process.graphs.sweep();
    }
}

/// The flag of an instantiation that prepares the graph on the device, on the stream of the parameters.
const UPLOAD: u64 = 2;

/// `hipGraphInstantiateWithParams`
///
/// # Safety
///
/// `exec` and `params` are null or valid.
pub(crate) unsafe fn instantiate_with_params<F: Copy>(
    call: Call<F>,
    exec: *mut hipGraphExec_t,
    graph: hipGraph_t,
    params: *mut hipGraphInstantiateParams,
    invoke: impl FnOnce(F) -> hipError_t,
) -> hipError_t {
    call.handle(|real, own| {
        // SAFETY: `params` is null or valid.
        let given = unsafe { params.as_mut() };
        let (Some(process), Some(params)) = (process::for_call(own), given) else { return invoke(real) };
        let before = params.upload_stream;
        let Target { raw, found } = Target::of(own, before, false);
        params.upload_stream = raw;
        let uploads = params.flags & UPLOAD != 0;
        let code = match found.filter(|_| uploads) {
            Some(found) => turn::take(found, &turn::spec(CostKey::UNKNOWN), || invoke(real)),
            None => {
                let _apart = process.apart_to_instantiate();
                invoke(real)
            }
        };
        params.upload_stream = before;
        // SAFETY: this function requires what `made` does.
        unsafe { made(process, code, exec, graph) };
        code
    })
}

/// The functions that destroy a graph that is not executable, or a node of it. An executable graph is a copy
/// of it. Only user objects are destroyed with it, and their destructors, which the runtime calls, may do
/// anything.
pub(crate) fn destroy<F: Copy, R: Failure>(call: Call<F>, invoke: impl FnOnce(F) -> R) -> R {
    call.handle(|real, own| {
        if let Some(process) = process::for_call(own).filter(|_| graphs::has_user_objects()) {
            process.drain(Scope::Process);
        }
        invoke(real)
    })
}

/// `hipUserObjectCreate`
pub(crate) fn create_user_object<F: Copy>(call: Call<F>, invoke: impl FnOnce(F) -> hipError_t) -> hipError_t {
    call.handle(|real, own| {
        if own {
            graphs::user_object_made();
        }
        invoke(real)
    })
}
