//! The metrics and their text.
//!
//! Times are in seconds. The labels of a process are `pid` and `name`, those of a queue also `queue` and `device`. The label of
//! a policy is `policy`, and `device` for the policy of a single device.

use super::memory::Used;
use crate::table::plain;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use protocol::control::{Client, List, Owner, PolicyInForce, PolicyOrder, Queue, Server};
use protocol::outside::Held;
use protocol::totals::{BOUNDS, Class, Durations, Totals, Work};
use std::cmp::Reverse;
use std::fmt;
use std::sync::atomic::AtomicU64;

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
type Counters = Family<Labels, Counter<f64, AtomicU64>>;

/// Registers metrics of the same items, one in each row: kind, name, value of an item, help.
macro_rules! metrics {
    ($registry:ident, $items:expr, $labels:expr; $($kind:ident $name:literal, $value:expr, $help:literal;)*) => {
        $($kind($registry, ($name, $help), $items, $labels, $value);)*
    };
}

/// How many programs and queues have metrics of their own. Each combination of labels costs the reader memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub programs: usize,
    /// Of each program.
    pub queues: usize,
}

impl Limits {
    /// No program has metrics of its own.
    pub const NONE: Self = Self { programs: 0, queues: 0 };
}

impl Default for Limits {
    fn default() -> Self {
        Self { programs: 256, queues: 64 }
    }
}

/// The numbers that become metrics.
#[derive(Debug)]
pub struct Numbers {
    list: List,
    memory: Vec<(String, Used)>,
    /// All programs and queues, whether they have metrics of their own or not.
    clients: usize,
    queues: usize,
    left_out: usize,
}

impl Numbers {
    /// Chooses the programs with the most work, and their first queues.
    pub fn new(mut list: List, memory: Vec<Used>, limits: Limits) -> Self {
        let clients = list.clients.len();
        let queues = list.clients.iter().map(|client| client.queues.len()).sum();
        list.clients.sort_by_cached_key(|client| {
            let times = client.queues.iter().filter_map(|queue| queue.times);
            Reverse(times.map(|times| u128::from(times.running_ns.max(times.worked_ns))).sum::<u128>())
        });
        list.clients.truncate(limits.programs);
        list.held.truncate(limits.programs);
        // The oldest first, as in other lists.
        list.clients.sort_by_key(|client| client.client);
        for client in &mut list.clients {
            client.queues.truncate(limits.queues);
        }
        let name = |used: &Used| {
            list.clients.iter().find(|client| client.pid.0 == used.pid).map(|client| client.name.clone())
        };
        let memory = memory.into_iter().filter_map(|used| Some((name(&used)?, used))).collect();
        let left_out = clients - list.clients.len();
        Self { list, memory, clients, queues, left_out }
    }

    /// Formats all metrics.
    ///
    /// # Errors
    /// The encoder failed. Writing to memory does not fail.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut registry = up(true);
        server(&mut registry, &self.list.server, self);
        if let Some(totals) = &self.list.server.totals {
            sums(&mut registry, totals);
        }
        policies(&mut registry, &self.list.server.policies);
        processes(&mut registry, &self.list.clients);
        queues(&mut registry, &self.list.clients);
        memory(&mut registry, &self.memory);
        held(&mut registry, &self.list.held);
        written(&registry)
    }
}

/// The metrics of a server that does not answer.
///
/// # Errors
/// The encoder failed. Writing to memory does not fail.
pub fn down() -> Result<String, fmt::Error> {
    written(&up(false))
}

fn written(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}

/// The registry with what is always known.
fn up(is_up: bool) -> Registry {
    let mut all = Registry::with_prefix("giveway");
    let registry = &mut all;
    metrics! { registry, &[()], |()| Labels::new();
        gauge "up", |()| flag(is_up), "1 if the server answers, 0 if it does not; then there are no other metrics";
    }
    all
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

fn server(registry: &mut Registry, server: &Server, numbers: &Numbers) {
    let (one, none) = (&[server], |_: &&Server| Labels::new());
    metrics! { registry, one, none;
        gauge "server_programs", |_| Some(numbers.clients as f64), "Connected programs";
        gauge "server_queues", |_| Some(numbers.queues as f64), "Queues of connected programs";
        gauge "unscheduled_processes", |of| of.totals.as_ref().map(|_| of.outsiders.len() as f64),
            "Processes that use a GPU and are not scheduled by this server";
        gauge "processes_left_out", |_| Some(numbers.left_out as f64),
            "Programs without metrics of their own, because there are too many or readers may not see them";
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

/// A metric with the numbers of durations up to each bound.
#[derive(Debug)]
struct Histogram {
    name: &'static str,
    help: &'static str,
    durations: Durations,
}

impl Collector for Histogram {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self { name, help, durations } = self;
        let bounds = BOUNDS.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        let counts = durations.counts.iter().copied().chain(std::iter::repeat(0));
        let ranges: Vec<_> = bounds.zip(counts).collect();
        encoder
            .encode_descriptor(name, &format!("{help}."), None, MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(seconds(durations.sum_ns), durations.count(), &ranges, None)
    }
}

/// What the server has counted since its start.
fn sums(registry: &mut Registry, totals: &Totals) {
    for (name, help, durations) in [
        (
            "decision_seconds",
            "Time from the report that a program has work until all permissions that follow were stored",
            &totals.decisions,
        ),
        ("step_seconds", "Time of a scheduling decision alone", &totals.steps),
        (
            "eviction_seconds",
            "Time from a suspension until the program's queues were off the hardware, at levels 2 and 3",
            &totals.evictions,
        ),
        ("suspension_seconds", "Time that a program with work was suspended", &totals.suspensions),
    ] {
        registry.register_collector(Box::new(Histogram { name, help, durations: durations.clone() }));
    }
    let levels: Vec<_> = totals.preemptions.iter().zip(1..).map(|(count, level)| (*count, level)).collect();
    metrics! { registry, &levels, |(_, level): &(u64, i32)| vec![("level", level.to_string())];
        counter "preemptions", |(count, _)| *count as f64, "Suspensions of programs with work, by the level in force";
    }
    metrics! { registry, &totals.completed, |(class, _): &(Class, u64)| vec![("class", class.to_string())];
        counter "completed_commands", |(_, count)| *count as f64,
            "Completed kernels, copies and other commands, as the programs report. Class: urgent (priority above 0), normal (0), batch (below 0)";
    }
    let labels = |work: &Work| vec![("device", work.device.to_string()), ("class", work.class.to_string())];
    metrics! { registry, &totals.work, labels;
        counter "device_worked_seconds", |work| seconds(work.worked_ns),
            "Time that the device worked, as far as the programs know";
    }
    metrics! { registry, &[totals], |_: &&Totals| Labels::new();
        counter "server_lapsed_leases", |of| of.lapsed_leases as f64,
            "Renewals of leases that came so late that programs ran unscheduled";
        counter "server_refused_connections", |of| of.refused_connections as f64, "Connections refused by a rule or a limit";
        counter "server_refused_queues", |of| of.refused_queues as f64,
            "Queues for which there was no room, so that their programs ran unscheduled";
        counter "server_protocol_errors", |of| of.protocol_errors as f64,
            "Connections that ended because the other side broke the protocol or was silent";
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
        gauge "policy_counted", |named| Some(named.2), "Counter of the policy since it was put in force";
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
        counter "process_preemptions", |of| of.preemptions.unwrap_or_default() as f64,
            "Suspensions of the process while it had work";
        counter "process_completed_commands", |of| of.completed.unwrap_or_default() as f64,
            "Completed kernels, copies and other commands, as the process reports";
        counter "process_holds", |of| of.preemption.holds as f64,
            "Suspensions that evicted the queues of the process from the hardware";
        counter "process_waits", |of| of.preemption.waits as f64,
            "Suspensions that waited for running work because eviction was expected to cost more";
        counter "process_failed_holds", |of| of.preemption.failures as f64,
            "Evictions that failed and were undone";
    }
    let owners: Vec<_> =
        clients.iter().filter_map(|client| client.owner.as_ref().map(|owner| (client, owner))).collect();
    let labels = |(client, owner): &(&Client, &Owner)| {
        let mut labels = process(client);
        labels.extend([
            ("uid", owner.uid.to_string()),
            ("rule", plain(&owner.rule)),
            ("cgroup", plain(owner.cgroup.as_deref().unwrap_or_default())),
        ]);
        labels
    };
    metrics! { registry, &owners, labels;
        gauge "process_owner", |_| Some(1.0), "1, with the user of the process, its rule and its control group";
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
            "Launches that were pending first";
        counter "queue_suspensions", |(_, of)| of.status.counts.suspensions as f64, "Suspensions of the queue";
        counter "queue_suspended_seconds", |(_, of)| seconds(of.status.counts.suspended_ns),
            "Time that the queue was suspended, including the current suspension";
    }
    let timed: Vec<_> = all.iter().filter_map(|of| of.1.times.map(|times| (*of, times))).collect();
    metrics! { registry, &timed, |(of, _)| labels(of);
        counter "queue_ready_seconds", |(_, of)| seconds(of.ready_ns),
            "Time that the queue had work. An estimate while no other program waits";
        counter "queue_running_seconds", |(_, of)| seconds(of.running_ns),
            "Time that the queue had work and the process was permitted to launch. An estimate while no other program waits";
        counter "queue_worked_seconds", |(_, of)| seconds(of.worked_ns),
            "Time that the device worked for the queue, as far as the process knows";
    }
}

fn memory(registry: &mut Registry, all: &[(String, Used)]) {
    let labels = |(name, used): &(String, Used)| {
        vec![("pid", used.pid.to_string()), ("name", plain(name)), ("device", used.device.to_string())]
    };
    metrics! { registry, all, labels;
        gauge "process_memory_bytes", |(_, of)| Some(of.now as f64), "Device memory of the process, as the driver counts it";
        gauge "process_memory_peak_bytes", |(_, of)| of.peak.map(|peak| peak as f64),
            "Highest reading of the device memory of the process, at one reading a second since the exporter started";
    }
}

fn held(registry: &mut Registry, held: &[Held]) {
    let labels = |held: &Held| vec![("pid", held.pid.to_string()), ("name", plain(&held.name))];
    metrics! { registry, held, labels;
        gauge "held_queues", |held| Some(held.queues.len() as f64), "Queues that xcli suspend has suspended";
    }
}

#[cfg(test)]
mod tests;
