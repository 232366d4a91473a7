//! Gaps that the engine learns from the reports of clients.

use super::*;

/// The gaps that were learnt.
fn learnt(fixture: &Fixture) -> u64 {
    fixture.core.in_force()[0].counted["gaps"]
}

#[test]
fn gaps_of_a_single_client_that_reports_nothing_are_not_learnt() {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, 0)]]);
    for number in 0..200 {
        // A heartbeat sees it idle, the next one at work: of a later gap.
        fixture.flip(0);
        fixture.pass(Duration::from_micros(700), |_| ());
        fixture.flip(0);
        fixture.step();
        fixture.pass(Duration::from_millis(1), |_| ());
        fixture.step();
        for _ in 0..10 + number % 3 {
            fixture.flip(0);
            fixture.flip(0);
            fixture.pass(Duration::from_micros(230), |_| ());
        }
        fixture.flip(0);
        fixture.step();
        fixture.flip(0);
        fixture.pass(Duration::from_micros(230), |_| ());
    }
    assert_eq!(learnt(&fixture), 0);
}

#[test]
fn gaps_that_others_wait_for_are_learnt() {
    let mut fixture = two();
    fixture.flip(0);
    for _ in 0..200 {
        fixture.flip(1);
        fixture.pass(Duration::from_micros(700), |_| ());
        fixture.flip(1);
        fixture.pass(Duration::from_micros(230), |_| ());
    }
    assert!(learnt(&fixture) > 190, "{}", learnt(&fixture));
}
