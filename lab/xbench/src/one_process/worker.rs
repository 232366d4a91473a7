//! The process that runs both models, each on a thread and a stream of its own.

use crate::clock::{now_ns, wait_until};
use crate::files::{RunFiles, read_json, write_json};
use crate::hip::Hip;
use crate::library::Library;
use crate::process::print_word;
use crate::processor_time::library_cpu;
use crate::replay::launches::Launches;
use crate::replay::player::Player;
use crate::replay::schedule::{Pattern, moments};
use crate::replay::{Record, WARM_UP, serve};
use crate::trace::Trace;
use crate::traffic::Traffic;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The time between the last warm-up and the start.
const RUN_UP_NS: u64 = 20_000_000;

/// Options of a process of `xbench one-process`.
#[derive(Debug, Clone, Args)]
pub struct PartArgs {
    /// The directory with `session.json`, into which the results go.
    #[arg(long)]
    dir: PathBuf,
    /// Preload this library, with a policy in the process.
    #[arg(long, requires = "policy")]
    shim: Option<PathBuf>,
    /// The policy.
    #[arg(long)]
    policy: Option<String>,
}

/// The work of a process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) models: Vec<Model>,
    /// The time in which requests arrive.
    pub(super) seconds: f64,
    /// The seed of the arrivals.
    pub(super) seed: u64,
    /// The memory traffic of both models' kernels.
    pub(super) traffic: Traffic,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Model {
    /// `high` or `low`.
    pub(super) name: String,
    pub(super) trace: PathBuf,
    /// Requests a second; without it one inference follows the other.
    pub(super) rate: Option<f64>,
    pub(super) priority: i32,
}

/// State that the threads share.
#[derive(Debug)]
struct Shared<'a> {
    part: &'a Part,
    /// Passed when every model is warm.
    warm: Barrier,
    /// The start, nanoseconds of the monotonic clock; 0 until it is known.
    start: AtomicU64,
    /// True when the last request is served.
    done: AtomicBool,
}

/// Runs the models and writes their records.
///
/// # Errors
/// The library cannot be preloaded, or a model cannot be run.
pub fn run(args: &PartArgs) -> Result<()> {
    let files = RunFiles(&args.dir);
    // gpu-sim starts this process, so it preloads the library itself: by starting itself once more.
    if let (Some(shim), Some(policy)) = (&args.shim, &args.policy) {
        let mut again = Command::new(crate::process::this_program()?);
        again.arg("one-process-part").arg("--dir").arg(&args.dir);
        again
            .env("LD_PRELOAD", shim)
            .env("XSCHED_SCHEDULER", "LCL")
            .env("XSCHED_POLICY", policy)
            .env("XSCHED_AUTO_XQUEUE", "ON")
            .env("XSCHED_LOG_LEVEL", "debug")
            .env("XSCHED_LOG_FILE", files.log("library"));
        return Err(again.exec()).context("cannot start this program again");
    }
    let part: Part = read_json(&files.session())?;
    let shared = Shared {
        part: &part,
        warm: Barrier::new(part.models.len()),
        start: AtomicU64::new(0),
        done: AtomicBool::new(false),
    };
    let records = std::thread::scope(|scope| {
        let threads: Vec<_> =
            part.models.iter().map(|model| scope.spawn(|| replay(model, &shared))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Record>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a model's thread panicked")))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    for (model, record) in part.models.iter().zip(&records) {
        write_json(&files.record(&model.name), record)?;
    }
    print_word("done")
}

/// Runs one model on this thread.
fn replay(model: &Model, shared: &Shared<'_>) -> Result<Record> {
    let prepared = prepare(model, shared.part.traffic);
    // Also after an error, because the other model waits.
    let last = shared.warm.wait().is_leader();
    if last {
        shared.start.store(now_ns() + RUN_UP_NS, Ordering::Release);
    }
    let mut player = prepared.inspect_err(|_| shared.done.store(true, Ordering::Release))?;
    let start = loop {
        match shared.start.load(Ordering::Acquire) {
            0 => std::hint::spin_loop(),
            start => break start,
        }
    };
    let library = library_cpu();
    let requests = requests(model, shared, &mut player, start);
    let open = model.rate.is_some();
    if open {
        shared.done.store(true, Ordering::Release);
    }
    let requests = requests?;
    let library = library_cpu().zip(library).map(|(after, before)| after.saturating_sub(before));
    Ok(Record {
        pid: std::process::id(),
        trace: model.name.clone(),
        warm_up: player.requests() - requests.len() as u64,
        start_ns: start,
        seconds: shared.part.seconds,
        digest: player.check()?.text(),
        traffic: shared.part.traffic,
        traffic_bytes: player.check_traffic()?,
        library_s: library.map(|time| time.as_secs_f64()),
        requests,
    })
}

/// Loads a model, gives its queue the priority, and runs it until it is warm.
fn prepare(model: &Model, traffic: Traffic) -> Result<Player> {
    let hip = Hip::load()?;
    let trace = Trace::load(&model.trace)?;
    let mut player = Player::new(&hip, &trace, 1.0, traffic, false, Launches::new(false))?;
    if let Some(library) = Library::find() {
        library.queue(player.stream())?.set_priority(model.priority)?;
    }
    for _ in 0..WARM_UP {
        player.infer()?;
        player.check()?;
    }
    Ok(player)
}

fn requests(
    model: &Model,
    shared: &Shared<'_>,
    player: &mut Player,
    start: u64,
) -> Result<Vec<crate::replay::Request>> {
    let Part { models, seconds, seed, .. } = shared.part;
    let mut requests = Vec::new();
    if let Some(rate) = model.rate {
        for arrival in moments(Pattern::Poisson, rate, *seconds, *seed) {
            wait_until(start + arrival);
            requests.push(serve(player, start, Some(arrival))?);
        }
        return Ok(requests);
    }
    wait_until(start);
    let end = start + (seconds * 1e9) as u64;
    let alone = models.len() == 1;
    // Beside the urgent model it runs until that has served its last request.
    while if alone { now_ns() < end } else { !shared.done.load(Ordering::Acquire) } {
        requests.push(serve(player, start, None)?);
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_survives_the_file() {
        let trace = PathBuf::from("t.json");
        let model = |name: &str, rate| Model { name: name.into(), trace: trace.clone(), rate, priority: 3 };
        let part = Part {
            models: vec![model("high", Some(2.0)), model("low", None)],
            seconds: 2.0,
            seed: 9,
            traffic: Traffic::Recorded,
        };
        let read: Part = serde_json::from_str(&serde_json::to_string(&part).unwrap()).unwrap();
        assert_eq!((read.models.len(), read.models[0].rate, read.seed), (2, Some(2.0), 9));
        assert_eq!(read.models[1].name, "low");
    }

    #[test]
    fn model_that_cannot_be_loaded_is_an_error_for_both() {
        let missing =
            |name: &str| Model { name: name.into(), trace: "/no/such/trace".into(), rate: None, priority: 0 };
        let part = Part {
            models: vec![missing("high"), missing("low")],
            seconds: 0.1,
            seed: 1,
            traffic: Traffic::None,
        };
        let shared = Shared {
            part: &part,
            warm: Barrier::new(2),
            start: AtomicU64::new(0),
            done: AtomicBool::new(false),
        };
        let errors = std::thread::scope(|scope| {
            let threads: Vec<_> =
                part.models.iter().map(|model| scope.spawn(|| replay(model, &shared))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap().is_err()).collect::<Vec<_>>()
        });
        assert_eq!(errors, [true, true]);
    }
}
