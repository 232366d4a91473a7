//! Kills, stops and restarts the server or one of two busy programs, and checks that the others go on.
//!
//! One program is urgent and has work again and again, the other is low and has work back to back
//! (`tests/programs/scheduling/endless.cpp`). Each case first waits until the low one is suspended with something pending, by what
//! `xcli list` says, and afterwards sees by the programs' own logs that it still was when the fault came; else the case
//! is tried again. It passes if the programs that are left go on and finish with the right results, and none of them
//! stalls for longer than the caller says: a second for the demonstration, [`LONGEST_STALL`].
//!
//! A **stall** is the time between two rounds that a program completed one after the other, by `CLOCK_MONOTONIC`, less
//! the time in which the program itself was stopped; counted are those that end after the fault. Both programs always
//! have work (but for the urgent one's pauses of 30 ms), so no suspension is longer than the stall that it causes. A
//! program that is never resumed does not finish, and fails the case by that.

pub(crate) mod log;
pub mod soak;
pub(crate) mod stage;

use std::time::Duration;

use rustix::process::Signal;

use crate::{Gpu, product};
use log::{Nanos, now};
use stage::{Outcome, Stage, Trouble, Worker, await_some};

/// The longest that a program may wait in vain after a fault, on a machine that has time for it.
pub const LONGEST_STALL: Duration = Duration::from_secs(1);
/// For how long the server is stopped.
const SERVER_STOP: Duration = Duration::from_secs(5);
/// A program goes on if it completes so many rounds.
const GOES_ON: usize = 50;
/// Rounds of the low program during which the urgent one is stopped: seconds.
const CLIENT_STOP: usize = 1500;
/// How often a fault may come at the wrong moment.
const TRIES: usize = 8;

type Case = fn(&mut Stage) -> Outcome<String>;

const CASES: &[(&str, Case)] = &[
    ("xserver SIGKILL", server_killed),
    ("xserver SIGSTOP 5 s, SIGCONT", server_stopped),
    ("xserver restart", server_restarted),
    ("urgent program SIGKILL", urgent_killed),
    ("low program SIGKILL", low_killed),
    ("urgent program SIGSTOP, SIGCONT", urgent_stopped),
];

/// Runs every case, one line each to `say`, and then the line `N passed, N failed`. Whether all passed.
pub fn run(longest_stall: Duration, mut say: impl FnMut(&str)) -> bool {
    if let Some(missing) = missing() {
        say(&missing);
        say(&format!("0 passed, {} failed", CASES.len()));
        return false;
    }
    let gpu = Gpu::take();
    let mut failed = 0;
    for (name, case) in CASES {
        match attempt(&gpu, longest_stall, *case) {
            Ok(what) => say(&format!("ok      {name}: {what}")),
            Err(why) => {
                failed += 1;
                say(&format!("FAILED  {name}: {why}"));
            }
        }
    }
    say(&format!("{} passed, {failed} failed", CASES.len() - failed));
    failed == 0
}

/// Returns one sentence that names the first program that is not built.
pub(crate) fn missing() -> Option<String> {
    ["gpu-sim", "libshimhip.so", "xserver", "xcli"].map(product).into_iter().find_map(Result::err)
}

fn attempt(gpu: &Gpu, longest_stall: Duration, case: Case) -> Result<String, String> {
    for _ in 0..TRIES {
        let result = Stage::start(gpu, longest_stall).and_then(|mut stage| {
            let result = case(&mut stage);
            result.map_err(|trouble| stage.explain(trouble))
        });
        match result {
            Ok(what) => return Ok(what),
            Err(Trouble::Missed) => {}
            Err(Trouble::Wrong(why)) => return Err(why),
        }
    }
    Err(format!("in {TRIES} tries the low program was never suspended when the fault came"))
}

/// The server is gone: both go on without one.
fn server_killed(stage: &mut Stage) -> Outcome<String> {
    let pending = stage.await_suspended()?;
    let fault = stage.server.signal(Signal::KILL);
    both_go_on(stage, fault)?;
    end(stage, fault, pending, "")
}

/// The server hangs: within the lease both go on without it, and afterwards it schedules them again.
fn server_stopped(stage: &mut Stage) -> Outcome<String> {
    let pending = stage.await_suspended()?;
    let fault = stage.server.signal(Signal::STOP);
    both_go_on(stage, fault)?;
    let left = Duration::from_nanos(now() - fault);
    std::thread::sleep(SERVER_STOP.saturating_sub(left));
    let back = stage.server.signal(Signal::CONT);
    let remark = again(stage, back)?;
    end(stage, fault, pending, &remark)
}

/// The server ends and another one comes on the same socket: it schedules both.
fn server_restarted(stage: &mut Stage) -> Outcome<String> {
    let pending = stage.await_suspended()?;
    let fault = stage.server.signal(Signal::TERM);
    await_some("xserver did not end", || stage.server.has_ended().then_some(()))?;
    let back = now();
    stage.start_server()?;
    let remark = again(stage, back)?;
    both_go_on(stage, fault)?;
    end(stage, fault, pending, &remark)
}

/// Whom the low one waited for is gone.
fn urgent_killed(stage: &mut Stage) -> Outcome<String> {
    let pending = stage.await_suspended()?;
    let fault = stage.urgent_mut().signal(Signal::KILL);
    stage.low().await_rounds(GOES_ON, fault)?;
    await_some("the server did not forget the urgent program", || {
        stage.list().filter(|list| Stage::find(list, stage.urgent()).is_none()).map(|_| ())
    })?;
    end(stage, fault, pending, "")
}

/// The suspended one is gone, with what it has pending.
fn low_killed(stage: &mut Stage) -> Outcome<String> {
    let pending = stage.await_suspended()?;
    let fault = stage.low_mut().signal(Signal::KILL);
    stage.urgent().await_rounds(2 * GOES_ON, fault)?;
    await_some("the server did not forget the low program", || {
        stage.list().filter(|list| Stage::find(list, stage.low()).is_none()).map(|_| ())
    })?;
    end(stage, fault, pending, "")
}

/// Whom the low one waits for does not go on for some seconds, and then does.
fn urgent_stopped(stage: &mut Stage) -> Outcome<String> {
    let pending = stage.await_suspended()?;
    let fault = stage.urgent_mut().signal(Signal::STOP);
    await_some("the server did not see that the urgent program is stopped", || {
        stage.list().filter(|list| Stage::find(list, stage.urgent()).is_some_and(|seen| seen.yielded))
    })?;
    stage.low().await_rounds(CLIENT_STOP, fault)?;
    let back = stage.urgent_mut().signal(Signal::CONT);
    stage.urgent_mut().stopped = Some((fault, back));
    let remark = again(stage, back)?;
    stage.urgent().await_rounds(GOES_ON, back)?;
    end(stage, fault, pending, &remark)
}

fn both_go_on(stage: &Stage, fault: Nanos) -> Outcome<()> {
    stage.low().await_rounds(GOES_ON, fault)?;
    stage.urgent().await_rounds(GOES_ON, fault)
}

/// Waits until the low program gives way again.
fn again(stage: &Stage, back: Nanos) -> Outcome<String> {
    stage.await_suspended()?;
    Ok(format!("; scheduled again after {} ms", (now() - back) / 1_000_000))
}

/// Lets whoever is left finish, and judges the whole.
fn end(stage: &mut Stage, fault: Nanos, pending: u64, remark: &str) -> Outcome<String> {
    let mut told = format!("low was suspended with {pending} pending");
    let (urgent_log, low_log) = (stage.urgent().log(), stage.low().log());
    stage.was_suspended(&urgent_log, &low_log, fault)?;
    for worker in [stage.low.take(), stage.urgent.take()].into_iter().flatten() {
        told += &finish(worker, stage.longest_stall, fault, remark)?;
    }
    Ok(told + remark)
}

fn finish(worker: Worker, longest: Duration, fault: Nanos, remark: &str) -> Outcome<String> {
    let (name, stopped) = (worker.name, worker.stopped);
    if worker.killed {
        worker.bury()?;
        return Ok(String::new());
    }
    let log = worker.finish()?;
    let (stall, end) = log.longest_stall(fault, stopped);
    if stall > longest {
        return Err(Trouble::Wrong(format!(
            "{name} stalled for {stall:?}, which is longer than {longest:?}, until {} ms after the fault{remark}",
            (end - fault) / 1_000_000
        )));
    }
    Ok(format!("; {name} stalled for {} ms at most, {} rounds right", stall.as_millis(), log.rounds()))
}
