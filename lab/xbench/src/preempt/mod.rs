//! `xbench preempt`: from an urgent program's launch until its kernel runs and the low program's queue stands.
//!
//! A setting is a preemption level, a length of the low program's kernels and, on the simulated GPU, what saving them
//! costs. Each has a device, an `xserver` with the policy HPF and two programs under `xcli run` of its own: a low one
//! whose kernels fill the device back to back, and an urgent one that arrives at random moments of them.
//!
//! * `to_started_us`: from before the launch call to the start of the urgent kernel, which fills the device as well. That
//!   is when the host, looking without pause, sees the word that the kernel stores, less the kernel's fixed 5 µs. On a GPU
//!   the first work-group stores it; on the simulated one it is there when the last has ended, so the last one's start is
//!   meant. The error is what lies between two looks (some microseconds), how late the simulated device is (`device_late`),
//!   and what a hold that comes when the urgent kernel already runs takes from it.
//! * `to_stopped_us`: to the moment when the low program's queues stood, as the server has it of the hold that this arrival
//!   made; without a hold to the end of the last of its kernels, 0 if none was in flight.
//! * `alone_us`: the same as `to_started_us` where there is no low program: launches that far apart take so long by themselves.
//! * `software_us`: to the entry of the low program's last hold request. What the driver, real or simulated, takes from
//!   then on is not part of it.

mod board;
mod figures;
mod low;
mod plot;
mod session;
mod urgent;

pub use figures::{Figures, Quantiles, Row};
pub use session::{PartArgs, run as run_part};

use crate::child;
use crate::compare::interleave;
use crate::files::{read_json, write, write_json};
use crate::rtc::Scratch;
use crate::simulated::{CuModel, DeviceStats, gpu_sim};
use anyhow::{Context, Result};
use clap::{Args, value_parser};
use serde::{Deserialize, Serialize};
use serde_json::json;
use session::{Files, Part};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The level of a setting without a low program.
const ALONE: u8 = 0;
/// How often a run is repeated in which the simulated device was late.
const REPEATS: usize = 2;

/// Options of `xbench preempt`.
#[derive(Debug, Clone, Args)]
pub struct PreemptArgs {
    /// Preemption levels of the low program
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 2, 3], value_parser = value_parser!(u8).range(1..=3))]
    level: Vec<u8>,
    /// What saving running kernels costs on the simulated GPU, and bringing them back, in microseconds
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [50, 500, 5000], value_parser = value_parser!(u32).range(0..=1_000_000))]
    save_us: Vec<u32>,
    /// How long the low program's kernels take, in microseconds
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [100, 500, 2000, 10_000], value_parser = value_parser!(u32).range(50..=1_000_000))]
    kernel_us: Vec<u32>,
    /// Arrivals of the urgent program in each setting
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = value_parser!(u32).range(1..=100_000))]
    samples: u32,
    /// Runs of each setting; a figure is the median of theirs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=100))]
    runs: u32,
    /// What takes the low program's queues off: auto, update-queue, debug-trap, or off
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = ["auto", "update-queue", "debug-trap", "off"])]
    mechanism: String,
    /// Which moments of arrival
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// This machine's own GPU instead of a simulated one
    #[arg(long, conflicts_with = "save_us")]
    real: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Where figures (preempt.json), plot (preempt.svg) and all arrivals (preempt.jsonl) go
    #[arg(long, value_name = "DIRECTORY", default_value = "target/bench")]
    out: PathBuf,
}

/// What is measured side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Setting {
    /// The preemption level that is asked for; or [`ALONE`].
    level: u8,
    /// Modelled cost of saving; nothing on a real GPU.
    save_us: Option<u32>,
    kernel_us: u32,
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.level {
            ALONE => write!(f, "alone, as beside kernels of {} µs", self.kernel_us)?,
            level => write!(f, "level {level}, kernels of {} µs", self.kernel_us)?,
        }
        self.save_us.map_or(Ok(()), |save| write!(f, ", save cost {save} µs"))
    }
}

/// What the urgent program leaves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What the runtime calls the GPU.
    card: String,
    /// The level in force in the low program.
    in_force: i32,
    /// By what, or why it is less than what is asked for.
    how: String,
    samples: Vec<Sample>,
}

/// One arrival; microseconds from before the launch call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    to_started_us: f64,
    to_stopped_us: f64,
    /// Nothing without a hold, or if waiting came first.
    software_us: Option<f64>,
    /// Whether the low program's queues were taken off for it.
    held: bool,
    /// Whether waiting was expected to cost less.
    waited: bool,
}

/// One run of one setting.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    record: Record,
    /// What the simulated device says of itself; nothing on a real GPU.
    device: Option<DeviceStats>,
}

/// Runs the command. The exit code is 1 if a level that is asked for was not in force; figures do not decide it.
///
/// # Errors
/// Something could not be measured.
pub fn run(args: &PreemptArgs) -> Result<ExitCode> {
    let this = child::this_program()?;
    let gpu_sim = Some(&"gpu-sim").filter(|_| !args.real);
    child::ensure_beside(&this, ["xserver", "xcli", "libshimhip.so"].iter().chain(gpu_sim))?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let settings = args.settings();
    let mut done = 0;
    let results = interleave(&settings, args.runs as usize, |run, setting| {
        done += 1;
        let outcome = args.measure(&this, *setting, run).with_context(|| setting.to_string())?;
        eprintln!(
            "xbench: {done} of {}: {setting}: {}",
            settings.len() * args.runs as usize,
            summary(&outcome)
        );
        anyhow::Ok(outcome)
    })?;
    let mut rows: Vec<(Setting, Vec<Outcome>)> = settings.into_iter().zip(results).collect();
    rows.sort_by_key(|(setting, _)| *setting);
    let figures = Figures::new(!args.real, args.samples, args.runs, &rows)?;

    write_json(&args.out.join("preempt.json"), &figures)?;
    write(&args.out.join("preempt.svg"), &plot::svg(&figures))?;
    write(&args.out.join("preempt.jsonl"), &raw(&rows)?)?;
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&figures)?),
        false => print!("{}", figures.table()),
    }
    let missing = figures.not_in_force();
    for (level, in_force, how) in &missing {
        let why = if how.is_empty() { "the server does not say why" } else { how };
        eprintln!("xbench: level {level} is not in force, level {in_force} is: {why}");
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every arrival, a line each.
fn raw(rows: &[(Setting, Vec<Outcome>)]) -> Result<String> {
    let mut text = String::new();
    for (setting, runs) in rows {
        for (run, outcome) in runs.iter().enumerate() {
            for sample in &outcome.record.samples {
                let mut line = serde_json::to_value(sample)?;
                line["level"] = json!(setting.level);
                line["kernel_us"] = json!(setting.kernel_us);
                line["save_us"] = json!(setting.save_us);
                line["run"] = json!(run);
                writeln!(text, "{line}")?;
            }
        }
    }
    Ok(text)
}

/// A few words on a run, for the one who waits.
fn summary(outcome: &Outcome) -> String {
    let samples = &outcome.record.samples;
    let started = Quantiles::of(samples.iter().map(|sample| sample.to_started_us).collect());
    let held = samples.iter().filter(|sample| sample.held).count();
    let started = started.map(|q| format!("started p50 {:.0} µs, p99 {:.0} µs, ", q.p50, q.p99));
    let late =
        outcome.device.as_ref().map(|device| format!(", device late p99 {:.0} µs", device.late_us.p99));
    format!("{}held {held} of {}{}", started.unwrap_or_default(), samples.len(), late.unwrap_or_default())
}

impl PreemptArgs {
    /// All settings; the levels of a cost and a length stand next to each other, so that they are measured so.
    fn settings(&self) -> Vec<Setting> {
        let saves: Vec<Option<u32>> = match self.real {
            true => vec![None],
            false => self.save_us.iter().copied().map(Some).collect(),
        };
        let mut settings = Vec::new();
        for &save_us in &saves {
            for &kernel_us in &self.kernel_us {
                settings.extend(self.level.iter().map(|&level| Setting { level, save_us, kernel_us }));
            }
        }
        // Where nobody is held, saving costs nothing.
        let alone = |&kernel_us| Setting { level: ALONE, save_us: saves[0], kernel_us };
        settings.extend(self.kernel_us.iter().map(alone));
        let mut seen = Vec::new();
        settings.retain(|setting| {
            !seen.contains(setting) && {
                seen.push(*setting);
                true
            }
        });
        settings
    }

    /// One run of a setting; again if the device was late, and what the last one gave if it always was.
    fn measure(&self, this: &Path, setting: Setting, run: usize) -> Result<Outcome> {
        let mut repeats = 0..REPEATS;
        loop {
            let outcome = self.measure_once(this, setting, run)?;
            let Some(device) = outcome.device.as_ref().filter(|device| !device.valid) else {
                return Ok(outcome);
            };
            let again = repeats.next().is_some();
            eprintln!(
                "xbench: {setting}: the simulated GPU was late (p99 {:.0} µs){}",
                device.late_us.p99,
                if again { ", so the run does not count" } else { ": is the machine busy with other work?" }
            );
            if !again {
                return Ok(outcome);
            }
        }
    }

    fn measure_once(&self, this: &Path, setting: Setting, run: usize) -> Result<Outcome> {
        let scratch = Scratch::new().context("no scratch directory")?;
        let files = Files(&scratch.path);
        self.session(this, setting, run, &files)?;
        let record = read_json(&files.record())?;
        for (name, part) in [("low", Part::Low), ("urgent", Part::Urgent)] {
            let log = std::fs::read_to_string(files.log(part)).unwrap_or_default();
            for line in log.lines() {
                eprintln!("xbench: {setting}: the library in the {name} program says: {line}");
            }
        }
        let device = if self.real { None } else { Some(read_json(&files.stats())?) };
        Ok(Outcome { record, device })
    }

    /// Runs the processes of a setting, on a simulated GPU of their own.
    fn session(&self, this: &Path, setting: Setting, run: usize, files: &Files<'_>) -> Result<()> {
        let part = PartArgs {
            part: Part::Session,
            dir: files.0.to_owned(),
            level: setting.level,
            kernel_us: setting.kernel_us,
            samples: self.samples as usize,
            mechanism: self.mechanism.clone(),
            seed: self.seed.wrapping_add(run as u64),
        };
        let mut command = match setting.save_us {
            None => Command::new(this),
            Some(save_us) => gpu_sim(this, CuModel::Shared, save_us, &files.stats()),
        };
        command.args(part.words(Part::Session));
        child::run(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PreemptArgs,
    }

    fn parse(words: &[&str]) -> Result<PreemptArgs, clap::Error> {
        Ok(Line::try_parse_from([&["x"], words].concat())?.args)
    }

    #[test]
    fn levels_of_one_setting_are_measured_side_by_side() {
        let settings = parse(&[]).unwrap().settings();
        assert_eq!(settings.len(), 3 * 3 * 4 + 4);
        assert_eq!(settings[1], Setting { level: 2, save_us: Some(50), kernel_us: 100 });
        let few = parse(&["--level", "3,1,3", "--save-us", "5", "--kernel-us", "100"]).unwrap().settings();
        assert_eq!(few.iter().map(|setting| setting.level).collect::<Vec<_>>(), [3, 1, ALONE]);
    }

    #[test]
    fn a_real_gpu_has_no_modelled_cost() {
        let settings = parse(&["--real", "--level", "3"]).unwrap().settings();
        assert_eq!(settings.len(), 4 + 4);
        assert!(settings.iter().all(|setting| setting.save_us.is_none()));
        assert!(parse(&["--real", "--save-us", "50"]).is_err());
        for wrong in ["--level=4", "--level=", "--kernel-us=1", "--samples=0"] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_arrival_has_its_line() {
        let rows = figures::tests::rows();
        let text = raw(&rows).unwrap();
        let arrivals: usize =
            rows.iter().flat_map(|(_, runs)| runs).map(|run| run.record.samples.len()).sum();
        assert_eq!(text.lines().count(), arrivals);
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert!(first["to_started_us"].is_number() && first["save_us"].is_number(), "{first}");
    }
}
