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

fn gauge<'a, T: 'a>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    items: impl IntoIterator<Item = &'a T>,
    of: impl Fn(&T) -> (Labels, Option<f64>),
) {
    let family = Gauges::default();
    for (labels, value) in items.into_iter().map(of) {
        if let Some(value) = value {
            family.get_or_create(&labels).set(value);
        }
    }
    registry.register(name, help, family);
}

fn counter<'a, T: 'a>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    items: impl IntoIterator<Item = &'a T>,
    of: impl Fn(&T) -> (Labels, f64),
) {
    let family = Counters::default();
    for (labels, value) in items.into_iter().map(of) {
        family.get_or_create(&labels).inc_by(value);
    }
    registry.register(name, help, family);
}

fn flag(value: bool) -> Option<f64> {
    Some(if value { 1.0 } else { 0.0 })
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn server(registry: &mut Registry, server: &Server) {
    let one = [server];
    gauge(registry, "server_uptime_seconds", "Time since the server started", one, |server: &Server| {
        (Vec::new(), Some(server.uptime_ms as f64 / 1e3))
    });
    gauge(
        registry,
        "server_scheduling",
        "1 if the policy decides, 0 if scheduling is off and every program runs",
        one,
        |server: &Server| (vec![("policy", server.policy.clone())], flag(server.on)),
    );
    counter(
        registry,
        "server_guard_runs",
        "How often all programs ran briefly because the running ones made no progress",
        one,
        |server: &Server| (Vec::new(), server.guard_runs as f64),
    );
    counter(registry, "server_decisions", "Scheduling decisions", one, |server: &Server| {
        (Vec::new(), server.decisions as f64)
    });
}

fn policies(registry: &mut Registry, all: &[PolicyInForce]) {
    /// A named value of a policy.
    type Named<'a> = (&'a PolicyOrder, &'a String, f64);
    let labels = |ruling: &PolicyOrder| {
        let mut labels = vec![("policy", ruling.policy.clone())];
        labels.extend(ruling.device.map(|device| ("device", device.to_string())));
        labels
    };
    let named = |label| {
        move |(ruling, name, value): &Named<'_>| {
            let mut labels = labels(ruling);
            labels.push((label, String::clone(name)));
            (labels, Some(*value))
        }
    };
    gauge(
        registry,
        "policy_in_force",
        "1 for the policy of all devices, and for each policy of a single device",
        all,
        |one: &PolicyInForce| (labels(&one.ruling), Some(1.0)),
    );
    let values: Vec<Named<'_>> = all
        .iter()
        .flat_map(|one| one.ruling.values.iter().map(|(name, value)| (&one.ruling, name, *value)))
        .collect();
    let counts: Vec<Named<'_>> = all
        .iter()
        .flat_map(|one| one.counted.iter().map(|(name, count)| (&one.ruling, name, *count as f64)))
        .collect();
    gauge(registry, "policy_parameter", "Value of a parameter of the policy", &values, named("parameter"));
    gauge(registry, "policy_counted", "Counter of the policy since it is in force", &counts, named("count"));
}

fn process(client: &Client) -> Labels {
    vec![("pid", client.pid.to_string()), ("name", plain(&client.name))]
}

fn processes(registry: &mut Registry, clients: &[Client]) {
    gauge(
        registry,
        "process_may_run",
        "1 if the process may launch, 0 if it is suspended",
        clients,
        |client| (process(client), flag(client.permit.run)),
    );
    gauge(registry, "process_level", "The preemption level in force", clients, |client: &Client| {
        (process(client), Some(f64::from(client.preemption.in_force.number())))
    });
    counter(
        registry,
        "process_holds",
        "Suspensions that evicted the queues of the process from the hardware",
        clients,
        |client: &Client| (process(client), client.preemption.holds as f64),
    );
    counter(
        registry,
        "process_waits",
        "Suspensions that waited for running work because eviction was expected to cost more",
        clients,
        |client: &Client| (process(client), client.preemption.waits as f64),
    );
    counter(
        registry,
        "process_failed_holds",
        "Evictions that failed and were undone",
        clients,
        |client: &Client| (process(client), client.preemption.failures as f64),
    );
    let slow: Vec<(&Client, &String, u64)> = clients
        .iter()
        .flat_map(|client| client.slow_path.iter().map(move |(reason, count)| (client, reason, *count)))
        .collect();
    counter(
        registry,
        "process_slow_launches",
        "Launches that could not be deferred and blocked the calling thread",
        &slow,
        |(client, reason, count)| {
            let mut labels = process(client);
            labels.push(("reason", String::clone(reason)));
            (labels, *count as f64)
        },
    );
    gauge(
        registry,
        "process_expected_seconds",
        "Expected run time of the work in flight at the last suspension",
        clients,
        |client: &Client| (process(client), client.preemption.expected_ns.map(seconds)),
    );
    gauge(
        registry,
        "process_hold_seconds",
        "Measured time to evict the queues of the process from the hardware",
        clients,
        |client: &Client| (process(client), client.preemption.hold_ns.map(seconds)),
    );
    gauge(
        registry,
        "process_release_seconds",
        "Measured time to restore the queues of the process",
        clients,
        |client: &Client| (process(client), client.preemption.release_ns.map(seconds)),
    );
}

fn queues(registry: &mut Registry, clients: &[Client]) {
    let all: Vec<(&Client, &Queue)> =
        clients.iter().flat_map(|client| client.queues.iter().map(move |queue| (client, queue))).collect();
    let labels = |(client, queue): &(&Client, &Queue)| {
        let mut labels = process(client);
        labels.extend([("queue", queue.id().to_string()), ("device", queue.device().to_string())]);
        labels
    };
    gauge(registry, "queue_priority", "Priority of the queue", &all, |at| {
        (labels(at), Some(f64::from(at.1.status.priority.get())))
    });
    gauge(registry, "queue_pending_commands", "Commands submitted but not launched", &all, |at| {
        (labels(at), Some(at.1.status.counts.pending as f64))
    });
    gauge(registry, "queue_in_flight_commands", "Commands launched but not completed", &all, |at| {
        (labels(at), Some(at.1.status.counts.in_flight as f64))
    });
    counter(registry, "queue_direct_launches", "Launches made by the submitting thread", &all, |at| {
        (labels(at), at.1.status.counts.direct as f64)
    });
    counter(registry, "queue_deferred_launches", "Launches that were pending before", &all, |at| {
        (labels(at), at.1.status.counts.deferred as f64)
    });
    counter(registry, "queue_suspensions", "Suspensions of the queue", &all, |at| {
        (labels(at), at.1.status.counts.suspensions as f64)
    });
    counter(
        registry,
        "queue_suspended_seconds",
        "Time that the queue was suspended, including the current suspension",
        &all,
        |at| (labels(at), seconds(at.1.status.counts.suspended_ns)),
    );
}

fn held(registry: &mut Registry, held: &[Held]) {
    gauge(registry, "held_queues", "Queues that xcli suspend has suspended", held, |held| {
        (vec![("pid", held.pid.to_string()), ("name", plain(&held.name))], Some(held.queues.len() as f64))
    });
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
