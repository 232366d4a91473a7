//! The figures of `xbench preempt`, computed from its arrivals, their table and their limits.

use super::sample::{ALONE, Outcome, Sample, Setting};
use crate::card::{Card, SIMULATED};
use crate::report::{Limit, Report};
use crate::stats::{Samples, median};
use crate::table::{Column, Table, dash};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt::Write as _;

/// The library's budget of work in flight, and its launch-ahead before a predicted end (docs/adr/0009).
const BUDGET_US: f64 = 200.0;
const AHEAD_US: f64 = 50.0;
/// The time for a decision and its notification: the limit of the software share.
const DECIDING_US: f64 = 200.0;

/// Median and 99th percentile, microseconds; for several runs the medians of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Quantiles {
    /// Returns the quantiles of one run; `None` without samples.
    pub(super) fn of(samples: Vec<f64>) -> Option<Self> {
        let samples = Samples::new(samples)?;
        Some(Self { p50: samples.median(), p99: samples.percentile(99.0) })
    }

    fn median(runs: &[Self]) -> Option<Self> {
        Some(Self {
            p50: median(runs.iter().map(|run| run.p50))?,
            p99: median(runs.iter().map(|run| run.p99))?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    /// The requested preemption level of the low program.
    pub(crate) level: u8,
    /// The level in force, the lowest of all runs.
    pub(crate) in_force: i32,
    /// The eviction mechanism: `update-queue`, `debug-trap`, or `-` at level 1.
    pub(crate) mechanism: String,
    /// The length of the low program's kernels.
    pub(crate) kernel_us: u32,
    /// The cost of saving them on the simulated GPU, and of restoring them; `null` on a real one.
    pub(crate) save_us: Option<u32>,
    /// The time until the low program's queues had stopped.
    pub(crate) to_stopped_us: Quantiles,
    /// The time until the urgent kernel ran.
    pub(crate) to_started_us: Quantiles,
    /// The time until the urgent kernel ran without a low program, for launches as far apart; `null` if not
    /// measured.
    pub(crate) alone_us: Option<Quantiles>,
    /// The time until the last eviction request, of arrivals with an eviction that did not wait first; `null`
    /// without any.
    pub(crate) software_us: Option<Quantiles>,
    /// Arrivals, all runs together.
    pub(crate) samples: usize,
    /// Arrivals for which the low program's queues were evicted.
    pub(crate) held: usize,
    /// Arrivals for which waiting was expected to cost less.
    pub(crate) waited: usize,
    /// Arrivals among both: an eviction followed because waiting took longer than expected.
    pub(crate) waited_then_held: usize,
    /// 99th percentile of the simulated device's lateness, the largest of all runs; `null` on a real one.
    pub(crate) device_late_p99_us: Option<f64>,
    /// True if the simulated device kept up with its own time in all runs; otherwise the figures are not
    /// reliable.
    pub(crate) device_valid: bool,
    /// The server's explanation of the level.
    #[serde(skip)]
    how: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// `simulated GPU`, or the runtime's name of the GPU.
    pub(crate) device: String,
    /// The machine's own GPU; `null` if gpu-sim was started for the measurement.
    pub(crate) card: Option<Card>,
    /// Arrivals in each run of each setting.
    pub(crate) samples: u32,
    /// Runs of each setting.
    pub(crate) runs: u32,
    /// The rows, sorted by level, save cost and length of kernels.
    pub(crate) rows: Vec<Row>,
    /// The judgement of the rows.
    #[serde(flatten)]
    pub(crate) checks: Report,
}

impl Figures {
    pub(super) fn new(
        card: Option<Card>,
        samples: u32,
        runs: u32,
        outcomes: &[(Setting, Vec<Outcome>)],
    ) -> Result<Self> {
        let alone = |kernel_us: u32| {
            let (_, runs) = outcomes.iter().find(|(s, _)| s.level == ALONE && s.kernel_us == kernel_us)?;
            quantiles(runs, |sample| Some(sample.to_started_us))
        };
        let rows: Vec<Row> = outcomes
            .iter()
            .filter(|(setting, _)| setting.level != ALONE)
            .map(|(setting, runs)| {
                let row = row(*setting, runs).with_context(|| format!("{setting}: no arrivals"))?;
                Ok(Row { alone_us: alone(setting.kernel_us), ..row })
            })
            .collect::<Result<_>>()?;
        let checks = checks(&rows, &software(outcomes, runs as usize));
        let device = card.as_ref().map_or(SIMULATED, |card| &card.title).to_owned();
        Ok(Self { device, card, samples, runs, rows, checks })
    }

    /// Returns each requested level that was not in force, with the level in force and the reason.
    pub(super) fn not_in_force(&self) -> Vec<(u8, i32, &str)> {
        let mut missing: Vec<(u8, i32, &str)> = self
            .rows
            .iter()
            .filter(|row| row.in_force < i32::from(row.level))
            .map(|row| (row.level, row.in_force, row.how.as_str()))
            .collect();
        missing.dedup();
        missing
    }

    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{}, {} arrivals in each of {} runs; microseconds, p50 / p99\n\n",
            self.card.as_ref().map_or_else(|| self.device.clone(), Card::to_string),
            self.samples,
            self.runs
        );
        let both = |q: &Quantiles| format!("{:.0} / {:.0}", q.p50, q.p99);
        let late = |row: &Row, late| format!("{late:.0}{}", if row.device_valid { "" } else { "!" });
        let columns: [Column<'_, Row>; 13] = [
            ("level", &|row| row.level.to_string()),
            ("in force", &|row| row.in_force.to_string()),
            ("mechanism", &|row| row.mechanism.clone()),
            ("kernel", &|row| row.kernel_us.to_string()),
            ("save", &|row| row.save_us.map_or_else(dash, |save| save.to_string())),
            ("to stopped", &|row| both(&row.to_stopped_us)),
            ("to started", &|row| both(&row.to_started_us)),
            ("alone", &|row| row.alone_us.as_ref().map_or_else(dash, both)),
            ("software", &|row| row.software_us.as_ref().map_or_else(dash, both)),
            ("held", &|row| row.held.to_string()),
            ("waited", &|row| row.waited.to_string()),
            ("both", &|row| row.waited_then_held.to_string()),
            ("late", &|row| row.device_late_p99_us.map_or_else(dash, |us| late(row, us))),
        ];
        let table = Table::of(0, columns, &self.rows);
        let _ = write!(text, "{table}");
        if self.rows.iter().any(|row| !row.device_valid) {
            text.push_str("\n! the simulated GPU was late: the row is not reliable\n");
        }
        if !self.checks.figures().is_empty() {
            let _ = write!(text, "\n{}", self.checks);
        }
        text
    }
}

/// Returns the medians of the quantiles of all runs.
fn quantiles(runs: &[Outcome], of: fn(&Sample) -> Option<f64>) -> Option<Quantiles> {
    let each = runs.iter().map(|run| run.record.samples.iter().filter_map(of).collect());
    Quantiles::median(&each.filter_map(Quantiles::of).collect::<Vec<_>>())
}

fn row(setting: Setting, runs: &[Outcome]) -> Option<Row> {
    let count = |of: fn(&Sample) -> bool| {
        runs.iter().flat_map(|run| &run.record.samples).filter(|sample| of(sample)).count()
    };
    let devices = || runs.iter().filter_map(|run| run.device.as_ref());
    let least = runs.iter().map(|run| &run.record).min_by_key(|record| record.in_force)?;
    Some(Row {
        level: setting.level,
        in_force: least.in_force,
        mechanism: mechanism(least.in_force, &least.how).to_owned(),
        kernel_us: setting.kernel_us,
        save_us: setting.save_us,
        to_stopped_us: quantiles(runs, |sample| Some(sample.to_stopped_us))?,
        to_started_us: quantiles(runs, |sample| Some(sample.to_started_us))?,
        alone_us: None,
        software_us: quantiles(runs, |sample| sample.software_us),
        samples: count(|_| true),
        held: count(|sample| sample.held),
        waited: count(|sample| sample.waited),
        waited_then_held: count(|sample| sample.held && sample.waited),
        device_late_p99_us: devices().map(|device| device.late_us.p99).reduce(f64::max),
        device_valid: devices().all(|device| device.valid),
        how: least.how.clone(),
    })
}

fn mechanism(in_force: i32, how: &str) -> &str {
    let known = ["update-queue", "debug-trap"].into_iter().find(|name| how.contains(name));
    if in_force <= 1 { "-" } else { known.unwrap_or(how) }
}

/// Returns the medians of the software shares of all runs, over all settings of level 3.
fn software(outcomes: &[(Setting, Vec<Outcome>)], runs: usize) -> Option<Quantiles> {
    let of_run = |run: usize| {
        let outcomes =
            outcomes.iter().filter(|(setting, _)| setting.level == 3).filter_map(|(_, o)| o.get(run));
        Quantiles::of(outcomes.flat_map(|o| &o.record.samples).filter_map(|s| s.software_us).collect())
    };
    Quantiles::median(&(0..runs).filter_map(of_run).collect::<Vec<_>>())
}

/// Judges the levels. A figure whose settings were not measured is left out.
fn checks(rows: &[Row], software: &Option<Quantiles>) -> Report {
    let mut report = Report::default();
    let level = |level: u8| rows.iter().filter(move |row| row.level == level && row.in_force >= level.into());
    let bound = |row: &Row| f64::from(row.kernel_us).max(BUDGET_US) + AHEAD_US + DECIDING_US;
    let mut level_1 = |name: &'static str, what: &str, part: fn(&Row) -> f64| {
        if let Some(worst) = level(1).map(|row| part(row) / bound(row)).reduce(f64::max) {
            let what = format!(
                "level 1: p99 until {what}, over one kernel or 200 µs, plus 50 and 200 µs, worst setting"
            );
            report.judged(name, what, worst, "", Limit::at_most(1.1));
        }
    };
    level_1("level1_stopped", "stopped", |row| row.to_stopped_us.p99);
    level_1("level1_started", "started", |row| row.to_started_us.p99);
    length(&mut report, level(3).collect());
    if let Some(Quantiles { p50, p99 }) = *software {
        let [most_p50, most_p99] = [60.0, 200.0].map(Limit::at_most);
        report.judged("software_p50", "level 3: software share, p50", p50, "µs", most_p50);
        report.judged("software_p99", "level 3: software share, p99", p99, "µs", most_p99);
    }
    // Where saving takes longer than a whole kernel, waiting for its end is never worse.
    let hopeless = || level(3).filter(|row| row.save_us.is_some_and(|save| save >= row.kernel_us));
    if let Some(share) = hopeless().map(|row| row.held as f64 / row.samples as f64).reduce(f64::max) {
        report.judged(
            "held_in_vain",
            "level 3: arrivals with an eviction where saving takes longer than a kernel, worst setting",
            share * 100.0,
            "%",
            Limit::at_most(1.0),
        );
    }
    let beside = hopeless().filter_map(|row| {
        let alike = |other: &&Row| (other.save_us, other.kernel_us) == (row.save_us, row.kernel_us);
        Some(row.to_started_us.p99 / level(1).find(alike)?.to_started_us.p99)
    });
    if let Some(worst) = beside.reduce(f64::max) {
        report.info("level3_of_level1_p99", "  there: p99 until started, over that of level 1", worst, "");
    }
    report
}

/// Judges whether level 3 depends on the length of kernels: the longest over the shortest, at the smallest
/// save cost.
fn length(report: &mut Report, rows: Vec<&Row>) {
    let Some(save_us) = rows.iter().map(|row| row.save_us).min() else { return };
    let rows = || rows.iter().filter(|row| row.save_us == save_us);
    let (short, long) = (rows().min_by_key(|row| row.kernel_us), rows().max_by_key(|row| row.kernel_us));
    let (Some(short), Some(long)) = (short, long) else { return };
    if short.kernel_us == long.kernel_us {
        return;
    }
    let words = |percent: &str| {
        format!(
            "level 3: {percent} until started, kernels of {} µs over kernels of {} µs",
            long.kernel_us, short.kernel_us
        )
    };
    if let (Some(short), Some(long)) = (short.alone_us, long.alone_us) {
        let words = "  the urgent program alone: p50, launches as far apart";
        report.info("alone_length_p50", words, long.p50 / short.p50, "");
    }
    let (short, long) = (short.to_started_us, long.to_started_us);
    let limit = Limit::at_most(1.5);
    report.judged("level3_length_p50", words("p50"), long.p50 / short.p50, "", limit);
    report.judged("level3_length_p99", words("p99"), long.p99 / short.p99, "", limit);
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::sample::Record;
    use super::*;
    use crate::report::Figure;

    fn sample(started: f64, software: Option<f64>) -> Sample {
        Sample {
            to_started_us: started,
            to_stopped_us: started - 10.0,
            software_us: software,
            held: software.is_some(),
            waited: software.is_none(),
        }
    }

    fn outcome(in_force: i32, how: &str, samples: &[Sample]) -> Outcome {
        let record = Record { in_force, how: how.to_owned(), samples: samples.to_vec() };
        Outcome { record, device: Some(crate::simulated::tests::stats(true, 30.0)) }
    }

    /// Levels 1 and 3, kernels of 100 µs and of 10 ms, save costs of 50 µs and 5 ms.
    pub(crate) fn rows() -> Vec<(Setting, Vec<Outcome>)> {
        let mut rows = Vec::new();
        for level in [1, 3] {
            for (save, kernel) in [(50, 100), (50, 10_000), (5000, 100), (5000, 10_000)] {
                let setting = Setting { level, save_us: Some(save), kernel_us: kernel };
                let waits = sample(f64::from(kernel), None);
                let held = sample(150.0 + f64::from(kernel) / 200.0, Some(40.0));
                let outcome = match (level, save) {
                    (1, _) => outcome(1, "", &[waits; 2]),
                    (_, 50) => outcome(3, "update-queue", &[held; 2]),
                    _ => outcome(3, "update-queue", &[waits; 2]),
                };
                rows.push((setting, vec![outcome]));
            }
        }
        for (kernel_us, us) in [(100, 40.0), (10_000, 120.0)] {
            let setting = Setting { level: ALONE, save_us: Some(50), kernel_us };
            rows.push((setting, vec![outcome(0, "", &[sample(us, None); 2])]));
        }
        rows
    }

    pub(crate) fn figures() -> Figures {
        Figures::new(None, 2, 1, &rows()).unwrap()
    }

    fn check<'a>(figures: &'a Figures, name: &str) -> Option<&'a Figure> {
        figures.checks.figures().iter().find(|figure| figure.name == name)
    }

    #[test]
    fn json_has_the_documented_names() {
        let json = serde_json::to_value(figures()).unwrap();
        let rows = json["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 8);
        assert_eq!((&rows[0]["mechanism"], &rows[0]["software_us"]), (&"-".into(), &serde_json::Value::Null));
        assert_eq!((&rows[0]["alone_us"]["p50"], &rows[7]["alone_us"]["p99"]), (&40.0.into(), &120.0.into()));
        let held = &rows[5];
        assert_eq!(
            (&held["level"], &held["in_force"], &held["kernel_us"]),
            (&3.into(), &3.into(), &10_000.into())
        );
        assert_eq!((&held["mechanism"], &held["save_us"]), (&"update-queue".into(), &50.into()));
        assert_eq!((&held["held"], &held["waited"]), (&2.into(), &0.into()));
        for name in ["to_stopped_us", "to_started_us", "software_us"] {
            assert!(held[name]["p50"].is_number() && held[name]["p99"].is_number(), "{name}");
        }
        assert!(json["figures"].is_array());
    }

    #[test]
    fn real_gpu_has_its_own_name() {
        let card = crate::card::tests::card();
        let real = Figures::new(Some(card.clone()), 2, 1, &rows()).unwrap();
        assert_eq!((&real.device, figures().device.as_str()), (&card.title, SIMULATED));
        let (json, table) = (serde_json::to_value(&real).unwrap(), real.table());
        assert_eq!(json["card"]["driver"], card.driver.as_str());
        assert!(table.starts_with(&format!("{card}, 2 arrivals")), "{table}");
    }

    #[test]
    fn limits_have_their_values() {
        let figures = figures();
        let value = |name| check(&figures, name).unwrap().value;
        assert!((value("level1_stopped") - 9990.0 / 10_250.0).abs() < 1e-9);
        assert!((value("level1_started") - 10_000.0 / 10_250.0).abs() < 1e-9);
        assert!((value("alone_length_p50") - 3.0).abs() < 1e-9);
        assert!((value("level3_length_p50") - 200.0 / 150.5).abs() < 1e-9);
        assert_eq!((value("software_p50"), value("software_p99")), (40.0, 40.0));
        assert_eq!((value("held_in_vain"), value("level3_of_level1_p99")), (0.0, 1.0));
        assert!(figures.checks.is_met());
    }

    #[test]
    fn missed_limits_are_named() {
        let mut rows = rows();
        for (setting, runs) in rows.iter_mut().filter(|(setting, _)| setting.level == 3) {
            let far = if setting.kernel_us > 100 { 400.0 } else { 150.0 };
            runs[0] = outcome(3, "update-queue", &[sample(far, Some(90.0)); 2]);
        }
        let figures = Figures::new(None, 2, 1, &rows).unwrap();
        let missed: Vec<&str> = figures.checks.missed().map(|figure| figure.name).collect();
        assert_eq!(missed, ["level3_length_p50", "level3_length_p99", "software_p50", "held_in_vain"]);
    }

    #[test]
    fn level_that_is_not_in_force_is_not_judged() {
        let mut rows = rows();
        for (_, runs) in rows.iter_mut().filter(|(setting, _)| setting.level == 3) {
            runs[0] = outcome(1, "not measured", &[sample(150.0, None); 2]);
        }
        let figures = Figures::new(None, 2, 1, &rows).unwrap();
        assert_eq!(figures.not_in_force(), [(3, 1, "not measured")]);
        assert!(check(&figures, "level3_length_p50").is_none());
        assert!(check(&figures, "held_in_vain").is_none());
        assert!(self::figures().not_in_force().is_empty());
        let line = figures.table().lines().nth(7).unwrap().to_owned();
        assert_eq!(line.split_whitespace().take(3).collect::<Vec<_>>(), ["3", "1", "-"], "{line}");
    }

    #[test]
    fn percentiles_are_medians_of_runs() {
        let setting = Setting { level: 3, save_us: Some(50), kernel_us: 100 };
        let run = |us: f64| outcome(3, "debug-trap (chosen)", &[sample(us, Some(us / 2.0)); 3]);
        let row = row(setting, &[run(100.0), run(900.0), run(200.0)]).unwrap();
        assert_eq!(row.to_started_us, Quantiles { p50: 200.0, p99: 200.0 });
        assert_eq!((row.samples, row.held, row.mechanism.as_str()), (9, 9, "debug-trap"));
        let software = software(&[(setting, vec![run(100.0), run(900.0), run(200.0)])], 3).unwrap();
        assert_eq!(software, Quantiles { p50: 100.0, p99: 100.0 });
    }
}
