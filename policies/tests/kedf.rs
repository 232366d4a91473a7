//! KEDF on hand-made cases, and its rules on random ones.

mod common;

use common::play::{Actor, MS, Setup, Work, play};
use common::{engine, gang, global, queue, reasons, running};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use protocol::hint::ProcessHints;
use protocol::policy::PolicyKind;
use protocol::status::{Activity, Gang, QueueStatus, Status};
use protocol::time::Time;
use std::num::{NonZeroU32, NonZeroU64};

const NOW: u64 = 10_000_000;

/// A queue: its device, the microsecond since which it is ready, and its hinted deadline in microseconds, 0 for
/// none.
type Q = (u32, Option<u64>, u64);

/// A process: its hinted k, 0 for none, and its queues.
type P<'a> = (u32, &'a [Q]);

fn process(client: u64, k: u32, queues: &[Q]) -> Gang {
    let named = (1..).zip(queues).map(|(id, &(device, ready, deadline_us))| {
        let mut queue = queue(id, device, 0, false);
        queue.hints.deadline_us = NonZeroU64::new(deadline_us);
        if let Some(us) = ready {
            queue.activity = Activity::Ready { since: Time(us * 1_000) };
        }
        queue
    });
    let hints = ProcessHints { k_deadline: NonZeroU32::new(k), ..ProcessHints::default() };
    Gang { hints, ..gang(client, named.collect()) }
}

fn scenario(processes: &[P]) -> Status {
    global((1..).zip(processes).map(|(client, (k, queues))| process(client, *k, queues)).collect())
}

#[test]
fn k_entities_with_earliest_deadlines_run() {
    // The time of the decision is microsecond 10,000.
    let table: &[(&str, f64, &[P], &str)] = &[
        (
            "the earliest deadline runs",
            1.0,
            &[(0, &[(1, Some(0), 20_000)]), (0, &[(1, Some(0), 15_000)])],
            "2",
        ),
        (
            "a deadline is the time of readiness plus the hint",
            1.0,
            &[(0, &[(1, Some(0), 20_000)]), (0, &[(1, Some(9_000), 12_000)])],
            "1",
        ),
        (
            "an entity without a deadline comes after all with one",
            1.0,
            &[(0, &[(1, Some(0), 0)]), (0, &[(1, Some(9_000), 90_000_000)])],
            "2",
        ),
        (
            "entities without a deadline are in the order of readiness",
            1.0,
            &[(0, &[(1, Some(7), 0)]), (0, &[(1, Some(5), 0)])],
            "2",
        ),
        (
            "a deadline that has passed is the earliest",
            1.0,
            &[(0, &[(1, Some(0), 1)]), (0, &[(1, Some(0), 11_000)])],
            "1",
        ),
        (
            "k is 2",
            2.0,
            &[(0, &[(1, Some(0), 30_000)]), (0, &[(1, Some(0), 20_000)]), (0, &[(1, Some(0), 25_000)])],
            "2 3",
        ),
        (
            "k is greater than the number of entities",
            9.0,
            &[(0, &[(1, Some(0), 30_000)]), (0, &[(1, Some(0), 0)])],
            "1 2",
        ),
        (
            "the highest hinted k counts",
            1.0,
            &[(1, &[(1, Some(0), 30_000)]), (2, &[(1, Some(0), 20_000)]), (0, &[(1, Some(0), 25_000)])],
            "2 3",
        ),
        (
            "the k of an idle process or of one on another device does not count",
            1.0,
            &[
                (3, &[(1, None, 30_000)]),
                (0, &[(1, Some(0), 20_000)]),
                (0, &[(1, Some(0), 25_000)]),
                (5, &[(2, Some(0), 1)]),
            ],
            "2 4",
        ),
        (
            "a hinted k overrides the parameter",
            4.0,
            &[(1, &[(1, Some(0), 30_000)]), (0, &[(1, Some(0), 20_000)])],
            "2",
        ),
        (
            "devices are independent",
            1.0,
            &[(0, &[(1, Some(0), 20_000)]), (0, &[(2, Some(0), 30_000)])],
            "1 2",
        ),
        (
            "an entity that waits on one device does not count on the other",
            1.0,
            &[
                (0, &[(1, Some(0), 20_000), (2, Some(0), 20_000)]),
                (0, &[(2, Some(0), 15_000)]),
                (0, &[(1, Some(0), 30_000)]),
            ],
            "2 3",
        ),
        (
            "k is 2 on one device and 1 on the other",
            1.0,
            &[
                (2, &[(1, Some(0), 10_000)]),
                (0, &[(1, Some(0), 20_000), (2, Some(0), 0)]),
                (0, &[(2, Some(0), 15_000)]),
                (0, &[(1, Some(0), 30_000)]),
            ],
            "1 3 4",
        ),
        (
            "the deadline of an idle queue does not count",
            1.0,
            &[(0, &[(1, Some(0), 30_000), (1, None, 1)]), (0, &[(1, Some(0), 20_000)])],
            "2",
        ),
        (
            "the earliest deadline of the queues counts",
            1.0,
            &[(0, &[(1, Some(0), 30_000), (1, Some(0), 18_000)]), (0, &[(1, Some(0), 20_000)])],
            "1",
        ),
        (
            "an idle entity has permission if it would be among the k earliest",
            1.0,
            &[
                (0, &[(1, Some(0), 30_000)]),
                (0, &[(1, None, 15_000)]),
                (0, &[(1, None, 25_000)]),
                (0, &[(1, None, 0)]),
            ],
            "1 2",
        ),
    ];
    for (case, k, processes, expected) in table {
        let mut engine = engine(PolicyKind::Kedf, &[("k", *k)]);
        assert_eq!(running(&mut engine, &scenario(processes), NOW), ((*expected).into(), None), "{case}");
    }
}

#[test]
fn reasons_name_deadlines() {
    let status =
        scenario(&[(0, &[(1, Some(0), 12_000)]), (0, &[(1, Some(0), 15_000)]), (0, &[(1, Some(0), 0)])]);
    let reasons = reasons(&mut engine(PolicyKind::Kedf, &[]), &status, NOW);
    assert_eq!(reasons[1], "queue 1 of pid 1001 has a deadline 2.0 ms < 5.0 ms");
    assert_eq!(reasons[2], "queue 1 of pid 1001 has a deadline in 2.0 ms, this one has no deadline");
    // The reason names the queue with the deadline.
    let status = scenario(&[
        (0, &[(1, Some(0), 0), (1, Some(0), 30_000), (1, Some(0), 12_000)]),
        (0, &[(1, Some(0), 15_000)]),
    ]);
    let mut kedf = engine(PolicyKind::Kedf, &[]);
    assert_eq!(
        common::reasons(&mut kedf, &status, NOW)[1],
        "queue 3 of pid 1001 has a deadline 2.0 ms < 5.0 ms"
    );
}

#[test]
fn no_execute_queue_never_runs() {
    let mut never = queue(1, 1, -256, true);
    never.hints.deadline_us = NonZeroU64::new(1);
    let status = global(vec![gang(1, vec![never]), gang(2, vec![queue(1, 1, 0, true)])]);
    assert_eq!(running(&mut engine(PolicyKind::Kedf, &[]), &status, NOW).0, "2");
}

#[test]
fn scenario_runs_by_deadlines() {
    let actor = |deadline_ms: u64, jobs: &[(u64, u64)]| {
        let mut actor = Actor::new(0, Work::Jobs(jobs.iter().map(|&(at, ms)| (at * MS, ms * MS)).collect()));
        actor.queues[0].hints.deadline_us = NonZeroU64::new(deadline_ms * 1_000);
        actor
    };
    // Deadlines 40; 25 and 65; none.
    let actors = [actor(40, &[(0, 10)]), actor(20, &[(5, 10), (45, 5)]), actor(0, &[(0, 20)])];
    for (k, ends) in [
        (1.0, [vec![(0, 20)], vec![(5, 15), (45, 50)], vec![(0, 40)]]),
        // Two share the device: the first with the third until 5, then with the second until 20, then the others.
        (2.0, [vec![(0, 20)], vec![(5, 25), (45, 50)], vec![(0, 40)]]),
    ] {
        let mut engine = engine(PolicyKind::Kedf, &[("k", k)]);
        let play = play(&mut engine, &actors, Setup::until(100 * MS));
        let done: Vec<Vec<_>> = play
            .done
            .iter()
            .map(|done| done.iter().map(|&(at, end)| (at / MS, end / MS)).collect())
            .collect();
        assert_eq!(done, ends);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn single_device_runs_the_k_earliest(
        k in 1u32..5,
        entities in vec((option::weighted(0.8, 0u64..9_000), 0u64..30_000), 1..9),
    ) {
        let processes: Vec<Gang> = (1..).zip(&entities).map(|(client, &(ready, deadline))| {
            process(client, 0, &[(1, ready, deadline)])
        }).collect();
        let mut engine = engine(PolicyKind::Kedf, &[("k", k.into())]);
        let status = global(processes);
        let operations = engine.decide(&status, Time(NOW)).operations.to_vec();
        // An entity without a deadline is ordered by its readiness.
        let key = |&(ready, deadline): &(Option<u64>, u64)| {
            let since = ready.unwrap_or(NOW / 1_000);
            if deadline > 0 { (false, since + deadline) } else { (true, since) }
        };
        for (entity, operation) in entities.iter().zip(&operations) {
            let before = |other: &&(Option<u64>, u64)| other.0.is_some() && key(other) < key(entity);
            let not_after = |other: &&(Option<u64>, u64)| other.0.is_some() && key(other) <= key(entity);
            let run = operation.permit.run;
            // The order of equal deadlines is not checked.
            if entities.iter().filter(before).count() >= k as usize {
                prop_assert!(!run);
            }
            if entities.iter().filter(not_after).count() <= k as usize && entity.0.is_some() {
                prop_assert!(run);
            }
        }
        let ready = entities.iter().filter(|(ready, _)| ready.is_some()).count();
        let running = entities.iter().zip(&operations).filter(|(entity, operation)| entity.0.is_some() && operation.permit.run).count();
        prop_assert_eq!(running, ready.min(k as usize));
    }

    #[test]
    fn devices_have_at_most_k_and_waits_are_needed(
        k in 1u32..4,
        entities in vec(vec((1u32..4, option::weighted(0.8, 0u64..9_000), 0u64..30_000), 1..4), 1..8),
    ) {
        let processes: Vec<Gang> = (1..).zip(&entities).map(|(client, queues)| process(client, 0, queues)).collect();
        let mut engine = engine(PolicyKind::Kedf, &[("k", k.into())]);
        let status = global(processes.clone());
        let operations = engine.decide(&status, Time(NOW)).operations;
        let runs: Vec<_> = operations.iter().map(|operation| operation.permit.run).collect();
        let works = |queue: &&QueueStatus, device: u32| queue.device.0 == device && common::is_ready(queue);
        let load = |device: u32| processes.iter().zip(&runs).filter(|(process, runs)| {
            **runs && process.queues.iter().any(|queue| works(&queue, device))
        }).count();
        for (process, runs) in processes.iter().zip(&runs) {
            for device in 1..4 {
                prop_assert!(load(device) <= k as usize);
            }
            let ready = process.queues.iter().any(common::is_ready);
            let full = process.queues.iter().any(|queue| load(queue.device.0) >= k as usize);
            prop_assert!(!ready || *runs || full);
        }
    }
}
