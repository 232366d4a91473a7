//! UP: utilization partition between entities.
//!
//! # The rule
//! The entities of a device that have work take turns, one at a time. An entity's slice is the timeslice × its utilization ÷ the
//! sum of the utilizations of those with work there, so one round of turns takes one timeslice and each has its part of
//! it. The timeslice is the shortest that the process of an entity with work there asks for (`XHintTimeslice`,
//! `XSCHED_AUTO_XQUEUE_TIMESLICE`), or the parameter if nobody asks for a shorter one. A slice is at least 0.5 ms (a whole
//! timeslice if that is shorter), because switching takes its time as well; where one would be shorter, all of the
//! device are longer in the same proportion.
//!
//! Under the local scheduler an entity is a queue, and its utilization is that of the queue. A process under `xserver` has the
//! highest utilization of its ready queues (of all while none is ready), not the sum: users set it for a program, and a
//! program with four streams is not to have four times as much. Utilization 0 means: only while nobody with another one
//! has work there; several of those take turns in equal slices.
//!
//! A device with work is always used: when the owner of the turn is idle for a sixteenth of the shortest slice (and for more than
//! 200 µs), the turn passes on, and what is left of its slice is lost. A shorter gap, as between two batches, counts as work; where
//! all work has such gaps, a shorter timeslice wastes less. Whoever wakes up goes to the end of the line, so it waits for at most one slice of each of the others and takes
//! nothing from those who had work all the time.
//!
//! # What is different
//! What an entity ran too much, because a decision came late, is taken off its next turns (up to 2 ms or four slices), so
//! that the shares come out exact over many turns. What its work in flight runs on into the next one's turn is
//! not seen here: each turn then gives about that much to its owner at the cost of the next, and the error of the share is
//! that time ÷ the timeslice. Longer timeslices or higher preemption levels make it small. A utilization goes with its queue,
//! a timeslice with its process, and they are forgotten with them, as is what the entity ran too much.
//!
//! # Several devices
//! All stand in one line, whatever their devices. A process on several devices has the shortest of its slices there
//! and needs its turn on all of them; those behind it use what it cannot use meanwhile. So next to a process that another
//! device holds back somebody may get more than its utilization says, and nobody waits longer for it.
//!
//! # Parameters, wake-ups
//! A decision comes at the end of each turn while somebody else waits.

use crate::parameter::{Parameter, Values};
use crate::policy::{Input, Policy, Ranking};
use crate::round_robin::{RoundRobin, Rules};
use crate::sched_entity::{SchedEntities, SchedEntity};
use protocol::bounds::Timeslice;
use protocol::time::Time;
use std::time::Duration;

/// What the slices of a device add up to.
pub(crate) const TIMESLICE: Parameter = Parameter {
    name: "timeslice-us",
    meaning: "what the slices of a device add up to, unless somebody with work asks for less",
    range: (Timeslice::MIN.get() as f64, Timeslice::MAX.get() as f64),
    default: Timeslice::DEFAULT.get() as f64,
};

/// What can be set.
pub(crate) const PARAMETERS: &[Parameter] = &[TIMESLICE];

/// Utilization partition; see the head of this file.
#[derive(Debug, Default)]
pub struct Up {
    turns: RoundRobin,
    timeslice: Duration,
}

impl Policy for Up {
    fn configure(&mut self, values: &Values) {
        self.timeslice = values.micros(TIMESLICE.name);
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let rules = Rules { timeslice: self.timeslice, carry: 0.0, strict: false };
        self.turns.rank(input, rankings, rules, utilization)
    }
}

/// The highest utilization of the entity's ready queues, of all while none is ready.
pub(crate) fn utilization(entities: &SchedEntities, entity: &SchedEntity) -> u64 {
    let counts = |ready: bool| {
        let queues = entities.queues(entity).iter().filter(|queue| !ready || queue.ready_since.is_some());
        queues.map(|queue| queue.hints.utilization.get()).max()
    };
    u64::from(counts(entity.ready).unwrap_or(0))
}
