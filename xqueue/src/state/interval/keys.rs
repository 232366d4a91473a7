//! The keys of the commands of an interval, and the time that they take by their estimates.

use std::time::Duration;

use crate::estimate::Estimate;
use crate::hw::CostKey;

/// The number of different keys that an interval remembers.
const KEYS: usize = 4;

/// The keys of an interval, as long as they are few and all known.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Keys {
    pub(super) keys: [u64; KEYS],
    pub(super) len: usize,
    /// The number of commands that the keys stand for.
    pub(crate) commands: u64,
    pub(super) overflow: bool,
    /// The estimated time of the known commands, and their number.
    pub(super) expected: u64,
    pub(super) known: u64,
    /// True if one of them deserves a close watch: it can be learnt, and little is known of it.
    pub(crate) fresh: bool,
    /// The key of the last one at its place in the program.
    pub(super) placed: u64,
    /// True if they are at more than one place.
    pub(super) places: bool,
}

impl Keys {
    /// Returns the estimated time of so many commands, if the keys stand for all of them and all are known.
    pub(crate) fn takes(&self, commands: u64) -> Option<Duration> {
        (self.known == commands).then(|| Duration::from_nanos(self.expected))
    }

    /// Returns the estimated time of all of them, if all are known and none needs a close watch.
    pub(crate) fn steady(&self) -> Option<u64> {
        (self.known == self.commands && !self.fresh).then_some(self.expected)
    }

    pub(crate) fn add(&mut self, key: CostKey, placed: CostKey, known: Option<Estimate>) {
        self.places |= self.commands != 0 && self.placed != placed.0;
        self.placed = placed.0;
        if let Some(known) = known {
            self.expected += known.nanos;
            self.known += 1;
        }
        self.fresh |= key != CostKey::UNKNOWN && known.is_none_or(|known| known.fresh);
        self.commands += 1;
        if self.keys[..self.len].contains(&key.0) {
            return;
        }
        if self.len == KEYS {
            self.overflow = true;
            return;
        }
        self.keys[self.len] = key.0;
        self.len += 1;
    }

    /// Returns the keys under which their times are learnt.
    pub(crate) fn learnt(&self) -> impl Iterator<Item = CostKey> + '_ {
        self.keys[..self.len].iter().chain([&self.placed]).map(|&key| CostKey(key))
    }
}
