//! What a simulation comes to: figures of each client and each policy, as a table for people and as JSON for programs.

use super::case::{Case, Instance};
use super::scheduler::Policy;
use super::simulation::Run;
use super::workload::{Client, Model};
use crate::stats::Samples;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Everything that the command says. The same for the same workload, options and seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The workload.
    pub workload: String,
    /// What it shows.
    pub about: String,
    /// Which random numbers.
    pub seed: u64,
    /// How long was simulated, seconds.
    pub duration_s: f64,
    /// Whether processes were decided about (`global`), or queues of one process (`local`).
    pub scheduler: &'static str,
    /// The model's parameters.
    pub model: Model,
    /// What each policy made of it.
    pub policies: Vec<PolicyFigures>,
}

/// What a policy made of a workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyFigures {
    /// Its name, with the parameters that were set with it.
    pub policy: String,
    /// All of its parameters.
    pub parameters: BTreeMap<&'static str, f64>,
    /// What each group of clients got.
    pub clients: Vec<ClientFigures>,
    /// What each device did.
    pub devices: Vec<DeviceFigures>,
    /// Jain's index over all clients' throughput relative to alone and to the utilization that they ask for: 1 if all
    /// are equal, down to 1 over their number if one has all. Nothing if nobody got anything done alone.
    pub fairness: Option<f64>,
    /// How often a client with work was suspended.
    pub preemptions: u64,
    /// How often a running kernel was taken off.
    pub saves: u64,
    /// How often the policy was asked.
    pub decisions: u64,
    /// How many things happened in the simulation.
    pub events: u64,
}

/// What a client got, or all of a group that are alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClientFigures {
    /// Its name.
    pub name: String,
    /// How many there are.
    pub count: u32,
    /// Whether it is latency-critical.
    pub critical: bool,
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that were done.
    pub done: u64,
    /// From arrival to end, of the requests that were done; nothing if none was.
    pub latency_ms: Option<Latency>,
    /// Within how many milliseconds they should be done.
    pub slo_ms: Option<f64>,
    /// Requests that took longer, those that were not done in the end and older than that included.
    pub slo_misses: Option<u64>,
    /// Requests done a second, by all of the group.
    pub per_s: f64,
    /// The same by those that are alone, each for itself, under the default policy.
    pub alone_per_s: f64,
    /// `per_s` over `alone_per_s`; nothing if nothing is done alone.
    pub of_alone: Option<f64>,
    /// Device time of the kernels that it ran, seconds.
    pub device_s: f64,
    /// What part that is of the device time of all clients; nothing if that is none.
    pub device_share: Option<f64>,
    /// How often it was suspended while it had work.
    pub suspensions: u64,
}

/// Quantiles by nearest rank, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// What a device did, shares of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DeviceFigures {
    /// Its number.
    pub device: usize,
    /// At least one kernel ran.
    pub utilization: f64,
    /// It was busy with taking kernels off and with bringing them back.
    pub overhead: f64,
}

impl PolicyFigures {
    /// What a run under a policy comes to. `alone` has, for each instance, how many requests it gets done alone in the
    /// same time.
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

    /// The longest p99 of the critical clients, milliseconds; nothing if none of them got anything done.
    pub fn critical_p99_ms(&self) -> Option<f64> {
        let critical = self.clients.iter().filter(|client| client.critical);
        critical.filter_map(|client| client.latency_ms).map(|latency| latency.p99).reduce(f64::max)
    }

    /// What the others get done relative to what they get done alone, on average; nothing without others.
    pub fn best_effort_of_alone(&self) -> Option<f64> {
        let others: Vec<f64> = self
            .clients
            .iter()
            .filter(|client| !client.critical)
            .filter_map(|client| client.of_alone)
            .collect();
        (!others.is_empty()).then(|| others.iter().sum::<f64>() / others.len() as f64)
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

/// What part of the device a client asks for: what is said of its process, or else of its queues; all if nothing is.
fn due(client: &Client) -> f64 {
    let said = client.process.utilization.or(client.hints.utilization);
    f64::from(said.unwrap_or_default().get()) / 100.0
}

/// Jain's index: the square of the sum over the number times the sum of the squares.
fn jain(values: &[f64]) -> Option<f64> {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

impl Figures {
    /// The tables.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{}: {}\n{} s simulated, seed {}, {} scheduler, level {}, {}\n",
            self.workload,
            self.about,
            self.duration_s,
            self.seed,
            self.scheduler,
            self.model.level,
            model_line(&self.model)
        );
        for policy in &self.policies {
            out.push('\n');
            out += &policy.table();
        }
        out
    }
}

fn model_line(model: &Model) -> String {
    let Model { decision_us, launch_us, window_us, save_us, restore_us, linger_us, .. } = model;
    let mut line = format!("decision {decision_us} us, launch {launch_us} us, linger {linger_us} us");
    // Writing to a String cannot fail.
    let _ = match model.level {
        3 if model.wait => write!(line, ", save {save_us} us, restore {restore_us} us, or wait"),
        3 => write!(line, ", save {save_us} us, restore {restore_us} us"),
        _ => write!(line, ", window {window_us} us"),
    };
    line
}

impl PolicyFigures {
    fn table(&self) -> String {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let percent = |share: Option<f64>| number(share.map(|share| share * 100.0), 1);
        let mut rows = vec![
            [
                self.policy.as_str(),
                "arrived",
                "done",
                "p50 ms",
                "p90 ms",
                "p99 ms",
                "max ms",
                "SLO ms",
                "missed",
                "done/s",
            ]
            .into_iter()
            .chain(["% of alone", "% of device"])
            .map(str::to_owned)
            .collect::<Vec<_>>(),
        ];
        for client in &self.clients {
            let part = |part: fn(&Latency) -> f64| number(client.latency_ms.as_ref().map(part), 3);
            let name = match client.count {
                1 => client.name.clone(),
                count => format!("{count} x {}", client.name),
            };
            rows.push(vec![
                name,
                client.arrived.to_string(),
                client.done.to_string(),
                part(|latency| latency.p50),
                part(|latency| latency.p90),
                part(|latency| latency.p99),
                part(|latency| latency.max),
                client.slo_ms.map_or("-".to_owned(), |slo| slo.to_string()),
                client.slo_misses.map_or("-".to_owned(), |misses| misses.to_string()),
                number(Some(client.per_s), 2),
                percent(client.of_alone),
                percent(client.device_share),
            ]);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        let mut out = String::new();
        for row in &rows {
            // Writing to a String cannot fail.
            let _ = write!(out, "{:<1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                let _ = write!(out, "  {cell:>width$}");
            }
            out.push('\n');
        }
        let device = |device: &DeviceFigures| {
            let (busy, overhead) = (device.utilization * 100.0, device.overhead * 100.0);
            format!("device {}: {busy:.1} % busy, {overhead:.2} % overhead", device.device)
        };
        let devices: Vec<String> = self.devices.iter().map(device).collect();
        let _ = writeln!(
            out,
            "{}; fairness {}; {} preemptions, {} kernels taken off, {} decisions, {} events",
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
            scheduler: "global",
            model: Model::default(),
            policies,
        }
    }

    #[test]
    fn jain_is_one_for_equals_and_a_share_for_one() {
        assert_eq!(jain(&[0.5, 0.5, 0.5]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!((jain(&[]), jain(&[0.0])), (None, None));
    }

    #[test]
    fn the_table_lines_up() {
        let expected = "\
w: something
10 s simulated, seed 1, global scheduler, level 1, decision 20 us, launch 5 us, linger 200 us, window 200 us

HPF         arrived  done  p50 ms  p90 ms  p99 ms  max ms  SLO ms  missed  done/s  % of alone  % of device
urgent           10     9   1.000   2.000   4.000   8.000       5       1    0.90        50.0         50.0
20 x batch       10     9       -       -       -       -       -       -    0.90        50.0         50.0
device 0: 50.0 % busy, 0.10 % overhead; fairness 1.000; 3 preemptions, 2 kernels taken off, 30 decisions, 100 events
";
        let mut hpf = policy("HPF", 4.0, 0.5);
        assert_eq!(figures(vec![hpf.clone()]).table(), expected);
        hpf.parameters = BTreeMap::from([("slack-ms", 5.0), ("k", 2.0)]);
        assert_eq!(figures(vec![hpf]).table(), format!("{expected}parameters: k 2, slack-ms 5\n"));
    }
}
