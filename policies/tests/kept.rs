//! An engine keeps what the queues of an entity say while they have not changed. It decides as if it kept nothing.

mod common;

use common::{gang, global, local, queue};
use policies::registry::{POLICIES, Row};
use policies::{Choice, Engine, registry};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use protocol::bounds::{Priority, StreamPriority, Utilization};
use protocol::codes::{PreemptLevel, QueueClass};
use protocol::event::Event;
use protocol::hint::{Hint, Laxity, QueueHints};
use protocol::ids::{DeviceId, QueueId};
use protocol::policy::PolicyKind;
use protocol::status::{Activity, Counts, Gang, QueueStatus, Queues, Status};
use protocol::time::Time;
use std::num::NonZeroU64;
use std::time::Duration;

const BEGIN: u64 = 1_000_000_000;
/// The gangs of a global status, and the queues of each of them and of a local status.
const GANGS: usize = 4;
const QUEUES: u64 = 4;

#[derive(Debug, Clone)]
enum Change {
    Flip(usize, u64),
    /// A time that does not come from the clock of the decisions.
    Odd(usize, u64, u64),
    Hints(usize, u64, QueueHints),
    Priority(usize, u64, i64),
    Level(usize, u64),
    Launches(usize, u64),
    Destroy(usize, u64),
    Create(usize, u64, u32),
    Leave(usize),
    Join(usize),
    Policy(&'static Row, Option<u32>, f64),
    Pass(u64),
}

fn priority() -> impl Strategy<Value = i64> {
    prop_oneof![1 => Just(-256i64), 8 => -2i64..4]
}

fn hints() -> impl Strategy<Value = QueueHints> {
    (0u64..3_000, 0i64..101, any::<bool>(), priority(), option::of(0u64..30_000_000)).prop_map(
        |(number, percent, preemptible, priority, arrival)| {
            let [lax, critical] = [priority, 3].map(|number| Priority::try_from(number).unwrap());
            QueueHints {
                utilization: Utilization::try_from(percent).unwrap(),
                deadline_us: NonZeroU64::new(number),
                laxity: (number % 2 == 1).then_some(Laxity { us: number % 1_500, lax, critical }),
                preemptible,
                arrival: arrival.map(|nanos| Time(BEGIN + nanos)),
                class: [None, Some(QueueClass::LatencyCritical), Some(QueueClass::BestEffort)]
                    [number as usize % 3],
                stream_priority: StreamPriority::try_from(percent % 3 - 1).unwrap(),
            }
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    let place = || (0..GANGS, 1..=QUEUES);
    let row = (0..POLICIES.len()).prop_map(|place| &POLICIES[place]);
    prop_oneof![
        8 => place().prop_map(|(gang, queue)| Change::Flip(gang, queue)),
        1 => (place(), 0..3 * BEGIN).prop_map(|((gang, queue), at)| Change::Odd(gang, queue, at)),
        2 => (place(), hints()).prop_map(|((gang, queue), hints)| Change::Hints(gang, queue, hints)),
        1 => (place(), priority()).prop_map(|((gang, queue), to)| Change::Priority(gang, queue, to)),
        1 => place().prop_map(|(gang, queue)| Change::Level(gang, queue)),
        1 => place().prop_map(|(gang, queue)| Change::Launches(gang, queue)),
        1 => place().prop_map(|(gang, queue)| Change::Destroy(gang, queue)),
        1 => (place(), 1u32..4).prop_map(|((gang, queue), device)| Change::Create(gang, queue, device)),
        1 => (0..GANGS).prop_map(Change::Leave),
        1 => (0..GANGS).prop_map(Change::Join),
        2 => (row, option::of(1u32..4), 0.0f64..1.0)
            .prop_map(|(row, device, part)| Change::Policy(row, device, part)),
        6 => prop_oneof![0u64..400_000, 0u64..20_000_000].prop_map(Change::Pass),
    ]
}

fn new_gang(number: usize) -> Gang {
    gang(
        number as u64 + 1,
        (1..=QUEUES).map(|id| queue(id, (number as u32 + id as u32) % 3 + 1, 0, false)).collect(),
    )
}

/// The queues of a gang, or all queues of a local status.
fn queues_of(status: &mut Status, number: usize) -> Option<&mut Queues> {
    match status {
        Status::Local { queues, .. } => Some(queues),
        Status::Global { gangs } => {
            gangs.iter_mut().find(|gang| gang.client.0 == number as u64 + 1).map(|gang| &mut gang.queues)
        }
    }
}

/// Changes the status. What concerns a queue that does not exist changes nothing.
fn apply(status: &mut Status, change: &Change, now: Time) {
    match *change {
        Change::Leave(number) => {
            if let Status::Global { gangs } = status {
                gangs.retain(|gang| gang.client.0 != number as u64 + 1);
            }
        }
        Change::Join(number) => {
            if let Status::Global { gangs } = status
                && gangs.iter().all(|gang| gang.client.0 != number as u64 + 1)
            {
                // At the end: also names that do not ascend must work.
                gangs.push(new_gang(number));
            }
        }
        Change::Policy(..) | Change::Pass(_) => {}
        Change::Flip(gang, id)
        | Change::Odd(gang, id, _)
        | Change::Hints(gang, id, _)
        | Change::Priority(gang, id, _)
        | Change::Level(gang, id)
        | Change::Launches(gang, id)
        | Change::Destroy(gang, id)
        | Change::Create(gang, id, _) => {
            let Some(queues) = queues_of(status, gang) else { return };
            let (queue, known) =
                (QueueId(id), queues.iter().find(|queue| queue.queue == QueueId(id)).copied());
            let _ = match *change {
                Change::Flip(..) => match known.map(|known| known.activity) {
                    Some(Activity::Ready { .. }) => queues.apply(&Event::QueueIdle { queue, at: now }),
                    _ => queues.apply(&Event::QueueReady { queue, at: now }),
                },
                Change::Odd(.., at) => {
                    let at = Time(at);
                    let odd = [Activity::Ready { since: at }, Activity::Idle { since: Some(at) }];
                    queues.set_activity(queue, odd[(at.0 % 2) as usize])
                }
                Change::Hints(.., hints) => queues.apply(&Event::Hint(Hint::Queue { queue, hints })),
                Change::Priority(.., to) => {
                    let priority = Priority::try_from(to).unwrap();
                    queues.apply(&Event::Hint(Hint::Priority { queue, priority }))
                }
                Change::Level(..) => queues.set_level(queue, PreemptLevel::Deactivate),
                Change::Launches(..) => {
                    let direct = known.map_or(0, |known| known.counts.direct) + 1;
                    queues.set_counts(queue, Counts { direct, ..Counts::default() })
                }
                Change::Destroy(..) => queues.apply(&Event::QueueDestroyed { queue }),
                Change::Create(.., device) => queues.apply(&Event::QueueCreated {
                    queue,
                    device: DeviceId(device),
                    priority: Priority::DEFAULT,
                    level: PreemptLevel::Interrupt,
                }),
                Change::Leave(_) | Change::Join(_) | Change::Policy(..) | Change::Pass(_) => Ok(()),
            };
        }
    }
}

fn choice(row: &'static Row, part: f64) -> Choice {
    let mut choice = Choice::new(row);
    for parameter in row.parameters {
        let (low, high) = parameter.range;
        let near = parameter.default + (high - low) * part / 1e3;
        choice.values.set(parameter.name, near.clamp(low, high)).unwrap();
    }
    choice
}

/// Returns a status with equal queues of which nothing is known.
fn anew(status: &Status) -> Status {
    let queues = |queues: &Queues| Queues::try_from(Vec::<QueueStatus>::from(queues.clone())).unwrap();
    match status {
        Status::Local { pid, hints, queues: all } => {
            Status::Local { pid: *pid, hints: *hints, queues: queues(all) }
        }
        Status::Global { gangs } => {
            let gangs = gangs.iter().map(|gang| Gang { queues: queues(&gang.queues), ..gang.clone() });
            Status::Global { gangs: gangs.collect() }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6_000))]

    #[test]
    fn engine_decides_as_if_it_kept_nothing(
        row in 0..POLICIES.len(),
        changes in vec(vec(change(), 0..3), 1..30),
        as_local in any::<bool>(),
    ) {
        let mut status = match as_local {
            true => local((1..=QUEUES).map(|id| queue(id, id as u32 % 2 + 1, 0, false)).collect()),
            false => global((0..GANGS).map(new_gang).collect()),
        };
        let mut engines = [0, 1].map(|_| Engine::new(&POLICIES[row], Engine::LINGER));
        engines.iter_mut().for_each(|engine| engine.set_starvation_limit(Some(Duration::from_millis(5))));
        let mut now = Time(BEGIN);
        for changes in &changes {
            for change in changes {
                apply(&mut status, change, now);
                match *change {
                    Change::Pass(nanos) => now = now.after(Duration::from_nanos(nanos)),
                    Change::Policy(row, None, part) => {
                        engines.iter_mut().for_each(|engine| engine.set_policy(choice(row, part)));
                    }
                    Change::Policy(row, Some(device), part) => {
                        let own = |engine: &mut Engine| {
                            engine.set_device_policy(DeviceId(device), Some(choice(row, part)));
                        };
                        engines.iter_mut().for_each(own);
                    }
                    _ => {}
                }
            }
            let [kept, forgot] = &mut engines;
            let one = kept.decide(&status, now);
            let other = forgot.decide(&anew(&status), now);
            prop_assert_eq!(one.operations, other.operations);
            prop_assert_eq!(one.wake, other.wake);
            let (one, other): (Vec<_>, Vec<_>) = (kept.counters().collect(), forgot.counters().collect());
            prop_assert_eq!(one, other);
            // The text shows all that later decisions depend on.
            prop_assert_eq!(format!("{kept:?}"), format!("{forgot:?}"));
        }
    }
}

/// The number of entities whose queues a decision reads.
fn rebuilt(engine: &mut Engine, status: &Status, now: Time) -> usize {
    engine.decide(status, now);
    engine.entities().rebuilt()
}

#[test]
fn decision_reads_only_queues_that_have_changed() {
    let row = registry::find(PolicyKind::Hpf).unwrap();
    let mut engine = Engine::new(row, Engine::LINGER);
    let mut status = global((0..GANGS).map(new_gang).collect());
    let mut now = Time(BEGIN);
    assert_eq!(rebuilt(&mut engine, &status, now), GANGS);
    assert_eq!(rebuilt(&mut engine, &status, now), 0);
    apply(&mut status, &Change::Flip(1, 1), now);
    assert_eq!(rebuilt(&mut engine, &status, now), 1);
    now = now.after(Duration::from_secs(1));
    assert_eq!(rebuilt(&mut engine, &status, now), 0, "a client with work has not changed");
    apply(&mut status, &Change::Flip(1, 1), now);
    assert_eq!(rebuilt(&mut engine, &status, now), 1);
    now = now.after(Engine::LINGER / 2);
    assert_eq!(rebuilt(&mut engine, &status, now), 1, "it lingers");
    now = now.after(Engine::LINGER);
    assert_eq!(rebuilt(&mut engine, &status, now), 1, "it does not linger any more");
    assert_eq!(rebuilt(&mut engine, &status, now), 0);
    apply(&mut status, &Change::Leave(0), now);
    assert_eq!(rebuilt(&mut engine, &status, now), 0, "others do not change with it");
    apply(&mut status, &Change::Join(0), now);
    assert_eq!(rebuilt(&mut engine, &status, now), 1);
}
