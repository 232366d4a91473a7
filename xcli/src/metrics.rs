//! `xcli metrics`: the list of clients in the OpenMetrics text format, which Prometheus reads.
//!
//! Times are in seconds. The labels of a process are `pid` and `name`, those of a queue also `queue` and
//! `device`. The label of a policy is `policy`, and `device` for the policy of a single device.

use crate::table::plain;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use protocol::control::{Client, List, PolicyInForce, PolicyOrder, Queue, Server};
use protocol::outside::Held;
use std::fmt;
use std::sync::atomic::AtomicU64;

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
type Counters = Family<Labels, Counter<f64, AtomicU64>>;

/// Formats all metrics.
///
/// # Errors
/// The encoder failed. Writing to memory does not fail.
pub fn text(list: &List) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("giveway");
    server(&mut registry, &list.server);
    policies(&mut registry, &list.server.policies);
    processes(&mut registry, &list.clients);
    queues(&mut registry, &list.clients);
    held(&mut registry, &list.held);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Registers a metric with the value of each item. An unknown value is left out.
fn gauge<T>(
    registry: &mut Registry,
    (name, help): (&str, &str),
    items: &[T],
    labels: impl Fn(&T) -> Labels,
    value: impl Fn(&T) -> Option<f64>,
) {
    let family = Gauges::default();
    for item in items {
        if let Some(value) = value(item) {
            family.get_or_create(&labels(item)).set(value);
        }
    }
    registry.register(name, help, family);
}

fn counter<T>(
    registry: &mut Registry,
    (name, help): (&str, &str),
    items: &[T],
    labels: impl Fn(&T) -> Labels,
    value: impl Fn(&T) -> f64,
) {
    let family = Counters::default();
    for item in items {
        family.get_or_create(&labels(item)).inc_by(value(item));
    }
    registry.register(name, help, family);
}

/// Registers metrics of the same items, one in each row: kind, name, value of an item, help.
macro_rules! metrics {
    ($registry:ident, $items:expr, $labels:expr; $($kind:ident $name:literal, $value:expr, $help:literal;)*) => {
        $($kind($registry, ($name, $help), $items, $labels, $value);)*
    };
}

fn flag(value: bool) -> Option<f64> {
    Some(if value { 1.0 } else { 0.0 })
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// The labels with one more.
fn with(mut labels: Labels, name: &'static str, value: &str) -> Labels {
    labels.push((name, value.to_owned()));
    labels
}

fn server(registry: &mut Registry, server: &Server) {
    let (one, none) = (&[server], |_: &&Server| Labels::new());
    metrics! { registry, one, none;
        gauge "server_uptime_seconds", |of| Some(of.uptime_ms as f64 / 1e3), "Time since the server started";
    }
    metrics! { registry, one, |of| vec![("policy", of.policy.clone())];
        gauge "server_scheduling", |of| flag(of.on),
            "1 if the policy decides, 0 if scheduling is off and every program runs";
    }
    metrics! { registry, one, none;
        counter "server_guard_runs", |of| of.guard_runs as f64,
            "How often all programs ran briefly because the running ones made no progress";
        counter "server_decisions", |of| of.decisions as f64, "Scheduling decisions";
    }
}

fn policies(registry: &mut Registry, all: &[PolicyInForce]) {
    /// A named value of a policy.
    type Named<'a> = (&'a PolicyOrder, &'a String, f64);
    let labels = |ruling: &PolicyOrder| {
        let mut labels = vec![("policy", ruling.policy.clone())];
        labels.extend(ruling.device.map(|device| ("device", device.to_string())));
        labels
    };
    let named = |label| move |(ruling, name, _): &Named<'_>| with(labels(ruling), label, name);
    metrics! { registry, all, |one| labels(&one.ruling);
        gauge "policy_in_force", |_| Some(1.0),
            "1 for the policy of all devices, and for each policy of a single device";
    }
    let values: Vec<Named<'_>> = all
        .iter()
        .flat_map(|one| one.ruling.values.iter().map(|(name, value)| (&one.ruling, name, *value)))
        .collect();
    let counts: Vec<Named<'_>> = all
        .iter()
        .flat_map(|one| one.counted.iter().map(|(name, count)| (&one.ruling, name, *count as f64)))
        .collect();
    metrics! { registry, &values, named("parameter");
        gauge "policy_parameter", |named| Some(named.2), "Value of a parameter of the policy";
    }
    metrics! { registry, &counts, named("count");
        gauge "policy_counted", |named| Some(named.2), "Counter of the policy since it is in force";
    }
}

fn process(client: &Client) -> Labels {
    vec![("pid", client.pid.to_string()), ("name", plain(&client.name))]
}

fn processes(registry: &mut Registry, clients: &[Client]) {
    metrics! { registry, clients, process;
        gauge "process_may_run", |of| flag(of.permit.run), "1 if the process may launch, 0 if it is suspended";
        gauge "process_level", |of| Some(f64::from(of.preemption.in_force.number())),
            "The preemption level in force";
        counter "process_holds", |of| of.preemption.holds as f64,
            "Suspensions that evicted the queues of the process from the hardware";
        counter "process_waits", |of| of.preemption.waits as f64,
            "Suspensions that waited for running work because eviction was expected to cost more";
        counter "process_failed_holds", |of| of.preemption.failures as f64,
            "Evictions that failed and were undone";
    }
    let slow: Vec<(&Client, &String, u64)> = clients
        .iter()
        .flat_map(|client| client.slow_path.iter().map(move |(reason, count)| (client, reason, *count)))
        .collect();
    metrics! { registry, &slow, |(client, reason, _)| with(process(client), "reason", reason);
        counter "process_slow_launches", |(.., count)| *count as f64,
            "Launches that could not be deferred and blocked the calling thread";
    }
    metrics! { registry, clients, process;
        gauge "process_expected_seconds", |of| of.preemption.expected_ns.map(seconds),
            "Expected run time of the work in flight at the last suspension";
        gauge "process_hold_seconds", |of| of.preemption.hold_ns.map(seconds),
            "Measured time to evict the queues of the process from the hardware";
        gauge "process_release_seconds", |of| of.preemption.release_ns.map(seconds),
            "Measured time to restore the queues of the process";
    }
}

fn queues(registry: &mut Registry, clients: &[Client]) {
    let all: Vec<(&Client, &Queue)> =
        clients.iter().flat_map(|client| client.queues.iter().map(move |queue| (client, queue))).collect();
    let labels = |(client, queue): &(&Client, &Queue)| {
        let mut labels = process(client);
        labels.extend([("queue", queue.id().to_string()), ("device", queue.device().to_string())]);
        labels
    };
    metrics! { registry, &all, labels;
        gauge "queue_priority", |(_, of)| Some(f64::from(of.status.priority.get())), "Priority of the queue";
        gauge "queue_pending_commands", |(_, of)| Some(of.status.counts.pending as f64),
            "Commands submitted but not launched";
        gauge "queue_in_flight_commands", |(_, of)| Some(of.status.counts.in_flight as f64),
            "Commands launched but not completed";
        counter "queue_direct_launches", |(_, of)| of.status.counts.direct as f64,
            "Launches made by the submitting thread";
        counter "queue_deferred_launches", |(_, of)| of.status.counts.deferred as f64,
            "Launches that were pending before";
        counter "queue_suspensions", |(_, of)| of.status.counts.suspensions as f64, "Suspensions of the queue";
        counter "queue_suspended_seconds", |(_, of)| seconds(of.status.counts.suspended_ns),
            "Time that the queue was suspended, including the current suspension";
    }
}

fn held(registry: &mut Registry, held: &[Held]) {
    let labels = |held: &Held| vec![("pid", held.pid.to_string()), ("name", plain(&held.name))];
    metrics! { registry, held, labels;
        gauge "held_queues", |held| Some(held.queues.len() as f64), "Queues that xcli suspend has suspended";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::tests::in_force;
    use protocol::control::Preemption;

    fn lines(list: &List) -> Vec<String> {
        text(list).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn numbers_of_the_list_are_metrics() {
        let mut list = crate::list::tests::example();
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
            lines
                .iter()
                .any(|line| line == "giveway_process_may_run{pid=\"4242\",name=\"a\\\"b\\\\c?d\"} 1.0"),
            "{}",
            lines.join("\n")
        );
    }
}
