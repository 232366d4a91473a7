//! Graph nodes: adding them, and reading and changing their parameters.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use crate::abi::{
    Answer, Handle, HostNodeParams, INVALID_HANDLE, INVALID_VALUE, KernelNodeParams, KernelNodeParamsV1,
    Memcpy3D, MemsetNodeParams,
};
use crate::capture::add_node;
use crate::copy::plan_box;
use crate::fill;
use crate::gate::{Call, In, Out, enter};
use crate::graph::Kind;
use crate::graph_api::{copy, graph, node, node_mut};
use crate::launch::{self, Arguments, Size};
use crate::work::{User, Work};

/// The type and the command of a node.
pub type Content = (Kind, Work);

/// Makes the content of a kernel node.
///
/// # Errors
/// Those of [`launch::plan`]; `INVALID_VALUE` for null.
pub fn kernel(call: &Call, params: In<KernelNodeParamsV1>) -> Answer<Content> {
    let params = params.get()?;
    let size = Size { grid: params.grid, block: params.block, shared: params.shared };
    let from = Arguments {
        params: In::from_address(params.params as usize),
        extra: In::from_address(params.extra as usize),
    };
    let launch = launch::plan(call, params.func, size, from, false)?;
    Ok((Kind::Kernel, Work::Kernel(Arc::new(launch))))
}

/// Makes the content of a node that copies.
///
/// # Errors
/// Those of [`plan_box`]; `INVALID_VALUE` for null.
pub fn memcpy(params: In<Memcpy3D>) -> Answer<Content> {
    let params = params.get()?;
    let work = plan_box(&params)?.map_or(Work::Nothing, Work::Copy);
    Ok((Kind::Memcpy(Box::new(params)), work))
}

/// Makes the content of a node that fills.
///
/// # Errors
/// Those of [`fill::plan`]; `INVALID_VALUE` for null.
pub fn memset(params: In<MemsetNodeParams>) -> Answer<Content> {
    let params = params.get()?;
    Ok((Kind::Memset(params), fill::plan(&params)?.map_or(Work::Nothing, Work::Fill)))
}

/// Makes the content of a node that calls a function of the program.
///
/// # Errors
/// `INVALID_VALUE`: the pointer or the function is null.
pub fn host(params: In<HostNodeParams>) -> Answer<Content> {
    let params = params.get()?;
    let function = params.function.ok_or(INVALID_VALUE)?;
    Ok((Kind::Host(params), Work::Host(function, User(params.user as *mut _))))
}

/// The place of a new node: the graph, the dependencies, and where its handle goes.
struct Place {
    to: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
}

fn add(place: Place, content: impl FnOnce(&mut Call) -> Answer<Content>) -> Answer {
    let mut call = enter()?;
    if place.to.is_null() {
        return Err(INVALID_VALUE);
    }
    let after = if place.count == 0 { Vec::new() } else { place.after.all(place.count)? };
    graph(&call.state, place.graph)?.known(&after)?;
    let (kind, work) = content(&mut call)?;
    let node = add_node(&mut call.state, place.graph, kind, work, &after)?;
    place.to.set(node)
}

/// Replaces a node's content by another one of the same type.
fn set(handle: Handle, content: impl FnOnce(&Call) -> Answer<Content>) -> Answer {
    let mut call = enter()?;
    let known = node(&call.state, handle)?.kind.number();
    let (kind, work) = content(&call)?;
    if kind.number() != known {
        return Err(INVALID_VALUE);
    }
    let node = node_mut(&mut call.state, handle)?;
    (node.kind, node.work) = (kind, work);
    Ok(())
}

/// Checks an event's handle and returns it.
///
/// # Errors
/// `INVALID_HANDLE`: there is no such event.
pub fn event(call: &Call, handle: Handle) -> Answer<Handle> {
    call.state.events.get(&handle).map(|_| handle).ok_or(INVALID_HANDLE)
}

/// Returns a kernel node's parameters. The addresses in them are valid until the node changes.
fn kernel_params(handle: Handle) -> Answer<KernelNodeParamsV1> {
    let call = enter()?;
    let Work::Kernel(launch) = &node(&call.state, handle)?.work else { return Err(INVALID_VALUE) };
    Ok(KernelNodeParamsV1 {
        func: launch.handle,
        grid: launch.grid,
        block: launch.block,
        shared: launch.shared,
        params: launch.addresses.as_ptr() as *mut _,
        extra: std::ptr::null_mut(),
    })
}

crate::api! {
    fn cuGraphAddKernelNode(
        to: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<KernelNodeParamsV1>,
    ) {
        add(Place { to, graph, after, count }, |call| kernel(call, params))
    }

    fn cuGraphAddKernelNode_v2(
        to: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<KernelNodeParams>,
    ) {
        add(Place { to, graph, after, count }, |call| kernel(call, In::from_address(params.address())))
    }

    fn cuGraphAddMemcpyNode(
        to: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<Memcpy3D>, _context: Handle,
    ) {
        add(Place { to, graph, after, count }, |_| memcpy(params))
    }

    fn cuGraphAddMemsetNode(
        to: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<MemsetNodeParams>,
        _context: Handle,
    ) {
        add(Place { to, graph, after, count }, |_| memset(params))
    }

    fn cuGraphAddHostNode(
        to: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, params: In<HostNodeParams>,
    ) {
        add(Place { to, graph, after, count }, |_| host(params))
    }

    fn cuGraphAddEmptyNode(to: Out<Handle>, graph: Handle, after: In<Handle>, count: usize) {
        add(Place { to, graph, after, count }, |_| Ok((Kind::Empty, Work::Nothing)))
    }

    /// The child is copied.
    fn cuGraphAddChildGraphNode(
        to: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, child: Handle,
    ) {
        add(Place { to, graph, after, count }, |call| {
            Ok((Kind::Child(copy(&mut call.state, child, true)?), Work::Nothing))
        })
    }

    fn cuGraphAddEventRecordNode(
        to: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, recorded: Handle,
    ) {
        add(Place { to, graph, after, count }, |call| Ok((Kind::EventRecord(event(call, recorded)?), Work::Nothing)))
    }

    fn cuGraphAddEventWaitNode(
        to: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, waited: Handle,
    ) {
        add(Place { to, graph, after, count }, |call| Ok((Kind::EventWait(event(call, waited)?), Work::Nothing)))
    }

    fn cuGraphKernelNodeGetParams(handle: Handle, to: Out<KernelNodeParamsV1>) {
        to.set(kernel_params(handle)?)
    }

    fn cuGraphKernelNodeGetParams_v2(handle: Handle, to: Out<KernelNodeParams>) {
        to.set(KernelNodeParams { v1: kernel_params(handle)?, kern: 0, ctx: 0 })
    }

    fn cuGraphKernelNodeSetParams(handle: Handle, params: In<KernelNodeParamsV1>) {
        set(handle, |call| kernel(call, params))
    }

    fn cuGraphKernelNodeSetParams_v2(handle: Handle, params: In<KernelNodeParams>) {
        set(handle, |call| kernel(call, In::from_address(params.address())))
    }

    /// The attributes of kernel nodes are about caches, clusters and cooperative launches, and have no effect
    /// here.
    fn cuGraphKernelNodeCopyAttributes(dst: Handle, src: Handle) {
        let call = enter()?;
        let kernels = [dst, src].map(|handle| node(&call.state, handle).map(|node| node.kind.number()));
        if kernels == [Ok(0), Ok(0)] { Ok(()) } else { Err(INVALID_VALUE) }
    }

    fn cuGraphMemcpyNodeGetParams(handle: Handle, to: Out<Memcpy3D>) {
        let call = enter()?;
        let Kind::Memcpy(params) = &node(&call.state, handle)?.kind else { return Err(INVALID_VALUE) };
        to.set(**params)
    }

    fn cuGraphMemcpyNodeSetParams(handle: Handle, params: In<Memcpy3D>) {
        set(handle, |_| memcpy(params))
    }

    fn cuGraphMemsetNodeGetParams(handle: Handle, to: Out<MemsetNodeParams>) {
        let call = enter()?;
        let Kind::Memset(params) = &node(&call.state, handle)?.kind else { return Err(INVALID_VALUE) };
        to.set(*params)
    }

    fn cuGraphMemsetNodeSetParams(handle: Handle, params: In<MemsetNodeParams>) {
        set(handle, |_| memset(params))
    }

    fn cuGraphHostNodeGetParams(handle: Handle, to: Out<HostNodeParams>) {
        let call = enter()?;
        let Kind::Host(params) = &node(&call.state, handle)?.kind else { return Err(INVALID_VALUE) };
        to.set(*params)
    }

    fn cuGraphHostNodeSetParams(handle: Handle, params: In<HostNodeParams>) {
        set(handle, |_| host(params))
    }

    fn cuGraphChildGraphNodeGetGraph(handle: Handle, to: Out<Handle>) {
        let call = enter()?;
        let Kind::Child(inner) = node(&call.state, handle)?.kind else { return Err(INVALID_VALUE) };
        to.set(inner)
    }

    fn cuGraphEventRecordNodeGetEvent(handle: Handle, to: Out<Handle>) {
        let call = enter()?;
        let Kind::EventRecord(event) = node(&call.state, handle)?.kind else { return Err(INVALID_VALUE) };
        to.set(event)
    }

    fn cuGraphEventRecordNodeSetEvent(handle: Handle, recorded: Handle) {
        set(handle, |call| Ok((Kind::EventRecord(event(call, recorded)?), Work::Nothing)))
    }

    fn cuGraphEventWaitNodeGetEvent(handle: Handle, to: Out<Handle>) {
        let call = enter()?;
        let Kind::EventWait(event) = node(&call.state, handle)?.kind else { return Err(INVALID_VALUE) };
        to.set(event)
    }

    fn cuGraphEventWaitNodeSetEvent(handle: Handle, waited: Handle) {
        set(handle, |call| Ok((Kind::EventWait(event(call, waited)?), Work::Nothing)))
    }

    /// The address of the memory that a node frees.
    fn cuGraphMemFreeNodeGetParams(handle: Handle, to: Out<usize>) {
        let call = enter()?;
        let Kind::Free(address) = node(&call.state, handle)?.kind else { return Err(INVALID_VALUE) };
        to.set(address)
    }

    fn cuGraphNodeSetEnabled(exec: Handle, handle: Handle, enabled: c_uint) {
        let mut call = enter()?;
        let exec = call.state.execs.get_mut(&exec).ok_or(INVALID_VALUE)?;
        // Only kernels, copies and fills can be disabled.
        match exec.graph.nodes.get(&handle).map(|node| node.kind.number()) {
            Some(0..=2) if enabled != 0 => exec.disabled.remove(&handle),
            Some(0..=2) => exec.disabled.insert(handle),
            _ => return Err(INVALID_VALUE),
        };
        Ok(())
    }

    fn cuGraphNodeGetEnabled(exec: Handle, handle: Handle, to: Out<c_uint>) {
        let call = enter()?;
        let exec = call.state.execs.get(&exec).ok_or(INVALID_VALUE)?;
        exec.graph.nodes.get(&handle).ok_or(INVALID_VALUE)?;
        to.set(c_int::from(!exec.disabled.contains(&handle)) as c_uint)
    }
}
