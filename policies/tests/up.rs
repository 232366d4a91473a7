//! UP: slices by hand and random shares, for queues and for processes.

mod common;

use common::play::{Actor, MS, Setup, US, Work, play};
use common::shares::{
    actor, every, late, longest_wait, percents, ran, saturating, set_utilization, ten_seconds, weights,
};
use common::{engine, gang, global, queue};
use policies::reason::{SLICE, WAITS};
use proptest::prelude::*;
use protocol::bounds::Timeslice;
use protocol::operation::{Reason, Window};
use protocol::policy::PolicyKind;
use protocol::time::Time;
use std::time::Duration;

const UP: PolicyKind = PolicyKind::Up;

fn ms(spans: &[(u64, u64)]) -> Vec<(f64, f64)> {
    let ms = |at: u64| at as f64 / MS as f64;
    spans.iter().map(|&(from, to)| (ms(from), ms(to))).collect()
}

#[test]
fn round_takes_a_timeslice_and_each_has_its_share() {
    for local in [false, true] {
        let play = play(
            &mut engine(UP, &[("timeslice-us", 10_000.0)]),
            &saturating(&[50, 30, 20]),
            Setup { local, ..Setup::until(20 * MS) },
        );
        assert_eq!(ms(&play.spans[0]), [(0.0, 5.0), (10.0, 15.0)]);
        assert_eq!(ms(&play.spans[1]), [(5.0, 8.0), (15.0, 18.0)]);
        assert_eq!(ms(&play.spans[2]), [(8.0, 10.0), (18.0, 20.0)]);
    }
}

#[test]
fn shortest_timeslice_of_those_with_work_counts() {
    let mut actors = saturating(&[50, 50]);
    actors.push(actor(50, every(10 * MS, MS, 1)));
    let ask = |actor: &mut Actor, us: i64| {
        actor.process.timeslice = Some(Timeslice::try_from(us).unwrap());
    };
    ask(&mut actors[0], 20_000);
    ask(&mut actors[1], 8_000);
    ask(&mut actors[2], 3_000);
    let play = play(&mut engine(UP, &[("timeslice-us", 12_000.0)]), &actors, Setup::until(20 * MS));
    // The third one is done after its first slice, and asks for nothing then.
    assert_eq!(ms(&play.spans[2]), [(2.0, 3.0)]);
    assert_eq!(ms(&play.spans[0]), [(0.0, 1.0), (3.0, 7.0), (11.0, 15.0), (19.0, 20.0)]);
    assert_eq!(ms(&play.spans[1]), [(1.0, 2.0), (7.0, 11.0), (15.0, 19.0)]);
}

#[test]
fn longer_slices_have_wider_windows() {
    let windows = |timeslice_us| {
        // The second entity has a queue on another device too. No entity has work there, so nothing changes.
        let elsewhere = queue(2, 2, 0, false);
        let second = gang(2, vec![queue(1, 1, 0, true), elsewhere]);
        let status = global(vec![gang(1, vec![queue(1, 1, 0, true)]), second]);
        let mut engine = engine(UP, &[("timeslice-us", timeslice_us)]);
        let operations = engine.decide(&status, Time(0)).operations;
        operations.iter().map(|operation| operation.permit.window).collect::<Vec<_>>()
    };
    assert_eq!(windows(5_000.0), [Window::OWN; 2]);
    assert_eq!(windows(100_000.0), [Window::at_most(Duration::from_micros(3_100)); 2]);
}

#[test]
fn slices_are_worth_a_switch() {
    let play = play(&mut engine(UP, &[]), &saturating(&[98, 2]), Setup::until(100 * MS));
    assert_eq!(ms(&play.spans[0][..1]), [(0.0, 24.5)]);
    assert_eq!(ms(&play.spans[1][..1]), [(24.5, 25.0)]);
}

#[test]
fn zero_share_runs_only_beside_idle_entities() {
    let mut actors = saturating(&[0, 0]);
    actors.push(actor(7, Work::Jobs(vec![(10 * MS, 20 * MS)])));
    let play = play(&mut engine(UP, &[]), &actors, Setup::until(40 * MS));
    assert_eq!(ms(&play.spans[2]), [(10.0, 30.0)]);
    assert_eq!(percents(&play, 40 * MS), [25.0, 25.0, 50.0]);
}

#[test]
fn slice_passes_on_when_its_owner_is_idle() {
    let actors = [actor(50, every(4 * MS, MS, 10)), actor(50, Work::Always)];
    let play = play(&mut engine(UP, &[]), &actors, Setup::until(20 * MS));
    // Whenever this entity returns, the other one has had more than a slice.
    assert_eq!(ms(&play.spans[0][..3]), [(0.0, 1.0), (4.0, 5.0), (8.0, 9.0)]);
    assert_eq!(play.used.iter().sum::<f64>(), (20 * MS) as f64);
}

#[test]
fn time_alone_and_asleep_does_not_count() {
    let actors = [actor(50, Work::Always), actor(50, Work::From(1_000 * MS))];
    let play = play(&mut engine(UP, &[]), &actors, Setup::until(2_000 * MS));
    let [one, other] = [0, 1].map(|place| ran(&play, place, 1_000 * MS, 2_000 * MS));
    assert!(one.abs_diff(other) <= 5 * MS / 2, "{one} {other}");
    assert_eq!(play.spans[1][0].0, 1_000 * MS, "the other one has had more than a slice already");
}

#[test]
fn process_has_the_highest_utilization_of_its_queues() {
    let mut many = actor(40, Work::Always);
    many.queues = (1..=4).map(|name| queue(name, 1, 0, false)).collect();
    set_utilization(&mut many, 10);
    many.queues[2].hints.utilization = 40.try_into().unwrap();
    let play = play(&mut engine(UP, &[]), &[many, actor(60, Work::Always)], Setup::until(1_000 * MS));
    assert_eq!(percents(&play, 1_000 * MS), [40.0, 60.0]);
}

#[test]
fn entity_on_two_devices_needs_both_and_others_use_the_rest() {
    let on = |devices: &[u32]| {
        let mut actor = actor(50, Work::Always);
        actor.queues = (1..).zip(devices).map(|(name, device)| queue(name, *device, 0, false)).collect();
        set_utilization(&mut actor, 50);
        actor
    };
    let actors = [on(&[1]), on(&[2]), on(&[1, 2])];
    let played = play(&mut engine(UP, &[]), &actors, Setup::until(1_000 * MS));
    assert_eq!(percents(&played, 1_000 * MS), [50.0, 50.0, 50.0]);
    // A third one on the first device: on the second one two thirds are left.
    let actors = [on(&[1]), on(&[1]), on(&[2]), on(&[1, 2])];
    let until = 10_000 * MS;
    let got = percents(&play(&mut engine(UP, &[]), &actors, Setup::until(until)), until);
    assert!((got[3] - 100.0 / 3.0).abs() < 0.1 && (got[2] - 200.0 / 3.0).abs() < 0.1, "{got:?}");
}

#[test]
fn reason_names_the_owner_of_the_slice() {
    let mut engine = engine(UP, &[]);
    let gangs = (1..=3).map(|client| gang(client, vec![queue(1, 1, 0, true)])).collect();
    let reasons: Vec<_> = engine
        .decide(&global(gangs), Time(1_000_000))
        .operations
        .iter()
        .map(|operation| policies::explain(&operation.permit.reason))
        .collect();
    assert_eq!(
        reasons,
        [
            "nothing ranks higher on its devices",
            "queue 1 of pid 1001 has its turn for 1.7 ms more, this one is next",
            "queue 1 of pid 1001 has its turn for 1.7 ms more, and 1 are before this one",
        ]
    );
}

#[test]
fn draining_work_shifts_shares() {
    let mut actors = saturating(&[50, 50]);
    actors[0].drains = 500 * US;
    let until = 10_000 * MS;
    for (timeslice, error) in [(5_000.0, 10.0), (50_000.0, 1.0), (100_000.0, 0.5)] {
        let play = play(&mut engine(UP, &[("timeslice-us", timeslice)]), &actors, Setup::until(until));
        let got = percents(&play, until)[0];
        assert!((got - 50.0 - error).abs() < 0.05, "half a millisecond of {timeslice} us: {got}");
    }
}

#[test]
fn additional_decisions_change_nothing() {
    let gangs: Vec<_> = (1..=3).map(|client| gang(client, vec![queue(1, 1, 0, true)])).collect();
    let status = global(gangs);
    let (mut seldom, mut often) = (engine(UP, &[]), engine(UP, &[]));
    let mut wake = Time(1_000_000);
    for _ in 0..1_000 {
        let at = wake;
        let runs = |operations: &[protocol::operation::Operation]| {
            operations.iter().map(|operation| operation.permit.run).collect::<Vec<_>>()
        };
        let (one, next) = {
            let decision = seldom.decide(&status, at);
            (runs(decision.operations), decision.wake.unwrap())
        };
        assert_eq!(one, runs(often.decide(&status, at).operations));
        for part in [0, 1, 2] {
            let between = Time(at.0 + (next.0 - at.0) * part / 3);
            assert_eq!(one, runs(often.decide(&status, between).operations));
        }
        wake = next;
    }
}

#[test]
fn reason_gives_the_rest_of_the_slice() {
    let mut engine = engine(UP, &[]);
    let status = global((1..=2).map(|client| gang(client, vec![queue(1, 1, 0, true)])).collect());
    assert_eq!(engine.decide(&status, Time(1_000_000)).wake, Some(Time(3_500_000)));
    let Reason::Outranked { by, own } = engine.decide(&status, Time(2_000_000)).operations[1].permit.reason
    else {
        panic!("it waits")
    };
    assert_eq!((by.reason, own), (SLICE.number(1_500), WAITS.number(0)));
}

#[test]
fn entities_behind_a_held_up_slice_alternate() {
    for kind in [UP, PolicyKind::Pup, PolicyKind::Cfs, PolicyKind::Fair, PolicyKind::Mlfq, PolicyKind::Credit]
    {
        let mut engine = engine(PolicyKind::Hpf, &[]);
        let choice = policies::Choice::new(policies::registry::find(kind).unwrap());
        engine.set_device_policy(protocol::ids::DeviceId(1), Some(choice));
        let gangs = |urgent: bool| {
            global(vec![
                gang(1, vec![queue(1, 2, 10, urgent)]),
                gang(2, vec![queue(1, 1, 0, true), queue(2, 2, 0, true)]),
                gang(3, vec![queue(1, 1, 0, true)]),
                gang(4, vec![queue(1, 1, 0, true)]),
            ])
        };
        let mut ran = [0; 4];
        let mut now = Time(MS);
        while now < Time(1_000 * MS) {
            let urgent = now < Time(500 * MS);
            let decision = engine.decide(&gangs(urgent), now);
            let until = decision.wake.map_or(u64::MAX, |wake| wake.0).min(now.0 + MS);
            let runs = decision.operations.iter().map(|operation| operation.permit.run);
            let runs: Vec<_> = runs.collect();
            let again = engine.decide(&gangs(urgent), now).operations.iter();
            assert!(again.map(|operation| operation.permit.run).eq(runs.iter().copied()), "{kind} {now:?}");
            assert!(runs[1] || runs[2] || runs[3], "{kind}");
            if urgent {
                assert!(!runs[1] && runs[2] != runs[3], "{kind} {runs:?}");
            }
            runs.iter().zip(&mut ran).filter(|(runs, _)| **runs).for_each(|(_, ran)| *ran += until - now.0);
            now = Time(until);
        }
        // About half of half a second each for two, and then a third of half a second for each of three.
        for place in [2, 3] {
            assert!(ran[place] > 300 * MS, "{kind} {ran:?}");
        }
        assert!(ran[1] > 140 * MS, "{kind} {ran:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn shares_are_within_a_point_over_ten_seconds(weights in weights(), local in any::<bool>()) {
        let error = ten_seconds(&mut engine(UP, &[]), &weights, local, |_| 0);
        prop_assert!(error < 1.0, "{weights:?}: {error}");
        let error = ten_seconds(&mut engine(UP, &[]), &weights, local, late);
        prop_assert!(error < 1.0, "{weights:?}, decisions late: {error}");
    }

    #[test]
    fn wait_is_at_most_a_round(weights in weights(), timeslice in 1_000u64..20_000) {
        let until = 2_000 * MS;
        let play = play(&mut engine(UP, &[("timeslice-us", timeslice as f64)]), &saturating(&weights), Setup::until(until));
        let (sum, least) = (weights.iter().sum::<u64>(), weights.iter().min().unwrap());
        let round = (timeslice * US).max(500 * US * sum / least);
        for place in 0..weights.len() {
            prop_assert!(longest_wait(&play, place, until) <= round + MS / 10);
        }
    }

    #[test]
    fn coming_and_going_earns_no_extra_share(period in 200u64..20_000, length in 100u64..10_000, share in 1u64..=100) {
        // An actor that always has work keeps at least its share beside one that pauses and returns.
        let until = 10_000 * MS;
        let actors = [actor(50, Work::Always), actor(share, every(period * US, length * US, until / (period * US)))];
        let play = play(&mut engine(UP, &[]), &actors, Setup::until(until));
        let least = 100.0 * 50.0 / (50.0 + share as f64);
        prop_assert!(percents(&play, until)[0] >= least - 1.0, "{:?} of {least}", percents(&play, until));
        prop_assert!((play.used.iter().sum::<f64>() - until as f64).abs() < 1e3, "no time is lost");
    }
}
