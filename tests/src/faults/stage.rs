//! Two busy programs under a server: what the faults happen to.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::log::{Log, Nanos, now};
use crate::{Gpu, Mode, Running, daemon, kernel, product};

/// How long something that must happen may take, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// The pause of the urgent program, after which it was idle: see `tests/programs/scheduling/endless.cpp`.
const PAUSE: Nanos = 30_000_000;

/// Why a case did not pass.
#[derive(Debug)]
pub enum Trouble {
    /// Nothing was suspended when the fault came: it proves nothing, and is to be tried again.
    Missed,
    /// A promise did not hold.
    Wrong(String),
}

impl From<String> for Trouble {
    fn from(reason: String) -> Self {
        Self::Wrong(reason)
    }
}

/// The result of a case or of a part of one.
pub type Outcome<T> = Result<T, Trouble>;

/// Looks until there is something, or fails.
pub fn await_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Outcome<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > until {
            return Err(Trouble::Wrong(format!("{what} within {PATIENCE:?}")));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// A started xserver; killed when dropped.
#[derive(Debug)]
pub struct Server(Child);

/// The configuration of a server for all users: root does everything.
const CONFIGURATION: &str = "[policy]\nname = \"HPF\"\n";

impl Server {
    pub(crate) fn start(folder: &Path, socket: &Path) -> Result<Self, String> {
        daemon::spawn(socket, &[], &[], Self::log(folder)?.into()).map(Self)
    }

    /// Starts one for all users with the configuration file of the folder, behind a program that becomes it if there are words
    /// for one.
    fn start_shared(before: &[&str], folder: &Path, socket: &Path) -> Result<Self, String> {
        let file = folder.join("giveway.toml").display().to_string();
        let arguments = ["--system", "--config", &file];
        daemon::spawn_with(before, socket, &arguments, &[], Self::log(folder)?.into()).map(Self)
    }

    fn log(folder: &Path) -> Result<File, String> {
        let log = File::options().create(true).append(true).open(folder.join("xserver.log"));
        log.map_err(|error| format!("cannot write a log: {error}"))
    }

    /// Starts another one in the place of this one, which was told to end. Its socket is free once it has ended, which its
    /// clients can know before.
    pub(crate) fn replace(&mut self, folder: &Path, socket: &Path) -> Outcome<()> {
        await_some("the former xserver did not end", || self.has_ended().then_some(()))?;
        *self = Self::start(folder, socket)?;
        Ok(())
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Sends a signal; the time just before.
    pub fn signal(&self, signal: Signal) -> Nanos {
        let at = now();
        // It is our child and not yet waited for, so the id is its own; one that has ended needs no signal.
        let _ = kill_process(Pid::from_child(&self.0), signal);
        at
    }

    /// Returns true once it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A started program with its log.
#[derive(Debug)]
pub struct Worker {
    /// How it is called in reports.
    pub name: &'static str,
    running: Running,
    log: PathBuf,
    pid: Pid,
    /// True if the harness has killed it.
    pub killed: bool,
    /// From when to when it was stopped by us.
    pub stopped: Option<(Nanos, Nanos)>,
}

impl Worker {
    fn start(
        gpu: &Gpu,
        (folder, socket): (&Path, &Path),
        (name, priority): (&'static str, i32),
        limit: Option<Duration>,
    ) -> Outcome<Self> {
        let log = folder.join(name);
        let variables = [
            ("XSCHED_AUTO_XQUEUE", "ON"),
            ("XSCHED_SCHEDULER", "GLB"),
            ("XSCHED_SOCKET", &socket.display().to_string()),
            ("XSCHED_AUTO_XQUEUE_PRIORITY", &priority.to_string()),
            ("XSCHED_LOG_LEVEL", "debug"),
        ];
        let env = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let run = gpu.shared("endless").arg(name).arg("0").arg(log.display().to_string());
        let run = if let Some(limit) = limit { run.limit(limit) } else { run };
        let running = run.mode(Mode::Shimmed { env }).start();
        let begun = await_some(&format!("{name} completed nothing"), || {
            running.program().filter(|_| Log::read(&log).rounds() > 0)
        });
        match begun {
            Ok(pid) => Ok(Self { name, running, log, pid, killed: false, stopped: None }),
            Err(Trouble::Wrong(why)) => Err(Trouble::Wrong(format!("{why}\n{}", running.report()))),
            Err(other) => Err(other),
        }
    }

    /// Reads the rounds that it has completed so far.
    pub fn log(&self) -> Log {
        Log::read(&self.log)
    }

    /// How many rounds it has completed so far.
    pub fn rounds(&self) -> usize {
        Log::count(&self.log)
    }

    /// Sends it a signal; the time just before.
    pub fn signal(&mut self, signal: Signal) -> Nanos {
        let at = now();
        self.killed |= signal == Signal::KILL;
        // gpu-sim around it reaps it only when we let that end, or the program ends by itself: then the case fails.
        let _ = kill_process(self.pid, signal);
        at
    }

    /// Waits until it has completed so many rounds since then.
    pub fn await_rounds(&self, rounds: usize, since: Nanos) -> Outcome<()> {
        let what = format!("{} did not complete {rounds} rounds after the fault", self.name);
        await_some(&what, || (self.log().rounds_after(since) >= rounds).then_some(()))
            .map_err(|trouble| self.explain(trouble))
    }

    fn explain(&self, trouble: Trouble) -> Trouble {
        match trouble {
            Trouble::Wrong(why) => Trouble::Wrong(format!("{why}\n{}", self.running.report())),
            Trouble::Missed => Trouble::Missed,
        }
    }

    /// Lets it end, and sees to it that its results are right; what it has completed.
    pub fn finish(self) -> Outcome<Log> {
        let ended = self.running.try_finish()?;
        match (ended.code, ended.stdout.as_str()) {
            (0, "ok\n") => Ok(Log::read(&self.log)),
            (code, _) => Err(Trouble::Wrong(format!(
                "{} ended with code {code}\n{}\n{}",
                self.name, ended.stdout, ended.stderr
            ))),
        }
    }

    /// Waits for the end of one that was killed.
    pub fn bury(self) -> Outcome<()> {
        let ended = self.running.try_finish()?;
        match ended.code {
            137 => Ok(()),
            code => Err(Trouble::Wrong(format!("{} was killed and ended with code {code}", self.name))),
        }
    }
}

/// A client as `xcli list` shows it.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// The number of its connection.
    pub client: u64,
    /// Its process.
    pub pid: u64,
    /// True if it counts as stopped.
    pub yielded: bool,
    /// True if one of its queues is suspended with work.
    pub suspended: bool,
    /// The number of pending commands of all its queues.
    pub pending: u64,
    /// True if its numbers are current.
    pub fresh: bool,
}

/// Server and programs.
#[derive(Debug)]
pub struct Stage {
    /// Work again and again, priority 10.
    pub urgent: Option<Worker>,
    /// Work back to back, priority 1.
    pub low: Option<Worker>,
    /// The server that schedules them.
    pub server: Server,
    /// The longest that a program may wait in vain after a fault.
    pub longest_stall: Duration,
    /// True if the server is one for all users.
    shared: bool,
    socket: PathBuf,
    folder: TempDir,
}

impl Stage {
    /// Starts all three, and waits until both programs have completed something.
    pub fn start(gpu: &Gpu, longest_stall: Duration) -> Outcome<Self> {
        Self::begin(gpu, longest_stall, None)
    }

    /// The same with a server for all users, and with programs that may run for `limit`.
    pub fn start_shared(gpu: &Gpu, longest_stall: Duration, limit: Duration) -> Outcome<Self> {
        Self::begin(gpu, longest_stall, Some(limit))
    }

    /// With a limit the server is one for all users.
    fn begin(gpu: &Gpu, longest_stall: Duration, limit: Option<Duration>) -> Outcome<Self> {
        let shared = limit.is_some();
        let folder = tempfile::tempdir().map_err(|error| format!("no folder: {error}"))?;
        let socket = folder.path().join("xserver.sock");
        let server = if shared {
            let written = std::fs::write(folder.path().join("giveway.toml"), CONFIGURATION);
            written.map_err(|error| format!("cannot write the configuration: {error}"))?;
            Server::start_shared(&[], folder.path(), &socket)?
        } else {
            Server::start(folder.path(), &socket)?
        };
        let mut stage = Self { urgent: None, low: None, server, longest_stall, shared, socket, folder };
        await_some("xserver did not answer", || stage.list()).map_err(|trouble| stage.explain(trouble))?;
        let start = |name, priority| {
            Worker::start(gpu, (stage.folder.path(), &stage.socket), (name, priority), limit)
        };
        let low = start("low", 1)?;
        let urgent = start("urgent", 10)?;
        (stage.low, stage.urgent) = (Some(low), Some(urgent));
        Ok(stage)
    }

    /// A new server on the same socket.
    pub fn start_server(&mut self) -> Outcome<()> {
        if !self.shared {
            return self.server.replace(self.folder.path(), &self.socket);
        }
        await_some("the former xserver did not end", || self.server.has_ended().then_some(()))?;
        self.server = self.another_server(&[])?;
        Ok(())
    }

    /// Another server for all users on the same socket, behind a program that becomes it if there are words for one.
    pub fn another_server(&self, before: &[&str]) -> Outcome<Server> {
        Ok(Server::start_shared(before, self.folder.path(), &self.socket)?)
    }

    /// The socket of the server.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The configuration file of a server for all users.
    pub fn configuration(&self) -> PathBuf {
        self.folder.path().join("giveway.toml")
    }

    /// The urgent program, in a case that has not ended it.
    pub fn urgent(&self) -> &Worker {
        self.urgent.as_ref().expect("the case has not taken it away")
    }

    /// The same, to do something to it.
    pub fn urgent_mut(&mut self) -> &mut Worker {
        self.urgent.as_mut().expect("the case has not taken it away")
    }

    /// The low program, likewise.
    pub fn low(&self) -> &Worker {
        self.low.as_ref().expect("the case has not taken it away")
    }

    /// The same, to do something to it.
    pub fn low_mut(&mut self) -> &mut Worker {
        self.low.as_mut().expect("the case has not taken it away")
    }

    /// The clients, as `xcli list --json` shows them; nothing if there is no answer.
    pub fn list(&self) -> Option<Vec<Seen>> {
        let xcli = product("xcli").ok()?;
        let answer = kernel::command(xcli).args(["list", "--json", "-a"]).arg(&self.socket).output().ok()?;
        let list: Value = serde_json::from_slice(&answer.stdout).ok()?;
        let clients = list["clients"].as_array()?;
        clients.iter().map(seen).collect()
    }

    /// A client in a list.
    pub fn find(list: &[Seen], worker: &Worker) -> Option<Seen> {
        let pid = u64::from(worker.pid.as_raw_nonzero().get().unsigned_abs());
        list.iter().copied().find(|seen| seen.pid == pid)
    }

    /// Waits until the low program is suspended and has something pending; how much.
    pub fn await_suspended(&self) -> Outcome<u64> {
        let mut last = None;
        let look = || {
            last = self.list();
            let list = last.as_ref()?;
            let (low, urgent) = (Self::find(list, self.low())?, Self::find(list, self.urgent())?);
            (low.suspended && low.fresh && low.pending > 0 && !urgent.suspended).then_some(low.pending)
        };
        let found = await_some("the low program was not suspended", look);
        found.map_err(|trouble| match trouble {
            Trouble::Wrong(why) => self.explain(Trouble::Wrong(format!("{why}; the last list: {last:?}"))),
            other => other,
        })
    }

    /// Sees to it by the programs' own logs that the low program was still suspended when the fault came: the urgent one
    /// was in the middle of a burst, of which the low one has seen nothing but waiting.
    pub fn was_suspended(&self, urgent: &Log, low: &Log, fault: Nanos) -> Outcome<()> {
        let waited = urgent.rounds_between(low.last_before(fault), fault);
        let in_burst = fault - urgent.last_before(fault) < PAUSE;
        if waited >= 2 && in_burst { Ok(()) } else { Err(Trouble::Missed) }
    }

    /// With what server and programs have said.
    pub fn explain(&self, trouble: Trouble) -> Trouble {
        let Trouble::Wrong(mut why) = trouble else { return trouble };
        let said = std::fs::read_to_string(self.folder.path().join("xserver.log")).unwrap_or_default();
        why += &format!("\n--- xserver ---\n{}", said.trim_end());
        for worker in [&self.low, &self.urgent].into_iter().flatten() {
            why += &format!("\n--- {} ---\n{}", worker.name, worker.running.report());
        }
        Trouble::Wrong(why)
    }
}

fn seen(client: &Value) -> Option<Seen> {
    let queues = client["queues"].as_array()?;
    Some(Seen {
        client: client["client"].as_u64()?,
        pid: client["pid"].as_u64()?,
        yielded: client["yielded"].as_bool()?,
        fresh: client["fresh"].as_bool()?,
        suspended: queues.iter().any(|queue| queue["state"] == "suspended"),
        pending: queues.iter().filter_map(|queue| queue["counts"]["pending"].as_u64()).sum(),
    })
}
