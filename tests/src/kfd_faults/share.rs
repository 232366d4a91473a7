//! A low program that keeps a share of the compute units while an urgent one works, and what happens meanwhile: it goes on,
//! its queues never use more, and everything is given back.

use std::time::Duration;

use rustix::process::Signal;

use super::bed::{Bed, Program, wrong};
use crate::faults::log::{Nanos, now};
use crate::faults::stage::{Outcome, await_some};

/// The policy that leaves a fixed share.
const SHARE: &[&str] = &["HPF", "--share-percent", "25", "--slowdown-percent", "0"];
/// The policy that leaves none.
const NONE: &[&str] = &["HPF"];
/// More launches than the low program's ring has slots.
const BURST: u64 = 20_000;
/// The low program's rings, and the room for a whole burst in the library.
const ROOM: [(&str, &str); 2] = [("ROC_AQL_QUEUE_SIZE", "4096"), ("XSCHED_AUTO_XQUEUE_THRESHOLD", "40000")];
/// The library's lines about a server that is gone, a request that failed, a mask, and a restoration.
const LOST: &str = "is lost";
const REPEATED: &str = "the driver failed a request about a queue";
const NO_MASK: &str = "the driver refuses a compute unit mask";
const NOT_BACK: &str = "queues were not put back at once";

/// The two programs of a case.
pub struct Pair {
    bed: Bed,
    low: Program,
    urgent: Program,
}

/// Plays one case, and says what became of it.
pub fn case(
    mechanism: &'static str,
    longest: Duration,
    play: fn(Pair) -> Outcome<String>,
) -> Outcome<String> {
    let bed = Bed::start(mechanism, longest, &[])?;
    bed.set_policy(SHARE)?;
    let low = bed.program("low", 1, &ROOM)?;
    let urgent = bed.program("urgent", 10, &[])?;
    play(Pair { bed, low, urgent })
}

impl Pair {
    /// The low program works and is limited, because the urgent one works.
    fn limit(&mut self) -> Outcome<()> {
        self.low.tell("go");
        self.low.await_round(0)?;
        self.urgent.tell("go");
        self.urgent.await_round(0)?;
        self.await_limited()
    }

    fn await_limited(&self) -> Outcome<()> {
        self.bed.await_limited(&self.low).map_err(|trouble| self.bed.explain(trouble))
    }

    /// The low program completes rounds within its share.
    fn goes_on(&self) -> Outcome<()> {
        let mut seen = 0;
        for _ in 0..3 {
            self.low.await_round(now())?;
            seen += u64::from(self.bed.is_limited(&self.low));
        }
        // The urgent program pauses now and then, and is late on a loaded machine.
        if seen == 0 { self.await_limited() } else { Ok(()) }
    }

    /// Nothing is limited any more, and the low program goes on.
    fn released_since(&self, since: Nanos) -> Outcome<String> {
        let held = self.bed.await_none_held(since).map_err(|trouble| self.low.explain(trouble))?;
        self.low.await_round(now())?;
        Ok(format!("all units back after {:.1} ms", held.as_secs_f64() * 1e3))
    }

    /// The urgent program rests.
    fn release(&mut self) -> Outcome<String> {
        self.urgent.tell("rest");
        self.urgent.await_line("resting")?;
        self.released_since(now())
    }

    /// Both end, with the right memory and these warnings of the library's, and with some limits.
    fn end(self, told: String, of_low: &[&str], of_urgent: &[&str]) -> Outcome<String> {
        let rounds = self.low.log().rounds();
        let holds = self.low.finish(of_low)?;
        self.urgent.finish(of_urgent)?;
        if holds == 0 {
            return wrong("nothing was limited");
        }
        Ok(format!("{holds} limits; {told}; {rounds} rounds right"))
    }
}

/// Both programs go on, as long as the urgent one works.
pub fn goes_on(mut pair: Pair) -> Outcome<String> {
    pair.limit()?;
    pair.goes_on()?;
    pair.urgent.await_round(now())?;
    let told = pair.release()?;
    pair.end(told, &[], &[])
}

/// Streams with queues of their own are made, used and destroyed.
pub fn makes(mut pair: Pair) -> Outcome<String> {
    pair.limit()?;
    for _ in 0..3 {
        pair.low.tell("make");
        pair.low.await_line("made")?;
        pair.await_limited()?;
        pair.low.tell("destroy");
        pair.low.await_line("destroyed")?;
    }
    pair.goes_on()?;
    let told = pair.release()?;
    pair.end(told, &[], &[])
}

/// Children come and go.
pub fn forks(mut pair: Pair) -> Outcome<String> {
    pair.limit()?;
    pair.low.tell("fork");
    pair.low.await_line("forked")?;
    pair.goes_on()?;
    let told = pair.release()?;
    pair.end(told, &[], &[])
}

/// More is launched than the ring holds.
pub fn fills(mut pair: Pair) -> Outcome<String> {
    pair.limit()?;
    pair.low.tell(&format!("burst {BURST} 1"));
    pair.low.await_line(&format!("burst {BURST} submitted"))?;
    pair.low.await_line(&format!("burst {BURST} right"))?;
    pair.goes_on()?;
    let told = pair.release()?;
    pair.end(told, &[], &[])
}

/// The limited program returns from `main` with a kernel on the hardware.
pub fn exits(mut pair: Pair) -> Outcome<String> {
    pair.low.tell("leave 300");
    pair.low.await_line("left")?;
    pair.urgent.tell("go");
    pair.urgent.await_round(0)?;
    pair.await_limited()?;
    let since = now();
    pair.low.tell("exit");
    pair.low.bury(7)?;
    pair.urgent.await_round(now())?;
    pair.bed.await_none_held(since)?;
    pair.urgent.finish(&[])?;
    Ok("it ended with a kernel of 300 ms".to_owned())
}

/// The limited program is gone.
pub fn low_killed(mut pair: Pair) -> Outcome<String> {
    pair.limit()?;
    let fault = pair.low.signal(Signal::KILL);
    pair.bed.await_forgotten(&pair.low)?;
    pair.low.bury(137)?;
    pair.urgent.await_round(now())?;
    pair.bed.await_none_held(fault)?;
    pair.urgent.finish(&[])?;
    Ok("the driver forgot it".to_owned())
}

/// Whom it makes room for is gone.
pub fn urgent_killed(mut pair: Pair) -> Outcome<String> {
    pair.limit()?;
    let fault = pair.urgent.signal(Signal::KILL);
    let told = pair.released_since(fault)?;
    pair.urgent.bury(137)?;
    let holds = pair.low.finish(&[])?;
    if holds == 0 { wrong("nothing was limited") } else { Ok(format!("{holds} limits; {told}")) }
}

/// The server is killed: the program has all units. The next server limits it again.
pub fn server_killed(mut pair: Pair) -> Outcome<String> {
    pair.limit()?;
    let fault = pair.bed.kill_server();
    let told = pair.released_since(fault)?;
    pair.urgent.await_round(fault)?;
    pair.bed.start_server()?;
    await_some("xserver did not answer", || pair.bed.list()).map_err(|trouble| pair.bed.explain(trouble))?;
    pair.bed.set_policy(SHARE)?;
    pair.await_limited()?;
    pair.release()?;
    pair.end(told, &[LOST], &[LOST])
}

/// The server is stopped: its lease ends, and the program has all units until it goes on.
pub fn server_stopped(mut pair: Pair) -> Outcome<String> {
    pair.limit()?;
    let fault = pair.bed.signal_server(Signal::STOP);
    let told = pair.released_since(fault)?;
    pair.urgent.await_round(fault)?;
    pair.bed.signal_server(Signal::CONT);
    pair.await_limited()?;
    pair.release()?;
    pair.end(told, &[LOST], &[LOST])
}

/// The policy leaves a share, none, and a share again, while the urgent program works.
pub fn comes_and_goes(mut pair: Pair) -> Outcome<String> {
    pair.limit()?;
    for _ in 0..3 {
        pair.bed.set_policy(NONE)?;
        pair.bed.await_held(&pair.low, 0)?;
        pair.bed.set_policy(SHARE)?;
        pair.await_limited()?;
        pair.goes_on()?;
    }
    let told = pair.release()?;
    pair.end(told, &[], &[])
}

/// The limited program has nothing to do when the policy leaves no share any more, and gets everything back all the same.
pub fn idles(mut pair: Pair) -> Outcome<String> {
    pair.limit()?;
    pair.low.tell("rest");
    pair.low.await_line("resting")?;
    pair.bed.set_policy(NONE)?;
    pair.urgent.await_round(now())?;
    pair.low.tell("go");
    let told = pair.release()?;
    pair.end(told, &[], &[])
}

/// One request of three fails, and succeeds when it is made again.
pub fn fails_once(mut pair: Pair) -> Outcome<String> {
    pair.bed.fail_ioctls("7:3:set_cu_mask")?;
    pair.limit()?;
    for _ in 0..5 {
        pair.goes_on()?;
        pair.release()?;
        pair.urgent.tell("go");
        pair.await_limited()?;
    }
    pair.bed.fail_ioctls("")?;
    let told = pair.release()?;
    pair.end(told, &[REPEATED], &[])
}

/// Every mask fails for longer than it is tried: the program is evicted instead, and gets everything back.
pub fn fails(mut pair: Pair) -> Outcome<String> {
    pair.bed.fail_ioctls("1:1:set_cu_mask:30")?;
    pair.low.tell("go");
    pair.low.await_round(0)?;
    pair.urgent.tell("go");
    let hold = pair.bed.await_held(&pair.low, 0).map_err(|trouble| pair.bed.explain(trouble))?;
    pair.bed.still_held(&pair.low, &hold)?;
    let told = pair.release()?;
    pair.bed.fail_ioctls("")?;
    // No mask is tried again.
    pair.urgent.tell("go");
    pair.bed.await_held(&pair.low, hold.holds)?;
    pair.release()?;
    let said = pair.low.complaints();
    let expected: Vec<&str> = [NO_MASK, NOT_BACK]
        .into_iter()
        .filter(|text| *text == NO_MASK || said.iter().any(|line| line.contains(text)))
        .collect();
    pair.end(told, &expected, &[])
}
