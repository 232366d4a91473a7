//! Graphs as data: nodes, their dependencies, and an order in which they can run.

use std::collections::BTreeMap;

use crate::abi::{Answer, Handle, HostNodeParams, INVALID_VALUE, Memcpy3D, MemsetNodeParams};
use crate::work::Work;

/// The type of a node, with the parameters that queries return.
#[derive(Clone, Debug)]
pub enum Kind {
    Kernel,
    Memcpy(Box<Memcpy3D>),
    Memset(MemsetNodeParams),
    Host(HostNodeParams),
    /// A child graph.
    Child(Handle),
    Empty,
    EventWait(Handle),
    EventRecord(Handle),
    /// Memory that the graph allocates.
    Alloc,
    Free(usize),
    /// A wait for a value, or a write of one.
    MemOp,
}

impl Kind {
    /// Returns the `CUgraphNodeType`.
    pub fn number(&self) -> u32 {
        match self {
            Kind::Kernel => 0,
            Kind::Memcpy(_) => 1,
            Kind::Memset(_) => 2,
            Kind::Host(_) => 3,
            Kind::Child(_) => 4,
            Kind::Empty => 5,
            Kind::EventWait(_) => 6,
            Kind::EventRecord(_) => 7,
            Kind::Alloc => 10,
            Kind::Free(_) => 11,
            Kind::MemOp => 12,
        }
    }
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    /// Its command. The commands of child graphs, and of records and waits of events, are made at launch.
    pub work: Work,
    /// The nodes that it waits for.
    pub after: Vec<Handle>,
    /// In a clone, the node that it copies. 0: none.
    pub origin: Handle,
}

/// A graph. Handles of nodes only grow, so the map is in the order of creation.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub nodes: BTreeMap<Handle, Node>,
    /// True if a node or a capture owns it, so that the program cannot destroy it.
    pub inner: bool,
}

impl Graph {
    /// Checks the dependencies of a new node.
    ///
    /// # Errors
    /// `INVALID_VALUE`: one is not a node of this graph, or is listed twice.
    pub fn known(&self, after: &[Handle]) -> Answer {
        let mut seen = std::collections::BTreeSet::new();
        match after.iter().all(|node| self.nodes.contains_key(node) && seen.insert(node)) {
            true => Ok(()),
            false => Err(INVALID_VALUE),
        }
    }

    /// Returns the nodes in an order in which each follows all its dependencies. Of several possible next
    /// nodes it takes the one that was created first.
    ///
    /// # Errors
    /// `INVALID_VALUE`: there is a cycle.
    pub fn order(&self) -> Answer<Vec<Handle>> {
        let mut missing: BTreeMap<Handle, usize> =
            self.nodes.iter().map(|(handle, node)| (*handle, node.after.len())).collect();
        let mut behind: BTreeMap<Handle, Vec<Handle>> = BTreeMap::new();
        for (handle, node) in &self.nodes {
            for before in &node.after {
                behind.entry(*before).or_default().push(*handle);
            }
        }
        let mut ready: std::collections::BTreeSet<Handle> =
            missing.iter().filter(|(_, n)| **n == 0).map(|(handle, _)| *handle).collect();
        let mut order = Vec::new();
        while let Some(next) = ready.pop_first() {
            order.push(next);
            for follower in behind.get(&next).into_iter().flatten() {
                if let Some(left) = missing.get_mut(follower) {
                    *left -= 1;
                    if *left == 0 {
                        ready.insert(*follower);
                    }
                }
            }
        }
        if order.len() == self.nodes.len() { Ok(order) } else { Err(INVALID_VALUE) }
    }

    /// Returns the edges in the order of the nodes that wait.
    pub fn edges(&self) -> Vec<(Handle, Handle)> {
        let of =
            |(to, node): (&Handle, &Node)| node.after.iter().map(|from| (*from, *to)).collect::<Vec<_>>();
        self.nodes.iter().flat_map(of).collect()
    }

    /// Returns the nodes without dependencies.
    pub fn roots(&self) -> Vec<Handle> {
        self.nodes.iter().filter(|(_, node)| node.after.is_empty()).map(|(handle, _)| *handle).collect()
    }

    /// Returns the nodes that no other node waits for.
    pub fn leaves(&self) -> Vec<Handle> {
        let waited: std::collections::BTreeSet<Handle> =
            self.nodes.values().flat_map(|node| node.after.iter().copied()).collect();
        self.nodes.keys().copied().filter(|handle| !waited.contains(handle)).collect()
    }
}

/// An executable graph.
#[derive(Clone, Debug)]
pub struct Exec {
    /// Its own copy of the graph. The nodes keep the handles of the original.
    pub graph: Graph,
    /// The executable graphs of its child nodes, by the same handles.
    pub children: BTreeMap<Handle, Exec>,
    /// The disabled nodes.
    pub disabled: std::collections::BTreeSet<Handle>,
    /// The flags of the instantiation.
    pub flags: u64,
    /// The command of its last launch, which the next one waits for.
    pub last: u64,
}

/// Why an update is refused (`CUgraphExecUpdateResult`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    pub result: u32,
    pub node: Handle,
}

const TOPOLOGY_CHANGED: u32 = 2;
const NODE_TYPE_CHANGED: u32 = 3;
const FUNCTION_CHANGED: u32 = 4;
const PARAMETERS_CHANGED: u32 = 5;

impl Exec {
    /// Returns this executable graph with the parameters of a graph of the same topology. It matches nodes in
    /// the order of creation.
    ///
    /// # Errors
    /// The first difference.
    pub fn update(&self, graph: &Graph, children: BTreeMap<Handle, Exec>) -> Result<Exec, Difference> {
        let changed = |result, node| Difference { result, node };
        if self.graph.nodes.len() != graph.nodes.len() {
            return Err(changed(TOPOLOGY_CHANGED, 0));
        }
        // From handles in the new graph to those in this one.
        let names: BTreeMap<Handle, Handle> =
            graph.nodes.keys().copied().zip(self.graph.nodes.keys().copied()).collect();
        let mut updated = self.clone();
        for ((from, new), old) in graph.nodes.iter().zip(updated.graph.nodes.values_mut()) {
            if new.kind.number() != old.kind.number() {
                return Err(changed(NODE_TYPE_CHANGED, *from));
            }
            let mut after: Vec<Handle> = new.after.iter().map(|node| names[node]).collect();
            let mut before = old.after.clone();
            after.sort_unstable();
            before.sort_unstable();
            if after != before {
                return Err(changed(TOPOLOGY_CHANGED, *from));
            }
            match (&new.work, &old.work) {
                // The documentation of the update lets a node take another kernel of the same context, unless
                // a kernel uses device-side launches.
                (Work::Kernel(new), Work::Kernel(old)) if new.device != old.device => {
                    return Err(changed(FUNCTION_CHANGED, *from));
                }
                (Work::Copy(new), Work::Copy(old)) if new.shape.depth != old.shape.depth => {
                    return Err(changed(PARAMETERS_CHANGED, *from));
                }
                _ => {}
            }
            old.work = new.work.clone();
            old.kind = new.kind.clone();
        }
        for (from, child) in children {
            let to = names[&from];
            let Some(old) = updated.children.get(&to) else { return Err(changed(TOPOLOGY_CHANGED, from)) };
            let new = old
                .update(&child.graph, child.children)
                .map_err(|difference| changed(difference.result, from))?;
            updated.children.insert(to, new);
        }
        Ok(updated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(Handle, &[Handle])]) -> Graph {
        let node = |after: &[Handle]| Node {
            kind: Kind::Empty,
            work: Work::Nothing,
            after: after.to_vec(),
            origin: 0,
        };
        Graph { nodes: edges.iter().map(|(handle, after)| (*handle, node(after))).collect(), inner: false }
    }

    #[test]
    fn nodes_follow_what_they_wait_for() {
        let one = graph(&[(1, &[3]), (2, &[]), (3, &[2]), (4, &[2])]);
        assert_eq!(one.order(), Ok(vec![2, 3, 1, 4]));
        assert_eq!((one.roots(), one.leaves()), (vec![2], vec![1, 4]));
        assert_eq!(one.edges(), [(3, 1), (2, 3), (2, 4)]);
        assert_eq!(graph(&[(1, &[2]), (2, &[1])]).order(), Err(INVALID_VALUE));
        assert_eq!(one.known(&[1, 1]), Err(INVALID_VALUE));
        assert_eq!(one.known(&[5]), Err(INVALID_VALUE));
    }

    #[test]
    fn an_update_needs_the_same_shape() {
        let exec = |graph| Exec {
            graph,
            children: BTreeMap::new(),
            disabled: Default::default(),
            flags: 0,
            last: 0,
        };
        let one = exec(graph(&[(1, &[]), (2, &[1])]));
        assert!(one.update(&graph(&[(7, &[]), (9, &[7])]), BTreeMap::new()).is_ok());
        let more = one.update(&graph(&[(7, &[]), (9, &[])]), BTreeMap::new()).map(|_| ());
        assert_eq!(more, Err(Difference { result: TOPOLOGY_CHANGED, node: 9 }));
        let less = one.update(&graph(&[(7, &[])]), BTreeMap::new()).map(|_| ());
        assert_eq!(less, Err(Difference { result: TOPOLOGY_CHANGED, node: 0 }));
    }
}
