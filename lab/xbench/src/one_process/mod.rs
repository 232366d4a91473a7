//! `xbench one-process`: measures two recorded models on two streams of one process, without and with giveway's scheduler in
//! the process.
//!
//! The urgent model has priority 10 and requests that arrive at random; the batch model has priority 0 and runs back to
//! back. A block has these modes: each model alone and both without the library; both with it, under a policy in the process
//! (`XSCHED_SCHEDULER=LCL`). Requests of a block arrive at the same moments in all modes. Every inference's digest is
//! checked, and the library's own counts must cover every command.

mod figures;
mod worker;

use crate::WrongInput;
use crate::calibrate;
use crate::compare::interleave;
use crate::corun::High;
use crate::files::{RunFiles, ensure_writable, read, read_json, scratch, write_json};
use crate::library_log::check_launched;
use crate::process::{LIBRARY, Program, beside, clear_environment, ensure_beside, this_program};
use crate::replay::{self, Record};
use crate::session::repeat;
use crate::simulated::{DeviceStats, GpuArgs, Measured, gpu_sim};
use crate::trace::Trace;
use crate::traffic::Traffic;
use anyhow::{Context, Result, ensure};
use clap::Args;
use figures::Figures;
use protocol::policy::PolicyKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use worker::{Model, Part};
pub use worker::{PartArgs, run as run_part};

/// The names of the models in a run.
const ROLES: [&str; 2] = ["high", "low"];
const HIGH: usize = 0;
const LOW: usize = 1;

/// Options of `xbench one-process`.
#[derive(Debug, Clone, Args)]
pub struct OneProcessArgs {
    /// The urgent model and its requests per second
    #[arg(long, value_name = "TRACE@RATE", default_value = "examples/traces/resnet18_bs1.json@20")]
    high: High,
    /// The batch model
    #[arg(long, value_name = "TRACE", default_value = "examples/traces/resnet50_bs256.json")]
    low: PathBuf,
    /// Policy in the process
    #[arg(long, value_name = "POLICY", default_value = "HPF", value_parser = policy)]
    policy: PolicyKind,
    #[command(flatten)]
    gpu: GpuArgs,
    /// Memory traffic of the kernels while they run
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Traffic::None)]
    traffic: Traffic,
    /// Blocks, each with all modes; a figure is the median of theirs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    blocks: u32,
    /// Seconds in which requests arrive, in each mode of each block
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = replay::seconds)]
    seconds: f64,
    /// Seed of the arrivals: the same number, the same moments
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn policy(name: &str) -> Result<PolicyKind, WrongInput> {
    PolicyKind::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = PolicyKind::ALL.iter().map(|policy| policy.name()).collect();
        WrongInput(format!("no policy has this name (there are {})", names.join(", ")))
    })
}

/// Which models run, and whether the library schedules them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Alone(usize),
    Native,
    Scheduled,
}

impl Mode {
    const ALL: [Self; 4] = [Self::Alone(HIGH), Self::Native, Self::Scheduled, Self::Alone(LOW)];

    fn runs(self, model: usize) -> bool {
        !matches!(self, Self::Alone(only) if only != model)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Alone(HIGH) => "urgent model alone",
            Self::Alone(_) => "batch model alone",
            Self::Native => "both, without giveway",
            Self::Scheduled => "both, with giveway",
        }
    }
}

/// A run that counts.
#[derive(Debug, Default)]
struct Outcome {
    /// The record of each model; `None` if it did not run.
    records: [Option<Record>; 2],
    suspensions: u64,
}

/// Runs the command. Figures do not change the exit code.
///
/// # Errors
/// Something could not be measured, or a check of the work fails.
pub fn run(args: &OneProcessArgs) -> Result<ExitCode> {
    let traces = [&args.high.trace, &args.low];
    let loaded = traces.map(|path| Trace::load(path));
    let [high, low] = loaded;
    let loaded = [high?, low?];
    let this = this_program()?;
    ensure_beside(&this, args.gpu.needed().filter(|name| **name != "xserver"))?;
    args.json.as_deref().map_or(Ok(()), ensure_writable)?;
    let card = args.gpu.real.then(|| calibrate::card(&this)).transpose()?;
    let gpu = Measured::new(&args.gpu, card);
    let outcomes = interleave(&Mode::ALL, args.blocks as usize, |block, &mode| {
        let name = format!("one-process, block {}, {}", block + 1, mode.name());
        let models = [HIGH, LOW].map(|model| {
            mode.runs(model).then(|| Model {
                name: ROLES[model].to_owned(),
                trace: traces[model].clone(),
                rate: (model == HIGH).then_some(args.high.rate),
                priority: if model == HIGH { 10 } else { 0 },
            })
        });
        let seed = args.seed + block as u64;
        let models = models.into_iter().flatten().collect();
        let part = Part { models, seconds: args.seconds, seed, traffic: args.traffic };
        let outcome = measure(&this, args, mode, &part, &loaded).context(name.clone())?;
        eprintln!("xbench: {name}: {}", figures::summary(&outcome));
        anyhow::Ok(outcome)
    })?;
    let figures = Figures::new(args, gpu, &loaded, &outcomes)?;
    print!("{}", figures.table());
    if let Some(path) = &args.json {
        write_json(path, &figures)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a run, and repeats it if it does not count.
fn measure(
    this: &Path,
    args: &OneProcessArgs,
    mode: Mode,
    part: &Part,
    traces: &[Trace; 2],
) -> Result<Outcome> {
    repeat("one-process", || {
        let scratch = scratch()?;
        let files = RunFiles(scratch.path());
        write_json(&files.session(), part)?;
        let GpuArgs { real, cu_model, save_us, allow_late } = args.gpu;
        let mut command = match real {
            true => Command::new(this),
            false => gpu_sim(this, cu_model, save_us, &files.stats(), None),
        };
        clear_environment(&mut command);
        command.arg("one-process-part").arg("--dir").arg(files.0);
        if mode == Mode::Scheduled {
            command.arg("--shim").arg(beside(this, LIBRARY)).arg("--policy").arg(args.policy.name());
        }
        run_to_end(command, args.seconds)?;
        let objection = match real {
            true => calibrate::objection(this)?,
            false => read_json::<DeviceStats>(&files.stats())?.objection(),
        };
        match objection.filter(|_| !allow_late) {
            Some(why) => Ok(Err(why)),
            None => judge(files, mode, traces).map(Ok),
        }
    })
}

fn run_to_end(command: Command, seconds: f64) -> Result<()> {
    let mut program = Program::start("one-process", command)?;
    // Every request is served, however long that takes; a queue that only grows is no measurement.
    program.expect("done", Duration::from_secs_f64(3.0 * seconds) + crate::process::PATIENCE)?;
    program.end().map(drop)
}

/// Checks the work of a run.
fn judge(files: RunFiles<'_>, mode: Mode, traces: &[Trace; 2]) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut least = 0;
    for model in [HIGH, LOW].into_iter().filter(|model| mode.runs(*model)) {
        let record: Record = read_json(&files.record(ROLES[model]))?;
        least += record.check(&format!("the {} model", ROLES[model]), traces[model].commands.len())?;
        outcome.records[model] = Some(record);
    }
    if mode == Mode::Scheduled {
        outcome.suspensions = check_launched(&read(&files.log("library"))?, "both models", least)?;
        ensure!(outcome.suspensions > 0, "the library suspended no queue, so the run shows no scheduling");
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_run_one_model_or_both() {
        let runs = Mode::ALL.map(|mode| [HIGH, LOW].map(|model| mode.runs(model)));
        assert_eq!(runs, [[true, false], [true; 2], [true; 2], [false, true]]);
    }

    #[test]
    fn unknown_policy_is_refused() {
        let parse = |policy: &str| {
            crate::tests::parse::<OneProcessArgs>(&["--high=a@1", "--low=b", "--policy", policy])
        };
        assert!(parse("HPF").is_ok());
        assert!(parse("NOTHING").is_err());
    }
}
