//! The start and the end of workers.

use crate::process::{Program, clear_environment, last_words, this_program};
use crate::stats::Samples;
use crate::table::value_name;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use protocol::report::Spread;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

pub(super) const LIMIT: Duration = Duration::from_secs(90);
/// The time that the last lines of an ended worker may take to arrive.
const REST: Duration = Duration::from_secs(2);

/// The parts that `xbench card` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    /// HIP's release and the devices
    Devices,
    /// Throughput and suspensions with several launch windows
    Window,
    /// Kernels beside those of another program, with hardware queues of the same and of a higher priority
    Priority,
    /// Kernels on streams with masks of compute units
    UnitMasks,
    /// Evictions of queues from the hardware; refused without --hold
    Holds,
    /// Two recorded models on one GPU, without and with the library
    Corun,
    /// Programs whose effect on memory is checked
    Conformance,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Parent {
    pub(super) part: Part,
    pub(super) short: bool,
    /// The moment by which the last worker must have ended.
    pub(super) end: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Preload<'a> {
    pub(super) library: &'a Path,
    pub(super) environment: &'a [(&'a str, &'a str)],
}

impl Parent {
    /// Runs a worker to its end, and returns its answer and the library's log at level debug.
    pub(super) fn worker<T: DeserializeOwned>(
        &self,
        work: &str,
        preload: Option<Preload<'_>>,
    ) -> Result<(T, String)> {
        let limit = self.limit(Instant::now())?;
        let mut program = self.start(work, preload)?;
        let status = program.wait(limit)?;
        let log = program.errors();
        let Some(status) = status else {
            bail!("the process did not end within {:.0} s{}", limit.as_secs_f64(), last_words(&log));
        };
        match (status.code(), last_words(&log).strip_prefix(": ")) {
            (Some(0), _) => {}
            // Its own error message is the reason.
            (Some(1), Some(words)) => bail!("{words}"),
            _ => bail!("the process ended with {status}{}", last_words(&log)),
        }
        let lines = program.remaining_lines(REST);
        let line = lines.iter().rfind(|line| line.starts_with('{'));
        let line = line.with_context(|| format!("the process printed no answer{}", last_words(&log)))?;
        let answer = serde_json::from_str(line).context("the answer of the process is malformed")?;
        Ok((answer, log))
    }

    /// Returns the time limit of a worker that is started now.
    pub(super) fn limit(&self, now: Instant) -> Result<Duration> {
        let Some(end) = self.end else { return Ok(LIMIT) };
        let left = end.saturating_duration_since(now);
        ensure!(!left.is_zero(), "no time was left for it");
        Ok(left.min(LIMIT))
    }

    /// Starts a worker that runs until it is killed.
    pub(super) fn start(&self, work: &str, preload: Option<Preload<'_>>) -> Result<Program> {
        let mut command = Command::new(this_program()?);
        command.arg("card").arg(value_name(self.part)).args(["--worker", work]);
        if self.short {
            command.arg("--short");
        }
        clear_environment(&mut command);
        if let Some(Preload { library, environment }) = preload {
            // At this level the library logs its counts when it ends.
            command.env("LD_PRELOAD", library).env("XSCHED_LOG_LEVEL", "debug");
            command.envs(environment.iter().copied());
        }
        Program::start("worker", command)
    }
}

pub(super) fn spread(samples: Vec<f64>) -> Result<Spread> {
    let samples = Samples::new(samples).context("nothing was measured")?;
    let [p50, p90] = [50.0, 90.0].map(|percent| samples.percentile(percent));
    Ok(Spread { n: samples.len() as u64, min: samples.min(), p50, p90, max: samples.max() })
}
