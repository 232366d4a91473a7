//! `xbench prepreempt`: measures the benefit of knowing about work before it arrives.
//!
//! An urgent program prepares each request on the host before its first launch, beside a batch program back
//! to back. It runs alone; under HPF; under LCBE without hints, which learns when requests come; and under
//! LCBE with a hint at each arrival. Latencies count from the arrival and include the preparation. Each
//! length of preparation is a scenario.

use super::definition::Scenario;
use super::figures::{Figures, Judged, ModeFigures};
use super::measure::{Common, measure};
use crate::WrongInput;
use crate::experiment::Program;
use crate::files::{ensure_writable, write_json};
use crate::replay::schedule::Pattern;
use crate::table::{Table, dash};
use crate::traffic::Traffic;
use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

const ALONE: &str = "urgent alone";
const HPF: &str = "HPF";
const LEARNT: &str = "LCBE learn=1";
const HINTED: &str = "LCBE learn=0 +hint";
/// The requests of the urgent program a second, at even intervals.
const RATE: f64 = 20.0;
/// The length of preparation that is judged, microseconds.
const JUDGED_US: u32 = 300;

/// Options of `xbench prepreempt`.
#[derive(Debug, Clone, Args)]
pub struct PrepreemptArgs {
    /// Lengths of the preparation in microseconds
    #[arg(long, value_name = "US,...", value_delimiter = ',', default_values_t = [0, 100, 200, 300, 400, 500], value_parser = clap::value_parser!(u32).range(0..=100_000), allow_negative_numbers = true)]
    prepare_us: Vec<u32>,
    #[command(flatten)]
    common: Common,
    /// Preemption level; with --real 1 unless another is named, because 2 and 3 evict queues
    #[arg(long, value_name = "N", default_value_t = 3, default_value_if("real", "true", "1"), value_parser = clap::value_parser!(u8).range(1..=3), allow_negative_numbers = true)]
    level: u8,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Curve {
    /// `simulated GPU`, or the name of the machine's own.
    device: String,
    level: u8,
    /// The memory traffic of both programs' kernels.
    traffic: Traffic,
    points: Vec<Point>,
    checks: Vec<Judged>,
}

#[derive(Debug, Serialize)]
struct Point {
    prepare_us: u32,
    figures: Figures,
}

/// Runs the command.
///
/// # Errors
/// Something could not be measured, or a check of the work fails.
pub fn run(args: &PrepreemptArgs) -> Result<ExitCode> {
    let mut lengths = args.prepare_us.clone();
    lengths.sort_unstable();
    lengths.dedup();
    if lengths.is_empty() {
        return Err(WrongInput("no length of preparation".to_owned()).into());
    }
    args.json.as_deref().map_or(Ok(()), ensure_writable)?;
    let mut points = Vec::new();
    for prepare_us in lengths {
        let scenario = scenario(prepare_us);
        let figures = measure(&scenario, &args.common.experiment(&scenario, false)?, args.level, false, &[])?;
        points.push(Point { prepare_us, figures });
    }
    let checks = checks(&points).context("a mode is missing")?;
    let device = points.first().map(|point| point.figures.gpu.device().to_owned()).unwrap_or_default();
    let curve = Curve { device, level: args.level, traffic: args.common.traffic, points, checks };
    print!("{}", curve.table());
    if let Some(path) = &args.json {
        write_json(path, &curve)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn scenario(prepare_us: u32) -> Scenario {
    let urgent = Program::new("urgent", "resnet18_bs1.json", Some((RATE, Pattern::Periodic)), 10);
    Scenario {
        name: "prepreempt",
        about: "ResNet-18, evenly, each request prepared on the host first, beside ResNet-50 at batch 256 back to back".to_owned(),
        programs: vec![
            Program { prepare_us, ..urgent },
            Program::new("batch", "resnet50_bs256.json", None, 0),
        ],
        policies: &[HPF, LEARNT, HINTED],
        seconds: 20.0,
        checks: &[],
    }
}

/// Returns the p99 of the urgent program in a mode over that alone, and the inferences of the batch program a
/// second.
fn of(point: &Point, mode: &str) -> Option<(f64, f64)> {
    let find = |name: &str| point.figures.modes.iter().find(|mode| mode.mode == name);
    let p99 =
        |mode: &ModeFigures| mode.parts.iter().find(|part| part.part == "urgent").map(|part| part.p99_ms);
    let here = find(mode)?;
    let batch = here.parts.iter().find(|part| part.part == "batch").map_or(0.0, |part| part.per_s);
    Some((p99(here)? / p99(find(ALONE)?)?, batch))
}

/// Returns the share of time for which the policy kept the device free for work that did not come.
fn wasted(point: &Point, mode: &str) -> Option<f64> {
    let mode = point.figures.modes.iter().find(|known| known.mode == mode)?;
    Some(*mode.counted.get("wasted-us")? as f64 / 1e6 / mode.server_s)
}

/// Judges the point of [`JUDGED_US`], if it was measured; `None` if a mode is missing.
fn checks(points: &[Point]) -> Option<Vec<Judged>> {
    let Some(point) = points.iter().find(|point| point.prepare_us == JUDGED_US) else {
        return Some(Vec::new());
    };
    let (hinted, batch) = of(point, HINTED)?;
    let (without, batch_without) = of(point, HPF)?;
    let (_, batch_learnt) = of(point, LEARNT)?;
    let lost = |batch: f64| 1.0 - batch / batch_without;
    Some(vec![
        Judged::at_most(&format!("p99 over alone with a hint, {JUDGED_US} µs,"), hinted, 1.05),
        Judged::new("p99 over alone without is larger".to_owned(), without, without > hinted),
        Judged::at_most("kept free for work that did not come, hinted", wasted(point, HINTED)?, 0.02),
        Judged::at_most("kept free for work that did not come, learnt", wasted(point, LEARNT)?, 0.02),
        Judged::at_most("batch lost by hints", lost(batch), 0.02),
        Judged::at_most("batch lost by what is learnt", lost(batch_learnt), 0.02),
    ])
}

impl Curve {
    fn table(&self) -> String {
        let mut table = Table::new(0, ["prepared us", "HPF", "LCBE, learnt", "LCBE, hinted"]);
        for point in &self.points {
            let cell =
                |mode| of(point, mode).map_or_else(dash, |(p99, batch)| format!("{p99:.3} ({batch:.2})"));
            table.push([point.prepare_us.to_string(), cell(HPF), cell(LEARNT), cell(HINTED)]);
        }
        let mut text = format!(
            "{} requests a second beside a batch program{}; {}, level {}; p99 over alone (batch a second)\n\n{table}\n",
            RATE,
            self.traffic.words(),
            self.device,
            self.level
        );
        for check in &self.checks {
            let _ = writeln!(text, "{check}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::parse;

    #[test]
    fn real_gpu_has_no_evictions_unless_a_level_is_named() {
        let level = |words: &[&str]| parse::<PrepreemptArgs>(words).unwrap().level;
        assert_eq!(level(&[]), 3);
        assert_eq!(level(&["--real"]), 1);
        assert_eq!(level(&["--real", "--level", "3"]), 3);
    }
}
