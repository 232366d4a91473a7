//! Numbers at random that follow from a seed.

/// A sequence of numbers (Marsaglia's xorshift with 64 bits).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The sequence of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        // Spreads small seeds over all bits. The state must not be 0, which would stay.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number, below `limit`, which is at least 1.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
