//! Graphs: creating, copying and querying them.

use std::collections::BTreeMap;
use std::ffi::c_uint;

use crate::abi::{Answer, Handle, INVALID_VALUE};
use crate::capture::drop_graph;
use crate::gate::{Call, In, Out, enter};
use crate::graph::{Graph, Kind, Node};
use crate::state::State;

/// Returns a handle's graph.
///
/// # Errors
/// `INVALID_VALUE`: there is no such graph.
pub fn graph(state: &State, handle: Handle) -> Answer<&Graph> {
    state.graphs.get(&handle).ok_or(INVALID_VALUE)
}

/// Returns a handle's node.
///
/// # Errors
/// `INVALID_VALUE`: there is no such node.
pub fn node(state: &State, handle: Handle) -> Answer<&Node> {
    graph(state, *state.nodes.get(&handle).ok_or(INVALID_VALUE)?)?.nodes.get(&handle).ok_or(INVALID_VALUE)
}

/// Returns a handle's node for a change.
///
/// # Errors
/// `INVALID_VALUE`: there is no such node.
pub fn node_mut(state: &mut State, handle: Handle) -> Answer<&mut Node> {
    let graph = *state.nodes.get(&handle).ok_or(INVALID_VALUE)?;
    state.graphs.get_mut(&graph).and_then(|graph| graph.nodes.get_mut(&handle)).ok_or(INVALID_VALUE)
}

/// Copies a graph with its child graphs, and returns the copy's handle.
///
/// # Errors
/// `INVALID_VALUE`: there is no such graph.
pub fn copy(state: &mut State, from: Handle, inner: bool) -> Answer<Handle> {
    let original = graph(state, from)?.clone();
    let handle = state.handle();
    let names: BTreeMap<Handle, Handle> = original.nodes.keys().map(|node| (*node, state.handle())).collect();
    let mut copied = Graph { nodes: BTreeMap::new(), inner };
    for (name, mut node) in original.nodes {
        node.origin = name;
        node.after = node.after.iter().filter_map(|before| names.get(before).copied()).collect();
        if let Kind::Child(child) = node.kind {
            node.kind = Kind::Child(copy(state, child, true)?);
        }
        state.nodes.insert(names[&name], handle);
        copied.nodes.insert(names[&name], node);
    }
    state.graphs.insert(handle, copied);
    Ok(handle)
}

/// Writes a list as the interface does: only the length if `to` is null, and otherwise up to `count`
/// elements.
fn list(all: &[Handle], to: Out<Handle>, count: Out<usize>) -> Answer {
    if to.is_null() {
        return count.set(all.len());
    }
    let room = count.get()?;
    for index in 0..room {
        to.at(index).set(all.get(index).copied().unwrap_or(0))?;
    }
    count.set(room.min(all.len()))
}

fn edges(handle: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<usize>) -> Answer {
    let call = enter()?;
    let edges = graph(&call.state, handle)?.edges();
    if from.is_null() != to.is_null() {
        return Err(INVALID_VALUE);
    }
    if from.is_null() {
        return count.set(edges.len());
    }
    let room = count.get()?;
    for index in 0..room {
        let (before, behind) = edges.get(index).copied().unwrap_or((0, 0));
        from.at(index).set(before)?;
        to.at(index).set(behind)?;
    }
    count.set(room.min(edges.len()))
}

/// Returns the nodes that wait for this one.
fn followers(call: &Call, handle: Handle) -> Answer<Vec<Handle>> {
    let own = *call.state.nodes.get(&handle).ok_or(INVALID_VALUE)?;
    let nodes = &graph(&call.state, own)?.nodes;
    Ok(nodes.iter().filter(|(_, node)| node.after.contains(&handle)).map(|(name, _)| *name).collect())
}

/// Pairs of nodes from two arrays.
fn pairs(from: In<Handle>, to: In<Handle>, count: usize) -> Answer<Vec<(Handle, Handle)>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    Ok(from.all(count)?.into_iter().zip(to.all(count)?).collect())
}

fn connect(handle: Handle, from: In<Handle>, to: In<Handle>, count: usize) -> Answer {
    let mut call = enter()?;
    let mut changed = graph(&call.state, handle)?.clone();
    for (before, behind) in pairs(from, to, count)? {
        if !changed.nodes.contains_key(&before) || before == behind {
            return Err(INVALID_VALUE);
        }
        let node = changed.nodes.get_mut(&behind).ok_or(INVALID_VALUE)?;
        if node.after.contains(&before) {
            return Err(INVALID_VALUE);
        }
        node.after.push(before);
    }
    changed.order()?;
    call.state.graphs.insert(handle, changed);
    Ok(())
}

fn disconnect(handle: Handle, from: In<Handle>, to: In<Handle>, count: usize) -> Answer {
    let mut call = enter()?;
    let mut changed = graph(&call.state, handle)?.clone();
    for (before, behind) in pairs(from, to, count)? {
        let node = changed.nodes.get_mut(&behind).ok_or(INVALID_VALUE)?;
        let at = node.after.iter().position(|known| *known == before).ok_or(INVALID_VALUE)?;
        node.after.remove(at);
    }
    call.state.graphs.insert(handle, changed);
    Ok(())
}

crate::api! {
    fn cuGraphCreate(to: Out<Handle>, flags: c_uint) {
        let mut call = enter()?;
        if to.is_null() || flags != 0 {
            return Err(INVALID_VALUE);
        }
        let handle = call.state.handle();
        call.state.graphs.insert(handle, Graph::default());
        to.set(handle)
    }

    fn cuGraphDestroy(handle: Handle) {
        let mut call = enter()?;
        if graph(&call.state, handle)?.inner {
            return Err(INVALID_VALUE);
        }
        drop_graph(&mut call.state, handle);
        Ok(())
    }

    fn cuGraphClone(to: Out<Handle>, from: Handle) {
        let mut call = enter()?;
        if to.is_null() {
            return Err(INVALID_VALUE);
        }
        let copied = copy(&mut call.state, from, false)?;
        to.set(copied)
    }

    fn cuGraphNodeFindInClone(to: Out<Handle>, original: Handle, clone: Handle) {
        let call = enter()?;
        let nodes = &graph(&call.state, clone)?.nodes;
        let found = nodes.iter().find(|(_, node)| node.origin == original && original != 0);
        to.set(*found.ok_or(INVALID_VALUE)?.0)
    }

    fn cuGraphGetNodes(handle: Handle, to: Out<Handle>, count: Out<usize>) {
        let call = enter()?;
        let all: Vec<Handle> = graph(&call.state, handle)?.nodes.keys().copied().collect();
        list(&all, to, count)
    }

    fn cuGraphGetRootNodes(handle: Handle, to: Out<Handle>, count: Out<usize>) {
        let call = enter()?;
        list(&graph(&call.state, handle)?.roots(), to, count)
    }

    fn cuGraphGetEdges(handle: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<usize>) {
        edges(handle, from, to, count)
    }

    fn cuGraphGetEdges_v2(handle: Handle, from: Out<Handle>, to: Out<Handle>, data: Out<u64>, count: Out<usize>) {
        edges(handle, from, to, count)?;
        if from.is_null() {
            return Ok(());
        }
        (0..count.get()?).for_each(|index| data.at(index).offer(0));
        Ok(())
    }

    fn cuGraphNodeGetDependencies(handle: Handle, to: Out<Handle>, count: Out<usize>) {
        let call = enter()?;
        list(&node(&call.state, handle)?.after, to, count)
    }

    fn cuGraphNodeGetDependentNodes(handle: Handle, to: Out<Handle>, count: Out<usize>) {
        let call = enter()?;
        list(&followers(&call, handle)?, to, count)
    }

    fn cuGraphAddDependencies(handle: Handle, from: In<Handle>, to: In<Handle>, count: usize) {
        connect(handle, from, to, count)
    }

    fn cuGraphAddDependencies_v2(
        handle: Handle, from: In<Handle>, to: In<Handle>, _data: In<u64>, count: usize,
    ) {
        connect(handle, from, to, count)
    }

    fn cuGraphRemoveDependencies(handle: Handle, from: In<Handle>, to: In<Handle>, count: usize) {
        disconnect(handle, from, to, count)
    }

    fn cuGraphRemoveDependencies_v2(
        handle: Handle, from: In<Handle>, to: In<Handle>, _data: In<u64>, count: usize,
    ) {
        disconnect(handle, from, to, count)
    }

    /// The nodes that waited for it do not inherit its dependencies.
    fn cuGraphDestroyNode(handle: Handle) {
        let mut call = enter()?;
        node(&call.state, handle)?;
        let own = call.state.nodes.remove(&handle).ok_or(INVALID_VALUE)?;
        let Some(graph) = call.state.graphs.get_mut(&own) else { return Err(INVALID_VALUE) };
        let gone = graph.nodes.remove(&handle);
        for node in graph.nodes.values_mut() {
            node.after.retain(|before| *before != handle);
        }
        if let Some(Kind::Child(inner)) = gone.map(|node| node.kind) {
            drop_graph(&mut call.state, inner);
        }
        Ok(())
    }

    fn cuGraphNodeGetType(handle: Handle, to: Out<c_uint>) {
        let call = enter()?;
        to.set(node(&call.state, handle)?.kind.number())
    }
}
