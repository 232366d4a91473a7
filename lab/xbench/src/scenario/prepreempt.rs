//! `xbench prepreempt`: what it is worth to know of work before it comes.
//!
//! An urgent program prepares each request for a while on the host before its first launch, beside a batch program back to
//! back. It runs alone; under HPF; under LCBE without hints, which learns when requests come; and under LCBE with a hint at
//! each arrival. Latencies count from the arrival, preparation included. One such scenario for each length of preparation.

use super::cast::{Part, Scene};
use super::figures::{Figures, Judged, ModeFigures};
use super::{Bench, Common};
use crate::WrongInput;
use crate::child::{ensure_beside, this_program};
use crate::files::{ensure_writable, write_json};
use crate::replay::schedule::Pattern;
use crate::session::NEEDED;
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
/// What the urgent program does a second, evenly.
const RATE: f64 = 20.0;
/// The preparation that is judged, microseconds.
const JUDGED_US: u32 = 300;

/// Options of `xbench prepreempt`.
#[derive(Debug, Clone, Args)]
pub struct PrepreemptArgs {
    /// Lengths of the preparation in microseconds
    #[arg(long, value_name = "US,...", value_delimiter = ',', default_values_t = [0, 100, 200, 300, 400, 500], value_parser = clap::value_parser!(u32).range(0..=100_000), allow_negative_numbers = true)]
    prepare_us: Vec<u32>,
    #[command(flatten)]
    common: Common,
    /// Preemption level
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3), allow_negative_numbers = true)]
    level: u8,
    /// Write the figures there as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The figures of all lengths.
#[derive(Debug, Serialize)]
struct Curve {
    device: &'static str,
    level: u8,
    points: Vec<Point>,
    checks: Vec<Judged>,
}

/// One length of preparation.
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
    let this = this_program()?;
    ensure_beside(&this, NEEDED)?;
    args.json.as_deref().map_or(Ok(()), ensure_writable)?;
    let mut points = Vec::new();
    for prepare_us in lengths {
        let scene = scene(prepare_us);
        let figures = Bench::new(&args.common, args.level, &[], &this, &scene)?.measure(None)?;
        points.push(Point { prepare_us, figures });
    }
    let checks = checks(&points).context("a mode is missing")?;
    let curve = Curve { device: "simulated GPU", level: args.level, points, checks };
    print!("{}", curve.table());
    if let Some(path) = &args.json {
        write_json(path, &curve)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn scene(prepare_us: u32) -> Scene {
    let urgent = Part::new("urgent", "resnet18_bs1", Some((RATE, Pattern::Periodic)), 10);
    Scene {
        name: "prepreempt",
        about: "ResNet-18, evenly, each request prepared on the host first, beside ResNet-50 at batch 256 back to back".to_owned(),
        parts: vec![Part { prepare_us, ..urgent }, Part::new("batch", "resnet50_bs256", None, 0)],
        policies: &[HPF, LEARNT, HINTED],
        seconds: 20.0,
        checks: &[],
    }
}

/// Latency of the urgent program at a mode over that alone, and what the batch program does a second.
fn of(point: &Point, mode: &str) -> Option<(f64, f64)> {
    let find = |name: &str| point.figures.modes.iter().find(|mode| mode.mode == name);
    let p99 =
        |mode: &ModeFigures| mode.parts.iter().find(|part| part.part == "urgent").map(|part| part.p99_ms);
    let here = find(mode)?;
    let batch = here.parts.iter().find(|part| part.part == "batch").map_or(0.0, |part| part.per_s);
    Some((p99(here)? / p99(find(ALONE)?)?, batch))
}

/// For which part of the time the device was kept free for work that did not come, as the policy counted it.
fn vain(point: &Point, mode: &str) -> Option<f64> {
    let mode = point.figures.modes.iter().find(|known| known.mode == mode)?;
    Some(*mode.counted.get("wasted-us")? as f64 / 1e6 / mode.server_s)
}

/// At the length that is judged, if it was measured; nothing if a mode is missing.
fn checks(points: &[Point]) -> Option<Vec<Judged>> {
    let Some(point) = points.iter().find(|point| point.prepare_us == JUDGED_US) else {
        return Some(Vec::new());
    };
    let (hinted, batch) = of(point, HINTED)?;
    let (without, batch_without) = of(point, HPF)?;
    let (_, batch_learnt) = of(point, LEARNT)?;
    let [vain_hinted, vain_learnt] = [vain(point, HINTED)?, vain(point, LEARNT)?];
    let lost = |batch: f64| 1.0 - batch / batch_without;
    let judged = |what: String, value: f64, met: bool| Judged { what, value, met };
    Some(vec![
        judged(format!("p99 over alone with a hint, {JUDGED_US} µs, <= 1.05"), hinted, hinted <= 1.05),
        judged("p99 over alone without is larger".to_owned(), without, without > hinted),
        judged(
            "kept free for work that did not come, hinted <= 0.02".to_owned(),
            vain_hinted,
            vain_hinted <= 0.02,
        ),
        judged(
            "kept free for work that did not come, learnt <= 0.02".to_owned(),
            vain_learnt,
            vain_learnt <= 0.02,
        ),
        judged("batch lost by hints <= 0.02".to_owned(), lost(batch), lost(batch) <= 0.02),
        judged(
            "batch lost by what is learnt <= 0.02".to_owned(),
            lost(batch_learnt),
            lost(batch_learnt) <= 0.02,
        ),
    ])
}

impl Curve {
    fn table(&self) -> String {
        let mut text = format!(
            "{} requests a second beside a batch program; simulated GPU, level {}; p99 over alone (batch a second)\n\n",
            RATE, self.level
        );
        let _ = writeln!(
            text,
            "{:>12} {:>18} {:>18} {:>18}",
            "prepared us", "HPF", "LCBE, learnt", "LCBE, hinted"
        );
        for point in &self.points {
            let _ = write!(text, "{:>12}", point.prepare_us);
            for mode in [HPF, LEARNT, HINTED] {
                let cell =
                    of(point, mode).map_or("-".to_owned(), |(p99, batch)| format!("{p99:.3} ({batch:.2})"));
                let _ = write!(text, " {cell:>18}");
            }
            text.push('\n');
        }
        text.push('\n');
        for check in &self.checks {
            let word = if check.met { "met" } else { "MISSED" };
            let _ = writeln!(text, "{}: {:.3}, {word}", check.what, check.value);
        }
        text
    }
}
