//! Faults of twenty-one kinds, in a random order, under the same two programs: what happens to the server, and what other
//! clients do. After each, both programs go on. At the end their memory says that no command was lost, repeated or
//! reordered, and their logs say how long they went without a round.

mod bed;
mod guests;
mod server;
mod tally;
mod wire;

use std::time::{Duration, Instant};

use super::log::{Nanos, now};
use super::stage::{Outcome, Stage, Trouble, Worker, await_some};
use super::{GOES_ON, missing};
use crate::Gpu;
use crate::dice::Dice;
use bed::Bed;
use tally::Tally;

/// How long a fault with all that belongs to it may take before the run counts as hung.
const ONE_FAULT: Duration = Duration::from_secs(60);
/// Faults between two lines that say how far the run is.
const REPORT_EVERY: usize = 50;

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guilty {
    /// The server, under which the programs may run unscheduled for a while.
    Server,
    /// Another client. The connections of both programs stay.
    Guest,
}

/// A kind of fault.
struct Kind {
    name: &'static str,
    guilty: Guilty,
    strike: fn(&mut Bed<'_>) -> Outcome<()>,
}

const KINDS: &[Kind] = &[
    Kind { name: "server killed", guilty: Guilty::Server, strike: server::killed },
    Kind { name: "server stopped", guilty: Guilty::Server, strike: server::stopped },
    Kind { name: "server stopped and killed", guilty: Guilty::Server, strike: server::stopped_and_killed },
    Kind { name: "server restarted", guilty: Guilty::Server, strike: server::restarted },
    Kind { name: "server without descriptors", guilty: Guilty::Server, strike: server::without_descriptors },
    Kind { name: "server on a full disk", guilty: Guilty::Server, strike: server::on_a_full_disk },
    Kind { name: "socket removed", guilty: Guilty::Server, strike: server::without_a_socket },
    Kind { name: "second server", guilty: Guilty::Server, strike: server::second },
    Kind { name: "server with another clock", guilty: Guilty::Server, strike: server::with_another_clock },
    Kind { name: "server idle beside load", guilty: Guilty::Server, strike: server::idle_beside_load },
    Kind { name: "bad configuration", guilty: Guilty::Server, strike: server::bad_configuration },
    Kind { name: "client killed", guilty: Guilty::Guest, strike: guests::killed },
    Kind { name: "client stopped", guilty: Guilty::Guest, strike: guests::stopped },
    Kind { name: "client forks often", guilty: Guilty::Guest, strike: guests::forks_often },
    Kind { name: "client's number used again", guilty: Guilty::Guest, strike: guests::number_used_again },
    Kind { name: "client becomes others", guilty: Guilty::Guest, strike: guests::becomes_others },
    Kind { name: "client filters system calls", guilty: Guilty::Guest, strike: guests::filters_calls },
    Kind { name: "client limits itself", guilty: Guilty::Guest, strike: guests::limits_itself },
    Kind { name: "half-open connections", guilty: Guilty::Guest, strike: wire::half_open },
    Kind { name: "wrong versions", guilty: Guilty::Guest, strike: wire::wrong_versions },
    Kind { name: "scribbled page", guilty: Guilty::Guest, strike: wire::scribbled_page },
];

/// What is to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// How often each kind comes.
    pub each: usize,
    /// Decides the order.
    pub seed: u64,
    /// Only kinds with this in their names.
    pub part: String,
    /// The longest time that a program may go without a round.
    pub longest_gap: Duration,
}

/// The result of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    done: usize,
    /// Faults that came while the low program was suspended, as the programs' own logs say.
    suspended: usize,
    /// Faults that this machine cannot have.
    impossible: usize,
    /// The longest time that a program went without a round from a fault on, until both had gone on.
    longest: Duration,
}

/// Carries a plan out. Says one line for each kind at the end, then one for the run as a whole, and `N passed, N failed` as the last
/// line. Returns true if all passed.
pub fn run(plan: &Plan, mut say: impl FnMut(&str)) -> bool {
    let kinds: Vec<&Kind> = KINDS.iter().filter(|kind| kind.name.contains(&plan.part)).collect();
    if let Some(missing) = missing() {
        say(&missing);
    } else if kinds.is_empty() {
        say(&format!("no kind has {:?} in its name", plan.part));
    } else {
        let mut counts = vec![Count::default(); kinds.len()];
        let mut tally = Tally::default();
        let result = carry_out(plan, &kinds, &mut counts, &mut tally, &mut say);
        if let Err(trouble) = &result {
            say(&match trouble {
                Trouble::Wrong(why) => format!("FAILED  {why}"),
                Trouble::Missed => "FAILED  the low program was not suspended".to_owned(),
            });
        }
        let mut failed = 0;
        let mut judge = |passes: bool, what: &str| {
            failed += usize::from(!passes);
            say(&format!("{} {what}", if passes { "ok     " } else { "FAILED " }));
        };
        for (kind, count) in kinds.iter().zip(&counts) {
            let is_done = count.done + count.impossible == plan.each && count.done > 0;
            let Count { done, suspended, impossible, longest } = count;
            let longest = longest.as_millis();
            let note =
                if *impossible > 0 { format!(", {impossible} not possible here") } else { String::new() };
            let what = format!(
                "{}: {done} times, {suspended} while the low program was suspended, longest gap {longest} ms{note}",
                kind.name
            );
            judge(is_done && count.longest < plan.longest_gap, &what);
        }
        judge(result.is_ok() && tally.is_right(plan.longest_gap), &format!("the whole run: {tally}"));
        say(&format!("{} passed, {failed} failed", kinds.len() + 1 - failed));
        return failed == 0;
    }
    say(&format!("0 passed, {} failed", kinds.len().max(1)));
    false
}

fn carry_out(
    plan: &Plan,
    kinds: &[&Kind],
    counts: &mut [Count],
    tally: &mut Tally,
    say: &mut impl FnMut(&str),
) -> Outcome<()> {
    let gpu = Gpu::take();
    let total = plan.each * kinds.len();
    let limit = ONE_FAULT * u32::try_from(total).unwrap_or(u32::MAX).max(1);
    let stage = Stage::start_shared(&gpu, plan.longest_gap, limit)?;
    let mut bed = Bed { stage, gpu: &gpu, dice: Dice::new(plan.seed), open: Vec::new() };
    let order = order(plan.each, kinds.len(), &mut bed.dice);
    let (first, begun) = (now(), Instant::now());
    for (number, kind) in order.into_iter().enumerate() {
        let result = strike(&mut bed, kinds[kind], &mut counts[kind]);
        result.map_err(|trouble| bed.stage.explain(named(trouble, kinds[kind])))?;
        tally.faults += 1;
        if tally.faults.is_multiple_of(REPORT_EVERY) && number + 1 < total {
            say(&format!("{} of {total} faults after {} s", tally.faults, begun.elapsed().as_secs()));
        }
    }
    tally.suspended = counts.iter().map(|count| count.suspended).sum();
    let workers = [bed.stage.low.take(), bed.stage.urgent.take()].into_iter().flatten();
    let ends: Vec<Outcome<()>> = workers.map(|worker| tally.judge(worker, first)).collect();
    ends.into_iter().collect()
}

/// The numbers of the kinds in the order in which they come: each so often, shuffled.
fn order(each: usize, kinds: usize, dice: &mut Dice) -> Vec<usize> {
    let mut order: Vec<usize> = (0..each * kinds).map(|number| number % kinds).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, dice.below(last as u64 + 1) as usize);
    }
    order
}

/// With the name of the kind.
fn named(trouble: Trouble, kind: &Kind) -> Trouble {
    match trouble {
        Trouble::Wrong(why) => Trouble::Wrong(format!("{}: {why}", kind.name)),
        Trouble::Missed => Trouble::Missed,
    }
}

/// One fault, until both programs have gone on behind it.
fn strike(bed: &mut Bed<'_>, kind: &Kind, count: &mut Count) -> Outcome<()> {
    bed.stage.await_suspended()?;
    let before = [bed.stage.low(), bed.stage.urgent()].map(Worker::rounds);
    let connections = connections(&bed.stage)?;
    let at: Nanos = now();
    match (kind.strike)(bed) {
        Ok(()) => count.done += 1,
        Err(Trouble::Missed) => {
            count.impossible += 1;
            return Ok(());
        }
        Err(wrong) => return Err(wrong),
    }
    let stage = &bed.stage;
    count.suspended +=
        usize::from(stage.was_suspended(&stage.urgent().log(), &stage.low().log(), at).is_ok());
    for (worker, before) in [stage.low(), stage.urgent()].into_iter().zip(before) {
        let what = format!("{} did not complete {GOES_ON} rounds after the fault", worker.name);
        await_some(&what, || (worker.rounds() >= before + GOES_ON).then_some(()))?;
        count.longest = count.longest.max(worker.log().longest_stall(at, None).0);
    }
    let after = self::connections(stage)?;
    if kind.guilty == Guilty::Guest && connections != after {
        return Err(Trouble::Wrong(format!("the connections were {connections:?}, and are {after:?}")));
    }
    Ok(())
}

/// The numbers of both programs' connections, once the server has both.
fn connections(stage: &Stage) -> Outcome<[u64; 2]> {
    await_some("the server does not know both programs", || {
        let list = stage.list()?;
        let of = |worker| Stage::find(&list, worker).map(|seen| seen.client);
        Some([of(stage.low())?, of(stage.urgent())?])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn kinds_have_names_of_their_own() {
        let names: BTreeSet<_> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), KINDS.len());
        assert!(KINDS.len() >= 20);
        for guilty in [Guilty::Server, Guilty::Guest] {
            assert!(KINDS.iter().any(|kind| kind.guilty == guilty));
        }
    }

    #[test]
    fn seed_decides_the_order_and_every_kind_comes() {
        let order = |seed| order(3, KINDS.len(), &mut Dice::new(seed));
        let first = order(1);
        assert_eq!(first, order(1));
        assert_ne!(first, order(2));
        for (number, kind) in KINDS.iter().enumerate() {
            assert_eq!(first.iter().filter(|other| **other == number).count(), 3, "{}", kind.name);
        }
    }

    #[test]
    fn plan_without_a_kind_fails() {
        let plan = Plan { each: 1, seed: 1, part: "none".to_owned(), longest_gap: Duration::from_secs(1) };
        let mut lines = Vec::new();
        assert!(!run(&plan, |line| lines.push(line.to_owned())));
        assert_eq!(lines.last().map(String::as_str), Some("0 passed, 1 failed"));
    }
}
