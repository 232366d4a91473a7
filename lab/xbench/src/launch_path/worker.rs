//! The parent's end of a worker: a process that makes calls and times them, with or without the library in front of it.
//!
//! The parent writes a line for each round (`launch 20000`), the worker answers with nanoseconds and counts. First it
//! says in which files the functions lie that it calls, last how many calls it has made.

use super::target::Runtime;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;

/// What a round consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Launches, and nothing between them.
    Launch,
    /// Launches, each with a synchronization of its stream after it.
    LaunchSync,
}

/// The stream that a round works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    /// The default stream.
    Default,
    /// A stream that the worker has made.
    Own,
}

/// One round, as a line from the parent to the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) kind: Kind,
    pub(super) on: On,
    /// Calls that are timed.
    pub(super) calls: u32,
}

impl Round {
    const KINDS: [(&str, Kind, On); 4] = [
        ("launch", Kind::Launch, On::Default),
        ("launch-own", Kind::Launch, On::Own),
        ("launch-sync", Kind::LaunchSync, On::Default),
        ("launch-sync-own", Kind::LaunchSync, On::Own),
    ];

    fn line(self) -> String {
        let known = Self::KINDS.iter().find(|(_, kind, on)| (*kind, *on) == (self.kind, self.on));
        let (name, ..) = known.expect("the table has every pair");
        format!("{name} {}", self.calls)
    }
}

impl FromStr for Round {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let (name, calls) = line.split_once(' ').with_context(|| format!("not a round: {line}"))?;
        let known = Self::KINDS.iter().find(|(known, ..)| *known == name);
        let &(_, kind, on) = known.with_context(|| format!("not a kind of round: {name}"))?;
        Ok(Self { kind, on, calls: calls.parse().context("not a number of calls")? })
    }
}

/// Reads numbers that stand in a line, as many as are wanted.
fn numbers<const N: usize>(line: &str) -> Option<[u64; N]> {
    let numbers: Option<Vec<u64>> = line.split(' ').map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// What a round took, as a line from the worker to the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Took {
    /// Nanoseconds on the calling thread.
    pub(super) wall: u64,
    /// Nanoseconds of processor time over all threads, until everything launched is over.
    pub(super) cpu: u64,
    /// Events recorded meanwhile, by whomever.
    pub(super) marks: u64,
}

impl Took {
    pub(super) fn line(&self) -> String {
        format!("{} {} {}", self.wall, self.cpu, self.marks)
    }
}

/// Calls that a worker has made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Calls {
    pub(super) launches: u64,
    pub(super) synchronizations: u64,
}

impl Calls {
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.launches, self.synchronizations)
    }
}

/// What the library's queues have to do with the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// There are no queues.
    Forwarded,
    /// Every launch is made at once by its thread.
    Direct,
    /// Every launch is appended.
    Deferred,
}

/// The library in front of a worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shim<'a> {
    pub(super) library: &'a Path,
    pub(super) environment: &'a [(&'static str, OsString)],
    pub(super) way: Way,
}

impl Shim<'_> {
    /// Has it loaded before what the command starts.
    fn put_before(&self, command: &mut Command) {
        let mut preload = self.library.as_os_str().to_owned();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        // At this level the library ends with its counts.
        command.env("LD_PRELOAD", preload).env("XSCHED_LOG_LEVEL", "debug");
        // No launch path takes queues off the hardware, and none may probe whether it could.
        command.env("XSCHED_KFD_MECHANISM", "off");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
    }
}

/// The parent's end of a worker.
#[derive(Debug)]
pub(super) struct Worker {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// How the library treats it, if it is in front.
    way: Option<Way>,
}

impl Worker {
    /// Starts a worker, with the library in front of it if one is given.
    pub(super) fn start(runtime: &Runtime, shim: Option<Shim<'_>>) -> Result<Self> {
        let this = crate::child::this_program()?;
        let mut command = Command::new(this);
        command.args(["launch-path", "--worker"]).arg(runtime.argument());
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"XSCHED_") {
                command.env_remove(name);
            }
        }
        if let Some(shim) = shim {
            shim.put_before(&mut command);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: the closure makes one system call and allocates nothing. A worker is of no use to anybody when this
        // process was killed.
        unsafe {
            command.pre_exec(|| {
                let signal = Some(rustix::process::Signal::KILL);
                rustix::process::set_parent_process_death_signal(signal).map_err(Into::into)
            })
        };
        let mut process = command.spawn().context("cannot start a worker")?;
        let commands = process.stdin.take().context("the worker has no standard input")?;
        let answers = process.stdout.take().context("the worker has no standard output")?;
        let mut worker =
            Self { process, commands, answers: BufReader::new(answers), way: shim.map(|shim| shim.way) };
        worker.check_where(shim.map(|shim| shim.library))?;
        Ok(worker)
    }

    /// Reads in which files the functions lie that the worker is going to call.
    fn check_where(&mut self, shim: Option<&Path>) -> Result<()> {
        let line = self.answer()?;
        let files: Vec<_> = line.split('\t').map(PathBuf::from).collect();
        ensure!(files.len() == 2, "the worker does not say what it calls: {line}");
        for file in files {
            let in_shim = match shim {
                Some(shim) => file == shim,
                None => file
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with(crate::child::LIBRARY)),
            };
            if in_shim != shim.is_some() {
                let with = if shim.is_some() { "with" } else { "without" };
                bail!("the worker {with} the library calls functions in {}", file.display());
            }
        }
        Ok(())
    }

    /// Has one round made and returns what it took.
    pub(super) fn round(&mut self, round: Round) -> Result<Took> {
        let line = self.ask(&round.line())?;
        let [wall, cpu, marks] = numbers(&line).with_context(|| format!("the worker answers {line:?}"))?;
        Ok(Took { wall, cpu, marks })
    }

    /// Ends the worker and compares its calls with the library's counts. Returns the calls.
    pub(super) fn finish(mut self) -> Result<u64> {
        let line = self.ask("end")?;
        let [launches, synchronizations] =
            numbers(&line).with_context(|| format!("the worker ends with {line:?}"))?;
        let made = Calls { launches, synchronizations };
        let mut said = String::new();
        if let Some(mut errors) = self.process.stderr.take() {
            errors.read_to_string(&mut said).context("cannot read what the worker says")?;
        }
        let status = self.process.wait().context("cannot wait for the worker")?;
        ensure!(status.success(), "the worker ended with {status}: {}", said.trim());
        if let Some(way) = self.way {
            check_counts(&said, made, way)?;
        }
        Ok(launches + synchronizations)
    }

    fn ask(&mut self, line: &str) -> Result<String> {
        if let Err(error) = writeln!(self.commands, "{line}") {
            return Err(self.failure(&error.to_string()));
        }
        self.answer()
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err(self.failure("it ended")),
            Ok(_) => Ok(line.trim_end_matches('\n').to_owned()),
            Err(error) => Err(self.failure(&error.to_string())),
        }
    }

    /// What became of a worker that does not answer, in its own words.
    fn failure(&mut self, reason: &str) -> anyhow::Error {
        // It may be alive and silent; its words end when it does.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let mut said = String::new();
        if let Some(mut errors) = self.process.stderr.take() {
            let _ = errors.read_to_string(&mut said);
        }
        anyhow!("a worker failed ({reason}): {}", said.trim())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Nothing to do for one that has ended; one that is left over must not outlive the measurement.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Launches that a worker makes within a time slice of another thread, in a debug build and more.
const SLICE: u64 = 1_000;

/// Compares what was called with what the library has counted: its hooks, and its queues if there are any.
fn check_counts(said: &str, made: Calls, way: Way) -> Result<()> {
    let unsaid = || anyhow!("the library has not said what it counted: {}", said.trim());
    let calls = counts(said, "calls").ok_or_else(unsaid)?;
    let counted = Calls {
        launches: calls("launch").ok_or_else(unsaid)?,
        synchronizations: calls("sync").ok_or_else(unsaid)?,
    };
    ensure!(counted == made, "the worker made {made:?}, the library counted {counted:?}: some went past it");
    let queues = counts(said, "queues");
    if way == Way::Forwarded {
        ensure!(queues.is_none(), "the library has made queues: {}", said.trim());
        return Ok(());
    }
    let count = |name| queues.as_ref().and_then(|queues| queues(name)).ok_or_else(unsaid);
    let (direct, deferred) = (count("direct")?, count("deferred")?);
    ensure!(
        direct + deferred == made.launches,
        "the worker made {made:?}, its queues counted {direct} direct and {deferred} deferred launches"
    );
    // A launch that meets another thread at its queue is deferred, and those behind it. That is right, and rare. If that thread is
    // preempted there, they are as many as are made in a time slice: few rounds of a short measurement, which its median leaves out.
    let other = if way == Way::Direct { deferred } else { direct };
    ensure!(
        other * 20 <= made.launches || other <= SLICE && other * 4 <= made.launches,
        "{direct} launches went directly, {deferred} were deferred: not what was to be measured"
    );
    for name in ["forced", "pending", "suspensions"] {
        let count = count(name)?;
        ensure!(count == 0, "the queues of the worker end with {name}={count}");
    }
    Ok(())
}

/// The counts in the last line of this kind that the library has said, by their names.
fn counts<'a>(said: &'a str, kind: &str) -> Option<impl Fn(&str) -> Option<u64> + use<'a>> {
    let prefix = format!("xsched: debug: {kind} ");
    let line = said.lines().rev().find_map(|line| line.strip_prefix(&prefix))?;
    Some(move |name: &str| {
        let mut counts = line.split(' ').filter_map(|count| count.split_once('='));
        counts.find(|(class, _)| *class == name)?.1.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "xsched: warn: something\n\
                        xsched: debug: queues created=1 direct=3 deferred=0 forced=0 suspensions=0 suspended_us=0 pending=0\n\
                        xsched: debug: calls launch=3 copy=9 sync=2 error=0\n";

    #[test]
    fn no_worker_takes_queues_off_the_hardware() {
        let environment = [("XSCHED_AUTO_XQUEUE", OsString::from("ON"))];
        let shim =
            Shim { library: Path::new("/x/libshimhip.so"), environment: &environment, way: Way::Direct };
        let mut command = Command::new("x");
        shim.put_before(&mut command);
        let value =
            |name: &str| command.get_envs().find(|(other, _)| *other == name).and_then(|(_, value)| value);
        assert_eq!(value("XSCHED_KFD_MECHANISM"), Some("off".as_ref()));
        assert_eq!(value("XSCHED_AUTO_XQUEUE"), Some("ON".as_ref()));
        assert!(value("LD_PRELOAD").is_some());
    }

    #[test]
    fn counts_have_to_be_those_of_the_calls() {
        let made = Calls { launches: 3, synchronizations: 2 };
        check_counts(SAID, made, Way::Direct).unwrap();
        let wrong = |said: &str, made, way| check_counts(said, made, way).unwrap_err().to_string();
        let more = Calls { launches: 4, synchronizations: 2 };
        assert!(wrong(SAID, more, Way::Direct).contains("some went past it"));
        let less = SAID.replace("direct=3", "direct=2");
        assert!(wrong(&less, made, Way::Direct).contains("2 direct and 0 deferred"));
        assert!(wrong(SAID, made, Way::Deferred).contains("not what was to be measured"));
        assert!(wrong(SAID, made, Way::Forwarded).contains("has made queues"));
        let calls = SAID.lines().last().unwrap();
        check_counts(calls, made, Way::Forwarded).unwrap();
        assert!(wrong(calls, made, Way::Direct).contains("has not said"));
        assert!(wrong("xsched: debug: calls launch=3\n", made, Way::Forwarded).contains("has not said"));
        let suspended = SAID.replace("suspensions=0", "suspensions=1");
        assert!(wrong(&suspended, made, Way::Direct).contains("suspensions=1"));
    }

    #[test]
    fn rounds_are_lines() {
        for (_, kind, on) in Round::KINDS {
            let round = Round { kind, on, calls: 7 };
            assert_eq!(round.line().parse::<Round>().unwrap(), round);
        }
        for wrong in ["launch", "copy 3", "launch x", "end"] {
            assert!(wrong.parse::<Round>().is_err(), "{wrong}");
        }
        assert_eq!(numbers("1 2 3"), Some([1, 2, 3]));
        assert_eq!(numbers::<2>("1 2 3"), None);
        assert_eq!(numbers::<1>("-1"), None);
    }
}
