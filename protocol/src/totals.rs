//! What a server has counted since its start, for metrics.

use crate::ids::DeviceId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The upper bounds of the ranges of [`Durations`], in nanoseconds: 1, 2 and 5 times each power of ten from 1 µs to 10 s.
pub const BOUNDS: [u64; 22] = {
    let mut bounds = [0; 22];
    let (mut index, mut power) = (0, 1_000);
    while index < bounds.len() {
        bounds[index] = power * [1, 2, 5][index % 3];
        if index % 3 == 2 {
            power *= 10;
        }
        index += 1;
    }
    bounds
};

/// Durations, counted by range.
///
/// ```
/// use protocol::totals::Durations;
/// use std::time::Duration;
///
/// let mut durations = Durations::default();
/// durations.add(Duration::from_micros(1));
/// durations.add(Duration::from_secs(60));
/// assert_eq!((durations.count(), durations.counts[0], *durations.counts.last().unwrap()), (2, 1, 1));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Durations {
    /// The number of durations in each range: those up to the bound of [`BOUNDS`] and above the one before. The last number
    /// is that of longer ones. Empty if there was none.
    pub counts: Vec<u64>,
    /// The sum of all, in nanoseconds.
    pub sum_ns: u64,
}

impl Durations {
    /// Counts a duration.
    pub fn add(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts.resize(BOUNDS.len() + 1, 0);
        self.counts[BOUNDS.partition_point(|bound| *bound < nanos)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(nanos);
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The class of a program, by the highest priority of its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Above 0.
    Urgent,
    /// 0.
    Normal,
    /// Below 0.
    Batch,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Urgent => "urgent",
            Self::Normal => "normal",
            Self::Batch => "batch",
        })
    }
}

/// What a server has counted since its start. All numbers only grow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// The times from a client's report that a queue has work until all permissions that follow from it were stored.
    pub decisions: Durations,
    /// The times of the decisions alone.
    pub steps: Durations,
    /// The times from a suspension until all queues of the client were evicted, at levels 2 and 3.
    pub evictions: Durations,
    /// The times for which clients with work were suspended.
    pub suspensions: Durations,
    /// The suspensions of clients with work at levels 1, 2 and 3.
    pub preemptions: [u64; 3],
    /// The renewals of leases that came so late that the clients ran unscheduled.
    pub lapsed_leases: u64,
    /// The refused connections.
    pub refused_connections: u64,
    /// The connections that ended because the other side broke the protocol or was silent.
    pub protocol_errors: u64,
    /// The queues for which there was no room.
    pub refused_queues: u64,
    /// The work of each class on each device.
    pub work: Vec<Work>,
    /// The completed commands of each class, as the clients say.
    pub completed: Vec<(Class, u64)>,
}

/// The work of a class on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The device.
    pub device: DeviceId,
    /// The class.
    pub class: Class,
    /// The time for which the device worked, as far as the clients know it, in nanoseconds.
    pub worked_ns: u64,
}

/// The times of a queue since the server knows it, in nanoseconds.
///
/// While no other program waits, a client need not report each change, and the server sees a part of them only: then the
/// times are estimates from what it sees ten times a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueTimes {
    /// The time for which it had work.
    pub ready_ns: u64,
    /// The part of that in which its process was permitted to launch.
    pub running_ns: u64,
    /// The time for which the device worked for it, as far as the client knows it.
    pub worked_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_1_2_5_from_a_microsecond_to_ten_seconds() {
        assert_eq!(BOUNDS[..4], [1_000, 2_000, 5_000, 10_000]);
        assert_eq!(BOUNDS.last(), Some(&10_000_000_000));
    }

    #[test]
    fn duration_counts_in_the_range_whose_bound_it_does_not_exceed() {
        let mut durations = Durations::default();
        for nanos in [0, 1_000, 1_001, 10_000_000_000, 10_000_000_001] {
            durations.add(Duration::from_nanos(nanos));
        }
        let set: Vec<_> = durations.counts.iter().enumerate().filter(|(_, count)| **count > 0).collect();
        assert_eq!(set, [(0, &2), (1, &1), (21, &1), (22, &1)]);
        assert_eq!(durations.sum_ns, 20_000_002_002);
        durations.add(Duration::MAX);
        assert_eq!((durations.sum_ns, durations.count()), (u64::MAX, 6));
    }
}
