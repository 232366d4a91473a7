//! `xcli run` with the real server and the real library, but programs that use no GPU: who starts the server, and when it
//! ends.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde_json::Value;
use tempfile::TempDir;

/// The limit for each wait; longer counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// A socket of its own.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("xserver.sock")
    }

    fn xcli(&self) -> Command {
        let xcli = tests::product("xcli").unwrap_or_else(|reason| panic!("{reason}"));
        let mut command = tests::kernel::command(xcli);
        command.env("XSCHED_SOCKET", self.socket()).env_remove("LD_PRELOAD").env_remove("XSCHED_POLICY");
        command
    }

    /// `xcli run` with a program that waits for the end of its input, in a process group of its own as a shell has it.
    fn run_cat(&self) -> Child {
        use std::os::unix::process::CommandExt as _;
        let mut command = self.xcli();
        command.args(["run", "--", "cat"]).process_group(0);
        // Whoever starts the tests in the background of a shell has them ignore the terminal's signals.
        let heed = || {
            for signal in [libc::SIGINT, libc::SIGHUP] {
                // SAFETY: a call that is allowed between fork and exec, with a disposition that needs no function.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // SAFETY: the closure makes only that call.
        unsafe { command.pre_exec(heed) };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("xcli")
    }

    /// The server's process, if it answers.
    fn server(&self) -> Option<Pid> {
        let answer = self.xcli().args(["list", "--json"]).output().expect("xcli");
        let list: Value = serde_json::from_slice(&answer.stdout).ok()?;
        Pid::from_raw(list["server"]["pid"].as_i64()?.try_into().ok()?)
    }

    fn await_server(&self) -> Pid {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(pid) = self.server() {
                return pid;
            }
            assert!(Instant::now() < until, "no server");
        }
    }
}

/// Returns true if it ends within this time.
fn ends(process: &OwnedFd, within: Duration) -> bool {
    let limit = Timespec::try_from(within).expect("a short time");
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)).expect("poll") == 1
}

fn let_go(mut program: Child) {
    drop(program.stdin.take());
    assert!(program.wait().expect("it is ours").success());
}

#[test]
fn programs_that_start_at_once_share_one_server_which_ends_after_them() {
    let place = Place::new();
    let programs: Vec<Child> = (0..4).map(|_| place.run_cat()).collect();
    let server = place.await_server();
    let server = pidfd_open(server, PidfdFlags::empty()).expect("the server");
    // None of them has met HIP, and yet they are waited for: longer than a server stays that nobody uses.
    assert!(!ends(&server, Duration::from_millis(2500)), "it leaves the programs alone");
    programs.into_iter().for_each(let_go);
    assert!(ends(&server, PATIENCE), "it stays although nobody needs it");
    assert_eq!(place.server(), None);
    let said = std::fs::read_to_string(place.folder.path().join("xserver.log")).expect("its log");
    assert_eq!(said.matches("xserver: ready").count(), 1, "{said}");
}

#[test]
fn monitors_read_what_the_server_knows() {
    let place = Place::new();
    let metrics = || place.xcli().arg("metrics").output().expect("xcli");
    let nobody = metrics();
    assert_eq!((nobody.status.code(), nobody.stdout.len()), (Some(1), 0));
    let program = place.run_cat();
    place.await_server();
    let said = String::from_utf8(metrics().stdout).expect("text");
    assert!(said.contains("\ngiveway_server_scheduling{policy=\"HPF\"} 1"), "{said}");
    assert!(said.ends_with("\n# EOF\n"), "{said}");
    let_go(program);
}

#[test]
fn the_terminals_signals_are_not_the_servers() {
    let place = Place::new();
    let first = place.run_cat();
    let mut second = place.run_cat();
    let server = place.await_server();
    // As Ctrl-C does, to each of the two that may have started the server.
    for (program, expected) in [(&first, Signal::INT), (&second, Signal::HUP)] {
        kill_process_group(Pid::from_child(program), expected).expect("its group");
    }
    let mut first = first;
    for program in [&mut first, &mut second] {
        assert_eq!(program.wait().expect("it is ours").code(), None, "a signal ended it");
    }
    assert_eq!(place.server(), Some(server));
    let server = pidfd_open(server, PidfdFlags::empty()).expect("the server");
    assert!(ends(&server, PATIENCE), "it stays although nobody needs it");
}
