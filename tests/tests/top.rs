//! `xcli top` in a terminal (tmux) and without one, with the real server and clients that use no GPU.

use std::fmt::Write as _;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tests::{Daemon, PlainClient, product, until};

/// A server with an urgent program and one that it suspends.
fn server() -> (Daemon, [PlainClient; 2]) {
    let server = Daemon::start(&[]);
    let programs = [PlainClient::start(&server, "urgent", 5), PlainClient::start(&server, "batch", 1)];
    until("both have queues", || {
        server.clients().iter().all(|client| client["queues"][0].is_object()).then_some(())
    });
    until("both are connected", || (server.clients().len() == 2).then_some(()));
    (server, programs)
}

fn client(server: &Daemon, name: &str) -> Value {
    let clients = server.clients();
    clients.into_iter().find(|client| client["name"] == name).unwrap_or_default()
}

fn priority(server: &Daemon, name: &str) -> Value {
    client(server, name)["queues"][0]["priority"].clone()
}

/// A terminal with a shell. What it shows is read with `capture-pane`.
struct Terminal {
    folder: TempDir,
}

impl Terminal {
    fn new(width: u16, height: u16) -> Self {
        let terminal = Self { folder: tempfile::tempdir().expect("a folder") };
        let (width, height) = (width.to_string(), height.to_string());
        let size = ["new-session", "-d", "-x", width.as_str(), "-y", height.as_str()];
        // No files of the person who runs the test, and a prompt that can be waited for.
        let shell = [
            "env",
            "-i",
            "PATH=/usr/bin:/bin",
            "TERM=screen",
            "LANG=C.UTF-8",
            "PS1=ready> ",
            "bash",
            "--norc",
            "-i",
        ];
        terminal.tmux(&[&size[..], &shell].concat());
        terminal.expect("ready>");
        terminal
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.folder.path().join("tmux")).args(["-u", "-f", "/dev/null"]).args(words);
        let output = command.env_remove("TMUX").output().expect("tmux (make deps installs it)");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {words:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn shown(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the terminal shows what is wanted.
    #[track_caller]
    fn wait(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(what, || {
                last = self.shown();
                is_so(&last).then(|| last.clone())
            })
        }));
        found.unwrap_or_else(|_| panic!("{what} is not shown:\n{last}"))
    }

    #[track_caller]
    fn expect(&self, text: &str) -> String {
        self.wait(text, |shown| shown.contains(text))
    }

    /// Waits until the line with a name has this state.
    #[track_caller]
    fn expect_state(&self, name: &str, state: &str) {
        let is_row = |line: &&str| line.contains(name) && line.contains(state) && !line.contains("──");
        self.wait(&format!("{name} {state}"), |shown| shown.lines().any(|line| is_row(&line)));
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// The process of the view, the only child of the shell.
    fn view(&self) -> Pid {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        let child = children.expect("the shell runs").trim().parse().expect("one child");
        Pid::from_raw(child).expect("a process")
    }

    /// Types a line into the shell.
    fn line(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
        self.keys(&["Enter"]);
    }

    /// Starts the view of a server.
    fn top(&self, server: &Daemon, before: &str, options: &str) {
        self.line(&format!("{before}{}", command(server, options)));
    }
}

/// The command line of the view.
fn command(server: &Daemon, options: &str) -> String {
    let mut line = String::new();
    for word in tests::kernel::words() {
        let _ = write!(line, "{} ", word.display());
    }
    let xcli = product("xcli").unwrap_or_else(|reason| panic!("{reason}"));
    line + &format!("{} -a {} top -f 10 {options}", xcli.display(), server.socket().display())
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.folder.path().join("tmux")).arg("kill-server");
        // It may have ended.
        let _ = command.output();
    }
}

#[test]
fn programs_are_shown_and_changed_by_keys() {
    let (server, _programs) = server();
    let terminal = Terminal::new(80, 24);
    terminal.top(&server, "", "");
    terminal.expect_state("urgent", "running");
    terminal.expect_state("batch", "suspended");
    // It works for half of the time that it may run.
    terminal
        .wait("a share", |shown| shown.lines().any(|line| line.contains("urgent") && line.contains("50.")));

    // The selected program is explained, and its queues are shown.
    terminal.keys(&["/"]);
    terminal.keys(&["b", "a", "t", "c", "h", "Enter"]);
    terminal.wait("the filter", |shown| !shown.contains("urgent") && shown.contains("filter: batch"));
    terminal.expect("has priority 5 > 1");
    terminal.keys(&["Enter"]);
    terminal.wait("its queue", |shown| shown.lines().any(|line| line.starts_with("         queue 1 ")));

    // Priority by one, typed, and refused.
    terminal.keys(&["+"]);
    terminal.expect("batch: priority 2");
    until("the server knows it", || (priority(&server, "batch") == 2).then_some(()));
    terminal.keys(&["p", "9", "Enter"]);
    terminal.expect("batch: priority 9");
    until("the server knows it", || (priority(&server, "batch") == 9).then_some(()));
    terminal.expect_state("batch", "running");
    terminal.keys(&["p", "x", "Enter"]);
    terminal.expect("is not a priority");

    // Suspended, although it is the most urgent one, and resumed with its priority.
    terminal.keys(&["z"]);
    terminal.expect("priority -256 never runs");
    terminal.expect_state("batch", "suspended");
    until("the server knows it", || (priority(&server, "batch") == -256).then_some(()));
    terminal.keys(&["Z"]);
    terminal.expect("batch: resumed");
    until("the server knows it", || (priority(&server, "batch") == 9).then_some(()));

    // Policy, off and on.
    terminal.keys(&["P"]);
    terminal.tmux(&["send-keys", "-l", "EDF slack-ms=2"]);
    terminal.keys(&["Enter"]);
    terminal.expect("policy EDF, on");
    terminal.keys(&["o"]);
    terminal.expect("y/n");
    terminal.keys(&["y"]);
    terminal.expect("off (every program runs unscheduled)");
    assert_eq!(server.list()["server"]["on"], false);
    terminal.keys(&["o"]);
    terminal.expect("policy EDF, on");

    terminal.keys(&["?"]);
    terminal.expect("show the queues of the program");
    terminal.keys(&["Escape"]);
    terminal.wait("the table", |shown| shown.contains("SHARE%▼"));
    terminal.keys(&["s"]);
    terminal.expect("LAUNCH/S▼");
    terminal.keys(&["r"]);
    terminal.expect("LAUNCH/S▲");
    terminal.keys(&["q"]);
    terminal.wait("the shell", |shown| shown.trim_end().ends_with("ready>"));
}

#[test]
fn refusals_of_the_server_are_shown() {
    let server = Daemon::start(&[]);
    let _program = PlainClient::start(&server, "held", -256);
    until("it is connected", || client(&server, "held")["queues"][0].is_object().then_some(()));
    let terminal = Terminal::new(120, 24);
    terminal.top(&server, "", "");
    terminal.expect("held");
    terminal.keys(&["p", "3", "Enter"]);
    terminal.expect("refused: ");
    assert_eq!(priority(&server, "held"), -256);
}

#[test]
fn view_waits_for_a_server_that_is_gone() {
    let (mut server, programs) = server();
    let terminal = Terminal::new(80, 24);
    terminal.top(&server, "", "");
    terminal.expect_state("urgent", "running");
    drop(programs);
    terminal.expect("no program is connected");
    server.end();
    terminal.expect("no answer from the server");
    terminal.expect("no xserver runs");
    server.restart();
    terminal.expect("policy HPF, on");
    let _program = PlainClient::start(&server, "late", 1);
    terminal.expect("late");
    server.stop();
    terminal.expect("did not answer within 2 s");
    // A key is not delayed by that.
    terminal.keys(&["q"]);
    terminal.wait("the shell", |shown| shown.trim_end().ends_with("ready>"));
}

#[test]
fn view_follows_the_size_of_the_terminal() {
    let (server, _programs) = server();
    let terminal = Terminal::new(80, 24);
    terminal.top(&server, "", "");
    terminal.expect("AVG SUSP");
    terminal.tmux(&["resize-window", "-x", "40", "-y", "10"]);
    terminal.wait("fewer columns", |shown| shown.contains("SHARE%") && !shown.contains("AVG SUSP"));
    terminal.tmux(&["resize-window", "-x", "200", "-y", "50"]);
    terminal.wait("reasons", |shown| shown.contains("WHY") && shown.contains("has priority 5 > 1"));
}

/// After each end the shell's lines are shown again, and the terminal echoes and sends lines.
#[test]
fn terminal_is_restored_on_every_end() {
    let (server, _programs) = server();
    let terminal = Terminal::new(100, 30);
    terminal.line("echo be''fore");
    terminal.expect("before");
    let ends = [
        ("q", None, 0),
        ("C-c", None, 0),
        ("TERM", Some(Signal::TERM), 143),
        ("HUP", Some(Signal::HUP), 129),
        ("INT", Some(Signal::INT), 130),
        ("QUIT", Some(Signal::QUIT), 131),
    ];
    for (end, signal, code) in ends {
        terminal.top(&server, "", "");
        terminal.wait("the view", |shown| shown.contains("urgent") && !shown.contains("before"));
        match signal {
            Some(signal) => kill_process(terminal.view(), signal).expect("it runs"),
            None => terminal.keys(&[end]),
        }
        terminal.expect("before");
        terminal.line(&format!("echo {end} ended with $?; stty -a"));
        let shown = terminal.expect(&format!("{end} ended with {code}"));
        let shown = terminal.wait("modes", |now| now.len() >= shown.len() && now.contains("iexten"));
        assert!(shown.contains(" icanon") && shown.contains(" echo "), "{shown}");
        terminal.line("clear; echo be''fore");
        terminal.wait("a clear screen", |shown| shown.contains("before") && !shown.contains("icanon"));
    }
}

#[test]
fn view_can_be_stopped_and_continued() {
    let (server, _programs) = server();
    let terminal = Terminal::new(100, 30);
    terminal.top(&server, "", "");
    terminal.expect("urgent");
    terminal.keys(&["C-z"]);
    terminal.expect("Stopped");
    terminal.line("echo wai''ted");
    terminal.expect("waited");
    terminal.line("fg");
    terminal.wait("the view", |shown| shown.contains("urgent") && !shown.contains("waited"));
    terminal.keys(&["q"]);
    terminal.expect("waited");
}

#[test]
fn colors_can_be_switched_off() {
    let (server, _programs) = server();
    let colored = |before: &str, options: &str| {
        let terminal = Terminal::new(80, 24);
        terminal.top(&server, before, options);
        terminal.expect_state("batch", "suspended");
        let shown = terminal.tmux(&["capture-pane", "-p", "-e"]);
        ["38;5;2m", "38;5;3m", "[32m", "[33m"].iter().any(|color| shown.contains(color))
    };
    assert!(colored("", ""));
    assert!(!colored("NO_COLOR=1 ", ""));
    assert!(!colored("", "--no-color"));
}

#[test]
fn terminal_without_cursor_gets_tables() {
    let (server, _programs) = server();
    let terminal = Terminal::new(120, 30);
    terminal.top(&server, "TERM=dumb ", "-n 1");
    let shown = terminal.expect("AVG SUSP");
    assert!(shown.contains("xcli: this terminal cannot move its cursor"), "{shown}");
}

#[test]
fn pipe_gets_tables_or_json() {
    let (server, _programs) = server();
    let run = |words: &[&str]| {
        let output = server.xcli().arg("top").args(words).output().expect("xcli");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, err) = run(&["-f", "20", "-n", "2"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(out.matches("AVG SUSP").count(), 2, "{out}");
    assert!(out.contains("\n  suspended: queue 1 of pid") && !out.contains('\x1b'), "{out}");

    let (code, out, err) = run(&["-f", "20", "-n", "2", "--json"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2, "{out}");
    let batch = lines[1]["programs"].as_array().unwrap().iter().find(|one| one["name"] == "batch").unwrap();
    assert_eq!(
        (&batch["state"], &batch["launches_per_second"]),
        (&"suspended".into(), &0.0.into()),
        "{batch}"
    );

    let (code, ..) = run(&["-f", "100"]);
    assert_eq!(code, Some(2));
    drop(server);
    let missing =
        Command::new(product("xcli").unwrap()).args(["-a", "/nonexistent/s", "top", "--plain"]).output();
    let missing = missing.expect("xcli");
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no xserver runs"));
}
