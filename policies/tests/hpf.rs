//! HPF on hand-made and on random statuses, through the engine, as queues and as gangs.

mod common;

use common::{entity_queues, gang, global, local, pid, queue, status};
use policies::reason::PRIORITY;
use policies::{Choice, Engine, registry};
use proptest::prelude::*;
use protocol::bounds::{Priority, StreamPriority};
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::operation::{EntityId, Operation, Permit, Reason};
use protocol::policy::PolicyKind;
use protocol::rank_reason::RankReason;
use protocol::status::{Activity, QueueStatus, Status};
use protocol::time::Time;
use std::time::Duration;

const NOW: Time = Time(1_000_000);

fn engine() -> Engine {
    Engine::new(registry::find(PolicyKind::Hpf).unwrap(), Duration::ZERO)
}

fn decide(status: &Status) -> Vec<Operation> {
    let mut engine = engine();
    let decision = engine.decide(status, NOW);
    assert_eq!(decision.wake, None);
    decision.operations.to_vec()
}

/// The decision for each entity in one word: `run` or `stop`, with a `*` if the window limits the entity.
fn words(status: &Status) -> String {
    let word = |operation: &Operation| match (operation.permit.run, operation.permit.limit) {
        (true, false) => "run",
        (true, true) => "run*",
        (false, false) => "stop",
        (false, true) => "stop*",
    };
    decide(status).iter().map(word).collect::<Vec<_>>().join(" ")
}

/// For each entity `1` if its hardware queues go first, else `0`.
fn firsts(queues_first: f64, gangs: &[Row]) -> String {
    let mut choice = registry::find(PolicyKind::Hpf).map(Choice::new).unwrap();
    choice.values.set("queues-first", queues_first).unwrap();
    let queues = |row: &Row| {
        let queues =
            (1..).zip(*row).map(|(id, &(device, priority, ready))| queue(id, device, priority, ready));
        queues.collect::<Vec<_>>()
    };
    let gangs = (1..).zip(gangs).map(|(client, row)| gang(client, queues(row))).collect();
    let mut engine = Engine::new(choice, Duration::ZERO);
    let decision = engine.decide(&global(gangs), NOW);
    decision.operations.iter().map(|operation| if operation.permit.first { '1' } else { '0' }).collect()
}

#[test]
fn hardware_queues_of_the_most_urgent_gangs_go_first() {
    let table: &[(&str, &[Row], &str)] = &[
        ("a gang alone", &[&[(1, 9, true)]], "0"),
        ("beside a lower one, ready or not", &[&[(1, 9, true)], &[(1, 0, false)]], "10"),
        ("while it is idle as well", &[&[(1, 9, false)], &[(1, 0, true)]], "10"),
        ("equals", &[&[(1, 9, true)], &[(1, 9, true)]], "00"),
        ("equals beside a lower one", &[&[(1, 9, true)], &[(1, 9, true)], &[(1, 1, true)]], "110"),
        ("only the highest", &[&[(1, 9, true)], &[(1, 5, true)], &[(1, 1, true)]], "100"),
        ("other devices", &[&[(1, 9, true)], &[(2, 1, true)]], "00"),
        (
            "outranked on another device",
            &[&[(1, 5, true), (2, 5, true)], &[(2, 9, true)], &[(1, 1, true)]],
            "010",
        ),
        ("a low queue of its own", &[&[(1, 9, true), (1, 0, false)], &[(1, 5, true)]], "00"),
        (
            "equals on another device",
            &[&[(1, 5, true), (2, 5, true)], &[(2, 5, true)], &[(1, 1, true)]],
            "000",
        ),
        ("another device alone", &[&[(1, 5, true), (2, 5, true)], &[(1, 1, true)]], "10"),
        (
            "its low queue can be outranked",
            &[&[(1, 9, true), (1, 6, false)], &[(1, 7, true)], &[(1, 1, true)]],
            "000",
        ),
        ("its lowest queue is higher", &[&[(1, 9, true), (1, 6, false)], &[(1, 5, true)]], "10"),
    ];
    for (case, gangs, expected) in table {
        assert_eq!(firsts(1.0, gangs), *expected, "{case}");
        assert_eq!(firsts(0.0, gangs), "0".repeat(expected.len()), "{case}");
    }
}

/// The device, the priority and the readiness of each queue.
type Row<'a> = &'a [(u32, i64, bool)];

#[test]
fn local_queues_run_by_priority() {
    let table: &[(&str, Row, &str)] = &[
        ("no queue", &[], ""),
        ("a single idle queue", &[(1, 0, false)], "run"),
        ("a single ready queue", &[(1, -255, true)], "run"),
        (
            "queues of equal priority run together",
            &[(1, 3, true), (1, 3, true), (1, 3, false)],
            "run run run",
        ),
        ("the higher priority runs", &[(1, 1, true), (1, 2, true)], "stop* run"),
        ("an idle queue of higher priority limits", &[(1, 1, true), (1, 2, false)], "run* run"),
        ("an idle queue of lower priority is suspended", &[(1, 1, false), (1, 2, true)], "stop* run"),
        ("devices are independent", &[(1, 1, true), (2, 2, true)], "run run"),
        ("a priority that never runs", &[(1, -256, true)], "stop*"),
        ("a queue that never runs outranks no other", &[(1, -256, true), (1, -255, true)], "stop* run"),
        (
            "three priorities",
            &[(1, 0, true), (1, 5, true), (1, 255, false), (2, 0, true)],
            "stop* run* run run",
        ),
    ];
    for (case, queues, expected) in table {
        let queues =
            (1..).zip(*queues).map(|(id, &(device, priority, ready))| queue(id, device, priority, ready));
        assert_eq!(words(&local(queues.collect())), *expected, "{case}");
    }
}

/// A queue with work: its device, its priority and the priority of its stream.
fn stream(id: u64, device: u32, priority: i64, stream_priority: i64) -> QueueStatus {
    let mut queue = queue(id, device, priority, true);
    queue.hints.stream_priority = StreamPriority::try_from(stream_priority).unwrap();
    queue
}

#[test]
fn stream_priority_decides_between_local_queues_of_equal_priority() {
    // The case, priority and stream priority of each queue, and the decision for each.
    type Streams<'a> = &'a [(i64, i64)];
    let table: &[(&str, Streams<'_>, &str)] = &[
        ("high and normal", &[(0, 0), (0, 1)], "stop* run"),
        ("normal and low", &[(0, 0), (0, -1)], "run stop*"),
        ("high, high and low", &[(0, 1), (0, 1), (0, -1)], "run run stop*"),
        ("the priority comes first", &[(1, -1), (0, 1)], "run stop*"),
        ("the lowest high one and the highest low one", &[(-255, -1), (-254, -1)], "stop* run"),
    ];
    for (case, queues, expected) in table {
        let queues =
            (1..).zip(*queues).map(|(id, &(priority, of_stream))| stream(id, 1, priority, of_stream));
        assert_eq!(words(&local(queues.collect())), *expected, "{case}");
    }
    let both = local(vec![stream(1, 1, 4, 0), stream(2, 1, 4, 1)]);
    let text = policies::explain(&decide(&both)[0].permit.reason);
    assert!(text.ends_with("has priority 4 as well, and stream priority 1 > 0"), "{text}");
}

#[test]
fn stream_priority_decides_between_gangs_if_the_policy_says_so() {
    let decided = |streams: f64, second: Vec<QueueStatus>| {
        let mut choice = registry::find(PolicyKind::Hpf).map(Choice::new).unwrap();
        choice.values.set("stream-priorities", streams).unwrap();
        let gangs = vec![gang(1, vec![stream(1, 1, 4, 0)]), gang(2, second)];
        let mut engine = Engine::new(choice, Duration::ZERO);
        let decision = engine.decide(&global(gangs), NOW);
        decision.operations.iter().map(|operation| operation.permit.run).collect::<Vec<_>>()
    };
    assert_eq!(decided(0.0, vec![stream(1, 1, 4, 1)]), [true, true]);
    assert_eq!(decided(1.0, vec![stream(1, 1, 4, 1)]), [false, true]);
    assert_eq!(decided(1.0, vec![stream(1, 1, 4, -1)]), [true, false]);
    assert_eq!(
        decided(1.0, vec![stream(1, 1, 4, -1), stream(2, 1, 4, 1)]),
        [false, true],
        "its most urgent queue"
    );
    assert_eq!(decided(1.0, vec![stream(1, 1, 3, 1)]), [true, false], "the priority comes first");
}

#[test]
fn gangs_run_by_priority() {
    // The case, the queues of each gang, and the decision for each gang.
    let table: &[(&str, &[Row], &str)] = &[
        ("a gang without a queue", &[&[], &[(1, 255, true)]], "run* run"),
        (
            "the highest priority of a ready queue counts",
            &[&[(1, 9, true), (1, 0, true)], &[(1, 5, true)]],
            "run* stop*",
        ),
        (
            "an idle queue does not raise the gang",
            &[&[(1, 9, false), (1, 0, true)], &[(1, 5, true)]],
            "stop* run*",
        ),
        (
            "the highest priority of an idle gang counts",
            &[&[(1, 9, false), (1, 0, false)], &[(1, 5, true)]],
            "run* run*",
        ),
        ("its own queue of higher priority limits", &[&[(1, 9, true), (1, 0, true)]], "run*"),
        (
            "a gang runs on all its devices or on none",
            &[&[(1, 5, true), (2, 5, true)], &[(2, 9, true)]],
            "stop* run",
        ),
        (
            "a gang that is outranked on one device suspends no other on the second",
            &[&[(1, 5, true), (2, 5, true)], &[(2, 9, true)], &[(1, 1, true)]],
            "stop* run run*",
        ),
        (
            "a device is unused if all gangs with work on it are outranked on other devices",
            &[&[(1, 5, true), (2, 5, true)], &[(2, 9, true)], &[(3, 0, true)]],
            "stop* run run",
        ),
        (
            "three gangs share three devices pairwise",
            &[&[(1, 3, true), (2, 3, true)], &[(2, 2, true), (3, 2, true)], &[(3, 1, true), (1, 1, true)]],
            "run stop* stop*",
        ),
        (
            "three gangs of equal priority share three devices pairwise",
            &[&[(1, 3, true), (2, 3, true)], &[(2, 3, true), (3, 3, true)], &[(3, 3, true), (1, 3, true)]],
            "run run run",
        ),
        (
            "in a chain the middle gang is suspended, so the last one runs",
            &[&[(1, 9, true)], &[(1, 5, true), (2, 5, true)], &[(2, 1, true)]],
            "run stop* run*",
        ),
        (
            "a gang outranks no other on a device where it has no work",
            &[&[(1, 9, true), (2, 9, false)], &[(2, 1, true)]],
            "run run*",
        ),
        (
            "a gang is outranked on a device where it has no work",
            &[&[(1, 1, true), (2, 1, false)], &[(2, 9, true)]],
            "stop* run",
        ),
        (
            "a queue that never runs does not stop the other queues of its gang",
            &[&[(1, -256, true), (1, 4, true)], &[(1, 3, true)]],
            "run stop*",
        ),
        (
            "all queues of a gang never run",
            &[&[(1, -256, true), (2, -256, false)], &[(1, -255, true)]],
            "stop* run",
        ),
        (
            "a queue that never runs does not count as work",
            &[&[(1, -256, true), (1, 4, false)], &[(1, 3, true)]],
            "run run*",
        ),
    ];
    for (case, gangs, expected) in table {
        let gang = |(client, queues): (u64, &Row)| {
            let queues =
                (1..).zip(*queues).map(|(id, &(device, priority, ready))| queue(id, device, priority, ready));
            gang(client, queues.collect())
        };
        assert_eq!(words(&global((1..).zip(*gangs).map(gang).collect())), *expected, "{case}");
    }
}

#[test]
fn reason_names_the_most_urgent_rival() {
    let status = global(vec![
        gang(1, vec![queue(3, 1, 1, true), queue(4, 2, 1, true)]),
        gang(2, vec![queue(6, 1, 2, true)]),
        gang(3, vec![queue(7, 2, 10, true), queue(8, 2, 9, true), queue(9, 2, 10, true)]),
        gang(4, vec![queue(5, 1, -256, true)]),
    ]);
    let reasons: Vec<_> =
        decide(&status).iter().map(|operation| policies::explain(&operation.permit.reason)).collect();
    assert_eq!(
        reasons,
        [
            "queue 7 of pid 1003 has priority 10 > 1",
            "nothing ranks higher on its devices",
            "nothing ranks higher on its devices",
            "priority -256 never runs",
        ]
    );
    let Reason::Outranked { by, .. } = decide(&status)[0].permit.reason else {
        panic!("the entity is not outranked")
    };
    assert_eq!((by.pid, by.device), (Pid(1003), DeviceId(2)));
}

#[test]
fn reason_among_equals_names_the_one_ready_first() {
    let mut early = queue(2, 1, 9, true);
    early.activity = Activity::Ready { since: Time(5) };
    let status = local(vec![queue(1, 1, 9, true), early, queue(3, 1, 9, true), queue(4, 1, 0, true)]);
    let Reason::Outranked { by, .. } = decide(&status)[3].permit.reason else {
        panic!("the entity is not outranked")
    };
    assert_eq!(by.queue, QueueId(2));
}

/// The entities of a status with their permits. Its methods compute what the rules of HPF depend on.
///
/// Each entity has its queues that may execute, and true if it has no queue at all.
struct Judged {
    entities: Vec<(EntityId, Vec<QueueStatus>, bool)>,
    permits: Vec<Permit>,
}

impl Judged {
    fn new(status: &Status) -> Self {
        let operations = decide(status);
        let entities = entity_queues(status);
        assert_eq!(
            operations.iter().map(|operation| operation.unit).collect::<Vec<_>>(),
            entities.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            "each entity has exactly one operation"
        );
        let executing = |queues: Vec<QueueStatus>| -> Vec<QueueStatus> {
            queues.into_iter().filter(|queue| queue.priority != Priority::NO_EXECUTE).collect()
        };
        let entities = entities
            .into_iter()
            .map(|(id, queues)| (id, executing(queues.clone()), queues.is_empty()))
            .collect();
        Self { entities, permits: operations.iter().map(|operation| operation.permit).collect() }
    }

    fn is_ready(queue: &QueueStatus) -> bool {
        matches!(queue.activity, Activity::Ready { .. })
    }

    fn ready(&self, entity: usize) -> bool {
        self.entities[entity].1.iter().any(Self::is_ready)
    }

    /// Returns the highest priority of the ready queues, or of all queues if none is ready.
    fn priority(&self, entity: usize) -> Option<Priority> {
        let ready = self.ready(entity);
        self.entities[entity]
            .1
            .iter()
            .filter(|queue| !ready || Self::is_ready(queue))
            .map(|queue| queue.priority)
            .max()
    }

    fn works_on(&self, entity: usize, device: DeviceId) -> bool {
        self.entities[entity].1.iter().any(|queue| queue.device == device && Self::is_ready(queue))
    }

    fn uses(&self, entity: usize, device: DeviceId) -> bool {
        self.entities[entity].1.iter().any(|queue| queue.device == device)
    }

    /// Returns true if `above` has work on a device of `below` and a higher priority.
    fn outranks(&self, above: usize, below: usize) -> bool {
        self.ready(above)
            && self.priority(above) > self.priority(below)
            && self.entities[below].1.iter().any(|queue| self.works_on(above, queue.device))
    }

    fn all(&self) -> std::ops::Range<usize> {
        0..self.entities.len()
    }
}

fn by_priority(priority: Priority) -> RankReason {
    PRIORITY.number(priority.into())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn entity_runs_unless_a_more_urgent_one_blocks_it(status in status()) {
        let judged = Judged::new(&status);
        for entity in judged.all() {
            let permit = judged.permits[entity];
            if judged.entities[entity].1.is_empty() {
                // A gang without queues may run. A gang with only queues that never run may not.
                prop_assert_eq!(permit.run, judged.entities[entity].2);
                prop_assert!(permit.limit);
                continue;
            }
            // An entity is suspended exactly if a running one outranks it.
            let outranked = judged.all().any(|other| judged.permits[other].run && judged.outranks(other, entity));
            prop_assert_eq!(permit.run, !outranked, "entity {}", entity);
        }
    }

    #[test]
    fn device_with_work_is_used_unless_all_are_outranked_elsewhere(status in status()) {
        let judged = Judged::new(&status);
        let devices: Vec<_> =
            judged.entities.iter().flat_map(|(_, queues, _)| queues.iter().map(|queue| queue.device)).collect();
        for &device in &devices {
            let working: Vec<_> = judged.all().filter(|&entity| judged.works_on(entity, device)).collect();
            let used = working.iter().any(|&entity| judged.permits[entity].run);
            let elsewhere = |entity: usize| match judged.permits[entity].reason {
                Reason::Outranked { by, .. } => by.device != device && judged.uses(entity, by.device),
                _ => false,
            };
            prop_assert!(working.is_empty() || used || working.iter().all(|&entity| elsewhere(entity)));
        }
        // The entity with work and the highest priority of all runs.
        let top = judged.all().filter(|&entity| judged.ready(entity)).max_by_key(|&entity| judged.priority(entity));
        prop_assert!(top.is_none_or(|entity| judged.permits[entity].run));
    }

    #[test]
    fn entity_without_limit_cannot_be_outranked(status in status()) {
        let judged = Judged::new(&status);
        for entity in judged.all() {
            let queues = &judged.entities[entity].1;
            let Some(floor) = queues.iter().map(|queue| queue.priority).min() else { continue };
            let rival = judged.all().any(|other| {
                let shared = queues.iter().any(|queue| judged.uses(other, queue.device));
                shared && judged.entities[other].1.iter().any(|queue| queue.priority > floor)
            });
            prop_assert_eq!(judged.permits[entity].limit, rival, "entity {}", entity);
        }
    }

    #[test]
    fn reasons_are_true(status in status()) {
        let judged = Judged::new(&status);
        for entity in judged.all() {
            match judged.permits[entity].reason {
                Reason::Unrivalled => prop_assert!(judged.permits[entity].run),
                Reason::NoExecute => prop_assert!(!judged.permits[entity].run && judged.entities[entity].1.is_empty()),
                Reason::Guard
                | Reason::Off
                | Reason::NoRoom
                | Reason::OutrankedByOthers { .. }
                | Reason::Throttled(_)
                | Reason::Job { .. }
                | Reason::Starved { .. } => {
                    prop_assert!(false, "HPF never gives this reason");
                }
                Reason::Outranked { by, own } => {
                    prop_assert!(!judged.permits[entity].run);
                    prop_assert_eq!(Some(own), judged.priority(entity).map(by_priority));
                    let names = |&other: &usize| {
                        pid(judged.entities[other].0) == by.pid
                            && judged.priority(other).map(by_priority) == Some(by.reason)
                            && judged.entities[other].1.iter().any(|queue| queue.queue == by.queue && by_priority(queue.priority) == by.reason)
                            && judged.works_on(other, by.device)
                            && judged.permits[other].run
                            && judged.outranks(other, entity)
                    };
                    prop_assert!(judged.all().any(|other| names(&other)));
                }
            }
        }
    }

    #[test]
    fn status_alone_determines_the_decision(before in status(), status in status()) {
        let fresh = decide(&status);
        let mut engine = engine();
        let _ = engine.decide(&before, Time(0));
        for _ in 0..2 {
            prop_assert_eq!(engine.decide(&status, NOW).operations, fresh.as_slice());
        }
        engine.set_policy(engine.policy());
        prop_assert_eq!(engine.decide(&status, NOW).operations, fresh.as_slice());
    }

    #[test]
    fn queue_and_gang_of_one_queue_are_decided_alike(queues in common::queues()) {
        let gangs = queues.iter().map(|queue| gang(queue.queue.0, vec![*queue])).collect();
        let as_gangs: Vec<_> = decide(&global(gangs)).iter().map(|op| (op.permit.run, op.permit.limit)).collect();
        let as_queues: Vec<_> = decide(&local(queues)).iter().map(|op| (op.permit.run, op.permit.limit)).collect();
        prop_assert_eq!(as_gangs, as_queues);
    }

    #[test]
    fn order_of_gangs_does_not_matter(status in status(), by in 0usize..8) {
        if let Status::Global { mut gangs } = status {
            let by = by.min(gangs.len());
            let mut expected = decide(&global(gangs.clone()));
            expected.rotate_left(by);
            gangs.rotate_left(by);
            prop_assert_eq!(decide(&global(gangs)), expected);
        }
    }
}

#[test]
fn disconnected_client_is_forgotten() {
    let mut engine = engine();
    let low = gang(1, vec![queue(1, 1, 0, true)]);
    let high = gang(2, vec![queue(1, 1, 9, true)]);
    let both = global(vec![low.clone(), high]);
    assert!(!engine.decide(&both, NOW).operations[0].permit.run);
    let alone = global(vec![low]);
    let decision = engine.decide(&alone, NOW).operations.to_vec();
    assert_eq!(decision.len(), 1);
    assert_eq!(decision[0].unit, EntityId::Gang(ClientId(1)));
    assert!(decision[0].permit.run && !decision[0].permit.limit);
}
