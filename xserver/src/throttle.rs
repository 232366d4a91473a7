//! The rate of the requests of each user. A request beyond it waits, and its connection is not read meanwhile: a user who
//! asks all the time costs the server as much as one who asks at that rate.
//!
//! A user has an account of the requests of one second, which fills up at the rate. So a short burst is answered at once.

use crate::access::Grant;
use protocol::frame::Frame;
use protocol::time::Time;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The time in which an empty account fills up.
const ACCOUNT: Duration = Duration::from_secs(1);
/// The number of accounts from which on full ones are removed.
const ACCOUNTS: usize = 64;
/// The least time between two reports about requests that wait.
const QUIET: Duration = Duration::from_secs(1);

/// Whose account a request is on: that of a user, or of all clients of an additional socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    User(u32),
    Socket(Arc<Path>),
}

impl Holder {
    pub fn new(uid: u32, grant: &Grant) -> Self {
        grant.within.clone().map_or(Self::User(uid), Self::Socket)
    }
}

#[derive(Debug)]
struct Waiting {
    connection: u64,
    holder: Holder,
    request: Frame,
}

/// The accounts, and the requests that wait.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    /// For each account the time at which it is full again. An account that is full has none.
    accounts: HashMap<Holder, Time>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    /// The time of the last report.
    reported: Option<Time>,
}

impl Throttle {
    /// Returns true if a request may be handled at once. `rate` is the number for each second.
    pub fn admit(&mut self, holder: &Holder, rate: usize, now: Time) -> bool {
        !self.has_waiting(holder) && self.pay(holder, rate, now)
    }

    /// Takes a request from an account. Returns false if the account is empty.
    fn pay(&mut self, holder: &Holder, rate: usize, now: Time) -> bool {
        let cost = ACCOUNT / u32::try_from(rate.max(1)).unwrap_or(u32::MAX);
        let full = self.accounts.get(holder).copied().unwrap_or(now).max(now).after(cost);
        if full > now.after(ACCOUNT) {
            return false;
        }
        if self.accounts.len() >= ACCOUNTS {
            self.accounts.retain(|_, full| *full > now);
        }
        self.accounts.insert(holder.clone(), full);
        true
    }

    /// Keeps a request of a connection for later. Returns true if that should be reported.
    pub fn keep(&mut self, connection: u64, holder: Holder, request: Frame, now: Time) -> bool {
        self.waiting.push(Waiting { connection, holder, request });
        let reports = self.reported.is_none_or(|last| now >= last.after(QUIET));
        if reports {
            self.reported = Some(now);
        }
        reports
    }

    /// Returns true if requests of an account wait.
    pub fn has_waiting(&self, holder: &Holder) -> bool {
        self.waiting.iter().any(|waiting| waiting.holder == *holder)
    }

    /// Takes the requests that may be handled now, each with its connection.
    pub fn due(&mut self, rate: usize, now: Time) -> Vec<(u64, Frame)> {
        let mut due = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            // An account that is empty stays so, which keeps the order.
            if self.pay(&waiting.holder, rate, now) {
                due.push((waiting.connection, waiting.request));
            } else {
                self.waiting.push(waiting);
            }
        }
        due
    }

    /// Forgets the requests of a connection.
    pub fn forget(&mut self, connection: u64) {
        self.waiting.retain(|waiting| waiting.connection != connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn request(number: u16) -> Frame {
        Frame { kind: number, payload: Vec::new() }
    }

    fn ms(ms: u64) -> Time {
        Time(1_000_000_000 + ms * 1_000_000)
    }

    #[test]
    fn a_burst_of_a_second_is_admitted_and_then_the_rate() {
        let mut throttle = Throttle::default();
        let (alice, bob) = (Holder::User(1), Holder::Socket(Path::new("/b").into()));
        let admitted = |throttle: &mut Throttle, holder: &Holder, at| {
            (0..1_000).filter(|_| throttle.admit(holder, 50, ms(at))).count()
        };
        assert_eq!(admitted(&mut throttle, &alice, 0), 50);
        assert_eq!(admitted(&mut throttle, &bob, 0), 50, "each has an own account");
        assert_eq!(admitted(&mut throttle, &alice, 19), 0);
        assert_eq!(admitted(&mut throttle, &alice, 20), 1);
        assert_eq!(admitted(&mut throttle, &alice, 120), 5);
        assert_eq!(admitted(&mut throttle, &alice, 60_000), 50, "an account holds the requests of a second");
    }

    #[test]
    fn requests_that_wait_keep_their_order_and_end_with_their_connection() {
        let mut throttle = Throttle::default();
        let (alice, bob) = (Holder::User(1), Holder::User(2));
        assert!((0..10).all(|_| throttle.admit(&alice, 10, ms(0))));
        assert!(!throttle.admit(&alice, 10, ms(0)));
        let reports = [(1, 1), (2, 2), (3, 3)]
            .map(|(connection, number)| throttle.keep(connection, alice.clone(), request(number), ms(0)));
        assert_eq!(reports, [true, false, false], "one report a second");
        assert!(!throttle.admit(&alice, 10, ms(5_000)), "nobody overtakes");
        assert!(throttle.admit(&bob, 10, ms(0)) && throttle.has_waiting(&alice));
        assert!(throttle.due(10, ms(99)).is_empty());
        throttle.forget(2);
        let due: Vec<_> =
            throttle.due(10, ms(100)).into_iter().map(|(number, frame)| (number, frame.kind)).collect();
        assert_eq!(due, [(1, 1)]);
        let due: Vec<_> = throttle.due(10, ms(5_000)).into_iter().map(|(number, _)| number).collect();
        assert_eq!(due, [3]);
        assert!(throttle.admit(&alice, 10, ms(5_000)) && !throttle.has_waiting(&alice));
    }

    #[test]
    fn full_accounts_are_forgotten() {
        let mut throttle = Throttle::default();
        for user in 0..10_000 {
            assert!(throttle.admit(&Holder::User(user), 200, ms(u64::from(user))));
        }
        assert!(throttle.accounts.len() <= 2 * ACCOUNTS, "{}", throttle.accounts.len());
    }

    proptest! {
        #[test]
        fn no_second_has_more_than_twice_the_rate(rate in 1_usize..300, gaps in vec(0_u64..40, 1..600)) {
            let mut throttle = Throttle::default();
            let (mut now, mut admitted) = (0, Vec::new());
            for gap in gaps {
                now += gap;
                if throttle.admit(&Holder::User(1), rate, ms(now)) {
                    admitted.push(now);
                }
            }
            for (index, first) in admitted.iter().enumerate() {
                let within = admitted[index..].iter().take_while(|at| **at < first + 1_000).count();
                prop_assert!(within <= 2 * rate, "{within}");
            }
        }
    }
}
