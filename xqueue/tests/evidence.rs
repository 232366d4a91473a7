//! Completion that a program knows is known to the queue, whatever the markers behind its commands show.

mod sim;

use std::sync::Arc;

use sim::{Bed, unlimited, within};
use xqueue::{
    CommandSpec, Completion, Config, CostKey, Direct, LaunchConfig, OrderClass, Permission, ResumeFlags,
    SuspendFlags, Window,
};

const RECORD: CostKey = CostKey(2);

/// A bed whose queues complete nothing by themselves and mark every command. No query of a marker ever
/// returns true, so any known completion was shown by evidence.
fn marked(classes: &[OrderClass]) -> Bed {
    let mut bed = Bed::new(Config { watch: false, permission: Permission::unlimited(), ..Config::default() });
    for class in classes {
        let q = bed.queue(0, *class, LaunchConfig::from_settings(Some(10_000), Some(1)));
        bed.queues[q].set_policy_limit(Some(Window::DEFAULT));
        bed.world.set(q, |state| state.auto = false);
    }
    bed
}

/// Launches a command like an event record, and returns its evidence.
fn record(bed: &Bed, q: usize, id: u32) -> Completion {
    let mut evidence = None;
    let recorded = bed.queues[q].try_direct(&CommandSpec::new(RECORD), || {
        evidence = Some(bed.queues[q].evidence());
        bed.world.launch(q, id)
    });
    assert!(matches!(recorded, Direct::Launched(_, Ok(()))));
    evidence.expect("the call was made")
}

/// Launches a command that waits on the device for the command of the evidence.
fn wait_for(bed: &Bed, q: usize, id: u32, evidence: Completion) {
    let waited = bed.queues[q].try_direct(&CommandSpec::new(RECORD), || {
        let result = bed.world.launch(q, id);
        bed.queues[q].follow(Arc::new(evidence));
        result
    });
    assert!(matches!(waited, Direct::Launched(_, Ok(()))));
}

#[test]
fn record_seen_complete_outweighs_the_marker_behind_it() {
    let bed = marked(&[OrderClass::Independent]);
    let queue = &bed.queues[0];
    bed.direct_soon(0, 1);
    let evidence = record(&bed, 0, 2);
    bed.world.get(0, |state| assert_eq!(state.marks, [1, 2], "the last marker is behind the record"));
    assert!(!queue.is_complete(), "nothing has shown it");
    evidence.seen();
    assert!(queue.is_complete() && !queue.is_ready());
    bed.world.get(0, |state| assert_eq!(state.done, 0, "the marks have shown nothing"));
    bed.direct_soon(0, 3);
    evidence.seen();
    assert!(!queue.is_complete() && queue.is_ready(), "the record says nothing of what came later");
}

#[test]
fn pending_command_is_not_complete() {
    let bed = marked(&[OrderClass::Independent]);
    let queue = &bed.queues[0];
    let evidence = record(&bed, 0, 1);
    queue.suspend(SuspendFlags::NONE);
    bed.defer(0, 2);
    evidence.seen();
    assert!(!queue.is_complete() && queue.is_ready());
    queue.resume(ResumeFlags::DROP_COMMANDS);
    queue.wait_launched(xqueue::Ticket::NONE);
    assert!(queue.is_complete(), "what is dropped is nothing to wait for");
}

#[test]
fn known_completion_needs_no_marker() {
    let mut bed = Bed::new(unlimited());
    let q = bed.plain();
    bed.world.set(q, |state| state.auto = false);
    bed.direct_soon(q, 1);
    record(&bed, q, 2).seen();
    let queue = bed.queues[q].clone();
    within("there is nothing to wait for", move || queue.suspend(SuspendFlags::SYNC_HW_QUEUE));
    bed.world.get(q, |state| assert_eq!(state.marks, [0; 0]));
}

#[test]
fn command_that_waited_for_a_record_shows_it() {
    let bed = marked(&[OrderClass::Independent; 3]);
    bed.direct_soon(0, 1);
    let first = record(&bed, 0, 2);
    wait_for(&bed, 1, 3, first);
    let second = record(&bed, 1, 4);
    wait_for(&bed, 2, 5, second);
    bed.direct_soon(1, 6);
    let proof = bed.queues[2].begin_sync();
    bed.queues[2].synced(proof);
    assert!(bed.queues[2].is_complete() && bed.queues[0].is_complete(), "over two waits");
    assert!(!bed.queues[1].is_complete(), "its last command is behind what was waited for");
}

#[test]
fn device_wait_shows_nothing_before_it_is_complete() {
    let bed = marked(&[OrderClass::Independent; 2]);
    let early = record(&bed, 1, 0);
    let awaited = record(&bed, 0, 1);
    wait_for(&bed, 1, 2, awaited);
    early.seen();
    assert!(!bed.queues[0].is_complete());
    let proof = bed.queues[1].begin_sync();
    bed.queues[1].synced(proof);
    assert!(bed.queues[0].is_complete());
}

#[test]
fn device_waits_beyond_the_bound_are_forgotten() {
    let bed = marked(&[OrderClass::Independent; 2]);
    for round in 0..1000 {
        let evidence = record(&bed, 0, 2 * round);
        wait_for(&bed, 1, 2 * round + 1, evidence);
    }
    let proof = bed.queues[1].begin_sync();
    bed.queues[1].synced(proof);
    assert!(bed.queues[0].is_complete());
}

#[test]
fn default_stream_rule_shows_completion_of_other_queues() {
    use OrderClass::{Blocking, Default, Independent};
    for (kin, other) in [(Default, Blocking), (Blocking, Default)] {
        let bed = marked(&[kin, other, Independent]);
        bed.direct_soon(0, 1);
        bed.direct_soon(2, 2);
        let evidence = record(&bed, 1, 3);
        bed.direct_soon(2, 4);
        evidence.seen();
        assert!(bed.queues[0].is_complete() && bed.queues[1].is_complete());
        assert!(!bed.queues[2].is_complete(), "no other queue shows the completion of an independent one");
        let evidence = record(&bed, 1, 5);
        bed.direct_soon(0, 6);
        evidence.seen();
        assert!(!bed.queues[0].is_complete(), "launched behind the record");
    }
}

#[test]
fn call_that_completes_shows_completion_of_other_queues() {
    use OrderClass::{Blocking, Default};
    for suspended in [false, true] {
        let bed = marked(&[Blocking, Default]);
        let (kin, null) = (&bed.queues[0], &bed.queues[1]);
        bed.direct_soon(0, 1);
        let spec = CommandSpec { completes: true, ..CommandSpec::new(RECORD) };
        if suspended {
            null.suspend(SuspendFlags::NONE);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    null.submit_in_order(&spec, || bed.world.launch(1, 2)).expect("launched in order")
                });
                sim::until("the in-order launch waits", || null.stats().pending == 1);
                null.resume(ResumeFlags::NONE);
            });
        } else {
            assert!(matches!(bed.direct_with(1, 2, &spec), Direct::Launched(_, Ok(()))));
        }
        assert!(kin.is_complete() && null.is_complete() && !kin.is_ready());
    }
}

#[test]
fn launch_in_a_callback_is_marked_and_seen() {
    let mut bed = Bed::new(Config { watch: true, ..unlimited() });
    let q = bed.plain();
    assert!(bed.queues[q].launch_unordered(|| bed.world.launch(q, 0)).is_ok());
    sim::until("the watcher proves it idle", || !bed.queues[q].is_ready());
    assert_eq!(bed.queues[q].stats().in_flight, 0);
}

#[test]
fn tail_awaited_inside_the_runtime_gets_no_marker() {
    let mut bed = Bed::new(Config { watch: true, ..unlimited() });
    let (awaited, other) = (bed.plain(), bed.plain());
    bed.world.set(awaited, |state| state.auto = false);
    let wait = bed.queues[awaited].begin_wait();
    bed.direct_soon(awaited, 1);
    // The watcher checks both queues each time; the other one needs several checks.
    for command in 2..5 {
        bed.direct_soon(other, command);
        sim::until("the watcher proves the other one idle", || !bed.queues[other].is_ready());
    }
    bed.world.get(awaited, |state| assert!(state.marks.is_empty(), "it would have waited as well"));
    assert!(bed.queues[awaited].is_ready());
    // The wait failed: it proves nothing, and a marker has to show the completion.
    drop(wait);
    sim::until("a marker is made", || bed.world.get(awaited, |state| !state.marks.is_empty()));
    bed.world.complete(awaited, 1);
    sim::until("the marker shows it", || !bed.queues[awaited].is_ready());
    // A successful wait proves what had been launched before it began.
    bed.direct_soon(awaited, 6);
    bed.queues[awaited].begin_wait().succeeded();
    assert!(bed.queues[awaited].is_complete());
}

#[test]
fn launch_in_a_callback_is_not_proved_while_it_is_made() {
    let mut bed = Bed::new(unlimited());
    let q = bed.plain();
    let queue = bed.queues[q].clone();
    let inner = queue.clone();
    let result = queue.launch_unordered(move || {
        // Another thread synchronizes meanwhile; it cannot have seen this launch complete.
        let proof = inner.begin_sync();
        inner.synced(proof);
        assert!(!inner.is_complete() && inner.is_ready());
        Ok(())
    });
    assert!(result.is_ok());
    let proof = queue.begin_sync();
    queue.synced(proof);
    assert!(queue.is_complete() && !queue.is_ready());
}

#[test]
fn unmarkable_default_queue_is_shown_idle_by_the_blocking_ones() {
    let mut bed = Bed::new(Config { permission: Permission::unlimited(), ..Config::default() });
    let default = bed.queue(0, OrderClass::Default, LaunchConfig::Adaptive);
    let busy = bed.queue(0, OrderClass::Blocking, LaunchConfig::Adaptive);
    let unused = bed.queue(0, OrderClass::Blocking, LaunchConfig::Adaptive);
    bed.world.set(busy, |state| state.auto = false);
    bed.direct_soon(default, 1);
    bed.direct_soon(busy, 2);
    sim::until("the watcher marks the blocking queue", || {
        bed.world.get(busy, |state| !state.marks.is_empty())
    });
    assert!(bed.queues[default].is_ready(), "nothing has shown it");
    bed.world.set(busy, |state| state.auto = true);
    sim::until("both are idle", || !bed.queues[default].is_ready() && !bed.queues[busy].is_ready());
    bed.world.get(default, |state| assert!(state.marks.is_empty(), "a marker would have stopped the others"));
    assert!(!bed.queues[unused].is_ready());
}
