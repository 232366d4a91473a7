//! The budget for keeping devices free in vain.

use crate::times::nanos;
use protocol::ids::DeviceId;
use protocol::time::Time;
use std::time::Duration;

/// The time that may be wasted on each device within any span as long as the horizon.
///
/// A window is paid for as a whole before it begins, and unused time is given back. So the bound holds
/// whatever happens afterwards, also if the entity that reserved the device is never heard of again.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    /// The time that may be wasted within a horizon, in nanoseconds.
    most: u64,
    /// A host has few devices, so a list is enough.
    devices: Vec<(DeviceId, Account)>,
}

/// The recent payments, in slices of time.
#[derive(Debug, Default)]
struct Account {
    /// Indexed by the slice's number modulo their count, in nanoseconds.
    slices: [u64; SLICES],
    /// The number of the newest slice.
    newest: u64,
}

const SLICE: u64 = 500_000_000;
/// The slices of a horizon, the one that has only begun, and one for a window that was paid for before the
/// horizon begins and lasts into it. No window is longer than a slice.
const SLICES: usize = 22;

impl Budgets {
    /// The span in which the share may not be exceeded.
    pub const HORIZON: Duration = Duration::from_secs(10);
    /// The longest window that can be paid for.
    pub const LONGEST: Duration = Duration::from_nanos(SLICE);

    /// Sets the share of any horizon that may be wasted, 0 to 1.
    pub fn set_share(&mut self, share: f64) {
        self.most = (Self::HORIZON.as_nanos() as f64 * share) as u64;
    }

    /// Pays for a window on all these devices; if one of them cannot pay, nothing is paid.
    pub fn pay(&mut self, devices: &[DeviceId], span: Duration, now: Time) -> bool {
        let nanos = nanos(span);
        let most = self.most;
        let pays = span <= Self::LONGEST
            && devices.iter().all(|device| {
                self.account(*device).is_none_or(|account| {
                    account.advance(now);
                    nanos <= most.saturating_sub(account.spent())
                })
            })
            && nanos <= most;
        if pays {
            self.spend(devices, span, now);
        }
        pays
    }

    /// Enters time that was wasted without having been paid for.
    pub fn spend(&mut self, devices: &[DeviceId], span: Duration, now: Time) {
        for device in devices {
            if self.account(*device).is_none() {
                // Names of devices come from others, so accounts without payments are dropped.
                self.devices.retain_mut(|(_, account)| {
                    account.advance(now);
                    account.spent() > 0
                });
                self.devices.push((*device, Account::default()));
            }
            if let Some(account) = self.account(*device) {
                account.advance(now);
                let slice = &mut account.slices[(account.newest % SLICES as u64) as usize];
                *slice = slice.saturating_add(nanos(span));
            }
        }
    }

    /// Gives back time that was paid at that time and not wasted.
    pub fn give_back(&mut self, devices: &[DeviceId], span: Duration, paid: Time) {
        for device in devices {
            let Some(account) = self.account(*device) else { continue };
            let number = paid.0 / SLICE;
            // Payments of long ago are forgotten already.
            if number <= account.newest && account.newest - number < SLICES as u64 {
                let slice = &mut account.slices[(number % SLICES as u64) as usize];
                *slice = slice.saturating_sub(nanos(span));
            }
        }
    }

    fn account(&mut self, device: DeviceId) -> Option<&mut Account> {
        self.devices.iter_mut().find(|(known, _)| *known == device).map(|(_, account)| account)
    }
}

impl Account {
    /// Forgets the slices before the horizon.
    fn advance(&mut self, now: Time) {
        let number = now.0 / SLICE;
        let passed = number.saturating_sub(self.newest).min(SLICES as u64);
        for index in 0..passed {
            self.slices[((number - index) % SLICES as u64) as usize] = 0;
        }
        self.newest = self.newest.max(number);
    }

    fn spent(&self) -> u64 {
        self.slices.iter().fold(0, |sum, slice| sum.saturating_add(*slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[DeviceId] = &[DeviceId(1)];
    const BOTH: &[DeviceId] = &[DeviceId(1), DeviceId(2)];

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    fn budgets(share: f64) -> Budgets {
        let mut budgets = Budgets::default();
        budgets.set_share(share);
        budgets
    }

    #[test]
    fn payments_return_after_a_horizon_or_when_given_back() {
        let mut budgets = budgets(0.02);
        assert!(budgets.pay(ONE, millis(150), at(1_000)));
        assert!(!budgets.pay(BOTH, millis(51), at(1_100)), "the first device cannot pay");
        assert!(budgets.pay(&[DeviceId(2)], millis(200), at(1_100)), "and the second has not");
        assert!(budgets.pay(ONE, millis(50), at(1_100)));
        budgets.give_back(ONE, millis(30), at(1_100));
        assert!(!budgets.pay(ONE, millis(31), at(1_400)));
        assert!(budgets.pay(ONE, millis(30), at(1_400)));
        assert!(!budgets.pay(ONE, millis(1), at(11_400)));
        assert!(budgets.pay(ONE, millis(200), at(12_000)));
    }

    #[test]
    fn payment_needs_a_budget_and_a_bounded_span() {
        assert!(!budgets(0.0).pay(ONE, millis(1), at(1)));
        assert!(!budgets(1.0).pay(ONE, millis(501), at(1)));
        assert!(budgets(1.0).pay(ONE, millis(500), at(1)));
    }

    #[test]
    fn devices_without_payments_are_forgotten() {
        let mut budgets = budgets(0.02);
        for number in 0..1_000 {
            assert!(budgets.pay(&[DeviceId(number)], millis(1), at(u64::from(number) * 1_000)));
        }
        assert!(budgets.devices.len() <= 12, "{}", budgets.devices.len());
    }

    #[test]
    fn times_that_go_back_or_far_ahead_are_harmless() {
        let mut budgets = budgets(0.02);
        assert!(budgets.pay(ONE, millis(200), at(50_000)));
        assert!(!budgets.pay(ONE, millis(1), at(3)));
        assert!(budgets.pay(ONE, millis(200), Time(u64::MAX)));
        budgets.spend(ONE, Duration::MAX, Time(u64::MAX));
        budgets.give_back(ONE, millis(1), at(3));
        assert!(!budgets.pay(ONE, millis(1), Time(u64::MAX)));
    }
}
