//! `xbench calibrate`: checks that `busy` kernels take the time that they are told to take, alone and beside those of
//! another process.
//!
//! Recorded models are replayed with such kernels, so every other figure rests on this. A kernel counts only the time in
//! which it runs: what it loses to another process on the same GPU makes it longer, and never shorter in work. So two
//! processes with kernels that fill the GPU can together do no more than the time allows.
//!
//! With `--traffic` it measures kernels with memory traffic as well, and tells how much they moved.
//!
//! Measurements on the machine's own GPU call [`objection`] after each run, to find out whether somebody else uses it.

mod traffic;
mod worker;

pub(crate) use worker::{card, close, objection};

use crate::card::Card;
use crate::process::this_program;
use crate::report::{Limit, Report};
use crate::simulated::{CuModel, gpu_sim};
use crate::table::value_name;
use crate::traffic::Traffic;
use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use std::process::ExitCode;
use worker::{Alone, BESIDE_US, Work, limit};

/// Options of `xbench calibrate`.
#[derive(Debug, Clone, Args)]
pub struct CalibrateArgs {
    /// This machine's own GPU instead of a simulated one. Nobody else must use it meanwhile
    #[arg(long)]
    real: bool,
    /// Measure kernels with this memory traffic as well; `recorded` are those of all classes
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Traffic::None)]
    traffic: Traffic,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
    /// Be a process that measures.
    #[arg(long, hide = true, value_enum)]
    worker: Option<Work>,
}

#[derive(Debug, Serialize)]
struct Calibration {
    #[serde(flatten)]
    card: Card,
    #[serde(flatten)]
    report: Report,
    met: bool,
}

/// Runs the command. The exit code is 1 if a kernel does not take its time.
///
/// # Errors
/// There is no GPU, or a process fails.
pub fn run(args: &CalibrateArgs) -> Result<ExitCode> {
    if let Some(work) = args.worker {
        worker::run(work, args.traffic)?;
        return Ok(ExitCode::SUCCESS);
    }
    let this = this_program()?;
    if !args.real {
        // The same measurement, in a process whose own GPU is the simulated one.
        let stats = crate::files::scratch()?;
        let mut command =
            gpu_sim(&this, CuModel::Shared, 50, &crate::files::RunFiles(stats.path()).stats(), None);
        command.args(["calibrate", "--real", "--traffic", &value_name(args.traffic)]);
        command.args(args.json.then_some("--json"));
        let status = command.status().context("cannot start gpu-sim")?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let alone = worker::alone(&this, Work::Alone)?;
    let shares = worker::beside(&this)?;
    let mut report = judge(&alone, shares);
    if args.traffic != Traffic::None {
        traffic::judge(&mut report, &worker::moved(&this, args.traffic)?);
    }
    let calibration = Calibration { card: alone.card, met: report.is_met(), report };
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&calibration)?),
        false => print!("{}\n\n{}", calibration.card, calibration.report),
    }
    Ok(if calibration.met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn judge(alone: &Alone, shares: [f64; 2]) -> Report {
    let mut report = Report::default();
    for length in &alone.lengths {
        let asked = length.asked_us;
        report.judged(
            "in_a_row_us",
            format!("kernels of {asked} µs in a row, each"),
            length.in_a_row_us,
            "µs",
            limit(asked),
        );
        report.info(
            "single_us",
            format!("one of them between two events, median of {}", length.singles),
            length.single_us,
            "µs",
        );
    }
    let [first, second] = shares;
    report.judged(
        "beside_total",
        format!(
            "two processes with kernels of {BESIDE_US} µs that fill the GPU: work of both over time ({first:.2} and {second:.2})"
        ),
        first + second,
        "",
        // Less is what taking turns costs. More would be work that nobody did.
        Limit::within(0.7, 1.03),
    );
    report
}

#[cfg(test)]
mod tests {
    use super::worker::Length;
    use super::*;
    use crate::card::tests::card;

    fn alone(in_a_row_us: f64) -> Alone {
        let length = Length { asked_us: 1000, singles: 9, single_us: 1010.0, in_a_row_us };
        Alone { card: card(), lengths: vec![length] }
    }

    #[test]
    fn kernels_that_are_too_short_or_too_long_are_missed() {
        let met = |in_a_row_us, shares| judge(&alone(in_a_row_us), shares).is_met();
        assert!(met(1003.0, [0.5, 0.45]));
        assert!(!met(970.0, [0.5, 0.45]) && !met(1200.0, [0.5, 0.45]));
    }

    #[test]
    fn work_that_nobody_did_is_missed() {
        let met = |shares| judge(&alone(1000.0), shares).is_met();
        // Both count the time in which the other one ran.
        assert!(!met([0.99, 0.98]));
        assert!(!met([0.3, 0.3]));
        assert!(!met([f64::NAN, 0.5]));
    }
}
