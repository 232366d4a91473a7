//! SLO on a simulated plant: it converges to the target, gives best effort the remaining time, and follows changes.

mod common;

use common::plant::{Decider, Fixed, Outcome, Plant};
use common::play::{MS, US};
use common::trace::{Shot, TracedClient, spans, trace};
use policies::{Choice, Engine, registry};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::hint::QueueHints;
use protocol::ids::DeviceId;
use protocol::operation::{Reason, Throttle, Window};
use protocol::policy::PolicyKind;
use protocol::rank_reason::RankValue;
use protocol::status::{Activity, QueueStatus};
use protocol::time::Time;
use std::num::NonZeroU64;
use std::time::Duration;

fn engine(parameters: &[(&str, f64)]) -> Engine {
    let mut choice = Choice::new(registry::find(PolicyKind::Slo).unwrap());
    for (name, value) in parameters {
        choice.values.set(name, *value).unwrap();
    }
    Engine::new(choice, Duration::ZERO)
}

/// Numbers that look random, between 0 and 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: u64) -> u64 {
        (-self.next().ln() * mean as f64) as u64
    }
}

fn plant(requests: Vec<(u64, u64)>) -> Plant {
    // Together both get done a quarter more than one of them alone.
    Plant {
        begin: 0,
        requests,
        critical_beside: 0.65,
        best_beside: 0.6,
        drains: 0,
        hints: QueueHints::default(),
    }
}

fn periodic(period: u64, service: u64, count: u64) -> Vec<(u64, u64)> {
    (1..=count).map(|number| (number * period, service)).collect()
}

fn poisson(seed: u64, period: u64, service: u64, count: u64) -> Vec<(u64, u64)> {
    let mut random = Random(seed);
    let mut now = 0;
    let request = |_| {
        now += random.exponential(period);
        // Half of it fixed.
        (now, service / 2 + random.exponential(service / 2))
    };
    (0..count).map(request).collect()
}

/// The most that best effort can get with a fixed time beside each request.
fn optimum(plant: &Plant, target: u64, from: u64, to: u64) -> f64 {
    let fixed = |share: u64| plant.run(&mut Fixed(target * share / 40));
    let kept = (0..=40).map(fixed).filter(|outcome| outcome.p99(from, to) <= target);
    kept.map(|outcome| outcome.best(from, to)).fold(0.0, f64::max)
}

/// The results, all in the second half of the time.
#[derive(Debug)]
struct Reached {
    /// The percentile as a share of the target.
    p99: f64,
    /// Best effort as a share of the optimum, of that for 80 % of the target, and of what HPF gives it.
    of_optimum: f64,
    of_room: f64,
    of_hpf: f64,
}

fn reached(requests: Vec<(u64, u64)>, target: u64) -> Reached {
    let plant = plant(requests);
    let to = plant.requests.last().unwrap().0;
    let from = to / 2;
    let outcome = plant.run(&mut engine(&[("target-ms", target as f64 / 1e6)]));
    let best = outcome.best(from, to);
    Reached {
        p99: outcome.p99(from, to) as f64 / target as f64,
        of_optimum: best / optimum(&plant, target, from, to),
        of_room: best / optimum(&plant, target * 4 / 5, from, to),
        of_hpf: best / plant.run(&mut Fixed(0)).best(from, to),
    }
}

#[test]
fn target_is_kept_and_best_effort_gets_nearly_the_rest() {
    // Random requests, with targets between a little above what is reached alone and far above it.
    for (number, busy, target) in
        [(1, 20, 30), (2, 20, 22), (3, 20, 60), (4, 50, 180), (5, 50, 240), (6, 5, 12), (7, 35, 60)]
    {
        let reached = reached(poisson(number, 20 * MS, 20 * MS * busy / 100, 12_000), target * MS);
        println!("random, {busy} % busy, {target} ms: {reached:.3?}");
        assert!(reached.p99 <= 1.06 && reached.of_optimum >= 0.97 && reached.of_hpf > 1.0);
    }
    // Periodic ones have all one latency, and it stops where that is 80 % of the target.
    for (busy, target) in [(10, 5), (50, 14), (70, 18), (90, 30)] {
        let reached = reached(periodic(20 * MS, 20 * MS * busy / 100, 6_000), target * MS);
        println!("periodic, {busy} % busy, {target} ms: {reached:.3?}");
        assert!(reached.p99 <= 1.0 && reached.of_room >= 0.9 && reached.of_hpf > 1.0);
    }
}

#[test]
fn share_follows_a_change_of_work() {
    // 6 ms, then 9 ms of work every 20 ms, then 6 again; the target is 11.
    let mut requests = periodic(20 * MS, 6 * MS, 9_000);
    requests[3_000..6_000].iter_mut().for_each(|(_, service)| *service = 9 * MS);
    let plant = plant(requests);
    let outcome: Outcome = plant.run(&mut engine(&[("target-ms", 11.0)]));
    let at = |number: u64| number * 20 * MS;
    let p99 = |from: u64, to: u64| outcome.p99(at(from), at(to)) as f64 / 1e6;
    let best = |from: u64, to: u64| outcome.best(at(from), at(to));
    let late = |from: u64, to: u64| {
        let within = outcome.busy.iter().filter(|(begin, _)| (at(from)..at(to)).contains(begin));
        within.filter(|(_, length)| *length > 11 * MS).count()
    };
    assert!(p99(1_000, 3_000) > 8.7 && p99(1_000, 3_000) <= 11.0);
    assert!(late(3_000, 6_000) <= 30, "{} late", late(3_000, 6_000));
    assert!(p99(3_200, 6_000) <= 11.0);
    assert!((0.56..0.66).contains(&best(4_000, 6_000)), "{}", best(4_000, 6_000));
    assert_eq!(late(6_000, 9_000), 0);
    let (before, after) = (best(1_000, 3_000), best(7_500, 9_000));
    assert!((after - before).abs() < 0.01, "{before} {after}");
}

#[test]
fn unreachable_target_withholds_idle_time_and_is_counted() {
    // Work in flight when a request comes costs it 2 ms: 5 ms with best effort, 3 without.
    let requests = poisson(8, 40 * MS, 3 * MS, 2_000).into_iter().map(|(at, _)| (at, 3 * MS)).collect();
    let mut plant = Plant { drains: 2 * MS, ..plant(requests) };
    let to = plant.requests.last().unwrap().0;
    let mut tight = engine(&[("target-ms", 4.5), ("quiet-ms", 1_000_000.0)]);
    let outcome = plant.run(&mut tight);
    assert!(outcome.best(to / 2, to) < 0.01, "{}", outcome.best(to / 2, to));
    let counted = |engine: &Engine, name: &str| {
        let (_, counters) = engine.counters().next().unwrap();
        counters.into_iter().find(|(known, _)| *known == name).unwrap().1
    };
    // Requests that overlap miss even that target.
    assert!(counted(&tight, "unreachable") > 0);
    assert_eq!(counted(&tight, "share-percent"), 0);
    let mut least = engine(&[("target-ms", 4.5), ("quiet-ms", 1_000_000.0), ("least-percent", 40.0)]);
    let best = plant.run(&mut least).best(to / 2, to);
    assert!((0.3..0.45).contains(&best), "{best}");
    // It comes back when the target can be kept, and at once when no entity has a target any more.
    plant.requests = periodic(40 * MS, 3 * MS, 1_000);
    plant.drains = 0;
    let begin = to + 1_000 * MS;
    plant.begin = begin;
    plant.requests.iter_mut().for_each(|(at, _)| *at += begin);
    let outcome = plant.run(&mut tight);
    let best = outcome.best(begin + 30_000 * MS, begin + 40_000 * MS);
    assert!(best > 0.88, "{best}");
}

#[test]
fn best_effort_without_critical_work_runs_freely() {
    let mut requests = periodic(20 * MS, 5 * MS, 100);
    requests.extend(periodic(20 * MS, 5 * MS, 5).into_iter().map(|(at, service)| (at + 9_000 * MS, service)));
    let plant = plant(requests);
    let outcome = plant.run(&mut engine(&[("target-ms", 1.0)]));
    assert!(outcome.best(1_500 * MS, 2_005 * MS) < 0.01);
    assert_eq!(outcome.best(3_005 * MS + US, 9_000 * MS), 1.0);
}

/// Asks more often than it has to.
struct Often(Engine);

impl Decider for Often {
    fn best_runs(&mut self, now: u64, critical: Activity, hints: QueueHints) -> (bool, Option<u64>) {
        let (_, wake) = self.0.best_runs(now, critical, hints);
        let again = self.0.best_runs(now, critical, hints);
        assert_eq!(again.1, wake);
        (again.0, Some(wake.map_or(now + 370 * US, |wake| wake.min(now + 370 * US))))
    }
}

#[test]
fn additional_decisions_change_nothing() {
    for target in [3.0, 9.0, 20.0] {
        let plant = Plant { drains: 200 * US, ..plant(poisson(9, 20 * MS, 5 * MS, 1_500)) };
        let parameters = [("target-ms", target), ("window", 50.0)];
        let seldom = plant.run(&mut engine(&parameters));
        let often = plant.run(&mut Often(engine(&parameters)));
        assert_eq!(seldom.latencies, often.latencies, "{target} ms");
        let end = plant.requests.last().unwrap().0;
        assert!((seldom.best(0, end) - often.best(0, end)).abs() < 1e-6, "{target} ms");
    }
}

#[test]
fn hinted_deadline_is_the_target() {
    let mut plant = plant(periodic(20 * MS, 6 * MS, 4_000));
    plant.hints.deadline_us = NonZeroU64::new(9_000);
    let mut hinted = engine(&[("target-ms", 500.0)]);
    let one = plant.run(&mut hinted);
    plant.hints = QueueHints::default();
    let mut set = engine(&[("target-ms", 9.0)]);
    assert_eq!(one, plant.run(&mut set));
    assert_eq!(hinted.counters().next(), set.counters().next());
}

#[test]
fn most_percent_of_100_keeps_them_apart() {
    let plant = plant(periodic(20 * MS, 6 * MS, 3_000));
    let outcome = plant.run(&mut engine(&[("target-ms", 50.0), ("most-percent", 100.0)]));
    assert_eq!(outcome, plant.run(&mut Fixed(0)));
}

/// Busy for so long in each period.
fn steady(priority: i64, period: u64, busy: u64, until: u64) -> TracedClient {
    let begins = (1..).map(|number| number * period).take_while(|begin| *begin < until);
    TracedClient::new(priority, begins.map(|begin| (begin, begin + busy)).collect())
}

/// Best effort, and a critical entity that has left so much room that best effort may run beside it.
fn roomy(until: u64) -> [TracedClient; 2] {
    [TracedClient::saturating(0), steady(5, 10 * MS, 2 * MS, until)]
}

/// The first entity that runs with this target, with steps so large that the wait is short.
fn quick(target: f64) -> Engine {
    engine(&[("target-ms", target), ("window", 20.0), ("step-percent", 1.0)])
}

fn during(spans: &[(u64, u64)], from: u64, to: u64) -> u64 {
    spans.iter().map(|&(begin, end)| end.min(to).saturating_sub(begin.max(from))).sum()
}

#[test]
fn best_effort_runs_beside_the_beginning_of_requests() {
    let entities = roomy(3_000 * MS);
    let shots = trace(&mut quick(20.0), &entities, 3_000 * MS);
    let best = spans(&shots, &entities, 0);
    // 1 % of 20 ms more with each: the 6th has 1 ms, after 11 all 2 ms.
    let after = |number: u64| during(&best, number * 10 * MS, (number + 1) * 10 * MS) - 8 * MS;
    assert_eq!([1, 2, 6, 12].map(after), [0, 200 * US, MS, 2 * MS]);
    assert_eq!(during(&best, 120 * MS, 3_000 * MS), 2_880 * MS);
    // The critical entity never waits.
    assert_eq!(during(&spans(&shots, &entities, 1), 0, 3_000 * MS), 299 * 2 * MS);
}

#[test]
fn highest_best_effort_runs_beside_critical_work_of_one_priority() {
    let mut entities = roomy(3_000 * MS).to_vec();
    entities.push(TracedClient::saturating(-1));
    // Late enough, another one of a higher priority comes within a request of the first.
    entities.push(TracedClient::new(7, vec![(2_990 * MS + MS, 2_990 * MS + 3 * MS)]));
    let shots = trace(&mut quick(20.0), &entities, 3_000 * MS);
    assert_eq!(during(&spans(&shots, &entities, 2), 0, 3_000 * MS), 0);
    let best = spans(&shots, &entities, 0);
    assert_eq!(during(&best, 2_980 * MS, 2_991 * MS), 11 * MS);
    // At 2,991 ms both have work; at 2,993 ms neither has.
    assert_eq!(during(&best, 2_991 * MS, 2_993 * MS), MS, "{:?}", &best[best.len() - 3..]);
    for shot in &shots {
        // The higher of the two is never suspended.
        assert!(shot.runs(3));
    }
}

#[test]
fn devices_have_targets_of_their_own() {
    let on = |device: u32, mut entity: TracedClient| {
        entity.queues[0].device = DeviceId(device);
        entity
    };
    let mut both = TracedClient::saturating(0);
    both.queues.push(common::queue(2, 2, 0, false));
    let entities = [
        TracedClient::saturating(0),
        on(2, TracedClient::saturating(0)),
        both,
        steady(5, 10 * MS, 2 * MS, 3_000 * MS),
        on(2, steady(5, 10 * MS, 6 * MS, 3_000 * MS)),
    ];
    let shots = trace(&mut quick(5.0), &entities, 3_000 * MS);
    let got = [0, 1, 2].map(|entity| during(&spans(&shots, &entities, entity), 2_000 * MS, 3_000 * MS));
    assert_eq!(got[0], 1_000 * MS);
    assert_eq!(got[1..], [0, 0], "on the second device the target is missed");
    let throttle = |shot: &Shot| match shot.operations[1].unwrap().permit.reason {
        Reason::Throttled(Throttle::Latency { p99_us, target_us }) => Some((p99_us, target_us)),
        _ => None,
    };
    assert_eq!(shots.iter().rev().find_map(throttle), Some((6_000, 5_000)));
}

#[test]
fn throttled_entity_has_its_share_of_the_idle_time() {
    // After a miss half of the idle time, after two a quarter: 1 ms of 4.
    let busy = vec![(10 * MS, 20 * MS), (30 * MS, 40 * MS)];
    let entities = [TracedClient::saturating(0), TracedClient::new(5, busy)];
    let shots = trace(&mut quick(5.0), &entities, 2_000 * MS);
    let best = spans(&shots, &entities, 0);
    assert_eq!(during(&best, 0, 10 * MS), 10 * MS);
    assert_eq!(during(&best, 20 * MS, 30 * MS), 6 * MS);
    assert_eq!(best[best.len() - 2..], [(1_036 * MS, 1_037 * MS), (1_040 * MS, 2_000 * MS)]);
    assert_eq!(during(&best, 40 * MS, 1_040 * MS), 250 * MS);
}

#[test]
fn requests_between_decisions_count_separately() {
    let idle = |since: u64| Activity::Idle { since: Some(Time(since * MS)) };
    let ready = |since: u64| Activity::Ready { since: Time(since * MS) };
    let mut engine = engine(&[("target-ms", 10.0)]);
    assert!(engine.needs_idle_events());
    // The time of a decision, and what two queues of a process do then.
    let steps = [
        (1, idle(0), idle(0)),
        (5, ready(4), idle(0)),
        // Done, and at work again: its time is unknown.
        (30, ready(29), ready(29)),
        // 8 ms, the queues one after the other.
        (35, idle(34), ready(29)),
        (37, idle(34), idle(37)),
        // 12 ms, the queues in alternation.
        (51, ready(50), idle(37)),
        (58, ready(50), ready(57)),
        (60, idle(59), ready(57)),
        (63, idle(59), idle(62)),
    ];
    for (now, one, other) in steps {
        let queues = [(1, one), (2, other)]
            .map(|(id, activity)| QueueStatus { activity, ..common::queue(id, 1, 5, false) });
        let status = common::global(vec![
            common::gang(1, queues.into()),
            common::gang(2, vec![common::queue(1, 1, 0, true)]),
        ]);
        engine.decide(&status, Time(now * MS));
    }
    let (_, counters) = engine.counters().next().unwrap();
    assert_eq!(counters[..2], [("requests", 2), ("late", 1)]);
}

#[test]
fn limit_is_cleared_for_critical_work_alone() {
    let shots = trace(&mut quick(20.0), &roomy(3_000 * MS), 3_000 * MS);
    for shot in &shots {
        let limits = [0, 1].map(|entity| shot.operations[entity].unwrap().permit.limit);
        assert_eq!(limits, [true, false]);
    }
    // Beside it grows what best effort has in flight: to a sixteenth of the target.
    let window = |shot: &Shot| shot.operations[0].unwrap().permit.window;
    assert_eq!(window(&shots[0]), Window::OWN);
    assert_eq!(window(shots.last().unwrap()), Window::at_most(Duration::from_millis(20) / 16));
}

proptest! {
    #[test]
    fn critical_work_waits_for_higher_critical_work_only(
        criticals in vec((1i64..4, vec((1..20 * MS, 1..20 * MS), 1..40), 1u32..3), 1..4),
        target in 0.5f64..30.0, window in 1.0f64..30.0, step in 0.1f64..10.0,
    ) {
        let mut entities = vec![TracedClient::saturating(0), TracedClient::saturating(-1)];
        entities[0].queues.push(common::queue(2, 2, 0, false));
        for (priority, gaps, device) in criticals {
            let mut now = 0;
            let busy = gaps.iter().cycle().take(200).map(|(gap, length)| {
                let begin = now + gap;
                now = begin + length;
                (begin, now)
            });
            let mut entity = TracedClient::new(priority, busy.collect());
            entity.queues[0].device = DeviceId(device);
            entities.push(entity);
        }
        let parameters = [("target-ms", target), ("window", window), ("step-percent", step)];
        let play = || trace(&mut engine(&parameters), &entities, 3_000 * MS);
        let shots = play();
        for shot in &shots {
            for (entity, operation) in shot.operations.iter().enumerate().skip(2) {
                match operation.unwrap().permit.reason {
                    Reason::Unrivalled => {}
                    Reason::Outranked { by, .. } => {
                        let rival = by.pid.0 as usize - 1001;
                        let priority = |entity: usize| entities[entity].queues[0].priority;
                        let its = match (by.reason.name.as_str(), by.reason.value) {
                            // An entity that may run beside others is named for one that has no work.
                            ("Beside", RankValue::Number(others)) if !entities[entity].is_busy(shot.from) => {
                                others.try_into().unwrap()
                            }
                            _ => priority(rival),
                        };
                        prop_assert!(entities[rival].is_busy(shot.from) && its > priority(entity));
                    }
                    other => prop_assert!(false, "{}", policies::explain(&other)),
                }
            }
        }
        prop_assert_eq!(shots, play(), "the same input, the same decisions");
    }
}
