//! LCBE on hand-made scenarios: classes, slices, what is not interrupted, and devices cleared ahead of time.

mod common;

use common::play::{Actor, MS, Setup, US, Work, play};
use common::trace::{TracedClient, kept, spans, trace};
use policies::reason::EXPECTED;
use policies::{Choice, Engine, registry};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use protocol::codes::QueueClass;
use protocol::ids::DeviceId;
use protocol::operation::Reason;
use protocol::policy::PolicyKind;
use protocol::status::{Activity, QueueStatus};
use protocol::time::Time;
use std::time::Duration;

/// Returns an engine that learns nothing unless a parameter turns that on.
fn engine(parameters: &[(&str, f64)]) -> Engine {
    let mut choice = Choice::new(registry::find(PolicyKind::Lcbe).unwrap());
    choice.values.set("learn", 0.0).unwrap();
    for (name, value) in parameters {
        choice.values.set(name, *value).unwrap();
    }
    Engine::new(choice, Duration::ZERO)
}

fn counted(engine: &Engine, name: &str) -> u64 {
    let (_, counters) = engine.counters().next().unwrap();
    counters.iter().find(|(known, _)| *known == name).unwrap().1
}

fn count(engine: &Engine) -> [u64; 5] {
    ["reserved", "hit", "missed", "withdrawn", "refused"].map(|name| counted(engine, name))
}

fn ms(spans: &[(u64, u64)]) -> Vec<(u64, u64)> {
    spans.iter().map(|&(from, to)| (from * MS, to * MS)).collect()
}

#[test]
fn higher_classes_come_first() {
    let actors = [
        Actor::new(-3, Work::Always),
        Actor::new(0, Work::Jobs(vec![(0, 4 * MS), (20 * MS, 2 * MS)])),
        Actor::new(7, Work::Jobs(vec![(MS, 2 * MS), (21 * MS, MS)])),
    ];
    for local in [false, true] {
        let setup = Setup { local, ..Setup::until(30 * MS) };
        let play = play(&mut engine(&[]), &actors, setup);
        assert_eq!(play.spans[2], ms(&[(1, 3), (21, 22)]));
        assert_eq!(play.spans[1], ms(&[(0, 1), (3, 6), (20, 21), (22, 23)]));
        assert_eq!(play.spans[0], ms(&[(6, 20), (23, 30)]));
    }
}

#[test]
fn class_hint_goes_before_the_priority() {
    let class = |class, priority, work| {
        let mut actor = Actor::new(priority, work);
        actor.queues[0].hints.class = class;
        actor
    };
    let work = || Work::Jobs(vec![(MS, 2 * MS)]);
    let critical = |hint| class(hint, -5, work());
    let batch = |hint| class(hint, 9, Work::Always);
    let (lc, be) = (Some(QueueClass::LatencyCritical), Some(QueueClass::BestEffort));
    for local in [false, true] {
        let spans = |parameters: &[(&str, f64)], actors: [Actor; 2]| {
            let setup = Setup { local, ..Setup::until(10 * MS) };
            play(&mut engine(parameters), &actors, setup).spans[0].clone()
        };
        // By their priorities the first one waits for ever.
        assert_eq!(spans(&[], [critical(None), batch(None)]), []);
        assert_eq!(spans(&[], [critical(lc), batch(be)]), ms(&[(1, 3)]));
        // One hint alone is enough only if it changes the order.
        assert_eq!(spans(&[], [critical(lc), batch(None)]), []);
        assert_eq!(spans(&[], [critical(None), batch(be)]), []);
        // The limit of critical classes is the parameter, up to the greatest priority.
        for above in [-3.0, 255.0] {
            assert_eq!(
                spans(&[("critical-above", above)], [critical(lc), batch(be)]),
                ms(&[(1, 3)]),
                "{above}"
            );
        }
        // In turns as well, also beside the greatest priority.
        for above in [0.0, 255.0] {
            let turns = [("slice-ms", 1.0), ("critical-above", above)];
            assert_eq!(spans(&turns, [critical(lc), class(be, 255, Work::Always)]), ms(&[(1, 3)]), "{above}");
        }
    }
}

#[test]
fn class_hint_decides_whether_an_arrival_clears_a_device() {
    let critical = |class| {
        let mut entity = TracedClient::new(-5, vec![(10 * MS, 11 * MS)]).hinted(vec![(0, Some(10 * MS))]);
        entity.queues[0].hints.class = class;
        entity
    };
    let kept =
        |class| kept(&trace(&mut engine(&[]), &[TracedClient::saturating(-7), critical(class)], 20 * MS), 0);
    assert_eq!(kept(None), []);
    assert_eq!(kept(Some(QueueClass::LatencyCritical)), [(9_500 * US, 10 * MS)]);
}

#[test]
fn class_runs_together_without_slices_and_in_order_with_them() {
    let equals = || [1, 1, 1].map(|class| Actor::new(class, Work::Always));
    let together = play(&mut engine(&[]), &equals(), Setup::until(30 * MS));
    assert_eq!(together.used, [10.0 * MS as f64; 3]);
    assert_eq!(together.decisions, 1, "one decision is enough");
    let turns = play(&mut engine(&[("slice-ms", 5.0)]), &equals(), Setup::until(30 * MS));
    for (number, spans) in turns.spans.iter().enumerate() {
        let first = 5 * number as u64;
        assert_eq!(*spans, ms(&[(first, first + 5), (first + 15, first + 20)]));
    }
    assert_eq!(turns.decisions, 7, "one at the beginning and one at the end of each slice");
}

#[test]
fn new_entity_is_last_and_interrupted_one_keeps_its_slice() {
    let actors = [
        Actor::new(0, Work::Always),
        Actor::new(0, Work::From(2 * MS)),
        Actor::new(0, Work::Jobs(vec![(3 * MS, 2 * MS)])),
        Actor::new(9, Work::Jobs(vec![(4 * MS, 3 * MS)])),
    ];
    let play = play(&mut engine(&[("slice-ms", 5.0)]), &actors, Setup::until(20 * MS));
    assert_eq!(play.spans[0], ms(&[(0, 4), (7, 8), (15, 20)]));
    assert_eq!(play.spans[1], ms(&[(8, 13)]));
    assert_eq!(play.spans[2], ms(&[(13, 15)]), "an entity that is done early gives up the rest of its slice");
    assert_eq!(play.spans[3], ms(&[(4, 7)]));
}

#[test]
fn slices_grow_from_class_to_class() {
    let mut actors: Vec<_> = [5, 5, -1, -1, 0, 0].map(|class| Actor::new(class, Work::Always)).into();
    for (number, actor) in actors.iter_mut().enumerate() {
        actor.queues[0].device = DeviceId(1 + number as u32 / 2);
    }
    let parameters = [("slice-ms", 3.0), ("slice-growth", 2.0)];
    let result = play(&mut engine(&parameters), &actors, Setup::until(24 * MS));
    assert_eq!(result.spans[0], ms(&[(0, 3), (6, 9), (12, 15), (18, 21)]));
    assert_eq!(result.spans[4], ms(&[(0, 6), (12, 18)]));
    assert_eq!(result.spans[2], ms(&[(0, 12)]));
    assert_eq!(result.spans[3], ms(&[(12, 24)]));
}

#[test]
fn slices_of_devices_are_independent() {
    let mut both = Actor::new(0, Work::Always);
    both.queues.push(common::queue(2, 2, 0, false));
    let mut second = Actor::new(0, Work::Always);
    second.queues[0].device = DeviceId(2);
    // The entity on both devices runs on both; the others have one each meanwhile, or none.
    let actors = [both, second, Actor::new(0, Work::Always)];
    let result = play(&mut engine(&[("slice-ms", 5.0)]), &actors, Setup::until(30 * MS));
    assert_eq!(result.spans[0], ms(&[(0, 5), (10, 15), (20, 25)]));
    assert_eq!(result.spans[1], ms(&[(5, 10), (15, 20), (25, 30)]));
    assert_eq!(result.spans[1], result.spans[2]);
}

#[test]
fn hinted_arrival_clears_the_device_exactly_in_time() {
    let urgent = TracedClient::new(5, vec![(10 * MS, 12 * MS)]).hinted(vec![(2 * MS, Some(10 * MS))]);
    let entities = [TracedClient::saturating(0), urgent];
    let mut engine = engine(&[("lead-us", 700.0)]);
    let shots = trace(&mut engine, &entities, 20 * MS);
    assert_eq!(kept(&shots, 0), [(10 * MS - 700 * US, 10 * MS)]);
    assert_eq!(spans(&shots, &entities, 0), [(0, 10 * MS - 700 * US), (12 * MS, 20 * MS)]);
    assert_eq!(count(&engine), [1, 1, 0, 0, 0]);
    assert_eq!(counted(&engine, "wasted-us"), 0);
}

#[test]
fn missed_hint_gives_the_device_back_after_the_grace() {
    let urgent = TracedClient::new(5, vec![(15 * MS, 16 * MS)]).hinted(vec![(2 * MS, Some(10 * MS))]);
    let entities = [TracedClient::saturating(0), urgent];
    let mut engine = engine(&[("grace-us", 2_000.0)]);
    let shots = trace(&mut engine, &entities, 20 * MS);
    assert_eq!(kept(&shots, 0), [(9_500 * US, 12 * MS)]);
    assert_eq!(spans(&shots, &entities, 0), [(0, 9_500 * US), (12 * MS, 15 * MS), (16 * MS, 20 * MS)]);
    assert_eq!(count(&engine), [1, 0, 1, 0, 0]);
    assert_eq!(counted(&engine, "wasted-us"), 2_500);
}

#[test]
fn late_hint_holds_at_once_and_passed_hint_does_nothing() {
    let late = TracedClient::new(5, vec![(10 * MS, 11 * MS)]).hinted(vec![(9_800 * US, Some(10 * MS))]);
    let entities = [TracedClient::saturating(0), late];
    assert_eq!(kept(&trace(&mut engine(&[]), &entities, 20 * MS), 0), [(9_800 * US, 10 * MS)]);
    // A moment too late is still within the grace; what has passed by more is not.
    let passed =
        TracedClient::new(5, vec![]).hinted(vec![(10 * MS, Some(9_500 * US)), (15 * MS, Some(14 * MS))]);
    let entities = [TracedClient::saturating(0), passed];
    assert_eq!(kept(&trace(&mut engine(&[]), &entities, 20 * MS), 0), [(10 * MS, 10_500 * US)]);
}

#[test]
fn hint_is_answered_once() {
    // Early by less than the lead, and done before the hinted time.
    let early = TracedClient::new(5, vec![(9_700 * US, 9_800 * US)]).hinted(vec![(0, Some(10 * MS))]);
    // It works at the hinted time, and is done shortly after it.
    let busy = TracedClient::new(5, vec![(28 * MS, 30_100 * US)]).hinted(vec![(20 * MS, Some(30 * MS))]);
    let entities = [TracedClient::saturating(0), early, busy];
    let mut engine = engine(&[]);
    let shots = trace(&mut engine, &entities, 40 * MS);
    assert_eq!(kept(&shots, 0), [(9_500 * US, 9_700 * US)]);
    assert_eq!(count(&engine), [1, 1, 0, 0, 0]);
    // Other work before the device is cleared does not answer the hint.
    let other =
        TracedClient::new(5, vec![(2 * MS, 3 * MS), (10 * MS, 11 * MS)]).hinted(vec![(0, Some(10 * MS))]);
    let entities = [TracedClient::saturating(0), other];
    assert_eq!(kept(&trace(&mut self::engine(&[]), &entities, 20 * MS), 0), [(9_500 * US, 10 * MS)]);
}

#[test]
fn withdrawn_hint_gives_the_device_back() {
    let moved = TracedClient::new(5, vec![(8 * MS, 9 * MS)]).hinted(vec![
        (0, Some(4 * MS)),
        (3_700 * US, Some(8 * MS)),
        (7_900 * US, None),
    ]);
    let entities = [TracedClient::saturating(0), moved];
    let mut engine = engine(&[]);
    let shots = trace(&mut engine, &entities, 20 * MS);
    assert_eq!(kept(&shots, 0), [(3_500 * US, 3_700 * US), (7_500 * US, 7_900 * US)]);
    assert_eq!(count(&engine), [2, 0, 0, 2, 0]);
    assert_eq!(counted(&engine, "wasted-us"), 600);

    let goes = TracedClient {
        there: (0, 9_600 * US),
        ..TracedClient::new(5, vec![]).hinted(vec![(0, Some(10 * MS))])
    };
    let entities = [TracedClient::saturating(0), goes];
    let mut engine = self::engine(&[]);
    let shots = trace(&mut engine, &entities, 20 * MS);
    assert_eq!(kept(&shots, 0), [(9_500 * US, 9_600 * US)]);
    assert_eq!(count(&engine), [1, 0, 0, 1, 0]);
    assert_eq!(counted(&engine, "wasted-us"), 1_500, "all that was paid");
}

#[test]
fn same_and_higher_classes_run_on_a_reserved_device() {
    let urgent = TracedClient::new(5, vec![]).hinted(vec![(0, Some(10 * MS))]);
    let window = (9_500 * US, 11 * MS);
    for (other, runs) in [(9, true), (5, true), (4, false), (1, false), (0, false)] {
        let mut entities = vec![TracedClient::saturating(other), urgent.clone()];
        for slices in [0.0, 4.0] {
            let shots = trace(&mut engine(&[("slice-ms", slices)]), &entities, 20 * MS);
            let expected = if runs { vec![] } else { vec![window] };
            assert_eq!(kept(&shots, 0), expected, "class {other}, slices of {slices} ms");
        }
        // On another device nothing is kept free.
        entities[0].queues[0].device = DeviceId(2);
        assert_eq!(kept(&trace(&mut engine(&[]), &entities, 20 * MS), 0), []);
    }
    // Best effort reserves nothing, and `critical-above` divides the classes.
    let low = TracedClient::new(5, vec![]).hinted(vec![(0, Some(10 * MS))]);
    let entities = [TracedClient::saturating(0), low];
    assert_eq!(kept(&trace(&mut engine(&[("critical-above", 5.0)]), &entities, 20 * MS), 0), []);
}

#[test]
fn reservation_covers_every_device_of_an_entity() {
    let mut urgent = TracedClient::new(5, vec![]).hinted(vec![(0, Some(10 * MS))]);
    urgent.queues.push(common::queue(2, 2, 5, false));
    let mut second = TracedClient::saturating(0);
    second.queues[0].device = DeviceId(2);
    let entities = [TracedClient::saturating(0), second, urgent];
    let shots = trace(&mut engine(&[]), &entities, 20 * MS);
    for entity in [0, 1] {
        assert_eq!(kept(&shots, entity), [(9_500 * US, 11 * MS)]);
    }
}

#[test]
fn waste_is_bounded() {
    // A hint every 10 ms that no work follows. If all were believed, 1.5 ms of each 10 ms would be lost.
    let told = (0..2_000).map(|number| (number * 10 * MS, Some((number * 10 + 5) * MS)));
    let entities = [TracedClient::saturating(0), TracedClient::new(5, vec![]).hinted(told.collect())];
    for (share, most) in [(0.0, 0), (2.0, 400 * MS), (100.0, 3_000 * MS)] {
        let mut engine = engine(&[("waste-percent", share)]);
        let shots = trace(&mut engine, &entities, 20_000 * MS);
        let lost: u64 = kept(&shots, 0).iter().map(|(from, to)| to - from).sum();
        assert!(lost <= most && lost * 10 >= most * 9, "{share} %: {} ms", lost / MS);
        assert_eq!(lost / US, counted(&engine, "wasted-us"));
        let [reserved, hit, missed, withdrawn, refused] = count(&engine);
        assert_eq!((hit, withdrawn), (0, 0));
        assert_eq!((reserved, reserved + refused), (missed, 2_000));
    }
}

#[test]
fn uninterrupted_work_runs_on_beside_higher_classes() {
    let mut stubborn = Actor::new(0, Work::Jobs(vec![(0, 5 * MS), (20 * MS, 5 * MS)]));
    stubborn.queues[0].hints.preemptible = false;
    let actors = [
        stubborn,
        Actor::new(0, Work::Always),
        Actor::new(3, Work::Jobs(vec![(3 * MS, 4 * MS), (19 * MS, 3 * MS)])),
    ];
    let result = play(&mut engine(&[]), &actors, Setup::until(40 * MS));
    // At 3 ms both best-effort entities run; one goes on beside the urgent one, 1.5 + 3.5 ms.
    assert_eq!(result.spans[0][0], (0, 10 * MS));
    assert_eq!(result.spans[2][0], (3 * MS, 10_500 * US));
    assert_eq!(result.spans[1], [(0, 3 * MS), (10_500 * US, 19 * MS), (22 * MS, 40 * MS)]);
    assert_eq!(result.spans[2][1], (19 * MS, 22 * MS), "an entity that has not begun waits");
    assert_eq!(result.spans[0][1].0, 22 * MS);
}

#[test]
fn uninterrupted_work_keeps_its_slice_until_the_guard_acts() {
    let mut stubborn = Actor::new(0, Work::Jobs(vec![(0, 12 * MS)]));
    stubborn.queues[0].hints.preemptible = false;
    let actors = [stubborn, Actor::new(0, Work::Always), Actor::new(-1, Work::Always)];
    let turns = [("slice-ms", 5.0)];
    let result = play(&mut engine(&turns), &actors, Setup::until(30 * MS));
    assert_eq!(result.spans[0], ms(&[(0, 12)]));
    assert_eq!(result.spans[1], ms(&[(12, 30)]));
    let mut guarded = engine(&turns);
    guarded.set_starvation_limit(Some(Duration::from_millis(10)));
    let result = play(&mut guarded, &actors, Setup::until(13 * MS));
    assert_eq!(result.spans[0], ms(&[(0, 10), (11, 13)]));
}

#[test]
fn end_of_a_slice_causes_no_series_of_wakeups() {
    // At 10 ms the guard lets the low one run for 1 ms, and 1 ns of the first slice is left.
    let mut guarded = engine(&[("slice-ms", 10.000_001)]);
    guarded.set_starvation_limit(Some(Duration::from_millis(10)));
    let actors = [0, 0, -1].map(|class| Actor::new(class, Work::Always));
    let result = play(&mut guarded, &actors, Setup::until(12 * MS));
    assert_eq!(result.spans[2], ms(&[(10, 11)]));
    assert!(result.decisions < 30, "{}", result.decisions);
}

#[test]
fn uninterrupted_work_does_not_hold_up_its_class() {
    let mut stubborn = Actor::new(0, Work::Always);
    stubborn.queues[0].hints.preemptible = false;
    let actors = [stubborn, Actor::new(0, Work::Always)];
    let result = play(&mut engine(&[]), &actors, Setup::until(10 * MS));
    assert_eq!(result.spans[0], result.spans[1]);
    // Nor a window that is open: it runs on, and the others of its class wait.
    let urgent = TracedClient::new(5, vec![]).hinted(vec![(0, Some(10 * MS))]);
    let mut entities = [TracedClient::saturating(0), TracedClient::saturating(0), urgent];
    entities[0].queues[0].hints.preemptible = false;
    let shots = trace(&mut engine(&[]), &entities, 20 * MS);
    assert_eq!(spans(&shots, &entities, 0), [(0, 20 * MS)]);
    assert_eq!(spans(&shots, &entities, 1), [(0, 9_500 * US), (11 * MS, 20 * MS)]);
}

#[test]
fn decisions_are_explained() {
    let hinted = TracedClient::new(5, vec![(20 * MS, 22 * MS)]).hinted(vec![(0, Some(10 * MS))]);
    let entities =
        [TracedClient::saturating(-1), TracedClient::saturating(0), TracedClient::saturating(0), hinted];
    let shots = trace(&mut engine(&[("slice-ms", 4.0)]), &entities, 30 * MS);
    let reason = |at: u64, entity: usize| -> String {
        let shot = shots.iter().find(|shot| (shot.from..shot.to).contains(&at)).unwrap();
        match shot.operations[entity].unwrap().permit.reason {
            why @ Reason::Outranked { .. } => policies::explain(&why),
            other => panic!("{}", policies::explain(&other)),
        }
    };
    assert_eq!(reason(0, 2), "queue 1 of pid 1002 has its turn for 4.0 ms more, this one is next");
    assert_eq!(reason(0, 0), "queue 1 of pid 1002 is of class 0 > -1");
    assert_eq!(reason(9_500 * US, 1), "queue 1 of pid 1004 is expected to have work in 0.5 ms");
    assert_eq!(reason(20 * MS, 2), "queue 1 of pid 1004 is of class 5 > 0");
}

#[test]
fn highest_class_without_slices_has_no_limit() {
    let entities = [TracedClient::saturating(0), TracedClient::saturating(5)];
    let limits = |parameters: &[(&str, f64)]| {
        let shots = trace(&mut engine(parameters), &entities, MS);
        [0, 1].map(|entity| shots[0].operations[entity].unwrap().permit.limit)
    };
    assert_eq!(limits(&[]), [true, false]);
    assert_eq!(limits(&[("slice-ms", 5.0)]), [true, true]);
}

#[test]
fn regular_work_finds_the_device_clear_and_irregular_work_costs_nothing() {
    let jobs = |times: &mut dyn Iterator<Item = u64>| Work::Jobs(times.map(|at| (at, 2 * MS)).collect());
    let latencies = |learn: f64, work: Work| {
        let mut batch = Actor::new(0, Work::Always);
        batch.drains = 400 * US;
        let actors = [batch, Actor::new(5, work)];
        let mut engine = engine(&[("learn", learn)]);
        let play = play(&mut engine, &actors, Setup::until(20_000 * MS));
        let latencies: Vec<_> = play.done[1].iter().map(|(from, to)| to - from).collect();
        (latencies, count(&engine), play.used[0])
    };
    let periodic = || jobs(&mut (1..500).map(|number| number * 40 * MS));
    let (without, [reserved, ..], used_without) = latencies(0.0, periodic());
    assert!(without.iter().all(|latency| *latency == 2_400 * US) && reserved == 0);
    let (with, [reserved, hit, missed, ..], used) = latencies(1.0, periodic());
    let late = with.iter().take_while(|latency| **latency == 2_400 * US).count();
    assert!((7..20).contains(&late), "learnt after {late}");
    assert!(with[late..].iter().all(|latency| *latency == 2 * MS));
    assert_eq!((hit as usize, missed), (with.len() - late, 0));
    assert!(reserved - hit <= 1);
    // The lead and the smallest margin before each, less what would have drained.
    assert!(used_without - used <= 499.0 * (550 - 400) as f64 * US as f64, "{used_without} {used}");

    // Gaps of 1 to 79 ms without any rule.
    let mut now = 0;
    let gaps = (1u64..500).map(|number| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % 78 + 1);
    let random = jobs(&mut gaps.map(|gap| {
        now += gap * MS;
        now
    }));
    let (_, [reserved, ..], _) = latencies(1.0, random);
    assert!(reserved <= 5, "{reserved}");
}

#[test]
fn learnt_pattern_is_dropped_after_three_misses_and_learnt_again() {
    let times = |from: u64, to: u64| (from..to).map(|number| (number * 20 * MS, number * 20 * MS + 3 * MS));
    let critical = TracedClient::new(5, times(1, 50).chain(times(100, 150)).collect());
    let entities = [TracedClient::saturating(0), critical];
    for method in [0.0, 1.0, 2.0] {
        // All methods that once existed learn the pattern.
        let mut engine = engine(&[("learn", 1.0), ("method", method)]);
        let shots = trace(&mut engine, &entities, 2_990 * MS);
        let kept = kept(&shots, 0);
        let within = |from: u64, to: u64| {
            kept.iter().filter(|(begin, _)| (from * 20 * MS..to * 20 * MS).contains(begin)).count()
        };
        // From 30 on it is known; after 49 and after 149 it is expected three times in vain.
        assert_eq!((within(29, 49), within(49, 99), within(110, 149)), (20, 3, 39), "method {method}");
        let [reserved, hit, missed, withdrawn, refused] = count(&engine);
        assert_eq!((reserved, missed, withdrawn, refused), (hit + missed, 3, 0, 0), "method {method}");
    }
}

#[test]
fn late_decision_notices_work() {
    let mut engine = engine(&[("learn", 1.0)]);
    assert!(engine.needs_idle_events());
    assert!(!self::engine(&[]).needs_idle_events());
    let mut wakes = Vec::new();
    for number in 1..40 {
        // No decision is made when it turns idle.
        let since = Time(number * 20 * MS);
        let urgent = QueueStatus { activity: Activity::Ready { since }, ..common::queue(1, 1, 5, false) };
        let batch = common::queue(2, 1, 0, true);
        engine.decide(&common::local(vec![urgent, batch]), since);
        if number == 39 {
            let idle = Activity::Idle { since: Some(since.after(Duration::from_millis(2))) };
            let status = common::local(vec![QueueStatus { activity: idle, ..urgent }, batch]);
            wakes.push(engine.decide(&status, since.after(Duration::from_millis(2))).wake);
        }
    }
    assert_eq!(wakes, [Some(Time(800 * MS - 550 * US))]);
}

#[test]
fn hint_overrides_the_forecast() {
    let busy = |number: u64| (number * 20 * MS, number * 20 * MS + 3 * MS);
    let mut times: Vec<_> = (1..50).map(busy).collect();
    times.push((1_007 * MS, 1_009 * MS));
    let critical = TracedClient::new(5, times).hinted(vec![(990 * MS, Some(1_007 * MS))]);
    let entities = [TracedClient::saturating(0), critical];
    let shots = trace(&mut engine(&[("learn", 1.0)]), &entities, 1_015 * MS);
    let kept = kept(&shots, 0);
    assert_eq!(kept.last(), Some(&(1_006_500 * US, 1_007 * MS)));
    assert!(kept[kept.len() - 2].1 == 980 * MS, "nothing at 1,000 ms: {kept:?}");
}

/// Times of work or of hints, at most a few milliseconds apart, until 12 s.
fn times() -> impl Strategy<Value = Vec<u64>> {
    let gap = prop_oneof![4 => 1..40 * MS, 1 => 1..2_000 * MS];
    (vec(gap, 1..40), 1u64..400).prop_map(|(gaps, most)| {
        let mut now = 0;
        let repeated = gaps.iter().cycle().map(|gap| {
            now += gap;
            now
        });
        repeated.take(most as usize).take_while(|at| *at < 12_000 * MS).collect()
    })
}

/// Work that begins at these times; some hints come at them, or in between, and may be wrong.
fn critical() -> impl Strategy<Value = TracedClient> {
    let hint = (0..30 * MS, option::of(0..60 * MS));
    (times(), vec(1..8 * MS, 1..8), vec(hint, 0..400), 1i64..4, any::<bool>()).prop_map(
        |(times, lengths, told, class, on_both)| {
            let mut busy: Vec<(u64, u64)> = Vec::new();
            for (at, length) in times.into_iter().zip(lengths.iter().cycle()) {
                if busy.last().is_none_or(|(_, to)| *to < at) {
                    busy.push((at, at + length));
                }
            }
            let mut now = 0;
            let hints = told.iter().map(|(gap, ahead)| {
                now += gap;
                (now, ahead.map(|ahead| (now + ahead).saturating_sub(5 * MS)))
            });
            let hints = hints.collect();
            let mut entity = TracedClient { hints, ..TracedClient::new(class, busy) };
            if on_both {
                entity.queues.push(common::queue(2, 2, class, false));
            }
            entity
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn waste_stays_within_the_budget_for_any_arrivals(
        criticals in vec(critical(), 1..4), goes in option::of(0..10_000 * MS), share in 0.1f64..5.0,
        lead in 0.0f64..5_000.0, grace in 0.0f64..5_000.0, learn in 0u8..2, method in 0u8..3,
    ) {
        let mut entities = vec![TracedClient::saturating(0)];
        entities.extend(criticals);
        entities[1].there.1 = goes.unwrap_or(u64::MAX);
        let mut engine = engine(&[("waste-percent", share), ("lead-us", lead), ("grace-us", grace), ("learn", learn.into()), ("method", method.into())]);
        let until = 13_000 * MS;
        let shots = trace(&mut engine, &entities, until);
        // The time counts as lost until the expected work comes.
        let mut wasted: Vec<(u64, u64)> = Vec::new();
        let mut open: Option<(usize, u64)> = None;
        for shot in &shots {
            let kept = shot.kept_for(0);
            if let Some((entity, since)) = open.filter(|(entity, _)| kept != Some(*entity)) {
                // If another entity blocks from now on, its own window may still be open.
                let longest = since + ((lead + grace.max(60_000.0)) * US as f64) as u64;
                let to = if shot.runs(0) { shot.from } else { longest.max(shot.from) };
                if !entities[entity].busy.iter().any(|(from, _)| (since..=to).contains(from)) {
                    wasted.push((since, shot.from));
                }
                open = None;
            }
            open = open.or(kept.map(|entity| (entity, shot.from)));
        }
        let most = 10_000.0 * MS as f64 * share / 100.0;
        for &(begin, _) in &wasted {
            // The worst span begins with a waste.
            let end = begin + 10_000 * MS;
            let within = |&(from, to): &(u64, u64)| to.min(end).saturating_sub(from.max(begin));
            let sum: u64 = wasted.iter().map(within).sum();
            prop_assert!(sum as f64 <= most + 1.0, "{} us of {} us", sum / US, most / 1e3);
        }
        let [reserved, hit, missed, withdrawn, _] = count(&engine);
        prop_assert!(reserved >= hit + missed + withdrawn && reserved <= hit + missed + withdrawn + 3);
    }

    #[test]
    fn class_never_waits_for_a_lower_one(
        criticals in vec(critical(), 1..4), learn in 0u8..2, slice in prop_oneof![Just(0.0), 0.1f64..20.0], growth in 1.0f64..4.0,
    ) {
        let mut entities = vec![TracedClient::saturating(0), TracedClient::saturating(-1), TracedClient::saturating(0)];
        entities.extend(criticals);
        let parameters = [("slice-ms", slice), ("slice-growth", growth), ("learn", learn.into())];
        let shots = trace(&mut engine(&parameters), &entities, 3_000 * MS);
        for shot in &shots {
            // An entity that waits has an equal or higher class beside it that runs or is expected.
            for (entity, operation) in shot.operations.iter().enumerate() {
                let Reason::Outranked { by, .. } = operation.unwrap().permit.reason else { continue };
                let rival = by.pid.0 as usize - 1001;
                let class = |entity: usize| entities[entity].queues[0].priority;
                prop_assert!(class(rival) >= class(entity));
                prop_assert!(shot.runs(rival));
                let is_expected = EXPECTED.is(&by.reason);
                prop_assert!(entities[rival].is_busy(shot.from) || is_expected && class(rival) > class(entity));
            }
        }
        let again = trace(&mut engine(&parameters), &entities, 3_000 * MS);
        prop_assert_eq!(shots, again, "the same input, the same decisions");
    }

    #[test]
    fn slices_are_fair(count in 2usize..6, slice in 1u64..10, interruptions in times()) {
        let mut actors: Vec<_> = (0..count).map(|_| Actor::new(0, Work::Always)).collect();
        let jobs = interruptions.into_iter().map(|at| (at, MS)).collect();
        actors.push(Actor::new(1, Work::Jobs(jobs)));
        let result = play(&mut engine(&[("slice-ms", slice as f64)]), &actors, Setup::until(2_000 * MS));
        let used = &result.used[..count];
        let [least, most] = [f64::min, f64::max].map(|which| used.iter().copied().reduce(which).unwrap());
        // A short rest of a slice may grow by 0.1 ms each time that it is interrupted.
        let slack = 0.1 * MS as f64 * result.done[count].len() as f64;
        prop_assert!(most - least <= (slice * MS) as f64 + slack, "{used:?}");
    }
}
