//! A repeating pattern of intervals.

use super::skips::{self, Skips};
use crate::times::{shifted, span};
use protocol::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// A source whose arrivals repeat themselves after a season of one to sixteen of them, of unknown length.
///
/// The arrivals at each place of the season lie on a line over the number of the season. The parallel lines
/// of all places are fitted together (least squares, one slope) to the last 2, 4, 8 or 16 seasons. The next
/// arrival lies on the line of its place or, in a second form, as far after the newest arrival as the lines
/// say. A season of one place is a periodic source; then this is a linear regression over the last arrivals.
/// The form with the smallest recent error is used: a line where the source keeps time and its jitter does
/// not add up, the distance where every interval varies by itself, few seasons where the source drifts, and
/// more places only if they are clearly better.
///
/// An arrival that does not come is entered where it was expected, so that the places stay right; if that
/// happens too often, the pattern is learnt anew. After a gap of more than eight seasons the pattern goes on
/// with the new arrival, unless there was such a gap within the last 64 arrivals: then the gap is part of the
/// pattern.
#[derive(Debug)]
pub struct Seasonal {
    /// The last arrivals, the newest last.
    arrivals: VecDeque<Time>,
    past: Past,
    /// The smoothed absolute error of each form in nanoseconds; `None` until the form has made a forecast.
    errors: [[Option<f64>; FORMS]; MOST_PLACES],
    /// The best form.
    best: Form,
    /// The last errors of the form that was best then, in nanoseconds; the oldest is overwritten.
    recent: [f64; RECENT],
    judged: usize,
    /// One bit for each of the last 64 arrivals: set if a pause was before it.
    pauses: u64,
    /// The number of arrivals for which no earlier one is taken for dropped.
    strict: u32,
    skips: Skips,
}

/// Times that are no farther apart count as equal, because a forecast is rounded.
const SAME: Duration = Duration::from_micros(1);
/// The largest number of arrivals in a season.
const MOST_PLACES: usize = 16;
/// The numbers of seasons that a line may go through.
const SEASONS: [usize; 4] = [2, 4, 8, 16];
const FORMS: usize = SEASONS.len() * 2;
/// The number of arrivals that are kept: sixteen seasons of eight places, or eight of sixteen.
const MOST_ARRIVALS: usize = 128;

/// The number of recent errors that are kept.
const RECENT: usize = 9;

/// A form of forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Form {
    /// Arrivals of a season, less one.
    places: usize,
    /// Twice the index of the number of seasons, plus one if the distance from the newest arrival counts.
    form: usize,
}

impl Form {
    fn places(self) -> usize {
        self.places + 1
    }

    fn on_newest(self) -> bool {
        self.form % 2 == 1
    }
}

/// Lines through the places of a season, over the number of seasons ago.
#[derive(Debug, Clone, Copy)]
struct Lines {
    places: usize,
    seasons: usize,
    /// The length of a season, in nanoseconds.
    season: f64,
    /// The time added to the lines.
    correction: f64,
}

/// The arrivals in nanoseconds from the newest one, which is the first.
#[derive(Debug)]
struct Past {
    count: usize,
    back: [f64; MOST_ARRIVALS],
    /// At each index the sum of the arrivals before.
    sums: [f64; MOST_ARRIVALS + 1],
}

impl Default for Past {
    fn default() -> Self {
        Self { count: 0, back: [0.0; MOST_ARRIVALS], sums: [0.0; MOST_ARRIVALS + 1] }
    }
}

impl Past {
    fn update(&mut self, arrivals: &VecDeque<Time>) {
        self.count = arrivals.len();
        let Some(&newest) = arrivals.back() else { return };
        for (index, &arrival) in arrivals.iter().rev().enumerate() {
            self.back[index] = span(newest, arrival);
            self.sums[index + 1] = self.sums[index] + self.back[index];
        }
    }
}

impl Default for Seasonal {
    fn default() -> Self {
        Self {
            arrivals: VecDeque::with_capacity(MOST_ARRIVALS),
            past: Past::default(),
            errors: [[None; FORMS]; MOST_PLACES],
            best: Form::default(),
            recent: [f64::INFINITY; RECENT],
            judged: 0,
            pauses: 0,
            strict: 0,
            skips: Skips::default(),
        }
    }
}

impl Seasonal {
    /// The weight of the newest error.
    const ERROR_WEIGHT: f64 = 0.1;
    /// The factor by which more places must be better; otherwise they only repeat fewer.
    const MORE_PLACES: f64 = 0.7;
    /// The factor by which any other form must be better than the one in use.
    const OTHER: f64 = 0.95;
    /// A form is reliable while its usual error is below this share of the mean interval. Only then are
    /// arrivals taken for dropped.
    const SURE: f64 = 0.1;
    /// The distance from its place at which an arrival after a gap still belongs there: so many errors, or
    /// this share of the interval.
    const NEAR: f64 = 4.0;
    const CLOSE: f64 = 0.025;
    /// The number of arrivals for which every interval counts as it is, after wrong guesses about dropped
    /// ones.
    const STRICT: u32 = 32;

    /// Fits lines for all of [`SEASONS`] at once. The first number of seasons that has not been seen in full
    /// gets a line through fewer; those beyond get none.
    fn lines(&self, places: usize) -> [Option<Lines>; SEASONS.len()] {
        let mut all = [None; SEASONS.len()];
        let seen = self.past.count / places;
        let (mut sum, mut moment) = (0.0, 0.0);
        let mut season = 0;
        for (index, wanted) in SEASONS.into_iter().enumerate() {
            let seasons = wanted.min(seen);
            if seasons < 2 || (index > 0 && seasons <= SEASONS[index - 1]) {
                break;
            }
            while season < seasons {
                let first = season * places;
                let of_season = self.past.sums[first + places] - self.past.sums[first];
                sum += of_season;
                moment += season as f64 * of_season;
                season += 1;
            }
            let count = seasons as f64;
            // Time falls over the number of seasons ago.
            let fall = moment - sum * (count - 1.0) / 2.0;
            let spread = count * (count * count - 1.0) / 12.0;
            let length = -fall / (places as f64 * spread);
            if length >= 1.0 {
                all[index] = Some(Lines { places, seasons, season: length, correction: 0.0 });
            }
        }
        all
    }

    /// Returns the lines of a form; `None` if it has seen too little.
    fn form(&self, form: Form) -> Option<Lines> {
        let lines = self.lines(form.places())[form.form / 2]?;
        // In this form the lines are moved until the newest arrival lies on its own line.
        let correction = if form.on_newest() { -self.on_line(lines, 0) } else { 0.0 };
        Some(Lines { correction, ..lines })
    }

    /// Returns the time on the lines so many places on (0: the newest, 1: the next), in nanoseconds from the
    /// newest.
    fn on_line(&self, lines: Lines, ahead: usize) -> f64 {
        // The number of seasons from the newest arrival of that place to the wanted one.
        let ago = ahead.div_ceil(lines.places);
        let newest_of_place = ago * lines.places - ahead;
        let of_place = self.past.back[newest_of_place..self.past.count].iter().step_by(lines.places);
        let sum: f64 = of_place.take(lines.seasons).sum();
        let count = lines.seasons as f64;
        sum / count + lines.season * (ago as f64 + (count - 1.0) / 2.0) + lines.correction
    }

    /// Enters the errors that all forms would have made for an arrival, and chooses the best form.
    fn judge(&mut self, offset: f64) {
        if let Some(lines) = self.form(self.best) {
            // The error of the form that was used, before another one is chosen.
            self.recent[self.judged % RECENT] = (offset - self.on_line(lines, 1)).abs();
            self.judged = (self.judged + 1) % RECENT;
        }
        let start = self.error();
        for places in 1..=MOST_PLACES {
            for (index, lines) in self.lines(places).into_iter().enumerate() {
                let Some(lines) = lines else { continue };
                let on_line = self.on_line(lines, 1);
                let from_newest = on_line - self.on_line(lines, 0);
                for (form, foreseen) in [on_line, from_newest].into_iter().enumerate() {
                    let error = (offset - foreseen).abs();
                    // A new form starts with the error of the best, so that it must first show that it is
                    // better.
                    let smoothed =
                        self.errors[places - 1][index * 2 + form].get_or_insert(start.unwrap_or(error));
                    *smoothed += Self::ERROR_WEIGHT * (error - *smoothed);
                }
            }
        }
        let mut best = self.best;
        let mut least = self.error().unwrap_or(f64::INFINITY);
        for (places, errors) in self.errors.iter().enumerate() {
            for (form, error) in errors.iter().enumerate() {
                let factor = if places > best.places { Self::MORE_PLACES } else { Self::OTHER };
                if error.is_some_and(|error| error < least * factor) {
                    best = Form { places, form };
                    least = error.unwrap_or(least);
                }
            }
        }
        self.best = best;
    }

    /// Returns the smoothed error of the form in use, in nanoseconds.
    fn error(&self) -> Option<f64> {
        self.errors[self.best.places][self.best.form]
    }

    fn enter(&mut self, at: Time) {
        if self.arrivals.len() == MOST_ARRIVALS {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(at);
        self.past.update(&self.arrivals);
    }

    /// Enters an arrival that did not come, if it lies between its neighbours, so that the order is kept.
    fn enter_between(&mut self, expected: Time, behind: Time) {
        if self.arrivals.back().is_some_and(|newest| expected > *newest && expected < behind) {
            self.enter(expected);
        }
    }

    /// Starts over.
    fn forget(&mut self) {
        self.arrivals.clear();
        self.errors = [[None; FORMS]; MOST_PLACES];
        self.best = Form::default();
        self.recent = [f64::INFINITY; RECENT];
        self.pauses = 0;
        self.strict = Self::STRICT;
    }

    /// Returns the median of the last errors, in nanoseconds: errors after dropped arrivals are large.
    fn usual_error(&self) -> f64 {
        let mut sorted = self.recent;
        sorted.sort_unstable_by(f64::total_cmp);
        sorted[RECENT / 2]
    }

    /// Returns the number of expected arrivals that are missing before the one at `offset` from the last, and
    /// their expected times in nanoseconds from the last.
    fn missing(&self, lines: Lines, offset: f64) -> (usize, [f64; skips::MOST]) {
        let mut expected = [0.0; skips::MOST];
        let error = self.usual_error();
        let interval = lines.season / lines.places as f64;
        if error > Self::SURE * interval || self.strict > 0 {
            return (0, expected);
        }
        let bound = f64::max(Self::NEAR * error, Self::CLOSE * interval);
        for missing in 0..=expected.len() {
            let foreseen = self.on_line(lines, missing + 1);
            if (offset - foreseen).abs() <= bound {
                return (missing, expected);
            }
            if let Some(place) = expected.get_mut(missing) {
                *place = foreseen;
            }
        }
        (0, expected)
    }
}

impl Seasonal {
    /// Learns from an arrival. One that is not later than the one before is ignored, because times may be untrusted.
    pub fn arrived(&mut self, at: Time) {
        let Some(&last) = self.arrivals.back() else {
            self.enter(at);
            return;
        };
        if at <= last {
            return;
        }
        let offset = span(last, at);
        let mut missing = 0;
        if let Some(lines) = self.form(self.best) {
            let expected;
            (missing, expected) = self.missing(lines, offset);
            for expected in &expected[..missing] {
                self.enter_between(shifted(last, *expected), at);
            }
            let pause = offset > lines.season * skips::MOST as f64;
            // A pause that repeats itself is part of the pattern.
            let alone = self.pauses == 0;
            self.pauses = self.pauses << 1 | u64::from(pause);
            if pause && alone {
                let pause = offset - self.on_line(lines, 1).max(0.0);
                self.arrivals.iter_mut().for_each(|time| *time = shifted(*time, pause));
                self.past.update(&self.arrivals);
            }
        }
        let newest = *self.arrivals.back().unwrap_or(&last);
        if at <= newest {
            return;
        }
        self.judge(span(newest, at));
        self.enter(at);
        self.strict = self.strict.saturating_sub(1);
        if self.skips.note(missing) {
            self.forget();
            self.enter(at);
        }
    }

    /// Returns the first expected arrival that is later, by more than a microsecond, than both the last one and `after`;
    /// nothing while too little is known, or if the pattern does not reach that far.
    ///
    /// With a time that has passed as `after`, the pattern goes on after arrivals that did not come.
    pub fn next(&self, after: Time) -> Option<Time> {
        let last = *self.arrivals.back()?;
        let lines = self.form(self.best)?;
        let after = after.max(last).after(SAME);
        // Whole seasons that have passed are counted, and only the last of them is walked through.
        let passed = (span(last, after) / lines.season).floor().max(0.0);
        let start = (passed - 1.0).max(0.0);
        (1..=lines.places * 3).find_map(|ahead| {
            let next = shifted(last, start * lines.season + self.on_line(lines, ahead));
            (next > after).then_some(next)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a source that has seen arrivals at these times, in microseconds.
    fn taught(times: impl IntoIterator<Item = u64>) -> Seasonal {
        let mut forecaster = Seasonal::default();
        times.into_iter().for_each(|us| forecaster.arrived(Time(us * 1_000)));
        forecaster
    }

    fn next(forecaster: &Seasonal, after_us: u64) -> Option<u64> {
        forecaster.next(Time(after_us * 1_000)).map(|next| next.0.div_ceil(1_000))
    }

    fn pattern(seasons: u64, period: u64, offsets: &[u64]) -> impl Iterator<Item = u64> {
        (0..seasons).flat_map(move |season| offsets.iter().map(move |offset| season * period + offset))
    }

    #[test]
    fn two_arrivals_give_a_forecast() {
        assert_eq!(next(&taught([100]), 0), None);
        let two = taught([100, 150]);
        assert_eq!(next(&two, 0), Some(200));
        assert_eq!(next(&two, 1_049), Some(1_100));
        assert_eq!(two.next(Time(u64::MAX)), None);
    }

    #[test]
    fn pattern_continues_at_its_place() {
        let offsets = [0, 13, 29, 40, 71];
        let all: Vec<u64> = pattern(31, 150, &offsets).collect();
        for seen in 60..65 {
            let seasonal = taught(all[..seen].iter().copied());
            for (index, &after) in all[seen..].iter().take(10).enumerate() {
                let before = all[seen + index - 1];
                assert_eq!(next(&seasonal, before), Some(after), "behind {seen}");
            }
        }
    }

    #[test]
    fn longest_season_has_sixteen_places() {
        let gaps = (0..16).map(|place| 100 + 100 * (place * 7 % 16));
        let ends = gaps.scan(0, |sum, gap| {
            *sum += gap;
            Some(*sum)
        });
        let offsets: Vec<u64> = ends.collect();
        let seasonal = taught(pattern(12, offsets[15], &offsets));
        assert_eq!(next(&seasonal, 0), Some(12 * offsets[15] + offsets[0]));
        assert_eq!(next(&seasonal, 12 * offsets[15] + offsets[0]), Some(12 * offsets[15] + offsets[1]));
    }

    #[test]
    fn dropped_arrival_keeps_the_places() {
        let all = pattern(30, 150, &[0, 13, 29]);
        let some = all.enumerate().filter(|(index, _)| ![40, 62, 71].contains(index)).map(|(_, us)| us);
        let seasonal = taught(some);
        let coming = [4_500, 4_513, 4_529, 4_650];
        let mut before = 0;
        for us in coming {
            assert_eq!(next(&seasonal, before), Some(us));
            before = us;
        }
    }

    #[test]
    fn occasional_pause_keeps_the_pattern() {
        let steady = taught((0..40).map(|index| index * 50).chain([7_777]));
        assert_eq!(next(&steady, 0), Some(7_827));
    }

    #[test]
    fn pause_in_each_season_is_part_of_the_pattern() {
        let bursts = taught(pattern(30, 1_500, &[0, 10, 20]));
        assert_eq!(next(&bursts, 0), Some(45_000));
    }

    #[test]
    fn half_the_rate_is_learnt_anew() {
        let slower = (1..=20).map(|index| 2_000 + index * 100);
        let seasonal = taught((0..=40).map(|index| index * 50).chain(slower));
        assert_eq!(next(&seasonal, 0), Some(4_100));
    }

    #[test]
    fn times_at_the_end_of_all_times_are_harmless() {
        let mut seasonal = taught((0..40).map(|index| index * 50));
        for back in (0..20).rev() {
            seasonal.arrived(Time(u64::MAX - back));
        }
        seasonal.arrived(Time(0));
        assert!(seasonal.next(Time(0)).is_none_or(|next| next > Time(u64::MAX - 1_000)));
    }
}
