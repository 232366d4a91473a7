//! PUP: utilization partition between processes.
//!
//! # The rule
//! The same as UP for processes, with the utilization of the process (`xcli hint --pid PID -u UTIL`) instead
//! of that of its queues. The processes with work on a device run round robin, each for the timeslice × its
//! utilization ÷ the sum of the utilizations of those with work there. Slices are at least 0.5 ms or a whole
//! timeslice; where one would be shorter, all are longer in the same proportion. A process of utilization 0
//! runs only while no other one has work. Time that a process ran too much because of a late decision is
//! taken off its next slices. Under the local scheduler there is one process, so all its queues run together.
//!
//! The rest of a slice is not lost when the process turns idle: `carry-percent` of it is added to its next
//! slice. For each whole timeslice that the process sleeps, the rest shrinks by the same factor. So a long
//! sleep leaves nothing, and no entity collects more than one slice × carry ÷ (100 - carry).
//!
//! # What is different
//! The rest of a slice shrinks with the time asleep as well, not only with each slice, so no entity saves up
//! slices while away. Time that was used too much is remembered as under UP. Work in flight that runs on into
//! the next slice is not seen, also as under UP. Utilization and timeslice belong to the process and are
//! forgotten with it, as is the rest that was carried over.
//!
//! # Several devices
//! As under UP: all stand in one line, and a process that is held back on one device lets others use its
//! other ones.
//!
//! # Parameters, wake-ups
//! A decision comes at the end of each slice while another process waits.

use crate::lcbe::CLASS;
use crate::parameter::{Parameter, Values, parameter};
use crate::policy::{Input, Policy, Ranking};
use crate::reason::{ReasonKind, SLICE, WAITS};
use crate::round_robin::{RoundRobin, Rules};
use crate::sched_entity::{SchedEntities, SchedEntity};
use crate::up::TIMESLICE;
use protocol::operation::EntityId;
use protocol::time::Time;
use std::time::Duration;

const CARRY: Parameter = parameter!("carry-percent" in (0.0, 90.0), default 50.0,
    "the part of the rest of a slice that counts in the next one");

/// The reasons of the rows of PUP and SPUP.
pub(crate) const REASONS: &[&ReasonKind] = &[SLICE, WAITS, CLASS];

pub(crate) const PARAMETERS: &[Parameter] = &[TIMESLICE, CARRY];

/// Utilization partition between processes; see the head of this file.
#[derive(Debug, Default)]
pub struct Pup {
    round_robin: RoundRobin,
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
        self.round_robin.rank(input, rankings, rules, utilization)
    }
}

/// Returns the utilization of the entity's process.
pub(crate) fn utilization(_: &SchedEntities, entity: &SchedEntity) -> u64 {
    u64::from(entity.process.utilization.get())
}

/// Returns true if the entities are queues, all of one process.
pub(crate) fn one_process(input: Input<'_>) -> bool {
    input.members().any(|(_, entity)| matches!(entity.id, EntityId::Queue(_)))
}

/// Lets all run together, always.
pub(crate) fn together(input: Input<'_>, rankings: &mut [Ranking]) {
    for (index, _) in input.members() {
        rankings[index] = Ranking { range: Some((0, 0)), ..Ranking::new(0, CLASS.number(0)) };
    }
}
