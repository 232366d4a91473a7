//! The figures of `xbench launch-path` and their limits, as JSON and as a table.

use super::Figures;
use super::setup::{Measured, Pair, PerCall};
use crate::compare::median_difference;
use crate::report::{Limit, Report};
use crate::stats::Samples;
use anyhow::{Context, Result};
use serde::Serialize;

/// The limits, in nanoseconds and as a ratio.
const DIRECT_ADDED_NS: f64 = 60.0;
const CONTENDED_ADDED_NS: f64 = 150.0;
const DEFERRED_ADDED_NS: f64 = 400.0;
const DEFERRED_CPU_NS: f64 = 1500.0;
const LAUNCH_SYNC_ADDED_NS: f64 = 500.0;
const REAL_RATIO: f64 = 1.15;

/// All figures. One that was not measured is null.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    command: &'static str,
    met: bool,
    /// True if the workers were connected to a server.
    connected: bool,
    /// Added to a launch by the library without queues.
    forward_added_ns: f64,
    /// The same for a launch and the synchronization after it.
    forward_launch_sync_added_ns: f64,
    /// Added to a direct launch.
    direct_added_ns: f64,
    /// Added to a launch while an urgent rival is connected.
    contended_added_ns: f64,
    /// Added to a launch that is deferred.
    deferred_added_ns: f64,
    /// Processor time that is added to a deferred launch, over all threads.
    deferred_cpu_ns: f64,
    /// Added to a launch and the synchronization after it.
    launch_sync_added_ns: f64,
    /// The time of a launch with the library over that without it, on the machine's own HIP.
    real_ratio: Option<f64>,
    /// The calls with the library on the null runtime, all of which the library has counted.
    calls_counted: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    real_calls_counted: Option<u64>,
    #[serde(flatten)]
    report: Report,
}

/// One of the two times of a call.
type Time = fn(&PerCall) -> f64;
const WALL: Time = |per_call| per_call.wall;
const CPU: Time = |per_call| per_call.cpu;

impl Pair {
    fn of(&self, time: Time) -> [Vec<f64>; 2] {
        [&self.native, &self.shimmed].map(|rounds| rounds.iter().map(time).collect())
    }

    /// Returns both medians, and the median of the differences.
    fn added(&self, time: Time) -> Result<[f64; 3]> {
        let [native, shimmed] = self.of(time);
        let added = median_difference(&shimmed, &native);
        let median = |values: Vec<f64>| Some(Samples::new(values)?.median());
        let all = (|| Some([median(native)?, median(shimmed)?, added?]))();
        all.context("no rounds were measured")
    }

    /// Returns the median over rounds of the time with the library over that of the adjacent round without
    /// it. The ratio of the medians would be wrong where the machine is slow now and then, with and without
    /// the library.
    fn ratio(&self) -> Result<f64> {
        let [native, shimmed] = self.of(WALL);
        let ratios = shimmed.iter().zip(&native).map(|(shimmed, native)| shimmed / native);
        Ok(Samples::new(ratios.collect()).context("no rounds were measured")?.median())
    }
}

/// The names of a difference and of its two medians.
struct Row {
    what: &'static str,
    native: &'static str,
    shimmed: &'static str,
    added: &'static str,
    limit: Option<f64>,
}

/// Adds the rows of one pair, and returns the time that the library adds.
fn push(report: &mut Report, measured: &Measured, index: usize, time: Time, row: &Row) -> Result<f64> {
    let [native, shimmed, added] = measured.pairs[index].added(time)?;
    let Row { what, limit, .. } = row;
    report.info(row.native, *what, native, "ns");
    report.info(row.shimmed, format!("{what} with the library"), shimmed, "ns");
    let text = "  added";
    report.push(row.added, text, added, "ns", limit.map(Limit::at_most));
    Ok(added)
}

macro_rules! row {
    ($what:expr, $prefix:literal, $limit:expr) => {
        Row {
            what: $what,
            native: concat!($prefix, "_native_ns"),
            shimmed: concat!($prefix, "_shim_ns"),
            added: concat!($prefix, "_added_ns"),
            limit: $limit,
        }
    };
}

impl Outcome {
    pub(super) fn new(figures: &Figures, connected: bool) -> Result<Self> {
        let mut report = Report::default();
        let r = &mut report;
        let Figures { forward, direct, contended, batches, deferred, real } = figures;
        let forward_added_ns = push(r, forward, 0, WALL, &row!("launch, no queues", "forward", None))?;
        let sync = row!("launch + synchronize, no queues", "forward_launch_sync", None);
        let forward_launch_sync_added_ns = push(r, forward, 1, WALL, &sync)?;
        let limit = Some(DIRECT_ADDED_NS);
        let direct_added_ns = push(r, direct, 0, WALL, &row!("launch, no rival", "direct", limit))?;
        push(r, direct, 2, WALL, &row!("launch, no rival, own stream", "direct_own", None))?;
        let limit = Some(CONTENDED_ADDED_NS);
        let contended_added_ns = push(r, contended, 0, WALL, &row!("launch, rival", "contended", limit))?;
        push(r, contended, 1, WALL, &row!("launch, rival, own stream", "contended_own", None))?;
        push(r, batches, 0, WALL, &row!("launch, rival, batches of 8", "contended_batch", None))?;
        let limit = Some(DEFERRED_ADDED_NS);
        let deferred_added_ns = push(r, deferred, 0, WALL, &row!("launch, deferred", "deferred", limit))?;
        push(r, deferred, 1, WALL, &row!("launch, deferred, own stream", "deferred_own", None))?;
        let cpu = Row {
            what: "launch, deferred: all threads",
            native: "deferred_cpu_native_ns",
            shimmed: "deferred_cpu_shim_ns",
            added: "deferred_cpu_ns",
            limit: Some(DEFERRED_CPU_NS),
        };
        let deferred_cpu_ns = push(r, deferred, 0, CPU, &cpu)?;
        let sync = row!("launch + synchronize, no rival", "launch_sync", Some(LAUNCH_SYNC_ADDED_NS));
        let launch_sync_added_ns = push(r, direct, 1, WALL, &sync)?;
        let sync = row!("launch + synchronize, no rival, own stream", "launch_sync_own", None);
        push(r, direct, 3, WALL, &sync)?;
        let real_ratio = real.as_ref().map(|real| Self::judge_real(real, &mut report)).transpose()?;
        Ok(Self {
            command: "launch-path",
            met: report.is_met(),
            connected,
            forward_added_ns,
            forward_launch_sync_added_ns,
            direct_added_ns,
            contended_added_ns,
            deferred_added_ns,
            deferred_cpu_ns,
            launch_sync_added_ns,
            real_ratio,
            calls_counted: figures.counted(),
            real_calls_counted: real.as_ref().map(|real| real.counted),
            report,
        })
    }

    fn judge_real(real: &Measured, report: &mut Report) -> Result<f64> {
        push(report, real, 0, WALL, &row!("launch, stock HIP", "real", None))?;
        let ratio = real.pairs[0].ratio()?;
        let limit = Limit::at_most(REAL_RATIO);
        report.judged("real_ratio", "  with over without", ratio, "", limit);
        let sync = row!("launch + synchronize, stock HIP", "real_launch_sync", None);
        push(report, real, 1, WALL, &sync)?;
        Ok(ratio)
    }

    /// Returns the number of missed limits.
    pub(super) fn missed(&self) -> usize {
        self.report.missed().count()
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "Time that the library adds to a call, on a runtime whose functions do nothing; medians over alternating rounds\n\n{}\n\
             The library has counted all {} calls made with it.\n",
            self.report, self.calls_counted
        );
        if !self.connected {
            text.push_str(
                "No process was connected to a server: the figures with queues are those of one process.\n",
            );
        }
        if let Some(counted) = self.real_calls_counted {
            text.push_str(&format!("On stock HIP it has counted all {counted} calls.\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(native: f64, shimmed: f64) -> Measured {
        let per_call = |wall: f64| PerCall { wall, cpu: 2.0 * wall };
        let pair = |scale: f64| Pair {
            native: vec![per_call(native * scale); 3],
            shimmed: [shimmed * scale, shimmed * scale, 1e6].map(per_call).into(),
        };
        Measured { pairs: vec![pair(1.0), pair(2.0), pair(1.0), pair(2.0)], counted: 7 }
    }

    fn figures(direct: f64, real: Option<Measured>) -> Figures {
        let [forward, contended, batches, deferred] =
            [10.0, 100.0, 120.0, 300.0].map(|time| measured(2.0, time));
        Figures { forward, direct: measured(2.0, direct), contended, batches, deferred, real }
    }

    #[test]
    fn json_has_every_figure_by_its_name() {
        let outcome = Outcome::new(&figures(52.0, None), true).unwrap();
        let json = serde_json::to_value(&outcome).unwrap();
        for (name, value) in [
            ("forward_added_ns", 8.0),
            ("forward_launch_sync_added_ns", 16.0),
            ("direct_added_ns", 50.0),
            ("contended_added_ns", 98.0),
            ("deferred_added_ns", 298.0),
            ("deferred_cpu_ns", 596.0),
            ("launch_sync_added_ns", 100.0),
        ] {
            assert_eq!(json[name], value, "{name}");
        }
        assert_eq!(json["calls_counted"], 35);
        assert!(json.as_object().unwrap().contains_key("real_ratio") && json["real_ratio"].is_null());
        assert_eq!((&json["met"], &json["connected"]), (&true.into(), &true.into()));
        let names: Vec<_> =
            json["figures"].as_array().unwrap().iter().map(|figure| &figure["name"]).collect();
        let mut once = names.clone();
        once.sort_by_key(|name| name.as_str());
        once.dedup();
        assert_eq!(once.len(), names.len(), "{names:?}");
    }

    #[test]
    fn missed_limits_are_named() {
        let outcome = Outcome::new(&figures(63.0, Some(measured(1000.0, 1151.0))), false).unwrap();
        let missed: Vec<_> = outcome.report.missed().map(|figure| figure.name).collect();
        assert_eq!(missed, ["direct_added_ns", "real_ratio"]);
        assert_eq!(outcome.real_ratio, Some(1.151));
        let table = outcome.table();
        assert!(table.contains("MISSED") && table.contains("No process was connected"), "{table}");
    }
}
