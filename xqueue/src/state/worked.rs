//! The device time that the commands of one queue took, as far as it is known: commands that no limit holds back,
//! and those of unknown time, count nothing.

use std::time::Duration;

use crate::estimate::Estimate;
use crate::sync::{AtomicU64, Ordering};

/// Nanoseconds of the launched commands whose times were known, and of the completed ones among them.
#[derive(Debug)]
pub(crate) struct Worked {
    launched: AtomicU64,
    completed: AtomicU64,
}

impl Worked {
    pub(crate) fn new() -> Self {
        Self { launched: AtomicU64::new(0), completed: AtomicU64::new(0) }
    }

    /// Counts a launch. Called under the submit lock.
    #[inline]
    pub(crate) fn note_launch(&self, known: Option<Estimate>) {
        if let Some(known) = known {
            self.launched.store(self.launched.load(Ordering::Relaxed) + known.nanos, Ordering::Relaxed);
        }
    }

    /// Returns the time of everything launched.
    #[inline]
    pub(crate) fn launched(&self) -> u64 {
        self.launched.load(Ordering::Relaxed)
    }

    /// Notes that everything up to this sum has completed.
    #[inline]
    pub(crate) fn complete(&self, upto: u64) {
        // Without a limit no time is ever known.
        if upto > self.completed.load(Ordering::Acquire) {
            self.completed.fetch_max(upto, Ordering::AcqRel);
        }
    }

    /// Returns the time of the completed commands.
    pub(crate) fn completed(&self) -> Duration {
        Duration::from_nanos(self.completed.load(Ordering::Acquire))
    }
}
