//! `xbench corun`: an urgent model's latency beside a batch model on one simulated GPU, without and with giveway.
//!
//! Modes in three interleaved blocks: the urgent model alone, the batch model alone, both as they are, and, for each
//! preemption level that is asked for in the batch model, both with the preloaded library under `xserver`. Requests of the urgent model arrive as a Poisson process, the same one in all
//! modes of a block; every request is served, and its latency counts from its arrival. The batch model runs back to back
//! until the last request is served.
//!
//! What makes a figure worth something: the device says whether it kept up with its own time (a run in which it did not
//! is repeated); the host computes every digest a second time; and beyond the commands of its inferences each program
//! must have had the same commands retired in all modes. With the library, its own count must cover every command, and
//! it must have suspended something. A level above 1 is taken for it only if the server says that it was in force all the
//! time and that queues were taken off the hardware in every block, and the device's driver counted at least as many such
//! operations; at level 1 there must be none.

pub(crate) mod device;
mod figures;
mod levels;
mod plot;
mod session;

pub use figures::{Figures, ModeFigures, Setting};
pub use levels::Level;
pub use session::{SessionArgs, run as run_session};

use crate::WrongInput;
use crate::compare::interleave;
use crate::replay::digest::{Digest, mixes_of};
use crate::replay::{self, Record};
use crate::rtc::Scratch;
use crate::trace::Trace;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use device::{Agreement, DeviceStats, ShimSummary, complaints};
use figures::{Blocks, Mode, Outcome};
use levels::Held;
use serde_json::json;
use session::{Files, Role};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::str::FromStr;

/// How often an invalid run is repeated.
const REPEATS: usize = 3;
/// Most seconds that the batch model runs alone: back to back, it needs no more to show its rate.
const LOW_ALONE_SECONDS: f64 = 5.0;

/// Options of `xbench corun`.
#[derive(Debug, Clone, Args)]
pub struct CorunArgs {
    /// The urgent model and its requests per second
    #[arg(long, value_name = "TRACE@RATE")]
    high: High,
    /// The batch model
    #[arg(long, value_name = "TRACE")]
    low: PathBuf,
    /// Multiplies kernel durations and the host's gaps between submits
    #[arg(long, value_name = "K", default_value_t = 1.0, value_parser = replay::scale)]
    scale: f64,
    /// Preemption levels of the batch model, each a mode of its own
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1], value_parser = clap::value_parser!(u8).range(1..=3))]
    level: Vec<u8>,
    /// What it costs the simulated GPU to save what runs on queues that come off, and to bring that back, in microseconds
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    save_us: u32,
    /// What takes the batch model's queues off: auto, update-queue, debug-trap, or off
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = ["auto", "update-queue", "debug-trap", "off"])]
    mechanism: String,
    /// Blocks, each with all modes; a figure is the median of theirs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    blocks: u32,
    /// Count runs in which the simulated GPU was late as well. For tests, which look at the work and never at times
    #[arg(long, hide = true)]
    allow_late: bool,
    /// How long requests arrive in each mode of each block
    #[arg(long, value_name = "S", default_value_t = 20.0, value_parser = replay::seconds)]
    seconds: f64,
    /// Which arrivals: the same number, the same moments
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Most commands in flight; without it the library chooses
    #[arg(long, value_name = "T", requires = "batch", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    threshold: Option<u32>,
    /// Commands between two synchronization points
    #[arg(long, value_name = "B", requires = "threshold", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: Option<u32>,
    /// How the simulated GPU shares its compute units
    #[arg(long, value_enum, default_value_t = CuModel::Shared)]
    cu_model: CuModel,
    /// Write the figures there, a plot beside it as .svg, all latencies as .jsonl
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl CorunArgs {
    /// Each level once, in order.
    fn levels(&self) -> Vec<u8> {
        let levels: BTreeSet<u8> = self.level.iter().copied().collect();
        levels.into_iter().collect()
    }
}

/// The urgent model and its rate.
#[derive(Debug, Clone, PartialEq)]
struct High {
    trace: PathBuf,
    rate: f64,
}

impl FromStr for High {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (trace, rate) = text.rsplit_once('@').ok_or("it has no @RATE")?;
        Ok(Self { trace: trace.into(), rate: replay::rate(rate)? })
    }
}

/// See `docs/gpu-model.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CuModel {
    /// Work-groups of all programs are placed in turn
    Shared,
    /// One kernel at a time, in order of arrival
    Fcfs,
}

impl CuModel {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Fcfs => "fcfs",
        }
    }
}

/// The programs that take part, all beside this one.
#[derive(Debug)]
struct Programs {
    this: PathBuf,
    gpu_sim: PathBuf,
    server: PathBuf,
    shim: PathBuf,
}

impl Programs {
    fn beside(this: &Path) -> Result<Self> {
        let find = |name: &str| {
            let path = this.with_file_name(name);
            ensure!(
                path.is_file(),
                "xbench corun needs {name} beside this program; build all of them: cargo build --release --workspace"
            );
            Ok(path)
        };
        Ok(Self {
            this: this.to_owned(),
            gpu_sim: find("gpu-sim")?,
            server: find("xserver")?,
            shim: find("libshimhip.so")?,
        })
    }
}

/// Runs the command. The exit code is 1 if a level that is asked for was not used; figures do not decide it.
///
/// # Errors
/// Something could not be measured, or a check of the work fails.
pub fn run(args: &CorunArgs) -> Result<ExitCode> {
    if let (Some(threshold), Some(batch)) = (args.threshold, args.batch)
        && batch > threshold
    {
        bail!(WrongInput(format!("--batch {batch} is more than --threshold {threshold}")));
    }
    let traces = [Trace::load(&args.high.trace)?, Trace::load(&args.low)?];
    let programs =
        Programs::beside(&std::env::current_exe().context("cannot find this program's own file")?)?;
    if let Some(directory) = args.json.as_deref().and_then(Path::parent) {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let bench = Bench { args, programs, traces };
    let mut agreement = Agreement::default();
    let modes = Mode::of_block(&args.levels());
    let results = interleave(&modes, args.blocks as usize, |block, mode| {
        bench.valid_run(*mode, block, &mut agreement)
    })?;
    let blocks: Blocks = modes.into_iter().zip(results).collect();
    let figures = bench.figures(&blocks)?;
    println!("{}", figures.table());
    if let Some(path) = &args.json {
        write(path, &(serde_json::to_string_pretty(&figures)? + "\n"))?;
        write(&path.with_extension("svg"), &plot::svg(&figures, &blocks))?;
        write(&path.with_extension("jsonl"), &raw(&blocks))?;
    }
    let missing: Vec<&str> = figures.missing().collect();
    for reason in &missing {
        eprintln!("xbench: {reason}");
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Every request and inference, a line each.
fn raw(blocks: &Blocks) -> String {
    let mut text = String::new();
    for (mode, outcomes) in blocks {
        for (block, outcome) in outcomes.iter().enumerate() {
            for (role, record) in [(Role::High, &outcome.high), (Role::Low, &outcome.low)] {
                for request in record.iter().flat_map(|record| &record.requests) {
                    let line = json!({
                        "mode": mode.key(),
                        "level": mode.level(),
                        "block": block,
                        "role": role.name(),
                        "arrived_ms": micros(request.arrived_us),
                        "began_ms": micros(request.began_us),
                        "latency_ms": micros(request.latency_ms() * 1e3),
                    });
                    let _ = writeln!(text, "{line}");
                }
            }
        }
    }
    text
}

/// Milliseconds with three digits.
fn micros(us: f64) -> f64 {
    us.round() / 1e3
}

struct Bench<'a> {
    args: &'a CorunArgs,
    programs: Programs,
    /// Of the urgent and of the batch model.
    traces: [Trace; 2],
}

impl Bench<'_> {
    fn figures(&self, blocks: &Blocks) -> Result<Figures> {
        let args = self.args;
        let setting = Setting {
            high: format!("{}@{}", self.traces[0].name, args.high.rate),
            low: self.traces[1].name.clone(),
            scale: args.scale,
            cu_model: args.cu_model.name().to_owned(),
            threshold: args.threshold,
            batch: args.batch,
            save_us: args.save_us,
            mechanism: args.mechanism.clone(),
            blocks: args.blocks as usize,
            seconds: args.seconds,
            seed: args.seed,
        };
        let mut records = blocks.iter().flat_map(|(_, outcomes)| outcomes).flat_map(|outcome| {
            [(Role::High, &outcome.high), (Role::Low, &outcome.low)]
                .into_iter()
                .filter_map(|(role, record)| Some((role, record.as_ref()?)))
        });
        let digest_ok = records.all(|(role, record)| record.digest == self.expected_digest(role, record));
        Figures::new(setting, blocks, self.traces[0].device_us() * args.scale, digest_ok)
    }

    fn trace(&self, role: Role) -> &Trace {
        match role {
            Role::High => &self.traces[0],
            Role::Low => &self.traces[1],
        }
    }

    fn expected_digest(&self, role: Role, record: &Record) -> String {
        Digest::text(Digest::of(inferences(record), self.trace(role).commands.len()).words())
    }

    /// One mode of one block, again if the device was late.
    fn valid_run(&self, mode: Mode, block: usize, agreement: &mut Agreement) -> Result<Outcome> {
        let name = format!("block {} of {}, {}", block + 1, self.args.blocks, mode.name());
        for _ in 0..=REPEATS {
            let scratch = Scratch::new().context("no scratch directory")?;
            let files = Files(&scratch.path);
            self.session(mode, block, &files).with_context(|| name.clone())?;
            let stats = DeviceStats::parse(&read(&files.stats())?)?;
            if !stats.valid && !self.args.allow_late {
                eprintln!(
                    "xbench: {name}: the simulated GPU was late (p99 {:.0} µs), so the run does not count",
                    stats.late_us.p99
                );
                continue;
            }
            let outcome = self.judge(mode, &name, &files, &stats, agreement)?;
            eprintln!("xbench: {name}: {}", summary(&outcome));
            return Ok(outcome);
        }
        bail!(
            "{name}: the simulated GPU was late {} times; is the machine busy with other work?",
            REPEATS + 1
        )
    }

    /// Runs the processes of a mode on a simulated GPU of their own.
    fn session(&self, mode: Mode, block: usize, files: &Files<'_>) -> Result<()> {
        let args = self.args;
        let with_high = mode != Mode::LowAlone;
        let with_shim = mode.level().is_some();
        let session = SessionArgs {
            dir: files.0.to_owned(),
            high: with_high.then(|| args.high.trace.clone()),
            rate: with_high.then_some(args.high.rate),
            low: (mode != Mode::HighAlone).then(|| args.low.clone()),
            seconds: if with_high { args.seconds } else { args.seconds.min(LOW_ALONE_SECONDS) },
            scale: args.scale,
            seed: args.seed.wrapping_add(block as u64),
            shim: with_shim.then(|| self.programs.shim.clone()),
            server: with_shim.then(|| self.programs.server.clone()),
            level: mode.level(),
            mechanism: with_shim.then(|| args.mechanism.clone()),
            threshold: args.threshold,
            batch: args.batch,
        };
        let mut command = Command::new(&self.programs.gpu_sim);
        // What the processes are preloaded with and told is the mode's choice, not that of the shell around us.
        for (name, _) in std::env::vars_os() {
            if name == "LD_PRELOAD" || name.as_bytes().starts_with(b"XSCHED_") {
                command.env_remove(name);
            }
        }
        let save_us = args.save_us.to_string();
        command.args(["run", "--cu-model", args.cu_model.name()]);
        command
            .args(["--save-us", &save_us, "--restore-us", &save_us, "--stats"])
            .arg(files.stats())
            .arg("--");
        command.arg(&self.programs.this).args(session.words()).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let reason = text.trim().lines().last().unwrap_or("no reason given");
            bail!("{}", reason.strip_prefix("xbench: ").unwrap_or(reason));
        }
        Ok(())
    }

    /// Whether the run did what it should have; its outcome if so.
    fn judge(
        &self,
        mode: Mode,
        name: &str,
        files: &Files<'_>,
        stats: &DeviceStats,
        agreement: &mut Agreement,
    ) -> Result<Outcome> {
        let mut outcome = Outcome { late_us: stats.late_us.p99, late: !stats.valid, ..Outcome::default() };
        let roles: &[Role] = match mode {
            Mode::HighAlone => &[Role::High],
            Mode::LowAlone => &[Role::Low],
            Mode::Native | Mode::Shim(_) => &[Role::High, Role::Low],
        };
        for &role in roles {
            let record: Record = serde_json::from_str(&read(&files.record(role))?)
                .with_context(|| format!("the record of {} makes no sense", role.name()))?;
            ensure!(!record.requests.is_empty(), "{name}: {} finished nothing", role.name());
            ensure!(
                record.digest == self.expected_digest(role, &record),
                "{name}: the digest of {} is wrong: commands were lost, doubled or run in another order",
                role.name()
            );
            let commands = self.trace(role).commands.len();
            let kernels = commands as u64 + mixes_of(commands);
            agreement.check(role, name, stats.beyond(record.pid, inferences(&record), kernels)?)?;
            if mode.level().is_some() {
                let summary = shim_summary(&files.log(role))?;
                let least = inferences(&record) * kernels;
                ensure!(
                    summary.launched >= least && summary.pending == 0,
                    "{name}: the library launched {} of the {least} commands of {} and had {} left: some went past it",
                    summary.launched,
                    role.name(),
                    summary.pending
                );
                outcome.suspensions += summary.suspensions;
            }
            match role {
                Role::High => outcome.high = Some(record),
                Role::Low => outcome.low = Some(record),
            }
        }
        if let Some(level) = mode.level() {
            ensure!(
                outcome.suspensions > 0,
                "{name}: the library suspended nothing, so nothing was scheduled"
            );
            let held = serde_json::from_str(&read(&files.held())?);
            let held: Held = held.context("what the server said of levels makes no sense")?;
            ensure!(
                held.holds <= stats.unmaps(),
                "{name}: the server counts {} holds, the device took queues off {} times",
                held.holds,
                stats.unmaps()
            );
            ensure!(level > 1 || held.holds == 0, "{name}: {} holds at level 1", held.holds);
            outcome.held = Some(held);
        }
        Ok(outcome)
    }
}

/// All inferences of a process, warm-up included.
fn inferences(record: &Record) -> u64 {
    record.warm_up + record.requests.len() as u64
}

fn shim_summary(path: &Path) -> Result<ShimSummary> {
    let log = read(path)?;
    for line in complaints(&log) {
        eprintln!("xbench: the library says: {line}");
    }
    ShimSummary::parse(&log)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A few words on a run, for the one who waits.
fn summary(outcome: &Outcome) -> String {
    let mut words = Vec::new();
    if let Some(samples) = outcome.high.as_ref().and_then(|r| crate::stats::Samples::new(r.latencies_ms())) {
        words.push(format!("p50 {:.1} ms, p99 {:.1} ms", samples.median(), samples.percentile(99.0)));
    }
    if let Some(low) = &outcome.low {
        words.push(format!("batch {:.2}/s", low.per_second(false)));
    }
    if let Some(held) = &outcome.held {
        words.push(format!("level {} in force, holds {}, waits {}", held.in_force, held.holds, held.waits));
    }
    words.push(format!("device late p99 {:.0} µs", outcome.late_us));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_urgent_model_has_a_rate() {
        let high = |text: &str| text.parse::<High>();
        assert_eq!(high("a@b.json@2.5"), Ok(High { trace: "a@b.json".into(), rate: 2.5 }));
        assert_eq!(high("a.json").unwrap_err(), "it has no @RATE");
        assert_eq!(high("a.json@fast").unwrap_err(), "not a number");
    }

    #[test]
    fn levels_are_modes_of_their_own() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: CorunArgs,
        }
        let parse = |words: &[&str]| {
            let line = ["x", "--high", "a.json@1", "--low", "b.json"].iter().chain(words);
            <Line as clap::Parser>::try_parse_from(line).map(|line| line.args)
        };
        let default = parse(&[]).unwrap();
        assert_eq!((default.levels(), default.save_us, default.blocks), (vec![1], 50, 3));
        assert_eq!(parse(&["--level", "3,1,3"]).unwrap().levels(), [1, 3]);
        for wrong in ["--level=0", "--level=4", "--level=", "--save-us=-1", "--blocks=0"] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_missing_program_is_one_sentence() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("gpu-sim"), "").unwrap();
        let error = Programs::beside(&directory.path().join("xbench")).unwrap_err().to_string();
        let expected = "xbench corun needs xserver beside this program; build all of them: cargo build --release --workspace";
        assert_eq!(error, expected);
    }

    #[test]
    fn raw_data_has_a_line_for_each_inference() {
        let outcome = Outcome { high: Some(figures::tests::record(&[1.0, 2.0])), ..Outcome::default() };
        let text = raw(&vec![(Mode::HighAlone, vec![outcome.clone()]), (Mode::Shim(3), vec![outcome])]);
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[3]["latency_ms"], 2.0);
        assert_eq!((&lines[1]["mode"], &lines[1]["level"]), (&"alone".into(), &serde_json::Value::Null));
        assert_eq!(lines[3]["block"], 0);
        assert_eq!((&lines[3]["mode"], &lines[3]["level"]), (&"shim".into(), &3.into()));
        assert_eq!(lines[3]["role"], "high");
    }
}
