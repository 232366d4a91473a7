//! The mode in which the harness starts everything as on Linux 4.18 (`GIVEWAY_TEST_KERNEL=4.18`) is really on: in a program, in the
//! server, in `xcli`, and in what they start.

use std::io::Error;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tests::stage::Stage;
use tests::{Daemon, Gpu, kernel, until};

/// Set for this executable when it is the program that makes system calls.
const CALLS: &str = "OLD_KERNEL_CALLS";
/// System calls that are made by number: from the first one after Linux 4.18 to some that no kernel has yet. Between 334 and 424
/// there are none but those of uprobes, which end a process that is not traced.
const NEW: std::ops::Range<libc::c_long> = 424..480;

/// Runs a test of this file in the mode: here if it is on, else in a process of its own.
fn in_mode(test: &str, work: impl FnOnce()) {
    if kernel::is_old() {
        return work();
    }
    let own = std::env::current_exe().expect("this executable");
    let mut again = Command::new(own);
    again.args(["--exact", test, "--nocapture"]).env(kernel::VARIABLE, kernel::OLD);
    // Its output is this test's, so that nothing has to be read while it runs.
    let mut again = Killed(again.stdin(Stdio::null()).spawn().expect("this executable runs"));
    let status = until("the test ends in the mode", || again.0.try_wait().expect("it is ours"));
    assert!(status.success(), "{test} fails with {}={}: {status}", kernel::VARIABLE, kernel::OLD);
}

/// A process that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many filters a process has; on a kernel that does not count them (before 5.9), whether it has one.
fn filters(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let mode = field("Seccomp:").expect("the kernel has seccomp");
    field("Seccomp_filters:").unwrap_or(u64::from(mode == 2))
}

/// Fails unless a process has one filter more than this test.
fn is_filtered(what: &str, pid: &str) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    assert!(status.contains("Seccomp:\t2\n"), "{what} has no filter:\n{status}");
    assert_eq!(filters(pid), filters("self") + 1, "the filters of {what}");
}

/// The error of a system call with arguments that no call takes.
fn refused(number: libc::c_long) -> Option<i32> {
    // SAFETY: no descriptor, process, address or flags are -1: each of these calls refuses.
    let result = unsafe { libc::syscall(number, -1_i64, -1_i64, -1_i64, -1_i64, -1_i64, -1_i64) };
    (result == -1).then(|| Error::last_os_error().raw_os_error()).flatten()
}

/// The error of a later option of an older call.
fn error_of(result: libc::c_int) -> Option<i32> {
    (result == -1).then(|| Error::last_os_error().raw_os_error()).flatten()
}

/// Is a program if it is started as one: makes the calls, and says what is not as on Linux 4.18.
#[test]
fn calls() {
    if std::env::var_os(CALLS).is_none() {
        return;
    }
    let known: Vec<_> = NEW.filter(|number| refused(*number) != Some(libc::ENOSYS)).collect();
    println!("known: {known:?}");
    let old: Vec<_> =
        (333..335).chain(0..1).filter(|number| refused(*number) == Some(libc::ENOSYS)).collect();
    println!("missing: {old:?}");
    // SAFETY: a terminated name.
    let file = unsafe { libc::memfd_create(c"x".as_ptr(), libc::MFD_ALLOW_SEALING) };
    // SAFETY: our descriptor, and numbers.
    let sealed = |seals: libc::c_int| error_of(unsafe { libc::fcntl(file, libc::F_ADD_SEALS, seals) });
    println!("future write: {:?}", sealed(libc::F_SEAL_SHRINK | 0x10));
    println!("shrink: {:?}", sealed(libc::F_SEAL_SHRINK));
    let mut pair = [0; 2];
    // SAFETY: a place for two descriptors.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()) };
    assert_eq!(made, 0);
    let option = |name| {
        let (mut value, mut size) = ([0_u8; 16], 16);
        let (socket, place) = (libc::SOL_SOCKET, value.as_mut_ptr().cast());
        // SAFETY: our socket, and a place of that size.
        error_of(unsafe { libc::getsockopt(pair[0], socket, name, place, &raw mut size) })
    };
    println!("peer's pidfd: {:?}", option(77));
    println!("peer's number: {:?}", option(libc::SO_PEERCRED));
}

#[test]
fn a_program_meets_no_later_call() {
    in_mode("a_program_meets_no_later_call", || {
        let own = std::env::current_exe().expect("this executable");
        let run = Gpu::take().run_executable(&own).arg("--exact").arg("calls").arg("--nocapture");
        let finished = run.env(CALLS, "1").finish();
        assert_eq!(finished.code, 0, "{finished:?}");
        let expected = format!(
            "known: []\nmissing: []\nfuture write: Some({})\nshrink: None\npeer's pidfd: Some({})\npeer's number: None\n",
            libc::EINVAL,
            libc::ENOPROTOOPT
        );
        assert!(finished.stdout.contains(&expected), "{}", finished.stdout);
    });
}

#[test]
fn programs_and_their_server_are_filtered_and_the_simulator_is_not() {
    in_mode("programs_and_their_server_are_filtered_and_the_simulator_is_not", || {
        let stage = Stage::new();
        let _server = stage.server();
        let server = stage.list().expect("a server")["server"]["pid"].to_string();
        is_filtered("a server on the device", &server);
        let (program, pid) = stage.client("0");
        is_filtered("a program", &pid);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("a parent");
        assert_eq!(filters(parent.trim()), filters("self"), "gpu-sim is filtered");
        program.finish().expect_success();

        let daemon = Daemon::start(&[]);
        is_filtered("a server", &daemon.list()["server"]["pid"].to_string());
    });
}

#[test]
fn a_client_and_the_server_that_it_starts_are_filtered() {
    in_mode("a_client_and_the_server_that_it_starts_are_filtered", || {
        let folder = tempfile::tempdir().expect("a folder");
        let xcli = || {
            let xcli = tests::product("xcli").unwrap_or_else(|reason| panic!("{reason}"));
            let mut xcli = kernel::command(xcli);
            xcli.env("XSCHED_SOCKET", folder.path().join("socket")).env_remove("LD_PRELOAD");
            xcli
        };
        let mut run = xcli();
        run.args(["run", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut client = Killed(run.spawn().expect("xcli"));
        let pid = client.0.id().to_string();
        let server = until("the server answers", || {
            let answer = xcli().args(["list", "--json"]).output().expect("xcli");
            let list: Value = serde_json::from_slice(&answer.stdout).ok()?;
            Some(list["server"]["pid"].to_string())
        });
        is_filtered("a client", &pid);
        is_filtered("the server that it has started", &server);
        drop(client.0.stdin.take());
        let status = until("the client ends", || client.0.try_wait().expect("it is ours"));
        assert!(status.success(), "{status}");
    });
}

#[test]
fn without_the_variable_nothing_is_filtered() {
    if std::env::var_os(kernel::VARIABLE).is_some() {
        return;
    }
    assert!(kernel::words().is_empty());
    let mut cat = kernel::command("cat");
    let mut cat = Killed(cat.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat"));
    assert_eq!(filters(&cat.0.id().to_string()), filters("self"));
    drop(cat.0.stdin.take());
    until("cat ends", || cat.0.try_wait().expect("it is ours"));
}
