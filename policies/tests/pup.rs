//! PUP and SPUP: the unused slices of idle processes, by hand and at random.

mod common;

use common::play::{Actor, MS, Setup, US, Work, play};
use common::shares::{
    actor, error, every, late, longest_wait, percents, ran, saturating, ten_seconds, weights,
};
use common::{engine, gang, global, queue};
use proptest::prelude::*;
use protocol::policy::PolicyKind;
use protocol::time::Time;

const PUP: PolicyKind = PolicyKind::Pup;
const SPUP: PolicyKind = PolicyKind::Spup;

#[test]
fn queues_of_one_process_run_together() {
    for kind in [PUP, SPUP] {
        let setup = Setup { local: true, ..Setup::until(10 * MS) };
        let play = play(&mut engine(kind, &[]), &saturating(&[90, 10]), setup);
        assert_eq!(percents(&play, 10 * MS), [50.0, 50.0]);
    }
    let status = common::local(vec![queue(1, 1, 0, true), queue(2, 1, 5, true)]);
    let mut engine = engine(PUP, &[]);
    let decision = engine.decide(&status, Time(1));
    assert!(decision.operations.iter().all(|operation| !operation.permit.limit), "there is no rival");
    assert_eq!(decision.wake, None);
}

#[test]
fn utilization_of_the_process_counts() {
    let mut actors = saturating(&[75, 25]);
    actors[0].queues[0].hints.utilization = 1.try_into().unwrap();
    for kind in [PUP, SPUP] {
        let play = play(&mut engine(kind, &[]), &actors, Setup::until(1_000 * MS));
        assert_eq!(percents(&play, 1_000 * MS), [75.0, 25.0]);
    }
}

/// Returns the length of the next slice of an actor that pauses for `sleep` after the first millisecond of
/// its first slice of five, beside one that always has work.
fn turn_after(kind: PolicyKind, carry: f64, sleep: u64) -> u64 {
    let parameters = [("timeslice-us", 10_000.0), ("carry-percent", carry)];
    let parameters = &parameters[..if kind == PUP { 2 } else { 1 }];
    let actors = [actor(50, Work::Jobs(vec![(0, MS), (MS + sleep, 1_000 * MS)])), actor(50, Work::Always)];
    let play = play(&mut engine(kind, parameters), &actors, Setup::until(200 * MS));
    assert_eq!(play.spans[0][0], (0, MS));
    let (from, to) = play.spans[0][1];
    to - from
}

#[test]
fn rest_of_a_slice_carries_over_and_decays() {
    // 4 ms are left of 5.
    assert_eq!(turn_after(PUP, 50.0, 2 * MS), 5 * MS + 2 * MS);
    assert_eq!(turn_after(PUP, 50.0, 12 * MS), 5 * MS + MS, "a whole timeslice asleep");
    assert_eq!(turn_after(PUP, 50.0, 150 * MS) / US, 5_000, "a long sleep leaves nothing");
    assert_eq!(turn_after(PUP, 0.0, 2 * MS), 5 * MS);
    assert_eq!(turn_after(PUP, 90.0, 2 * MS), 5 * MS + 3_600 * US);
}

#[test]
fn strict_slice_of_an_idle_process_stays_unused() {
    let parameters = &[("timeslice-us", 10_000.0)];
    let actors = [actor(60, every(20 * MS, MS, 10)), actor(40, Work::Always)];
    let play = play(&mut engine(SPUP, parameters), &actors, Setup::until(40 * MS));
    assert_eq!(play.spans[0], [(0, MS), (20 * MS, 21 * MS)]);
    let turns = [(6, 10), (16, 20), (26, 30), (36, 40)].map(|(from, to)| (from * MS, to * MS));
    assert_eq!(play.spans[1], turns);
}

#[test]
fn process_without_a_queue_on_the_device_has_no_slice() {
    let mut elsewhere = actor(50, Work::Always);
    elsewhere.queues[0] = queue(1, 2, 0, false);
    let nowhere = Actor { queues: Vec::new(), ..actor(50, Work::From(u64::MAX)) };
    let idle = actor(30, Work::From(u64::MAX));
    let actors = [actor(50, Work::Always), elsewhere, nowhere, idle, actor(20, Work::Always)];
    let play = play(&mut engine(SPUP, &[]), &actors, Setup::until(1_000 * MS));
    assert_eq!(percents(&play, 1_000 * MS), [50.0, 100.0, 0.0, 0.0, 20.0]);
}

#[test]
fn reason_names_the_slice_of_another() {
    let mut engine = engine(SPUP, &[]);
    let idle = gang(1, vec![queue(1, 1, 0, false)]);
    let ready = gang(2, vec![queue(1, 1, 0, true)]);
    let status = global(vec![idle, ready]);
    let decision = engine.decide(&status, Time(1_000_000));
    assert!(decision.operations[0].permit.run);
    let why = "another one has its turn, and keeps the device with work or without";
    assert_eq!(policies::explain(&decision.operations[1].permit.reason), why);
    assert_eq!(decision.wake, Some(Time(3_500_000)));
    assert!(engine.decide(&status, Time(3_500_000)).operations[1].permit.run);
    // No process has work for a long time: there is no wake-up, and the next slice is no longer than usual.
    let sleep = global([1, 2].map(|client| gang(client, vec![queue(1, 1, 0, false)])).to_vec());
    assert_eq!(engine.decide(&sleep, Time(4_000_000)).wake, None);
    let wake = engine.decide(&status, Time(900_000_000)).wake.unwrap();
    assert!(wake <= Time(900_000_000).after(std::time::Duration::from_micros(2_500)));
}

#[test]
fn zero_share_runs_alone_under_strict_rules() {
    let actors = [actor(0, Work::Always), actor(10, Work::From(u64::MAX))];
    let beside = play(&mut engine(SPUP, &[]), &actors, Setup::until(100 * MS));
    assert_eq!(beside.used, [0.0, 0.0]);
    let alone = play(&mut engine(SPUP, &[]), &actors[..1], Setup::until(100 * MS));
    assert_eq!(percents(&alone, 100 * MS), [100.0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn shares_are_within_a_point_over_ten_seconds(weights in weights(), strict in any::<bool>()) {
        let kind = if strict { SPUP } else { PUP };
        let error = ten_seconds(&mut engine(kind, &[]), &weights, false, |_| 0);
        prop_assert!(error < 1.0, "{weights:?}: {error}");
        let error = ten_seconds(&mut engine(kind, &[]), &weights, false, late);
        prop_assert!(error < 1.0, "{weights:?}, decisions late: {error}");
    }

    #[test]
    fn pausing_process_gets_no_more_than_its_share(
        period in 200u64..20_000, length in 100u64..10_000, share in 1u64..=100, carry in 0.0f64..=90.0,
    ) {
        let until = 10_000 * MS;
        let actors = [actor(50, Work::Always), actor(share, every(period * US, length * US, until / (period * US)))];
        let play = play(&mut engine(PUP, &[("carry-percent", carry)]), &actors, Setup::until(until));
        let least = 100.0 * 50.0 / (50.0 + share as f64);
        prop_assert!(percents(&play, until)[0] >= least - 1.0, "{:?} of {least}", percents(&play, until));
        prop_assert!((play.used.iter().sum::<f64>() - until as f64).abs() < 1e3, "no time is lost");
    }

    #[test]
    fn strict_share_does_not_depend_on_others(
        weights in weights(), period in 1u64..50, length in 1u64..50,
    ) {
        let until = 10_000 * MS;
        let sum: u64 = weights.iter().sum();
        let mut actors = saturating(&weights);
        let busy = play(&mut engine(SPUP, &[]), &actors, Setup::until(until));
        for actor in &mut actors[1..] {
            actor.work = every(period * MS, length * MS, 10_000 / period);
        }
        let calm = play(&mut engine(SPUP, &[]), &actors, Setup::until(until));
        prop_assert!((busy.used[0] - calm.used[0]).abs() < until as f64 / 100.0);
        let round = (5 * MS).max(500 * US * sum / weights.iter().min().unwrap());
        prop_assert!(longest_wait(&calm, 0, until) <= round + MS / 10);
    }
}

#[test]
fn disconnected_process_leaves_its_share_to_the_others() {
    // Once its first second is over, the third process has nothing to do; without a strict share the others have all.
    let mut actors = saturating(&[50, 25]);
    actors.push(actor(25, Work::Jobs(vec![(0, 250 * MS)])));
    let until = 4_000 * MS;
    let plain = play(&mut engine(PUP, &[]), &actors, Setup::until(until));
    assert!(ran(&plain, 0, 2_000 * MS, until).abs_diff(2_000 * MS * 2 / 3) < 10 * MS);
    let strict = play(&mut engine(SPUP, &[]), &actors, Setup::until(until));
    assert!(ran(&strict, 0, 2_000 * MS, until).abs_diff(1_000 * MS) < 10 * MS);
    assert!(error(&strict, until, &[50.0, 25.0]) > 10.0, "a quarter of the device is unused");
}
