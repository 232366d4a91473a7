//! Memory and events that processes share, and forked children.

use std::process::Command;
use std::ptr;

use crate::support::{IpcHandle, begin, driver, step};

fn hex(handle: &IpcHandle) -> String {
    handle.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the handle in an environment variable.
fn handle(name: &str) -> IpcHandle {
    let text = std::env::var(name).expect(name);
    let byte = |index: usize| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).expect("two digits");
    IpcHandle(std::array::from_fn(byte))
}

#[test]
fn another_process_uses_memory_and_events_of_this_one() {
    let s = begin();
    let (stream, at, event) = (s.stream(1), s.words(1024), s.event(6));
    let [mut memory, mut recorded] = [IpcHandle([0; 64]); 2];
    assert_eq!(s.driver.cuIpcGetMemHandle(&mut memory, at + 8), 0);
    assert_eq!(s.driver.cuIpcGetEventHandle(&mut recorded, event), 0);
    assert_eq!(s.driver.cuIpcGetEventHandle(&mut recorded, s.event(2)), 400, "not for other processes");
    assert_eq!(s.driver.cuIpcOpenMemHandle_v2(&mut 0, memory, 1), 201, "its own memory");
    assert_eq!(s.driver.cuIpcOpenMemHandle_v2(&mut 0, IpcHandle([7; 64]), 1), 1);
    assert_eq!(s.driver.cuIpcGetEventHandle(&mut recorded, event), 0);
    assert_eq!(s.mix(stream, at, 1, 5), 0);
    assert_eq!(s.driver.cuStreamSynchronize(stream), 0);
    // The other process ends this wait.
    assert_eq!(s.driver.cuStreamWaitValue32_v2(stream, at + 512, 1, 1), 0);
    assert_eq!(s.driver.cuEventRecord(event, stream), 0);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::child_of_the_test", "--ignored", "--nocapture"])
        .env("MEMORY", hex(&memory))
        .env("EVENT", hex(&recorded))
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    assert_eq!(s.driver.cuStreamSynchronize(stream), 0);
    let first = step(0, 0, 0, 5);
    assert_eq!(s.read(at, 1, stream), [step(first, first, 0, 6)]);
}

#[test]
#[ignore = "the other process of another_process_uses_memory_and_events_of_this_one"]
fn child_of_the_test() {
    let s = begin();
    let (stream, other) = (s.stream(1), s.stream(1));
    let (mut at, mut event) = (0, 0);
    assert_eq!(s.driver.cuIpcOpenMemHandle_v2(&mut at, handle("MEMORY"), 1), 0);
    assert_eq!(s.driver.cuIpcOpenEventHandle(&mut event, handle("EVENT")), 0);
    assert_eq!(s.driver.cuEventQuery(event), 600);
    // A stream waits for the event of the other process, and then changes its memory.
    assert_eq!(s.driver.cuStreamWaitEvent(stream, event, 0), 0);
    assert_eq!(s.mix(stream, at, 1, 6), 0);
    assert_eq!(s.driver.cuStreamQuery(stream), 600);
    assert_eq!(s.driver.cuStreamWriteValue32_v2(other, at + 512, 1, 0), 0);
    assert_eq!(s.driver.cuEventSynchronize(event), 0);
    assert_eq!(s.driver.cuStreamSynchronize(stream), 0);
    assert_eq!(s.driver.cuMemFree_v2(at), 1, "it is the other's");
    assert_eq!(s.driver.cuIpcCloseMemHandle(at), 0);
    assert_eq!(s.driver.cuIpcCloseMemHandle(at), 1);
}

#[test]
fn a_forked_child_is_refused() {
    let s = begin();
    let query = driver();
    // SAFETY: the child only makes calls that read flags and return, and `_exit` runs no destructors.
    // `waitpid` writes to a local variable.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let refused =
                query.cuInit(0) == 3 && query.cuStreamQuery(0) == 3 && query.cuCtxSynchronize() == 3;
            libc::_exit(if refused { 0 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    }
    assert_eq!(s.driver.cuStreamQuery(0), 0);
    assert_eq!(s.driver.cuEventCreate(ptr::null_mut(), 0), 1);
}

#[test]
fn processes_that_share_the_device_take_turns() {
    // Both finish: neither holds the device beyond its kernels.
    let run = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "streams::commands_of_a_stream_run_in_order_and_return_at_once"])
            .env("CUDA_CPU_SHARED", "1")
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    for mut process in [run(), run()] {
        assert!(process.wait().unwrap().success());
    }
}
