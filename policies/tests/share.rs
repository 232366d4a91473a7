//! The share that suspended work keeps: found under a measured bound, by the engine.

mod common;

use common::{gang, global, queue, status};
use policies::{Choice, Engine, registry};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::ids::DeviceId;
use protocol::operation::{Reason, Share};
use protocol::policy::PolicyKind;
use protocol::status::{Activity, Counts, QueueStatus};
use protocol::time::Time;

const MS: u64 = 1_000_000;

fn hpf(parameters: &[(&str, f64)]) -> Choice {
    let mut choice = Choice::new(registry::DEFAULT);
    parameters.iter().for_each(|(name, value)| choice.values.set(name, *value).unwrap());
    choice
}

/// An urgent queue with a request of 1 ms every 10 ms, beside a low one that always has work. A share slows requests.
struct Play {
    engine: Engine,
    now: u64,
    /// The part by which a whole device would slow requests.
    cost: f64,
    /// True if the low queue has work.
    low: bool,
    /// True if the low queue has work from the middle of each request on.
    late: bool,
    /// True if the end of requests may be missed.
    unheard: bool,
    /// True if a chance number of requests comes at once, so that one busy period has them all.
    at_once: bool,
    random: u64,
    launched: u64,
}

impl Play {
    fn new(cost: f64, parameters: &[(&str, f64)]) -> Self {
        let engine = Engine::new(hpf(parameters), Engine::LINGER);
        Self {
            engine,
            now: 1_000 * MS,
            cost,
            low: true,
            late: false,
            unheard: false,
            at_once: false,
            random: 1,
            launched: 0,
        }
    }

    /// Decides, and returns the share of the low queue and true if it runs.
    fn decide(&mut self, high: Activity) -> (u8, bool) {
        let low = Activity::Ready { since: Time(100) };
        let low = if self.low { low } else { Activity::Idle { since: None } };
        let low = QueueStatus { activity: low, ..queue(1, 1, 0, true) };
        let counts = Counts { direct: self.launched, ..Counts::default() };
        let high = QueueStatus { activity: high, counts, ..queue(1, 1, 9, false) };
        let status = global(vec![gang(1, vec![low]), gang(2, vec![high])]);
        let operations = self.engine.decide(&status, Time(self.now)).operations;
        assert_eq!(operations[1].permit.share, Share::NONE, "it runs");
        (operations[0].permit.share.units(), operations[0].permit.run)
    }

    /// Plays a request with several decisions in it, and returns its share.
    fn request(&mut self) -> u8 {
        let start = self.now;
        let ready = Activity::Ready { since: Time(start) };
        self.low &= !self.late;
        let (share, runs) = self.decide(ready);
        assert!(!runs);
        let slowed = if self.low { self.cost * f64::from(share) / 64.0 } else { 0.0 };
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let requests = if self.at_once { 1 + (self.random >> 33) % 8 } else { 2 };
        let end = start + (requests as f64 * (MS / 2) as f64 * (1.0 + slowed)) as u64;
        self.low |= self.late;
        for quarter in 1..4 {
            self.now = start + (end - start) * quarter / 4;
            assert_eq!(self.decide(ready), (share, false), "in the middle of a request");
        }
        if self.unheard {
            self.engine.note_unheard(1);
        }
        self.now = end;
        self.launched += 100 * requests;
        let idle = Activity::Idle { since: Some(Time(end)) };
        let (lingering, runs) = self.decide(idle);
        assert!(runs || lingering == share);
        self.now = end + Engine::LINGER.as_nanos() as u64;
        assert_eq!(self.decide(idle), (0, true));
        self.now = start + 10 * MS;
        share
    }

    fn requests(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.request()).collect()
    }

    /// Returns the counters: shares raised, shares lowered, and the present share in percent.
    fn counters(&self) -> [u64; 3] {
        let counters = self.engine.counters().next().unwrap().1;
        ["shares-raised", "shares-lowered", "share-now-percent"]
            .map(|name| counters.iter().find(|(known, _)| *known == name).unwrap().1)
    }
}

#[test]
fn largest_share_within_the_bound_is_found() {
    // 32 units cost 1 %, 7 %, 15 % or 100 %, half of them half of that, and so on; the bound is 5 %.
    for (cost, units) in [(0.02, 32), (0.14, 16), (0.3, 8), (2.0, 0)] {
        let mut play = Play::new(cost, &[("share-percent", 50.0)]);
        assert_eq!(play.requests(32), [0; 32], "it begins without a share");
        play.requests(3_000);
        let last = play.requests(400);
        let count = |units| last.iter().filter(|share| **share == units).count();
        if units == 0 {
            assert!(count(0) > 390, "cost {cost}: {last:?}");
            assert!(play.counters()[1] > 2, "tried now and then");
        } else {
            assert!((299..=301).contains(&count(units)), "cost {cost}: {last:?}");
            assert_eq!(count(units) + count(0), 400, "the others are baselines");
            assert_eq!(play.counters(), [(units.ilog2() - 2).into(), 0, u64::from(units) * 100 / 64]);
        }
    }
}

#[test]
fn number_of_requests_in_a_busy_period_does_not_matter() {
    for (cost, units) in [(0.02, 32), (0.14, 16), (2.0, 0)] {
        let mut play = Play { at_once: true, ..Play::new(cost, &[("share-percent", 50.0)]) };
        play.requests(3_000);
        let last = play.requests(400);
        let count = last.iter().filter(|share| **share == units).count();
        assert!(count >= 290, "cost {cost}: {last:?}");
    }
}

#[test]
fn share_without_a_bound_is_fixed() {
    let mut play = Play::new(9.0, &[("share-percent", 25.0), ("slowdown-percent", 0.0)]);
    assert_eq!(play.requests(200), [16; 200]);
    assert_eq!(play.counters(), [0, 0, 25]);
    let mut play = Play::new(9.0, &[("share-percent", 0.0)]);
    assert_eq!(play.requests(200), [0; 200]);
    assert_eq!(play.counters(), [0, 0, 0]);
}

#[test]
fn change_of_the_parameter_holds_at_once_and_is_learnt_anew() {
    let mut play = Play::new(0.0, &[("share-percent", 50.0)]);
    play.requests(200);
    assert_eq!(play.counters(), [3, 0, 50]);
    play.engine.set_policy(hpf(&[("share-percent", 50.0), ("slowdown-percent", 1.0)]));
    assert!(play.requests(4).contains(&32), "a new bound changes nothing that was learnt");
    play.engine.set_policy(hpf(&[("share-percent", 25.0)]));
    assert_eq!(play.requests(32), [0; 32]);
    play.requests(200);
    assert_eq!(play.counters()[2], 25);
    play.engine.set_policy(hpf(&[]));
    assert_eq!(play.requests(100), [0; 100]);
    assert_eq!(play.counters()[2], 0);
    // The counters of another policy begin again.
    play.engine.set_policy(Choice::new(registry::find(PolicyKind::Chpf).unwrap()));
    assert_eq!(play.counters(), [0, 0, 0]);
}

#[test]
fn requests_without_a_victim_do_not_count() {
    type Setting = fn(&mut Play);
    let settings: [(Setting, bool); 4] = [
        (|_| {}, true),
        (|play| play.low = false, false),
        // What comes during a request has not slowed all of it.
        (|play| play.late = true, false),
        (|play| play.unheard = true, false),
    ];
    for (setting, learns) in settings {
        let mut play = Play::new(0.0, &[("share-percent", 50.0)]);
        setting(&mut play);
        play.requests(300);
        assert_eq!(play.counters()[0] > 0, learns);
    }
}

#[test]
fn requests_of_another_decider_do_not_count() {
    let mut play = Play::new(0.0, &[("share-percent", 50.0)]);
    for _ in 0..300 {
        let start = play.now;
        play.decide(Activity::Ready { since: Time(start) });
        play.engine.forget_decision();
        play.now += MS;
        play.decide(Activity::Idle { since: Some(Time(play.now)) });
        play.now += 4 * MS;
        play.decide(Activity::Idle { since: Some(Time(start + MS)) });
    }
    assert_eq!(play.counters(), [0, 0, 0]);
}

#[test]
fn request_that_was_itself_suspended_does_not_count() {
    let mut engine = Engine::new(hpf(&[("share-percent", 50.0)]), Engine::LINGER);
    let mut now = 1_000 * MS;
    // The highest has work in the second half of each request of the middle one.
    for _ in 0..300 {
        let start = now;
        let since = |at| Activity::Ready { since: Time(at) };
        let idle = |at| Activity::Idle { since: Some(Time(at)) };
        let quiet = Activity::Idle { since: None };
        let steps = [
            (0, since(start), quiet),
            (MS / 2, since(start), since(start + MS / 2)),
            (MS, since(start), idle(start + MS)),
            (2 * MS, idle(start + 2 * MS), idle(start + MS)),
            (3 * MS, idle(start + 2 * MS), idle(start + MS)),
        ];
        for (at, middle, high) in steps {
            let middle = QueueStatus { activity: middle, ..queue(1, 1, 5, false) };
            let high = QueueStatus { activity: high, ..queue(1, 1, 9, false) };
            let gangs = vec![gang(1, vec![queue(1, 1, 0, true)]), gang(2, vec![middle]), gang(3, vec![high])];
            engine.decide(&global(gangs), Time(start + at));
        }
        now += 5 * MS;
    }
    let counters = engine.counters().next().unwrap().1;
    // Those of the highest do, with the middle one as their victim: 32 without a share, then half and all.
    assert_eq!(counters.iter().find(|(name, _)| *name == "shares-raised").unwrap().1, 3);
    assert_eq!(counters.iter().find(|(name, _)| *name == "share-now-percent").unwrap().1, 50);
}

proptest! {
    #[test]
    fn share_is_never_more_than_the_parameter(
        statuses in vec(status(), 1..12),
        percent in prop_oneof![Just(0.0), 0.0..=75.0f64],
        other in 0.0..=75.0f64,
        slowdown in prop_oneof![Just(0.0), 0.0..=100.0f64],
        kind in prop::sample::select(vec![PolicyKind::Hpf, PolicyKind::Hhpf, PolicyKind::Chpf, PolicyKind::Lcbe]),
    ) {
        let choice = |percent| {
            let mut choice = Choice::new(registry::find(kind).unwrap());
            choice.values.set("share-percent", percent).unwrap();
            choice.values.set("slowdown-percent", slowdown).unwrap();
            choice
        };
        let mut engine = Engine::new(choice(percent), Engine::LINGER);
        engine.set_device_policy(DeviceId(2), Some(choice(other)));
        for round in 0..60u64 {
            for (step, status) in statuses.iter().enumerate() {
                let now = Time((round * 20 + step as u64) * MS);
                for operation in engine.decide(status, now).operations {
                    let permit = operation.permit;
                    // The smallest share of several rivals counts, so it is no larger than that of the named one.
                    let most = match permit.reason {
                        Reason::Outranked { by, .. } if by.device == DeviceId(2) => other,
                        Reason::Outranked { .. } => percent,
                        _ => 0.0,
                    };
                    prop_assert!(permit.share <= Share::of_percent(most), "{permit:?}");
                    prop_assert!(!permit.run || permit.share == Share::NONE);
                }
            }
        }
    }
}
