//! Permissions of entities with work do not change by themselves before the wake-up that a decision returns.

mod common;

use common::{engine, entity_queues, gang, global, is_ready, queues};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use protocol::hint::{Laxity, ProcessHints};
use protocol::ids::DeviceId;
use protocol::policy::PolicyKind;
use protocol::status::{Activity, Gang, QueueStatus, Status};
use protocol::time::Time;
use std::num::NonZeroU64;

const KINDS: [PolicyKind; 9] = [
    PolicyKind::Hpf,
    PolicyKind::Hhpf,
    PolicyKind::Chpf,
    PolicyKind::Awf,
    PolicyKind::Kedf,
    PolicyKind::Lax,
    PolicyKind::Mlfq,
    PolicyKind::Edf,
    PolicyKind::Gang,
];
/// The shortest time to a wake-up under any policy; what is due by then may be done at once.
const GRAIN: u64 = 100_000;

/// Queues with a deadline and a laxity each, and the job, the window and the nice value of a process.
type Process = (Vec<QueueStatus>, Vec<(Option<u64>, Option<Laxity>)>, u64, bool, i8);

/// Generates processes with hints. The times in their queues do not matter.
fn processes() -> impl Strategy<Value = Vec<Gang>> {
    let laxity = (0u64..40_000, -3i64..4, -3i64..4).prop_map(|(us, lax, critical)| {
        let [lax, critical] = [lax, critical].map(|number| number.try_into().unwrap());
        Laxity { us, lax, critical }
    });
    let hints = (option::of(1u64..60_000), option::of(laxity));
    let process = (queues(), vec(hints, 8), 0u64..3, any::<bool>(), -20i8..20);
    vec(process, 0..7).prop_map(|processes| {
        let made = |(client, (queues, hints, job, window, nice)): (u64, Process)| {
            let hinted = queues.into_iter().zip(hints).map(|(mut queue, (deadline, laxity))| {
                queue.hints.deadline_us = deadline.and_then(NonZeroU64::new);
                queue.hints.laxity = laxity;
                queue
            });
            let process = ProcessHints { job: NonZeroU64::new(job), window, nice, ..ProcessHints::default() };
            Gang { hints: process, ..gang(client, hinted.collect()) }
        };
        (1..).zip(processes).map(made).collect()
    })
}

/// Sets the readiness of the queues, with `now` as the time of each change. Returns the status.
fn at(gangs: &mut [Gang], ready: &[Vec<bool>], now: u64, one_device: bool) -> Status {
    for (gang, ready) in gangs.iter_mut().zip(ready) {
        let mut queues: Vec<QueueStatus> = gang.queues.clone().into();
        for (queue, ready) in queues.iter_mut().zip(ready) {
            queue.activity = match (queue.activity, ready) {
                (Activity::Ready { .. }, false) => Activity::Idle { since: Some(Time(now)) },
                (Activity::Idle { .. }, true) => Activity::Ready { since: Time(now) },
                (same, _) => same,
            };
            if one_device {
                queue.device = DeviceId(1);
            }
        }
        gang.queues = queues.try_into().unwrap();
    }
    global(gangs.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn permissions_hold_until_the_wake_up(
        kind in 0..KINDS.len(),
        gangs in processes(),
        steps in vec((vec(vec(any::<bool>(), 8), 7), 0u64..60_000_000, 0.0f64..1.0), 1..10),
    ) {
        let kind = KINDS[kind];
        // The time of promotion is short, so that promotions happen within the steps.
        let parameters: &[(&str, f64)] = if kind == PolicyKind::Mlfq { &[("promote-ms", 15.0)] } else { &[] };
        let mut engine = engine(kind, parameters);
        let (mut gangs, mut now) = (gangs, 10_000_000_000);
        for (ready, span, part) in steps {
            // On another device an entity that is expected to be done may be overtaken. So EDF gets one device.
            let status = at(&mut gangs, &ready, now, kind == PolicyKind::Edf);
            let decision = engine.decide(&status, Time(now));
            let working = entity_queues(&status);
            let runs = |operations: &[protocol::operation::Operation]| -> Vec<bool> {
                let working = operations.iter().zip(&working).filter(|(_, (_, queues))| queues.iter().any(is_ready));
                working.map(|(operation, _)| operation.permit.run).collect()
            };
            let before = runs(decision.operations);
            let wake = decision.wake.map_or(now + span, |wake| wake.0.min(now + span));
            let last = wake.saturating_sub(GRAIN + 1).max(now);
            let between = now + ((last - now) as f64 * part) as u64;
            let after = runs(engine.decide(&status, Time(between)).operations);
            prop_assert_eq!(before, after, "{} {} ns later, of {}", kind, between - now, wake - now);
            // Now and then the wake-up is late, or something happens at the same time.
            now = wake.max(between);
        }
    }
}
