//! A queue that does not come off the hardware. The driver resets the GPU then, and everybody on it loses what they run,
//! which they do natively as well: the runtime of such a program waits for ever, and returning from `main` still ends it.
//!
//! Promised is: the program whose hold it was says so in one line, holds nothing any more (`xcli list` says why), and ends as
//! it would natively; so does the program that it was held for; a program on another GPU notices nothing; one that comes
//! afterwards is held as ever.

use std::time::Duration;

use super::bed::{Bed, Preemption, Program, wrong};
use crate::faults::log::now;
use crate::faults::stage::{Outcome, await_some};

/// After so many milliseconds the driver gives up.
const TIMEOUT: &str = "300";
/// The line.
const SAID: &str = "a queue did not come off the hardware in time";
/// The list's words for it.
const WHY: &str = "level 1 for good";

/// Which of the two GPUs a program sees.
const FIRST: (&str, &str) = ("ROCR_VISIBLE_DEVICES", "0");
const SECOND: (&str, &str) = ("ROCR_VISIBLE_DEVICES", "1");

/// Two GPUs, and this compute queue of all that are made never comes off.
fn bed(mechanism: &'static str, longest: Duration, stuck: usize) -> Outcome<Bed> {
    let stuck = stuck.to_string();
    let sim = [("--gpus", "2"), ("--stuck-queue", &stuck), ("--preemption-timeout-ms", TIMEOUT)];
    Bed::start(mechanism, longest, &sim)
}

/// The program has all queues that it will have: how many.
fn warms_up(bed: &Bed, program: &mut Program) -> Outcome<usize> {
    program.tell("go");
    program.await_round(0)?;
    program.tell("rest");
    program.await_line("resting")?;
    await_some("it has no queues", || bed.queues(program).map(|queues| queues.len()))
}

/// How many compute queues a program makes, and which one, counted from 0, its kernels run from.
fn numbers(mechanism: &'static str, longest: Duration) -> Outcome<(usize, usize)> {
    let bed = bed(mechanism, longest, usize::from(u16::MAX))?;
    let made = warms_up(&bed, &mut bed.program("first", 1, &[FIRST])?)?;
    let mut second = bed.program("second", 1, &[FIRST])?;
    works(&bed, &mut second)?;
    let queues = bed.queues(&second).unwrap_or_default();
    Ok((made, queues.iter().position(|queue| queue.runs).unwrap_or(0)))
}

/// A kernel of the program runs, and lasts.
fn works(bed: &Bed, program: &mut Program) -> Outcome<()> {
    program.tell("leave 60000");
    program.await_line("left")?;
    await_some("a kernel was not taken", || bed.queues(program)?.iter().any(|queue| queue.runs).then_some(()))
}

/// All its queues were lost in a reset.
fn await_lost(bed: &Bed, program: &Program) -> Outcome<()> {
    await_some(&format!("the queues of {} were not lost", program.name), || {
        bed.queues(program)?.iter().all(|queue| queue.state == "dead").then_some(())
    })
    .map_err(|trouble| program.explain(trouble))
}

fn ends(mut program: Program) -> Outcome<()> {
    program.tell("exit");
    program.bury(7)
}

/// Without the library: what a reset does to a program.
fn native(mechanism: &'static str, longest: Duration, runs: usize) -> Outcome<()> {
    let bed = bed(mechanism, longest, runs + 1)?;
    let mut program = bed.native("native", &[FIRST])?;
    works(&bed, &mut program)?;
    program.tell("stop");
    program.await_line("stopped: ETIME")?;
    await_lost(&bed, &program)?;
    ends(program)
}

/// Plays it natively and with the library.
pub fn case(mechanism: &'static str, longest: Duration) -> Outcome<String> {
    let (made, runs) = numbers(mechanism, longest)?;
    native(mechanism, longest, runs)?;
    let bed = bed(mechanism, longest, 2 * made + runs + 1)?;
    // Whoever makes a queue has all of them taken off: these two first.
    let mut other = bed.program("other", 1, &[SECOND])?;
    warms_up(&bed, &mut other)?;
    let mut urgent = bed.program("urgent", 10, &[FIRST])?;
    warms_up(&bed, &mut urgent)?;
    let mut low = bed.program("low", 1, &[FIRST])?;
    works(&bed, &mut low)?;
    other.tell("go");
    other.await_round(now())?;
    // The low one is to give way to that.
    urgent.tell("leave 60000");
    urgent.await_line("left")?;
    await_lost(&bed, &low)?;
    await_lost(&bed, &urgent)?;
    let reset = now();
    let given_up = await_some("it is not known why nothing is held any more", || {
        bed.preemption(&low).filter(|shown| shown.in_force == 1 && shown.how.contains(WHY))
    });
    let Preemption { failures, .. } = given_up.map_err(|trouble| low.explain(trouble))?;
    if failures != 1 {
        return wrong(format!("{failures} holds failed, and not one"));
    }
    low.expect_said(&[SAID])?;
    other.await_round(reset)?;
    let level = bed.preemption(&other).map(|shown| shown.in_force);
    if level != Some(3) {
        return wrong(format!("a program on another GPU is at level {level:?}"));
    }
    ends(low)?;
    ends(urgent)?;
    let held = next(&bed)?;
    let rounds = other.log().rounds();
    other.finish(&[])?;
    Ok(format!(
        "level 1 for good, ends as natively; another GPU: {rounds} rounds right; afterwards {held} holds"
    ))
}

/// Programs that come afterwards hold as ever; how often.
fn next(bed: &Bed) -> Outcome<u64> {
    let mut low = bed.program("next", 1, &[FIRST])?;
    let mut urgent = bed.program("next-urgent", 10, &[FIRST])?;
    low.tell("go");
    low.await_round(0)?;
    urgent.tell("go");
    bed.await_held(&low, 0)?;
    urgent.tell("rest");
    urgent.await_line("resting")?;
    bed.await_none_held(now())?;
    urgent.finish(&[])?;
    low.finish(&[])
}
