//! Executable graphs: instantiating, updating and launching them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_char, c_uint};
use std::sync::Arc;

use crate::abi::{
    Answer, GRAPH_EXEC_UPDATE_FAILURE, Handle, HostNodeParams, INVALID_HANDLE, INVALID_VALUE,
    InstantiateParams, KernelNodeParams, KernelNodeParamsV1, Memcpy3D, MemsetNodeParams, UpdateResult,
};
use crate::engine;
use crate::gate::{Call, In, Out, enter};
use crate::graph::{Difference, Exec, Graph, Kind};
use crate::graph_api::graph;
use crate::graph_nodes::{self, Content};
use crate::state::State;
use crate::work::{Plan, Stamp, Work};

/// The `CUgraphInstantiate_flags` that are accepted: free memory at launch, upload, use node priorities.
const FLAGS: u64 = 1 | 2 | 8;

/// Makes an executable graph, with its child graphs.
fn instantiate(state: &State, handle: Handle, flags: u64) -> Answer<Exec> {
    let known = graph(state, handle)?;
    known.order()?;
    let mut children = BTreeMap::new();
    for (name, node) in &known.nodes {
        if let Kind::Child(inner) = node.kind {
            children.insert(*name, instantiate(state, inner, flags)?);
        }
    }
    Ok(Exec { graph: known.clone(), children, disabled: BTreeSet::new(), flags, last: 0 })
}

fn add(to: Out<Handle>, handle: Handle, flags: u64) -> Answer {
    let mut call = enter()?;
    if to.is_null() || flags & !FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    // A graph is incomplete while a capture adds nodes to it.
    if call.state.captures.values().any(|capture| capture.graph == handle) {
        return Err(INVALID_VALUE);
    }
    let exec = instantiate(&call.state, handle, flags)?;
    let own = call.state.handle();
    call.state.execs.insert(own, exec);
    to.set(own)
}

/// Instantiates a graph like the functions of CUDA 11, which describe errors by a node and a text. Both are
/// empty here.
fn add_with_log(to: Out<Handle>, handle: Handle, node: Out<Handle>, log: Out<c_char>, len: usize) -> Answer {
    node.offer(0);
    if len > 0 {
        log.offer(0);
    }
    add(to, handle, 0)
}

/// The events of a launch: the records that it makes, and the commands that it waits for.
#[derive(Default)]
struct Events {
    recorded: Vec<(Handle, Arc<Stamp>)>,
    after: Vec<u64>,
}

/// Makes the steps of a launch, and collects its events.
fn plan(state: &State, exec: &Exec, events: &mut Events) -> Answer<Plan> {
    let order = exec.graph.order()?;
    let places: BTreeMap<Handle, usize> = order.iter().enumerate().map(|(at, node)| (*node, at)).collect();
    let mut steps = Vec::new();
    for name in &order {
        let node = &exec.graph.nodes[name];
        let work = match &node.kind {
            _ if exec.disabled.contains(name) => Work::Nothing,
            Kind::Child(_) => match exec.children.get(name) {
                Some(child) => Work::Graph(Arc::new(plan(state, child, events)?)),
                None => Work::Nothing,
            },
            Kind::EventRecord(event) => match state.events.get(event) {
                Some(known) => {
                    let shared = known.shared.as_ref().map(|(page, _)| (page.clone(), page.record()));
                    let stamp = Arc::new(Stamp::new(shared));
                    events.recorded.push((*event, stamp.clone()));
                    Work::Record(stamp)
                }
                None => return Err(INVALID_HANDLE),
            },
            Kind::EventWait(event) => match state.events.get(event) {
                Some(known) => {
                    // This is the last record before this launch. If the launch records the event itself, an
                    // edge of the graph orders the record and the wait.
                    events.after.extend(known.record.iter().map(|(command, _)| *command));
                    match &known.shared {
                        Some((page, _)) => Work::Await(page.clone(), page.latest()),
                        None => Work::Nothing,
                    }
                }
                None => return Err(INVALID_HANDLE),
            },
            _ => node.work.clone(),
        };
        let after = node.after.iter().filter_map(|before| places.get(before).copied()).collect();
        steps.push((work, after));
    }
    Ok(Plan { steps })
}

/// Adds a copy of an executable graph to the tables. A capture of its launch uses the copy as a child graph.
fn as_child(state: &mut State, exec: &Exec) -> Handle {
    let handle = state.handle();
    let names: BTreeMap<Handle, Handle> =
        exec.graph.nodes.keys().map(|node| (*node, state.handle())).collect();
    let mut inner = Graph { nodes: BTreeMap::new(), inner: true };
    for (name, node) in &exec.graph.nodes {
        let mut node = node.clone();
        node.origin = *name;
        node.after = node.after.iter().filter_map(|before| names.get(before).copied()).collect();
        if let (Kind::Child(_), Some(child)) = (&node.kind, exec.children.get(name)) {
            node.kind = Kind::Child(as_child(state, child));
        }
        if exec.disabled.contains(name) {
            (node.kind, node.work) = (Kind::Empty, Work::Nothing);
        }
        state.nodes.insert(names[name], handle);
        inner.nodes.insert(names[name], node);
    }
    state.graphs.insert(handle, inner);
    handle
}

fn launch(call: &mut Call, handle: Handle, argument: Handle) -> Answer {
    let exec = call.state.execs.get(&handle).ok_or(INVALID_VALUE)?.clone();
    let stream = call.stream(argument)?;
    if call.capture_of(stream)?.is_some() {
        let child = as_child(&mut call.state, &exec);
        return call.add_captured(stream, Kind::Child(child), Work::Nothing).map(|_| ());
    }
    let mut events = Events::default();
    let plan = Arc::new(plan(&call.state, &exec, &mut events)?);
    events.after.push(exec.last);
    let command = call.enqueue_behind(argument, Work::Graph(plan), &events.after, || Kind::Empty)?;
    let Some(command) = command else { return Ok(()) };
    if let Some(exec) = call.state.execs.get_mut(&handle) {
        exec.last = command;
    }
    for (event, stamp) in events.recorded {
        if let Some(event) = call.state.events.get_mut(&event) {
            event.record = Some((command, stamp));
            event.captured = None;
        }
    }
    Ok(())
}

fn update(handle: Handle, with: Handle) -> Answer<Result<(), Difference>> {
    let mut call = enter()?;
    let new = instantiate(&call.state, with, 0)?;
    let old = call.state.execs.get(&handle).ok_or(INVALID_VALUE)?;
    match old.update(&new.graph, new.children) {
        Ok(updated) => {
            call.state.execs.insert(handle, updated);
            Ok(Ok(()))
        }
        Err(difference) => Ok(Err(difference)),
    }
}

/// Replaces the content of an executable graph's node. Earlier launches keep the old content.
fn set(handle: Handle, node: Handle, content: impl FnOnce(&Call) -> Answer<Content>) -> Answer {
    let mut call = enter()?;
    let exec = call.state.execs.get(&handle).ok_or(INVALID_VALUE)?;
    let known = exec.graph.nodes.get(&node).ok_or(INVALID_VALUE)?.kind.number();
    let (kind, work) = content(&call)?;
    if kind.number() != known {
        return Err(INVALID_VALUE);
    }
    let node = call.state.execs.get_mut(&handle).and_then(|exec| exec.graph.nodes.get_mut(&node));
    let node = node.ok_or(INVALID_VALUE)?;
    (node.kind, node.work) = (kind, work);
    Ok(())
}

crate::api! {
    fn cuGraphInstantiate_v2(
        to: Out<Handle>, graph: Handle, error_node: Out<Handle>, log: Out<c_char>, len: usize,
    ) {
        add_with_log(to, graph, error_node, log, len)
    }

    fn cuGraphInstantiate(
        to: Out<Handle>, graph: Handle, error_node: Out<Handle>, log: Out<c_char>, len: usize,
    ) {
        add_with_log(to, graph, error_node, log, len)
    }

    fn cuGraphInstantiateWithFlags(to: Out<Handle>, graph: Handle, flags: u64) {
        add(to, graph, flags)
    }

    fn cuGraphInstantiateWithParams(to: Out<Handle>, graph: Handle, params: Out<InstantiateParams>) {
        let mut known = params.get()?;
        let added = add(to, graph, known.flags);
        // `CUDA_GRAPH_INSTANTIATE_SUCCESS` or `_ERROR`.
        known.result = added.is_err() as c_uint;
        known.error_node = 0;
        params.set(known)?;
        added
    }

    fn cuGraphExecGetFlags(exec: Handle, to: Out<u64>) {
        let call = enter()?;
        to.set(call.state.execs.get(&exec).ok_or(INVALID_VALUE)?.flags)
    }

    /// Earlier launches still run.
    fn cuGraphExecDestroy(exec: Handle) {
        let mut call = enter()?;
        call.state.execs.remove(&exec).map(|_| ()).ok_or(INVALID_VALUE)
    }

    fn cuGraphLaunch(exec: Handle, stream: Handle) {
        launch(&mut enter()?, exec, stream)
    }

    /// There is nothing to upload, so the call only submits an empty command.
    fn cuGraphUpload(exec: Handle, argument: Handle) {
        let mut call = enter()?;
        call.state.execs.get(&exec).ok_or(INVALID_VALUE)?;
        let stream = call.stream(argument)?;
        call.not_capturing(stream)?;
        engine::submit(&mut call.state, stream, Work::Nothing, &[]).map(|_| ())
    }

    /// The function of CUDA 11, which returns the node and the reason of a refusal separately.
    fn cuGraphExecUpdate(exec: Handle, graph: Handle, error_node: Out<Handle>, result: Out<c_uint>) {
        match update(exec, graph)? {
            Ok(()) => {
                error_node.offer(0);
                result.offer(0);
                Ok(())
            }
            Err(difference) => {
                error_node.offer(difference.node);
                result.offer(difference.result);
                Err(GRAPH_EXEC_UPDATE_FAILURE)
            }
        }
    }

    fn cuGraphExecUpdate_v2(exec: Handle, graph: Handle, to: Out<UpdateResult>) {
        let updated = update(exec, graph)?;
        let (result, node) = updated.err().map_or((0, 0), |difference| (difference.result, difference.node));
        to.offer(UpdateResult { result, node, from: 0 });
        updated.map_err(|_| GRAPH_EXEC_UPDATE_FAILURE)
    }

    fn cuGraphExecKernelNodeSetParams(exec: Handle, node: Handle, params: In<KernelNodeParamsV1>) {
        set(exec, node, |call| graph_nodes::kernel(call, params))
    }

    fn cuGraphExecKernelNodeSetParams_v2(exec: Handle, node: Handle, params: In<KernelNodeParams>) {
        set(exec, node, |call| graph_nodes::kernel(call, In::from_address(params.address())))
    }

    fn cuGraphExecMemcpyNodeSetParams(exec: Handle, node: Handle, params: In<Memcpy3D>, _context: Handle) {
        set(exec, node, |_| graph_nodes::memcpy(params))
    }

    fn cuGraphExecMemsetNodeSetParams(exec: Handle, node: Handle, params: In<MemsetNodeParams>, _context: Handle) {
        set(exec, node, |_| graph_nodes::memset(params))
    }

    fn cuGraphExecHostNodeSetParams(exec: Handle, node: Handle, params: In<HostNodeParams>) {
        set(exec, node, |_| graph_nodes::host(params))
    }

    fn cuGraphExecEventRecordNodeSetEvent(exec: Handle, node: Handle, recorded: Handle) {
        set(exec, node, |call| Ok((Kind::EventRecord(graph_nodes::event(call, recorded)?), Work::Nothing)))
    }

    fn cuGraphExecEventWaitNodeSetEvent(exec: Handle, node: Handle, waited: Handle) {
        set(exec, node, |call| Ok((Kind::EventWait(graph_nodes::event(call, waited)?), Work::Nothing)))
    }

    fn cuGraphExecChildGraphNodeSetParams(exec: Handle, node: Handle, child: Handle) {
        let mut call = enter()?;
        let new = instantiate(&call.state, child, 0)?;
        let known = call.state.execs.get_mut(&exec).ok_or(INVALID_VALUE)?;
        let old = known.children.get(&node).ok_or(INVALID_VALUE)?;
        let updated = old.update(&new.graph, new.children).map_err(|_| INVALID_VALUE)?;
        known.children.insert(node, updated);
        Ok(())
    }
}
