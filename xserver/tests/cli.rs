//! The program `xserver`: command line, log, and signals.

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

/// Starts a server. Returns it with its first line and the rest of its output.
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
    // SAFETY: takes integers; the process is our child and not reaped yet.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
}

fn failed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn server_reports_ready_and_ends_on_a_signal() {
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
        assert!(rest.contains("client connected") && rest.contains("name=\"low\""), "{rest}");
        assert!(rest.lines().last().unwrap().contains("server ends"), "{rest}");
    }
}

#[test]
fn parameters_are_set_on_the_command_line() {
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
        ("slack-ms", "write a parameter as NAME=VALUE"),
        ("slack-ms=five", "\"five\" is not a number"),
        ("slack-ms=-1", "slack-ms \"-1\" is not a number in 0.."),
        ("slack=1", "no parameter \"slack\": this policy has slack-ms"),
    ] {
        let said = failed(&xserver(&socket).args(["EDF", "--set", set]).output().unwrap());
        assert!(said.contains(set) && said.contains(why), "{said}");
    }
}

#[test]
fn starving_client_runs_briefly() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let mut command = xserver(&socket);
    // Without the guard, which would let all clients run.
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
fn errors_are_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let said = failed(&xserver(&socket).arg("FIFO").output().unwrap());
    assert!(said.contains("no policy \"FIFO\"") && said.contains("HPF"), "{said}");
    let said = failed(&xserver(&socket).args(["HPF", "../x"]).output().unwrap());
    assert!(said.contains("is not the name of an instance"), "{said}");
    let said = failed(&xserver(Path::new("/proc/no/s.sock")).output().unwrap());
    assert!(said.contains("cannot create the directory /proc/no"), "{said}");

    let (mut child, ..) = started(&mut xserver(&socket));
    let said = failed(&xserver(&socket).output().unwrap());
    assert!(
        said.contains(&format!("already listens on {} (process {})", socket.display(), child.id())),
        "{said}"
    );
    // A killed server leaves its socket, which the next one replaces.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(socket.exists());
    let (mut child, line, _said) = started(&mut xserver(&socket));
    assert!(line.contains("ready"), "{line}");
    signal(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());
}

#[test]
fn log_level_is_respected_and_a_closed_log_is_ignored() {
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

/// Shared pages are files: without room for them a client is refused, and the server goes on (B4 of the
/// field).
#[test]
fn limit_of_file_sizes_does_not_end_the_server() {
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
