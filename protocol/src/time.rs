//! Points in time. This crate reads no clock: callers pass times in.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Nanoseconds of `CLOCK_MONOTONIC`; with a server, in the server's time namespace.
///
/// Sums and differences saturate, because a time that another process wrote is untrusted and must not cause
/// an overflow.
///
/// ```
/// use protocol::time::Time;
/// use std::time::Duration;
///
/// let start = Time(1_000);
/// let end = start.after(Duration::from_nanos(500));
/// assert_eq!(end.since(start), Duration::from_nanos(500));
/// assert_eq!(start.since(end), Duration::ZERO);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// Returns the time `span` later, or the last possible time if that lies beyond it.
    pub const fn after(self, span: Duration) -> Self {
        // A span of more nanoseconds than fit 64 bits is truncated.
        let nanos = span.as_nanos();
        let nanos = if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 };
        Self(self.0.saturating_add(nanos))
    }

    /// Returns the duration since `earlier`, or zero if `earlier` lies in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_out_of_range_saturates() {
        let now = Time(1_000);
        assert_eq!(now.after(Duration::from_nanos(5)), Time(1_005));
        assert_eq!(now.after(Duration::MAX), Time(u64::MAX));
        assert_eq!(now.since(Time(400)), Duration::from_nanos(600));
        assert_eq!(now.since(Time(u64::MAX)), Duration::ZERO);
    }
}
