//! CREDIT: shares by credit, boosts and caps, by hand and at random.

mod common;

use common::play::{Actor, MS, Setup, US, Work, play};
use common::shares::{
    actor, every, late, longest_wait, percents, ran, saturating, set_utilization, ten_seconds, weights,
};
use common::{engine, gang, global, local, queue};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use protocol::policy::PolicyKind;
use protocol::status::Status;
use protocol::time::Time;

const CREDIT: PolicyKind = PolicyKind::Credit;

#[test]
fn slices_go_round_by_shares() {
    for local in [false, true] {
        let setup = Setup { local, ..Setup::until(24 * MS) };
        let play = play(&mut engine(CREDIT, &[]), &saturating(&[50, 30, 20]), setup);
        assert_eq!(play.spans[0], [(0, 5 * MS), (10 * MS, 15 * MS), (20 * MS, 24 * MS)]);
        assert_eq!(play.spans[1], [(5 * MS, 8 * MS), (15 * MS, 18 * MS)]);
        assert_eq!(play.spans[2], [(8 * MS, 10 * MS), (18 * MS, 20 * MS)]);
    }
}

#[test]
fn waking_entity_with_credit_is_served_at_once_and_without_waits() {
    let light = actor(50, every(20 * MS, MS, 100));
    let actors = [light, actor(25, Work::Always), actor(25, Work::Always)];
    let worst = |boost: f64| {
        let play = play(&mut engine(CREDIT, &[("boost-us", boost)]), &actors, Setup::until(2_000 * MS));
        assert_eq!(play.done[0].len(), 100);
        play.done[0][1..].iter().map(|(from, to)| to - from).max().unwrap()
    };
    assert_eq!(worst(2_000.0), MS);
    assert!(worst(0.0) > MS);
}

#[test]
fn overuse_ends_the_boost_and_costs_no_other_entity_its_share() {
    // It wants 80 percent in pieces of 4 ms, and has 20.
    let actors = [actor(20, every(5 * MS, 4 * MS, 10_000)), actor(80, Work::Always)];
    let until = 10_000 * MS;
    let play = play(&mut engine(CREDIT, &[]), &actors, Setup::until(until));
    assert!((percents(&play, until)[1] - 80.0).abs() < 1.0, "{:?}", percents(&play, until));
    assert!(longest_wait(&play, 1, until) <= 12 * MS + MS, "two periods of a fifth, and what it kept");
}

#[test]
fn many_waking_entities_do_not_starve_a_busy_one() {
    let mut actors: Vec<_> = (0..5).map(|_| actor(10, every(7 * MS, 5 * MS, 2_000))).collect();
    actors.push(actor(10, Work::Always));
    let until = 10_000 * MS;
    let play = play(&mut engine(CREDIT, &[]), &actors, Setup::until(until));
    assert!(percents(&play, until)[5] >= 100.0 / 6.0 - 1.0, "{:?}", percents(&play, until));
    assert!(longest_wait(&play, 5, until) <= 100 * MS, "{}", longest_wait(&play, 5, until));
}

#[test]
fn cap_holds_on_an_idle_device() {
    let until = 3_000 * MS;
    let alone = [actor(30, Work::Always), actor(50, Work::From(u64::MAX))];
    let free = play(&mut engine(CREDIT, &[]), &alone, Setup::until(until));
    assert_eq!(percents(&free, until), [100.0, 0.0]);
    let capped = play(&mut engine(CREDIT, &[("cap", 1.0)]), &alone, Setup::until(until));
    assert!((percents(&capped, until)[0] - 30.0).abs() < 0.1, "{:?}", percents(&capped, until));
    assert_eq!(capped.spans[0][..2], [(0, 9 * MS), (30 * MS, 39 * MS)]);
    // Time that a late decision let it have too much is missing in the next period.
    let setup = Setup { late, ..Setup::until(until) };
    let late = play(&mut engine(CREDIT, &[("cap", 1.0)]), &alone, setup);
    assert!((percents(&late, until)[0] - 30.0).abs() < 0.5, "{:?}", percents(&late, until));
    // An entity with a share of 0 still gets 1 % of an idle device.
    let least = play(&mut engine(CREDIT, &[("cap", 1.0)]), &saturating(&[0]), Setup::until(until));
    assert!((percents(&least, until)[0] - 1.0).abs() < 0.1, "{:?}", percents(&least, until));
    // Two entities together get no more than their caps.
    let both = play(&mut engine(CREDIT, &[("cap", 1.0)]), &saturating(&[30, 40]), Setup::until(until));
    let got = percents(&both, until);
    assert!((got[0] - 30.0).abs() < 0.5 && (got[1] - 40.0).abs() < 0.5, "{got:?}");
}

/// An actor with a cap of its own.
fn capped(percent: u64, cap: u64) -> Actor {
    let mut actor = actor(percent, Work::Always);
    actor.process.cap = Some((cap as i64).try_into().unwrap());
    actor
}

#[test]
fn own_cap_holds_on_an_idle_device() {
    let until = 10_000 * MS;
    for cap in [1, 30, 99, 100] {
        for late in [|_| 0, late] {
            for parameters in [&[][..], &[("cap", 1.0)], &[("period-ms", 1.0)]] {
                let setup = Setup { late, ..Setup::until(until) };
                let got = percents(&play(&mut engine(CREDIT, parameters), &[capped(50, cap)], setup), until);
                assert!((got[0] - cap as f64).abs() < 1.0, "{cap} {parameters:?}: {got:?}");
                assert!(got[0] > 0.0, "the entity runs at all");
            }
        }
    }
}

#[test]
fn cap_limits_and_weights_divide_the_rest() {
    let until = 10_000 * MS;
    let actors = [capped(100, 30), actor(50, Work::Always), actor(25, Work::Always)];
    let got = percents(&play(&mut engine(CREDIT, &[]), &actors, Setup::until(until)), until);
    for (got, want) in got.iter().zip([30.0, 70.0 * 2.0 / 3.0, 70.0 / 3.0]) {
        assert!((got - want).abs() < 1.0, "{got} for {want}");
    }
    // A weight below the cap counts while the others want the device.
    let actors = [capped(10, 30), actor(90, Work::Always)];
    let got = percents(&play(&mut engine(CREDIT, &[]), &actors, Setup::until(until)), until);
    assert!((got[0] - 10.0).abs() < 1.0 && (got[1] - 90.0).abs() < 1.0, "{got:?}");
    // The caps together may be less than the device.
    let actors = [capped(100, 20), capped(1, 40)];
    let got = percents(&play(&mut engine(CREDIT, &[]), &actors, Setup::until(until)), until);
    assert!((got[0] - 20.0).abs() < 1.0 && (got[1] - 40.0).abs() < 1.0, "{got:?}");
}

#[test]
fn own_cap_counts_instead_of_the_weight() {
    let until = 10_000 * MS;
    let actors = [capped(20, 50), actor(20, Work::Always)];
    let got = percents(&play(&mut engine(CREDIT, &[("cap", 1.0)]), &actors, Setup::until(until)), until);
    assert!((got[0] - 50.0).abs() < 1.0 && (got[1] - 20.0).abs() < 1.0, "{got:?}");
}

#[test]
fn local_queues_have_the_cap_each() {
    let mut engine = engine(CREDIT, &[]);
    let mut status = local(vec![queue(1, 1, 0, true), queue(2, 1, 0, true)]);
    let Status::Local { hints, .. } = &mut status else { unreachable!() };
    hints.cap = Some(30.try_into().unwrap());
    let (mut now, mut ran) = (1_000_000, [0; 2]);
    while now < 10_001 * MS {
        let decision = engine.decide(&status, Time(now));
        let runs = [0, 1].map(|place| decision.operations[place].permit.run);
        let next = decision.wake.unwrap().0;
        ran = [0, 1].map(|place| ran[place] + if runs[place] { next - now } else { 0 });
        now = next;
    }
    assert!(ran.iter().all(|ran| ran.abs_diff(3_000 * MS) < 100 * MS), "{ran:?}");
}

#[test]
fn cap_changes_take_effect_while_working() {
    let mut engine = engine(CREDIT, &[]);
    let one = |cap: Option<i64>| {
        let mut one = gang(1, vec![queue(1, 1, 0, true)]);
        one.hints.cap = cap.map(|cap| cap.try_into().unwrap());
        global(vec![one])
    };
    assert!(engine.decide(&one(None), Time(1_000_000)).operations[0].permit.run);
    assert!(!engine.needs_idle_events());
    // It begins with what a period allows, however much it had before.
    let decision = engine.decide(&one(Some(20)), Time(902 * MS));
    assert!(decision.operations[0].permit.run);
    let wake = decision.wake.unwrap();
    assert_eq!(wake, Time(908 * MS), "a fifth of 30 ms");
    assert!(engine.needs_idle_events());
    let decision = engine.decide(&one(Some(20)), wake);
    assert_eq!(
        policies::explain(&decision.operations[0].permit.reason),
        "it has used its share of 20 % for now"
    );
    // A larger one counts from the next period on, none at once.
    assert!(!engine.decide(&one(Some(50)), Time(909 * MS)).operations[0].permit.run);
    assert!(engine.decide(&one(None), Time(910 * MS)).operations[0].permit.run);
    assert!(!engine.needs_idle_events());
}

#[test]
fn reason_names_the_cap() {
    let mut engine = engine(CREDIT, &[("cap", 1.0)]);
    let mut one = gang(1, vec![queue(1, 1, 0, true)]);
    one.hints.utilization = 20.try_into().unwrap();
    let status = global(vec![one]);
    let wake = engine.decide(&status, Time(1_000_000)).wake.unwrap();
    assert_eq!(wake, Time(7_000_000), "a fifth of 30 ms");
    let decision = engine.decide(&status, wake);
    assert_eq!(
        policies::explain(&decision.operations[0].permit.reason),
        "it has used its share of 20 % for now"
    );
    assert_eq!(decision.wake, Some(Time(31_000_000)));
    assert!(engine.decide(&status, Time(31_000_000)).operations[0].permit.run);
}

#[test]
fn time_alone_does_not_count() {
    let actors = [actor(50, Work::Always), actor(50, Work::From(3_000 * MS))];
    let play = play(&mut engine(CREDIT, &[]), &actors, Setup::until(4_000 * MS));
    let [one, other] = [0, 1].map(|place| ran(&play, place, 3_000 * MS, 4_000 * MS));
    assert!(one.abs_diff(other) <= 60 * MS, "{one} {other}");
    assert!(play.spans[0].windows(2).all(|pair| pair[1].0 - pair[0].1 <= 40 * MS));
}

#[test]
fn unused_share_goes_to_the_others_by_their_shares() {
    let actors =
        [actor(25, every(10 * MS, 100 * US, 1_000)), actor(50, Work::Always), actor(25, Work::Always)];
    let until = 10_000 * MS;
    let got = percents(&play(&mut engine(CREDIT, &[]), &actors, Setup::until(until)), until);
    assert!((got[1] - 66.0).abs() < 1.0 && (got[2] - 33.0).abs() < 1.0, "{got:?}");
}

#[test]
fn entity_held_back_elsewhere_gets_its_part_of_the_scarcest_device() {
    let on = |devices: &[u32], percent| {
        let mut actor = actor(percent, Work::Always);
        actor.queues = (1..).zip(devices).map(|(name, device)| queue(name, *device, 0, false)).collect();
        set_utilization(&mut actor, percent);
        actor
    };
    let actors = [on(&[1], 50), on(&[2], 10), on(&[2], 30), on(&[1, 2], 10)];
    let until = 10_000 * MS;
    let got = percents(&play(&mut engine(CREDIT, &[]), &actors, Setup::until(until)), until);
    assert!((got[0] - 500.0 / 6.0).abs() < 1.0 && (got[3] - 100.0 / 6.0).abs() < 1.0, "{got:?}");
    // The rest of the second device, by one to three.
    assert!((got[1] - 500.0 / 24.0).abs() < 1.0 && (got[2] - 1500.0 / 24.0).abs() < 1.0, "{got:?}");
}

#[test]
fn zero_share_runs_only_beside_idle_entities() {
    let mut actors = saturating(&[0, 0]);
    actors.push(actor(1, Work::Jobs(vec![(10 * MS, 20 * MS)])));
    let play = play(&mut engine(CREDIT, &[]), &actors, Setup::until(40 * MS));
    assert_eq!(play.spans[2], [(10 * MS, 30 * MS)]);
    assert_eq!(play.used[0] + play.used[1], (20 * MS) as f64);
}

#[test]
fn draining_work_shifts_shares() {
    let mut actors = saturating(&[50, 50]);
    actors[0].drains = 500 * US;
    let until = 10_000 * MS;
    for (slice, error) in [(5_000.0, 5.0), (15_000.0, 5.0 / 3.0)] {
        let play = play(&mut engine(CREDIT, &[("slice-us", slice)]), &actors, Setup::until(until));
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
    fn wait_is_bounded_by_credit_and_one_slice_of_each(weights in weights()) {
        let until = 3_000 * MS;
        let play = play(&mut engine(CREDIT, &[]), &saturating(&weights), Setup::until(until));
        let sum: u64 = weights.iter().sum();
        for (place, own) in weights.iter().enumerate() {
            // Half a millisecond of credit takes so many periods; a slice may have cost it that much before.
            let periods = 1 + (2 * 500 * US * sum).div_ceil(30 * MS * own);
            let bound = periods * 30 * MS + 5 * MS * weights.len() as u64;
            prop_assert!(longest_wait(&play, place, until) <= bound, "{} > {bound}", longest_wait(&play, place, until));
        }
    }

    #[test]
    fn coming_and_going_earns_no_extra_share(
        period in 200u64..20_000, length in 100u64..10_000, share in 1u64..=100, boost in 0.0f64..10_000.0,
    ) {
        let until = 10_000 * MS;
        let actors = [actor(50, Work::Always), actor(share, every(period * US, length * US, until / (period * US)))];
        let play = play(&mut engine(CREDIT, &[("boost-us", boost)]), &actors, Setup::until(until));
        let least = 100.0 * 50.0 / (50.0 + share as f64);
        prop_assert!(percents(&play, until)[0] >= least - 1.0, "{:?} of {least}", percents(&play, until));
        prop_assert!((play.used.iter().sum::<f64>() - until as f64).abs() < 1e3, "no time is lost");
    }

    #[test]
    fn own_cap_is_never_exceeded(
        made in vec((1u64..=100, option::of(1u64..=100), option::of((1u64..50, 1u64..50))), 1..6), by_weight in any::<bool>(),
    ) {
        let until = 10_000 * MS;
        let made_one = |&(weight, cap, bursts): &(u64, Option<u64>, Option<(u64, u64)>)| {
            let mut one = cap.map_or_else(|| actor(weight, Work::Always), |cap| capped(weight, cap));
            if let Some((period, length)) = bursts {
                one.work = every(period * MS, length * MS, 10_000 / period);
            }
            one
        };
        let actors: Vec<Actor> = made.iter().map(made_one).collect();
        let parameters: &[_] = if by_weight { &[("cap", 1.0)] } else { &[] };
        for late in [|_| 0, late] {
            let setup = Setup { late, ..Setup::until(until) };
            let got = percents(&play(&mut engine(CREDIT, parameters), &actors, setup), until);
            for (got, (weight, cap, _)) in got.iter().zip(&made) {
                let cap = cap.unwrap_or(if by_weight { *weight } else { 100 });
                prop_assert!(*got <= cap as f64 + 1.0, "{got} > {cap}");
            }
        }
    }

    #[test]
    fn cap_is_never_exceeded(weights in weights(), period in 1u64..50, length in 1u64..50) {
        let until = 3_000 * MS;
        let mut actors: Vec<Actor> = saturating(&weights);
        actors[0].work = every(period * MS, length * MS, 3_000 / period);
        let play = play(&mut engine(CREDIT, &[("cap", 1.0)]), &actors, Setup::until(until));
        for (got, weight) in percents(&play, until).iter().zip(&weights) {
            prop_assert!(*got <= *weight as f64 + 1.0, "{got} > {weight}");
        }
    }
}
