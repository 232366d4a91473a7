//! A session seen from under the simulated GPU: `xserver` where it is wanted, the programs, a common start, a common end.

use super::{Files, Part, Session, Watched};
use crate::ask::{Server, preemption};
use crate::child::{LIBRARY, PATIENCE, Program, beside, this_program};
use crate::daemon;
use crate::files::{read_json, write_json};
use crate::replay::now_ns;
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use protocol::control::List;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// From the word to the start, so that all have read it.
const RUN_UP_NS: u64 = 20_000_000;

/// Options of the process under the simulated GPU.
#[derive(Debug, Clone, Args)]
pub struct SessionArgs {
    /// Where it finds what to run, and leaves what came of it.
    #[arg(long)]
    dir: PathBuf,
}

/// Runs the session.
///
/// # Errors
/// A program fails, or does not end.
pub fn run(args: &SessionArgs) -> Result<()> {
    let files = Files(&args.dir);
    let session: Session = read_json(&files.session())?;
    let this = this_program()?;
    let server = session.policy.as_ref().map(|policy| {
        Program::server(&this.with_file_name("xserver"), policy, &files.socket(), &files.errors("xserver"))
    });
    let server = server.transpose()?;
    let start = |part| Ok((part, start(&this, &session, part, files)?));
    let mut programs = session.parts.iter().map(start).collect::<Result<Vec<_>>>()?;
    for (_, program) in &mut programs {
        program.expect("ready", PATIENCE)?;
    }
    let watch = server.as_ref().map(|_| Watch::begin(&files.socket(), &programs)).transpose()?;
    let start = now_ns() + RUN_UP_NS;
    for (_, program) in &mut programs {
        program.tell(&format!("start {start}"))?;
    }
    let length = Duration::from_secs_f64(session.seconds);
    let (mut open, mut closed): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|(part, _)| part.load.is_some());
    for (_, program) in &mut open {
        // Every request is served, however long that takes; a queue that only grows is no measurement.
        program.expect("done", 3 * length + PATIENCE)?;
    }
    if open.is_empty() {
        std::thread::sleep(length + Duration::from_nanos(RUN_UP_NS));
    }
    if let Some(watch) = watch {
        write_json(&files.watched(), &watch.end()?)?;
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

fn start(this: &Path, session: &Session, part: &Part, files: Files<'_>) -> Result<Program> {
    let name = &part.name;
    let mut command = Command::new(this);
    command.arg("replay").arg(&part.trace).arg("--gate").arg("--record").arg(files.record(name));
    command.args(["--seconds", &session.seconds.to_string(), "--scale", &part.scale.to_string()]);
    command.args(["--seed", &part.seed.to_string()]);
    if let Some((rate, pattern)) = part.load {
        let pattern =
            pattern.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        command.args(["--rate", &rate.to_string(), "--arrivals", &pattern]);
        command.args(["--prepare-us", &part.prepare_us.to_string()]);
        if part.hint {
            command.arg("--hint");
        }
    }
    if session.policy.is_some() {
        command
            .env("LD_PRELOAD", beside(this, LIBRARY))
            .env("XSCHED_SCHEDULER", "GLB")
            .env("XSCHED_AUTO_XQUEUE", "ON")
            .env("XSCHED_SOCKET", files.socket())
            .env("XSCHED_AUTO_XQUEUE_LEVEL", part.level.to_string())
            .env("XSCHED_LOG_LEVEL", "debug")
            .env("XSCHED_LOG_FILE", files.log(name));
        for (variable, value) in &part.variables {
            command.env(format!("XSCHED_{variable}"), value);
        }
    }
    Program::start(name, command, &files.errors(name))
}

/// What the server says, between two looks.
#[derive(Debug)]
struct Watch {
    server: Server,
    before: List,
    begin: Instant,
}

impl Watch {
    /// Once the server has heard from each program what came of the level that it asks for.
    fn begin(socket: &Path, programs: &[(&Part, Program)]) -> Result<Self> {
        let mut server = Server::connect(socket)?;
        let end = Instant::now() + daemon::PATIENCE;
        loop {
            let before = server.list()?;
            let begin = Instant::now();
            let known = |part: &Part, pid: u32| {
                preemption(&before, pid).is_some_and(|said| part.level == 1 || !said.how.is_empty())
            };
            let unknown = programs.iter().find(|(part, program)| !known(part, program.pid()));
            let Some((Part { name, .. }, _)) = unknown else {
                return Ok(Self { server, before, begin });
            };
            ensure!(begin < end, "xserver does not know at which level the {name} program is");
            std::thread::sleep(daemon::LOOK);
        }
    }

    fn end(mut self) -> Result<Watched> {
        let after = self.server.list()?;
        Ok(Watched { before: self.before, after, seconds: self.begin.elapsed().as_secs_f64() })
    }
}
