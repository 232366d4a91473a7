//! Small scenarios in virtual time that show rules of the engine, not of a policy.

mod common;

use common::play::{Actor, MS, Setup, Work, play};
use policies::{Choice, Engine, registry};
use protocol::ids::DeviceId;
use protocol::policy::PolicyKind;
use std::time::Duration;

fn hpf() -> Engine {
    Engine::new(registry::find(PolicyKind::Hpf).unwrap(), Duration::ZERO)
}

#[test]
fn urgent_work_interrupts_and_nothing_is_lost() {
    let actors = [
        Actor::new(0, Work::Jobs(vec![(0, 10 * MS)])),
        Actor::new(5, Work::Jobs(vec![(2 * MS, MS), (6 * MS, MS)])),
    ];
    for local in [false, true] {
        let setup = Setup { local, ..Setup::until(20 * MS) };
        let play = play(&mut hpf(), &actors, setup);
        assert_eq!(play.spans[1], [(2 * MS, 3 * MS), (6 * MS, 7 * MS)]);
        assert_eq!(play.done, [vec![(0, 12 * MS)], vec![(2 * MS, 3 * MS), (6 * MS, 7 * MS)]]);
    }
}

#[test]
fn equals_share_and_draining_work_keeps_the_device() {
    let mut low = Actor::new(0, Work::Always);
    low.drains = MS / 2;
    let actors = [low, Actor::new(5, Work::Jobs(vec![(MS, MS)])), Actor::new(5, Work::Jobs(vec![(MS, MS)]))];
    let play = play(&mut hpf(), &actors, Setup::until(10 * MS));
    assert_eq!(play.spans[1], [(3 * MS / 2, 7 * MS / 2)]);
    assert_eq!(play.spans[2], play.spans[1]);
    assert_eq!(play.used[0], (10 * MS - 2 * MS) as f64);
}

#[test]
fn starving_entity_runs_for_a_tenth_of_the_limit() {
    let mut engine = hpf();
    engine.set_starvation_limit(Some(Duration::from_millis(100)));
    let actors = [Actor::new(5, Work::Always), Actor::new(0, Work::Always), Actor::new(-256, Work::Always)];
    let play = play(&mut engine, &actors, Setup::until(331 * MS));
    assert_eq!(play.spans[1], [(100, 110), (210, 220), (320, 330)].map(|(from, to)| (from * MS, to * MS)));
    assert!(play.spans[2].is_empty(), "an entity of priority -256 never runs");
}

#[test]
fn entity_that_the_guard_can_interrupt_is_limited() {
    let status = common::global(vec![
        common::gang(1, vec![common::queue(1, 1, 5, true)]),
        common::gang(2, vec![common::queue(1, 1, 0, false)]),
        common::gang(3, vec![common::queue(1, 2, 0, true)]),
    ]);
    let limits = |engine: &mut Engine| {
        let operations = engine.decide(&status, protocol::time::Time(MS)).operations;
        operations.iter().map(|operation| operation.permit.limit).collect::<Vec<_>>()
    };
    let mut engine = hpf();
    assert_eq!(limits(&mut engine), [false, true, false]);
    engine.set_starvation_limit(Some(Duration::from_millis(100)));
    assert_eq!(limits(&mut engine), [true, true, false]);
}

#[test]
fn device_policy_holds_until_it_is_removed() {
    let mut engine = hpf();
    let choice = Choice::new(registry::DEFAULT);
    engine.set_device_policy(DeviceId(2), Some(choice.clone()));
    engine.set_device_policy(DeviceId(1), Some(choice));
    let devices =
        |engine: &Engine| engine.choices().map(|(device, _)| device.map(|id| id.0)).collect::<Vec<_>>();
    assert_eq!(devices(&engine), [None, Some(1), Some(2)]);
    // An entity on both devices is outranked on the second. It runs on neither, and no entity waits for it on
    // the first.
    let mut both = Actor::new(3, Work::Always);
    both.queues.push(common::queue(2, 2, 3, false));
    let mut second = Actor::new(9, Work::Always);
    second.queues[0].device = DeviceId(2);
    let actors = [both, second, Actor::new(0, Work::Always)];
    let result = play(&mut engine, &actors, Setup::until(10 * MS));
    assert_eq!(result.used[1], (10 * MS) as f64);
    assert!(result.used[2] + result.used[0] >= (10 * MS) as f64);
    engine.set_device_policy(DeviceId(1), None);
    engine.set_device_policy(DeviceId(2), None);
    assert_eq!(devices(&engine), [None]);
    let alone = play(&mut engine, &actors, Setup::until(10 * MS));
    assert_eq!(alone.used, [0.0, (10 * MS) as f64, (10 * MS) as f64]);
}
