//! The window, the markers and the limit.

mod sim;

use std::time::Duration;

use sim::{Bed, unlimited, until, within};
use xqueue::{
    After, Bounds, CommandSpec, Config, CostKey, Direct, HwResult, LaunchConfig, OrderClass, Permission,
    SubmitError, SuspendFlags, Ticket, Window,
};

fn unwatched(permission: Permission) -> Config {
    Config { permission, watch: false, ..Config::default() }
}

#[test]
fn fixed_window_admits_its_threshold_and_marks_its_batches() {
    let mut bed = Bed::new(unwatched(Permission::limited()));
    let q = bed.queue(0, OrderClass::Independent, LaunchConfig::from_settings(Some(4), Some(2)));
    bed.world.set(q, |state| state.auto = false);
    for id in 0..10 {
        bed.submit(q, id);
    }
    for done in (0..10).step_by(2) {
        let expected = (done + 4).min(10);
        bed.world.wait("the window is used", |log| log.queues[q].launched.len() == expected);
        bed.world.complete(q, 2);
    }
    bed.queues[q].wait_all().expect("no error");
    bed.world.get(q, |state| {
        assert_eq!(state.most_in_flight, 4);
        assert_eq!(state.marks, [2, 4, 6, 8, 10]);
    });
}

#[test]
fn unknown_command_is_in_flight_alone() {
    let mut bed = Bed::new(unwatched(Permission::limited()));
    let q = bed.plain();
    let spec = CommandSpec::new(CostKey::UNKNOWN);
    for id in 0..100 {
        bed.submit_with(q, id, &spec);
    }
    bed.queues[q].wait_launched(Ticket::NONE);
    assert_eq!(bed.world.launched(q), (0..100).collect::<Vec<_>>());
    bed.world.get(q, |state| assert_eq!(state.most_in_flight, 1));
}

#[test]
fn learnt_command_shares_the_budget_and_an_unknown_one_does_not() {
    // On any machine the sample is far below the budget.
    let config = Config { budget: Duration::from_secs(3600), ..unwatched(Permission::limited()) };
    let mut bed = Bed::new(config);
    let q = bed.plain();
    for id in 0..3 {
        assert!(matches!(bed.direct(q, id), Direct::Launched(..)));
    }
    bed.world.get(q, |state| assert_eq!(state.most_in_flight, 1));
    bed.world.set(q, |state| state.auto = false);
    bed.world.complete(q, 3);
    for id in 3..9 {
        assert!(matches!(bed.direct(q, id), Direct::Launched(..)));
    }
    assert_eq!(bed.direct_with(q, 9, &CommandSpec::new(CostKey(2))), Direct::NotNow);
    bed.world.complete(q, 6);
    assert!(matches!(bed.direct_with(q, 9, &CommandSpec::new(CostKey(2))), Direct::Launched(..)));
    assert_eq!(bed.direct(q, 10), Direct::NotNow);
    // A window full of unmarked commands gets a marker when a caller is kept back by it.
    bed.world.get(q, |state| assert_eq!(state.marks.last(), Some(&10)));
}

#[test]
fn known_times_of_completed_commands_are_summed() {
    let config = Config { budget: Duration::from_secs(3600), ..unwatched(Permission::limited()) };
    let mut bed = Bed::new(config);
    let q = bed.plain();
    let launch = |id| assert!(matches!(bed.direct(q, id), Direct::Launched(..)));
    let worked = || bed.queues[q].stats().worked;
    let synchronize = || bed.queues[q].synced(bed.queues[q].begin_sync());
    launch(0);
    assert_eq!(worked(), Duration::ZERO, "it is unknown");
    until("a single one is known", || {
        // The second one makes room for itself, by which the time of the first one is learnt.
        launch(1);
        launch(2);
        synchronize();
        let before = worked();
        launch(3);
        synchronize();
        worked() > before
    });
    let first = worked();
    bed.world.set(q, |state| state.auto = false);
    launch(4);
    assert_eq!(worked(), first, "it is still running");
    bed.world.complete(q, 1);
    synchronize();
    let both = worked();
    assert!(both > first);
    bed.domain.store_permission(Permission::unlimited());
    launch(5);
    bed.world.complete(q, 1);
    synchronize();
    assert_eq!(worked(), both, "times are known only under a limit");
}

#[test]
fn little_known_command_has_an_interval_of_its_own() {
    let config = Config { budget: Duration::from_secs(3600), ..unwatched(Permission::limited()) };
    let mut bed = Bed::new(config);
    let q = bed.plain();
    let soon = |key: CostKey, id: u32| {
        until("it is launched", || {
            matches!(bed.direct_with(q, id, &CommandSpec::new(key)), Direct::Launched(..))
        });
    };
    let marks = || bed.world.get(q, |state| state.marks.clone());
    soon(CostKey(2), 0);
    until("the first one is known well behind others of its kind", || {
        (0..8).for_each(|_| soon(CostKey(1), 1));
        let before = marks().len();
        soon(CostKey(1), 1);
        let known = marks().len() == before;
        // Nothing is launched beside it, so the markers are polled.
        soon(CostKey::UNKNOWN, 2);
        known
    });
    (0..8).for_each(|_| soon(CostKey(1), 1));
    let (before, launched) = (marks().len(), bed.world.launched(q).len() as u64);
    soon(CostKey(2), 0);
    assert_eq!(marks()[before..], [launched, launched + 1], "one in front of it, one behind");
}

#[test]
fn permission_sets_the_time_that_the_window_admits() {
    // No second command fits the domain's own budget. No command counts less than a microsecond, so fewer
    // than a hundred may be launched in the 50 µs before a foreseen end.
    const MANY: usize = 100;
    let config = Config { budget: Duration::from_nanos(1), ..unwatched(Permission::limited()) };
    let mut bed = Bed::new(config);
    let q = bed.plain();
    bed.world.set(q, |state| state.auto = false);
    let is_wide = || {
        let launched = (0..1_000).take_while(|id| matches!(bed.direct(q, *id), Direct::Launched(..))).count();
        bed.world.complete(q, bed.queues[q].stats().in_flight);
        launched > MANY
    };
    let wide = Permission::limited().with_window(Window::from_units(255));
    assert!(!is_wide());
    bed.domain.store_permission(wide);
    until("it is learnt that hundreds fit 25 ms", is_wide);
    bed.domain.store_permission(Permission::limited());
    assert!(!is_wide());
    bed.domain.set_least_window(Duration::from_secs(3600));
    until("an hour has room", is_wide);
    bed.domain.set_least_window(Duration::ZERO);
    // The narrower of two windows counts.
    bed.domain.store_permission(wide);
    bed.queues[q].set_policy_limit(Some(Window::DEFAULT));
    assert!(!is_wide());
    bed.queues[q].set_policy_limit(Some(Window::from_units(255)));
    until("both are wide", is_wide);
}

#[test]
fn known_command_is_launched_ahead_of_a_foreseen_end() {
    // No second command fits this budget.
    let config = Config { budget: Duration::from_nanos(1), ..unwatched(Permission::limited()) };
    let mut bed = Bed::new(config);
    let (q, fixed) =
        (bed.plain(), bed.queue(0, OrderClass::Independent, LaunchConfig::from_settings(Some(1), None)));
    for q in [q, fixed] {
        bed.world.set(q, |state| state.auto = false);
    }
    assert!(matches!(bed.direct(q, 0), Direct::Launched(..)));
    assert_eq!(bed.direct(q, 1), Direct::NotNow, "nothing is known yet");
    // The device never completes the last one; its end is foreseen anyway.
    until("it is learnt that these take microseconds", || {
        bed.world.complete(q, 1);
        assert!(matches!(bed.direct(q, 1), Direct::Launched(..)));
        matches!(bed.direct(q, 2), Direct::Launched(..))
    });
    bed.world.get(q, |state| assert_eq!(state.most_in_flight, 2));
    assert_eq!(
        bed.direct_with(q, 3, &CommandSpec::new(CostKey::UNKNOWN)),
        Direct::NotNow,
        "it may take for ever"
    );
    assert_eq!(bed.direct_with(q, 3, &CommandSpec::new(CostKey(7))), Direct::NotNow, "so may this");
    assert!(matches!(bed.direct(fixed, 0), Direct::Launched(..)));
    assert_eq!(bed.direct(fixed, 1), Direct::NotNow, "a threshold is a threshold");
}

#[test]
fn known_commands_share_markers_with_any_window() {
    // No second command fits this budget.
    let config = Config { budget: Duration::from_nanos(1), ..unwatched(Permission::limited()) };
    let mut bed = Bed::new(config);
    let q = bed.plain();
    let marks = || bed.world.get(q, |state| state.marks.len());
    until("what is known well takes microseconds, and marks are for hundreds of them", || {
        let before = marks();
        for id in 0..1_000 {
            bed.direct_soon(q, id);
        }
        marks() - before < 200
    });
    // One in 61 is studied again, with a marker in front and one behind.
    let before = marks();
    for id in 0..1_000 {
        bed.direct_soon(q, id);
    }
    let again = marks() - before;
    assert!(again >= 1_000 / 61, "{again}");
    let spaces =
        bed.world.get(q, |state| state.marks.windows(2).map(|two| two[1] - two[0]).collect::<Vec<_>>());
    assert!(spaces.iter().rev().take(again - 1).any(|&space| space == 1));
}

#[test]
fn short_rounds_are_learnt_from_their_synchronizations() {
    let mut bed = Bed::new(unwatched(Permission::limited()));
    let q = bed.plain();
    // No query shows an end, only the synchronizations do.
    bed.world.set(q, |state| state.auto = false);
    let live = || bed.world.get(q, |state| state.live_marks.len());
    let marks = || bed.world.get(q, |state| state.marks.len());
    let round = |id: u32| {
        assert!(matches!(bed.direct(q, id), Direct::Launched(..)));
        bed.queues[q].wait_all().expect("no error");
        assert_eq!(live(), 0, "its marker is given back");
    };
    round(0);
    assert_eq!(marks(), 1, "nothing is known yet");
    until("what is known well gets a marker once in hundreds of rounds", || {
        let before = marks();
        (1..=1_000).for_each(round);
        marks() - before < 8
    });
}

#[test]
fn command_that_never_ends_stops_launching_ahead() {
    let mut bed = Bed::new(unwatched(Permission::limited()));
    let q = bed.plain();
    (0..1_000).for_each(|id| bed.direct_soon(q, id));
    bed.world.set(q, |state| state.auto = false);
    // However long ago all should have ended, the bound holds: one interval, the window and the launch-ahead
    // time, of commands that count at least a microsecond.
    let begun = std::time::Instant::now();
    let mut launched = 0;
    while begun.elapsed() < Duration::from_millis(50) {
        launched += usize::from(matches!(bed.direct(q, 0), Direct::Launched(..)));
    }
    assert!(launched <= 400 + 200 + 500 + 2, "{launched}");
}

#[test]
fn unlimited_markers_are_dense_only_while_progress_is_shown() {
    let mut bed = Bed::new(unwatched(Permission::unlimited()));
    let q = bed.plain();
    let launch = |ids: std::ops::Range<u64>| {
        for id in ids {
            assert!(matches!(bed.direct(q, u32::try_from(id).unwrap()), Direct::Launched(..)));
        }
    };
    let sparse = 16 * 1024;
    launch(0..2 * sparse);
    bed.world.get(q, |state| assert_eq!(state.marks, [sparse, 2 * sparse]));
    bed.domain.show_progress(true);
    let begin = 2 * sparse + 1;
    launch(begin - 1..begin);
    bed.world.get(q, |state| assert_eq!(state.marks.last(), Some(&begin), "at once"));
    launch(begin..begin + 640);
    let dense: Vec<_> = (1..=10).map(|n| begin + n * 64).collect();
    bed.world.get(q, |state| assert_eq!(state.marks[3..], dense));
    bed.domain.show_progress(false);
    let due = begin + 11 * 64;
    launch(begin + 640..due + sparse + 100);
    bed.world.get(q, |state| assert_eq!(state.marks[13..], [due, due + sparse], "the next one is due still"));
}

#[test]
fn new_limit_lets_what_is_in_flight_drain_first() {
    for launch in [LaunchConfig::Adaptive, LaunchConfig::from_settings(Some(2), None)] {
        let mut bed = Bed::new(unwatched(Permission::unlimited()));
        let q = bed.queue(0, OrderClass::Independent, launch);
        bed.world.set(q, |state| state.auto = false);
        for id in 0..40 {
            assert!(matches!(bed.direct(q, id), Direct::Launched(..)));
        }
        bed.domain.store_permission(Permission::limited());
        assert_eq!(bed.direct(q, 40), Direct::NotNow);
        bed.world.get(q, |state| assert_eq!(state.marks, [40]));
        bed.defer(q, 40);
        assert_eq!(bed.queues[q].stats().in_flight, 40, "it is reported");
        bed.world.complete(q, 40);
        bed.queues[q].wait_launched(Ticket::NONE);
        assert_eq!(bed.world.launched(q).len(), 41);
        // The policy's own limit does the same, and lifting it frees the queue again.
        bed.domain.store_permission(Permission::unlimited());
        bed.queues[q].set_policy_limit(Some(Window::DEFAULT));
        bed.queues[q].set_policy_limit(None);
        for id in 41..80 {
            bed.direct_soon(q, id);
        }
        assert_eq!(bed.queues[q].stats().in_flight, 40);
    }
}

#[test]
fn default_queue_among_others_is_marked_with_its_own_launches_only() {
    let mut bed = Bed::new(unwatched(Permission::unlimited()));
    let null = bed.queue(0, OrderClass::Default, LaunchConfig::from_settings(Some(2), Some(2)));
    let blocking = bed.queue(0, OrderClass::Blocking, LaunchConfig::Adaptive);
    bed.world.set(null, |state| state.auto = false);
    for id in 0..10 {
        bed.submit(null, id);
    }
    bed.submit(blocking, 10);
    bed.domain.store_permission(Permission::limited());
    // The tail has no marker and may get none: the window must not wait for it.
    assert!(matches!(bed.direct(null, 11), Direct::Launched(..)));
    bed.world.get(null, |state| assert_eq!(state.marks, [11], "recorded with the launch"));
    assert_eq!(bed.direct(null, 12), Direct::NotNow, "now it can be waited for");
    bed.world.complete(null, 11);
    assert!(matches!(bed.direct(null, 12), Direct::Launched(..)));
    bed.world.get(null, |state| assert_eq!(state.marks, [11, 12], "each launch, whatever the batch"));
}

#[test]
fn default_queue_is_marked_alone_while_no_other_has_launched() {
    let mut bed = Bed::new(unwatched(Permission::unlimited()));
    let null = bed.queue(0, OrderClass::Default, LaunchConfig::Adaptive);
    let blocking = bed.queue(0, OrderClass::Blocking, LaunchConfig::Adaptive);
    let independent = bed.plain();
    bed.submit(blocking, 0);
    bed.submit(null, 1);
    bed.submit(independent, 2);
    let queue = bed.queues[null].clone();
    within("the tail is marked", move || queue.suspend(SuspendFlags::SYNC_HW_QUEUE));
    bed.world.get(null, |state| assert_eq!(state.marks, [1]));
}

#[test]
fn failed_marker_blocks_no_caller() {
    let mut bed = Bed::new(unwatched(Permission::limited()));
    let q = bed.plain();
    bed.world.set(q, |state| state.fail_marks = true);
    for id in 0..20 {
        bed.submit(q, id);
    }
    bed.queues[q].wait_launched(Ticket::NONE);
    assert_eq!(bed.world.launched(q).len(), 20);
    assert_eq!(bed.queues[q].take_error().map(|error| error.code()), Some(999));
}

#[test]
fn watcher_marks_what_the_program_never_checks() {
    let mut bed = Bed::new(Config { watch: true, ..unlimited() });
    let q = bed.plain();
    for round in 0..20 {
        bed.submit(q, round);
        sim::until("idle is proved", || !bed.queues[q].is_ready());
        let stats = bed.queues[q].stats();
        assert_eq!((stats.launched, stats.completed), (u64::from(round) + 1, u64::from(round) + 1));
    }
}

/// A queue with a window of one, filled by a command that lasts until the test completes it.
fn occupied(open: bool) -> (Bed, usize) {
    let mut bed = Bed::new(unwatched(Permission::limited()));
    let q = bed.queue(0, OrderClass::Independent, LaunchConfig::from_settings(Some(1), None));
    bed.world.set(q, |state| state.auto = false);
    let spec = CommandSpec { open, ..CommandSpec::new(CostKey(1)) };
    assert!(matches!(bed.direct_with(q, 0, &spec), Direct::Launched(..)));
    (bed, q)
}

/// An in-order launch of another thread on the queue.
fn in_order(
    bed: &Bed,
    q: usize,
    id: u32,
) -> std::thread::JoinHandle<Result<(Ticket, HwResult), SubmitError>> {
    let (queue, world) = (bed.queues[q].clone(), bed.world.clone());
    std::thread::spawn(move || queue.submit_in_order(&CommandSpec::new(CostKey(1)), || world.launch(q, id)))
}

#[test]
fn window_behind_an_open_command_keeps_no_caller_waiting() {
    let (bed, q) = occupied(true);
    let again = CommandSpec { open: true, ..CommandSpec::new(CostKey(1)) };
    assert_eq!(bed.direct_with(q, 1, &again), Direct::NotNow, "no thread waits for it");
    bed.defer_with(q, 1, &again);
    bed.defer(q, 2);
    in_order(&bed, q, 3).join().expect("no panic").expect("open").1.expect("launched");
    assert_eq!(bed.world.launched(q), [0, 1, 2, 3]);
    // A drain waits as well.
    bed.defer(q, 4);
    bed.queues[q].wait_launched(Ticket::NONE);
    assert_eq!(bed.world.launched(q), [0, 1, 2, 3, 4]);
    // After its end the window counts again.
    bed.world.complete(q, 5);
    bed.submit(q, 5);
    bed.world.wait("the window is free", |log| log.queues[q].launched.len() == 6);
    let waits = in_order(&bed, q, 6);
    until("it waits", || bed.queues[q].stats().pending == 1);
    bed.queues[q].resume(xqueue::ResumeFlags::NONE);
    assert_eq!(bed.world.launched(q).len(), 6, "a window of one");
    bed.world.complete(q, 1);
    waits.join().expect("no panic").expect("open").1.expect("launched");
}

#[test]
fn awaited_command_behind_an_open_one_is_launched() {
    let (mut bed, q) = occupied(true);
    let other = bed.plain();
    bed.defer(q, 1);
    let edge = [After { queue: bed.queues[q].clone(), through: bed.domain.take_ticket() }];
    bed.defer_with(other, 2, &CommandSpec { after: &edge, ..CommandSpec::new(CostKey(1)) });
    bed.world.wait("both are launched", |log| log.order.len() == 3);
    assert_eq!(bed.world.log.lock().order, [(q, 0), (q, 1), (other, 2)]);
}

#[test]
fn full_pending_behind_an_open_command_gives_way() {
    let bounds = Bounds { commands: 4, ..Bounds::default() };
    let mut bed = Bed::new(Config { bounds, ..unwatched(Permission::limited()) });
    let q = bed.queue(0, OrderClass::Independent, LaunchConfig::from_settings(Some(1), None));
    bed.world.set(q, |state| state.auto = false);
    let open = CommandSpec { open: true, ..CommandSpec::new(CostKey(1)) };
    for id in 0..20 {
        bed.submit_with(q, id, &open);
    }
    assert!(bed.world.launched(q).len() > 12);
}

#[test]
fn waiter_behind_a_command_that_never_ends_is_admitted_in_the_end() {
    let (bed, q) = occupied(false);
    bed.defer(q, 1);
    in_order(&bed, q, 2).join().expect("no panic").expect("open").1.expect("launched");
    assert_eq!(bed.world.launched(q), [0, 1, 2]);
}

#[test]
fn abandoned_launches_have_no_marker_until_markers_are_allowed() {
    let (bed, q) = occupied(true);
    assert!(bed.queues[q].is_open());
    bed.queues[q].abandon_markers();
    let marks = || bed.world.get(q, |state| (state.marks.len(), state.live_marks.len()));
    let (made, live) = marks();
    assert_eq!(live, 0);
    let waiter = {
        let queue = bed.queues[q].clone();
        std::thread::spawn(move || queue.wait_completed(Ticket::NONE))
    };
    bed.world.complete(q, 1);
    for _ in 0..100 {
        assert!(!bed.queues[q].is_complete(), "nothing shows it");
        std::thread::yield_now();
    }
    assert_eq!(marks(), (made, 0));
    bed.queues[q].allow_markers();
    waiter.join().expect("no panic");
    assert!(!bed.queues[q].is_open() && marks().0 > made);
}

#[test]
fn launch_settings_are_clamped_and_completed() {
    use LaunchConfig::{Adaptive, Fixed};
    assert_eq!(LaunchConfig::from_settings(None, None), Adaptive);
    assert_eq!(LaunchConfig::from_settings(Some(4), None), Fixed { threshold: 4, batch: 4 });
    assert_eq!(LaunchConfig::from_settings(None, Some(3)), Fixed { threshold: 16, batch: 3 });
    assert_eq!(LaunchConfig::from_settings(Some(0), Some(0)), Fixed { threshold: 1, batch: 1 });
    let fixed = LaunchConfig::from_settings(Some(32), Some(8));
    assert_eq!(fixed.with(None, Some(4)), Fixed { threshold: 32, batch: 4 });
    assert_eq!(Adaptive.with(None, None), Adaptive);
    assert_eq!(Adaptive.with(Some(20), None), Fixed { threshold: 20, batch: 8 });
    let permission = Permission::new(9, true, true, 2);
    assert_eq!(Permission::from_word(permission.word()), permission);
    assert_eq!((permission.generation(), permission.level()), (9, 2));
}
