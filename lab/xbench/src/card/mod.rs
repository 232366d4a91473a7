//! `xbench card`: the parts of `xcli report` that need HIP, one in a call, as JSON ([`protocol::report`]).
//!
//! A process either has the library in front of it or not, so each part starts this program again as its worker, natively
//! and with the library. A worker dies with whoever started it, and has a limit of its own.

mod conformance;
mod devices;
mod holds;
mod library;
mod programs;
mod window;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use library::Library;
use protocol::report::Spread;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::child::{LIBRARY, beside, end_with_us, forget_environment, this_program};
use crate::stats::Samples;

/// How long one worker may take, if there is so much time.
const LIMIT: Duration = Duration::from_secs(90);
/// How long the rest of what a worker said may take to arrive when it has ended.
const REST: Duration = Duration::from_secs(2);
/// Between two looks whether a worker has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Options of `xbench card`.
#[derive(Debug, Clone, Args)]
pub struct CardArgs {
    /// What is measured
    #[arg(value_enum)]
    part: Part,
    /// Few repetitions
    #[arg(long)]
    short: bool,
    /// The library; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    shim: Option<PathBuf>,
    /// Queues may be taken off the hardware, in `conformance` by this mechanism
    #[arg(long, value_name = "MECHANISM", value_parser = holds::MECHANISMS)]
    hold: Option<String>,
    /// How long all workers together may take; those that come later are not started
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u32>,
    /// Be a worker of the part: native, library, or a mode.
    #[arg(long, hide = true, value_name = "WORK")]
    worker: Option<String>,
}

/// A part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// HIP's release and the devices
    Devices,
    /// Work and suspensions with several windows
    Window,
    /// Queues taken off the hardware; nothing without --hold
    Holds,
    /// Programs whose memory is compared
    Conformance,
}

/// Measures the part and prints it.
///
/// # Errors
/// It could not be measured at all. What went wrong in a part of it is in the JSON.
pub fn run(args: &CardArgs) -> Result<()> {
    if let Some(work) = &args.worker {
        return match args.part {
            Part::Devices => say(&devices::work()?),
            Part::Window => say(&window::work(args.short)?),
            Part::Holds => say(&holds::work(args.short)?),
            Part::Conformance => say(&programs::work(args.short, work == conformance::PATIENT)?),
        };
    }
    let end = args.limit.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    let parent = Parent { part: args.part, short: args.short, end };
    if args.part == Part::Devices {
        return say(&devices::measure(&parent)?);
    }
    let shim = shim(args.shim.as_deref())?;
    match args.part {
        Part::Devices => Ok(()),
        Part::Window => say(&window::measure(&parent, &shim)?),
        Part::Holds => say(&holds::measure(&parent, &shim, args.hold.is_some())?),
        Part::Conformance => say(&conformance::measure(&parent, &shim, args.hold.as_deref())?),
    }
}

fn say(answer: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(answer)?);
    Ok(())
}

/// The library that is put in front of workers.
fn shim(given: Option<&Path>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => beside(&this_program()?, LIBRARY),
    };
    path.canonicalize().with_context(|| format!("the library is not there: {}", path.display()))
}

/// Whoever starts workers.
#[derive(Debug, Clone, Copy)]
struct Parent {
    part: Part,
    short: bool,
    /// When the last worker has to have ended.
    end: Option<Instant>,
}

/// What a worker left.
#[derive(Debug)]
struct Said<T> {
    answer: T,
    /// What the library said, with the level debug.
    log: String,
}

/// The library in front of a worker.
#[derive(Debug, Clone, Copy)]
struct Preload<'a> {
    library: &'a Path,
    environment: &'a [(&'a str, &'a str)],
}

impl Parent {
    /// Runs a worker to its end.
    ///
    /// # Errors
    /// It cannot be started, does not end in time, fails, or says something that makes no sense; with its own words.
    fn worker<T: DeserializeOwned>(&self, work: &str, preload: Option<Preload<'_>>) -> Result<Said<T>> {
        let limit = self.limit(Instant::now())?;
        let mut child = self.start(work, preload)?;
        let output = listen(child.stdout.take());
        let errors = listen(child.stderr.take());
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().context("cannot wait for a worker")? {
                break Some(status);
            }
            if begin.elapsed() > limit {
                // A process that is stuck in the driver does not end by that either, and nobody waits for it.
                let _ = child.kill();
                break None;
            }
            std::thread::sleep(LOOK);
        };
        let log = errors.recv_timeout(REST).unwrap_or_default();
        let text = output.recv_timeout(REST).unwrap_or_default();
        let Some(status) = status else {
            bail!("the process did not end within {:.0} s{}", limit.as_secs_f64(), last_words(&log));
        };
        match (status.success(), status.code(), last_words(&log).strip_prefix(": ")) {
            (true, ..) => {}
            // It has said why itself.
            (false, Some(1), Some(words)) => bail!("{words}"),
            (false, ..) => bail!("the process ended with {status}{}", last_words(&log)),
        }
        let line = text.lines().rfind(|line| line.starts_with('{'));
        let line = line.ok_or_else(|| anyhow!("the process said nothing{}", last_words(&log)))?;
        let answer = serde_json::from_str(line).context("what the process said makes no sense")?;
        Ok(Said { answer, log })
    }

    /// What a worker may take that is started now.
    ///
    /// # Errors
    /// There is no time left.
    fn limit(&self, now: Instant) -> Result<Duration> {
        let Some(end) = self.end else { return Ok(LIMIT) };
        let left = end.saturating_duration_since(now);
        ensure!(!left.is_zero(), "no time was left for it");
        Ok(left.min(LIMIT))
    }

    fn start(&self, work: &str, preload: Option<Preload<'_>>) -> Result<Child> {
        let mut command = Command::new(this_program()?);
        let part = self.part.to_possible_value().context("every part has a name")?;
        command.arg("card").arg(part.get_name()).args(["--worker", work]);
        if self.short {
            command.arg("--short");
        }
        forget_environment(&mut command);
        if let Some(Preload { library, environment }) = preload {
            // At this level the library ends with its counts.
            command.env("LD_PRELOAD", library).env("XSCHED_LOG_LEVEL", "debug");
            command.envs(environment.iter().copied());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        end_with_us(&mut command);
        command.spawn().context("cannot start a worker")
    }
}

/// Everything that comes, when it has come.
fn listen(from: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // What came before an error is all there is.
            let _ = from.read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// The last lines that were said, without what is said in every run, to end a sentence with.
fn last_words(log: &str) -> String {
    let usual = ["amdgpu_device_initialize", "xsched: debug:", "xsched: info:"];
    let said: Vec<&str> =
        log.lines().filter(|line| !usual.iter().any(|usual| line.starts_with(usual))).collect();
    let last = said[said.len().saturating_sub(3)..].iter();
    let said = last.map(|line| line.strip_prefix("xbench: ").unwrap_or(line)).collect::<Vec<_>>().join("; ");
    if said.is_empty() { said } else { format!(": {said}") }
}

/// The counts in the last line of this kind that the library has said, such as `queues created=1 direct=3`, by name.
fn count(log: &str, kind: &str, name: &str) -> Option<u64> {
    let prefix = format!("xsched: debug: {kind} ");
    let line = log.lines().rev().find_map(|line| line.strip_prefix(&prefix))?;
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// The figures of some samples.
///
/// # Errors
/// There are none.
fn spread(samples: Vec<f64>) -> Result<Spread> {
    let samples = Samples::new(samples).context("nothing was measured")?;
    let summary = samples.summary();
    Ok(Spread { n: summary.n as u64, min: summary.min, p50: summary.p50, p90: summary.p90, max: summary.max })
}

/// The library in front of this process.
///
/// # Errors
/// There is none.
fn in_front() -> Result<Library> {
    Library::find().context("the library is not in front of the process that was to have it")
}

/// Opens HIP and sees that it has a device.
fn hip() -> Result<crate::hip::Hip> {
    let hip = crate::hip::Hip::load()?;
    ensure!(hip.device_count()? > 0, "HIP sees no GPU");
    Ok(hip)
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_librarys_counts_are_read() {
        let log = "xsched: debug: queues created=1 direct=3 deferred=0\nother\n\
                   xsched: debug: queues created=2 direct=40 deferred=7 suspensions=9 holds=4 pending=0\n\
                   xsched: debug: calls launch=12 copy=1\n";
        assert_eq!(count(log, "queues", "direct"), Some(40));
        assert_eq!(count(log, "queues", "holds"), Some(4));
        assert_eq!(count(log, "calls", "launch"), Some(12));
        assert_eq!(count(log, "calls", "deferred"), None);
        assert_eq!(count("", "calls", "launch"), None);
    }

    #[test]
    fn a_worker_has_what_time_is_left() {
        let now = Instant::now();
        let parent = |end| Parent { part: Part::Conformance, short: true, end };
        assert_eq!(parent(None).limit(now).unwrap(), LIMIT);
        assert_eq!(parent(Some(now + 2 * LIMIT)).limit(now).unwrap(), LIMIT);
        assert_eq!(parent(Some(now + LIMIT / 2)).limit(now).unwrap(), LIMIT / 2);
        assert!(parent(Some(now)).limit(now + LIMIT).is_err());
        // Each mode is named, though none is started.
        let made = conformance::measure(&parent(Some(now)), Path::new("/nowhere"), Some("update-queue"));
        let modes = made.unwrap().modes;
        assert_eq!(modes.len(), 6);
        for mode in modes {
            assert_eq!((mode.passed, mode.error.as_deref()), (false, Some("no time was left for it")));
        }
    }

    #[test]
    fn a_failure_ends_with_what_was_said() {
        let log = "amdgpu_device_initialize: x\nxbench: no\nxsched: debug: calls launch=1\n";
        assert_eq!(last_words(log), ": no");
        assert_eq!(last_words(""), "");
    }

    #[test]
    fn nothing_has_no_figures() {
        assert!(spread(vec![]).is_err());
        assert_eq!(spread(vec![3.0, 1.0]).unwrap(), Spread { n: 2, min: 1.0, p50: 1.0, p90: 3.0, max: 3.0 });
    }
}
