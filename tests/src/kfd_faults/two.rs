//! A low program that is held because an urgent one works, and what happens meanwhile: it is evicted, or it goes on within
//! its share of the compute units.

use std::time::Duration;

use rustix::process::Signal;

use super::bed::{Bed, Hold, Program, wrong};
use crate::faults::log::{Nanos, now};
use crate::faults::stage::{Outcome, Trouble, await_some};

/// More launches than any ring has slots (`ROC_AQL_QUEUE_SIZE`: 4,096 or 16,384).
pub(super) const BURST: u64 = 20_000;
/// The low program's rings.
const RING: (&str, &str) = ("ROC_AQL_QUEUE_SIZE", "4096");
/// So many packets, not taken yet, fill one but for what the runtime keeps free.
const FULL: u64 = 4_000;
/// The library keeps so many launches of a queue until it may launch them; then the launching thread waits.
const KEPT: u64 = 4096;
/// So that every request of a release fails thirty times, before one succeeds.
const FAILING: &str = "1:1:update_queue,dbg_trap:30";
/// The library's line about it.
pub(super) const NOT_BACK: &str = "queues were not put back at once";
/// The library's line about a server that is gone.
const LOST: &str = "is lost";

/// The policy that leaves a fixed share, and the one that leaves none, as the arguments of `xcli policy set`.
pub(super) const SHARE: &[&str] = &["HPF", "--share-percent", "25", "--slowdown-percent", "0"];
pub(super) const NO_SHARE: &[&str] = &["HPF"];

/// The two programs of a case.
pub struct Pair {
    pub(super) bed: Bed,
    pub(super) low: Program,
    pub(super) urgent: Program,
    /// True if the low program keeps a share and is not evicted.
    in_share: bool,
}

/// Plays one case, and says what became of it.
pub fn case(
    mechanism: &'static str,
    longest: Duration,
    play: fn(Pair) -> Outcome<String>,
) -> Outcome<String> {
    begin(mechanism, longest, false).and_then(play)
}

/// The same under a policy that leaves the low program a share.
pub fn case_in_share(
    mechanism: &'static str,
    longest: Duration,
    play: fn(Pair) -> Outcome<String>,
) -> Outcome<String> {
    begin(mechanism, longest, true).and_then(play)
}

pub(super) fn begin(mechanism: &'static str, longest: Duration, in_share: bool) -> Outcome<Pair> {
    let bed = Bed::start(mechanism, longest, &[])?;
    if in_share {
        bed.set_policy(SHARE)?;
    }
    // Room for a whole burst: only the ring's own size stops one.
    let room = [RING, ("XSCHED_AUTO_XQUEUE_THRESHOLD", "40000")];
    let low = bed.program("low", 1, &room)?;
    let urgent = bed.program("urgent", 10, &[])?;
    Ok(Pair { bed, low, urgent, in_share })
}

impl Pair {
    /// The low program works and is held.
    pub(super) fn hold(&mut self) -> Outcome<Hold> {
        self.low.tell("go");
        self.low.await_round(0)?;
        self.hold_low()
    }

    /// The urgent program works, so that the low one is held with what it has.
    fn hold_low(&mut self) -> Outcome<Hold> {
        self.urgent.tell("go");
        self.await_held(0)
    }

    /// Waits until the low program is held, in a later hold than the first `holds`.
    pub(super) fn await_held(&self, holds: u64) -> Outcome<Hold> {
        let held = if self.in_share {
            self.bed.await_limited(&self.low)
        } else {
            self.bed.await_held(&self.low, holds)
        };
        held.map_err(|trouble| self.bed.explain(trouble))
    }

    /// Checks that the hold still stands: an evicted program does nothing, and one in its share goes on.
    pub(super) fn still_held(&self, hold: &Hold) -> Outcome<()> {
        if !self.in_share {
            return self.bed.still_held(&self.low, hold);
        }
        self.low.await_round(now())?;
        // The urgent program may pause at a moment.
        self.await_held(0).map(|_| ())
    }

    /// Starts another server in the place of one that was killed, with the same policy.
    pub(super) fn start_server(&mut self) -> Outcome<()> {
        self.bed.start_server()?;
        if self.in_share {
            await_some("xserver did not answer", || self.bed.list())
                .map_err(|trouble| self.bed.explain(trouble))?;
            self.bed.set_policy(SHARE)?;
        }
        Ok(())
    }

    /// The urgent program rests: the low one is released at once and goes on.
    pub(super) fn release(&mut self) -> Outcome<String> {
        self.urgent.tell("rest");
        self.urgent.await_line("resting")?;
        self.released_since(now())
    }

    /// Waits until no queue is held and the low program has completed a round.
    fn released_since(&self, since: Nanos) -> Outcome<String> {
        let held = self.bed.await_none_held(since).map_err(|trouble| self.low.explain(trouble))?;
        let round = Duration::from_nanos(self.low.await_round(since)? - since);
        self.bed.in_time("the low program did nothing", round)?;
        Ok(format!("nothing held after {:.1} ms, a round after {:.1} ms", millis(held), millis(round)))
    }

    /// Both end, with the right memory and these warnings of the library's.
    pub(super) fn end(self, told: String, warnings: &[&str]) -> Outcome<String> {
        self.end_with(told, warnings, warnings)
    }

    /// The same where each has others.
    pub(super) fn end_with(self, told: String, of_low: &[&str], of_urgent: &[&str]) -> Outcome<String> {
        let rounds = self.low.log().rounds();
        let holds = self.low.finish(of_low)?;
        self.urgent.finish(of_urgent)?;
        if holds == 0 {
            return wrong("nothing was held");
        }
        Ok(format!("{holds} holds; {told}; {rounds} rounds right"))
    }
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// The program, as its runtime might, tells the driver to run the queues: they stay off.
pub fn resumes(mut pair: Pair) -> Outcome<String> {
    let hold = pair.hold()?;
    pair.low.tell("resume");
    pair.low.await_line("resumed")?;
    pair.bed.still_held(&pair.low, &hold)?;
    let told = pair.release()?;
    pair.end(told, &[])
}

/// Streams with queues of their own are destroyed while they are held, which nobody waits for, and made.
pub fn destroys(mut pair: Pair) -> Outcome<String> {
    pair.low.tell("make");
    pair.low.await_line("made")?;
    let made = pair.bed.queues(&pair.low).unwrap_or_default().len();
    let hold = pair.hold()?;
    pair.low.tell("destroy");
    pair.low.await_line("destroyed")?;
    let left = pair.bed.queues(&pair.low).unwrap_or_default().len();
    if left + 3 > made {
        return wrong(format!("of {made} queues {left} are left: none was destroyed"));
    }
    // For that it was released, and then held again.
    let again = match pair.bed.await_held(&pair.low, hold.holds) {
        // Behind a narrow window everything in flight has completed meanwhile: it gets work again.
        Err(Trouble::Missed) => {
            pair.release()?;
            pair.hold_low()?
        }
        again => again?,
    };
    pair.low.tell("make");
    await_some("no queue was made while the program was held", || {
        (pair.bed.queues(&pair.low)?.len() > left).then_some(())
    })?;
    pair.bed.still_held(&pair.low, &again)?;
    let told = pair.release()?;
    pair.low.await_line("made")?;
    pair.low.tell("destroy");
    pair.low.await_line("destroyed")?;
    pair.end(told, &[])
}

/// Children come and go; their parent stays held.
pub fn forks(mut pair: Pair) -> Outcome<String> {
    let hold = pair.hold()?;
    pair.low.tell("fork");
    pair.low.await_line("forked")?;
    pair.still_held(&hold)?;
    let told = pair.release()?;
    pair.end(told, &[])
}

/// More is launched than the ring holds, while it is held: the library keeps what it can, and the thread waits.
pub fn fills_while_held(mut pair: Pair) -> Outcome<String> {
    let hold = pair.hold()?;
    pair.low.tell(&format!("burst {BURST} 1"));
    // On a loaded machine the urgent program can pause for long enough that the hold ends first.
    await_some("nothing was kept", || {
        if matches!(pair.bed.still_held(&pair.low, &hold), Err(Trouble::Missed)) {
            return Some(Err(Trouble::Missed));
        }
        pair.bed.preemption(&pair.low).filter(|shown| shown.pending >= KEPT).map(|_| Ok(()))
    })??;
    pair.bed.still_held(&pair.low, &hold)?;
    let told = pair.release()?;
    pair.low.await_line(&format!("burst {BURST} submitted"))?;
    pair.low.await_line(&format!("burst {BURST} right"))?;
    pair.end(told, &[])
}

/// The ring is full, and a thread of the program's inside the runtime waits for room, when it is held.
pub fn held_when_full(mut pair: Pair) -> Outcome<String> {
    pair.low.tell(&format!("burst {BURST} 3000"));
    await_some("the ring did not fill", || {
        pair.bed.queues(&pair.low)?.iter().any(|queue| queue.seen - queue.read >= FULL).then_some(())
    })?;
    let hold = pair.hold_low()?;
    // The kernel in front had ended by then.
    if !hold.backlog(FULL) {
        return Err(Trouble::Missed);
    }
    pair.bed.still_held(&pair.low, &hold)?;
    pair.urgent.tell("rest");
    pair.urgent.await_line("resting")?;
    let held = pair.bed.await_none_held(now())?;
    let told = format!("nothing held after {:.1} ms", millis(held));
    pair.low.await_line(&format!("burst {BURST} submitted"))?;
    pair.low.await_line(&format!("burst {BURST} right"))?;
    pair.end(told, &[])
}

/// The held program returns from `main` with a kernel that was interrupted: it ends, whoever has work.
pub fn exits(mut pair: Pair) -> Outcome<String> {
    pair.low.tell("leave 1000");
    pair.low.await_line("left")?;
    pair.hold_low()?;
    let since = now();
    pair.low.tell("exit");
    pair.low.bury(7)?;
    let took = Duration::from_nanos(now() - since);
    pair.urgent.await_round(now())?;
    pair.bed.await_none_held(since)?;
    pair.urgent.finish(&[])?;
    Ok(format!("it ended after {:.1} ms with a kernel of 1000 ms", millis(took)))
}

/// The held program is gone, with what it had.
pub fn low_killed(mut pair: Pair) -> Outcome<String> {
    pair.hold()?;
    let fault = pair.low.signal(Signal::KILL);
    pair.bed.await_forgotten(&pair.low)?;
    let forgotten = pair.bed.in_time("the driver knew it", Duration::from_nanos(now() - fault))?;
    await_some("the server did not forget it", || pair.bed.preemption(&pair.low).is_none().then_some(()))?;
    pair.low.bury(137)?;
    pair.urgent.await_round(now())?;
    pair.bed.await_none_held(fault)?;
    pair.urgent.finish(&[])?;
    Ok(format!("the driver forgot it after {:.1} ms", millis(forgotten)))
}

/// Whom it is held for is gone.
pub fn urgent_killed(mut pair: Pair) -> Outcome<String> {
    pair.hold()?;
    let fault = pair.urgent.signal(Signal::KILL);
    let told = pair.released_since(fault)?;
    pair.urgent.bury(137)?;
    let holds = pair.low.finish(&[])?;
    if holds == 0 { wrong("nothing was held") } else { Ok(format!("{holds} holds; {told}")) }
}

/// The server is killed: the program has all of the device, and the next server has it held again.
pub fn server_killed(mut pair: Pair) -> Outcome<String> {
    let hold = pair.hold()?;
    let fault = pair.bed.kill_server();
    let told = pair.released_since(fault)?;
    pair.urgent.await_round(fault)?;
    pair.start_server()?;
    again(pair, &hold, told)
}

/// The server is stopped: the lease ends, and the program has all of the device. After that it is held again.
pub fn server_stopped(mut pair: Pair) -> Outcome<String> {
    let hold = pair.hold()?;
    let fault = pair.bed.signal_server(Signal::STOP);
    let told = pair.released_since(fault)?;
    pair.urgent.await_round(fault)?;
    // A program that looks late would find its lease renewed and say nothing.
    pair.low.await_said(LOST)?;
    pair.urgent.await_said(LOST)?;
    pair.bed.signal_server(Signal::CONT);
    again(pair, &hold, told)
}

/// The driver fails what would release it, for a while.
pub fn release_fails(mut pair: Pair) -> Outcome<String> {
    pair.hold()?;
    pair.bed.fail_ioctls(FAILING)?;
    let told = pair.release()?;
    pair.bed.fail_ioctls("")?;
    pair.end_with(told, &[NOT_BACK], &[])
}

/// The same when the server is gone, which nobody comes back for.
pub fn release_fails_without_server(mut pair: Pair) -> Outcome<String> {
    let hold = pair.hold()?;
    pair.bed.fail_ioctls(FAILING)?;
    let fault = pair.bed.kill_server();
    let told = pair.released_since(fault)?;
    pair.bed.fail_ioctls("")?;
    pair.start_server()?;
    pair.await_held(hold.holds)?;
    pair.release()?;
    pair.end_with(told, &[LOST, NOT_BACK], &[LOST])
}

fn again(mut pair: Pair, hold: &Hold, told: String) -> Outcome<String> {
    pair.await_held(hold.holds)?;
    pair.release()?;
    pair.end(told, &[LOST])
}
