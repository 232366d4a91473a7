//! `xbench policy-sim`: simulates a workload under scheduling policies.
//!
//! A discrete-event simulation of programs, devices and the scheduler, in which the policies themselves
//! decide: the crate `policies`, as the server and the preloaded library use it. Everything else is modelled
//! (`docs/policy-sim.md`). It reads no clock and calls no mathematics of the machine, so that the same seed
//! gives the same bytes everywhere.
//!
//! # Modules
//! Input: `workload` (a file), `builtin`, `case` (a workload with its files), `hints` · random numbers:
//! `distribution`, `arrivals`, `request` · simulation: `events`, `device`, `scheduler` (the connection to the
//! policies), `simulation` · output: `figures`, `plot`, `account` (of the device's time).

mod account;
mod arrivals;
mod builtin;
mod case;
mod device;
mod distribution;
mod events;
mod figures;
mod hints;
mod plot;
mod request;
mod scheduler;
mod simulation;
mod workload;

#[cfg(test)]
mod tests;

pub(crate) use arrivals::Arrivals;
pub(crate) use case::{Case, Instance};
pub(crate) use distribution::Distribution;
pub(crate) use hints::Announce;
pub(crate) use scheduler::{Policy, Scope};
pub(crate) use simulation::{Run, Setting};
pub(crate) use workload::{Client, Workload};

use account::Collected;
use builtin::WORKLOADS;
use figures::{Figures, PolicyFigures};
use workload::MOST_SECONDS;

use crate::files::{ensure_writable, write};
use crate::{WrongInput, ensure_in};
use anyhow::{Context, Result};
use clap::{Args, value_parser};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Options of `xbench policy-sim`.
#[derive(Debug, Clone, Args)]
pub struct PolicySimArgs {
    /// A built-in workload (--list), or a TOML or JSON file (docs/policy-sim.md)
    #[arg(value_name = "WORKLOAD", required_unless_present_any = ["list", "show"])]
    workload: Option<String>,
    /// Policies with their parameters, as in 'HPF,SLO target-ms=50'; or all
    #[arg(long, value_name = "P,...|all", value_delimiter = ',', default_value = "all")]
    policy: Vec<String>,
    /// Set a parameter of all policies that have it; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Milliseconds of waiting after which a client runs briefly, under policies that use priorities; 0 means
    /// never
    #[arg(long, value_name = "MS", default_value_t = 0, allow_negative_numbers = true)]
    starvation_ms: u64,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// Simulated time; the default is that of the workload
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<f64>,
    /// Scheduled entities: processes with all their queues, or the queues of one process
    #[arg(long, value_name = "ENTITIES", default_value = "global")]
    scheduler: Scope,
    /// The preemption level
    #[arg(long, value_name = "1|3", value_parser = value_parser!(u8).range(1..=3), allow_negative_numbers = true)]
    level: Option<u8>,
    /// Time for which an idle queue still counts as ready, microseconds
    #[arg(long, value_name = "US", allow_negative_numbers = true)]
    linger_us: Option<f64>,
    /// Device time of evicting a kernel, microseconds
    #[arg(long, value_name = "US", allow_negative_numbers = true)]
    save_us: Option<f64>,
    /// Additional run time of an evicted kernel, microseconds
    #[arg(long, value_name = "US", allow_negative_numbers = true)]
    restore_us: Option<f64>,
    /// Another parameter of the model, as in a file; can be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    model: Vec<String>,
    /// Account for the device's time: who used it, and why nobody did. Needs a workload with one device and
    /// the global scheduler
    #[arg(long)]
    account: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Write a plot to this file: best-effort throughput over critical p99
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// List the built-in workloads
    #[arg(long, conflicts_with = "workload")]
    list: bool,
    /// Print the file of a built-in workload
    #[arg(long, value_name = "WORKLOAD", conflicts_with_all = ["list", "workload"])]
    show: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// [`WrongInput`] for an invalid workload, policy or value; otherwise a file could not be written.
pub fn run(args: &PolicySimArgs) -> Result<ExitCode> {
    if args.list {
        return print(&list()?);
    }
    if let Some(name) = &args.show {
        let text = builtin::find(name)
            .ok_or_else(|| WrongInput(format!("no workload {name:?} is built in; --list shows them")))?;
        return print(text);
    }
    let case = args.case()?;
    let chosen = args.policies()?;
    let scope = args.scheduler;
    if args.account {
        account::check(&case, scope)?;
    }
    args.plot.as_deref().map_or(Ok(()), ensure_writable)?;
    let start = Instant::now();
    let mut accounts = args.account.then(Collected::default);
    let alone = alone(&case, args.seed, accounts.as_mut());
    eprintln!("xbench: each client alone: {:.2} s", start.elapsed().as_secs_f64());
    let instances = case.instances();
    let mut policies = Vec::new();
    for policy in chosen {
        let setting = Setting { case: &case, instances: &instances, policy: &policy, scope, seed: args.seed };
        let start = Instant::now();
        let run = match &mut accounts {
            Some(accounts) => accounts.run(&setting),
            None => setting.run(),
        };
        let seconds = start.elapsed().as_secs_f64();
        let figures = PolicyFigures::new(&case, &policy, &instances, &run, &alone);
        // The clock is only read for this line, which is not part of the figures.
        eprintln!(
            "xbench: {}: {} events in {seconds:.3} s, {:.2} million a second",
            figures.policy,
            run.events,
            run.events as f64 / seconds / 1e6
        );
        policies.push(figures);
    }
    let figures = Figures {
        workload: case.name.clone(),
        about: case.workload.about.clone(),
        seed: args.seed,
        duration_s: case.workload.duration_s,
        scheduler: scope,
        model: case.workload.model.clone(),
        policies,
        account: accounts.map(Collected::finish),
    };
    if let Some(path) = &args.plot {
        let picture = plot::svg(&figures).ok_or_else(|| {
            let why = "a plot needs a critical client and another client that complete requests";
            WrongInput(format!("{}: {why}", figures.workload))
        })?;
        write(path, &picture)?;
    }
    match args.json {
        true => print(&(serde_json::to_string_pretty(&figures)? + "\n")),
        false => print(&figures.table()),
    }
}

/// Writes to standard output. A reader that has ended is no error.
fn print(text: &str) -> Result<ExitCode> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("cannot print"),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn list() -> Result<String, WrongInput> {
    let widest = WORKLOADS.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |name: &str| Ok(format!("{name:<widest$}  {}\n", Case::load(name)?.workload.about));
    WORKLOADS.iter().map(|(name, _)| line(name)).collect()
}

impl PolicySimArgs {
    fn case(&self) -> Result<Case, WrongInput> {
        Case::load_with(self.workload.as_deref().unwrap_or_default(), |workload| self.change(workload))
    }

    fn change(&self, workload: &mut Workload) -> Result<(), WrongInput> {
        let model = &mut workload.model;
        model.level = self.level.unwrap_or(model.level);
        for (given, value) in [
            (self.linger_us, &mut model.linger_us),
            (self.save_us, &mut model.save_us),
            (self.restore_us, &mut model.restore_us),
        ] {
            *value = given.unwrap_or(*value);
        }
        model.check()?;
        for setting in &self.model {
            let (name, value) = setting
                .split_once('=')
                .ok_or_else(|| WrongInput(format!("--model {setting:?} is not a name=value")))?;
            model.set(name, value).map_err(|why| why.within("--model"))?;
        }
        if let Some(seconds) = self.duration {
            ensure_in("--duration", seconds, 1e-3, MOST_SECONDS)?;
            workload.duration_s = seconds;
        }
        Ok(())
    }

    fn policies(&self) -> Result<Vec<Policy>, WrongInput> {
        let mut policies = Vec::new();
        for name in &self.policy {
            if name == "all" {
                policies.extend(Policy::all());
            } else {
                policies.push(Policy::by_name(name)?);
            }
        }
        for setting in &self.set {
            let (name, value) = scheduler::assignment(setting).map_err(|why| why.within("--set"))?;
            if !policies.iter().any(|policy| policy.has(name)) {
                let known: BTreeSet<_> =
                    policies.iter().flat_map(Policy::parameters).map(|(name, _)| name).collect();
                let known = match known.is_empty() {
                    true => "none at all".to_owned(),
                    false => Vec::from_iter(known).join(", "),
                };
                return Err(WrongInput(format!(
                    "--set: no policy here has a parameter {name:?} (there is {known})"
                )));
            }
            for policy in policies.iter_mut().filter(|policy| policy.has(name)) {
                policy.set(name, value).map_err(|why| why.within("--set"))?;
            }
        }
        let starvation = (self.starvation_ms > 0).then(|| Duration::from_millis(self.starvation_ms));
        policies.iter_mut().for_each(|policy| policy.set_starvation_limit(starvation));
        Ok(policies)
    }
}

/// Returns the requests that each client completes alone, in the order of [`Case::instances`]. In a closed
/// loop all clients of a group complete as many, so only the first is simulated. Adds to the accounts, if there
/// are any.
fn alone(case: &Case, seed: u64, mut accounts: Option<&mut Collected>) -> Vec<u64> {
    let mut all: Vec<u64> = Vec::new();
    let mut last = None;
    for (number, instance) in case.instances().into_iter().enumerate() {
        let again = last == Some(instance.group) && case.client(instance).arrivals.is_closed();
        let done = all.last().copied().filter(|_| again).unwrap_or_else(|| {
            let (policy, scope, instances) = (&Policy::for_one(), Scope::Global, &[instance]);
            let setting = Setting { case, instances, policy, scope, seed };
            let run = match &mut accounts {
                Some(accounts) => accounts.run_alone(&setting, number),
                None => setting.run(),
            };
            run.clients.iter().map(|client| client.latencies.len() as u64).sum()
        });
        if let Some(accounts) = accounts.as_mut().filter(|_| again) {
            accounts.repeat_alone();
        }
        last = Some(instance.group);
        all.push(done);
    }
    all
}
