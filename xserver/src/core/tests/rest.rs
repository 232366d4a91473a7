//! Rest, in which heartbeats make no step.

use super::*;

#[test]
fn core_rests_once_all_clients_are_idle_and_has_seen_that() {
    let mut fixture = two();
    fixture.step();
    assert!(fixture.core.is_at_rest());
    fixture.flip(1);
    assert!(!fixture.core.is_at_rest(), "a client has work");
    fixture.flip(0);
    fixture.flip(1);
    assert_eq!(fixture.runs(), [false, true], "it still counts as ready");
    assert!(!fixture.core.is_at_rest(), "a client waits");
    fixture.pass(Duration::from_millis(10), |_| ());
    assert_eq!(fixture.runs(), [true, true]);
    assert!(!fixture.core.is_at_rest(), "a client has work");
    fixture.flip(0);
    fixture.step();
    fixture.pass(Duration::from_millis(10), |_| ());
    assert!(fixture.core.is_at_rest() && fixture.wake.is_none());
}

#[test]
fn work_that_no_event_has_told_ends_the_rest() {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, 0)]]);
    fixture.step();
    assert!(fixture.core.is_at_rest());
    fixture.flip(0);
    assert!(!fixture.core.is_at_rest(), "its page has changed, although it was not asked for the event");
    let client = fixture.clients[0];
    fixture.step();
    fixture.flip(0);
    fixture.step();
    fixture.pass(Duration::from_millis(10), |_| ());
    assert!(fixture.core.is_at_rest());
    fixture.core.apply(client, &created(9, 1, 1, 0)).unwrap();
    assert!(!fixture.core.is_at_rest(), "its new queue was not read");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// A step at rest, however late, changes no permission and no mask, wakes nobody and asks for no further step.
    #[test]
    fn step_at_rest_changes_nothing(all in clients(), events in events(), later in 0u64..10_000_000_000) {
        let lists: Vec<Queues<'_>> = all.iter().map(Vec::as_slice).collect();
        let mut fixture = Fixture::new(Settings { starvation: Some(Duration::from_secs(1)), ..Settings::default() }, &lists);
        for event in events {
            match event {
                Do::Act(client, slot) if all.get(client).is_some_and(|queues| slot < queues.len()) => {
                    fixture.world.act(client, slot);
                }
                Do::Act(..) => {}
                // Longer than elsewhere, so that it comes to rest.
                Do::Pass(micros) => fixture.pass(Duration::from_micros(4 * micros), |_| ()),
                Do::Off | Do::On => {
                    fixture.core.set_on(matches!(event, Do::On));
                    fixture.step();
                }
            }
            if fixture.world.woken.take() || fixture.wake.is_some_and(|wake| wake <= fixture.now()) {
                fixture.step();
            }
            if fixture.wake.is_none() && fixture.core.is_at_rest() {
                let state = |fixture: &Fixture| {
                    let pages = fixture.world.pages.borrow();
                    pages.iter().map(|page| (page.permission.get(), page.event_mask.get(), page.wakes.get())).collect::<Vec<_>>()
                };
                let before = state(&fixture);
                let now = fixture.now();
                let wake = fixture.core.step(now.after(Duration::from_nanos(later)));
                prop_assert_eq!(wake, None);
                prop_assert_eq!(before, state(&fixture));
                // Time does not go back in the core.
                fixture.world.now.set(now.0 + later);
            }
        }
    }
}
