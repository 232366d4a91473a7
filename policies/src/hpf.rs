//! HPF: highest priority first.
//!
//! # The rule
//! On each device every unit runs whose priority equals the highest among those that run there and have work there; the
//! rest are suspended. Units of equal priority share the device. [`Priority::NO_EXECUTE`] never runs.
//!
//! # Gangs on several devices
//! A unit runs on all its devices or on none. Ready units are taken in the order of falling priority, and each runs
//! unless a unit of *strictly* higher priority that has work on one of its devices runs already. Hence
//!
//! 1. a ready unit is suspended only if one of strictly higher priority runs and has work on a device that it uses;
//! 2. a unit that cannot run, because it is outranked elsewhere, keeps nobody from running meanwhile: work of lower
//!    priority may use the device, and gives it back as soon as the waiting unit can run;
//! 3. a device whose ready units are all suspended is one on which each of them also uses another device, and is
//!    outranked there.
//!
//! By induction over falling priorities exactly one decision has these properties; equal priorities never compete, so
//! no tie has to be broken. It is made at once for all units and never from what is held already: nobody holds one
//! device while waiting for a second one, so no circle of waiting can arise. A ready unit of the highest priority of all
//! always runs. Ties are ordered (ready first, then smaller name) only to name one unit as the reason.
//!
//! A unit with no work on a device that it uses is outranked there (its work would disturb as soon as it came), but
//! outranks nobody there.
//!
//! # Idle units
//! An idle unit is permitted to run if nobody of higher priority runs on its devices, counted with the highest priority
//! that it can have: the urgent one launches at once when work arrives. A gang whose queues differ in priority may so
//! launch for one of its low queues until the next decision.
//!
//! # The limit
//! Cleared for a unit if no queue on its devices, its own included and idle or not, has a priority above the *lowest* of
//! its own queues: deep work launched now still drains when the unit's priority has fallen to that. Set for a unit that
//! has no queue yet: nothing is known of it.
//!
//! # Parameters, wake-ups
//! None. A low unit can starve as long as a higher one has work.
//!
//! # Cost
//! One sort of the ready units, and a few passes over the devices of all.

use crate::policy::{Input, Policy};
use crate::unit::{Unit, Units};
use protocol::bounds::Priority;
use protocol::operation::{Permit, Reason, Rival};
use protocol::time::Time;
use std::cmp::Reverse;

/// Highest priority first; see the head of this file. What it keeps between decisions is memory only.
#[derive(Debug, Default)]
pub struct Hpf {
    /// Ready units that may execute, by falling priority.
    order: Vec<usize>,
    /// For each device the first unit that runs and has work there: none that follows has a higher priority.
    claims: Vec<Option<usize>>,
    /// For each device the highest priority that any queue of its units has.
    ceilings: Vec<Priority>,
}

impl Policy for Hpf {
    fn decide(&mut self, input: Input<'_>, permits: &mut [Permit]) -> Option<Time> {
        let units = input.units;
        self.note_ceilings(units);
        self.claims.clear();
        self.claims.resize(units.devices().len(), None);
        self.order.clear();
        let executes = |unit: &Unit| unit.priority != Priority::NO_EXECUTE;
        let all = units.all();
        self.order.extend((0..all.len()).filter(|&index| all[index].ready && executes(&all[index])));
        self.order.sort_unstable_by_key(|&index| {
            let unit = &all[index];
            (Reverse(unit.priority), unit.since, unit.id)
        });

        for &index in &self.order {
            let reason = self.reason(units, &all[index]);
            if reason == Reason::Unrivalled {
                for used in units.uses(&all[index]).iter().filter(|used| used.busy) {
                    self.claims[used.device].get_or_insert(index);
                }
            }
            permits[index] = self.permit(units, &all[index], reason);
        }
        for (index, unit) in all.iter().enumerate() {
            if !executes(unit) {
                permits[index] = self.permit(units, unit, Reason::NoExecute);
            } else if !unit.ready {
                permits[index] = self.permit(units, unit, self.reason(units, unit));
            }
        }
        None
    }
}

impl Hpf {
    fn note_ceilings(&mut self, units: &Units) {
        self.ceilings.clear();
        self.ceilings.resize(units.devices().len(), Priority::NO_EXECUTE);
        for unit in units.all() {
            for used in units.uses(unit) {
                let ceiling = &mut self.ceilings[used.device];
                *ceiling = unit.ceiling.max(*ceiling);
            }
        }
    }

    /// Whether the unit runs beside those that have claimed a device so far; if not, the most urgent in its way.
    fn reason(&self, units: &Units, unit: &Unit) -> Reason {
        let mut first: Option<Rival> = None;
        for used in units.uses(unit) {
            let Some(rival) = self.claims[used.device].map(|index| &units.all()[index]) else { continue };
            if rival.priority > first.map_or(unit.priority, |first| first.priority) {
                let device = units.devices()[used.device];
                first = Some(Rival { pid: rival.pid, queue: rival.lead, device, priority: rival.priority });
            }
        }
        first.map_or(Reason::Unrivalled, |by| Reason::Outranked { by, own: unit.priority })
    }

    fn permit(&self, units: &Units, unit: &Unit, reason: Reason) -> Permit {
        let uses = units.uses(unit);
        let limit = uses.is_empty() || uses.iter().any(|used| self.ceilings[used.device] > unit.floor);
        Permit { run: reason == Reason::Unrivalled, limit, reason }
    }
}
