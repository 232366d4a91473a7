//! SPUP: strict utilization partition between processes.
//!
//! # The rule
//! PUP without work conservation. All processes that have a queue on a device run there round robin, whether
//! they have work or not. Each has the timeslice × its utilization ÷ the sum of the utilizations of all of
//! them. The slice of an idle process stays unused, and the others are kept from the device meanwhile. So the
//! part of a process depends on who is there, not on what they do, and no process can tell from its own speed
//! whether another one works. Slices are at least 0.5 ms or a whole timeslice; where one would be shorter,
//! all are longer in the same proportion. A slice that a late decision made longer is shorter by as much the
//! next time. Time that a process does not use is lost. The timeslice is the shortest that a process with a
//! queue there asks for.
//!
//! A process of utilization 0 runs only on devices where no process with a utilization has a queue. A process
//! that has gone, or that has no queue on the device, has no slice there. Under the local scheduler there is
//! one process, so all its queues run together.
//!
//! # What it is good for
//! Equal conditions: to measure a program as if the others were busy, or to sell a fixed part of a device
//! whose speed does not change when neighbours are idle. It isolates time only. Work in flight at the end of
//! a slice runs on into the next one, and all share memory bandwidth, caches and clocks. Unused time is
//! wasted, and a lone short request waits for the slices of idle neighbours.
//!
//! # What is different
//! Unlike under PUP, unused time is not carried over: given later, it would tell the others that a process
//! was idle. Utilization and timeslice belong to the process and are forgotten with it, as is the time that
//! it ran too much.
//!
//! # Several devices
//! A process on several devices has to be first on all of them at once. While another device holds it back,
//! those behind it use its other ones, so beside it a process may get more than its utilization says.
//!
//! # Parameters, wake-ups
//! A decision comes at the end of each slice while any process has work.

use crate::parameter::{Parameter, Values};
use crate::policy::{Input, Policy, Ranking};
use crate::pup::{one_process, together, utilization};
use crate::round_robin::{RoundRobin, Rules};
use crate::up::TIMESLICE;
use protocol::time::Time;
use std::time::Duration;

pub(crate) const PARAMETERS: &[Parameter] = &[TIMESLICE];

/// Strict utilization partition between processes; see the head of this file.
#[derive(Debug, Default)]
pub struct Spup {
    round_robin: RoundRobin,
    timeslice: Duration,
}

impl Policy for Spup {
    fn configure(&mut self, values: &Values) {
        self.timeslice = values.micros(TIMESLICE.name);
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        if one_process(input) {
            together(input, rankings);
            return None;
        }
        let rules = Rules { timeslice: self.timeslice, carry: 0.0, strict: true };
        self.round_robin.rank(input, rankings, rules, utilization)
    }
}
