//! `xbench launch-path`: what the preloaded library adds to a launch, and to a launch with a synchronization.
//!
//! A process either has the library in front of it or not, so two workers live at the same time, and short rounds
//! alternate between them: both see the same machine. A figure is the median over rounds of the difference within a
//! round. The runtime under both does nothing (see `null-runtime/`), so that what is left is the way to it; with
//! `--real` the machine's own HIP follows, where it is a ratio that counts.
//!
//! A round that went past the library would look wonderful. Therefore each worker says in which file the functions lie
//! that it calls, and at its end the library's own counters must equal the calls that its worker made.

mod null;
mod worker;

use crate::compare::{interleave, median_difference};
use crate::report::{Figure, Limit, Report};
use crate::stats::Samples;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use worker::{Kind, Runtime, Worker};

/// Options of `xbench launch-path`.
#[derive(Debug, Clone, Args)]
pub struct LaunchPathArgs {
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
    /// Measure on this machine's own HIP runtime as well (under gpu-sim run where there is no GPU)
    #[arg(long)]
    real: bool,
    /// Calls in a round on the runtime that does nothing; a real one gets a twentieth, at most 1000
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    calls: u32,
    /// Rounds for each worker
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(3..=100_000))]
    rounds: u32,
    /// The preloaded library; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    shim: Option<PathBuf>,
    /// Be a worker: make calls as standard input says.
    #[arg(long, hide = true, value_name = "RUNTIME")]
    worker: Option<Runtime>,
}

/// The limits of the issue that the figures have to keep, in nanoseconds and as a ratio.
const DIRECT_ADDED_NS: f64 = 60.0;
const LAUNCH_SYNC_ADDED_NS: f64 = 500.0;
const REAL_RATIO: f64 = 1.15;

/// Runs the command. An error if something could not be measured, or if a limit is missed.
pub fn run(args: LaunchPathArgs) -> Result<()> {
    if let Some(runtime) = &args.worker {
        return worker::serve(runtime);
    }
    let shim = shim(args.shim.as_deref())?;
    let null = null::NullRuntime::install()?;
    let rounds = args.rounds as usize;
    let plan = [(Kind::Launch, args.calls), (Kind::LaunchSync, args.calls)];
    let idle = measure(&shim, &Runtime::Null(null.path().to_owned()), plan, rounds)?;
    // A runtime lets so many launches wait for the device before it makes the caller wait.
    let plan = [
        (Kind::Launch, (args.calls / 20).clamp(1, 1000)),
        (Kind::LaunchSync, (args.calls / 100).clamp(1, 200)),
    ];
    let real = match args.real {
        true => Some(measure(&shim, &Runtime::Real, plan, rounds).context("on this machine's HIP runtime")?),
        false => None,
    };
    let outcome = Outcome::new(&idle, real.as_ref())?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&outcome)?);
    } else {
        print!("{}", outcome.table());
    }
    let missed = outcome.report.missed().count();
    ensure!(missed == 0, "{missed} of the limits missed");
    Ok(())
}

/// The library: where it was said to be, or beside this program.
fn shim(given: Option<&Path>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()
            .context("cannot find this program's own file")?
            .with_file_name("libshimhip.so"),
    };
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) => bail!(
            "{}: {error}; build it with: cargo build --release -p shim (or name it with --shim)",
            path.display()
        ),
    }
}

/// What two workers took, round by round, in nanoseconds for each call.
#[derive(Debug, Clone, PartialEq)]
struct Measured {
    launch: Pair,
    launch_sync: Pair,
    /// Calls that the library's worker made, all of which the library has counted.
    counted: u64,
}

/// One kind of call, natively and through the library; equally many rounds.
#[derive(Debug, Clone, PartialEq)]
struct Pair {
    native: Vec<f64>,
    shimmed: Vec<f64>,
}

impl Pair {
    fn added(&self) -> Result<f64> {
        median_difference(&self.shimmed, &self.native).context("no rounds were measured")
    }

    /// Median of what a round with the library takes, over the round without it that was next to it. (Not the ratio of
    /// the medians: a machine that is now and then slow for both is not slower with the library.)
    fn ratio(&self) -> Result<f64> {
        let ratios = self.shimmed.iter().zip(&self.native).map(|(shimmed, native)| shimmed / native);
        Ok(Samples::new(ratios.collect()).context("no rounds were measured")?.median())
    }

    /// The two medians.
    fn medians(&self) -> Result<(f64, f64)> {
        let median = |values: &[f64]| Some(Samples::new(values.to_vec())?.median());
        median(&self.native).zip(median(&self.shimmed)).context("no rounds were measured")
    }
}

fn measure(shim: &Path, runtime: &Runtime, plan: [(Kind, u32); 2], rounds: usize) -> Result<Measured> {
    let mut workers = [Worker::start(runtime, None)?, Worker::start(runtime, Some(shim))?];
    let mut pairs = Vec::new();
    for (kind, calls) in plan {
        // The first round of each worker looks functions up and warms caches; it is not one of the figures.
        for worker in &mut workers {
            worker.round(kind, calls)?;
        }
        let figures = interleave(&[0, 1], rounds, |_, &index: &usize| {
            workers[index].round(kind, calls).map(|time| time.as_nanos() as f64 / f64::from(calls))
        })?;
        let [native, shimmed] = figures.try_into().expect("two modes give two lists");
        pairs.push(Pair { native, shimmed });
    }
    let [launch, launch_sync] = pairs.try_into().expect("two kinds give two pairs");
    let [native, shimmed] = workers;
    native.finish()?;
    let counted = shimmed.finish()?;
    Ok(Measured { launch, launch_sync, counted })
}

/// What the command prints. A figure that is not measured yet, or was not asked for, is null.
#[derive(Debug, Serialize)]
struct Outcome {
    command: &'static str,
    met: bool,
    /// Added to a launch that is forwarded at once.
    direct_added_ns: f64,
    /// Added to a launch while an urgent rival is connected: comes with the scheduler across processes.
    contended_added_ns: Option<f64>,
    /// Added to a launch that is deferred: comes with the queues.
    deferred_added_ns: Option<f64>,
    /// Processor time that a deferred launch costs over all threads: comes with the queues.
    deferred_cpu_ns: Option<f64>,
    /// Added to a launch and the synchronization after it.
    launch_sync_added_ns: f64,
    /// On the machine's own HIP: a launch with the library over one without.
    real_ratio: Option<f64>,
    /// Calls on the runtime that does nothing, made with the library and counted by it.
    calls_counted: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    real_calls_counted: Option<u64>,
    #[serde(flatten)]
    report: Report,
}

impl Outcome {
    fn new(idle: &Measured, real: Option<&Measured>) -> Result<Self> {
        let mut report = Report::default();
        let direct_added_ns = idle.launch.added()?;
        let launch_sync_added_ns = idle.launch_sync.added()?;
        let (native, shimmed) = idle.launch.medians()?;
        report.push(Figure::info("native_ns", "launch", native, "ns"));
        report.push(Figure::info("shim_ns", "launch with the library", shimmed, "ns"));
        report.push(Figure::judged(
            "direct_added_ns",
            "  added to a launch",
            direct_added_ns,
            "ns",
            Limit::at_most(DIRECT_ADDED_NS),
        ));
        let (native, shimmed) = idle.launch_sync.medians()?;
        report.push(Figure::info("native_sync_ns", "launch + synchronize", native, "ns"));
        report.push(Figure::info("shim_sync_ns", "launch + synchronize with the library", shimmed, "ns"));
        report.push(Figure::judged(
            "launch_sync_added_ns",
            "  added to launch + synchronize",
            launch_sync_added_ns,
            "ns",
            Limit::at_most(LAUNCH_SYNC_ADDED_NS),
        ));
        let real_ratio = real.map(|real| Self::judge_real(real, &mut report)).transpose()?;
        Ok(Self {
            command: "launch-path",
            met: report.is_met(),
            direct_added_ns,
            contended_added_ns: None,
            deferred_added_ns: None,
            deferred_cpu_ns: None,
            launch_sync_added_ns,
            real_ratio,
            calls_counted: idle.counted,
            real_calls_counted: real.map(|real| real.counted),
            report,
        })
    }

    fn judge_real(real: &Measured, report: &mut Report) -> Result<f64> {
        let (native, shimmed) = real.launch.medians()?;
        let ratio = real.launch.ratio()?;
        report.push(Figure::info("real_native_ns", "launch, stock HIP", native, "ns"));
        report.push(Figure::info("real_shim_ns", "launch, stock HIP, with the library", shimmed, "ns"));
        report.push(Figure::judged(
            "real_ratio",
            "  with over without",
            ratio,
            "",
            Limit::at_most(REAL_RATIO),
        ));
        let (native, shimmed) = real.launch_sync.medians()?;
        report.push(Figure::info("real_native_sync_ns", "launch + synchronize, stock HIP", native, "ns"));
        report.push(Figure::info(
            "real_shim_sync_ns",
            "launch + synchronize, stock HIP, with the library",
            shimmed,
            "ns",
        ));
        Ok(ratio)
    }

    fn table(&self) -> String {
        let mut text = format!(
            "What the library adds to a call, on a runtime that does nothing; medians over alternating rounds\n\n{}\n\
             {} calls made with the library, as many counted by it.\n",
            self.report, self.calls_counted
        );
        if let Some(counted) = self.real_calls_counted {
            text.push_str(&format!("On stock HIP {counted} calls made, as many counted.\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(native: f64, shimmed: f64) -> Measured {
        let pair = |scale: f64| Pair {
            native: vec![native * scale; 3],
            shimmed: vec![shimmed * scale, shimmed * scale, 1e6],
        };
        Measured { launch: pair(1.0), launch_sync: pair(2.0), counted: 7 }
    }

    #[test]
    fn figures_that_are_not_measured_are_null() {
        let outcome = Outcome::new(&measured(2.0, 12.0), None).unwrap();
        let json = serde_json::to_value(&outcome).unwrap();
        assert_eq!(json["direct_added_ns"], 10.0);
        assert_eq!(json["launch_sync_added_ns"], 20.0);
        assert_eq!(json["calls_counted"], 7);
        for name in ["contended_added_ns", "deferred_added_ns", "deferred_cpu_ns", "real_ratio"] {
            assert!(json.as_object().unwrap().contains_key(name) && json[name].is_null(), "{name}");
        }
        assert_eq!(json["met"], true);
    }

    #[test]
    fn limits_are_judged() {
        let real = measured(1000.0, 1151.0);
        let outcome = Outcome::new(&measured(2.0, 63.0), Some(&real)).unwrap();
        let missed: Vec<_> = outcome.report.missed().map(|figure| figure.name).collect();
        assert_eq!(missed, ["direct_added_ns", "real_ratio"]);
        assert_eq!(outcome.real_ratio, Some(1.151));
        assert!(outcome.table().contains("MISSED"));
    }
}
