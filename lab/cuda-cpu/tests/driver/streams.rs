//! Order of streams, the legacy stream, events, host functions and the launch queue.

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;

use crate::support::{begin, driver, step};

const NOT_READY: c_uint = 600;
const NON_BLOCKING: c_uint = 1;

#[test]
fn commands_of_a_stream_run_in_order_and_return_at_once() {
    let s = begin();
    let (stream, at) = (s.stream(NON_BLOCKING), s.words(256));
    let gate = s.gate(stream);
    for value in 0..10 {
        assert_eq!(s.mix(stream, at, 256, value), 0);
    }
    assert_eq!(s.driver.cuStreamQuery(stream), NOT_READY);
    gate.open();
    let got = s.read(at, 256, stream);
    let want = |i: u64| (0..10).fold(0, |word, value| step(word, word, i, value));
    assert!(got.iter().zip(0..).all(|(word, i)| *word == want(i)));
    assert_eq!(s.driver.cuStreamQuery(stream), 0);
    assert_eq!(s.driver.cuStreamDestroy_v2(stream), 0);
    assert_eq!(s.driver.cuMemFree_v2(at), 0);
}

#[test]
fn arguments_belong_to_the_launch() {
    let s = begin();
    let (stream, at) = (s.stream(NON_BLOCKING), s.words(4));
    let gate = s.gate(stream);
    let mut extra_arguments = [at as u64, at as u64, 4, 7];
    let size = size_of_val(&extra_arguments);
    let extra: [*const c_void; 5] = [
        ptr::without_provenance(1),
        extra_arguments.as_ptr().cast(),
        ptr::without_provenance(2),
        (&raw const size).cast(),
        ptr::null(),
    ];
    let mix = s.function(c"mix");
    let launched = s.driver.cuLaunchKernel(mix, 1, 1, 1, 4, 1, 1, 0, stream, ptr::null(), extra.as_ptr());
    assert_eq!(launched, 0);
    extra_arguments.fill(0);
    gate.open();
    assert_eq!(s.read(at, 4, stream)[3], step(0, 0, 3, 7));
}

#[test]
fn the_legacy_stream_and_blocking_streams_wait_for_each_other() {
    let s = begin();
    let (blocking, other, free) = (s.stream(0), s.stream(0), s.stream(NON_BLOCKING));
    let at = s.words(1);
    let gate = s.gate(blocking);
    assert_eq!(s.driver.cuStreamQuery(other), 0, "blocking streams do not wait for each other");
    // Work on the legacy stream waits for the blocking stream, and later work on another blocking stream
    // waits for it.
    assert_eq!(s.driver.cuMemsetD8Async(at, 1, 8, 0), 0);
    assert_eq!(s.driver.cuMemsetD8Async(at, 2, 8, other), 0);
    for stream in [0, 1, blocking, other] {
        assert_eq!(s.driver.cuStreamQuery(stream), NOT_READY, "{stream}");
    }
    assert_eq!(s.driver.cuMemsetD8Async(at, 3, 4, free), 0);
    assert_eq!(s.driver.cuStreamSynchronize(free), 0, "a non-blocking stream waits for nobody");
    gate.open();
    assert_eq!(s.read(at, 1, other), [0x0202_0202_0202_0202]);
    assert_eq!(s.driver.cuStreamSynchronize(0), 0);
}

#[test]
fn the_stream_of_a_thread_is_its_own() {
    let s = begin();
    let gate = s.gate(2);
    assert_eq!(s.driver.cuStreamQuery(2), NOT_READY);
    let context = s.context;
    std::thread::spawn(move || {
        assert_eq!(driver().cuCtxSetCurrent(context), 0);
        assert_eq!(driver().cuStreamQuery(2), 0);
    })
    .join()
    .unwrap();
    gate.open();
    assert_eq!(s.driver.cuStreamSynchronize(2), 0);
}

#[test]
fn events_order_streams_and_tell_times() {
    let s = begin();
    let (first, second) = (s.stream(NON_BLOCKING), s.stream(NON_BLOCKING));
    let (start, end, untimed) = (s.event(0), s.event(0), s.event(2));
    let at = s.words(1);
    assert_eq!(s.driver.cuEventQuery(start), 0, "never recorded");
    let gate = s.gate(first);
    assert_eq!(s.driver.cuEventRecord(start, first), 0);
    assert_eq!(s.mix(first, at, 1, 1), 0);
    assert_eq!(s.driver.cuEventRecord(end, first), 0);
    assert_eq!(s.driver.cuStreamWaitEvent(second, end, 0), 0);
    assert_eq!(s.mix(second, at, 1, 2), 0);
    assert_eq!((s.driver.cuEventQuery(end), s.driver.cuStreamQuery(second)), (NOT_READY, NOT_READY));
    let mut ms = -1.0;
    assert_eq!(s.driver.cuEventElapsedTime(&mut ms, start, end), NOT_READY);
    gate.open();
    assert_eq!(s.read(at, 1, second), [step(step(0, 0, 0, 1), step(0, 0, 0, 1), 0, 2)]);
    assert_eq!(s.driver.cuEventSynchronize(end), 0);
    assert_eq!(s.driver.cuEventElapsedTime(&mut ms, start, end), 0);
    assert!(ms >= 0.0);
    assert_eq!(s.driver.cuEventRecord(untimed, first), 0);
    assert_eq!(s.driver.cuEventSynchronize(untimed), 0);
    assert_eq!(s.driver.cuEventElapsedTime(&mut ms, start, untimed), 400);
    assert_eq!(s.driver.cuEventDestroy_v2(end), 0);
    assert_eq!(s.driver.cuEventQuery(end), 400);
}

#[test]
fn calls_inside_host_functions_are_refused() {
    static SEEN: AtomicU32 = AtomicU32::new(0);
    static STATUS: AtomicU32 = AtomicU32::new(77);
    unsafe extern "C" fn host(_: *mut c_void) {
        SEEN.store(driver().cuStreamQuery(0), Ordering::Release);
    }
    unsafe extern "C" fn callback(stream: usize, status: c_uint, user: *mut c_void) {
        assert_eq!(stream, user as usize);
        STATUS.store(status, Ordering::Release);
    }
    let s = begin();
    let stream = s.stream(0);
    assert_eq!(s.driver.cuLaunchHostFunc(stream, Some(host), ptr::null_mut()), 0);
    let user = ptr::without_provenance_mut(stream);
    assert_eq!(s.driver.cuStreamAddCallback(stream, Some(callback), user, 0), 0);
    assert_eq!(s.driver.cuLaunchHostFunc(stream, None, ptr::null_mut()), 1);
    assert_eq!(s.driver.cuStreamSynchronize(stream), 0);
    assert_eq!((SEEN.load(Ordering::Acquire), STATUS.load(Ordering::Acquire)), (800, 0));
}

#[test]
fn a_full_launch_queue_holds_the_caller() {
    let (launched, launches) = channel();
    let s = begin();
    let (stream, at) = (s.stream(NON_BLOCKING), s.words(1));
    let gate = s.gate(stream);
    let context = s.context;
    let caller = std::thread::spawn(move || {
        assert_eq!(driver().cuCtxSetCurrent(context), 0);
        for _ in 0..1100 {
            assert_eq!(driver().cuMemsetD8Async(at, 1, 8, stream), 0);
            launched.send(()).unwrap();
        }
    });
    // The wait is at the front of the queue, so 1,023 more commands have room.
    assert_eq!(launches.iter().take(1023).count(), 1023);
    assert_eq!(s.driver.cuStreamQuery(stream), NOT_READY);
    assert!(launches.try_recv().is_err(), "the caller waits for room");
    gate.open();
    caller.join().unwrap();
    assert_eq!(s.driver.cuStreamSynchronize(stream), 0);
}

#[test]
fn loading_a_module_waits_for_running_work() {
    let s = begin();
    let stream = s.stream(NON_BLOCKING);
    let gate = s.gate(stream);
    let (context, (loaded, loads)) = (s.context, channel());
    let loader = std::thread::spawn(move || {
        assert_eq!(driver().cuCtxSetCurrent(context), 0);
        assert_eq!(driver().cuModuleLoadData(&mut 0, crate::support::PTX.as_ptr().cast()), 0);
        loaded.send(()).unwrap();
    });
    assert!(loads.recv_timeout(std::time::Duration::from_millis(50)).is_err(), "the stream is held");
    gate.open();
    loader.join().unwrap();
}

#[test]
fn a_destroyed_stream_ends_its_work_and_its_handle() {
    let s = begin();
    let (stream, at, event) = (s.stream(NON_BLOCKING), s.words(1), s.event(0));
    let gate = s.gate(stream);
    assert_eq!(s.mix(stream, at, 1, 9), 0);
    assert_eq!(s.driver.cuEventRecord(event, stream), 0);
    assert_eq!(s.driver.cuStreamDestroy_v2(stream), 0);
    assert_eq!(s.driver.cuStreamQuery(stream), 400);
    gate.open();
    assert_eq!(s.driver.cuEventSynchronize(event), 0);
    assert_eq!(s.read(at, 1, 0), [step(0, 0, 0, 9)]);
    assert_eq!(s.driver.cuStreamWriteValue32_v2(stream, at, 1, 0), 400);
}
