//! Random programs over several simulated hardware queues. For each of them: no command is lost, repeated or
//! launched before one that it must follow, the window bounds the work in flight, a suspended queue launches
//! nothing, and the program ends.

mod sim;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;
use sim::{Bed, until, within};
use xqueue::{
    After, CommandSpec, Config, CostKey, DeviceId, LaunchConfig, OrderClass, Permission, ResumeFlags, Scope,
    SuspendFlags, TestMode, Ticket,
};

const QUEUES: usize = 5;

#[derive(Debug, Clone)]
enum Op {
    /// A submission to a queue, maybe after an earlier command, maybe after a whole scope.
    Submit {
        queue: usize,
        after: Option<usize>,
        scope: u8,
        key: u64,
    },
    /// An in-order launch by a thread of its own.
    Turn {
        queue: usize,
        after: Option<usize>,
    },
    Suspend(usize),
    Resume(usize),
    Policy(usize, bool),
    Gang {
        run: bool,
        limit: bool,
    },
    Window(usize, Option<u32>),
    Yield,
}

fn op() -> impl Strategy<Value = Op> {
    let queue = 0..QUEUES;
    prop_oneof![
        12 => (queue.clone(), prop::option::of(0..64usize), 0..12u8, 0..4u64)
            .prop_map(|(queue, after, scope, key)| Op::Submit { queue, after, scope, key }),
        1 => (queue.clone(), prop::option::of(0..64usize))
            .prop_map(|(queue, after)| Op::Turn { queue, after }),
        2 => queue.clone().prop_map(Op::Suspend),
        2 => queue.clone().prop_map(Op::Resume),
        1 => (queue.clone(), any::<bool>()).prop_map(|(queue, run)| Op::Policy(queue, run)),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(run, limit)| Op::Gang { run, limit }),
        1 => (queue, prop::option::of(1..6u32)).prop_map(|(queue, t)| Op::Window(queue, t)),
        2 => Just(Op::Yield),
    ]
}

fn classes() -> [(u32, OrderClass); QUEUES] {
    [
        (0, OrderClass::Default),
        (0, OrderClass::Blocking),
        (0, OrderClass::Blocking),
        (0, OrderClass::Independent),
        (1, OrderClass::Blocking),
    ]
}

/// One submitted command, as the program knows it. `ordered`: its submission is ordered against the other
/// operations of the program, which does not hold for an in-order launch.
struct Issued {
    queue: usize,
    ticket: Ticket,
    after: Option<usize>,
    scope: u8,
}

fn run(ops: &[Op], test: TestMode, limit: bool) {
    let permission = if limit { Permission::limited() } else { Permission::unlimited() };
    let mut bed = Bed::new(Config { permission, test, ..Config::default() });
    for (device, class) in classes() {
        bed.queue(device, class, LaunchConfig::Adaptive);
    }
    let mut issued: Vec<Issued> = Vec::new();
    let mut in_order = Vec::new();
    for op in ops {
        match *op {
            Op::Submit { queue, after, scope, key } => {
                let after = after.filter(|_| !issued.is_empty()).map(|n| n % issued.len());
                let edges = edges(&bed, &issued, after);
                let spec = CommandSpec {
                    after: &edges,
                    scope: match scope {
                        0 => Some(Scope::Device(DeviceId(0))),
                        1 => Some(Scope::Process),
                        _ => None,
                    },
                    ..CommandSpec::new(CostKey(key))
                };
                let ticket = bed.submit_with(queue, issued.len() as u32, &spec);
                issued.push(Issued { queue, ticket, after, scope });
            }
            Op::Turn { queue, after } => {
                let after = after.filter(|_| !issued.is_empty()).map(|n| n % issued.len());
                let edges = edges(&bed, &issued, after);
                let before = bed.queues[queue].stats().deferred;
                let (xqueue, world, id) = (bed.queues[queue].clone(), bed.world.clone(), issued.len() as u32);
                in_order.push(thread::spawn(move || {
                    let spec = CommandSpec { after: &edges, ..CommandSpec::new(CostKey(1)) };
                    let in_order = xqueue.submit_in_order(&spec, || world.launch(queue, id));
                    in_order.expect("nothing is dropped").1.expect("nothing fails");
                }));
                until("the in-order launch has its ticket", || bed.queues[queue].stats().deferred > before);
                issued.push(Issued { queue, ticket: bed.domain.take_ticket(), after, scope: 9 });
            }
            Op::Suspend(queue) => bed.queues[queue].suspend(SuspendFlags::NONE),
            Op::Resume(queue) => bed.queues[queue].resume(ResumeFlags::NONE),
            Op::Policy(queue, run) => bed.queues[queue].set_policy_run(run),
            Op::Gang { run, limit } => {
                bed.domain.store_permission(Permission::new(1, run, limit, 1));
            }
            Op::Window(queue, threshold) => {
                bed.queues[queue].set_launch_config(LaunchConfig::from_settings(threshold, Some(2)));
            }
            Op::Yield => thread::yield_now(),
        }
    }
    bed.domain.store_permission(permission);
    for queue in &bed.queues {
        queue.set_policy_run(true);
        queue.resume(ResumeFlags::NONE);
    }
    let queues = bed.queues.clone();
    within("every program ends", move || {
        in_order.into_iter().for_each(|in_order| in_order.join().expect("no panic"));
        queues.iter().for_each(|queue| queue.wait_all().expect("no error"));
    });
    check(&bed, &issued);
}

fn edges(bed: &Bed, issued: &[Issued], after: Option<usize>) -> Vec<After> {
    let edge = |n: usize| After { queue: bed.queues[issued[n].queue].clone(), through: issued[n].ticket };
    after.map(edge).into_iter().collect()
}

fn check(bed: &Bed, issued: &[Issued]) {
    let log = bed.world.log.lock();
    let mut place = vec![None; issued.len()];
    for (n, (queue, id)) in log.order.iter().enumerate() {
        assert_eq!(issued[*id as usize].queue, *queue);
        assert_eq!(place[*id as usize].replace(n), None, "command {id} is repeated");
    }
    let place: Vec<usize> = place.into_iter().map(|n| n.expect("no command is lost")).collect();
    let classes = classes();
    for (late, command) in issued.iter().enumerate() {
        for (early, other) in issued[..late].iter().enumerate() {
            let (own, its) = (classes[command.queue], classes[other.queue]);
            let rule = own.0 == its.0
                && matches!(
                    (own.1, its.1),
                    (OrderClass::Default, OrderClass::Blocking) | (OrderClass::Blocking, OrderClass::Default)
                );
            let scope = command.scope == 1 || command.scope == 0 && its.0 == 0;
            if rule || scope || other.queue == command.queue || command.after == Some(early) {
                assert!(place[early] < place[late], "command {late} must follow {early}");
            }
        }
    }
    for (queue, state) in log.queues.iter().enumerate() {
        let stats = bed.queues[queue].stats();
        assert_eq!(stats.launched, state.launched.len() as u64);
        assert_eq!((stats.in_flight, stats.pending), (0, 0));
        assert_eq!(stats.direct + stats.deferred, stats.launched);
    }
}

/// The number of cases, small enough for every run; `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    asked.unwrap_or(100)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn random_programs_lose_repeat_and_reorder_nothing(ops in prop::collection::vec(op(), 1..64), limit in any::<bool>()) {
        run(&ops, TestMode::Off, limit);
    }

    #[test]
    fn random_programs_in_defer_mode_keep_the_order(ops in prop::collection::vec(op(), 1..64), limit in any::<bool>()) {
        run(&ops, TestMode::Defer, limit);
    }

    #[test]
    fn random_programs_under_chaos_keep_the_order(ops in prop::collection::vec(op(), 1..32), seed in any::<u64>()) {
        run(&ops, TestMode::Chaos(seed), true);
    }

    #[test]
    fn random_programs_keep_within_the_window(
        threshold in 1..8u32,
        batch in 1..8u32,
        submits in prop::collection::vec((0..2usize, any::<bool>()), 1..200),
    ) {
        let mut bed = Bed::new(Config::default());
        let config = LaunchConfig::from_settings(Some(threshold), Some(batch));
        let queues = [
            bed.queue(0, OrderClass::Independent, config),
            bed.queue(0, OrderClass::Independent, config),
        ];
        for (id, (queue, defer)) in submits.iter().enumerate() {
            if *defer {
                bed.defer(queues[*queue], id as u32);
            } else {
                bed.submit(queues[*queue], id as u32);
            }
        }
        bed.domain.wait_launched(Scope::Process, Ticket::NONE);
        for queue in queues {
            bed.world.get(queue, |state| assert!(state.most_in_flight <= u64::from(threshold)));
        }
    }

    #[test]
    fn suspended_queue_launches_nothing(rounds in prop::collection::vec(1..20u32, 1..12)) {
        let mut bed = Bed::new(Config::default());
        let q = bed.queue(0, OrderClass::Independent, LaunchConfig::from_settings(Some(4), None));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut id = 0;
                while !stop.load(Ordering::Relaxed) {
                    bed.submit(q, id);
                    id += 1;
                }
            });
            for looks in rounds {
                bed.queues[q].suspend(SuspendFlags::NONE);
                let at_return = bed.world.launched(q).len();
                for _ in 0..looks {
                    thread::yield_now();
                    // One launch may have been decided before.
                    assert!(bed.world.launched(q).len() <= at_return + 1);
                }
                bed.queues[q].resume(ResumeFlags::NONE);
                bed.queues[q].suspend(SuspendFlags::SYNC_HW_QUEUE);
                let at_return = bed.world.launched(q).len();
                thread::yield_now();
                assert_eq!(bed.world.launched(q).len(), at_return);
                bed.queues[q].resume(ResumeFlags::NONE);
            }
            stop.store(true, Ordering::Relaxed);
        });
        bed.queues[q].wait_all().expect("no error");
        let launched = bed.world.launched(q);
        assert!(launched.iter().enumerate().all(|(n, id)| *id == n as u32));
    }
}
