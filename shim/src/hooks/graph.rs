//! Executable graphs (`process::graphs`). A launch is one command. What changes a graph waits for the launch of those
//! launches of it that were submitted before, and for nothing else.

use super::defer::after_all_if;
use super::{error, turn};
use crate::boundary::{Call, Failure};
use crate::process::graphs;
use crate::process::streams::{Found, Target};
use crate::process::{self, Process};
use hal_hip::command::HipCommand;
use hal_hip::real::result;
use hip_sys::types::{
    hipError_t, hipErrorInvalidValue, hipGraph_t, hipGraphExec_t, hipGraphInstantiateParams, hipStream_t,
    hipSuccess,
};
use xqueue::{CostKey, Direct, Footprint, Scope, Spec};

/// The functions that work with an executable graph on a stream.
type OnStream = unsafe extern "C" fn(hipGraphExec_t, hipStream_t) -> hipError_t;

fn of(own: bool) -> Option<&'static Process> {
    process::get().filter(|_| own)
}

/// What graphs are likely to take the same time as.
fn key(exec: hipGraphExec_t) -> CostKey {
    hal_hip::command::memory_key(32, exec.as_raw())
}

/// `hipGraphLaunch`, its per-thread twin, and `hipGraphUpload`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn launch(
    call: Call<OnStream>,
    per_thread: bool,
    exec: hipGraphExec_t,
    stream: hipStream_t,
) -> hipError_t {
    let body = |real: OnStream, own| {
        if let Some(refused) = of(own).and_then(|process| refused(process, exec)) {
            return refused;
        }
        let Target { raw, found } = Target::of(own, stream, per_thread);
        let invoke = move || {
            let _apart = of(own).and_then(Process::apart);
            // SAFETY: the caller's own arguments; a command keeps the graph.
            unsafe { real(exec, raw) }
        };
        let Some(found) = found.filter(|_| !exec.is_null()) else { return invoke() };
        if found.process.graphs.all_plain() {
            let spec = turn::spec(key(exec));
            return match found.queue.try_direct(&spec, || result(invoke())) {
                Direct::Launched(_, launched) => turn::code(launched),
                Direct::NotNow => later(found, &spec, exec, invoke),
            };
        }
        let plain = found.process.graphs.find(exec).is_some_and(|exec| exec.is_plain());
        // Another one may record events, wait for them, or free memory.
        let spec = after_all_if(!plain, key(exec));
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
    };
    call.handle(body)
}

/// The answer for a graph that the program has destroyed: the runtime would still take it.
fn refused(process: &Process, exec: hipGraphExec_t) -> Option<hipError_t> {
    process.graphs.has_ended(exec).then(|| {
        error::keep(process.real, hipErrorInvalidValue);
        hipErrorInvalidValue
    })
}

/// While it lives nothing is launched directly beside the worker that launches a graph: old runtimes do not bear that
/// (`hal_hip::exclusion`).
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

/// A launch that cannot be made at once.
fn later(
    found: Found,
    spec: &Spec<'_>,
    exec: hipGraphExec_t,
    invoke: impl Fn() -> hipError_t + 'static,
) -> hipError_t {
    let known = found.process.graphs.find(exec).filter(|_| turn::is_at_home(found));
    let Some(exec) = known else { return turn::take(found, spec, invoke) };
    let kept = (exec.clone(), Exclusive::begin(found.process));
    let call = move || {
        let _ = &kept;
        invoke()
    };
    // SAFETY: the graph is not destroyed before the command is dropped, and its launch belongs to no thread.
    let command = unsafe { HipCommand::new("graph", Footprint::default(), call) };
    match turn::append(found, spec, Box::new(command)) {
        Ok(ticket) => {
            exec.deferred(found.queue, ticket);
            hipSuccess
        }
        Err(error) => turn::refused(error),
    }
}

/// The functions that give a kernel its arguments in a graph that is no executable one. The real function is kept apart from
/// workers' launches, and nothing else.
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn describe<F: Copy>(call: Call<F>, invoke: impl FnOnce(F) -> hipError_t) -> hipError_t {
    let body = |real: F, own| {
        let _apart = of(own).and_then(Process::apart);
        invoke(real)
    };
    call.handle(body)
}

/// The functions that change an executable graph.
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn change<F: Copy>(
    call: Call<F>,
    exec: hipGraphExec_t,
    invoke: impl FnOnce(F) -> hipError_t,
) -> hipError_t {
    let body = |real: F, own| {
        if let Some(process) = of(own) {
            if let Some(refused) = refused(process, exec) {
                return refused;
            }
            match process.graphs.find(exec) {
                Some(exec) => exec.wait_launched(),
                None => process.drain(Scope::Process),
            }
        }
        let _apart = of(own).and_then(Process::apart);
        invoke(real)
    };
    call.handle(body)
}

/// `hipGraphExecDestroy`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn destroy_exec(
    call: Call<unsafe extern "C" fn(hipGraphExec_t) -> hipError_t>,
    exec: hipGraphExec_t,
) -> hipError_t {
    let body = |real: unsafe extern "C" fn(hipGraphExec_t) -> hipError_t, own| {
        if let Some(process) = of(own) {
            process.graphs.sweep();
            if let Some(refused) = refused(process, exec) {
                return refused;
            }
            if process.graphs.doom(exec) {
                process.real.forget_result();
                return hipSuccess;
            }
        }
        // SAFETY: the caller's own argument.
        unsafe { real(exec) }
    };
    call.handle(body)
}

/// The functions that make a graph executable. Nothing that is pending can matter to them, but where they set the kernels'
/// arguments already.
///
/// # Safety
///
/// `F` is the type of the call's function; `exec` is null or the caller's place for the handle.
pub(crate) unsafe fn instantiate<F: Copy>(
    call: Call<F>,
    exec: *mut hipGraphExec_t,
    graph: hipGraph_t,
    invoke: impl FnOnce(F) -> hipError_t,
) -> hipError_t {
    let body = |real: F, own| {
        let code = {
            let _apart = of(own).and_then(Process::apart_to_instantiate);
            invoke(real)
        };
        if let Some(process) = of(own) {
            // SAFETY: the caller's promise.
            unsafe { made(process, code, exec, graph) };
        }
        code
    };
    call.handle(body)
}

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

/// Flag of an instantiation: the graph is made ready on the device, on the stream of the parameters.
const UPLOAD: u64 = 2;

/// `hipGraphInstantiateWithParams`
///
/// # Safety
///
/// `F` is the type of the call's function; `exec` and `params` are null or the caller's.
pub(crate) unsafe fn instantiate_with_params<F: Copy>(
    call: Call<F>,
    exec: *mut hipGraphExec_t,
    graph: hipGraph_t,
    params: *mut hipGraphInstantiateParams,
    invoke: impl FnOnce(F) -> hipError_t,
) -> hipError_t {
    let body = |real: F, own| {
        // SAFETY: null or the caller's parameters.
        let given = unsafe { params.as_mut() };
        let (Some(process), Some(params)) = (of(own), given) else { return invoke(real) };
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
        // SAFETY: the caller's promise.
        unsafe { made(process, code, exec, graph) };
        code
    };
    call.handle(body)
}

/// The functions that destroy a graph that is no executable one, or a node of it. An executable graph is a copy. Only user
/// objects go with it, and the program's destructor of one may do anything, inside the runtime.
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn destroy<F: Copy, R: Failure>(call: Call<F>, invoke: impl FnOnce(F) -> R) -> R {
    let body = |real: F, own| {
        if let Some(process) = of(own).filter(|_| graphs::has_user_objects()) {
            process.drain(Scope::Process);
        }
        invoke(real)
    };
    call.handle(body)
}

/// `hipUserObjectCreate`
///
/// # Safety
///
/// `F` is the type of the call's function.
pub(crate) unsafe fn create_user_object<F: Copy>(
    call: Call<F>,
    invoke: impl FnOnce(F) -> hipError_t,
) -> hipError_t {
    let body = |real: F, own| {
        if own {
            graphs::user_object_made();
        }
        invoke(real)
    };
    call.handle(body)
}
