//! The cost of an eviction, as measured lately, and whether an eviction pays.

use crate::preemption::HardwareQueues;
use std::time::Duration;

/// The durations of the last requests of a kind. Their median ignores one outlier of a busy machine, and
/// follows two in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Recent([Duration; 3]);

impl Recent {
    const fn new(took: Duration) -> Self {
        Self([took; 3])
    }

    fn median(self) -> Duration {
        let Self([a, b, c]) = self;
        a.min(b).max(a.max(b).min(c))
    }

    fn learn(&mut self, took: Duration) {
        let Self([_, b, c]) = *self;
        *self = Self([b, c, took]);
    }
}

/// The cost of evicting and restoring so many queues at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cost {
    evict: Recent,
    restore: Recent,
    /// The suspensions since the last eviction for which an eviction was too expensive.
    refused: u32,
    /// So many refusals are followed by a trial; 0 stands for [`FIRST_TRIAL`].
    trial_after: u32,
}

/// The refusals before the first trial, and the most before any. A trial that is as expensive as the cost
/// that forbade it doubles the number.
const FIRST_TRIAL: u32 = 4;
const LAST_TRIAL: u32 = 256;

/// The classes of evictions, by the number of queues: one, a few, many. Each queue is a request to the driver,
/// so a process that evicts eight queues while it loads a model learns nothing about its one queue later.
const CLASSES: usize = 3;

const fn class(queues: usize) -> usize {
    match queues {
        0 | 1 => 0,
        2..=4 => 1,
        _ => 2,
    }
}

/// The recent costs of evicting and restoring the process's queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Costs {
    classes: [Cost; CLASSES],
    /// The class of the last suspension.
    class: usize,
    /// True if the last suspension evicts only to measure the cost again.
    trial: bool,
    /// True if both stop the queues of all processes on the device for as long.
    stops_all: bool,
}

impl Costs {
    /// Returns the cost that is known before any eviction; `None` while level 1 is in force.
    pub(super) fn of(queues: &HardwareQueues) -> Option<Self> {
        let (cost, stops_all) = queues.cost()?;
        Some(Self::new(cost.hold, cost.release, stops_all))
    }

    const fn new(evict: Duration, restore: Duration, stops_all: bool) -> Self {
        let cost =
            Cost { evict: Recent::new(evict), restore: Recent::new(restore), refused: 0, trial_after: 0 };
        Self { classes: [cost; CLASSES], class: 0, trial: false, stops_all }
    }

    /// Decides about a suspension with so many queues that have work. Returns true if they are to be evicted:
    /// an eviction costs less than waiting for work of this expected duration, or it is time for a trial.
    ///
    /// While queues are saved and restored, the device does nothing for this process, and where an update
    /// stops all processes, nothing for the bystanders either. Work of unknown duration is always evicted.
    pub(super) fn decide(&mut self, queues: usize, expected: Option<Duration>, bystanders: u8) -> bool {
        self.class = class(queues);
        let stopped = 1 + if self.stops_all { u32::from(bystanders) } else { 0 };
        let pays = expected.is_none_or(|expected| expected > self.both() * stopped);
        let cost = &mut self.classes[self.class];
        self.trial = !pays && cost.refused >= cost.trial_after.max(FIRST_TRIAL);
        if !pays && !self.trial {
            cost.refused += 1;
        }
        pays || self.trial
    }

    /// Learns the duration of an eviction.
    pub(super) fn learn_eviction(&mut self, took: Duration) {
        let trial = std::mem::take(&mut self.trial);
        let cost = &mut self.classes[self.class];
        let before = cost.evict.median();
        if trial && took <= before / 2 {
            // The reason for the high cost has passed. The cost of restoring is likely to have had the same.
            cost.evict = Recent::new(took);
            cost.restore = Recent::new(cost.restore.median().min(took));
            cost.trial_after = FIRST_TRIAL;
        } else {
            cost.evict.learn(took);
            cost.trial_after = match trial {
                true => (2 * cost.trial_after.max(FIRST_TRIAL)).min(LAST_TRIAL),
                false => FIRST_TRIAL,
            };
        }
        cost.refused = 0;
    }

    /// Learns the duration of restoring what the last suspension evicted.
    pub(super) fn learn_restore(&mut self, took: Duration) {
        self.classes[self.class].restore.learn(took);
    }

    /// Returns the median durations of evicting and of restoring as many queues as at the last suspension.
    pub(super) fn medians(&self) -> [Duration; 2] {
        let cost = &self.classes[self.class];
        [cost.evict.median(), cost.restore.median()]
    }

    /// Returns the cost of both. The request to restore returns before the device has loaded the saved state,
    /// which takes as long as saving it.
    pub(super) fn both(&self) -> Duration {
        let [evict, restore] = self.medians();
        evict + restore.max(evict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    const COSTS: Costs = Costs::new(micros(60), micros(40), false);

    /// Decides about one queue that is expected to work for so long.
    fn evicts(mut costs: Costs, us: u64, bystanders: u8) -> bool {
        costs.decide(1, Some(micros(us)), bystanders)
    }

    #[test]
    fn decide_longer_expected_work_evicts() {
        assert!(evicts(COSTS, 121, 0) && !evicts(COSTS, 120, 0));
        assert!(COSTS.clone().decide(1, None, 9), "of unknown duration");
        assert!(evicts(COSTS, 121, 9), "bystanders are not stopped");
        let costs = Costs::new(micros(60), micros(40), true);
        assert!(evicts(costs, 121, 0));
        assert!(!evicts(costs, 360, 2), "two bystanders are stopped for as long");
        assert!(evicts(costs, 361, 2));
        let costs = Costs::new(micros(60), micros(90), false);
        assert!(!evicts(costs, 150, 0), "the longer of both counts for the restoring");
    }

    #[test]
    fn median_ignores_one_outlier_and_follows_two() {
        let mut cost = Recent::new(micros(100));
        cost.learn(micros(9_000));
        assert_eq!(cost.median(), micros(100), "an outlier");
        cost.learn(micros(120));
        assert_eq!(cost.median(), micros(120));
        cost.learn(micros(5_000));
        assert_eq!(cost.median(), micros(5_000), "two of three");
        cost.learn(micros(110));
        assert_eq!(cost.median(), micros(120));
    }

    /// Suspends so many times, with evictions and restores that take so long. Returns the evictions.
    fn suspend(costs: &mut Costs, times: u32, queues: usize, expected: Duration, took: Duration) -> u32 {
        (0..times)
            .filter(|_| {
                let evicts = costs.decide(queues, Some(expected), 0);
                if evicts {
                    costs.learn_eviction(took);
                    costs.learn_restore(took);
                }
                evicts
            })
            .count() as u32
    }

    #[test]
    fn cost_of_a_passed_cause_is_forgotten_after_a_few_refusals() {
        // Three evictions of 49 ms while a model loads; 100 us by then. Kernels take 2 ms.
        let mut costs = COSTS;
        suspend(&mut costs, 3, 1, micros(200_000), micros(49_000));
        let evictions = suspend(&mut costs, 89, 1, micros(2_000), micros(100));
        assert_eq!(evictions, 89 - FIRST_TRIAL);
        assert_eq!(costs.medians(), [micros(100); 2]);
    }

    #[test]
    fn trials_become_rare_while_evictions_stay_expensive() {
        let mut costs = Costs::new(micros(5_000), micros(5_000), false);
        let trials = suspend(&mut costs, 10_000, 1, micros(1_000), micros(5_000));
        // After 4, 8, 16, ... 128 and then 256 refusals each.
        assert_eq!(trials, 6 + (10_000 - (4 + 8 + 16 + 32 + 64 + 128 + 6)) / (LAST_TRIAL + 1));
        assert!(!costs.decide(1, Some(micros(9_000)), 0), "a trial teaches nothing false");
        suspend(&mut costs, 1, 1, micros(20_000), micros(5_000));
        assert_eq!(
            suspend(&mut costs, FIRST_TRIAL + 1, 1, micros(1_000), micros(5_000)),
            1,
            "from the start"
        );
    }

    #[test]
    fn cost_of_many_queues_does_not_forbid_evicting_one() {
        let mut costs = COSTS;
        suspend(&mut costs, 3, 8, micros(200_000), micros(49_000));
        assert!(!costs.decide(8, Some(micros(2_000)), 0));
        assert!(costs.decide(1, Some(micros(2_000)), 0));
        assert_eq!(costs.medians(), [micros(60), micros(40)]);
    }
}
