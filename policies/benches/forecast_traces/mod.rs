//! Arrivals as the recorded models cause them.

use crate::arrivals::{Arrival, Random, arrivals};
use serde_json::Value;
use std::path::Path;

/// The effect of the recorder's profiler on the gaps between submits; see `examples/traces/README.md`.
const GAP_FACTOR: f64 = 0.49;

/// A recorded inference: for each command when it is submitted and how long it takes, microseconds.
#[derive(Debug)]
pub struct Model {
    commands: Vec<(f64, f64)>,
}

impl Model {
    /// Reads a file of `examples/traces`.
    pub fn load(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/traces").join(name);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file: Value = serde_json::from_str(&text).expect("JSON");
        let commands = file["commands"].as_array().expect("commands").iter();
        let micros = |command: &Value, field: &str| command[field].as_f64().expect("a number");
        let commands = commands
            .map(|command| (GAP_FACTOR * micros(command, "submit_us"), micros(command, "duration_us")))
            .collect();
        Self { commands }
    }
}

/// The work of a queue while it is not idle for longer than it lingers.
#[derive(Debug)]
pub struct Queue {
    linger_us: f64,
    /// The times from which and until which it has work.
    work: Option<(f64, f64)>,
    arrivals: Vec<Arrival>,
}

impl Queue {
    pub fn new(linger_us: f64) -> Self {
        Self { linger_us, work: None, arrivals: Vec::new() }
    }

    fn submit(&mut self, at: f64, duration: f64) {
        match &mut self.work {
            Some((_, end)) if at <= *end + self.linger_us => *end = end.max(at) + duration,
            work => {
                if let Some(done) = work.replace((at, at + duration)) {
                    self.arrivals.extend(arrivals(&[done.0], done.1 - done.0 + self.linger_us));
                }
            }
        }
    }

    /// An inference that begins at this time; submits are up to a tenth slower or faster than recorded. Returns when
    /// its last command has completed.
    pub fn infer(&mut self, model: &Model, begin: f64, random: &mut Random) -> f64 {
        let pace = 1.0 + 0.1 * random.signed();
        for (submit, duration) in &model.commands {
            self.submit(begin + pace * submit, *duration);
        }
        self.work.map_or(begin, |(_, end)| end)
    }

    pub fn arrivals(self) -> Vec<Arrival> {
        self.arrivals
    }
}

/// One inference in each period; each begins later than that by what the host prepares, 100 µs and an exponential of
/// 100 µs. One that is not done when the next is due delays it.
pub fn served(model: &Model, count: usize, period_us: f64, linger_us: f64, seed: u64) -> Vec<Arrival> {
    let mut random = Random(seed);
    let mut queue = Queue::new(linger_us);
    let mut free = 0.0;
    for index in 0..count {
        let due = f64::max(free, index as f64 * period_us);
        free = queue.infer(model, due + 100.0 + 100.0 * random.exponential(), &mut random);
    }
    queue.arrivals()
}

/// Each inference begins when the host has prepared it after the one before, up to a tenth faster or slower.
pub fn closed(model: &Model, count: usize, prepare_us: f64, seed: u64) -> Vec<Arrival> {
    let mut random = Random(seed);
    let mut queue = Queue::new(200.0);
    let mut free = 0.0;
    for _ in 0..count {
        free = queue.infer(model, free + prepare_us * (1.0 + 0.1 * random.signed()), &mut random);
    }
    queue.arrivals()
}

/// Two clients of one queue, each with its period; see [`served`].
pub fn two_clients(model: &Model, count: usize, periods_us: [f64; 2], seed: u64) -> Vec<Arrival> {
    let mut random = Random(seed);
    let mut queue = Queue::new(200.0);
    let mut due: Vec<f64> = (0..count).map(|index| index as f64 * periods_us[0]).collect();
    let end = count as f64 * periods_us[0];
    let others = (0..).map(|index| (index as f64 + 0.4) * periods_us[1]).take_while(|at| *at < end);
    due.extend(others);
    due.sort_unstable_by(f64::total_cmp);
    let mut free = 0.0;
    for at in due {
        free = queue.infer(model, f64::max(free, at) + 100.0 + 100.0 * random.exponential(), &mut random);
    }
    queue.arrivals()
}
