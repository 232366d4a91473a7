//! What concerns only a low program that keeps a share of the compute units while an urgent one works: it goes on, its queues
//! never use more, and everything is given back. [`super::two`] has the faults that concern an evicted one as well.

use super::two::{BURST, NO_SHARE, NOT_BACK, Pair, SHARE};
use crate::faults::log::now;
use crate::faults::stage::Outcome;

/// The library's lines about a request that failed, and a mask.
const REPEATED: &str = "the driver failed a request about a queue";
const NO_MASK: &str = "the driver refuses a compute unit mask";

/// Both programs go on, as long as the urgent one works.
pub fn goes_on(mut pair: Pair) -> Outcome<String> {
    let hold = pair.hold()?;
    pair.still_held(&hold)?;
    pair.urgent.await_round(now())?;
    let told = pair.release()?;
    pair.end(told, &[])
}

/// Streams with queues of their own are made, used and destroyed.
pub fn makes(mut pair: Pair) -> Outcome<String> {
    let hold = pair.hold()?;
    for _ in 0..3 {
        pair.low.tell("make");
        pair.low.await_line("made")?;
        pair.await_held(0)?;
        pair.low.tell("destroy");
        pair.low.await_line("destroyed")?;
    }
    pair.still_held(&hold)?;
    let told = pair.release()?;
    pair.end(told, &[])
}

/// More is launched than the ring holds.
pub fn fills(mut pair: Pair) -> Outcome<String> {
    let hold = pair.hold()?;
    pair.low.tell(&format!("burst {BURST} 1"));
    pair.low.await_line(&format!("burst {BURST} submitted"))?;
    pair.low.await_line(&format!("burst {BURST} right"))?;
    pair.still_held(&hold)?;
    let told = pair.release()?;
    pair.end(told, &[])
}

/// The policy leaves a share, none, and a share again, while the urgent program works.
pub fn comes_and_goes(mut pair: Pair) -> Outcome<String> {
    let mut hold = pair.hold()?;
    for _ in 0..3 {
        pair.bed.set_policy(NO_SHARE)?;
        pair.bed.await_held(&pair.low, hold.holds)?;
        pair.bed.set_policy(SHARE)?;
        hold = pair.await_held(0)?;
        pair.still_held(&hold)?;
    }
    let told = pair.release()?;
    pair.end(told, &[])
}

/// The limited program has nothing to do when the policy leaves no share any more, and gets everything back all the same.
pub fn idles(mut pair: Pair) -> Outcome<String> {
    pair.hold()?;
    pair.low.tell("rest");
    pair.low.await_line("resting")?;
    pair.bed.set_policy(NO_SHARE)?;
    pair.urgent.await_round(now())?;
    pair.low.tell("go");
    let told = pair.release()?;
    pair.end(told, &[])
}

/// One request of three fails, and succeeds when it is made again.
pub fn fails_once(mut pair: Pair) -> Outcome<String> {
    pair.bed.fail_ioctls("7:3:set_cu_mask")?;
    let hold = pair.hold()?;
    for _ in 0..5 {
        pair.still_held(&hold)?;
        pair.release()?;
        pair.urgent.tell("go");
        pair.await_held(0)?;
    }
    pair.bed.fail_ioctls("")?;
    let told = pair.release()?;
    pair.end_with(told, &[REPEATED], &[])
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
    let is_said = |text: &&str| said.iter().any(|line| line.contains(*text));
    let expected: Vec<&str> = [NO_MASK].into_iter().chain([NOT_BACK].into_iter().filter(is_said)).collect();
    pair.end_with(told, &expected, &[])
}
