//! Policies and hints of programs that run, seen and changed by `xcli`: on the simulated GPU, with the real server.

use serde_json::{Value, json};
use tests::{Daemon, Gpu, Mode, Running, linked_program, until};

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
    let list: Value = serde_json::from_str(&daemon.said(&["list", "--json"])).expect("JSON");
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

    // A hint from outside names the second queue by its whole number. The first program waits, and xcli says why.
    let pids: Vec<String> = clients.iter().map(|client| client["pid"].to_string()).collect();
    let queues = [0, 1].map(|place: usize| clients[place]["queues"][0]["queue"].as_u64().expect("a number"));
    assert_ne!(queues[0], queues[1]);
    daemon.said(&["hint", "-x", &queues[1].to_string(), "-p", "10"]);
    until("the first one is suspended", || (may_run(&daemon) == [false, true]).then_some(()));
    // Beside a process, a queue is shown by its number there.
    let queue = queues[1] % 1_000_000;
    let why = format!("queue {queue} of pid {} has priority 10 > 0", pids[1]);
    let sentence = format!(" ms: {why}\n");
    // Either may be idle at a moment: the first one is suspended once its next command is held back.
    until("it is said why the first one is suspended", || {
        let said = daemon.said(&["explain", "--pid", &pids[0]]);
        let how_long =
            said.contains("\n  its process was suspended for ") && said.contains("\n  others had ");
        (said.contains("\n  suspended for ") && said.contains(&sentence) && how_long).then_some(())
    });
    until("and in JSON", || {
        let said = daemon.said(&["explain", "--json", "--pid", &pids[0]]);
        let said: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(
            said[0]["policy"],
            "HPF gaps=1 queues-first=0 share-percent=0 slowdown-percent=5 stream-priorities=0"
        );
        (said[0]["state"] == "suspended" && said[0]["why"] == why).then_some(())
    });

    // Another policy, while both work: both get on, in turns.
    let device = &clients[0]["queues"][0]["device"];
    assert_eq!(daemon.said(&["policy", "set", "UP"]).lines().count(), 1);
    for turn in [[true, false], [false, true], [true, false]] {
        until("a turn", || (may_run(&daemon) == turn).then_some(()));
    }
    // One device's own policy.
    let said = daemon.said(&["policy", "set", "HPF", "--device", &device.to_string()]);
    assert!(said.contains(&format!("in force on device {device}: HPF")), "{said}");
    until("the first one is suspended", || (may_run(&daemon) == [false, true]).then_some(()));
    daemon.said(&["policy", "reset", "--device", &device.to_string()]);
    until("a turn", || (may_run(&daemon) == [true, false]).then_some(()));
    daemon.said(&["policy", "-s", "-n", "HPF"]);
    daemon.said(&["hint", "--pid", &pids[1], "-p", "0"]);
    until("both run", || (may_run(&daemon) == [true, true]).then_some(()));
    for program in programs {
        program.finish().expect_success();
    }
}

/// The work of a part has its hints at the server as long as it lasts, and no longer, without another call of the program.
#[test]
fn hints_of_a_part_end_with_its_work() {
    let gpu = Gpu::take();
    let daemon = Daemon::start(&[]);
    let program = linked_program("tests/interface", "parts").unwrap_or_else(|reason| panic!("{reason}"));
    for then in ["idle", "busy"] {
        let env = vec![("XSCHED_SOCKET".to_owned(), daemon.socket().display().to_string())];
        let run = gpu.shared_executable(&program).arg("--server").arg(then).mode(Mode::Shimmed { env });
        let mut running = run.start();
        assert_eq!(running.line(), "kept");
        let queue =
            || -> Option<Value> { Some(daemon.clients().first()?["queues"].as_array()?.first()?.clone()) };
        let hints = |priority: i64, class: Value, deadline: Value| {
            let queue = queue()?;
            let hints = &queue["hints"];
            let found = (queue["priority"].as_i64(), &hints["class"], &hints["deadline_us"]);
            (found == (Some(priority), &class, &deadline)).then_some(())
        };
        until("the hints of the part are there", || hints(25, json!("LatencyCritical"), json!(700)));
        assert!(hints(25, json!("LatencyCritical"), json!(700)).is_some(), "the work is kept");
        running.tell("g");
        until("they end with the work", || hints(1, Value::Null, Value::Null));
        running.finish().expect_success();
        until("the program is gone", || daemon.clients().is_empty().then_some(()));
    }
}

/// `xcli config -x` reaches the program, which sees its queue's new level and window.
#[test]
fn level_and_window_of_a_queue_are_changed_from_outside() {
    let gpu = Gpu::take();
    let daemon = Daemon::start(&[]);
    let program = linked_program("tests/interface", "parts").unwrap_or_else(|reason| panic!("{reason}"));
    let env = vec![("XSCHED_SOCKET".to_owned(), daemon.socket().display().to_string())];
    let run = gpu.shared_executable(&program).arg("--server").arg("configured").mode(Mode::Shimmed { env });
    let mut running = run.start();
    let handle: u64 = running.line().parse().expect("a handle");
    until("the server knows the queue", || {
        (daemon.clients().first()?["queues"][0]["queue"].as_u64() == Some(handle)).then_some(())
    });
    let said = daemon.said(&["config", "--xqueue", &format!("{handle:#x}"), "-l", "3", "-t", "8", "-b", "4"]);
    assert!(said.starts_with("configured: queue "), "{said}");
    assert_eq!(running.line(), "level 3, threshold 8, batch 4");
    // What is not given stays.
    let pid = daemon.clients()[0]["pid"].to_string();
    daemon.said(&["config", "--pid", &pid, "-t", "2", "-b", "-1"]);
    assert_eq!(running.line(), "level 3, threshold 2, batch 2");
    running.finish().expect_success();
}
