//! EDF: the theorem of the earliest deadline, slack, learnt lengths, and deadlines that have passed.

mod common;

use common::play::{Actor, MS, Setup, Work, play};
use common::{engine, global, queue, reasons};
use policies::Engine;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::policy::PolicyKind;
use std::num::NonZeroU64;

fn edf(slack_ms: f64, late_ms: f64) -> Engine {
    engine(PolicyKind::Edf, &[("slack-ms", slack_ms), ("late-ms", late_ms)])
}

/// An actor with jobs, arrival and length in milliseconds, and a deadline so many milliseconds after each
/// arrival.
fn dated(priority: i64, deadline: u64, jobs: &[(u64, u64)]) -> Actor {
    let jobs = jobs.iter().map(|&(at, length)| (at * MS, length * MS));
    with_deadline(Actor::new(priority, Work::Jobs(jobs.collect())), deadline * 1_000)
}

fn with_deadline(mut actor: Actor, us: u64) -> Actor {
    actor.queues[0].hints.deadline_us = NonZeroU64::new(us);
    actor
}

fn in_ms(pairs: &[(u64, u64)]) -> Vec<(u64, u64)> {
    pairs.iter().map(|&(from, to)| (from / MS, to / MS)).collect()
}

/// Periods in milliseconds; their least common multiple is 400.
const PERIODS: [u64; 8] = [4, 5, 8, 10, 16, 20, 25, 40];
const LENGTH: u64 = 800;

/// A periodic task: priority, phase, period, length; in nanoseconds.
type Task = (i64, u64, u64, u64);

/// Tasks whose utilizations add up to at most this.
fn tasks(utilization: f64) -> impl Strategy<Value = Vec<Task>> {
    let task = (0i64..4, 0u64..40, 0..PERIODS.len(), 1u32..100);
    vec(task, 1..7).prop_map(move |tasks| {
        let weights: u32 = tasks.iter().map(|task| task.3).sum();
        let lengths = tasks.iter().map(|&(priority, phase, period, weight)| {
            let period = PERIODS[period] * MS;
            // Rounded down, so the sum stays below.
            let length = period as f64 * utilization * f64::from(weight) / f64::from(weights);
            (priority, phase * MS, period, (length as u64).max(1_000))
        });
        lengths.collect()
    })
}

fn periodic(tasks: &[Task]) -> Vec<Actor> {
    let actors = tasks.iter().map(|&(priority, phase, period, length)| {
        let arrivals = (0..).map(|number| phase + number * period).take_while(|at| *at < LENGTH * MS);
        let jobs = Work::Jobs(arrivals.map(|at| (at, length)).collect());
        with_deadline(Actor::new(priority, jobs), period / 1_000)
    });
    actors.collect()
}

/// Returns the number of jobs of these tasks that were late, or should be done and are not.
fn missed(tasks: &[Task], done: &[Vec<(u64, u64)>]) -> usize {
    let late = |(&(_, phase, period, _), done): (&Task, &Vec<(u64, u64)>)| {
        let due = (0..).map(|number| phase + number * period).take_while(|at| at + period <= LENGTH * MS);
        let met = |(number, at): (usize, u64)| {
            done.get(number).is_some_and(|&(arrival, end)| arrival == at && end <= at + period)
        };
        due.enumerate().filter(|job| !met(*job)).count()
    };
    tasks.iter().zip(done).map(late).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The theorem of Liu and Layland: preemption free, deadlines equal to periods, utilization at most 1.
    #[test]
    fn feasible_deadlines_are_met(tasks in tasks(1.0), slack in 0.0f64..20.0, late in 0.0f64..20.0, local in any::<bool>()) {
        let actors = periodic(&tasks);
        let play = play(&mut edf(slack, late), &actors, Setup { local, ..Setup::until(LENGTH * MS) });
        prop_assert_eq!(missed(&tasks, &play.done), 0);
    }

    #[test]
    fn feasible_deadlines_are_met_beside_undated_work(
        tasks in tasks(1.0), slack in 0.0f64..20.0, plain in vec(-3i64..=0, 1..4),
    ) {
        let mut actors = periodic(&tasks);
        actors.extend(plain.iter().map(|priority| Actor::new(*priority, Work::Always)));
        let play = play(&mut edf(slack, 5.0), &actors, Setup::until(LENGTH * MS));
        prop_assert_eq!(missed(&tasks, &play.done), 0);
    }

    #[test]
    fn single_task_meets_deadlines_beside_more_urgent_work(
        period in 0..PERIODS.len(), share in 0.05f64..1.0, slack in 0.0f64..20.0,
    ) {
        let period = PERIODS[period] * MS;
        let tasks = [(0, 0, period, (period as f64 * share) as u64)];
        let mut actors = periodic(&tasks);
        actors.push(Actor::new(9, Work::Always));
        let play = play(&mut edf(slack, 5.0), &actors, Setup::until(LENGTH * MS));
        prop_assert_eq!(missed(&tasks, &play.done), 0);
        // The other one has all the rest, and no time is wasted.
        let total: f64 = play.used.iter().sum();
        prop_assert!((total - (LENGTH * MS) as f64).abs() < 1.0);
    }

    #[test]
    fn decisions_come_only_with_events(tasks in tasks(0.9), slack in 0.0f64..20.0) {
        let mut actors = periodic(&tasks);
        actors.push(Actor::new(2, Work::Always));
        let play = play(&mut edf(slack, 5.0), &actors, Setup::until(LENGTH * MS));
        let jobs: usize = play.done.iter().map(Vec::len).sum();
        // Arrival, end, and one or two wake-ups for each, of which each may cause one of every other task.
        prop_assert!(play.decisions <= (jobs + actors.len()) * (4 + actors.len()), "{} for {jobs} of {tasks:?}", play.decisions);
    }
}

#[test]
fn deadlines_on_a_full_device_are_met() {
    // 1/2 + 1/4 + 1/4.
    let tasks = [(0, 0, 8 * MS, 4 * MS), (3, 0, 16 * MS, 4 * MS), (1, 0, 40 * MS, 10 * MS)];
    for slack in [0.0, 5.0, 1_000.0] {
        let play = play(&mut edf(slack, 0.0), &periodic(&tasks), Setup::until(LENGTH * MS));
        assert_eq!(missed(&tasks, &play.done), 0);
        assert_eq!(play.used.iter().sum::<f64>(), (LENGTH * MS) as f64);
    }
}

#[test]
fn priority_counts_until_slack_is_used_up() {
    let dated = dated(0, 30, &[(0, 8), (30, 8), (60, 8), (90, 2), (120, 8), (150, 8)]);
    let play = play(&mut edf(5.0, 5.0), &[dated, Actor::new(1, Work::Always)], Setup::until(180 * MS));
    // Unknown at first. Then 8 ms are expected, and 5 ms kept; after 2 ms were enough, 8 - 6 / 8; after 8 ms, 8.
    let spans: Vec<_> = play.spans[0].iter().map(|&(from, to)| (from / 1_000, to / 1_000)).collect();
    let expected = [
        (0, 8_000),
        (47_000, 55_000),
        (77_000, 85_000),
        (107_000, 109_000),
        (137_750, 145_750),
        (167_000, 175_000),
    ];
    assert_eq!(spans, expected);
    assert!(play.decisions < 40, "{}", play.decisions);
}

#[test]
fn earlier_work_reduces_slack() {
    // Each alone could wait until 20 before its deadline; one after the other they cannot.
    let jobs = &[(0, 15), (100, 15)];
    let actors = [dated(0, 40, jobs), dated(0, 41, jobs), Actor::new(1, Work::Always)];
    let play = play(&mut edf(5.0, 5.0), &actors, Setup::until(200 * MS));
    assert_eq!(in_ms(&play.done[0]), [(0, 15), (100, 121)]);
    assert_eq!(in_ms(&play.done[1]), [(0, 30), (100, 136)]);
    assert_eq!(in_ms(&play.spans[2]), [(30, 106), (136, 200)]);
}

#[test]
fn deadlines_order_dated_entities_whatever_their_priorities() {
    let relaxed = [dated(0, 1_000, &[(0, 5), (100, 5)]), dated(9, 2_000, &[(0, 5), (100, 5)])];
    let actors = [relaxed[0].clone(), relaxed[1].clone(), Actor::new(5, Work::Always)];
    let play = play(&mut edf(5.0, 5.0), &actors, Setup::until(200 * MS));
    // The first lends the priority of the second, which waits behind it.
    assert_eq!(in_ms(&play.spans[0]), [(0, 5), (100, 105)]);
    assert_eq!(in_ms(&play.spans[1]), [(5, 10), (105, 110)]);
}

#[test]
fn undated_entities_rank_as_under_hpf() {
    let actors = [Actor::new(1, Work::Always), Actor::new(1, Work::Always), Actor::new(0, Work::Always)];
    let play = play(&mut edf(5.0, 5.0), &actors, Setup::until(10 * MS));
    assert_eq!(play.used, [5e6, 5e6, 0.0]);
}

#[test]
fn miss_does_not_lead_to_the_next() {
    // The first deadline cannot be met. The other two can, if the policy gives up the first one in time.
    let actors = [dated(0, 10, &[(0, 12)]), dated(0, 14, &[(0, 4)]), dated(0, 20, &[(0, 6)])];
    let ends = |engine: &mut Engine| {
        let play = play(engine, &actors, Setup::until(100 * MS));
        play.done.iter().map(|done| done[0].1 / MS).collect::<Vec<_>>()
    };
    assert_eq!(ends(&mut edf(5.0, 0.0)), [22, 14, 20]);
    assert_eq!(ends(&mut edf(5.0, 1.0)), [22, 15, 21], "it may be late for a moment");
    assert_eq!(ends(&mut edf(5.0, 5.0)), [12, 16, 22]);
    assert_eq!(ends(&mut engine(PolicyKind::Kedf, &[])), [12, 16, 22], "the domino effect");
}

#[test]
fn overload_meets_more_than_under_kedf() {
    // 0.6 + 0.5 + 0.3.
    let tasks = [(0, 0, 10 * MS, 6 * MS), (0, 0, 16 * MS, 8 * MS), (0, 0, 40 * MS, 12 * MS)];
    let actors = periodic(&tasks);
    let late = |engine: &mut Engine| missed(&tasks, &play(engine, &actors, Setup::until(LENGTH * MS)).done);
    let (edf, kedf) = (late(&mut edf(5.0, 0.0)), late(&mut engine(PolicyKind::Kedf, &[])));
    assert!(edf < kedf, "{edf} < {kedf}");
}

#[test]
fn reasons_name_deadlines() {
    let mut first = queue(1, 1, 0, true);
    first.hints.deadline_us = NonZeroU64::new(2_000);
    let mut second = queue(1, 1, 0, true);
    second.hints.deadline_us = NonZeroU64::new(5_000);
    let gangs = [first, second, queue(1, 1, 3, true)];
    let status = global((1..).zip(gangs).map(|(client, queue)| common::gang(client, vec![queue])).collect());
    // All have been ready since nanosecond 100.
    let reasons = reasons(&mut edf(5.0, 5.0), &status, 1_000_100);
    assert_eq!(reasons[1], "queue 1 of pid 1001 has a deadline 1.0 ms < 4.0 ms");
    assert_eq!(reasons[2], "queue 1 of pid 1001 has a deadline in 1.0 ms, this one has priority 3");
}
