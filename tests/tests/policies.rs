//! Policies and hints of programs that run, seen and changed by `xcli`: on the simulated GPU, with the real server.

use std::process::Output;

use serde_json::{Value, json};
use tests::{Daemon, Gpu, Mode, Running, linked_program, until};

/// `xcli` with these words; its output, if it is content.
fn xcli(daemon: &Daemon, words: &[&str]) -> String {
    let xcli = tests::product("xcli").unwrap_or_else(|reason| panic!("{reason}"));
    let mut command = tests::kernel::command(xcli);
    command.env("XSCHED_SOCKET", daemon.socket()).env_remove("LD_PRELOAD").env_remove("XSCHED_POLICY");
    let Output { status, stdout, stderr } = command.args(words).output().expect("xcli");
    let said = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "xcli {words:?}: {said}");
    String::from_utf8(stdout).expect("text")
}

/// A program that hints, with this share, at work.
fn hinting(daemon: &Daemon, gpu: &Gpu, share: &str) -> Running {
    let program = linked_program("tests/interface", "hints").unwrap_or_else(|reason| panic!("{reason}"));
    let before = daemon.clients().len();
    let env = vec![("XSCHED_SOCKET".to_owned(), daemon.socket().display().to_string())];
    let mut running = gpu.shared_executable(&program).arg(share).mode(Mode::Shimmed { env }).start();
    assert_eq!(running.line(), "ready");
    until("the server knows its work", || {
        let clients = daemon.clients();
        let queue = clients.get(before)?["queues"].as_array()?.first()?;
        (queue["state"] != "idle" && queue["hints"]["preemptible"] == false).then_some(())
    });
    running
}

/// Returns for each client whether it may run.
fn may_run(daemon: &Daemon) -> Vec<bool> {
    daemon.clients().iter().map(|client| client["permit"]["run"] == true).collect()
}

#[test]
fn hints_are_shown_and_policies_change_who_runs() {
    let gpu = Gpu::take();
    let daemon = Daemon::start(&[]);
    let programs = ["75", "25"].map(|share| hinting(&daemon, &gpu, share));

    // What a program hints is there, as `xcli list --json` has it.
    let list: Value = serde_json::from_str(&xcli(&daemon, &["list", "--json"])).expect("JSON");
    let clients = list["clients"].as_array().expect("clients");
    for (client, share) in clients.iter().zip([75, 25]) {
        let hints = &client["hints"];
        let expected = json!({
            "utilization": share, "timeslice": 2000, "k_deadline": 2, "window": false, "job": 4, "cap": 30,
            "nice": hints["nice"],
        });
        assert_eq!(hints, &expected);
        let queue = &client["queues"][0];
        assert_eq!(queue["priority"], 0, "what was said of the queue before is forgotten");
        let hints = &queue["hints"];
        let expected = json!({
            "utilization": share,
            "deadline_us": 9000,
            "laxity": { "us": 5000, "lax": -255, "critical": 3 },
            "arrival": hints["arrival"],
            "preemptible": false,
        });
        assert_eq!(hints, &expected);
        let arrival = hints["arrival"].as_u64().expect("a time");
        let ahead = arrival - list["server"]["now"].as_u64().expect("a time");
        assert!((3_000..=3_600).contains(&(ahead / 1_000_000_000)), "{ahead} ns, by the server's clock");
    }

    // A hint from outside: the first one waits, and why is said in a sentence.
    let pids: Vec<String> = clients.iter().map(|client| client["pid"].to_string()).collect();
    xcli(&daemon, &["hint", "--pid", &pids[1], "-p", "10"]);
    until("the first one is suspended", || (may_run(&daemon) == [false, true]).then_some(()));
    let queue = &clients[1]["queues"][0]["queue"];
    let why = format!("queue {queue} of pid {} has priority 10 > 0", pids[1]);
    let sentence = format!(" ms: {why}\n");
    // Either may be idle at a moment: the first one is suspended once its next command is held back.
    until("it is said why the first one is suspended", || {
        let said = xcli(&daemon, &["explain", "--pid", &pids[0]]);
        let how_long =
            said.contains("\n  its process was suspended for ") && said.contains("\n  others had ");
        (said.contains("\n  suspended for ") && said.contains(&sentence) && how_long).then_some(())
    });
    until("and in JSON", || {
        let said = xcli(&daemon, &["explain", "--json", "--pid", &pids[0]]);
        let said: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(said[0]["policy"], "HPF gaps=1 queues-first=0 share-percent=0 slowdown-percent=5");
        (said[0]["state"] == "suspended" && said[0]["why"] == why).then_some(())
    });

    // Another policy, while both work: both get on, in turns.
    let device = &clients[0]["queues"][0]["device"];
    assert_eq!(xcli(&daemon, &["policy", "set", "UP"]).lines().count(), 1);
    for turn in [[true, false], [false, true], [true, false]] {
        until("a turn", || (may_run(&daemon) == turn).then_some(()));
    }
    // One device's own policy.
    let said = xcli(&daemon, &["policy", "set", "HPF", "--device", &device.to_string()]);
    assert!(said.contains(&format!("in force on device {device}: HPF")), "{said}");
    until("the first one is suspended", || (may_run(&daemon) == [false, true]).then_some(()));
    xcli(&daemon, &["policy", "reset", "--device", &device.to_string()]);
    until("a turn", || (may_run(&daemon) == [true, false]).then_some(()));
    xcli(&daemon, &["policy", "-s", "-n", "HPF"]);
    xcli(&daemon, &["hint", "--pid", &pids[1], "-p", "0"]);
    until("both run", || (may_run(&daemon) == [true, true]).then_some(()));
    for program in programs {
        program.finish().expect_success();
    }
}
