//! The launch order between queues: edges, the default-stream rule, drains, inheritance.

mod sim;

use sim::{Bed, unlimited, until};
use xqueue::{
    After, CommandSpec, Config, CostKey, DeviceId, Direct, LaunchConfig, OrderClass, Permission, ResumeFlags,
    Scope, SuspendFlags, Ticket,
};

fn after(bed: &Bed, queue: usize, through: Ticket) -> [After; 1] {
    [After { queue: bed.queues[queue].clone(), through }]
}

fn order(bed: &Bed) -> Vec<u32> {
    bed.world.log.lock().order.iter().map(|(_, id)| *id).collect()
}

#[test]
fn command_is_launched_after_its_edges() {
    let mut bed = Bed::new(unlimited());
    let (a, b) = (bed.plain(), bed.plain());
    // The process is suspended, so there is no inheritance.
    bed.domain.store_permission(Permission::new(1, false, false, 1));
    let record = bed.submit(a, 0);
    bed.submit(a, 1);
    let edge = after(&bed, a, record);
    let spec = CommandSpec { after: &edge, ..CommandSpec::new(CostKey(1)) };
    bed.submit_with(b, 2, &spec);
    bed.submit(b, 3);
    bed.domain.store_permission(Permission::unlimited());
    bed.domain.wait_launched(Scope::Process, Ticket::NONE);
    let order = order(&bed);
    let place = |id| order.iter().position(|other| *other == id);
    assert_eq!(order.len(), 4);
    assert!(place(0) < place(2));
    // A command that was launched long ago blocks no other.
    let spec = CommandSpec { after: &edge, ..CommandSpec::new(CostKey(1)) };
    until("the edge is satisfied", || matches!(bed.direct_with(b, 4, &spec), Direct::Launched(..)));
}

#[test]
fn suspended_queue_runs_as_far_as_a_running_one_waits_for_it() {
    let mut bed = Bed::new(unlimited());
    let (a, b, c) = (bed.plain(), bed.queue(1, OrderClass::Independent, LaunchConfig::Adaptive), bed.plain());
    bed.queues[a].suspend(SuspendFlags::NONE);
    bed.queues[b].set_policy_run(false);
    let first = bed.submit(a, 0);
    bed.submit(a, 1);
    let edge = after(&bed, a, first);
    let second = bed.submit_with(b, 2, &CommandSpec { after: &edge, ..CommandSpec::new(CostKey(1)) });
    bed.submit(b, 3);
    assert_eq!(order(&bed), [], "a suspended queue that waits grants no inheritance");
    let edge = after(&bed, b, second);
    let spec = CommandSpec { after: &edge, ..CommandSpec::new(CostKey(1)) };
    assert_eq!(bed.direct_with(c, 4, &spec), Direct::NotNow);
    bed.submit_with(c, 4, &spec);
    bed.queues[c].wait_launched(Ticket::NONE);
    assert_eq!(order(&bed), [0, 2, 4], "through the chain, and not further");
    assert_eq!(bed.queues[a].stats().pending + bed.queues[b].stats().pending, 2);
    bed.queues[a].resume(ResumeFlags::NONE);
    bed.queues[b].set_policy_run(true);
    bed.domain.wait_launched(Scope::Process, Ticket::NONE);
    assert_eq!(order(&bed).len(), 5);
}

#[test]
fn in_order_launch_keeps_its_edges_and_grants_inheritance() {
    let mut bed = Bed::new(unlimited());
    let (a, b) = (bed.plain(), bed.plain());
    bed.queues[a].suspend(SuspendFlags::NONE);
    let record = bed.submit(a, 0);
    let edge = after(&bed, a, record);
    let spec = CommandSpec { after: &edge, ..CommandSpec::new(CostKey(1)) };
    let (_, result) = bed.queues[b].submit_in_order(&spec, || bed.world.launch(b, 1)).expect("open");
    assert_eq!((result, order(&bed)), (Ok(()), vec![0, 1]));
}

#[test]
fn default_stream_rule_orders_pending_commands() {
    let mut bed = Bed::new(unlimited());
    let null = bed.queue(0, OrderClass::Default, LaunchConfig::Adaptive);
    let one = bed.queue(0, OrderClass::Blocking, LaunchConfig::Adaptive);
    let two = bed.queue(0, OrderClass::Blocking, LaunchConfig::Adaptive);
    let free = bed.queue(0, OrderClass::Independent, LaunchConfig::Adaptive);
    let elsewhere = bed.queue(1, OrderClass::Blocking, LaunchConfig::Adaptive);
    // A launch that blocks inside the runtime: the queue is not suspended, so there is no inheritance.
    bed.world.set(one, |state| state.stuck = true);
    bed.queues[one].suspend(SuspendFlags::NONE);
    bed.submit(one, 0);
    bed.queues[one].resume(ResumeFlags::NONE);
    bed.world.wait("the launch has begun", |log| log.queues[one].launching);
    assert_eq!(bed.direct(null, 1), Direct::NotNow, "an earlier blocking stream");
    bed.defer(null, 1);
    assert_eq!(bed.direct(two, 2), Direct::NotNow, "the default stream's command is earlier");
    bed.defer(two, 2);
    assert!(matches!(bed.direct(free, 3), Direct::Launched(..)));
    assert!(matches!(bed.direct(elsewhere, 4), Direct::Launched(..)));
    bed.world.set(one, |state| state.stuck = false);
    bed.domain.wait_launched(Scope::Process, Ticket::NONE);
    assert_eq!(order(&bed), [3, 4, 0, 1, 2]);
}

#[test]
fn scope_waits_for_everything_earlier_and_nothing_later() {
    let mut bed = Bed::new(unlimited());
    let (a, b) = (bed.plain(), bed.plain());
    let other = bed.queue(1, OrderClass::Independent, LaunchConfig::Adaptive);
    bed.domain.store_permission(Permission::new(1, false, false, 1));
    bed.submit(a, 0);
    bed.submit(other, 1);
    let spec = CommandSpec { scope: Some(Scope::Device(DeviceId(0))), ..CommandSpec::new(CostKey(1)) };
    let free = bed.submit_with(b, 2, &spec);
    bed.submit(a, 3);
    let spec = CommandSpec { scope: Some(Scope::Process), ..CommandSpec::new(CostKey(1)) };
    bed.submit_with(b, 4, &spec);
    bed.domain.store_permission(Permission::unlimited());
    bed.domain.wait_launched(Scope::Device(DeviceId(0)), free);
    assert!(order(&bed).contains(&0));
    bed.domain.wait_launched(Scope::Process, Ticket::NONE);
    let order = order(&bed);
    let place = |id| order.iter().position(|other| *other == id);
    assert!(place(0) < place(2));
    assert!(place(1) < place(4) && place(3) < place(4));
    assert!(!bed.domain.has_pending());
}

#[test]
fn drain_waits_for_earlier_commands_only() {
    let mut bed = Bed::new(unlimited());
    let (a, b) = (bed.plain(), bed.plain());
    bed.queues[a].suspend(SuspendFlags::NONE);
    let bound = bed.domain.take_ticket();
    bed.submit(a, 0);
    bed.submit(b, 1);
    // Command 0 is suspended and later than the bound, so the drain does not wait for it.
    bed.domain.wait_launched(Scope::Process, bound);
    bed.domain.wait_launched(Scope::Queue(&bed.queues[b]), Ticket::NONE);
    let (queue, world) = (bed.queues[a].clone(), bed.world.clone());
    let waiter = std::thread::spawn(move || {
        queue.wait_launched(Ticket::NONE);
        world.launched(a)
    });
    bed.queues[a].resume(ResumeFlags::NONE);
    assert_eq!(waiter.join().expect("no panic"), [0]);
}

/// A higher priority first, and of two equal ones the higher stream priority.
#[test]
fn worker_serves_the_higher_rank_first() {
    // Nobody stands in for the worker while it is inside of a launch.
    let mut bed = Bed::new(Config { watch: false, ..unlimited() });
    let ranks = [(0, -1), (0, 0), (5, 0), (0, 1), (9, 0)];
    let queues: Vec<usize> = ranks
        .map(|(priority, stream_priority)| {
            let queue = bed.plain();
            bed.queues[queue].set_rank(priority, stream_priority);
            queue
        })
        .to_vec();
    let (first, others) = queues.split_last().expect("there are five");
    // The worker is inside of a launch of the first queue. The others get their commands meanwhile.
    bed.world.set(*first, |state| state.stuck = true);
    bed.defer(*first, 4);
    bed.world.wait("the worker launches", |log| log.queues[*first].launching);
    for (id, queue) in (0..).zip(others) {
        bed.defer(*queue, id);
    }
    bed.world.set(*first, |state| state.stuck = false);
    bed.domain.wait_launched(Scope::Process, Ticket::NONE);
    assert_eq!(order(&bed), [4, 2, 3, 1, 0]);
}

#[test]
fn process_permission_suspends_only_covered_queues() {
    let mut bed = Bed::new(unlimited());
    let (covered, free) = (bed.plain(), bed.plain());
    bed.queues[free].set_covered(false);
    bed.domain.store_permission(Permission::new(1, false, true, 1));
    assert_eq!(bed.direct(covered, 1), Direct::NotNow);
    // Neither suspended nor limited.
    for id in 2..10 {
        assert!(matches!(bed.direct(free, id), Direct::Launched(_, Ok(()))));
    }
    assert_eq!((bed.queues[covered].stats().suspensions, bed.queues[free].stats().suspensions), (1, 0));
    bed.queues[free].set_covered(true);
    assert_eq!(bed.direct(free, 10), Direct::NotNow);
    bed.queues[covered].set_covered(false);
    assert!(matches!(bed.direct(covered, 11), Direct::Launched(_, Ok(()))));
}

#[test]
fn suspended_queue_without_inheritance_blocks_its_waiter() {
    for inherit in [true, false] {
        let mut bed = Bed::new(Config { inherit, ..unlimited() });
        let (held, waits, other) = (bed.plain(), bed.plain(), bed.plain());
        bed.queues[held].set_policy_run(false);
        let awaited = bed.defer(held, 1);
        let after = after(&bed, held, awaited);
        let waiting =
            bed.defer_with(waits, 2, &CommandSpec { after: &after, ..CommandSpec::new(CostKey(1)) });
        if inherit {
            until("the awaited command is launched", || bed.queues[waits].is_launched(waiting));
            continue;
        }
        // The worker serves every queue in each round, and would have launched it in the second one.
        for id in 3..6 {
            let ticket = bed.defer(other, id);
            until("the worker looks", || bed.queues[other].is_launched(ticket));
        }
        assert!(!bed.queues[held].is_launched(awaited) && !bed.queues[waits].is_launched(waiting));
        bed.queues[held].set_policy_run(true);
        until("both are launched", || bed.queues[waits].is_launched(waiting));
    }
}
