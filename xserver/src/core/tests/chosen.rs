//! What follows from policies that are chosen while clients are there, and from hints.

use super::*;
use protocol::control::{Said, Target};
use protocol::hint::{ProcessHints, QueueHints};
use protocol::policy::PolicyKind;
use std::num::NonZeroU64;

#[test]
fn what_a_policy_withholds_calls_no_guard() {
    let mut stage = Stage::new(Settings::default(), &[&[(1, 0)], &[(1, 9)]]);
    let row = registry::find(PolicyKind::Power).unwrap();
    let mut power = Choice::new(row);
    power.values.set("budget-w", 10.0).unwrap();
    power.values.set("period-ms", 10_000.0).unwrap();
    stage.core.set_policy(None, power).unwrap();
    stage.step();
    stage.flip(0);
    let mut withheld = 0;
    for half in 0..2 {
        for _ in 0..200 {
            stage.core.set_power(DeviceId(1), 500_000, stage.now());
            stage.step();
            stage.pass(Duration::from_millis(50), |_| {});
            let low = stage.core.clients().next().unwrap();
            withheld += usize::from(matches!(low.permit.reason, Reason::Throttled(_)));
            assert_ne!(low.permit.reason, Reason::Guard);
        }
        if half == 0 {
            // Now beside one who completes nothing, and does not stand in the way.
            stage.flip(1);
        }
    }
    assert!(withheld > 100, "{withheld}");
    assert_eq!(stage.core.guard_runs(), 0);
}

/// Lets GANG decide about clients of which these are one job.
fn gang(clients: &[Queues<'_>], job: &[usize]) -> Stage {
    let mut stage = Stage::new(Settings::default(), clients);
    stage.core.set_policy(None, registry::find(PolicyKind::Gang).unwrap().into()).unwrap();
    for &client in job {
        let hints = ProcessHints { job: NonZeroU64::new(7), ..ProcessHints::default() };
        stage.core.apply(stage.clients[client], &ToServer::ProcessHints { hints }).unwrap();
    }
    stage.step();
    stage
}

#[test]
fn who_keeps_a_device_free_for_a_job_that_hangs_keeps_nobody_waiting_for_ever() {
    let mut stage = gang(&[&[(1, 5)], &[(2, 5)], &[(2, 0)]], &[0, 1]);
    // The other half of the collective never comes.
    stage.board(1).stopped.set(true);
    stage.flip(0);
    stage.flip(2);
    assert_eq!(stage.runs(), [true, true, false]);
    let together = Cell::new(0);
    stage.pass(Duration::from_millis(400), |stage| {
        together.set(together.get() + usize::from(stage.runs() == [true; 3]));
    });
    // As where the job runs on the device itself.
    assert!((2..=3).contains(&stage.core.guard_runs()), "{}", stage.core.guard_runs());
    assert!((38..=63).contains(&together.get()), "{}", together.get());
}

#[test]
fn one_process_keeps_its_own_devices_free_and_may_hang_as_well() {
    let mut stage = gang(&[&[(1, 5), (2, 5)], &[(2, 0)]], &[]);
    stage.flip(0);
    stage.flip(1);
    assert_eq!(stage.runs(), [true, false]);
    stage.pass(Duration::from_millis(300), |_| {});
    assert!(stage.core.guard_runs() > 0);
}

#[test]
fn a_job_that_gets_on_keeps_its_devices_free() {
    let clients: &[Queues<'_>] = &[&[(1, 5)], &[(2, 5)], &[(2, 0)]];
    let mut stage = gang(clients, &[0, 1]);
    stage.flip(0);
    stage.flip(2);
    stage.pass(Duration::from_secs(1), |stage| {
        stage.board(0).completed.set(stage.now().0);
        assert_eq!(stage.runs(), [true, true, false]);
    });
    assert_eq!(stage.core.guard_runs(), 0);
    // Neither does one that is done in time.
    let mut stage = gang(clients, &[0, 1]);
    stage.flip(2);
    for _ in 0..10 {
        stage.flip(0);
        stage.pass(Duration::from_millis(60), |stage| assert_eq!(stage.runs(), [true, true, false]));
        stage.flip(0);
        stage.pass(Duration::from_millis(2), |_| {});
        assert_eq!(stage.runs(), [true; 3]);
    }
    assert_eq!(stage.core.guard_runs(), 0);
}

#[test]
fn what_is_kept_free_for_expected_work_calls_no_guard() {
    let mut stage = gang(&[&[(1, 5)], &[(2, 5)], &[(2, 0)]], &[0, 1]);
    let mut clears = Choice::new(registry::by_name("LCBE").unwrap());
    for (name, value) in [("lead-us", 1e5), ("grace-us", 1e5), ("waste-percent", 100.0)] {
        clears.values.set(name, value).unwrap();
    }
    stage.core.set_policy(None, clears).unwrap();
    // One of the same job has work elsewhere and completes nothing: that is not why the device is kept free.
    stage.flip(0);
    stage.flip(2);
    stage.pass(Duration::from_secs(1), |_| {});
    let of = Target { pid: Some(Pid(101)), queue: None };
    stage.core.hint(of, &[Said::Arrival(Some(100_000))], stage.now()).unwrap();
    stage.step();
    assert_eq!(stage.runs(), [true, true, false]);
    stage.pass(Duration::from_millis(199), |stage| assert_eq!(stage.runs(), [true, true, false]));
    stage.pass(Duration::from_millis(5), |_| {});
    assert_eq!((stage.runs(), stage.core.guard_runs()), (vec![true; 3], 0));
}

#[test]
fn hints_make_more_matter() {
    let queues: Queues<'_> = &[(1, 3), (1, 3)];
    let mut stage = Stage::new(Settings::default(), &[queues, &[(1, 5)], &[(2, 0)]]);
    stage.flip(0);
    let wants = |stage: &Stage| stage.board(0).wants.get() & (WANTS_READY | WANTS_IDLE);
    assert_eq!(wants(&stage), 0, "its other queue is as urgent");
    let hints = QueueHints { deadline_us: NonZeroU64::new(500), ..QueueHints::default() };
    stage.core.apply(stage.clients[0], &ToServer::QueueHints { queue: QueueId(2), hints }).unwrap();
    stage.step();
    assert_eq!(wants(&stage), WANTS_READY, "its deadline may be the earlier one");
}

fn priority(number: i64) -> Priority {
    Priority::try_from(number).unwrap()
}

/// What a person says of a client's priority.
fn say_priority(stage: &mut Stage, client: u32, queue: Option<u64>, number: i64) -> Result<(), String> {
    let of = Target { pid: Some(Pid(100 + client)), queue: queue.map(QueueId) };
    let result = stage.core.hint(of, &[Said::Priority(priority(number))], stage.now());
    stage.step();
    result
}

#[test]
fn nobody_wakes_what_its_program_holds() {
    let mut stage = Stage::new(Settings::default(), &[&[(1, -256)], &[(1, -1)]]);
    stage.flip(0);
    stage.flip(1);
    let why = "queue 1 of pid 100 is held by its program, whose own priority for it is -256: only the program can change that";
    assert_eq!(say_priority(&mut stage, 0, None, 0).unwrap_err(), why);
    assert_eq!(say_priority(&mut stage, 0, Some(1), 0).unwrap_err(), why);
    assert_eq!(stage.runs(), [false, true], "it would launch nothing");
    // That it never runs is so already.
    say_priority(&mut stage, 0, None, -256).unwrap();
    let own = |stage: &mut Stage, number| {
        let said = ToServer::Priority { queue: QueueId(1), priority: priority(number) };
        stage.core.apply(stage.clients[0], &said).unwrap();
        stage.step();
    };
    own(&mut stage, -5);
    assert_eq!(stage.runs(), [false, true]);
    say_priority(&mut stage, 0, None, 0).unwrap();
    assert_eq!(stage.runs(), [true, false]);
    own(&mut stage, -256);
    assert_eq!(stage.runs(), [false, true]);
    assert_eq!(say_priority(&mut stage, 0, None, 0).unwrap_err(), why);
}

#[test]
fn of_several_queues_the_one_is_named_that_its_program_holds() {
    let mut stage = Stage::new(Settings::default(), &[&[(1, 0), (1, -256)], &[(1, 3)]]);
    stage.flip(0);
    stage.flip(1);
    let why = say_priority(&mut stage, 0, None, 5).unwrap_err();
    assert!(
        why.starts_with("queue 2 of pid 100 is held") && why.ends_with("; -x names one of the others"),
        "{why}"
    );
    assert_eq!(stage.runs(), [false, true], "all or nothing");
    assert!(!say_priority(&mut stage, 0, Some(2), 5).unwrap_err().contains("-x"));
    say_priority(&mut stage, 0, Some(1), 5).unwrap();
    assert_eq!(stage.runs(), [true, false]);
}

#[test]
fn a_queue_that_counts_for_nothing_runs_with_its_process_unless_its_program_holds_it() {
    let mut stage = Stage::new(Settings::default(), &[&[(1, 0), (1, 0), (1, -256)], &[(2, 0)]]);
    for slot in 0..3 {
        stage.world.act(0, slot);
        stage.world.act(0, slot);
    }
    stage.step();
    say_priority(&mut stage, 0, Some(2), -256).unwrap();
    let seen = |stage: &Stage| {
        let client = stage.core.clients().next().unwrap();
        let seen = |queue: &Queue| (queue.state, queue.is_held(), queue.is_disregarded());
        client.queues.iter().map(seen).collect::<Vec<_>>()
    };
    let (running, suspended) = (QueueState::Running, QueueState::Suspended);
    let held = (suspended, true, false);
    assert_eq!(seen(&stage), [(running, false, false), (running, false, true), held]);
    // When all that count are hinted so, the process is suspended.
    say_priority(&mut stage, 0, Some(1), -256).unwrap();
    assert_eq!(seen(&stage), [(suspended, false, true), (suspended, false, true), held]);
    say_priority(&mut stage, 0, Some(2), 3).unwrap();
    assert_eq!(seen(&stage), [(running, false, true), (running, false, false), held]);
}

#[test]
fn a_nice_value_is_asked_for_only_where_it_counts() {
    let mut stage = two();
    assert!(!stage.core.reads_nice());
    stage.core.set_nice(stage.clients[1], -7);
    stage.step();
    assert_eq!(stage.core.clients().map(|client| client.hints.nice).collect::<Vec<_>>(), [0, -7]);
    let chpf = Choice::new(registry::find(PolicyKind::Chpf).unwrap());
    stage.core.set_policy(Some(DeviceId(7)), chpf).unwrap();
    assert!(stage.core.reads_nice());
    stage.core.reset_policy(DeviceId(7));
    assert!(!stage.core.reads_nice());
}

#[test]
fn since_when_a_permission_holds_is_noted() {
    let mut stage = two();
    let since = |stage: &Stage| stage.core.clients().map(|client| client.since).collect::<Vec<_>>();
    let begin = stage.now();
    assert_eq!(since(&stage), [begin; 2]);
    stage.pass(Duration::from_millis(10), |_| {});
    stage.flip(1);
    let suspended = stage.now();
    assert_eq!(since(&stage), [suspended, begin]);
    stage.pass(Duration::from_millis(3), |_| {});
    stage.step();
    assert_eq!(since(&stage), [suspended, begin], "it is the same suspension");
}

#[test]
fn who_is_alone_is_asked_where_a_policy_may_withhold_the_device() {
    let mut stage = Stage::new(Settings::default(), &[&[(1, 0)]]);
    assert_eq!(stage.board(0).wants.get(), 0);
    let power = registry::find(PolicyKind::Power).unwrap();
    stage.core.set_policy(Some(DeviceId(7)), power.into()).unwrap();
    stage.step();
    assert_eq!(stage.board(0).wants.get(), 0, "without a budget it withholds nothing");
    let mut limited = Choice::new(power);
    limited.values.set("budget-w", 100.0).unwrap();
    stage.core.set_policy(Some(DeviceId(7)), limited).unwrap();
    stage.step();
    assert_eq!(stage.board(0).wants.get(), WANTS_READY);
    stage.core.reset_policy(DeviceId(7));
    stage.step();
    assert_eq!(stage.board(0).wants.get(), 0);
}

#[test]
fn who_is_alone_and_has_a_cap_is_suspended_for_the_rest_of_the_time() {
    let mut stage = Stage::new(Settings::default(), &[&[(1, 0)]]);
    stage.core.set_policy(None, registry::find(PolicyKind::Credit).unwrap().into()).unwrap();
    stage.step();
    assert_eq!(stage.board(0).wants.get(), 0, "without a cap nothing is withheld");
    let cap = |stage: &mut Stage, percent: Option<i64>| {
        let of = Target { pid: Some(Pid(100)), queue: None };
        let cap = percent.map(|percent| percent.try_into().unwrap());
        stage.core.hint(of, &[Said::Cap(cap)], stage.now()).unwrap();
        stage.step();
    };
    cap(&mut stage, Some(30));
    assert_eq!(stage.board(0).wants.get(), WANTS_READY);
    let suspended = |stage: &mut Stage| {
        let (all, waits) = (Cell::new(0), Cell::new(0));
        stage.pass(Duration::from_secs(10), |stage| {
            let span = stage.now().0 - all.replace(stage.now().0);
            waits.set(waits.get() + if stage.runs() == [true] { 0 } else { span.min(1_000_000) });
        });
        waits.get() / 1_000_000
    };
    stage.flip(0);
    assert_eq!(stage.board(0).wants.get() & WANTS_IDLE, WANTS_IDLE);
    let waited = suspended(&mut stage);
    assert!((6_900..=7_100).contains(&waited), "{waited} ms");
    assert_eq!(stage.core.guard_runs(), 0);
    // Taken back, it is alone again.
    cap(&mut stage, None);
    assert_eq!((stage.runs(), stage.board(0).wants.get()), (vec![true], 0));
    assert_eq!(suspended(&mut stage), 0);
}

#[test]
fn policies_of_devices_are_bounded() {
    let mut stage = Stage::new(Settings::default(), &[]);
    let hpf = || Choice::new(registry::DEFAULT);
    for device in 0..DEVICES as u32 {
        stage.core.set_policy(Some(DeviceId(device)), hpf()).unwrap();
    }
    let more = Some(DeviceId(DEVICES as u32));
    assert_eq!(
        stage.core.set_policy(more, hpf()).unwrap_err(),
        "256 devices have policies of their own already"
    );
    stage.core.set_policy(Some(DeviceId(0)), hpf()).unwrap();
    stage.core.set_policy(None, hpf()).unwrap();
    stage.core.reset_policy(DeviceId(0));
    stage.core.set_policy(more, hpf()).unwrap();
}

#[test]
fn the_word_has_the_window_that_the_policy_says() {
    let mut stage = two();
    let mut choice = Choice::new(registry::by_name("UP").unwrap());
    choice.values.set("timeslice-us", 100_000.0).unwrap();
    stage.core.set_policy(None, choice).unwrap();
    (0..2).for_each(|client| stage.flip(client));
    stage.step();
    let windows = [0, 1].map(|client| stage.board(client).permission.get() >> 24 & 0xff);
    assert_eq!(windows, [31, 31]);
}
