//! Reckoning with times and spans.

use std::time::Duration;

/// The earlier of two, either of which may be missing.
pub(crate) fn earlier<T: Ord>(one: Option<T>, other: impl Into<Option<T>>) -> Option<T> {
    [one, other.into()].into_iter().flatten().min()
}

/// Nanoseconds, cut to what 64 bits hold.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
