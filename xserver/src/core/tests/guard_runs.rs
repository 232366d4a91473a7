//! Tests of the progress guard, and of clients that yield.

use super::*;

#[test]
fn guard_lets_all_clients_run_briefly() {
    let mut fixture = two();
    fixture.flip(0);
    fixture.flip(1);
    let together = Cell::new(0);
    fixture.pass(Duration::from_millis(400), |fixture| {
        if fixture.runs() == [true, true] {
            together.set(together.get() + 1);
            let client = fixture.core.clients(&root()).next().unwrap();
            assert_eq!((client.permit.reason, client.permit.limit), (Reason::Guard, true));
        }
    });
    // About every 145 ms: patience, stall and the sample; then 20 ms.
    assert!((2..=3).contains(&fixture.core.guard_runs()), "{}", fixture.core.guard_runs());
    assert!((38..=63).contains(&together.get()), "{}", together.get());
    fixture.core.set_on(false);
    fixture.step();
    assert!(fixture.core.clients(&root()).all(|client| client.permit.reason == Reason::Off));
}

#[test]
fn guard_can_be_disabled() {
    let mut fixture = Fixture::new(Settings { guard: false, ..Settings::default() }, &[&[(1, 0)], &[(1, 9)]]);
    fixture.flip(0);
    fixture.flip(1);
    fixture.pass(Duration::from_secs(2), |fixture| assert_eq!(fixture.runs(), [false, true]));
    assert_eq!(fixture.core.guard_runs(), 0);
}

#[test]
fn progress_on_another_device_does_not_stop_the_guard() {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, 0)], &[(1, 9)], &[(2, 0)], &[(2, 9)]]);
    for client in 0..4 {
        fixture.flip(client);
    }
    fixture.pass(Duration::from_millis(300), |fixture| fixture.page(3).completed.set(fixture.now().0));
    assert!(fixture.core.guard_runs() > 0);
}

#[test]
fn client_of_lowest_priority_does_not_start_the_guard() {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, -256)], &[(1, 9)]]);
    fixture.flip(0);
    fixture.flip(1);
    fixture.pass(Duration::from_secs(1), |fixture| assert_eq!(fixture.runs(), [false, true]));
    assert_eq!(fixture.core.guard_runs(), 0);
}

#[test]
fn stopped_process_yields_until_it_submits_work() {
    let mut fixture = two();
    fixture.flip(0);
    fixture.flip(1);
    fixture.page(1).stopped.set(true);
    fixture.pass(Duration::from_millis(200), |_| {});
    assert_eq!(fixture.runs(), [true, true]);
    let yielded =
        |fixture: &Fixture| fixture.core.clients(&root()).map(|client| client.yielded).collect::<Vec<_>>();
    assert_eq!((yielded(&fixture), fixture.core.guard_runs()), (vec![false, true], 0));
    // The next look-up finds it running.
    fixture.page(1).stopped.set(false);
    fixture.pass(Duration::from_millis(110), |_| {});
    assert_eq!((fixture.runs(), yielded(&fixture)), (vec![false, true], vec![false, false]));
    // An event ends the yield at once.
    fixture.page(1).stopped.set(true);
    fixture.pass(Duration::from_millis(200), |_| {});
    assert_eq!(fixture.runs(), [true, true]);
    fixture.flip(1);
    fixture.flip(1);
    assert_eq!((fixture.runs(), yielded(&fixture)), (vec![false, true], vec![false, false]));
}
