//! The launch-ahead time: how long before the end of what is in flight the next command is launched (ADR
//! 0009). It should be long enough that the device does not idle, and no longer. Knows counts of launches and
//! completions, and neither a clock nor markers.
//!
//! Written only under the submit lock, except for the notes of a suspension and of a wait; other threads only read.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// The bounds in nanoseconds. The lower one is a few times as long as it takes to see an end and to bring the next packet to
/// the device. The upper one is the delay that it may cost an urgent command.
const BOUNDS: RangeInclusive<u64> = 40_000..=500_000;
/// A late launch makes the time longer by one part in `GROWTH`; one in time moves it back towards the least
/// by one part in `DECAY`. Where one launch of short commands in 500 is late it stays as it is.
const GROWTH: u64 = 4;
const DECAY: u64 = 2048;
/// With commands longer than `SHORT` nanoseconds it moves back faster in proportion, up to `MOST_FASTER` times, because a late
/// launch then costs a smaller part of the time.
const SHORT: u64 = 64_000;
const MOST_FASTER: u64 = 16;

#[derive(Debug)]
pub(crate) struct LaunchAhead {
    nanos: AtomicU64,
    /// The index of the last launch that has been judged.
    judged: AtomicU64,
    /// True if the queue was suspended after the last launch under a limit.
    suspended: AtomicBool,
    /// True if the next launch had to wait for those of other queues.
    waited: AtomicBool,
}

impl LaunchAhead {
    pub(crate) fn new() -> Self {
        Self {
            nanos: AtomicU64::new(*BOUNDS.start()),
            judged: AtomicU64::new(0),
            suspended: AtomicBool::new(false),
            waited: AtomicBool::new(false),
        }
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// Notes that the queue is suspended, or was until now. Any thread may call it.
    pub(crate) fn note_suspension(&self) {
        self.suspended.store(true, Ordering::Relaxed);
    }

    /// Notes that the next launch waits for those of other queues.
    pub(crate) fn note_wait(&self) {
        self.waited.store(true, Ordering::Relaxed);
    }

    /// Returns true if a launch could not come earlier. Completions until then do not show that it was late.
    fn was_held(&self) -> bool {
        self.was_suspended() || self.waited.load(Ordering::Relaxed)
    }

    /// Returns true if the queue was suspended after the last launch under a limit.
    pub(crate) fn was_suspended(&self) -> bool {
        self.suspended.load(Ordering::Relaxed)
    }

    /// Notes a launch after `before` others, of which `completed` were known to have completed.
    pub(crate) fn note_launch(&self, before: u64, completed: u64) {
        let held = self.was_held();
        if held {
            self.suspended.store(false, Ordering::Relaxed);
            self.waited.store(false, Ordering::Relaxed);
        }
        if before <= completed || held {
            // Nothing was in flight, or the launch had to wait: it was not late.
            self.judged.store(before + 1, Ordering::Relaxed);
        }
    }

    /// Judges the last launch after a poll, for a command that takes so many nanoseconds and waits for room.
    pub(crate) fn judge(&self, launched: u64, completed: u64, takes: u64) {
        if self.was_held() {
            return;
        }
        let in_time = if completed == launched {
            // Nothing was launched ahead at all.
            false
        } else if self.judged.load(Ordering::Relaxed) != launched {
            // The first poll after a launch: the commands in front of it should still run.
            completed + 1 < launched
        } else {
            return;
        };
        self.judged.store(launched, Ordering::Relaxed);
        let launch_ahead = self.nanos.load(Ordering::Relaxed);
        let (least, most) = (*BOUNDS.start(), *BOUNDS.end());
        let next = if in_time {
            launch_ahead - (launch_ahead - least) * (takes / SHORT).clamp(1, MOST_FASTER) / DECAY
        } else {
            most.min(launch_ahead + launch_ahead / GROWTH)
        };
        self.nanos.store(next, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn launch_ahead_grows_after_idle_polls_and_shrinks_otherwise() {
        let launch_ahead = LaunchAhead::new();
        let least = launch_ahead.time();
        let mut launched = 10;
        launch_ahead.judge(launched, launched, SHORT);
        assert_eq!(launch_ahead.time(), least * 5 / 4, "nothing was launched ahead");
        launch_ahead.judge(launched, launched - 1, SHORT);
        assert_eq!(launch_ahead.time(), least * 5 / 4, "once for a launch");
        for _ in 0..100 {
            launch_ahead.note_launch(launched, launched - 1);
            launched += 1;
            launch_ahead.judge(launched, launched - 1, SHORT);
        }
        assert_eq!(
            launch_ahead.time(),
            Duration::from_nanos(*BOUNDS.end()),
            "launched ahead, and all in front has ended"
        );
        for _ in 0..100 * DECAY {
            launch_ahead.note_launch(launched, launched - 1);
            launched += 1;
            launch_ahead.judge(launched, launched - 2, SHORT);
        }
        assert!(launch_ahead.time() < least * 11 / 10, "{:?}", launch_ahead.time());
    }

    #[test]
    fn late_launches_count_less_where_commands_take_long() {
        // One launch in 100 is late.
        let settled = |takes: u64| {
            let launch_ahead = LaunchAhead::new();
            for launched in 10..20_010 {
                launch_ahead.note_launch(launched - 1, launched - 2);
                let is_late = launched % 100 == 0;
                launch_ahead.judge(launched, if is_late { launched - 1 } else { launched - 2 }, takes);
            }
            launch_ahead.time()
        };
        assert!(settled(SHORT) > Duration::from_nanos(*BOUNDS.end()) * 9 / 10);
        assert!(settled(MOST_FASTER * SHORT) < 2 * Duration::from_nanos(*BOUNDS.start()));
        assert!(settled(100 * MOST_FASTER * SHORT) >= Duration::from_nanos(*BOUNDS.start()));
    }

    #[test]
    fn completions_during_a_suspension_or_a_wait_are_not_judged() {
        for note in [LaunchAhead::note_suspension, LaunchAhead::note_wait] {
            let launch_ahead = LaunchAhead::new();
            let least = launch_ahead.time();
            launch_ahead.note_launch(10, 8);
            note(&launch_ahead);
            launch_ahead.judge(11, 11, SHORT);
            assert_eq!(launch_ahead.time(), least);
            // The first launch afterwards had to wait.
            launch_ahead.note_launch(11, 10);
            launch_ahead.judge(12, 11, SHORT);
            assert_eq!(launch_ahead.time(), least);
            launch_ahead.note_launch(12, 11);
            launch_ahead.judge(13, 12, SHORT);
            assert!(launch_ahead.time() > least, "that is over");
        }
    }

    #[test]
    fn launch_into_an_idle_device_is_not_late() {
        let launch_ahead = LaunchAhead::new();
        let least = launch_ahead.time();
        launch_ahead.note_launch(10, 10);
        launch_ahead.judge(11, 10, SHORT);
        assert_eq!(launch_ahead.time(), least);
        launch_ahead.note_launch(11, 10);
        launch_ahead.judge(12, 11, SHORT);
        assert!(launch_ahead.time() > least);
    }
}
