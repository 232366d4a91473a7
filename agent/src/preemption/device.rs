//! The capability of one device: what an eviction costs there, the origin of that cost, and whether evictions
//! confirmed it.

use crate::clock::nanos;
use hal_kfd::capabilities::Facts;
use hal_kfd::costs::{Cost, Trial, Verdict};
use protocol::cost::{CostKey, CostOrigin, EvictCost};
use std::time::Duration;

/// The capability of a device to evict queues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capability {
    pub(super) facts: Facts,
    pub(super) cost: Cost,
    pub(super) origin: CostOrigin,
    /// The key under which a server keeps the cost.
    key: Option<CostKey>,
    /// The trial of a cost that was not measured here, until it is decided.
    pub(super) trial: Option<Trial>,
    /// The duration of the eviction that is not restored yet.
    pub(super) evicted_in: Option<Duration>,
    /// True once an eviction has failed.
    pub(super) failed: bool,
}

impl Capability {
    pub(super) fn new(facts: Facts, cost: Cost, origin: CostOrigin, key: Option<CostKey>) -> Self {
        let on_trial = matches!(origin, CostOrigin::Taken | CostOrigin::Unmeasured);
        let trial = on_trial.then(|| Trial::new(cost));
        Self { facts, cost, origin, key, trial, evicted_in: None, failed: false }
    }

    /// Returns the cost that this process found out by itself, for the server; without a cost if an eviction
    /// failed.
    pub(super) fn own_cost(&self) -> Option<(CostKey, Option<EvictCost>)> {
        let at_least_one = |time| nanos(time).max(1);
        let own = match self.origin {
            _ if self.failed => None,
            CostOrigin::Measured | CostOrigin::Corrected | CostOrigin::Learnt => {
                Some(EvictCost::new(at_least_one(self.cost.hold), at_least_one(self.cost.release))?)
            }
            _ => return None,
        };
        Some((self.key?, own))
    }

    /// Takes the durations of an eviction and its restoring into account. Returns true if the known cost has
    /// changed.
    pub(super) fn learn(&mut self, seen: Cost) -> bool {
        let Some(trial) = &mut self.trial else { return false };
        let from_server = self.origin == CostOrigin::Taken;
        match trial.see(seen) {
            Verdict::Open => return false,
            Verdict::Right => {
                self.origin = if from_server { CostOrigin::Confirmed } else { CostOrigin::Learnt };
            }
            Verdict::Wrong(cost) => {
                tracing::debug!(
                    told_us = self.cost.hold.as_micros(),
                    hold_us = cost.hold.as_micros(),
                    release_us = cost.release.as_micros(),
                    "the measured cost of evictions differs from the known one"
                );
                self.origin = if from_server { CostOrigin::Corrected } else { CostOrigin::Learnt };
                self.cost = cost;
            }
        }
        self.trial = None;
        true
    }
}
