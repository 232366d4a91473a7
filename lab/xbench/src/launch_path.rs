//! `xbench launch-path`: what the preloaded library adds to a launch, and to a launch with a synchronization.
//!
//! A process either has the library in front of it or not, so two workers live at the same time, and short rounds
//! alternate between them: both see the same machine. A figure is the median over rounds of the difference within a
//! round. The runtime under both does nothing (see `null-runtime/`), so that what is left is the way to it; with
//! `--real` the machine's own HIP follows, where it is a ratio that counts.
//!
//! A round that went past the library would look wonderful. Therefore each worker says in which file the functions lie
//! that it calls, and at its end the counters of the library's hooks and queues must equal the calls that its worker
//! made. Marks, which the runtime counts, show whether the window was limited, and the kernel's list of sockets who is
//! connected.

mod code;
mod null;
mod outcome;
mod scenario;
mod server;
mod target;
mod worker;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use outcome::Outcome;
use scenario::{Measured, Parts, Scenario, Scheduler};
use std::path::{Path, PathBuf};
use target::Runtime;
use worker::{Kind, On, Round};

/// Options of `xbench launch-path`.
#[derive(Debug, Clone, Args)]
pub struct LaunchPathArgs {
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
    /// Measure on this machine's own HIP runtime as well (under gpu-sim run where there is no GPU)
    #[arg(long)]
    real: bool,
    /// Calls in a round on the runtime that does nothing; a real one gets a twentieth, at most 1000, and a round of
    /// deferred launches at most 3000, which are fewer than a queue holds
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    calls: u32,
    /// Rounds for each worker
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(3..=100_000))]
    rounds: u32,
    /// The preloaded library; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    shim: Option<PathBuf>,
    /// The server that is started for the measurement; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    xserver: Option<PathBuf>,
    /// Start no server: nobody is connected, and what a server would decide is decided in the process
    #[arg(long, conflicts_with = "xserver")]
    local: bool,
    /// Be a worker: make calls as standard input says.
    #[arg(long, hide = true, value_name = "RUNTIME")]
    worker: Option<Runtime>,
}

/// Runs the command. An error if something could not be measured, or if a limit is missed.
pub fn run(args: LaunchPathArgs) -> Result<()> {
    if let Some(runtime) = &args.worker {
        return target::serve(runtime);
    }
    let shim = beside(args.shim.as_deref(), crate::child::LIBRARY, "shim")?;
    let xserver = match args.local {
        true => None,
        false => Some(beside(args.xserver.as_deref(), "xserver", "xserver")?),
    };
    let scheduler = xserver.as_deref().map_or(Scheduler::Local, Scheduler::Server);
    let null = null::NullRuntime::install()?;
    let runtime = Runtime::Null(null.path().to_owned());
    let parts = Parts { library: &shim, runtime: &runtime, scheduler };
    let rounds = args.rounds as usize;
    let outcome = Outcome::new(&Figures::measure(parts, args.calls, rounds, args.real)?, !args.local)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&outcome)?);
    } else {
        print!("{}", outcome.table());
    }
    let missed = outcome.missed();
    ensure!(missed == 0, "{missed} of the limits missed");
    Ok(())
}

/// A file: where it was said to be, or beside this program.
fn beside(given: Option<&Path>, name: &str, package: &str) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => crate::child::beside(&crate::child::this_program()?, name),
    };
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) => bail!(
            "{}: {error}; build it with: cargo build --release -p {package} (or name it with --{package})",
            path.display()
        ),
    }
}

/// Everything that is measured.
#[derive(Debug)]
struct Figures {
    /// Launches, launches with synchronizations.
    forward: Measured,
    /// The same, on the default stream and on the worker's own.
    direct: Measured,
    /// Launches on both streams.
    contended: Measured,
    /// Launches, with marks in batches.
    batches: Measured,
    deferred: Measured,
    /// Launches, launches with synchronizations, on the machine's own HIP.
    real: Option<Measured>,
}

/// Commands from one mark to the next where they are fixed.
const BATCH: u32 = 8;
/// Fewer launches than a queue holds.
const DEFERRED: u32 = 3000;

impl Figures {
    fn measure(parts: Parts<'_>, calls: u32, rounds: usize, real: bool) -> Result<Self> {
        let round = |kind, on| Round { kind, on, calls };
        let (launch, launch_sync) = (round(Kind::Launch, On::Default), round(Kind::LaunchSync, On::Default));
        let (launch_own, launch_sync_own) = (round(Kind::Launch, On::Own), round(Kind::LaunchSync, On::Own));
        let measure = |scenario, plan: &[Round]| parts.measure(scenario, plan, rounds);
        let deferred = |on| Round { calls: calls.min(DEFERRED), ..round(Kind::Launch, on) };
        Ok(Self {
            forward: measure(Scenario::Forward, &[launch, launch_sync])?,
            direct: measure(Scenario::Direct, &[launch, launch_sync, launch_own, launch_sync_own])?,
            contended: measure(Scenario::Contended(None), &[launch, launch_own])?,
            batches: measure(Scenario::Contended(Some(BATCH)), &[launch])?,
            deferred: measure(Scenario::Deferred, &[deferred(On::Default), deferred(On::Own)])?,
            real: match real {
                true => Some(Self::real(parts, calls, rounds).context("on this machine's HIP runtime")?),
                false => None,
            },
        })
    }

    fn real(parts: Parts<'_>, calls: u32, rounds: usize) -> Result<Measured> {
        // A runtime lets so many launches wait for the device before it makes the caller wait.
        let plan =
            [(Kind::Launch, (calls / 20).clamp(1, 1000)), (Kind::LaunchSync, (calls / 100).clamp(1, 200))]
                .map(|(kind, calls)| Round { kind, on: On::Own, calls });
        Parts { runtime: &Runtime::Real, ..parts }.measure(Scenario::Direct, &plan, rounds)
    }

    /// Calls on the runtime that does nothing, made with the library and counted by it.
    fn counted(&self) -> u64 {
        [&self.forward, &self.direct, &self.contended, &self.batches, &self.deferred]
            .map(|measured| measured.counted)
            .iter()
            .sum()
    }
}
