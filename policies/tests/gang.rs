//! GANG: jobs that run whole or not at all, slices, and no unnecessary waiting.

mod common;

use common::play::{Actor, MS, Setup, Work, play};
use common::{engine, gang, global, is_ready, local, queue, queues, reasons, running};
use policies::Engine;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::bounds::Priority;
use protocol::hint::ProcessHints;
use protocol::ids::DeviceId;
use protocol::operation::Reason;
use protocol::policy::PolicyKind;
use protocol::status::{Activity, Gang, QueueStatus, Status};
use protocol::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::time::Duration;

fn with_slice(ms: f64) -> Engine {
    engine(PolicyKind::Gang, &[("slice-ms", ms)])
}

/// A process: its job, 0 for none, and the device, the priority and the readiness of each queue.
type Process<'a> = (u64, &'a [(u32, i64, bool)]);

fn scenario(processes: &[Process]) -> Status {
    let process = |(client, &(job, row)): (u64, &Process)| {
        let named = (1..).zip(row);
        let queues = named.map(|(id, &(device, priority, ready))| queue(id, device, priority, ready));
        Gang { hints: of_job(job), ..gang(client, queues.collect()) }
    };
    global((1..).zip(processes).map(process).collect())
}

fn of_job(job: u64) -> ProcessHints {
    ProcessHints { job: NonZeroU64::new(job), ..ProcessHints::default() }
}

#[test]
fn jobs_of_different_owners_are_different_jobs() {
    let member = |client, owner, device, priority| Gang {
        owner,
        hints: of_job(7),
        ..gang(client, vec![queue(1, device, priority, true)])
    };
    // The second member of owner 1 is outranked, so owner 1's job waits; owner 2's process of the same number does not.
    let rival = gang(4, vec![queue(1, 2, 5, true)]);
    let status = global(vec![member(1, 1, 1, 1), member(2, 1, 2, 1), member(3, 2, 3, 0), rival]);
    let mut engine = with_slice(0.0);
    let decision = engine.decide(&status, Time(1_000_000));
    let runs: Vec<_> = decision.operations.iter().map(|operation| operation.permit.run).collect();
    assert_eq!(runs, [false, false, true, true]);
}

#[test]
fn jobs_run_whole_or_not() {
    let table: &[(&str, &[Process], &str)] = &[
        ("without jobs the highest priority runs", &[(0, &[(1, 1, true)]), (0, &[(1, 2, true)])], "2"),
        ("processes of equal priority take turns", &[(0, &[(1, 1, true)]), (0, &[(1, 1, true)])], "1"),
        ("devices are independent", &[(0, &[(1, 1, true)]), (0, &[(2, 0, true)])], "1 2"),
        (
            "the members of a job run together",
            &[(7, &[(1, 1, true)]), (7, &[(1, 0, true)]), (0, &[(1, 0, true)])],
            "1 2",
        ),
        (
            "a job waits if one member is outranked",
            &[(7, &[(1, 1, true)]), (7, &[(2, 1, true)]), (0, &[(2, 5, true)])],
            "3",
        ),
        (
            "another process runs on a device of a waiting job",
            &[(7, &[(1, 1, true)]), (7, &[(2, 1, true)]), (0, &[(2, 5, true)]), (0, &[(1, 0, true)])],
            "3 4",
        ),
        (
            "the job has the highest priority of its members",
            &[(7, &[(1, 0, true)]), (7, &[(2, 9, true)]), (0, &[(1, 5, true)])],
            "1 2",
        ),
        (
            "an idle member does not raise the priority of its job",
            &[(7, &[(1, 0, true)]), (7, &[(2, 9, false)]), (0, &[(1, 5, true)])],
            "3",
        ),
        (
            "a job keeps the devices of its idle members free",
            &[(7, &[(1, 5, true)]), (7, &[(2, 5, false)]), (0, &[(2, 0, true)])],
            "1 2",
        ),
        (
            "a job waits if a device of an idle member is taken",
            &[(7, &[(1, 1, true)]), (7, &[(2, 1, false)]), (0, &[(2, 5, true)])],
            "3",
        ),
        (
            "jobs that share only a device without work run together",
            &[(7, &[(1, 1, true)]), (7, &[(2, 1, false)]), (8, &[(2, 0, false)]), (8, &[(3, 0, true)])],
            "1 2 3 4",
        ),
        (
            "an idle job has permission as a whole or not at all",
            &[(7, &[(1, 1, false)]), (7, &[(2, 1, false)]), (0, &[(2, 5, true)])],
            "3",
        ),
        (
            "an idle job has permission if it outranks the processes with work",
            &[(7, &[(1, 1, false)]), (7, &[(2, 9, false)]), (0, &[(2, 5, true)])],
            "1 2 3",
        ),
        (
            "a queue that never runs is no part of its job",
            &[
                (7, &[(1, 1, true), (2, -256, true)]),
                (7, &[(3, -256, true)]),
                (0, &[(2, 0, true), (3, 0, true)]),
            ],
            "1 3",
        ),
        (
            "three jobs share three devices pairwise",
            &[
                (7, &[(1, 1, true)]),
                (8, &[(2, 1, true)]),
                (9, &[(3, 1, true)]),
                (7, &[(2, 1, true)]),
                (8, &[(3, 1, true)]),
                (9, &[(1, 1, true)]),
            ],
            "1 4",
        ),
    ];
    for (case, processes, expected) in table {
        assert_eq!(running(&mut with_slice(100.0), &scenario(processes), 1_000).0, *expected, "{case}");
    }
}

#[test]
fn reasons_name_the_job_and_the_slice() {
    let status =
        scenario(&[(7, &[(1, 1, true)]), (7, &[(2, 1, true)]), (0, &[(2, 5, true)]), (0, &[(2, 5, true)])]);
    assert_eq!(
        reasons(&mut with_slice(100.0), &status, 1_000),
        [
            "pid 1002 of the same job cannot run, and they run together",
            "queue 1 of pid 1003 has priority 5 > 1",
            "nothing ranks higher on its devices",
            "queue 1 of pid 1003 has priority 5 as well, and its turn comes first",
        ]
    );
}

#[test]
fn process_with_its_queues_is_one_job() {
    let queues =
        vec![queue(1, 1, 0, true), queue(2, 1, 9, true), queue(3, 2, 0, true), queue(4, 1, -256, true)];
    assert_eq!(running(&mut with_slice(100.0), &local(queues), 1_000).0, "1 2 3");
}

fn member(job: u64, device: u32, work: Work) -> Actor {
    let mut actor = Actor::new(0, work);
    actor.queues[0].device = DeviceId(device);
    actor.process = of_job(job);
    actor
}

fn in_ms(spans: &[(u64, u64)]) -> Vec<(u64, u64)> {
    spans.iter().map(|&(from, to)| (from / MS, to / MS)).collect()
}

#[test]
fn equal_jobs_alternate() {
    let always = |job, device| member(job, device, Work::Always);
    // Two jobs on the same two devices, and one on a third.
    let actors = [always(7, 1), always(8, 1), always(8, 2), always(7, 2), always(9, 3)];
    let result = play(&mut with_slice(100.0), &actors, Setup::until(500 * MS));
    for place in [0, 3] {
        assert_eq!(in_ms(&result.spans[place]), [(0, 100), (200, 300), (400, 500)]);
    }
    for place in [1, 2] {
        assert_eq!(in_ms(&result.spans[place]), [(100, 200), (300, 400)]);
    }
    assert_eq!(in_ms(&result.spans[4]), [(0, 500)]);
    assert!(result.decisions <= 8, "{}", result.decisions);
    // Beside each other.
    let result = play(&mut with_slice(0.0), &actors, Setup::until(500 * MS));
    assert_eq!(result.used, [250e6, 250e6, 250e6, 250e6, 500e6]);
}

#[test]
fn pause_and_interruption_do_not_cost_a_slice() {
    let steps: Vec<_> = (0..20).map(|number| (number * 10 * MS, 5 * MS)).collect();
    let mut urgent = member(0, 1, Work::Jobs(vec![(40 * MS, 20 * MS)]));
    urgent.queues[0].priority = Priority::MAX;
    let actors = [member(7, 1, Work::Jobs(steps)), member(8, 1, Work::Always), urgent];
    let result = play(&mut with_slice(20.0), &actors, Setup::until(100 * MS));
    // The first job has its 20 ms in parts of 5 ms. In its pauses the other job runs.
    assert_eq!(in_ms(&result.spans[0])[..4], [(0, 5), (10, 15), (20, 25), (30, 35)]);
    assert_eq!(in_ms(&result.spans[2]), [(40, 60)]);
    // Then the other job has its slice of 20 ms: 15 in the pauses and 5 from 35 to 40.
    assert_eq!(in_ms(&result.spans[0])[4], (60, 80));
}

#[test]
fn starving_process_runs_with_its_whole_job() {
    let mut engine = with_slice(100.0);
    engine.set_starvation_limit(Some(Duration::from_millis(50)));
    let mut high = member(0, 1, Work::Always);
    high.queues[0].priority = Priority::MAX;
    let actors = [high, member(7, 1, Work::Always), member(7, 2, Work::Always)];
    let result = play(&mut engine, &actors, Setup::until(110 * MS));
    assert_eq!(in_ms(&result.spans[1]), [(50, 55), (105, 110)]);
    assert_eq!(result.spans[1], result.spans[2]);
}

#[test]
fn job_keeps_devices_of_idle_members() {
    let mut engine = with_slice(100.0);
    engine.set_starvation_limit(Some(Duration::from_millis(50)));
    let high = |device, from| {
        let mut actor = member(0, device, Work::From(from));
        actor.queues[0].priority = Priority::MAX;
        actor
    };
    // The second member has waited for less than the limit when the first one has waited for all of it.
    let actors =
        [high(1, 0), member(7, 1, Work::Always), high(2, 30 * MS), member(7, 2, Work::From(30 * MS))];
    let result = play(&mut engine, &actors, Setup::until(60 * MS));
    assert_eq!(in_ms(&result.spans[1]), [(50, 55)]);
    assert_eq!(in_ms(&result.spans[3]), [(50, 55)]);
    assert_eq!(in_ms(&result.spans[2]), [(30, 50), (55, 60)]);
}

/// A process: its job and its queues.
type Made = (u64, Vec<QueueStatus>);

fn made(gangs: &[Made]) -> Status {
    global(
        (1..)
            .zip(gangs)
            .map(|(client, (job, queues))| Gang { hints: of_job(*job), ..gang(client, queues.clone()) })
            .collect(),
    )
}

/// Returns the jobs as lists of their members, by the index of the process.
fn jobs(gangs: &[Made]) -> Vec<Vec<usize>> {
    let mut jobs: BTreeMap<(u64, usize), Vec<usize>> = BTreeMap::new();
    for (place, (job, queues)) in gangs.iter().enumerate() {
        let runs = queues.is_empty() || queues.iter().any(|queue| queue.priority != Priority::NO_EXECUTE);
        if runs {
            jobs.entry((*job, if *job == 0 { place } else { 0 })).or_default().push(place);
        }
    }
    jobs.into_values().collect()
}

/// Returns the devices on which the members have a queue that can run, and those on which they have work.
fn devices(gangs: &[Made], members: &[usize]) -> (BTreeSet<DeviceId>, BTreeSet<DeviceId>) {
    let queues = || members.iter().flat_map(|&place| &gangs[place].1);
    let used = queues().filter(|queue| queue.priority != Priority::NO_EXECUTE).map(|queue| queue.device);
    let busy = queues().filter(|queue| is_ready(queue)).map(|queue| queue.device);
    (used.collect(), busy.collect())
}

fn highest(gangs: &[Made], members: &[usize]) -> Option<Priority> {
    let queues = members.iter().flat_map(|&place| &gangs[place].1);
    queues.filter(|queue| is_ready(queue)).map(|queue| queue.priority).max()
}

fn check(gangs: &[Made], runs: &[bool], shares: bool) -> Result<(), TestCaseError> {
    let jobs = jobs(gangs);
    let in_the_way = |one: &[usize], other: &[usize]| {
        let ((used, busy), (their_used, their_busy)) = (devices(gangs, one), devices(gangs, other));
        !busy.is_disjoint(&their_used) || !used.is_disjoint(&their_busy)
    };
    let (mut running, mut waiting) = (Vec::new(), Vec::new());
    for job in &jobs {
        let part = job.iter().filter(|&&place| runs[place]).count();
        prop_assert!(part == 0 || part == job.len(), "{:?} run as a whole or not at all", job);
        if let Some(priority) = highest(gangs, job) {
            if part > 0 { running.push((job, priority)) } else { waiting.push((job, priority)) }
        }
    }
    for (number, &(one, priority)) in running.iter().enumerate() {
        for &(other, theirs) in &running[..number] {
            prop_assert!(
                !in_the_way(one, other) || shares && priority == theirs,
                "{:?} and {:?} run together",
                one,
                other
            );
        }
    }
    for (job, priority) in waiting {
        let before = |&(other, theirs): &(&Vec<usize>, Priority)| {
            in_the_way(job, other) && if shares { theirs > priority } else { theirs >= priority }
        };
        prop_assert!(running.iter().any(before), "{:?} waits, and no running job is in its way", job);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn jobs_run_whole_and_wait_only_for_running_jobs(
        gangs in vec((0u64..4, queues()), 0..9),
        steps in vec((vec(vec(any::<bool>(), 8), 9), 1u64..80_000_000), 1..12),
        slice in prop_oneof![Just(0.0), Just(20.0)],
    ) {
        let mut engine = with_slice(slice);
        let mut gangs = gangs;
        let mut now = 10_000_000;
        for (ready, span) in steps {
            for ((_, queues), ready) in gangs.iter_mut().zip(&ready) {
                for (queue, ready) in queues.iter_mut().zip(ready) {
                    queue.activity = match (queue.activity, ready) {
                        (Activity::Ready { .. }, false) => Activity::Idle { since: Some(Time(now)) },
                        (Activity::Idle { .. }, true) => Activity::Ready { since: Time(now) },
                        (same, _) => same,
                    };
                }
            }
            let operations = engine.decide(&made(&gangs), Time(now)).operations;
            let runs: Vec<_> = operations.iter().map(|operation| operation.permit.run).collect();
            check(&gangs, &runs, slice == 0.0)?;
            for operation in operations {
                prop_assert!(!matches!(operation.permit.reason, Reason::Throttled(_)));
            }
            now += span;
        }
    }

    #[test]
    fn single_device_without_slices_and_jobs_is_hpf(gangs in vec(queues(), 0..8)) {
        // Of each process only the queues on its first device.
        let gangs: Vec<Made> = gangs.into_iter().map(|queues| {
            let first = queues.first().map(|queue| queue.device);
            (0, queues.into_iter().filter(|queue| Some(queue.device) == first).collect())
        }).collect();
        let status = made(&gangs);
        let expected = running(&mut engine(PolicyKind::Hpf, &[]), &status, 3_000).0;
        prop_assert_eq!(running(&mut with_slice(0.0), &status, 3_000).0, expected);
    }

    #[test]
    fn equal_jobs_have_equal_time(members in vec(1u32..4, 2..5), devices in 1u32..4) {
        // Each job has members on several devices, all jobs on device 1.
        let jobs = (1..).zip(&members);
        let actors: Vec<_> = jobs.flat_map(|(job, count)| {
            (0..*count).map(move |number| member(job, 1 + number % devices, Work::Always))
        }).collect();
        let length = 100 * members.len() as u64 * 4;
        let result = play(&mut with_slice(100.0), &actors, Setup::until(length * MS));
        for spans in &result.spans {
            let had: u64 = spans.iter().map(|(from, to)| to - from).sum();
            prop_assert_eq!(had, 400 * MS);
        }
    }
}
