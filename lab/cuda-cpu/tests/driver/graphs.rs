//! Graphs that the program builds, changes, copies and launches.

use std::ptr;

use crate::support::{KernelNode, Session, begin, mixing, step};

/// A graph of two kernels, one after the other, with these values.
fn chain(s: &Session, at: usize, values: [u64; 2]) -> (usize, [usize; 2]) {
    let (mut graph, mut nodes) = (0, [0; 2]);
    let mix = s.function(c"mix");
    assert_eq!(s.driver.cuGraphCreate(&mut graph, 0), 0);
    for (node, value) in nodes.iter_mut().zip(values) {
        let params = mixing(at, 1, value);
        assert_eq!(s.driver.cuGraphAddKernelNode(node, graph, ptr::null(), 0, &params.node(mix)), 0);
    }
    assert_eq!(s.driver.cuGraphAddDependencies(graph, &nodes[0], &nodes[1], 1), 0);
    assert_eq!(s.driver.cuGraphAddDependencies(graph, &nodes[1], &nodes[0], 1), 1, "a circle");
    (graph, nodes)
}

fn instantiate(s: &Session, graph: usize) -> usize {
    let mut exec = 0;
    assert_eq!(s.driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0), 0);
    exec
}

/// The word after these launches of `mix`.
fn mixed(values: &[u64]) -> u64 {
    values.iter().fold(0, |word, value| step(word, word, 0, *value))
}

#[test]
fn changes_of_an_exec_leave_earlier_launches_alone() {
    let s = begin();
    let (stream, at) = (s.stream(1), s.words(1));
    let (graph, nodes) = chain(&s, at, [1, 2]);
    let exec = instantiate(&s, graph);
    let gate = s.gate(stream);
    assert_eq!(s.driver.cuGraphLaunch(exec, stream), 0);
    let changed = mixing(at, 1, 9).node(s.function(c"mix"));
    let other = mixing(at, 1, 5);
    let node = KernelNode { params: other.params(), ..changed };
    assert_eq!(s.driver.cuGraphExecKernelNodeSetParams(exec, nodes[1], &node), 0);
    assert_eq!(s.driver.cuGraphExecKernelNodeSetParams(exec, 12345, &node), 1);
    assert_eq!(s.driver.cuGraphLaunch(exec, stream), 0);
    assert_eq!(s.driver.cuGraphExecDestroy(exec), 0);
    assert_eq!(s.driver.cuGraphLaunch(exec, stream), 1);
    gate.open();
    assert_eq!(s.read(at, 1, stream), [mixed(&[1, 2, 1, 5])]);
}

#[test]
fn an_update_takes_parameters_and_refuses_other_shapes() {
    let s = begin();
    let (stream, at) = (s.stream(1), s.words(1));
    let (graph, _) = chain(&s, at, [1, 2]);
    let exec = instantiate(&s, graph);
    let (other, nodes) = chain(&s, at, [3, 4]);
    let (mut node, mut result) = (7, 7);
    assert_eq!(s.driver.cuGraphExecUpdate(exec, other, &mut node, &mut result), 0);
    assert_eq!(result, 0);
    assert_eq!(s.driver.cuGraphLaunch(exec, stream), 0);
    assert_eq!(s.read(at, 1, stream), [mixed(&[3, 4])]);
    let mut more = 0;
    let third = mixing(at, 1, 1);
    let params = third.node(s.function(c"mix"));
    assert_eq!(s.driver.cuGraphAddKernelNode(&mut more, other, &nodes[1], 1, &params), 0);
    assert_eq!(s.driver.cuGraphExecUpdate(exec, other, &mut node, &mut result), 910);
    assert_eq!(result, 2, "the topology");
}

#[test]
fn clones_and_children_are_copies() {
    let s = begin();
    let (stream, at) = (s.stream(1), s.words(1));
    let (graph, nodes) = chain(&s, at, [1, 2]);
    let (mut clone, mut found, mut outer, mut child) = (0, 0, 0, 0);
    assert_eq!(s.driver.cuGraphClone(&mut clone, graph), 0);
    assert_eq!(s.driver.cuGraphNodeFindInClone(&mut found, nodes[1], clone), 0);
    assert_ne!(found, nodes[1]);
    assert_eq!(s.driver.cuGraphCreate(&mut outer, 0), 0);
    assert_eq!(s.driver.cuGraphAddChildGraphNode(&mut child, outer, ptr::null(), 0, clone), 0);
    let mut behind = 0;
    let last = mixing(at, 1, 7);
    let params = last.node(s.function(c"mix"));
    assert_eq!(s.driver.cuGraphAddKernelNode(&mut behind, outer, &child, 1, &params), 0);
    for gone in [graph, clone] {
        assert_eq!(s.driver.cuGraphDestroy(gone), 0);
    }
    assert_eq!(s.driver.cuGraphLaunch(instantiate(&s, outer), stream), 0);
    assert_eq!(s.read(at, 1, stream), [mixed(&[1, 2, 7])]);
}

#[test]
fn a_node_shows_its_parameters() {
    let s = begin();
    let at = s.words(1);
    let (_, nodes) = chain(&s, at, [6, 2]);
    let mut params = mixing(0, 0, 0).node(0);
    assert_eq!(s.driver.cuGraphKernelNodeGetParams(nodes[0], &mut params), 0);
    assert_eq!((params.func, params.grid, params.block), (s.function(c"mix"), [4, 1, 1], [64, 1, 1]));
    // SAFETY: the list has the addresses of four arguments, the last one has eight bytes, and the node is
    // unchanged.
    assert_eq!(unsafe { params.params.add(3).read().cast::<u64>().read_unaligned() }, 6);
    assert_eq!(s.driver.cuGraphKernelNodeGetParams(4242, &mut params), 1);
}

#[test]
fn a_graph_records_events() {
    let s = begin();
    let (stream, event) = (s.stream(1), s.event(0));
    let (mut graph, mut node) = (0, 0);
    assert_eq!(s.driver.cuGraphCreate(&mut graph, 0), 0);
    assert_eq!(s.driver.cuGraphAddEventRecordNode(&mut node, graph, ptr::null(), 0, event), 0);
    let exec = instantiate(&s, graph);
    let gate = s.gate(stream);
    assert_eq!(s.driver.cuGraphLaunch(exec, stream), 0);
    assert_eq!(s.driver.cuEventQuery(event), 600);
    gate.open();
    assert_eq!(s.driver.cuEventSynchronize(event), 0);
}

#[test]
fn launches_of_one_exec_follow_each_other() {
    let s = begin();
    let (first, second, at) = (s.stream(1), s.stream(1), s.words(1));
    let (graph, _) = chain(&s, at, [1, 2]);
    let exec = instantiate(&s, graph);
    let gate = s.gate(first);
    assert_eq!(s.driver.cuGraphLaunch(exec, first), 0);
    assert_eq!(s.driver.cuGraphLaunch(exec, second), 0);
    assert_eq!(s.driver.cuStreamQuery(second), 600);
    gate.open();
    assert_eq!(s.read(at, 1, second), [mixed(&[1, 2, 1, 2])]);
}
