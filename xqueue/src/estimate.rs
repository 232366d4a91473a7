//! The estimated times of commands, learnt from the times at which markers were seen. One table for each
//! device. Reading is one atomic load; learning happens off the launch path, in the polling thread.
//!
//! A sample is an *upper bound* of the true time: from a moment at which the command had certainly not
//! started to the moment at which it was seen complete. The minimum of recent upper bounds comes close to the
//! truth and is never below it. A sample is *close* if the command was seen running shortly before its end. It
//! replaces an older one only if its begin was watched as closely, because otherwise its length is that of the
//! polling thread's sleep. Other samples count only where they are the least. If an interval still runs after
//! twice its estimate plus the time that other queues may have had the device, its kernels have changed, and their
//! estimates are forgotten.
//!
//! An estimate that close samples have confirmed is studied again more rarely, because each study costs two markers.

use std::collections::HashMap;
use std::time::Duration;

use crate::hw::CostKey;
use crate::sync::{AtomicU64, Mutex, Ordering};

const SLOTS: usize = if cfg!(loom) { 1 } else { 4096 };
/// The number of recent samples.
const RECENT: usize = 8;
/// The number of close samples after which an estimate is no longer fresh.
const ENOUGH: usize = 4;
/// The number of confirming samples in a row after which an estimate counts as settled by one degree more.
const CONFIRMING: usize = 8;
/// The most degrees, which take two bits.
const MOST_SETTLED: u32 = 2;
/// The most keys. Beyond that learning starts anew, so that a program with ever new keys does not grow the
/// table.
const MOST_KEYS: usize = 16 * 1024;
/// The least estimate, in nanoseconds: below it the launch itself takes the time.
const FLOOR: u32 = 1_000;

#[derive(Debug, Default, Clone, Copy)]
struct Recent {
    samples: [u32; RECENT],
    taken: usize,
    close: usize,
    /// The number of samples of any kind.
    samples_seen: usize,
    /// The number of close samples since the estimate last changed.
    confirmed: usize,
    /// The number of much longer samples in a row whose begin nobody watched.
    contradicting: usize,
}

impl Recent {
    fn least(&self) -> u32 {
        self.samples[..self.taken.min(RECENT)].iter().copied().min().unwrap_or(u32::MAX)
    }

    /// Returns true while too few close samples exist; after enough samples of any kind no more are expected.
    fn is_fresh(&self) -> bool {
        self.close < ENOUGH && self.samples_seen < 2 * ENOUGH
    }

    fn add(&mut self, nanos: u32, watched: Watched) {
        self.samples_seen += 1;
        let before = self.least();
        let close = watched != Watched::Nothing;
        if watched == Watched::Both || nanos < before {
            self.samples[self.taken % RECENT] = nanos;
            self.taken += 1;
        }
        if close || nanos < before {
            self.close += usize::from(close);
            // Much longer times whose begin nobody watched show that the command is longer, but not by how much.
            let contradicts = watched == Watched::End && nanos.saturating_sub(before) > before / 2;
            self.contradicting = if contradicts { self.contradicting + 1 } else { 0 };
            if self.least().abs_diff(before) > before / 16 || self.contradicting >= RECENT {
                self.confirmed = 0;
            } else {
                self.confirmed += usize::from(close);
            }
        }
    }

    fn settled(&self) -> u32 {
        u32::try_from(self.confirmed / CONFIRMING).unwrap_or(MOST_SETTLED).min(MOST_SETTLED)
    }
}

/// Which ends of a command's time polls observed closely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watched {
    /// Not its completion, and so not its length.
    Nothing,
    /// Its completion: a poll saw it running shortly before.
    End,
    /// Its start as well: a poll saw the command in front of it running shortly before that one completed, or nothing was in flight.
    Both,
}

/// Estimated times by key.
#[derive(Debug)]
pub(crate) struct Estimates {
    /// Tag (from bit 36), settled (bits 33 and 34), fresh (bit 32), nanoseconds (bits 0 to 31); zero is empty.
    slots: Box<[AtomicU64]>,
    recent: Mutex<HashMap<u64, Recent>>,
}

fn spread(key: CostKey) -> u64 {
    key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn index_and_tag(spread: u64) -> (usize, u64) {
    // Upper bits tell keys apart, middle bits choose the slot: independent enough for a cache.
    ((spread >> 20) as usize % SLOTS, (spread >> 36) | 1)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) nanos: u64,
    /// True if there are few close samples so far: more of them are worth a close watch.
    pub(crate) fresh: bool,
    /// How often samples have confirmed it, as a power of two by which further ones are rarer.
    pub(crate) settled: u32,
}

impl Estimates {
    pub(crate) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), recent: Mutex::new(HashMap::new()) }
    }

    #[inline]
    pub(crate) fn get(&self, key: CostKey) -> Option<Estimate> {
        if key == CostKey::UNKNOWN {
            return None;
        }
        let (slot, tag) = index_and_tag(spread(key));
        let word = self.slots[slot].load(Ordering::Relaxed);
        (word >> 36 == tag).then_some(Estimate {
            nanos: word & 0xffff_ffff,
            fresh: (word >> 32) & 1 != 0,
            settled: (word >> 33) as u32 & 3,
        })
    }

    /// Adds an upper bound.
    pub(crate) fn learn(&self, key: CostKey, upper: Duration, watched: Watched) {
        if key == CostKey::UNKNOWN {
            return;
        }
        let nanos = u32::try_from(upper.as_nanos()).unwrap_or(u32::MAX).max(FLOOR);
        if watched == Watched::Nothing
            && self.get(key).is_some_and(|known| !known.fresh && known.nanos <= u64::from(nanos))
        {
            // It would change nothing.
            return;
        }
        let mut recent = self.recent.lock();
        if recent.len() >= MOST_KEYS {
            recent.clear();
        }
        let entry = recent.entry(key.0).or_default();
        entry.add(nanos, watched);
        let least = u64::from(entry.least());
        let (fresh, settled) = (u64::from(entry.is_fresh()), u64::from(entry.settled()));
        let (slot, tag) = index_and_tag(spread(key));
        self.slots[slot].store(tag << 36 | settled << 33 | fresh << 32 | least, Ordering::Relaxed);
    }

    /// Forgets an estimate that has proved too small.
    pub(crate) fn forget(&self, key: CostKey) {
        self.recent.lock().remove(&key.0);
        let (slot, tag) = index_and_tag(spread(key));
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
    fn estimate_is_the_least_of_the_recent_samples() {
        let estimates = Estimates::new();
        let key = CostKey(7);
        assert_eq!(estimates.get(key), None);
        estimates.learn(key, Duration::from_micros(50), Watched::Both);
        estimates.learn(key, Duration::from_micros(20), Watched::Both);
        estimates.learn(key, Duration::from_micros(80), Watched::Both);
        assert_eq!(estimates.get(key), Some(Estimate { nanos: 20_000, fresh: true, settled: 0 }));
        estimates.learn(key, Duration::from_micros(70), Watched::Nothing);
        for _ in 0..RECENT {
            estimates.learn(key, Duration::from_micros(90), Watched::Both);
        }
        assert_eq!(estimates.get(key), Some(Estimate { nanos: 90_000, fresh: false, settled: 0 }));
        estimates.forget(key);
        assert_eq!(estimates.get(key), None);
    }

    #[test]
    fn sample_of_unwatched_begin_only_confirms() {
        let estimates = Estimates::new();
        let key = CostKey(7);
        estimates.learn(key, Duration::from_micros(50), Watched::Both);
        for _ in 0..2 * RECENT {
            estimates.learn(key, Duration::from_micros(52), Watched::End);
        }
        let settled = MOST_SETTLED;
        assert_eq!(estimates.get(key), Some(Estimate { nanos: 50_000, fresh: false, settled }));
        let other = CostKey(8);
        estimates.learn(other, Duration::from_micros(50), Watched::Both);
        for _ in 0..2 * RECENT {
            estimates.learn(other, Duration::from_micros(90), Watched::End);
        }
        assert_eq!(estimates.get(other), Some(Estimate { nanos: 50_000, fresh: false, settled: 0 }));
    }

    #[test]
    fn confirmed_estimate_settles_until_it_changes() {
        let estimates = Estimates::new();
        let key = CostKey(7);
        let settled = || estimates.get(key).map(|known| known.settled);
        let learn = |micros, watched| estimates.learn(key, Duration::from_micros(micros), watched);
        learn(50, Watched::Both);
        for degree in 1..=MOST_SETTLED + 1 {
            (0..CONFIRMING).for_each(|_| learn(51, Watched::Both));
            assert_eq!(settled(), Some(MOST_SETTLED.min(degree)));
        }
        learn(80, Watched::Nothing);
        assert_eq!(settled(), Some(MOST_SETTLED), "the sleep of a thread shows nothing");
        learn(40, Watched::Nothing);
        assert_eq!(settled(), Some(0), "it was too long");
    }

    #[test]
    fn unknown_key_is_never_learnt_and_short_times_have_a_floor() {
        let estimates = Estimates::new();
        estimates.learn(CostKey::UNKNOWN, Duration::from_micros(5), Watched::Both);
        assert_eq!(estimates.get(CostKey::UNKNOWN), None);
        estimates.learn(CostKey(1), Duration::from_nanos(3), Watched::Both);
        assert_eq!(estimates.get(CostKey(1)).map(|known| known.nanos), Some(u64::from(FLOOR)));
    }
}
