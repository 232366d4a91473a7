//! HPF: highest priority first.
//!
//! # The rule
//! On each device the entities with the highest priority run, of those that run there and have work there;
//! the others are suspended. Entities of equal priority share the device. An entity of priority
//! [`Priority::NO_EXECUTE`] never runs.
//!
//! # What is different
//! XSched compares single queues. Here a process under `xserver` has the highest priority of its queues with
//! work, and runs on all its devices or on none. While it is suspended because of one device, lower work may
//! use its others. An idle entity is suspended as well where a higher one has work, so that its next work
//! does not run before the next decision.
//!
//! # The limit
//! The limit is cleared for an entity if no queue on its devices, its own and idle ones included, has a
//! priority above the *lowest* of its own queues: deep work that is launched now still drains after the
//! entity's priority has fallen to that.
//!
//! # Parameters, wake-ups
//! None. An entity of low priority can starve as long as a higher one has work, unless `XSCHED_STARVATION_MS`
//! is set.
//!
//! [`Priority::NO_EXECUTE`]: protocol::bounds::Priority::NO_EXECUTE

use crate::policy::{Input, Policy, Ranking};
use crate::reason::PRIORITY;
use protocol::time::Time;

/// Highest priority first; see the head of this file. It keeps no state.
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
