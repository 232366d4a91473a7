//! The margin of a forecast, from its recent errors.

use protocol::time::Time;

/// The time by which work may come earlier or later than foreseen, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Margin {
    pub(super) before: u64,
    pub(super) behind: u64,
}

impl Margin {
    pub(super) fn at_least(self, least: u64) -> Self {
        Self { before: self.before.max(least), behind: self.behind.max(least) }
    }

    /// Returns true if the margin is no more than this before, and twice that after.
    pub(super) fn within(self, before: u64) -> bool {
        self.before <= before && self.behind <= before.saturating_mul(2)
    }
}

/// The last errors.
#[derive(Debug, Clone)]
pub(super) struct Errors {
    /// Nanoseconds, positive for late work; the oldest is overwritten.
    recent: [i64; Errors::KEPT],
    /// The number of errors so far; above [`Errors::KEPT`] only the remainder counts.
    seen: usize,
}

impl Default for Errors {
    fn default() -> Self {
        Self { recent: [0; Self::KEPT], seen: 0 }
    }
}

impl Errors {
    const KEPT: usize = 24;
    /// The number of errors from which on there is a margin.
    const ENOUGH: usize = 6;
    /// The number of outliers: of 24 errors the two largest of each side are left out, because dropped
    /// requests and changes of the rate cause them.
    const OUTLIERS: (usize, usize) = (2, 24);
    /// The factor from the largest remaining error to the margin before: small, because the device stands
    /// clear meanwhile.
    const BEFORE: (u64, u64) = (3, 2);
    /// The factor to the margin after: larger, because it costs only if the work does not come.
    const BEHIND: (u64, u64) = (5, 2);
    /// The smallest part of one side's error that counts for the other side: two dozen errors can show a side
    /// by accident.
    const ALIKE: (u64, u64) = (7, 10);

    /// Enters the error of a forecast.
    pub(super) fn note(&mut self, foreseen: Time, at: Time) {
        let nanos = i64::try_from(foreseen.0.abs_diff(at.0)).unwrap_or(i64::MAX);
        self.recent[self.seen % Self::KEPT] = if at < foreseen { -nanos } else { nanos };
        self.seen += 1;
        if self.seen == 2 * Self::KEPT {
            self.seen = Self::KEPT;
        }
    }

    /// Returns the margin that most of the recent errors stay within; `None` while there are too few.
    pub(super) fn margin(&self) -> Option<Margin> {
        let count = self.seen.min(Self::KEPT);
        if count < Self::ENOUGH {
            return None;
        }
        let mut sorted = self.recent;
        let sorted = &mut sorted[..count];
        sorted.sort_unstable();
        let outliers = count * Self::OUTLIERS.0 / Self::OUTLIERS.1;
        let early = sorted[outliers].min(0).unsigned_abs();
        let late = sorted[count - 1 - outliers].max(0).unsigned_abs();
        let alike = |one: u64, other: u64| one.max(times(other, Self::ALIKE));
        Some(Margin {
            before: times(alike(early, late), Self::BEFORE),
            behind: times(alike(late, early), Self::BEHIND),
        })
    }
}

fn times(nanos: u64, (by, part): (u64, u64)) -> u64 {
    nanos.saturating_mul(by) / part
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORESEEN: Time = Time(1 << 40);

    fn noted(errors: impl IntoIterator<Item = i64>) -> Errors {
        let mut noted = Errors::default();
        errors
            .into_iter()
            .for_each(|error| noted.note(FORESEEN, Time(FORESEEN.0.saturating_add_signed(error))));
        noted
    }

    #[test]
    fn too_few_errors_give_no_margin() {
        assert_eq!(noted([100; 5]).margin(), None);
        assert_eq!(noted([100; 6]).margin(), Some(Margin { before: 105, behind: 250 }));
    }

    #[test]
    fn margin_follows_each_side_without_outliers() {
        let both = noted([-100, 90].repeat(12));
        assert_eq!(both.margin(), Some(Margin { before: 150, behind: 225 }));
        let mut outliers = [-100, 90].repeat(12);
        outliers[3] = 1_000_000;
        outliers[4] = -1_000_000;
        outliers[10] = i64::MIN;
        outliers[11] = i64::MAX;
        assert_eq!(noted(outliers).margin(), both.margin());
    }

    #[test]
    fn old_errors_are_forgotten_and_large_ones_saturate() {
        let errors = [1_000].repeat(500).into_iter().chain([-10, 10].repeat(12));
        assert_eq!(noted(errors).margin(), Some(Margin { before: 15, behind: 25 }));
        let mut errors = Errors::default();
        (0..100).for_each(|_| errors.note(Time(0), Time(u64::MAX)));
        assert_eq!(errors.margin().map(|margin| margin.behind), Some(u64::MAX / 2));
    }
}
