//! One run of a scenario, seen from under the simulated GPU: `xserver` where it is wanted, the programs, a common start, a
//! common end. A process of its own (`gpu-sim run -- xbench scenario-part`), so that all of them are on one device and none
//! outlives it.

use super::cast::Part;
use crate::ask::Server;
use crate::child::{PATIENCE, Program};
use crate::replay::now_ns;
use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// From the word to the start, so that all have read it.
const RUN_UP_NS: u64 = 20_000_000;

/// Options of the process under the simulated GPU.
#[derive(Debug, Clone, Args)]
pub struct PartArgs {
    /// Where it finds its `Spec`, and leaves what came of it.
    #[arg(long)]
    dir: PathBuf,
}

impl PartArgs {
    /// The command line of a session in this directory.
    pub(super) fn words(dir: &Path) -> [std::ffi::OsString; 3] {
        ["scenario-part".into(), "--dir".into(), dir.into()]
    }
}

/// What to run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    pub parts: Vec<Part>,
    /// Where the traces lie.
    pub traces: PathBuf,
    pub seconds: f64,
    pub seed: u64,
    /// With the preloaded library, under a server.
    pub scheduled: Option<Scheduled>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Scheduled {
    pub shim: PathBuf,
    pub server: PathBuf,
    /// The policy, and the words behind it on the server's command line.
    pub policy: Vec<String>,
    /// The preemption level of all.
    pub level: u8,
    /// Programs with preparations tell of each request when it arrives.
    pub hint: bool,
    /// Most commands in flight and those between two synchronization points, of all; without them the library chooses.
    pub window: Option<(u32, u32)>,
}

/// Where a session leaves what.
#[derive(Debug, Clone)]
pub(super) struct Files<'a>(pub &'a Path);

impl Files<'_> {
    pub fn spec(&self) -> PathBuf {
        self.0.join("spec.json")
    }

    pub fn record(&self, part: &str) -> PathBuf {
        self.0.join(format!("{part}.json"))
    }

    /// What the library in a program said.
    pub fn log(&self, part: &str) -> PathBuf {
        self.0.join(format!("{part}.log"))
    }

    pub fn stats(&self) -> PathBuf {
        self.0.join("stats.json")
    }

    /// How often the server decided.
    pub fn decisions(&self) -> PathBuf {
        self.0.join("decisions")
    }

    fn errors(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.err"))
    }

    fn socket(&self) -> PathBuf {
        self.0.join("xserver.sock")
    }
}

/// Runs the session.
///
/// # Errors
/// A program fails, or does not end.
pub fn run(args: &PartArgs) -> Result<()> {
    let files = Files(&args.dir);
    let text = std::fs::read_to_string(files.spec()).context("no scenario")?;
    let spec: Spec = serde_json::from_str(&text).context("the scenario makes no sense")?;
    let server = spec.scheduled.as_ref().map(|scheduled| {
        Program::server(&scheduled.server, &scheduled.policy, &files.socket(), &files.errors("xserver"))
    });
    let server = server.transpose()?;
    let mut programs = Vec::new();
    for (number, part) in spec.parts.iter().enumerate() {
        programs.push((part, start(&spec, part, number as u64, &files)?));
    }
    for (_, program) in &mut programs {
        program.expect("ready", PATIENCE)?;
    }
    let mut asked = server.as_ref().map(|_| Server::connect(&files.socket())).transpose()?;
    let before = asked.as_mut().map(Server::decisions).transpose()?;
    let start = now_ns() + RUN_UP_NS;
    for (_, program) in &mut programs {
        program.tell(&format!("start {start}"))?;
    }
    let length = Duration::from_secs_f64(spec.seconds);
    let (mut open, mut closed): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|(part, _)| part.load.is_some());
    for (_, program) in &mut open {
        // Every request is served, however long that takes.
        program.expect("done", 3 * length + PATIENCE)?;
    }
    if open.is_empty() {
        std::thread::sleep(length + Duration::from_nanos(RUN_UP_NS));
    }
    if let (Some(server), Some(before)) = (&mut asked, before) {
        let decisions = server.decisions()?.saturating_sub(before);
        std::fs::write(files.decisions(), decisions.to_string()).context("cannot write a number")?;
    }
    for (_, program) in &mut closed {
        program.tell("stop")?;
    }
    for (_, program) in &mut closed {
        program.expect("done", PATIENCE)?;
    }
    for (_, program) in open.into_iter().chain(closed) {
        program.end()?;
    }
    server.map_or(Ok(()), Program::terminate)
}

fn start(spec: &Spec, part: &Part, number: u64, files: &Files<'_>) -> Result<Program> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(this);
    command.arg("replay").arg(spec.traces.join(format!("{}.json", part.trace)));
    command.arg("--gate").arg("--record").arg(files.record(&part.name));
    command.args(["--seconds", &spec.seconds.to_string(), "--scale", &part.scale.to_string()]);
    command.args(["--seed", &spec.seed.wrapping_add(number).to_string()]);
    if let Some((rate, pattern)) = part.load {
        let pattern = serde_json::to_value(pattern)?;
        command.args(["--rate", &rate.to_string(), "--arrivals", pattern.as_str().unwrap_or_default()]);
        command.args(["--prepare-us", &part.prepare_us.to_string()]);
        if spec.scheduled.as_ref().is_some_and(|scheduled| scheduled.hint) && part.prepare_us > 0 {
            command.arg("--hint");
        }
    }
    if let Some(scheduled) = &spec.scheduled {
        command
            .env("LD_PRELOAD", &scheduled.shim)
            .env("XSCHED_SCHEDULER", "GLB")
            .env("XSCHED_AUTO_XQUEUE", "ON")
            .env("XSCHED_SOCKET", files.socket())
            .env("XSCHED_AUTO_XQUEUE_PRIORITY", part.priority.to_string())
            .env("XSCHED_AUTO_XQUEUE_UTILIZATION", part.utilization.to_string())
            .env("XSCHED_AUTO_XQUEUE_LEVEL", scheduled.level.to_string())
            .env("XSCHED_LOG_LEVEL", "debug")
            .env("XSCHED_LOG_FILE", files.log(&part.name));
        if let Some((most, batch)) = scheduled.window {
            command
                .env("XSCHED_AUTO_XQUEUE_THRESHOLD", most.to_string())
                .env("XSCHED_AUTO_XQUEUE_BATCH_SIZE", batch.to_string());
        }
        if let Some(deadline) = part.deadline_ms {
            command.env("XSCHED_AUTO_XQUEUE_DEADLINE", ((deadline * 1e3).round() as u64).to_string());
        }
    }
    // Names of programs are only for messages.
    Program::start("replay", command, &files.errors(&part.name))
}
