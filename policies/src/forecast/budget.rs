//! How much time may be wasted.

use protocol::time::Time;
use std::time::Duration;

/// Bounds what is wasted within any span as long as the horizon.
///
/// Time is divided into slices, and the sum goes over as many as surely cover a horizon: what counts too long counts
/// for a slice at most.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    /// Wasted in each slice, nanoseconds, by the slice's number modulo their count.
    slices: [u64; Budget::SLICES],
    /// The number of the newest slice.
    newest: u64,
    /// Length of a slice, nanoseconds, at least 1.
    slice: u64,
    /// What may be wasted in all of them, nanoseconds.
    most: u64,
}

impl Budget {
    const SLICES: usize = 22;

    /// May spend this share of any `horizon`.
    pub(super) fn new(share: f64, horizon: Duration) -> Self {
        // The current slice has only begun, so one more than the horizon's twenty-one is kept.
        let slice = horizon.as_nanos().div_ceil(Self::SLICES as u128 - 1);
        let slice = u64::try_from(slice).unwrap_or(u64::MAX).max(1);
        let most = (horizon.as_nanos() as f64 * share) as u64;
        Self { slices: [0; Self::SLICES], newest: 0, slice, most }
    }

    /// Forgets the slices that lie behind the horizon. A time before the newest slice counts as in it.
    fn advance(&mut self, now: Time) {
        let number = now.0 / self.slice;
        let passed = number.saturating_sub(self.newest).min(Self::SLICES as u64);
        for index in 0..passed {
            self.slices[((number - index) % Self::SLICES as u64) as usize] = 0;
        }
        self.newest = self.newest.max(number);
    }

    /// Whether so much may be wasted from now on.
    pub(super) fn allows(&mut self, span: Duration, now: Time) -> bool {
        self.advance(now);
        let spent = self.slices.iter().fold(0, |sum: u64, slice| sum.saturating_add(*slice));
        span.as_nanos() <= u128::from(self.most.saturating_sub(spent))
    }

    /// Enters what was wasted until now.
    pub(super) fn spend(&mut self, span: Duration, now: Time) {
        self.advance(now);
        let slice = &mut self.slices[(self.newest % Self::SLICES as u64) as usize];
        *slice = slice.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HORIZON: Duration = Duration::from_nanos(2_100);

    #[test]
    fn what_is_spent_comes_back_after_a_horizon() {
        let mut budget = Budget::new(0.1, HORIZON);
        let spent = Duration::from_nanos(200);
        assert!(budget.allows(spent, Time(1_000)));
        budget.spend(spent, Time(1_099));
        assert!(budget.allows(Duration::from_nanos(10), Time(1_100)));
        assert!(!budget.allows(Duration::from_nanos(11), Time(1_100)));
        assert!(!budget.allows(Duration::from_nanos(11), Time(1_099 + 2_100)));
        assert!(budget.allows(spent, Time(1_099 + 2_200)));
    }

    #[test]
    fn times_that_go_back_or_far_ahead_are_harmless() {
        let mut budget = Budget::new(0.1, HORIZON);
        budget.spend(Duration::from_nanos(200), Time(50_000));
        assert!(!budget.allows(Duration::from_nanos(11), Time(3)));
        assert!(budget.allows(Duration::from_nanos(210), Time(u64::MAX)));
        budget.spend(Duration::MAX, Time(u64::MAX));
        budget.spend(Duration::MAX, Time(u64::MAX));
        assert!(!budget.allows(Duration::from_nanos(1), Time(u64::MAX)));
        assert!(budget.allows(Duration::ZERO, Time(u64::MAX)));
    }
}
