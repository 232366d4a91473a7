//! HPF: highest priority first.
//!
//! # The rule
//! On each device every unit runs whose priority equals the highest among those that run there and have work there; the
//! rest are suspended. Units of equal priority share the device. [`Priority::NO_EXECUTE`] never runs.
//!
//! # What is different
//! XSched compares single queues. Here a process under `xserver` has the highest priority of its queues with work, and runs
//! on all its devices or on none; suspended because of one device, it leaves the others to lower work meanwhile. An idle
//! unit is suspended as well where a higher one has work, so that what it gets next does not run until somebody decides.
//!
//! # The limit
//! Cleared for a unit if no queue on its devices, its own included and idle or not, has a priority above the *lowest* of
//! its own queues: deep work launched now still drains when the unit's priority has fallen to that.
//!
//! # Parameters, wake-ups
//! None. A low unit can starve as long as a higher one has work, unless `XSCHED_STARVATION_MS` is set.
//!
//! [`Priority::NO_EXECUTE`]: protocol::bounds::Priority::NO_EXECUTE

use crate::policy::{Input, Policy, Standing};
use protocol::operation::Merit;
use protocol::time::Time;

/// Highest priority first; see the head of this file. It remembers nothing.
#[derive(Debug, Default)]
pub struct Hpf;

impl Policy for Hpf {
    fn rank(&mut self, input: Input<'_>, standings: &mut [Standing]) -> Option<Time> {
        for (place, unit) in input.members() {
            let [rank, floor, ceiling] = [unit.priority, unit.floor, unit.ceiling].map(i64::from);
            let merit = Merit::Priority(unit.priority);
            standings[place] = Standing { range: Some((floor, ceiling)), ..Standing::new(rank, merit) };
        }
        None
    }
}
