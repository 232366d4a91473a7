//! FAIR: shares within a point in every second, waits within the bound, and strict shares.

mod common;

use common::play::{Actor, MS, Play, Setup, US, Work, play};
use common::shares::{
    actor, every, late, longest_wait, percents, ran, saturating, set_utilization, ten_seconds, weights,
};
use common::{engine, gang, global, queue, running};
use proptest::prelude::*;
use protocol::policy::PolicyKind;
use protocol::time::Time;

const FAIR: PolicyKind = PolicyKind::Fair;

/// The largest error in points over any second that begins at a multiple of 50 ms.
fn worst_second(play: &Play, until: u64, weights: &[u64]) -> f64 {
    let sum: u64 = weights.iter().sum();
    let starts = (0..=(until - 1_000 * MS) / (50 * MS)).map(|number| number * 50 * MS);
    starts
        .flat_map(|from| weights.iter().enumerate().map(move |(place, weight)| (from, place, *weight)))
        .map(|(from, place, weight)| {
            let got = ran(play, place, from, from + 1_000 * MS) as f64 / (10 * MS) as f64;
            (got - weight as f64 * 100.0 / sum as f64).abs()
        })
        .fold(0.0, f64::max)
}

#[test]
fn slices_follow_the_shares() {
    for local in [false, true] {
        let setup = Setup { local, ..Setup::until(12 * MS) };
        let play = play(&mut engine(FAIR, &[]), &saturating(&[75, 25, 50]), setup);
        let turns: Vec<_> =
            play.spans.iter().map(|spans| spans.iter().map(|(from, to)| (from / US, to / US))).collect();
        let [one, other, third] = turns.try_into().unwrap();
        assert_eq!(one.collect::<Vec<_>>(), [(0, 2_000), (4_000, 6_000), (8_000, 10_000)]);
        assert_eq!(other.collect::<Vec<_>>(), [(2_000, 2_666), (6_000, 6_666), (10_000, 10_666)]);
        assert_eq!(third.collect::<Vec<_>>(), [(2_666, 4_000), (6_666, 8_000), (10_666, 12_000)]);
    }
}

#[test]
fn share_is_of_the_process_under_xserver_and_of_the_queue_locally() {
    let mut actors = saturating(&[75, 25]);
    actors[0].queues[0].hints.utilization = 25.try_into().unwrap();
    let until = 1_000 * MS;
    let gangs = play(&mut engine(FAIR, &[]), &actors, Setup::until(until));
    assert!((percents(&gangs, until)[0] - 75.0).abs() < 0.3);
    let setup = Setup { local: true, ..Setup::until(until) };
    let queues = play(&mut engine(FAIR, &[]), &actors, setup);
    assert!((percents(&queues, until)[0] - 50.0).abs() < 0.3);
}

#[test]
fn zero_share_runs_only_beside_idle_entities() {
    let mut actors = saturating(&[0, 0]);
    actors.push(actor(1, Work::Jobs(vec![(10 * MS, 20 * MS)])));
    let played = play(&mut engine(FAIR, &[]), &actors, Setup::until(40 * MS));
    assert_eq!(played.spans[2], [(10 * MS, 30 * MS)]);
    let [one, other] = [0, 1].map(|place| ran(&played, place, 0, 40 * MS));
    assert_eq!(one + other, 20 * MS);
    assert!(one.abs_diff(other) <= 2 * MS);
    // With strict shares they get nothing as long as another entity has a share.
    let played = play(&mut engine(FAIR, &[("conserve", 0.0)]), &actors, Setup::until(40 * MS));
    assert_eq!(played.used, [0.0, 0.0, (20 * MS) as f64].map(|used| used.min(played.used[2])));
}

#[test]
fn time_alone_does_not_count() {
    let mut engine = engine(FAIR, &[("conserve", 0.0)]);
    let one = gang(1, vec![queue(1, 1, 0, true)]);
    engine.decide(&global(vec![one.clone()]), Time(MS));
    let other = gang(2, vec![queue(1, 1, 0, false)]);
    let beside = global(vec![one, other]);
    let decision = engine.decide(&beside, Time(61 * MS));
    assert!(decision.operations[0].permit.run, "{decision:?}");
    // From now on it has its share.
    let (mut now, mut ran) = (Time(61 * MS), 0);
    while now < Time(161 * MS) {
        let decision = engine.decide(&beside, now);
        let (runs, until) = (decision.operations[0].permit.run, decision.wake.unwrap());
        ran += if runs { until.0 - now.0 } else { 0 };
        now = until;
    }
    assert!((48 * MS..=54 * MS).contains(&ran), "{ran}");
}

#[test]
fn unused_share_goes_to_the_others_by_their_shares() {
    let actors = [actor(60, Work::From(u64::MAX)), actor(30, Work::Always), actor(10, Work::Always)];
    let until = 2_000 * MS;
    let got = percents(&play(&mut engine(FAIR, &[]), &actors, Setup::until(until)), until);
    assert!((got[1] - 75.0).abs() < 0.5 && (got[2] - 25.0).abs() < 0.5, "{got:?}");
    let got = percents(&play(&mut engine(FAIR, &[("conserve", 0.0)]), &actors, Setup::until(until)), until);
    assert!((got[1] - 30.0).abs() < 1.0 && (got[2] - 10.0).abs() < 1.0, "{got:?}");
}

#[test]
fn throttled_entity_has_a_reason_and_runs_again_in_time() {
    let mut engine = engine(FAIR, &[("conserve", 0.0)]);
    let status = global(vec![gang(1, vec![queue(1, 1, 0, true)]), gang(2, vec![queue(1, 1, 0, false)])]);
    let mut at = Time(1_000_000);
    let mut throttled = None;
    for _ in 0..100 {
        let decision = engine.decide(&status, at);
        let permit = decision.operations[0].permit;
        if !permit.run {
            assert_eq!(policies::explain(&permit.reason), "it has used its share of 50 % for now");
            throttled = Some((at, decision.wake.unwrap()));
            break;
        }
        at = decision.wake.unwrap_or(at.after(std::time::Duration::from_millis(1)));
    }
    let (since, wake) = throttled.expect("the entity has been throttled");
    assert!(wake.since(since).as_micros() <= 4_001 + 1_000, "a turn of 2 ms takes 4 ms: {since:?} {wake:?}");
    assert!(engine.decide(&status, wake).operations[0].permit.run);
}

#[test]
fn entity_held_back_elsewhere_progresses() {
    let on = |devices: &[u32], percent| {
        let mut actor = actor(percent, Work::Always);
        actor.queues = (1..).zip(devices).map(|(name, device)| queue(name, *device, 0, false)).collect();
        set_utilization(&mut actor, percent);
        actor
    };
    // The one on both devices has a sixth of the first; on the second the others have the rest, and both get on.
    let actors = [on(&[1], 50), on(&[2], 10), on(&[2], 30), on(&[1, 2], 10)];
    let until = 10_000 * MS;
    let got = percents(&play(&mut engine(FAIR, &[]), &actors, Setup::until(until)), until);
    assert!((got[0] - 500.0 / 6.0).abs() < 1.0 && (got[3] - 100.0 / 6.0).abs() < 1.0, "{got:?}");
    assert!(got[1] > 15.0 && got[2] > 50.0, "{got:?}");
    assert!((got[1] + got[2] + got[3] - 100.0).abs() < 0.1, "{got:?}");
}

#[test]
fn draining_work_shifts_shares() {
    let mut actors = saturating(&[50, 50]);
    actors[0].drains = 500 * US;
    let until = 10_000 * MS;
    for (slice, error) in [(2_000.0, 12.5), (25_000.0, 1.0)] {
        let play = play(&mut engine(FAIR, &[("slice-us", slice)]), &actors, Setup::until(until));
        let got = percents(&play, until)[0];
        assert!((got - 50.0 - error).abs() < 0.1, "half a millisecond of {slice} us and back: {got}");
    }
    // If both drain for as long, the errors cancel out.
    actors[1].drains = 500 * US;
    let play = play(&mut engine(FAIR, &[]), &actors, Setup::until(until));
    assert!((percents(&play, until)[0] - 50.0).abs() < 0.1);
}

#[test]
fn slice_is_not_cut_short_by_a_later_one() {
    // Three processes: one on device 3, one on 1 and 2, one on 3 and 1; which of these queues are ready.
    let status = |ready: [&[(u32, bool)]; 3]| {
        let queues = |devices: &[(u32, bool)]| {
            let named = (1..).zip(devices);
            named.map(|(name, &(device, ready))| queue(name, device, 0, ready)).collect()
        };
        global((1..).zip(ready).map(|(client, devices)| gang(client, queues(devices))).collect())
    };
    let mut engine = engine(FAIR, &[]);
    let alone = status([&[(3, false)], &[(1, true), (2, false)], &[(3, false), (1, false)]]);
    assert_eq!(running(&mut engine, &alone, MS).0, "1 2");
    // The second one's slice ends; it begins the next one behind the third, which is held back on device 3.
    let all = status([&[(3, true)], &[(1, true), (2, false)], &[(3, true), (1, false)]]);
    assert_eq!(running(&mut engine, &all, 3 * MS - 10 * US).0, "1 2");
    // Both continue on other devices, which they do not share.
    let moved = status([&[(3, false)], &[(1, false), (2, true)], &[(3, false), (1, true)]]);
    for _ in 0..2 {
        assert_eq!(running(&mut engine, &moved, 3 * MS - 10 * US).0, "1 2 3");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn shares_are_within_a_point_over_ten_seconds(
        weights in weights(), local in any::<bool>(), conserve in prop::sample::select(vec![0.0, 1.0]),
    ) {
        for late in [|_| 0, late] {
            let error = ten_seconds(&mut engine(FAIR, &[("conserve", conserve)]), &weights, local, late);
            prop_assert!(error < 1.0, "{weights:?}: {error}");
        }
    }

    #[test]
    fn shares_are_within_a_point_in_every_second(
        weights in weights(), conserve in prop::sample::select(vec![0.0, 1.0]),
    ) {
        let until = 4_000 * MS;
        let setup = Setup { late, ..Setup::until(until) };
        for setup in [setup, Setup::until(until)] {
            let play = play(&mut engine(FAIR, &[("conserve", conserve)]), &saturating(&weights), setup);
            let error = worst_second(&play, until, &weights);
            prop_assert!(error < 1.0, "{weights:?}: {error}");
        }
    }

    #[test]
    fn wait_is_within_the_bound(weights in weights(), slice in 500u64..4_000) {
        let until = 2_000 * MS;
        let play = play(&mut engine(FAIR, &[("slice-us", slice as f64)]), &saturating(&weights), Setup::until(until));
        let heaviest = *weights.iter().max().unwrap();
        let turn = |weight: u64| (slice * weight / heaviest).max(slice.min(500)) as f64;
        for (place, own) in weights.iter().enumerate() {
            let others = || weights.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, weight)| *weight);
            let bound = turn(*own) * others().sum::<u64>() as f64 / *own as f64 + others().map(turn).sum::<f64>();
            prop_assert!(longest_wait(&play, place, until) as f64 <= (bound + 100.0) * 1e3);
        }
    }

    #[test]
    fn coming_and_going_earns_no_extra_share(
        period in 200u64..20_000, length in 100u64..10_000, share in 1u64..=100,
    ) {
        let until = 10_000 * MS;
        let actors = [actor(50, Work::Always), actor(share, every(period * US, length * US, until / (period * US)))];
        let play = play(&mut engine(FAIR, &[]), &actors, Setup::until(until));
        let least = 100.0 * 50.0 / (50.0 + share as f64);
        prop_assert!(percents(&play, until)[0] >= least - 1.0, "{:?} of {least}", percents(&play, until));
        prop_assert!((play.used.iter().sum::<f64>() - until as f64).abs() < 1e3, "no time is lost");
    }

    #[test]
    fn strict_share_does_not_depend_on_others(
        weights in weights(), period in 1u64..50, length in 1u64..50,
    ) {
        let until = 5_000 * MS;
        let sum: u64 = weights.iter().sum();
        let mut actors: Vec<Actor> = saturating(&weights);
        for actor in &mut actors[1..] {
            actor.work = every(period * MS, length * MS, 10_000 / period);
        }
        let play = play(&mut engine(FAIR, &[("conserve", 0.0)]), &actors, Setup::until(until));
        let got = percents(&play, until)[0];
        prop_assert!((got - weights[0] as f64 * 100.0 / sum as f64).abs() < 1.0, "{got} of {weights:?}");
    }
}
