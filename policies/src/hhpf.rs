//! HHPF: highest priority first over all devices together.
//!
//! # The rule
//! Every entity runs whose priority equals the highest among all that have work, on whatever device; the rest are
//! suspended everywhere. [`Priority::NO_EXECUTE`] never runs. On one device it is HPF.
//!
//! # The limit
//! Cleared for an entity if no queue of anybody has a priority above the lowest of its own queues.
//!
//! # What is different
//! "All devices" are those that this policy rules: a device that has a policy of its own is left to that one.
//!
//! # Parameters, wake-ups
//! None. A low entity can starve as long as a higher one has work anywhere, unless `XSCHED_STARVATION_MS` is set.
//!
//! [`Priority::NO_EXECUTE`]: protocol::bounds::Priority::NO_EXECUTE

use crate::hpf::Hpf;
use crate::policy::{Input, Policy, Ranking, Scope};
use protocol::time::Time;

/// Highest priority first over all devices; see the head of this file. It ranks as HPF does.
#[derive(Debug, Default)]
pub struct Hhpf(Hpf);

impl Policy for Hhpf {
    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        self.0.rank(input, rankings)
    }

    fn scope(&self) -> Scope {
        Scope::Devices
    }
}
