//! SPUP: strict utilization partition between processes.
//!
//! # The rule
//! PUP without work conservation. All processes that have a queue on a device take turns there, whether they have work or
//! not, each for the timeslice × its utilization ÷ the sum of the utilizations of all of them; the turn of an idle process
//! stays unused, and the others are kept from the device meanwhile. So what a process gets depends on who is there, not on
//! what they do, and nobody learns from its own speed whether another one works. Slices are at least 0.5 ms or a whole
//! timeslice, and longer for all in the same proportion where one would be shorter. A turn that a late decision made
//! longer is shorter by that the next time; what a process does not use is lost. The timeslice is the shortest that a
//! process with a queue there asks for.
//!
//! A process of utilization 0 runs only on devices where no other with a utilization has a queue. A process that has gone,
//! or that has no queue on the device, has no turn there. Under the local scheduler there is one process, so all its
//! queues run together.
//!
//! # What it is good for
//! Equal conditions: measuring a program as if the others were busy, or selling a fixed part of a device whose speed
//! shall not change when neighbours come to rest. It isolates time only: what is in flight at the end of a turn still runs
//! on into the next one, and memory bandwidth, caches and clocks are shared by what is there. It wastes whatever is not
//! used, and a lone short request waits for the turns of idle neighbours.
//!
//! # What is different
//! Nothing that was not used is carried over, unlike under PUP: given later, it would tell the others that somebody was idle.
//! Utilization and timeslice go with the process, and are forgotten with it, as is what it ran too much.
//!
//! # Several devices
//! A process on several devices needs its turn on all of them at once. While another device holds it back, those behind it
//! use its other ones, so next to it somebody may have more than its utilization says.
//!
//! # Parameters, wake-ups
//! A decision comes at the end of each turn while anybody has work.

use crate::parameter::{Parameter, Values};
use crate::policy::{Input, Policy, Ranking};
use crate::pup::{one_process, together, utilization};
use crate::round_robin::{RoundRobin, Rules};
use crate::up::TIMESLICE;
use protocol::time::Time;
use std::time::Duration;

/// What can be set.
pub(crate) const PARAMETERS: &[Parameter] = &[TIMESLICE];

/// Strict utilization partition between processes; see the head of this file.
#[derive(Debug, Default)]
pub struct Spup {
    turns: RoundRobin,
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
        self.turns.rank(input, rankings, rules, utilization)
    }
}
