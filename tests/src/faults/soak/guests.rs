//! What other programs do that the server schedules beside the two.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use super::bed::Bed;
use crate::faults::stage::{Outcome, Stage, Trouble, await_some};
use crate::{Mode, Run, Running, product};

/// The priority of the low program: guests and that one run beside each other, so a guest at work suspends neither.
const PRIORITY: &str = "1";
/// The longest that a guest is stopped, in milliseconds.
const LONGEST_STOP_MS: u64 = 300;
/// How often a process may miss the number that it is to have: others start processes too.
const TRIES: usize = 20;

/// A program with the library, under the server.
fn guest(bed: &Bed<'_>, program: &str) -> Run {
    let variables = [
        ("XSCHED_AUTO_XQUEUE", "ON"),
        ("XSCHED_SCHEDULER", "GLB"),
        ("XSCHED_SOCKET", &bed.stage.socket().display().to_string()),
        ("XSCHED_AUTO_XQUEUE_PRIORITY", PRIORITY),
    ];
    let env = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    bed.gpu.shared(program).mode(Mode::Shimmed { env })
}

fn said(running: &mut Running, expected: &str) -> Outcome<()> {
    match running.try_line()? {
        line if line == expected => Ok(()),
        line => Err(Trouble::Wrong(format!(
            "a guest said {line:?} instead of {expected:?}\n{}",
            running.report()
        ))),
    }
}

/// Waits for the end of a guest, which must have this exit code.
fn ended(running: Running, code: i32) -> Outcome<()> {
    let ended = running.try_finish()?;
    match ended.code == code {
        true => Ok(()),
        false => Err(Trouble::Wrong(format!(
            "a guest ended with code {} instead of {code}\n{}\n{}",
            ended.code, ended.stdout, ended.stderr
        ))),
    }
}

/// A guest that works, and its process.
fn at_work(bed: &Bed<'_>, rounds: &str, milliseconds: &str) -> Outcome<(Running, rustix::process::Pid)> {
    let mut running = guest(bed, "rounds").arg(rounds).arg(milliseconds).start();
    said(&mut running, "ready")?;
    // It waits, so it is there.
    let pid = await_some("a guest does not run", || running.program())?;
    running.let_go();
    Ok((running, pid))
}

pub fn killed(bed: &mut Bed<'_>) -> Outcome<()> {
    let (running, pid) = at_work(bed, "100000", "5")?;
    std::thread::sleep(Duration::from_millis(bed.dice.below(LONGEST_STOP_MS)));
    // gpu-sim around it reaps it only when we let that end.
    let _ = kill_process(pid, Signal::KILL);
    ended(running, 137)
}

/// Others do not wait for a stopped one, and it goes on afterwards.
pub fn stopped(bed: &mut Bed<'_>) -> Outcome<()> {
    let (running, pid) = at_work(bed, "10", "2")?;
    let _ = kill_process(pid, Signal::STOP);
    std::thread::sleep(Duration::from_millis(bed.dice.below(LONGEST_STOP_MS)));
    let _ = kill_process(pid, Signal::CONT);
    ended(running, 0)
}

pub fn forks_often(bed: &mut Bed<'_>) -> Outcome<()> {
    ended(guest(bed, "life_fork_many").start(), 0)
}

pub fn becomes_others(bed: &mut Bed<'_>) -> Outcome<()> {
    ended(guest(bed, "life_exec").start(), 0)
}

pub fn limits_itself(bed: &mut Bed<'_>) -> Outcome<()> {
    ended(guest(bed, "life_limits").start(), 0)
}

/// A filter of system calls ends the thread of the library that looks after the lease.
pub fn filters_calls(bed: &mut Bed<'_>) -> Outcome<()> {
    let mut running = guest(bed, "edges").start();
    for line in ["start", "filter killthread ppoll", "work 5"] {
        running.tell(line);
        said(&mut running, line.split(' ').next().unwrap_or_default())?;
    }
    ended(running, 0)
}

/// A plain client. Killed when dropped.
struct Plain(Child);

impl Plain {
    fn start(stage: &Stage) -> Outcome<Self> {
        let mut command = Command::new(product("plain-client")?);
        command.arg(stage.socket()).args(["guest", PRIORITY]).stdin(Stdio::piped()).stderr(Stdio::null());
        Ok(Self(command.spawn().map_err(|error| format!("cannot start plain-client: {error}"))?))
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process gets the number of a client that was killed, and is not taken for it.
pub fn number_used_again(bed: &mut Bed<'_>) -> Outcome<()> {
    let client = Plain::start(&bed.stage)?;
    let number = u64::from(client.0.id());
    let is_there = |stage: &Stage| stage.list().map(|list| list.iter().any(|seen| seen.pid == number));
    await_some("the server does not know a plain client", || is_there(&bed.stage).filter(|there| *there))?;
    drop(client);
    for _ in 0..TRIES {
        // The kernel gives the next process the number behind this one.
        if std::fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).is_err() {
            return Err(Trouble::Missed);
        }
        let other = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn();
        let mut other = other.map_err(|error| format!("cannot start sleep: {error}"))?;
        let has_it = u64::from(other.id()) == number;
        let gone = has_it.then(|| {
            await_some("the server takes another process for a client that was killed", || {
                is_there(&bed.stage).filter(|there| !there)
            })
        });
        let _ = other.kill();
        let _ = other.wait();
        if let Some(gone) = gone {
            return gone.map(|_| ());
        }
    }
    Err(Trouble::Missed)
}
