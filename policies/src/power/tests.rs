use super::READ;
use crate::reason::UNINTERRUPTED;
use crate::registry;
use crate::{Choice, Engine};
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::hint::{ProcessHints, QueueHints};
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::operation::{Reason, Throttle};
use protocol::policy::PolicyKind;
use protocol::status::{Activity, Counts, Gang, QueueStatus, Queues, Status};
use protocol::time::Time;
use std::time::Duration;

const GPU: DeviceId = DeviceId(1);
const MS: u64 = 1_000_000;
const BEGIN: u64 = 1_000 * MS;

fn engine(budget: f64) -> Engine {
    let mut choice = Choice::new(registry::find(PolicyKind::Power).unwrap());
    choice.values.set("budget-w", budget).unwrap();
    Engine::new(choice, Duration::ZERO)
}

/// Critical and best effort, each with work since a time or without.
fn status(critical: Option<u64>, best: Option<u64>) -> Status {
    let gang = |client: u64, priority: i64, since: Option<u64>| {
        let activity = since.map_or(Activity::Idle { since: None }, |at| Activity::Ready { since: Time(at) });
        let queue = QueueStatus {
            queue: QueueId(1),
            device: GPU,
            priority: Priority::try_from(priority).unwrap(),
            hints: QueueHints::default(),
            level: PreemptLevel::Block,
            activity,
            counts: Counts::default(),
        };
        Gang {
            client: ClientId(client),
            pid: Pid(client as u32),
            owner: 0,
            hints: ProcessHints::default(),
            queues: Queues::try_from(vec![queue]).unwrap(),
        }
    };
    Status::Global { gangs: vec![gang(1, 5, critical), gang(2, 0, best)] }
}

#[test]
fn device_of_another_policy_has_no_budget() {
    const OTHER: DeviceId = DeviceId(2);
    let mut engine = Engine::new(registry::DEFAULT, Duration::ZERO);
    let mut choice = Choice::new(registry::find(PolicyKind::Power).unwrap());
    choice.values.set("budget-w", 200.0).unwrap();
    engine.set_device_policy(GPU, Some(choice));
    let Status::Global { mut gangs } = status(None, Some(BEGIN)) else { unreachable!("made so") };
    let first = *gangs[1].queues.iter().next().unwrap();
    let second = QueueStatus { queue: QueueId(2), device: OTHER, ..first };
    gangs[1].queues = Queues::try_from(vec![first, second]).unwrap();
    let status = Status::Global { gangs };
    let runs = |engine: &mut Engine, device: DeviceId, begin: u64| {
        let rounds = (0..40).map(|round| BEGIN + begin + round * 50 * MS);
        let decide = |now| {
            engine.set_power(device, 300_000, Time(now));
            engine.decide(&status, Time(now)).operations[1].permit.run
        };
        rounds.map(decide).filter(|runs| *runs).count()
    };
    assert_eq!(runs(&mut engine, OTHER, 0), 40);
    assert!(runs(&mut engine, GPU, 2_000 * MS) < 20);
}

/// A device that draws 100 W at rest and 400 W at work; returns the average of the last half in watts, and the part of the
/// time in which best effort ran then.
fn plant(budget: f64, seconds: u64) -> (f64, f64) {
    let mut engine = engine(budget);
    let read = engine.reads_power().map_or(u64::MAX, |read| read.as_nanos() as u64);
    let (mut now, end, mut next_read) = (BEGIN, BEGIN + seconds * 1_000 * MS, BEGIN);
    // The driver's average over a reading.
    let (mut ran_since_read, mut read_at) = (0, BEGIN);
    let (mut energy, mut ran) = (0.0, 0);
    while now < end {
        if now >= next_read {
            let span = (now - read_at).max(1) as f64;
            let watts = 100.0 + 300.0 * ran_since_read as f64 / span;
            engine.set_power(GPU, (watts * 1e3) as u64, Time(now));
            (ran_since_read, read_at, next_read) = (0, now, now.saturating_add(read));
        }
        let decision = engine.decide(&status(None, Some(BEGIN)), Time(now));
        let runs = decision.operations[1].permit.run;
        if let Reason::Throttled(Throttle::Power { budget, .. }) = decision.operations[1].permit.reason {
            assert!(!runs && budget > 0);
        }
        let wake = decision.wake.map_or(u64::MAX, |wake| wake.0);
        let next = wake.min(next_read).min(now + 100 * MS).min(end);
        let span = next - now;
        if runs {
            ran_since_read += span;
        }
        if now >= BEGIN + (end - BEGIN) / 2 {
            energy += span as f64 * if runs { 400.0 } else { 100.0 };
            ran += if runs { span } else { 0 };
        }
        now = next;
    }
    let half = ((end - BEGIN) / 2) as f64;
    (energy / half, ran as f64 / half)
}

#[test]
fn average_power_is_the_budget_without_excess() {
    for (budget, part) in [(150.0, 1.0 / 6.0), (250.0, 0.5), (370.0, 0.9)] {
        let (watts, ran) = plant(budget, 40);
        assert!((watts - budget).abs() < 0.03 * budget, "{watts} W of {budget}");
        assert!((ran - part).abs() < 0.03, "{ran} of {part}");
    }
    assert_eq!(plant(500.0, 4).1, 1.0, "a budget that is never reached withholds nothing");
    assert_eq!(plant(0.0, 4).1, 1.0, "and so does none");
    assert!(plant(90.0, 40).1 < 0.01, "what rest already exceeds leaves nothing to best effort");
}

#[test]
fn zero_budget_is_hpf() {
    let limits = |budget| {
        let operations = engine(budget).decide(&status(Some(BEGIN), None), Time(BEGIN)).operations.to_vec();
        operations.iter().map(|operation| operation.permit.limit).collect::<Vec<_>>()
    };
    assert_eq!(limits(0.0), [false, true], "nobody could outrank the first one");
    assert_eq!(limits(300.0), [true, true]);
}

#[test]
fn critical_work_is_never_throttled() {
    let mut engine = engine(100.0);
    for number in 0..200 {
        let now = BEGIN + number * READ.as_nanos() as u64;
        engine.set_power(GPU, 400_000, Time(now));
        assert!(engine.decide(&status(Some(BEGIN), Some(BEGIN)), Time(now)).operations[0].permit.run);
    }
}

#[test]
fn critical_work_waits_briefly_without_saved_energy() {
    // At its budget: nothing is saved up.
    let mut engine = engine(400.0);
    engine.set_power(GPU, 400_000, Time(BEGIN));
    assert!(engine.decide(&status(None, Some(BEGIN)), Time(BEGIN)).operations[1].permit.run);
    let arrival = BEGIN + MS;
    let decision = engine.decide(&status(Some(arrival), Some(BEGIN)), Time(arrival));
    let Reason::Outranked { by, .. } = decision.operations[0].permit.reason else { panic!("{decision:?}") };
    assert_eq!((by.reason, decision.wake), (UNINTERRUPTED.plain(), Some(Time(arrival + MS))));
    // As long as that, and no longer; nor if it is asked in between.
    assert!(
        !engine.decide(&status(Some(arrival), Some(BEGIN)), Time(arrival + MS / 2)).operations[0].permit.run
    );
    let operations = engine.decide(&status(Some(arrival), Some(BEGIN)), Time(arrival + MS)).operations;
    assert!(operations[0].permit.run && !operations[1].permit.run);
}

#[test]
fn critical_work_does_not_wait_with_saved_energy() {
    let mut engine = engine(400.0);
    for (number, at) in [(0, BEGIN), (1, BEGIN + 50 * MS)] {
        engine.set_power(GPU, 395_000, Time(at));
        let operations = engine.decide(&status(None, Some(BEGIN)), Time(at)).operations;
        assert!(operations[1].permit.run, "{number}");
    }
    // 5 W below for 50 ms are 250 mJ; each suspension takes 10.
    let mut spared = 0;
    for number in 2..60 {
        let arrival = BEGIN + 50 * MS + number * MS;
        let operations = engine.decide(&status(Some(arrival), Some(BEGIN)), Time(arrival)).operations;
        if operations[0].permit.run {
            spared += 1;
        }
        let _ = engine.decide(&status(None, Some(BEGIN)), Time(arrival + MS / 2));
    }
    assert_eq!(spared, 25);
}

#[test]
fn stale_reading_is_ignored() {
    let mut engine = engine(100.0);
    for number in 0..100 {
        let now = BEGIN + number * 50 * MS;
        engine.set_power(GPU, 400_000, Time(now));
        let _ = engine.decide(&status(None, Some(BEGIN)), Time(now));
    }
    let last = BEGIN + 99 * 50 * MS;
    assert!(!engine.decide(&status(None, Some(BEGIN)), Time(last + 15 * MS)).operations[1].permit.run);
    assert!(engine.decide(&status(None, Some(BEGIN)), Time(last + 2_000 * MS)).operations[1].permit.run);
}
