//! Exponentially smoothed intervals.

use super::skips::{self, Skips};
use super::{SAME, shifted, span};
use protocol::time::Time;

/// The next arrival comes one smoothed interval after the last one.
///
/// Level and trend are smoothed (Holt's method, the trend damped). An interval of about two to eight levels counts as
/// that many, because requests were dropped; a longer one is a pause, and teaches nothing. The interval starts at the
/// last arrival, late or early as that may have been, so the jitter of a periodic source enters twice.
#[derive(Debug, Default)]
pub struct Smoothing {
    last: Option<Time>,
    /// Smoothed interval and its change from one to the next, nanoseconds.
    level: Option<(f64, f64)>,
    skips: Skips,
}

impl Smoothing {
    /// Weight of the newest interval.
    const LEVEL_WEIGHT: f64 = 0.25;
    /// Weight of the newest change of the level.
    const TREND_WEIGHT: f64 = 0.1;
    /// What is left of the trend from one interval to the next.
    const DAMPING: f64 = 0.8;

    /// The interval that is expected next.
    fn interval(&self) -> Option<f64> {
        let (level, trend) = self.level?;
        // A steep fall must not lead to nothing or to the past.
        Some((level + Self::DAMPING * trend).max(level / 2.0).max(1.0))
    }
}

impl super::Forecaster for Smoothing {
    fn arrived(&mut self, at: Time) {
        let Some(last) = self.last else {
            self.last = Some(at);
            return;
        };
        if at <= last {
            return;
        }
        self.last = Some(at);
        let interval = span(last, at);
        let (Some((level, trend)), Some(expected)) = (self.level, self.interval()) else {
            self.level = Some((interval, 0.0));
            return;
        };
        let steps = (interval / expected).round().max(1.0);
        if steps > (skips::MOST + 1) as f64 {
            return;
        }
        if self.skips.note(steps as usize - 1) {
            self.level = Some((interval, 0.0));
        } else {
            let new = expected + Self::LEVEL_WEIGHT * (interval / steps - expected);
            let change = new - level;
            self.level =
                Some((new, Self::DAMPING * trend + Self::TREND_WEIGHT * (change - Self::DAMPING * trend)));
        }
    }

    fn next(&self, after: Time) -> Option<Time> {
        let last = self.last?;
        let interval = self.interval()?;
        let after = after.max(last).after(SAME);
        let steps = (span(last, after) / interval).floor().max(0.0) + 1.0;
        let next = shifted(last, steps * interval);
        (next > after).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Forecaster;
    use super::*;

    /// What is foreseen behind arrivals at these times, in microseconds.
    fn taught(times: impl IntoIterator<Item = u64>) -> Smoothing {
        let mut forecaster = Smoothing::default();
        times.into_iter().for_each(|us| forecaster.arrived(Time(us * 1_000)));
        forecaster
    }

    fn next(forecaster: &Smoothing, after_us: u64) -> Option<u64> {
        forecaster.next(Time(after_us * 1_000)).map(|next| next.0.div_ceil(1_000))
    }

    #[test]
    fn two_arrivals_say_how_it_goes_on() {
        assert_eq!(next(&taught([]), 0), None);
        assert_eq!(next(&taught([100]), 0), None);
        let two = taught([100, 150]);
        assert_eq!(next(&two, 0), Some(200));
        assert_eq!(next(&two, 200), Some(250));
        assert_eq!(next(&two, 1_049), Some(1_100));
    }

    #[test]
    fn dropped_ones_and_pauses_leave_the_interval() {
        let mut steady = taught((0..20).map(|index| index * 50));
        for us in [1_050, 1_200, 9_000] {
            steady.arrived(Time(us * 1_000));
        }
        assert_eq!(next(&steady, 9_000), Some(9_050));
    }

    #[test]
    fn half_the_rate_is_no_row_of_accidents() {
        let slower = (1..=16).map(|index| 2_000 + index * 100);
        let smoothing = taught((0..=40).map(|index| index * 50).chain(slower));
        assert_eq!(next(&smoothing, 0), Some(3_700));
    }

    #[test]
    fn times_that_go_back_are_ignored() {
        let mut two = taught([100, 150]);
        two.arrived(Time(150_000));
        two.arrived(Time(3));
        assert_eq!(next(&two, 0), Some(200));
        assert_eq!(two.next(Time(u64::MAX)), None);
    }
}
