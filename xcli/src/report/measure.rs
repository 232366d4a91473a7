//! The measured parts of a report, each by one run of `xbench`, which lies beside xcli.
//!
//! Each run has a time limit and is killed after it. A process that does not end even then is abandoned,
//! because it can be stuck in the driver. `xbench` is killed when xcli ends, and its own processes with it.

use crate::error::Error;
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

/// The interval at which a process is polled.
const LOOK: Duration = Duration::from_millis(5);
/// The time limit for the end of a killed process, and for the rest of its output.
const REST: Duration = Duration::from_secs(3);

/// The time before the kill at which `xbench card` ends its last worker, so that it can still print results.
const CLOSING: Duration = Duration::from_secs(8);

/// The time limit of a report.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    begin: Instant,
    total: Duration,
}

impl Budget {
    /// Starts now.
    pub fn new(total: Duration) -> Self {
        Self { begin: Instant::now(), total }
    }

    /// The time that has passed.
    pub fn spent(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Returns `limit`, or the remaining time if that is less.
    ///
    /// # Errors
    /// No time remains.
    pub fn at_most(&self, limit: Duration) -> Result<Duration, Error> {
        let left = self.total.saturating_sub(self.spent()).min(limit);
        if left.is_zero() { Err(Error::NoTimeLeft) } else { Ok(left) }
    }
}

/// Runs `xbench card` with these arguments and a time limit, at which it still prints its results.
///
/// # Errors
/// Those of [`xbench`].
pub fn card<T: DeserializeOwned>(words: &[&str], limit: Result<Duration, Error>) -> Result<T, Error> {
    let limit = limit?;
    let closing = closing_limit(limit).to_string();
    let mut all = vec!["card"];
    all.extend(words);
    all.extend(["--limit", &closing]);
    xbench(&all, Ok(limit))
}

/// The limit for the last worker of `xbench card`, in seconds.
fn closing_limit(limit: Duration) -> u64 {
    limit.saturating_sub(CLOSING).as_secs()
}

/// Runs `xbench` with these arguments, and parses its JSON. Exit code 1 is accepted: it says that a
/// measurement missed a limit.
///
/// # Errors
/// `xbench` is missing, does not end in time, or prints no valid JSON. The error includes its last messages.
pub fn xbench<T: DeserializeOwned>(words: &[&str], limit: Result<Duration, Error>) -> Result<T, Error> {
    let limit = limit?;
    let program = beside("xbench").map_err(|error| Error::Xbench(format!("{error:#}")))?;
    let (status, said, log) = run(&program, words, limit)?;
    let begin = if said.starts_with('{') { Some(0) } else { said.find("\n{").map(|at| at + 1) };
    let read = begin.map(|begin| serde_json::from_str(&said[begin..]));
    match read {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) if status.success() => {
            Err(Error::Xbench(format!("xbench printed invalid JSON: {error}")))
        }
        _ => Err(Error::Xbench(failure(status, &log))),
    }
}

fn run(program: &Path, words: &[&str], limit: Duration) -> Result<(ExitStatus, String, String), Error> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Settings of the calling shell must not affect the measurement.
    for (name, _) in std::env::vars_os() {
        if name == "LD_PRELOAD" || name.as_bytes().starts_with(b"XSCHED_") {
            command.env_remove(name);
        }
    }
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into));
    }
    let mut child =
        command.spawn().map_err(|error| Error::Xbench(format!("xbench cannot be started: {error}")))?;
    let (output, errors) = (listen(child.stdout.take()), listen(child.stderr.take()));
    let status = wait(&mut child, limit)?;
    let rest = |from: Receiver<String>| from.recv_timeout(REST).unwrap_or_default();
    match status {
        Some(status) => Ok((status, rest(output), rest(errors))),
        None => {
            let _ = child.kill();
            let end = wait(&mut child, REST)?;
            let stuck = if end.is_none() { ", but still runs" } else { "" };
            let words = last_words(&rest(errors));
            let late = Error::TooSlow(limit);
            Err(Error::Xbench(format!("{late} and was killed{stuck}{words}")))
        }
    }
}

fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, Error> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Some(status)),
            Ok(None) if begin.elapsed() > limit => return Ok(None),
            Ok(None) => thread::sleep(LOOK),
            Err(error) => return Err(Error::Xbench(format!("cannot wait for xbench: {error}"))),
        }
    }
}

/// Reads an output to its end on a thread.
fn listen(from: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // After an error, the output so far is used.
            let _ = from.read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Describes a failure by the messages of xbench, and by its exit status if that is not 1.
fn failure(status: ExitStatus, log: &str) -> String {
    let words = last_words(log);
    match (status.code(), words.strip_prefix(": ")) {
        (Some(1), Some(words)) => words.to_owned(),
        _ => format!("xbench ended with {status}{words}"),
    }
}

/// The last lines of a log, as the end of a sentence.
fn last_words(log: &str) -> String {
    // ROCr prints this warning about simulated render nodes in every run.
    let lines: Vec<&str> = log.lines().filter(|line| !line.starts_with("amdgpu_device_initialize")).collect();
    let last = lines[lines.len().saturating_sub(3)..].iter();
    let text = last.map(|line| line.strip_prefix("xbench: ").unwrap_or(line)).collect::<Vec<_>>().join("; ");
    if text.is_empty() { text } else { format!(": {}", plain(&text)) }
}

/// Runs `work`, which may block in a driver, on a thread, and abandons it after `limit`.
///
/// # Errors
/// `work` takes too long or panics.
pub fn within<T: Send + 'static>(
    limit: Result<Duration, Error>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let limit = limit?;
    let (sender, receiver) = channel();
    thread::spawn(move || {
        // After the limit the receiver is gone.
        let _ = sender.send(work());
    });
    receiver.recv_timeout(limit).map_err(|error| match error {
        RecvTimeoutError::Timeout => Error::TooSlow(limit),
        RecvTimeoutError::Disconnected => Error::Panicked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Result<(ExitStatus, String, String), Error> {
        run(Path::new("/bin/sh"), &["-c", script], limit)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn hanging_process_is_killed() {
        let begin = Instant::now();
        let error =
            sh("echo it hangs >&2; exec sleep 600", Duration::from_millis(300)).unwrap_err().to_string();
        assert!(error.ends_with("was killed: it hangs"), "{error}");
        assert!(begin.elapsed() < LONG);
    }

    #[test]
    fn output_and_exit_status_are_returned() {
        let (status, said, log) = sh("echo '{\"a\": 1}'; echo no >&2; exit 3", LONG).unwrap();
        assert_eq!((status.code(), said.as_str(), log.as_str()), (Some(3), "{\"a\": 1}\n", "no\n"));
        assert!(run(Path::new("/nowhere"), &[], LONG).unwrap_err().to_string().contains("cannot be started"));
    }

    #[test]
    fn failure_contains_the_last_messages() {
        let failed = |script: &str| {
            let (status, _, log) = sh(script, LONG).unwrap();
            failure(status, &log)
        };
        assert_eq!(failed("echo amdgpu_device_initialize: x >&2; echo xbench: no GPU >&2; exit 1"), "no GPU");
        assert_eq!(failed("exit 1"), "xbench ended with exit status: 1");
        assert!(failed("echo bad >&2; kill -SEGV $$").contains("signal: 11"));
    }

    #[test]
    fn budget_limits_all_parts_together() {
        let budget = Budget::new(LONG);
        assert_eq!(budget.at_most(Duration::from_secs(1)), Ok(Duration::from_secs(1)));
        assert!(budget.at_most(2 * LONG).unwrap() <= LONG);
        assert_eq!(Budget::new(Duration::ZERO).at_most(LONG), Err(Error::NoTimeLeft));
        assert_eq!(xbench::<u32>(&[], Err(Error::NoTimeLeft)), Err(Error::NoTimeLeft));
    }

    #[test]
    fn card_ends_before_it_is_killed() {
        assert_eq!(closing_limit(Duration::from_secs(130)), 122);
        assert_eq!(closing_limit(Duration::from_secs(3)), 0);
    }

    #[test]
    fn slow_work_is_abandoned() {
        assert_eq!(within(Ok(LONG), || 7), Ok(7));
        let (sender, receiver) = channel::<()>();
        let late = within(Ok(Duration::from_millis(20)), move || receiver.recv());
        assert_eq!(late.map(|_| ()), Err(Error::TooSlow(Duration::from_millis(20))));
        drop(sender);
    }
}
