//! HPF: highest priority first.
//!
//! # The rule
//! On each device every entity runs whose priority equals the highest among those that run there and have work there; the
//! rest are suspended. Entities of equal priority share the device. [`Priority::NO_EXECUTE`] never runs.
//!
//! # What is different
//! XSched compares single queues. Here a process under `xserver` has the highest priority of its queues with work, and runs
//! on all its devices or on none; suspended because of one device, it leaves the others to lower work meanwhile. An idle
//! entity is suspended as well where a higher one has work, so that what it gets next does not run until somebody decides.
//!
//! # The limit
//! Cleared for an entity if no queue on its devices, its own included and idle or not, has a priority above the *lowest* of
//! its own queues: deep work launched now still drains when the entity's priority has fallen to that.
//!
//! # Parameters, wake-ups
//! None. A low entity can starve as long as a higher one has work, unless `XSCHED_STARVATION_MS` is set.
//!
//! [`Priority::NO_EXECUTE`]: protocol::bounds::Priority::NO_EXECUTE

use crate::policy::{Input, Policy, Ranking};
use crate::reason::PRIORITY;
use protocol::time::Time;

/// Highest priority first; see the head of this file. It remembers nothing.
#[derive(Debug, Default)]
pub struct Hpf;

impl Policy for Hpf {
    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        for (index, entity) in input.members() {
            let [rank, floor, ceiling] = [entity.priority, entity.floor, entity.ceiling].map(i64::from);
            let reason = PRIORITY.number(rank);
            rankings[index] = Ranking { range: Some((floor, ceiling)), ..Ranking::new(rank, reason) };
        }
        None
    }
}
