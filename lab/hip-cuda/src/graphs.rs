//! Graphs: a table of the live ones, and the calls that create, change and launch them.

use std::collections::{HashMap, HashSet};
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hip_sys::types::*;

use crate::blobs;
use crate::driver::{Driver, Opaque};
use crate::errors::Answer;
use crate::state::{api, enter, get, put, required, started};
use crate::stream_table::{enter_on, per_thread};

/// The handles of live graphs, their nodes, and executable graphs.
#[derive(Debug, Default)]
struct Live {
    graphs: HashSet<usize>,
    /// The graphs inside child nodes, with the node. The program cannot destroy them.
    children: HashMap<usize, usize>,
    /// The nodes that the program has seen, with their graphs.
    nodes: HashMap<usize, usize>,
    execs: HashSet<usize>,
}

impl Live {
    /// Removes a node with the graph inside it.
    fn drop_node(&mut self, node: usize) {
        self.nodes.remove(&node);
        let inside: Vec<usize> =
            self.children.extract_if(|_, parent| *parent == node).map(|(graph, _)| graph).collect();
        inside.into_iter().for_each(|graph| self.drop_nodes(graph));
    }

    /// Removes the nodes of a graph that ends.
    fn drop_nodes(&mut self, graph: usize) {
        let nodes: Vec<usize> = self.nodes.extract_if(|_, of| *of == graph).map(|(node, _)| node).collect();
        nodes.into_iter().for_each(|node| self.drop_node(node));
    }
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
    let found =
        with(|live| live.graphs.contains(&graph.as_raw()) || live.children.contains_key(&graph.as_raw()));
    if found { Ok(()) } else { Err(hipErrorInvalidValue) }
}

/// Adds a node to the table, because the program sees its handle.
pub(crate) fn keep_node(node: hipGraphNode_t, graph: hipGraph_t) {
    if !node.0.is_null() {
        with(|live| live.nodes.insert(node.as_raw(), graph.as_raw()));
    }
}

/// Adds a list of nodes to the table. Null handles fill the rest of a list that is too long.
pub(crate) fn keep_nodes(list: *const hipGraphNode_t, count: usize, graph: hipGraph_t) -> Answer {
    if list.is_null() {
        return Ok(());
    }
    (0..count).try_for_each(|index| get(list.wrapping_add(index)).map(|node| keep_node(node, graph)))
}

/// Refuses a handle that is not a live node's.
pub(crate) fn check_node(node: hipGraphNode_t) -> Answer {
    if with(|live| live.nodes.contains_key(&node.as_raw())) { Ok(()) } else { Err(hipErrorInvalidValue) }
}

/// Refuses a list of nodes that is null or has a handle that is not a live node's.
pub(crate) fn check_nodes(list: *const hipGraphNode_t, count: usize) -> Answer {
    (0..count).try_for_each(|index| get(list.wrapping_add(index)).and_then(check_node))
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

/// Checks an executable graph and a node, and returns the driver.
pub(crate) fn of_exec(exec: hipGraphExec_t, node: hipGraphNode_t) -> Answer<&'static Driver> {
    check_exec(exec)?;
    check_node(node)?;
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

/// Lists nodes of a graph, or only counts them if the list is null. HIP and CUDA agree here.
fn nodes(
    graph: hipGraph_t,
    list: *mut hipGraphNode_t,
    count: *mut usize,
    ask: impl FnOnce(&Driver) -> Answer,
) -> Answer {
    let driver = of(graph)?;
    required(count)?;
    ask(driver)?;
    keep_nodes(list, get(count)?, graph)
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
        // It leaves the table first: once it is destroyed, another thread may get the same handle.
        let known = with(|live| {
            live.drop_nodes(graph.as_raw());
            live.graphs.remove(&graph.as_raw())
        });
        if !known {
            return Err(hipErrorInvalidValue);
        }
        enter()?.graph_destroy(graph)
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
        check_node(original)?;
        let mut node = hipGraphNode_t::NULL;
        of(clone)?.graph_find_in_clone(&mut node, original, clone)?;
        keep_node(node, clone);
        put(place, node)
    }
    [pfn] fn hipGraphAddDependencies(graph: hipGraph_t, from: *const hipGraphNode_t, to: *const hipGraphNode_t,
        count: usize) {
        let driver = of(graph)?;
        if count == 0 {
            return Ok(());
        }
        check_nodes(from, count)?;
        check_nodes(to, count)?;
        driver.graph_add_dependencies(graph, from, to, count)
    }
    [pfn] fn hipGraphGetNodes(graph: hipGraph_t, list: *mut hipGraphNode_t, count: *mut usize) {
        nodes(graph, list, count, |driver| driver.graph_nodes(graph, list, count))
    }
    [own] fn hipGraphGetRootNodes(graph: hipGraph_t, list: *mut hipGraphNode_t, count: *mut usize) {
        nodes(graph, list, count, |driver| driver.graph_roots(graph, list, count))
    }
    [own] fn hipGraphGetEdges(graph: hipGraph_t, from: *mut hipGraphNode_t, to: *mut hipGraphNode_t,
        count: *mut usize) {
        nodes(graph, from, count, |driver| driver.graph_edges(graph, from, to, count))?;
        keep_nodes(to, get(count)?, graph)
    }
    [pfn] fn hipGraphNodeGetType(node: hipGraphNode_t, place: *mut hipGraphNodeType) {
        check_node(node)?;
        required(place)?;
        let mut found = 0;
        enter()?.graph_node_type(node, &mut found)?;
        put(place, kind(found))
    }
    [pfn] fn hipGraphChildGraphNodeGetGraph(node: hipGraphNode_t, place: *mut hipGraph_t) {
        check_node(node)?;
        required(place)?;
        let mut graph = hipGraph_t::NULL;
        enter()?.graph_child(node, &mut graph)?;
        with(|live| live.children.insert(graph.as_raw(), node.as_raw()));
        put(place, graph)
    }
    [pfn] fn hipGraphDestroyNode(node: hipGraphNode_t) {
        check_node(node)?;
        let driver = enter()?;
        with(|live| live.drop_node(node.as_raw()));
        driver.graph_destroy_node(node)
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
        if !with(|live| live.execs.remove(&exec.as_raw())) {
            return Err(hipErrorInvalidValue);
        }
        enter()?.graph_exec_destroy(exec)
    }
    [pfn] fn hipGraphExecUpdate(exec: hipGraphExec_t, graph: hipGraph_t, node: *mut hipGraphNode_t,
        result: *mut hipGraphExecUpdateResult) {
        required(node)?;
        required(result)?;
        check_exec(exec)?;
        let driver = of(graph)?;
        let (mut at, mut why) = (hipGraphNode_t::NULL, 0);
        let updated = driver.graph_update(exec, graph, &mut at, &mut why);
        keep_node(at, graph);
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
/// `hipErrorInvalidValue` if the list is null although the count is not 0, or has a handle that is not a node's.
pub(crate) fn dependencies(list: *const hipGraphNode_t, count: usize) -> Answer<*const hipGraphNode_t> {
    if count == 0 {
        return Ok(ptr::null());
    }
    check_nodes(list, count)?;
    Ok(list)
}

/// The driver reads and writes lists of HIP's node handles as lists of its own pointers.
const _: () = assert!(size_of::<hipGraphNode_t>() == size_of::<*mut c_void>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_end_with_their_graph() {
        let [graph, inner, node, child, leaf, other] = [0x51, 0x52, 0x53, 0x54, 0x55, 0x56];
        let handle = hipGraphNode_t::from_raw;
        let graph_of = hipGraph_t::from_raw;
        for (node, graph) in [(node, graph), (child, graph), (leaf, inner), (other, 0x57)] {
            keep_node(handle(node), graph_of(graph));
        }
        with(|live| live.children.insert(inner, child));
        let list = [node, child, leaf].map(handle);
        assert_eq!(check_nodes(list.as_ptr(), 3), Ok(()));
        assert_eq!(check_nodes(ptr::null(), 1), Err(hipErrorInvalidValue));
        with(|live| live.drop_nodes(graph));
        for gone in list {
            assert_eq!(check_node(gone), Err(hipErrorInvalidValue));
        }
        assert_eq!(check(graph_of(inner)), Err(hipErrorInvalidValue), "the graph inside a node");
        assert_eq!(check_node(handle(other)), Ok(()));
    }
}
