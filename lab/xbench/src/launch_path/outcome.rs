//! The figures of `xbench launch-path` and their limits, as JSON and as a table.

use super::setup::{Measured, Pair, PerCall};
use super::{Figures, Real};
use crate::card::Card;
use crate::compare::{balanced_median, median_difference};
use crate::report::{Limit, Report};
use crate::stats::Samples;
use anyhow::{Context, Result};
use serde::{Serialize, Serializer};

/// The limits, in nanoseconds and as a ratio.
const DIRECT_ADDED_NS: f64 = 60.0;
const CONTENDED_ADDED_NS: f64 = 150.0;
const SHORT_ROUNDS_ADDED_NS: f64 = 80.0;
const DEFERRED_ADDED_NS: f64 = 400.0;
const DEFERRED_CPU_NS: f64 = 1500.0;
const LAUNCH_SYNC_ADDED_NS: f64 = 500.0;
/// The most time that recording may add to a launch, in nanoseconds.
const TRACED_MORE_NS: f64 = 50.0;
const REAL_RATIO: f64 = 1.15;
/// The longest time of kernels in a row over that without the library: without a rival, and with an idle one.
const IN_A_ROW_RATIO: f64 = 1.01;
const CONTENDED_IN_A_ROW_RATIO: f64 = 1.03;

/// The figures that stand at the top of the JSON object as well.
const HEADLINE: [&str; 10] = [
    "forward_added_ns",
    "forward_launch_sync_added_ns",
    "direct_added_ns",
    "contended_added_ns",
    "contended_short_added_ns",
    "deferred_added_ns",
    "deferred_cpu_ns",
    "launch_sync_added_ns",
    "traced_more_ns",
    "real_ratio",
];

#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    command: &'static str,
    met: bool,
    /// True if the workers were connected to a server.
    connected: bool,
    /// Names and values; one that was not measured is null.
    #[serde(flatten, serialize_with = "as_map")]
    headline: [(&'static str, Option<f64>); HEADLINE.len()],
    /// The calls with the library on the null runtime, all of which the library has counted.
    calls_counted: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    real_calls_counted: Option<u64>,
    /// The machine's own GPU; `null` without `--real`.
    card: Option<Card>,
    #[serde(flatten)]
    report: Report,
}

fn as_map<S: Serializer>(pairs: &[(&str, Option<f64>)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().copied())
}

/// One of the two times of a call.
type Time = fn(&PerCall) -> f64;
const WALL: Time = |per_call| per_call.wall;
const CPU: Time = |per_call| per_call.cpu;

impl Pair {
    fn of(&self, time: Time) -> [Vec<f64>; 2] {
        [&self.native, &self.shimmed].map(|rounds| rounds.iter().map(time).collect())
    }

    /// Returns both medians, and the balanced median of the differences.
    fn added(&self, time: Time) -> Result<[f64; 3]> {
        let [native, shimmed] = self.of(time);
        let added = median_difference(&shimmed, &native);
        let median = |values: Vec<f64>| Some(Samples::new(values)?.median());
        let all = (|| Some([median(native)?, median(shimmed)?, added?]))();
        all.context("no rounds were measured")
    }

    /// Returns the balanced median over rounds of the time with the library over that of the adjacent round without
    /// it. The ratio of the medians would be wrong where the machine is slow now and then, with and without
    /// the library.
    fn ratio(&self) -> Result<f64> {
        let [native, shimmed] = self.of(WALL);
        let ratios = shimmed.iter().zip(&native).map(|(shimmed, native)| shimmed / native);
        balanced_median(ratios).context("no rounds were measured")
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

fn push(report: &mut Report, measured: &Measured, index: usize, time: Time, row: Row) -> Result<()> {
    let [native, shimmed, added] = measured.pairs[index].added(time)?;
    report.info(row.native, row.what, native, "ns");
    report.info(row.shimmed, format!("{} with the library", row.what), shimmed, "ns");
    report.push(row.added, "  added", added, "ns", row.limit.map(Limit::at_most));
    Ok(())
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
    pub(super) fn new(figures: &Figures, card: Option<Card>, connected: bool) -> Result<Self> {
        let Figures { forward, direct, contended, batches, deferred, traced, real } = figures;
        let cpu = Row {
            what: "launch, deferred: all threads",
            native: "deferred_cpu_native_ns",
            shimmed: "deferred_cpu_shim_ns",
            added: "deferred_cpu_ns",
            limit: Some(DEFERRED_CPU_NS),
        };
        let batch_short = "launch, rival, batches of 8, rounds of 100";
        let (own, sync) = ("launch + synchronize, no rival, own stream", Some(LAUNCH_SYNC_ADDED_NS));
        let short = Some(SHORT_ROUNDS_ADDED_NS);
        let rows = [
            (forward, 0, WALL, row!("launch, no queues", "forward", None)),
            (forward, 1, WALL, row!("launch + synchronize, no queues", "forward_launch_sync", None)),
            (direct, 0, WALL, row!("launch, no rival", "direct", Some(DIRECT_ADDED_NS))),
            (direct, 2, WALL, row!("launch, no rival, own stream", "direct_own", None)),
            (direct, 4, WALL, row!("launch, no rival, rounds of 100", "direct_short", short)),
            (contended, 0, WALL, row!("launch, rival", "contended", Some(CONTENDED_ADDED_NS))),
            (contended, 1, WALL, row!("launch, rival, own stream", "contended_own", None)),
            (contended, 3, WALL, row!("launch, rival, rounds of 100", "contended_short", short)),
            (batches, 0, WALL, row!("launch, rival, batches of 8", "contended_batch", None)),
            (batches, 1, WALL, row!(batch_short, "contended_batch_short", None)),
            (deferred, 0, WALL, row!("launch, deferred", "deferred", Some(DEFERRED_ADDED_NS))),
            (deferred, 1, WALL, row!("launch, deferred, own stream", "deferred_own", None)),
            (deferred, 0, CPU, cpu),
            (direct, 1, WALL, row!("launch + synchronize, no rival", "launch_sync", sync)),
            (direct, 3, WALL, row!(own, "launch_sync_own", None)),
            (contended, 2, WALL, row!("launch + synchronize, rival", "contended_sync", None)),
        ];
        let mut report = Report::default();
        for (measured, index, time, row) in rows {
            push(&mut report, measured, index, time, row)?;
        }
        if let Some(traced) = traced {
            push(&mut report, traced, 0, WALL, row!("launch, no rival, recorded", "traced", None))?;
            let [[.., recorded], [.., plain]] = [traced.pairs[0].added(WALL)?, direct.pairs[0].added(WALL)?];
            let limit = Limit::at_most(TRACED_MORE_NS);
            report.judged("traced_more_ns", "  more than without", recorded - plain, "ns", limit);
        }
        if let Some(Real { direct: real, contended }) = real {
            push(&mut report, real, 0, WALL, row!("launch, stock HIP", "real", None))?;
            let (ratio, limit) = (real.pairs[0].ratio()?, Limit::at_most(REAL_RATIO));
            report.judged("real_ratio", "  with over without", ratio, "", limit);
            let sync = row!("launch + synchronize, stock HIP", "real_launch_sync", None);
            push(&mut report, real, 1, WALL, sync)?;
            let sync = row!("launch + synchronize, rival, stock HIP", "real_contended_sync", None);
            push(&mut report, contended, 0, WALL, sync)?;
            let in_a_row = row!("kernel of 10 µs in a row, stock HIP", "real_in_a_row", None);
            push(&mut report, real, 2, WALL, in_a_row)?;
            let (ratio, limit) = (real.pairs[2].ratio()?, Limit::at_most(IN_A_ROW_RATIO));
            report.judged("real_in_a_row_ratio", "  with over without", ratio, "", limit);
            let in_a_row =
                row!("kernel of 10 µs in a row, rival, stock HIP", "real_contended_in_a_row", None);
            push(&mut report, contended, 1, WALL, in_a_row)?;
            let (ratio, limit) = (contended.pairs[1].ratio()?, Limit::at_most(CONTENDED_IN_A_ROW_RATIO));
            report.judged("real_contended_in_a_row_ratio", "  with over without", ratio, "", limit);
        }
        let value = |name| report.figures().iter().find(|figure| figure.name == name);
        Ok(Self {
            command: "launch-path",
            met: report.is_met(),
            connected,
            headline: HEADLINE.map(|name| (name, value(name).map(|figure| figure.value))),
            calls_counted: [forward, direct, contended, batches, deferred]
                .into_iter()
                .chain(traced)
                .map(|of| of.counted)
                .sum(),
            card,
            real_calls_counted: real.as_ref().map(|real| real.direct.counted + real.contended.counted),
            report,
        })
    }

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
        if let Some(card) = &self.card {
            text.push_str(&format!("Stock HIP: {card}\n"));
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
        Measured { pairs: [1.0, 2.0, 1.0, 0.5, 1.0].map(pair).into(), counted: 7 }
    }

    fn real(shimmed: f64) -> Option<Real> {
        Some(Real { direct: measured(1000.0, shimmed), contended: measured(1000.0, 1020.0) })
    }

    fn figures(direct: f64, real: Option<Real>) -> Figures {
        let [forward, contended, batches, deferred] =
            [10.0, 100.0, 120.0, 300.0].map(|time| measured(2.0, time));
        let traced = Some(measured(2.0, direct + 30.0));
        Figures { forward, direct: measured(2.0, direct), contended, batches, deferred, traced, real }
    }

    #[test]
    fn json_has_every_figure_by_its_name() {
        let outcome = Outcome::new(&figures(52.0, None), None, true).unwrap();
        let json = serde_json::to_value(&outcome).unwrap();
        for (name, value) in [
            ("forward_added_ns", 8.0),
            ("forward_launch_sync_added_ns", 16.0),
            ("direct_added_ns", 50.0),
            ("contended_added_ns", 98.0),
            ("contended_short_added_ns", 49.0),
            ("deferred_added_ns", 298.0),
            ("deferred_cpu_ns", 596.0),
            ("launch_sync_added_ns", 100.0),
            ("traced_more_ns", 30.0),
        ] {
            assert_eq!(json[name], value, "{name}");
        }
        assert_eq!(json["calls_counted"], 42);
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
        let outcome =
            Outcome::new(&figures(63.0, real(1151.0)), Some(crate::card::tests::card()), false).unwrap();
        let missed: Vec<_> = outcome.report.missed().map(|figure| figure.name).collect();
        assert_eq!(missed, ["direct_added_ns", "real_ratio", "real_in_a_row_ratio"]);
        assert_eq!(serde_json::to_value(&outcome).unwrap()["real_ratio"], 1.151);
        let table = outcome.table();
        assert!(table.contains("Stock HIP: Card (gfx90a), 104 compute units"), "{table}");
        assert!(table.contains("MISSED") && table.contains("No process was connected"), "{table}");
    }
}
