//! HHPF, CHPF and AWF: priorities over all devices, nice values, and the active window.

mod common;

use common::{engine, entity_queues, gang, global, is_ready, local, queue, reasons, running, status};
use proptest::prelude::*;
use protocol::bounds::Priority;
use protocol::hint::ProcessHints;
use protocol::ids::{ClientId, DeviceId};
use protocol::policy::PolicyKind;
use protocol::status::{Gang, QueueStatus, Status};
use protocol::time::Time;

/// The device, the priority and the readiness of each queue of each gang.
type Row<'a> = &'a [&'a [(u32, i64, bool)]];

fn gangs(rows: Row) -> Vec<Gang> {
    let queues = |row: &[(u32, i64, bool)]| {
        let named = (1..).zip(row);
        named.map(|(id, &(device, priority, ready))| queue(id, device, priority, ready)).collect()
    };
    (1..).zip(rows).map(|(client, row)| gang(client, queues(row))).collect()
}

/// Returns a status of these gangs with hints for their processes.
fn hinted(rows: Row, hints: impl Fn(ClientId) -> ProcessHints) -> Status {
    let gangs = gangs(rows).into_iter();
    global(gangs.map(|gang| Gang { hints: hints(gang.client), ..gang }).collect())
}

#[test]
fn hhpf_looks_at_all_devices() {
    let table: &[(&str, Row, &str)] = &[
        (
            "the highest priority of all devices runs",
            &[&[(1, 5, true)], &[(2, 3, true)], &[(3, 5, true)]],
            "1 3",
        ),
        ("an idle gang suspends no other", &[&[(1, 5, false)], &[(2, 3, true)]], "1 2"),
        (
            "an idle gang has permission only if it would run",
            &[&[(1, 5, true)], &[(2, 3, false)], &[(2, 9, false)]],
            "1 3",
        ),
        ("a gang that never runs does not count", &[&[(1, -256, true)], &[(2, -255, true)]], "2"),
        (
            "the highest priority of a gang counts on all its devices",
            &[&[(1, 1, true), (2, 7, true)], &[(3, 6, true)], &[(4, 7, true)]],
            "1 3",
        ),
    ];
    for (case, rows, expected) in table {
        let status = global(gangs(rows));
        assert_eq!(
            running(&mut engine(PolicyKind::Hhpf, &[]), &status, 1_000),
            ((*expected).into(), None),
            "{case}"
        );
    }
}

#[test]
fn hhpf_leaves_a_device_with_its_own_policy_alone() {
    let mut engine = engine(PolicyKind::Hhpf, &[]);
    engine.set_device_policy(DeviceId(2), Some(policies::registry::DEFAULT.into()));
    let status = global(gangs(&[&[(1, 5, true)], &[(2, 3, true)], &[(3, 3, true)]]));
    assert_eq!(running(&mut engine, &status, 1_000).0, "1 2");
}

fn on_one_device(status: Status) -> Status {
    let moved = |queues: &[QueueStatus]| {
        queues.iter().map(|queue| QueueStatus { device: DeviceId(1), ..*queue }).collect::<Vec<_>>()
    };
    match status {
        Status::Local { queues, .. } => local(moved(&queues)),
        Status::Global { gangs } => {
            global(gangs.iter().map(|one| gang(one.client.0, moved(&one.queues))).collect())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn hhpf_on_one_device_is_hpf(status in status()) {
        let status = on_one_device(status);
        let mut hpf = engine(PolicyKind::Hpf, &[]);
        let expected = hpf.decide(&status, Time(3_000)).operations.to_vec();
        let mut hhpf = engine(PolicyKind::Hhpf, &[]);
        prop_assert_eq!(hhpf.decide(&status, Time(3_000)).operations, expected.as_slice());
    }

    #[test]
    fn hhpf_runs_exactly_the_highest_priority_of_all(status in status()) {
        let entities = entity_queues(&status);
        let highest = |queues: &[QueueStatus]| queues.iter().filter(|queue| is_ready(queue)).map(|queue| queue.priority).max();
        let top = entities.iter().filter_map(|(_, queues)| highest(queues)).max();
        let mut engine = engine(PolicyKind::Hhpf, &[]);
        for (operation, (_, queues)) in engine.decide(&status, Time(3_000)).operations.iter().zip(&entities) {
            if let Some(own) = highest(queues) {
                prop_assert_eq!(operation.permit.run, Some(own) == top);
            }
        }
    }

    #[test]
    fn chpf_is_hpf_with_the_nice_value_for_the_priority(status in status(), nice in prop::collection::vec(-20i8..20, 8)) {
        let Status::Global { gangs } = status else { return Ok(()) };
        let nice = |client: ClientId| nice[client.0 as usize % 8];
        let polite = gangs.iter().map(|gang| Gang {
            hints: ProcessHints { nice: nice(gang.client), ..ProcessHints::default() },
            ..gang.clone()
        });
        let ranked = gangs.iter().map(|one| {
            let priority = |queue: &QueueStatus| match queue.priority {
                Priority::NO_EXECUTE => queue.priority,
                _ => Priority::try_from(-i64::from(nice(one.client))).unwrap(),
            };
            let queues = one.queues.iter().map(|queue| QueueStatus { priority: priority(queue), ..*queue });
            gang(one.client.0, queues.collect())
        });
        let one = running(&mut engine(PolicyKind::Chpf, &[]), &global(polite.collect()), 3_000);
        let other = running(&mut engine(PolicyKind::Hpf, &[]), &global(ranked.collect()), 3_000);
        prop_assert_eq!(one, other);
    }
}

#[test]
fn chpf_goes_by_nice_values() {
    let nice = |values: [i8; 3]| {
        move |client: ClientId| ProcessHints {
            nice: values[client.0 as usize - 1],
            ..ProcessHints::default()
        }
    };
    let rows: Row = &[&[(1, 0, true)], &[(1, 200, true)], &[(1, 0, true)]];
    let mut engine = engine(PolicyKind::Chpf, &[]);
    assert_eq!(running(&mut engine, &hinted(rows, nice([-5, 0, 0])), 1_000).0, "1");
    assert_eq!(running(&mut engine, &hinted(rows, nice([5, 0, 0])), 1_000).0, "2 3");
    let status = hinted(rows, nice([5, -20, 19]));
    assert_eq!(
        reasons(&mut engine, &status, 1_000)[2],
        "queue 1 of pid 1002 has nice value -20 < 19",
        "the nice value counts, not the priority"
    );
    let limited =
        engine.decide(&status, Time(1_000)).operations.iter().all(|operation| operation.permit.limit);
    assert!(limited, "all entities are limited, because nice values change without an event");
    // All queues of a process have the same nice value.
    let status = local(vec![queue(1, 1, 0, true), queue(2, 1, 9, true), queue(3, 1, -256, true)]);
    assert_eq!(running(&mut engine, &status, 1_000).0, "1 2");
}

#[test]
fn awf_keeps_the_devices_of_the_window_for_it() {
    let window = |owners: &'static [u64]| {
        move |client: ClientId| ProcessHints { window: owners.contains(&client.0), ..ProcessHints::default() }
    };
    let table: &[(&str, &'static [u64], Row, &str)] = &[
        ("no client owns the window", &[], &[&[(1, 0, true)], &[(1, 9, true)]], "1 2"),
        (
            "the owner of the window runs alone",
            &[1],
            &[&[(1, 0, true)], &[(1, 9, true)], &[(1, 0, false)]],
            "1",
        ),
        (
            "the others run while the owner has no work",
            &[1],
            &[&[(1, 0, false)], &[(1, 9, true)], &[(1, 0, true)]],
            "1 2 3",
        ),
        (
            "a device that the owner does not use",
            &[1],
            &[&[(1, 0, true)], &[(2, 0, true)], &[(1, 0, true), (2, 0, true)]],
            "1 2",
        ),
        (
            "a device on which the owner has no work",
            &[1],
            &[&[(1, 0, true), (2, 0, false)], &[(2, 0, true)]],
            "1 2",
        ),
        ("two owners", &[1, 2], &[&[(1, 0, true)], &[(1, 9, true)], &[(1, 9, true)]], "1 2"),
        ("an owner that never runs", &[1], &[&[(1, -256, true)], &[(1, 0, true)]], "2"),
    ];
    for (case, owners, rows, expected) in table {
        let (runs, wake) = running(&mut engine(PolicyKind::Awf, &[]), &hinted(rows, window(owners)), 1_000);
        assert_eq!((runs.as_str(), wake), (*expected, None), "{case}");
    }
    let status = hinted(&[&[(1, 0, true)], &[(1, 9, true)]], window(&[1]));
    assert_eq!(
        reasons(&mut engine(PolicyKind::Awf, &[]), &status, 1_000)[1],
        "queue 1 of pid 1001 owns the active window, this one does not own the active window"
    );
    // The other client becomes the owner of the window.
    let mut engine = engine(PolicyKind::Awf, &[]);
    let rows: Row = &[&[(1, 0, true)], &[(1, 0, true)]];
    assert_eq!(running(&mut engine, &hinted(rows, window(&[1])), 1_000).0, "1");
    assert_eq!(running(&mut engine, &hinted(rows, window(&[2])), 2_000).0, "2");
}
