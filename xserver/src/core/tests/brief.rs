//! Queues with brief work: ready from a time ahead on.

use super::*;
use protocol::page::AHEAD;

const AHEAD_BY: Duration = Duration::from_micros(200);

/// A client with work, and a more urgent one whose queue is ready from `ahead` on.
fn ready_in(ahead: Duration) -> Fixture {
    let mut fixture = two();
    fixture.flip(0);
    let since = fixture.now().after(ahead);
    tell(&mut fixture, Activity::Ready { since });
    fixture
}

/// Changes the urgent client's queue, and lets the server react if it is notified.
fn tell(fixture: &mut Fixture, activity: Activity) {
    let page = fixture.page(1);
    page.words[0].set(activity_word(activity));
    let ready = matches!(activity, Activity::Ready { .. });
    page.reported[0].set(Some(Transition { ready }));
    if page.report(0) {
        fixture.step();
    }
}

#[test]
fn brief_work_suspends_others_once_its_time_has_come() {
    let mut fixture = ready_in(AHEAD_BY);
    fixture.pass(AHEAD_BY - Duration::from_micros(1), |fixture| assert_eq!(fixture.runs(), [true, true]));
    fixture.pass(Duration::from_micros(2), |_| ());
    assert_eq!(fixture.runs(), [false, true]);
}

#[test]
fn brief_work_that_ends_in_time_suspends_nobody_and_does_not_linger() {
    let mut fixture = ready_in(AHEAD_BY);
    fixture.pass(AHEAD_BY / 2, |_| ());
    tell(&mut fixture, Activity::Idle { since: None });
    fixture.pass(2 * LINGER, |fixture| assert_eq!(fixture.runs(), [true, true]));
}

#[test]
fn more_work_behind_it_suspends_others_at_once() {
    let mut fixture = ready_in(AHEAD_BY);
    fixture.pass(AHEAD_BY / 2, |_| ());
    let now = fixture.now();
    tell(&mut fixture, Activity::Ready { since: now });
    assert_eq!(fixture.runs(), [false, true]);
}

#[test]
fn brief_work_does_not_end_a_linger() {
    let mut fixture = two();
    fixture.flip(0);
    fixture.flip(1);
    fixture.flip(1);
    let since = fixture.now().after(AHEAD_BY);
    tell(&mut fixture, Activity::Ready { since });
    assert_eq!(fixture.runs(), [false, true]);
    fixture.pass(AHEAD_BY + Duration::from_micros(1), |fixture| assert_eq!(fixture.runs(), [false, true]));
}

#[test]
fn time_too_far_ahead_counts_at_once() {
    assert_eq!(ready_in(AHEAD + Duration::from_nanos(1)).runs(), [false, true]);
}

#[test]
fn time_is_compared_with_room_for_a_late_look() {
    // A client's millisecond, seen with a time that is five milliseconds old.
    assert_eq!(ready_in(Duration::from_millis(6)).runs(), [true, true]);
}

#[test]
fn time_that_has_come_is_no_sign_of_life() {
    let mut fixture = ready_in(AHEAD_BY);
    let later = fixture.now().after(AHEAD_BY);
    let (state, gang) = (&mut fixture.core.clients[1], &mut gangs(&mut fixture.core.status)[1]);
    state.set_yielded(true, &mut gang.queues);
    assert!(state.look(&mut gang.queues, later), "the queue is ready now");
    assert!(state.yielded, "and the process has written nothing");
}
