//! Mean response times in simulation compared with queueing theory, within 3 %.
//!
//! Costs and delays are 0, so that what is left is the order in which requests are served.

use super::super::case::Case;
use super::super::distribution::Distribution;
use super::super::scheduler::{Policy, Scope};
use super::super::simulation::{Run, Setting};
use super::super::workload::{QueueOn, Workload};
use crate::random::{Purpose, Random};
use std::path::Path;

/// A class of requests: Poisson arrivals, one kernel each.
#[derive(Debug, Clone, Copy)]
struct Class {
    per_s: f64,
    service: Distribution,
}

impl Class {
    fn rate(&self) -> f64 {
        self.per_s / 1e6
    }

    /// Its share of the device.
    fn load(&self) -> f64 {
        self.rate() * self.service.mean_us()
    }

    /// Half of what its arrivals find left of a request in service, on average: the rate times the second
    /// moment over 2.
    fn residual(&self) -> f64 {
        let mean = self.service.mean_us();
        self.rate() * mean * mean * (1.0 + self.service.squared_cv()) / 2.0
    }
}

const EXPONENTIAL: Distribution = Distribution::Exponential { mean_us: 1000.0 };

/// Simulates classes, the most urgent first, under HPF.
fn simulate(classes: &[Class], seconds: f64, change: impl FnOnce(&mut Workload)) -> Run {
    let mut text = format!(
        "duration_s = {seconds}\n[model]\nlevel = 3\ndecision_us = 0\nlaunch_us = 0\nsave_us = 0\nrestore_us = 0\n\
         linger_us = 0\nquiet_us = 0\nheartbeat_us = 0\nwindow_us = 0\n"
    );
    for (index, class) in classes.iter().enumerate() {
        text += &format!(
            "[[client]]\nname = \"{index}\"\npriority = {}\narrivals = {{ kind = \"poisson\", per_s = {} }}\n\
             requests = [{{ duration = {{ dist = \"constant\", us = 1 }} }}]\n",
            classes.len() - index,
            class.per_s
        );
    }
    let mut workload = Workload::from_toml(&text).unwrap();
    for (client, class) in workload.client.iter_mut().zip(classes) {
        client.requests[0].duration = Some(class.service);
    }
    change(&mut workload);
    run(workload, Scope::Global)
}

fn run(workload: Workload, scope: Scope) -> Run {
    let case = Case::new("theory".to_owned(), workload, Path::new("")).unwrap();
    // What is learnt of gaps depends on what is reported.
    let (instances, policy) = (case.instances(), &Policy::by_name("HPF gaps=0").unwrap());
    Setting { case: &case, instances: &instances, policy, scope, seed: 1 }.run()
}

/// The mean of some latencies, microseconds.
fn mean<'a>(latencies: impl IntoIterator<Item = &'a u64>) -> f64 {
    let (sum, count) =
        latencies.into_iter().fold((0u128, 0u64), |(sum, n), ns| (sum + u128::from(*ns), n + 1));
    sum as f64 / count as f64 / 1e3
}

fn agrees(simulated: f64, theory: f64, what: &str) {
    let error = simulated / theory - 1.0;
    assert!(
        error.abs() < 0.03,
        "{what}: {simulated:.1} us, theory says {theory:.1} us ({:.2} %)",
        error * 100.0
    );
}

/// Preemptive-resume priorities: what class `k` takes on average.
fn preemptive(classes: &[Class], k: usize) -> f64 {
    let load = |n: usize| classes[..n].iter().map(Class::load).sum::<f64>();
    let residual: f64 = classes[..=k].iter().map(Class::residual).sum();
    (classes[k].service.mean_us() + residual / (1.0 - load(k + 1))) / (1.0 - load(k))
}

/// Priorities without preemption (Cobham).
fn waiting(classes: &[Class], k: usize) -> f64 {
    let load = |n: usize| classes[..n].iter().map(Class::load).sum::<f64>();
    let residual: f64 = classes.iter().map(Class::residual).sum();
    classes[k].service.mean_us() + residual / ((1.0 - load(k)) * (1.0 - load(k + 1)))
}

const EXPONENTIALS: [Class; 2] =
    [Class { per_s: 300.0, service: EXPONENTIAL }, Class { per_s: 350.0, service: EXPONENTIAL }];

const GENERALS: [Class; 3] = [
    Class { per_s: 500.0, service: Distribution::Constant { us: 400.0 } },
    Class { per_s: 200.0, service: Distribution::Uniform { low_us: 200.0, high_us: 2000.0 } },
    Class { per_s: 100.0, service: Distribution::Hyperexponential { mean_us: 2000.0, cv: 1.5 } },
];

#[test]
fn single_class_matches_mm1_and_mg1() {
    // M/M/1: 1 / (mu - lambda), and the share of the time in which the server is busy.
    let class = Class { per_s: 600.0, service: EXPONENTIAL };
    let run = simulate(&[class], 1_500.0, |_| {});
    agrees(mean(&run.clients[0].latencies), 1000.0 / (1.0 - 0.6), "M/M/1");
    agrees(run.devices[0].busy as f64 / run.time as f64, 0.6, "M/M/1 utilization");
    // M/G/1: Pollaczek and Khinchine.
    for service in
        [Distribution::Constant { us: 1000.0 }, Distribution::Hyperexponential { mean_us: 1000.0, cv: 2.0 }]
    {
        let class = Class { per_s: 500.0, service };
        let run = simulate(&[class], 1_500.0, |_| {});
        let theory = 1000.0 + class.residual() / (1.0 - class.load());
        agrees(mean(&run.clients[0].latencies), theory, &format!("M/G/1, {service:?}"));
    }
}

#[test]
fn preemptive_classes_match_theory() {
    let run = simulate(&EXPONENTIALS, 1_500.0, |_| {});
    for (k, client) in run.clients.iter().enumerate() {
        agrees(mean(&client.latencies), preemptive(&EXPONENTIALS, k), &format!("M/M/1 class {k}"));
    }
    let run = simulate(&GENERALS, 1_500.0, |_| {});
    for (k, client) in run.clients.iter().enumerate() {
        agrees(mean(&client.latencies), preemptive(&GENERALS, k), &format!("M/G/1 class {k}"));
    }
}

#[test]
fn nonpreemptive_classes_match_cobham() {
    // Two of them: with three, a kernel of the middle one that was launched behind one of the low one would
    // not be taken back when the high one comes.
    let classes = [GENERALS[0], GENERALS[2]];
    let run = simulate(&classes, 1_500.0, |workload| workload.model.level = 1);
    for (k, client) in run.clients.iter().enumerate() {
        agrees(mean(&client.latencies), waiting(&classes, k), &format!("class {k}"));
    }
}

#[test]
fn latency_of_high_class_is_independent_of_low_load() {
    let alone = simulate(&EXPONENTIALS[..1], 100.0, |_| {});
    assert!(alone.clients[0].latencies.len() > 20_000);
    for per_s in [10.0, 650.0, 5_000.0] {
        let low = Class { per_s, service: EXPONENTIAL };
        // The priorities count from the low one up.
        let beside = simulate(&[EXPONENTIALS[0], low], 100.0, |_| {});
        assert_eq!(beside.clients[0].latencies, alone.clients[0].latencies, "{per_s} a second");
    }
}

#[test]
fn unreported_changes_do_not_change_the_result() {
    for linger_us in [0.0, 150.0] {
        let mut kept = None;
        let global = simulate(&GENERALS, 50.0, |workload| {
            workload.model.linger_us = linger_us;
            kept = Some(workload.clone());
        });
        // A process tells its scheduler everything.
        let local = run(kept.unwrap(), Scope::Local);
        assert_eq!((global.clients, global.devices), (local.clients, local.devices));
        assert!(global.decisions < local.decisions, "{} {}", global.decisions, local.decisions);
    }
}

#[test]
fn shared_device_matches_processor_sharing() {
    // M/G/1 with processor sharing: E[S] / (1 - rho). So many queues that each request has one of its own.
    for service in
        [Distribution::Constant { us: 1000.0 }, Distribution::Hyperexponential { mean_us: 1000.0, cv: 2.0 }]
    {
        let class = Class { per_s: 500.0, service };
        let run = simulate(&[class], 500.0, |workload| {
            workload.model.share = 64;
            workload.client[0].queues = vec![QueueOn { device: 0, priority: None }; 64];
        });
        agrees(mean(&run.clients[0].latencies), 1000.0 / (1.0 - 0.5), &format!("{service:?}"));
    }
}

#[test]
fn clients_and_purposes_draw_different_numbers() {
    // The theory above would not notice if two clients had the same arrivals.
    let run = simulate(&[EXPONENTIALS[0]; 2], 10.0, |_| {});
    assert_ne!(run.clients[0].latencies, run.clients[1].latencies);
    // Nor if a client's arrivals and work came from one sequence: then a long service followed each long
    // break.
    let draws = |purpose| {
        let mut random = Random::new(1, 0, purpose);
        [random.exponential(), random.exponential()]
    };
    assert_ne!(draws(Purpose::Arrivals), draws(Purpose::Work));
}
