//! Many faults of the server, one after the other, under the same two programs.

use std::fmt;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::log::{Nanos, now};
use super::stage::{Outcome, Stage, Trouble, Worker, await_some};
use super::{GOES_ON, missing};
use crate::Gpu;
use crate::dice::Dice;

/// The longest that the server is away or stopped, in milliseconds: three times as long as a lease lasts.
const LONGEST_ABSENCE_MS: u64 = 1_500;
/// How long a fault with all that belongs to it may take before the run counts as hung.
const ONE_FAULT: Duration = Duration::from_secs(60);
/// Faults between two lines that say how far the run is.
const REPORT_EVERY: usize = 20;

/// A fault of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It is killed, and another one comes.
    Kill,
    /// It is stopped, and goes on.
    Stop,
    /// It is stopped and then killed, and another one comes.
    StopAndKill,
}

impl Fault {
    fn random(dice: &mut Dice) -> Self {
        match dice.below(5) {
            0 | 1 => Self::Kill,
            2 | 3 => Self::Stop,
            _ => Self::StopAndKill,
        }
    }
}

/// The result of all faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Faults, all of them.
    pub faults: usize,
    /// Those in which the server was killed.
    pub kills: usize,
    /// Those in which it was stopped (some of these were killed afterwards).
    pub stops: usize,
    /// Those that came while the low program was suspended, as the programs' own logs say.
    pub suspended: usize,
    /// Rounds of both programs.
    pub rounds: usize,
    /// Programs whose digest was right at the end.
    pub right: usize,
    /// The longest time between two rounds of a program since the first fault.
    pub longest: Duration,
}

impl Tally {
    /// Returns true if both digests are right, each gap is shorter than `longest_gap`, and a fault met a suspended program.
    pub fn is_right(&self, longest_gap: Duration) -> bool {
        self.right == 2 && self.longest < longest_gap && self.suspended > 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faults, kills, stops, suspended, rounds, right, longest } = self;
        write!(
            f,
            "{faults} faults ({kills} kills, {stops} stops, {suspended} while the low program was suspended), {rounds} rounds, {right} of 2 \
             digests right, longest gap {} ms",
            longest.as_millis()
        )
    }
}

/// Kills, stops and continues the server so many times, in an order that follows from `seed`, under an urgent and a low program.
/// The last line to `say` has the numbers. Whether both digests are right and every gap is shorter than `longest_gap`.
pub fn run(faults: usize, seed: u64, longest_gap: Duration, mut say: impl FnMut(&str)) -> bool {
    if let Some(missing) = missing() {
        say(&missing);
        return false;
    }
    let mut tally = Tally::default();
    let result = carry_out(faults, seed, longest_gap, &mut tally, &mut say);
    if let Err(trouble) = &result {
        say(&match trouble {
            Trouble::Wrong(why) => format!("FAILED  {why}"),
            Trouble::Missed => "FAILED  the low program was not suspended".to_owned(),
        });
    }
    say(&tally.to_string());
    result.is_ok() && tally.is_right(longest_gap)
}

fn carry_out(
    faults: usize,
    seed: u64,
    longest_gap: Duration,
    tally: &mut Tally,
    say: &mut impl FnMut(&str),
) -> Outcome<()> {
    let gpu = Gpu::take();
    let limit = ONE_FAULT * u32::try_from(faults).unwrap_or(u32::MAX).max(1);
    let mut stage = Stage::start_for(&gpu, longest_gap, limit)?;
    let mut dice = Dice::new(seed);
    let first = now();
    let begun = Instant::now();
    for _ in 0..faults {
        let result = strike(&mut stage, Fault::random(&mut dice), &mut dice, tally);
        result.map_err(|trouble| stage.explain(trouble))?;
        if tally.faults.is_multiple_of(REPORT_EVERY) && tally.faults < faults {
            say(&format!("{} of {faults} faults after {} s", tally.faults, begun.elapsed().as_secs()));
        }
    }
    // Both are let go before either is judged: the numbers of one do not depend on the other's.
    let workers = [stage.low.take(), stage.urgent.take()].into_iter().flatten();
    let ends: Vec<Outcome<()>> = workers.map(|worker| judge(worker, first, tally)).collect();
    ends.into_iter().collect()
}

/// One fault, until both programs have gone on behind it.
fn strike(stage: &mut Stage, fault: Fault, dice: &mut Dice, tally: &mut Tally) -> Outcome<()> {
    stage.await_suspended()?;
    let absence = Duration::from_millis(dice.below(LONGEST_ABSENCE_MS + 1));
    let before = [stage.low(), stage.urgent()].map(Worker::rounds);
    let at = stage.server.signal(if fault == Fault::Kill { Signal::KILL } else { Signal::STOP });
    tally.faults += 1;
    tally.stops += usize::from(fault != Fault::Kill);
    let suspended = stage.was_suspended(&stage.urgent().log(), &stage.low().log(), at).is_ok();
    tally.suspended += usize::from(suspended);
    // The length of the fault itself: nothing is waited for.
    std::thread::sleep(absence);
    if fault == Fault::Stop {
        stage.server.signal(Signal::CONT);
    } else {
        stage.server.signal(Signal::KILL);
        tally.kills += 1;
        await_some("xserver did not end", || stage.server.has_ended().then_some(()))?;
        stage.start_server()?;
    }
    for (worker, before) in [stage.low(), stage.urgent()].into_iter().zip(before) {
        let what = format!("{} did not complete {GOES_ON} rounds after the fault", worker.name);
        await_some(&what, || (worker.rounds() >= before + GOES_ON).then_some(()))?;
    }
    Ok(())
}

/// Lets a program end, and adds what it has done since the first fault.
pub(super) fn judge(worker: Worker, first: Nanos, tally: &mut Tally) -> Outcome<()> {
    tally.rounds += worker.rounds();
    let before = worker.rounds();
    tally.longest = tally.longest.max(worker.log().longest_stall(first, None).0);
    let log = worker.finish()?;
    tally.right += 1;
    tally.rounds += log.rounds().saturating_sub(before);
    tally.longest = tally.longest.max(log.longest_stall(first, None).0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_digest_or_a_long_gap_is_not_right() {
        let second = Duration::from_secs(1);
        let good = Tally {
            faults: 200,
            kills: 90,
            stops: 130,
            suspended: 150,
            rounds: 100_000,
            right: 2,
            longest: Duration::from_millis(501),
        };
        assert!(good.is_right(second));
        assert!(!Tally { right: 1, ..good }.is_right(second));
        assert!(!Tally { longest: second, ..good }.is_right(second));
        assert!(!Tally { suspended: 0, ..good }.is_right(second), "a fault that meets nobody proves nothing");
        assert_eq!(
            good.to_string(),
            "200 faults (90 kills, 130 stops, 150 while the low program was suspended), 100000 rounds, 2 of 2 digests right, \
             longest gap 501 ms"
        );
    }

    #[test]
    fn seed_decides_order_and_every_fault_comes() {
        let order = |seed| {
            let mut dice = Dice::new(seed);
            (0..64).map(|_| Fault::random(&mut dice)).collect::<Vec<_>>()
        };
        let first = order(1);
        assert_eq!(first, order(1));
        assert_ne!(first, order(2));
        for fault in [Fault::Kill, Fault::Stop, Fault::StopAndKill] {
            assert!(first.contains(&fault), "{fault:?}");
        }
    }
}
