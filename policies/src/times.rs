//! Arithmetic with times.

use protocol::time::Time;
use std::time::Duration;

/// Returns the earlier of two times, either of which may be missing.
pub(crate) fn earlier<T: Ord>(one: Option<T>, other: impl Into<Option<T>>) -> Option<T> {
    [one, other.into()].into_iter().flatten().min()
}

/// Returns the nanoseconds of a span, limited to 64 bits.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the microseconds of a span, limited to what fits.
pub(crate) fn micros(span: Duration) -> i64 {
    span.as_micros().try_into().unwrap_or(i64::MAX)
}

/// Returns the nanoseconds from `earlier` to `later`; negative if `later` is the earlier one.
pub(crate) fn span(earlier: Time, later: Time) -> f64 {
    if later >= earlier { (later.0 - earlier.0) as f64 } else { -((earlier.0 - later.0) as f64) }
}

/// Returns the time that is so many nanoseconds after another one, or before it; limited to the range of
/// `Time`.
pub(crate) fn shifted(time: Time, nanos: f64) -> Time {
    // The casts saturate, and turn NaN into 0.
    if nanos < 0.0 {
        Time(time.0.saturating_sub((-nanos) as u64))
    } else {
        Time(time.0.saturating_add(nanos as u64))
    }
}
