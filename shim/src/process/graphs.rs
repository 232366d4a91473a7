//! Executable graphs: whose launches are still deferred, and which may be launched later at all.
//!
//! A graph's launch means the graph as it is at that moment. So whoever changes it waits until the launches that were
//! submitted before are launched: those of this graph, and no other's. A graph that is destroyed meanwhile is kept until
//! its last deferred launch is done with it, and destroyed by the next call of the program that can: the runtime may wait
//! there, and a worker has other things to do.

use crate::thread::Thread;
use hip_sys::pfn;
use hip_sys::types::{hipGraph_t, hipGraphExec_t, hipGraphNode_t, hipGraphNodeType, hipSuccess};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use xqueue::{After, Ticket, XQueue};

/// The executable graphs of a process.
pub(crate) struct Graphs {
    functions: Option<Functions>,
    /// The runtime's version, which the values of node types depend on.
    version: (u32, u32),
    execs: Mutex<HashMap<usize, Arc<Exec>>>,
    ended: Arc<Ended>,
    /// Whether every graph that the program can launch is known and plain.
    all_plain: AtomicBool,
}

/// Whether the program has made a user object, whose destructor can come with a graph's end; also before there are queues.
static USER_OBJECTS: AtomicBool = AtomicBool::new(false);

/// The program makes a user object.
pub(crate) fn user_object_made() {
    USER_OBJECTS.store(true, Ordering::Release);
}

/// Whether it has ever made one.
pub(crate) fn has_user_objects() -> bool {
    USER_OBJECTS.load(Ordering::Acquire)
}

/// The functions of the runtime that say what is in a graph.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    pub(crate) nodes: pfn::hipGraphGetNodes,
    pub(crate) node_type: pfn::hipGraphNodeGetType,
    pub(crate) child: pfn::hipGraphChildGraphNodeGetGraph,
    pub(crate) destroy: pfn::hipGraphExecDestroy,
}

/// Graphs that the program has destroyed and the runtime has not.
#[derive(Default)]
struct Ended {
    count: AtomicUsize,
    execs: Mutex<Vec<hipGraphExec_t>>,
    /// All of them, those included that a deferred launch still needs, and how many they are.
    handles: Mutex<HashSet<usize>>,
    known: AtomicUsize,
}

impl Ended {
    fn change(&self, change: impl FnOnce(&mut HashSet<usize>) -> bool) {
        let mut handles = self.handles.lock();
        change(&mut handles);
        self.known.store(handles.len(), Ordering::Release);
    }
}

/// One executable graph.
pub(crate) struct Exec {
    handle: hipGraphExec_t,
    /// It holds nothing but kernels, copies, fills, host functions, and graphs of these.
    plain: bool,
    /// Launches that were deferred.
    launches: Mutex<Vec<After>>,
    /// The program has destroyed it.
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

/// What a kind of node means for launching its graph later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    /// Nothing.
    Plain,
    /// What its graph means.
    Child,
    /// It touches events, semaphores or allocations, or is of a kind that is not known here.
    Other,
}

/// The kinds of nodes changed their values somewhere between 5.2 (hip_runtime_api.h of 5.2.3: a kernel is 1) and 6.0 (a
/// kernel is 0). In between only what is harmless under both counts.
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

/// Graphs inside graphs inside graphs are looked into up to this depth.
const DEPTH: usize = 16;

impl Functions {
    /// Whether a graph holds only what is plain.
    fn is_plain(&self, graph: hipGraph_t, version: (u32, u32), depth: usize) -> bool {
        let mut count = 0;
        // SAFETY: the graph was just instantiated; the runtime's function gets a place for the number.
        let code = unsafe { (self.nodes)(graph, std::ptr::null_mut(), &mut count) };
        if code != hipSuccess || depth == 0 {
            return false;
        }
        let mut nodes = vec![hipGraphNode_t::NULL; count];
        if count != 0 {
            // SAFETY: as above, with room for as many nodes as there are.
            let code = unsafe { (self.nodes)(graph, nodes.as_mut_ptr(), &mut count) };
            if code != hipSuccess || count != nodes.len() {
                return false;
            }
        }
        nodes.into_iter().all(|one| {
            let mut kind = hipGraphNodeType(u32::MAX);
            // SAFETY: a node of the graph, and a place for the answer.
            let code = unsafe { (self.node_type)(one, &mut kind) };
            match node(kind, version) {
                _ if code != hipSuccess => false,
                Node::Plain => true,
                Node::Other => false,
                Node::Child => {
                    let mut child = hipGraph_t::NULL;
                    // SAFETY: as above.
                    let code = unsafe { (self.child)(one, &mut child) };
                    code == hipSuccess && self.is_plain(child, version, depth - 1)
                }
            }
        })
    }
}

impl Graphs {
    /// Of a runtime of this version. `from_the_start`: there is no graph yet that was not seen here.
    pub(crate) fn new(functions: Option<Functions>, version: (u32, u32), from_the_start: bool) -> Self {
        Self {
            functions,
            version,
            execs: Mutex::new(HashMap::new()),
            ended: Arc::default(),
            all_plain: AtomicBool::new(from_the_start),
        }
    }

    /// The program has instantiated a graph.
    pub(crate) fn made(&self, handle: hipGraphExec_t, graph: hipGraph_t) {
        let plain = self.functions.is_some_and(|functions| functions.is_plain(graph, self.version, DEPTH));
        if !plain {
            self.all_plain.store(false, Ordering::Release);
        }
        let (launches, doomed, ended) = (Mutex::default(), AtomicBool::new(false), self.ended.clone());
        let exec = Arc::new(Exec { handle, plain, launches, doomed, ended });
        self.execs.lock().insert(handle.as_raw(), exec);
        if self.has_ended(handle) {
            // The one before at this place is gone.
            self.ended.change(|handles| handles.remove(&handle.as_raw()));
        }
    }

    /// Whether the program has destroyed the graph, and the runtime has not yet, so that it would still take it.
    pub(crate) fn has_ended(&self, handle: hipGraphExec_t) -> bool {
        self.ended.known.load(Ordering::Acquire) != 0 && self.ended.handles.lock().contains(&handle.as_raw())
    }

    /// Whether any graph can be launched at once without a look at what it is.
    pub(crate) fn all_plain(&self) -> bool {
        self.all_plain.load(Ordering::Acquire)
    }

    pub(crate) fn find(&self, handle: hipGraphExec_t) -> Option<Arc<Exec>> {
        self.execs.lock().get(&handle.as_raw()).cloned()
    }

    /// The program destroys the graph. True: launches of it are deferred, and it is destroyed after them.
    pub(crate) fn doom(&self, handle: hipGraphExec_t) -> bool {
        let Some(exec) = self.execs.lock().remove(&handle.as_raw()) else { return false };
        if self.functions.is_none() || !exec.is_open() {
            return false;
        }
        self.ended.change(|handles| handles.insert(handle.as_raw()));
        exec.doomed.store(true, Ordering::Release);
        true
    }

    /// Destroys what the program has destroyed and nothing needs any more.
    pub(crate) fn sweep(&self) {
        if self.ended.count.load(Ordering::Acquire) == 0 || Thread::current().is_in_callback() {
            return;
        }
        let execs = mem::take(&mut *self.ended.execs.lock());
        self.ended.count.fetch_sub(execs.len(), Ordering::AcqRel);
        for exec in execs {
            if let Some(functions) = &self.functions {
                // SAFETY: the program has given it up, and its last launch is over.
                let _ = unsafe { (functions.destroy)(exec) };
                self.ended.change(|handles| handles.remove(&exec.as_raw()));
            }
        }
    }
}

impl Exec {
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// A launch was deferred.
    pub(crate) fn deferred(&self, queue: &Arc<XQueue>, ticket: Ticket) {
        let mut launches = self.launches.lock();
        launches.retain(is_open);
        launches.push(After { queue: queue.clone(), through: ticket });
    }

    fn is_open(&self) -> bool {
        self.launches.lock().iter().any(is_open)
    }

    /// Waits until its deferred launches are launched; inside a callback nothing waits.
    pub(crate) fn wait_launched(&self) {
        if Thread::current().is_in_callback() {
            return;
        }
        let launches = self.launches.lock().clone();
        for launch in launches.iter().filter(|launch| is_open(launch)) {
            launch.queue.wait_launched(launch.through.next());
        }
    }
}

fn is_open(launch: &After) -> bool {
    !launch.queue.is_launched(launch.through)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_mean_what_their_release_says() {
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
        // Events: wait and record.
        for (version, [wait, record]) in [((5, 2), [7, 8]), ((5, 7), [6, 7]), ((6, 4), [6, 7])] {
            assert_eq!((kinds(version)[wait], kinds(version)[record]), (Node::Other, Node::Other));
        }
    }
}
