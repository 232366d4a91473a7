//! UP: utilization partition between entities.
//!
//! # The rule
//! The entities with work on a device run one at a time, round robin, each for its slice. A slice is the
//! timeslice × the utilization of the entity ÷ the sum of the utilizations of those with work there. So one
//! round takes one timeslice, and each entity has its part of it. The timeslice is the shortest that the
//! process of an entity with work there asks for (`XHintTimeslice`, `XSCHED_AUTO_XQUEUE_TIMESLICE`), or the
//! parameter if no process asks for a shorter one. A slice is at least 0.5 ms (or a whole timeslice, if that is
//! shorter), because switching takes time as well. Where one would be shorter, all slices of the device are
//! longer in the same proportion.
//!
//! Under the local scheduler an entity is a queue and has the utilization of the queue. A process under
//! `xserver` has the highest utilization of its ready queues (of all its queues while none is ready), not the
//! sum: users set it for a program, and a program with four streams must not get four times as much. An
//! entity of utilization 0 runs only while no other one has work there; several of those share the device in
//! equal slices.
//!
//! A device with work is always used. When the owner of the slice is idle for a sixteenth of the shortest
//! slice, and for more than 200 µs, the next entity runs and the rest of the slice is lost. A shorter gap, as
//! between two batches, counts as work; where all work has such gaps, a shorter timeslice wastes less. An
//! entity that wakes up goes to the end of the line. So it waits for at most one slice of each of the others,
//! and takes nothing from those that had work all the time.
//!
//! # What is different
//! Time that an entity ran too much, because a decision came late, is taken off its next slices (up to 2 ms
//! or four slices), so the shares are exact over many slices. Work in flight at the end of a slice runs on
//! into the next one, which is not seen here: each slice gives its owner about that much time at the cost of
//! the next, and the error of the share is that time ÷ the timeslice. Longer timeslices or higher preemption
//! levels make it small. A utilization belongs to its queue and a timeslice to its process; both are
//! forgotten with them, as is the time that the entity ran too much.
//!
//! # Several devices
//! All entities stand in one line, whatever their devices. A process on several devices has the shortest of
//! its slices there and has to be first on all of them; those behind it use what it cannot use meanwhile. So
//! beside a process that another device holds back an entity may get more than its utilization says, and
//! no entity waits longer because of that.
//!
//! # Parameters, wake-ups
//! A decision comes at the end of each slice while another entity waits.

use crate::parameter::{Parameter, Values, parameter};
use crate::policy::{Input, Policy, Ranking};
use crate::round_robin::{RoundRobin, Rules};
use protocol::bounds::Timeslice;
use protocol::time::Time;
use std::time::Duration;

/// Sum of the slices of a device.
pub(crate) const TIMESLICE: Parameter = parameter!("timeslice-us"
    in (Timeslice::MIN.get() as f64, Timeslice::MAX.get() as f64), default Timeslice::DEFAULT.get() as f64,
    "the sum of the slices of a device, unless an entity with work asks for less");

pub(crate) const PARAMETERS: &[Parameter] = &[TIMESLICE];

/// Utilization partition; see the head of this file.
#[derive(Debug, Default)]
pub struct Up {
    round_robin: RoundRobin,
    timeslice: Duration,
}

impl Policy for Up {
    fn configure(&mut self, values: &Values) {
        self.timeslice = values.micros(TIMESLICE.name);
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let rules = Rules { timeslice: self.timeslice, carry: 0.0, strict: false };
        self.round_robin.rank(input, rankings, rules, |_, entity| entity.utilization)
    }
}
