//! CHPF: highest priority first, by the nice value on the processor.
//!
//! # The rule
//! On each device the entities run whose processes have the lowest nice value, of those that run there and
//! have work there; the others are suspended. Equal values share the device. A queue of priority -256 never
//! runs; no other priority counts.
//!
//! Under the local scheduler all queues belong to one process, so all of them run.
//!
//! # What is different
//! A process has one nice value for all its queues: the present one of its first thread. `xserver` looks it
//! up when the process connects and every 100 ms. Real-time classes of the processor do not count.
//!
//! # The limit
//! Set where others use the device: the owner of a process may change its nice value at any time, and no event tells of
//! it.
//!
//! # Parameters, wake-ups
//! Gaps, the share of suspended entities, the priority of hardware queues, counters and wake-ups are as under HPF. A program
//! of high nice value can starve as long as another one has work, unless `XSCHED_STARVATION_MS` is set.

use crate::parameter::{FIRST, GAPS, Parameter, SHARE, SLOWDOWN, Values};
use crate::policy::{Input, Manner, Policy, Ranking};
use crate::reason::{ReasonKind, first};
use protocol::time::Time;

pub(crate) const PARAMETERS: &[Parameter] = &[GAPS, SHARE, SLOWDOWN, FIRST];

/// Nice value of the process on the processor; the lower one comes first.
pub(crate) const NICE: &ReasonKind = &ReasonKind::new("Nice", |its| format!("has nice value {}", first(its)))
    .comparing(|its, own| NICE.is(&own).then(|| format!("has nice value {} < {}", first(its), first(own))));

/// Lowest nice value first; see the head of this file.
#[derive(Debug, Default)]
pub struct Chpf {
    manner: Manner,
}

impl Policy for Chpf {
    fn configure(&mut self, values: &Values) {
        self.manner = values.manner();
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        for (index, entity) in input.members() {
            let nice = i64::from(entity.process.nice);
            rankings[index] = Ranking::new(-nice, NICE.number(nice)).with_manner(self.manner);
        }
        None
    }

    fn reads_nice(&self) -> bool {
        true
    }
}
