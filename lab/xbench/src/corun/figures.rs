//! From the runs of all modes and blocks to the figures: pure arithmetic, and the table.

use super::Role;
use super::levels::{self, Held, Level};
use crate::compare::spread;
use crate::replay::Record;
use crate::report::Report;
use crate::stats::Samples;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt::Write as _;

/// What runs at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The urgent model alone.
    HighAlone,
    /// The batch model alone.
    LowAlone,
    /// Both, without the library.
    Native,
    /// Both, each with the library, under `xserver`, which suspends the batch model at this preemption level.
    Shim(u8),
}

impl Mode {
    /// All modes of a block with these levels, in their order.
    pub(super) fn of_block(levels: &[u8]) -> Vec<Self> {
        let levels = levels.iter().map(|level| Self::Shim(*level));
        [Self::HighAlone, Self::Native].into_iter().chain(levels).chain([Self::LowAlone]).collect()
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::HighAlone => "urgent model alone".to_owned(),
            Self::LowAlone => "batch model alone".to_owned(),
            Self::Native => "both, without giveway".to_owned(),
            Self::Shim(level) => format!("with giveway at level {level}"),
        }
    }

    /// Who runs.
    pub(super) fn roles(self) -> &'static [Role] {
        match self {
            Self::HighAlone => &[Role::High],
            Self::LowAlone => &[Role::Low],
            Self::Native | Self::Shim(_) => &[Role::High, Role::Low],
        }
    }

    /// The preemption level, where there is one.
    pub(super) fn level(self) -> Option<u8> {
        match self {
            Self::Shim(level) => Some(level),
            _ => None,
        }
    }

    /// Short name for raw data.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::HighAlone => "alone",
            Self::LowAlone => "low_alone",
            Self::Native => "native",
            Self::Shim(_) => "shim",
        }
    }
}

/// What one run of one mode gave.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    pub(super) high: Option<Record>,
    pub(super) low: Option<Record>,
    /// Of both processes.
    pub(super) suspensions: u64,
    /// The batch model's suspensions; nothing where the library is not loaded.
    pub(super) held: Option<Held>,
    /// 99th percentile of the device's lateness, microseconds.
    pub(super) late_us: f64,
    /// Whether the device was too late for its own figures.
    pub(super) late: bool,
}

/// The figures of one mode in which the urgent model runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModeFigures {
    /// Median latency, milliseconds; the median of the blocks, as the other two percentiles.
    pub p50_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Largest p99 of a block over the smallest.
    pub spread: f64,
    /// Requests served, all blocks together.
    pub high_n: usize,
    /// Requests served a second; mean of the blocks.
    pub high_per_s: f64,
    /// Inferences of the batch model a second; mean of the blocks. 0 where it does not run.
    pub low_per_s: f64,
    /// Suspensions of queues by the library, both programs, all blocks together. 0 where it is not loaded.
    pub suspensions: u64,
}

/// What is fixed before a co-run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// Urgent model and its rate, such as `bert bs8@10`.
    pub high: String,
    /// Batch model.
    pub low: String,
    /// Factor on recorded times.
    pub scale: f64,
    /// How the simulated device shares its compute units.
    pub cu_model: String,
    /// Most commands in flight; `null` if the library chooses.
    pub threshold: Option<u32>,
    /// Commands between two synchronization points; `null` if the library chooses.
    pub batch: Option<u32>,
    /// What it costs the simulated device to save what runs on queues that come off, and to bring that back, microseconds;
    /// in all modes.
    pub save_us: u32,
    /// What was asked to take the batch model's queues off; `auto` if the library chose.
    pub mechanism: String,
    /// Runs of each mode.
    pub blocks: usize,
    /// Seconds in which requests arrive, each block.
    pub seconds: f64,
    /// Which arrivals.
    pub seed: u64,
}

/// All figures of a co-run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// What was run.
    #[serde(flatten)]
    pub setting: Setting,
    /// Always: no figure here is a GPU measurement.
    pub device: &'static str,
    /// The urgent model alone.
    pub alone: ModeFigures,
    /// Both without the library.
    pub native: ModeFigures,
    /// Both with the library under `xserver`, at the first of `levels`.
    pub shim: ModeFigures,
    /// The same and more of each preemption level of the batch model.
    pub levels: Vec<Level>,
    /// Inferences of the batch model a second, alone; mean of the blocks.
    pub low_alone_per_s: f64,
    /// Requests that arrived a second.
    pub arrivals_per_s: f64,
    /// Share of time that the urgent model needs the device: realised rate times summed scaled durations.
    pub high_busy_share: f64,
    /// Largest p99 of the device's lateness in any block, microseconds.
    pub device_late_p99_us: f64,
    /// Whether the device kept up with its own time in all blocks; figures of one that did not say little.
    pub device_valid: bool,
    /// What level 3 is judged by.
    #[serde(flatten)]
    pub checks: Report,
}

/// Outcomes by block, for each mode in the order of [`Mode::of_block`].
pub(super) type Blocks = Vec<(Mode, Vec<Outcome>)>;

/// The outcomes of one mode.
fn outcomes(blocks: &Blocks, mode: Mode) -> &[Outcome] {
    blocks.iter().find(|(of, _)| *of == mode).map_or(&[], |(_, outcomes)| outcomes)
}

impl Figures {
    /// `device_us` is what the device works for one request of the urgent model, scaled.
    pub(super) fn new(setting: Setting, blocks: &Blocks, device_us: f64) -> Result<Self> {
        let [alone, native, low_alone] =
            [Mode::HighAlone, Mode::Native, Mode::LowAlone].map(|mode| outcomes(blocks, mode));
        let arrivals = |outcome: &Outcome| {
            outcome.high.as_ref().map(|record| record.requests.len() as f64 / record.seconds)
        };
        let arrivals_per_s = mean(alone.iter().filter_map(arrivals)).context("no requests")?;
        let low_alone_per_s = mean(low_alone.iter().filter_map(low_per_s)).context("no inferences")?;
        let alone = mode_figures(alone)?;
        let high_busy_share = arrivals_per_s * device_us / 1e6;
        let mut levels = Vec::new();
        for (mode, outcomes) in blocks {
            let Some(level) = mode.level() else { continue };
            let held: Vec<&Held> = outcomes.iter().filter_map(|outcome| outcome.held.as_ref()).collect();
            let free_per_s = low_alone_per_s * (1.0 - high_busy_share);
            levels.push(Level::new(level, &held, mode_figures(outcomes)?, &alone, free_per_s));
        }
        let all = || blocks.iter().flat_map(|(_, outcomes)| outcomes);
        Ok(Self {
            device: "simulated GPU",
            alone,
            native: mode_figures(native)?,
            shim: levels.first().context("no levels")?.figures.clone(),
            low_alone_per_s,
            arrivals_per_s,
            high_busy_share,
            device_late_p99_us: all().map(|outcome| outcome.late_us).fold(0.0, f64::max),
            device_valid: all().all(|outcome| !outcome.late),
            checks: levels::checks(&setting.high, &levels),
            levels,
            setting,
        })
    }

    /// Share of what the batch model can have beside the urgent one that it got.
    pub(super) fn low_share(&self, mode: &ModeFigures) -> f64 {
        mode.low_per_s / (self.low_alone_per_s * (1.0 - self.high_busy_share))
    }

    /// Every mode in which the urgent model runs.
    pub(super) fn with_high(&self) -> Vec<(Mode, &ModeFigures)> {
        let levels = self.levels.iter().map(|row| (Mode::Shim(row.level), &row.figures));
        [(Mode::HighAlone, &self.alone), (Mode::Native, &self.native)].into_iter().chain(levels).collect()
    }

    /// Why levels that were asked for were not used.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        self.levels.iter().filter_map(|row| row.missing.as_deref())
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let setting = &self.setting;
        let mut text = format!(
            "{} a second beside {} back to back, times x {}; simulated GPU, compute units {}, save cost {} µs\n\n",
            setting.high.replace('@', ", "),
            setting.low,
            setting.scale,
            setting.cu_model,
            setting.save_us
        );
        let _ = writeln!(
            text,
            "{:<26} {:>9} {:>9} {:>9} {:>7} {:>9} {:>8} {:>7} {:>12}",
            "milliseconds", "p50", "p90", "p99", "spread", "requests", "high/s", "low/s", "suspensions"
        );
        let modes = self.with_high();
        for (mode, figures) in &modes {
            let _ = writeln!(
                text,
                "{:<26} {:>9.2} {:>9.2} {:>9.2} {:>7.2} {:>9} {:>8.2} {:>7.2} {:>12}",
                mode.name(),
                figures.p50_ms,
                figures.p90_ms,
                figures.p99_ms,
                figures.spread,
                figures.high_n,
                figures.high_per_s,
                figures.low_per_s,
                figures.suspensions,
            );
        }
        let _ = writeln!(text, "{:<26} {:>75.2}\n", Mode::LowAlone.name(), self.low_alone_per_s);
        for (mode, figures) in &modes[1..] {
            let _ = writeln!(
                text,
                "{}: p50 x {:.2}, p99 x {:.2} of alone; the batch model keeps {:.0} % of what the urgent one leaves",
                mode.name(),
                figures.p50_ms / self.alone.p50_ms,
                figures.p99_ms / self.alone.p99_ms,
                self.low_share(figures) * 100.0,
            );
        }
        let _ = write!(text, "\n{}", levels::table(&self.levels));
        if !self.device_valid {
            text.push_str("! the simulated GPU was late: the figures say little\n");
        }
        if !self.checks.figures().is_empty() {
            let _ = write!(text, "\n{}", self.checks);
        }
        text
    }
}

fn mode_figures(blocks: &[Outcome]) -> Result<ModeFigures> {
    let records = blocks.iter().map(|outcome| outcome.high.as_ref());
    let records: Vec<&Record> = records.collect::<Option<_>>().context("a block without requests")?;
    let samples = records.iter().map(|record| Samples::new(record.latencies_ms()));
    let samples: Vec<Samples> = samples.collect::<Option<_>>().context("a block without requests")?;
    let of_blocks = |percent| samples.iter().map(|block| block.percentile(percent)).collect::<Vec<f64>>();
    let median = |percent| Samples::new(of_blocks(percent)).map(|blocks| blocks.median());
    Ok(ModeFigures {
        p50_ms: median(50.0).context("no blocks")?,
        p90_ms: median(90.0).context("no blocks")?,
        p99_ms: median(99.0).context("no blocks")?,
        spread: spread(&of_blocks(99.0)).context("a p99 of nothing")?,
        high_n: samples.iter().map(Samples::len).sum(),
        high_per_s: mean(records.iter().map(|record| record.per_second(true))).context("no blocks")?,
        low_per_s: mean(blocks.iter().filter_map(low_per_s)).unwrap_or(0.0),
        suspensions: blocks.iter().map(|outcome| outcome.suspensions).sum(),
    })
}

fn low_per_s(outcome: &Outcome) -> Option<f64> {
    outcome.low.as_ref().map(|record| record.per_second(false))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::levels::tests::held;
    use super::*;
    use crate::replay::Request;

    /// A record of these latencies, one request every 100 ms.
    pub(crate) fn record(latencies_ms: &[f64]) -> Record {
        let request = |(index, ms): (usize, &f64)| {
            let at = index as f64 * 1e5;
            Request { arrived_us: at, began_us: at, ended_us: at + ms * 1e3 }
        };
        let requests: Vec<Request> = latencies_ms.iter().enumerate().map(request).collect();
        let seconds = requests.len() as f64 / 10.0;
        Record { pid: 1, trace: "t".into(), warm_up: 3, seconds, digest: "0".into(), requests }
    }

    fn both(high: &[f64], low: &[f64], suspensions: u64) -> Outcome {
        let (high, low) = (Some(record(high)), Some(record(low)));
        Outcome { high, low, suspensions, late_us: 9.0, ..Outcome::default() }
    }

    pub(crate) fn setting() -> Setting {
        Setting {
            high: "bert bs8@10".into(),
            low: "resnet50 bs256".into(),
            scale: 2.0,
            cu_model: "shared".into(),
            threshold: None,
            batch: None,
            save_us: 50,
            mechanism: "auto".into(),
            blocks: 3,
            seconds: 0.3,
            seed: 1,
        }
    }

    pub(crate) fn figures() -> Figures {
        let alone = |ms: f64| Outcome { high: Some(record(&[10.0, ms, 11.0])), ..Outcome::default() };
        let low = Outcome { low: Some(record(&[100.0, 100.0])), late_us: 50.0, ..Outcome::default() };
        let level_1 = both(&[12.0, 13.0, 14.0], &[100.0, 110.0, 100.0], 5);
        let level_3 = both(&[10.0, 11.0, 12.0], &[100.0, 125.0], 6);
        let blocks = vec![
            (Mode::HighAlone, vec![alone(20.0), alone(24.0), alone(30.0)]),
            (Mode::Native, vec![both(&[60.0, 70.0, 80.0], &[100.0], 0); 3]),
            (Mode::Shim(1), vec![Outcome { held: Some(held(1, 0)), ..level_1 }; 3]),
            (Mode::Shim(3), vec![Outcome { held: Some(held(3, 6)), ..level_3 }; 3]),
            (Mode::LowAlone, vec![low; 3]),
        ];
        Figures::new(setting(), &blocks, 20_000.0).unwrap()
    }

    #[test]
    fn levels_stand_side_by_side() {
        assert_eq!(
            Mode::of_block(&[1, 3]),
            [Mode::HighAlone, Mode::Native, Mode::Shim(1), Mode::Shim(3), Mode::LowAlone]
        );
        let figures = figures();
        assert_eq!(figures.levels.iter().map(|row| row.level).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(figures.shim, figures.levels[0].figures);
        let level_3 = &figures.levels[1];
        assert!((level_3.p99_ratio - 12.0 / 24.0).abs() < 1e-12);
        // Two inferences in 225 ms, of ten a second for four fifths of the time.
        assert!((level_3.free_share - (2.0 / 0.225) / 8.0).abs() < 1e-9);
        assert_eq!((level_3.holds, figures.checks.figures().len()), (18, 2));
        assert_eq!(figures.missing().count(), 0);
        assert!(figures.device_valid);
    }

    #[test]
    fn percentiles_are_medians_of_blocks() {
        let figures = figures();
        assert_eq!([figures.alone.p50_ms, figures.alone.p99_ms, figures.alone.spread], [11.0, 24.0, 1.5]);
        assert_eq!([figures.native.p50_ms, figures.native.p90_ms], [70.0, 80.0]);
        assert_eq!(figures.shim.high_n, 9);
        assert_eq!(figures.shim.suspensions, 15);
        assert_eq!(figures.alone.low_per_s, 0.0);
    }

    #[test]
    fn rates_and_shares() {
        let figures = figures();
        assert_eq!(figures.arrivals_per_s, 10.0);
        // Ten requests a second of 20 ms each.
        assert!((figures.high_busy_share - 0.2).abs() < 1e-12);
        // Back to back: two inferences in 200 ms, one in 100, three in 300.
        assert!((figures.low_alone_per_s - 10.0).abs() < 1e-9);
        assert!((figures.low_share(&figures.shim) - 10.0 / 8.0).abs() < 1e-9);
        assert_eq!(figures.device_late_p99_us, 50.0);
    }

    #[test]
    fn json_has_the_names_that_others_read() {
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
    fn the_table_says_what_and_where() {
        let table = figures().table();
        assert!(table.contains("simulated GPU"), "{table}");
        assert!(table.contains("with giveway at level 1: p50 x 1.18, p99 x 0.58 of alone"), "{table}");
        assert!(table.contains("level 3: p99 of bert, of alone"), "{table}");
        let late = Figures { device_valid: false, ..figures() };
        assert!(late.table().contains("! the simulated GPU was late"));
    }

    #[test]
    fn a_mode_without_requests_is_an_error() {
        let modes = Mode::of_block(&[1]).into_iter();
        let blocks = modes.map(|mode| (mode, vec![Outcome::default()])).collect();
        assert!(Figures::new(setting(), &blocks, 1.0).is_err());
    }
}
