//! The figures of a co-run, computed from the runs of all modes and blocks, and their table.

use super::levels::{self, Base, Level};
use crate::account::Accounts;
use crate::compare::spread;
use crate::experiment::{Mode, Outcome, ProcessorCost};
use crate::replay::Record;
use crate::report::Report;
use crate::simulated::Measured;
use crate::stats::{Samples, mean, median};
use crate::table::Table;
use crate::traffic::Traffic;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt::Write as _;

/// The index of the urgent program.
pub(super) const HIGH: usize = 0;
/// The index of the batch program.
pub(super) const LOW: usize = 1;

/// The figures of one mode in which the urgent model runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ModeFigures {
    /// Median latency, milliseconds; the median of the blocks, as the other two percentiles.
    pub(crate) p50_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p99_ms: f64,
    /// Largest p99 of a block over the smallest.
    pub(crate) spread: f64,
    /// Requests served, all blocks together.
    pub(crate) high_n: usize,
    /// Requests served a second; mean of the blocks.
    pub(crate) high_per_s: f64,
    /// Inferences of the batch model a second; mean of the blocks. 0 where it does not run.
    pub(crate) low_per_s: f64,
    /// Suspensions of queues by the library, both programs, all blocks together. 0 where it is not loaded.
    pub(crate) suspensions: u64,
    /// The processor time of giveway.
    pub(crate) processor: ProcessorCost,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Setting {
    /// Urgent model and its rate, such as `bert bs8@10`.
    pub(crate) high: String,
    /// Batch model.
    pub(crate) low: String,
    /// Factor on recorded times.
    pub(crate) scale: f64,
    /// The memory traffic of both models' kernels.
    pub(crate) traffic: Traffic,
    /// The policy of the server with its parameters.
    pub(crate) policy: String,
    /// Most commands in flight; `null` if the library chooses.
    pub(crate) threshold: Option<u32>,
    /// Commands between two synchronization points; `null` if the library chooses.
    pub(crate) batch: Option<u32>,
    /// The requested mechanism that evicts the batch model's queues; `auto` if the library chooses.
    pub(crate) mechanism: String,
    /// Runs of each mode.
    pub(crate) blocks: usize,
    /// Seconds in which requests arrive, each block.
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    #[serde(flatten)]
    pub(crate) setting: Setting,
    /// In all modes the same.
    #[serde(flatten)]
    pub(crate) gpu: Measured,
    /// The urgent model alone.
    pub(crate) alone: ModeFigures,
    /// Both without the library.
    pub(crate) native: ModeFigures,
    /// Both with the library under `xserver`, at the first of `levels`.
    pub(crate) shim: ModeFigures,
    /// The figures of each preemption level of the batch model.
    pub(crate) levels: Vec<Level>,
    /// Inferences of the batch model a second, alone; mean of the blocks.
    pub(crate) low_alone_per_s: f64,
    /// Requests that arrived a second.
    pub(crate) arrivals_per_s: f64,
    /// Share of time for which the urgent model needs the device: realised rate times summed scaled
    /// durations.
    pub(crate) high_busy_share: f64,
    /// Largest p99 of the simulated device's lateness in any block, microseconds; `null` on a real one.
    pub(crate) device_late_p99_us: Option<f64>,
    /// True if the simulated device kept up with its own time in all blocks, or a real one had no other work after any run;
    /// otherwise the figures are not reliable.
    pub(crate) device_valid: bool,
    /// The judgement of the levels.
    #[serde(flatten)]
    pub(crate) checks: Report,
    /// The account of the device's time; `null` without the option.
    pub(crate) account: Option<Accounts>,
}

/// The outcomes of all blocks, by mode.
pub(super) type Blocks = Vec<(Mode, Vec<Outcome>)>;

/// Returns the name of a mode for people.
fn name(mode: &Mode) -> String {
    match mode {
        Mode::Alone(HIGH) => "urgent model alone".to_owned(),
        Mode::Alone(_) => "batch model alone".to_owned(),
        Mode::Native => "both, without giveway".to_owned(),
        Mode::Equal(level) | Mode::Policy(_, level) => format!("with giveway at level {level}"),
    }
}

impl Figures {
    /// Computes the figures. `device_us` is the device time of one request of the urgent model, scaled.
    pub(super) fn new(setting: Setting, gpu: Measured, blocks: &Blocks, device_us: f64) -> Result<Self> {
        let outcomes =
            |mode: Mode| blocks.iter().find(|(of, _)| *of == mode).map_or(&[][..], |(_, outcomes)| outcomes);
        let [alone, native, low_alone] = [Mode::Alone(HIGH), Mode::Native, Mode::Alone(LOW)].map(outcomes);
        let arrivals = |record: &Record| record.requests.len() as f64 / record.seconds;
        let arrivals_per_s = mean(records(alone, HIGH).map(arrivals)).context("no requests")?;
        let low_alone_per_s = low_per_s(low_alone).context("no inferences")?;
        let alone = mode_figures(alone)?;
        let high_busy_share = arrivals_per_s * device_us / 1e6;
        let free_per_s = low_alone_per_s * (1.0 - high_busy_share);
        let native = mode_figures(native)?;
        let base =
            Base { alone: &alone, native: &native, high_s: device_us / 1e6, low_alone_per_s, free_per_s };
        let mut levels = Vec::new();
        for (mode, outcomes) in blocks {
            let Some(level) = mode.level() else { continue };
            let suspended: Vec<_> =
                outcomes.iter().filter_map(|outcome| outcome.suspended.get(LOW)?.as_ref()).collect();
            levels.push(Level::new(level, &suspended, mode_figures(outcomes)?, base));
        }
        let all = || blocks.iter().flat_map(|(_, outcomes)| outcomes);
        Ok(Self {
            gpu,
            alone,
            native,
            shim: levels.first().context("no levels")?.figures.clone(),
            low_alone_per_s,
            arrivals_per_s,
            high_busy_share,
            device_late_p99_us: all().filter_map(|outcome| outcome.late_us).reduce(f64::max),
            device_valid: all().all(|outcome| !outcome.late),
            checks: levels::checks(&levels),
            levels,
            setting,
            account: None,
        })
    }

    /// Returns the inferences of the batch model that fit beside the urgent one, a second.
    pub(super) fn free_per_s(&self) -> f64 {
        self.low_alone_per_s * (1.0 - self.high_busy_share)
    }

    /// Returns the name and the figures of each mode in which the urgent model runs, and the level's row.
    pub(super) fn with_high(&self) -> Vec<(String, &ModeFigures, Option<&Level>)> {
        let alone = (name(&Mode::Alone(HIGH)), &self.alone, None);
        let native = (name(&Mode::Native), &self.native, None);
        let levels = self.levels.iter().map(|row| (name(&Mode::Equal(row.level)), &row.figures, Some(row)));
        [alone, native].into_iter().chain(levels).collect()
    }

    /// Returns the reasons why requested levels were not used.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        self.levels.iter().filter_map(|row| row.missing.as_deref())
    }

    pub(super) fn table(&self) -> String {
        let Setting { high, low, scale, policy, traffic, .. } = &self.setting;
        let mut text = format!(
            "{} a second beside {low} back to back, times x {scale}{}; {}, policy {policy}\n\n",
            high.replace('@', ", "),
            traffic.words(),
            self.gpu,
        );
        let header =
            ["milliseconds", "p50", "p90", "p99", "spread", "requests", "high/s", "low/s", "suspensions"];
        let mut table = Table::new(1, header);
        let modes = self.with_high();
        for (name, figures, _) in &modes {
            let numbers = [figures.p50_ms, figures.p90_ms, figures.p99_ms, figures.spread];
            let [p50, p90, p99, spread] = numbers.map(|value| format!("{value:.2}"));
            let [high, low] = [figures.high_per_s, figures.low_per_s].map(|rate| format!("{rate:.2}"));
            let (requests, suspensions) = (figures.high_n.to_string(), figures.suspensions.to_string());
            table.push([name.clone(), p50, p90, p99, spread, requests, high, low, suspensions]);
        }
        let mut alone = std::array::from_fn(|_| String::new());
        (alone[0], alone[7]) = (name(&Mode::Alone(LOW)), format!("{:.2}", self.low_alone_per_s));
        table.push(alone);
        let _ = writeln!(text, "{table}");
        for (name, figures, _) in &modes[1..] {
            let _ = writeln!(
                text,
                "{name}: p50 x {:.2}, p99 x {:.2} of alone; the batch model keeps {:.0} % of what the urgent one leaves",
                figures.p50_ms / self.alone.p50_ms,
                figures.p99_ms / self.alone.p99_ms,
                figures.low_per_s / self.free_per_s() * 100.0,
            );
        }
        for (name, figures, _) in
            modes.iter().filter(|(_, figures, _)| figures.processor.library_ms.is_some())
        {
            let _ = writeln!(text, "{name}: {}", figures.processor);
        }
        let _ = write!(text, "\n{}", levels::table(&self.levels));
        if !self.device_valid {
            let why = if self.gpu.is_own() { "the GPU had other work" } else { "the simulated GPU was late" };
            let _ = writeln!(text, "! {why}: the figures are not reliable");
        }
        if !self.checks.figures().is_empty() {
            let _ = write!(text, "\n{}", self.checks);
        }
        if let Some(accounts) = &self.account {
            let _ = write!(text, "\n{accounts}");
        }
        text
    }
}

pub(super) fn records(outcomes: &[Outcome], program: usize) -> impl Iterator<Item = &Record> {
    outcomes.iter().filter_map(move |outcome| outcome.records.get(program)?.as_ref())
}

fn mode_figures(blocks: &[Outcome]) -> Result<ModeFigures> {
    let samples: Vec<Samples> =
        records(blocks, HIGH).filter_map(|record| Samples::new(record.latencies_ms())).collect();
    anyhow::ensure!(!blocks.is_empty() && samples.len() == blocks.len(), "a block without requests");
    let of_blocks = |percent| samples.iter().map(move |block| block.percentile(percent));
    let median = |percent| median(of_blocks(percent)).context("no blocks");
    Ok(ModeFigures {
        p50_ms: median(50.0)?,
        p90_ms: median(90.0)?,
        p99_ms: median(99.0)?,
        spread: spread(&of_blocks(99.0).collect::<Vec<_>>()).context("a p99 of nothing")?,
        high_n: samples.iter().map(Samples::len).sum(),
        high_per_s: mean(records(blocks, HIGH).map(|record| record.per_second(true))).context("no blocks")?,
        low_per_s: low_per_s(blocks).unwrap_or(0.0),
        suspensions: blocks.iter().map(|outcome| outcome.suspensions).sum(),
        processor: ProcessorCost::of(blocks),
    })
}

fn low_per_s(blocks: &[Outcome]) -> Option<f64> {
    mean(records(blocks, LOW).map(|record| record.per_second(false)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::levels::tests::suspended;
    use super::*;
    use crate::experiment::Suspensions;

    fn record(latencies_ms: &[f64]) -> Option<Record> {
        Some(crate::experiment::tests::record(latencies_ms, 100.0, latencies_ms.len() as f64 / 10.0))
    }

    fn both(high: &[f64], low: &[f64], suspensions: u64, suspended: Option<Suspensions>) -> Outcome {
        let (records, suspended) = (vec![record(high), record(low)], vec![None, suspended]);
        Outcome { records, suspended, suspensions, late_us: Some(9.0), ..Outcome::default() }
    }

    fn simulated() -> Measured {
        Measured::new(&crate::simulated::tests::gpu(), None)
    }

    fn setting() -> Setting {
        Setting {
            high: "bert bs8@10".into(),
            low: "resnet50 bs256".into(),
            scale: 2.0,
            traffic: Traffic::None,
            policy: "HPF".into(),
            threshold: None,
            batch: None,
            mechanism: "auto".into(),
            blocks: 3,
            seconds: 0.3,
            seed: 1,
        }
    }

    pub(crate) fn blocks() -> Blocks {
        let hpf = |level| Mode::Policy("HPF".parse().unwrap(), level);
        let alone =
            |ms: f64| Outcome { records: vec![record(&[10.0, ms, 11.0]), None], ..Outcome::default() };
        let low =
            Outcome { records: vec![None, record(&[100.0; 2])], late_us: Some(50.0), ..Outcome::default() };
        let level_1 = both(&[12.0, 13.0, 14.0], &[100.0, 110.0, 100.0], 5, Some(suspended(1, 0)));
        let level_3 = both(&[10.0, 11.0, 12.0], &[100.0, 125.0], 6, Some(suspended(3, 6)));
        vec![
            (Mode::Alone(HIGH), vec![alone(20.0), alone(24.0), alone(30.0)]),
            (Mode::Native, vec![both(&[60.0, 70.0, 80.0], &[100.0], 0, None); 3]),
            (hpf(1), vec![level_1; 3]),
            (hpf(3), vec![level_3; 3]),
            (Mode::Alone(LOW), vec![low; 3]),
        ]
    }

    pub(crate) fn figures() -> Figures {
        Figures::new(setting(), simulated(), &blocks(), 20_000.0).unwrap()
    }

    #[test]
    fn levels_stand_side_by_side() {
        let figures = figures();
        assert_eq!(figures.levels.iter().map(|row| row.level).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(figures.shim, figures.levels[0].figures);
        let level_3 = &figures.levels[1];
        assert!((level_3.p99_ratio - 12.0 / 24.0).abs() < 1e-12);
        // Two inferences in 225 ms, of ten a second for four fifths of the time.
        assert!((level_3.free_share - (2.0 / 0.225) / 8.0).abs() < 1e-9);
        assert_eq!((level_3.holds, figures.checks.figures().len()), (18, 6));
        assert_eq!(figures.missing().count(), 0);
        assert!(figures.device_valid);
    }

    #[test]
    fn percentiles_are_medians_of_blocks() {
        let figures = figures();
        assert_eq!([figures.alone.p50_ms, figures.alone.p99_ms, figures.alone.spread], [11.0, 24.0, 1.5]);
        assert_eq!([figures.native.p50_ms, figures.native.p90_ms], [70.0, 80.0]);
        assert_eq!((figures.shim.high_n, figures.shim.suspensions), (9, 15));
        assert_eq!(figures.alone.low_per_s, 0.0);
    }

    #[test]
    fn rates_and_shares_are_means_of_blocks() {
        let figures = figures();
        assert_eq!(figures.arrivals_per_s, 10.0);
        // Ten requests a second of 20 ms each.
        assert!((figures.high_busy_share - 0.2).abs() < 1e-12);
        // Back to back: two inferences in 200 ms, one in 100, three in 300.
        assert!((figures.low_alone_per_s - 10.0).abs() < 1e-9);
        assert!((figures.free_per_s() - 8.0).abs() < 1e-9);
        assert_eq!(figures.device_late_p99_us, Some(50.0));
    }

    #[test]
    fn json_has_the_documented_names() {
        let json = serde_json::to_value(figures()).unwrap();
        let keys = ["high", "low", "scale", "cu_model", "threshold", "batch", "alone", "native", "shim"];
        let more = ["low_alone_per_s", "high_busy_share", "save_us", "levels", "figures"];
        for key in keys.iter().chain(&more) {
            assert!(json.get(key).is_some(), "{key}");
        }
        let keys =
            ["p50_ms", "p90_ms", "p99_ms", "spread", "high_n", "high_per_s", "low_per_s", "suspensions"];
        for mode in ["alone", "native", "shim"] {
            for key in keys {
                assert!(json[mode][key].is_number(), "{mode}.{key}");
            }
        }
        assert!(json["threshold"].is_null());
    }

    #[test]
    fn table_has_modes_levels_and_lateness() {
        let table = figures().table();
        assert!(table.contains("simulated GPU"), "{table}");
        assert!(table.contains("with giveway at level 1: p50 x 1.18, p99 x 0.58 of alone"), "{table}");
        assert!(table.contains("level 3: p99 of the urgent model, of alone"), "{table}");
        let late = Figures { device_valid: false, ..figures() };
        assert!(late.table().contains("! the simulated GPU was late"));
    }

    #[test]
    fn mode_without_requests_is_an_error() {
        let empty = blocks().into_iter().map(|(mode, _)| (mode, vec![Outcome::default()])).collect();
        assert!(Figures::new(setting(), simulated(), &empty, 1.0).is_err());
    }
}
