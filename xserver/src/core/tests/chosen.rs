//! Tests of policies and hints that change while clients are connected.

use super::*;
use protocol::control::{HintUpdate, Target};
use protocol::hint::{ProcessHints, QueueHints};
use protocol::policy::PolicyKind;
use std::num::NonZeroU64;

#[test]
fn withheld_device_does_not_start_the_guard() {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, 0)], &[(1, 9)]]);
    let row = registry::find(PolicyKind::Power).unwrap();
    let mut power = Choice::new(row);
    power.values.set("budget-w", 10.0).unwrap();
    power.values.set("period-ms", 10_000.0).unwrap();
    fixture.core.set_policy(None, power).unwrap();
    fixture.step();
    fixture.flip(0);
    let mut withheld = 0;
    for half in 0..2 {
        for _ in 0..200 {
            fixture.core.set_power(DeviceId(1), 500_000, fixture.now());
            fixture.step();
            fixture.pass(Duration::from_millis(50), |_| {});
            let low = fixture.core.clients(&root()).next().unwrap();
            withheld += usize::from(matches!(low.permit.reason, Reason::Throttled(_)));
            assert_ne!(low.permit.reason, Reason::Guard);
        }
        if half == 0 {
            // Now with a client that completes nothing but is no rival.
            fixture.flip(1);
        }
    }
    assert!(withheld > 100, "{withheld}");
    assert_eq!(fixture.core.guard_runs(), 0);
}

/// Clients under GANG, some of which are one job.
fn gang(clients: &[Queues<'_>], job: &[usize]) -> Fixture {
    let mut fixture = Fixture::new(Settings::default(), clients);
    fixture.core.set_policy(None, registry::find(PolicyKind::Gang).unwrap().into()).unwrap();
    for &client in job {
        let hints = ProcessHints { job: NonZeroU64::new(7), ..ProcessHints::default() };
        fixture.core.apply(fixture.clients[client], &ToServer::ProcessHints { hints }).unwrap();
    }
    fixture.step();
    fixture
}

#[test]
fn guard_ends_the_wait_for_a_job_that_hangs() {
    let mut fixture = gang(&[&[(1, 5)], &[(2, 5)], &[(2, 0)]], &[0, 1]);
    // The other client of the job never gets ready.
    fixture.page(1).stopped.set(true);
    fixture.flip(0);
    fixture.flip(2);
    assert_eq!(fixture.runs(), [true, true, false]);
    let together = Cell::new(0);
    fixture.pass(Duration::from_millis(400), |fixture| {
        together.set(together.get() + usize::from(fixture.runs() == [true; 3]));
    });
    // As if the job ran on the device itself.
    assert!((2..=3).contains(&fixture.core.guard_runs()), "{}", fixture.core.guard_runs());
    assert!((38..=63).contains(&together.get()), "{}", together.get());
}

#[test]
fn guard_ends_the_wait_for_a_process_on_two_devices() {
    let mut fixture = gang(&[&[(1, 5), (2, 5)], &[(2, 0)]], &[]);
    fixture.flip(0);
    fixture.flip(1);
    assert_eq!(fixture.runs(), [true, false]);
    fixture.pass(Duration::from_millis(300), |_| {});
    assert!(fixture.core.guard_runs() > 0);
}

#[test]
fn job_with_progress_keeps_its_devices_free() {
    let clients: &[Queues<'_>] = &[&[(1, 5)], &[(2, 5)], &[(2, 0)]];
    let mut fixture = gang(clients, &[0, 1]);
    fixture.flip(0);
    fixture.flip(2);
    fixture.pass(Duration::from_secs(1), |fixture| {
        fixture.page(0).completed.set(fixture.now().0);
        assert_eq!(fixture.runs(), [true, true, false]);
    });
    assert_eq!(fixture.core.guard_runs(), 0);
    // A job that is done in time does not start the guard.
    let mut fixture = gang(clients, &[0, 1]);
    fixture.flip(2);
    for _ in 0..10 {
        fixture.flip(0);
        fixture.pass(Duration::from_millis(60), |fixture| assert_eq!(fixture.runs(), [true, true, false]));
        fixture.flip(0);
        fixture.pass(Duration::from_millis(2), |_| {});
        assert_eq!(fixture.runs(), [true; 3]);
    }
    assert_eq!(fixture.core.guard_runs(), 0);
}

#[test]
fn device_kept_free_for_expected_work_does_not_start_the_guard() {
    let mut fixture = gang(&[&[(1, 5)], &[(2, 5)], &[(2, 0)]], &[0, 1]);
    let mut clears = Choice::new(registry::by_name("LCBE").unwrap());
    for (name, value) in [("lead-us", 1e5), ("grace-us", 1e5), ("waste-percent", 100.0)] {
        clears.values.set(name, value).unwrap();
    }
    fixture.core.set_policy(None, clears).unwrap();
    // A client of the same job has work elsewhere without progress, which is not the reason to keep the
    // device free.
    fixture.flip(0);
    fixture.flip(2);
    fixture.pass(Duration::from_secs(1), |_| {});
    let of = Target { pid: Some(Pid(101)), queue: None };
    fixture.core.hint(&root(), of, &[HintUpdate::Arrival(Some(100_000))], fixture.now()).unwrap();
    fixture.step();
    assert_eq!(fixture.runs(), [true, true, false]);
    fixture.pass(Duration::from_millis(199), |fixture| assert_eq!(fixture.runs(), [true, true, false]));
    fixture.pass(Duration::from_millis(5), |_| {});
    assert_eq!((fixture.runs(), fixture.core.guard_runs()), (vec![true; 3], 0));
}

#[test]
fn hints_extend_the_event_mask() {
    let queues: Queues<'_> = &[(1, 3), (1, 3)];
    let mut fixture = Fixture::new(Settings::default(), &[queues, &[(1, 5)], &[(2, 0)]]);
    fixture.flip(0);
    let event_mask = |fixture: &Fixture| fixture.page(0).event_mask.get() & (EVENT_READY | EVENT_IDLE);
    assert_eq!(event_mask(&fixture), 0, "its other queue is as urgent");
    let hints = QueueHints { deadline_us: NonZeroU64::new(500), ..QueueHints::default() };
    fixture.core.apply(fixture.clients[0], &ToServer::QueueHints { queue: QueueId(2), hints }).unwrap();
    fixture.step();
    assert_eq!(event_mask(&fixture), EVENT_READY, "its deadline may be the earlier one");
}

fn priority(number: i64) -> Priority {
    Priority::try_from(number).unwrap()
}

/// Sets a priority as `xcli hint` does.
fn hint_priority(fixture: &mut Fixture, client: u32, queue: Option<u64>, number: i64) -> Result<(), String> {
    let of = Target { pid: Some(Pid(100 + client)), queue: queue.map(QueueId) };
    let result = fixture.core.hint(&root(), of, &[HintUpdate::Priority(priority(number))], fixture.now());
    fixture.step();
    result.map_err(|refusal| refusal.to_string())
}

#[test]
fn hint_does_not_resume_a_queue_that_its_program_suspends() {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, -256)], &[(1, -1)]]);
    fixture.flip(0);
    fixture.flip(1);
    let why = "the program suspends queue 1 of pid 100 itself, by its own priority -256: only the program can change that";
    assert_eq!(hint_priority(&mut fixture, 0, None, 0).unwrap_err(), why);
    assert_eq!(hint_priority(&mut fixture, 0, Some(1), 0).unwrap_err(), why);
    assert_eq!(fixture.runs(), [false, true], "it would launch nothing");
    // The priority -256 is accepted.
    hint_priority(&mut fixture, 0, None, -256).unwrap();
    let own = |fixture: &mut Fixture, number| {
        let said = ToServer::Priority { queue: QueueId(1), priority: priority(number) };
        fixture.core.apply(fixture.clients[0], &said).unwrap();
        fixture.step();
    };
    own(&mut fixture, -5);
    assert_eq!(fixture.runs(), [false, true]);
    hint_priority(&mut fixture, 0, None, 0).unwrap();
    assert_eq!(fixture.runs(), [true, false]);
    own(&mut fixture, -256);
    assert_eq!(fixture.runs(), [false, true]);
    assert_eq!(hint_priority(&mut fixture, 0, None, 0).unwrap_err(), why);
}

#[test]
fn refusal_names_the_suspended_queue() {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, 0), (1, -256)], &[(1, 3)]]);
    fixture.flip(0);
    fixture.flip(1);
    let why = hint_priority(&mut fixture, 0, None, 5).unwrap_err();
    assert!(
        why.starts_with("the program suspends queue 2 of pid 100")
            && why.ends_with("; specify another queue with -x"),
        "{why}"
    );
    assert_eq!(fixture.runs(), [false, true], "all or nothing");
    assert!(!hint_priority(&mut fixture, 0, Some(2), 5).unwrap_err().contains("-x"));
    hint_priority(&mut fixture, 0, Some(1), 5).unwrap();
    assert_eq!(fixture.runs(), [true, false]);
}

#[test]
fn ignored_queue_runs_with_its_process() {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, 0), (1, 0), (1, -256)], &[(2, 0)]]);
    for slot in 0..3 {
        fixture.world.act(0, slot);
        fixture.world.act(0, slot);
    }
    fixture.step();
    hint_priority(&mut fixture, 0, Some(2), -256).unwrap();
    let seen = |fixture: &Fixture| {
        let client = fixture.core.clients(&root()).next().unwrap();
        let seen = |queue: &Queue| (queue.state, queue.is_held(), queue.is_disregarded());
        client.queues.iter().map(seen).collect::<Vec<_>>()
    };
    let (running, suspended) = (QueueState::Running, QueueState::Suspended);
    let held = (suspended, true, false);
    assert_eq!(seen(&fixture), [(running, false, false), (running, false, true), held]);
    // If all other queues have the hint, the process is suspended.
    hint_priority(&mut fixture, 0, Some(1), -256).unwrap();
    assert_eq!(seen(&fixture), [(suspended, false, true), (suspended, false, true), held]);
    hint_priority(&mut fixture, 0, Some(2), 3).unwrap();
    assert_eq!(seen(&fixture), [(running, false, true), (running, false, false), held]);
}

#[test]
fn nice_values_are_read_only_for_policies_that_use_them() {
    let mut fixture = two();
    assert!(!fixture.core.reads_nice());
    fixture.core.set_nice(fixture.clients[1], -7);
    fixture.step();
    assert_eq!(fixture.core.clients(&root()).map(|client| client.hints.nice).collect::<Vec<_>>(), [0, -7]);
    let chpf = Choice::new(registry::find(PolicyKind::Chpf).unwrap());
    fixture.core.set_policy(Some(DeviceId(7)), chpf).unwrap();
    assert!(fixture.core.reads_nice());
    fixture.core.reset_policy(DeviceId(7));
    assert!(!fixture.core.reads_nice());
}

#[test]
fn time_of_the_last_change_is_kept() {
    let mut fixture = two();
    let since =
        |fixture: &Fixture| fixture.core.clients(&root()).map(|client| client.since).collect::<Vec<_>>();
    let begin = fixture.now();
    assert_eq!(since(&fixture), [begin; 2]);
    fixture.pass(Duration::from_millis(10), |_| {});
    fixture.flip(1);
    let suspended = fixture.now();
    assert_eq!(since(&fixture), [suspended, begin]);
    fixture.pass(Duration::from_millis(3), |_| {});
    fixture.step();
    assert_eq!(since(&fixture), [suspended, begin], "it is the same suspension");
}

#[test]
fn single_client_reports_events_if_a_policy_may_withhold_the_device() {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, 0)]]);
    assert_eq!(fixture.page(0).event_mask.get(), MAY_STAY_READY);
    let power = registry::find(PolicyKind::Power).unwrap();
    fixture.core.set_policy(Some(DeviceId(7)), power.into()).unwrap();
    fixture.step();
    assert_eq!(fixture.page(0).event_mask.get(), MAY_STAY_READY, "without a budget it withholds nothing");
    let mut limited = Choice::new(power);
    limited.values.set("budget-w", 100.0).unwrap();
    fixture.core.set_policy(Some(DeviceId(7)), limited).unwrap();
    fixture.step();
    assert_eq!(fixture.page(0).event_mask.get(), EVENT_READY);
    fixture.core.reset_policy(DeviceId(7));
    fixture.step();
    assert_eq!(fixture.page(0).event_mask.get(), MAY_STAY_READY);
}

#[test]
fn single_client_with_a_cap_is_suspended() {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, 0)]]);
    fixture.core.set_policy(None, registry::find(PolicyKind::Credit).unwrap().into()).unwrap();
    fixture.step();
    assert_eq!(fixture.page(0).event_mask.get(), MAY_STAY_READY, "without a cap nothing is withheld");
    let cap = |fixture: &mut Fixture, percent: Option<i64>| {
        let of = Target { pid: Some(Pid(100)), queue: None };
        let cap = percent.map(|percent| percent.try_into().unwrap());
        fixture.core.hint(&root(), of, &[HintUpdate::Cap(cap)], fixture.now()).unwrap();
        fixture.step();
    };
    cap(&mut fixture, Some(30));
    assert_eq!(fixture.page(0).event_mask.get(), EVENT_READY);
    let suspended = |fixture: &mut Fixture| {
        let (all, waits) = (Cell::new(0), Cell::new(0));
        fixture.pass(Duration::from_secs(10), |fixture| {
            let span = fixture.now().0 - all.replace(fixture.now().0);
            waits.set(waits.get() + if fixture.runs() == [true] { 0 } else { span.min(1_000_000) });
        });
        waits.get() / 1_000_000
    };
    fixture.flip(0);
    assert_eq!(fixture.page(0).event_mask.get() & EVENT_IDLE, EVENT_IDLE);
    let waited = suspended(&mut fixture);
    assert!((6_900..=7_100).contains(&waited), "{waited} ms");
    assert_eq!(fixture.core.guard_runs(), 0);
    // Without the cap it runs all the time.
    cap(&mut fixture, None);
    assert_eq!((fixture.runs(), fixture.page(0).event_mask.get()), (vec![true], MAY_STAY_READY));
    assert_eq!(suspended(&mut fixture), 0);
}

#[test]
fn number_of_device_policies_is_bounded() {
    let mut fixture = Fixture::new(Settings::default(), &[]);
    let hpf = || Choice::new(registry::DEFAULT);
    for device in 0..DEVICES as u32 {
        fixture.core.set_policy(Some(DeviceId(device)), hpf()).unwrap();
    }
    let more = Some(DeviceId(DEVICES as u32));
    assert_eq!(
        fixture.core.set_policy(more, hpf()).unwrap_err().to_string(),
        "256 devices have their own policies already"
    );
    fixture.core.set_policy(Some(DeviceId(0)), hpf()).unwrap();
    fixture.core.set_policy(None, hpf()).unwrap();
    fixture.core.reset_policy(DeviceId(0));
    fixture.core.set_policy(more, hpf()).unwrap();
}

#[test]
fn word_has_the_window_of_the_policy() {
    let mut fixture = two();
    let mut choice = Choice::new(registry::by_name("UP").unwrap());
    choice.values.set("timeslice-us", 100_000.0).unwrap();
    fixture.core.set_policy(None, choice).unwrap();
    (0..2).for_each(|client| fixture.flip(client));
    fixture.step();
    let windows = [0, 1].map(|client| fixture.page(client).permission.get() >> 24 & 0xff);
    assert_eq!(windows, [31, 31]);
}

#[test]
fn word_of_a_suspended_client_has_the_share() {
    let mut fixture = two();
    (0..2).for_each(|client| fixture.flip(client));
    let words = |fixture: &mut Fixture, percent: f64| {
        let mut choice = Choice::new(registry::DEFAULT);
        choice.values.set("share-percent", percent).unwrap();
        choice.values.set("slowdown-percent", 0.0).unwrap();
        fixture.core.set_policy(None, choice).unwrap();
        fixture.step();
        [0, 1].map(|client| fixture.page(client).permission.get())
    };
    let level = ToServer::Level { queue: QueueId(1), level: PreemptLevel::Interrupt };
    fixture.core.apply(fixture.clients[0], &level).unwrap();
    let without = words(&mut fixture, 0.0);
    assert_eq!(without.map(|word| word & 0xff), [0b10, 0b01]);
    let with = words(&mut fixture, 25.0);
    assert_eq!(with[0], without[0] + (1 << 32) + (16 << 2), "a new word with the share");
    assert_eq!(with[1], without[1], "none for the client that runs");
    assert_eq!(words(&mut fixture, 0.0)[0], without[0] + (2 << 32));
    let level = ToServer::Level { queue: QueueId(1), level: PreemptLevel::Deactivate };
    fixture.core.apply(fixture.clients[0], &level).unwrap();
    assert_eq!(words(&mut fixture, 25.0)[0] >> 2 & 0x3f, 0, "below level 3");
}
