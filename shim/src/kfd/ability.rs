//! What was found out about one device: what a hold costs there, who says so, and whether holds have shown it.

use hal_kfd::probe::{Cost, Facts, Trial, Verdict};
use protocol::cost::{CostKey, CostOrigin, HoldCost};
use std::time::Duration;

/// What was found out about a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ability {
    pub(crate) facts: Facts,
    pub(crate) cost: Cost,
    /// Where the cost is from.
    pub(super) origin: CostOrigin,
    /// Under what a server keeps it.
    key: Option<CostKey>,
    /// Of what was taken from others, as long as it is open whether that is right.
    pub(super) trial: Option<Trial>,
    /// What the hold took that has not been released yet.
    pub(super) hold: Option<Duration>,
    /// A hold failed.
    pub(super) failed: bool,
}

impl Ability {
    pub(super) fn new(facts: Facts, cost: Cost, origin: CostOrigin, key: Option<CostKey>) -> Self {
        let on_trial = matches!(origin, CostOrigin::Taken | CostOrigin::Unmeasured);
        let trial = on_trial.then(|| Trial::new(cost));
        Self { facts, cost, origin, key, trial, hold: None, failed: false }
    }

    /// What a server may be told of it: the times, or that relying on what was told led to a failure.
    pub(super) fn evidence(&self) -> Option<(CostKey, Option<HoldCost>)> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let own = match self.origin {
            _ if self.failed => None,
            CostOrigin::Measured | CostOrigin::Corrected | CostOrigin::Learnt => {
                Some(HoldCost::new(nanos(self.cost.hold), nanos(self.cost.release))?)
            }
            _ => return None,
        };
        Some((self.key?, own))
    }

    /// A hold and its release took so long. True: what is known of the cost is something else now.
    pub(super) fn learn(&mut self, seen: Cost) -> bool {
        let Some(trial) = &mut self.trial else { return false };
        let told = self.origin == CostOrigin::Taken;
        match trial.see(seen) {
            Verdict::Open => return false,
            Verdict::Right => self.origin = if told { CostOrigin::Confirmed } else { CostOrigin::Learnt },
            Verdict::Wrong(cost) => {
                tracing::debug!(
                    told_us = self.cost.hold.as_micros(),
                    hold_us = cost.hold.as_micros(),
                    release_us = cost.release.as_micros(),
                    "holds cost something else than was known"
                );
                self.origin = if told { CostOrigin::Corrected } else { CostOrigin::Learnt };
                self.cost = cost;
            }
        }
        self.trial = None;
        true
    }
}
