//! The clock that this process and the server share: `CLOCK_MONOTONIC`.

use protocol::status::Activity;
use protocol::time::Time;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use xqueue::XQueue;

/// Returns the present time of `CLOCK_MONOTONIC`.
pub fn now() -> Time {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Time(seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0)))
}

/// Converts a duration to nanoseconds; the largest number stands for longer ones.
pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos().into())
}

/// Converts a past moment to the clock of [`now`]. The same moment always gives the same time.
pub(crate) fn time_of(moment: Instant) -> Time {
    /// One moment on both clocks: of several attempts, the one that read both the fastest.
    static BOTH: LazyLock<(Duration, Instant, Time)> = LazyLock::new(|| {
        let read = || {
            let (instant, time) = (Instant::now(), now());
            (instant.elapsed(), instant, time)
        };
        (0..8).map(|_| read()).min().unwrap_or_else(read)
    });
    let (_, instant, time) = *BOTH;
    match moment.checked_duration_since(instant) {
        Some(after) => Time(time.0.saturating_add(nanos(after))),
        None => Time(time.0.saturating_sub(nanos(instant.saturating_duration_since(moment)))),
    }
}

/// Returns the activity of a queue, and since when. Repeated calls return the same time, so that a policy's
/// order by time is stable.
pub(crate) fn activity(queue: &XQueue) -> Activity {
    match queue.ready_since() {
        Some(since) => Activity::Ready { since: time_of(since) },
        None => Activity::Idle { since: queue.idle_since().map(time_of) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_same_moment_is_stable() {
        let moment = Instant::now();
        let time = time_of(moment);
        let interval = Duration::from_millis(5);
        assert_eq!(time_of(moment), time);
        assert_eq!(time_of(moment + interval), time.after(interval));
        assert_eq!(time_of(moment - interval).after(interval), time);
    }
}
