//! Tests of the shares that are found from the requests of clients: the server hears what that needs.

use super::*;

/// Plays requests of 700 µs of the urgent client, and returns the shares of the other client in them.
fn requests(fixture: &mut Fixture, count: usize) -> Vec<u64> {
    let mut shares = Vec::new();
    for _ in 0..count {
        fixture.flip(1);
        let word = fixture.page(0).permission.get();
        assert_eq!(word & 1, 0, "suspended");
        shares.push(word >> 2 & 0x3f);
        fixture.pass(Duration::from_micros(700), |fixture| {
            assert_eq!(fixture.page(0).permission.get(), word, "within a request");
        });
        fixture.flip(1);
        fixture.pass(Duration::from_millis(3), |_| ());
        assert_eq!(fixture.page(0).permission.get() >> 2 & 0x3f, 0, "it runs");
    }
    shares
}

fn shared() -> Fixture {
    let mut fixture = two();
    let level = ToServer::Level { queue: QueueId(1), level: PreemptLevel::Interrupt };
    fixture.core.apply(fixture.clients[0], &level).unwrap();
    let mut choice = Choice::new(registry::DEFAULT);
    choice.values.set("share-percent", 50.0).unwrap();
    fixture.core.set_policy(None, choice).unwrap();
    fixture
}

#[test]
fn urgent_client_is_told_that_its_queues_go_first() {
    let mut fixture = two();
    let first = |fixture: &Fixture, client| {
        let word = fixture.page(client).permission.get();
        (word & 1 != 0).then_some(word >> 2 & 0x3f)
    };
    fixture.flip(0);
    assert_eq!([first(&fixture, 0), first(&fixture, 1)], [Some(0); 2]);
    let mut choice = Choice::new(registry::DEFAULT);
    choice.values.set("queues-first", 1.0).unwrap();
    fixture.core.set_policy(None, choice).unwrap();
    fixture.step();
    assert_eq!([first(&fixture, 0), first(&fixture, 1)], [Some(0), Some(1)], "while it is idle");
    fixture.flip(1);
    assert_eq!([first(&fixture, 0), first(&fixture, 1)], [None, Some(1)]);
    fixture.core.set_policy(None, Choice::new(registry::DEFAULT)).unwrap();
    fixture.step();
    assert_eq!([first(&fixture, 0), first(&fixture, 1)], [None, Some(0)]);
    fixture.flip(1);
    fixture.pass(Duration::from_millis(3), |_| ());
    assert_eq!([first(&fixture, 0), first(&fixture, 1)], [Some(0); 2]);
}

#[test]
fn share_is_found_beside_a_client_that_works() {
    let mut fixture = shared();
    fixture.flip(0);
    assert_eq!(requests(&mut fixture, 32), [0; 32]);
    requests(&mut fixture, 100);
    let last = requests(&mut fixture, 40);
    assert!(last.iter().all(|share| [0, 32].contains(share)), "{last:?}");
    assert!(last.iter().filter(|share| **share == 32).count() >= 25, "{last:?}");
    let counted = &fixture.core.in_force()[0].counted;
    assert_eq!(["shares-raised", "share-now-percent"].map(|name| counted[name]), [3, 50]);
}

#[test]
fn no_share_is_found_beside_an_idle_client() {
    let mut fixture = shared();
    for _ in 0..200 {
        fixture.flip(1);
        fixture.pass(Duration::from_micros(700), |_| ());
        fixture.flip(1);
        fixture.pass(Duration::from_millis(3), |_| ());
    }
    assert_eq!(fixture.core.in_force()[0].counted["shares-raised"], 0);
}
