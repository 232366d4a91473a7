//! What a user tells a policy.
//!
//! A hint is an attribute of a queue or of a process, and goes with it. It is told whole: what stands in
//! [`QueueHints`] replaces what stood there, so that telling it twice is telling it once, and no order of single hints
//! matters.

use crate::bounds::{Cap, Priority, Timeslice, Utilization};
use crate::ids::QueueId;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

/// Something that is said of a queue from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hint {
    /// How urgent the queue is.
    Priority {
        /// The queue.
        queue: QueueId,
        /// Its new priority.
        priority: Priority,
    },
    /// Everything else of the queue.
    Queue {
        /// The queue.
        queue: QueueId,
        /// What holds from now on.
        hints: QueueHints,
    },
}

/// What is said of a queue, besides its priority. The default is that nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueHints {
    /// Its share of the device, relative to those of the others.
    pub utilization: Utilization,
    /// Microseconds from the moment it turns ready to the time by which its work should be done.
    pub deadline_us: Option<NonZeroU64>,
    /// When it turns critical.
    pub laxity: Option<Laxity>,
    /// When work arrives that has not arrived yet; a time that has passed says nothing.
    pub arrival: Option<Time>,
    /// Whether it may be suspended while it has work; if not, it is once it has begun only by what guards all.
    pub preemptible: bool,
}

/// Which priority a queue has before and after it turns critical.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Laxity {
    /// Microseconds from the moment it turns ready until it is critical.
    pub us: u64,
    /// Until then.
    pub lax: Priority,
    /// From then on, until it is idle.
    pub critical: Priority,
}

/// What is said of a process. The default is that nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessHints {
    /// Its share of the devices, relative to those of other processes.
    pub utilization: Utilization,
    /// The slice that it asks a policy for that takes turns; the shortest that anybody asks for counts.
    pub timeslice: Option<Timeslice>,
    /// How many of the earliest deadlines may run at once; the highest that anybody asks for counts.
    pub k_deadline: Option<NonZeroU32>,
    /// Whether it owns the window that the user works in.
    pub window: bool,
    /// Which job it belongs to; processes of one job have one number.
    pub job: Option<NonZeroU64>,
    /// The most that it gets of its devices, whether others want them or not.
    pub cap: Option<Cap>,
    /// Its nice value on the processor, -20 (most urgent) to 19. Found out, not hinted.
    pub nice: i8,
}

impl fmt::Display for Laxity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.us, self.lax, self.critical)
    }
}

/// As it is written on a command line and in the environment: microseconds and both priorities.
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

impl QueueHints {
    /// Takes over what has changed in what a program says, and leaves alone what others have said of the rest.
    pub fn follow(&mut self, before: &Self, after: &Self) {
        follow(&mut self.utilization, &before.utilization, &after.utilization);
        follow(&mut self.deadline_us, &before.deadline_us, &after.deadline_us);
        follow(&mut self.laxity, &before.laxity, &after.laxity);
        follow(&mut self.arrival, &before.arrival, &after.arrival);
        follow(&mut self.preemptible, &before.preemptible, &after.preemptible);
    }
}

impl ProcessHints {
    /// As [`QueueHints::follow`]; the nice value is nobody's to say.
    pub fn follow(&mut self, before: &Self, after: &Self) {
        follow(&mut self.utilization, &before.utilization, &after.utilization);
        follow(&mut self.timeslice, &before.timeslice, &after.timeslice);
        follow(&mut self.k_deadline, &before.k_deadline, &after.k_deadline);
        follow(&mut self.window, &before.window, &after.window);
        follow(&mut self.job, &before.job, &after.job);
        follow(&mut self.cap, &before.cap, &after.cap);
    }
}

fn follow<T: Copy + PartialEq>(value: &mut T, before: &T, after: &T) {
    if before != after {
        *value = *after;
    }
}

impl Default for QueueHints {
    fn default() -> Self {
        Self {
            utilization: Utilization::DEFAULT,
            deadline_us: None,
            laxity: None,
            arrival: None,
            preemptible: true,
        }
    }
}

impl Default for ProcessHints {
    fn default() -> Self {
        Self {
            utilization: Utilization::DEFAULT,
            timeslice: None,
            k_deadline: None,
            window: false,
            job: None,
            cap: None,
            nice: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laxities_are_written_and_read() {
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
    fn what_a_program_says_anew_counts_and_what_others_said_of_the_rest_stays() {
        let share = |percent| Utilization::try_from(percent).unwrap();
        let before = QueueHints { utilization: share(30), ..QueueHints::default() };
        let after = QueueHints { deadline_us: NonZeroU64::new(500), ..before };
        // Somebody else has changed the share and the deadline meanwhile.
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
        // The program takes something else back; the cap that somebody told stays.
        hints.follow(&after, &before);
        assert_eq!(hints, ProcessHints { cap, ..before });
    }
}
