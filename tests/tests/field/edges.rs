//! Most of these tell `tests/programs/scheduling/edges.cpp` what to do to itself, line by line.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tests::{Daemon, Gpu, Mode, Run, Running, until};

/// The library with these variables.
fn preloaded(env: &[(&str, &str)]) -> Mode {
    Mode::Shimmed { env: env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect() }
}

/// A part of a co-run under this server.
pub(super) fn under(daemon: &Daemon, priority: &str, run: Run, more: &[(&str, &str)]) -> Running {
    let socket = daemon.socket().display().to_string();
    let mut env = vec![
        ("XSCHED_SOCKET", socket.as_str()),
        ("XSCHED_SCHEDULER", "GLB"),
        ("XSCHED_AUTO_XQUEUE", "ON"),
        ("XSCHED_AUTO_XQUEUE_PRIORITY", priority),
    ];
    env.extend_from_slice(more);
    run.mode(preloaded(&env)).start()
}

/// Has the program do something, and waits until it is done.
pub(super) fn tell(program: &mut Running, line: &str) {
    program.tell(line);
    assert_eq!(program.line(), line.split(' ').next().unwrap_or_default());
}

/// The client of this priority, once the server knows its queues.
pub(super) fn client(daemon: &Daemon, priority: i64) -> Option<Value> {
    let of = |client: &Value| client["queues"].as_array()?.first()?["priority"].as_i64();
    daemon.clients().into_iter().find(|client| of(client) == Some(priority))
}

/// A program of priority 0 that knows its server, and an urgent one that never has enough.
fn suspended(gpu: &Gpu, daemon: &Daemon, filter: &str) -> [Running; 2] {
    let mut low = under(daemon, "0", gpu.shared("edges"), &[]);
    tell(&mut low, "start");
    until("the server knows it", || client(daemon, 0));
    tell(&mut low, filter);
    let mut high = under(daemon, "10", gpu.shared("stay").arg("1"), &[]);
    assert_eq!(high.line(), "ready");
    // It has work now, and waits.
    low.tell("work 3");
    until("it waits", || (client(daemon, 0)?["permit"]["run"] == false).then_some(()));
    assert!(!low.has_line(), "it waits");
    [low, high]
}

/// A filter may end the thread that sees to the lease: then the thread that hears of permissions does.
#[test]
fn a2_without_an_agent_a_suspension_ends_with_its_lease() {
    let (gpu, daemon) = (Gpu::take(), Daemon::start(&[]));
    let [mut low, high] = suspended(&gpu, &daemon, "filter killthread ppoll");
    drop(daemon);
    assert_eq!(low.line(), "work", "it runs without its server");
    low.finish().expect_success();
    high.kill_program();
}

/// And the other way round.
#[test]
fn a2_without_a_listener_a_permission_is_heard_of() {
    let (gpu, daemon) = (Gpu::take(), Daemon::start(&[]));
    let [mut low, high] = suspended(&gpu, &daemon, "filter killthread shared-futex");
    high.kill_program();
    assert_eq!(low.line(), "work", "it runs when the other one has gone");
    low.finish().expect_success();
}

/// A thread of a program that is stopped as a debugger stops it, as long as this lives.
struct Stopped(libc::pid_t);

impl Stopped {
    /// The thread of this name, while it sleeps: so it has no lock that others need.
    fn thread(program: &Running, name: &str) -> Self {
        let pid = program.program().expect("it runs").as_raw_nonzero();
        until("its thread sleeps", || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
            let is_it = |task: &std::fs::DirEntry| {
                std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
            };
            let thread = tasks.into_iter().find(is_it)?.file_name();
            let stopped = Self::stop(thread.to_str()?.parse().ok()?);
            stopped.sleeps().then_some(stopped)
        })
    }

    fn stop(thread: libc::pid_t) -> Self {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: numbers alone; the thread goes on when this one detaches, or ends.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none) }, 0);
        let mut status = 0;
        // SAFETY: fills the number.
        assert_eq!(unsafe { libc::waitpid(thread, &mut status, libc::__WALL) }, thread);
        assert!(libc::WIFSTOPPED(status), "{status:x}");
        Self(thread)
    }

    /// Returns true if it was inside a futex system call.
    fn sleeps(&self) -> bool {
        let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::uninit();
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the thread is stopped by this one; fills the structure.
        let read = unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.0, none, registers.as_mut_ptr()) };
        assert_eq!(read, 0);
        // SAFETY: filled above.
        let registers = unsafe { registers.assume_init() };
        // The kernel's own numbers for a call that is to begin anew.
        let restarts = (-516..=-512).contains(&registers.rax.cast_signed());
        registers.orig_rax.cast_signed() == libc::SYS_futex && restarts
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: numbers alone. It may have ended.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, none, none) };
    }
}

/// A stream that the process's own policy has suspended continues when its rival has no more work, although one
/// of the library's threads is stopped.
#[test]
fn a2_no_thread_of_the_librarys_keeps_a_queue_suspended() {
    let gpu = Gpu::take();
    let run_beside_stopped = |thread: &str| {
        let env = [("XSCHED_AUTO_XQUEUE", "ON"), ("XSCHED_POLICY", "HPF")];
        let mut program = gpu.run("edges").mode(preloaded(&env)).start();
        tell(&mut program, "rival");
        tell(&mut program, "beside");
        let stopped = Stopped::thread(&program, thread);
        tell(&mut program, "calm");
        tell(&mut program, "behind");
        drop(stopped);
        let end = program.finish();
        end.expect_success();
        end.stderr
    };
    for thread in ["giveway-launch", "giveway-watch"] {
        run_beside_stopped(thread);
    }
    // The program takes its stream for suspended if work does not end for a while. A busy machine can be the
    // reason for that, and then the library has nothing to log.
    let mut said = (0..10).map(|_| run_beside_stopped("giveway-agent"));
    assert!(said.any(|said| said.contains("does not answer: they run unscheduled")));
}

/// A program that cannot have more threads than the runtime has made launches by itself.
#[test]
fn a4_without_threads_of_ours_launches_go_on() {
    let gpu = Gpu::take();
    for more in [("XSCHED_SCHEDULER", "APP"), ("XSCHED_POLICY", "HPF"), ("XSCHED_TEST", "defer")] {
        let mut program = gpu.run("edges").mode(preloaded(&[("XSCHED_AUTO_XQUEUE", "ON"), more])).start();
        for line in ["nothreads", "start", "work 100", "query"] {
            tell(&mut program, line);
        }
        let end = program.finish();
        end.expect_success();
        assert!(end.stderr.matches("no worker thread").count() <= 1, "{}", end.stderr);
    }
}

/// Files of the program's own under these names, which hold what it has written.
fn hold_data(folder: &Path, count: usize) {
    for number in 0..count {
        let path = folder.join(format!("data{number}"));
        assert_eq!(std::fs::read(&path).expect("a file of the program's"), b"DATA", "{}", path.display());
    }
}

/// In the line that the library writes at the end of a program.
const TOTALS: &str = "calls launch=";

#[test]
fn a1_no_line_of_the_log_stands_in_a_file_of_the_program() {
    let (gpu, folder) = (Gpu::take(), tempfile::tempdir().expect("a folder"));
    let prefix = folder.path().join("data").display().to_string();
    let log = folder.path().join("log").display().to_string();
    // The log's own file, and standard error.
    for (env, close, count) in
        [(Some(("XSCHED_LOG_FILE", log.as_str())), "close 100 1023", 950), (None, "close 2 2", 1)]
    {
        let env: Vec<_> = [("XSCHED_LOG_LEVEL", "debug")].into_iter().chain(env).collect();
        let mut program = gpu.run("edges").mode(preloaded(&env)).start();
        for line in ["start", close, &format!("files {prefix} {count}"), "work 1"] {
            tell(&mut program, line);
        }
        program.finish().expect_success();
        hold_data(folder.path(), count);
    }
}

#[test]
fn a5_an_eventfd_of_the_program_is_not_ours() {
    let (gpu, daemon) = (Gpu::take(), Daemon::start(&[]));
    let mut program = under(&daemon, "0", gpu.run("edges"), &[]);
    tell(&mut program, "start");
    until("the server knows it", || client(&daemon, 0));
    tell(&mut program, "close 600 1023");
    tell(&mut program, "eventfd 600 1023");
    tell(&mut program, "work 20");
    // It goes on without its server, whose descriptors the program has closed.
    until("it has left", || daemon.clients().is_empty().then_some(()));
    tell(&mut program, "work 20");
    program.tell("count");
    assert_eq!(program.line(), "5");
    program.finish().expect_success();
}

#[test]
fn a7_a_log_that_may_not_grow_ends_nobody() {
    let (gpu, folder) = (Gpu::take(), tempfile::tempdir().expect("a folder"));
    let stderr = folder.path().join("stderr");
    let run = gpu.run("edges").arg("stderr").arg(stderr.display().to_string());
    let mut program = run.mode(preloaded(&[("XSCHED_LOG_LEVEL", "debug")])).start();
    tell(&mut program, "start");
    let before = std::fs::read_to_string(&stderr).expect("the log");
    assert!(!before.is_empty(), "it logs there");
    tell(&mut program, "no-file-growth");
    program.finish().expect_success();
    assert_eq!(std::fs::read_to_string(&stderr).expect("the log"), before);
}

#[test]
fn a9_a_log_that_nobody_reads_holds_nobody_up() {
    let (gpu, folder) = (Gpu::take(), tempfile::tempdir().expect("a folder"));
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let env = [("XSCHED_LOG_LEVEL", "debug"), ("XSCHED_LOG_FILE", &fifo.display().to_string())];
    let program = gpu.run("edges").mode(preloaded(&env)).start();
    let end = program.finish();
    end.expect_success();
    assert!(end.stderr.contains("is not usable") && end.stderr.contains(TOTALS), "{}", end.stderr);
    // And a pipe that is full.
    gpu.run("edges").arg("full-stderr").mode(preloaded(&env[..1])).finish().expect_success();
}

/// Nor one whose reader has gone.
#[test]
fn a_log_without_a_reader_ends_nobody() {
    let gpu = Gpu::take();
    gpu.run("edges")
        .arg("closed-stderr")
        .mode(preloaded(&[("XSCHED_LOG_LEVEL", "debug")]))
        .finish()
        .expect_success();
}

#[test]
fn a10_the_library_takes_no_low_number() {
    let gpu = Gpu::take();
    let numbers = |mode: Mode| {
        let mut program = gpu.run("edges").mode(mode).start();
        tell(&mut program, "start");
        program.tell("numbers");
        let numbers = program.line();
        program.finish().expect_success();
        numbers
    };
    let env =
        [("XSCHED_AUTO_XQUEUE", "ON"), ("XSCHED_AUTO_XQUEUE_LEVEL", "3"), ("XSCHED_LOG_FILE", "/dev/null")];
    assert_eq!(numbers(preloaded(&env)), numbers(Mode::Native));
}

/// A filter may end whoever opens a socket.
#[test]
fn a3_behind_a_filter_nobody_looks_for_a_server() {
    let gpu = Gpu::take();
    for filter in ["filter trap socket", "filter kill socket"] {
        let daemon = Daemon::start(&[]);
        let log = tempfile::NamedTempFile::new().expect("a log");
        let env = [("XSCHED_LOG_LEVEL", "info"), ("XSCHED_LOG_FILE", &log.path().display().to_string())];
        let mut program = under(&daemon, "0", gpu.run("edges"), &env);
        tell(&mut program, "start");
        until("the server knows it", || client(&daemon, 0));
        tell(&mut program, filter);
        drop(daemon);
        let said = || std::fs::read_to_string(log.path()).expect("the log");
        until("it says so", || said().contains("stops looking for an xserver").then_some(()));
        tell(&mut program, "work 3");
        program.finish().expect_success();
    }
}

/// The folder of the runtime of `xbench` that does nothing, and knows no driver.
fn null_runtime() -> PathBuf {
    let builds = tests::product("build").unwrap_or_else(|reason| panic!("{reason}"));
    let name = format!("libamdhip64.so.{}", tests::hip_major());
    let folders = std::fs::read_dir(builds).expect("builds").flatten().map(|entry| entry.path().join("out"));
    folders.into_iter().find(|folder| folder.join(&name).exists()).expect("xbench is built")
}

/// Where no queue can be taken off the hardware, whoever asks for that hears of it.
#[test]
fn f11_a_level_that_cannot_be_had_is_said_once() {
    let daemon = Daemon::start(&[]);
    let log = daemon.folder().join("log");
    let library = tests::product("libshimhip.so").unwrap_or_else(|reason| panic!("{reason}"));
    let program = tests::program("edges").unwrap_or_else(|reason| panic!("{reason}"));
    let mut command = tests::kernel::command(program);
    command.env("LD_LIBRARY_PATH", null_runtime()).env("LD_PRELOAD", library);
    command.env("XSCHED_SOCKET", daemon.socket()).env("XSCHED_LOG_FILE", &log);
    command.envs([("XSCHED_SCHEDULER", "GLB"), ("XSCHED_AUTO_XQUEUE", "ON")]);
    command.envs([("XSCHED_AUTO_XQUEUE_LEVEL", "2"), ("XSCHED_AUTO_XQUEUE_PRIORITY", "0")]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"start\nwork 5\n").expect("it reads");
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let told = "level 2 is asked for and level 1 in force";
    until("it is said", || said().contains(told).then_some(()));
    let list = daemon.list();
    assert!(Path::new("/dev/kfd").exists() || list.to_string().contains("/dev/kfd"), "{list}");
    // It cannot be right: nothing is computed.
    drop(input);
    child.wait().expect("it is ours");
    assert_eq!(said().matches(told).count(), 1, "{}", said());
}

/// A process that has written its totals is about to end, however long that takes: it comes under no server any more.
#[test]
fn f16_after_its_totals_a_process_looks_for_no_server() {
    let (gpu, mut daemon) = (Gpu::take(), Daemon::start(&[]));
    let log = daemon.folder().join("log").display().to_string();
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let env = [("XSCHED_LOG_LEVEL", "debug"), ("XSCHED_LOG_FILE", log.as_str())];
    let mut ending = under(&daemon, "0", gpu.shared("edges"), &env);
    tell(&mut ending, "linger");
    let mut other = under(&daemon, "10", gpu.shared("edges"), &[]);
    for program in [&mut ending, &mut other] {
        tell(program, "start");
    }
    until("the server knows both", || client(&daemon, 0).and(client(&daemon, 10)));
    tell(&mut ending, "exit");
    until("it has written its totals", || said().contains(TOTALS).then_some(()));
    // The other one loses its server at the same time and looks for the next one as often.
    for _ in 0..2 {
        daemon.restart();
        until("the other one has come back", || client(&daemon, 10));
    }
    assert_eq!(daemon.clients().len(), 1);
    let after = said().split_once(TOTALS).map(|(_, after)| after.to_owned()).expect("its totals");
    assert!(!after.contains("decides"), "{after}");
    assert_eq!(ending.finish().code, 0);
    other.finish().expect_success();
}

/// Variables that a program sets for itself before it uses HIP take effect, also in a child that uses HIP first.
#[test]
fn f8_the_environment_counts_when_hip_is_first_used() {
    let (gpu, daemon) = (Gpu::take(), Daemon::start(&[]));
    for forks in [false, true] {
        let mut program = gpu.run("edges").mode(preloaded(&[("XSCHED_AUTO_XQUEUE_PRIORITY", "3")])).start();
        if forks {
            tell(&mut program, "fork");
        }
        for (name, value) in [
            ("XSCHED_SOCKET", daemon.socket().display().to_string().as_str()),
            ("XSCHED_SCHEDULER", "GLB"),
            ("XSCHED_AUTO_XQUEUE", "ON"),
            ("XSCHED_AUTO_XQUEUE_PRIORITY", "10"),
        ] {
            tell(&mut program, &format!("setenv {name} {value}"));
        }
        tell(&mut program, "start");
        until("the server knows it", || client(&daemon, 10));
        // From now on it is decided.
        tell(&mut program, "setenv XSCHED_DISABLE 1");
        tell(&mut program, "work 2");
        assert!(client(&daemon, 10).is_some());
        program.finish().expect_success();
        until("it has left", || daemon.clients().is_empty().then_some(()));
    }
    // And so does the switch.
    let mut program = gpu.run("edges").mode(preloaded(&[("XSCHED_LOG_LEVEL", "debug")])).start();
    tell(&mut program, "setenv XSCHED_DISABLE 1");
    let end = program.finish();
    end.expect_success();
    assert!(!end.stderr.contains(TOTALS), "{}", end.stderr);
}

/// HIP shows two of four partitions, which lie at one PCI address, in another order than the driver's: the first of them has its own
/// identity for the server, and not that of the first partition.
#[test]
fn f6_a_partition_has_its_own_identity_whichever_are_visible() {
    if tests::hip_major() < 7 || tests::arch() != "gfx942" {
        println!(
            "not run: older runtimes tell no partitions apart; scripts/rocm-enter 7 with GIVEWAY_TEST_ARCH=gfx942 runs it"
        );
        return;
    }
    let (gpu, daemon) = (Gpu::take(), Daemon::start(&[]));
    for (priority, visible, first) in [("3", "2", 2), ("5", "3,1", 3), ("7", "0,2", 0)] {
        let run = gpu.run("stay").arg("1").sim("--partitions", 4);
        let mut program = under(&daemon, priority, run, &[("HIP_VISIBLE_DEVICES", visible)]);
        assert_eq!(program.line(), "ready");
        let seen = until("the server knows it", || client(&daemon, priority.parse().ok()?));
        // gpu-sim counts the partitions in the lowest three bits of the KFD's ids, from 1 on.
        let id = seen["queues"][0]["device"].as_u64().unwrap_or_else(|| panic!("no device in {seen}"));
        assert_eq!((id - 1) & 7, first, "HIP_VISIBLE_DEVICES={visible}: {seen}");
        // It runs until it is killed.
        drop(program);
    }
}
