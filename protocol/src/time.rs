//! Points in time, as numbers that somebody else has read from a clock.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Nanoseconds of `CLOCK_MONOTONIC`, of the server's time namespace where a server takes part.
///
/// Sums and differences saturate: a time that another process wrote is untrusted and must not overflow anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// The point this much later; the last one there is if that lies beyond it.
    pub const fn after(self, span: Duration) -> Self {
        // More nanoseconds than 64 bits hold are cut to what they hold.
        let nanos = span.as_nanos();
        let nanos = if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 };
        Self(self.0.saturating_add(nanos))
    }

    /// How long ago `earlier` was; nothing if it lies in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_saturate() {
        let now = Time(1_000);
        assert_eq!(now.after(Duration::from_nanos(5)), Time(1_005));
        assert_eq!(now.after(Duration::MAX), Time(u64::MAX));
        assert_eq!(now.since(Time(400)), Duration::from_nanos(600));
        assert_eq!(now.since(Time(u64::MAX)), Duration::ZERO);
    }
}
