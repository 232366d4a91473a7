//! Properties of every simulation: it loses no time and no request, and is reproducible.

mod account;
mod theory;

use super::alone;
use super::builtin::WORKLOADS;
use super::case::{Case, Instance};
use super::figures::PolicyFigures;
use super::scheduler::{Policy, Scope};
use super::simulation::{Run, Setting};
use super::workload::{Dispatch, QueueOn, Workload};
use proptest::prelude::*;
use std::path::Path;

fn short(name: &str, seconds: f64) -> Case {
    let mut case = Case::load(name).unwrap();
    case.workload.duration_s = seconds;
    case
}

/// Checks the properties of every run.
fn check(case: &Case, run: &Run) {
    for (client, instance) in run.clients.iter().zip(case.instances()) {
        let (done, unfinished) = (client.latencies.len() as u64, client.unfinished.len() as u64);
        assert_eq!(client.arrived, done + unfinished, "{instance:?}");
        assert!(client.latencies.iter().chain(&client.unfinished).all(|ns| *ns <= run.time));
    }
    let mut served = 0;
    for device in &run.devices {
        assert_eq!(device.busy + device.stalled + device.idle, run.time);
        served += device.busy - device.restored;
    }
    let work: u64 = run.clients.iter().map(|client| client.work).sum();
    match case.workload.model.share {
        // Parts of a nanosecond are lost where a kernel is cut.
        1 => assert!(
            work.abs_diff(served) <= run.devices.iter().map(|device| device.saves + 1).sum(),
            "{work} of {served}"
        ),
        share => assert!(work <= served.saturating_mul(share.into())),
    }
}

/// Returns the workload of this text.
fn case(text: &str) -> Case {
    Case::new("a".to_owned(), Workload::from_toml(text).unwrap(), Path::new("")).unwrap()
}

fn run(case: &Case, policy: &Policy, scope: Scope, seed: u64) -> Run {
    Setting { case, instances: &case.instances(), policy, scope, seed }.run()
}

#[test]
fn builtin_workloads_lose_no_time_and_no_request() {
    let policies = Policy::all();
    for (index, (name, _)) in WORKLOADS.iter().enumerate() {
        for (number, policy) in policies.iter().enumerate() {
            // Each policy meets both levels and both schedulers, in other workloads.
            let mut case = short(name, 0.3);
            case.workload.model.level = if (index + number).is_multiple_of(2) { 3 } else { 1 };
            let scope = if (index / 2 + number).is_multiple_of(2) { Scope::Global } else { Scope::Local };
            let run = run(&case, policy, scope, 3);
            check(&case, &run);
            assert!(run.clients.iter().any(|client| !client.latencies.is_empty()), "{name}");
        }
    }
}

#[test]
fn same_seed_gives_the_same_bytes() {
    let case = short("three-priorities", 5.0);
    let bytes = |seed: u64| {
        let (policy, instances) = (&Policy::for_one(), case.instances());
        let run = run(&case, policy, Scope::Global, seed);
        let figures = PolicyFigures::new(&case, policy, &instances, &run, &alone(&case, seed, None));
        serde_json::to_string(&figures).unwrap()
    };
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
}

#[test]
fn level_three_takes_the_running_kernel_off_and_level_one_waits_for_it() {
    let of_level = |level: u8| {
        let mut case = short("test4", 20.0);
        case.workload.model.level = level;
        let policy = &Policy::for_one();
        let run = run(&case, policy, Scope::Global, 1);
        let figures = PolicyFigures::new(&case, policy, &case.instances(), &run, &alone(&case, 1, None));
        (figures.saves, figures.clients[0].latency_ms.unwrap().p99)
    };
    let (saves, p99) = of_level(1);
    // Kernels of the batch job take up to 5.8 ms, the urgent one alone takes 1.
    assert!(saves == 0 && p99 > 4.0, "{saves} {p99}");
    let (saves, p99) = of_level(3);
    assert!(saves >= 350 && p99 < 2.5, "{saves} {p99}");
}

#[test]
fn urgent_work_alone_takes_its_own_time() {
    // Device time 100 us a kernel, gaps hidden behind it: ten kernels, and one launch latency.
    let text = r#"
        duration_s = 1
        [[client]]
        name = "a"
        arrivals = { kind = "periodic", per_s = 10 }
        prepare = { dist = "constant", us = 300 }
        requests = [{ kernels = 10, duration = { dist = "constant", us = 100 }, gap = { dist = "constant", us = 20 } }]
    "#;
    let only = |text: &str| {
        let run = run(&case(text), &Policy::for_one(), Scope::Global, 1);
        let mut latencies = run.clients[0].latencies.clone();
        latencies.dedup();
        assert_eq!(latencies.len(), 1, "{latencies:?}");
        latencies[0]
    };
    assert_eq!(only(text), 300_000 + 5_000 + 1_000_000);
    // With a wait for each kernel, launch and gap count each time.
    assert_eq!(only(&format!("{text}\nwait_each = true")), 300_000 + 10 * 105_000 + 9 * 20_000);
    // Longer gaps than kernels.
    assert_eq!(only(&text.replace("us = 20 ", "us = 150 ")), 300_000 + 9 * 150_000 + 105_000);
    // On two devices at once.
    let both = format!("{text}\nqueues = [{{ device = 0 }}, {{ device = 1 }}]\ndispatch = \"together\"");
    assert_eq!(only(&both), 300_000 + 5_000 + 1_000_000);
}

#[test]
fn capped_client_stays_below_its_cap_alone() {
    let text = r#"
        duration_s = 10
        [[client]]
        name = "a"
        process = { cap = 30 }
        arrivals = { kind = "closed" }
        requests = [{ kernels = 5, duration = { dist = "constant", us = 100 } }]
    "#;
    let case = case(text);
    for scope in [Scope::Global, Scope::Local] {
        let run = run(&case, &Policy::by_name("CREDIT").unwrap(), scope, 1);
        let busy = run.clients[0].latencies.len() as f64 * 500e-6;
        // Under a server each request ends with a report, which is a gap, and counts as work.
        assert!((2.85..3.1).contains(&busy), "{scope:?}: {busy} of 10 s");
    }
}

#[test]
fn host_continues_after_the_decision_that_it_reported() {
    let text = r#"
        duration_s = 1
        [[client]]
        name = "a"
        arrivals = { kind = "closed" }
        requests = [{ duration = { dist = "constant", us = 475 } }]
        [[client]]
        name = "b"
        priority = 7
        arrivals = { kind = "recorded", at_ms = [] }
        requests = [{ duration = { dist = "constant", us = 1 } }]
    "#;
    let case = case(text);
    let done = |policy: &str, scope: Scope| {
        let run = run(&case, &Policy::by_name(policy).unwrap(), scope, 1);
        (run.clients[0].latencies.len(), run.decisions)
    };
    // 475 and 5 µs for the launch; LCBE hears of each end, which is 20 µs more, and decides anew when the
    // queue has lingered.
    let (requests, decisions) = done("HPF", Scope::Global);
    assert!((2082..=2083).contains(&requests) && decisions < 20, "{requests} {decisions}");
    let (requests, decisions) = done("LCBE", Scope::Global);
    assert!((1999..=2000).contains(&requests) && (3990..4020).contains(&decisions), "{requests} {decisions}");
    assert!((2082..=2083).contains(&done("LCBE", Scope::Local).0), "a local scheduler needs no report");
}

#[test]
fn launches_take_hosts_longer_beside_others() {
    let text = r#"
        duration_s = 1
        model = { decision_us = 0, launch_us = 0, share = 2, beside = 3 }
        [[client]]
        name = "a"
        call_us = 100
        arrivals = { kind = "closed" }
        requests = [{ kernels = 10, duration = { dist = "constant", us = 10 }, gap = { dist = "constant", us = 250 }, width = 0.5 }]
        [[client]]
        name = "b"
        arrivals = { kind = "closed" }
        requests = [{ duration = { dist = "constant", us = 2000000 }, width = 0.5 }]
    "#;
    let case = case(text);
    let only = |instances: &[Instance]| {
        let setting =
            Setting { case: &case, instances, policy: &Policy::for_one(), scope: Scope::Global, seed: 1 };
        let latencies = setting.run().clients[0].latencies.clone();
        // The other one begins with the first request.
        assert!(latencies[1..].iter().all(|latency| *latency == latencies[1]), "{latencies:?}");
        latencies[1]
    };
    let all = case.instances();
    // Alone the gaps are longer than the calls.
    assert_eq!((only(&all[..1]), only(&all)), (9 * 250_000 + 10_000, 9 * 300_000 + 10_000));
}

#[test]
fn clients_in_lockstep_begin_together() {
    let text = r#"
        duration_s = 0.1
        model = { decision_us = 0, launch_us = 0 }
        [[client]]
        name = "short"
        lockstep = true
        process = { job = 7 }
        arrivals = { kind = "closed" }
        requests = [{ duration = { dist = "constant", us = 300 } }]
        [[client]]
        name = "long"
        lockstep = true
        process = { job = 7 }
        queues = [{ device = 1 }]
        arrivals = { kind = "closed" }
        requests = [{ duration = { dist = "constant", us = 1000 } }]
    "#;
    let case = case(text);
    let run = run(&case, &Policy::for_one(), Scope::Global, 1);
    check(&case, &run);
    // A hundred steps of the longer one; the short one waits for it.
    assert_eq!(run.clients[1].latencies, [1_000_000; 100]);
    assert_eq!(run.clients[0].latencies[1..], [1_000_000; 99]);
    assert_eq!(run.devices[0].busy, 30_000_000);
}

#[test]
fn suspension_waits_where_that_costs_less() {
    let run = |kernel_us: u32, at_ms: f64, wait: bool| {
        let text = format!(
            r#"
            duration_s = 0.1
            model = {{ level = 3, window_us = 0, decision_us = 0, launch_us = 0, save_us = 60, restore_us = 40, wait = {wait} }}
            [[client]]
            name = "low"
            arrivals = {{ kind = "closed" }}
            requests = [{{ kernels = 1000, duration = {{ dist = "constant", us = {kernel_us} }} }}]
            [[client]]
            name = "high"
            priority = 1
            arrivals = {{ kind = "recorded", at_ms = [{at_ms}] }}
            requests = [{{ duration = {{ dist = "constant", us = 10 }} }}]
            "#
        );
        let case = case(&text);
        let run = run(&case, &Policy::for_one(), Scope::Global, 1);
        check(&case, &run);
        (run.clients[1].latencies[0], run.devices[0].saves)
    };
    // 90 us are left of a kernel, which costs less than 60 and 40.
    assert_eq!(run(500, 10.41, true), (90_000 + 10_000, 0));
    assert_eq!(run(500, 10.41, false), (60_000 + 10_000, 1));
    // 110 us are left.
    assert_eq!(run(500, 10.39, true), (60_000 + 10_000, 1));
}

#[test]
fn limited_queue_launches_no_more_than_its_window() {
    let latency = |window: u32| {
        let text = format!(
            r#"
            duration_s = 1
            model = {{ window_us = {window}, decision_us = 0, launch_us = 0 }}
            [[client]]
            name = "low"
            arrivals = {{ kind = "closed" }}
            requests = [{{ kernels = 1000, duration = {{ dist = "constant", us = 50 }} }}]
            [[client]]
            name = "high"
            priority = 1
            arrivals = {{ kind = "recorded", at_ms = [10.01] }}
            requests = [{{ kernels = 10, duration = {{ dist = "constant", us = 10 }} }}]
            "#
        );
        let case = case(&text);
        run(&case, &Policy::for_one(), Scope::Global, 1).clients[1].latencies.clone()
    };
    // A kernel of the low queue has run since 10 ms. The two queues take turns with what is launched.
    assert_eq!(latency(0), [40_000 + 10 * 10_000]);
    assert_eq!(latency(99), [40_000 + 10 * 10_000]);
    assert_eq!(latency(200), [40_000 + 10 * 10_000 + 3 * 50_000]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Random clients, devices and costs.
    #[test]
    fn random_workloads_lose_no_time_and_no_request(
        level in prop::sample::select(vec![1u8, 3]),
        share in prop::sample::select(vec![1u32, 1, 2, 8]),
        wait in any::<bool>(),
        costs in prop::array::uniform6(prop::sample::select(vec![0.0, 1.0, 37.5, 400.0])),
        clients in prop::collection::vec((0u8..4, 0u8..5, 1u32..4, 0i64..3, any::<[bool; 3]>()), 1..5),
        policy in prop::sample::select(Policy::all()),
        local in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut case = short("bursts", 0.3);
        let model = &mut case.workload.model;
        (model.level, model.share, model.wait) = (level, share, wait);
        [model.decision_us, model.launch_us, model.save_us, model.restore_us, model.linger_us, model.quiet_us] = costs;
        let base = case.workload.client.clone();
        case.workload.client.clear();
        let arrivals = |kind: u8| Workload::from_toml(&format!(
            "duration_s = 1\n[[client]]\nname = \"x\"\nrequests = [{{ kernels = 12, duration = {{ dist = \"lognormal\", \
             mean_us = 90, cv = 1 }}, gap = {{ dist = \"exponential\", mean_us = 40 }} }}]\narrivals = {}",
            ["{ kind = \"closed\" }", "{ kind = \"poisson\", per_s = 150 }", "{ kind = \"periodic\", per_s = 80, jitter_us = 900 }",
             "{ kind = \"bursty\", every_us = 20000, size = 6 }", "{ kind = \"closed\", think = { dist = \"constant\", us = 500 } }"][usize::from(kind)],
        )).unwrap().client.remove(0);
        for (index, (devices, kind, count, priority, [together, wait_each, recorded])) in clients.into_iter().enumerate() {
            let mut client = arrivals(kind);
            client.name = index.to_string();
            (client.count, client.wait_each) = (count, wait_each);
            (client.lockstep, client.process.job) = (together && wait_each, 1.try_into().ok());
            client.priority = priority.try_into().unwrap();
            client.dispatch = if together { Dispatch::Together } else { Dispatch::Turns };
            client.queues = (0..=u32::from(devices)).map(|queue| QueueOn { device: queue % 3, priority: None }).collect();
            if recorded {
                client.requests.clone_from(&base[0].requests);
            }
            case.workload.client.push(client);
        }
        let case = Case::new("random".to_owned(), case.workload, Path::new("")).unwrap();
        let scope = if local { Scope::Local } else { Scope::Global };
        let first = run(&case, &policy, scope, seed);
        check(&case, &first);
        prop_assert_eq!(first, run(&case, &policy, scope, seed));
    }
}
