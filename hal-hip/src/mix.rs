//! A fast hash for the tables of this crate.

use std::hash::{BuildHasher, Hasher};

/// A hash of numbers. It need not resist chosen collisions, because handles
/// are addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mix(u64);

impl Mix {
    /// Mixes all bits of a number into all bits of the result.
    #[inline]
    pub(crate) fn fold(number: u64) -> u64 {
        let product = u128::from(number ^ 0x2d35_8dcc_aa6c_78a5) * 0x8bb8_4b93_962e_acc9;
        product as u64 ^ (product >> 64) as u64
    }

    /// Mixes bytes and their number into a number.
    pub(crate) fn bytes(seed: u64, bytes: &[u8]) -> u64 {
        let mut words = bytes.chunks_exact(8);
        let mut hash = seed ^ bytes.len() as u64;
        for word in &mut words {
            hash = Self::fold(hash ^ word.try_into().map_or(0, u64::from_le_bytes));
        }
        let tail = words.remainder().iter().rev().fold(0, |tail, &byte| tail << 8 | u64::from(byte));
        Self::fold(hash ^ tail)
    }
}

impl BuildHasher for Mix {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = Self::bytes(self.0, bytes);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = Self::fold(self.0 ^ number);
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
