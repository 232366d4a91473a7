//! Graph nodes: adding them and changing their parameters, in graphs and in executable graphs.

use std::ffi::{c_uint, c_void};

use hip_sys::types::*;

use crate::callbacks;
use crate::copies::{self, place as location};
use crate::driver::{self, Copy3D, FillNode, HostNode, KernelNode, Side};
use crate::errors::Answer;
use crate::graphs::{check, check_node, context, dependencies, keep_node, of, of_exec};
use crate::modules::function;
use crate::registration::kernel;
use crate::state::{self, api, enter, get, put, required};
use crate::{events, memory};

/// `hipKernelNodeParams` of hip_runtime_api.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct KernelParams {
    block: dim3,
    extra: *mut *mut c_void,
    function: *mut c_void,
    grid: dim3,
    params: *mut *mut c_void,
    shared: c_uint,
}

/// `hipMemsetParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct FillParams {
    dst: *mut c_void,
    element_size: c_uint,
    height: usize,
    pitch: usize,
    value: c_uint,
    width: usize,
}

/// `hipHostNodeParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct HostParams {
    function: hipHostFn_t,
    data: *mut c_void,
}

const _: () = {
    assert!(
        size_of::<KernelParams>() == 64 && size_of::<FillParams>() == 48 && size_of::<HostParams>() == 16
    );
};

/// Converts a kernel node's parameters for CUDA. The function is a host function or a module function's
/// handle.
fn kernel_node(params: *const hipKernelNodeParams) -> Answer<KernelNode> {
    let given = get(params.cast::<KernelParams>())?;
    enter()?;
    let found = kernel(given.function, state::device());
    let found = found.or_else(|code| function(hipFunction_t(given.function)).map_err(|_| code))?;
    if given.grid.count() == 0 || given.block.count() == 0 || given.block.count() > u64::from(found.threads) {
        return Err(hipErrorInvalidConfiguration);
    }
    if !given.params.is_null() && !given.extra.is_null() {
        return Err(hipErrorInvalidValue);
    }
    if !given.extra.is_null() {
        return Err(hipErrorNotSupported);
    }
    Ok(KernelNode {
        function: found.handle,
        grid: driver::sizes(given.grid),
        block: driver::sizes(given.block),
        shared: c_uint::try_from(found.shared(given.shared as usize, given.block.count()))
            .map_err(|_| hipErrorInvalidValue)?,
        params: given.params,
        extra: given.extra,
    })
}

fn fill_node(params: *const hipMemsetParams) -> Answer<FillNode> {
    let given = get(params.cast::<FillParams>())?;
    if !matches!(given.element_size, 1 | 2 | 4) || given.width == 0 || given.height == 0 {
        return Err(hipErrorInvalidValue);
    }
    let row = given.width.checked_mul(given.element_size as usize).ok_or(hipErrorInvalidValue)?;
    if given.height > 1 && given.pitch < row {
        return Err(hipErrorInvalidValue);
    }
    memory::find(given.dst).ok_or(hipErrorInvalidValue)?;
    memory::check(given.dst, row)?;
    Ok(FillNode {
        dst: given.dst.addr(),
        pitch: given.pitch.max(row),
        value: given.value,
        element_size: given.element_size,
        width: given.width,
        height: given.height,
    })
}

fn host_node(params: *const hipHostNodeParams) -> Answer<HostNode> {
    let given = get(params.cast::<HostParams>())?;
    let (function, data) = callbacks::of_graph(given.function.ok_or(hipErrorInvalidValue)?, given.data);
    Ok(HostNode { function, data })
}

/// Describes a copy of bytes as a copy of one row.
fn row(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) -> Answer<Copy3D> {
    copies::check_kind(kind)?;
    if to.is_null() || from.is_null() || bytes == 0 {
        return Err(hipErrorInvalidValue);
    }
    memory::check(to, bytes)?;
    memory::check(from, bytes)?;
    Ok(Copy3D {
        src: Side::of(from.addr(), location(from), bytes, 1),
        dst: Side::of(to.addr(), location(to), bytes, 1),
        extent: [bytes, 1, 1],
    })
}

/// Adds a node through a driver call and returns it to the program.
fn add(
    place: *mut hipGraphNode_t,
    graph: hipGraph_t,
    (list, count): (*const hipGraphNode_t, usize),
    add: impl FnOnce(&'static driver::Driver, *mut hipGraphNode_t, *const hipGraphNode_t) -> Answer,
) -> Answer {
    required(place)?;
    let driver = of(graph)?;
    let list = dependencies(list, count)?;
    let mut node = hipGraphNode_t::NULL;
    add(driver, &mut node, list)?;
    keep_node(node, graph);
    put(place, node)
}

api! {
    [pfn] fn hipGraphAddKernelNode(place: *mut hipGraphNode_t, graph: hipGraph_t, list: *const hipGraphNode_t,
        count: usize, params: *const hipKernelNodeParams) {
        add(place, graph, (list, count), |driver, node, list| {
            driver.graph_add_kernel(node, graph, list, count, &kernel_node(params)?)
        })
    }
    [pfn] fn hipGraphKernelNodeSetParams(node: hipGraphNode_t, params: *const hipKernelNodeParams) {
        check_node(node)?;
        enter()?.graph_set_kernel(node, &kernel_node(params)?)
    }
    [pfn] fn hipGraphExecKernelNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t,
        params: *const hipKernelNodeParams) {
        of_exec(exec, node)?.graph_exec_set_kernel(exec, node, &kernel_node(params)?)
    }
    [own] fn hipGraphAddMemcpyNode(place: *mut hipGraphNode_t, graph: hipGraph_t, list: *const hipGraphNode_t,
        count: usize, params: *const hipMemcpy3DParms) {
        add(place, graph, (list, count), |driver, node, list| {
            let copy = copies::slices(params)?.ok_or(hipErrorInvalidValue)?;
            driver.graph_add_copy(node, graph, list, count, &copy, context()?)
        })
    }
    [own] fn hipGraphAddMemcpyNode1D(place: *mut hipGraphNode_t, graph: hipGraph_t, list: *const hipGraphNode_t,
        count: usize, to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) {
        add(place, graph, (list, count), |driver, node, list| {
            driver.graph_add_copy(node, graph, list, count, &row(to, from, bytes, kind)?, context()?)
        })
    }
    [pfn] fn hipGraphExecMemcpyNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t,
        params: *mut hipMemcpy3DParms) {
        let copy = copies::slices(params)?.ok_or(hipErrorInvalidValue)?;
        of_exec(exec, node)?.graph_exec_set_copy(exec, node, &copy, context()?)
    }
    [pfn] fn hipGraphExecMemcpyNodeSetParams1D(exec: hipGraphExec_t, node: hipGraphNode_t, to: *mut c_void,
        from: *const c_void, bytes: usize, kind: hipMemcpyKind) {
        of_exec(exec, node)?.graph_exec_set_copy(exec, node, &row(to, from, bytes, kind)?, context()?)
    }
    [own] fn hipGraphAddMemsetNode(place: *mut hipGraphNode_t, graph: hipGraph_t, list: *const hipGraphNode_t,
        count: usize, params: *const hipMemsetParams) {
        add(place, graph, (list, count), |driver, node, list| {
            driver.graph_add_fill(node, graph, list, count, &fill_node(params)?, context()?)
        })
    }
    [pfn] fn hipGraphExecMemsetNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t,
        params: *const hipMemsetParams) {
        of_exec(exec, node)?.graph_exec_set_fill(exec, node, &fill_node(params)?, context()?)
    }
    [own] fn hipGraphAddHostNode(place: *mut hipGraphNode_t, graph: hipGraph_t, list: *const hipGraphNode_t,
        count: usize, params: *const hipHostNodeParams) {
        add(place, graph, (list, count), |driver, node, list| {
            driver.graph_add_host(node, graph, list, count, &host_node(params)?)
        })
    }
    [pfn] fn hipGraphExecHostNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t,
        params: *const hipHostNodeParams) {
        of_exec(exec, node)?.graph_exec_set_host(exec, node, &host_node(params)?)
    }
    [own] fn hipGraphAddEmptyNode(place: *mut hipGraphNode_t, graph: hipGraph_t, list: *const hipGraphNode_t,
        count: usize) {
        add(place, graph, (list, count), |driver, node, list| driver.graph_add_empty(node, graph, list, count))
    }
    [own] fn hipGraphAddChildGraphNode(place: *mut hipGraphNode_t, graph: hipGraph_t, list: *const hipGraphNode_t,
        count: usize, child: hipGraph_t) {
        check(child)?;
        add(place, graph, (list, count), |driver, node, list| {
            driver.graph_add_child(node, graph, list, count, child)
        })
    }
    [own] fn hipGraphAddEventRecordNode(place: *mut hipGraphNode_t, graph: hipGraph_t, list: *const hipGraphNode_t,
        count: usize, event: hipEvent_t) {
        events::check(event)?;
        add(place, graph, (list, count), |driver, node, list| {
            events::recorded_by_graph(event);
            driver.graph_add_record(node, graph, list, count, event)
        })
    }
    [own] fn hipGraphAddEventWaitNode(place: *mut hipGraphNode_t, graph: hipGraph_t, list: *const hipGraphNode_t,
        count: usize, event: hipEvent_t) {
        events::check(event)?;
        add(place, graph, (list, count), |driver, node, list| {
            driver.graph_add_wait(node, graph, list, count, event)
        })
    }
}
