//! What a step costs beside idle queues, counted in what it reads.

use super::*;

/// Clients with work or without, and how many of the others' queues are idle.
fn beside_idle_clients() -> Fixture {
    const IDLE: Queues<'_> = &[(1, 5), (2, 5), (1, 5)];
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, 0)], &[(1, 9)], IDLE, IDLE, IDLE]);
    fixture.flip(0);
    // The masks have settled.
    fixture.step();
    fixture
}

/// The slots that were read since the last call, by client.
fn reads(fixture: &Fixture) -> Vec<u32> {
    fixture.world.pages.borrow().iter().map(|page| page.reads.take()).collect()
}

#[test]
fn step_reads_no_slots_of_idle_clients() {
    let mut fixture = beside_idle_clients();
    reads(&fixture);
    let at_heartbeat = fixture.now().after(HEARTBEAT);
    for _ in 0..8 {
        fixture.flip(1);
        assert_eq!(fixture.runs()[..2], [false, true]);
        let of = reads(&fixture);
        assert!(of[0] > 0 && of[1] > 0, "{of:?}: the first does not report, and the second does");
        assert_eq!(of[2..], [0; 3]);
        assert_eq!(fixture.core.engine.entities().rebuilt(), 1, "only one has changed");
        // It turns idle, and its linger ends.
        fixture.flip(1);
        fixture.pass(LINGER * 2, |_| {});
        assert_eq!(fixture.runs()[..2], [true, true]);
        assert_eq!(reads(&fixture)[2..], [0; 3]);
    }
    fixture.step();
    assert_eq!(fixture.core.engine.entities().rebuilt(), 0, "nothing has changed");
    fixture.world.now.set(at_heartbeat.0);
    fixture.step();
    assert_eq!(reads(&fixture)[2..], [3; 3]);
    assert_eq!(fixture.core.engine.entities().rebuilt(), 0, "nothing has changed");
}

#[test]
fn step_reads_only_the_client_that_notified() {
    let mut fixture = beside_idle_clients();
    reads(&fixture);
    fixture.flip(3);
    let of = reads(&fixture);
    assert!(of[2] == 0 && of[3] > 0 && of[4] == 0, "{of:?}");
    assert_eq!(fixture.runs(), [false, true, true, true, true]);
    fixture.flip(3);
    fixture.pass(LINGER * 2, |_| {});
    assert_eq!(fixture.runs(), [true; 5]);
    reads(&fixture);
    // It is idle for good, so it is not read any more.
    fixture.step();
    assert_eq!(reads(&fixture)[2..], [0; 3]);
}

#[test]
fn step_after_a_rest_reads_only_the_client_that_notified() {
    let mut fixture = beside_idle_clients();
    fixture.flip(0);
    fixture.pass(LINGER * 2, |_| {});
    fixture.world.now.set(fixture.now().after(HEARTBEAT).0);
    fixture.step();
    for _ in 0..3 {
        fixture.world.now.set(fixture.now().after(HEARTBEAT).0);
        assert!(fixture.core.rests(fixture.now()));
    }
    reads(&fixture);
    fixture.flip(3);
    let of = reads(&fixture);
    assert!(of[2] == 0 && of[3] > 0 && of[4] == 0, "{of:?}");
    // Without the rest the heartbeat is due.
    fixture.world.now.set(fixture.now().after(HEARTBEAT).0);
    assert!(!fixture.core.rests(fixture.now()));
    fixture.step();
    assert_eq!(reads(&fixture)[4], 3);
}

#[test]
fn new_queue_is_read_without_a_notification() {
    let mut fixture = beside_idle_clients();
    let page = fixture.page(2);
    fixture.core.apply(fixture.clients[2], &ToServer::QueueDestroyed { queue: QueueId(3) }).unwrap();
    fixture.step();
    page.words[2].set(activity_word(Activity::Ready { since: fixture.now() }));
    fixture.core.apply(fixture.clients[2], &created(4, 2, 1, 5)).unwrap();
    fixture.step();
    assert_eq!(fixture.runs()[..3], [false, true, true]);
}

#[test]
fn client_that_does_not_notify_is_seen_at_the_heartbeat() {
    let mut fixture = beside_idle_clients();
    fixture.page(2).words[0].set(activity_word(Activity::Ready { since: fixture.now() }));
    fixture.step();
    assert_eq!(fixture.runs(), [true; 5]);
    fixture.world.now.set(fixture.now().after(HEARTBEAT).0);
    fixture.step();
    assert_eq!(fixture.runs(), [false, true, true, true, true]);
}

/// The client writes before the server takes its event mask back, and reads the mask after that.
#[test]
fn client_that_reports_no_longer_is_read_once_more() {
    let mut fixture = two();
    fixture.step();
    let page = fixture.page(0);
    assert_eq!(page.event_mask.get(), EVENT_READY);
    reads(&fixture);
    fixture.core.leave(fixture.clients[1]);
    // The next access of the server writes this mask.
    *fixture.world.between.borrow_mut() = vec![(0, 0, 1), (0, 0, 1)];
    fixture.step();
    assert_eq!((page.event_mask.get(), page.notified.get()), (MAY_STAY_READY, false));
    let client = fixture.core.clients(&root()).next().unwrap();
    assert_eq!(client.queues[0].state, QueueState::Running);
}

#[test]
fn stopped_client_is_read_until_it_writes() {
    let mut fixture = two();
    fixture.flip(0);
    fixture.flip(1);
    fixture.page(1).stopped.set(true);
    fixture.pass(Duration::from_millis(200), |_| {});
    assert!(fixture.core.clients[1].yielded);
    // It turns idle unseen, so it does not report.
    fixture.page(1).flip(0, fixture.now());
    fixture.page(1).reported[0].take();
    fixture.step();
    assert!(!fixture.core.clients[1].yielded);
}
