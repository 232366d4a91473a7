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

/// A high queue that works for 1 ms and is idle for a gap, beside a low one that always has work.
struct Course {
    engine: Engine,
    now: u64,
    /// The time of the last decision.
    last: u64,
}

impl Course {
    fn new(gaps: f64) -> Self {
        let mut choice = Choice::new(registry::DEFAULT);
        choice.values.set("gaps", gaps).unwrap();
        Self { engine: Engine::new(choice, Engine::LINGER), now: 1_000_000, last: 0 }
    }

    fn decide(&mut self, high: Activity) -> (String, Option<u64>) {
        let high = QueueStatus { activity: high, ..queue(1, 1, 9, false) };
        self.last = self.now;
        let status = global(vec![gang(1, vec![high]), gang(2, vec![queue(1, 1, 0, true)])]);
        running(&mut self.engine, &status, self.now)
    }

    /// Plays work and the gap behind it, and returns the linger: `None` if the low queue runs at once.
    fn work(&mut self, gap: u64) -> Option<u64> {
        assert_eq!(self.decide(Activity::Ready { since: Time(self.now) }).0, "1");
        self.now += 1_000_000;
        let idle = self.now;
        let (runs, wake) = self.decide(Activity::Idle { since: Some(Time(idle)) });
        let linger = wake.map(|wake| wake - idle);
        assert_eq!(runs == "1", linger.is_some(), "{runs} until {wake:?}");
        if let Some(linger) = linger {
            assert_eq!(self.decide(Activity::Idle { since: Some(Time(idle)) }), (runs, wake));
            if linger <= gap {
                self.now += linger;
                assert_eq!(self.decide(Activity::Idle { since: Some(Time(idle)) }).0, "1 2");
            }
        }
        self.now = idle + gap;
        linger
    }

    /// Plays work and a long gap behind it, so often.
    fn repeat(&mut self, times: usize) {
        for _ in 0..times {
            self.work(3_000_000);
        }
    }

    fn counters(&self) -> Vec<u64> {
        let counters = self.engine.counters().next().unwrap().1;
        let gaps = counters.into_iter().filter(|(name, _)| name.starts_with("gaps"));
        gaps.map(|(_, count)| count).collect()
    }
}

#[test]
fn linger_is_as_long_as_earlier_gaps_suggest() {
    let fixed = Some(200_000);
    for (gaps, learnt) in [(1.0, None), (0.0, fixed)] {
        let mut course = Course::new(gaps);
        let lingers: Vec<_> = (0..50).map(|_| course.work(3_000_000)).collect();
        assert_eq!(lingers[..32], [fixed; 32], "too little is known");
        assert_eq!(lingers[32..], [learnt; 18]);
        assert_eq!(course.counters(), if gaps > 0.0 { [49, 17, 0, 0] } else { [0; 4] });
    }
    // Gaps of 250 µs inside a request, and one of 20 ms behind it.
    let mut course = Course::new(1.0);
    for number in 0..100 {
        course.work(if number % 10 == 9 { 20_000_000 } else { 250_000 });
    }
    assert_eq!(course.work(250_000), Some(282_000), "the gaps and an eighth");
    let [gaps, shorter, longer, wrong] = course.counters()[..] else { panic!("four counters") };
    assert_eq!((gaps, shorter, longer), (100, 0, 100 - 32));
    assert_eq!(wrong, 29, "lingers of 200 µs ended shortly before the gap did");
}

#[test]
fn what_was_learnt_goes_with_the_entity_and_with_the_choice() {
    let learnt = || {
        let mut course = Course::new(1.0);
        course.repeat(50);
        course
    };
    let mut course = learnt();
    // Another decider was in charge.
    course.engine.forget_decision();
    assert_eq!(course.work(3_000_000), None);
    let empty = global(Vec::new());
    course.engine.decide(&empty, Time(course.now));
    assert_eq!(course.work(3_000_000), Some(200_000), "the program has gone, and another one has come");
    let mut course = learnt();
    course.engine.set_policy(registry::find(PolicyKind::Lax).unwrap());
    assert_eq!(course.work(3_000_000), Some(200_000));
    // LCBE with slices has a fixed linger, without them a learnt one.
    for (slice, linger) in [(0.0, None), (1.0, Some(200_000))] {
        let mut choice = Choice::new(registry::find(PolicyKind::Lcbe).unwrap());
        choice.values.set("slice-ms", slice).unwrap();
        choice.values.set("learn", 0.0).unwrap();
        let mut course = Course { engine: Engine::new(choice, Engine::LINGER), now: 1_000_000, last: 0 };
        course.repeat(50);
        assert_eq!(course.work(3_000_000), linger);
    }
}

proptest! {
    #[test]
    fn further_decisions_change_nothing_that_is_learnt(
        gaps in proptest::collection::vec((0u64..4_000_000, 0usize..4), 1..150),
    ) {
        let play = |further: bool| {
            let mut course = Course::new(1.0);
            let mut lingers = Vec::new();
            for (gap, times) in &gaps {
                lingers.push(course.work(*gap));
                let (idle, now) = (course.now - gap, course.now);
                for part in 0..times * usize::from(further) {
                    course.now = (now - gap / (2 + part as u64)).max(course.last);
                    course.decide(Activity::Idle { since: Some(Time(idle)) });
                }
                course.now = now;
            }
            (lingers, course.counters())
        };
        prop_assert_eq!(play(false), play(true));
    }

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
