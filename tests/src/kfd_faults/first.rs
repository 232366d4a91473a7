//! Hardware queues of an urgent program that go before those of a low one: they have a higher priority in the driver as long
//! as both are there and the policy says so, and both programs compute what they should.

use std::time::Duration;

use super::bed::{Bed, Program};
use super::two::{NO_SHARE, Pair, SHARE, begin};
use crate::faults::log::now;
use crate::faults::stage::{Outcome, await_some};

/// The policy under which the queues of the urgent program go first, beside a low one that keeps a share.
const FIRST: &[&str] = &["HPF", "--queues-first", "1", "--share-percent", "25", "--slowdown-percent", "0"];
/// The priority that the runtime gives the queues of a stream without one.
const OWN: u64 = 7;
/// The priority of the same queues while they go first.
const RAISED: u64 = 12;
/// The library's lines about a request that failed, and a server that is gone.
const REPEATED: &str = "the driver failed a request about a queue";
const LOST: &str = "is lost";
/// The library's line about queues that cannot go first.
const REFUSED: &str = "the hardware queues keep their own priority";

/// The two programs under the policy; both have queues.
fn start(mechanism: &'static str, longest: Duration) -> Outcome<Pair> {
    let mut pair = begin(mechanism, longest, true)?;
    pair.bed.set_policy(FIRST)?;
    pair.hold()?;
    pair.await_first()?;
    Ok(pair)
}

impl Pair {
    /// Waits until the queues of the urgent program go first, and those of the low one do not.
    fn await_first(&self) -> Outcome<()> {
        let raised = if self.bed.keeps_priorities() { OWN } else { RAISED };
        self.bed.await_priority(&self.urgent, raised)?;
        self.bed.await_priority(&self.low, OWN)
    }

    /// Waits until no program's queues go first.
    fn await_equal(&self) -> Outcome<()> {
        self.bed.await_priority(&self.urgent, OWN)?;
        self.bed.await_priority(&self.low, OWN)
    }
}

/// The policy puts the queues first and takes that back, with and without a share, while the urgent program works.
pub fn comes_and_goes(mechanism: &'static str, longest: Duration) -> Outcome<String> {
    let mut pair = start(mechanism, longest)?;
    for policy in [NO_SHARE, SHARE] {
        pair.bed.set_policy(policy)?;
        pair.await_equal()?;
        pair.bed.set_policy(FIRST)?;
        pair.await_first()?;
    }
    pair.urgent.await_round(now())?;
    pair.bed.set_policy(&["HPF", "--queues-first", "1"])?;
    pair.await_first()?;
    pair.urgent.await_round(now())?;
    pair.bed.set_policy(SHARE)?;
    pair.await_held(0)?;
    pair.await_equal()?;
    let told = pair.release()?;
    pair.end(told, &[])
}

/// Streams with queues of their own are made and destroyed in both programs.
pub fn makes(mechanism: &'static str, longest: Duration) -> Outcome<String> {
    let mut pair = start(mechanism, longest)?;
    for _ in 0..3 {
        for program in [&mut pair.urgent, &mut pair.low] {
            program.tell("make");
            program.await_line("made")?;
        }
        pair.await_first()?;
        for program in [&mut pair.urgent, &mut pair.low] {
            program.tell("destroy");
            program.await_line("destroyed")?;
        }
    }
    pair.await_first()?;
    let told = pair.release()?;
    pair.end(told, &[])
}

/// Children of the urgent program come and go.
pub fn forks(mechanism: &'static str, longest: Duration) -> Outcome<String> {
    let mut pair = start(mechanism, longest)?;
    pair.urgent.tell("fork");
    pair.urgent.await_line("forked")?;
    pair.await_first()?;
    let told = pair.release()?;
    pair.end(told, &[])
}

/// The server is killed: all queues get their own priority back. Another one puts them first again.
pub fn server_killed(mechanism: &'static str, longest: Duration) -> Outcome<String> {
    let mut pair = start(mechanism, longest)?;
    pair.bed.kill_server();
    pair.await_equal()?;
    pair.start_server()?;
    pair.bed.set_policy(FIRST)?;
    pair.await_first()?;
    let told = pair.release()?;
    pair.end(told, &[LOST])
}

/// One request of three fails, and succeeds when it is made again.
pub fn fails_once(mechanism: &'static str, longest: Duration) -> Outcome<String> {
    let mut pair = start(mechanism, longest)?;
    pair.bed.fail_ioctls("7:3:update_queue")?;
    for _ in 0..5 {
        pair.bed.set_policy(SHARE)?;
        pair.await_equal()?;
        pair.bed.set_policy(FIRST)?;
        pair.await_first()?;
    }
    pair.bed.fail_ioctls("")?;
    let told = pair.release()?;
    let said = pair.low.complaints();
    let repeated: &[&str] = if said.iter().any(|line| line.contains(REPEATED)) { &[REPEATED] } else { &[] };
    pair.end_with(told, repeated, &[])
}

/// Requests fail for longer than they are tried: the queues keep their own priority, and the program works on.
pub fn fails(mechanism: &'static str, longest: Duration) -> Outcome<String> {
    let mut pair = begin(mechanism, longest, true)?;
    pair.hold()?;
    pair.await_equal()?;
    pair.bed.fail_ioctls("1:1:update_queue:30")?;
    pair.bed.set_policy(FIRST)?;
    pair.bed.await_permit(&pair.urgent, true)?;
    let refused: &[&str] = if pair.bed.keeps_priorities() { &[] } else { &[REFUSED] };
    await_some("the library did not give up", || {
        let said = pair.urgent.complaints();
        refused.iter().all(|text| said.iter().any(|line| line.contains(text))).then_some(())
    })?;
    pair.bed.fail_ioctls("")?;
    pair.await_equal()?;
    // It is not tried again.
    for (policy, first) in [(SHARE, false), (FIRST, true)] {
        pair.bed.set_policy(policy)?;
        pair.bed.await_permit(&pair.urgent, first)?;
        pair.urgent.await_round(now())?;
    }
    pair.await_equal()?;
    let told = pair.release()?;
    pair.end_with(told, &[], refused)
}

/// At level 1 nothing is evicted, and the queues go first all the same.
pub fn at_level_1(mechanism: &'static str, longest: Duration) -> Outcome<String> {
    let (bed, low, urgent) = without_hold(mechanism, longest, &[])?;
    bed.await_priority(&urgent, if bed.keeps_priorities() { OWN } else { RAISED })?;
    bed.await_priority(&low, OWN)?;
    bed.set_policy(NO_SHARE)?;
    bed.await_priority(&urgent, OWN)?;
    finish(low, urgent)
}

/// Where the driver saves no waves, a request would wait for running kernels: none is sent.
pub fn without_saved_waves(mechanism: &'static str, longest: Duration) -> Outcome<String> {
    let (bed, low, urgent) = without_hold(mechanism, longest, &[("--no-cwsr", "")])?;
    bed.await_permit(&urgent, true)?;
    urgent.await_round(now())?;
    urgent.await_round(now())?;
    bed.await_priority(&urgent, OWN)?;
    finish(low, urgent)
}

/// The two programs at work at level 1, on a device with these options.
fn without_hold(
    mechanism: &'static str,
    longest: Duration,
    sim: &[(&str, &str)],
) -> Outcome<(Bed, Program, Program)> {
    let bed = Bed::start(mechanism, longest, sim)?;
    bed.set_policy(FIRST)?;
    let level = [("XSCHED_AUTO_XQUEUE_LEVEL", "1")];
    let mut low = bed.program("low", 1, &level)?;
    let mut urgent = bed.program("urgent", 10, &level)?;
    low.tell("go");
    urgent.tell("go");
    urgent.await_round(0)?;
    Ok((bed, low, urgent))
}

/// Both complete their work and end, with the right memory and without a warning.
fn finish(mut low: Program, mut urgent: Program) -> Outcome<String> {
    for program in [&mut urgent, &mut low] {
        program.tell("rest");
        program.await_line("resting")?;
    }
    let rounds = low.log().rounds();
    low.finish(&[])?;
    urgent.finish(&[])?;
    Ok(format!("{rounds} rounds right"))
}
