//! A session: recorded models that run at the same time on a simulated GPU of their own, or on the machine's own
//! GPU, without the library or with it under `xserver`.
//!
//! A session is a separate process (`gpu-sim run -- xbench session`, see `inner`), so that all its programs
//! are on one device and none outlives it. This module checks that its figures are valid: a simulated device kept
//! up with its own time, and a real one still runs a kernel in the time that this was told to take (otherwise the
//! session is repeated); every digest is the one that the host computes, and the library's own counts cover every
//! command.

mod inner;

pub use inner::{SessionArgs, run};

use crate::account::{self, RunAccount};
use crate::calibrate;
use crate::files::{RunFiles, read, read_json, scratch, write_json};
use crate::library_log::{check_launched, complaints};
use crate::process;
use crate::replay::Record;
use crate::replay::schedule::Pattern;
use crate::server::preemption;
use crate::simulated::{DeviceStats, GpuArgs, gpu_sim};
use crate::traffic::Traffic;
use anyhow::{Context, Result, bail};
use protocol::control::{List, PolicyInForce, Preemption};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The number of repetitions of a session in which the device was late.
const REPEATS: usize = 3;

/// The contents of `session.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) parts: Vec<Program>,
    /// The time in which requests arrive. Programs without a rate run until the last request is served.
    pub(crate) seconds: f64,
    /// The policy of the `xserver` and its options on the command line; `None` without server and library.
    pub(crate) policy: Option<Vec<String>>,
    /// True if device, server and programs write what the account of the device's time needs.
    pub(crate) account: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) name: String,
    /// The file of the recorded model.
    pub(crate) trace: PathBuf,
    /// Multiplies its recorded times.
    pub(crate) scale: f64,
    /// The memory traffic of its kernels.
    pub(crate) traffic: Traffic,
    /// The seed of its arrivals.
    pub(crate) seed: u64,
    /// Requests a second and how they arrive; without a load one inference follows the other.
    pub(crate) load: Option<(f64, Pattern)>,
    /// Microseconds of work on the host before the first launch of a request.
    pub(crate) prepare_us: u32,
    /// Without a load: microseconds of work on the host between two inferences.
    pub(crate) think_us: u32,
    /// True if it announces each request to the library when the request arrives.
    pub(crate) hint: bool,
    /// True if its latency is a figure: its host goes before those of the others on the processors.
    pub(crate) urgent: bool,
    /// The preemption level that it requests.
    pub(crate) level: u8,
    /// Further variables for the library: names without their prefix `XSCHED_`, and values.
    pub(crate) variables: Vec<(String, String)>,
}

/// The server's state before the first request and after the last.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Watched {
    before: List,
    after: List,
    /// The time between the two.
    pub(crate) seconds: f64,
    /// The server's processor time between the two, seconds.
    pub(crate) processor_s: f64,
}

impl Watched {
    pub(crate) fn decisions(&self) -> u64 {
        self.after.server.decisions.saturating_sub(self.before.server.decisions)
    }

    /// Returns the counters of the policy for all devices, by name.
    pub(crate) fn counted(&self) -> BTreeMap<String, u64> {
        let [before, after] = [&self.before, &self.after].map(|list| list.server.policies.first());
        let counted =
            |policy: Option<&PolicyInForce>| policy.map(|policy| policy.counted.clone()).unwrap_or_default();
        let (before, mut after) = (counted(before), counted(after));
        for (name, count) in &mut after {
            *count = count.saturating_sub(before.get(name).copied().unwrap_or(0));
        }
        after
    }

    /// Returns the preemption state of process `pid`, before and after; `None` if the server knew it only
    /// once.
    pub(crate) fn preemption(&self, pid: u32) -> Option<[&Preemption; 2]> {
        preemption(&self.before, pid).zip(preemption(&self.after, pid)).map(<[_; 2]>::from)
    }
}

impl Session {
    /// Runs the session, and repeats it if the device was late. `this` is this program; `name` is for
    /// messages.
    pub(crate) fn run(&self, this: &Path, gpu: &GpuArgs, name: &str) -> Result<Done> {
        if gpu.real {
            return self.run_on_card(this, gpu, name);
        }
        repeat(name, || {
            let scratch = scratch()?;
            let files = RunFiles(scratch.path());
            write_json(&files.session(), self)?;
            let timeline = self.account.then(|| files.timeline());
            let mut command = gpu_sim(this, gpu.cu_model, gpu.save_us, &files.stats(), timeline.as_deref());
            command.arg("session").arg("--dir").arg(files.0);
            process::run(command).with_context(|| name.to_owned())?;
            let device: DeviceStats = read_json(&files.stats())?;
            Ok(match device.objection().filter(|_| !gpu.allow_late) {
                Some(why) => Err(why),
                None => Ok(self.done(name, Some(device), scratch)),
            })
        })
    }

    /// Runs the session on the machine's own GPU, and repeats it if the GPU has other work afterwards.
    fn run_on_card(&self, this: &Path, gpu: &GpuArgs, name: &str) -> Result<Done> {
        repeat(name, || {
            let scratch = scratch()?;
            let files = RunFiles(scratch.path());
            write_json(&files.session(), self)?;
            if self.parts.len() > 2 {
                calibrate::close()?;
            }
            let mut command = Command::new(this);
            process::die_with_parent(&mut command);
            command.arg("session").arg("--dir").arg(files.0);
            process::run(command).with_context(|| name.to_owned())?;
            Ok(match calibrate::objection(this)? {
                Some(why) if gpu.allow_late => {
                    eprintln!("xbench: {name}: {why}");
                    Ok(Done { disturbed: true, ..self.done(name, None, scratch) })
                }
                Some(why) => Err(why),
                None => Ok(self.done(name, None, scratch)),
            })
        })
    }

    fn done(&self, name: &str, device: Option<DeviceStats>, scratch: TempDir) -> Done {
        let scheduled = self.policy.is_some();
        Done { name: name.to_owned(), device, disturbed: false, scheduled, scratch }
    }
}

/// Repeats a run until it counts. A run that does not returns the reason.
pub(crate) fn repeat<T>(name: &str, mut run: impl FnMut() -> Result<Result<T, String>>) -> Result<T> {
    let mut reason = String::new();
    for _ in 0..=REPEATS {
        match run()? {
            Ok(done) => return Ok(done),
            Err(why) => reason = why,
        }
        eprintln!("xbench: {name}: {reason}, so the run does not count");
    }
    bail!("{name}: {reason}, {} times; does another program use the machine or the GPU?", REPEATS + 1)
}

/// A session that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    name: String,
    /// The statistics of the simulated GPU; `None` on a real one.
    pub(crate) device: Option<DeviceStats>,
    /// True if a real one had other work afterwards.
    pub(crate) disturbed: bool,
    scheduled: bool,
    scratch: TempDir,
}

impl Done {
    fn files(&self) -> RunFiles<'_> {
        RunFiles(self.scratch.path())
    }

    /// Returns the record of a program whose inferences have so many commands, and the number of its
    /// suspensions.
    pub(crate) fn judge(&self, program: &str, commands: usize) -> Result<(Record, u64)> {
        self.judged(program, commands).with_context(|| self.name.clone())
    }

    fn judged(&self, program: &str, commands: usize) -> Result<(Record, u64)> {
        let record: Record = read_json(&self.files().record(program))?;
        let least = record.check(program, commands)?;
        if !self.scheduled {
            return Ok((record, 0));
        }
        let log = read(&self.files().log(program))?;
        for line in complaints(&log) {
            eprintln!("xbench: {}: log of the library in {program}: {line}", self.name);
        }
        let suspensions = check_launched(&log, program, least)?;
        Ok((record, suspensions))
    }

    /// Accounts for the device's time. The programs are those of the session, in its order.
    pub(crate) fn account(&self, programs: &[account::Program<'_>]) -> Result<RunAccount> {
        RunAccount::read(self.files(), programs, self.scheduled).with_context(|| self.name.clone())
    }

    pub(crate) fn watched(&self) -> Result<Watched> {
        read_json(&self.files().watched())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::write;
    use crate::replay::Request;
    use crate::replay::digest::Digest;
    use crate::simulated::tests::stats;

    #[test]
    fn judge_missing_work_returns_error() {
        let judge = |requests: usize, digest_of: u64, log: &str| {
            let scratch = scratch().unwrap();
            let device = Some(stats(true, 1.0));
            let done = Done { name: "run".into(), device, disturbed: false, scheduled: true, scratch };
            let request = Request { arrived_us: 0.0, began_us: 0.0, ended_us: 1.0 };
            let digest = Digest::of(digest_of, 16).text();
            let requests = vec![request; requests];
            let record = Record { digest, requests, ..crate::replay::tests::blank() };
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
        let all =
            "the library launched 89 of the 90 commands of high and has 0 pending: some commands bypassed it";
        assert_eq!(judge(2, 5, &log(81, 0)), Err(format!("run: {all}")));
        assert!(judge(2, 5, &log(99, 1)).unwrap_err().contains("has 1 pending"));
        assert!(judge(2, 4, &log(82, 0)).unwrap_err().starts_with("run: the digest of high is wrong"));
        assert_eq!(judge(0, 3, &log(82, 0)).unwrap_err(), "run: high finished nothing");
    }
}
