//! The cost of an eviction, as measured lately, and whether an eviction pays.

use crate::preemption::HardwareQueues;
use std::time::Duration;

/// The durations of the last requests of a kind. Their median ignores one outlier of a busy machine, and
/// follows two in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Recent([Duration; 3]);

impl Recent {
    const fn new(took: Duration) -> Self {
        Self([took; 3])
    }

    pub(super) fn median(self) -> Duration {
        let Self([a, b, c]) = self;
        a.min(b).max(a.max(b).min(c))
    }

    pub(super) fn learn(&mut self, took: Duration) {
        let Self([_, b, c]) = *self;
        *self = Self([b, c, took]);
    }

    fn fade(&mut self) {
        self.0.iter_mut().for_each(|took| *took -= *took / 256);
    }
}

/// The recent cost of evicting and restoring the process's queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Costs {
    pub(super) evict: Recent,
    pub(super) restore: Recent,
    /// True if both stop the queues of all processes on the device for as long.
    stops_all: bool,
}

impl Costs {
    /// Returns the cost that is known before any eviction; `None` while level 1 is in force.
    pub(super) fn of(queues: &HardwareQueues) -> Option<Self> {
        let (cost, stops_all) = queues.cost()?;
        Some(Self { evict: Recent::new(cost.hold), restore: Recent::new(cost.release), stops_all })
    }

    /// Returns true if an eviction costs less than waiting for work of this expected duration. While queues
    /// are saved and restored, the device does nothing for this process, and where an update stops all
    /// processes, nothing for the bystanders either. Work of unknown duration is always evicted.
    pub(super) fn pays(&self, expected: Option<Duration>, bystanders: u8) -> bool {
        let stopped = 1 + if self.stops_all { u32::from(bystanders) } else { 0 };
        expected.is_none_or(|expected| expected > self.both() * stopped)
    }

    /// Returns the cost of both. The request to restore returns before the device has loaded the saved state,
    /// which takes as long as saving it.
    pub(super) fn both(&self) -> Duration {
        let evict = self.evict.median();
        evict + self.restore.median().max(evict)
    }

    /// Lowers the cost a little after it has forbidden an eviction: its cause may have passed, and only
    /// another attempt shows that.
    pub(super) fn fade(&mut self) {
        self.evict.fade();
        self.restore.fade();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    const COSTS: Costs =
        Costs { evict: Recent::new(micros(60)), restore: Recent::new(micros(40)), stops_all: false };

    #[test]
    fn pays_longer_expected_work_evicts() {
        assert!(COSTS.pays(Some(micros(121)), 0));
        assert!(!COSTS.pays(Some(micros(120)), 0));
        assert!(COSTS.pays(None, 9), "of unknown duration");
        assert!(COSTS.pays(Some(micros(121)), 9), "bystanders are not stopped");
        let costs = Costs { stops_all: true, ..COSTS };
        assert!(costs.pays(Some(micros(121)), 0));
        assert!(!costs.pays(Some(micros(360)), 2), "two bystanders are stopped for as long");
        assert!(costs.pays(Some(micros(361)), 2));
        let costs = Costs { restore: Recent::new(micros(90)), ..COSTS };
        assert!(!costs.pays(Some(micros(150)), 0), "the longer of both counts for the restoring");
    }

    #[test]
    fn costs_follow_measurements_and_fade_while_they_forbid() {
        let mut cost = Recent::new(micros(100));
        cost.learn(micros(9_000));
        assert_eq!(cost.median(), micros(100), "an outlier");
        cost.learn(micros(120));
        assert_eq!(cost.median(), micros(120));
        cost.learn(micros(5_000));
        assert_eq!(cost.median(), micros(5_000), "two of three");
        cost.learn(micros(110));
        assert_eq!(cost.median(), micros(120));
        let expensive = Recent::new(micros(5_000));
        let mut costs = Costs { evict: expensive, restore: expensive, stops_all: false };
        let mut tries = 0;
        while !costs.pays(Some(micros(6_000)), 0) {
            costs.fade();
            tries += 1;
        }
        assert!((50..400).contains(&tries), "{tries}");
    }
}
