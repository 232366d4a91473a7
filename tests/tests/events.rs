//! `xcli events` with the real server, and clients that use no GPU.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;
use tests::{Daemon, PlainClient};

/// `xcli events -f --json`. Killed when dropped.
struct Follower {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Follower {
    fn start(server: &Daemon) -> Self {
        let mut command = server.xcli();
        command.args(["events", "--follow", "--json"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("xcli");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, lines }
    }

    /// Reads until an event of this kind and this program has come.
    fn wait(&mut self, event: &str, name: &str) -> Value {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.lines.read_line(&mut line).expect("xcli writes"),
                0,
                "it has ended before {event} {name}"
            );
            let one: Value = serde_json::from_str(&line).expect("JSON");
            if one["event"] == event && (name.is_empty() || one["name"] == name) {
                return one;
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn follower_sees_what_happens_until_the_server_ends() {
    let mut server = Daemon::start(&[]);
    let batch = PlainClient::start(&server, "batch", 1);
    let mut follower = Follower::start(&server);
    follower.wait("running", "batch");
    let urgent = PlainClient::start(&server, "urgent", 5);
    assert_eq!(follower.wait("joined", "urgent")["pid"], urgent.id());
    let suspended = follower.wait("suspended", "batch");
    let why = suspended["why"].as_str().expect("a text");
    assert!(why.contains(&format!("pid {} has priority 5 > 1", urgent.id())), "{why}");
    assert_eq!(suspended["pid"], batch.id());
    assert!(suspended["time_us"].as_u64() > Some(1_700_000_000_000_000), "{suspended}");
    let changed = server.xcli().args(["policy", "set", "UP"]).output().expect("xcli");
    assert!(changed.status.success(), "{changed:?}");
    let policy = follower.wait("policy", "");
    assert!(policy["policy"].as_str().is_some_and(|policy| policy.starts_with("UP")), "{policy}");
    drop(urgent);
    follower.wait("left", "urgent");

    let kept = server.xcli().arg("events").output().expect("xcli");
    let kept = String::from_utf8(kept.stdout).expect("text");
    let words: Vec<&str> = kept.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(words, ["joined", "joined", "policy", "left"], "{kept}");
    let newest = server.xcli().args(["events", "-n", "1"]).output().expect("xcli");
    assert_eq!(kept.lines().last(), String::from_utf8_lossy(&newest.stdout).lines().next());
    server.end();
    let code = follower.child.wait().expect("it ends").code();
    assert_eq!(code, Some(1));
}
