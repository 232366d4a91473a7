//! EDF: earliest deadline first, while the deadline can be met.
//!
//! # The rule
//! The deadline of a queue is the time at which it turned ready plus its hint; that of an entity is the
//! earliest of its queues that have work. The slack of an entity is the time until its deadline, less the
//! work that it is expected to have left, less that of the entities with earlier deadlines on its devices.
//!
//! * An entity whose slack is at most `slack-ms` is *urgent*, and so are those on its devices with earlier
//!   deadlines. Urgent entities run before all others.
//! * Any other entity with a deadline ranks by its priority, or by a higher priority of an entity with a
//!   later deadline on its devices. Among equal priorities those with deadlines come before those without.
//! * Entities with deadlines run one at a time on a device, the earliest deadline first, whatever their
//!   priorities. The priorities only decide whether they run before entities without deadlines while there is
//!   slack.
//! * Entities without a deadline rank by priority; equal ones share the device.
//!
//! So if all entities have deadlines and the device can meet them at all, it meets them. That is the theorem
//! of the earliest deadline; it holds as far as switching costs nothing and no entity keeps a device during a
//! gap between two pieces of work. Work without deadlines may use the slack. Work that arrives later cannot
//! be counted in advance; `slack-ms` is kept for it, and for the cost of switching.
//!
//! # The expected work
//! The expected work is learnt from the entity's own past: the device time from the time at which it turns
//! ready until it is idle. A longer period counts at once, a shorter one takes an eighth of the difference
//! off. While nothing is known, and when a period lasts longer than expected, the slack counts as zero.
//!
//! # A deadline that has passed
//! The entity stays urgent for `late-ms`. Then it ranks behind all on its devices whose deadlines can still
//! be met, and by its priority before those of equal priority without a deadline. Otherwise one miss would
//! lead to the next, as it does under KEDF (the domino effect).
//!
//! # Parameters, wake-ups
//! `slack-ms` and `late-ms`. A decision comes when slack runs out beside entities without a deadline (up to
//! 0.1 ms early), and when a deadline has been late for long enough. The order changes with time, so the
//! window limits where others use the device. Entities without a deadline can starve, unless `XSCHED_STARVATION_MS` is set.

use crate::deadline::{self, DEADLINE, NO_DEADLINE, deadline};
use crate::parameter::{Parameter, Values, parameter};
use crate::per_entity::PerEntity;
use crate::policy::{Input, Policy, Ranking};
use crate::reason::{PRIORITY, ReasonKind};
use crate::sched_entity::{DeviceUse, SchedEntities, SchedEntity};
use crate::slice::busy;
use crate::times::earlier;
use protocol::operation::EntityId;
use protocol::time::Time;
use std::time::Duration;

pub(crate) const REASONS: &[&ReasonKind] = &[DEADLINE, NO_DEADLINE, PRIORITY];

pub(crate) const PARAMETERS: &[Parameter] = &[
    parameter!("slack-ms" in (0.0, 1e6), default 5.0,
        "the milliseconds of slack at which an entity turns urgent"),
    parameter!("late-ms" in (0.0, 1e6), default 5.0,
        "the milliseconds for which an entity stays urgent after its deadline"),
];

/// The shortest time to a wake-up. Slack that exceeds the limit by less counts as none; otherwise a slack
/// that stands still there would cause one wake-up after the other.
const GRAIN: Duration = Duration::from_micros(100);
/// The lowest rank of urgent entities, above all priorities.
const URGENT: i64 = 1 << 50;
/// The distance between the ranks of two priorities, larger than any number of entities.
const STEP: i64 = 1 << 32;

/// The work of an entity so far.
#[derive(Debug, Clone, Copy, Default)]
struct History {
    /// True if it had work at the last decision.
    busy: bool,
    /// The device time that it has had since it turned ready.
    ran: Duration,
    /// The device time that it needs from turning ready to idle.
    expected: Option<Duration>,
}

/// An entity with a deadline, in the order of the derivation: those that are given up come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Dated {
    late: bool,
    deadline: Time,
    since: Time,
    id: EntityId,
    index: usize,
    /// The latest time at which it must have the device, if all before it take as long as expected; `None`:
    /// now.
    latest: Option<Time>,
    urgent: bool,
    /// The priority by which it ranks if it is not urgent.
    priority: i64,
}

/// The state of a device while the entities are looked at one after the other.
#[derive(Debug, Clone, Copy, Default)]
struct Device {
    /// The time at which those looked at so far would be done, if they ran at once.
    free: Option<Time>,
    /// True if an urgent entity, of those looked at so far, has work there.
    urgent: bool,
    /// The highest priority of those with work and a deadline, of those looked at so far.
    priority: Option<i64>,
    /// The highest priority of those with work and without a deadline.
    plain: Option<i64>,
}

/// Earliest deadline first; see the head of this file.
#[derive(Debug, Default)]
pub struct Edf {
    slack: Duration,
    late: Duration,
    histories: PerEntity<History>,
    /// The time of the last decision.
    at: Time,
    order: Vec<Dated>,
    devices: Vec<Device>,
}

impl Policy for Edf {
    fn configure(&mut self, values: &Values) {
        [self.slack, self.late] = ["slack-ms", "late-ms"].map(|name| values.millis(name));
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let (entities, now) = (input.entities, input.now);
        let histories = self.histories.align(entities.all());
        for (history, entity) in histories.iter_mut().zip(entities.all()) {
            history.learn(entity, self.at, now);
        }
        self.at = now;
        self.devices.clear();
        self.devices.resize(entities.devices().len(), Device::default());
        self.order.clear();
        for (index, entity) in input.members() {
            let priority = i64::from(entity.priority);
            if let Some((deadline, lead)) = deadline(entities, entity, now) {
                rankings[index].lead = Some(lead);
                let late = deadline.after(self.late) <= now;
                let (since, id) = (entity.since, entity.id);
                let (latest, urgent) = (None, false);
                self.order.push(Dated { late, deadline, since, id, index, latest, urgent, priority });
                continue;
            }
            rankings[index] = Ranking::new(priority * STEP, PRIORITY.number(priority));
            for used in entities.uses(entity).iter().filter(|used| used.busy) {
                let plain = &mut self.devices[used.device].plain;
                *plain = Some(priority).max(*plain);
            }
        }
        self.order.sort_unstable();
        self.note_latest(entities, now);
        self.note_standings(entities, now, rankings);
        self.wake(entities, now)
    }

    fn needs_idle_events(&self) -> bool {
        // Otherwise it would not learn when a period ends that no entity waits for.
        true
    }
}

impl Edf {
    /// Notes, from the earliest deadline to the latest, when each entity must begin if all before it are
    /// done.
    fn note_latest(&mut self, entities: &SchedEntities, now: Time) {
        let histories = self.histories.align(entities.all());
        for dated in self.order.iter_mut().take_while(|dated| !dated.late) {
            let entity = &entities.all()[dated.index];
            let uses = entities.uses(entity);
            let begin = uses.iter().filter_map(|used| self.devices[used.device].free).max().unwrap_or(now);
            let left = histories[dated.index].left();
            // Work of unknown length takes all the time that there is.
            let end = left.map_or(begin.max(dated.deadline), |left| begin.after(left));
            // All could begin later by this much.
            dated.latest = left.map(|_| now.after(dated.deadline.since(end)));
            if entity.ready {
                busy(uses).for_each(|used| self.devices[used.device].free = Some(end));
            }
        }
    }

    /// Notes, from the latest deadline to the earliest, which entities are urgent, and the priorities of the
    /// others.
    fn note_standings(&mut self, entities: &SchedEntities, now: Time, rankings: &mut [Ranking]) {
        let devices = &mut self.devices;
        let soon = now.after(self.slack).after(GRAIN);
        for (dated, position) in self.order.iter_mut().rev().zip(1..) {
            let entity = &entities.all()[dated.index];
            let uses = entities.uses(entity);
            dated.urgent = !dated.late && dated.latest.is_none_or(|latest| latest < soon);
            for used in uses {
                let Device { urgent, priority, .. } = devices[used.device];
                dated.urgent |= urgent;
                dated.priority = priority.map_or(dated.priority, |priority| priority.max(dated.priority));
            }
            let rank = if dated.urgent { URGENT } else { dated.priority * STEP } + position;
            let lead = rankings[dated.index].lead;
            rankings[dated.index] =
                Ranking { lead, ..Ranking::new(rank, deadline::reason(Some(dated.deadline), now)) };
            for used in busy(uses) {
                let device = &mut devices[used.device];
                device.urgent |= dated.urgent;
                device.priority = Some(dated.priority).max(device.priority);
            }
        }
    }

    /// Returns the time at which entities without a deadline will have used up the slack of another one, or
    /// at which a deadline has been late for too long.
    fn wake(&self, entities: &SchedEntities, now: Time) -> Option<Time> {
        let mut wake: Option<Time> = None;
        for dated in self.order.iter().filter(|dated| !dated.late) {
            let entity = &entities.all()[dated.index];
            if !entity.ready {
                continue;
            }
            wake = earlier(wake, dated.deadline.after(self.late));
            // Where an entity with a deadline runs, its work was counted already, and the slack stays.
            let outranked = |used: &DeviceUse| {
                let Device { urgent, plain, priority, .. } = self.devices[used.device];
                !urgent && plain > priority.max(Some(dated.priority))
            };
            if let Some(latest) = dated.latest.filter(|_| !dated.urgent)
                && entities.uses(entity).iter().any(outranked)
            {
                // This time lies more than a grain after now, because otherwise the entity would be urgent.
                wake = earlier(wake, now.after(latest.since(now).saturating_sub(self.slack)));
            }
        }
        wake
    }
}

impl History {
    /// Learns from what the entity has done between the decision at `at` and now.
    fn learn(&mut self, entity: &SchedEntity, at: Time, now: Time) {
        if !self.busy {
            self.ran = if entity.working { entity.ran } else { Duration::ZERO };
            self.busy = entity.working;
            return;
        }
        let had_device = entity.running || !entity.ran.is_zero();
        let until = |end: Time| if had_device { end.since(at) } else { Duration::ZERO };
        if !entity.working {
            // A time in which it only counts as ready is no work.
            let end = entity.idle_since.unwrap_or(at);
            self.finish(until(end));
            self.busy = false;
        } else if entity.since > at {
            // It was idle in between. Assume that it worked all that time, because how much of it is unknown.
            self.finish(until(entity.since));
            self.ran = entity.ran.min(now.since(entity.since));
        } else {
            self.ran += entity.ran;
        }
    }

    /// Ends a period after so much more device time.
    fn finish(&mut self, more: Duration) {
        let took = std::mem::take(&mut self.ran) + more;
        if took.is_zero() {
            // It never had the device, so the length of its work is unknown.
            return;
        }
        self.expected = Some(match self.expected {
            Some(expected) if took < expected => expected - (expected - took) / 8,
            _ => took,
        });
    }

    /// Returns the work that is expected to be left, if that is known.
    fn left(&self) -> Option<Duration> {
        let expected = self.expected?;
        if self.busy { expected.checked_sub(self.ran) } else { Some(expected) }
    }
}
