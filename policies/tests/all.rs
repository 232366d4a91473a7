//! Properties of every policy of the registry, on random statuses and sequences.

mod common;

use common::play::{Actor, MS, Setup, Work, play};
use common::shares::longest_wait;
use common::{entity_queues, gang, global, local, pid, queue};
use policies::reason::EXPECTED;
use policies::registry::{POLICIES, Row};
use policies::{Choice, Engine};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use protocol::bounds::{Priority, Utilization};
use protocol::hint::table::{HINTS, HintKind, Values};
use protocol::hint::{Hints, Laxity, ProcessHints, QueueHints};
use protocol::ids::{DeviceId, Pid};
use protocol::operation::{EntityId, Operation, Reason, Rival, Throttle};
use protocol::policy::PolicyKind;
use protocol::status::{Activity, QueueStatus, Status};
use protocol::time::Time;
use std::num::NonZeroU64;
use std::time::Duration;

fn engine(row: &'static Row) -> Engine {
    Engine::new(Choice::new(row), Duration::ZERO)
}

/// Returns the policy with its first parameters at these fractions of their ranges.
fn choice(row: &'static Row, parts: &[f64]) -> Choice {
    let mut choice = Choice::new(row);
    for (parameter, part) in row.parameters.iter().zip(parts) {
        let (low, high) = parameter.range;
        choice.values.set(parameter.name, (low + (high - low) * part).clamp(low, high)).unwrap();
    }
    choice
}

fn row() -> impl Strategy<Value = &'static Row> {
    (0..POLICIES.len()).prop_map(|place| &POLICIES[place])
}

fn priority() -> impl Strategy<Value = Priority> {
    prop_oneof![1 => Just(-256i64), 8 => -2i64..4, 1 => Just(255)]
        .prop_map(|number| number.try_into().unwrap())
}

/// Generates hints for a queue and its process from the table of hints.
fn hints() -> impl Strategy<Value = Hints> {
    let number = prop_oneof![-1i64..3, 0i64..101, 0i64..5_000];
    let update = (0..HINTS.len(), number, priority(), priority());
    (vec(update, 0..12), -20i8..20).prop_map(|(updates, nice)| {
        let mut hints = Hints::default();
        for (row, number, lax, critical) in updates {
            // The numbers are small, so that processes share jobs and a hinted k is below the number of entities.
            let few = [HintKind::Job as usize, HintKind::KDeadline as usize].contains(&row);
            let number = if few { number % 3 } else { number };
            let update = match HINTS[row].values {
                Values::Laxity => HINTS[row].parse(&format!("{number},{lax},{critical}")).ok(),
                _ => HINTS[row].from_number(number),
            };
            if let Some(update) = update {
                update.apply(&mut hints, Time(BEGIN));
            }
        }
        hints.process.nice = nice;
        hints
    })
}

/// The time of the first decision.
const BEGIN: u64 = 1_000_000;

/// The number of devices that entities use.
const DEVICES: u32 = 3;

/// An entity: the devices, priorities and hints of its queues, and the hints about its process.
type Made = (Vec<(u32, Priority, QueueHints)>, ProcessHints);

fn made(devices: u32) -> impl Strategy<Value = Made> {
    let one = (1..=devices, priority(), hints())
        .prop_map(|(device, priority, hints)| (device, priority, hints.queue));
    (vec(one, 0..4), hints().prop_map(|hints| hints.process))
}

/// Generates an entity with all its queues on one of the devices.
fn on_one_of(devices: u32) -> impl Strategy<Value = Made> {
    (1..=devices, made(1)).prop_map(|(device, (queues, hints))| {
        let moved = queues.into_iter().map(|(_, priority, hints)| (device, priority, hints));
        (moved.collect(), hints)
    })
}

/// One value for each queue that an entity can have.
type Each<T> = [T; 3];

/// One step: the queues of each entity that are ready, and the nanoseconds until the next step.
type Step = (Vec<Each<bool>>, u64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let span = prop_oneof![Just(0u64), 1u64..200_000, 1u64..50_000_000];
    vec((vec(any::<Each<bool>>(), 8), span), 1..24)
}

/// Plays entities step by step, and calls `look` with each status and its decision.
fn walk(
    policy: impl Into<Choice>,
    entities: &[Made],
    steps: &[Step],
    as_local: bool,
    mut look: impl FnMut(&Status, Time, &[Operation], &mut Engine) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut engine = Engine::new(policy, Duration::ZERO);
    let mut now = BEGIN;
    let mut activity = vec![[Activity::Idle { since: None }; 3]; entities.len()];
    for (ready, span) in steps {
        for (activity, ready) in activity.iter_mut().flatten().zip(ready.iter().flatten()) {
            *activity = match (*activity, ready) {
                (Activity::Idle { .. }, true) => Activity::Ready { since: Time(now) },
                (Activity::Ready { .. }, false) => Activity::Idle { since: Some(Time(now)) },
                (same, _) => same,
            };
        }
        let status = status(entities, &activity, as_local);
        let decision = engine.decide(&status, Time(now));
        prop_assert!(decision.wake.is_none_or(|wake| wake > Time(now)));
        let operations = decision.operations.to_vec();
        look(&status, Time(now), &operations, &mut engine)?;
        now += span;
    }
    Ok(())
}

fn status(entities: &[Made], activity: &[Each<Activity>], as_local: bool) -> Status {
    let mut name = 0;
    let mut queues = |(queues, _): &Made, activity: &Each<Activity>, first: bool| -> Vec<QueueStatus> {
        if first {
            name = 0;
        }
        let one = |(&(device, priority, hints), &activity)| {
            name += 1;
            QueueStatus { priority, hints, activity, ..queue(name, device, 0, false) }
        };
        queues.iter().zip(activity).map(one).collect()
    };
    let all = entities.iter().zip(activity);
    if as_local {
        return local(all.flat_map(|(entity, activity)| queues(entity, activity, false)).collect());
    }
    let gangs = (1..).zip(all).map(|(client, (entity, activity))| protocol::status::Gang {
        hints: entity.1,
        ..gang(client, queues(entity, activity, true))
    });
    global(gangs.collect())
}

fn is_ready(queue: &QueueStatus) -> bool {
    queue.priority != Priority::NO_EXECUTE && matches!(queue.activity, Activity::Ready { .. })
}

/// Alone on its device an entity has no rival, so its window need not cost it anything, whatever the policy divides.
#[test]
fn lone_entity_without_a_cap_is_not_limited() {
    for row in POLICIES {
        let status = global(vec![gang(1, vec![queue(1, 1, 0, true)])]);
        let mut engine = engine(row);
        for now in [BEGIN, 2 * BEGIN] {
            let permit = engine.decide(&status, Time(now)).operations[0].permit;
            assert!(permit.run && !permit.limit, "{}: {permit:?}", row.kind.name());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn entity_has_one_true_permission(
        row in row(), entities in vec(made(DEVICES), 0..8), steps in steps(), as_local in any::<bool>(),
    ) {
        walk(row, &entities, &steps, as_local, |status, now, operations, engine| {
            let entities = entity_queues(status);
            prop_assert_eq!(operations.len(), entities.len());
            for (operation, (id, queues)) in operations.iter().zip(&entities) {
                prop_assert_eq!(operation.unit, *id);
                let permit = operation.permit;
                let runs = matches!(permit.reason, Reason::Unrivalled | Reason::Starved { .. });
                prop_assert_eq!(permit.run, runs, "{} {:?}", row.kind, permit);
                let never = !queues.is_empty() && queues.iter().all(|queue| queue.priority == Priority::NO_EXECUTE);
                prop_assert_eq!(never, permit.reason == Reason::NoExecute);
                if let Reason::Outranked { by, .. } = permit.reason {
                    prop_assert!(queues.iter().any(|queue| queue.device == by.device), "{}: {permit:?} elsewhere", row.kind);
                    let found = operations.iter().zip(&entities).any(|(other, (id, queues))| {
                        other.permit.run && stands_in_the_way(row, &by, pid(*id), queues)
                    });
                    prop_assert!(found, "{}: {:?} of {:?}", row.kind, permit.reason, operations);
                }
            }
            // A second decision at the same time is the same.
            let again = engine.decide(status, now).operations.to_vec();
            let runs = |operations: &[Operation]| operations.iter().map(|operation| operation.permit.run).collect::<Vec<_>>();
            prop_assert_eq!(runs(&again), runs(operations), "{}", row.kind);
            Ok(())
        })?;
    }

    #[test]
    fn device_with_work_is_used_by_conserving_policies(
        row in row(), parts in option::of(vec(0.0..=1.0, 8)), steps in steps(), as_local in any::<bool>(),
        entities in vec(prop_oneof![made(1), made(DEVICES), on_one_of(DEVICES)], 1..8),
    ) {
        if !row.conserves_work {
            return Ok(());
        }
        walk(choice(row, parts.as_deref().unwrap_or_default()), &entities, &steps, as_local, |status, _, operations, engine| {
            // The parameters may let the policy withhold the device. The engine then needs idle events or power.
            if parts.is_some() && (engine.needs_idle_events() || engine.reads_power().is_some()) {
                return Ok(());
            }
            let entities = entity_queues(status);
            for device in (1..=DEVICES).map(DeviceId) {
                let works = |queues: &[QueueStatus]| queues.iter().any(|queue| is_ready(queue) && queue.device == device);
                let working: Vec<_> = operations.iter().zip(&entities).filter(|(_, (_, queues))| works(queues)).collect();
                let used = working.iter().any(|(operation, _)| operation.permit.run);
                // A rival may outrank each entity on another device that the entity uses.
                let elsewhere = working.iter().all(|(operation, _)| {
                    matches!(operation.permit.reason, Reason::Outranked { by, .. } if by.device != device)
                });
                // The device may be kept free for expected work. The reason then tells so.
                let reserved = operations.iter().any(|operation| matches!(
                    operation.permit.reason,
                    Reason::Outranked { by, .. } if by.device == device && EXPECTED.is(&by.reason)
                ));
                // The entities with work may have used up their caps. The reason then tells so.
                let throttled = |operation: &Operation| matches!(operation.permit.reason, Reason::Throttled(Throttle::Share { .. }));
                let capped = engine.needs_idle_events() && working.iter().any(|(operation, _)| throttled(operation));
                prop_assert!(used || elsewhere || reserved || capped, "{}: {:?} of {:?}", row.kind, device, operations);
            }
            Ok(())
        })?;
    }

    #[test]
    fn same_sequence_gives_same_decisions(
        row in row(), entities in vec(made(DEVICES), 0..8), steps in steps(), as_local in any::<bool>(),
    ) {
        let mut all = Vec::new();
        for _ in 0..2 {
            let mut one = Vec::new();
            walk(row, &entities, &steps, as_local, |_, _, operations, _| {
                one.push(operations.to_vec());
                Ok(())
            })?;
            all.push(one);
        }
        prop_assert_eq!(&all[0], &all[1]);
    }

    #[test]
    fn policies_change_between_decisions_without_harm(
        rows in vec((row(), option::of(1u32..4), any::<bool>()), 1..12),
        entities in vec(made(DEVICES), 0..6), steps in steps(),
    ) {
        let mut next = rows.iter().cycle();
        walk(rows[0].0, &entities, &steps, false, |status, now, _, engine| {
            let (row, device, own) = next.next().unwrap();
            let mut choice = Choice::new(row);
            for parameter in row.parameters {
                choice.values.set(parameter.name, parameter.range.0).unwrap();
            }
            match device {
                None => engine.set_policy(choice),
                Some(device) => engine.set_device_policy(DeviceId(*device), own.then_some(choice)),
            }
            let operations = engine.decide(status, now).operations;
            prop_assert_eq!(operations.len(), entity_queues(status).len());
            Ok(())
        })?;
    }

    #[test]
    fn starvation_limit_bounds_every_wait(row in row(), actors in vec(ranked(), 2..6)) {
        if row.goes_by_priority {
            let waits = longest_waits(row, &actors, Some(LIMIT));
            prop_assert!(waits.iter().all(|wait| *wait <= 51 * MS), "{}: waited {waits:?} ns", row.kind);
        }
    }

    #[test]
    fn sharing_policies_starve_no_entity(row in row(), shares in vec(1i64..=100, 2..6), sleepers in 0usize..3) {
        if row.goes_by_priority {
            return Ok(());
        }
        let mut actors: Vec<_> = shares.iter().map(|share| {
            let mut actor = Actor::new(0, Work::Always);
            actor.process.utilization = Utilization::try_from(*share).unwrap();
            actor.queues[0].hints.utilization = actor.process.utilization;
            actor
        }).collect();
        // Further entities pause and return. They starve no other entity.
        actors.extend((0..sleepers as u64).map(|first| {
            Actor::new(0, Work::Jobs((0..2_000).map(|number| ((first + number * 5) * MS, MS)).collect()))
        }));
        let play = play(&mut engine(row), &actors, Setup::until(10_000 * MS));
        for (spans, used) in play.spans.iter().zip(&play.used) {
            let mut last = 0;
            for (from, to) in spans.iter().copied().chain([(10_000 * MS, 10_000 * MS)]) {
                prop_assert!(from.saturating_sub(last) <= 5_000 * MS, "{}: waited {} ms", row.kind, (from - last) / MS);
                last = to;
            }
            prop_assert!(*used > 0.0);
        }
    }
}

/// Returns true if the reason names this entity: its process has the queue, and has work on the device where the
/// reason says it blocks.
fn stands_in_the_way(row: &Row, by: &Rival, pid: Pid, queues: &[QueueStatus]) -> bool {
    // The rank comes from this queue. The queue may be on another device than the one for which the entity waits.
    let named = queues.iter().any(|queue| queue.queue == by.queue && queue.priority != Priority::NO_EXECUTE);
    let works = |queue: &QueueStatus| match (row.kind, EXPECTED.is(&by.reason)) {
        // HHPF counts the priorities of all devices on each device.
        (PolicyKind::Hhpf, _) => is_ready(queue),
        // GANG keeps the devices of a job free, and a forecast those of expected work.
        (PolicyKind::Gang, _) | (_, true) => queue.device == by.device,
        _ => is_ready(queue) && queue.device == by.device,
    };
    by.pid == pid && named && queues.iter().any(works)
}

/// The limit of the starvation guard.
const LIMIT: Duration = Duration::from_millis(50);

/// Generates an actor that always has work, with every hint by which policies rank.
fn ranked() -> impl Strategy<Value = Actor> {
    let laxity = (0u64..200_000, -2i64..4, -2i64..4).prop_map(|(us, lax, critical)| {
        let [lax, critical] = [lax, critical].map(|number| number.try_into().unwrap());
        Laxity { us, lax, critical }
    });
    let deadline = option::of(1_000u64..200_000);
    (0i64..4, -20i8..20, any::<bool>(), 0u64..3, deadline, option::of(laxity)).prop_map(
        |(priority, nice, window, job, deadline, laxity)| {
            let mut actor = Actor::new(priority, Work::Always);
            (actor.process.nice, actor.process.window) = (nice, window);
            actor.process.job = NonZeroU64::new(job);
            actor.queues[0].hints.deadline_us = deadline.and_then(NonZeroU64::new);
            actor.queues[0].hints.laxity = laxity;
            actor
        },
    )
}

/// Returns the longest wait of each actor within a second, in nanoseconds.
fn longest_waits(row: &'static Row, actors: &[Actor], limit: Option<Duration>) -> Vec<u64> {
    let mut engine = engine(row);
    engine.set_starvation_limit(limit);
    let play = play(&mut engine, actors, Setup::until(1_000 * MS));
    (0..actors.len()).map(|actor| longest_wait(&play, actor, 1_000 * MS)).collect()
}

#[test]
fn priority_policies_starve_without_limit() {
    // Otherwise the property about the limit would show nothing for a policy.
    let mut runner = TestRunner::deterministic();
    let scenarios: Vec<_> =
        (0..20).map(|_| vec(ranked(), 2..6).new_tree(&mut runner).unwrap().current()).collect();
    for row in POLICIES.iter().filter(|row| row.goes_by_priority) {
        let starve = |actors: &&Vec<Actor>| longest_waits(row, actors, None).contains(&(1_000 * MS));
        let starving = scenarios.iter().filter(starve).count();
        assert!(starving >= 5, "{}: in {starving} of {} scenarios", row.kind, scenarios.len());
    }
}

#[test]
fn returning_entity_starts_without_state() {
    for row in POLICIES {
        let mut engine = engine(row);
        let both = global(vec![gang(1, vec![queue(1, 1, 0, true)]), gang(2, vec![queue(1, 1, 0, true)])]);
        let one = global(vec![gang(1, vec![queue(1, 1, 0, true)])]);
        for (number, status) in [&both, &one, &both, &one].into_iter().enumerate() {
            let operations =
                engine.decide(status, Time(BEGIN + number as u64 * 1_000_000)).operations.to_vec();
            assert_eq!(operations.len(), entity_queues(status).len());
            let runs = operations.iter().any(|operation| operation.permit.run);
            assert!(runs || !row.conserves_work, "{}: {operations:?}", row.kind);
            assert!(matches!(operations[0].unit, EntityId::Gang(_)));
        }
    }
}
