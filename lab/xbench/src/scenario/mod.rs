//! `xbench scenario`: runs several programs on one GPU, under one policy after the other.
//!
//! It is an [`experiment`](crate::experiment) with these modes: each program alone, all programs without the
//! library, all with it at one priority (if requests arrive), and all with it under each policy. Figures do
//! not change the exit code; limits are reported as met or missed.

mod builtin;
mod definition;
mod figures;
mod measure;
mod prepreempt;
mod simulated;

pub use prepreempt::{PrepreemptArgs, run as run_prepreempt};

use crate::WrongInput;
use crate::files::{ensure_writable, write_json};
use anyhow::Result;
use clap::Args;
use measure::{Common, measure};
use simulated::Agreement;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `xbench scenario`.
#[derive(Debug, Clone, Args)]
pub struct ScenarioArgs {
    /// The scenarios to run; --list shows them
    #[arg(value_name = "NAME", required_unless_present = "list")]
    names: Vec<String>,
    /// List the scenarios and end
    #[arg(long)]
    list: bool,
    /// Policies with their parameters, as in 'SLO target-ms=50', instead of those of the scenario.
    /// `+window=T/B` behind a policy gives all programs a fixed window, of T commands in flight and B between
    /// two synchronization points
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    policy: Vec<String>,
    /// Preemption level
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3), allow_negative_numbers = true)]
    level: u8,
    #[command(flatten)]
    common: Common,
    /// Account for the device's time: who used it in each mode, and why nobody did
    #[arg(long)]
    account: bool,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// Something could not be measured, or a check of the work fails.
pub fn run(args: &ScenarioArgs) -> Result<ExitCode> {
    let scenarios = builtin::scenarios()?;
    if args.list {
        for scenario in &scenarios {
            println!("{:<18} {}", scenario.name, scenario.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let find = |name: &String| {
        scenarios.iter().find(|scenario| scenario.name == name).ok_or_else(|| {
            let names: Vec<_> = scenarios.iter().map(|scenario| scenario.name).collect();
            WrongInput(format!("no scenario {name:?} (there are {})", names.join(", ")))
        })
    };
    let wanted = args.names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let policies = args.policy.iter().map(|policy| policy.parse()).collect::<Result<Vec<_>, _>>()?;
    args.json.as_deref().map_or(Ok(()), ensure_writable)?;
    let mut all = Vec::new();
    for scenario in wanted {
        let experiment = args.common.experiment(scenario, args.account)?;
        // Only the comparison with simulation uses the mode at one priority, for programs with a latency. The model's parameters
        // are the simulated GPU's.
        let simulated = !experiment.gpu.is_own();
        let equal = simulated && scenario.programs.iter().any(|program| program.has_latency());
        let mut figures = measure(scenario, &experiment, args.level, equal, &policies)?;
        if simulated {
            figures.agreement = Some(Agreement::new(scenario, &figures, experiment.setup)?);
        }
        println!("{}", figures.table());
        all.push(figures);
    }
    if let Some(path) = &args.json {
        write_json(path, &all)?;
    }
    Ok(ExitCode::SUCCESS)
}
