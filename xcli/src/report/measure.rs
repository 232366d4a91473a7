//! The measured parts: `xbench`, which lies beside this program, started once for each.
//!
//! A part has its time. What does not end is killed, and what does not even end then is left alone: a process can be stuck
//! in the driver. Nothing outlives this process: `xbench` dies with it, and its own processes with `xbench`.

use crate::server::beside;
use crate::table::plain;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(5);
/// How long a killed process may take to end, and the rest of what was said to arrive.
const REST: Duration = Duration::from_secs(3);

/// How much sooner than it is killed `xbench card` shall end its last worker: it waits some seconds for its last words.
const CLOSING: Duration = Duration::from_secs(8);

/// The time that is left for everything.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    begin: Instant,
    total: Duration,
}

impl Budget {
    /// From now on.
    pub fn new(total: Duration) -> Self {
        Self { begin: Instant::now(), total }
    }

    /// What it took so far.
    pub fn spent(&self) -> Duration {
        self.begin.elapsed()
    }

    /// At most `limit`, and not more than is left.
    ///
    /// # Errors
    /// Nothing is left.
    pub fn at_most(&self, limit: Duration) -> Result<Duration, String> {
        let left = self.total.saturating_sub(self.spent()).min(limit);
        if left.is_zero() { Err("no time was left for it".to_owned()) } else { Ok(left) }
    }
}

/// Runs `xbench card` with these words. It is told when to end, so that what it has by then is not lost.
///
/// # Errors
/// As with [`xbench`].
pub fn card<T: DeserializeOwned>(words: &[&str], limit: Result<Duration, String>) -> Result<T, String> {
    let limit = limit?;
    let told = told(limit).to_string();
    let mut all = vec!["card"];
    all.extend(words);
    all.extend(["--limit", &told]);
    xbench(&all, Ok(limit))
}

/// What is left of a limit when its last worker has to be killed and said what it had to say, seconds.
fn told(limit: Duration) -> u64 {
    limit.saturating_sub(CLOSING).as_secs()
}

/// Runs `xbench` with these words, and reads its JSON. It may end with 1: then it has missed limits that are its own.
///
/// # Errors
/// It is not there, does not end in time, or says nothing that makes sense; with its own words.
pub fn xbench<T: DeserializeOwned>(words: &[&str], limit: Result<Duration, String>) -> Result<T, String> {
    let limit = limit?;
    let program = beside("xbench").map_err(|error| format!("{error:#}"))?;
    let (status, said, log) = run(&program, words, limit)?;
    let begin = if said.starts_with('{') { Some(0) } else { said.find("\n{").map(|at| at + 1) };
    let read = begin.map(|begin| serde_json::from_str(&said[begin..]));
    match read {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) if status.success() => Err(format!("xbench says what makes no sense: {error}")),
        _ => Err(failure(status, &log)),
    }
}

fn run(program: &Path, words: &[&str], limit: Duration) -> Result<(ExitStatus, String, String), String> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // What is measured is not what the shell around us is preloaded with.
    for (name, _) in std::env::vars_os() {
        if name == "LD_PRELOAD" || name.as_bytes().starts_with(b"XSCHED_") {
            command.env_remove(name);
        }
    }
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into));
    }
    let mut child = command.spawn().map_err(|error| format!("xbench cannot be started: {error}"))?;
    let (output, errors) = (listen(child.stdout.take()), listen(child.stderr.take()));
    let status = wait(&mut child, limit)?;
    let rest = |from: Receiver<String>| from.recv_timeout(REST).unwrap_or_default();
    match status {
        Some(status) => Ok((status, rest(output), rest(errors))),
        None => {
            let _ = child.kill();
            let end = wait(&mut child, REST)?;
            let stuck = if end.is_none() { ", and does not end by that" } else { "" };
            let words = last_words(&rest(errors));
            Err(format!("it did not end within {:.0} s and was killed{stuck}{words}", limit.as_secs_f64()))
        }
    }
}

fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, String> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Some(status)),
            Ok(None) if begin.elapsed() > limit => return Ok(None),
            Ok(None) => thread::sleep(LOOK),
            Err(error) => return Err(format!("xbench cannot be waited for: {error}")),
        }
    }
}

/// Everything that comes, when it has come.
fn listen(from: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // What came before an error is all there is.
            let _ = from.read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Why it failed: in its own words if it ended by itself, else how it ended as well.
fn failure(status: ExitStatus, log: &str) -> String {
    let words = last_words(log);
    match (status.code(), words.strip_prefix(": ")) {
        (Some(1), Some(words)) => words.to_owned(),
        _ => format!("xbench ended with {status}{words}"),
    }
}

/// The last lines, to end a sentence with.
fn last_words(log: &str) -> String {
    // ROCr's complaint about simulated render nodes is there in every run.
    let said: Vec<&str> = log.lines().filter(|line| !line.starts_with("amdgpu_device_initialize")).collect();
    let last = said[said.len().saturating_sub(3)..].iter();
    let said = last.map(|line| line.strip_prefix("xbench: ").unwrap_or(line)).collect::<Vec<_>>().join("; ");
    if said.is_empty() { said } else { format!(": {}", plain(&said)) }
}

/// Work of this process that may wait for a driver: given up after `limit`.
///
/// # Errors
/// It takes longer, or panics.
pub fn within<T: Send + 'static>(
    limit: Result<Duration, String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let limit = limit?;
    let (sender, receiver) = channel();
    thread::spawn(move || {
        // Nobody listens any more if it came too late.
        let _ = sender.send(work());
    });
    receiver.recv_timeout(limit).map_err(|error| match error {
        RecvTimeoutError::Timeout => format!("it did not end within {:.0} s", limit.as_secs_f64()),
        RecvTimeoutError::Disconnected => "it failed".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Result<(ExitStatus, String, String), String> {
        run(Path::new("/bin/sh"), &["-c", script], limit)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_hangs_is_killed_and_told() {
        let begin = Instant::now();
        let error = sh("echo it hangs >&2; exec sleep 600", Duration::from_millis(300)).unwrap_err();
        assert!(error.ends_with("was killed: it hangs"), "{error}");
        assert!(begin.elapsed() < LONG);
    }

    #[test]
    fn what_was_said_and_how_it_ended_is_known() {
        let (status, said, log) = sh("echo '{\"a\": 1}'; echo no >&2; exit 3", LONG).unwrap();
        assert_eq!((status.code(), said.as_str(), log.as_str()), (Some(3), "{\"a\": 1}\n", "no\n"));
        assert!(run(Path::new("/nowhere"), &[], LONG).unwrap_err().contains("cannot be started"));
    }

    #[test]
    fn a_failure_is_told_in_its_own_words() {
        let told = |script: &str| {
            let (status, _, log) = sh(script, LONG).unwrap();
            failure(status, &log)
        };
        assert_eq!(told("echo amdgpu_device_initialize: x >&2; echo xbench: no GPU >&2; exit 1"), "no GPU");
        assert_eq!(told("exit 1"), "xbench ended with exit status: 1");
        assert!(told("echo bad >&2; kill -SEGV $$").contains("signal: 11"));
    }

    #[test]
    fn time_is_given_out_once() {
        let budget = Budget::new(LONG);
        assert_eq!(budget.at_most(Duration::from_secs(1)), Ok(Duration::from_secs(1)));
        assert!(budget.at_most(2 * LONG).unwrap() <= LONG);
        assert!(Budget::new(Duration::ZERO).at_most(LONG).is_err());
        assert!(xbench::<u32>(&[], Err("no time".to_owned())).unwrap_err().contains("no time"));
    }

    #[test]
    fn a_card_is_told_to_end_before_it_is_killed() {
        assert_eq!(told(Duration::from_secs(130)), 122);
        assert_eq!(told(Duration::from_secs(3)), 0);
    }

    #[test]
    fn work_that_takes_too_long_is_given_up() {
        assert_eq!(within(Ok(LONG), || 7), Ok(7));
        let (sender, receiver) = channel::<()>();
        let late = within(Ok(Duration::from_millis(20)), move || receiver.recv());
        assert!(late.unwrap_err().contains("did not end"));
        drop(sender);
    }
}
