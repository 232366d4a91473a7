//! FAIR: weighted shares in short slices.
//!
//! # The rule
//! Entities with work on a device share it by their utilizations, one at a time in short slices. The runtime
//! of an entity is its device time ÷ its utilization, and the one with the smallest runtime is next. The
//! entity with the highest utilization there has slices of `slice-us`. The slices of the others are shorter
//! in proportion to their utilizations, but not below 0.5 ms (or `slice-us`, if that is less). Over any
//! second in which all have work, each gets its share within one point, if the slices of all together take a
//! few hundredths of a second. The share is time in which the entity may run; see below for work in flight.
//!
//! Under the local scheduler the utilization is that of the queue, under `xserver` that of the process (`xcli
//! hint --pid PID -u UTIL`). An entity of utilization 0 runs only while no other one has work there.
//!
//! A gap in the work of an entity of up to a sixteenth of the shortest slice (or 200 µs, if that is longer)
//! counts as work. With `conserve` 1 the others use unused time, by their utilizations. With 0 no entity gets
//! more than its part among all that have a queue on the device, whether they have work or not. Unused time
//! may then be used later in one go, up to two slices and 1 ms; after that the device is withheld until the
//! entity has earned a whole slice again.
//!
//! # Latency
//! An entity that wakes up begins at the smallest runtime of those with work, so it is next when the present
//! slice is over, after the others that begin there. An entity that always has work waits between two slices
//! for at most its slice × the sum of the utilizations of the others ÷ its own, plus one slice of each of the
//! others. With 75 and 25, and 2 ms by default, that is 4 ms. An entity with 1 beside one with 99 has 0.5 ms
//! every 50 ms.
//!
//! # What is different
//! Time that an entity ran too much because of a late decision counts in its runtime, so the shares stay
//! exact. Work in flight that runs on into the next slice is not seen: with each slice that time goes from
//! one entity to the other. With 75 and 25, where only the first one drains, for 0.5 ms, the first one has 94
//! % with slices of 2 ms, because a round takes 2.7 ms. Where both drain for as long, the errors cancel out
//! if both have as many slices; otherwise longer slices or higher preemption levels help.
//!
//! # Several devices
//! A process has one runtime for all its devices and has to be next on all of them. While it is held back on
//! one, others use its other ones and get more there than their utilizations say; if several do so, they
//! alternate. With `conserve` 0 a process on several devices has the smallest of its parts on all of them.
//!
//! # Parameters, wake-ups
//! A decision comes at the end of each slice while another entity waits, and when an entity that has had its
//! part may run again.

use crate::parameter::{Parameter, Values, parameter};
use crate::policy::{Input, Policy, Ranking};
use crate::sched_entity::SchedEntity;
use crate::virtual_runtime::{Rules, VirtualRuntimes};
use protocol::operation::EntityId;
use protocol::time::Time;
use std::time::Duration;

pub(crate) const SLICE: Parameter = parameter!("slice-us" in (100.0, 100_000.0), default 2_000.0,
    "the length of a slice of the entity with the highest utilization");
const CONSERVE: Parameter = parameter!("conserve" in (0.0, 1.0), default 1.0,
    "1: others use unused time; 0: no entity gets more than its part");

pub(crate) const PARAMETERS: &[Parameter] = &[SLICE, CONSERVE];

/// The weight of one percent: small enough to add up, large enough to divide by.
const PERCENT: u64 = 16;

/// Weighted shares; see the head of this file.
#[derive(Debug, Default)]
pub struct Fair {
    runtimes: VirtualRuntimes,
    slice: Duration,
    strict: bool,
}

impl Policy for Fair {
    fn configure(&mut self, values: &Values) {
        self.slice = values.micros(SLICE.name);
        self.strict = values.get(CONSERVE.name) < 0.5;
    }

    /// With strict shares the time that an entity runs counts also while no entity waits for it.
    fn needs_idle_events(&self) -> bool {
        self.strict
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let rules = Rules { slice: self.slice, by_weight: true, credit: Duration::ZERO, strict: self.strict };
        self.runtimes.rank(input, rankings, rules, |_, entity| utilization(entity) * PERCENT)
    }
}

/// Returns the utilization of a queue or of a process.
pub(crate) fn utilization(entity: &SchedEntity) -> u64 {
    match entity.id {
        EntityId::Queue(_) => entity.utilization,
        EntityId::Gang(_) => u64::from(entity.process.utilization.get()),
    }
}
