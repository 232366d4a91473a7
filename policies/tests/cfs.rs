//! CFS: slices by hand, shares by weight, and sleeping entities that save up no time.

mod common;

use common::play::{Actor, MS, Setup, US, Work, play};
use common::shares::{error, every, late, longest_wait, percents, ran};
use common::{engine, gang, global, queue};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::policy::PolicyKind;
use protocol::time::Time;

const CFS: PolicyKind = PolicyKind::Cfs;

fn always(priorities: &[i64]) -> Vec<Actor> {
    priorities.iter().map(|priority| Actor::new(*priority, Work::Always)).collect()
}

fn weights(priorities: &[i64]) -> Vec<f64> {
    priorities.iter().map(|priority| 1.2f64.powi((*priority).clamp(-20, 20) as i32)).collect()
}

#[test]
fn equals_alternate() {
    for local in [false, true] {
        let setup = Setup { local, ..Setup::until(12 * MS) };
        let play = play(&mut engine(CFS, &[]), &always(&[0, 0, 0]), setup);
        for (place, spans) in (0u64..).zip(&play.spans) {
            let turns = [place * 2, 6 + place * 2].map(|from| (from * MS, (from + 2) * MS));
            assert_eq!(*spans, turns);
        }
    }
}

#[test]
fn priority_steps_scale_shares_up_to_twenty() {
    let until = 10_000 * MS;
    let two = play(&mut engine(CFS, &[]), &always(&[4, 0]), Setup::until(until));
    let got = percents(&two, until);
    assert!((got[0] - 67.46).abs() < 0.1, "1.2^4 = 2.07: {got:?}");
    let far = play(&mut engine(CFS, &[]), &always(&[255, -255]), Setup::until(until));
    let near = play(&mut engine(CFS, &[]), &always(&[20, -20]), Setup::until(until));
    assert_eq!(far.used, near.used);
    assert!(far.used[1] > 0.0 && longest_wait(&far, 1, until) < 3_000 * MS);
}

#[test]
fn time_alone_and_asleep_does_not_count() {
    let actors =
        [Actor::new(0, Work::Always), Actor::new(0, Work::From(3_000 * MS)), Actor::new(0, Work::Always)];
    for sleeper in [0.0, 1_000.0, 1e6] {
        let mut engine = engine(CFS, &[("sleeper-us", sleeper)]);
        let alone = play(&mut engine, &actors[..2], Setup::until(4_000 * MS));
        let [one, other] = [0, 1].map(|place| ran(&alone, place, 3_000 * MS, 4_000 * MS));
        assert!(one.abs_diff(other) <= 4 * MS, "{one} {other}");
        let both =
            play(&mut common::engine(CFS, &[("sleeper-us", sleeper)]), &actors, Setup::until(4_000 * MS));
        let late = ran(&both, 1, 3_000 * MS, 3_060 * MS);
        assert!(late <= 24 * MS, "a third of 60 ms, and a turn or two: {late}");
    }
}

#[test]
fn sleeper_with_credit_interrupts_and_without_waits_a_slice() {
    let light = Actor::new(0, every(20 * MS, 500 * US, 50));
    let actors = [light, Actor::new(0, Work::Always), Actor::new(0, Work::Always)];
    let worst = |sleeper: f64| {
        let play = play(&mut engine(CFS, &[("sleeper-us", sleeper)]), &actors, Setup::until(1_000 * MS));
        assert_eq!(play.done[0].len(), 50);
        // The first wait does not count, because the entity is new then.
        play.done[0][1..].iter().map(|(from, to)| to - from).max().unwrap()
    };
    assert_eq!(worst(1_000.0), 500 * US);
    let waits = worst(0.0);
    assert!(waits > 1_000 * US && waits <= 4_500 * US, "{waits}");
}

#[test]
fn entity_held_back_elsewhere_progresses_beside_others() {
    let on = |devices: &[u32]| Actor {
        queues: (1..).zip(devices).map(|(name, device)| queue(name, *device, 0, false)).collect(),
        ..Actor::new(0, Work::Always)
    };
    let actors = [on(&[1]), on(&[1]), on(&[2]), on(&[2]), on(&[1, 2])];
    let until = 10_000 * MS;
    let got = percents(&play(&mut engine(CFS, &[]), &actors, Setup::until(until)), until);
    assert!(got.iter().all(|part| (part - 100.0 / 3.0).abs() < 1.0), "{got:?}");
    let actors = [on(&[1]), on(&[1]), on(&[2]), on(&[1, 2])];
    let got = percents(&play(&mut engine(CFS, &[]), &actors, Setup::until(until)), until);
    assert!((got[3] - 100.0 / 3.0).abs() < 1.0 && (got[2] - 200.0 / 3.0).abs() < 1.0, "{got:?}");
}

#[test]
fn reason_names_runtimes() {
    let mut engine = engine(CFS, &[]);
    let status = global((1..=2).map(|client| gang(client, vec![queue(1, 1, 0, true)])).collect());
    assert_eq!(engine.decide(&status, Time(1_000_000)).wake, Some(Time(3_000_000)));
    let decision = engine.decide(&status, Time(3_000_000));
    assert_eq!(
        policies::explain(&decision.operations[0].permit.reason),
        "queue 1 of pid 1002 has its turn for 2.0 ms more, this one has used 2.0 ms of the device by its share"
    );
}

#[test]
fn draining_work_shifts_shares() {
    let mut actors = always(&[0, 0]);
    actors[0].drains = 500 * US;
    let until = 10_000 * MS;
    for (slice, error) in [(2_000.0, 12.5), (10_000.0, 2.5), (25_000.0, 1.0)] {
        let play = play(&mut engine(CFS, &[("slice-us", slice)]), &actors, Setup::until(until));
        let got = percents(&play, until)[0];
        assert!((got - 50.0 - error).abs() < 0.1, "half a millisecond of {slice} us and back: {got}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn shares_are_within_a_point_over_ten_seconds(
        priorities in prop_oneof![vec(-8i64..=8, 2), vec(-8i64..=8, 3), vec(-8i64..=8, 5)], local in any::<bool>(),
    ) {
        let until = 10_000 * MS;
        for late in [|_| 0, late] {
            let setup = Setup { local, late, ..Setup::until(until) };
            let play = play(&mut engine(CFS, &[]), &always(&priorities), setup);
            let error = error(&play, until, &weights(&priorities));
            prop_assert!(error < 1.0, "{priorities:?}: {error}");
        }
    }

    #[test]
    fn wait_is_bounded_by_the_weights_of_the_others(priorities in vec(-10i64..=10, 2..6)) {
        let until = 5_000 * MS;
        let play = play(&mut engine(CFS, &[]), &always(&priorities), Setup::until(until));
        let weights = weights(&priorities);
        let sum: f64 = weights.iter().sum();
        for (place, own) in weights.iter().enumerate() {
            let bound = 2e6 * ((sum - own) / own + priorities.len() as f64);
            prop_assert!(longest_wait(&play, place, until) as f64 <= bound + 1e5);
        }
    }

    #[test]
    fn coming_and_going_earns_no_extra_share(
        period in 200u64..20_000, length in 100u64..10_000, priority in -5i64..=5, sleeper in 0.0f64..4_000.0,
    ) {
        let until = 10_000 * MS;
        let sleeps = Actor::new(priority, every(period * US, length * US, until / (period * US)));
        let play = play(&mut engine(CFS, &[("sleeper-us", sleeper)]), &[Actor::new(0, Work::Always), sleeps], Setup::until(until));
        let least = 100.0 / (1.0 + weights(&[priority])[0]);
        prop_assert!(percents(&play, until)[0] >= least - 1.0, "{:?} of {least}", percents(&play, until));
        prop_assert!((play.used.iter().sum::<f64>() - until as f64).abs() < 1e3, "no time is lost");
    }
}
