//! A worker as its parent sees it: a process that makes calls and times them, with or without the library.

use super::protocol::{Calls, Round, Took};
use super::target::Runtime;
use crate::library_log::Counts;
use crate::process::{LIBRARY, Program, clear_environment, this_program};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const ROUND_PATIENCE: Duration = Duration::from_secs(600);

/// The path of a launch through the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaunchPath {
    /// There are no queues.
    Forwarded,
    /// The calling thread launches at once.
    Direct,
    /// Either of the other two: the window decides for each launch.
    Window,
    /// The launch is appended to its queue, and a worker thread of the library makes it.
    Deferred,
}

/// The library that a worker is started with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shim<'a> {
    pub(super) library: &'a Path,
    pub(super) environment: &'a [(&'static str, OsString)],
    pub(super) path: LaunchPath,
}

impl Shim<'_> {
    /// Preloads the library, before the libraries that are preloaded into this process.
    fn preload(&self, command: &mut Command, inherited: Option<OsString>) {
        let mut preload = self.library.as_os_str().to_owned();
        if let Some(others) = inherited {
            preload.push(":");
            preload.push(others);
        }
        // At this level the library logs its counts when it ends.
        command.env("LD_PRELOAD", preload).env("XSCHED_LOG_LEVEL", "debug");
        // No launch path evicts queues, and none may probe whether it could.
        command.env("XSCHED_KFD_MECHANISM", "off");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
    }
}

#[derive(Debug)]
pub(super) struct Worker {
    program: Program,
    /// The expected path of launches through the library; `None` without the library.
    path: Option<LaunchPath>,
}

impl Worker {
    /// Starts a worker, with the library preloaded if one is given.
    pub(super) fn start(runtime: &Runtime, shim: Option<Shim<'_>>) -> Result<Self> {
        let mut command = Command::new(this_program()?);
        command.args(["launch-path", "--worker"]).arg(runtime.argument());
        clear_environment(&mut command);
        let inherited = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty());
        match shim {
            Some(shim) => shim.preload(&mut command, inherited),
            None => inherited.iter().for_each(|others| {
                command.env("LD_PRELOAD", others);
            }),
        }
        let program = Program::start("worker", command)?;
        let mut worker = Self { program, path: shim.map(|shim| shim.path) };
        worker.check_files(shim.map(|shim| shim.library))?;
        Ok(worker)
    }

    /// Checks in which files the functions lie that the worker is going to call.
    fn check_files(&mut self, shim: Option<&Path>) -> Result<()> {
        for file in self.answer::<[PathBuf; 2]>()? {
            let in_shim = match shim {
                Some(shim) => file == shim,
                None => file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(LIBRARY)),
            };
            if in_shim != shim.is_some() {
                let with = if shim.is_some() { "with" } else { "without" };
                bail!("the worker {with} the library calls functions in {}", file.display());
            }
        }
        Ok(())
    }

    /// Keeps the thread that makes the calls on this processor. The library's own threads, which it has started by
    /// then, stay free. Where that is forbidden, the rounds only differ more.
    pub(super) fn keep_on(&self, processor: Option<&CpuSet>) {
        let thread = i32::try_from(self.program.pid()).ok().and_then(Pid::from_raw);
        if let (Some(thread), Some(processor)) = (thread, processor) {
            let _ = sched_setaffinity(Some(thread), processor);
        }
    }

    pub(super) fn round(&mut self, round: Round) -> Result<Took> {
        self.ask(Some(round))
    }

    /// Ends the worker, checks its calls against the library's counts, and returns the number of its calls.
    pub(super) fn finish(mut self) -> Result<u64> {
        let made: Calls = self.ask(None)?;
        let log = self.program.end()?;
        if let Some(path) = self.path {
            check_counts(&log, made, path)?;
        }
        Ok(made.launches + made.synchronizations)
    }

    fn ask<T: DeserializeOwned>(&mut self, round: Option<Round>) -> Result<T> {
        self.program.tell(&serde_json::to_string(&round)?)?;
        self.answer()
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.program.line(ROUND_PATIENCE)?;
        serde_json::from_str(&line).with_context(|| format!("the worker answers {line:?}"))
    }
}

/// The number of launches that a worker makes within a time slice of another thread; in a debug build it is
/// smaller.
const SLICE: u64 = 1_000;

/// Checks the calls that were made against the counts of the library's hooks and, if there are any, of its
/// queues.
fn check_counts(log: &str, made: Calls, path: LaunchPath) -> Result<()> {
    let missing = || format!("the library has not logged its counts: {}", log.trim());
    let calls = Counts::last(log, "calls").with_context(missing)?;
    let counted = Calls { launches: calls.require("launch")?, synchronizations: calls.require("sync")? };
    ensure!(
        counted == made,
        "the worker made {made:?}, the library counted {counted:?}: some calls bypassed it"
    );
    let queues = Counts::last(log, "queues");
    if path == LaunchPath::Forwarded {
        ensure!(queues.is_none(), "the library has made queues: {}", log.trim());
        return Ok(());
    }
    let queues = queues.with_context(missing)?;
    let (direct, deferred) = (queues.require("direct")?, queues.require("deferred")?);
    ensure!(
        direct + deferred == made.launches,
        "the worker made {made:?}, its queues counted {direct} direct and {deferred} deferred launches"
    );
    // A launch that finds another thread at its queue is deferred, and so are those behind it. That is
    // correct, and rare. If that thread is preempted there, as many are deferred as fit into a time slice:
    // few rounds of a short measurement, which its median leaves out.
    let other = match path {
        LaunchPath::Direct => deferred,
        LaunchPath::Forwarded | LaunchPath::Deferred => direct,
        LaunchPath::Window => 0,
    };
    ensure!(
        other * 20 <= made.launches || other <= SLICE && other * 4 <= made.launches,
        "{direct} launches were direct and {deferred} deferred, which is not the path that is measured"
    );
    for name in ["forced", "pending", "suspensions"] {
        let count = queues.require(name)?;
        ensure!(count == 0, "the queues of the worker end with {name}={count}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "xsched: warn: something\n\
                        xsched: debug: queues created=1 direct=3 deferred=0 forced=0 suspensions=0 suspended_us=0 pending=0\n\
                        xsched: debug: calls launch=3 copy=9 sync=2 error=0\n";

    #[test]
    fn preload_turns_eviction_off() {
        let environment = [("XSCHED_AUTO_XQUEUE", OsString::from("ON"))];
        let (library, path) = (Path::new("/x/libshimhip.so"), LaunchPath::Direct);
        let mut command = Command::new("x");
        Shim { library, environment: &environment, path }.preload(&mut command, Some("/y.so".into()));
        let value =
            |name: &str| command.get_envs().find(|(other, _)| *other == name).and_then(|(_, value)| value);
        assert_eq!(value("XSCHED_KFD_MECHANISM"), Some("off".as_ref()));
        assert_eq!(value("XSCHED_AUTO_XQUEUE"), Some("ON".as_ref()));
        assert_eq!(value("LD_PRELOAD"), Some("/x/libshimhip.so:/y.so".as_ref()));
    }

    #[test]
    fn counts_that_differ_from_the_calls_are_an_error() {
        let made = Calls { launches: 3, synchronizations: 2 };
        check_counts(LOG, made, LaunchPath::Direct).unwrap();
        let wrong = |log: &str, made, path| check_counts(log, made, path).unwrap_err().to_string();
        let more = Calls { launches: 4, synchronizations: 2 };
        assert!(wrong(LOG, more, LaunchPath::Direct).contains("some calls bypassed it"));
        let less = LOG.replace("direct=3", "direct=2");
        assert!(wrong(&less, made, LaunchPath::Direct).contains("2 direct and 0 deferred"));
        assert!(wrong(LOG, made, LaunchPath::Deferred).contains("not the path that is measured"));
        assert!(wrong(LOG, made, LaunchPath::Forwarded).contains("has made queues"));
        let calls = LOG.lines().last().unwrap();
        check_counts(calls, made, LaunchPath::Forwarded).unwrap();
        assert!(wrong(calls, made, LaunchPath::Direct).contains("has not logged"));
        assert!(
            wrong("xsched: debug: calls launch=3\n", made, LaunchPath::Forwarded).contains("have no sync=")
        );
        let suspended = LOG.replace("suspensions=0", "suspensions=1");
        assert!(wrong(&suspended, made, LaunchPath::Direct).contains("suspensions=1"));
    }
}
