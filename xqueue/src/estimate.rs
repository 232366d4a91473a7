//! How long commands take, learnt from the times at which marks were seen. One table a device.
//! Reading is one atomic load; learning happens off the launch path, in the thread that polls.
//!
//! A sample is an *upper bound* of the true time: from a moment at which the command had certainly
//! not started to the moment at which it was seen complete. The minimum of recent upper bounds comes
//! close to the truth without ever being below it. A sample is *close* if the command was seen running
//! shortly before; others count only where they are the best there is, because what they measure is
//! the sleep of the one who looked. A span that is still running after twice its estimate, and as long as
//! others may have had the device in between, proves its kernels changed, and they are forgotten.

use std::collections::HashMap;
use std::time::Duration;

use crate::hw::CostKey;
use crate::sync::{AtomicU64, Mutex, Ordering};

const SLOTS: usize = if cfg!(loom) { 1 } else { 4096 };
/// Samples that count as recent.
const RECENT: usize = 8;
/// Close samples after which an estimate is no longer fresh.
const ENOUGH: usize = 4;
/// More keys than this, and learning starts anew: a program that makes up keys must not grow us.
const MOST_KEYS: usize = 16 * 1024;
/// Below this the launch itself is what takes the time.
const FLOOR: u32 = 1_000;

#[derive(Debug, Default, Clone, Copy)]
struct Recent {
    samples: [u32; RECENT],
    taken: usize,
    close: usize,
    /// Samples of any kind.
    looks: usize,
}

impl Recent {
    fn least(&self) -> u32 {
        self.samples[..self.taken.min(RECENT)].iter().copied().min().unwrap_or(u32::MAX)
    }

    /// A few close samples are enough; a kernel that yields none is not watched for ever.
    fn is_fresh(&self) -> bool {
        self.close < ENOUGH && self.looks < 2 * ENOUGH
    }

    fn add(&mut self, nanos: u32, close: bool) {
        self.looks += 1;
        if close || nanos < self.least() {
            self.samples[self.taken % RECENT] = nanos;
            self.taken += 1;
            self.close += usize::from(close);
        }
    }
}

/// Estimated times by key.
#[derive(Debug)]
pub(crate) struct Estimates {
    /// Tag (from bit 36), fresh (bit 32), nanoseconds (bits 0 to 31); zero is empty.
    slots: Box<[AtomicU64]>,
    recent: Mutex<HashMap<u64, Recent>>,
}

fn spread(key: CostKey) -> u64 {
    key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn place(spread: u64) -> (usize, u64) {
    // Upper bits tell keys apart, middle bits choose the slot: independent enough for a cache.
    ((spread >> 20) as usize % SLOTS, (spread >> 36) | 1)
}

/// What is known of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) nanos: u64,
    /// Few close samples so far: more of them, taken closely, are worth the attention.
    pub(crate) fresh: bool,
}

impl Estimates {
    pub(crate) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), recent: Mutex::new(HashMap::new()) }
    }

    /// The estimate, or nothing where nothing is known.
    #[inline]
    pub(crate) fn get(&self, key: CostKey) -> Option<Estimate> {
        if key == CostKey::UNKNOWN {
            return None;
        }
        let (slot, tag) = place(spread(key));
        let word = self.slots[slot].load(Ordering::Relaxed);
        (word >> 36 == tag).then_some(Estimate { nanos: word & 0xffff_ffff, fresh: (word >> 32) & 1 != 0 })
    }

    /// One more upper bound.
    pub(crate) fn learn(&self, key: CostKey, upper: Duration, close: bool) {
        if key == CostKey::UNKNOWN {
            return;
        }
        let nanos = u32::try_from(upper.as_nanos()).unwrap_or(u32::MAX).max(FLOOR);
        let mut recent = self.recent.lock();
        if recent.len() >= MOST_KEYS {
            recent.clear();
        }
        let entry = recent.entry(key.0).or_default();
        entry.add(nanos, close);
        let least = u64::from(entry.least());
        let fresh = u64::from(entry.is_fresh());
        let (slot, tag) = place(spread(key));
        self.slots[slot].store(tag << 36 | fresh << 32 | least, Ordering::Relaxed);
    }

    /// What was known has proved too small.
    pub(crate) fn forget(&self, key: CostKey) {
        self.recent.lock().remove(&key.0);
        let (slot, tag) = place(spread(key));
        let word = self.slots[slot].load(Ordering::Relaxed);
        if word >> 36 == tag {
            self.slots[slot].store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_sample_counts_and_old_ones_leave() {
        let estimates = Estimates::new();
        let key = CostKey(7);
        assert_eq!(estimates.get(key), None);
        estimates.learn(key, Duration::from_micros(50), true);
        estimates.learn(key, Duration::from_micros(20), true);
        estimates.learn(key, Duration::from_micros(80), true);
        assert_eq!(estimates.get(key), Some(Estimate { nanos: 20_000, fresh: true }));
        estimates.learn(key, Duration::from_micros(70), false);
        for _ in 0..RECENT {
            estimates.learn(key, Duration::from_micros(90), true);
        }
        assert_eq!(estimates.get(key), Some(Estimate { nanos: 90_000, fresh: false }));
        estimates.forget(key);
        assert_eq!(estimates.get(key), None);
    }

    #[test]
    fn the_unknown_key_stays_unknown_and_short_times_have_a_floor() {
        let estimates = Estimates::new();
        estimates.learn(CostKey::UNKNOWN, Duration::from_micros(5), true);
        assert_eq!(estimates.get(CostKey::UNKNOWN), None);
        estimates.learn(CostKey(1), Duration::from_nanos(3), true);
        assert_eq!(estimates.get(CostKey(1)).map(|known| known.nanos), Some(u64::from(FLOOR)));
    }
}
