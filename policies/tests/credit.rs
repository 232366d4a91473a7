//! CREDIT: parts by credit, boosts and caps, by hand and at random.

mod common;

use common::play::{Actor, MS, Stage, US, Work, play};
use common::shares::{
    actor, every, late, longest_wait, percents, ran, saturating, set_utilization, ten_seconds, weights,
};
use common::{engine, gang, global, queue};
use proptest::prelude::*;
use protocol::policy::PolicyKind;
use protocol::time::Time;

const CREDIT: PolicyKind = PolicyKind::Credit;

#[test]
fn turns_go_round_by_the_shares() {
    for local in [false, true] {
        let stage = Stage { local, ..Stage::until(24 * MS) };
        let play = play(&mut engine(CREDIT, &[]), &saturating(&[50, 30, 20]), stage);
        assert_eq!(play.spans[0], [(0, 5 * MS), (10 * MS, 15 * MS), (20 * MS, 24 * MS)]);
        assert_eq!(play.spans[1], [(5 * MS, 8 * MS), (15 * MS, 18 * MS)]);
        assert_eq!(play.spans[2], [(8 * MS, 10 * MS), (18 * MS, 20 * MS)]);
    }
}

#[test]
fn who_wakes_up_with_credit_is_served_at_once_and_without_waits() {
    let light = actor(50, every(20 * MS, MS, 100));
    let actors = [light, actor(25, Work::Always), actor(25, Work::Always)];
    let worst = |boost: f64| {
        let play = play(&mut engine(CREDIT, &[("boost-us", boost)]), &actors, Stage::until(2_000 * MS));
        assert_eq!(play.done[0].len(), 100);
        play.done[0][1..].iter().map(|(from, to)| to - from).max().unwrap()
    };
    assert_eq!(worst(2_000.0), MS);
    assert!(worst(0.0) > MS);
}

#[test]
fn who_uses_more_than_its_part_is_boosted_no_more_and_takes_nothing_from_the_others() {
    // It wants 80 percent in pieces of 4 ms, and has 20.
    let actors = [actor(20, every(5 * MS, 4 * MS, 10_000)), actor(80, Work::Always)];
    let until = 10_000 * MS;
    let play = play(&mut engine(CREDIT, &[]), &actors, Stage::until(until));
    assert!((percents(&play, until)[1] - 80.0).abs() < 1.0, "{:?}", percents(&play, until));
    assert!(longest_wait(&play, 1, until) <= 12 * MS + MS, "two periods of a fifth, and what it kept");
}

#[test]
fn many_that_wake_up_do_not_starve_one_that_never_sleeps() {
    let mut actors: Vec<_> = (0..5).map(|_| actor(10, every(7 * MS, 5 * MS, 2_000))).collect();
    actors.push(actor(10, Work::Always));
    let until = 10_000 * MS;
    let play = play(&mut engine(CREDIT, &[]), &actors, Stage::until(until));
    assert!(percents(&play, until)[5] >= 100.0 / 6.0 - 1.0, "{:?}", percents(&play, until));
    assert!(longest_wait(&play, 5, until) <= 100 * MS, "{}", longest_wait(&play, 5, until));
}

#[test]
fn a_cap_holds_also_while_nobody_else_wants_the_device() {
    let until = 3_000 * MS;
    let alone = [actor(30, Work::Always), actor(50, Work::From(u64::MAX))];
    let free = play(&mut engine(CREDIT, &[]), &alone, Stage::until(until));
    assert_eq!(percents(&free, until), [100.0, 0.0]);
    let capped = play(&mut engine(CREDIT, &[("cap", 1.0)]), &alone, Stage::until(until));
    assert!((percents(&capped, until)[0] - 30.0).abs() < 0.1, "{:?}", percents(&capped, until));
    assert_eq!(capped.spans[0][..2], [(0, 9 * MS), (30 * MS, 39 * MS)]);
    // What a late decision let it have too much is missing in the next period.
    let stage = Stage { late, ..Stage::until(until) };
    let late = play(&mut engine(CREDIT, &[("cap", 1.0)]), &alone, stage);
    assert!((percents(&late, until)[0] - 30.0).abs() < 0.5, "{:?}", percents(&late, until));
    // Nothing is for ever.
    let least = play(&mut engine(CREDIT, &[("cap", 1.0)]), &saturating(&[0]), Stage::until(until));
    assert!((percents(&least, until)[0] - 1.0).abs() < 0.1, "{:?}", percents(&least, until));
    // Together they have no more than their caps either.
    let both = play(&mut engine(CREDIT, &[("cap", 1.0)]), &saturating(&[30, 40]), Stage::until(until));
    let got = percents(&both, until);
    assert!((got[0] - 30.0).abs() < 0.5 && (got[1] - 40.0).abs() < 0.5, "{got:?}");
}

#[test]
fn a_decision_says_what_cap_is_reached() {
    let mut engine = engine(CREDIT, &[("cap", 1.0)]);
    let mut one = gang(1, vec![queue(1, 1, 0, true)]);
    one.hints.utilization = 20.try_into().unwrap();
    let status = global(vec![one]);
    let wake = engine.decide(&status, Time(1_000_000)).wake.unwrap();
    assert_eq!(wake, Time(7_000_000), "a fifth of 30 ms");
    let decision = engine.decide(&status, wake);
    assert_eq!(decision.operations[0].permit.reason.to_string(), "it has used its share of 20 % for now");
    assert_eq!(decision.wake, Some(Time(31_000_000)));
    assert!(engine.decide(&status, Time(31_000_000)).operations[0].permit.run);
}

#[test]
fn who_had_the_device_alone_does_not_pay_for_it() {
    let actors = [actor(50, Work::Always), actor(50, Work::From(3_000 * MS))];
    let play = play(&mut engine(CREDIT, &[]), &actors, Stage::until(4_000 * MS));
    let [one, other] = [0, 1].map(|place| ran(&play, place, 3_000 * MS, 4_000 * MS));
    assert!(one.abs_diff(other) <= 60 * MS, "{one} {other}");
    assert!(play.spans[0].windows(2).all(|pair| pair[1].0 - pair[0].1 <= 40 * MS));
}

#[test]
fn a_light_one_leaves_its_part_to_the_others_by_their_shares() {
    let actors =
        [actor(25, every(10 * MS, 100 * US, 1_000)), actor(50, Work::Always), actor(25, Work::Always)];
    let until = 10_000 * MS;
    let got = percents(&play(&mut engine(CREDIT, &[]), &actors, Stage::until(until)), until);
    assert!((got[1] - 66.0).abs() < 1.0 && (got[2] - 33.0).abs() < 1.0, "{got:?}");
}

#[test]
fn one_held_back_elsewhere_gets_its_part_of_the_scarcest_device() {
    let on = |devices: &[u32], percent| {
        let mut actor = actor(percent, Work::Always);
        actor.queues = (1..).zip(devices).map(|(name, device)| queue(name, *device, 0, false)).collect();
        set_utilization(&mut actor, percent);
        actor
    };
    let actors = [on(&[1], 50), on(&[2], 10), on(&[2], 30), on(&[1, 2], 10)];
    let until = 10_000 * MS;
    let got = percents(&play(&mut engine(CREDIT, &[]), &actors, Stage::until(until)), until);
    assert!((got[0] - 500.0 / 6.0).abs() < 1.0 && (got[3] - 100.0 / 6.0).abs() < 1.0, "{got:?}");
    // The rest of the second device, by one to three.
    assert!((got[1] - 500.0 / 24.0).abs() < 1.0 && (got[2] - 1500.0 / 24.0).abs() < 1.0, "{got:?}");
}

#[test]
fn without_a_share_one_runs_while_nobody_else_has_work() {
    let mut actors = saturating(&[0, 0]);
    actors.push(actor(1, Work::Jobs(vec![(10 * MS, 20 * MS)])));
    let play = play(&mut engine(CREDIT, &[]), &actors, Stage::until(40 * MS));
    assert_eq!(play.spans[2], [(10 * MS, 30 * MS)]);
    assert_eq!(play.used[0] + play.used[1], (20 * MS) as f64);
}

#[test]
fn what_drains_into_the_next_turn_is_not_seen() {
    let mut actors = saturating(&[50, 50]);
    actors[0].drains = 500 * US;
    let until = 10_000 * MS;
    for (slice, error) in [(5_000.0, 5.0), (15_000.0, 5.0 / 3.0)] {
        let play = play(&mut engine(CREDIT, &[("slice-us", slice)]), &actors, Stage::until(until));
        let got = percents(&play, until)[0];
        assert!((got - 50.0 - error).abs() < 0.3, "half a millisecond of {slice} us and back: {got}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn shares_are_within_a_point_over_ten_seconds(weights in weights(), local in any::<bool>()) {
        for late in [|_| 0, late] {
            let error = ten_seconds(&mut engine(CREDIT, &[]), &weights, local, late);
            prop_assert!(error < 1.0, "{weights:?}: {error}");
        }
    }

    #[test]
    fn nobody_waits_longer_than_until_it_has_credit_and_a_turn_of_each(weights in weights()) {
        let until = 3_000 * MS;
        let play = play(&mut engine(CREDIT, &[]), &saturating(&weights), Stage::until(until));
        let sum: u64 = weights.iter().sum();
        for (place, own) in weights.iter().enumerate() {
            // Half a millisecond of credit takes so many periods; a turn may have cost it that much before.
            let periods = 1 + (2 * 500 * US * sum).div_ceil(30 * MS * own);
            let bound = periods * 30 * MS + 5 * MS * weights.len() as u64;
            prop_assert!(longest_wait(&play, place, until) <= bound, "{} > {bound}", longest_wait(&play, place, until));
        }
    }

    #[test]
    fn who_comes_and_goes_does_not_get_more(
        period in 200u64..20_000, length in 100u64..10_000, share in 1u64..=100, boost in 0.0f64..10_000.0,
    ) {
        let until = 10_000 * MS;
        let actors = [actor(50, Work::Always), actor(share, every(period * US, length * US, until / (period * US)))];
        let play = play(&mut engine(CREDIT, &[("boost-us", boost)]), &actors, Stage::until(until));
        let least = 100.0 * 50.0 / (50.0 + share as f64);
        prop_assert!(percents(&play, until)[0] >= least - 1.0, "{:?} of {least}", percents(&play, until));
        prop_assert!((play.used.iter().sum::<f64>() - until as f64).abs() < 1e3, "no time is lost");
    }

    #[test]
    fn nobody_gets_more_than_its_cap(weights in weights(), period in 1u64..50, length in 1u64..50) {
        let until = 3_000 * MS;
        let mut actors: Vec<Actor> = saturating(&weights);
        actors[0].work = every(period * MS, length * MS, 3_000 / period);
        let play = play(&mut engine(CREDIT, &[("cap", 1.0)]), &actors, Stage::until(until));
        for (got, weight) in percents(&play, until).iter().zip(&weights) {
            prop_assert!(*got <= *weight as f64 + 1.0, "{got} > {weight}");
        }
    }
}
