//! Executable graphs: their deferred launches, and whether their launches may be deferred.
//!
//! A launch refers to the graph at that moment. A change of the graph therefore waits until its submitted
//! launches are launched. A graph that is destroyed meanwhile is kept until its last deferred launch is made.
//! The next suitable call of the program then destroys it, because the runtime may wait there, and a worker
//! must not.

use crate::thread::Thread;
use hip_sys::pfn;
use hip_sys::types::{hipGraph_t, hipGraphExec_t, hipGraphNode_t, hipGraphNodeType, hipSuccess};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use xqueue::After;

pub(crate) struct Graphs {
    functions: Option<Functions>,
    /// The runtime's version, which the values of node types depend on.
    version: (u32, u32),
    execs: Mutex<HashMap<usize, Arc<Exec>>>,
    ended: Arc<Ended>,
    /// True if every graph that the program can launch is known and plain.
    all_plain: AtomicBool,
}

/// True once the program has made a user object, whose destructor may run at a graph's end. Also set before
/// there are queues.
static USER_OBJECTS: AtomicBool = AtomicBool::new(false);

pub(crate) fn user_object_made() {
    USER_OBJECTS.store(true, Ordering::Release);
}

pub(crate) fn has_user_objects() -> bool {
    USER_OBJECTS.load(Ordering::Acquire)
}

/// The functions of the runtime that describe a graph.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    pub(crate) nodes: pfn::hipGraphGetNodes,
    pub(crate) node_type: pfn::hipGraphNodeGetType,
    pub(crate) child: pfn::hipGraphChildGraphNodeGetGraph,
    pub(crate) destroy: pfn::hipGraphExecDestroy,
}

/// The graphs that the program has destroyed and the runtime has not.
#[derive(Default)]
struct Ended {
    count: AtomicUsize,
    execs: Mutex<Vec<hipGraphExec_t>>,
    /// All of them, including those that a deferred launch still needs.
    handles: Mutex<HashSet<usize>>,
    /// The number of `handles`.
    known: AtomicUsize,
}

impl Ended {
    fn change(&self, change: impl FnOnce(&mut HashSet<usize>) -> bool) {
        let mut handles = self.handles.lock();
        change(&mut handles);
        self.known.store(handles.len(), Ordering::Release);
    }
}

pub(crate) struct Exec {
    handle: hipGraphExec_t,
    /// True if it has only kernels, copies, fills, host functions, and graphs of these.
    plain: bool,
    /// The deferred launches.
    launches: Mutex<Vec<After>>,
    /// True once the program has destroyed it.
    doomed: AtomicBool,
    ended: Arc<Ended>,
}

impl Drop for Exec {
    fn drop(&mut self) {
        if self.doomed.load(Ordering::Acquire) {
            self.ended.execs.lock().push(self.handle);
            self.ended.count.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The effect of a node on deferring its graph's launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    /// None.
    Plain,
    /// That of the child graph.
    Child,
    /// The launch cannot be deferred: the node uses events, semaphores or allocations, or is of an unknown
    /// kind.
    Other,
}

/// Classifies a node. The values of node kinds changed somewhere between 5.2 (hip_runtime_api.h of 5.2.3: a
/// kernel is 1) and 6.0 (a kernel is 0). In between, only values that are plain in both are.
fn node(kind: hipGraphNodeType, version: (u32, u32)) -> Node {
    match (version, kind.0) {
        ((..5, _) | (5, ..=2), 1..=4 | 6 | 9..=11) => Node::Plain,
        ((..5, _) | (5, ..=2), 5) => Node::Child,
        ((5, 3..), 1..=3) => Node::Plain,
        ((6.., _), 0..=3 | 5) => Node::Plain,
        ((6.., _), 4) => Node::Child,
        _ => Node::Other,
    }
}

/// The depth to which child graphs are examined.
const DEPTH: usize = 16;

impl Functions {
    fn is_plain(&self, graph: hipGraph_t, version: (u32, u32), depth: usize) -> bool {
        let mut count = 0;
        // SAFETY: the graph exists, because it was just instantiated or is a child; the place for the number
        // is valid.
        let code = unsafe { (self.nodes)(graph, std::ptr::null_mut(), &mut count) };
        if code != hipSuccess || depth == 0 {
            return false;
        }
        let mut nodes = vec![hipGraphNode_t::NULL; count];
        if count != 0 {
            // SAFETY: the graph exists, and the list has room for `count` nodes.
            let code = unsafe { (self.nodes)(graph, nodes.as_mut_ptr(), &mut count) };
            if code != hipSuccess || count != nodes.len() {
                return false;
            }
        }
        nodes.into_iter().all(|one| {
            let mut kind = hipGraphNodeType(u32::MAX);
            // SAFETY: the node is the graph's, and the place for the answer is valid.
            let code = unsafe { (self.node_type)(one, &mut kind) };
            match node(kind, version) {
                _ if code != hipSuccess => false,
                Node::Plain => true,
                Node::Other => false,
                Node::Child => {
                    let mut child = hipGraph_t::NULL;
                    // SAFETY: the node is the graph's, and the place for the answer is valid.
                    let code = unsafe { (self.child)(one, &mut child) };
                    code == hipSuccess && self.is_plain(child, version, depth - 1)
                }
            }
        })
    }
}

impl Graphs {
    /// Makes the graphs of a process; `from_the_start` is true if the program has no graph yet.
    pub(crate) fn new(functions: Option<Functions>, version: (u32, u32), from_the_start: bool) -> Self {
        Self {
            functions,
            version,
            execs: Mutex::new(HashMap::new()),
            ended: Arc::default(),
            all_plain: AtomicBool::new(from_the_start),
        }
    }

    /// Notes a graph that the program has instantiated.
    pub(crate) fn made(&self, handle: hipGraphExec_t, graph: hipGraph_t) {
        let plain = self.functions.is_some_and(|functions| functions.is_plain(graph, self.version, DEPTH));
        if !plain {
            self.all_plain.store(false, Ordering::Release);
        }
        let (launches, doomed, ended) = (Mutex::default(), AtomicBool::new(false), self.ended.clone());
        let exec = Arc::new(Exec { handle, plain, launches, doomed, ended });
        self.execs.lock().insert(handle.as_raw(), exec);
        if self.has_ended(handle) {
            // The destroyed graph with this handle is gone.
            self.ended.change(|handles| handles.remove(&handle.as_raw()));
        }
    }

    /// Returns true if the program has destroyed the graph and the runtime has not yet, so that it would
    /// still accept it.
    pub(crate) fn has_ended(&self, handle: hipGraphExec_t) -> bool {
        self.ended.known.load(Ordering::Acquire) != 0 && self.ended.handles.lock().contains(&handle.as_raw())
    }

    /// Returns true if every graph is plain, so that a launch needs no look-up.
    pub(crate) fn all_plain(&self) -> bool {
        self.all_plain.load(Ordering::Acquire)
    }

    pub(crate) fn find(&self, handle: hipGraphExec_t) -> Option<Arc<Exec>> {
        self.execs.lock().get(&handle.as_raw()).cloned()
    }

    /// Notes that the program destroys the graph. Returns true if launches of it are deferred: it is
    /// destroyed after them.
    pub(crate) fn doom(&self, handle: hipGraphExec_t) -> bool {
        let Some(exec) = self.execs.lock().remove(&handle.as_raw()) else { return false };
        if self.functions.is_none() || !exec.is_open() {
            return false;
        }
        self.ended.change(|handles| handles.insert(handle.as_raw()));
        exec.doomed.store(true, Ordering::Release);
        true
    }

    /// Destroys graphs that the program has destroyed and no launch needs any more.
    pub(crate) fn sweep(&self) {
        if self.ended.count.load(Ordering::Acquire) == 0 || Thread::current().is_in_callback() {
            return;
        }
        let execs = mem::take(&mut *self.ended.execs.lock());
        self.ended.count.fetch_sub(execs.len(), Ordering::AcqRel);
        for exec in execs {
            if let Some(functions) = &self.functions {
                // SAFETY: the program has destroyed the graph, and its last deferred launch was made.
                let _ = unsafe { (functions.destroy)(exec) };
                self.ended.change(|handles| handles.remove(&exec.as_raw()));
            }
        }
    }
}

impl Exec {
    /// Returns true if its launches may be deferred.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    pub(crate) fn deferred(&self, launch: After) {
        let mut launches = self.launches.lock();
        launches.retain(After::is_open);
        launches.push(launch);
    }

    fn is_open(&self) -> bool {
        self.launches.lock().iter().any(After::is_open)
    }

    /// Waits until its deferred launches are launched. Does not wait inside a callback.
    pub(crate) fn wait_launched(&self) {
        if Thread::current().is_in_callback() {
            return;
        }
        let launches = self.launches.lock().clone();
        launches.iter().for_each(After::wait_launched);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_follows_release() {
        let kinds = |version| (0..14).map(|kind| node(hipGraphNodeType(kind), version)).collect::<Vec<_>>();
        let plain = |version| {
            let found = kinds(version).into_iter().enumerate();
            found.filter(|(_, node)| *node == Node::Plain).map(|(kind, _)| kind).collect::<Vec<_>>()
        };
        assert_eq!(plain((5, 2)), [1, 2, 3, 4, 6, 9, 10, 11]);
        assert_eq!(plain((5, 7)), [1, 2, 3]);
        assert_eq!(plain((6, 4)), [0, 1, 2, 3, 5]);
        assert_eq!(
            (kinds((5, 2))[5], kinds((6, 0))[4], kinds((7, 2))[4]),
            (Node::Child, Node::Child, Node::Child)
        );
        // Wait and record nodes of events.
        for (version, [wait, record]) in [((5, 2), [7, 8]), ((5, 7), [6, 7]), ((6, 4), [6, 7])] {
            assert_eq!((kinds(version)[wait], kinds(version)[record]), (Node::Other, Node::Other));
        }
    }
}
