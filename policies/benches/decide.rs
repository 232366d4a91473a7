//! The time of one decision, from the status to the operations, in microseconds.
//!
//! `cargo bench -p policies --bench decide` prints medians and 99th percentiles over many decisions, of all policies or of
//! those named after `--`. The limits are for medians: 2 µs for 10 queues and 200 µs for 1,000. The last line says whether
//! the worst policy meets them. Gangs of four queues have four times as many queues, and no limit.

use policies::registry::{self, Row};
use policies::{Choice, Engine};
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::event::Event;
use protocol::hint::{Hint, Laxity, ProcessHints, QueueHints};
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::policy::PolicyKind;
use protocol::status::{Activity, Counts, Gang, QueueStatus, Queues, Status};
use protocol::time::Time;
use std::hint::black_box;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// A fixed sequence that looks random.
fn scatter(index: u64) -> u64 {
    index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

fn queue(id: u64, device: u64, seed: u64) -> QueueStatus {
    let priority = (scatter(seed) % 511) as i64 - 255;
    let since = Time(scatter(seed + 7) % 1_000);
    let activity = match seed % 4 {
        0 => Activity::Idle { since: Some(since) },
        _ => Activity::Ready { since },
    };
    QueueStatus {
        queue: QueueId(id),
        device: DeviceId(device as u32),
        priority: Priority::try_from(priority).expect("in range"),
        hints: queue_hints(seed),
        level: PreemptLevel::Block,
        activity,
        counts: Counts::default(),
    }
}

fn queues(list: Vec<QueueStatus>) -> Queues {
    Queues::try_from(list).expect("distinct names")
}

/// Hints, so that each policy finds what it goes by.
fn queue_hints(seed: u64) -> QueueHints {
    let [lax, critical] = [-5i64, 5].map(|priority| priority.try_into().expect("in range"));
    let laxity = Laxity { us: scatter(seed + 3) % 1_000_000, lax, critical };
    let deadline_us = NonZeroU64::new(scatter(seed + 5) % 1_000_000).filter(|_| !seed.is_multiple_of(3));
    QueueHints { deadline_us, laxity: (seed % 5 > 2).then_some(laxity), ..QueueHints::default() }
}

/// Half of the processes belong to jobs of four.
fn process_hints(client: u64) -> ProcessHints {
    ProcessHints {
        job: NonZeroU64::new(client / 8).filter(|_| !client.is_multiple_of(2)),
        window: client == 1,
        nice: (client % 40) as i8 - 20,
        ..ProcessHints::default()
    }
}

/// Queues of one process, spread over the devices.
fn local(entities: u64, devices: u64) -> Status {
    let list = (1..=entities).map(|id| queue(id, scatter(id) % devices, id)).collect();
    Status::Local { pid: Pid(1), hints: ProcessHints::default(), queues: queues(list) }
}

/// Gangs of four queues on two devices each.
fn global(entities: u64, devices: u64) -> Status {
    let gang = |client: u64| {
        let list = (1..=4).map(|id| queue(id, (client + id % 2) % devices, client * 5 + id)).collect();
        Gang {
            client: ClientId(client),
            pid: Pid(client as u32),
            owner: 0,
            hints: process_hints(client),
            queues: queues(list),
        }
    };
    Status::Global { gangs: (1..=entities).map(gang).collect() }
}

/// Queues of one process that turn ready and idle in alternation; some hint their next arrival, or are not preemptible.
struct Lively {
    status: Status,
    entities: u64,
}

impl Lively {
    /// The number of rounds for which each queue has work, and then none.
    const ROUNDS: u64 = 32;

    fn new(entities: u64, devices: u64) -> Self {
        let queue = |id| {
            let mut queue = queue(id, scatter(id) % devices, id);
            queue.activity = Activity::Idle { since: None };
            queue.hints.preemptible = !id.is_multiple_of(8);
            queue
        };
        let list = (1..=entities).map(queue).collect();
        let status = Status::Local { pid: Pid(1), hints: ProcessHints::default(), queues: queues(list) };
        Self { status, entities }
    }

    /// Changes the queues of this round.
    fn step(&mut self, round: u64, now: Time) {
        let Status::Local { queues, .. } = &mut self.status else { unreachable!("made so") };
        for queue in (1..=self.entities).map(QueueId) {
            let phase = (round + scatter(queue.0)) % (2 * Self::ROUNDS);
            let event = match phase {
                0 => Event::QueueReady { queue, at: now },
                Self::ROUNDS => Event::QueueIdle { queue, at: now },
                _ => continue,
            };
            queues.apply(&event).expect("it is there");
            if phase == Self::ROUNDS && queue.0.is_multiple_of(4) {
                let arrival = Some(now.after(Duration::from_micros(100 * Self::ROUNDS)));
                let hints =
                    QueueHints { arrival, preemptible: !queue.0.is_multiple_of(8), ..queue_hints(queue.0) };
                queues.apply(&Event::Hint(Hint::Queue { queue, hints })).expect("it is there");
            }
        }
    }
}

/// Returns the median in microseconds.
fn measure(choice: impl Into<Choice>, name: &str, status: &Status, rounds: usize) -> f64 {
    measure_steps(choice, name, rounds, status, |_, _, _| (), |status| status)
}

fn measure_lively(choice: impl Into<Choice>, name: &str, lively: Lively, rounds: usize) -> f64 {
    measure_steps(choice, name, rounds, lively, Lively::step, |lively| &lively.status)
}

/// Decides again and again; only deciding is timed, not the step before it. Returns the median.
fn measure_steps<T>(
    choice: impl Into<Choice>,
    name: &str,
    rounds: usize,
    mut state: T,
    mut step: impl FnMut(&mut T, u64, Time),
    status: impl for<'a> Fn(&'a T) -> &'a Status,
) -> f64 {
    let choice = choice.into();
    let kind = choice.row.kind;
    let mut engine = Engine::new(choice, Engine::LINGER);
    let mut times: Vec<f64> = (0..rounds as u64)
        .map(|round| {
            // So that slices end.
            let now = Time(1_000_000_000 + round * 100_000);
            step(&mut state, round, now);
            let start = Instant::now();
            black_box(engine.decide(black_box(status(&state)), now));
            start.elapsed().as_nanos() as f64 / 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{kind} {name}: median {:.2} us, p99 {:.2} us", times[rounds / 2], times[rounds * 99 / 100]);
    times[rounds / 2]
}

/// The largest median for one number of queues, and whose it is.
#[derive(Default)]
struct Worst(f64, String);

impl Worst {
    fn note(&mut self, median: f64, who: String) {
        if median > self.0 {
            *self = Self(median, who);
        }
    }
}

/// How many queues, how many decisions, and what their median may be in microseconds.
const SIZES: [(u64, usize, f64); 2] = [(10, 20_000, 2.0), (1_000, 2_000, 200.0)];

fn main() {
    // Cargo adds `--bench`.
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |row: &&Row| named.is_empty() || named.iter().any(|name| *name == row.kind.to_string());
    let rows: Vec<_> = registry::POLICIES.iter().filter(wanted).collect();
    for (entities, rounds, limit) in SIZES {
        let mut worst = Worst::default();
        let (steady, come_and_go) = (
            format!("{entities} queues on 8 devices"),
            format!("{entities} queues on 8 devices that come and go"),
        );
        for row in &rows {
            worst
                .note(measure(*row, &steady, &local(entities, 8), rounds), format!("{}, {steady}", row.kind));
            for devices in [8, 64] {
                measure(
                    *row,
                    &format!("{entities} gangs of 4 queues on {devices} devices"),
                    &global(entities, devices),
                    rounds,
                );
            }
            let median = measure_lively(*row, &come_and_go, Lively::new(entities, 8), rounds);
            worst.note(median, format!("{}, {come_and_go}", row.kind));
            if row.kind == PolicyKind::Lcbe {
                let mut choice = Choice::new(row);
                choice.values.set("slice-ms", 1.0).expect("in range");
                let name = format!("{come_and_go}, with slices");
                let median = measure_lively(choice, &name, Lively::new(entities, 8), rounds);
                worst.note(median, format!("{}, {name}", row.kind));
            }
        }
        let Worst(median, who) = worst;
        if !who.is_empty() {
            let word = if median <= limit { "met" } else { "MISSED" };
            println!("the longest median for {entities} queues <= {limit} us: {median:.2} ({who}), {word}");
        }
    }
}
