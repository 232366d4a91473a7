//! FAIR: weighted shares in short turns.
//!
//! # The rule
//! Entities that have work on a device share it by their utilizations, one at a time in short turns: each has device time ÷
//! utilization as its runtime, and whoever has the smallest is next. The entity with the highest utilization there has turns
//! of `slice-us`, the others turns as much shorter as their utilization is smaller, but not below 0.5 ms (or `slice-us` if
//! that is less). Over any second in which all have work each has its part of the time within one point, if the turns of all
//! together take a few hundredths of that. This is time in which it may run; see below for work in flight.
//!
//! Under the local scheduler the utilization is that of the queue, under `xserver` that of the process (`xcli hint --pid PID
//! -u UTIL`). Utilization 0 means: only while nobody with another one has work there.
//!
//! A gap in somebody's work of up to a sixteenth of the shortest turn (or 200 µs, if that is longer) counts as work.
//! With `conserve` 1 what somebody does not use goes to the others by their utilizations. With 0 nobody gets more than its
//! part of all those that have a queue on the device, whether they have work or not; what was not used before may be
//! used in one go up to two turns and 1 ms. Then the device is withheld until there is a turn's worth again.
//!
//! # Latency
//! Who wakes up begins at the smallest runtime of those with work, so it is next when the turn that runs is over, after the
//! others that begin there. An entity that always has work waits between two turns at most its turn × the sum of the
//! utilizations of the others ÷ its own, and one turn of each of the others. With 75 and 25, 2 ms by default: 4 ms.
//! One with 1 beside 99 has 0.5 ms every 50 ms.
//!
//! # What is different
//! What a late decision lets somebody run too much is on its runtime, so that the parts stay exact. What work in
//! flight runs on into the next turn is not seen: per turn that time goes from one to the other. With 75 and 25, where only
//! the first drains, for 0.5 ms, it has 94 % with turns of 2 ms, because a round of turns takes 2.7 ms. Where both drain for
//! as long, it cancels out if their turns are as many; otherwise longer turns or higher preemption levels help.
//!
//! # Several devices
//! A process has one runtime for all its devices and needs to be next on all of them. While it is held back on one, others
//! use the other ones, and get more there than their utilizations say; if several do so, turn by turn. With `conserve` 0 a
//! process on several devices has the smallest of its parts on all of them.
//!
//! # Parameters, wake-ups
//! A decision comes at the end of each turn while somebody else waits, and when somebody may run again that had its part.

use crate::parameter::{Parameter, Values};
use crate::policy::{Input, Policy, Ranking};
use crate::sched_entity::{SchedEntities, SchedEntity};
use crate::up;
use crate::virtual_runtime::{Rules, VirtualRuntimes};
use protocol::operation::UnitId;
use protocol::time::Time;
use std::time::Duration;

/// How long turns are.
pub(crate) const SLICE: Parameter = Parameter {
    name: "slice-us",
    meaning: "how long a turn of the entity with the highest utilization is",
    range: (100.0, 100_000.0),
    default: 2_000.0,
};
const CONSERVE: Parameter = Parameter {
    name: "conserve",
    meaning: "1: what somebody does not use is used by others; 0: nobody gets more than its part",
    range: (0.0, 1.0),
    default: 1.0,
};

/// What can be set.
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

    /// Where nobody gets more than its part counts what an entity runs also while nobody waits for it.
    fn hears_idle(&self) -> bool {
        self.strict
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let rules = Rules { slice: self.slice, by_weight: true, credit: Duration::ZERO, strict: self.strict };
        self.runtimes.rank(input, rankings, rules, |entities, entity| utilization(entities, entity) * PERCENT)
    }
}

/// The utilization of a queue or of a process.
pub(crate) fn utilization(entities: &SchedEntities, entity: &SchedEntity) -> u64 {
    match entity.id {
        UnitId::Queue(_) => up::utilization(entities, entity),
        UnitId::Gang(_) => u64::from(entity.process.utilization.get()),
    }
}
