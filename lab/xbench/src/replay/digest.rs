//! The result of the `mix` kernels of a replay, computed by the host.

use crate::kernels::mix_step;

/// The number of words of the digest.
pub const WORDS: usize = 64;
/// A `mix` kernel follows every command whose number is a multiple of this.
pub const EVERY: usize = 8;

/// The digest after some number of `mix` kernels. It is never reset: each kernel continues from the result of
/// all kernels before it, so that a lost, doubled or exchanged one shows in all later digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    words: [u64; WORDS],
    mixes: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Self { words: [0; WORDS], mixes: 0 }
    }
}

impl Digest {
    /// Returns the digest after `requests` inferences of `commands` commands each.
    pub fn of(requests: u64, commands: usize) -> Self {
        let mut digest = Self::default();
        for _ in 0..requests * mixes_of(commands) {
            digest.mix();
        }
        digest
    }

    /// Applies the next `mix` kernel, and returns the value for its launch.
    pub fn mix(&mut self) -> u64 {
        self.mixes += 1;
        for (word, index) in self.words.iter_mut().zip(0..) {
            *word = mix_step(*word, *word, index, self.mixes);
        }
        self.mixes
    }

    pub fn words(&self) -> &[u64; WORDS] {
        &self.words
    }

    /// Returns a short form for records.
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        format!("{:016x}", crate::cache::fnv1a(&bytes))
    }
}

/// Returns the number of `mix` kernels of an inference.
pub fn mixes_of(commands: usize) -> u64 {
    (commands / EVERY) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_or_exchanged_mix_changes_the_digest() {
        let whole = Digest::of(3, 24);
        assert_eq!(Digest::of(9, 8), whole);
        assert_ne!(Digest::of(2, 24).text(), whole.text());
        let step = |words: [u64; WORDS], value| {
            let mut index = 0;
            words.map(|word| {
                index += 1;
                mix_step(word, word, index - 1, value)
            })
        };
        let start = [0; WORDS];
        assert_eq!(&step(step(start, 1), 2), Digest::of(1, 16).words());
        assert_ne!(&step(step(start, 2), 1), Digest::of(1, 16).words());
    }

    #[test]
    fn mix_follows_every_eighth_command() {
        assert_eq!([7, 8, 15, 16, 285].map(mixes_of), [0, 1, 1, 2, 35]);
    }
}
