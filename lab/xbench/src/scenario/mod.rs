//! `xbench scenario`: several programs on one simulated GPU, under one policy after the other.
//!
//! Modes in interleaved blocks: each program alone, all together as they are, all together with the preloaded library under
//! `xserver` at one priority, where requests arrive, and with each policy. Requests of a block arrive at the same moments in
//! all modes; every request is served, and its latency counts from its arrival. Programs without a rate run back to back until the last request is served.
//!
//! Each run is a [`crate::session`], whose work is checked. Figures do not decide the exit code; limits are told as met or
//! missed.

mod agreement;
mod cast;
mod figures;
mod prepreempt;

pub use agreement::{Agreement, Compared};
pub use figures::Figures;
pub use prepreempt::{PrepreemptArgs, run as run_prepreempt};

use crate::WrongInput;
use crate::child::{ensure_beside, this_program};
use crate::compare::interleave;
use crate::files::{ensure_writable, write_json};
use crate::policy_sim::Policy;
use crate::replay;
use crate::session::{self, NEEDED, Session};
use crate::simulated::GpuArgs;
use crate::trace::Trace;
use agreement::Terms;
use anyhow::{Result, bail};
use cast::{Part, Scene};
use clap::Args;
use figures::{Mode, Outcome};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The name of the mode in which all run and nobody decides.
const WITHOUT: &str = "without giveway";
/// And where all run with the library, and nobody comes before others.
const EQUAL: &str = "all at one priority";
/// A word behind a policy: programs with preparations tell of each request when it arrives.
const HINT: &str = "+hint";
/// A word behind a policy, followed by T/B: all programs have at most T commands in flight, and synchronize every B.
const WINDOW: &str = "+window=";
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
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3), allow_negative_numbers = true)]
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
    #[command(flatten)]
    gpu: GpuArgs,
    /// Blocks, each with all modes; a figure is the median of theirs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), allow_negative_numbers = true)]
    blocks: u32,
    /// How long requests arrive in each mode, instead of what the scenario says
    #[arg(long, value_name = "S", value_parser = replay::seconds, allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// Which arrivals: the same number, the same moments
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// Where the recorded models lie
    #[arg(long, value_name = "DIRECTORY", default_value = "examples/traces")]
    traces: PathBuf,
}

impl Common {
    /// The file of a program's model.
    fn trace(&self, part: &Part) -> PathBuf {
        self.traces.join(format!("{}.json", part.trace))
    }
}

/// Runs the command.
///
/// # Errors
/// Something could not be measured, or a check of the work fails.
pub fn run(args: &ScenarioArgs) -> Result<ExitCode> {
    let scenes = cast::scenes()?;
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
    let this = this_program()?;
    ensure_beside(&this, NEEDED)?;
    args.json.as_deref().map_or(Ok(()), ensure_writable)?;
    let mut all = Vec::new();
    for scene in wanted {
        let bench = Bench::new(&args.common, args.level, &args.policy, &this, scene)?;
        // Only simulation looks at it, for programs to which requests come.
        let equal = scene.parts.iter().any(|part| part.load.is_some()).then_some(Mode::Equal);
        let mut figures = bench.measure(equal)?;
        figures.agreement = Some(Agreement::of(scene, &figures, bench.terms())?);
        println!("{}", figures.table());
        all.push(figures);
    }
    if let Some(path) = &args.json {
        write_json(path, &all)?;
    }
    Ok(ExitCode::SUCCESS)
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
        let load = |part: &Part| -> Result<_> { Ok((part.trace.clone(), Trace::load(&args.trace(part))?)) };
        let traces = scene.parts.iter().map(load).collect::<Result<_>>()?;
        let policies = match chosen.is_empty() {
            true => scene.policies.iter().map(|policy| (*policy).to_owned()).collect(),
            false => chosen.to_vec(),
        };
        for policy in &policies {
            check(policy)?;
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

    /// All modes that every measurement has, and perhaps another one.
    fn measure(&self, besides: Option<Mode>) -> Result<Figures> {
        let parts = &self.scene.parts;
        let mut modes: Vec<Mode> = (0..parts.len()).map(Mode::Alone).collect();
        modes.push(Mode::Native);
        modes.extend(besides);
        modes.extend(self.policies.iter().cloned().map(Mode::Policy));
        let results = interleave(&modes, self.args.blocks as usize, |block, mode| self.run(mode, block))?;
        let device_us = parts.iter().map(|part| self.traces[&part.trace].device_us() * part.scale).collect();
        Figures::new(
            self.scene,
            self.args.gpu.cu_model.name(),
            self.level,
            self.seconds,
            device_us,
            modes.into_iter().zip(results).collect(),
        )
    }

    /// What simulation has to know of it.
    fn terms(&self) -> Terms {
        let Common { gpu, blocks, seed, .. } = self.args;
        let (GpuArgs { cu_model, save_us, .. }, seconds) = (gpu, self.seconds);
        Terms {
            level: self.level,
            cu_model: *cu_model,
            save_us: *save_us,
            seconds,
            seed: *seed,
            blocks: *blocks,
        }
    }

    /// One mode of one block.
    fn run(&self, mode: &Mode, block: usize) -> Result<Outcome> {
        let name = format!("{}, block {}, {}", self.scene.name, block + 1, mode.name(self.scene));
        let places = mode.parts(self.scene);
        let parts = places.clone().map(|place| self.part(place, mode, block)).collect::<Result<Vec<_>>>()?;
        let closed = matches!(mode, Mode::Alone(_)) && parts.iter().all(|part| part.load.is_none());
        let session = Session {
            parts,
            seconds: if closed { self.seconds.min(ALONE_SECONDS) } else { self.seconds },
            policy: mode.policy().map(server_words),
        };
        let done = session.run(self.this, &self.args.gpu, &name)?;
        let mut outcome = Outcome { records: vec![None; self.scene.parts.len()], ..Outcome::default() };
        if mode.policy().is_some() {
            let watched = done.watched()?;
            outcome.decisions = watched.decisions();
            (outcome.counted, outcome.server_s) = (watched.counted(), watched.seconds);
        }
        for place in places {
            let part = &self.scene.parts[place];
            let (record, suspensions) = done.judge(&part.name, self.traces[&part.trace].commands.len())?;
            outcome.suspensions += suspensions;
            outcome.records[place] = Some(record);
        }
        eprintln!("xbench: {name}: {}", outcome.words(self.scene));
        Ok(outcome)
    }

    /// A program as a session takes it.
    fn part(&self, place: usize, mode: &Mode, block: usize) -> Result<session::Part> {
        let part = &self.scene.parts[place];
        let policy = mode.policy().unwrap_or_default();
        let priority = if *mode == Mode::Equal { 0 } else { part.priority };
        let mut variables = vec![
            ("AUTO_XQUEUE_PRIORITY", priority.to_string()),
            ("AUTO_XQUEUE_UTILIZATION", part.utilization.to_string()),
        ];
        if let Some((most, batch)) = window(policy)? {
            variables.push(("AUTO_XQUEUE_THRESHOLD", most.to_string()));
            variables.push(("AUTO_XQUEUE_BATCH_SIZE", batch.to_string()));
        }
        if let Some(deadline) = part.deadline_ms {
            variables.push(("AUTO_XQUEUE_DEADLINE", ((deadline * 1e3).round() as u64).to_string()));
        }
        Ok(session::Part {
            name: part.name.clone(),
            trace: std::path::absolute(self.args.trace(part))?,
            scale: part.scale,
            // Each program has the arrivals that it has beside the others.
            seed: self.terms().arrivals(block as u64, place),
            load: part.load,
            prepare_us: part.prepare_us,
            hint: part.prepare_us > 0 && policy.split_whitespace().any(|word| word == HINT),
            level: self.level,
            variables: variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        })
    }
}

/// Whether there is such a policy with such parameters, and nothing else behind it than what can be.
fn check(policy: &str) -> Result<()> {
    window(policy)?;
    let (ours, servers): (Vec<_>, Vec<_>) = policy.split_whitespace().partition(|word| word.starts_with('+'));
    if let Some(word) = ours.iter().find(|word| **word != HINT && !word.starts_with(WINDOW)) {
        bail!(WrongInput(format!("{word}: behind a policy there can be {HINT} and {WINDOW}T/B")));
    }
    Policy::by_name(&servers.join(" ")).map_err(WrongInput)?;
    Ok(())
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
        check("SLO target-ms=50 +hint +window=4/2").unwrap();
        for (wrong, why) in [
            ("HPF x=1", "HPF: no parameter \"x\": this policy has none"),
            ("HPF x", "\"x\" is not a name=number"),
            ("HPF +hints", "+hints: behind a policy there can be +hint and +window=T/B"),
        ] {
            assert_eq!(check(wrong).unwrap_err().downcast::<WrongInput>().unwrap().0, why);
        }
        assert_eq!(
            server_words("SLO target-ms=50 window=9"),
            ["SLO", "--set", "target-ms=50", "--set", "window=9"]
        );
    }
}
