//! The statistics of a run: retired commands by kind, queue and process, and the lateness of completions.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::{Value, json};

use super::queue::Queue;
use crate::device::Time;

/// The 99th percentile of lateness beyond which a run is reported as invalid, microseconds.
pub const LATE_LIMIT_US: f64 = 200.0;

/// The numbers of retired commands, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    pub fn add(&mut self, kind: &'static str) {
        *self.0.entry(kind).or_insert(0) += 1;
    }

    fn merge(&mut self, other: &Self) {
        for (kind, n) in &other.0 {
            *self.0.entry(kind).or_insert(0) += n;
        }
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct ProcessStats {
    pub pid: i32,
    /// The name of its main thread.
    pub name: String,
    queues: Vec<Value>,
    #[serde(rename = "commands")]
    total: Counts,
}

impl ProcessStats {
    pub fn new(pid: i32, name: String) -> Self {
        Self { pid, name, ..Self::default() }
    }

    pub fn retire(&mut self, id: u32, gpu_id: u32, queue: &Queue) {
        self.total.merge(&queue.counts);
        self.queues.push(json!({
            "queue_id": id,
            "gpu_id": gpu_id,
            "type": queue.kind.name(),
            "commands": queue.counts,
        }));
    }
}

/// Counters of the whole run.
#[derive(Debug)]
pub struct Stats {
    pub processes: Vec<ProcessStats>,
    pub ioctls: BTreeMap<String, u64>,
    late: Histogram<u64>,
}

impl Default for Stats {
    fn default() -> Self {
        #[expect(
            clippy::expect_used,
            reason = "3 digits and a minute are in the range that the constructor takes"
        )]
        let late = Histogram::new_with_max(60_000_000_000, 3).expect("three significant digits are allowed");
        Self { processes: Vec::new(), ioctls: BTreeMap::new(), late }
    }
}

impl Stats {
    /// Records a completion that was due at `due` and became visible at `now`.
    pub fn completed(&mut self, due: Time, now: Time) {
        self.late.saturating_record(now.saturating_sub(due));
    }

    /// Returns the lateness at a quantile, microseconds.
    fn late_us(&self, quantile: f64) -> f64 {
        self.late.value_at_quantile(quantile) as f64 / 1000.0
    }

    pub fn report(&self, gpus: Vec<Value>, processes: &[ProcessStats], failed_ioctls: u64) -> Value {
        let mut total = Counts::default();
        for process in processes {
            total.merge(&process.total);
        }
        let p99 = self.late_us(0.99);
        json!({
            "gpus": gpus,
            "commands": total,
            "processes": processes,
            "ioctls": self.ioctls,
            "failed_ioctls": failed_ioctls,
            "late_us": { "p50": self.late_us(0.5), "p99": p99, "count": self.late.len() },
            "valid": p99 <= LATE_LIMIT_US,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_run_is_reported_as_invalid() {
        let mut stats = Stats::default();
        for _ in 0..980 {
            stats.completed(1000, 1000);
        }
        assert_eq!(stats.report(vec![], &[], 0)["valid"], true);
        for _ in 0..20 {
            stats.completed(0, 300_000);
        }
        let report = stats.report(vec![], &[], 0);
        assert_eq!(report["valid"], false);
        assert!(report["late_us"]["p99"].as_f64().unwrap() > 299.0);
    }
}
