//! Captures: how commands become nodes of a graph, which calls a capture forbids, and how it ends.
//!
//! Source: CUDA Driver API, "Stream management" (`cuStreamBeginCapture_v2`,
//! `cuThreadExchangeStreamCaptureMode`), and CUDA C++ Programming Guide, "Creating a Graph Using Stream
//! Capture".

use crate::abi::{
    Answer, CAPTURE_IMPLICIT, CAPTURE_INVALIDATED, CAPTURE_ISOLATION, CAPTURE_MERGE, CAPTURE_UNJOINED,
    CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED, CAPTURE_WRONG_THREAD, CAPTURED_EVENT, CUresult, Handle,
    ILLEGAL_STATE, INVALID_VALUE,
};
use crate::engine;
use crate::gate::Call;
use crate::graph::{Graph, Kind, Node};
use crate::state::{Capture, State, thread};
use crate::work::Work;

/// The mode in which a capture, or a thread, forbids nothing.
const RELAXED: u32 = 2;
/// The mode in which a capture forbids unsafe calls in all threads, and in which a thread obeys such captures
/// of others.
const GLOBAL: u32 = 0;

/// Invalidates a capture, and returns the given error.
fn invalidate(state: &mut State, capture: u64, error: CUresult) -> CUresult {
    if let Some(capture) = state.captures.get_mut(&capture) {
        capture.invalid = true;
    }
    error
}

/// Adds a node to a graph.
///
/// # Errors
/// `INVALID_VALUE`: there is no such graph, or one of `after` is not a node of it.
pub fn add_node(
    state: &mut State,
    graph: Handle,
    kind: Kind,
    work: Work,
    after: &[Handle],
) -> Answer<Handle> {
    state.graphs.get(&graph).ok_or(INVALID_VALUE)?.known(after)?;
    let handle = state.handle();
    state.nodes.insert(handle, graph);
    let node = Node { kind, work, after: after.to_vec(), origin: 0 };
    state.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?.nodes.insert(handle, node);
    Ok(handle)
}

impl Call {
    /// Checks a call that CUDA calls unsafe during a capture: it allocates, frees or synchronizes.
    ///
    /// # Errors
    /// `CAPTURE_UNSUPPORTED`: a capture of this thread, or one in global mode, forbids the call, and becomes
    /// invalid.
    pub fn may_disturb(&mut self) -> Answer {
        let (own, mode) = thread(|own| (own.number, own.mode)).unwrap_or((0, GLOBAL));
        let forbids = |capture: &Capture| {
            mode != RELAXED
                && ((capture.thread == own && capture.mode != RELAXED)
                    || (mode == GLOBAL && capture.mode == GLOBAL))
        };
        let mut forbidden = false;
        for capture in self.state.captures.values_mut().filter(|capture| forbids(capture)) {
            capture.invalid = true;
            forbidden = true;
        }
        if forbidden { Err(CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Checks a call that waits for a stream or queries it. On an error the captures become invalid.
    ///
    /// # Errors
    /// `CAPTURE_UNSUPPORTED`: the stream captures. `CAPTURE_IMPLICIT`: it is the legacy stream, and a
    /// blocking stream captures.
    pub fn not_capturing(&mut self, stream: Handle) -> Answer {
        if let Some((capture, _)) = &self.state.streams[&stream].capture {
            let capture = *capture;
            return Err(invalidate(&mut self.state, capture, CAPTURE_UNSUPPORTED));
        }
        self.heed_implicit(stream)
    }

    /// Checks a call that waits for the whole context.
    ///
    /// # Errors
    /// `CAPTURE_UNSUPPORTED`: one of the context's streams captures. The captures become invalid.
    pub fn nothing_captures(&mut self) -> Answer {
        let context = self.context;
        let mut found = false;
        for capture in self.state.captures.values_mut().filter(|capture| capture.context == context) {
            capture.invalid = true;
            found = true;
        }
        if found { Err(CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Refuses work on the legacy stream while a blocking stream captures, because it would depend on the
    /// capture.
    fn heed_implicit(&mut self, stream: Handle) -> Answer {
        if !self.state.streams[&stream].legacy {
            return Ok(());
        }
        let blocking: Vec<u64> = self
            .state
            .blocking(self.context)
            .filter_map(|stream| stream.capture.as_ref().map(|(capture, _)| *capture))
            .collect();
        for capture in &blocking {
            invalidate(&mut self.state, *capture, CAPTURE_IMPLICIT);
        }
        if blocking.is_empty() { Ok(()) } else { Err(CAPTURE_IMPLICIT) }
    }

    /// Submits a command to a stream, or adds it as a node if the stream captures. Returns the command's
    /// number, or `None` for a node.
    ///
    /// # Errors
    /// Those of [`Call::stream`], [`engine::submit`] and [`Call::capture_of`]; `CAPTURE_IMPLICIT`.
    pub fn enqueue(
        &mut self,
        argument: Handle,
        work: Work,
        kind: impl FnOnce() -> Kind,
    ) -> Answer<Option<u64>> {
        self.enqueue_behind(argument, work, &[], kind)
    }

    /// Like [`Call::enqueue`], for a command that also waits for those in `after`. A node ignores `after`.
    ///
    /// # Errors
    /// As [`Call::enqueue`].
    pub fn enqueue_behind(
        &mut self,
        argument: Handle,
        work: Work,
        after: &[u64],
        kind: impl FnOnce() -> Kind,
    ) -> Answer<Option<u64>> {
        let stream = self.stream(argument)?;
        self.heed_implicit(stream)?;
        if self.capture_of(stream)?.is_some() {
            self.add_captured(stream, kind(), work)?;
            return Ok(None);
        }
        engine::submit(&mut self.state, stream, work, after).map(Some)
    }

    /// Adds a node to a capture, after the stream's last nodes, and returns it.
    ///
    /// # Errors
    /// `ILLEGAL_STATE`: the stream does not capture.
    pub fn add_captured(&mut self, stream: Handle, kind: Kind, work: Work) -> Answer<Handle> {
        let (capture, tail) = self.state.streams[&stream].capture.clone().ok_or(ILLEGAL_STATE)?;
        let graph = self.state.captures.get(&capture).ok_or(ILLEGAL_STATE)?.graph;
        let node = add_node(&mut self.state, graph, kind, work, &tail)?;
        if let Some(stream) = self.state.streams.get_mut(&stream) {
            stream.capture = Some((capture, vec![node]));
        }
        Ok(node)
    }

    /// Returns the capture that a stream takes part in, and the nodes that its next node waits for.
    ///
    /// # Errors
    /// `CAPTURE_INVALIDATED`: the capture is invalid.
    pub fn capture_of(&self, stream: Handle) -> Answer<Option<(u64, Vec<Handle>)>> {
        let Some((capture, tail)) = &self.state.streams[&stream].capture else { return Ok(None) };
        match self.state.captures.get(capture) {
            Some(known) if known.invalid => Err(CAPTURE_INVALIDATED),
            _ => Ok(Some((*capture, tail.clone()))),
        }
    }

    /// Begins a capture into a new graph, or into the graph in `into` after some of its nodes.
    ///
    /// # Errors
    /// `CAPTURE_UNSUPPORTED` for the legacy stream, `ILLEGAL_STATE` for a stream that captures,
    /// `INVALID_VALUE` for an invalid mode, graph or node.
    pub fn begin(&mut self, argument: Handle, mode: u32, into: Option<(Handle, Vec<Handle>)>) -> Answer {
        let stream = self.stream(argument)?;
        if mode > RELAXED {
            return Err(INVALID_VALUE);
        }
        if self.state.streams[&stream].legacy {
            return Err(CAPTURE_UNSUPPORTED);
        }
        if self.state.streams[&stream].capture.is_some() {
            return Err(ILLEGAL_STATE);
        }
        let (graph, tail) = match into {
            Some((graph, after)) => {
                self.state.graphs.get(&graph).ok_or(INVALID_VALUE)?.known(&after)?;
                (graph, after)
            }
            None => {
                let graph = self.state.handle();
                self.state.graphs.insert(graph, Graph { inner: true, ..Graph::default() });
                (graph, Vec::new())
            }
        };
        let thread = thread(|own| own.number).unwrap_or(0);
        let (number, context) = (self.state.number(), self.context);
        let capture =
            Capture { graph, context, mode, origin: stream, thread, invalid: false, released: Vec::new() };
        self.state.captures.insert(number, capture);
        if let Some(stream) = self.state.streams.get_mut(&stream) {
            stream.capture = Some((number, tail));
        }
        Ok(())
    }

    /// Ends a capture and returns its graph. A call for the wrong stream or on the wrong thread invalidates the
    /// capture: NVIDIA's documentation leaves that open, so a caller must not depend on the capture any more.
    ///
    /// # Errors
    /// `ILLEGAL_STATE`: the stream does not capture. `CAPTURE_UNMATCHED`: another stream began the capture.
    /// `CAPTURE_WRONG_THREAD`: another thread did. `CAPTURE_UNJOINED` and `CAPTURE_INVALIDATED`: the capture
    /// has ended without a graph.
    pub fn end(&mut self, argument: Handle) -> Answer<Handle> {
        let stream = self.stream(argument)?;
        let (number, tail) = self.state.streams[&stream].capture.clone().ok_or(ILLEGAL_STATE)?;
        let capture = self.state.captures.get(&number).ok_or(ILLEGAL_STATE)?;
        if capture.origin != stream {
            return Err(invalidate(&mut self.state, number, CAPTURE_UNMATCHED));
        }
        if capture.mode != RELAXED && Some(capture.thread) != thread(|own| own.number) {
            return Err(invalidate(&mut self.state, number, CAPTURE_WRONG_THREAD));
        }
        let graph = capture.graph;
        let leaves = self.state.graphs.get(&graph).map(Graph::leaves).unwrap_or_default();
        let joined = leaves.iter().all(|leaf| tail.contains(leaf) || capture.released.contains(leaf));
        let invalid = capture.invalid;
        forget(&mut self.state, number);
        if invalid || !joined {
            drop_graph(&mut self.state, graph);
            return Err(if invalid { CAPTURE_INVALIDATED } else { CAPTURE_UNJOINED });
        }
        if let Some(graph) = self.state.graphs.get_mut(&graph) {
            graph.inner = false;
        }
        Ok(graph)
    }

    /// `cuStreamWaitEvent`.
    ///
    /// # Errors
    /// `INVALID_HANDLE`, and the errors of dependencies that would cross the border of a capture.
    pub fn wait_event(&mut self, argument: Handle, event: Handle, external: bool) -> Answer {
        let stream = self.stream(argument)?;
        let known = self.state.events.get(&event).ok_or(crate::abi::INVALID_HANDLE)?;
        let (captured, record, shared) = (known.captured.clone(), known.record.clone(), known.shared.clone());
        let own = self.state.streams[&stream].capture.clone();
        if external {
            if own.is_none() {
                return Err(INVALID_VALUE);
            }
            self.capture_of(stream)?;
            return self.add_captured(stream, Kind::EventWait(event), Work::Nothing).map(|_| ());
        }
        if let Some((capture, nodes)) = captured {
            let Some(of) = self.state.captures.get(&capture) else { return Err(CAPTURED_EVENT) };
            if of.invalid {
                return Err(CAPTURE_INVALIDATED);
            }
            self.heed_implicit(stream)?;
            let tail = match own {
                None => nodes,
                Some((same, mut tail)) if same == capture => {
                    tail.extend(
                        nodes.iter().filter(|node| !tail.contains(node)).copied().collect::<Vec<_>>(),
                    );
                    tail
                }
                Some((other, _)) => {
                    invalidate(&mut self.state, other, CAPTURE_MERGE);
                    return Err(invalidate(&mut self.state, capture, CAPTURE_MERGE));
                }
            };
            if let Some(stream) = self.state.streams.get_mut(&stream) {
                stream.capture = Some((capture, tail));
            }
            return Ok(());
        }
        if let Some((capture, _)) = own {
            self.capture_of(stream)?;
            return match (&record, &shared) {
                // The event was never recorded, so there is nothing to wait for.
                (None, None) => Ok(()),
                _ => Err(invalidate(&mut self.state, capture, CAPTURE_ISOLATION)),
            };
        }
        self.heed_implicit(stream)?;
        let work = match shared {
            Some((page, _)) => Work::Await(page.clone(), page.latest()),
            None => Work::Nothing,
        };
        let after: Vec<u64> = record.iter().map(|(command, _)| *command).collect();
        engine::submit(&mut self.state, stream, work, &after).map(|_| ())
    }
}

/// Removes a capture, so that its streams no longer capture.
pub fn forget(state: &mut State, capture: u64) {
    state.captures.remove(&capture);
    for stream in state.streams.values_mut() {
        if stream.capture.as_ref().is_some_and(|(of, _)| *of == capture) {
            stream.capture = None;
        }
    }
}

/// Invalidates a stream's capture, because the stream is destroyed. If the stream began it, the capture ends.
pub fn stream_ends(state: &mut State, stream: Handle) {
    let Some((capture, _)) = state.streams.get_mut(&stream).and_then(|stream| stream.capture.take()) else {
        return;
    };
    invalidate(state, capture, CAPTURE_INVALIDATED);
    if let Some(graph) =
        state.captures.get(&capture).filter(|known| known.origin == stream).map(|known| known.graph)
    {
        forget(state, capture);
        drop_graph(state, graph);
    }
}

/// Removes a graph with its nodes and its child graphs.
pub fn drop_graph(state: &mut State, graph: Handle) {
    let Some(graph) = state.graphs.remove(&graph) else { return };
    for (handle, node) in graph.nodes {
        state.nodes.remove(&handle);
        if let Kind::Child(inner) = node.kind {
            drop_graph(state, inner);
        }
    }
}
