//! Numbers with a range. Only these types define the ranges and defaults: the environment, the hints and the
//! constants of the C interface use them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;

/// A number outside the range of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfRange {
    /// The quantity.
    pub what: &'static str,
    /// The number.
    pub value: i64,
    /// The accepted range.
    pub range: RangeInclusive<i64>,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} is not in {}..{}", self.what, self.value, self.range.start(), self.range.end())
    }
}

impl std::error::Error for OutOfRange {}

macro_rules! bounded {
    ($($(#[$doc:meta])* $name:ident($int:ty) $what:literal = $low:literal ..= $high:literal, $default:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "i64", into = "i64")]
        pub struct $name($int);

        impl $name {
            /// Every value of the type.
            pub const RANGE: RangeInclusive<i64> = $low..=$high;
            /// The value if nothing is set.
            pub const DEFAULT: Self = Self($default);
            /// The largest value.
            pub const MAX: Self = Self($high);

            /// The number.
            pub const fn get(self) -> $int {
                self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::DEFAULT
            }
        }

        impl TryFrom<i64> for $name {
            type Error = OutOfRange;

            fn try_from(value: i64) -> Result<Self, OutOfRange> {
                match <$int>::try_from(value) {
                    Ok(number) if Self::RANGE.contains(&value) => Ok(Self(number)),
                    _ => Err(OutOfRange { what: $what, value, range: Self::RANGE }),
                }
            }
        }

        impl From<$name> for i64 {
            fn from(value: $name) -> i64 {
                // Every range above lies within the 64 bits.
                value.0 as i64
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

bounded! {
    /// The priority of a queue: a bigger number is more urgent. A queue of [`Priority::NO_EXECUTE`] never
    /// runs.
    Priority(i32) "priority" = -256..=255, 0;
    /// The priority that HIP has for a stream (`hipStreamCreateWithPriority`), as a bigger number for a more urgent stream:
    /// HIP's -1 is 1 here. It decides between equal [priorities](Priority) only.
    StreamPriority(i8) "stream priority" = -1..=1, 0;
    /// A share of the device in percent, for the policies that partition it.
    Utilization(u8) "utilization" = 0..=100, 100;
    /// The most of a device in percent, for the policies that support it.
    Cap(u8) "cap" = 1..=100, 100;
    /// A slice in microseconds, for the policies that take turns.
    Timeslice(u64) "timeslice" = 100..=10_000_000, 5000;
}

impl Priority {
    /// The priority of a queue that never runs.
    pub const NO_EXECUTE: Self = Self(-256);
    /// The lowest priority of a queue that runs.
    pub const MIN: Self = Self(-255);
}

impl Utilization {
    /// The lowest share.
    pub const MIN: Self = Self(0);
}

impl Timeslice {
    /// The shortest slice.
    pub const MIN: Self = Self(100);
    /// The range that the environment accepts, in microseconds. Hints accept all of [`Timeslice::RANGE`].
    pub const ENVIRONMENT: RangeInclusive<i64> = 100..=100_000;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn named_values_are_the_ends_of_the_ranges() {
        assert_eq!(i64::from(Priority::NO_EXECUTE), *Priority::RANGE.start());
        assert_eq!(i64::from(Priority::MIN), Priority::RANGE.start() + 1);
        assert_eq!(i64::from(Priority::MAX), *Priority::RANGE.end());
        assert_eq!(i64::from(Utilization::MIN), *Utilization::RANGE.start());
        assert_eq!(i64::from(Timeslice::MIN), *Timeslice::RANGE.start());
        assert!(Timeslice::RANGE.contains(Timeslice::ENVIRONMENT.start()));
        assert!(Timeslice::RANGE.contains(Timeslice::ENVIRONMENT.end()));
    }

    #[test]
    fn out_of_range_names_value_and_range() {
        let error = Priority::try_from(300).unwrap_err();
        assert_eq!(error.to_string(), "priority 300 is not in -256..255");
    }

    proptest! {
        #[test]
        fn number_outside_the_range_is_refused_and_inside_accepted(near in -300i64..400, far in any::<i64>()) {
            for value in [near, far, far / 1_000_000_000_000] {
                prop_assert_eq!(Priority::try_from(value).ok().map(i64::from), Priority::RANGE.contains(&value).then_some(value));
                prop_assert_eq!(StreamPriority::try_from(value).ok().map(i64::from), StreamPriority::RANGE.contains(&value).then_some(value));
                prop_assert_eq!(Utilization::try_from(value).ok().map(i64::from), Utilization::RANGE.contains(&value).then_some(value));
                prop_assert_eq!(Cap::try_from(value).ok().map(i64::from), Cap::RANGE.contains(&value).then_some(value));
                prop_assert_eq!(Timeslice::try_from(value).ok().map(i64::from), Timeslice::RANGE.contains(&value).then_some(value));
                // Values that come over a wire are checked in the same way.
                prop_assert_eq!(serde_json::from_str::<Priority>(&value.to_string()).is_ok(), Priority::RANGE.contains(&value));
            }
        }
    }
}
