//! `xbench tenants`: measures what more and more programs on one GPU cost.
//!
//! For each number of programs it is an [`experiment`](crate::experiment) with these modes: all programs without the
//! library, and all with it under a policy. Every program runs the same recorded model back to back, at one priority.

use crate::WrongInput;
use crate::experiment::{Experiment, Mode, Outcome, PolicyWords, ProcessorCost, Program, Setup};
use crate::files::{ensure_writable, write_json};
use crate::replay;
use crate::simulated::{GpuArgs, Measured};
use crate::stats::mean;
use crate::table::{Table, dash, number};
use crate::traffic::Traffic;
use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The most programs.
const MOST: u32 = 64;

/// Options of `xbench tenants`.
#[derive(Debug, Clone, Args)]
pub struct TenantsArgs {
    /// Numbers of programs
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16], value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
    count: Vec<u32>,
    /// The model that every program runs
    #[arg(long, value_name = "TRACE", default_value = "examples/traces/bert_bs8.json")]
    trace: PathBuf,
    /// Policy of the server with parameters of its own, such as 'FAIR slice-us=5000'
    #[arg(long, value_name = "POLICY", default_value = "FAIR")]
    policy: PolicyWords,
    #[command(flatten)]
    gpu: GpuArgs,
    /// Memory traffic of the kernels while they run
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Traffic::None)]
    traffic: Traffic,
    /// Blocks, each with both modes; a figure is the mean of theirs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    blocks: u32,
    /// Seconds of each mode in each block
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = replay::seconds)]
    seconds: f64,
    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// So many programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    tenants: u32,
    /// Inferences a second of all programs, without and with giveway.
    native_per_s: f64,
    per_s: f64,
    /// The largest share of a program over the smallest, without and with giveway.
    native_spread: f64,
    spread: f64,
    /// Suspensions and decisions of the server a second.
    suspensions_per_s: f64,
    decisions_per_s: f64,
    /// The processor time of giveway.
    processor: ProcessorCost,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Figures {
    trace: String,
    policy: String,
    traffic: Traffic,
    #[serde(flatten)]
    gpu: Measured,
    blocks: u32,
    /// Seconds of each mode in each block.
    seconds: f64,
    rows: Vec<Row>,
}

/// Runs the command. Figures do not change the exit code.
///
/// # Errors
/// Something could not be measured, or a check of the work fails.
pub fn run(args: &TenantsArgs) -> Result<ExitCode> {
    args.json.as_deref().map_or(Ok(()), ensure_writable)?;
    let mut figures = None;
    for &tenants in &args.count {
        let programs: Vec<Program> = (1..=tenants)
            .map(|number| Program::new(&format!("tenant{number}"), &args.trace, None, 0))
            .collect();
        let name = format!("tenants, {tenants}");
        let experiment = Experiment::new(Setup {
            name: &name,
            programs: &programs,
            traces: Path::new(""),
            gpu: &args.gpu,
            traffic: args.traffic,
            blocks: args.blocks,
            seconds: args.seconds,
            alone_seconds: args.seconds,
            seed: 1,
            seed_step: 1,
            account: false,
        })?;
        let results =
            experiment.run(vec![Mode::Native, Mode::Policy(args.policy.clone(), 1)], |_, _, _| Ok(()))?;
        let row = Row::new(tenants, [&results[0].1, &results[1].1])?;
        figures.get_or_insert_with(|| args.figures(&experiment)).rows.push(row);
    }
    let figures = figures.ok_or_else(|| WrongInput("--count names no number".to_owned()))?;
    print!("{}", figures.table());
    if let Some(path) = &args.json {
        write_json(path, &figures)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl TenantsArgs {
    fn figures(&self, experiment: &Experiment<'_>) -> Figures {
        Figures {
            trace: experiment.traces[0].name.clone(),
            policy: self.policy.text.clone(),
            traffic: self.traffic,
            gpu: experiment.gpu.clone(),
            blocks: self.blocks,
            seconds: self.seconds,
            rows: Vec::new(),
        }
    }
}

impl Row {
    fn new(tenants: u32, [native, scheduled]: [&[Outcome]; 2]) -> Result<Self> {
        let [native_per_s, per_s] = [native, scheduled].map(|blocks| mean(blocks.iter().map(total)));
        let [native_spread, spread] =
            [native, scheduled].map(|blocks| mean(blocks.iter().filter_map(unequal)));
        let server_s: f64 = scheduled.iter().map(|outcome| outcome.server_s).sum();
        let sum = |of: fn(&Outcome) -> u64| scheduled.iter().map(of).sum::<u64>() as f64;
        let none = "no program finished anything";
        Ok(Self {
            tenants,
            native_per_s: native_per_s.context(none)?,
            per_s: per_s.context(none)?,
            native_spread: native_spread.context(none)?,
            spread: spread.context(none)?,
            suspensions_per_s: sum(|outcome| outcome.suspensions) / server_s,
            decisions_per_s: sum(|outcome| outcome.decisions) / server_s,
            processor: ProcessorCost::of(scheduled),
        })
    }
}

fn rates(outcome: &Outcome) -> impl Iterator<Item = f64> {
    outcome.records.iter().flatten().map(|record| record.per_second(false))
}

/// Returns the inferences a second of all programs.
fn total(outcome: &Outcome) -> f64 {
    rates(outcome).sum()
}

/// Returns the largest rate over the smallest.
fn unequal(outcome: &Outcome) -> Option<f64> {
    let most = rates(outcome).reduce(f64::max)?;
    let least = rates(outcome).reduce(f64::min).filter(|least| *least > 0.0)?;
    Some(most / least)
}

impl Figures {
    fn table(&self) -> String {
        let Self { trace, policy, gpu, rows, traffic, .. } = self;
        let traffic = traffic.words();
        let header = [
            "programs",
            "native/s",
            "with/s",
            "ratio",
            "native spread",
            "spread",
            "suspensions/s",
            "decisions/s",
            "library ms",
            "server ms",
        ];
        let mut table = Table::new(0, header);
        for row in rows {
            let fixed = |value: f64, digits: usize| number(Some(value), digits);
            let cost = |ms: Option<f64>| ms.map_or_else(dash, |ms| format!("{ms:.2}"));
            table.push([
                row.tenants.to_string(),
                fixed(row.native_per_s, 2),
                fixed(row.per_s, 2),
                fixed(row.per_s / row.native_per_s, 3),
                fixed(row.native_spread, 2),
                fixed(row.spread, 2),
                fixed(row.suspensions_per_s, 0),
                fixed(row.decisions_per_s, 0),
                cost(row.processor.library_ms),
                cost(row.processor.server_ms),
            ]);
        }
        format!(
            "{trace} back to back in every program{traffic}; policy {policy}; {gpu}\n\n{table}\n\
             spread: the largest rate of a program over the smallest. ms: processor time for a second of device time, of the \
             library's own threads in all programs, and of xserver.\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::record;

    #[test]
    fn row_has_the_work_of_all_and_its_division() {
        let run = |counts: &[usize], suspensions| Outcome {
            records: counts
                .iter()
                .map(|&count| {
                    let mut record = record(&vec![1.0; count], 0.0, 1.0);
                    record.requests.last_mut().unwrap().ended_us = 1e6;
                    Some(record)
                })
                .collect(),
            suspensions,
            decisions: 4,
            server_s: 2.0,
            ..Outcome::default()
        };
        let row = Row::new(2, [&[run(&[60, 40], 0)], &[run(&[50, 48], 10), run(&[50, 48], 30)]]).unwrap();
        assert_eq!((row.native_per_s, row.per_s, row.native_spread), (100.0, 98.0, 1.5));
        assert!((row.spread - 50.0 / 48.0).abs() < 1e-9);
        assert_eq!((row.suspensions_per_s, row.decisions_per_s), (10.0, 2.0));
        assert!(Row::new(2, [&[], &[]]).is_err());
    }

    #[test]
    fn numbers_of_programs_have_a_range() {
        let parse = |count: &str| crate::tests::parse::<TenantsArgs>(&["--count", count]);
        assert_eq!(parse("3,1").unwrap().count, [3, 1]);
        assert_eq!(crate::tests::parse::<TenantsArgs>(&[]).unwrap().count, [1, 2, 4, 8, 16]);
        assert!(parse("0").is_err() && parse("65").is_err() && parse("").is_err());
    }
}
