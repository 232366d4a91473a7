//! `xbench replay`: runs a recorded model as load and measures its inferences.
//!
//! A file of `examples/traces` holds the commands of one inference. Kernels become `busy` kernels of the
//! recorded grid, block, local memory and duration, with `--traffic` also of the memory traffic of the recorded kernel's
//! class. Memsets stay memsets, and after every eighth command a
//! `mix` kernel adds to a digest that is checked after each inference. An inference ends with a
//! synchronization of its stream. With `--rate` requests arrive at given times (by default as a Poisson
//! process), one thread serves them in order, and a latency counts from the arrival; without it one inference
//! follows the other.

pub(crate) mod digest;
pub(crate) mod launches;
pub(crate) mod player;
pub(crate) mod schedule;

use crate::WrongInput;
use crate::clock::{now_ns, wait_until};
use crate::files::write;
use crate::hip::Hip;
use crate::library::{Library, Queue};
use crate::process::{self, print_word};
use crate::processor_time::library_cpu;
use crate::stats::Samples;
use crate::trace::Trace;
use crate::traffic::Traffic;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use digest::{Digest, mixes_of};
use launches::Launches;
use player::Player;
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The inferences before the measurement: code and memory are mapped, clocks are up, and a library that
/// estimates kernel times knows them.
pub(crate) const WARM_UP: u64 = 3;

/// Checks the text of a trace, and returns its number of commands.
///
/// # Errors
/// It cannot be replayed.
pub fn check_trace(text: &str) -> Result<usize, WrongInput> {
    Trace::parse(text).map(|trace| trace.commands.len())
}

/// Options of `xbench replay`.
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// File of the recorded model, see examples/traces
    trace: PathBuf,
    /// Requests per second; without the option one inference follows the other
    #[arg(long, value_name = "R", value_parser = rate)]
    rate: Option<f64>,
    /// How requests arrive
    #[arg(long, value_enum, default_value_t = schedule::Pattern::Poisson, requires = "rate")]
    arrivals: schedule::Pattern,
    /// Microseconds of work on the host before the first launch of a request
    #[arg(long, value_name = "US", default_value_t = 0, requires = "rate", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    prepare_us: u32,
    /// Microseconds of work on the host between the end of an inference and the next one
    #[arg(long, value_name = "US", default_value_t = 0, conflicts_with = "rate", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    think_us: u32,
    /// Announce each request to the preloaded library when it arrives: its first launch follows after the
    /// preparation
    #[arg(long, requires = "rate")]
    hint: bool,
    /// Time in which requests arrive, or inferences are begun
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Multiplies kernel durations and the host's gaps between submits (which are first multiplied by 0.49,
    /// the recorder's own slow-down)
    #[arg(long, value_name = "K", default_value_t = 1.0, value_parser = scale)]
    scale: f64,
    /// Seed of the arrivals: the same number, the same moments
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The stream to work on; PyTorch works on the null stream
    #[arg(long, value_enum, default_value_t = StreamKind::Null)]
    stream: StreamKind,
    /// Memory traffic of the kernels while they run
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Traffic::None)]
    traffic: Traffic,
    /// Write every inference's times as JSON
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Write the time of each launch: 8 bytes, little endian, nanoseconds of the monotonic clock.
    #[arg(long, value_name = "FILE", hide = true)]
    launches: Option<PathBuf>,
    /// Print `ready`, wait for `start NS` on standard input, and end at `stop` or once every request is
    /// served.
    #[arg(long, hide = true)]
    gate: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StreamKind {
    /// The null stream.
    Null,
    /// A stream of its own.
    Created,
}

fn number(text: &str, range: std::ops::RangeInclusive<f64>) -> Result<f64, WrongInput> {
    let value = text.parse().map_err(|_| WrongInput("not a number".to_owned()))?;
    let outside = || WrongInput(format!("not in {} to {}", range.start(), range.end()));
    if range.contains(&value) { Ok(value) } else { Err(outside()) }
}

pub(crate) fn rate(text: &str) -> Result<f64, WrongInput> {
    number(text, 0.01..=10_000.0)
}

/// Parses the length of a run in seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, WrongInput> {
    number(text, 0.1..=3600.0)
}

pub(crate) fn scale(text: &str) -> Result<f64, WrongInput> {
    number(text, 0.01..=1000.0)
}

/// An inference; times are microseconds from the start of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The arrival; back to back, the begin.
    pub arrived_us: f64,
    /// The moment before the submit of its first command.
    pub began_us: f64,
    /// The moment at which the wait for its last command ended.
    pub ended_us: f64,
}

impl Request {
    /// Returns the time from arrival to end, milliseconds.
    pub fn latency_ms(&self) -> f64 {
        // Rounded to the measured nanoseconds, because a binary fraction has more digits.
        ((self.ended_us - self.arrived_us) * 1e3).round() / 1e6
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The process id, which the device's statistics use as well.
    pub pid: u32,
    pub trace: String,
    pub warm_up: u64,
    /// The start of the measurement, nanoseconds of the monotonic clock.
    pub start_ns: u64,
    /// Seconds in which requests arrived.
    pub seconds: f64,
    /// The device's digest after the last inference.
    pub digest: String,
    /// Seconds of processor time of the library's own threads from the start to the end of the last inference; `None` where
    /// the kernel does not count it.
    pub library_s: Option<f64>,
    /// The memory traffic of its kernels.
    pub traffic: Traffic,
    /// The bytes that its kernels read and wrote in all inferences, which the process has checked.
    pub traffic_bytes: u64,
    pub requests: Vec<Request>,
}

impl Record {
    /// Returns the inferences per second until the end of the last one, or for requests with arrivals
    /// (`open`) until the end of the arrivals if that is later.
    pub fn per_second(&self, open: bool) -> f64 {
        let Some(last) = self.requests.last() else { return 0.0 };
        let least = if open { self.seconds } else { 0.0 };
        self.requests.len() as f64 / (last.ended_us / 1e6).max(least)
    }

    /// Returns the number of all inferences, including those before the measurement.
    pub fn inferences(&self) -> u64 {
        self.warm_up + self.requests.len() as u64
    }

    /// Checks that the program `name` finished inferences of so many commands, and that their digest is the one that the host
    /// computes. Returns the number of launches for that.
    pub fn check(&self, name: &str, commands: usize) -> Result<u64> {
        ensure!(!self.requests.is_empty(), "{name} finished nothing");
        ensure!(
            self.digest == Digest::of(self.inferences(), commands).text(),
            "the digest of {name} is wrong: commands were lost, doubled or run in another order"
        );
        Ok(self.inferences() * (commands as u64 + mixes_of(commands)))
    }

    /// Returns the nanoseconds of the monotonic clock at a time of the record.
    pub fn at_ns(&self, us: f64) -> u64 {
        self.start_ns + (us * 1e3).round() as u64
    }

    /// Returns the latencies in milliseconds, in the order of arrival.
    pub fn latencies_ms(&self) -> Vec<f64> {
        self.requests.iter().map(Request::latency_ms).collect()
    }
}

/// Runs the command.
///
/// # Errors
/// Something could not be run, or a digest is wrong.
pub fn run(args: &ReplayArgs) -> Result<()> {
    let trace = Trace::load(&args.trace)?;
    let hip = Hip::load()?;
    let launches = Launches::new(args.launches.is_some());
    let mut player =
        Player::new(&hip, &trace, args.scale, args.traffic, args.stream == StreamKind::Null, launches)?;
    for _ in 0..WARM_UP {
        player.infer()?;
        player.check()?;
    }
    let hints = args.hint.then(|| queue(&player)).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    let start = if args.gate { pass_gate(&stop)? } else { now_ns() };
    let library_before = library_cpu();
    let mut requests = Vec::new();
    match args.rate {
        Some(rate) => {
            for arrival in schedule::moments(args.arrivals, rate, args.seconds, args.seed) {
                wait_until(start + arrival);
                if let Some(hints) = &hints {
                    hints.hint_arrival(args.prepare_us.into())?;
                }
                // Counted from now, not from the arrival: a request that had to wait is prepared afterwards.
                wait_until(now_ns() + u64::from(args.prepare_us) * 1_000);
                requests.push(serve(&mut player, start, Some(arrival))?);
            }
        }
        None => {
            wait_until(start);
            let end = start + (args.seconds * 1e9) as u64;
            // With a gate the parent process decides.
            while if args.gate { !stop.load(Ordering::Acquire) } else { now_ns() < end } {
                requests.push(serve(&mut player, start, None)?);
                wait_until(now_ns() + u64::from(args.think_us) * 1_000);
            }
        }
    }
    let library = library_cpu().zip(library_before).map(|(after, before)| after.saturating_sub(before));
    let record = Record {
        pid: std::process::id(),
        start_ns: start,
        trace: trace.name.clone(),
        warm_up: player.requests() - requests.len() as u64,
        seconds: args.seconds,
        digest: player.check()?.text(),
        library_s: library.map(|time| time.as_secs_f64()),
        traffic: args.traffic,
        traffic_bytes: player.check_traffic()?,
        requests,
    };
    if let Some(path) = &args.launches {
        player.launches().write(path)?;
    }
    if let Some(path) = &args.record {
        let text = serde_json::to_string(&record)?;
        write(path, &text)?;
    }
    if args.gate {
        print_word("done")?;
    } else {
        print!("{}", table(&record, args.rate.is_some(), args.think_us)?);
    }
    Ok(())
}

/// Returns the XQueue for hints.
fn queue(player: &Player) -> Result<Queue> {
    let library = Library::find();
    let library =
        library.context("--hint needs libshimhip.so to be preloaded, with XSCHED_AUTO_XQUEUE=ON")?;
    library.queue(player.stream())
}

/// Runs an inference; `start` is the start of the measurement, and `arrival` a time after it, nanoseconds.
pub(crate) fn serve(player: &mut Player, start: u64, arrival: Option<u64>) -> Result<Request> {
    let began = now_ns() - start;
    player.infer()?;
    let ended = now_ns() - start;
    player.check()?;
    let us = |ns: u64| ns as f64 / 1e3;
    Ok(Request { arrived_us: us(arrival.unwrap_or(began)), began_us: us(began), ended_us: us(ended) })
}

/// Reports that this process is warm, and waits for the start moment. From then on a line, or the end of
/// standard input if the parent has ended, sets `stop`.
fn pass_gate(stop: &Arc<AtomicBool>) -> Result<u64> {
    let start = process::pass_gate()?;
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        stop.store(true, Ordering::Release);
    });
    Ok(start)
}

fn table(record: &Record, open: bool, think_us: u32) -> Result<String> {
    let latencies = Samples::new(record.latencies_ms()).context("nothing was measured")?;
    let [min, p50, p90, p99, max] =
        [0.0, 50.0, 90.0, 99.0, 100.0].map(|percent| latencies.percentile(percent));
    let what = match (open, think_us) {
        (true, _) => "requests, from arrival to end".to_owned(),
        (false, 0) => "inferences, back to back".to_owned(),
        (false, us) => format!("inferences, each {us} µs after the last"),
    };
    let traffic = match record.traffic_bytes {
        0 => String::new(),
        bytes => format!(
            "memory traffic: {:.3} GB an inference, all of it counted\n",
            bytes as f64 / 1e9 / record.inferences() as f64
        ),
    };
    Ok(format!(
        "{}: {} {what}; {:.2} a second\nmilliseconds: min {min:.2}, p50 {p50:.2}, p90 {p90:.2}, p99 {p99:.2}, max {max:.2}\n\
         digest {} after {} inferences, which is correct\n{traffic}",
        record.trace,
        latencies.len(),
        record.per_second(open),
        record.digest,
        record.inferences(),
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A record without requests.
    pub(crate) fn blank() -> Record {
        Record {
            pid: 1,
            trace: "t".into(),
            warm_up: 3,
            start_ns: 0,
            seconds: 1.0,
            digest: "0".into(),
            library_s: None,
            traffic: Traffic::None,
            traffic_bytes: 0,
            requests: Vec::new(),
        }
    }

    fn record(ended_ms: &[f64]) -> Record {
        let request = |ms: &f64| Request { arrived_us: 1000.0, began_us: 1500.0, ended_us: ms * 1e3 };
        let requests = ended_ms.iter().map(request).collect();
        Record { seconds: 2.0, requests, ..blank() }
    }

    #[test]
    fn latency_counts_from_arrival() {
        assert_eq!(record(&[5.0, 9.0]).latencies_ms(), [4.0, 8.0]);
    }

    #[test]
    fn rate_counts_the_whole_time() {
        assert_eq!(record(&[500.0, 1000.0]).per_second(true), 1.0);
        assert_eq!(record(&[500.0, 1000.0]).per_second(false), 2.0);
        assert_eq!(record(&[500.0, 4000.0]).per_second(true), 0.5);
        assert_eq!(record(&[]).per_second(true), 0.0);
    }

    #[test]
    fn number_out_of_range_is_an_error() {
        assert_eq!(seconds("2.5"), Ok(2.5));
        assert_eq!(rate("fast").unwrap_err().0, "not a number");
        for wrong in ["0", "-1", "nan", "inf"] {
            assert!(scale(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn record_survives_the_file() {
        let record = record(&[1.5]);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }
}
