//! The clock of the server.

use protocol::time::Time;
use rustix::time::{ClockId, clock_gettime};

/// Returns the time of `CLOCK_MONOTONIC`, which the clients read as well.
pub fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    // The clock is never negative.
    let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    Time(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}
