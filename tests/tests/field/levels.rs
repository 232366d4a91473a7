use std::fs;

use serde_json::Value;
use tests::{Daemon, Gpu, Running, until};

use super::edges::{client, tell, under};

/// Runs a program that asks for level 3 and evicts nothing, and returns its line about the cost. It has made its queues
/// when it is asked.
fn cost_of(gpu: &Gpu, daemon: &Daemon, probe: &str) -> (String, Option<u64>) {
    let more = [("XSCHED_AUTO_XQUEUE_LEVEL", "3"), ("XSCHED_KFD_PROBE", probe)];
    let mut program = under(daemon, "0", gpu.shared("edges"), &more);
    tell(&mut program, "start");
    let found = until("level 3 is in force and its cost known", || {
        let preemption = client(daemon, 0)?["preemption"].clone();
        (preemption["in_force"] == 3).then_some(())?;
        Some((preemption["cost_origin"].as_str()?.to_owned(), preemption["hold_ns"].as_u64()))
    });
    program.finish().expect_success();
    until("the server sees its end", || daemon.clients().is_empty().then_some(()));
    found
}

/// A measurement is 16 requests about a queue, and each may stop the queues of all programs for a moment: the first program of a
/// server makes them, and later ones do not, under its next process either.
#[test]
fn hold_cost_is_measured_by_the_first_program() {
    let gpu = Gpu::take();
    let requests = |probes: &[&str], want: &[&str]| {
        let mut keeper = gpu.keep_run().with_stats().start();
        let mut daemon = Daemon::start(&[]);
        let kept = daemon.folder().join("socket.costs");
        let mut found = Vec::new();
        for probe in probes {
            if *probe == "restart" {
                until("the server has written it down", || kept.exists().then_some(()));
                daemon.restart();
            } else {
                found.push(cost_of(&gpu, &daemon, probe));
            }
        }
        let origins: Vec<&str> = found.iter().map(|(origin, _)| origin.as_str()).collect();
        assert_eq!(origins, want);
        keeper.let_go();
        let stats = keeper.finish();
        (stats.stats().ioctls("update_queue"), found)
    };
    let (own, _) = requests(&["never", "never"], &["unmeasured"; 2]);
    let (twice, _) = requests(&["always", "always"], &["measured"; 2]);
    assert_eq!((own, twice), (0, 2 * 16), "the runtime makes none of its own");
    let (once, found) = requests(&["cached", "cached", "restart", "cached"], &["measured", "taken", "taken"]);
    assert_eq!(once, 16, "of three programs");
    let costs: Vec<u64> = found.iter().filter_map(|(_, cost)| *cost).collect();
    assert!(costs.len() == 3 && costs.iter().all(|cost| *cost == costs[0] && *cost > 0), "{found:?}");
}

/// A wrong cost on the server is corrected by evictions, and later programs get the measured one.
#[test]
fn a_wrong_cost_is_corrected_by_holds() {
    let (gpu, mut daemon) = (Gpu::take(), Daemon::start(&[]));
    let mut keeper = gpu.keep();
    let kept = daemon.folder().join("socket.costs");
    let read = || -> Option<Value> { serde_json::from_slice(&fs::read(&kept).ok()?).ok() };
    cost_of(&gpu, &daemon, "cached");
    let mut costs = until("the server has written it down", read);
    // As nothing can be.
    costs["costs"][0]["hold_ns"] = 1.into();
    fs::write(&kept, costs.to_string()).expect("the file is this user's");
    daemon.restart();
    let mut low = under(&daemon, "0", gpu.shared("edges"), &[("XSCHED_AUTO_XQUEUE_LEVEL", "3")]);
    tell(&mut low, "start");
    let origin = || Some(client(&daemon, 0)?["preemption"]["cost_origin"].as_str()?.to_owned());
    until("it has been told", || (origin()? == "taken").then_some(()));
    let mut high = under(&daemon, "10", gpu.shared("edges"), &[]);
    tell(&mut high, "start");
    low.tell("work 1000");
    until("two holds have shown it", || {
        tell(&mut high, "work 1");
        (origin()? == "corrected").then_some(())
    });
    let corrected = until("the server has written that down", || {
        read()?["costs"][0]["hold_ns"].as_u64().filter(|hold| *hold > 1)
    });
    assert!(corrected > 8, "{corrected}");
    high.finish().expect_success();
    assert_eq!(low.line(), "work");
    low.finish().expect_success();
    keeper.let_go();
    assert_eq!(keeper.finish().code, 0);
}

/// Behind a window of 1 ms only five of these kernels are in flight at once, behind 30 ms all of them.
#[test]
fn window_of_level_3_is_wide_once_an_eviction_has_succeeded() {
    let (gpu, daemon) = (Gpu::take(), Daemon::start(&[]));
    let mut keeper = gpu.keep();
    let mut low = under(&daemon, "0", gpu.shared("edges"), &[("XSCHED_AUTO_XQUEUE_LEVEL", "3")]);
    tell(&mut low, "start");
    let mut high = under(&daemon, "10", gpu.shared("edges"), &[]);
    tell(&mut high, "start");
    let preemption = || client(&daemon, 0).map(|client| client["preemption"].clone());
    until("level 3 is in force", || preemption().filter(|found| found["in_force"] == 3));
    let deferred = || -> u64 {
        // On a loaded machine the numbers can be old.
        let fresh = || client(&daemon, 0).filter(|client| client["fresh"] == true);
        let low = until("it has said what it has done", fresh);
        let queues = low["queues"].as_array().expect("queues");
        queues.iter().filter_map(|queue| queue["counts"]["deferred"].as_u64()).sum()
    };
    let deferred_of_burst = |low: &mut Running| {
        let before = deferred();
        tell(low, "burst 100");
        deferred() - before
    };
    // On a loaded machine ends are seen late and several at once, so that the kernels look short: not every burst is deferred.
    let deferred_of_all: u64 = (0..10).map(|_| deferred_of_burst(&mut low)).sum();
    assert!(deferred_of_all > 0, "no eviction has shown that it succeeds: {:?}", preemption());
    let evictions = || preemption()?["holds"].as_u64();
    until("an eviction has succeeded, and a burst is launched at once", || {
        let before = evictions()?;
        low.tell("burst 100");
        tell(&mut high, "work 1");
        assert_eq!(low.line(), "burst");
        (evictions()? > before && deferred_of_burst(&mut low) == 0).then_some(())
    });
    for program in [low, high] {
        program.finish().expect_success();
    }
    keeper.let_go();
    assert_eq!(keeper.finish().code, 0);
}
