//! The time in which clients were suspended, and the device's work for others meanwhile.

use super::*;
use protocol::control::Waiting;

const MS: u64 = 1_000_000;

/// Lets time pass and makes a step, as a heartbeat does.
fn after(fixture: &mut Fixture, nanos: u64) {
    fixture.world.now.set(fixture.now().0 + nanos);
    fixture.step();
}

fn waiting(fixture: &Fixture, client: usize) -> Waiting {
    fixture.core.clients(&root()).nth(client).unwrap().waiting.unwrap()
}

/// Two clients without guard, of which the first is suspended.
fn contended() -> Fixture {
    let settings = Settings { guard: false, ..Settings::default() };
    let mut fixture = Fixture::new(settings, &[&[(1, 0)], &[(1, 9)]]);
    after(&mut fixture, 10 * MS);
    fixture.flip(0);
    after(&mut fixture, 10 * MS);
    fixture.flip(1);
    assert_eq!(fixture.runs(), [false, true]);
    fixture
}

#[test]
fn client_that_never_waits_was_not_suspended() {
    let mut fixture = contended();
    after(&mut fixture, 5 * MS);
    let waiting = waiting(&fixture, 1);
    assert_eq!(waiting, Waiting { connected_ns: 25 * MS, ..Waiting::default() });
}

#[test]
fn suspended_time_and_work_of_others_are_summed() {
    let mut fixture = contended();
    // 2 ms, in which the device works for 1 ms as the other says.
    fixture.page(1).worked_ns.set(MS);
    after(&mut fixture, 2 * MS);
    // The other turns idle after 1 ms and lingers; the server looks after the linger.
    fixture.world.now.set(fixture.now().0 + MS);
    fixture.page(1).flip(0, fixture.now());
    after(&mut fixture, LINGER.as_nanos() as u64);
    assert_eq!(fixture.runs(), [true, true]);
    let suspended_ns = 3 * MS + LINGER.as_nanos() as u64;
    let want = Waiting {
        connected_ns: 20 * MS + suspended_ns,
        suspended_ns,
        others_had_work_ns: 3 * MS,
        others_worked_ns: Some(MS),
    };
    assert_eq!(waiting(&fixture, 0), want);
    // It runs: nothing is added.
    after(&mut fixture, 7 * MS);
    let want = Waiting { connected_ns: want.connected_ns + 7 * MS, ..want };
    assert_eq!(waiting(&fixture, 0), want);
}

#[test]
fn time_without_work_is_no_suspension() {
    let mut fixture = contended();
    // What was in flight completes after 1 ms.
    fixture.world.now.set(fixture.now().0 + MS);
    fixture.page(0).flip(0, fixture.now());
    after(&mut fixture, 4 * MS);
    after(&mut fixture, 4 * MS);
    assert_eq!(waiting(&fixture, 0).suspended_ns, MS);
}

#[test]
fn client_without_known_times_leaves_the_work_unknown() {
    let mut fixture = contended();
    after(&mut fixture, 2 * MS);
    let waiting = waiting(&fixture, 0);
    assert_eq!((waiting.others_had_work_ns, waiting.others_worked_ns), (2 * MS, None));
}

#[test]
fn work_before_the_suspension_does_not_count() {
    let settings = Settings { guard: false, ..Settings::default() };
    let mut fixture = Fixture::new(settings, &[&[(1, 0)], &[(1, 9)]]);
    fixture.page(1).worked_ns.set(50 * MS);
    fixture.flip(1);
    fixture.flip(0);
    after(&mut fixture, MS);
    assert_eq!(waiting(&fixture, 0).others_worked_ns, None);
    fixture.page(1).worked_ns.set(50 * MS + MS / 2);
    after(&mut fixture, MS);
    assert_eq!(waiting(&fixture, 0).others_worked_ns, Some(MS / 2));
}

#[test]
fn invented_times_are_cut() {
    let mut fixture = contended();
    for worked in [u64::MAX, 0, u64::MAX / 2, 3, u64::MAX] {
        fixture.page(1).worked_ns.set(worked);
        after(&mut fixture, MS);
        let waiting = waiting(&fixture, 0);
        assert!(waiting.suspended_ns <= waiting.connected_ns);
        assert!(waiting.others_had_work_ns <= waiting.suspended_ns);
        assert!(waiting.others_worked_ns.unwrap_or(0) <= waiting.others_had_work_ns, "{waiting:?}");
    }
    // A word with a time in the future or in the past.
    for word in [u64::MAX, u64::MAX - 1, 2, 3] {
        fixture.page(1).words[0].set(word);
        after(&mut fixture, MS);
        let waiting = waiting(&fixture, 0);
        assert!(waiting.others_had_work_ns <= waiting.suspended_ns, "{waiting:?}");
        assert!(waiting.suspended_ns <= waiting.connected_ns, "{waiting:?}");
    }
}

#[test]
fn work_on_another_device_is_not_that_of_a_rival() {
    let settings = Settings { guard: false, ..Settings::default() };
    let mut fixture = Fixture::new(settings, &[&[(1, 0)], &[(1, 9)], &[(2, 5)]]);
    fixture.flip(2);
    fixture.flip(0);
    fixture.flip(1);
    fixture.page(2).worked_ns.set(MS);
    after(&mut fixture, 2 * MS);
    let of_first = waiting(&fixture, 0);
    assert_eq!((of_first.others_had_work_ns, of_first.others_worked_ns), (2 * MS, None));
}

#[test]
fn times_that_are_said_late_count_when_the_other_runs_again() {
    let settings = Settings { guard: false, ..Settings::default() };
    let mut fixture = Fixture::new(settings, &[&[(1, 0)], &[(1, 0)]]);
    let row = registry::find(protocol::policy::PolicyKind::Cfs).unwrap();
    fixture.core.set_policy(None, row.into()).unwrap();
    fixture.step();
    fixture.flip(0);
    fixture.flip(1);
    // Each has told of its kernels only after its turn.
    let mut told = [0_u64; 2];
    for _ in 0..400 {
        let before = fixture.runs();
        after(&mut fixture, MS);
        for client in 0..2 {
            told[client] += if before[client] { MS } else { 0 };
            if !fixture.runs()[client] {
                fixture.page(client).worked_ns.set(told[client]);
            }
        }
    }
    for client in 0..2 {
        let waiting = waiting(&fixture, client);
        let worked = waiting.others_worked_ns.unwrap();
        assert!(waiting.suspended_ns > 100 * MS, "both had turns: {waiting:?}");
        assert!(worked * 10 >= waiting.others_had_work_ns * 7, "{waiting:?}");
    }
}
