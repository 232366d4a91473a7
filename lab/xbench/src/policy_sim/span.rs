//! Lengths of time and the distributions that they come from, as a workload's file names them.

use crate::random::Random;
use serde::Deserialize;

/// The longest time that a file can name, microseconds: a day.
pub(super) const MOST_US: f64 = 86_400e6;

/// A distribution of times. In a file a table with `dist` and the fields of that row, for example
/// `{ dist = "exponential", mean_us = 500 }`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "dist", rename_all = "lowercase", deny_unknown_fields)]
pub enum Span {
    /// Always the same.
    Constant {
        /// Microseconds.
        us: f64,
    },
    /// Every time between two is as likely.
    Uniform {
        /// The shortest, microseconds.
        low_us: f64,
        /// The longest, microseconds.
        high_us: f64,
    },
    /// Exponential.
    Exponential {
        /// Its mean, microseconds.
        mean_us: f64,
    },
    /// The sum of several exponential times: less variable than one.
    Erlang {
        /// Its mean, microseconds.
        mean_us: f64,
        /// How many, 1 to 1000.
        stages: u32,
    },
    /// One of two exponential times, each of which makes half of the mean: more variable than one.
    Hyperexponential {
        /// Its mean, microseconds.
        mean_us: f64,
        /// Standard deviation over mean, 1 to 100.
        cv: f64,
    },
    /// Log-normal.
    Lognormal {
        /// Its mean, microseconds.
        mean_us: f64,
        /// Standard deviation over mean, 0 to 100.
        cv: f64,
    },
}

impl Span {
    /// Whether the numbers make sense; if not, what is wrong with them.
    ///
    /// # Errors
    /// A number is outside its range.
    pub fn check(&self) -> Result<(), String> {
        let time = |name: &str, us: f64| match (0.0..=MOST_US).contains(&us) {
            true => Ok(()),
            false => Err(format!("{name} = {us} is not in 0..{MOST_US}")),
        };
        let ratio = |low: f64, cv: f64| match (low..=100.0).contains(&cv) {
            true => Ok(()),
            false => Err(format!("cv = {cv} is not in {low}..100")),
        };
        match *self {
            Self::Constant { us } => time("us", us),
            Self::Uniform { low_us, high_us } => {
                time("low_us", low_us)?;
                time("high_us", high_us)?;
                if low_us > high_us {
                    Err(format!("low_us {low_us} is above high_us {high_us}"))
                } else {
                    Ok(())
                }
            }
            Self::Exponential { mean_us } => time("mean_us", mean_us),
            Self::Erlang { mean_us, stages } => {
                time("mean_us", mean_us)?;
                if (1..=1000).contains(&stages) {
                    Ok(())
                } else {
                    Err(format!("stages = {stages} is not in 1..1000"))
                }
            }
            Self::Hyperexponential { mean_us, cv } => time("mean_us", mean_us).and(ratio(1.0, cv)),
            Self::Lognormal { mean_us, cv } => time("mean_us", mean_us).and(ratio(0.0, cv)),
        }
    }

    /// Its mean, microseconds.
    pub fn mean_us(&self) -> f64 {
        match *self {
            Self::Constant { us } => us,
            Self::Uniform { low_us, high_us } => (low_us + high_us) / 2.0,
            Self::Exponential { mean_us }
            | Self::Erlang { mean_us, .. }
            | Self::Hyperexponential { mean_us, .. }
            | Self::Lognormal { mean_us, .. } => mean_us,
        }
    }

    /// The variance over the square of the mean; 0 for a mean of 0.
    pub fn squared_cv(&self) -> f64 {
        match *self {
            Self::Constant { .. } => 0.0,
            Self::Uniform { low_us, high_us } => {
                let (mean, width) = ((low_us + high_us) / 2.0, high_us - low_us);
                if mean > 0.0 { width * width / 12.0 / (mean * mean) } else { 0.0 }
            }
            Self::Exponential { .. } => 1.0,
            Self::Erlang { stages, .. } => 1.0 / f64::from(stages),
            Self::Hyperexponential { cv, .. } | Self::Lognormal { cv, .. } => cv * cv,
        }
    }

    /// A time, nanoseconds.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let us = match *self {
            Self::Constant { us } => us,
            Self::Uniform { low_us, high_us } => low_us + (high_us - low_us) * random.unit(),
            Self::Exponential { mean_us } => mean_us * random.exponential(),
            Self::Erlang { mean_us, stages } => {
                mean_us / f64::from(stages) * (0..stages).map(|_| random.exponential()).sum::<f64>()
            }
            Self::Hyperexponential { mean_us, cv } => {
                let square = cv * cv;
                let often = (1.0 + ((square - 1.0) / (square + 1.0)).sqrt()) / 2.0;
                // Half of the mean comes from either.
                let share = if random.unit() <= often { often } else { 1.0 - often };
                mean_us / (2.0 * share) * random.exponential()
            }
            Self::Lognormal { mean_us, cv } => {
                let variance = libm::log1p(cv * cv);
                mean_us * libm::exp(variance.sqrt() * random.normal() - variance / 2.0)
            }
        };
        nanos(us)
    }
}

/// Microseconds as nanoseconds; at most about ten days, so that sums of many stay within 64 bits.
pub(super) fn nanos(us: f64) -> u64 {
    (us * 1000.0).round().clamp(0.0, 1e15) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    const MEAN: f64 = 800.0;

    fn all() -> Vec<Span> {
        vec![
            Span::Constant { us: MEAN },
            Span::Uniform { low_us: 100.0, high_us: 2.0 * MEAN - 100.0 },
            Span::Exponential { mean_us: MEAN },
            Span::Erlang { mean_us: MEAN, stages: 4 },
            Span::Hyperexponential { mean_us: MEAN, cv: 2.0 },
            Span::Lognormal { mean_us: MEAN, cv: 1.5 },
        ]
    }

    #[test]
    fn means_and_variances_are_those_that_are_asked_for() {
        for (index, span) in all().into_iter().enumerate() {
            span.check().unwrap();
            let mut random = Random::new(7, index, Purpose::Work);
            let n = 200_000;
            let draws: Vec<f64> = (0..n).map(|_| span.draw(&mut random) as f64 / 1000.0).collect();
            let mean = draws.iter().sum::<f64>() / f64::from(n);
            let variance = draws.iter().map(|us| (us - mean) * (us - mean)).sum::<f64>() / f64::from(n);
            let squared_cv = variance / (mean * mean);
            assert_eq!(span.mean_us(), MEAN);
            assert!((mean / MEAN - 1.0).abs() < 0.015, "{span:?}: mean {mean}");
            // The fourth moments of the last two are large.
            let error = (squared_cv - span.squared_cv()).abs();
            assert!(error <= 0.1 * span.squared_cv(), "{span:?}: {squared_cv}, not {}", span.squared_cv());
        }
    }

    #[test]
    fn the_exponential_has_its_distribution() {
        // The share above a time, against e^-x: the largest difference of 100,000 is below 0.005 with a probability of
        // more than 98 %, and the seed is fixed.
        let mut random = Random::new(1, 0, Purpose::Work);
        let mut draws: Vec<f64> = (0..100_000).map(|_| random.exponential()).collect();
        draws.sort_unstable_by(f64::total_cmp);
        let n = draws.len() as f64;
        for (rank, x) in draws.iter().enumerate() {
            assert!((1.0 - (-x).exp() - rank as f64 / n).abs() < 0.005, "{x} has rank {rank}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let cases = [
            (Span::Constant { us: -1.0 }, "us = -1 is not in 0..86400000000"),
            (Span::Constant { us: f64::NAN }, "us = NaN is not in 0..86400000000"),
            (Span::Uniform { low_us: 2.0, high_us: 1.0 }, "low_us 2 is above high_us 1"),
            (Span::Erlang { mean_us: 1.0, stages: 0 }, "stages = 0 is not in 1..1000"),
            (Span::Hyperexponential { mean_us: 1.0, cv: 0.5 }, "cv = 0.5 is not in 1..100"),
            (Span::Lognormal { mean_us: 1e12, cv: 0.5 }, "mean_us = 1000000000000 is not in 0..86400000000"),
        ];
        for (span, words) in cases {
            assert_eq!(span.check().unwrap_err(), words);
        }
    }

    #[test]
    fn a_table_of_a_file_is_a_distribution() {
        let read = |text: &str| toml::from_str::<Span>(text);
        assert_eq!(read("dist = \"constant\"\nus = 3").unwrap(), Span::Constant { us: 3.0 });
        assert!(read("dist = \"constant\"\nus = 3\nms = 4").is_err());
        assert!(
            read("dist = \"normal\"\nus = 3").unwrap_err().to_string().contains("unknown variant `normal`")
        );
    }
}
