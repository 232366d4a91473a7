//! HHPF: highest priority first over all devices together.
//!
//! # The rule
//! The entities with the highest priority of all that have work run, on whatever device; the others are
//! suspended everywhere. An entity of priority [`Priority::NO_EXECUTE`] never runs. With one device this is
//! HPF.
//!
//! # The limit
//! The limit is cleared for an entity if no queue of any entity has a priority above the lowest of its own
//! queues.
//!
//! # What is different
//! "All devices" are those that this policy rules: a device with a policy of its own is left to that policy.
//!
//! # Parameters, wake-ups
//! Gaps, the share of suspended entities, counters and wake-ups are as under HPF. An entity of low priority can starve as
//! long as a higher one has work anywhere, unless `XSCHED_STARVATION_MS` is set.
//!
//! [`Priority::NO_EXECUTE`]: protocol::bounds::Priority::NO_EXECUTE

use crate::hpf::Hpf;
use crate::parameter::Values;
use crate::policy::{Input, Policy, Ranking, Scope};
use protocol::time::Time;

/// Highest priority first over all devices; see the head of this file. It ranks as HPF does.
#[derive(Debug, Default)]
pub struct Hhpf(Hpf);

impl Policy for Hhpf {
    fn configure(&mut self, values: &Values) {
        self.0.configure(values);
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        self.0.rank(input, rankings)
    }

    fn scope(&self) -> Scope {
        Scope::Devices
    }
}
