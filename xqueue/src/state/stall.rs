//! The longest wait for a full window while nothing completes. What is in flight may wait for just the thread
//! that waits (a kernel that polls the host's memory), and without the window the call would have returned.
//! So one more command is admitted after a second, the next one after two more, and so on. Long kernels look
//! the same, and the growing times keep their number small.

use std::time::Duration;

use crate::sync::Instant;

/// The time until the first command is admitted.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest time between two checks of one wait; a later check belongs to another wait.
const GAP: Duration = Duration::from_millis(500);

/// The checks of one queue's full window while a thread waits there.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    last: Option<Check>,
}

#[derive(Debug, Clone, Copy)]
struct Check {
    completed: u64,
    since: Instant,
    at: Instant,
    patience: Duration,
}

impl Stall {
    /// Notes a check: the window is full, a thread waits, and `completed` commands have completed. Returns
    /// true if one more command is admitted.
    pub(crate) fn is_over(&mut self, completed: u64, at: Instant) -> bool {
        let known = self
            .last
            .filter(|last| last.completed == completed && at.saturating_duration_since(last.at) <= GAP);
        let mut look = known.unwrap_or(Check { completed, since: at, at, patience: PATIENCE });
        let over = at.saturating_duration_since(look.since) >= look.patience;
        if over {
            look.since = at;
            look.patience *= 2;
        }
        self.last = Some(Check { at, ..look });
        over
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::now;

    /// Returns the milliseconds from the start at which a command is admitted, with a check every 100 ms.
    fn admitted(completed: impl Fn(u64) -> u64, upto: u64) -> Vec<u64> {
        let begun = now();
        let mut stall = Stall::default();
        let checks = (0..=upto).step_by(100);
        checks.filter(|ms| stall.is_over(completed(*ms), begun + Duration::from_millis(*ms))).collect()
    }

    #[test]
    fn stall_without_completion_admits_ever_fewer() {
        assert_eq!(admitted(|_| 7, 16_000), [1_000, 3_000, 7_000, 15_000]);
    }

    #[test]
    fn stall_with_completion_admits_none() {
        assert_eq!(admitted(|ms| ms / 900, 10_000), [] as [u64; 0]);
        assert_eq!(admitted(|ms| ms / 1_500, 4_400), [1_000, 2_500, 4_000], "each time anew");
    }

    #[test]
    fn stall_after_a_gap_begins_anew() {
        let begun = now();
        let mut stall = Stall::default();
        assert!(!stall.is_over(7, begun));
        assert!(!stall.is_over(7, begun + Duration::from_secs(60)), "no thread waited in between");
    }
}
