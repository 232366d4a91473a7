//! The process on the GPU of a session: an `xserver` if one schedules, the programs, a common start and a
//! common end.

use super::{Program, Session, Watched};
use crate::clock::now_ns;
use crate::files::{RunFiles, read_json, write_json};
use crate::process::{self, LIBRARY, PATIENCE, SERVER_PATIENCE, beside, poll, this_program};
use crate::processor_time::process_cpu;
use crate::server::{Connection, preemption};
use crate::table::value_name;
use anyhow::{Context, Result};
use clap::Args;
use protocol::control::List;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The time between announcing the start and the start, in which every program reads the announcement.
const RUN_UP_NS: u64 = 20_000_000;

/// The nice value of an urgent program's host.
const URGENT_NICE: i32 = -10;

/// Options of the process on the GPU of a session.
#[derive(Debug, Clone, Args)]
pub struct SessionArgs {
    /// The directory with `session.json`, into which the results go.
    #[arg(long)]
    dir: PathBuf,
}

/// Runs the session.
///
/// # Errors
/// A program fails, or does not end.
pub fn run(args: &SessionArgs) -> Result<()> {
    let files = RunFiles(&args.dir);
    let session: Session = read_json(&files.session())?;
    let this = this_program()?;
    let server = session.policy.clone().map(|mut words| {
        if session.account {
            words.extend(["--decisions".to_owned(), files.decisions().display().to_string()]);
        }
        process::Program::server(&this.with_file_name("xserver"), &words, &files.socket())
    });
    let server = server.transpose()?;
    let start = |program| Ok((program, start(&this, &session, program, files)?));
    let mut programs = session.parts.iter().map(start).collect::<Result<Vec<_>>>()?;
    for (_, process) in &mut programs {
        process.expect("ready", PATIENCE)?;
    }
    let watch = server.as_ref().map(|server| Watch::begin(server.pid(), &files.socket(), &programs));
    let watch = watch.transpose()?;
    let start = now_ns() + RUN_UP_NS;
    for (_, process) in &mut programs {
        process.tell(&format!("start {start}"))?;
    }
    let length = Duration::from_secs_f64(session.seconds);
    let (mut open, mut closed): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|(program, _)| program.load.is_some());
    for (_, process) in &mut open {
        // Every request is served, however long that takes; a queue that only grows is no measurement.
        process.expect("done", 3 * length + PATIENCE)?;
    }
    if open.is_empty() {
        std::thread::sleep(length + Duration::from_nanos(RUN_UP_NS));
    }
    if let Some(watch) = watch {
        write_json(&files.watched(), &watch.end()?)?;
    }
    for (_, process) in &mut closed {
        process.tell("stop")?;
    }
    for (_, process) in &mut closed {
        process.expect("done", PATIENCE)?;
    }
    for (_, process) in open.into_iter().chain(closed) {
        process.end()?;
    }
    server.map_or(Ok(()), process::Program::terminate)
}

fn start(this: &Path, session: &Session, program: &Program, files: RunFiles<'_>) -> Result<process::Program> {
    let name = &program.name;
    let mut command = Command::new(this);
    command.arg("replay").arg(&program.trace).arg("--gate").arg("--record").arg(files.record(name));
    command.args(["--seconds", &session.seconds.to_string(), "--scale", &program.scale.to_string()]);
    command.args(["--seed", &program.seed.to_string(), "--traffic", &value_name(program.traffic)]);
    if let Some((rate, pattern)) = program.load {
        command.args(["--rate", &rate.to_string(), "--arrivals", &value_name(pattern)]);
        command.args(["--prepare-us", &program.prepare_us.to_string()]);
        if program.hint {
            command.arg("--hint");
        }
    } else {
        command.args(["--think-us", &program.think_us.to_string()]);
    }
    if session.account {
        command.arg("--launches").arg(files.launches(name));
    }
    if session.policy.is_some() {
        command
            .env("LD_PRELOAD", beside(this, LIBRARY))
            .env("XSCHED_SCHEDULER", "GLB")
            .env("XSCHED_AUTO_XQUEUE", "ON")
            .env("XSCHED_SOCKET", files.socket())
            .env("XSCHED_AUTO_XQUEUE_LEVEL", program.level.to_string())
            .env("XSCHED_LOG_LEVEL", "debug")
            .env("XSCHED_LOG_FILE", files.log(name));
        for (variable, value) in &program.variables {
            command.env(format!("XSCHED_{variable}"), value);
        }
    }
    if program.urgent {
        prefer(&mut command);
    }
    process::Program::start(name, command)
}

/// Lets a program's host go before others on the processors, as far as this process may.
///
/// The simulated device and the hosts of all programs share the machine's processors. A host that waits for a
/// processor while the others poll adds milliseconds to a request, and says nothing about the GPU.
fn prefer(command: &mut Command) {
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            // Without the privilege it stays as the others are.
            let _ = rustix::process::setpriority_process(None, URGENT_NICE);
            Ok(())
        })
    };
}

/// The server's state before the requests.
#[derive(Debug)]
struct Watch {
    server: Connection,
    pid: u32,
    before: List,
    begin: Instant,
    processor: Duration,
}

impl Watch {
    /// Reads the state once every program has reported the level that is in force in it.
    fn begin(pid: u32, socket: &Path, programs: &[(&Program, process::Program)]) -> Result<Self> {
        let mut server = Connection::open(socket)?;
        let mut late = "";
        let found = poll(SERVER_PATIENCE, || {
            let (before, begin) = (server.list()?, Instant::now());
            let known = |program: &Program, pid: u32| {
                preemption(&before, pid).is_some_and(|state| program.level == 1 || !state.how.is_empty())
            };
            let unknown = programs.iter().find(|(program, process)| !known(program, process.pid()));
            late = unknown.map_or("", |(program, _)| &program.name);
            Ok(unknown.is_none().then_some((before, begin)))
        })?;
        let reported = || format!("the {late} program has not reported its preemption level to xserver");
        let (before, begin) = found.with_context(reported)?;
        Ok(Self { server, pid, before, begin, processor: process_cpu(pid)? })
    }

    fn end(mut self) -> Result<Watched> {
        let after = self.server.list()?;
        let seconds = self.begin.elapsed().as_secs_f64();
        let processor = process_cpu(self.pid)?.saturating_sub(self.processor);
        Ok(Watched { before: self.before, after, seconds, processor_s: processor.as_secs_f64() })
    }
}
