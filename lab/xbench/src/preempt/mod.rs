//! `xbench preempt`: measures the time from an urgent program's launch until its kernel runs and the low
//! program's queue has stopped.
//!
//! A setting is a preemption level, a length of the low program's kernels and, on the simulated GPU, the cost
//! of saving them. Each run has its own device, an `xserver` with the policy HPF, and two programs under
//! `xcli run`: a low one whose kernels fill the device back to back, and an urgent one that arrives at random
//! moments of them.
//!
//! * `to_started_us`: from before the launch call to the start of the urgent kernel, which fills the device
//!   as well. The host polls without pause for the word that the kernel stores, and subtracts the kernel's
//!   fixed 5 µs. On a GPU the first work-group stores the word; on the simulated one it appears when the last
//!   has ended, so the figure is the start of the last. The error is the time between two polls (some
//!   microseconds), the lateness of the simulated device (`device_late`), and the time that an eviction takes
//!   from an urgent kernel that already runs.
//! * `to_stopped_us`: to the moment when the low program's queues have stopped, which the server reports for
//!   the eviction of this arrival; without an eviction, to the end of the last of its kernels, or 0 if none
//!   was in flight.
//! * `alone_us`: `to_started_us` without a low program, for launches as far apart.
//! * `software_us`: to the entry of the low program's last eviction request. The time that the driver, real
//!   or simulated, needs from then on is not part of it.

mod figures;
mod low;
mod plot;
mod process;
mod sample;
mod shared_page;
mod urgent;

pub use process::PartArgs;

use crate::calibrate;
use crate::compare::interleave;
use crate::experiment::not_in_force;
use crate::files::{RunFiles, read_json, scratch, write, write_json};
use crate::process::{ensure_beside, run as run_program, this_program};
use crate::simulated::{CuModel, gpu_sim};
use crate::table::value_name;
use anyhow::{Context, Result};
use clap::{Args, value_parser};
use figures::{Figures, Quantiles};
use process::{Part, RECORD};
use sample::{ALONE, Outcome, Setting};
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The number of repetitions of a run in which the simulated device was late.
const REPEATS: usize = 2;

/// Options of `xbench preempt`.
#[derive(Debug, Clone, Args)]
pub struct PreemptArgs {
    /// Preemption levels of the low program; with --real 1 unless others are named, because 2 and 3 evict queues
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 2, 3], default_value_if("real", "true", "1"), value_parser = value_parser!(u8).range(1..=3))]
    level: Vec<u8>,
    /// Cost of saving running kernels on the simulated GPU, and of restoring them, in microseconds
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [50, 500, 5000], value_parser = value_parser!(u32).range(0..=1_000_000))]
    save_us: Vec<u32>,
    /// Length of the low program's kernels, in microseconds
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [100, 500, 2000, 10_000], value_parser = value_parser!(u32).range(50..=1_000_000))]
    kernel_us: Vec<u32>,
    /// Arrivals of the urgent program in each setting
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = value_parser!(u32).range(1..=100_000))]
    samples: u32,
    /// Runs of each setting; a figure is the median of theirs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Mechanism that evicts the low program's queues: auto, update-queue, debug-trap, or off
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = ["auto", "update-queue", "debug-trap", "off"])]
    mechanism: String,
    /// Seed of the arrivals
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// This machine's own GPU instead of a simulated one
    #[arg(long, conflicts_with = "save_us")]
    real: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Directory for figures (preempt.json), plot (preempt.svg) and all arrivals (preempt.jsonl)
    #[arg(long, value_name = "DIRECTORY", default_value = "target/bench")]
    out: PathBuf,
}

/// Runs the command. The exit code is 1 if a requested level was not in force; figures do not change it.
///
/// # Errors
/// Something could not be measured.
pub fn run(args: &PreemptArgs) -> Result<ExitCode> {
    let this = this_program()?;
    let gpu_sim = Some(&"gpu-sim").filter(|_| !args.real);
    ensure_beside(&this, ["xserver", "xcli", "libshimhip.so"].iter().chain(gpu_sim))?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let card = args.real.then(|| calibrate::card(&this)).transpose()?;
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
    let figures = Figures::new(card, args.samples, args.runs, &rows)?;

    write_json(&args.out.join("preempt.json"), &figures)?;
    write(&args.out.join("preempt.svg"), plot::svg(&figures))?;
    write(&args.out.join("preempt.jsonl"), raw(&rows)?)?;
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&figures)?),
        false => print!("{}", figures.table()),
    }
    let missing = figures.not_in_force();
    for (level, in_force, how) in &missing {
        eprintln!("xbench: {}", not_in_force(*level, *in_force, how));
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one of the processes of a run.
///
/// # Errors
/// It could not do its work.
pub fn run_part(args: &PartArgs) -> Result<()> {
    match args.part {
        Part::Session => process::run(args),
        Part::Low => low::run(args),
        Part::Urgent => urgent::run(args),
    }
}

/// Returns a line of JSON for every arrival.
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

/// Returns a summary of a run, to show progress.
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
    /// Returns all settings. The levels of a cost and a length are adjacent, so that they are measured one
    /// after the other.
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
        // Without a low program nothing is saved.
        let alone = |&kernel_us| Setting { level: ALONE, save_us: saves[0], kernel_us };
        settings.extend(self.kernel_us.iter().map(alone));
        let mut seen = BTreeSet::new();
        settings.retain(|setting| seen.insert(*setting));
        settings
    }

    /// Runs a setting, and repeats the run if the device was late; the last repetition counts even then.
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
        let scratch = scratch()?;
        let files = RunFiles(scratch.path());
        // CUDA registers shared memory, but no pages of a disk's files.
        let shared = tempfile::Builder::new().prefix("xbench-").tempfile_in("/dev/shm").ok();
        if let Some(shared) = &shared {
            std::os::unix::fs::symlink(shared.path(), files.page()).context("cannot share a page")?;
        }
        self.session(this, setting, run, files)?;
        let record = read_json(&files.record(RECORD))?;
        for part in [Part::Low, Part::Urgent] {
            let name = value_name(part);
            let log = std::fs::read_to_string(files.log(&name)).unwrap_or_default();
            for line in log.lines() {
                eprintln!("xbench: {setting}: log of the library in the {name} program: {line}");
            }
        }
        let device = if self.real { None } else { Some(read_json(&files.stats())?) };
        Ok(Outcome { record, device })
    }

    /// Runs the processes of a setting, on a simulated GPU of their own.
    fn session(&self, this: &Path, setting: Setting, run: usize, files: RunFiles<'_>) -> Result<()> {
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
            Some(save_us) => gpu_sim(this, CuModel::Shared, save_us, &files.stats(), None),
        };
        command.args(part.words(Part::Session));
        run_program(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::parse;

    #[test]
    fn settings_have_their_levels_side_by_side() {
        let settings = parse::<PreemptArgs>(&[]).unwrap().settings();
        assert_eq!(settings.len(), 3 * 3 * 4 + 4);
        assert_eq!(settings[1], Setting { level: 2, save_us: Some(50), kernel_us: 100 });
        let few = parse::<PreemptArgs>(&["--level", "3,1,3", "--save-us", "5", "--kernel-us", "100"])
            .unwrap()
            .settings();
        assert_eq!(few.iter().map(|setting| setting.level).collect::<Vec<_>>(), [3, 1, ALONE]);
    }

    #[test]
    fn real_gpu_has_no_modelled_cost() {
        let settings = parse::<PreemptArgs>(&["--real", "--level", "3"]).unwrap().settings();
        assert_eq!(settings.len(), 4 + 4);
        assert!(settings.iter().all(|setting| setting.save_us.is_none()));
        let settings = parse::<PreemptArgs>(&["--real"]).unwrap().settings();
        assert!(
            settings.iter().all(|setting| [1, ALONE].contains(&setting.level)),
            "nothing is evicted unasked"
        );
        assert!(parse::<PreemptArgs>(&["--real", "--save-us", "50"]).is_err());
        for wrong in ["--level=4", "--level=", "--kernel-us=1", "--samples=0"] {
            assert!(parse::<PreemptArgs>(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn raw_data_has_a_line_for_each_arrival() {
        let rows = figures::tests::rows();
        let text = raw(&rows).unwrap();
        let arrivals: usize =
            rows.iter().flat_map(|(_, runs)| runs).map(|run| run.record.samples.len()).sum();
        assert_eq!(text.lines().count(), arrivals);
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert!(first["to_started_us"].is_number() && first["save_us"].is_number(), "{first}");
    }
}
