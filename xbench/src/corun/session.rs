//! One run of one mode, seen from under the simulated GPU: `xserver` where it is wanted, the two replays, a common start,
//! a common end.
//!
//! This is a process of its own (`gpu-sim run -- xbench corun-mode`), so that all of them are on one device and none
//! outlives it.

use super::levels::Held;
use crate::ask::Server;
use crate::child::{PATIENCE, Program};
use crate::daemon;
use crate::replay::now_ns;
use crate::replay::{rate, scale, seconds};
use anyhow::{Context, Result, ensure};
use clap::Args;
use protocol::control::Preemption;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

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
    /// The batch model's preemption level.
    #[arg(long, requires = "shim")]
    pub(super) level: Option<u8>,
    /// What takes its queues off.
    #[arg(long, requires = "level")]
    pub(super) mechanism: Option<String>,
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
        if let Some(mechanism) = &self.mechanism {
            put("--mechanism", mechanism.into());
        }
        if let Some(rate) = self.rate {
            put("--rate", rate.to_string().into());
        }
        let level = self.level.map(u32::from);
        for (name, number) in [("--level", level), ("--threshold", self.threshold), ("--batch", self.batch)] {
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

    /// What the server said of the batch model's suspensions.
    pub(super) fn held(&self) -> PathBuf {
        self.0.join("held.json")
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
    let mut server = args
        .server
        .as_deref()
        .map(|path| Program::server(path, &["HPF".to_owned()], &files.socket(), &files.errors("xserver")))
        .transpose()?;
    let mut replays = Vec::new();
    for (role, trace) in [(Role::High, &args.high), (Role::Low, &args.low)] {
        if let Some(trace) = trace {
            replays.push((role, start_replay(args, role, trace, &files)?));
        }
    }
    for (_, replay) in &mut replays {
        replay.expect("ready", PATIENCE)?;
    }
    let low = replays.iter().find(|(role, _)| *role == Role::Low).map(|(_, replay)| replay.pid());
    let mut watch = match (&args.server, low) {
        (Some(_), Some(pid)) => Some(Watch::begin(&files, pid, args.level.unwrap_or(1))?),
        _ => None,
    };
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
    if let Some(watch) = watch.take() {
        let path = files.held();
        std::fs::write(&path, serde_json::to_string(&watch.end()?)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
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

/// What the server says of a program, between two looks.
#[derive(Debug)]
struct Watch {
    server: Server,
    pid: u32,
    before: Preemption,
    begin: Instant,
}

impl Watch {
    /// Once the server has heard from the program what came of the level that it asks for.
    fn begin(files: &Files<'_>, pid: u32, level: u8) -> Result<Self> {
        let mut server = Server::connect(&files.socket())?;
        let end = Instant::now() + daemon::PATIENCE;
        loop {
            let before = server.find(pid)?;
            let begin = Instant::now();
            if let Some(before) = before.filter(|said| level == 1 || !said.how.is_empty()) {
                return Ok(Self { server, pid, before, begin });
            }
            ensure!(begin < end, "xserver does not know at which level process {pid} is");
            std::thread::sleep(daemon::LOOK);
        }
    }

    fn end(mut self) -> Result<Held> {
        let after = self.server.preemption(self.pid)?;
        Ok(Held::between(&self.before, &after, self.begin.elapsed().as_secs_f64()))
    }
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
        if let (Role::Low, Some(level)) = (role, args.level) {
            command.env("XSCHED_AUTO_XQUEUE_LEVEL", level.to_string());
            if let Some(mechanism) = &args.mechanism {
                command.env("XSCHED_KFD_MECHANISM", mechanism);
            }
        }
        for (name, value) in window {
            if let Some(value) = value {
                command.env(format!("XSCHED_AUTO_XQUEUE_{name}"), value.to_string());
            }
        }
    }
    Program::start(role.name(), command, &files.errors(role.name()))
}
