//! `gpu-sim run` says at the end which kernels it did not execute, and ends whatever becomes of that line.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tests::{Finished, Gpu, Run, arch, product, program};

/// The beginning of the line.
const LINE: &str = "gpu-sim: the simulated device did not execute these kernels";
/// How long a run may take that has a few seconds of work at most.
const LIMIT: Duration = Duration::from_secs(60);

/// The program with a kernel that is not one of the project's own.
fn kernels() -> PathBuf {
    program("kernels").unwrap_or_else(|reason| panic!("{reason}"))
}

/// A shell that runs this script, with the program as `$0`.
fn shell(gpu: &Gpu, script: &str) -> Run {
    let run = gpu.run_executable(Path::new("/bin/sh")).arg("-c").arg(script);
    run.arg(kernels().display().to_string()).loud().limit(LIMIT)
}

/// The lists of kernels in the lines that were said.
fn said(stderr: &str) -> Vec<&str> {
    let lines = stderr.lines().filter(|line| line.starts_with(LINE));
    let lists =
        lines.map(|line| line.split_once("missing: ").and_then(|(_, rest)| rest.split_once(". They")));
    lists.map(|list| list.expect("a list").0).collect()
}

fn expect_one_stranger(run: &Finished) {
    assert_eq!(said(&run.stderr), ["stranger (1 launch)"], "{run:?}");
}

#[test]
fn kernels_that_are_not_executed_are_named_once() {
    let gpu = Gpu::take();
    let loud = gpu.run("kernels").loud().finish();
    expect_one_stranger(loud.expect_success());
    expect_one_stranger(gpu.run("kernels").loud().with_stats().finish().expect_success());
    // The run around it leaves that to the one inside.
    expect_one_stranger(gpu.run("kernels").loud().nested().finish().expect_success());
    let quiet = gpu.run("kernels").finish();
    assert_eq!((quiet.expect_success().stdout.as_str(), quiet.stderr.as_str()), (loud.stdout.as_str(), ""));
    // Of the runtime's kernels all are executed.
    let executed = gpu.run("copies").loud().finish();
    assert_eq!(executed.expect_success().stderr, "");
}

#[test]
fn each_run_on_shared_gpus_hears_of_its_own_programs() {
    let gpu = Gpu::take();
    let mut keeper = gpu.keep_run().loud().start();
    for _ in 0..2 {
        expect_one_stranger(gpu.shared("kernels").loud().finish().expect_success());
    }
    assert_eq!(gpu.shared("copies").loud().finish().expect_success().stderr, "");
    keeper.let_go();
    assert_eq!(keeper.finish().stderr, "");
}

/// The process that started the program has ended when the program opens the device.
#[test]
fn orphans_belong_to_the_run() {
    let gpu = Gpu::take();
    let folder = tempfile::tempdir().expect("a folder");
    // The shell between, whose child the program would be, ends at once.
    let script = "cd $1; mkfifo go done; sh -c '(read go <go; \"$0\" >/dev/null; echo done >done) &' \"$0\"; \
                  echo go >go; read done <done; exit 3";
    let run = shell(&gpu, script).arg(folder.path().display().to_string()).finish();
    assert_eq!(run.code, 3, "{run:?}");
    expect_one_stranger(&run);
}

/// As in a container: gpu-sim is process 1 there, and all numbers are others than outside.
#[test]
fn the_first_process_of_a_pid_namespace_hears_of_its_programs() {
    let _gpu = Gpu::take();
    let mut command = limited();
    command.args(["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]).arg(gpu_sim());
    command.args(["run", "--arch", &arch(), "--", "sh", "-c", "echo $PPID; exec \"$0\""]).arg(kernels());
    let run = command.output().expect("it starts");
    assert!(run.status.success() && run.stdout.starts_with(b"1\n"), "{run:?}");
    assert_eq!(said(&String::from_utf8_lossy(&run.stderr)), ["stranger (1 launch)"], "{run:?}");
}

/// The supervisor is outside, and knows the launcher by another number than the launcher itself.
#[test]
fn a_run_from_a_pid_namespace_hears_of_its_programs() {
    let gpu = Gpu::take();
    let mut keeper = gpu.keep();
    // Only a run outside makes GPUs of this architecture and size; the other one joins it.
    gpu.shared("copies").finish().expect_success();
    let mut command = limited();
    command.args(["unshare", "--pid", "--fork", "--kill-child"]).arg(gpu_sim());
    let run = command.args(["run", "--name", gpu.name(), "--"]).arg(kernels()).output().expect("it starts");
    assert!(run.status.success(), "{run:?}");
    assert_eq!(said(&String::from_utf8_lossy(&run.stderr)), ["stranger (1 launch)"], "{run:?}");
    keeper.let_go();
    assert_eq!(keeper.finish().code, 0);
}

/// Stops the supervisor and waits until each of its threads stands: until one of them has taken the signal, the others go on.
const STOP: &str = "kill -STOP $GPU_SIM_PID
    while grep -h ^State: /proc/$GPU_SIM_PID/task/*/status | grep -qv 'T (stopped)'; do :; done";

/// The supervisor does not answer any more.
#[test]
fn a_stopped_supervisor_keeps_no_run_from_ending() {
    let gpu = Gpu::take();
    for (end, code) in [("exit 7", 7), ("kill -TERM $$", 128 + 15)] {
        let run = shell(&gpu, &format!("\"$0\"; {STOP}; echo $GPU_SIM_PID; {end}")).finish();
        let supervisor = run.stdout.lines().last().and_then(|line| line.parse().ok()).and_then(Pid::from_raw);
        // It would go on for ever otherwise.
        kill_process(supervisor.expect("the supervisor's id"), Signal::CONT).expect("it is only stopped");
        assert_eq!((run.code, said(&run.stderr).len()), (code, 0), "{run:?}");
    }
}

/// Statistics cannot be left out without a word.
#[test]
fn a_stopped_supervisor_owes_statistics_and_the_run_ends_all_the_same() {
    let gpu = Gpu::take();
    let script = format!("{STOP}; echo $GPU_SIM_PID");
    let mut run = gpu
        .run_executable(Path::new("/bin/sh"))
        .sim("--stats", "/dev/null")
        .arg("-c")
        .arg(&script)
        .limit(LIMIT)
        .start();
    let supervisor = run.line().parse().ok().and_then(Pid::from_raw).expect("the supervisor's id");
    let run = run.finish();
    kill_process(supervisor, Signal::CONT).expect("it is only stopped");
    assert_eq!(run.code, 125, "{run:?}");
    assert!(run.stderr.contains("does not answer within 10s: is it stopped?"), "{run:?}");
}

/// With the supervisor its programs end, so that the shell's own end may come before or after.
#[test]
fn a_dead_supervisor_keeps_no_run_from_ending() {
    let gpu = Gpu::take();
    let run = shell(&gpu, "\"$0\"; kill -KILL $GPU_SIM_PID; exit 7").finish();
    assert!([7, 128 + 9].contains(&run.code) && said(&run.stderr).is_empty(), "{run:?}");
}

/// Processes that the command leaves running delay neither the line nor the end.
#[test]
fn background_process_delays_no_end() {
    let gpu = Gpu::take();
    let run = shell(&gpu, "sleep 1000 >/dev/null 2>&1 & \"$0\"; kill -USR1 $$").finish();
    assert_eq!(run.code, 128 + 10, "{run:?}");
    expect_one_stranger(&run);
}

/// Standard error is full or closed.
#[test]
fn a_line_that_nobody_reads_keeps_no_run_from_ending() {
    let _gpu = Gpu::take();
    for read_end_stays in [true, false] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&writer, true).expect("a pipe does not have to wait");
        while rustix::io::write(&writer, &[b'.'; 4096]).is_ok() {}
        rustix::io::ioctl_fionbio(&writer, false).expect("a pipe may wait");
        let reader = read_end_stays.then_some(reader);
        let mut command = limited();
        command.arg(gpu_sim()).args([
            "run",
            "--arch",
            &arch(),
            "--",
            "sh",
            "-c",
            "\"$0\" 2>/dev/null; exit 5",
        ]);
        let status = command.arg(kernels()).stdout(Stdio::null()).stderr(writer).status();
        assert_eq!(status.expect("it starts").code(), Some(5));
        drop(reader);
    }
}

fn gpu_sim() -> PathBuf {
    product("gpu-sim").unwrap_or_else(|reason| panic!("{reason}"))
}

/// The beginning of a command line: a program that is killed if it takes too long, and then has the code 137.
fn limited() -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", &LIMIT.as_secs().to_string()]).stdin(Stdio::null());
    command
}
