//! The linger: a queue that has just turned idle still counts as ready, and the engine tells when that ends.

mod common;

use common::{gang, global, local, queue, running};
use policies::{Choice, Engine, registry};
use proptest::prelude::*;
use protocol::hint::QueueHints;
use protocol::policy::PolicyKind;
use protocol::status::{Activity, QueueStatus, Status};
use protocol::time::Time;
use std::time::Duration;

const LINGER: Duration = Duration::from_nanos(200);

/// Returns true if the low entity runs at this time, and the wake-up.
fn low_runs(status: &Status, now: u64) -> (bool, Option<u64>) {
    let mut engine = Engine::new(registry::DEFAULT, LINGER);
    let decision = engine.decide(status, Time(now));
    (decision.operations[0].permit.run, decision.wake.map(|wake| wake.0))
}

#[test]
fn short_gap_resumes_no_other_queue() {
    let mut high = queue(2, 1, 9, false);
    high.activity = Activity::Idle { since: Some(Time(1_000)) };
    let low = queue(1, 1, 0, true);
    let statuses = [local(vec![low, high]), global(vec![gang(1, vec![low]), gang(2, vec![high])])];
    for status in &statuses {
        assert_eq!(low_runs(status, 1_000), (false, Some(1_200)));
        assert_eq!(low_runs(status, 1_199), (false, Some(1_200)));
        assert_eq!(low_runs(status, 1_200), (true, None));
        // A time in the future, from another clock or from a false value, delays no decision beyond a linger.
        assert_eq!(low_runs(status, 10), (false, Some(210)));
    }
}

#[test]
fn gang_keeps_the_priority_of_a_lingering_queue() {
    let mut high = queue(2, 1, 9, false);
    high.activity = Activity::Idle { since: Some(Time(1_000)) };
    let status = global(vec![gang(1, vec![queue(1, 1, 5, true)]), gang(2, vec![queue(1, 1, 0, true), high])]);
    assert_eq!(low_runs(&status, 1_100), (false, Some(1_200)));
    assert_eq!(low_runs(&status, 1_200), (true, None));
}

#[test]
fn owner_of_a_long_slice_keeps_it_over_a_gap() {
    const MS: u64 = 1_000_000;
    // Slices of 75 and 25 ms: a sixteenth of the shorter one, in tenths of a millisecond.
    const GAP: u64 = 1_500_000;
    let mut choice = Choice::new(registry::find(PolicyKind::Up).unwrap());
    choice.values.set("timeslice-us", 100_000.0).unwrap();
    let status = |first: Activity| {
        let shares = [(75, first), (25, Activity::Ready { since: Time(0) })];
        let queues = shares.map(|(share, activity)| QueueStatus {
            activity,
            hints: QueueHints { utilization: share.try_into().unwrap(), ..QueueHints::default() },
            ..queue(1, 1, 0, true)
        });
        global((1..).zip(queues).map(|(client, queue)| gang(client, vec![queue])).collect())
    };
    let ready = |since| status(Activity::Ready { since: Time(since) });
    let idle = |since| status(Activity::Idle { since: Some(Time(since)) });
    let mut engine = Engine::new(choice.clone(), Duration::from_micros(200));
    assert_eq!(running(&mut engine, &ready(0), 0), ("1".to_owned(), Some(75 * MS)));
    assert_eq!(running(&mut engine, &idle(10 * MS), 10 * MS), ("1".to_owned(), Some(10 * MS + GAP)));
    assert_eq!(
        running(&mut engine, &ready(11 * MS), 11 * MS),
        ("1".to_owned(), Some(75 * MS)),
        "the gap is part of the slice"
    );
    assert_eq!(running(&mut engine, &idle(20 * MS), 20 * MS), ("1".to_owned(), Some(20 * MS + GAP)));
    assert_eq!(running(&mut engine, &idle(20 * MS), 20 * MS + GAP).0, "2", "a longer gap ends the slice");
    // A policy without slices has only the linger of the engine.
    engine.set_policy(registry::DEFAULT);
    assert_eq!(running(&mut engine, &ready(30 * MS), 30 * MS).0, "1 2");
    assert_eq!(running(&mut engine, &idle(40 * MS), 40 * MS).1, Some(40 * MS + 200_000));
    // The same holds for a policy that gives credit for short sleeps.
    let mut cfs = Choice::new(registry::find(PolicyKind::Cfs).unwrap());
    cfs.values.set("slice-us", 100_000.0).unwrap();
    engine.set_policy(cfs);
    assert_eq!(running(&mut engine, &ready(50 * MS), 50 * MS).0, "1");
    assert_eq!(running(&mut engine, &idle(60 * MS), 60 * MS).1, Some(60 * MS + 200_000));
    // An engine without a linger keeps no slice over a gap.
    let mut engine = Engine::new(choice, Duration::ZERO);
    assert_eq!(running(&mut engine, &ready(0), 0).0, "1");
    assert_eq!(running(&mut engine, &idle(10 * MS), 10 * MS).0, "2");
}

proptest! {
    #[test]
    fn decision_holds_until_the_wake_up(status in common::status(), now in 0u64..2_000, step in 0.0f64..1.0) {
        let mut engine = Engine::new(registry::DEFAULT, LINGER);
        let first = engine.decide(&status, Time(now));
        let (operations, wake) = (first.operations.to_vec(), first.wake);
        prop_assert!(wake.is_none_or(|wake| wake > Time(now) && wake <= Time(now).after(LINGER)));
        let span = wake.map_or(1_000_000, |wake| wake.0 - 1 - now);
        let later = Time(now + (span as f64 * step) as u64);
        let second = engine.decide(&status, later);
        // A time in the future counts as the present, so only then the decision may change.
        let honest = common::latest(&status) <= now;
        prop_assert!(!honest || second.operations == operations.as_slice());
        prop_assert!(!honest || second.wake == wake);
    }
}
