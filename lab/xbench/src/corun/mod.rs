//! `xbench corun`: measures an urgent model's latency beside a batch model on one GPU, without and with giveway.
//!
//! It is an [`experiment`](crate::experiment) with these modes: the urgent model alone, both models without
//! the library, both with it for each preemption level of the batch model, and the batch model alone.
//!
//! Besides the checks of every session, with the library something must have been suspended. A level above 1 counts
//! only if the server reports that it was in force all the time and that queues were evicted in every block; at level 1
//! there must be no eviction. The simulated device counts as well: each program must have retired the same commands
//! beyond its inferences in all modes, and the device's driver must have counted at least as many evictions as the
//! server.

mod agreement;
mod digest;
mod figures;
mod levels;
mod plot;

use crate::WrongInput;
use crate::experiment::{Experiment, Mode, Outcome, PolicyWords, Program, Setup};
use crate::files::{ensure_writable, write, write_json};
use crate::replay;
use crate::replay::schedule::Pattern;
use crate::simulated::GpuArgs;
use crate::traffic::Traffic;
use agreement::Agreement;
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
pub(crate) use digest::for_report;
use figures::{Blocks, Figures, HIGH, LOW, Setting};
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

/// The names of the programs in raw data.
const ROLES: [&str; 2] = ["high", "low"];
/// The most seconds that the batch model runs alone.
const LOW_ALONE_SECONDS: f64 = 5.0;

/// Options of `xbench corun`.
#[derive(Debug, Clone, Args)]
pub struct CorunArgs {
    /// The urgent model and its requests per second
    #[arg(long, value_name = "TRACE@RATE", default_value = "examples/traces/resnet18_bs1.json@20")]
    high: High,
    /// The batch model
    #[arg(long, value_name = "TRACE", default_value = "examples/traces/resnet50_bs256.json")]
    low: PathBuf,
    /// Multiplies kernel durations and the host's gaps between submits
    #[arg(long, value_name = "K", default_value_t = 1.0, value_parser = replay::scale)]
    scale: f64,
    /// Preemption levels of the batch model, each a mode of its own
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1], value_parser = clap::value_parser!(u8).range(1..=3))]
    level: Vec<u8>,
    /// Policy of the server with parameters of its own, such as 'HPF share-percent=25'
    #[arg(long, value_name = "POLICY", default_value = "HPF")]
    policy: PolicyWords,
    #[command(flatten)]
    gpu: GpuArgs,
    /// Memory traffic of both models' kernels while they run
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Traffic::None)]
    traffic: Traffic,
    /// Mechanism that evicts the batch model's queues: auto, update-queue, debug-trap, or off
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = ["auto", "update-queue", "debug-trap", "off"])]
    mechanism: String,
    /// Blocks, each with all modes; a figure is the median of theirs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    blocks: u32,
    /// Seconds in which requests arrive, in each mode of each block
    #[arg(long, value_name = "S", default_value_t = 20.0, value_parser = replay::seconds)]
    seconds: f64,
    /// Seed of the arrivals: the same number, the same moments
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Most commands in flight; by default the library chooses
    #[arg(long, value_name = "T", requires = "batch", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    threshold: Option<u32>,
    /// Commands between two synchronization points
    #[arg(long, value_name = "B", requires = "threshold", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: Option<u32>,
    /// Account for the device's time: who used it in each mode, and why nobody did
    #[arg(long)]
    account: bool,
    /// Write the figures to this file, a plot beside it as .svg, all latencies as .jsonl
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The urgent model and its rate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct High {
    pub(crate) trace: PathBuf,
    /// Requests a second.
    pub(crate) rate: f64,
}

impl FromStr for High {
    type Err = WrongInput;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (trace, rate) = text.rsplit_once('@').ok_or_else(|| WrongInput("it has no @RATE".to_owned()))?;
        Ok(Self { trace: trace.into(), rate: replay::rate(rate)? })
    }
}

impl CorunArgs {
    fn programs(&self) -> [Program; 2] {
        let Self { scale, mechanism, .. } = self;
        let load = Some((self.high.rate, Pattern::Poisson));
        let program = |name, trace: &Path, load, priority| Program {
            scale: *scale,
            ..Program::new(name, trace, load, priority)
        };
        let variables = vec![("KFD_MECHANISM".to_owned(), mechanism.clone())];
        [
            Program { level: Some(1), ..program(ROLES[HIGH], &self.high.trace, load, 10) },
            Program { variables, ..program(ROLES[LOW], &self.low, None, 0) },
        ]
    }

    /// Returns the modes of a block in their order, with each level once.
    fn modes(&self) -> Result<Vec<Mode>, WrongInput> {
        let text = &self.policy.text;
        let window = self.threshold.zip(self.batch);
        let words = window.map_or(text.clone(), |(most, batch)| format!("{text} +window={most}/{batch}"));
        let mut modes = vec![Mode::Alone(HIGH), Mode::Native];
        for level in self.level.iter().copied().collect::<BTreeSet<u8>>() {
            modes.push(Mode::Policy(words.parse()?, level));
        }
        modes.push(Mode::Alone(LOW));
        Ok(modes)
    }

    fn setup<'a>(&'a self, programs: &'a [Program]) -> Setup<'a> {
        Setup {
            name: "corun",
            programs,
            traces: Path::new(""),
            gpu: &self.gpu,
            traffic: self.traffic,
            blocks: self.blocks,
            seconds: self.seconds,
            alone_seconds: LOW_ALONE_SECONDS,
            seed: self.seed,
            seed_step: 1,
            account: self.account,
        }
    }

    fn setting(&self, experiment: &Experiment<'_>) -> Setting {
        Setting {
            high: format!("{}@{}", experiment.traces[HIGH].name, self.high.rate),
            low: experiment.traces[LOW].name.clone(),
            scale: self.scale,
            traffic: self.traffic,
            policy: self.policy.text.clone(),
            threshold: self.threshold,
            batch: self.batch,
            mechanism: self.mechanism.clone(),
            blocks: self.blocks as usize,
            seconds: self.seconds,
            seed: self.seed,
        }
    }
}

/// Measures all modes in all blocks.
///
/// # Errors
/// Something could not be measured, or a check of the work fails.
fn measure(args: &CorunArgs) -> Result<(Figures, Blocks)> {
    let programs = args.programs();
    let experiment = Experiment::new(args.setup(&programs))?;
    if let Some(path) = &args.json {
        let directory = path.parent().unwrap_or(Path::new(""));
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        ensure_writable(path)?;
    }
    let mut agreement = Agreement::default();
    let blocks = experiment.run(args.modes()?, |name, mode, outcome| {
        for index in mode.indices(programs.len()) {
            if let Some(beyond) = outcome.beyond.get(index) {
                agreement.check(ROLES[index], name, beyond.as_ref().map_err(|why| anyhow!("{why}"))?)?;
            }
        }
        mode.level().map_or(Ok(()), |level| check_suspensions(name, level, outcome))
    })?;
    let mut figures =
        Figures::new(args.setting(&experiment), experiment.gpu.clone(), &blocks, experiment.device_us(HIGH))?;
    figures.account = experiment.accounts(&blocks);
    Ok((figures, blocks))
}

/// Runs the command. The exit code is 1 if a requested level was not used; figures do not change it.
///
/// # Errors
/// Something could not be measured, or a check of the work fails.
pub fn run(args: &CorunArgs) -> Result<ExitCode> {
    if let (Some(threshold), Some(batch)) = (args.threshold, args.batch)
        && batch > threshold
    {
        bail!(WrongInput(format!("--batch {batch} is more than --threshold {threshold}")));
    }
    let (figures, blocks) = measure(args)?;
    println!("{}", figures.table());
    if let Some(path) = &args.json {
        write_json(path, &figures)?;
        write(&path.with_extension("svg"), plot::svg(&figures, &blocks))?;
        write(&path.with_extension("jsonl"), raw(&blocks))?;
    }
    let missing: Vec<&str> = figures.missing().collect();
    for reason in &missing {
        eprintln!("xbench: {reason}");
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks a run with the library against the server's and the device's counts.
fn check_suspensions(name: &str, level: u8, outcome: &Outcome) -> Result<()> {
    ensure!(
        outcome.suspensions > 0,
        "{name}: the library suspended no queue, so the run shows no scheduling"
    );
    let low = outcome.suspended[LOW].as_ref();
    let holds = low.with_context(|| format!("{name}: xserver does not know the batch program"))?.holds;
    if let Some(unmaps) = outcome.unmaps {
        ensure!(
            holds <= unmaps,
            "{name}: the server counts {holds} evictions, the device only {unmaps} operations that evict a queue"
        );
    }
    ensure!(level > 1 || holds == 0, "{name}: {holds} evictions at level 1");
    Ok(())
}

/// Returns the short name of a mode in raw data.
fn key(mode: &Mode) -> &'static str {
    match mode {
        Mode::Alone(HIGH) => "alone",
        Mode::Alone(_) => "low_alone",
        Mode::Native => "native",
        Mode::Equal(_) | Mode::Policy(..) => "shim",
    }
}

/// Returns a line of JSON for every request and inference.
fn raw(blocks: &Blocks) -> String {
    let rounded_ms = |us: f64| us.round() / 1e3;
    let mut text = String::new();
    for (mode, outcomes) in blocks {
        for (block, outcome) in outcomes.iter().enumerate() {
            for (role, record) in ROLES.iter().zip(&outcome.records) {
                for request in record.iter().flat_map(|record| &record.requests) {
                    let line = json!({
                        "mode": key(mode),
                        "level": mode.level(),
                        "block": block,
                        "role": role,
                        "arrived_ms": rounded_ms(request.arrived_us),
                        "began_ms": rounded_ms(request.began_us),
                        "latency_ms": rounded_ms(request.latency_ms() * 1e3),
                    });
                    let _ = writeln!(text, "{line}");
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::record;

    #[test]
    fn urgent_model_needs_a_rate() {
        let high = |text: &str| text.parse::<High>();
        assert_eq!(high("a@b.json@2.5"), Ok(High { trace: "a@b.json".into(), rate: 2.5 }));
        assert_eq!(high("a.json").unwrap_err().0, "it has no @RATE");
        assert_eq!(high("a.json@fast").unwrap_err().0, "not a number");
    }

    fn parse(words: &[&str]) -> Result<CorunArgs, clap::Error> {
        crate::tests::parse(&[&["--high", "a.json@1", "--low", "b.json"], words].concat())
    }

    #[test]
    fn levels_are_modes_of_their_own() {
        let levels =
            |args: &CorunArgs| args.modes().unwrap().iter().filter_map(Mode::level).collect::<Vec<_>>();
        let default = parse(&[]).unwrap();
        assert_eq!((levels(&default), default.gpu.save_us, default.blocks), (vec![1], 50, 3));
        let args = parse(&["--level", "3,1,3", "--threshold=4", "--batch=2"]).unwrap();
        assert_eq!(levels(&args), [1, 3]);
        let Mode::Policy(words, 1) = &args.modes().unwrap()[2] else { panic!("level 1 comes first") };
        assert_eq!((words.window, words.server.as_slice()), (Some((4, 2)), &["HPF".to_owned()][..]));
        let args = parse(&["--policy=HPF share-percent=25", "--threshold=4", "--batch=2"]).unwrap();
        let Mode::Policy(words, 1) = &args.modes().unwrap()[2] else { panic!("level 1") };
        assert_eq!(words.text, "HPF share-percent=25 +window=4/2");
        for wrong in ["--policy=HPF x=1", "--level=0", "--level=4", "--level=", "--save-us=-1", "--blocks=0"]
        {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn batch_model_alone_has_the_level() {
        let args = parse(&["--mechanism=off", "--scale=2"]).unwrap();
        let [high, low] = args.programs();
        assert_eq!((high.level, high.priority, high.scale), (Some(1), 10, 2.0));
        assert_eq!((low.level, low.priority, low.load), (None, 0, None));
        assert_eq!(low.variables, [("KFD_MECHANISM".to_owned(), "off".to_owned())]);
        // The urgent model's arrivals are those of the seed and the block.
        assert_eq!(args.setup(&[]).arrivals_seed(2, HIGH), 3);
    }

    #[test]
    fn raw_data_has_a_line_for_each_inference() {
        let records = vec![Some(record(&[1.0, 2.0], 100.0, 1.0)), None];
        let outcome = Outcome { records, ..Outcome::default() };
        let level_3 = Mode::Policy("HPF".parse().unwrap(), 3);
        let text = raw(&vec![(Mode::Alone(HIGH), vec![outcome.clone()]), (level_3, vec![outcome])]);
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[3]["latency_ms"], 2.0);
        assert_eq!((&lines[1]["mode"], &lines[1]["level"]), (&"alone".into(), &serde_json::Value::Null));
        assert_eq!(lines[3]["block"], 0);
        assert_eq!((&lines[3]["mode"], &lines[3]["level"]), (&"shim".into(), &3.into()));
        assert_eq!(lines[3]["role"], "high");
    }

    #[test]
    fn suspensions_are_checked_against_server_and_device() {
        use crate::experiment::Suspensions;
        let check = |level: u8, suspensions: u64, holds: u64, unmaps: Option<u64>| {
            let suspended = vec![None, Some(Suspensions { holds, ..Suspensions::default() })];
            let outcome = Outcome { suspensions, suspended, unmaps, ..Outcome::default() };
            check_suspensions("run", level, &outcome).map_err(|error| error.to_string())
        };
        assert_eq!(check(3, 5, 4, Some(4)), Ok(()));
        assert!(check(3, 0, 4, Some(4)).unwrap_err().contains("suspended no queue"));
        assert!(check(3, 5, 4, Some(3)).unwrap_err().contains("counts 4 evictions"));
        // A real device does not count.
        assert_eq!(check(3, 5, 4, None), Ok(()));
        assert!(check(1, 5, 1, Some(9)).unwrap_err().contains("1 evictions at level 1"));
    }
}
