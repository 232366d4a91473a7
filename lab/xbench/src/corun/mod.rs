//! `xbench corun`: an urgent model's latency beside a batch model on one simulated GPU, without and with giveway.
//!
//! Modes in three interleaved blocks: the urgent model alone, the batch model alone, both as they are, and, for each
//! preemption level that is asked for in the batch model, both with the preloaded library under `xserver`. Requests of the
//! urgent model arrive as a Poisson process, the same one in all modes of a block; every request is served, and its latency
//! counts from its arrival. The batch model runs back to back until the last request is served.
//!
//! What makes a figure worth something, besides what holds of every [`crate::session`]: beyond the commands of its
//! inferences each program must have had the same commands retired in all modes. With the library, it must have suspended
//! something. A level above 1 is taken for it only if the server says that it was in force all the time and that queues were
//! taken off the hardware in every block, and the device's driver counted at least as many such operations; at level 1 there
//! must be none.

mod agreement;
mod figures;
mod levels;
mod plot;

pub use figures::{Figures, ModeFigures, Setting};
pub use levels::Level;

use crate::WrongInput;
use crate::child::{ensure_beside, this_program};
use crate::compare::interleave;
use crate::files::{ensure_writable, write, write_json};
use crate::replay;
use crate::replay::digest::mixes_of;
use crate::replay::schedule::Pattern;
use crate::session::{NEEDED, Part, Session};
use crate::simulated::GpuArgs;
use crate::trace::Trace;
use agreement::Agreement;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use figures::{Blocks, Mode, Outcome};
use levels::Held;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

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
    #[command(flatten)]
    gpu: GpuArgs,
    /// What takes the batch model's queues off: auto, update-queue, debug-trap, or off
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = ["auto", "update-queue", "debug-trap", "off"])]
    mechanism: String,
    /// Blocks, each with all modes; a figure is the median of theirs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    blocks: u32,
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

/// Who a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    High,
    Low,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Low => "low",
        }
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
    let this = this_program()?;
    ensure_beside(&this, NEEDED)?;
    if let Some(path) = &args.json {
        let directory = path.parent().unwrap_or(Path::new(""));
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        ensure_writable(path)?;
    }
    let bench = Bench { args, this, traces };
    let mut agreement = Agreement::default();
    let modes = Mode::of_block(&args.levels());
    let results =
        interleave(&modes, args.blocks as usize, |block, mode| bench.run(*mode, block, &mut agreement))?;
    let blocks: Blocks = modes.into_iter().zip(results).collect();
    let figures = bench.figures(&blocks)?;
    println!("{}", figures.table());
    if let Some(path) = &args.json {
        write_json(path, &figures)?;
        write(&path.with_extension("svg"), &plot::svg(&figures, &blocks))?;
        write(&path.with_extension("jsonl"), &raw(&blocks))?;
    }
    let missing: Vec<&str> = figures.missing().collect();
    for reason in &missing {
        eprintln!("xbench: {reason}");
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
    /// This program.
    this: PathBuf,
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
            cu_model: args.gpu.cu_model.name().to_owned(),
            threshold: args.threshold,
            batch: args.batch,
            save_us: args.gpu.save_us,
            mechanism: args.mechanism.clone(),
            blocks: args.blocks as usize,
            seconds: args.seconds,
            seed: args.seed,
        };
        Figures::new(setting, blocks, self.traces[0].device_us() * args.scale)
    }

    fn trace(&self, role: Role) -> &Trace {
        match role {
            Role::High => &self.traces[0],
            Role::Low => &self.traces[1],
        }
    }

    /// One mode of one block.
    fn run(&self, mode: Mode, block: usize, agreement: &mut Agreement) -> Result<Outcome> {
        let name = format!("block {} of {}, {}", block + 1, self.args.blocks, mode.name());
        let outcome = self.measure(mode, block, &name, agreement)?;
        eprintln!("xbench: {name}: {}", summary(&outcome));
        Ok(outcome)
    }

    fn measure(&self, mode: Mode, block: usize, name: &str, agreement: &mut Agreement) -> Result<Outcome> {
        let args = self.args;
        let parts = mode.roles().iter().map(|role| self.part(*role, mode, block)).collect::<Result<_>>()?;
        let alone = mode == Mode::LowAlone;
        let session = Session {
            parts,
            seconds: if alone { args.seconds.min(LOW_ALONE_SECONDS) } else { args.seconds },
            policy: mode.level().map(|_| vec!["HPF".to_owned()]),
        };
        let done = session.run(&self.this, &args.gpu, name)?;
        let device = &done.device;
        let mut outcome = Outcome { late_us: device.late_us.p99, late: !device.valid, ..Outcome::default() };
        for &role in mode.roles() {
            let commands = self.trace(role).commands.len();
            let (record, suspensions) = done.judge(role.name(), commands)?;
            let kernels = commands as u64 + mixes_of(commands);
            agreement.check(role, name, device.beyond(record.pid, record.inferences(), kernels)?)?;
            outcome.suspensions += suspensions;
            match role {
                Role::High => outcome.high = Some(record),
                Role::Low => outcome.low = Some(record),
            }
        }
        if let (Some(level), Some(low)) = (mode.level(), &outcome.low) {
            ensure!(
                outcome.suspensions > 0,
                "{name}: the library suspended nothing, so nothing was scheduled"
            );
            let watched = done.watched()?;
            let [before, after] = watched.preemption(low.pid)?;
            let held = Held::between(before, after, watched.seconds);
            ensure!(
                held.holds <= device.unmaps(),
                "{name}: the server counts {} holds, the device took queues off {} times",
                held.holds,
                device.unmaps()
            );
            ensure!(level > 1 || held.holds == 0, "{name}: {} holds at level 1", held.holds);
            outcome.held = Some(held);
        }
        Ok(outcome)
    }

    /// A program as a session takes it.
    fn part(&self, role: Role, mode: Mode, block: usize) -> Result<Part> {
        let args = self.args;
        let (trace, load, priority) = match role {
            Role::High => (&args.high.trace, Some((args.high.rate, Pattern::Poisson)), 10),
            Role::Low => (&args.low, None, 0),
        };
        let mut variables = vec![("AUTO_XQUEUE_PRIORITY".to_owned(), priority.to_string())];
        let window = [("AUTO_XQUEUE_THRESHOLD", args.threshold), ("AUTO_XQUEUE_BATCH_SIZE", args.batch)];
        variables.extend(
            window.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_string()))),
        );
        if role == Role::Low {
            variables.push(("KFD_MECHANISM".to_owned(), args.mechanism.clone()));
        }
        Ok(Part {
            name: role.name().to_owned(),
            trace: std::path::absolute(trace)?,
            scale: args.scale,
            seed: args.seed.wrapping_add(block as u64),
            load,
            prepare_us: 0,
            hint: false,
            level: mode.level().filter(|_| role == Role::Low).unwrap_or(1),
            variables,
        })
    }
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
        assert_eq!((default.levels(), default.gpu.save_us, default.blocks), (vec![1], 50, 3));
        assert_eq!(parse(&["--level", "3,1,3"]).unwrap().levels(), [1, 3]);
        for wrong in ["--level=0", "--level=4", "--level=", "--save-us=-1", "--blocks=0"] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
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
