//! Captures: what becomes a node, and what is refused and ends a capture.

use std::ptr;

use crate::support::{begin, driver, step};

const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

fn edges(graph: usize) -> (usize, usize) {
    let (mut nodes, mut edges) = (0, 0);
    assert_eq!(driver().cuGraphGetNodes(graph, ptr::null_mut(), &mut nodes), 0);
    assert_eq!(driver().cuGraphGetEdges(graph, ptr::null_mut(), ptr::null_mut(), &mut edges), 0);
    (nodes, edges)
}

#[test]
fn a_capture_over_two_streams_becomes_a_graph() {
    let s = begin();
    let (stream, other, at) = (s.stream(1), s.stream(1), s.words(2));
    let (fork, join) = (s.event(2), s.event(2));
    let (mut status, mut id, mut graph, mut exec) = (9, 0, 0, 0);
    assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, 0), 0);
    assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, 0), 401);
    assert_eq!(s.mix(stream, at, 1, 1), 0);
    assert_eq!(s.driver.cuEventRecord(fork, stream), 0);
    assert_eq!(s.driver.cuStreamWaitEvent(other, fork, 0), 0);
    assert_eq!(s.driver.cuStreamIsCapturing(other, &mut status), 0);
    assert_eq!(status, 1);
    assert_eq!(s.mix(other, at + 8, 1, 2), 0);
    assert_eq!(s.mix(stream, at, 1, 3), 0);
    let (mut nodes, mut count) = (ptr::null(), 0);
    let info =
        s.driver.cuStreamGetCaptureInfo_v2(other, &mut status, &mut id, &mut graph, &mut nodes, &mut count);
    assert_eq!((info, status, count), (0, 1, 1));
    assert_eq!(s.driver.cuEventRecord(join, other), 0);
    assert_eq!(s.driver.cuStreamWaitEvent(stream, join, 0), 0);
    assert_eq!(s.mix(stream, at, 2, 4), 0);
    assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), 0);
    assert_eq!(edges(graph), (4, 4));
    assert_eq!(s.driver.cuEventQuery(join), 907, "last recorded in a capture");
    assert_eq!(s.driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0), 0);
    assert_eq!(s.driver.cuGraphDestroy(graph), 0);
    assert_eq!(s.read(at, 2, stream), [0, 0], "captured work does not run");
    assert_eq!(s.driver.cuGraphLaunch(exec, stream), 0);
    let first = [1, 3].into_iter().fold(0, |word, value| step(word, word, 0, value));
    let got = s.read(at, 2, stream);
    assert_eq!(got[0], step(first, first, 0, 4));
    // The second word was element 0 of its own launch and element 1 of the last launch.
    let one = step(0, 0, 0, 2);
    assert_eq!(got[1], step(one, one, 1, 4));
    assert_eq!(s.driver.cuGraphExecDestroy(exec), 0);
}

#[test]
fn waiting_for_a_capturing_stream_ends_its_capture() {
    let s = begin();
    let (stream, at) = (s.stream(1), s.words(1));
    let (mut graph, mut status) = (7, 0);
    assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, THREAD_LOCAL), 0);
    assert_eq!(s.driver.cuStreamSynchronize(stream), 900);
    assert_eq!(s.driver.cuStreamIsCapturing(stream, &mut status), 0);
    assert_eq!(status, 2);
    assert_eq!(s.driver.cuMemsetD8Async(at, 1, 1, stream), 901);
    assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), 901);
    assert_eq!(graph, 0);
    assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), 401);
    assert_eq!(s.driver.cuStreamSynchronize(stream), 0, "the stream goes on");
}

#[test]
fn unsafe_calls_end_captures_that_forbid_them() {
    let s = begin();
    let stream = s.stream(1);
    let (mut graph, mut at) = (0, 0);
    for (mode, error, ended) in [(0, 900, 901), (THREAD_LOCAL, 900, 901), (RELAXED, 0, 0)] {
        assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, mode), 0);
        assert_eq!(s.driver.cuMemAlloc_v2(&mut at, 8), error, "mode {mode}");
        assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), ended, "mode {mode}");
    }
    // A thread that has relaxed its mode may.
    let mut mode = RELAXED;
    assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, 0), 0);
    assert_eq!(s.driver.cuThreadExchangeStreamCaptureMode(&mut mode), 0);
    assert_eq!((mode, s.driver.cuMemAlloc_v2(&mut at, 8)), (0, 0));
    assert_eq!(s.driver.cuThreadExchangeStreamCaptureMode(&mut mode), 0);
    assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), 0);
    // Only a global capture concerns other threads.
    let context = s.context;
    for (mode, error, ended) in [(0, 900, 901), (THREAD_LOCAL, 0, 0)] {
        assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, mode), 0);
        let elsewhere = std::thread::spawn(move || {
            let mut at = 0;
            assert_eq!(driver().cuCtxSetCurrent(context), 0);
            driver().cuMemAlloc_v2(&mut at, 8)
        });
        assert_eq!(elsewhere.join().unwrap(), error);
        assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), ended);
    }
}

#[test]
fn the_legacy_stream_cannot_be_used_beside_a_blocking_capture() {
    let s = begin();
    let (stream, at) = (s.stream(0), s.words(1));
    let (mut graph, mut status) = (0, 0);
    assert_eq!(s.driver.cuStreamBeginCapture_v2(0, RELAXED), 900);
    assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, RELAXED), 0);
    assert_eq!(s.driver.cuStreamIsCapturing(0, &mut status), 906);
    assert_eq!(s.driver.cuStreamIsCapturing(stream, &mut status), 0);
    assert_eq!(status, 1, "asking leaves it valid");
    assert_eq!(s.driver.cuMemsetD8Async(at, 1, 8, 0), 906);
    assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), 901);
}

#[test]
fn dependencies_across_the_border_of_a_capture_are_refused() {
    let s = begin();
    let (stream, other) = (s.stream(1), s.stream(1));
    let (outside, inside) = (s.event(2), s.event(2));
    let at = s.words(1);
    let mut graph = 0;
    assert_eq!(s.driver.cuEventRecord(outside, other), 0);
    assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, RELAXED), 0);
    assert_eq!(s.driver.cuStreamWaitEvent(stream, outside, 0), 905);
    assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), 901);
    // Work on another stream that was not joined.
    assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, RELAXED), 0);
    assert_eq!(s.driver.cuEventRecord(inside, stream), 0);
    assert_eq!(s.driver.cuStreamWaitEvent(other, inside, 0), 0);
    assert_eq!(s.driver.cuMemsetD8Async(at, 1, 8, other), 0);
    assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), 904);
    assert_eq!(s.driver.cuStreamSynchronize(other), 0, "no stream captures any more");
    // Two captures.
    assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, RELAXED), 0);
    assert_eq!(s.driver.cuStreamBeginCapture_v2(other, RELAXED), 0);
    assert_eq!(s.driver.cuEventRecord(inside, stream), 0);
    assert_eq!(s.driver.cuStreamWaitEvent(other, inside, 0), 902);
    for stream in [stream, other] {
        assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), 901);
    }
    // Another thread.
    let context = s.context;
    assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, THREAD_LOCAL), 0);
    let elsewhere = std::thread::spawn(move || {
        assert_eq!(driver().cuCtxSetCurrent(context), 0);
        driver().cuStreamEndCapture(stream, &mut 0)
    });
    assert_eq!(elsewhere.join().unwrap(), 908);
    assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), 901);
    // A stream that only takes part.
    assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, RELAXED), 0);
    assert_eq!(s.driver.cuEventRecord(inside, stream), 0);
    assert_eq!(s.driver.cuStreamWaitEvent(other, inside, 0), 0);
    assert_eq!(s.driver.cuStreamEndCapture(other, &mut graph), 903);
    assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), 901);
}

#[test]
fn queries_of_others_end_captures_that_forbid_them() {
    let s = begin();
    let (stream, other, event) = (s.stream(1), s.stream(1), s.event(2));
    assert_eq!(s.driver.cuEventRecord(event, other), 0);
    assert_eq!(s.driver.cuStreamSynchronize(other), 0);
    let calls: [&(dyn Fn() -> u32 + Sync); 4] = [
        &|| driver().cuStreamQuery(other),
        &|| driver().cuStreamSynchronize(other),
        &|| driver().cuEventQuery(event),
        &|| driver().cuEventSynchronize(event),
    ];
    let context = s.context;
    for (index, call) in calls.iter().enumerate() {
        for (mode, here, elsewhere) in [(0, 900, 900), (THREAD_LOCAL, 900, 0), (RELAXED, 0, 0)] {
            for (own, error) in [(true, here), (false, elsewhere)] {
                assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, mode), 0);
                let got = if own {
                    call()
                } else {
                    let ask = || {
                        assert_eq!(driver().cuCtxSetCurrent(context), 0);
                        call()
                    };
                    std::thread::scope(|scope| scope.spawn(ask).join().unwrap())
                };
                let ended = s.driver.cuStreamEndCapture(stream, &mut 0);
                let wanted = (error, if error == 0 { 0 } else { 901 });
                assert_eq!((got, ended), wanted, "call {index}, mode {mode}, own thread {own}");
            }
        }
    }
}

#[test]
fn a_destroyed_stream_ends_the_capture_that_it_began() {
    let s = begin();
    let (stream, mut graph) = (s.stream(1), 0);
    assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, 0), 0);
    assert_eq!(s.driver.cuStreamDestroy_v2(stream), 0);
    assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), 400);
    let mut at = 0;
    assert_eq!(s.driver.cuMemAlloc_v2(&mut at, 8), 0, "nothing captures any more");
}

#[test]
fn memory_of_a_graph_keeps_its_address_and_ends_with_it() {
    let s = begin();
    let (stream, host) = (s.stream(1), [3_u64]);
    let (mut graph, mut exec, mut at, mut free) = (0, 0, 0, [0; 2]);
    assert_eq!(s.driver.cuMemGetInfo_v2(&mut free[0], &mut 0), 0);
    assert_eq!(s.driver.cuStreamBeginCapture_v2(stream, 0), 0);
    assert_eq!(s.driver.cuMemAllocAsync(&mut at, 8, stream), 0);
    assert_eq!(s.driver.cuMemcpyAsync(at, host.as_ptr() as usize, 8, stream), 0);
    assert_eq!(s.mix(stream, at, 1, 4), 0);
    assert_eq!(s.driver.cuStreamEndCapture(stream, &mut graph), 0);
    assert_eq!(s.driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0), 0);
    assert_eq!(s.driver.cuGraphDestroy(graph), 0);
    assert_eq!(s.driver.cuGraphLaunch(exec, stream), 0);
    assert_eq!(s.read(at, 1, stream), [step(3, 3, 0, 4)]);
    assert_eq!(s.driver.cuMemFreeAsync(at, stream), 0);
    assert_eq!(s.driver.cuGraphLaunch(exec, stream), 0);
    assert_eq!(s.driver.cuGraphExecDestroy(exec), 0);
    assert_eq!(s.driver.cuStreamSynchronize(stream), 0);
    assert_eq!(s.driver.cuStreamDestroy_v2(stream), 0);
    assert_eq!(s.driver.cuMemcpy(at, host.as_ptr() as usize, 8), 1, "it is gone");
    assert_eq!(s.driver.cuMemGetInfo_v2(&mut free[1], &mut 0), 0);
    assert_eq!(free[0], free[1]);
}
