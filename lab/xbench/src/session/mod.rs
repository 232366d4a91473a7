//! Sessions: recorded models that run at the same time on a simulated GPU of their own, without the library or with it
//! under `xserver`. What `xbench corun` and `xbench scenario` have in common.
//!
//! A session is a process of its own (`gpu-sim run -- xbench session`, see `inside`), so that all its programs are on one
//! device and none outlives it. What makes its figures worth something is checked here: the device kept up with its own
//! time (else the session is repeated), the host has computed every digest a second time, and with the library its own
//! count covers every command.

mod inside;
mod library;

pub use inside::{SessionArgs, run};

use crate::ask::preemption;
use crate::child;
use crate::files::{read, read_json, write_json};
use crate::replay::Record;
use crate::replay::digest::{Digest, mixes_of};
use crate::replay::schedule::Pattern;
use crate::rtc::Scratch;
use crate::simulated::{DeviceStats, GpuArgs, gpu_sim};
use anyhow::{Context, Result, bail, ensure};
use library::{ShimSummary, complaints};
use protocol::control::{InForce, List, Preemption};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How often a session is repeated in which the device was late.
const REPEATS: usize = 3;
/// The programs that take part, beside this one.
pub(crate) const NEEDED: &[&str] = &["gpu-sim", "xserver", "libshimhip.so"];

/// What to run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) parts: Vec<Part>,
    /// How long requests arrive. Programs without a rate run until the last request is served.
    pub(crate) seconds: f64,
    /// With the preloaded library under `xserver`: the policy, and the words behind it on the server's command line.
    pub(crate) policy: Option<Vec<String>>,
}

/// A program of a session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) name: String,
    /// The file of the recorded model.
    pub(crate) trace: PathBuf,
    /// Multiplies its recorded times.
    pub(crate) scale: f64,
    /// Which arrivals.
    pub(crate) seed: u64,
    /// Requests a second and how they arrive; without that one inference follows the other.
    pub(crate) load: Option<(f64, Pattern)>,
    /// For how many microseconds the host works on a request before its first launch.
    pub(crate) prepare_us: u32,
    /// Whether it tells the library of each request when it arrives.
    pub(crate) hint: bool,
    /// The preemption level that it asks for.
    pub(crate) level: u8,
    /// What else it says to the library: names, without what all begin with (`XSCHED_`), and values.
    pub(crate) variables: Vec<(String, String)>,
}

/// What the server said before the first request and after the last.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Watched {
    before: List,
    after: List,
    /// Between the two.
    pub(crate) seconds: f64,
}

impl Watched {
    /// How often it decided.
    pub(crate) fn decisions(&self) -> u64 {
        self.after.server.decisions.saturating_sub(self.before.server.decisions)
    }

    /// What the policy of all devices counted, by its names.
    pub(crate) fn counted(&self) -> BTreeMap<String, u64> {
        let [before, after] = [&self.before, &self.after].map(|list| list.server.policies.first());
        let counted =
            |policy: Option<&InForce>| policy.map(|policy| policy.counted.clone()).unwrap_or_default();
        let (before, mut after) = (counted(before), counted(after));
        for (name, count) in &mut after {
            *count = count.saturating_sub(before.get(name).copied().unwrap_or(0));
        }
        after
    }

    /// What became of suspensions of process `pid`, before and after.
    pub(crate) fn preemption(&self, pid: u32) -> Result<[&Preemption; 2]> {
        let both = preemption(&self.before, pid).zip(preemption(&self.after, pid));
        both.map(<[_; 2]>::from).with_context(|| format!("xserver knows no process {pid}"))
    }
}

/// Where a session finds and leaves what.
#[derive(Debug, Clone, Copy)]
struct Files<'a>(&'a Path);

impl Files<'_> {
    fn session(&self) -> PathBuf {
        self.0.join("session.json")
    }

    fn record(&self, program: &str) -> PathBuf {
        self.0.join(format!("{program}.json"))
    }

    /// What the library in a program said.
    fn log(&self, program: &str) -> PathBuf {
        self.0.join(format!("{program}.log"))
    }

    fn errors(&self, program: &str) -> PathBuf {
        self.0.join(format!("{program}.err"))
    }

    fn watched(&self) -> PathBuf {
        self.0.join("xserver.watched")
    }

    fn socket(&self) -> PathBuf {
        self.0.join("xserver.sock")
    }

    fn stats(&self) -> PathBuf {
        self.0.join("gpu-sim.stats")
    }
}

impl Session {
    /// Runs it, again if the device was late. `this` is this program; `name` is for messages.
    ///
    /// # Errors
    /// A program fails, or the device is always late.
    pub(crate) fn run(&self, this: &Path, gpu: &GpuArgs, name: &str) -> Result<Done> {
        for _ in 0..=REPEATS {
            let scratch = Scratch::new().context("no scratch directory")?;
            let files = Files(&scratch.path);
            write_json(&files.session(), self)?;
            let mut command = gpu_sim(this, gpu.cu_model, gpu.save_us, &files.stats());
            command.arg("session").arg("--dir").arg(files.0);
            child::run(command).with_context(|| name.to_owned())?;
            let device: DeviceStats = read_json(&files.stats())?;
            if device.valid || gpu.allow_late {
                return Ok(Done { name: name.to_owned(), device, scheduled: self.policy.is_some(), scratch });
            }
            let late = device.late_us.p99;
            eprintln!(
                "xbench: {name}: the simulated GPU was late (p99 {late:.0} µs), so the run does not count"
            );
        }
        bail!(
            "{name}: the simulated GPU was late {} times; is the machine busy with other work?",
            REPEATS + 1
        )
    }
}

/// A session that has been run.
#[derive(Debug)]
pub(crate) struct Done {
    name: String,
    pub(crate) device: DeviceStats,
    scheduled: bool,
    scratch: Scratch,
}

impl Done {
    fn files(&self) -> Files<'_> {
        Files(&self.scratch.path)
    }

    /// What a program did whose inferences have so many commands, and how often the library suspended it.
    ///
    /// # Errors
    /// It did not do its work, or not all of it went through the library.
    pub(crate) fn judge(&self, program: &str, commands: usize) -> Result<(Record, u64)> {
        self.judged(program, commands).with_context(|| self.name.clone())
    }

    fn judged(&self, program: &str, commands: usize) -> Result<(Record, u64)> {
        let record: Record = read_json(&self.files().record(program))?;
        ensure!(!record.requests.is_empty(), "{program} finished nothing");
        ensure!(
            record.digest == Digest::text(Digest::of(record.inferences(), commands).words()),
            "the digest of {program} is wrong: commands were lost, doubled or run in another order"
        );
        if !self.scheduled {
            return Ok((record, 0));
        }
        let log = read(&self.files().log(program))?;
        for line in complaints(&log) {
            eprintln!("xbench: {}: the library in {program} says: {line}", self.name);
        }
        let ShimSummary { launched, suspensions, pending } = ShimSummary::parse(&log)?;
        let least = record.inferences() * (commands as u64 + mixes_of(commands));
        ensure!(
            launched >= least && pending == 0,
            "the library launched {launched} of the {least} commands of {program} and had {pending} left: some went past it"
        );
        Ok((record, suspensions))
    }

    /// What the server said.
    ///
    /// # Errors
    /// There was none.
    pub(crate) fn watched(&self) -> Result<Watched> {
        read_json(&self.files().watched())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::write;
    use crate::replay::Request;
    use crate::simulated::tests::stats;

    #[test]
    fn what_is_not_all_of_the_work_is_told() {
        let judge = |requests: usize, digest_of: u64, log: &str| {
            let scratch = Scratch::new().unwrap();
            let done = Done { name: "run".into(), device: stats(true, 1.0), scheduled: true, scratch };
            let request = Request { arrived_us: 0.0, began_us: 0.0, ended_us: 1.0 };
            let digest = Digest::text(Digest::of(digest_of, 16).words());
            let requests = vec![request; requests];
            let record = Record { pid: 1, trace: "t".into(), warm_up: 3, seconds: 1.0, digest, requests };
            write_json(&done.files().record("high"), &record).unwrap();
            write(&done.files().log("high"), log).unwrap();
            done.judge("high", 16).map(|(_, suspensions)| suspensions).map_err(|error| format!("{error:#}"))
        };
        let log = |direct: u64, pending: u64| {
            format!(
                "xsched: debug: queues created=1 direct={direct} deferred=8 suspensions=2 pending={pending}\n"
            )
        };
        // Five inferences of 16 commands and two `mix` kernels.
        assert_eq!(judge(2, 5, &log(82, 0)), Ok(2));
        let all = "the library launched 89 of the 90 commands of high and had 0 left: some went past it";
        assert_eq!(judge(2, 5, &log(81, 0)), Err(format!("run: {all}")));
        assert!(judge(2, 5, &log(99, 1)).unwrap_err().contains("had 1 left"));
        assert!(judge(2, 4, &log(82, 0)).unwrap_err().starts_with("run: the digest of high is wrong"));
        assert_eq!(judge(0, 3, &log(82, 0)).unwrap_err(), "run: high finished nothing");
    }
}
