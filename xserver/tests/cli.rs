//! The program itself.

mod support;

use protocol::control::{Reply, Request};
use protocol::frame::{Decoder, REPLY_LIMIT};
use protocol::message::{ToClient, ToServer};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use support::{Client, ask, wait_for};

fn xserver(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xserver"));
    command.env_clear().env("XSCHED_SOCKET", socket).stdin(Stdio::null());
    command
}

/// A server that has said that it is ready; the line, and the rest of what it says.
fn started(command: &mut Command) -> (Child, String, BufReader<ChildStderr>) {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        (line, said)
    });
    wait_for("the line of a server that is ready", || reader.is_finished());
    let (line, said) = reader.join().unwrap();
    (child, line, said)
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: our own child, not reaped yet.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
}

fn failed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn it_says_when_it_is_ready_and_ends_cleanly() {
    for end in [libc::SIGTERM, libc::SIGINT] {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s.sock");
        let (mut child, line, mut said) = started(xserver(&socket).arg("hpf"));
        assert_eq!(line, format!("xserver: ready, policy HPF, socket {}\n", socket.display()));
        assert!(matches!(ask(&socket, &Request::List), Reply::List(_)));
        let (mut low, mut high) =
            (Client::with_queue(&socket, "low", 0), Client::with_queue(&socket, "high", 1));
        low.ready(0);
        high.ready(0);
        wait_for("the low one is suspended", || !low.runs());
        signal(&child, end);
        assert!(child.wait().unwrap().success());
        assert!(low.runs() && high.runs() && !socket.exists());
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("a client has come") && rest.contains("name=\"low\""), "{rest}");
        assert!(rest.lines().last().unwrap().contains("the server ends"), "{rest}");
    }
}

#[test]
fn a_policy_has_parameters_from_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let (mut child, ..) = started(xserver(&socket).args(["edf", "--set", "slack-ms=2.5"]));
    let Reply::List(list) = ask(&socket, &Request::List) else { panic!("a list was asked for") };
    assert_eq!(
        (list.server.policies[0].ruling.values["slack-ms"], list.server.policy.as_str()),
        (2.5, "EDF")
    );
    signal(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());
    for (set, why) in [
        ("slack-ms", "a parameter is NAME=VALUE"),
        ("slack-ms=five", "\"five\" is no number"),
        ("slack-ms=-1", "slack-ms \"-1\" is not a number in 0.."),
        ("slack=1", "no parameter \"slack\": this policy has slack-ms"),
    ] {
        let said = failed(&xserver(&socket).args(["EDF", "--set", set]).output().unwrap());
        assert!(said.contains(set) && said.contains(why), "{said}");
    }
}

#[test]
fn whoever_starves_runs_for_a_moment() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let mut command = xserver(&socket);
    // What is measured is not the guard that lets all run.
    command.env("XSCHED_STARVATION_MS", "100").env("XSCHED_TEST", "no-guard");
    let (mut child, ..) = started(&mut command);
    let (mut low, mut high) = (Client::with_queue(&socket, "low", 0), Client::with_queue(&socket, "high", 1));
    low.ready(0);
    high.ready(0);
    for _ in 0..2 {
        wait_for("the low one is suspended", || !low.runs());
        wait_for("and runs for a moment", || low.runs() && !high.runs());
    }
    signal(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_cannot_be_is_said_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let said = failed(&xserver(&socket).arg("FIFO").output().unwrap());
    assert!(said.contains("no policy \"FIFO\"") && said.contains("HPF"), "{said}");
    let said = failed(&xserver(&socket).args(["HPF", "../x"]).output().unwrap());
    assert!(said.contains("cannot name an instance"), "{said}");
    let said = failed(&xserver(Path::new("/proc/no/s.sock")).output().unwrap());
    assert!(said.contains("cannot make the directory /proc/no"), "{said}");

    let (mut child, ..) = started(&mut xserver(&socket));
    let said = failed(&xserver(&socket).output().unwrap());
    assert!(
        said.contains(&format!("runs already at {} (process {})", socket.display(), child.id())),
        "{said}"
    );
    // A killed server leaves its socket; the next one takes the place.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(socket.exists());
    let (mut child, line, _said) = started(&mut xserver(&socket));
    assert!(line.contains("ready"), "{line}");
    signal(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_log_level_is_respected_and_nobody_need_listen() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let (mut child, line, mut said) = started(xserver(&socket).env("XSCHED_LOG_LEVEL", "error"));
    assert!(line.contains("ready"), "{line}");
    drop(Client::new(&socket, "one"));
    signal(&child, libc::SIGTERM);
    child.wait().unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");

    let (mut child, _, said) = started(&mut xserver(&socket));
    drop(said);
    for _ in 0..10 {
        drop(Client::new(&socket, "one"));
    }
    assert!(matches!(ask(&socket, &Request::List), Reply::List(_)));
    signal(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());
}

/// Shared pages are files: without room for them a client is refused, and the server goes on (B4 of the field).
#[test]
fn a_limit_of_file_sizes_ends_no_server() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let mut command = xserver(&socket);
    let limit = || {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a structure that lives through the call; the child alone.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const none) }, 0);
        Ok(())
    };
    // SAFETY: one system call.
    unsafe { command.pre_exec(limit) };
    let (mut child, ..) = started(&mut command);
    let client = UnixStream::connect(&socket).unwrap();
    (&client).write_all(&ToServer::Hello { pid: 1, name: "one".to_owned() }.encode()).unwrap();
    let mut said = Vec::new();
    (&client).read_to_end(&mut said).unwrap();
    let mut decoder = Decoder::new(REPLY_LIMIT);
    decoder.push(&said);
    let refused = ToClient::decode(&decoder.next_frame().unwrap().unwrap()).unwrap();
    assert!(
        matches!(&refused, ToClient::Refused { reason } if reason.contains("File too large")),
        "{refused:?}"
    );
    assert!(matches!(ask(&socket, &Request::List), Reply::List(_)));
    signal(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());
}
