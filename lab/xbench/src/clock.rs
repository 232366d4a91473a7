//! The host's monotonic clock, which all processes share.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The last stretch before a moment, which is spent spinning: a sleeping thread may wake this much late.
const SPIN_NS: u64 = 150_000;

/// Returns the nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned()
}

pub(crate) fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Returns at `moment` or, if that has passed, at once.
pub(crate) fn wait_until(moment: u64) {
    loop {
        let left = moment.saturating_sub(now_ns());
        if left == 0 {
            return;
        }
        if left > SPIN_NS {
            std::thread::sleep(Duration::from_nanos(left - SPIN_NS));
        } else {
            std::hint::spin_loop();
        }
    }
}
