//! When requests arrive: by a generator of our own, so that a seed means the same arrivals in every mode, on every
//! machine and in every release.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How requests arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// At random, independently of each other
    Poisson,
    /// One after the other, evenly
    Periodic,
    /// Eight at a time, evenly
    Bursts,
}

/// Requests of a burst.
const BURST: usize = 8;

/// Arrivals in `0..seconds`, as nanoseconds in ascending order: `rate * seconds` of them (rounded, at least one).
pub fn moments(pattern: Pattern, rate: f64, seconds: f64, seed: u64) -> Vec<u64> {
    let count = (rate * seconds).round().max(1.0) as usize;
    // So that two programs with one rate do not arrive together.
    let phase = SplitMix64(seed).unit();
    let even = |number: usize, of: usize| ((number as f64 + phase) / of as f64 * seconds * 1e9) as u64;
    match pattern {
        Pattern::Poisson => arrivals(rate, seconds, seed),
        Pattern::Periodic => (0..count).map(|number| even(number, count)).collect(),
        Pattern::Bursts => {
            let bursts = count.div_ceil(BURST);
            (0..count).map(|number| even(number / BURST, bursts)).collect()
        }
    }
}

/// A Poisson process: arrivals in `0..seconds`, as nanoseconds in ascending order, `rate * seconds` of them (rounded, at
/// least one).
///
/// Given the number of arrivals of a Poisson process in an interval, they are independent and uniform there; drawing
/// them so fixes the number, and every block has the same.
pub fn arrivals(rate: f64, seconds: f64, seed: u64) -> Vec<u64> {
    let count = (rate * seconds).round().max(1.0) as usize;
    let mut random = SplitMix64(seed);
    let mut moments: Vec<u64> = (0..count).map(|_| (random.unit() * seconds * 1e9) as u64).collect();
    moments.sort_unstable();
    moments
}

/// Steele, Lea and Flood's generator ("Fast splittable pseudorandom number generators", 2014).
#[derive(Debug)]
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `0..1`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // First values of the reference implementation for seed 1234567.
        let mut random = SplitMix64(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_seed_means_its_arrivals() {
        assert_eq!(arrivals(10.0, 50.0, 7), arrivals(10.0, 50.0, 7));
        assert_ne!(arrivals(10.0, 50.0, 7), arrivals(10.0, 50.0, 8));
    }

    #[test]
    fn as_many_as_the_rate_says_in_order_and_inside() {
        let moments = arrivals(20.0, 25.0, 1);
        assert_eq!(moments.len(), 500);
        assert!(moments.is_sorted());
        assert!(moments[499] < 25_000_000_000);
        assert_eq!(arrivals(0.1, 1.0, 1).len(), 1);
    }

    #[test]
    fn even_ones_are_even_and_bursts_come_together() {
        let even = moments(Pattern::Periodic, 20.0, 10.0, 1);
        assert_eq!(even.len(), 200);
        assert!(even.windows(2).all(|pair| (pair[1] - pair[0]).abs_diff(50_000_000) <= 1));
        let bursts = moments(Pattern::Bursts, 20.0, 10.0, 1);
        assert_eq!(bursts.len(), 200);
        assert!(bursts.chunks(8).all(|burst| burst.iter().all(|at| *at == burst[0])));
        assert!(bursts.chunks(8).map(|burst| burst[0]).is_sorted_by(|a, b| a < b));
        assert!(even.iter().chain(&bursts).all(|at| *at < 10_000_000_000));
    }

    #[test]
    fn gaps_are_those_of_a_poisson_process() {
        let moments = arrivals(1000.0, 100.0, 3);
        let gaps: Vec<f64> = moments.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let longer = gaps.iter().filter(|gap| **gap > mean).count() as f64 / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        // An exponential gap is longer than its mean with probability 1/e.
        assert!((longer - (-1.0f64).exp()).abs() < 0.01, "{longer}");
    }
}
