//! Hints: attributes of a queue or of a process by which users guide the policies.
//!
//! [`table`] lists every hint, one row each. This file holds the state that hints set. A client always sends
//! its complete state: the new one replaces the old one, so that sending it twice changes nothing and the
//! order of single hints does not matter.

mod spec;
pub mod table;

use crate::bounds::{Cap, Priority, Timeslice, Utilization};
use crate::codes::QueueClass;
use crate::ids::QueueId;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

/// A change of a queue's attributes, as an event of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hint {
    /// The queue gets another priority.
    Priority {
        /// The queue.
        queue: QueueId,
        /// Its new priority.
        priority: Priority,
    },
    /// The queue gets other hints.
    Queue {
        /// The queue.
        queue: QueueId,
        /// Its hints from now on.
        hints: QueueHints,
    },
}

/// Defines a structure of hints, its default and its `follow`.
macro_rules! hint_state {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $name {
            /// Takes over the fields in which `after` differs from `before`, the program's own hints, and
            /// keeps the others, which another program or user may have hinted.
            pub fn follow(&mut self, before: &Self, after: &Self) {
                $(if before.$field != after.$field {
                    self.$field = after.$field;
                })*
            }
        }
    )*};
}

hint_state! {
    /// The hints of a queue, except its priority. By default nothing is hinted.
    QueueHints {
        /// Share of the device, relative to the shares of other queues.
        utilization: Utilization = Utilization::DEFAULT,
        /// Microseconds from the moment when the queue becomes ready to the deadline of its work.
        deadline_us: Option<NonZeroU64> = None,
        /// The time at which the queue becomes critical, and its priorities before and after.
        laxity: Option<Laxity> = None,
        /// The expected arrival of the next work. A time in the past has no effect.
        arrival: Option<Time> = None,
        /// True if the scheduler may suspend the queue while it has work. If false, the queue stops only
        /// before it starts to work, or when a guard against starvation or standstill suspends it.
        preemptible: bool = true,
        /// The class, for policies that tell latency-critical work from best effort.
        #[serde(skip_serializing_if = "Option::is_none")]
        class: Option<QueueClass> = None,
    }

    /// The hints of a process. By default nothing is hinted.
    ProcessHints {
        /// Share of the devices, relative to the shares of other processes.
        utilization: Utilization = Utilization::DEFAULT,
        /// Requested slice, for the policies that take turns. The shortest request counts.
        timeslice: Option<Timeslice> = None,
        /// Requested number of earliest deadlines that may run at once. The highest request counts.
        k_deadline: Option<NonZeroU32> = None,
        /// True if the process owns the window that the user works in.
        window: bool = false,
        /// Number of the job, which the processes of a job share.
        job: Option<NonZeroU64> = None,
        /// Most of a device that the process gets, also while no other process wants it.
        cap: Option<Cap> = None,
        /// Nice value on the processor, -20 (most urgent) to 19. The server reads it from the kernel; no hint
        /// sets it.
        nice: i8 = 0,
    }
}

/// The hints that concern one queue: its own and those of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hints {
    /// Priority of the queue.
    pub priority: Priority,
    /// Hints of the queue.
    pub queue: QueueHints,
    /// Hints of its process.
    pub process: ProcessHints,
}

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

    #[test]
    fn follow_takes_what_the_program_changed_and_keeps_what_others_hinted() {
        let share = |percent| Utilization::try_from(percent).unwrap();
        let before = QueueHints { utilization: share(30), ..QueueHints::default() };
        let after = QueueHints { deadline_us: NonZeroU64::new(500), ..before };
        // A user has changed the share and the deadline meanwhile.
        let mut hints = QueueHints { utilization: share(70), deadline_us: NonZeroU64::new(9), ..before };
        hints.follow(&before, &after);
        assert_eq!(hints, QueueHints { utilization: share(70), ..after });

        let before = ProcessHints::default();
        let after = ProcessHints { job: NonZeroU64::new(4), ..before };
        let mut hints = ProcessHints { window: true, nice: 5, ..before };
        hints.follow(&before, &after);
        assert_eq!(hints, ProcessHints { window: true, nice: 5, ..after });

        let cap = Cap::try_from(30).ok();
        let mut hints = after;
        hints.follow(&after, &ProcessHints { cap, ..after });
        assert_eq!(hints, ProcessHints { cap, ..after });
        // The program takes its job back; the cap that a user hinted stays.
        hints.follow(&after, &before);
        assert_eq!(hints, ProcessHints { cap, ..before });
    }
}
