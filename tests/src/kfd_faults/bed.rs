//! Programs that are held, who holds them, and what the simulated driver says of their queues.

use std::fs::read_to_string;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::faults::log::{Log, Nanos, now};
use crate::faults::stage::{Outcome, Server, Trouble, await_some};
use crate::{Finished, Gpu, Mode, Run, Running, kernel, product};

/// The two ways of taking queues off.
pub const MECHANISMS: [&str; 2] = ["update-queue", "debug-trap"];

/// For how long a program runs at most before it counts as hung; a soak lasts.
const LIMIT: Duration = Duration::from_secs(3600);
/// The library's line about a server that is late.
const LATE: &str = "it has not renewed its lease";
/// Lines that somebody is to see.
const COMPLAINTS: [&str; 2] = ["xsched: warn: ", "xsched: error: "];

/// Something was not as promised.
pub fn wrong<T>(why: impl Into<String>) -> Outcome<T> {
    Err(Trouble::Wrong(why.into()))
}

/// A compute queue, as the driver has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HwQueue {
    /// Within its process.
    pub id: u64,
    /// True while it is evicted: by a holder, or until the driver has restored it.
    pub off: bool,
    /// Packets that the device has taken.
    pub read: u64,
    /// Packets that it has seen.
    pub seen: u64,
    /// True while one of its kernels has not ended.
    pub runs: bool,
    /// The number of compute units that its mask leaves it; none if that is all.
    pub units: Option<u64>,
    pub priority: u64,
    /// `dead` after a reset.
    pub state: String,
}

/// A client's levels and holds, as `xcli list --json` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The level in force.
    pub in_force: u64,
    /// By what, or why not more.
    pub how: String,
    /// Holds so far.
    pub holds: u64,
    /// Holds that failed.
    pub failures: u64,
    /// Commands that its queues have kept.
    pub pending: u64,
    /// Commands that it has on the hardware.
    pub in_flight: u64,
    /// True if it may run.
    pub runs: bool,
    /// True if its hardware queues are to go first.
    pub first: bool,
}

/// A run of `tests/programs/driver/held.cpp`.
#[derive(Debug)]
pub struct Program {
    /// How it is called in reports.
    pub name: String,
    /// Its process.
    pub pid: Pid,
    running: Running,
    rounds: PathBuf,
    said: PathBuf,
}

impl Program {
    fn start(run: Run, name: &str, folder: &Path, env: &[(&str, &str)], round: Duration) -> Outcome<Self> {
        let run = run.limit(LIMIT);
        let (rounds, said) = (folder.join(format!("{name}.rounds")), folder.join(format!("{name}.log")));
        let mut all = vec![("XSCHED_LOG_LEVEL".to_owned(), "debug".to_owned())];
        all.push(("XSCHED_LOG_FILE".to_owned(), said.display().to_string()));
        all.extend(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let native = env.is_empty();
        let mode = if native { Mode::Native } else { Mode::Shimmed { env: all } };
        let mut running =
            run.arg(rounds.display().to_string()).arg(round.as_micros().to_string()).mode(mode).start();
        let first = running.try_line()?;
        match running.program() {
            Some(pid) if first == "resting" => Ok(Self { name: name.to_owned(), pid, running, rounds, said }),
            _ => wrong(format!("{name} did not begin: {first}\n{}", running.report())),
        }
    }

    /// Gives it a command.
    pub fn tell(&mut self, command: &str) {
        self.running.tell(command);
    }

    /// Returns true if it has printed a line that was not read yet.
    pub fn has_line(&self) -> bool {
        self.running.has_line()
    }

    /// Waits for this line, which is the next one that it says.
    pub fn await_line(&mut self, wanted: &str) -> Outcome<()> {
        let line = self.running.try_line()?;
        if line == wanted {
            Ok(())
        } else {
            wrong(format!("{} said {line:?} instead of {wanted:?}", self.name))
        }
    }

    /// Reads the rounds that it has completed so far.
    pub fn log(&self) -> Log {
        Log::read(&self.rounds)
    }

    /// Waits until it has completed a round after this moment; when it did.
    pub fn await_round(&self, after: Nanos) -> Outcome<Nanos> {
        let what = format!("{} completed nothing", self.name);
        await_some(&what, || self.log().first_after(after)).map_err(|trouble| self.explain(trouble))
    }

    /// Sends it a signal; the time just before.
    pub fn signal(&self, signal: Signal) -> Nanos {
        let at = now();
        // gpu-sim around it reaps it only when we let that end.
        let _ = kill_process(self.pid, signal);
        at
    }

    /// The library's warnings and errors.
    pub fn complaints(&self) -> Vec<String> {
        complaints(&read_to_string(&self.said).unwrap_or_default())
    }

    /// The library has warned of exactly this: one line with each of these texts.
    pub fn expect_said(&self, wanted: &[&str]) -> Outcome<()> {
        expect_complaints(&self.name, &self.complaints(), wanted)
    }

    /// Waits until the library has warned of this.
    pub fn await_said(&self, text: &str) -> Outcome<()> {
        let what = format!("{}: the library did not say {text:?}", self.name);
        let said = || self.complaints().iter().any(|line| line.contains(text)).then_some(());
        await_some(&what, said).map_err(|trouble| self.explain(trouble))
    }

    /// Lets it end, sees to it that its memory is right and that the library has said exactly this; how often it was held.
    pub fn finish(self, wanted: &[&str]) -> Outcome<u64> {
        let (name, said) = (self.name, self.said);
        let ended = self.running.try_finish()?;
        let said = read_to_string(&said).unwrap_or_default();
        expect_success(&name, &ended, &said)?;
        expect_complaints(&name, &complaints(&said), wanted)?;
        Ok(total(&said, "holds"))
    }

    /// The same where the server may have been late on a busy machine, which the library says each time; how often it was.
    pub fn finish_with_late_server(self) -> Outcome<(u64, usize)> {
        let ended = self.running.try_finish()?;
        let said = read_to_string(&self.said).unwrap_or_default();
        expect_success(&self.name, &ended, &said)?;
        let (late, others): (Vec<String>, Vec<String>) =
            complaints(&said).into_iter().partition(|line| line.contains(LATE));
        expect_complaints(&self.name, &others, &[])?;
        Ok((total(&said, "holds"), late.len()))
    }

    /// Waits for its end, which is with this code.
    pub fn bury(self, code: i32) -> Outcome<()> {
        let ended = self.running.try_finish()?;
        if ended.code == code {
            return Ok(());
        }
        wrong(format!("{} ended with code {} and not {code}\n{}", self.name, ended.code, ended.stderr))
    }

    /// With what it and the library have said.
    pub fn explain(&self, trouble: Trouble) -> Trouble {
        let Trouble::Wrong(why) = trouble else { return trouble };
        let said = read_to_string(&self.said).unwrap_or_default();
        let report = self.running.report();
        Trouble::Wrong(format!("{why}\n--- {} ---\n{}\n{report}", self.name, said.trim_end()))
    }
}

/// The end that a program's own checks came to.
pub fn expect_success(name: &str, ended: &Finished, said: &str) -> Outcome<()> {
    if ended.code == 0 && ended.stdout.lines().last() == Some("ok") {
        return Ok(());
    }
    let (code, out, err) = (ended.code, &ended.stdout, &ended.stderr);
    wrong(format!("{name} ended with code {code}\n{out}\n{err}\nthe library said:\n{said}"))
}

/// The lines of a log that somebody is to see.
pub fn complaints(said: &str) -> Vec<String> {
    let lines = said.lines().filter(|line| COMPLAINTS.iter().any(|level| line.starts_with(level)));
    lines.map(str::to_owned).collect()
}

/// One line with each of these texts and no other.
pub fn expect_complaints(name: &str, lines: &[String], wanted: &[&str]) -> Outcome<()> {
    let once = |text: &str| lines.iter().filter(|line| line.contains(text)).count() == 1;
    if lines.len() == wanted.len() && wanted.iter().all(|text| once(text)) {
        return Ok(());
    }
    let shown = lines.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
    wrong(format!("{name}: the library was to say {wanted:?} once, and said {} lines:\n{shown}", lines.len()))
}

/// The sum of `NAME=number` over all lines of a log.
pub fn total(said: &str, name: &str) -> u64 {
    let words = said.split_whitespace().filter_map(|word| word.split_once('='));
    words.filter(|(key, _)| *key == name).filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
}

/// A snapshot of one eviction or limit: see [`Bed::still_held`].
#[derive(Debug, PartialEq, Eq)]
pub struct Hold {
    /// How many there have been.
    pub holds: u64,
    queues: Vec<HwQueue>,
}

impl Hold {
    /// Returns true if an evicted ring has at least this many packets.
    pub fn backlog(&self, packets: u64) -> bool {
        self.queues.iter().any(|queue| queue.off && queue.seen - queue.read >= packets)
    }
}

/// A simulated device that programs share, and a server.
#[derive(Debug)]
pub struct Bed {
    server: Server,
    /// By which programs are held.
    mechanism: &'static str,
    /// The longest that anything may stay held.
    longest: Duration,
    socket: PathBuf,
    folder: TempDir,
    _keeper: Running,
    gpu: Gpu,
}

impl Bed {
    /// A device with these further options of `gpu-sim run`, and a server.
    pub fn start(mechanism: &'static str, longest: Duration, sim: &[(&str, &str)]) -> Outcome<Self> {
        let gpu = Gpu::take();
        let mut keeper = gpu.keep_run();
        for (option, value) in sim {
            keeper = if value.is_empty() { keeper.sim_flag(option) } else { keeper.sim(option, value) };
        }
        let keeper = keeper.limit(LIMIT).start();
        let folder = tempfile::tempdir().map_err(|error| format!("no folder: {error}"))?;
        let socket = folder.path().join("xserver.sock");
        let server = Server::start(folder.path(), &socket)?;
        let bed = Self { server, mechanism, longest, socket, folder, _keeper: keeper, gpu };
        await_some("gpu-sim did not come into being", || bed.driver())?;
        await_some("xserver did not answer", || bed.list())?;
        Ok(bed)
    }

    /// Sets the server's policy with its parameters, as the arguments of `xcli policy set`.
    pub fn set_policy(&self, words: &[&str]) -> Outcome<()> {
        let xcli = product("xcli").map_err(Trouble::Wrong)?;
        let set = kernel::command(xcli).args(["policy", "set", "-a"]).arg(&self.socket).args(words).output();
        match set {
            Ok(set) if set.status.success() => Ok(()),
            other => wrong(format!("the policy was not set: {other:?}")),
        }
    }

    /// Programs that are started from now on are held by this one.
    pub fn set_mechanism(&mut self, mechanism: &'static str) {
        self.mechanism = mechanism;
    }

    /// Sends the server a signal; the time just before.
    pub fn signal_server(&self, signal: Signal) -> Nanos {
        self.server.signal(signal)
    }

    /// Kills the server; the time just before.
    pub fn kill_server(&self) -> Nanos {
        self.signal_server(Signal::KILL)
    }

    /// A new server on the same socket.
    pub fn start_server(&mut self) -> Outcome<()> {
        self.server.replace(self.folder.path(), &self.socket)
    }

    /// A program under the server, at level 3, with rounds of a millisecond; it rests.
    pub fn program(&self, name: &str, priority: i32, env: &[(&str, &str)]) -> Outcome<Program> {
        self.program_of(name, priority, env, Duration::from_millis(1))
    }

    /// The same with other rounds.
    pub fn program_of(
        &self,
        name: &str,
        priority: i32,
        env: &[(&str, &str)],
        round: Duration,
    ) -> Outcome<Program> {
        let (socket, priority) = (self.socket.display().to_string(), priority.to_string());
        let mut all = vec![
            ("XSCHED_AUTO_XQUEUE", "ON"),
            ("XSCHED_AUTO_XQUEUE_LEVEL", "3"),
            ("XSCHED_AUTO_XQUEUE_PRIORITY", priority.as_str()),
            ("XSCHED_KFD_MECHANISM", self.mechanism),
            ("XSCHED_SCHEDULER", "GLB"),
            ("XSCHED_SOCKET", socket.as_str()),
        ];
        all.extend_from_slice(env);
        Program::start(self.gpu.shared("held"), name, self.folder.path(), &all, round)
    }

    /// A program without the library.
    pub fn native(&self, name: &str, env: &[(&str, &str)]) -> Outcome<Program> {
        let mut run = self.gpu.shared("held");
        for (name, value) in env {
            run = run.env(name, value);
        }
        Program::start(run, name, self.folder.path(), &[], Duration::from_millis(1))
    }

    /// From now on the driver fails these requests (`gpu-sim run --fail-ioctls` says how), or none.
    pub fn fail_ioctls(&self, how: &str) -> Outcome<()> {
        let asked = serde_json::json!({ "fail_ioctls": how });
        match self.ask(&asked) {
            Some(Value::Null) => Ok(()),
            answer => wrong(format!("gpu-sim does not fail ioctls: {answer:?}")),
        }
    }

    fn ask(&self, what: &Value) -> Option<Value> {
        let folder = std::env::var_os("GPU_SIM_RUN_DIR").map_or_else(|| "/run/gpu-sim".into(), PathBuf::from);
        let mut stream = UnixStream::connect(folder.join(format!("{}.sock", self.gpu.name()))).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(format!("{what}\n").as_bytes()).ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        let mut answer: Value = serde_json::from_str(&line).ok()?;
        answer.get_mut("report").map(Value::take)
    }

    /// Processes with their compute queues, as the simulated driver has them at this moment; nothing if it does not answer.
    pub fn driver(&self) -> Option<Vec<(u64, Vec<HwQueue>)>> {
        self.ask(&"info".into())?["processes"].as_array()?.iter().map(process).collect()
    }

    /// The processes that serve the device and the programs.
    pub fn servants(&self) -> Option<[(&'static str, Pid); 2]> {
        let supervisor = self.ask(&"info".into())?["supervisor"].as_i64()?;
        let supervisor = Pid::from_raw(i32::try_from(supervisor).ok()?)?;
        Some([("gpu-sim", supervisor), ("xserver", self.server.pid())])
    }

    /// The compute queues of a process that the driver knows.
    pub fn queues(&self, program: &Program) -> Option<Vec<HwQueue>> {
        let pid = number(program.pid);
        self.driver()?.into_iter().find(|(of, _)| *of == pid).map(|(_, queues)| queues)
    }

    /// Reads the clients of `xcli list --json`, by process; none if there is no answer.
    pub fn list(&self) -> Option<Vec<(u64, Preemption)>> {
        let xcli = product("xcli").ok()?;
        let answer = kernel::command(xcli).args(["list", "--json", "-a"]).arg(&self.socket).output().ok()?;
        let list: Value = serde_json::from_slice(&answer.stdout).ok()?;
        list["clients"].as_array()?.iter().map(client).collect()
    }

    /// A program's levels and holds.
    pub fn preemption(&self, program: &Program) -> Option<Preemption> {
        let pid = number(program.pid);
        self.list()?.into_iter().find(|(of, _)| *of == pid).map(|(_, preemption)| preemption)
    }

    /// Waits until a program stands off the hardware with work of its, in a later hold than the first `holds`.
    /// [`Trouble::Missed`] if it is suspended with nothing on the hardware, as it is where waiting cost less, or its launch
    /// came a moment too late: then there is nothing to hold.
    pub fn await_held(&self, program: &Program, holds: u64) -> Outcome<Hold> {
        let nothing = || {
            let shown = self.preemption(program)?;
            (!shown.runs && shown.in_flight == 0).then_some(())
        };
        await_some(&format!("{} was never held", program.name), || {
            let hold = self.held(program).filter(|hold| hold.holds > holds);
            hold.map(Ok).or_else(|| nothing().map(Err))
        })
        .map_err(|trouble| program.explain(trouble))?
        .map_err(|()| Trouble::Missed)
    }

    fn held(&self, program: &Program) -> Option<Hold> {
        let before = self.preemption(program)?.holds;
        let queues = self.queues(program)?;
        let Preemption { holds, .. } = self.preemption(program)?;
        let held = queues.iter().any(|queue| queue.off && queue.seen > 0);
        (held && holds > 0 && holds == before).then_some(Hold { holds, queues })
    }

    /// Checks that the eviction still stands: no other has come since, and the device has taken nothing. [`Trouble::Missed`] if it was
    /// released meanwhile, which the one that it waits for can cause by being late: then the case proves nothing.
    pub fn still_held(&self, program: &Program, hold: &Hold) -> Outcome<()> {
        let Some(after) = self.held(program).filter(|after| after.holds == hold.holds) else {
            return Err(Trouble::Missed);
        };
        for queue in &hold.queues {
            let Some(now) = after.queues.iter().find(|now| now.id == queue.id) else { continue };
            if queue.off && (!now.off || now.read != queue.read) {
                return wrong(format!("held, and runs: {queue:?}, then {now:?}"));
            }
        }
        Ok(())
    }

    /// Waits until every used queue of a program is limited to some of the compute units.
    pub fn await_limited(&self, program: &Program) -> Outcome<Hold> {
        await_some(&format!("{} was never limited", program.name), || {
            let Preemption { holds, .. } = self.preemption(program)?;
            let queues = self.queues(program)?;
            let mut used = queues.iter().filter(|queue| queue.seen > 0).peekable();
            let limited = used.peek().is_some() && used.all(|queue| queue.units.is_some() && !queue.off);
            limited.then_some(Hold { holds, queues })
        })
        .map_err(|trouble| program.explain(trouble))
    }

    /// Waits until all compute queues of a program have this priority in the driver.
    pub fn await_priority(&self, program: &Program, priority: u64) -> Outcome<()> {
        let mut last = Vec::new();
        await_some(&format!("the queues of {} never had priority {priority}", program.name), || {
            last = self.queues(program)?;
            let all = !last.is_empty() && last.iter().all(|queue| queue.priority == priority);
            all.then_some(())
        })
        .map_err(|trouble| match trouble {
            Trouble::Wrong(why) => Trouble::Wrong(format!("{why}: {last:?}")),
            other => other,
        })
    }

    /// Waits until the server says that the queues of a program go first, or that they do not.
    pub fn await_permit(&self, program: &Program, first: bool) -> Outcome<()> {
        await_some("the server did not change a permission", || {
            self.preemption(program).filter(|shown| shown.first == first).map(|_| ())
        })
    }

    /// Returns true if programs are held by a mechanism that changes no priority.
    pub fn keeps_priorities(&self) -> bool {
        self.mechanism == "debug-trap"
    }

    /// Waits until no queue of anybody's is held or limited, which must not take longer than it may; how long it took since then.
    pub fn await_none_held(&self, since: Nanos) -> Outcome<Duration> {
        let mut last = Vec::new();
        let took = await_some("queues stay held", || {
            last = self.driver()?;
            let none =
                last.iter().all(|(_, queues)| queues.iter().all(|queue| !queue.off && queue.units.is_none()));
            none.then(|| Duration::from_nanos(now() - since))
        })
        .map_err(|trouble| match trouble {
            Trouble::Wrong(why) => Trouble::Wrong(format!("{why}: {last:?}")),
            other => other,
        })?;
        self.in_time("queues were held", took)
    }

    /// This was not too long.
    pub fn in_time(&self, what: &str, took: Duration) -> Outcome<Duration> {
        if took <= self.longest {
            return Ok(took);
        }
        wrong(format!("{what} for {took:?}, which is longer than {:?}", self.longest))
    }

    /// Waits until the driver has forgotten a process.
    pub fn await_forgotten(&self, program: &Program) -> Outcome<()> {
        await_some("the driver did not forget a process", || {
            let pid = number(program.pid);
            self.driver()?.iter().all(|(of, _)| *of != pid).then_some(())
        })
    }

    /// With what the server has said.
    pub fn explain(&self, trouble: Trouble) -> Trouble {
        let Trouble::Wrong(why) = trouble else { return trouble };
        let said = read_to_string(self.folder.path().join("xserver.log")).unwrap_or_default();
        Trouble::Wrong(format!("{why}\n--- xserver ---\n{}", said.trim_end()))
    }
}

fn number(pid: Pid) -> u64 {
    u64::from(pid.as_raw_nonzero().get().unsigned_abs())
}

fn process(value: &Value) -> Option<(u64, Vec<HwQueue>)> {
    let compute = |queue: &&Value| queue["type"] == "compute_aql";
    let queues = value["queues"].as_array()?.iter().filter(compute).map(|queue| {
        Some(HwQueue {
            id: queue["queue_id"].as_u64()?,
            off: queue["percentage"].as_u64()? & 0xff == 0
                || queue["suspended"].as_bool()?
                || !queue["mapped"].as_bool()?,
            read: queue["read"].as_u64()?,
            seen: queue["seen"].as_u64()?,
            runs: queue["outstanding"].as_u64()? > 0,
            units: queue["compute_units"].as_u64(),
            priority: queue["priority"].as_u64()?,
            state: queue["state"].as_str()?.to_owned(),
        })
    });
    Some((value["pid"].as_u64()?, queues.collect::<Option<_>>()?))
}

fn client(value: &Value) -> Option<(u64, Preemption)> {
    let (shown, queues) = (&value["preemption"], value["queues"].as_array()?);
    let preemption = Preemption {
        in_force: shown["in_force"].as_u64()?,
        how: shown["how"].as_str()?.to_owned(),
        holds: shown["holds"].as_u64()?,
        failures: shown["failures"].as_u64()?,
        pending: queues.iter().filter_map(|queue| queue["counts"]["pending"].as_u64()).sum(),
        in_flight: queues.iter().filter_map(|queue| queue["counts"]["in_flight"].as_u64()).sum(),
        runs: value["permit"]["run"].as_bool()?,
        first: value["permit"]["first"].as_bool()?,
    };
    Some((value["pid"].as_u64()?, preemption))
}
