//! The functions that begin, end and query captures.

use std::ffi::c_uint;

use crate::abi::{Answer, CAPTURE_IMPLICIT, Handle, ILLEGAL_STATE, INVALID_VALUE};
use crate::gate::{Call, In, Out, enter};

/// Returns a stream's `CUstreamCaptureStatus` (none, active, invalidated), its capture, and the stream
/// itself.
fn status(call: &mut Call, argument: Handle) -> Answer<(c_uint, u64, Handle)> {
    let stream = call.stream(argument)?;
    let known = &call.state.streams[&stream];
    if known.legacy && call.state.blocking(call.context).any(|other| other.capture.is_some()) {
        // Unlike other uses of the legacy stream, a query leaves the capture valid.
        return Err(CAPTURE_IMPLICIT);
    }
    Ok(
        match known.capture.as_ref().and_then(|(number, _)| Some((number, call.state.captures.get(number)?)))
        {
            None => (0, 0, stream),
            Some((number, capture)) => (if capture.invalid { 2 } else { 1 }, *number, stream),
        },
    )
}

/// Where `cuStreamGetCaptureInfo` writes its results.
struct Shown {
    status: Out<c_uint>,
    id: Out<u64>,
    graph: Out<Handle>,
    nodes: Out<*const Handle>,
    count: Out<usize>,
}

fn show(argument: Handle, to: Shown) -> Answer {
    let mut call = enter()?;
    let (status, id, stream) = status(&mut call, argument)?;
    to.status.set(status)?;
    if status != 1 {
        return Ok(());
    }
    to.id.offer(id);
    to.graph.offer(call.state.captures.get(&id).ok_or(ILLEGAL_STATE)?.graph);
    let known = call.state.streams.get_mut(&stream).ok_or(ILLEGAL_STATE)?;
    let tail = known.capture.as_ref().map(|(_, tail)| tail.clone()).unwrap_or_default();
    to.count.offer(tail.len());
    known.shown = tail.into();
    to.nodes.offer(known.shown.as_ptr());
    Ok(())
}

fn replace(argument: Handle, nodes: In<Handle>, count: usize, flags: c_uint) -> Answer {
    let mut call = enter()?;
    let stream = call.stream(argument)?;
    let (number, mut tail) = call.capture_of(stream)?.ok_or(ILLEGAL_STATE)?;
    let nodes = if count == 0 { Vec::new() } else { nodes.all(count)? };
    let capture = call.state.captures.get(&number).ok_or(ILLEGAL_STATE)?;
    call.state.graphs.get(&capture.graph).ok_or(ILLEGAL_STATE)?.known(&nodes)?;
    match flags {
        // `CU_STREAM_ADD_CAPTURE_DEPENDENCIES` adds to the dependencies of the next node; 1 replaces them.
        0 => tail.extend(nodes.iter().filter(|node| !tail.contains(node)).copied().collect::<Vec<_>>()),
        1 => {
            if let Some(capture) = call.state.captures.get_mut(&number) {
                capture.released.append(&mut tail);
            }
            tail = nodes;
        }
        _ => return Err(INVALID_VALUE),
    }
    call.state.streams.get_mut(&stream).ok_or(ILLEGAL_STATE)?.capture = Some((number, tail));
    Ok(())
}

crate::api! {
    fn cuStreamBeginCapture(stream: Handle) {
        enter()?.begin(stream, 0, None)
    }

    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) {
        enter()?.begin(stream, mode, None)
    }

    fn cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, nodes: In<Handle>, _edges: In<u64>, count: usize, mode: c_uint,
    ) {
        let nodes = if count == 0 { Vec::new() } else { nodes.all(count)? };
        enter()?.begin(stream, mode, Some((graph, nodes)))
    }

    fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) {
        let mut call = enter()?;
        let ended = call.end(stream);
        graph.offer(ended.unwrap_or(0));
        ended.map(|_| ())
    }

    fn cuStreamIsCapturing(stream: Handle, to: Out<c_uint>) {
        let mut call = enter()?;
        let (status, ..) = status(&mut call, stream)?;
        to.set(status)
    }

    fn cuStreamGetCaptureInfo(stream: Handle, to: Out<c_uint>, id: Out<u64>) {
        let mut call = enter()?;
        let (status, number, _) = status(&mut call, stream)?;
        to.set(status)?;
        if status == 1 {
            id.offer(number);
        }
        Ok(())
    }

    fn cuStreamGetCaptureInfo_v2(
        stream: Handle, status: Out<c_uint>, id: Out<u64>, graph: Out<Handle>, nodes: Out<*const Handle>,
        count: Out<usize>,
    ) {
        show(stream, Shown { status, id, graph, nodes, count })
    }

    /// Edges have no data here.
    fn cuStreamGetCaptureInfo_v3(
        stream: Handle, status: Out<c_uint>, id: Out<u64>, graph: Out<Handle>, nodes: Out<*const Handle>,
        edges: Out<*const u64>, count: Out<usize>,
    ) {
        edges.offer(std::ptr::null());
        show(stream, Shown { status, id, graph, nodes, count })
    }

    fn cuStreamUpdateCaptureDependencies(stream: Handle, nodes: In<Handle>, count: usize, flags: c_uint) {
        replace(stream, nodes, count, flags)
    }

    fn cuStreamUpdateCaptureDependencies_v2(
        stream: Handle, nodes: In<Handle>, _edges: In<u64>, count: usize, flags: c_uint,
    ) {
        replace(stream, nodes, count, flags)
    }
}
