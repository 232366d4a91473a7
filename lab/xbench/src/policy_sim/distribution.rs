//! Distributions of times, as in a workload's file.

use crate::random::Random;
use crate::{WrongInput, ensure_in};
use serde::Deserialize;

/// The longest time in a file, microseconds: a day.
pub(super) const MOST_US: f64 = 86_400e6;

/// A distribution of times. In a file it is a table with `dist` and the fields of the variant, for example `{
/// dist = "exponential", mean_us = 500 }`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "dist", rename_all = "lowercase", deny_unknown_fields)]
pub enum Distribution {
    /// A constant time.
    Constant {
        us: f64,
    },
    /// A uniform distribution.
    Uniform {
        low_us: f64,
        high_us: f64,
    },
    Exponential {
        mean_us: f64,
    },
    /// The sum of several exponential times: less variable than one.
    Erlang {
        mean_us: f64,
        /// The number of exponential times, 1 to 1000.
        stages: u32,
    },
    /// Either of two exponential times, each of which contributes half of the mean: more variable than one.
    Hyperexponential {
        mean_us: f64,
        /// Standard deviation over mean, 1 to 100.
        cv: f64,
    },
    Lognormal {
        mean_us: f64,
        /// Standard deviation over mean, 0 to 100.
        cv: f64,
    },
}

impl Distribution {
    pub fn check(&self) -> Result<(), WrongInput> {
        let time = |name: &str, us: f64| ensure_in(name, us, 0.0, MOST_US);
        let ratio = |low: f64, cv: f64| ensure_in("cv", cv, low, 100.0);
        match *self {
            Self::Constant { us } => time("us", us),
            Self::Uniform { low_us, high_us } => {
                time("low_us", low_us)?;
                time("high_us", high_us)?;
                if low_us <= high_us {
                    return Ok(());
                }
                Err(WrongInput(format!("low_us {low_us} is above high_us {high_us}")))
            }
            Self::Exponential { mean_us } => time("mean_us", mean_us),
            Self::Erlang { mean_us, stages } => {
                time("mean_us", mean_us).and(ensure_in("stages", stages, 1, 1000))
            }
            Self::Hyperexponential { mean_us, cv } => time("mean_us", mean_us).and(ratio(1.0, cv)),
            Self::Lognormal { mean_us, cv } => time("mean_us", mean_us).and(ratio(0.0, cv)),
        }
    }

    /// Returns the mean, microseconds.
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

    /// Draws a time, nanoseconds.
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
                // Each contributes half of the mean.
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

/// Converts microseconds to nanoseconds, at most about ten days, so that sums of many fit 64 bits.
pub(super) fn nanos(us: f64) -> u64 {
    (us * 1000.0).round().clamp(0.0, 1e15) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    impl Distribution {
        /// Returns the variance over the square of the mean; 0 for a mean of 0.
        pub(in super::super) fn squared_cv(&self) -> f64 {
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
    }

    const MEAN: f64 = 800.0;

    fn all() -> Vec<Distribution> {
        vec![
            Distribution::Constant { us: MEAN },
            Distribution::Uniform { low_us: 100.0, high_us: 2.0 * MEAN - 100.0 },
            Distribution::Exponential { mean_us: MEAN },
            Distribution::Erlang { mean_us: MEAN, stages: 4 },
            Distribution::Hyperexponential { mean_us: MEAN, cv: 2.0 },
            Distribution::Lognormal { mean_us: MEAN, cv: 1.5 },
        ]
    }

    #[test]
    fn draws_have_the_requested_mean_and_variance() {
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
    fn exponential_has_its_distribution() {
        // The share above a time, against e^-x: the largest difference of 100,000 is below 0.005 with a
        // probability of more than 98 %, and the seed is fixed.
        let mut random = Random::new(1, 0, Purpose::Work);
        let mut draws: Vec<f64> = (0..100_000).map(|_| random.exponential()).collect();
        draws.sort_unstable_by(f64::total_cmp);
        let n = draws.len() as f64;
        for (rank, x) in draws.iter().enumerate() {
            assert!((1.0 - (-x).exp() - rank as f64 / n).abs() < 0.005, "{x} has rank {rank}");
        }
    }

    #[test]
    fn check_names_the_invalid_number() {
        let cases = [
            (Distribution::Constant { us: -1.0 }, "us = -1 is not in 0..86400000000"),
            (Distribution::Constant { us: f64::NAN }, "us = NaN is not in 0..86400000000"),
            (Distribution::Uniform { low_us: 2.0, high_us: 1.0 }, "low_us 2 is above high_us 1"),
            (Distribution::Erlang { mean_us: 1.0, stages: 0 }, "stages = 0 is not in 1..1000"),
            (Distribution::Hyperexponential { mean_us: 1.0, cv: 0.5 }, "cv = 0.5 is not in 1..100"),
            (
                Distribution::Lognormal { mean_us: 1e12, cv: 0.5 },
                "mean_us = 1000000000000 is not in 0..86400000000",
            ),
        ];
        for (span, words) in cases {
            assert_eq!(span.check().unwrap_err().0, words);
        }
    }

    #[test]
    fn table_in_a_file_parses_to_a_distribution() {
        let read = |text: &str| toml::from_str::<Distribution>(text);
        assert_eq!(read("dist = \"constant\"\nus = 3").unwrap(), Distribution::Constant { us: 3.0 });
        assert!(read("dist = \"constant\"\nus = 3\nms = 4").is_err());
        assert!(
            read("dist = \"normal\"\nus = 3").unwrap_err().to_string().contains("unknown variant `normal`")
        );
    }
}
