//! Dropped arrivals, told apart from a source that has become slower.

/// The largest number of arrivals that may be missing in a row; after a longer gap the source has paused.
pub(super) const MOST: usize = 8;

/// One bit for each of the last 32 expected arrivals: set if it is missing.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Skips(u32);

impl Skips {
    /// The number of missing arrivals that is no accident: fewer than half, so that half the rate is found
    /// out.
    const TOO_MANY: u32 = 15;

    /// Notes an arrival and how many are missing before it, at most [`MOST`]. Returns true if so many are
    /// missing that the pattern is wrong and has to be learnt anew.
    pub(super) fn note(&mut self, missing: usize) -> bool {
        let missing = missing.min(MOST);
        self.0 = (self.0 << missing | ((1 << missing) - 1)) << 1;
        let wrong = self.0.count_ones() >= Self::TOO_MANY;
        if wrong {
            self.0 = 0;
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occasional_gaps_are_accidents_and_many_are_not() {
        let mut skips = Skips::default();
        assert!((0..100).all(|index| !skips.note(usize::from(index % 2 == 0))));
        let mut skips = Skips::default();
        assert!((0..14).all(|_| !skips.note(1)));
        assert!(skips.note(1));
        assert!(!skips.note(MOST));
        assert!(skips.note(usize::MAX));
    }
}
