//! The clock behind virtual time.

use crate::device::Time;

/// Returns the host's monotonic time: the source of virtual time, and what GET_CLOCK_COUNTERS reports.
pub fn now() -> Time {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned()
}
