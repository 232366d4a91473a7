//! One run of one mode, seen from under the simulated GPU: `xserver` where it is wanted, the two replays, a common start,
//! a common end.
//!
//! This is a process of its own (`gpu-sim run -- xbench corun-mode`), so that all of them are on one device and none
//! outlives it.

use crate::daemon;
use crate::replay::now_ns;
use crate::replay::{rate, scale, seconds};
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a replay may take to be warm, or to end, and `xserver` to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// From the word to the start, so that both replays have read it.
const RUN_UP_NS: u64 = 20_000_000;

/// Options of the process under the simulated GPU. Paths of what it leaves: see [`Files`].
#[derive(Debug, Clone, Args)]
pub struct SessionArgs {
    #[arg(long)]
    pub(super) dir: PathBuf,
    #[arg(long, requires = "rate")]
    pub(super) high: Option<PathBuf>,
    #[arg(long, value_parser = rate)]
    pub(super) rate: Option<f64>,
    #[arg(long)]
    pub(super) low: Option<PathBuf>,
    #[arg(long, value_parser = seconds)]
    pub(super) seconds: f64,
    #[arg(long, value_parser = scale)]
    pub(super) scale: f64,
    #[arg(long)]
    pub(super) seed: u64,
    /// The preloaded library.
    #[arg(long, requires = "server")]
    pub(super) shim: Option<PathBuf>,
    #[arg(long)]
    pub(super) server: Option<PathBuf>,
    #[arg(long, requires = "batch")]
    pub(super) threshold: Option<u32>,
    #[arg(long)]
    pub(super) batch: Option<u32>,
}

impl SessionArgs {
    /// The same as a command line.
    pub(super) fn words(&self) -> Vec<std::ffi::OsString> {
        let mut words: Vec<std::ffi::OsString> = vec!["corun-mode".into()];
        let mut put = |name: &str, value: std::ffi::OsString| words.extend([name.into(), value]);
        put("--dir", self.dir.clone().into());
        put("--seconds", self.seconds.to_string().into());
        put("--scale", self.scale.to_string().into());
        put("--seed", self.seed.to_string().into());
        let paths = [
            ("--high", &self.high),
            ("--low", &self.low),
            ("--shim", &self.shim),
            ("--server", &self.server),
        ];
        for (name, path) in paths {
            if let Some(path) = path {
                put(name, path.into());
            }
        }
        if let Some(rate) = self.rate {
            put("--rate", rate.to_string().into());
        }
        for (name, number) in [("--threshold", self.threshold), ("--batch", self.batch)] {
            if let Some(number) = number {
                put(name, number.to_string().into());
            }
        }
        words
    }
}

/// Where a session leaves what.
#[derive(Debug, Clone)]
pub(super) struct Files<'a>(pub(super) &'a Path);

impl Files<'_> {
    pub(super) fn record(&self, role: Role) -> PathBuf {
        self.0.join(format!("{}.json", role.name()))
    }

    /// What the library in a replay said.
    pub(super) fn log(&self, role: Role) -> PathBuf {
        self.0.join(format!("{}.log", role.name()))
    }

    fn errors(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.err"))
    }

    fn socket(&self) -> PathBuf {
        self.0.join("xserver.sock")
    }

    pub(super) fn stats(&self) -> PathBuf {
        self.0.join("stats.json")
    }
}

/// Who a replay is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    High,
    Low,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Low => "low",
        }
    }

    fn priority(self) -> &'static str {
        match self {
            Self::High => "10",
            Self::Low => "0",
        }
    }
}

/// Runs the session.
pub fn run(args: &SessionArgs) -> Result<()> {
    let files = Files(&args.dir);
    let mut server = args.server.as_deref().map(|path| start_server(path, &files)).transpose()?;
    let mut replays = Vec::new();
    for (role, trace) in [(Role::High, &args.high), (Role::Low, &args.low)] {
        if let Some(trace) = trace {
            replays.push((role, start_replay(args, role, trace, &files)?));
        }
    }
    for (_, replay) in &mut replays {
        replay.expect("ready", PATIENCE)?;
    }
    let start = now_ns() + RUN_UP_NS;
    for (_, replay) in &mut replays {
        replay.tell(&format!("start {start}"))?;
    }
    let length = Duration::from_secs_f64(args.seconds);
    if let Some((_, high)) = replays.iter_mut().find(|(role, _)| *role == Role::High) {
        // Every request is served, however long that takes; a queue that only grows is no measurement.
        high.expect("done", 3 * length + PATIENCE)?;
    } else {
        std::thread::sleep(length + Duration::from_nanos(RUN_UP_NS));
    }
    for (role, replay) in &mut replays {
        if *role == Role::Low {
            replay.tell("stop")?;
            replay.expect("done", PATIENCE)?;
        }
    }
    for (_, replay) in replays {
        replay.end()?;
    }
    if let Some(server) = server.take() {
        server.terminate()?;
    }
    Ok(())
}

fn start_server(path: &Path, files: &Files<'_>) -> Result<Program> {
    let socket = files.socket();
    let mut server = Program::start("xserver", daemon::command(path, &socket), &files.errors("xserver"))?;
    let listens = daemon::await_listening(&mut server.child, &socket);
    listens.map_err(|error| anyhow!("{}", server.failure(&error.to_string())))?;
    Ok(server)
}

fn start_replay(args: &SessionArgs, role: Role, trace: &Path, files: &Files<'_>) -> Result<Program> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(this);
    command.arg("replay").arg(trace).arg("--gate").arg("--record").arg(files.record(role));
    command.args(["--seconds", &args.seconds.to_string(), "--scale", &args.scale.to_string()]);
    command.args(["--seed", &args.seed.to_string()]);
    if let (Role::High, Some(rate)) = (role, args.rate) {
        command.args(["--rate", &rate.to_string()]);
    }
    if let Some(shim) = &args.shim {
        command
            .env("LD_PRELOAD", shim)
            .env("XSCHED_SCHEDULER", "GLB")
            .env("XSCHED_AUTO_XQUEUE", "ON")
            .env("XSCHED_SOCKET", files.socket())
            .env("XSCHED_AUTO_XQUEUE_PRIORITY", role.priority())
            .env("XSCHED_LOG_LEVEL", "debug")
            .env("XSCHED_LOG_FILE", files.log(role));
        let window = [("THRESHOLD", args.threshold), ("BATCH_SIZE", args.batch)];
        for (name, value) in window {
            if let Some(value) = value {
                command.env(format!("XSCHED_AUTO_XQUEUE_{name}"), value.to_string());
            }
        }
    }
    Program::start(role.name(), command, &files.errors(role.name()))
}

/// A started program; killed on drop.
#[derive(Debug)]
struct Program {
    name: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: PathBuf,
}

impl Program {
    fn start(name: &'static str, mut command: Command, errors: &Path) -> Result<Self> {
        let file = File::create(errors).with_context(|| format!("cannot write {}", errors.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        // SAFETY: the closure makes one system call and allocates nothing. Whoever is left when this process is killed
        // would keep the device busy.
        unsafe {
            command.pre_exec(|| {
                let signal = Some(rustix::process::Signal::KILL);
                rustix::process::set_parent_process_death_signal(signal).map_err(Into::into)
            })
        };
        let program = command.get_program().to_owned();
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let (sender, lines) = channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Self { name, input: child.stdin.take(), child, lines, errors: errors.to_owned() })
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let told = self.input.as_mut().map(|input| writeln!(input, "{line}"));
        if !matches!(told, Some(Ok(()))) {
            bail!("{}", self.failure("has ended before its time"));
        }
        Ok(())
    }

    fn expect(&mut self, word: &str, limit: Duration) -> Result<()> {
        match self.lines.recv_timeout(limit) {
            Ok(line) if line == word => Ok(()),
            Ok(line) => bail!("{}", self.failure(&format!("said {line:?} instead of {word:?}"))),
            Err(RecvTimeoutError::Disconnected) => bail!("{}", self.failure("has failed")),
            Err(RecvTimeoutError::Timeout) => {
                bail!("{}", self.failure(&format!("did not say {word:?} within {} s", limit.as_secs())))
            }
        }
    }

    /// Waits for the end, which must be a success.
    fn end(mut self) -> Result<()> {
        drop(self.input.take());
        let status = self.wait(PATIENCE)?;
        ensure!(status.success(), "{}", self.failure(&format!("ended with {status}")));
        Ok(())
    }

    /// Asks the program to end, and waits for that.
    fn terminate(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{}", self.failure(&format!("ended while it was needed ({status})")));
        }
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.wait(PATIENCE)?;
        Ok(())
    }

    fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(begin.elapsed() < limit, "{}", self.failure("does not end"));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A sentence with what the program said.
    fn failure(&self, what: &str) -> String {
        let text = std::fs::read_to_string(&self.errors).unwrap_or_default();
        // ROCr's complaint about the simulated render nodes is there in every run.
        let said: Vec<&str> =
            text.lines().filter(|line| !line.starts_with("amdgpu_device_initialize")).collect();
        let said = said[said.len().saturating_sub(5)..].join("; ");
        let colon = if said.is_empty() { "" } else { ": " };
        format!("the {} program {what}{colon}{said}", self.name)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(script: &str) -> (tempfile::TempDir, Program) {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let program = Program::start("high", command, &directory.path().join("err")).unwrap();
        (directory, program)
    }

    #[test]
    fn words_go_to_and_fro() {
        let (_directory, mut program) = program("echo ready; read line; echo \"$line\"; cat >/dev/null");
        program.expect("ready", PATIENCE).unwrap();
        program.tell("start 5").unwrap();
        program.expect("start 5", PATIENCE).unwrap();
        program.end().unwrap();
    }

    #[test]
    fn a_failure_is_told_in_the_programs_own_words() {
        let (_directory, mut failing) =
            program("echo 'amdgpu_device_initialize: x' >&2; echo 'no GPU' >&2; exit 1");
        let error = failing.expect("ready", PATIENCE).unwrap_err().to_string();
        assert_eq!(error, "the high program has failed: no GPU");
        assert!(failing.end().unwrap_err().to_string().contains("ended with exit status: 1"));
        let (_directory, mut mute) = program("cat >/dev/null");
        let error = mute.expect("ready", Duration::from_millis(1)).unwrap_err().to_string();
        assert_eq!(error, "the high program did not say \"ready\" within 0 s");
    }
}
