//! Graphs: a table of the live ones, and the calls that create, change and launch them.

use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hip_sys::types::*;

use crate::blobs;
use crate::driver::{Driver, Opaque};
use crate::errors::Answer;
use crate::state::{api, enter, put, required, started};
use crate::stream_table::{enter_on, per_thread};

/// The handles of live graphs and executable graphs.
#[derive(Debug, Default)]
struct Live {
    graphs: HashSet<usize>,
    /// The graphs inside child nodes. The program cannot destroy them.
    children: HashSet<usize>,
    execs: HashSet<usize>,
}

static LIVE: Mutex<Option<Live>> = Mutex::new(None);

fn with<T>(look: impl FnOnce(&mut Live) -> T) -> T {
    let mut live: MutexGuard<'_, Option<Live>> = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    look(live.get_or_insert_default())
}

/// Adds a graph to the table.
pub(crate) fn keep(graph: hipGraph_t) {
    with(|live| live.graphs.insert(graph.as_raw()));
}

/// Refuses a handle that is not a graph's.
pub(crate) fn check(graph: hipGraph_t) -> Answer {
    let found = with(|live| live.graphs.contains(&graph.as_raw()) || live.children.contains(&graph.as_raw()));
    if found { Ok(()) } else { Err(hipErrorInvalidValue) }
}

/// Refuses a handle that is not an executable graph's.
pub(crate) fn check_exec(exec: hipGraphExec_t) -> Answer {
    if with(|live| live.execs.contains(&exec.as_raw())) { Ok(()) } else { Err(hipErrorInvalidValue) }
}

/// Checks a graph and returns the driver.
pub(crate) fn of(graph: hipGraph_t) -> Answer<&'static Driver> {
    check(graph)?;
    enter()
}

/// Checks an executable graph and that the node is not null, and returns the driver.
pub(crate) fn of_exec(exec: hipGraphExec_t, node: hipGraphNode_t) -> Answer<&'static Driver> {
    check_exec(exec)?;
    required(node.0)?;
    enter()
}

/// Returns the context of the calling thread's device, for nodes that copy or fill.
pub(crate) fn context() -> Answer<Opaque> {
    started()?.context(crate::state::device())
}

/// `hipGraphInstantiateFlagAutoFreeOnLaunch`, the same number as in CUDA. AMD's runtime ignores the other
/// flags.
const AUTO_FREE: u64 = 1;

fn instantiate(place: *mut hipGraphExec_t, graph: hipGraph_t, flags: u64) -> Answer {
    required(place)?;
    let driver = of(graph)?;
    let mut exec = hipGraphExec_t::NULL;
    driver.graph_instantiate(&mut exec, graph, flags & AUTO_FREE)?;
    with(|live| live.execs.insert(exec.as_raw()));
    put(place, exec)
}

fn launch(exec: hipGraphExec_t, stream: hipStream_t) -> Answer {
    check_exec(exec)?;
    enter_on(stream)?.graph_launch(exec, stream)
}

/// Converts the type of a node. HIP has CUDA's numbers from 6.0 on; before, its numbers are greater by one.
fn kind(cuda: u32) -> hipGraphNodeType {
    hipGraphNodeType(if blobs::major() < 6 { cuda + 1 } else { cuda })
}

/// Lists nodes, or only counts them if the list is null. HIP and CUDA agree here.
fn nodes(
    list: *mut hipGraphNode_t,
    count: *mut usize,
    ask: impl FnOnce(*mut hipGraphNode_t, *mut usize) -> Answer,
) -> Answer {
    required(count)?;
    ask(list, count)
}

api! {
    [pfn] fn hipGraphCreate(place: *mut hipGraph_t, flags: c_uint) {
        required(place)?;
        if flags != 0 {
            return Err(hipErrorInvalidValue);
        }
        let mut graph = hipGraph_t::NULL;
        enter()?.graph_create(&mut graph, 0)?;
        keep(graph);
        put(place, graph)
    }
    [pfn] fn hipGraphDestroy(graph: hipGraph_t) {
        if !with(|live| live.graphs.contains(&graph.as_raw())) {
            return Err(hipErrorInvalidValue);
        }
        enter()?.graph_destroy(graph)?;
        with(|live| live.graphs.remove(&graph.as_raw()));
        Ok(())
    }
    [own] fn hipGraphClone(place: *mut hipGraph_t, graph: hipGraph_t) {
        required(place)?;
        let mut clone = hipGraph_t::NULL;
        of(graph)?.graph_clone(&mut clone, graph)?;
        keep(clone);
        put(place, clone)
    }
    [own] fn hipGraphNodeFindInClone(place: *mut hipGraphNode_t, original: hipGraphNode_t, clone: hipGraph_t) {
        required(place)?;
        required(original.0)?;
        let mut node = hipGraphNode_t::NULL;
        of(clone)?.graph_find_in_clone(&mut node, original, clone)?;
        put(place, node)
    }
    [pfn] fn hipGraphAddDependencies(graph: hipGraph_t, from: *const hipGraphNode_t, to: *const hipGraphNode_t,
        count: usize) {
        let driver = of(graph)?;
        if count == 0 {
            return Ok(());
        }
        required(from)?;
        required(to)?;
        driver.graph_add_dependencies(graph, from, to, count)
    }
    [pfn] fn hipGraphGetNodes(graph: hipGraph_t, list: *mut hipGraphNode_t, count: *mut usize) {
        let driver = of(graph)?;
        nodes(list, count, |list, count| driver.graph_nodes(graph, list, count))
    }
    [own] fn hipGraphGetRootNodes(graph: hipGraph_t, list: *mut hipGraphNode_t, count: *mut usize) {
        let driver = of(graph)?;
        nodes(list, count, |list, count| driver.graph_roots(graph, list, count))
    }
    [own] fn hipGraphGetEdges(graph: hipGraph_t, from: *mut hipGraphNode_t, to: *mut hipGraphNode_t,
        count: *mut usize) {
        let driver = of(graph)?;
        nodes(from, count, |from, count| driver.graph_edges(graph, from, to, count))
    }
    [pfn] fn hipGraphNodeGetType(node: hipGraphNode_t, place: *mut hipGraphNodeType) {
        required(node.0)?;
        required(place)?;
        let mut found = 0;
        enter()?.graph_node_type(node, &mut found)?;
        put(place, kind(found))
    }
    [pfn] fn hipGraphChildGraphNodeGetGraph(node: hipGraphNode_t, place: *mut hipGraph_t) {
        required(node.0)?;
        required(place)?;
        let mut graph = hipGraph_t::NULL;
        enter()?.graph_child(node, &mut graph)?;
        with(|live| live.children.insert(graph.as_raw()));
        put(place, graph)
    }
    [pfn] fn hipGraphDestroyNode(node: hipGraphNode_t) {
        required(node.0)?;
        enter()?.graph_destroy_node(node)
    }
    [pfn] fn hipGraphInstantiate(exec: *mut hipGraphExec_t, graph: hipGraph_t, node: *mut hipGraphNode_t,
        log: *mut c_char, size: usize) {
        let _ = (node, size);
        if size > 0 {
            let _ = put(log, 0);
        }
        instantiate(exec, graph, 0)
    }
    [pfn] fn hipGraphInstantiateWithFlags(exec: *mut hipGraphExec_t, graph: hipGraph_t, flags: c_ulonglong) {
        instantiate(exec, graph, flags)
    }
    [pfn] fn hipGraphLaunch(exec: hipGraphExec_t, stream: hipStream_t) { launch(exec, stream) }
    [pfn] fn hipGraphLaunch_spt(exec: hipGraphExec_t, stream: hipStream_t) { launch(exec, per_thread(stream)) }
    [pfn] fn hipGraphUpload(exec: hipGraphExec_t, stream: hipStream_t) {
        check_exec(exec)?;
        enter_on(stream)?.graph_upload(exec, stream)
    }
    [pfn] fn hipGraphExecDestroy(exec: hipGraphExec_t) {
        check_exec(exec)?;
        enter()?.graph_exec_destroy(exec)?;
        with(|live| live.execs.remove(&exec.as_raw()));
        Ok(())
    }
    [pfn] fn hipGraphExecUpdate(exec: hipGraphExec_t, graph: hipGraph_t, node: *mut hipGraphNode_t,
        result: *mut hipGraphExecUpdateResult) {
        required(node)?;
        required(result)?;
        check_exec(exec)?;
        let driver = of(graph)?;
        let (mut at, mut why) = (hipGraphNode_t::NULL, 0);
        let updated = driver.graph_update(exec, graph, &mut at, &mut why);
        put(node, at)?;
        // The reasons have the same numbers as CUDA's.
        put(result, hipGraphExecUpdateResult(why))?;
        updated
    }
    [own] fn hipDeviceGraphMemTrim(device: c_int) {
        crate::state::check_device(device)?;
        Ok(())
    }
}

/// Checks the list of a new node's dependencies.
///
/// # Errors
/// `hipErrorInvalidValue` if the list is null although the count is not 0.
pub(crate) fn dependencies(list: *const hipGraphNode_t, count: usize) -> Answer<*const hipGraphNode_t> {
    if count == 0 {
        return Ok(ptr::null());
    }
    required(list)?;
    Ok(list)
}

/// The driver reads and writes lists of HIP's node handles as lists of its own pointers.
const _: () = assert!(size_of::<hipGraphNode_t>() == size_of::<*mut c_void>());
