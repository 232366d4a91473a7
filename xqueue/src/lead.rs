//! How long before the end of what is in flight the next command is launched (ADR 0009): long enough that the device does not
//! stand idle, and no longer. Knows counts of launches and completions, and neither time nor marks.
//!
//! Written only by who has submit; others only read.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// Nanoseconds. At least about what it takes to see an end and to bring the next packet to the device, at most what an urgent
/// command may find the longer for it.
const BOUNDS: RangeInclusive<u64> = 50_000..=500_000;
/// Too late: longer by one part of so many. In time: back towards the least by one of so many. Where one launch in 500 is
/// late it stays as it is.
const GROWTH: u64 = 4;
const DECAY: u64 = 2048;

/// The lead of one queue.
#[derive(Debug)]
pub(crate) struct Lead {
    nanos: AtomicU64,
    /// Index of the last launch of which is known whether it was in time.
    judged: AtomicU64,
}

impl Lead {
    pub(crate) fn new() -> Self {
        Self { nanos: AtomicU64::new(*BOUNDS.start()), judged: AtomicU64::new(0) }
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// A launch comes after so many others, of which so many were known to have completed.
    pub(crate) fn note_launch(&self, before: u64, completed: u64) {
        if before <= completed {
            // Nothing was in flight: there was nothing to be in time for.
            self.judged.store(before + 1, Ordering::Relaxed);
        }
    }

    /// After a look at what has completed, for a command of known length that waits for room.
    pub(crate) fn judge(&self, launched: u64, completed: u64) {
        let in_time = if completed == launched {
            // Nothing was launched ahead at all.
            false
        } else if self.judged.load(Ordering::Relaxed) != launched {
            // The first look after a launch: what was in front of it should still run.
            completed + 1 < launched
        } else {
            return;
        };
        self.judged.store(launched, Ordering::Relaxed);
        let lead = self.nanos.load(Ordering::Relaxed);
        let (least, most) = (*BOUNDS.start(), *BOUNDS.end());
        let next = if in_time { lead - (lead - least) / DECAY } else { most.min(lead + lead / GROWTH) };
        self.nanos.store(next, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_grows_where_the_device_is_seen_idle_and_shrinks_where_it_is_not() {
        let lead = Lead::new();
        let least = lead.time();
        let mut launched = 10;
        lead.judge(launched, launched);
        assert_eq!(lead.time(), least * 5 / 4, "nothing was launched ahead");
        lead.judge(launched, launched - 1);
        assert_eq!(lead.time(), least * 5 / 4, "once for a launch");
        for _ in 0..100 {
            lead.note_launch(launched, launched - 1);
            launched += 1;
            lead.judge(launched, launched - 1);
        }
        assert_eq!(
            lead.time(),
            Duration::from_nanos(*BOUNDS.end()),
            "launched ahead, and all in front has ended"
        );
        for _ in 0..100 * DECAY {
            lead.note_launch(launched, launched - 1);
            launched += 1;
            lead.judge(launched, launched - 2);
        }
        assert!(lead.time() < least * 21 / 20, "{:?}", lead.time());
    }

    #[test]
    fn what_is_launched_into_an_idle_device_was_not_late() {
        let lead = Lead::new();
        let least = lead.time();
        lead.note_launch(10, 10);
        lead.judge(11, 10);
        assert_eq!(lead.time(), least);
        lead.note_launch(11, 10);
        lead.judge(12, 11);
        assert!(lead.time() > least);
    }
}
