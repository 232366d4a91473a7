//! Statuses by hand and at random.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod plant;
pub mod play;
pub mod shares;
pub mod trace;

use policies::{Choice, Engine, registry};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::hint::{ProcessHints, QueueHints};
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::operation::EntityId;
use protocol::policy::PolicyKind;
use protocol::status::{Activity, Counts, Gang, QueueStatus, Queues, Status};
use protocol::time::Time;
use std::time::Duration;

pub fn queue(id: u64, device: u32, priority: i64, ready: bool) -> QueueStatus {
    let activity = if ready { Activity::Ready { since: Time(100) } } else { Activity::Idle { since: None } };
    QueueStatus {
        queue: QueueId(id),
        device: DeviceId(device),
        priority: Priority::try_from(priority).unwrap(),
        hints: QueueHints::default(),
        level: PreemptLevel::Interrupt,
        activity,
        counts: Counts::default(),
    }
}

/// The process whose queues a local status has.
const OWN: Pid = Pid(4242);

/// The process of an entity, as the statuses have it.
pub fn pid(entity: EntityId) -> Pid {
    match entity {
        EntityId::Gang(client) => Pid(1000 + client.0 as u32),
        EntityId::Queue(_) => OWN,
    }
}

pub fn local(queues: Vec<QueueStatus>) -> Status {
    Status::Local { pid: OWN, hints: ProcessHints::default(), queues: Queues::try_from(queues).unwrap() }
}

pub fn gang(client: u64, queues: Vec<QueueStatus>) -> Gang {
    Gang {
        client: ClientId(client),
        pid: pid(EntityId::Gang(ClientId(client))),
        owner: 0,
        hints: ProcessHints::default(),
        queues: Queues::try_from(queues).unwrap(),
    }
}

pub fn global(gangs: Vec<Gang>) -> Status {
    Status::Global { gangs }
}

/// Every entity with all its queues.
pub fn entity_queues(status: &Status) -> Vec<(EntityId, Vec<QueueStatus>)> {
    match status {
        Status::Local { queues, .. } => {
            queues.iter().map(|queue| (EntityId::Queue(queue.queue), vec![*queue])).collect()
        }
        Status::Global { gangs } => {
            gangs.iter().map(|gang| (EntityId::Gang(gang.client), gang.queues.to_vec())).collect()
        }
    }
}

/// The latest time in a status.
pub fn latest(status: &Status) -> u64 {
    let entities = entity_queues(status);
    let times = entities.iter().flat_map(|(_, queues)| queues).map(|queue| match queue.activity {
        Activity::Ready { since } | Activity::Idle { since: Some(since) } => since.0,
        Activity::Idle { since: None } => 0,
    });
    times.max().unwrap_or(0)
}

/// Queues of one process: few devices and few priorities, so that they meet; idle ones have not run lately.
pub fn queues() -> impl Strategy<Value = Vec<QueueStatus>> {
    let priority = prop_oneof![
        1 => Just(-256i64),
        1 => Just(-255),
        6 => 0i64..4,
        1 => Just(255),
    ];
    let activity = prop_oneof![
        3 => (0u64..2_000).prop_map(|since| Activity::Ready { since: Time(since) }),
        1 => (0u64..2_000).prop_map(|since| Activity::Idle { since: Some(Time(since)) }),
        1 => Just(Activity::Idle { since: None }),
    ];
    vec((1u32..5, priority, activity), 0..8).prop_map(|queues| {
        let numbered = (1..).zip(queues);
        numbered
            .map(|(id, (device, priority, activity))| QueueStatus {
                activity,
                ..queue(id, device, priority, false)
            })
            .collect()
    })
}

/// Any status.
pub fn status() -> impl Strategy<Value = Status> {
    let gangs = vec(queues(), 0..8);
    prop_oneof![
        1 => queues().prop_map(local),
        4 => gangs.prop_map(|gangs| global((1..).zip(gangs).map(|(client, queues)| gang(client, queues)).collect())),
    ]
}

/// An engine with this policy and these of its parameters set, without a linger.
pub fn engine(kind: PolicyKind, parameters: &[(&str, f64)]) -> Engine {
    let mut choice = Choice::new(registry::find(kind).unwrap());
    parameters.iter().for_each(|(name, value)| choice.values.set(name, *value).unwrap());
    Engine::new(choice, Duration::ZERO)
}

/// Returns the numbers of the entities that may run, beginning with 1, and the time of the wake-up.
pub fn running(engine: &mut Engine, status: &Status, now: u64) -> (String, Option<u64>) {
    let decision = engine.decide(status, Time(now));
    let places = (1..).zip(decision.operations).filter(|(_, operation)| operation.permit.run);
    let places: Vec<_> = places.map(|(place, _): (u64, _)| place.to_string()).collect();
    (places.join(" "), decision.wake.map(|wake| wake.0))
}

/// Returns the reason of each entity.
pub fn reasons(engine: &mut Engine, status: &Status, now: u64) -> Vec<String> {
    let operations = engine.decide(status, Time(now)).operations;
    operations.iter().map(|operation| policies::explain(&operation.permit.reason)).collect()
}

/// Returns true if the queue has work that may run.
pub fn is_ready(queue: &QueueStatus) -> bool {
    queue.priority != Priority::NO_EXECUTE && matches!(queue.activity, Activity::Ready { .. })
}
