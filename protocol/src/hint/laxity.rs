//! The laxity of a queue: the value of a hint that is no single number.

use crate::bounds::Priority;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The time at which a queue becomes critical, and its priorities before and after.
///
/// ```
/// use protocol::hint::Laxity;
///
/// let laxity: Laxity = "5000,-10,10".parse().unwrap();
/// assert_eq!((laxity.us, laxity.lax.get(), laxity.critical.get()), (5000, -10, 10));
/// assert_eq!(laxity.to_string(), "5000,-10,10");
/// assert!("5000,-10".parse::<Laxity>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Laxity {
    /// Microseconds from the moment when the queue becomes ready until it is critical.
    pub us: u64,
    /// Priority until then.
    pub lax: Priority,
    /// Priority from then on, until the queue is idle.
    pub critical: Priority,
}

impl fmt::Display for Laxity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.us, self.lax, self.critical)
    }
}

/// Parses the form of command lines and of the environment: microseconds and both priorities.
impl FromStr for Laxity {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let parsed = || {
            let mut numbers = word.split(',').map(|number| number.trim().parse::<i64>().ok());
            let mut next = || numbers.next().flatten();
            let us = u64::try_from(next()?).ok()?;
            let (lax, critical) = (Priority::try_from(next()?).ok()?, Priority::try_from(next()?).ok()?);
            numbers.next().is_none().then_some(Self { us, lax, critical })
        };
        parsed().ok_or_else(|| {
            let range = Priority::RANGE;
            format!(
                "microseconds and two priorities in {}..{}, such as 5000,-10,10",
                range.start(),
                range.end()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laxity_with_three_numbers_is_parsed_and_any_other_is_refused() {
        let priority = |number| Priority::try_from(number).unwrap();
        let laxity = Laxity { us: 5000, lax: priority(-10), critical: priority(10) };
        assert_eq!(laxity.to_string(), "5000,-10,10");
        assert_eq!(laxity.to_string().parse(), Ok(laxity));
        assert_eq!(" 5000, -10, 10".parse(), Ok(laxity));
        for wrong in ["", "5000", "5000,1", "-1,1,1", "5000,1,256", "5000,1,2,3", "5000,a,1", "5000,1,2,"] {
            assert!(wrong.parse::<Laxity>().unwrap_err().contains("two priorities in -256..255"), "{wrong}");
        }
    }
}
