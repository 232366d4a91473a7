//! `xbench launch-path`: measures the time that the preloaded library adds to a launch, and to a launch with
//! a synchronization.
//!
//! A process is started either with the library or without it, so two workers run at the same time, and short
//! rounds alternate between them, on one processor: both see the same machine. A figure is the median over rounds of the
//! difference within a round. The runtime under both does nothing (see `null-runtime/`), so that only the
//! path to it takes time. With `--real` the machine's own HIP follows, where the ratio counts.
//!
//! A round that bypassed the library would look excellent. Therefore each worker reports the file of each
//! function that it calls, and at its end the counters of the library's hooks and queues must equal the calls
//! that its worker made. The number of markers, which the runtime counts, shows whether the launch window was
//! limited, and the server's list shows how many processes are connected.

mod code_object;
mod outcome;
mod protocol;
mod setup;
mod target;
mod worker;

use crate::calibrate;
use crate::files::{scratch, write};
use crate::process;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use outcome::Outcome;
use protocol::{Kind, On, Round};
use setup::{Condition, Measured, Setup};
use std::path::{Path, PathBuf};
use target::Runtime;

/// The null runtime `libamdhip64.so.5`, which the build script compiles from `null-runtime/`.
const NULL_RUNTIME: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libamdhip64.so.5"));

/// Options of `xbench launch-path`.
#[derive(Debug, Clone, Args)]
pub struct LaunchPathArgs {
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
    /// Measure on this machine's own HIP runtime as well (under gpu-sim run where there is no GPU)
    #[arg(long)]
    real: bool,
    /// Calls in a round on the runtime that does nothing; a real one gets a twentieth, at most 1000, and a
    /// round of deferred launches at most 3000, fewer than a queue holds
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    calls: u32,
    /// Rounds with the library, and as many without it, made an even number; on a real runtime made an even number for each
    /// of twelve pairs of processes
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(3..=100_000))]
    rounds: u32,
    /// The preloaded library; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    shim: Option<PathBuf>,
    /// The server that is started for the measurement; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    xserver: Option<PathBuf>,
    /// Start no server: the scheduler in the process decides instead
    #[arg(long, conflicts_with = "xserver")]
    local: bool,
    /// Be a worker: make the calls that standard input asks for.
    #[arg(long, hide = true, value_name = "RUNTIME")]
    worker: Option<Runtime>,
}

/// Runs the command.
///
/// # Errors
/// Something could not be measured, or a limit is missed.
pub fn run(args: LaunchPathArgs) -> Result<()> {
    if let Some(runtime) = &args.worker {
        return target::serve(runtime);
    }
    let shim = beside(args.shim.as_deref(), process::LIBRARY, "shim")?;
    let xserver = match args.local {
        true => None,
        false => Some(beside(args.xserver.as_deref(), "xserver", "xserver")?),
    };
    let directory = scratch()?;
    let null = directory.path().join("libamdhip64.so.5");
    write(&null, NULL_RUNTIME)?;
    let runtime = Runtime::Null(null);
    let setup = Setup { library: &shim, runtime: &runtime, xserver: xserver.as_deref() };
    let rounds = args.rounds as usize;
    let card = args.real.then(|| calibrate::card(&process::this_program()?)).transpose()?;
    let outcome = Outcome::new(&Figures::measure(setup, args.calls, rounds, args.real)?, card, !args.local)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&outcome)?);
    } else {
        print!("{}", outcome.table());
    }
    let missed = outcome.missed();
    ensure!(missed == 0, "{missed} of the limits missed");
    Ok(())
}

/// Returns the path of a file: the given one, or beside this program.
fn beside(given: Option<&Path>, name: &str, package: &str) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => process::beside(&process::this_program()?, name),
    };
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) => bail!(
            "{}: {error}; build it with: cargo build --release -p {package} (or name it with --{package})",
            path.display()
        ),
    }
}

#[derive(Debug)]
struct Figures {
    /// Launches, launches with synchronizations.
    forward: Measured,
    /// The same, on the default stream and on a created one; short rounds.
    direct: Measured,
    /// Launches on both streams, launches with synchronizations, short rounds.
    contended: Measured,
    /// Launches and short rounds, with markers in batches.
    batches: Measured,
    deferred: Measured,
    /// Launches while somebody records, which needs a server.
    traced: Option<Measured>,
    /// The machine's own HIP.
    real: Option<Real>,
}

/// Calls on the machine's own HIP.
#[derive(Debug)]
struct Real {
    /// Launches, launches with synchronizations, kernels in a row.
    direct: Measured,
    /// Launches with synchronizations, kernels in a row.
    contended: Measured,
}

/// Pairs of processes, one after the other, for the calls on a real runtime.
const PROCESSES: usize = 12;
/// The number of commands between two markers where it is fixed.
const BATCH: u32 = 8;
/// A number of launches that a queue holds.
const DEFERRED: u32 = 3000;

impl Figures {
    fn measure(setup: Setup<'_>, calls: u32, rounds: usize, real: bool) -> Result<Self> {
        let round = |kind, on| Round { kind, on, calls };
        let (launch, launch_sync) = (round(Kind::Launch, On::Default), round(Kind::LaunchSync, On::Default));
        let (launch_own, launch_sync_own) = (round(Kind::Launch, On::Own), round(Kind::LaunchSync, On::Own));
        let short = round(Kind::ShortRounds, On::Default);
        let measure = |condition, plan: &[Round]| setup.measure(condition, plan, rounds);
        let deferred = |on| Round { calls: calls.min(DEFERRED), ..round(Kind::Launch, on) };
        Ok(Self {
            forward: measure(Condition::Forward, &[launch, launch_sync])?,
            direct: measure(Condition::Direct, &[launch, launch_sync, launch_own, launch_sync_own, short])?,
            contended: measure(Condition::Contended(None), &[launch, launch_own, launch_sync, short])?,
            batches: measure(Condition::Contended(Some(BATCH)), &[launch, short])?,
            deferred: measure(Condition::Deferred, &[deferred(On::Default), deferred(On::Own)])?,
            traced: match setup.xserver {
                Some(_) => Some(measure(Condition::Traced, &[launch])?),
                None => None,
            },
            real: match real {
                true => Some(Self::real(setup, calls, rounds).context("on this machine's HIP runtime")?),
                false => None,
            },
        })
    }

    fn real(setup: Setup<'_>, calls: u32, rounds: usize) -> Result<Real> {
        // A runtime queues so many launches before it makes the caller wait.
        let plan = [
            (Kind::Launch, (calls / 20).clamp(1, 1000)),
            (Kind::LaunchSync, (calls / 100).clamp(1, 200)),
            (Kind::InARow, (calls / 20).clamp(1, 1000)),
        ];
        let plan = plan.map(|(kind, calls)| Round { kind, on: On::Own, calls });
        let setup = Setup { runtime: &Runtime::Real, ..setup };
        Ok(Real {
            direct: setup.measure_in(PROCESSES, Condition::Direct, &plan, rounds)?,
            contended: setup.measure_in(PROCESSES, Condition::Contended(None), &plan[1..], rounds)?,
        })
    }
}
