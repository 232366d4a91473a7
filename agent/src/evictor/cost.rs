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
    /// The suspensions since the last trial for which an eviction was too expensive.
    refused: u32,
    /// The trials since the cost fell, which make the next one later.
    trials: u32,
}

/// The refusals before the first trial, and the most before any. Each trial doubles the number, until the cost
/// falls to half.
const FIRST_TRIAL: u32 = 4;
const LAST_TRIAL: u32 = 256;

impl Cost {
    /// Returns the cost of both. The request to restore returns before the device has loaded the saved state,
    /// which takes as long as saving it.
    fn both(&self) -> Duration {
        both(self.evict.median(), self.restore.median())
    }

    /// Returns the refusals before the next trial.
    fn trial_after(&self) -> u32 {
        FIRST_TRIAL.checked_shl(self.trials).map_or(LAST_TRIAL, |after| after.min(LAST_TRIAL))
    }
}

fn both(evict: Duration, restore: Duration) -> Duration {
    evict + restore.max(evict)
}

/// The classes of evictions, by the number of queues: one, a few, many. Many queues take many requests, or one
/// long one. A process that evicts eight queues while it loads a model learns nothing about its one queue later.
const CLASSES: usize = 3;

const fn class(queues: usize) -> usize {
    match queues {
        0 | 1 => 0,
        2..=4 => 1,
        _ => 2,
    }
}

/// An eviction that has not been restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Evicted {
    class: usize,
    took: Duration,
    trial: bool,
}

/// The recent costs of evicting and restoring the process's queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Costs {
    classes: [Cost; CLASSES],
    /// The class of the last suspension.
    class: usize,
    /// True if this suspension evicts only to measure the cost again.
    trial: bool,
    /// The eviction whose restore will be learnt.
    evicted: Option<Evicted>,
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
        let cost = Cost { evict: Recent::new(evict), restore: Recent::new(restore), refused: 0, trials: 0 };
        Self { classes: [cost; CLASSES], class: 0, trial: false, evicted: None, stops_all }
    }

    /// Forgets what the last suspension was about to do.
    pub(super) fn begin(&mut self) {
        (self.trial, self.evicted) = (false, None);
    }

    /// Decides about a suspension with so many queues that have work; `None` if that is unknown. Returns true
    /// if they are to be evicted: an eviction costs less than waiting for work of this expected duration, or
    /// it is time for a trial.
    ///
    /// While queues are saved and restored, the device does nothing for this process, and where an update
    /// stops all processes, nothing for the bystanders either. Work of unknown duration is always evicted.
    pub(super) fn decide(
        &mut self,
        queues: Option<usize>,
        expected: Option<Duration>,
        bystanders: u8,
    ) -> bool {
        self.class = queues.map_or(self.class, class);
        let stopped = 1 + if self.stops_all { u32::from(bystanders) } else { 0 };
        let cost = &mut self.classes[self.class];
        let both = cost.both();
        let pays = |stopped: u32| expected.is_none_or(|expected| expected > both * stopped);
        self.trial = false;
        // The known cost does not forbid it, or there is nothing to measure.
        if pays(stopped) || pays(1) || queues == Some(0) {
            return pays(stopped);
        }
        if cost.refused < cost.trial_after() {
            cost.refused += 1;
            return false;
        }
        // Counted now, because an eviction that fails measures nothing.
        cost.refused = 0;
        cost.trials += 1;
        self.trial = true;
        true
    }

    /// Learns the duration of the first eviction of a suspension, and how many queues it evicted.
    pub(super) fn learn_eviction(&mut self, queues: usize, took: Duration) {
        let class = class(queues);
        let trial = std::mem::take(&mut self.trial) && class == self.class;
        self.evicted = Some(Evicted { class, took, trial });
    }

    /// Notes that a later check has evicted further queues: the restore is that of more queues.
    pub(super) fn note_further_evictions(&mut self) {
        self.evicted = None;
    }

    /// Learns the duration of restoring what was evicted.
    pub(super) fn learn_restore(&mut self, took: Duration) {
        let Some(evicted) = self.evicted.take() else { return };
        let cost = &mut self.classes[evicted.class];
        let before = cost.both();
        cost.evict.learn(evicted.took);
        cost.restore.learn(took);
        if cost.both() <= before / 2 {
            (cost.refused, cost.trials) = (0, 0);
        } else if evicted.trial && both(evicted.took, took) <= before / 2 {
            // An idle queue costs little. A second trial, at the next refusal, shows whether this was one.
            cost.refused = cost.trial_after();
        }
    }

    /// Returns the median durations of evicting and of restoring as many queues as at the last suspension.
    pub(super) fn medians(&self) -> [Duration; 2] {
        let cost = &self.classes[self.class];
        [cost.evict.median(), cost.restore.median()]
    }

    /// Returns the cost of both for as many queues as at the last suspension.
    pub(super) fn both(&self) -> Duration {
        self.classes[self.class].both()
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
        costs.decide(Some(1), Some(micros(us)), bystanders)
    }

    #[test]
    fn decide_longer_expected_work_evicts() {
        assert!(evicts(COSTS, 121, 0) && !evicts(COSTS, 120, 0));
        assert!(COSTS.clone().decide(Some(1), None, 9), "of unknown duration");
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

    /// A suspension of so many queues, which are expected to work for so many microseconds. An eviction and a
    /// restore take so many each. Returns true if it evicts.
    fn suspend(costs: &mut Costs, queues: usize, expected: u64, took: u64) -> bool {
        costs.begin();
        let evicts = costs.decide(Some(queues), Some(micros(expected)), 0);
        if evicts {
            costs.learn_eviction(queues, micros(took));
            costs.learn_restore(micros(took));
        }
        evicts
    }

    /// Costs after three evictions of this many queues that took 49 ms.
    fn after_loading(queues: usize) -> Costs {
        let mut costs = COSTS;
        for _ in 0..3 {
            assert!(suspend(&mut costs, queues, 200_000, 49_000));
        }
        costs
    }

    #[test]
    fn cost_of_a_passed_cause_is_forgotten_after_a_few_refusals() {
        // Evictions take 100 µs again, and kernels 2 ms.
        let mut costs = after_loading(1);
        let evictions = (0..89).filter(|_| suspend(&mut costs, 1, 2_000, 100)).count();
        assert_eq!(evictions, 89 - FIRST_TRIAL as usize, "the second trial follows the first at once");
        assert_eq!(costs.medians(), [micros(100); 2]);
    }

    #[test]
    fn one_cheap_trial_changes_nothing() {
        let mut costs = after_loading(1);
        let mut trials = Vec::new();
        for index in 0..30 {
            let took = if trials.is_empty() { 100 } else { 49_000 };
            if suspend(&mut costs, 1, 2_000, took) {
                trials.push(index);
            }
        }
        assert_eq!(trials, [4, 5, 22], "after 4 refusals, at once, after 16 refusals");
        assert_eq!(costs.medians(), [micros(49_000); 2]);
    }

    #[test]
    fn trials_become_rare_while_evictions_stay_expensive() {
        let mut costs = Costs::new(micros(5_000), micros(5_000), false);
        // Each sixth suspension meets a long kernel, whose eviction pays and confirms the cost.
        let trials = (0..6_000)
            .filter(|index| match index % 6 {
                5 => !suspend(&mut costs, 1, 20_000, 5_000),
                _ => suspend(&mut costs, 1, 1_000, 5_000),
            })
            .count();
        // Of 5,000 short ones: after 4, 8, 16, ... 128, and then 256 refusals each.
        let rest = 5_000 - (4 + 8 + 16 + 32 + 64 + 128 + 6);
        assert_eq!(trials, 6 + rest / (LAST_TRIAL as usize + 1));
    }

    #[test]
    fn trial_that_measures_nothing_is_not_repeated_at_once() {
        let mut costs = after_loading(1);
        let mut decide = |queues| {
            costs.begin();
            costs.decide(Some(queues), Some(micros(2_000)), 0)
        };
        // Only copies are in flight: nothing to evict, and nothing to learn.
        assert!((0..100).all(|_| !decide(0)));
        // Every eviction fails.
        let evictions = (0..100).filter(|_| decide(1)).count();
        assert_eq!(evictions, 4, "after 4, 8, 16, 32 refusals");
    }

    #[test]
    fn refusal_for_the_sake_of_bystanders_leads_to_no_trial() {
        let mut costs = Costs::new(micros(60), micros(40), true);
        assert!((0..1_000).all(|_| !costs.decide(Some(1), Some(micros(200)), 3)));
    }

    #[test]
    fn cost_of_many_queues_does_not_forbid_evicting_one() {
        let mut costs = after_loading(8);
        assert!(!costs.decide(Some(8), Some(micros(2_000)), 0));
        assert!(costs.decide(Some(1), Some(micros(2_000)), 0));
        assert_eq!(costs.medians(), [micros(60), micros(40)]);
        // An eviction without a decision counts for the queues that it evicted.
        for _ in 0..3 {
            costs.begin();
            costs.learn_eviction(8, micros(49_000));
            costs.learn_restore(micros(49_000));
        }
        assert_eq!(costs.medians(), [micros(60), micros(40)]);
    }

    #[test]
    fn restore_of_more_queues_than_were_timed_teaches_nothing() {
        let mut costs = COSTS;
        costs.learn_eviction(1, micros(60));
        costs.note_further_evictions();
        costs.learn_restore(micros(49_000));
        assert_eq!(costs, COSTS);
    }
}
