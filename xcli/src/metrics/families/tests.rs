//! Tests of the text, and of the document that is made from it.

use super::*;
use crate::list::tests::in_force;
use protocol::bounds::{Priority, Utilization};
use protocol::codes::PreemptLevel;
use protocol::control::Preemption;
use protocol::ids::{DeviceId, Pid};
use protocol::outside::HeldQueue;
use protocol::totals::QueueTimes;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

fn lines(list: &List) -> Vec<String> {
    let memory = vec![Used { pid: 4242, device: 51_234, now: 1 << 30, peak: Some(3 << 29) }];
    let numbers = Numbers::new(list.clone(), memory, Limits::default());
    numbers.text().unwrap().lines().map(str::to_owned).collect()
}

/// A list in which every number is known.
fn full() -> List {
    let mut list = crate::list::tests::example();
    let mut decisions = Durations::default();
    decisions.add(Duration::from_millis(1));
    decisions.add(Duration::from_millis(20));
    let (device, urgent) = (DeviceId(51_234), Class::Urgent);
    list.server.totals = Some(Totals {
        decisions,
        preemptions: [3, 4, 5],
        lapsed_leases: 1,
        work: vec![
            Work { device, class: urgent, worked_ns: 1 },
            Work { device, class: Class::Batch, worked_ns: 1_500_000_000 },
        ],
        completed: vec![(urgent, 12)],
        ..Totals::default()
    });
    let client = &mut list.clients[0];
    let (rule, cgroup) = ("serving".to_owned(), Some("/a.slice".to_owned()));
    client.owner = Some(Owner {
        uid: 1000,
        rule,
        max_priority: Priority::MAX,
        max_share: Utilization::MAX,
        max_level: PreemptLevel::Interrupt,
        cgroup,
    });
    let second = 1_000_000_000;
    let times = QueueTimes { ready_ns: 4 * second, running_ns: 3 * second, worked_ns: 2 * second };
    client.queues[0].times = Some(times);
    let queue = |queue| HeldQueue { queue, held_ms: 5 };
    list.held = vec![Held { pid: Pid(9), name: "old".to_owned(), queues: vec![queue(1), queue(2)] }];
    let preemption = &mut list.clients[1].preemption;
    *preemption =
        Preemption { expected_ns: Some(1), hold_ns: Some(1), release_ns: Some(1), ..Preemption::default() };
    list.clients[1].slow_path = [("code".to_owned(), 3)].into();
    let mut edf = in_force("EDF", None);
    edf.ruling.values = [("slack-ms".to_owned(), 0.5)].into();
    edf.counted = [("late".to_owned(), 0)].into();
    let mut hpf = in_force("HPF", Some(51_234));
    hpf.ruling.values = [("share-percent".to_owned(), 0.0)].into();
    hpf.counted = [("gaps".to_owned(), 0)].into();
    list.server.policies = vec![edf, hpf];
    list
}

#[test]
fn numbers_of_the_list_are_metrics() {
    let mut list = full();
    list.clients[1].preemption = Preemption {
        holds: 12,
        waits: 3,
        expected_ns: Some(2_000_000),
        hold_ns: Some(91_000),
        ..Preemption::default()
    };
    list.clients[1].slow_path = [("code".to_owned(), 3)].into();
    let mut edf = in_force("EDF", None);
    edf.ruling.values = [("slack-ms".to_owned(), 0.5)].into();
    let mut lcbe = in_force("LCBE", Some(51_234));
    lcbe.counted = [("hit".to_owned(), 7)].into();
    list.server.policies = vec![edf, lcbe];
    let lines = lines(&list);
    for line in [
        "giveway_server_scheduling{policy=\"HPF\"} 1.0",
        "giveway_server_decisions_total{} 9.0",
        "giveway_policy_in_force{policy=\"EDF\"} 1.0",
        "giveway_policy_in_force{policy=\"LCBE\",device=\"51234\"} 1.0",
        "giveway_policy_parameter{policy=\"EDF\",parameter=\"slack-ms\"} 0.5",
        "giveway_policy_counted{policy=\"LCBE\",device=\"51234\",count=\"hit\"} 7.0",
        "giveway_server_guard_runs_total{} 1.0",
        "giveway_process_may_run{pid=\"31337\",name=\"train.py\"} 0.0",
        "giveway_process_level{pid=\"31337\",name=\"train.py\"} 1.0",
        "giveway_process_holds_total{pid=\"31337\",name=\"train.py\"} 12.0",
        "giveway_process_waits_total{pid=\"31337\",name=\"train.py\"} 3.0",
        "giveway_process_expected_seconds{pid=\"31337\",name=\"train.py\"} 0.002",
        "giveway_process_slow_launches_total{pid=\"31337\",name=\"train.py\",reason=\"code\"} 3.0",
        "giveway_process_hold_seconds{pid=\"31337\",name=\"train.py\"} 0.000091",
        "giveway_up{} 1.0",
        "giveway_server_programs{} 3.0",
        "giveway_server_queues{} 3.0",
        "giveway_processes_left_out{} 0.0",
        "giveway_preemptions_total{level=\"3\"} 5.0",
        "giveway_decision_seconds_sum 0.021",
        "giveway_decision_seconds_count 2",
        "giveway_decision_seconds_bucket{le=\"0.000005\"} 0",
        "giveway_decision_seconds_bucket{le=\"0.001\"} 1",
        "giveway_decision_seconds_bucket{le=\"10.0\"} 2",
        "giveway_decision_seconds_bucket{le=\"+Inf\"} 2",
        "giveway_eviction_seconds_bucket{le=\"+Inf\"} 0",
        "giveway_completed_commands_total{class=\"urgent\"} 12.0",
        "giveway_device_worked_seconds_total{device=\"51234\",class=\"batch\"} 1.5",
        "giveway_server_lapsed_leases_total{} 1.0",
        "giveway_process_owner{pid=\"4242\",name=\"infer\",uid=\"1000\",rule=\"serving\",cgroup=\"/a.slice\"} 1.0",
        "giveway_process_memory_bytes{pid=\"4242\",name=\"infer\",device=\"51234\"} 1073741824.0",
        "giveway_process_memory_peak_bytes{pid=\"4242\",name=\"infer\",device=\"51234\"} 1610612736.0",
        "giveway_process_preemptions_total{pid=\"31337\",name=\"train.py\"} 4.0",
        "giveway_queue_ready_seconds_total{pid=\"4242\",name=\"infer\",queue=\"7\",device=\"51234\"} 4.0",
        "giveway_queue_running_seconds_total{pid=\"4242\",name=\"infer\",queue=\"7\",device=\"51234\"} 3.0",
        "giveway_queue_worked_seconds_total{pid=\"4242\",name=\"infer\",queue=\"7\",device=\"51234\"} 2.0",
        "giveway_held_queues{pid=\"9\",name=\"old\"} 2.0",
        "giveway_queue_priority{pid=\"31337\",name=\"train.py\",queue=\"1\",device=\"51234\"} -255.0",
        "giveway_queue_suspended_seconds_total{pid=\"31337\",name=\"train.py\",queue=\"1\",device=\"51234\"} 812.345",
        "# EOF",
    ] {
        assert!(lines.iter().any(|each| each == line), "{line} is not in\n{}", lines.join("\n"));
    }
    let costs = lines.iter().filter(|line| line.starts_with("giveway_process_release_seconds{"));
    assert_eq!(costs.count(), 0, "an unknown value is not zero");
}

#[test]
fn program_names_are_escaped() {
    let mut list = crate::list::tests::example();
    list.clients.truncate(1);
    list.clients[0].name = "a\"b\\c\nd".to_owned();
    let lines = lines(&list);
    assert!(
        lines.iter().any(|line| line == "giveway_process_may_run{pid=\"4242\",name=\"a\\\"b\\\\c?d\"} 1.0"),
        "{}",
        lines.join("\n")
    );
}

#[test]
fn programs_with_the_most_work_have_metrics_of_their_own() {
    let mut list = full();
    let numbers = |list: &List, programs, queues| {
        Numbers::new(list.clone(), Vec::new(), Limits { programs, queues }).text().unwrap()
    };
    let text = numbers(&list, 1, 1);
    assert!(text.contains("giveway_process_may_run{pid=\"4242\"") && !text.contains("31337"), "{text}");
    assert!(text.contains("queue=\"7\"") && !text.contains("queue=\"8\""), "{text}");
    assert!(text.contains("\ngiveway_processes_left_out{} 2.0\n"), "{text}");
    assert!(text.contains("\ngiveway_server_programs{} 3.0\n") && text.contains("_queues{} 3.0\n"), "{text}");
    list.clients[1].queues[0].times = Some(QueueTimes { running_ns: u64::MAX, ..QueueTimes::default() });
    list.clients[0].queues[0].times = Some(QueueTimes { running_ns: u64::MAX - 1, ..QueueTimes::default() });
    let text = numbers(&list, 1, 1);
    assert!(text.contains("giveway_process_may_run{pid=\"31337\"") && !text.contains("4242"), "{text}");
    // Others may not read about single programs.
    let text = numbers(&list, 0, 0);
    for name in ["4242", "infer", "old"] {
        assert!(!text.contains(name), "{text}");
    }
    assert!(text.contains("giveway_decision_seconds_count"));
}

#[test]
fn a_server_that_does_not_answer_is_down() {
    let text = down().unwrap();
    assert!(text.contains("\ngiveway_up{} 0.0\n") && text.ends_with("# EOF\n"), "{text}");
    assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 1, "{text}");
}

const HEAD: &str = "# Metrics
`GIVEWAY_REGENERATE=1 cargo test -p xcli families` writes this page. The table comes from `xcli/src/metrics/families.rs`.

`xcli metrics` prints the numbers of the server in the text format of OpenMetrics. `xcli metrics --listen ADDRESS` serves them over
HTTP at `/metrics`, which Prometheus reads. [Run the server](operate/README.md#metrics) says how to set it up, with a dashboard and
alerts.

* Times are in seconds, memory is in bytes. A counter begins at 0 when the server starts, or when the program connects.
* `pid` is the process as the server sees it, `name` its program, `device` the KFD id of a device. `class` is `urgent` for programs
  whose highest priority is above 0, `normal` for 0, `batch` below.
* An unknown value has no sample: for example the cost of an eviction before the first one, or memory if the driver's folder in
  sysfs cannot be read.
* The share of a device that a program used in the last minute:
  `sum by (pid, name, device) (rate(giveway_queue_worked_seconds_total[1m]))`. Where the program does not know the times of its kernels,
  use `giveway_queue_running_seconds_total`, the time in which it had work and was permitted to launch.
* While no other program waits, a program need not report each change. Then `giveway_queue_ready_seconds_total` and
  `giveway_queue_running_seconds_total` are estimates from ten readings a second, and pauses of less than about two milliseconds
  between synchronizations count as ready ([ADR 35](adr/0035-queues-stay-ready-between-synchronizations.md)).
* Programs themselves report what they have completed and for how long the device worked for them. The server accepts no more work
  than the time that has passed.
* `giveway_policy_counted` has the counters of the policy in force, such as `late` of SLO: requests that missed their objective
  ([Policies](policies.md)).
* The 256 programs with the most work have metrics of their own (`--most-programs`), each with at most 64 queues.

| metric | type | labels | meaning |
|---|---|---|---|
";

/// Makes the document from the text of the metrics.
fn document() -> String {
    let text = lines(&full()).join("\n");
    let (mut types, mut helps, mut labels, mut order) =
        (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), vec![]);
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            types.insert(name, kind);
        } else if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
        {
            helps.insert(name, help);
            order.push(name);
        } else if let Some((sample, rest)) = line.split_once('{') {
            let name = order.iter().rev().find(|name| sample.starts_with(**name)).unwrap();
            let keys = rest.split('}').next().unwrap().split("\",").filter_map(|pair| pair.split_once('='));
            let keys: Vec<_> =
                keys.map(|(key, _)| key).filter(|key| *key != "le").map(|key| format!("`{key}`")).collect();
            let known: &mut Vec<String> = labels.entry(*name).or_default();
            // Samples come in any order, and only some have the label `device`.
            if keys.len() > known.len() {
                *known = keys;
            }
        }
    }
    let row = |name: &&str| {
        let kind = types[name];
        let suffix = if kind == "counter" { "_total" } else { "" };
        let labels =
            labels.get(name).unwrap_or_else(|| panic!("{name} has no sample in the example")).join(", ");
        let labels = if labels.is_empty() { "–".to_owned() } else { labels };
        format!("| `{name}{suffix}` | {kind} | {labels} | {} |\n", helps[name])
    };
    HEAD.to_owned() + &order.iter().map(row).collect::<String>()
}

#[test]
fn document_describes_every_metric() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let wanted = document();
    if std::env::var_os("GIVEWAY_REGENERATE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/metrics.md is out of date: GIVEWAY_REGENERATE=1 cargo test -p xcli families"
    );
}
