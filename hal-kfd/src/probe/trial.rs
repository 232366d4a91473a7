//! Whether a cost that another program measured is right: what the first holds of this one say.

use super::Cost;
use std::time::Duration;

/// So many times longer, or shorter, is no accident of what happened to be saved: a measurement holds an idle queue, and
/// a real hold saves waves as well.
const FAR: u32 = 8;

/// What was told, and the first hold, if it did not agree. Zero times are for a cost that nobody has measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    told: Cost,
    doubt: Option<Cost>,
}

/// What holds have shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The first hold took much longer or shorter, which can be an accident on a busy machine; the second one decides.
    Open,
    /// Holds take about as long as was told.
    Right,
    /// They do not, and this is what they take.
    Wrong(Cost),
}

impl Trial {
    /// A trial of what was told.
    pub fn new(told: Cost) -> Self {
        Self { told, doubt: None }
    }

    /// A hold and its release took so long.
    pub fn see(&mut self, seen: Cost) -> Verdict {
        if !is_far(self.told.hold, seen.hold) && !is_far(self.told.release, seen.release) {
            return Verdict::Right;
        }
        match self.doubt.replace(seen) {
            None => Verdict::Open,
            Some(first) => Verdict::Wrong(Cost {
                hold: nearer(self.told.hold, first.hold, seen.hold),
                release: nearer(self.told.release, first.release, seen.release),
            }),
        }
    }
}

fn is_far(told: Duration, seen: Duration) -> bool {
    seen > told * FAR || told > seen * FAR
}

/// The one of both that differs less: the other one may be the accident.
fn nearer(told: Duration, a: Duration, b: Duration) -> Duration {
    if a.abs_diff(told) <= b.abs_diff(told) { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn cost(hold: u64, release: u64) -> Cost {
        Cost { hold: Duration::from_micros(hold), release: Duration::from_micros(release) }
    }

    #[test]
    fn one_hold_that_agrees_is_enough() {
        assert_eq!(Trial::new(cost(60, 40)).see(cost(100, 30)), Verdict::Right);
        assert_eq!(Trial::new(cost(60, 40)).see(cost(480, 320)), Verdict::Right, "eight times");
    }

    #[test]
    fn one_that_does_not_is_an_accident_until_a_second_one_agrees_with_it() {
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
    fn what_nobody_has_measured_is_learnt_from_two() {
        let mut trial = Trial::new(Cost::default());
        assert_eq!(trial.see(cost(9_000, 40)), Verdict::Open);
        assert_eq!(trial.see(cost(60, 50)), Verdict::Wrong(cost(60, 40)));
    }
}
