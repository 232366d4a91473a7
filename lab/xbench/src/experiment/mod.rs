//! Experiments: recorded models together on one GPU, in several modes side by side.
//!
//! A block runs every mode once, every second block in reverse order. Requests of a block arrive at the same
//! moments in all modes; every request is served, and its latency counts from its arrival. Programs without a
//! rate run back to back until the last request is served. Each run is a [`crate::session`], which checks the
//! work.

mod policy;

pub(crate) use policy::PolicyWords;

use crate::WrongInput;
use crate::account::{self, Accounts, Class, RunAccount, Runs};
use crate::calibrate;
use crate::compare::interleave;
use crate::process::{ensure_beside, this_program};
use crate::replay::Record;
use crate::replay::digest::mixes_of;
use crate::replay::schedule::Pattern;
use crate::session::{self, Session};
use crate::simulated::{Counts, DeviceStats, GpuArgs, Measured};
use crate::stats::Samples;
use crate::trace::Trace;
use crate::traffic::Traffic;
use anyhow::Result;
use protocol::control::Preemption;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) name: String,
    /// The file of its recorded model, in the folder of the experiment.
    pub(crate) trace: PathBuf,
    /// Multiplies its recorded times.
    pub(crate) scale: f64,
    /// Requests a second and how they arrive; without a load one inference follows the other, at once or after
    /// `think_us`.
    pub(crate) load: Option<(f64, Pattern)>,
    pub(crate) priority: i32,
    /// Its share in percent, for policies that use it.
    pub(crate) utilization: u32,
    /// The time in which a request is to be done, for policies that use it, in milliseconds.
    pub(crate) deadline_ms: Option<f64>,
    /// Microseconds of work on the host before the first launch of a request.
    pub(crate) prepare_us: u32,
    /// Without a load: microseconds of work on the host between two inferences.
    pub(crate) think_us: u32,
    /// Its preemption level, if that is not the level of the mode.
    pub(crate) level: Option<u8>,
    /// Further variables for the library: names without their prefix `XSCHED_`, and values.
    pub(crate) variables: Vec<(String, String)>,
}

impl Program {
    pub(crate) fn new(
        name: &str,
        trace: impl Into<PathBuf>,
        load: Option<(f64, Pattern)>,
        priority: i32,
    ) -> Self {
        Self {
            name: name.to_owned(),
            trace: trace.into(),
            scale: 1.0,
            load,
            priority,
            utilization: 100,
            deadline_ms: None,
            prepare_us: 0,
            think_us: 0,
            level: None,
            variables: Vec::new(),
        }
    }
}

impl Program {
    /// Returns true if the latency of its requests is a figure: it does not run back to back.
    pub(crate) fn has_latency(&self) -> bool {
        self.load.is_some() || self.think_us != 0
    }

    /// Returns the deadline that the program hints under this policy, in milliseconds. A target in the policy's words replaces
    /// the program's own deadline, because a policy ignores its target where a program hints a deadline.
    pub(crate) fn deadline_ms(&self, policy: Option<&PolicyWords>) -> Option<f64> {
        let own = self.deadline_ms?;
        Some(policy.and_then(|policy| policy.target_ms).unwrap_or(own))
    }
}

/// The programs that run at the same time, and their scheduler.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Mode {
    /// One program, by its index.
    Alone(usize),
    /// All programs, without the library.
    Native,
    /// All programs with the library under `xserver`, at one priority, so that none is suspended.
    Equal(u8),
    /// All programs with the library under `xserver` with this policy, at this preemption level.
    Policy(PolicyWords, u8),
}

impl Mode {
    pub(crate) const WITHOUT: &str = "without giveway";
    pub(crate) const EQUAL: &str = "all at one priority";

    pub(crate) fn name(&self, programs: &[Program]) -> String {
        match self {
            Self::Alone(index) => format!("{} alone", programs[*index].name),
            Self::Native => Self::WITHOUT.to_owned(),
            Self::Equal(_) => Self::EQUAL.to_owned(),
            Self::Policy(policy, _) => policy.text.clone(),
        }
    }

    /// Returns the policy whose name and parameters were given.
    pub(crate) fn policy(&self) -> Option<&PolicyWords> {
        match self {
            Self::Policy(policy, _) => Some(policy),
            _ => None,
        }
    }

    /// Returns the indices of the programs that run.
    pub(crate) fn indices(&self, programs: usize) -> Range<usize> {
        match self {
            Self::Alone(index) => *index..*index + 1,
            _ => 0..programs,
        }
    }

    /// Returns the preemption level; `None` without the library.
    pub(crate) fn level(&self) -> Option<u8> {
        match self {
            Self::Equal(level) | Self::Policy(_, level) => Some(*level),
            Self::Alone(_) | Self::Native => None,
        }
    }

    /// Returns the policy and its options on the server's command line; `None` without a server.
    fn server_words(&self) -> Option<Vec<String>> {
        match self {
            Self::Policy(policy, _) => Some(policy.server.clone()),
            Self::Equal(_) => Some(vec!["HPF".to_owned()]),
            Self::Alone(_) | Self::Native => None,
        }
    }
}

/// The suspensions of a program while requests arrived, in one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Suspensions {
    /// The level in force; the lower one if it changed.
    pub(crate) in_force: i32,
    /// The mechanism, or the reason why the level is lower than the requested one.
    pub(crate) how: String,
    pub(crate) holds: u64,
    pub(crate) waits: u64,
    pub(crate) failures: u64,
    /// The last measured cost of an eviction and of a restoration; `None` if there was none.
    pub(crate) hold_us: Option<f64>,
    pub(crate) release_us: Option<f64>,
    /// The time between the two reports of the server.
    pub(crate) seconds: f64,
}

/// Says that a lower level than the requested one is in force, for this reason.
pub(crate) fn not_in_force(level: u8, in_force: i32, how: &str) -> String {
    let how = if how.is_empty() { "the server gives no reason" } else { how };
    format!("level {level} is not in force, level {in_force} is: {how}")
}

impl Suspensions {
    /// Returns a message if the level in force is lower than this one.
    pub(crate) fn below(&self, level: u8) -> Option<String> {
        (self.in_force < i32::from(level)).then(|| not_in_force(level, self.in_force, &self.how))
    }

    /// Returns the difference between the server's reports before the first request and after the last.
    fn between([before, after]: [&Preemption; 2], seconds: f64) -> Self {
        let lower = if after.in_force.number() <= before.in_force.number() { after } else { before };
        let micros = |cost: Option<u64>| cost.filter(|ns| *ns > 0).map(|ns| ns as f64 / 1e3);
        Self {
            in_force: lower.in_force.number(),
            how: lower.how.clone(),
            holds: after.holds.saturating_sub(before.holds),
            waits: after.waits.saturating_sub(before.waits),
            failures: after.failures.saturating_sub(before.failures),
            hold_us: micros(after.hold_ns),
            release_us: micros(after.release_ns),
            seconds,
        }
    }
}

/// The processor time of giveway in runs, seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ProcessorTime {
    /// The library's own threads in all programs.
    library_s: f64,
    server_s: f64,
    /// The device time of the programs' inferences.
    device_s: f64,
}

/// The processor time that a second of work of the device costs, as figures have it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct ProcessorCost {
    /// Processor time of the library's own threads for a second of device time, milliseconds; `null` without the library,
    /// or where the kernel does not count it.
    pub(crate) library_ms: Option<f64>,
    /// The same of the server.
    pub(crate) server_ms: Option<f64>,
}

impl ProcessorCost {
    /// Returns the cost in all blocks together.
    pub(crate) fn of(outcomes: &[Outcome]) -> Self {
        let mut sum = ProcessorTime::default();
        for outcome in outcomes {
            let Some(time) = outcome.processor else { return Self::default() };
            sum.library_s += time.library_s;
            sum.server_s += time.server_s;
            sum.device_s += time.device_s;
        }
        let cost = |seconds: f64| Some(seconds * 1e3 / sum.device_s).filter(|cost| cost.is_finite());
        Self { library_ms: cost(sum.library_s), server_ms: cost(sum.server_s) }
    }
}

impl fmt::Display for ProcessorCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [library, server] = [self.library_ms, self.server_ms]
            .map(|cost| cost.map_or_else(|| "unknown".to_owned(), |ms| format!("{ms:.2} ms")));
        write!(
            f,
            "processor time for a second of device time: the library's threads {library}, xserver {server}"
        )
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// The record of each program; `None` if it did not run.
    pub(crate) records: Vec<Option<Record>>,
    /// The suspensions of each program; `None` if the server did not know it before and after.
    pub(crate) suspended: Vec<Option<Suspensions>>,
    /// The commands that the simulated device retired for each program beyond its inferences, or the reason why
    /// they are not known; empty on a real device.
    pub(crate) beyond: Vec<Result<Counts, String>>,
    /// Suspensions of queues by the library, of all programs.
    pub(crate) suspensions: u64,
    /// Decisions of the server.
    pub(crate) decisions: u64,
    /// The counters of the policy, by name.
    pub(crate) counted: BTreeMap<String, u64>,
    /// The time between the server's two reports, seconds.
    pub(crate) server_s: f64,
    /// The processor time of the library and the server; `None` without them, or where it is not known.
    pub(crate) processor: Option<ProcessorTime>,
    /// The 99th percentile of the simulated device's lateness, microseconds; `None` on a real one.
    pub(crate) late_us: Option<f64>,
    /// True if the simulated device was too late for valid figures, or a real one had other work afterwards.
    pub(crate) late: bool,
    /// Operations of the simulated device's driver that took a queue off the hardware; `None` on a real device.
    pub(crate) unmaps: Option<u64>,
    /// The account of the device's time, if the experiment has one.
    pub(crate) account: Option<RunAccount>,
}

impl Outcome {
    /// Returns a summary, to show progress.
    fn summary(&self, programs: &[Program]) -> String {
        let mut words = Vec::new();
        for (program, record) in programs.iter().zip(&self.records) {
            let Some(record) = record else { continue };
            let samples = Samples::new(record.latencies_ms()).filter(|_| program.has_latency());
            words.push(match samples {
                Some(samples) => format!(
                    "{} p50 {:.2}, p99 {:.2} ms",
                    program.name,
                    samples.median(),
                    samples.percentile(99.0)
                ),
                None => format!("{} {:.2}/s", program.name, record.per_second(false)),
            });
        }
        for (program, suspended) in programs.iter().zip(&self.suspended) {
            if let Some(Suspensions { in_force: 2.., holds, waits, .. }) = suspended {
                words.push(format!("{} evicted {holds} times, waited for {waits} times", program.name));
            }
        }
        words.extend(self.late_us.map(|late| format!("device late p99 {late:.0} µs")));
        words.join("; ")
    }
}

/// The programs of an experiment and the conditions of all its modes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup<'a> {
    /// The name of the experiment, for messages.
    pub(crate) name: &'a str,
    pub(crate) programs: &'a [Program],
    /// The folder of the recorded models.
    pub(crate) traces: &'a Path,
    pub(crate) gpu: &'a GpuArgs,
    /// The memory traffic of the kernels of all programs.
    pub(crate) traffic: Traffic,
    pub(crate) blocks: u32,
    /// The time in which requests arrive.
    pub(crate) seconds: f64,
    /// The most seconds that a program back to back runs alone, which suffice to measure its rate.
    pub(crate) alone_seconds: f64,
    pub(crate) seed: u64,
    /// The difference between the seeds of two blocks.
    pub(crate) seed_step: u64,
    /// True if each run accounts for the device's time.
    pub(crate) account: bool,
}

impl Setup<'_> {
    /// Returns the seed of a program's arrivals, which is the same in all modes of a block.
    pub(crate) fn arrivals_seed(&self, block: u64, index: usize) -> u64 {
        self.seed.wrapping_add(self.seed_step * block + index as u64)
    }
}

/// An experiment that is ready to run.
#[derive(Debug)]
pub(crate) struct Experiment<'a> {
    pub(crate) setup: Setup<'a>,
    this: PathBuf,
    pub(crate) gpu: Measured,
    /// The recorded model of each program.
    pub(crate) traces: Vec<Trace>,
}

impl<'a> Experiment<'a> {
    /// Loads the recorded models.
    pub(crate) fn new(setup: Setup<'a>) -> Result<Self> {
        let load = |program: &Program| Trace::load(&setup.traces.join(&program.trace));
        let traces = setup.programs.iter().map(load).collect::<Result<_, _>>()?;
        let this = this_program()?;
        if setup.gpu.real && setup.account {
            let why =
                "--account needs the simulated GPU, which writes down who used it when; leave out --real";
            return Err(WrongInput(why.to_owned()).into());
        }
        ensure_beside(&this, setup.gpu.needed())?;
        let card = setup.gpu.real.then(|| calibrate::card(&this)).transpose()?;
        Ok(Self { gpu: Measured::new(setup.gpu, card), setup, this, traces })
    }

    /// Returns the device time of one inference of a program, microseconds.
    pub(crate) fn device_us(&self, index: usize) -> f64 {
        self.traces[index].device_us() * self.setup.programs[index].scale
    }

    /// Runs all modes in all blocks, and returns the outcomes of each mode. `check` judges each run by its
    /// name.
    pub(crate) fn run(
        &self,
        modes: Vec<Mode>,
        mut check: impl FnMut(&str, &Mode, &Outcome) -> Result<()>,
    ) -> Result<Vec<(Mode, Vec<Outcome>)>> {
        let Setup { name, programs, blocks, .. } = self.setup;
        let outcomes = interleave(&modes, blocks as usize, |block, mode| {
            let level = mode.level().map_or(String::new(), |level| format!(", level {level}"));
            let name = format!("{name}, block {}, {}{level}", block + 1, mode.name(programs));
            let outcome = self.run_mode(mode, block, &name)?;
            check(&name, mode, &outcome)?;
            eprintln!("xbench: {name}: {}", outcome.summary(programs));
            anyhow::Ok(outcome)
        })?;
        Ok(modes.into_iter().zip(outcomes).collect())
    }

    /// Returns the accounts of the device's time in these results; `None` if the experiment has none.
    pub(crate) fn accounts(&self, results: &[(Mode, Vec<Outcome>)]) -> Option<Accounts> {
        let programs = self.setup.programs;
        let runs = results.iter().map(|(mode, outcomes)| Runs {
            mode: mode.name(programs),
            level: mode.level(),
            programs: mode.indices(programs.len()),
            alone: matches!(mode, Mode::Alone(_)),
            runs: outcomes.iter().filter_map(|outcome| outcome.account.clone()).collect(),
        });
        self.setup.account.then(|| Accounts::new(&runs.collect::<Vec<_>>()))
    }

    fn run_mode(&self, mode: &Mode, block: usize, name: &str) -> Result<Outcome> {
        let Setup { programs, gpu, seconds, alone_seconds, .. } = self.setup;
        let indices = mode.indices(programs.len());
        let parts = indices.clone().map(|index| self.part(index, mode, block)).collect::<Result<Vec<_>>>()?;
        let closed =
            matches!(mode, Mode::Alone(_)) && indices.clone().all(|index| !programs[index].has_latency());
        let seconds = if closed { seconds.min(alone_seconds) } else { seconds };
        let account = self.setup.account;
        let session = Session { parts, seconds, policy: mode.server_words(), account };
        let done = session.run(&self.this, gpu, name)?;
        let device = done.device.as_ref();
        let mut outcome = Outcome {
            records: vec![None; programs.len()],
            suspended: vec![None; programs.len()],
            beyond: device.map_or_else(Vec::new, |_| vec![Ok(Counts::new()); programs.len()]),
            late_us: device.map(|device| device.late_us.p99),
            late: done.disturbed || device.is_some_and(|device| !device.valid),
            unmaps: device.map(DeviceStats::unmaps),
            ..Outcome::default()
        };
        let watched = mode.level().map(|_| done.watched()).transpose()?;
        if let Some(watched) = &watched {
            outcome.decisions = watched.decisions();
            (outcome.counted, outcome.server_s) = (watched.counted(), watched.seconds);
        }
        for index in indices.clone() {
            let commands = self.traces[index].commands.len();
            let (record, suspensions) = done.judge(&programs[index].name, commands)?;
            let kernels = commands as u64 + mixes_of(commands);
            if let Some(device) = device {
                let beyond = device.beyond(record.pid, record.inferences(), kernels);
                outcome.beyond[index] = beyond.map_err(|why| format!("{why:#}"));
            }
            outcome.suspensions += suspensions;
            if let Some(watched) = &watched {
                // A program with a rate may have ended before the server's second report.
                let reports = watched.preemption(record.pid);
                outcome.suspended[index] =
                    reports.map(|reports| Suspensions::between(reports, watched.seconds));
            }
            outcome.records[index] = Some(record);
        }
        if let Some(watched) = &watched {
            let mut sum = ProcessorTime { server_s: watched.processor_s, ..ProcessorTime::default() };
            let mut known = true;
            for index in indices.clone() {
                let Some(record) = &outcome.records[index] else { continue };
                sum.device_s += record.requests.len() as f64 * self.device_us(index) / 1e6;
                known &= record.library_s.is_some();
                sum.library_s += record.library_s.unwrap_or(0.0);
            }
            outcome.processor = Some(sum).filter(|_| known);
        }
        if account {
            let programs = indices.filter_map(|index| {
                let program = &programs[index];
                Some(account::Program {
                    name: &program.name,
                    class: if program.has_latency() { Class::Urgent } else { Class::Batch },
                    open: program.load.is_some(),
                    device_us: self.device_us(index),
                    record: outcome.records[index].as_ref()?,
                })
            });
            outcome.account = Some(done.account(&programs.collect::<Vec<_>>())?);
        }
        Ok(outcome)
    }

    /// Returns a program as its session runs it.
    fn part(&self, index: usize, mode: &Mode, block: usize) -> Result<session::Program> {
        let program = &self.setup.programs[index];
        let mut variables = program.variables.clone();
        let mut set = |name: &str, value: String| variables.push((name.to_owned(), value));
        let priority = if matches!(mode, Mode::Equal(_)) { 0 } else { program.priority };
        set("AUTO_XQUEUE_PRIORITY", priority.to_string());
        set("AUTO_XQUEUE_UTILIZATION", program.utilization.to_string());
        if let Some(deadline) = program.deadline_ms(mode.policy()) {
            set("AUTO_XQUEUE_DEADLINE", ((deadline * 1e3).round() as u64).to_string());
        }
        let mut hint = false;
        if let Some(policy) = mode.policy() {
            if let Some((threshold, batch)) = policy.window {
                set("AUTO_XQUEUE_THRESHOLD", threshold.to_string());
                set("AUTO_XQUEUE_BATCH_SIZE", batch.to_string());
            }
            hint = program.prepare_us > 0 && policy.hint;
        }
        Ok(session::Program {
            name: program.name.clone(),
            trace: std::path::absolute(self.setup.traces.join(&program.trace))?,
            scale: program.scale,
            traffic: self.setup.traffic,
            seed: self.setup.arrivals_seed(block as u64, index),
            load: program.load,
            prepare_us: program.prepare_us,
            think_us: program.think_us,
            hint,
            urgent: program.has_latency(),
            level: program.level.or(mode.level()).unwrap_or(1),
            variables,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::replay::Request;
    use protocol::codes::PreemptLevel;

    /// Returns a record of these latencies with one request every `gap_ms`.
    pub(crate) fn record(latencies_ms: &[f64], gap_ms: f64, seconds: f64) -> Record {
        let request = |(index, ms): (usize, &f64)| {
            let at = index as f64 * gap_ms * 1e3;
            Request { arrived_us: at, began_us: at, ended_us: at + ms * 1e3 }
        };
        let requests = latencies_ms.iter().enumerate().map(request).collect();
        Record { seconds, library_s: Some(0.1), requests, ..crate::replay::tests::blank() }
    }

    #[test]
    fn target_of_a_policy_takes_the_place_of_a_deadline() {
        let plain = Program::new("urgent", "x.json", None, 10);
        let hinting = Program { deadline_ms: Some(50.0), ..plain.clone() };
        let policy = |words: &str| words.parse::<PolicyWords>().unwrap();
        let target = policy("SLO target-ms=3");
        assert_eq!(hinting.deadline_ms(Some(&target)), Some(3.0));
        assert_eq!(hinting.deadline_ms(Some(&policy("SLO"))), Some(50.0));
        assert_eq!(hinting.deadline_ms(None), Some(50.0));
        assert_eq!(plain.deadline_ms(Some(&target)), None, "the policy's target counts");
    }

    #[test]
    fn processor_time_is_that_of_a_second_of_device_time() {
        let outcome = |processor| Outcome { processor, ..Outcome::default() };
        let time = |library_s, server_s, device_s| Some(ProcessorTime { library_s, server_s, device_s });
        let cost = ProcessorCost::of(&[outcome(time(0.01, 0.002, 4.0)), outcome(time(0.03, 0.002, 4.0))]);
        assert_eq!((cost.library_ms, cost.server_ms), (Some(5.0), Some(0.5)));
        assert!(cost.to_string().ends_with("the library's threads 5.00 ms, xserver 0.50 ms"), "{cost}");
        let unknown = ProcessorCost::default();
        assert_eq!(ProcessorCost::of(&[outcome(time(1.0, 1.0, 1.0)), outcome(None)]), unknown);
        assert_eq!(
            [ProcessorCost::of(&[]), ProcessorCost::of(&[outcome(time(0.0, 0.0, 0.0))])],
            [unknown; 2]
        );
    }

    #[test]
    fn suspensions_are_the_difference_of_two_reports() {
        let before = Preemption {
            in_force: PreemptLevel::from_number(3).unwrap(),
            how: "update-queue".into(),
            holds: 4,
            waits: 1,
            ..Preemption::default()
        };
        let after = Preemption { holds: 9, waits: 3, failures: 1, hold_ns: Some(90_500), ..before.clone() };
        let made = Suspensions::between([&before, &after], 4.0);
        assert_eq!((made.in_force, made.holds, made.waits, made.failures), (3, 5, 2, 1));
        assert_eq!((made.hold_us, made.release_us), (Some(90.5), None));
        let level_1 = PreemptLevel::from_number(1).unwrap();
        let given_up = Preemption { in_force: level_1, how: "the driver failed".into(), ..after };
        let made = Suspensions::between([&before, &given_up], 4.0);
        assert_eq!((made.in_force, made.how.as_str()), (1, "the driver failed"));
        assert_eq!(Suspensions::between([&given_up, &before], 4.0).in_force, 1);
    }
}
