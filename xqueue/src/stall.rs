//! For how long a full window keeps somebody waiting while nothing completes. What is in flight may wait for just that thread
//! (a kernel that looks at the host's memory), and without the window the call would have returned: so nobody is kept for
//! ever. One more command is admitted after a second, the next one after two more, and so on, so that a few long kernels in
//! flight, which look the same, stay few.

use std::time::Duration;

use crate::sync::Instant;

/// Until the first one is admitted.
const PATIENCE: Duration = Duration::from_secs(1);
/// A look that comes later than this after the one before belongs to another wait.
const GAP: Duration = Duration::from_millis(500);

/// The looks at one queue's full window, for as long as somebody waits there.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    last: Option<Look>,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    completed: u64,
    since: Instant,
    at: Instant,
    patience: Duration,
}

impl Stall {
    /// The window is full, somebody waits, and so many have completed. True: one more command goes all the same.
    pub(crate) fn is_over(&mut self, completed: u64, at: Instant) -> bool {
        let known = self
            .last
            .filter(|last| last.completed == completed && at.saturating_duration_since(last.at) <= GAP);
        let mut look = known.unwrap_or(Look { completed, since: at, at, patience: PATIENCE });
        let over = at.saturating_duration_since(look.since) >= look.patience;
        if over {
            look.since = at;
            look.patience *= 2;
        }
        self.last = Some(Look { at, ..look });
        over
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::now;

    /// The milliseconds from the beginning at which one more is admitted, with a look every 100 ms.
    fn admitted(completed: impl Fn(u64) -> u64, upto: u64) -> Vec<u64> {
        let begun = now();
        let mut stall = Stall::default();
        let looks = (0..=upto).step_by(100);
        looks.filter(|ms| stall.is_over(completed(*ms), begun + Duration::from_millis(*ms))).collect()
    }

    #[test]
    fn while_nothing_completes_ever_fewer_are_admitted() {
        assert_eq!(admitted(|_| 7, 16_000), [1_000, 3_000, 7_000, 15_000]);
    }

    #[test]
    fn what_gets_on_is_left_to_the_window() {
        assert_eq!(admitted(|ms| ms / 900, 10_000), [] as [u64; 0]);
        assert_eq!(admitted(|ms| ms / 1_500, 4_400), [1_000, 2_500, 4_000], "each time anew");
    }

    #[test]
    fn another_wait_begins_anew() {
        let begun = now();
        let mut stall = Stall::default();
        assert!(!stall.is_over(7, begun));
        assert!(!stall.is_over(7, begun + Duration::from_secs(60)), "nobody waited in between");
    }
}
