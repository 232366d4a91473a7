//! The program `xserver`: command line, log, and signals.

mod support;

use protocol::control::{Reply, Request};
use protocol::frame::{Decoder, REPLY_LIMIT};
use protocol::message::{ToClient, ToServer};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use support::{Client, ask, connect_as, wait_for};

fn xserver(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xserver"));
    command.env_clear().env("XSCHED_SOCKET", socket).stdin(Stdio::null());
    command
}

/// Starts a server. Returns it, its first line of output, and a reader for the rest.
fn started(command: &mut Command) -> (Child, String, BufReader<ChildStderr>) {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        (line, stderr)
    });
    wait_for("the server writes its first line", || reader.is_finished());
    let (line, stderr) = reader.join().unwrap();
    (child, line, stderr)
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: takes integers; the process is our child and not reaped yet.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
}

/// Returns the error message of a program that has failed with one line.
fn failed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn server_reports_ready_and_ends_on_a_signal() {
    for end in [libc::SIGTERM, libc::SIGINT] {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s.sock");
        let (mut child, line, mut stderr) = started(xserver(&socket).arg("hpf"));
        assert_eq!(line, format!("xserver: ready, policy HPF, socket {}\n", socket.display()));
        assert!(matches!(ask(&socket, &Request::List), Reply::List(_)));
        let (mut low, mut high) =
            (Client::with_queue(&socket, "low", 0), Client::with_queue(&socket, "high", 1));
        low.ready(0);
        high.ready(0);
        wait_for("the low client is suspended", || !low.runs());
        signal(&child, end);
        assert!(child.wait().unwrap().success());
        assert!(low.runs() && high.runs() && !socket.exists());
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("client connected") && rest.contains("name=\"low\""), "{rest}");
        assert!(rest.lines().last().unwrap().contains("server ends"), "{rest}");
    }
}

#[test]
fn parameters_are_set_on_the_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let (mut child, ..) = started(xserver(&socket).args(["edf", "--set", "slack-ms=2.5"]));
    let Reply::List(list) = ask(&socket, &Request::List) else { panic!("the reply is no list") };
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
        let message = failed(&xserver(&socket).args(["EDF", "--set", set]).output().unwrap());
        assert!(message.contains(set) && message.contains(why), "{message}");
    }
}

#[test]
fn starving_client_runs_briefly() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let mut command = xserver(&socket);
    // The progress guard is off, because it would let all clients run.
    command.env("XSCHED_STARVATION_MS", "100").env("XSCHED_TEST", "no-guard");
    let (mut child, ..) = started(&mut command);
    let (mut low, mut high) = (Client::with_queue(&socket, "low", 0), Client::with_queue(&socket, "high", 1));
    low.ready(0);
    high.ready(0);
    for _ in 0..2 {
        wait_for("the low client is suspended", || !low.runs());
        wait_for("the low client runs for a moment", || low.runs() && !high.runs());
    }
    signal(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());
}

#[test]
fn errors_are_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let message = failed(&xserver(&socket).arg("FIFO").output().unwrap());
    assert!(message.contains("no policy \"FIFO\"") && message.contains("HPF"), "{message}");
    let message = failed(&xserver(&socket).args(["HPF", "../x"]).output().unwrap());
    assert!(message.contains("is not the name of an instance"), "{message}");
    let message = failed(&xserver(Path::new("/proc/no/s.sock")).output().unwrap());
    assert!(message.contains("cannot create the directory /proc/no"), "{message}");

    let (mut child, ..) = started(&mut xserver(&socket));
    let message = failed(&xserver(&socket).output().unwrap());
    assert!(
        message.contains(&format!("already listens on {} (process {})", socket.display(), child.id())),
        "{message}"
    );
    // A killed server leaves its socket, which the next one replaces.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(socket.exists());
    let (mut child, line, _stderr) = started(&mut xserver(&socket));
    assert!(line.contains("ready"), "{line}");
    signal(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());
}

#[test]
fn log_level_is_respected_and_a_closed_log_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let (mut child, line, mut stderr) = started(xserver(&socket).env("XSCHED_LOG_LEVEL", "error"));
    assert!(line.contains("ready"), "{line}");
    drop(Client::new(&socket, "one"));
    signal(&child, libc::SIGTERM);
    child.wait().unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");

    let (mut child, _, stderr) = started(&mut xserver(&socket));
    drop(stderr);
    for _ in 0..10 {
        drop(Client::new(&socket, "one"));
    }
    assert!(matches!(ask(&socket, &Request::List), Reply::List(_)));
    signal(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());
}

/// The shared pages are files. A server whose limit leaves no room for them refuses the client and goes on.
#[test]
fn limit_of_file_sizes_does_not_end_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let mut command = xserver(&socket);
    let limit = || {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the structure lives through the call, which changes only the child.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const none) }, 0);
        Ok(())
    };
    // SAFETY: between fork and exec the child makes one system call.
    unsafe { command.pre_exec(limit) };
    let (mut child, ..) = started(&mut command);
    let client = UnixStream::connect(&socket).unwrap();
    (&client).write_all(&ToServer::Hello { pid: 1, name: "one".to_owned() }.encode()).unwrap();
    let mut bytes = Vec::new();
    (&client).read_to_end(&mut bytes).unwrap();
    let mut decoder = Decoder::new(REPLY_LIMIT);
    decoder.push(&bytes);
    let refused = ToClient::decode(&decoder.next_frame().unwrap().unwrap()).unwrap();
    assert!(
        matches!(&refused, ToClient::Refused { reason } if reason.contains("File too large")),
        "{refused:?}"
    );
    assert!(matches!(ask(&socket, &Request::List), Reply::List(_)));
    signal(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());
}

#[test]
fn decisions_are_written_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, file) = (directory.path().join("s.sock"), directory.path().join("decisions"));
    std::fs::write(&file, "an older recording\n").unwrap();
    let (mut child, ..) = started(xserver(&socket).arg("--decisions").arg(&file));
    // A second server with the same command line must not empty the file of the first.
    failed(&xserver(&socket).arg("--decisions").arg(&file).output().unwrap());
    let mut low = Client::with_queue(&socket, "low", 0);
    let mut high = Client::with_queue(&socket, "high", 1);
    low.ready(0);
    high.ready(0);
    wait_for("the low client is suspended", || !low.runs());
    high.idle(0);
    wait_for("the low client runs again", || low.runs());
    drop((low, high));
    wait_for(
        "both have left",
        || matches!(ask(&socket, &Request::List), Reply::List(list) if list.clients.is_empty()),
    );
    signal(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());

    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().map(|line| line["at_ns"].as_u64().unwrap()).is_sorted(), "{text}");
    let last = lines.last().unwrap();
    assert_eq!((&last["kind"], &last["dropped"]), (&"end".into(), &0.into()), "{text}");
    for line in &lines[..lines.len() - 1] {
        let of_client = line["client"].is_u64() && line["pid"] == std::process::id();
        assert!(of_client || line["kind"] == "guard", "{line}");
    }
    let of = |client: u64, kind: &str, key: &str| -> Vec<_> {
        let lines = lines.iter().filter(|line| line["client"] == client && line["kind"] == kind);
        lines.map(|line| line[key].clone()).collect()
    };
    assert_eq!((of(1, "join", "pid").len(), of(2, "leave", "pid").len()), (1, 1), "{text}");
    assert_eq!(of(2, "work", "works"), [true, false], "{text}");
    assert_eq!(of(2, "linger", "until_ns").len(), 1, "{text}");
    assert!(of(2, "linger", "until_ns")[0].as_u64() > of(2, "work", "since_ns")[1].as_u64(), "{text}");
    let mut runs = of(1, "permission", "run");
    runs.dedup();
    assert_eq!(runs, [true, false, true], "{text}");
    let why = of(1, "permission", "why");
    let rival = format!("queue 1 of pid {} has priority 1 > 0", std::process::id());
    assert!(why.contains(&rival.as_str().into()), "{text}");
}

#[test]
fn file_of_decisions_that_cannot_be_opened_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let file = directory.path().join("no/decisions");
    let message = failed(&xserver(&socket).arg("--decisions").arg(&file).output().unwrap());
    let want = format!("cannot write decisions to {}: No such file", file.display());
    assert!(message.contains(&want), "{message}");
    assert!(!socket.exists());
}

/// The first line of a configuration error, with its exit code.
fn checked(file: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_xserver"))
        .arg("--check")
        .arg("--config")
        .arg(file)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn configuration_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("giveway.toml");
    let path = file.display();
    let (code, text) = checked(&file);
    assert!(
        code == Some(1) && text.starts_with(&format!("xserver: cannot read {path}: No such file")),
        "{text}"
    );
    std::fs::write(&file, "[limits]\nqueues_per_user = 7\n").unwrap();
    assert_eq!(checked(&file), (Some(0), format!("{path} is valid\n")));
    std::fs::write(&file, "\n[limit]\n").unwrap();
    let (code, text) = checked(&file);
    assert_eq!((code, text.lines().count()), (Some(1), 1), "{text}");
    assert!(
        text.starts_with(&format!("xserver: {path}: line 2: unknown field `limit`, expected one of")),
        "{text}"
    );
    // Options that contradict each other.
    for arguments in [&["--system", "HPF"][..], &["--system", "--set", "a=1"], &["--check", "--system"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_xserver")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
    let message =
        failed(&xserver(&directory.path().join("s.sock")).arg("--config").arg(&file).output().unwrap());
    assert!(message.contains("--config is for --system and --check"), "{message}");
}

/// A service manager makes the socket as root; the server runs as another user.
#[test]
fn server_for_all_users_takes_the_sockets_of_its_service_manager() {
    const SERVER: u32 = 40_100;
    const ALICE: u32 = 40_001;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let (socket, file) = (directory.path().join("s.sock"), directory.path().join("giveway.toml"));
    let rule = |priority: i32| format!("[[rule]]\nusers = [{ALICE}]\nmax_priority = {priority}\n");
    std::fs::write(&file, rule(20)).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).unwrap();
    // The program may lie below a directory that only root enters.
    let program = std::fs::File::open(env!("CARGO_BIN_EXE_xserver")).unwrap();
    let (listens, runs) = (listener.as_raw_fd(), program.as_raw_fd());
    let mut command = Command::new("sh");
    // The number of the process is known only to itself.
    command
        .args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec /proc/self/fd/9 --system --config \"$1\"", "sh"])
        .arg(&file);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("XSCHED_SOCKET", &socket).stdin(Stdio::null());
    // SAFETY: `fcntl` and `dup2` are async-signal-safe, and the closure does nothing else.
    unsafe {
        command.pre_exec(move || {
            // First to numbers that neither of the targets has.
            let [runs, listens] = [runs, listens].map(|number| libc::fcntl(number, libc::F_DUPFD, 20));
            match (libc::dup2(runs, 9), libc::dup2(listens, 3)) {
                (9, 3) => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let (mut child, line, _stderr) = started(command.uid(SERVER).gid(SERVER));
    assert_eq!(line, format!("xserver: ready, policy HPF, socket {}\n", socket.display()));
    // Who listens is who has made the socket, so that every user trusts the server.
    let made = connect_as(ALICE, ALICE, &socket);
    let peer = rustix::net::sockopt::socket_peercred(&made).unwrap();
    assert!(peer.uid.is_root());
    let alice = Client::on(made.into(), "alice");
    alice.create(1, 0, 1, 200);
    let priority = || {
        let Reply::List(list) = ask(&socket, &Request::List) else { panic!("the reply is no list") };
        list.clients.first().and_then(|client| client.queues.first()).map(|queue| queue.status.priority.get())
    };
    wait_for("the queue has the highest priority that the rule permits", || priority() == Some(20));
    std::fs::write(&file, rule(30)).unwrap();
    signal(&child, libc::SIGHUP);
    wait_for("the file is read again", || priority() == Some(30));
    std::fs::write(&file, "nonsense").unwrap();
    signal(&child, libc::SIGHUP);
    let Reply::Error(why) = ask(&socket, &Request::Reload) else { panic!("a bad file is accepted") };
    assert!(why.contains("line 1") || why.contains("already reads"), "{why}");
    assert_eq!(priority(), Some(30));
    signal(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());
    assert!(socket.exists(), "the socket belongs to the service manager");
}

#[test]
fn service_manager_that_passes_nothing_usable_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let passes = |listens: &str| {
        let mut command = Command::new("sh");
        let run = format!("LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" --system {listens}");
        command.args(["-c", &run, env!("CARGO_BIN_EXE_xserver")]).env("XSCHED_SOCKET", &socket);
        failed(&command.stdin(Stdio::null()).output().unwrap())
    };
    let message = passes("3>&-");
    assert!(message.contains("cannot be used: Bad file descriptor"), "{message}");
    let message = passes("3</dev/null");
    assert!(message.contains("the descriptor is not a socket"), "{message}");
    // Only root can make a socket that all users trust.
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let program = std::fs::File::open(env!("CARGO_BIN_EXE_xserver")).unwrap();
    let message = failed(
        Command::new("setpriv")
            .args(["--reuid", "40100", "--regid", "40100", "--clear-groups"])
            .arg(format!("/proc/{}/fd/{}", std::process::id(), program.as_raw_fd()))
            .arg("--system")
            .env("XSCHED_SOCKET", &socket)
            .output()
            .as_ref()
            .unwrap(),
    );
    assert!(message.contains("only if root has made the socket"), "{message}");
}

#[test]
fn log_has_one_json_object_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let mut command = xserver(&socket);
    command.args(["--log-format", "json"]).env("XSCHED_LOG_LEVEL", "debug");
    let (mut child, _, mut stderr) = started(&mut command);
    let (mut low, mut high) =
        (Client::with_queue(&socket, "na\"me", 0), Client::with_queue(&socket, "high", 7));
    low.ready(0);
    high.ready(0);
    wait_for("the lower client is suspended", || !low.runs() && high.runs());
    drop((low, high));
    wait_for("the client is gone", || match ask(&socket, &Request::List) {
        Reply::List(list) => list.clients.is_empty(),
        other => panic!("{other:?}"),
    });
    signal(&child, libc::SIGTERM);
    assert!(child.wait().unwrap().success());
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let lines: Vec<serde_json::Value> =
        rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let connected = lines.iter().find(|line| line["fields"]["message"] == "client connected").unwrap();
    assert_eq!(
        (&connected["level"], &connected["fields"]["name"]),
        (&"INFO".into(), &"na\"me".into()),
        "{rest}"
    );
    let decided = lines.iter().find(|line| line["fields"]["run"] == false).unwrap();
    assert_eq!((&decided["level"], &decided["fields"]["message"]), (&"DEBUG".into(), &"decision".into()));
    assert!(decided["fields"]["why"].as_str().unwrap().contains("priority 7 > 0"), "{rest}");
    assert!(connected["fields"]["pid"].is_u64() && connected["timestamp"].is_string(), "{rest}");
}
