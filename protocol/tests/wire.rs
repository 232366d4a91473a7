//! Everything that crosses a process border as JSON survives the way there and back. Invalid values are
//! refused. The bytes of binary messages stay.

mod common;

use common::hints;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use protocol::bounds::Priority;
use protocol::codes::{PreemptLevel, QueueClass};
use protocol::event::Event;
use protocol::hint::{Hint, ProcessHints, QueueHints};
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::operation::{EntityId, Operation, Permit, Reason, Rival, Share, Throttle, Window};
use protocol::rank_reason::{Label, RankReason, RankValue};
use protocol::status::{Activity, Counts, Gang, QueueStatus, Queues, Status};
use protocol::time::Time;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

fn there_and_back<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

fn priority() -> impl Strategy<Value = Priority> {
    Priority::RANGE.prop_map(|number| Priority::try_from(number).unwrap())
}

fn level() -> impl Strategy<Value = PreemptLevel> {
    prop::sample::select(PreemptLevel::ALL)
}

fn time() -> impl Strategy<Value = Time> {
    any::<u64>().prop_map(Time)
}

fn queue() -> impl Strategy<Value = QueueId> {
    any::<u64>().prop_map(QueueId)
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (queue(), any::<u32>(), priority(), level()).prop_map(|(queue, device, priority, level)| {
            Event::QueueCreated { queue, device: DeviceId(device), priority, level }
        }),
        queue().prop_map(|queue| Event::QueueDestroyed { queue }),
        (queue(), time()).prop_map(|(queue, at)| Event::QueueReady { queue, at }),
        (queue(), time()).prop_map(|(queue, at)| Event::QueueIdle { queue, at }),
        (queue(), priority()).prop_map(|(queue, priority)| Event::Hint(Hint::Priority { queue, priority })),
        (queue(), hints()).prop_map(|(queue, hints)| Event::Hint(Hint::Queue { queue, hints: hints.queue })),
    ]
}

fn rank_reason() -> impl Strategy<Value = RankReason> {
    let value = prop_oneof![
        Just(RankValue::None),
        any::<bool>().prop_map(RankValue::Flag),
        any::<i64>().prop_map(RankValue::Number),
        any::<[i64; 2]>()
            .prop_map(|[class, us]| RankValue::Pair([(Label::new("class"), class), (Label::new("us"), us)])),
    ];
    let name =
        prop::sample::select(&["Priority", "NoDeadline", "Window", "ClassTurn", "ALongNameOf16Byt"][..]);
    (name, value).prop_map(|(name, value)| RankReason { name: Label::new(name), value })
}

fn operation() -> impl Strategy<Value = Operation> {
    let unit = prop_oneof![
        any::<u64>().prop_map(|client| EntityId::Gang(ClientId(client))),
        queue().prop_map(EntityId::Queue),
    ];
    let rival =
        (any::<u32>(), queue(), any::<u32>(), rank_reason()).prop_map(|(pid, queue, device, reason)| Rival {
            pid: Pid(pid),
            queue,
            device: DeviceId(device),
            reason,
        });
    let throttle = prop_oneof![
        any::<u32>().prop_map(|percent| Throttle::Share { percent }),
        any::<[u64; 2]>().prop_map(|[milliwatts, budget]| Throttle::Power { milliwatts, budget }),
        Just(Throttle::NoExecute),
        Just(Throttle::Turn),
        any::<[u64; 2]>().prop_map(|[p99_us, target_us]| Throttle::Latency { p99_us, target_us }),
    ];
    let reason = prop_oneof![
        Just(Reason::Unrivalled),
        Just(Reason::NoExecute),
        Just(Reason::Guard),
        Just(Reason::Off),
        Just(Reason::NoRoom),
        (any::<u32>(), rank_reason())
            .prop_map(|(device, own)| Reason::OutrankedByOthers { device: DeviceId(device), own }),
        (rival, rank_reason()).prop_map(|(by, own)| Reason::Outranked { by, own }),
        throttle.prop_map(Reason::Throttled),
        any::<u32>().prop_map(|pid| Reason::Job { pid: Pid(pid) }),
        any::<u64>().prop_map(|waited_ms| Reason::Starved { waited_ms }),
    ];
    let window = any::<u16>().prop_map(|micros| Window::at_most(Duration::from_micros(micros.into())));
    let share = any::<u8>().prop_map(|percent| Share::of_percent(percent.into()));
    (unit, any::<[bool; 3]>(), window, share, reason).prop_map(
        |(unit, [run, limit, first], window, share, reason)| {
            let permit = Permit { run, limit, window, share, first, reason };
            Operation { unit, permit }
        },
    )
}

fn queues() -> impl Strategy<Value = Queues> {
    let activity = prop_oneof![
        time().prop_map(|since| Activity::Ready { since }),
        option::of(time()).prop_map(|since| Activity::Idle { since }),
    ];
    let counts =
        any::<[u64; 6]>().prop_map(|[pending, in_flight, direct, deferred, suspensions, suspended_ns]| {
            Counts { pending, in_flight, direct, deferred, suspensions, suspended_ns }
        });
    let hints = hints().prop_map(|hints| hints.queue);
    let rest = (any::<u32>(), priority(), hints, level(), activity, counts);
    prop::collection::btree_map(queue(), rest, 0..4).prop_map(|queues| {
        let status = |(queue, (device, priority, hints, level, activity, counts))| QueueStatus {
            queue,
            device: DeviceId(device),
            priority,
            hints,
            level,
            activity,
            counts,
        };
        Queues::try_from(queues.into_iter().map(status).collect::<Vec<_>>()).unwrap()
    })
}

fn status() -> impl Strategy<Value = Status> {
    // The nice value is no row of the table: the server reads it.
    let process = || (hints(), any::<i8>()).prop_map(|(hints, nice)| ProcessHints { nice, ..hints.process });
    let gang = (any::<u64>(), any::<[u32; 2]>(), process(), queues()).prop_map(
        |(client, [pid, owner], hints, queues)| Gang {
            client: ClientId(client),
            pid: Pid(pid),
            owner,
            hints,
            queues,
        },
    );
    prop_oneof![
        (any::<u32>(), process(), queues()).prop_map(|(pid, hints, queues)| Status::Local {
            pid: Pid(pid),
            hints,
            queues
        }),
        vec(gang, 0..4).prop_map(|gangs| Status::Global { gangs }),
    ]
}

proptest! {
    #[test]
    fn event_there_and_back_is_the_same(event in event()) {
        prop_assert_eq!(there_and_back(&event), event);
    }

    #[test]
    fn operation_there_and_back_is_the_same(operation in operation()) {
        prop_assert_eq!(there_and_back(&operation), operation);
    }

    #[test]
    fn status_there_and_back_is_the_same(status in status()) {
        prop_assert_eq!(there_and_back(&status), status);
    }

    #[test]
    fn priority_out_of_range_is_refused(number in any::<i32>()) {
        let json = format!(r#"{{"Hint":{{"Priority":{{"queue":1,"priority":{number}}}}}}}"#);
        let fits = Priority::RANGE.contains(&i64::from(number));
        prop_assert_eq!(serde_json::from_str::<Event>(&json).is_ok(), fits);
    }

    #[test]
    fn queues_after_any_events_are_sorted_and_there_and_back_the_same(events in vec((0u64..6, event()), 0..40)) {
        let mut queues = Queues::default();
        for (name, event) in events {
            // Few names, so that the events meet.
            let queue = QueueId(name);
            let event = match event {
                Event::QueueCreated { device, priority, level, .. } => {
                    Event::QueueCreated { queue, device, priority, level }
                }
                Event::QueueDestroyed { .. } => Event::QueueDestroyed { queue },
                Event::QueueReady { at, .. } => Event::QueueReady { queue, at },
                Event::QueueIdle { at, .. } => Event::QueueIdle { queue, at },
                Event::Hint(Hint::Priority { priority, .. }) => Event::Hint(Hint::Priority { queue, priority }),
                Event::Hint(Hint::Queue { hints, .. }) => Event::Hint(Hint::Queue { queue, hints }),
            };
            let before = queues.clone();
            if queues.apply(&event).is_err() {
                prop_assert_eq!(&queues, &before);
            }
            prop_assert!(queues.is_sorted_by(|a, b| a.queue < b.queue));
        }
        prop_assert_eq!(there_and_back(&queues), queues);
    }
}

/// Clients and servers of different builds talk to each other, so the bytes of a message stay.
#[test]
fn message_bytes_never_change() {
    use protocol::cost::{CostKey, EvictCost};
    use protocol::message::{ToClient, ToServer};
    let (queue, priority) = (QueueId(0x0102_0304_0506_0708), Priority::try_from(-3).unwrap());
    let level = PreemptLevel::Interrupt;
    let key = CostKey::new(9).unwrap();
    let classed = QueueHints { class: Some(QueueClass::BestEffort), ..QueueHints::default() };
    let messages = [
        ToServer::Hello { pid: 7, name: "ä".to_owned() }.encode(),
        ToServer::QueueCreated { queue, slot: 5, device: DeviceId(6), priority, level }.encode(),
        ToServer::QueueDestroyed { queue }.encode(),
        ToServer::Priority { queue, priority }.encode(),
        ToServer::Level { queue, level }.encode(),
        ToServer::Preemption { in_force: level, how: "x".to_owned() }.encode(),
        ToServer::EvictCost { key, cost: EvictCost::new(10, 11) }.encode(),
        ToServer::EvictCost { key, cost: None }.encode(),
        ToServer::QueueHints { queue, hints: QueueHints::default() }.encode(),
        ToServer::QueueHints { queue, hints: classed }.encode(),
        ToServer::ProcessHints { hints: ProcessHints::default() }.encode(),
        ToClient::Welcome { client: ClientId(1), now: Time(2), server: 3 }.encode(),
        ToClient::Refused { reason: "no".to_owned() }.encode(),
    ];
    let hex = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let all: Vec<_> = messages.iter().map(hex).collect();
    assert_eq!(
        all,
        [
            "4749565703000100070000000700000002c3a4",
            "47495657030002001800000008070605040302010500000006000000fdffffff03000000",
            "4749565703000300080000000807060504030201",
            "47495657030004000c0000000807060504030201fdffffff",
            "47495657030005000c000000080706050403020103000000",
            "474956570300060006000000030000000178",
            "47495657030009001800000009000000000000000a000000000000000b00000000000000",
            "474956570300090018000000090000000000000000000000000000000000000000000000",
            "474956570300070030000000080706050403020104000000640000000000000000000000000000000000000000000000000000000000000000000000",
            "47495657030007003c000000080706050403020104000000640000000000000000000000000000000000000000000000000000000000000000000000010000000200000000000000",
            "47495657030008001c00000064000000000000000000000000000000000000000000000000000000",
            "4749565703000101140000000100000000000000020000000000000003000000",
            "474956570300020103000000026e6f",
        ]
    );
}
