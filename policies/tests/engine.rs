//! The engine with policies that rank by a script of the test.

mod common;

use common::play::MS;
use common::{gang, global, queue};
use policies::reason::PRIORITY;
use policies::registry::Row;
use policies::{Choice, Engine, Input, Linger, Policy, Ranking, SchedEntity, Scope};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::ids::DeviceId;
use protocol::operation::{Operation, Reason, Share, Throttle, Window};
use protocol::policy::PolicyKind;
use protocol::status::{Activity, Gang, QueueStatus, Status};
use protocol::time::Time;
use std::cell::{Cell, RefCell};
use std::num::NonZeroU64;
use std::time::Duration;

type Script = Box<dyn Fn(usize, &SchedEntity) -> Ranking>;

thread_local! {
    /// The scripts of the two policies.
    static SCRIPTS: [RefCell<Option<Script>>; 2] = const { [RefCell::new(None), RefCell::new(None)] };
    static SCOPE: Cell<Scope> = const { Cell::new(Scope::Device) };
    /// The time that the first entity ran, as charged in the last decision.
    static FIRST: Cell<u64> = const { Cell::new(0) };
}

/// A policy that follows a script.
#[derive(Debug)]
struct Scripted(usize);

impl Policy for Scripted {
    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        if let Some(entity) = input.entities.all().first() {
            FIRST.set(u64::try_from(entity.ran.as_nanos()).unwrap());
        }
        for (place, entity) in input.members() {
            SCRIPTS.with(|scripts| {
                if let Some(script) = &*scripts[self.0].borrow() {
                    rankings[place] = script(place, entity);
                }
            });
        }
        None
    }

    fn scope(&self) -> Scope {
        SCOPE.get()
    }
}

const fn row(kind: PolicyKind, goes_by_priority: bool, new: fn() -> Box<dyn Policy>) -> Row {
    let (description, advice, parameters) = ("", "", &[]);
    Row {
        kind,
        description,
        advice,
        parameters,
        reasons: &[PRIORITY],
        goes_by_priority,
        conserves_work: true,
        new,
    }
}

static ONE: Row = row(PolicyKind::Hpf, true, || Box::new(Scripted(0)));
static OTHER: Row = row(PolicyKind::Edf, true, || Box::new(Scripted(1)));
static SHARES: Row = row(PolicyKind::Fair, false, || Box::new(Scripted(0)));

fn set_script(policy: usize, script: impl Fn(usize, &SchedEntity) -> Ranking + 'static) {
    SCRIPTS.with(|scripts| *scripts[policy].borrow_mut() = Some(Box::new(script)));
}

fn rank(rank: i64) -> Ranking {
    Ranking::new(rank, PRIORITY.number(rank))
}

/// Lets a policy give the entities these ranks.
fn set_ranks(policy: usize, ranks: &[i64]) {
    let ranks = ranks.to_vec();
    set_script(policy, move |place, _| rank(ranks[place]));
}

fn engine(linger: Duration) -> Engine {
    Engine::new(&ONE, linger)
}

/// Returns an engine with one policy for device 2 and another for the other devices.
fn two_policies() -> Engine {
    let mut engine = engine(Duration::ZERO);
    engine.set_device_policy(DeviceId(2), Some(Choice::new(&OTHER)));
    engine
}

fn runs(operations: &[Operation]) -> Vec<bool> {
    operations.iter().map(|operation| operation.permit.run).collect()
}

/// Returns a gang for each list of devices, with work on all of them.
fn busy(devices: &[&[u32]]) -> Vec<Gang> {
    let one = |(client, devices): (u64, &&[u32])| {
        gang(client, (1..).zip(*devices).map(|(name, &device)| queue(name, device, 0, true)).collect())
    };
    (1..).zip(devices).map(one).collect()
}

fn doing(queue: QueueStatus, activity: Activity) -> QueueStatus {
    QueueStatus { activity, ..queue }
}

fn ready(at: u64) -> Activity {
    Activity::Ready { since: Time(at) }
}

fn idle(at: u64) -> Activity {
    Activity::Idle { since: Some(Time(at)) }
}

/// Returns a status of one entity whose queues have these activities.
fn entity(activities: &[Activity]) -> Status {
    let queues = (1..).zip(activities).map(|(name, activity)| doing(queue(name, 1, 0, false), *activity));
    global(vec![gang(1, queues.collect())])
}

/// Returns the time that the entity is charged for over these decisions, each with its time.
fn charged(linger: Duration, decisions: &[(Status, u64)]) -> u64 {
    set_ranks(0, &[0]);
    let mut engine = engine(linger);
    let one = |(status, now): &(Status, u64)| {
        engine.decide(status, Time(*now));
        FIRST.get()
    };
    decisions.iter().map(one).sum()
}

#[test]
fn work_and_linger_are_charged() {
    let idle_at = 6 * MS;
    let decisions = [
        (entity(&[ready(MS)]), MS),
        (entity(&[idle(idle_at)]), idle_at + 10_000),
        (entity(&[idle(idle_at)]), idle_at + MS),
    ];
    assert_eq!(charged(Engine::LINGER, &decisions), 5 * MS + 200_000);
    assert_eq!(charged(Duration::ZERO, &decisions), 5 * MS);
}

#[test]
fn overlapping_streams_are_charged_once() {
    let never = Activity::Idle { since: None };
    let decisions = [(entity(&[ready(MS), never]), MS), (entity(&[idle(10 * MS), ready(9 * MS)]), 10 * MS)];
    assert_eq!(charged(Duration::ZERO, &decisions), 9 * MS);
}

#[test]
fn synchronizing_program_is_charged_for_its_time() {
    let decisions: Vec<_> = (0..10)
        .map(|number| {
            let now = MS + number * 10_500_000;
            (entity(&[ready(now - now % MS)]), now)
        })
        .collect();
    assert_eq!(charged(Engine::LINGER, &decisions), 9 * 10_500_000);
}

#[test]
fn unseen_short_work_is_not_charged_for_the_time_before() {
    let decisions = [(entity(&[idle(MS)]), 2 * MS), (entity(&[idle(100 * MS)]), 100 * MS)];
    assert_eq!(charged(Duration::ZERO, &decisions), 0);
    let decisions = [(entity(&[idle(MS)]), 2 * MS), (entity(&[ready(99 * MS)]), 100 * MS)];
    assert_eq!(charged(Duration::ZERO, &decisions), MS);
}

#[test]
fn second_decision_at_one_time_charges_nothing() {
    let at = |now| (entity(&[ready(MS)]), now);
    assert_eq!(charged(Duration::ZERO, &[at(MS), at(3 * MS), at(3 * MS), at(2 * MS), at(4 * MS)]), 3 * MS);
}

#[test]
fn forgotten_decision_charges_no_entity() {
    set_ranks(0, &[0]);
    let mut engine = engine(Duration::ZERO);
    engine.decide(&entity(&[ready(MS)]), Time(MS));
    engine.decide(&entity(&[ready(MS)]), Time(3 * MS));
    assert_eq!(FIRST.get(), 2 * MS);
    engine.forget_decision();
    engine.decide(&entity(&[ready(MS)]), Time(4 * MS));
    assert_eq!(FIRST.get(), 0);
}

#[test]
fn equals_of_one_policy_compare_by_the_other() {
    set_ranks(0, &[5, 5]);
    set_ranks(1, &[1, 5]);
    let status = global(busy(&[&[1, 2], &[1, 2]]));
    assert_eq!(runs(two_policies().decide(&status, Time(MS)).operations), [false, true]);
}

#[test]
fn job_belongs_to_one_policy() {
    let script = |place: usize, entity: &SchedEntity| {
        let job = entity.process.job.map(NonZeroU64::get);
        Ranking { job, ..rank([9, 1, 5][place]) }
    };
    set_script(0, script);
    set_script(1, script);
    let mut gangs = busy(&[&[1], &[2], &[2]]);
    for gang in &mut gangs[..2] {
        gang.hints.job = NonZeroU64::new(7);
    }
    assert_eq!(runs(two_policies().decide(&global(gangs), Time(MS)).operations), [true, false, true]);
}

#[test]
fn job_has_the_rank_of_its_highest_member_everywhere() {
    set_script(0, |place, _| Ranking { job: (place < 2).then_some(7), ..rank([9, 1, 5][place]) });
    let status = global(busy(&[&[1], &[2], &[2]]));
    assert_eq!(runs(engine(Duration::ZERO).decide(&status, Time(MS)).operations), [true, true, false]);
}

#[test]
fn job_waits_for_each_member() {
    set_script(0, |place, _| Ranking { job: (place < 2).then_some(7), ..rank([5, 5, 9][place]) });
    let status = global(busy(&[&[1], &[2], &[2]]));
    let mut engine = engine(Duration::ZERO);
    let operations = engine.decide(&status, Time(MS)).operations;
    assert_eq!(runs(operations), [false, false, true]);
    assert!(matches!(operations[0].permit.reason, Reason::Job { .. }));
    assert!(matches!(operations[1].permit.reason, Reason::Outranked { .. }));
}

#[test]
fn job_waits_for_a_device_withheld_from_a_member() {
    set_script(0, |place, _| {
        let throttle = (place == 1).then_some(Throttle::Share { percent: 50 });
        Ranking { job: (place < 2).then_some(7), throttle, ..rank([5, 5, 1][place]) }
    });
    let mut engine = engine(Duration::ZERO);
    let mut gangs = busy(&[&[1], &[2], &[1]]);
    let operations = engine.decide(&global(gangs.clone()), Time(MS)).operations;
    assert_eq!(runs(operations), [false, false, true]);
    assert!(matches!(operations[0].permit.reason, Reason::Job { .. }));
    assert!(matches!(operations[1].permit.reason, Reason::Throttled(_)));
    // The other member need not wait if this one has no work.
    gangs[1] = gang(2, vec![queue(1, 2, 0, false)]);
    assert_eq!(runs(engine.decide(&global(gangs), Time(MS)).operations), [true, false, false]);
}

#[test]
fn starvation_boost_covers_the_job() {
    set_script(0, |place, _| Ranking { job: (place < 2).then_some(7), ..rank([1, 1, 5, 5][place]) });
    let mut engine = engine(Duration::ZERO);
    engine.set_starvation_limit(Some(Duration::from_millis(100)));
    let status = global(busy(&[&[1], &[2], &[2], &[1]]));
    engine.decide(&status, Time(MS));
    assert_eq!(runs(engine.decide(&status, Time(101 * MS)).operations), [true, true, false, false]);
}

#[test]
fn job_member_is_limited() {
    set_script(0, |place, _| {
        let own = [5, 5, 9][place];
        Ranking { job: (place < 2).then_some(7), range: Some((own, own)), ..rank(own) }
    });
    let mut status = busy(&[&[1], &[2]]);
    status.push(gang(3, vec![queue(1, 2, 0, false)]));
    let operations = engine(Duration::ZERO).decide(&global(status), Time(MS)).operations.to_vec();
    assert!(operations[0].permit.run && operations[0].permit.limit);
}

#[test]
fn starvation_boost_waits_for_a_withheld_device() {
    let mut engine = engine(Duration::ZERO);
    engine.set_starvation_limit(Some(Duration::from_millis(100)));
    let status = global(busy(&[&[1], &[1]]));
    let fed = (10..2_000u64).filter(|ms| {
        // In the second half of each 20 ms the device is withheld from the entity; otherwise it is outranked.
        let throttled = ms % 20 >= 10;
        set_script(0, move |place, _| {
            let throttle = (place == 0 && throttled).then_some(Throttle::Share { percent: 50 });
            Ranking { throttle, ..rank([0, 5][place]) }
        });
        let decision = engine.decide(&status, Time(ms * MS));
        assert!(decision.wake.is_none_or(|wake| wake > Time(ms * MS)));
        decision.operations[0].permit.run
    });
    assert!(fed.count() >= 100);
}

#[test]
fn starvation_boost_needs_a_priority_policy() {
    set_ranks(0, &[0, 5]);
    let mut engine = Engine::new(&SHARES, Duration::ZERO);
    engine.set_starvation_limit(Some(Duration::from_millis(100)));
    let status = global(busy(&[&[1], &[1]]));
    for ms in 1..500 {
        assert!(!engine.decide(&status, Time(ms * MS)).operations[0].permit.run);
    }
}

#[test]
fn reservation_covers_devices_of_its_policy() {
    let mut gangs = vec![gang(1, vec![queue(1, 1, 0, false), queue(2, 2, 0, false)])];
    gangs.extend(busy(&[&[9], &[1], &[2]]).split_off(1));
    let status = global(gangs);
    for (reserving, expected) in [(0, [true, false, true]), (1, [true, true, false])] {
        for policy in 0..2 {
            set_script(policy, move |place, _| Ranking {
                reserves: place == 0 && policy == reserving,
                ..rank([9, 1, 1][place])
            });
        }
        assert_eq!(runs(two_policies().decide(&status, Time(MS)).operations), expected);
    }
    set_ranks(0, &[9, 1, 1]);
    set_ranks(1, &[9, 1, 1]);
    assert_eq!(runs(two_policies().decide(&status, Time(MS)).operations), [true, true, true]);
}

#[test]
fn scope_of_all_devices_counts_as_one() {
    set_ranks(0, &[1, 5]);
    let status = global(busy(&[&[1], &[2]]));
    assert_eq!(runs(engine(Duration::ZERO).decide(&status, Time(MS)).operations), [true, true]);
    SCOPE.set(Scope::Devices);
    assert_eq!(runs(engine(Duration::ZERO).decide(&status, Time(MS)).operations), [false, true]);
    SCOPE.set(Scope::Device);
}

proptest! {
    #[test]
    fn lower_rank_runs_beside_higher_only_by_displacement(
        entities in vec((1u32..8, 0i64..4, 0i64..4), 2..6),
    ) {
        // Devices 1 and 3 have one policy, device 2 the other.
        let devices = |mask: u32| (1..4u32).filter(move |device| mask >> (device - 1) & 1 == 1);
        set_ranks(0, &entities.iter().map(|entity| entity.1).collect::<Vec<_>>());
        set_ranks(1, &entities.iter().map(|entity| entity.2).collect::<Vec<_>>());
        let lists: Vec<Vec<u32>> = entities.iter().map(|entity| devices(entity.0).collect()).collect();
        let status = global(busy(&lists.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        let runs = runs(two_policies().decide(&status, Time(MS)).operations);
        let rank = |entity: usize, device: u32| if device == 2 { entities[entity].2 } else { entities[entity].1 };
        let shared = |one: usize, other: usize| devices(entities[one].0 & entities[other].0);
        let disturbs = |low: usize, high: usize| shared(low, high).any(|device| rank(low, device) < rank(high, device));
        let spans = |entity: usize| entities[entity].0 & 2 != 0 && entities[entity].0 & 5 != 0;
        for low in 0..entities.len() {
            for high in 0..entities.len() {
                if !(runs[low] && runs[high] && disturbs(low, high)) {
                    continue;
                }
                // A third entity outranks one of them, and does not run.
                let displaced = (0..entities.len()).any(|third| {
                    !runs[third] && [low, high].iter().any(|&entity| disturbs(entity, third))
                });
                prop_assert!(displaced && (spans(low) || spans(high)), "{entities:?} {runs:?}");
            }
        }
        // A running entity outranks each waiting one.
        for waiting in (0..entities.len()).filter(|&entity| !runs[entity]) {
            prop_assert!((0..entities.len()).any(|other| runs[other] && disturbs(waiting, other)), "{entities:?} {runs:?}");
        }
    }
}

#[test]
fn linger_is_the_shortest_of_its_devices() {
    let lingers = |of: [u64; 2]| {
        let millis = |count| Ranking { linger: Linger::AtLeast(Duration::from_millis(count)), ..rank(0) };
        (0..).zip(of).for_each(|(policy, linger)| set_script(policy, move |_, _| millis(linger)));
        let mut engine = Engine::new(&ONE, Engine::LINGER);
        engine.set_device_policy(DeviceId(2), Some(Choice::new(&OTHER)));
        let mut gangs = busy(&[&[1], &[1, 2]]);
        engine.decide(&global(gangs.clone()), Time(0));
        gangs[1].queues = busy(&[&[1, 2]])[0]
            .queues
            .iter()
            .map(|queue| doing(*queue, idle(1_000)))
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        engine.decide(&global(gangs), Time(1_000));
        engine.entities().all().iter().map(|entity| entity.linger).collect::<Vec<_>>()
    };
    let millis = Duration::from_millis;
    assert_eq!(lingers([3, 2]), [millis(3), millis(2)]);
    assert_eq!(lingers([3, 0]), [millis(3), Engine::LINGER], "no entity lingers shorter than the engine");
}

#[test]
fn window_is_the_narrowest_of_its_devices_if_limited() {
    let millis = |count| Window::at_most(Duration::from_millis(count));
    let windows = |engine: &mut Engine| {
        let operations = engine.decide(&global(busy(&[&[1], &[1, 2]])), Time(0)).operations;
        operations.iter().map(|operation| operation.permit.window).collect::<Vec<_>>()
    };
    set_script(0, move |place, _| Ranking { window: millis([5, 3][place]), ..rank(0) });
    set_script(1, move |_, _| Ranking { window: millis(2), ..rank(0) });
    assert_eq!(windows(&mut engine(Duration::ZERO)), [millis(5), millis(3)]);
    assert_eq!(windows(&mut two_policies()), [millis(5), millis(2)]);
    set_script(1, move |_, _| rank(0));
    assert_eq!(windows(&mut two_policies()), [millis(5), Window::OWN]);
    set_script(0, move |_, _| Ranking { window: millis(5), range: Some((0, 0)), ..rank(0) });
    assert_eq!(windows(&mut engine(Duration::ZERO)), [Window::OWN; 2], "no entity can outrank them");
}

/// Returns a ranking that leaves so many 64ths to others.
fn leaves(units: u8, to: i64) -> Ranking {
    Ranking { share: Share::of_percent(f64::from(units) * 100.0 / 64.0), ..rank(to) }
}

fn shares(operations: &[Operation]) -> Vec<u8> {
    operations.iter().map(|operation| operation.permit.share.units()).collect()
}

#[test]
fn suspended_entity_has_the_share_that_its_rival_leaves() {
    set_script(0, |place, _| leaves([1, 16, 32][place], [0, 5, 9][place]));
    let mut engine = engine(Duration::ZERO);
    let mut gangs = busy(&[&[1], &[1], &[1]]);
    assert_eq!(shares(engine.decide(&global(gangs.clone()), Time(1)).operations), [32, 32, 0]);
    gangs[2] = gang(3, vec![queue(1, 1, 0, false)]);
    assert_eq!(
        shares(engine.decide(&global(gangs.clone()), Time(2)).operations),
        [16, 0, 0],
        "only a suspended one"
    );
    gangs[0] = gang(1, vec![queue(1, 1, 0, false)]);
    assert_eq!(shares(engine.decide(&global(gangs), Time(3)).operations), [16, 0, 0], "without work as well");
}

#[test]
fn share_is_the_smallest_of_those_that_several_rivals_leave() {
    let status = global(busy(&[&[1, 2], &[1], &[2]]));
    for units in [[16, 4], [4, 16]] {
        set_script(0, move |place, _| leaves([9, units[0], units[1]][place], [1, 5, 9][place]));
        assert_eq!(shares(engine(Duration::ZERO).decide(&status, Time(1)).operations), [4, 0, 0]);
    }
    // By the policy of the device on which it is outranked.
    for (policy, units) in [(0, 7), (1, 3)] {
        set_script(policy, move |place, _| leaves(units, [1, 5, 9][place]));
    }
    assert_eq!(shares(two_policies().decide(&status, Time(1)).operations), [3, 0, 0]);
}

#[test]
fn entity_that_is_not_outranked_has_no_share() {
    // The first is outranked, and the second waits for it, as a member of its job.
    let job = |place: usize| (place < 2).then_some(7);
    set_script(0, move |place, _| Ranking { job: job(place), ..leaves(16, [1, 1, 9][place]) });
    let status = global(busy(&[&[1], &[2], &[1]]));
    let operations = engine(Duration::ZERO).decide(&status, Time(1)).operations.to_vec();
    assert_eq!((runs(&operations), shares(&operations)), (vec![false, false, true], vec![16, 0, 0]));
    // The device is withheld.
    set_script(0, |place, _| {
        let throttle = (place == 0).then_some(Throttle::Turn);
        Ranking { throttle, ..leaves(16, [1, 9][place]) }
    });
    let status = global(busy(&[&[1], &[1]]));
    assert_eq!(shares(engine(Duration::ZERO).decide(&status, Time(1)).operations), [0, 0]);
    // It never runs.
    set_script(0, |place, _| leaves(16, [1, 9][place]));
    let status = global(vec![gang(1, vec![queue(1, 1, -256, true)]), busy(&[&[], &[1]]).remove(1)]);
    assert_eq!(shares(engine(Duration::ZERO).decide(&status, Time(1)).operations), [0, 0]);
}

#[test]
fn entity_that_runs_because_it_starved_leaves_no_share() {
    set_script(0, |place, _| leaves(16, [1, 9][place]));
    let mut engine = engine(Duration::ZERO);
    engine.set_starvation_limit(Some(Duration::from_millis(100)));
    let status = global(busy(&[&[1], &[1]]));
    assert_eq!(shares(engine.decide(&status, Time(MS)).operations), [16, 0]);
    let later = engine.decide(&status, Time(102 * MS)).operations.to_vec();
    assert_eq!((runs(&later), shares(&later)), (vec![true, false], vec![0, 0]));
}

#[test]
fn lone_entity_is_limited_only_if_its_device_may_be_withheld() {
    let limits = |count: usize, may_withhold| {
        set_script(0, move |_, _| Ranking { may_withhold, ..rank(5) });
        let status = global(busy(&vec![&[1][..]; count]));
        let operations = engine(Duration::ZERO).decide(&status, Time(MS)).operations.to_vec();
        operations.iter().map(|operation| operation.permit.limit).collect::<Vec<_>>()
    };
    assert_eq!(limits(1, false), [false]);
    assert_eq!(limits(1, true), [true]);
    assert_eq!(limits(2, false), [true, true], "ranks without a range may change");
}
