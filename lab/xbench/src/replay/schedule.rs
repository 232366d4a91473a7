//! Arrivals of requests. A seed gives the same arrivals in every mode and on every machine.

use crate::random::{Purpose, Random};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The pattern of arrivals.
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
pub(crate) const BURST: usize = 8;

/// Returns `rate * seconds` arrivals within `seconds` (rounded, at least one), as nanoseconds in ascending
/// order.
pub fn moments(pattern: Pattern, rate: f64, seconds: f64, seed: u64) -> Vec<u64> {
    let count = (rate * seconds).round().max(1.0) as usize;
    let mut random = Random::new(seed, 0, Purpose::Arrivals);
    let at = |share: f64| (share * seconds * 1e9) as u64;
    if pattern == Pattern::Poisson {
        // Given the number of arrivals of a Poisson process in an interval, they are independent and uniform
        // there; drawing them so fixes the number, and every block has the same.
        let mut moments: Vec<u64> = (0..count).map(|_| at(random.unit())).collect();
        moments.sort_unstable();
        return moments;
    }
    // A random phase, so that two programs with one rate do not arrive together.
    let phase = random.unit();
    let together = if pattern == Pattern::Bursts { BURST } else { 1 };
    let times = count.div_ceil(together) as f64;
    (0..count).map(|number| at(((number / together) as f64 + phase) / times)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(rate: f64, seconds: f64, seed: u64) -> Vec<u64> {
        moments(Pattern::Poisson, rate, seconds, seed)
    }

    #[test]
    fn seed_determines_the_arrivals() {
        assert_eq!(arrivals(10.0, 50.0, 7), arrivals(10.0, 50.0, 7));
        assert_ne!(arrivals(10.0, 50.0, 7), arrivals(10.0, 50.0, 8));
    }

    #[test]
    fn arrivals_match_the_rate_in_order_and_inside() {
        let moments = arrivals(20.0, 25.0, 1);
        assert_eq!(moments.len(), 500);
        assert!(moments.is_sorted());
        assert!(moments[499] < 25_000_000_000);
        assert_eq!(arrivals(0.1, 1.0, 1).len(), 1);
    }

    #[test]
    fn periodic_arrivals_are_even_and_bursts_coincide() {
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
    fn poisson_gaps_are_exponential() {
        let moments = arrivals(1000.0, 100.0, 3);
        let gaps: Vec<f64> = moments.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let longer = gaps.iter().filter(|gap| **gap > mean).count() as f64 / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        // An exponential gap is longer than its mean with probability 1/e.
        assert!((longer - (-1.0f64).exp()).abs() < 0.01, "{longer}");
    }
}
