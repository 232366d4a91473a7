//! CFS: completely fair between entities, weighted by priority.
//!
//! # The rule
//! On each device the entity with work that has the smallest virtual runtime runs, one at a time, for a slice
//! of `slice-us`. Virtual runtime is device time × 1024 ÷ weight, and the weight is 1024 × 1.2 ^ priority:
//! one step of priority is a fifth more of the device, four steps are twice as much. Priorities beyond -20
//! and 20 weigh as much as these. A process has the highest priority of its ready queues, or of all its
//! queues while none is ready. So it has the part of one entity, however many queues it has.
//!
//! Slices are not cut short, so the device does not change hands all the time. A new entity begins at the
//! smallest runtime of those with work there, and has the next slice. An entity that wakes up begins there as
//! well, or at its own runtime if that is larger. If it has slept for so long that it missed `sleeper-us` of
//! its part, it begins by that much earlier and interrupts the slice of another entity: an entity that needs
//! little is served at once. No sleep earns more than that.
//!
//! No entity starves. It waits at most for the slices of those whose runtime its own last slice has
//! overtaken, which is `slice-us` × the sum of their weights ÷ its own weight, and for one more slice of each
//! of them. With equal priorities that is two slices of each; between priority -20 and priority 20 it is 3 s
//! by default.
//!
//! # What is different
//! Only time in which another entity wanted the device counts. No entity is farther ahead of the smallest
//! runtime than four slices (or 2 ms and one slice), so an entity that had the device for itself for an hour
//! does not have to wait for an hour. Shares are exact for entities that always have work, also with late
//! decisions. Work in flight that runs on into the next slice is not seen; its part of a slice is the error,
//! so longer slices make it small.
//!
//! # Several devices
//! A process has one runtime for all its devices, which has to be the smallest on all of them. While it is
//! held back on one, others use its other ones and get more there than their weights say; if several do so,
//! their parts of what is left over tend to be equal.
//!
//! # Parameters, wake-ups
//! A decision comes at the end of each slice while another entity waits.

use crate::parameter::{Parameter, Values, parameter};
use crate::policy::{Input, Policy, Ranking};
use crate::sched_entity::SchedEntity;
use crate::virtual_runtime::{ONE, Rules, VirtualRuntimes};
use protocol::time::Time;
use std::time::Duration;

const SLICE: Parameter = parameter!("slice-us" in (100.0, 1e6), default 2_000.0, "the length of a slice");
const SLEEPER: Parameter = parameter!("sleeper-us" in (0.0, 1e6), default 1_000.0,
    "the credit of an entity that wakes up; at most a slice, and with 0 no entity interrupts a slice");

pub(crate) const PARAMETERS: &[Parameter] = &[SLICE, SLEEPER];

/// The largest priority, and the smallest one negated, that makes a difference to the weight.
const STEPS: i32 = 20;

/// Completely fair; see the head of this file.
#[derive(Debug)]
pub struct Cfs {
    runtimes: VirtualRuntimes,
    rules: Rules,
    /// The weights of the priorities from -[`STEPS`] to [`STEPS`].
    weights: [u64; 2 * STEPS as usize + 1],
}

impl Default for Cfs {
    fn default() -> Self {
        let weight = |index: usize| (ONE as f64 * 1.2f64.powi(index as i32 - STEPS)).round() as u64;
        let (slice, credit) = (Duration::ZERO, Duration::ZERO);
        Self {
            runtimes: VirtualRuntimes::default(),
            rules: Rules { slice, by_weight: false, credit, strict: false },
            weights: std::array::from_fn(weight),
        }
    }
}

impl Policy for Cfs {
    fn configure(&mut self, values: &Values) {
        self.rules.slice = values.micros(SLICE.name);
        self.rules.credit = values.micros(SLEEPER.name).min(self.rules.slice);
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let weights = &self.weights;
        let weigh = |entity: &SchedEntity| {
            let step = entity.priority.get().clamp(-STEPS, STEPS) + STEPS;
            weights[usize::try_from(step).unwrap_or(0)]
        };
        self.runtimes.rank(input, rankings, self.rules, |_, entity| weigh(entity))
    }
}
