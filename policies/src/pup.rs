//! PUP: utilization partition between processes.
//!
//! # The rule
//! As UP, with processes in the place of entities and the utilization of the process (`xcli hint --pid PID -u UTIL`) in the
//! place of that of its queues: the processes with work on a device take turns, each for the timeslice × its utilization ÷
//! the sum of the utilizations of those with work there. Slices are at least 0.5 ms or a whole timeslice, and longer for
//! all in the same proportion where one would be shorter; a process of utilization 0 runs only while no other has work.
//! What a late decision let a process run too much is taken off its next turns. Under the local scheduler there is one
//! process, so all its queues run together.
//!
//! What a process has left of its slice when it turns idle is not lost: `carry-percent` of it is added to its next slice.
//! For each whole timeslice that it sleeps the same part is taken again, so a long sleep leaves nothing, and nobody collects
//! more than one slice × carry ÷ (100 - carry).
//!
//! # What is different
//! What was not used decays with the time asleep as well, not only with each turn, so nobody saves up turns while away; and
//! what was used too much is remembered as under UP. What work in flight runs on into the next turn is not seen, as
//! there. Utilization and timeslice go with the process, and are forgotten with it, as is what was carried over.
//!
//! # Several devices
//! As under UP: all stand in one line, and who is held back on one device lets others use its other ones.
//!
//! # Parameters, wake-ups
//! A decision comes at the end of each turn while somebody else waits.

use crate::lcbe::CLASS;
use crate::parameter::{Parameter, Values};
use crate::policy::{Input, Policy, Ranking};
use crate::reason::{ReasonKind, SLICE, WAITS};
use crate::round_robin::{RoundRobin, Rules};
use crate::sched_entity::{SchedEntities, SchedEntity};
use crate::up::TIMESLICE;
use protocol::operation::UnitId;
use protocol::time::Time;
use std::time::Duration;

const CARRY: Parameter = Parameter {
    name: "carry-percent",
    meaning: "how much of the rest of a slice counts in the next one",
    range: (0.0, 90.0),
    default: 50.0,
};

/// The reasons of the rows of PUP and SPUP.
pub(crate) const REASONS: &[&ReasonKind] = &[SLICE, WAITS, CLASS];

/// What can be set.
pub(crate) const PARAMETERS: &[Parameter] = &[TIMESLICE, CARRY];

/// Utilization partition between processes; see the head of this file.
#[derive(Debug, Default)]
pub struct Pup {
    turns: RoundRobin,
    timeslice: Duration,
    carry: f64,
}

impl Policy for Pup {
    fn configure(&mut self, values: &Values) {
        self.timeslice = values.micros(TIMESLICE.name);
        self.carry = values.get(CARRY.name) / 100.0;
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        if one_process(input) {
            together(input, rankings);
            return None;
        }
        let rules = Rules { timeslice: self.timeslice, carry: self.carry, strict: false };
        self.turns.rank(input, rankings, rules, utilization)
    }
}

/// The utilization of the entity's process.
pub(crate) fn utilization(_: &SchedEntities, entity: &SchedEntity) -> u64 {
    u64::from(entity.process.utilization.get())
}

/// Whether the entities are queues, all of one process.
pub(crate) fn one_process(input: Input<'_>) -> bool {
    input.members().any(|(_, entity)| matches!(entity.id, UnitId::Queue(_)))
}

/// Lets all run together, always.
pub(crate) fn together(input: Input<'_>, rankings: &mut [Ranking]) {
    for (index, _) in input.members() {
        rankings[index] = Ranking { range: Some((0, 0)), ..Ranking::new(0, CLASS.number(0)) };
    }
}
