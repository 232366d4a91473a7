//! A check of costs that another program measured, against the first evictions of this program.

use std::time::Duration;

/// The factor by which a measured duration must differ to count as wrong. A measurement evicts an idle queue,
/// and a real eviction saves waves as well, so that smaller differences are normal.
const FACTOR: u32 = 8;

/// The costs of an eviction and a restoration: the medians of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The duration of an eviction.
    pub hold: Duration,
    /// The duration of a restoration.
    pub release: Duration,
}

/// A check under way. An expected duration of zero means that no program has measured it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    expected: Cost,
    /// The first eviction, if it was far from the expected costs.
    outlier: Option<Cost>,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The first eviction was far from the expected costs, which can happen by chance on a busy machine; the
    /// second one decides.
    Open,
    /// The expected costs are right.
    Right,
    /// The expected costs are wrong; these are the observed ones.
    Wrong(Cost),
}

impl Trial {
    /// Begins the check of expected costs.
    pub fn new(expected: Cost) -> Self {
        Self { expected, outlier: None }
    }

    /// Records the durations of an eviction and its restoration, and returns the result.
    pub fn see(&mut self, seen: Cost) -> Verdict {
        if !is_far(self.expected.hold, seen.hold) && !is_far(self.expected.release, seen.release) {
            return Verdict::Right;
        }
        match self.outlier.replace(seen) {
            None => Verdict::Open,
            Some(first) => Verdict::Wrong(Cost {
                hold: nearer(self.expected.hold, first.hold, seen.hold),
                release: nearer(self.expected.release, first.release, seen.release),
            }),
        }
    }
}

fn is_far(expected: Duration, seen: Duration) -> bool {
    seen > expected * FACTOR || expected > seen * FACTOR
}

/// Returns the duration that is nearer to the expected one: the other may be an outlier.
fn nearer(expected: Duration, a: Duration, b: Duration) -> Duration {
    if a.abs_diff(expected) <= b.abs_diff(expected) { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn cost(hold: u64, release: u64) -> Cost {
        Cost { hold: Duration::from_micros(hold), release: Duration::from_micros(release) }
    }

    #[test]
    fn one_matching_eviction_confirms_the_costs() {
        assert_eq!(Trial::new(cost(60, 40)).see(cost(100, 30)), Verdict::Right);
        assert_eq!(Trial::new(cost(60, 40)).see(cost(480, 320)), Verdict::Right, "eight times");
    }

    #[test]
    fn outlier_stays_open_until_a_second_eviction() {
        let mut trial = Trial::new(cost(60, 40));
        assert_eq!(trial.see(cost(9_000, 40)), Verdict::Open);
        assert_eq!(trial.see(cost(70, 45)), Verdict::Right);
        let mut trial = Trial::new(cost(60, 40));
        assert_eq!(trial.see(cost(900, 40)), Verdict::Open);
        assert_eq!(trial.see(cost(700, 41)), Verdict::Wrong(cost(700, 40)));
        let mut trial = Trial::new(cost(10_000, 10_000));
        assert_eq!(trial.see(cost(60, 40)), Verdict::Open, "too long as well");
        assert_eq!(trial.see(cost(80, 30)), Verdict::Wrong(cost(80, 40)));
    }

    #[test]
    fn unmeasured_costs_are_learnt_from_two_evictions() {
        let mut trial = Trial::new(Cost::default());
        assert_eq!(trial.see(cost(9_000, 40)), Verdict::Open);
        assert_eq!(trial.see(cost(60, 50)), Verdict::Wrong(cost(60, 40)));
    }
}
