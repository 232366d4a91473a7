//! KEDF: the k earliest deadlines first.
//!
//! # The rule
//! On each device the k entities with work that have the earliest deadlines run; the others are suspended.
//! The deadline of a queue is the time at which it turned ready plus its hint; that of an entity is the
//! earliest of its queues that have work. Entities without a deadline come after all that have one, those
//! that were ready earlier first. An entity on several devices runs if it is among the k on each of them;
//! otherwise it takes no place on any.
//!
//! k is the highest number that a process with work on the device has hinted, or else the parameter `k`.
//! Priorities do not count, but a queue of priority -256 never runs.
//!
//! # What is different
//! A deadline belongs to its queue and is forgotten with it.
//!
//! # Parameters, wake-ups
//! `k`. The order of those with work changes only when one comes or goes, so there are no wake-ups. A
//! deadline that has passed stays the earliest: in an overload one miss leads to the next. EDF is the policy
//! that gives lost deadlines up. Entities with a later deadline, or with none, can starve, unless
//! `XSCHED_STARVATION_MS` is set.

use crate::deadline::{self, deadline};
use crate::parameter::{Parameter, Values, parameter};
use crate::policy::{Input, Policy, Ranking};
use protocol::operation::EntityId;
use protocol::time::Time;

pub(crate) const PARAMETERS: &[Parameter] = &[parameter!("k" in (1.0, 1e6), default 1.0,
    "the number of entities that run at once on a device, unless a process there has hinted one")];

/// The k earliest deadlines first; see the head of this file. It keeps no state of an entity.
#[derive(Debug, Default)]
pub struct Kedf {
    k: u32,
    /// The members in the order in which they are taken: without a deadline last, then by the deadline or the
    /// time since which they have work, then by what makes the order complete.
    order: Vec<(bool, Time, Time, EntityId, usize)>,
    /// The number of entities that may run on each device.
    limits: Vec<u32>,
    /// The number of entities that run on each device.
    taken: Vec<u32>,
}

impl Policy for Kedf {
    fn configure(&mut self, values: &Values) {
        // The value is within the range, so it fits; a fraction of an entity cannot run.
        self.k = values.get("k") as u32;
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let Self { k, order, limits, taken } = self;
        let (entities, now) = (input.entities, input.now);
        let devices = entities.devices().len();
        order.clear();
        limits.clear();
        limits.resize(devices, 0);
        taken.clear();
        taken.resize(devices, 0);
        for (index, entity) in input.members() {
            let deadline = deadline(entities, entity, now);
            let (at, lead) = deadline.unwrap_or((entity.since, entity.lead));
            order.push((deadline.is_none(), at, entity.since, entity.id, index));
            rankings[index].lead = Some(lead);
            let hinted = entity.process.k_deadline.filter(|_| entity.ready).map_or(0, |k| k.get());
            for used in entities.uses(entity).iter().filter(|used| used.busy) {
                limits[used.device] = hinted.max(limits[used.device]);
            }
        }
        order.sort_unstable();
        for &(undated, at, .., index) in order.iter() {
            let entity = &entities.all()[index];
            let uses = entities.uses(entity);
            let room = uses.iter().all(|used| match limits[used.device] {
                0 => taken[used.device] < *k,
                limit => taken[used.device] < limit,
            });
            if room && entity.ready {
                uses.iter().filter(|used| used.busy).for_each(|used| taken[used.device] += 1);
            }
            // All entities with a place rank alike, so that they run together. An entity without a place is
            // outranked by them on the device where it found none.
            let lead = rankings[index].lead;
            let reason = deadline::reason((!undated).then_some(at), now);
            rankings[index] = Ranking { lead, ..Ranking::new(i64::from(room), reason) };
        }
        None
    }
}
