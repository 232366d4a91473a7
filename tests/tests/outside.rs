//! Programs that were not preloaded, suspended and resumed by `xcli` through an `xserver` beside them on one simulated GPU.
//! The installed runtime may be too old to enable debugging; the program does it then.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::stage::{Stage, complete, is_over, stands_still, step, tell, text};
use tests::{HANG, until};

#[test]
fn a_program_is_suspended_and_resumed_by_hand() {
    let stage = Stage::new();
    let _server = stage.server();
    let log = stage.folder.path().join("log");
    let logs = [("AMD_LOG_LEVEL", "3"), ("AMD_LOG_LEVEL_FILE", log.to_str().expect("a path"))];
    let (mut program, pid) = stage.program(&[], &logs);
    let (mut other, _) = stage.program(&[], &[]);
    step(&mut program);

    let fates = stage.json(&["suspend", &pid, "--json"]);
    let compute: Vec<&Value> = fates["queues"].as_array().expect("queues").iter().collect();
    assert!(!compute.is_empty() && compute.iter().all(|queue| queue["fate"] == "done"), "{fates}");
    stands_still(&mut program, &mut other);

    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("its name");
    let name = name.trim();
    let held = stage.held();
    assert_eq!((held.len(), held[0]["pid"].to_string()), (1, pid.clone()));
    assert_eq!(
        (held[0]["name"].as_str(), held[0]["queues"].as_array().map(Vec::len)),
        (Some(name), Some(compute.len()))
    );
    let table = stage.xcli(&["list"]);
    assert!(text(&table.stdout).contains("suspended by xcli suspend:"), "{}", text(&table.stdout));

    // The step lies in a queue that nothing is taken from.
    let seen = stage.json(&["queues", &pid, "--json"]);
    assert_eq!((&seen["held_from_outside"], &seen["log"]), (&Value::Bool(true), &Value::Null));
    let queues = seen["queues"].as_array().expect("queues");
    let waits = |queue: &&Value| queue["write_pointer"].as_u64() > queue["read_pointer"].as_u64();
    let waiting: Vec<&Value> =
        queues.iter().filter(|queue| queue["type"] == "compute").filter(waits).collect();
    assert_eq!(waiting.len(), 1, "{seen}");
    assert_eq!(waiting[0]["held_from_outside"], true);
    let address = waiting[0]["ring_address"].as_str().and_then(|address| address.strip_prefix("0x"));
    assert!(
        address.is_some_and(|address| u64::from_str_radix(address, 16).is_ok_and(|address| address > 0)),
        "{seen}"
    );
    assert!(text(&stage.xcli(&["queues", &pid]).stdout).contains("suspended"));

    // The runtime's log names the same queues by their addresses.
    let file = log_file(stage.folder.path());
    let file = file.to_str().expect("a path");
    let by_log = stage.json(&["queues", &pid, "--json", "--amd-log", file]);
    let named: Vec<_> =
        by_log["log"].as_array().expect("queues").iter().map(|queue| queue["queue"].clone()).collect();
    assert!(!named.is_empty() && named.contains(&waiting[0]["id"]), "{by_log}");
    assert!(named.iter().all(|id| queues.iter().any(|queue| queue["id"] == *id)), "{by_log}");

    // What is not held is not resumed.
    let never = stage.xcli(&["resume", &pid, "--queue", "999"]);
    assert_eq!((never.status.code(), text(&never.stdout)), (Some(1), ""));
    assert_eq!(
        text(&never.stderr),
        format!("xcli: process {pid}, queue 999: this server has not suspended it\n")
    );
    assert_eq!(stage.held()[0]["queues"].as_array().map(Vec::len), Some(compute.len()));

    // Of one queue after the other, and of all.
    let first = compute[0]["queue"].to_string();
    assert_eq!(stage.json(&["resume", &pid, "--queue", &first, "--json"])["queues"][0]["fate"], "done");
    let resumed = stage.xcli(&["resume", &pid]);
    if compute.len() > 1 {
        assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed.stderr));
        assert!(text(&resumed.stdout).starts_with(&format!("process {pid} ({name}): resumed queue")));
    }
    complete(&mut program);
    assert!(stage.held().is_empty());
    step(&mut program);
    let again = stage.xcli(&["resume", &pid]);
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(text(&again.stderr), format!("xcli: this server has suspended no queue of process {pid}\n"));

    // Only one of them.
    let id = waiting[0]["id"].to_string();
    let one = stage.json(&["suspend", &pid, "--queue", &id, "--json"]);
    assert_eq!(one["held"].to_string(), format!("[{id}]"));
    stands_still(&mut program, &mut other);
    let words = stage.xcli(&["resume", &pid]);
    assert_eq!(text(&words.stdout), format!("process {pid} ({name}): resumed queue {id}\n"));
    complete(&mut program);
    program.finish().expect_success();
    other.finish().expect_success();
}

/// HIP adds the process to the name.
fn log_file(folder: &Path) -> PathBuf {
    let files = std::fs::read_dir(folder).expect("the folder").flatten().map(|entry| entry.path());
    let mut logs =
        files.filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"log")));
    logs.next().expect("a log")
}

#[test]
fn a_server_that_is_killed_lets_go_and_a_process_that_is_killed_is_forgotten() {
    let stage = Stage::new();
    let server = stage.server();
    let (mut program, pid) = stage.program(&[], &[]);
    let (mut other, _) = stage.program(&[], &[]);
    stage.json(&["suspend", &pid, "--json"]);
    stands_still(&mut program, &mut other);
    server.kill_program();
    complete(&mut program);
    step(&mut program);
    drop(server);

    let _server = stage.server();
    assert!(stage.held().is_empty());
    stage.json(&["suspend", &pid, "--json"]);
    assert_eq!(stage.held().len(), 1);
    stands_still(&mut program, &mut other);
    program.kill_program();
    until("the server forgets it", || stage.held().is_empty().then_some(()));
    let gone = stage.xcli(&["resume", &pid]);
    assert_eq!(gone.status.code(), Some(1), "{}", text(&gone.stdout));
    step(&mut other);
    other.finish().expect_success();
}

/// One that `xcli suspend` starts stays as long as it holds something, and no longer.
#[test]
fn a_server_of_xclis_own_stays_as_long_as_it_holds() {
    let stage = Stage::new();
    let (mut program, pid) = stage.program(&[], &[]);
    let (mut other, _) = stage.program(&[], &[]);
    let none = stage.xcli(&["resume", &pid]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("no xserver runs"), "{}", text(&none.stderr));

    let socket = stage.socket().display().to_string();
    let xcli =
        stage.gpu.shared_product("xcli").env("XSCHED_SOCKET", &socket).arg("suspend").arg(pid.as_str());
    let suspended = xcli.finish();
    assert_eq!(suspended.code, 0, "{suspended:?}");
    let server =
        stage.list().expect("the server that was started")["server"]["pid"].as_i64().expect("its number");
    let server = Pid::from_raw(i32::try_from(server).expect("a number")).expect("a process");
    // Longer than an unused one stays.
    assert!(!is_over(server, Duration::from_millis(2500)), "the server has ended while it held something");
    stands_still(&mut program, &mut other);
    assert_eq!(stage.xcli(&["resume", &pid]).status.code(), Some(0));
    complete(&mut program);
    assert!(is_over(server, HANG), "the server is used by nobody");
    program.finish().expect_success();
    other.finish().expect_success();
}

#[test]
fn process_that_cannot_be_suspended_gets_the_reason() {
    let stage = Stage::new();
    let _server = stage.server();
    let refused = |words: &[&str]| {
        let output = stage.xcli(words);
        let error = text(&output.stderr).to_owned();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}{error}", text(&output.stdout));
        assert!(error.starts_with("xcli: ") && error.lines().count() == 1, "{error}");
        error
    };
    assert_eq!(refused(&["suspend", "2147483647"]), "xcli: there is no process 2147483647\n");
    // `cat`, which knows nothing of GPUs.
    let cat = stage.keep.program().expect("it runs").as_raw_nonzero().to_string();
    assert_eq!(
        refused(&["suspend", &cat]),
        format!("xcli: process {cat} (cat): the process has not opened /dev/kfd\n")
    );
    let (program, pid) = stage.program(&["plain"], &[]);
    if tests::hip_major() < 6 {
        let why = refused(&["suspend", &pid]);
        assert!(why.contains("has not enabled debugging, as before ROCm 5.5"), "{why}");
    }
    program.finish().expect_success();
    let (mut program, pid) = stage.program(&[], &[]);
    let why = refused(&["suspend", &pid, "--queue", "999"]);
    assert!(why.contains(&format!("process {pid}, queue 999: there is no such queue")), "{why}");
    assert!(stage.held().is_empty(), "nothing of it is held, and it is debugged by nobody");
    let why = traced(&pid, || refused(&["suspend", &pid]));
    assert!(why.contains("the process must not be traced: process "), "{why}");
    stage.json(&["suspend", &pid, "--json"]);
    // A second server finds it debugged; its end then ends the hold, as in the driver, and the first one says so.
    let place = tempfile::tempdir().expect("a folder");
    let socket = place.path().join("xserver.sock").display().to_string();
    let rival = stage.gpu.shared_product("xserver").env("XSCHED_SOCKET", &socket).start();
    until("the second server answers", || {
        stage.xcli(&["-a", &socket, "list"]).status.success().then_some(())
    });
    let why = refused(&["-a", &socket, "suspend", &pid]);
    assert!(why.ends_with("is being debugged already\n"), "{why}");
    assert_eq!(tell(&mut program), "submitted");
    rival.kill_program();
    complete(&mut program);
    let why = refused(&["resume", &pid]);
    assert!(why.ends_with("was lost to another debugger, and the process goes on\n"), "{why}");
    assert!(stage.held().is_empty());

    // A log that tells nothing.
    let log = stage.folder.path().join("empty");
    std::fs::write(&log, "nothing\n").expect("a file");
    let why = refused(&["queues", &pid, "--amd-log", log.to_str().expect("a path")]);
    assert!(why.contains("contains no hardware queue"), "{why}");
    program.finish().expect_success();

    for wrong in [
        &["suspend"][..],
        &["suspend", "0"],
        &["suspend", "x"],
        &["resume", "1", "--queue", "x"],
        // Bits of a number that the driver keeps for its answer.
        &["suspend", "1", "--queue", "1073741824"],
        &["suspend", "1", "--queue", "2147483653"],
    ] {
        assert_eq!(stage.xcli(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// Meanwhile a debugger traces the process.
fn traced<T: Send>(pid: &str, meanwhile: impl FnOnce() -> T + Send) -> T {
    let number: libc::pid_t = pid.parse().expect("a number");
    // The thread's end lets it go.
    let debugger = move || {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: touches no memory of ours; a process that is not there is an error.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, number, none, none) };
        assert_eq!(seized, 0, "{}", std::io::Error::last_os_error());
        meanwhile()
    };
    std::thread::scope(|scope| scope.spawn(debugger).join()).expect("it does not panic")
}

/// HIP 5.2.3 leaves its queues to the driver when main returns, which takes them from a process that is gone whether they are
/// held or not. A runtime that destroys them itself has to wait.
#[test]
fn a_program_that_ends_while_it_is_held_waits_for_nobody_else() {
    let stage = Stage::new();
    let _server = stage.server();
    let (mut program, pid) = stage.program(&["leaves"], &[]);
    step(&mut program);
    stage.json(&["suspend", &pid, "--json"]);
    let number = program.program().expect("it runs");
    program.let_go();
    assert_eq!(program.line(), "ok", "main returns");
    if tests::hip_major() < 6 {
        assert!(is_over(number, HANG), "it waits although it destroys nothing");
    } else if !is_over(number, Duration::from_millis(2500)) {
        assert_eq!(stage.xcli(&["resume", &pid]).status.code(), Some(0));
        assert!(is_over(number, HANG), "it waits although it is resumed");
    }
    until("the server forgets it", || stage.held().is_empty().then_some(()));
    program.finish().expect_success();
}

/// The server's end by a signal that asks for it is an end like any other.
#[test]
fn a_server_that_ends_lets_go() {
    let stage = Stage::new();
    let server = stage.server();
    let (mut program, pid) = stage.program(&[], &[]);
    stage.json(&["suspend", &pid, "--json"]);
    assert_eq!(tell(&mut program), "submitted");
    kill_process(server.program().expect("it runs"), Signal::TERM).expect("it runs");
    complete(&mut program);
    assert_eq!(server.finish().code, 0);
    program.finish().expect_success();
}

/// A client that is held has work and does not get on; those that it is more urgent than do.
#[test]
fn a_client_that_is_held_keeps_nobody_waiting() {
    let stage = Stage::new();
    let _server = stage.server();
    let (mut urgent, pid) = stage.client("10");
    let (mut batch, _) = stage.client("1");
    let clients = || stage.list().expect("a server")["clients"].as_array().expect("clients").clone();
    until("both are clients", || (clients().len() == 2).then_some(()));
    stage.json(&["suspend", &pid, "--json"]);
    assert_eq!(tell(&mut urgent), "submitted");
    // Else it could be done with its step before the server has heard of the other's.
    until("the other one has to wait", || {
        clients().iter().any(|client| client["permit"]["run"] == false).then_some(())
    });
    assert_eq!(tell(&mut batch), "submitted");
    until("it yields", || clients().iter().any(|client| client["yielded"] == true).then_some(()));
    let yielded: Vec<Value> = clients().into_iter().filter(|client| client["yielded"] == true).collect();
    assert_eq!((yielded.len(), yielded[0]["pid"].to_string()), (1, pid.clone()));
    complete(&mut batch);
    assert_eq!(tell(&mut urgent), "pending");
    assert_eq!(stage.xcli(&["resume", &pid]).status.code(), Some(0));
    complete(&mut urgent);
    urgent.finish().expect_success();
    batch.finish().expect_success();
}
