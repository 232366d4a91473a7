//! Statistics over measured samples: one definition of a quantile for every figure that xbench prints.
//!
//! **Quantile.** The p-th percentile of n samples is the nearest-rank one: the smallest sample such that at
//! least p percent of all samples are less than or equal to it, that is the sample of rank `ceil(n * p /
//! 100)` in sorted order (ranks start at 1, percentile 0 is the minimum). It is always a value that was
//! measured, never an interpolated one, and it errs towards the larger sample, which is the honest side for a
//! latency. The median is the 50th percentile under the same definition, so that it is the lower middle one
//! of an even number of samples.
//!
//! All samples are kept and sorted: the largest run here has some ten thousand of them, which a histogram
//! would only make less exact.

/// A non-empty set of finite samples, sorted.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    sorted: Vec<f64>,
}

impl Samples {
    /// Takes the samples in any order; `None` if there are none or one of them is not a finite number.
    pub fn new(mut values: Vec<f64>) -> Option<Self> {
        if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
            return None;
        }
        values.sort_unstable_by(f64::total_cmp);
        Some(Self { sorted: values })
    }

    /// Returns the number of samples, which is at least one.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns a percentile by nearest rank. `percent` is clamped to 0..=100.
    pub fn percentile(&self, percent: f64) -> f64 {
        // The rank in integers: `0.99 * n` in binary floating point can land on either side of a whole
        // number.
        const SCALE: u128 = 1_000_000;
        let parts = (percent.clamp(0.0, 100.0) * (SCALE / 100) as f64).round() as u128;
        let rank = (self.sorted.len() as u128 * parts).div_ceil(SCALE).max(1) as usize;
        self.sorted[rank - 1]
    }

    pub fn median(&self) -> f64 {
        self.percentile(50.0)
    }

    pub fn min(&self) -> f64 {
        self.sorted[0]
    }

    pub fn max(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }

    pub fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len() as f64
    }

    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }
}

/// Returns the arithmetic mean; `None` without values.
pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.into_iter().fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Returns the median; `None` without values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Samples::new(values.into_iter().collect()).map(|samples| samples.median())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples(values: &[f64]) -> Samples {
        Samples::new(values.to_vec()).unwrap()
    }

    #[test]
    fn nothing_and_nonsense_are_refused() {
        assert_eq!(Samples::new(vec![]), None);
        assert_eq!(Samples::new(vec![1.0, f64::NAN]), None);
        assert_eq!(Samples::new(vec![f64::INFINITY]), None);
    }

    #[test]
    fn single_sample_is_every_percentile() {
        let s = samples(&[7.0]);
        for p in [-5.0, 0.0, 1.0, 50.0, 99.0, 100.0, 200.0] {
            assert_eq!(s.percentile(p), 7.0);
        }
    }

    #[test]
    fn ranks_of_one_to_a_hundred() {
        let s = Samples::new((1..=100).rev().map(f64::from).collect()).unwrap();
        // Every whole percentile of 1..=100 is the number itself.
        for p in 1..=100 {
            assert_eq!(s.percentile(f64::from(p)), f64::from(p));
        }
        assert_eq!(s.percentile(0.0), 1.0);
        assert_eq!(s.percentile(98.5), 99.0);
        assert_eq!(s.mean(), 50.5);
    }

    #[test]
    fn p99_of_two_hundred_tolerates_two_and_of_fifty_none() {
        let of = |n: u32| Samples::new((1..=n).map(f64::from).collect()).unwrap();
        assert_eq!(of(200).percentile(99.0), 198.0);
        assert_eq!(of(50).percentile(99.0), 50.0);
    }

    #[test]
    fn median_is_the_lower_middle() {
        assert_eq!(samples(&[4.0, 1.0, 3.0, 2.0]).median(), 2.0);
        assert_eq!(samples(&[3.0, 1.0, 2.0]).median(), 2.0);
    }

    proptest! {
        /// The definition itself, checked by counting.
        #[test]
        fn percentile_is_the_smallest_sample_that_covers_p(
            values in prop::collection::vec(-1e9f64..1e9, 1..300),
            percent in 0u32..=100,
        ) {
            let s = Samples::new(values.clone()).unwrap();
            let q = s.percentile(f64::from(percent));
            let n = values.len() as u64;
            let covered = |x: f64| values.iter().filter(|v| **v <= x).count() as u64;
            prop_assert!(values.contains(&q));
            prop_assert!(covered(q) * 100 >= n * u64::from(percent));
            for smaller in values.iter().copied().filter(|v| *v < q) {
                prop_assert!(covered(smaller) * 100 < n * u64::from(percent));
            }
        }

        #[test]
        fn percentiles_never_fall(values in prop::collection::vec(-1e6f64..1e6, 1..100), a in 0.0f64..100.0, b in 0.0f64..100.0) {
            let s = Samples::new(values).unwrap();
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            prop_assert!(s.percentile(low) <= s.percentile(high));
            prop_assert!(s.min() <= s.percentile(low) && s.percentile(high) <= s.max());
        }

        #[test]
        fn order_of_arrival_does_not_matter(values in prop::collection::vec(-1e6f64..1e6, 1..100)) {
            let reversed = values.iter().rev().copied().collect();
            prop_assert_eq!(Samples::new(values).unwrap(), Samples::new(reversed).unwrap());
        }
    }
}
