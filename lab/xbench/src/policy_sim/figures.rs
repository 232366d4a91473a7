//! The figures of a simulation for each client and each policy, as a table and as JSON.

use super::case::{Case, Instance};
use super::scheduler::{Policy, Scope};
use super::simulation::Run;
use super::workload::{Client, Model};
use crate::account::Accounts;
use crate::stats::{Samples, mean};
use crate::table::{Column, Table, dash, number, value_name};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The output of the command, which is the same for the same workload, options and seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub workload: String,
    pub about: String,
    pub seed: u64,
    /// The simulated time, seconds.
    pub duration_s: f64,
    /// The scheduled entities: processes (`global`), or queues of one process (`local`).
    pub scheduler: Scope,
    pub model: Model,
    pub policies: Vec<PolicyFigures>,
    /// The account of the device's time; `null` without the option.
    pub account: Option<Accounts>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PolicyFigures {
    /// The policy's name, with the parameters that were set.
    pub policy: String,
    pub parameters: BTreeMap<&'static str, f64>,
    /// The figures of each group of clients.
    pub clients: Vec<ClientFigures>,
    pub devices: Vec<DeviceFigures>,
    /// Jain's index of all clients' throughput relative to alone and to their requested utilization: 1 if all
    /// are equal, down to 1 over their number if one has all. `null` if no client finished a request alone.
    pub fairness: Option<f64>,
    /// Suspensions of clients with work.
    pub preemptions: u64,
    /// Evictions of running kernels.
    pub saves: u64,
    /// Decisions of the policy.
    pub decisions: u64,
    /// Events of the simulation.
    pub events: u64,
}

/// The figures of a client or a group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ClientFigures {
    pub name: String,
    /// The size of the group.
    pub count: u32,
    /// True if it is latency-critical.
    pub critical: bool,
    pub arrived: u64,
    pub done: u64,
    /// Latency from arrival to end, of the completed requests; `null` if there are none.
    pub latency_ms: Option<Latency>,
    /// The time in which requests should be done.
    pub slo_ms: Option<f64>,
    /// Requests that took longer, and unfinished requests that are older at the end.
    pub slo_misses: Option<u64>,
    /// Completed requests a second, of the whole group.
    pub per_s: f64,
    /// The same of the clients alone, one by one, under the default policy.
    pub alone_per_s: f64,
    /// `per_s` over `alone_per_s`; `null` if the clients complete nothing alone.
    pub of_alone: Option<f64>,
    /// The device time of its kernels, seconds.
    pub device_s: f64,
    /// The share of the device time of all clients; `null` if there is none.
    pub device_share: Option<f64>,
    /// Suspensions while it had work.
    pub suspensions: u64,
}

/// Quantiles by nearest rank, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

/// The figures of a device, as shares of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct DeviceFigures {
    pub device: usize,
    /// The share in which at least one kernel ran.
    pub utilization: f64,
    /// The share of evicting and restoring kernels.
    pub overhead: f64,
}

impl PolicyFigures {
    /// Computes the figures of a run. `alone` has the requests that each instance completes alone in the same
    /// time.
    pub(super) fn new(
        case: &Case,
        policy: &Policy,
        instances: &[Instance],
        run: &Run,
        alone: &[u64],
    ) -> Self {
        let seconds = run.time as f64 / 1e9;
        let relative: Vec<f64> = run
            .clients
            .iter()
            .zip(alone)
            .zip(instances)
            .map(|((client, alone), instance)| (client, *alone as f64 * due(case.client(*instance))))
            .filter(|(_, due)| *due > 0.0)
            .map(|(client, due)| client.latencies.len() as f64 / due)
            .collect();
        let all_work: u64 = run.clients.iter().map(|client| client.work).sum();
        let group = |group: usize| {
            let of_group = |instance: &Instance| instance.group == group;
            let members = instances.iter().zip(&run.clients).filter(|(instance, _)| of_group(instance));
            let members: Vec<_> = members.map(|(_, client)| client).collect();
            let client = &case.workload.client[group];
            let sum =
                |part: fn(&super::simulation::ClientRun) -> u64| members.iter().map(|c| part(c)).sum::<u64>();
            let done = sum(|client| client.latencies.len() as u64);
            let alone = instances.iter().zip(alone).filter(|(instance, _)| of_group(instance));
            let alone_done: u64 = alone.map(|(_, done)| done).sum();
            let ms = |ns: &u64| *ns as f64 / 1e6;
            let late = |slo: f64| {
                let all = members.iter().flat_map(|client| client.latencies.iter().chain(&client.unfinished));
                all.filter(|ns| ms(ns) > slo).count() as u64
            };
            let latencies = members.iter().flat_map(|client| &client.latencies).map(ms).collect();
            ClientFigures {
                name: client.name.clone(),
                count: client.count,
                critical: client.is_critical(),
                arrived: sum(|client| client.arrived),
                done,
                latency_ms: Samples::new(latencies).map(|samples| Latency::new(&samples)),
                slo_ms: client.slo_ms,
                slo_misses: client.slo_ms.map(late),
                per_s: done as f64 / seconds,
                alone_per_s: alone_done as f64 / seconds,
                of_alone: (alone_done > 0).then(|| done as f64 / alone_done as f64),
                device_s: sum(|client| client.work) as f64 / 1e9,
                device_share: (all_work > 0).then(|| sum(|client| client.work) as f64 / all_work as f64),
                suspensions: sum(|client| client.suspensions),
            }
        };
        let share = |ns: u64| ns as f64 / run.time as f64;
        let device = |(device, times): (usize, &super::device::DeviceTimes)| DeviceFigures {
            device,
            utilization: share(times.busy),
            overhead: share(times.stalled + times.restored),
        };
        Self {
            policy: policy.words().to_owned(),
            parameters: policy.parameters().collect(),
            clients: (0..case.workload.client.len()).map(group).collect(),
            devices: run.devices.iter().enumerate().map(device).collect(),
            fairness: jain(&relative),
            preemptions: run.clients.iter().map(|client| client.suspensions).sum(),
            saves: run.devices.iter().map(|times| times.saves).sum(),
            decisions: run.decisions,
            events: run.events,
        }
    }

    /// Returns the longest p99 of the critical clients, milliseconds; `None` if none of them completed a
    /// request.
    pub fn critical_p99_ms(&self) -> Option<f64> {
        let critical = self.clients.iter().filter(|client| client.critical);
        critical.filter_map(|client| client.latency_ms).map(|latency| latency.p99).reduce(f64::max)
    }

    /// Returns the mean throughput of the other clients relative to alone; `None` without other clients.
    pub fn best_effort_of_alone(&self) -> Option<f64> {
        let others = self.clients.iter().filter(|client| !client.critical);
        mean(others.filter_map(|client| client.of_alone))
    }
}

impl Latency {
    fn new(samples: &Samples) -> Self {
        Self {
            mean: samples.mean(),
            p50: samples.median(),
            p90: samples.percentile(90.0),
            p99: samples.percentile(99.0),
            max: samples.max(),
        }
    }
}

/// Returns the share of the device that a client requests: the hint for its process, or else for its queues,
/// or else all.
fn due(client: &Client) -> f64 {
    let hint = client.process.utilization.or(client.hints.utilization);
    f64::from(hint.unwrap_or_default().get()) / 100.0
}

/// Returns Jain's index: the square of the sum over the number times the sum of the squares.
fn jain(values: &[f64]) -> Option<f64> {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

impl Figures {
    pub fn table(&self) -> String {
        let mut out = format!(
            "{}: {}\n{} s simulated, seed {}, {} scheduler, level {}, {}\n",
            self.workload,
            self.about,
            self.duration_s,
            self.seed,
            value_name(self.scheduler),
            self.model.level,
            model_line(&self.model)
        );
        for policy in &self.policies {
            out.push('\n');
            out += &policy.table();
        }
        if let Some(accounts) = &self.account {
            let _ = write!(out, "\n{accounts}");
        }
        out
    }
}

fn model_line(model: &Model) -> String {
    let Model { decision_us, launch_us, window_us, save_us, restore_us, linger_us, .. } = model;
    let mut line = format!("decision {decision_us} us, launch {launch_us} us, linger {linger_us} us");
    let _ = match model.level {
        3 if model.wait => write!(line, ", save {save_us} us, restore {restore_us} us, or wait"),
        3 => write!(line, ", save {save_us} us, restore {restore_us} us"),
        _ => write!(line, ", window {window_us} us"),
    };
    line
}

impl PolicyFigures {
    fn table(&self) -> String {
        let percent = |share: Option<f64>| number(share.map(|share| share * 100.0), 1);
        let name = |client: &ClientFigures| match client.count {
            1 => client.name.clone(),
            count => format!("{count} x {}", client.name),
        };
        let part = |client: &ClientFigures, part: fn(&Latency) -> f64| {
            number(client.latency_ms.as_ref().map(part), 3)
        };
        let columns: [Column<'_, ClientFigures>; 12] = [
            (&self.policy, &name),
            ("arrived", &|client| client.arrived.to_string()),
            ("done", &|client| client.done.to_string()),
            ("p50 ms", &|client| part(client, |latency| latency.p50)),
            ("p90 ms", &|client| part(client, |latency| latency.p90)),
            ("p99 ms", &|client| part(client, |latency| latency.p99)),
            ("max ms", &|client| part(client, |latency| latency.max)),
            ("SLO ms", &|client| client.slo_ms.map_or_else(dash, |slo| slo.to_string())),
            ("missed", &|client| client.slo_misses.map_or_else(dash, |misses| misses.to_string())),
            ("done/s", &|client| number(Some(client.per_s), 2)),
            ("% of alone", &|client| percent(client.of_alone)),
            ("% of device", &|client| percent(client.device_share)),
        ];
        let mut out = Table::of(1, columns, &self.clients).to_string();
        let device = |device: &DeviceFigures| {
            let (busy, overhead) = (device.utilization * 100.0, device.overhead * 100.0);
            format!("device {}: {busy:.1} % busy, {overhead:.2} % overhead", device.device)
        };
        let devices: Vec<String> = self.devices.iter().map(device).collect();
        let _ = writeln!(
            out,
            "{}; fairness {}; {} preemptions, {} kernels evicted, {} decisions, {} events",
            devices.join("; "),
            number(self.fairness, 3),
            self.preemptions,
            self.saves,
            self.decisions,
            self.events
        );
        if !self.parameters.is_empty() {
            let values: Vec<String> =
                self.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
            let _ = writeln!(out, "parameters: {}", values.join(", "));
        }
        out
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn policy(policy: &str, p99: f64, of_alone: f64) -> PolicyFigures {
        let latency = Latency { mean: 1.0, p50: 1.0, p90: 2.0, p99, max: 2.0 * p99 };
        let client = |name: &str, critical: bool| ClientFigures {
            name: name.to_owned(),
            count: if critical { 1 } else { 20 },
            critical,
            arrived: 10,
            done: 9,
            latency_ms: Some(latency).filter(|_| critical),
            slo_ms: Some(5.0).filter(|_| critical),
            slo_misses: Some(1).filter(|_| critical),
            per_s: 0.9,
            alone_per_s: 1.0,
            of_alone: Some(of_alone),
            device_s: 0.1,
            device_share: Some(0.5),
            suspensions: 3,
        };
        PolicyFigures {
            policy: policy.to_owned(),
            parameters: BTreeMap::new(),
            clients: vec![client("urgent", true), client("batch", false)],
            devices: vec![DeviceFigures { device: 0, utilization: 0.5, overhead: 0.001 }],
            fairness: Some(1.0),
            preemptions: 3,
            saves: 2,
            decisions: 30,
            events: 100,
        }
    }

    pub(in super::super) fn figures(policies: Vec<PolicyFigures>) -> Figures {
        Figures {
            workload: "w".to_owned(),
            about: "something".to_owned(),
            seed: 1,
            duration_s: 10.0,
            scheduler: Scope::Global,
            model: Model::default(),
            policies,
            account: None,
        }
    }

    #[test]
    fn jain_is_one_for_equals_and_a_share_for_one() {
        assert_eq!(jain(&[0.5, 0.5, 0.5]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!((jain(&[]), jain(&[0.0])), (None, None));
    }

    #[test]
    fn table_lines_up() {
        let expected = "\
w: something
10 s simulated, seed 1, global scheduler, level 1, decision 20 us, launch 5 us, linger 200 us, window 200 us

HPF         arrived  done  p50 ms  p90 ms  p99 ms  max ms  SLO ms  missed  done/s  % of alone  % of device
urgent           10     9   1.000   2.000   4.000   8.000       5       1    0.90        50.0         50.0
20 x batch       10     9       -       -       -       -       -       -    0.90        50.0         50.0
device 0: 50.0 % busy, 0.10 % overhead; fairness 1.000; 3 preemptions, 2 kernels evicted, 30 decisions, 100 events
";
        let mut hpf = policy("HPF", 4.0, 0.5);
        assert_eq!(figures(vec![hpf.clone()]).table(), expected);
        hpf.parameters = BTreeMap::from([("slack-ms", 5.0), ("k", 2.0)]);
        assert_eq!(figures(vec![hpf]).table(), format!("{expected}parameters: k 2, slack-ms 5\n"));
    }
}
