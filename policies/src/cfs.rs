//! CFS: completely fair between entities, weighted by priority.
//!
//! # The rule
//! On each device the entity with work that has the smallest virtual runtime runs, one at a time, for a turn of `slice-us`.
//! Virtual runtime is device time × 1024 ÷ weight, and the weight is 1024 × 1.2 ^ priority: one step of priority is a fifth
//! more of the device, four steps are twice as much. Priorities beyond -20 and 20 weigh as much as these. The priority of a
//! process is the highest of its ready queues, of all while none is ready; so a process has the part of one entity, however
//! many queues it has.
//!
//! Turns are not cut short, so that nobody flaps: who comes new begins at the smallest runtime of those with work there,
//! and has the next turn. Who wakes up begins there as well, or at its own runtime if that is larger. If it has slept for so
//! long that it missed `sleeper-us` of its part, it begins by that much earlier, and so interrupts the turn of another:
//! whoever needs little is served at once. No sleep earns more than that.
//!
//! Nobody starves: an entity waits at most as long as the turns of the others take whose runtime its own last turn
//! has overtaken, which is `slice-us` × the sum of their weights ÷ its own weight, and one turn of each of them more. With
//! equal priorities that is two turns of each; between priority -20 and priority 20, 3 s with the default.
//!
//! # What is different
//! Only time in which somebody else wanted the device counts, and nobody is farther ahead of the smallest runtime than four
//! turns (or 2 ms and one turn): who had a device for itself for an hour does not have to wait an hour for that. Shares are
//! exact for entities that always have work, late decisions or not. What work in flight runs on into the next turn is not
//! seen; its part of a turn is the error, so longer turns make it small.
//!
//! # Several devices
//! A process has one runtime for all its devices and needs to be the smallest on all of them. While it is held back on
//! one, others use the other ones, and get more there than their weights say; if several do so, their parts of what
//! is left over tend to be equal.
//!
//! # Parameters, wake-ups
//! A decision comes at the end of each turn while somebody else waits.

use crate::parameter::{Parameter, Values};
use crate::policy::{Input, Policy, Ranking};
use crate::sched_entity::SchedEntity;
use crate::virtual_runtime::{ONE, Rules, VirtualRuntimes};
use protocol::time::Time;
use std::time::Duration;

const SLICE: Parameter =
    Parameter { name: "slice-us", meaning: "how long a turn is", range: (100.0, 1e6), default: 2_000.0 };
const SLEEPER: Parameter = Parameter {
    name: "sleeper-us",
    meaning: "what one that wakes up may have missed; at most a turn, and 0 lets nobody interrupt a turn",
    range: (0.0, 1e6),
    default: 1_000.0,
};

/// What can be set.
pub(crate) const PARAMETERS: &[Parameter] = &[SLICE, SLEEPER];

/// Priorities beyond this, below and above 0, weigh no less and no more.
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
