//! A line through the last arrivals.

use super::skips::{self, Skips};
use super::{SAME, shifted, span};
use protocol::time::Time;
use std::collections::VecDeque;

/// The arrivals lie on a line over their numbers, and the next one continues it.
///
/// Each arrival gets the number that the line says, so a dropped request leaves a gap in the numbers and not in the
/// line, and the jitter of a periodic source does not add up. The line is used as fitted or, in a second form, moved through
/// the newest arrival, for sources whose intervals vary by themselves. Which, and how many of the last arrivals the line goes through (2,
/// 4, 8, 16 or 32), is chosen by which would have foreseen the recent ones best. After a pause the line goes on from the new arrival with the
/// slope that it had.
#[derive(Debug, Default)]
pub struct Regression {
    /// The last arrivals with their numbers; the newest is the last.
    points: VecDeque<(i64, Time)>,
    /// For each form the smoothed absolute error, nanoseconds.
    errors: [f64; FORMS],
    skips: Skips,
}

/// Through how many arrivals a line may go.
const SPANS: [usize; 5] = [2, 4, 8, 16, 32];
/// For each of [`SPANS`] a line as fitted, and one moved through the newest arrival.
const FORMS: usize = SPANS.len() * 2;
const MOST_POINTS: usize = SPANS[SPANS.len() - 1];

/// Time over number, in nanoseconds from the newest arrival, whose number is 0.
#[derive(Debug, Clone, Copy)]
struct Line {
    at_zero: f64,
    slope: f64,
}

impl Line {
    fn at(self, number: f64) -> f64 {
        self.at_zero + self.slope * number
    }

    /// The number whose time is nearest, of those to come.
    fn nearest(self, nanos: f64) -> f64 {
        ((nanos - self.at_zero) / self.slope).round().max(1.0)
    }
}

impl Regression {
    /// Weight of the newest error.
    const ERROR_WEIGHT: f64 = 0.125;

    /// The line through so many of the last arrivals, or through all if there are fewer.
    fn line(&self, span_of: usize) -> Option<Line> {
        let &(newest, zero) = self.points.back()?;
        let used = self.points.iter().rev().take(span_of);
        let count = used.len() as f64;
        let (mut sum_x, mut sum_y, mut sum_xx, mut sum_xy) = (0.0, 0.0, 0.0, 0.0);
        for &(number, time) in used {
            let (x, y) = ((number - newest) as f64, span(zero, time));
            sum_x += x;
            sum_y += y;
            sum_xx += x * x;
            sum_xy += x * y;
        }
        let spread = count * sum_xx - sum_x * sum_x;
        if spread <= 0.0 {
            return None;
        }
        let slope = (count * sum_xy - sum_x * sum_y) / spread;
        (slope >= 1.0).then(|| Line { at_zero: (sum_y - slope * sum_x) / count, slope })
    }

    fn form(&self, form: usize) -> Option<Line> {
        let line = self.line(SPANS[form / 2])?;
        Some(if form % 2 == 1 { Line { at_zero: 0.0, ..line } } else { line })
    }

    /// The line that has foreseen best lately; the longest among equals.
    fn best(&self) -> Option<Line> {
        let mut best = FORMS - 2;
        for index in (0..FORMS).rev() {
            if self.errors[index] < self.errors[best] {
                best = index;
            }
        }
        self.form(best)
    }

    /// Starts over with the last few arrivals, each the one after the other.
    fn renumber(&mut self, keep: usize) {
        let surplus = self.points.len().saturating_sub(keep);
        self.points.drain(..surplus);
        for (number, point) in self.points.iter_mut().enumerate() {
            point.0 = number as i64;
        }
        self.errors = Default::default();
    }
}

impl super::Forecaster for Regression {
    fn arrived(&mut self, at: Time) {
        let Some(&(newest, last)) = self.points.back() else {
            self.points.push_back((0, at));
            return;
        };
        if at <= last {
            return;
        }
        let offset = span(last, at);
        let mut step = 1;
        if let Some(line) = self.best() {
            step = line.nearest(offset) as i64;
            if step > skips::MOST as i64 + 1 {
                let shift = offset - line.at(1.0);
                self.points.iter_mut().for_each(|point| point.1 = shifted(point.1, shift));
                step = 1;
            } else {
                for index in 0..FORMS {
                    let Some(line) = self.form(index) else { continue };
                    let error = (offset - line.at(line.nearest(offset))).abs();
                    self.errors[index] += Self::ERROR_WEIGHT * (error - self.errors[index]);
                }
            }
        }
        if self.points.len() == MOST_POINTS {
            self.points.pop_front();
        }
        self.points.push_back((newest.saturating_add(step), at));
        if self.skips.note(step as usize - 1) {
            self.renumber(4);
        }
    }

    fn next(&self, after: Time) -> Option<Time> {
        let line = self.best()?;
        let &(_, last) = self.points.back()?;
        let after = after.max(last).after(SAME);
        let passed = (span(last, after) - line.at_zero) / line.slope;
        let next = shifted(last, line.at(passed.floor().max(0.0) + 1.0));
        (next > after).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Forecaster;
    use super::*;

    /// What is foreseen behind arrivals at these times, in microseconds.
    fn taught(times: impl IntoIterator<Item = u64>) -> Regression {
        let mut forecaster = Regression::default();
        times.into_iter().for_each(|us| forecaster.arrived(Time(us * 1_000)));
        forecaster
    }

    fn next(forecaster: &Regression, after_us: u64) -> Option<u64> {
        forecaster.next(Time(after_us * 1_000)).map(|next| next.0.div_ceil(1_000))
    }

    #[test]
    fn two_arrivals_say_how_it_goes_on() {
        assert_eq!(next(&taught([100]), 0), None);
        let two = taught([100, 150]);
        assert_eq!(next(&two, 0), Some(200));
        assert_eq!(next(&two, 1_049), Some(1_100));
        assert_eq!(two.next(Time(u64::MAX)), None);
    }

    #[test]
    fn one_late_arrival_does_not_move_the_line() {
        let mut steady = taught((0..60).map(|index| index * 50));
        steady.arrived(Time(3_010_000));
        let after = next(&steady, 3_010).unwrap();
        assert!((3_048..=3_053).contains(&after), "{after}");
    }

    #[test]
    fn dropped_ones_leave_a_gap_in_the_numbers() {
        let some = (0..60).filter(|index| index % 7 != 4).map(|index| index * 50);
        assert_eq!(next(&taught(some), 0), Some(3_000));
    }

    #[test]
    fn behind_a_pause_the_line_goes_on_from_the_arrival() {
        let steady = taught((0..20).map(|index| index * 50).chain([7_777]));
        assert_eq!(next(&steady, 0), Some(7_827));
    }

    #[test]
    fn half_the_rate_is_no_row_of_accidents() {
        let slower = (1..=20).map(|index| 2_000 + index * 100);
        let regression = taught((0..=40).map(|index| index * 50).chain(slower));
        assert_eq!(next(&regression, 0), Some(4_100));
    }
}
