//! `xbench scenario`: several programs on one simulated GPU, under one policy after the other.
//!
//! Modes in interleaved blocks: each program alone, all together as they are, and all together with the preloaded library
//! under `xserver` with each policy. Requests of a block arrive at the same moments in all modes; every request is served,
//! and its latency counts from its arrival. Programs without a rate run back to back until the last request is served.
//!
//! What makes a figure worth something is checked in each run: the device kept up with its own time (else the run is
//! repeated), the host has computed every digest a second time, and with the library its own count covers every command.
//! Figures do not decide the exit code; limits are told as met or missed.

mod cast;
mod figures;
mod prepreempt;
mod session;

pub use figures::Figures;
pub use prepreempt::{PrepreemptArgs, run as run_prepreempt};
pub use session::{PartArgs, run as run_part};

use crate::WrongInput;
use crate::compare::interleave;
use crate::corun::CuModel;
use crate::corun::device::{DeviceStats, ShimSummary, complaints};
use crate::replay::digest::{Digest, mixes_of};
use crate::replay::{self, Record};
use crate::rtc::Scratch;
use crate::trace::Trace;
use anyhow::{Context, Result, bail, ensure};
use cast::Scene;
use clap::Args;
use figures::{Mode, Outcome};
use session::{Files, Scheduled, Spec};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// A word behind a policy: programs with preparations tell of each request when it arrives.
const HINT: &str = "+hint";
/// A word behind a policy, followed by T/B: all programs have at most T commands in flight, and synchronize every B.
const WINDOW: &str = "+window=";
/// How often a run is repeated in which the device was late.
const REPEATS: usize = 3;
/// Most seconds that a program without a rate runs alone: it needs no more to show its rate.
const ALONE_SECONDS: f64 = 10.0;

/// Options of `xbench scenario`.
#[derive(Debug, Clone, Args)]
pub struct ScenarioArgs {
    /// Which scenarios; --list tells them
    #[arg(value_name = "NAME", required_unless_present = "list")]
    names: Vec<String>,
    /// List the scenarios and end
    #[arg(long)]
    list: bool,
    /// Policies with their parameters, as in 'SLO target-ms=50', instead of those that the scenario is for; `+window=T/B`
    /// behind one gives all programs a fixed window, of T commands in flight and B between two synchronization points
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    policy: Vec<String>,
    /// Preemption level
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3))]
    level: u8,
    #[command(flatten)]
    common: Common,
    /// Write the figures there as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What all such measurements have.
#[derive(Debug, Clone, Args)]
struct Common {
    /// What it costs the simulated GPU to save what runs on queues that come off, and to bring that back, in microseconds
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    save_us: u32,
    /// Blocks, each with all modes; a figure is the median of theirs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    blocks: u32,
    /// How long requests arrive in each mode, instead of what the scenario says
    #[arg(long, value_name = "S", value_parser = replay::seconds)]
    seconds: Option<f64>,
    /// Which arrivals: the same number, the same moments
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How the simulated GPU shares its compute units
    #[arg(long, value_enum, default_value_t = CuModel::Shared)]
    cu_model: CuModel,
    /// Where the recorded models lie
    #[arg(long, value_name = "DIRECTORY", default_value = "examples/traces")]
    traces: PathBuf,
    /// Count runs in which the simulated GPU was late as well. For tests, which look at the work and never at times
    #[arg(long, hide = true)]
    allow_late: bool,
}

/// Runs the command.
///
/// # Errors
/// Something could not be measured, or a check of the work fails.
pub fn run(args: &ScenarioArgs) -> Result<ExitCode> {
    let scenes = cast::scenes();
    if args.list {
        for scene in &scenes {
            println!("{:<18} {}", scene.name, scene.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let find = |name: &String| {
        scenes.iter().find(|scene| scene.name == name).ok_or_else(|| {
            let names: Vec<_> = scenes.iter().map(|scene| scene.name).collect();
            WrongInput(format!("no scenario {name:?} (there are {})", names.join(", ")))
        })
    };
    let wanted = args.names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let this = programs()?;
    let mut all = Vec::new();
    for scene in wanted {
        let figures = Bench::new(&args.common, args.level, &args.policy, &this, scene)?.measure()?;
        println!("{}", figures.table());
        all.push(figures);
    }
    if let Some(path) = &args.json {
        write_json(path, &all)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write_json(path: &Path, figures: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(figures)? + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// This program, beside which all others lie.
fn programs() -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    for name in ["xserver", "libshimhip.so", "gpu-sim"] {
        ensure!(
            this.with_file_name(name).is_file(),
            "xbench needs {name} beside this program; build all of them: cargo build --release --workspace"
        );
    }
    Ok(this)
}

struct Bench<'a> {
    args: &'a Common,
    level: u8,
    this: &'a Path,
    scene: &'a Scene,
    traces: BTreeMap<String, Trace>,
    policies: Vec<String>,
    seconds: f64,
}

impl<'a> Bench<'a> {
    /// With these policies, or without any with those that the scenario is for.
    fn new(args: &'a Common, level: u8, chosen: &[String], this: &'a Path, scene: &'a Scene) -> Result<Self> {
        let load = |part: &cast::Part| -> Result<_> {
            let trace = Trace::load(&args.traces.join(format!("{}.json", part.trace)))?;
            Ok((part.trace.clone(), trace))
        };
        let traces = scene.parts.iter().map(load).collect::<Result<_>>()?;
        let policies = match chosen.is_empty() {
            true => scene.policies.iter().map(|policy| (*policy).to_owned()).collect(),
            false => chosen.to_vec(),
        };
        for policy in &policies {
            window(policy)?;
            let name = policy.split_whitespace().next().unwrap_or_default();
            policies::registry::by_name(name).map_err(WrongInput)?;
        }
        Ok(Self {
            args,
            level,
            this,
            scene,
            traces,
            policies,
            seconds: args.seconds.unwrap_or(scene.seconds),
        })
    }

    fn measure(&self) -> Result<Figures> {
        let parts = &self.scene.parts;
        let mut modes: Vec<Mode> = (0..parts.len()).map(Mode::Alone).collect();
        modes.push(Mode::Native);
        modes.extend(self.policies.iter().cloned().map(Mode::Policy));
        let results =
            interleave(&modes, self.args.blocks as usize, |block, mode| self.valid_run(mode, block))?;
        let device_us = parts.iter().map(|part| self.traces[&part.trace].device_us() * part.scale).collect();
        Figures::new(
            self.scene,
            self.args.cu_model.name(),
            self.level,
            self.seconds,
            device_us,
            modes.into_iter().zip(results).collect(),
        )
    }

    /// One mode of one block, again if the device was late.
    fn valid_run(&self, mode: &Mode, block: usize) -> Result<Outcome> {
        let name = format!("{}, block {}, {}", self.scene.name, block + 1, mode.name(self.scene));
        for _ in 0..=REPEATS {
            let scratch = Scratch::new().context("no scratch directory")?;
            let files = Files(&scratch.path);
            self.session(mode, block, &files).with_context(|| name.clone())?;
            let stats = DeviceStats::parse(&read(&files.stats())?)?;
            if !stats.valid && !self.args.allow_late {
                let late = stats.late_us.p99;
                eprintln!(
                    "xbench: {name}: the simulated GPU was late (p99 {late:.0} µs), so the run does not count"
                );
                continue;
            }
            let outcome = self.judge(mode, &name, &files).with_context(|| name.clone())?;
            eprintln!("xbench: {name}: {}", outcome.words(self.scene));
            return Ok(outcome);
        }
        bail!(
            "{name}: the simulated GPU was late {} times; is the machine busy with other work?",
            REPEATS + 1
        )
    }

    fn session(&self, mode: &Mode, block: usize, files: &Files<'_>) -> Result<()> {
        let scheduled = match mode {
            Mode::Policy(policy) => Some(Scheduled {
                shim: self.this.with_file_name("libshimhip.so"),
                server: self.this.with_file_name("xserver"),
                policy: server_words(policy),
                level: self.level,
                hint: policy.split_whitespace().any(|word| word == HINT),
                window: window(policy)?,
            }),
            Mode::Alone(_) | Mode::Native => None,
        };
        let parts: Vec<_> = mode.parts(self.scene).map(|place| self.scene.parts[place].clone()).collect();
        let closed = parts.iter().all(|part| part.load.is_none());
        let alone = matches!(mode, Mode::Alone(_));
        let spec = Spec {
            traces: std::path::absolute(&self.args.traces)?,
            seconds: if closed && alone { self.seconds.min(ALONE_SECONDS) } else { self.seconds },
            // Each program has the arrivals that it has beside the others.
            seed: self
                .args
                .seed
                .wrapping_add(1000 * block as u64 + mode.parts(self.scene).next().unwrap_or(0) as u64),
            parts,
            scheduled,
        };
        std::fs::write(files.spec(), serde_json::to_string(&spec)?).context("cannot write the scenario")?;
        let mut command = Command::new(self.this.with_file_name("gpu-sim"));
        // What the processes are preloaded with and told is the mode's choice, not that of the shell around us.
        for (name, _) in std::env::vars_os() {
            if name == "LD_PRELOAD" || name.as_bytes().starts_with(b"XSCHED_") {
                command.env_remove(name);
            }
        }
        let save_us = self.args.save_us.to_string();
        command.args(["run", "--cu-model", self.args.cu_model.name()]);
        command.args(["--save-us", &save_us, "--restore-us", &save_us, "--stats"]);
        command
            .arg(files.stats())
            .arg("--")
            .arg(self.this)
            .args(PartArgs::words(files.0))
            .stdin(Stdio::null());
        let output = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let reason = text.trim().lines().last().unwrap_or("no reason given");
            bail!("{}", reason.strip_prefix("xbench: ").unwrap_or(reason));
        }
        Ok(())
    }

    /// Whether the run did what it should have; its outcome if so.
    fn judge(&self, mode: &Mode, name: &str, files: &Files<'_>) -> Result<Outcome> {
        let mut outcome = Outcome { records: vec![None; self.scene.parts.len()], ..Outcome::default() };
        if let Mode::Policy(_) = mode {
            outcome.decisions = read(&files.decisions())?.parse().context("a number makes no sense")?;
        }
        for place in mode.parts(self.scene) {
            let part = &self.scene.parts[place];
            let record: Record =
                serde_json::from_str(&read(&files.record(&part.name))?).context("a record makes no sense")?;
            ensure!(!record.requests.is_empty(), "{} finished nothing", part.name);
            let commands = self.traces[&part.trace].commands.len();
            let inferences = record.warm_up + record.requests.len() as u64;
            ensure!(
                record.digest == Digest::text(Digest::of(inferences, commands).words()),
                "the digest of {} is wrong: commands were lost, doubled or run in another order",
                part.name
            );
            if let Mode::Policy(_) = mode {
                let log = read(&files.log(&part.name))?;
                for line in complaints(&log) {
                    eprintln!("xbench: {name}: the library in {} says: {line}", part.name);
                }
                let summary = ShimSummary::parse(&log)?;
                let least = inferences * (commands as u64 + mixes_of(commands));
                ensure!(
                    summary.launched >= least && summary.pending == 0,
                    "the library launched {} of the {least} commands of {} and had {} left: some went past it",
                    summary.launched,
                    part.name,
                    summary.pending
                );
                outcome.suspensions += summary.suspensions;
            }
            outcome.records[place] = Some(record);
        }
        Ok(outcome)
    }
}

/// The fixed window that is asked for behind a policy, if there is one.
fn window(policy: &str) -> Result<Option<(u32, u32)>> {
    let Some(text) = policy.split_whitespace().find_map(|word| word.strip_prefix(WINDOW)) else {
        return Ok(None);
    };
    let numbers =
        text.split_once('/').and_then(|(most, batch)| Some((most.parse().ok()?, batch.parse().ok()?)));
    match numbers.filter(|(most, batch)| (1..=*most).contains(batch)) {
        Some(window) => Ok(Some(window)),
        None => bail!(WrongInput(format!(
            "{WINDOW}{text}: two numbers are wanted, the second not above the first"
        ))),
    }
}

/// A policy and its parameters as the server takes them.
fn server_words(policy: &str) -> Vec<String> {
    let mut words = policy.split_whitespace().filter(|word| !word.starts_with('+'));
    let name = words.next().unwrap_or_default().to_owned();
    let parameters = words.flat_map(|word| ["--set".to_owned(), word.to_owned()]);
    std::iter::once(name).chain(parameters).collect()
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_with_parameters_is_the_servers_command_line() {
        assert_eq!(server_words("HPF"), ["HPF"]);
        assert_eq!(server_words("LCBE +hint learn=0 +window=4/2"), ["LCBE", "--set", "learn=0"]);
        assert_eq!(window("LCBE +hint").unwrap(), None);
        assert_eq!(window("UP +window=16/8").unwrap(), Some((16, 8)));
        for wrong in ["UP +window=16", "UP +window=8/16", "UP +window=0/0", "UP +window=a/b"] {
            assert!(window(wrong).unwrap_err().is::<WrongInput>(), "{wrong}");
        }
        assert_eq!(
            server_words("SLO target-ms=50 window=9"),
            ["SLO", "--set", "target-ms=50", "--set", "window=9"]
        );
    }
}
