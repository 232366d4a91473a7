//! The latencies of the last requests of an entity.

use crate::times::nanos;
use std::time::Duration;

/// The latencies of the last requests, and their 99th percentile.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Nanoseconds; when it is full the oldest is overwritten.
    recent: Vec<u64>,
    oldest: usize,
}

impl Window {
    /// The largest size, in requests.
    pub const LARGEST: usize = 1_000;
    /// The number of the largest latencies to look at, for the largest size.
    const MOST_LARGEST: usize = rank(Self::LARGEST);

    /// Enters a request, and forgets all but so many.
    pub fn note(&mut self, latency: Duration, size: usize) {
        let size = size.clamp(1, Self::LARGEST);
        let nanos = nanos(latency);
        if self.recent.len() > size {
            self.clear();
        }
        if self.recent.len() < size {
            // The oldest lies elsewhere than in front only after the size has grown.
            self.recent.rotate_left(self.oldest);
            self.oldest = 0;
            self.recent.push(nanos);
        } else {
            self.recent[self.oldest] = nanos;
            self.oldest = (self.oldest + 1) % size;
        }
    }

    /// Forgets all requests.
    pub fn clear(&mut self) {
        self.recent.clear();
        self.oldest = 0;
    }

    /// Returns the 99th percentile of a window of this size: for 200 requests the third largest latency.
    /// Requests that have not been seen yet count as the fastest; `None` while too few are known.
    pub fn p99(&self, size: usize) -> Option<Duration> {
        let rank = rank(size.clamp(1, Self::LARGEST));
        if self.recent.len() < rank {
            return None;
        }
        let mut largest = [0; Self::MOST_LARGEST];
        let largest = &mut largest[..rank];
        for &nanos in &self.recent {
            let Some(index) = largest.iter().position(|known| nanos > *known) else { continue };
            largest[index..].rotate_right(1);
            largest[index] = nanos;
        }
        Some(Duration::from_nanos(largest[rank - 1]))
    }
}

/// Returns the position of the 99th percentile among the largest of so many.
pub(super) const fn rank(size: usize) -> usize {
    size / 100 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn p99_is_the_order_statistic_of_the_last(
            latencies in vec(0u64..1_000, 1..600), size in prop_oneof![1usize..30, 190usize..310],
        ) {
            let mut window = Window::default();
            for (number, latency) in (1..).zip(&latencies) {
                window.note(Duration::from_nanos(*latency), size);
                let seen: Vec<_> = latencies[..number].iter().rev().take(size).copied().collect();
                let mut all = vec![0; size - seen.len()];
                all.extend(&seen);
                all.sort_unstable();
                // The smallest that at least 99 % do not exceed; in whole numbers, so that nothing is
                // rounded.
                let index = all.len() - (all.len() / 100 + 1);
                prop_assert!(100 * (index + 1) >= 99 * all.len());
                prop_assert!(index == 0 || 100 * index < 99 * all.len());
                let known = seen.len() > size / 100;
                prop_assert_eq!(window.p99(size), known.then_some(Duration::from_nanos(all[index])));
            }
        }
    }

    #[test]
    fn new_size_takes_effect_at_once() {
        let mut window = Window::default();
        let mut note = |nanos, size| {
            window.note(Duration::from_nanos(nanos), size);
            window.p99(size).map(|p99| p99.as_nanos())
        };
        assert_eq!(note(5, 3), Some(5));
        assert_eq!([note(1, 3), note(1, 3), note(1, 3)], [Some(5), Some(5), Some(1)]);
        assert_eq!(note(2, 4), Some(2));
        assert_eq!([note(1, 4), note(1, 4), note(1, 4), note(1, 4)], [Some(2), Some(2), Some(2), Some(1)]);
        assert_eq!(note(7, 2), Some(7), "a smaller window begins anew");
    }
}
