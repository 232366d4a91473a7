//! What the core counts for metrics.

use super::*;
use protocol::totals::{Class, Totals, Work};

const MS: Duration = Duration::from_millis(1);

/// A background program and an urgent one on one device, after the urgent one has suspended the other.
fn suspended() -> Fixture {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, -5)], &[(1, 10)]]);
    fixture.flip(0);
    fixture.step();
    fixture.pass(5 * MS, |_| {});
    fixture.flip(1);
    fixture.step();
    assert_eq!(fixture.runs(), [false, true]);
    fixture
}

#[test]
fn a_suspension_is_counted_with_its_level_and_duration() {
    let mut fixture = suspended();
    let now = fixture.now();
    assert_eq!(fixture.core.totals_at(now).preemptions, [1, 0, 0]);
    assert_eq!(fixture.core.totals_at(now).suspensions.count(), 0, "it goes on");
    fixture.pass(7 * MS, |_| {});
    fixture.flip(1);
    fixture.pass(Engine::LINGER, |_| {});
    fixture.step();
    assert_eq!(fixture.runs(), [true, true]);
    let totals = fixture.core.totals_at(fixture.now());
    assert_eq!(totals.suspensions.count(), 1);
    assert!(totals.suspensions.sum_ns >= 7_000_000 && totals.suspensions.sum_ns < 8_000_000, "{totals:?}");
    assert_eq!(totals.evictions.count(), 0, "nothing was evicted");
    let preemptions: Vec<_> = fixture.core.clients(&root()).map(|client| client.preemptions).collect();
    assert_eq!(preemptions, [Some(1), Some(0)]);
}

#[test]
fn times_of_queues_are_ready_running_and_suspended() {
    let mut fixture = suspended();
    fixture.pass(7 * MS, |_| {});
    fixture.step();
    let times: Vec<_> = fixture.core.clients(&root()).map(|client| client.queues[0].times.unwrap()).collect();
    assert_eq!((times[0].ready_ns, times[0].running_ns), (12_000_000, 5_000_000));
    assert_eq!((times[1].ready_ns, times[1].running_ns), (7_000_000, 7_000_000));
}

#[test]
fn work_and_commands_are_summed_by_class_also_of_clients_that_have_left() {
    let mut fixture = suspended();
    for (client, (completed, worked)) in [(0, (40, 1_000)), (1, (2, 300))] {
        fixture.page(client).completed.set(completed);
        fixture.page(client).worked_ns.set(worked);
    }
    let device = DeviceId(1);
    let both = [
        Work { device, class: Class::Urgent, worked_ns: 300 },
        Work { device, class: Class::Batch, worked_ns: 1_000 },
    ];
    for _ in 0..2 {
        let totals = fixture.core.totals_at(fixture.now());
        assert_eq!(totals.work, both, "counted once");
        assert_eq!(totals.completed, [(Class::Urgent, 2), (Class::Batch, 40)]);
    }
    fixture.pass(MS, |_| {});
    fixture.page(1).completed.set(3);
    let (client, now) = (fixture.clients[1], fixture.now());
    fixture.core.settle(client, now);
    fixture.core.leave(client);
    assert_eq!(fixture.core.totals_at(now).completed, [(Class::Urgent, 3), (Class::Batch, 40)]);
}

#[test]
fn numbers_that_a_client_makes_up_are_cut() {
    let mut fixture = suspended();
    fixture.page(1).completed.set(u64::MAX);
    fixture.page(1).worked_ns.set(u64::MAX);
    let totals = fixture.core.totals_at(fixture.now());
    // It has been there for 5 ms.
    assert_eq!(totals.completed[0], (Class::Urgent, 50_000));
    assert_eq!(totals.work[0].worked_ns, 5_000_000);
}

#[test]
fn a_report_that_leads_to_a_decision_is_counted_from_the_report_on() {
    let mut fixture = suspended();
    let counts = |fixture: &mut Fixture| {
        fixture.core.note_decision(fixture.now(), fixture.now().after(MS));
        let Totals { decisions, steps, .. } = fixture.core.totals_at(fixture.now());
        (decisions.count(), decisions.sum_ns, steps.count(), steps.sum_ns)
    };
    // The first program turned ready 5 ms ago.
    assert_eq!(counts(&mut fixture), (1, 6_000_000, 1, 1_000_000));
    fixture.step();
    assert_eq!(counts(&mut fixture), (1, 6_000_000, 2, 2_000_000), "nothing was reported");
    fixture.flip(1);
    fixture.pass(2 * MS, |_| {});
    fixture.flip(1);
    assert_eq!(counts(&mut fixture), (2, 7_000_000, 3, 3_000_000));
}
