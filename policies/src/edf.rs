//! EDF: earliest deadline first, for as long as it takes.
//!
//! # The rule
//! A queue's deadline is the time at which it turned ready plus its hint; an entity's is the earliest of its queues that
//! have work. The entity's slack is the time until then, less the work that it is expected to have left, less that of those
//! with earlier deadlines on its devices.
//!
//! * An entity whose slack is at most `slack-ms` is *urgent*, and so are those on its devices whose deadlines are earlier.
//!   Urgent entities run before all others.
//! * Any other entity with a deadline ranks by its priority, or by a higher one of somebody behind it on its devices who
//!   has a later deadline. Among equal priorities those with deadlines come before those without.
//! * Entities with deadlines run one at a time on a device, the earliest deadline first, whatever their priorities: these
//!   only say whether they go before entities without deadlines while there is slack.
//! * Entities without a deadline go by priority; equal ones share the device.
//!
//! So if all entities have deadlines and the device can meet them at all, it meets them: that is the theorem of the earliest
//! deadline, which holds as far as taking a device away costs nothing and nobody keeps one for a gap between two pieces of
//! work. Work without deadlines may use what slack there is. What arrives later cannot be counted in advance; `slack-ms` is what is kept for it, and for the cost of switching.
//!
//! # The expected work
//! It is learnt from the entity's own past: the device time from the moment it turns ready until it is idle. A longer period
//! counts at once, a shorter one takes an eighth of the difference off. While nothing is known, and when a period lasts
//! longer than expected, the slack counts as none.
//!
//! # A deadline that has passed
//! It stays urgent for `late-ms`. Then the entity goes behind all on its devices whose deadlines can still be met, and ranks
//! by its priority before those of equal priority without a deadline. Without that one miss would lead to the next, as it
//! does under KEDF (the domino effect).
//!
//! # Parameters, wake-ups
//! `slack-ms` and `late-ms`. It is decided anew when slack runs out beside entities without a deadline (up to 0.1 ms early),
//! and when a deadline has been late for long enough. The order changes with time, so the window always limits. Whoever
//! has no deadline can starve, unless `XSCHED_STARVATION_MS` is set.

use crate::deadline::{self, DEADLINE, NO_DEADLINE, deadline};
use crate::parameter::{Parameter, Values};
use crate::per_entity::PerEntity;
use crate::policy::{Input, Policy, Ranking};
use crate::reason::{PRIORITY, ReasonKind};
use crate::sched_entity::{DeviceUse, SchedEntities, SchedEntity};
use crate::times::earlier;
use protocol::operation::UnitId;
use protocol::time::Time;
use std::time::Duration;

/// The reasons of its row.
pub(crate) const REASONS: &[&ReasonKind] = &[DEADLINE, NO_DEADLINE, PRIORITY];

/// What can be set.
pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "slack-ms",
        meaning: "how many milliseconds of slack are left when an entity turns urgent",
        range: (0.0, 1e6),
        default: 5.0,
    },
    Parameter {
        name: "late-ms",
        meaning: "for how many milliseconds an entity stays urgent after its deadline",
        range: (0.0, 1e6),
        default: 5.0,
    },
];

/// No wake-up comes sooner: slack that exceeds the limit by less counts as none, so that a slack that stands still there
/// does not cause one wake-up after the other.
const GRAIN: Duration = Duration::from_micros(100);
/// Where the ranks of urgent entities begin, above all priorities.
const URGENT: i64 = 1 << 50;
/// The distance between the ranks of two priorities, larger than any number of entities.
const STEP: i64 = 1 << 32;

/// What is known of an entity's work.
#[derive(Debug, Clone, Copy, Default)]
struct History {
    /// Whether it had work at the last decision.
    busy: bool,
    /// The device time that it has had since it turned ready.
    ran: Duration,
    /// What it needs from turning ready to idle.
    expected: Option<Duration>,
}

/// An entity with a deadline, in the order of the derivation: those that are given up come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Dated {
    late: bool,
    deadline: Time,
    since: Time,
    id: UnitId,
    index: usize,
    /// When it must have the device at the latest, if everybody before it takes what is expected; none: always.
    latest: Option<Time>,
    urgent: bool,
    /// By which it ranks if it is not urgent.
    priority: i64,
}

/// What comes together on a device.
#[derive(Debug, Clone, Copy, Default)]
struct Device {
    /// When it would be done with those that have been looked at, if they ran at once.
    free: Option<Time>,
    /// Somebody urgent has work there, of those that have been looked at.
    urgent: bool,
    /// The highest priority of those with work and a deadline, of those that have been looked at.
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
    /// When the last decision was.
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

    fn hears_idle(&self) -> bool {
        // Or else it would not learn when a period ends that nobody waits for.
        true
    }
}

impl Edf {
    /// From the earliest deadline to the latest: when each would have to begin, were all before it done.
    fn note_latest(&mut self, entities: &SchedEntities, now: Time) {
        let histories = self.histories.align(entities.all());
        for dated in self.order.iter_mut().take_while(|dated| !dated.late) {
            let entity = &entities.all()[dated.index];
            let uses = entities.uses(entity);
            let begin = uses.iter().filter_map(|used| self.devices[used.device].free).max().unwrap_or(now);
            let left = histories[dated.index].left();
            // Unknown work takes all the time that there is.
            let end = left.map_or(begin.max(dated.deadline), |left| begin.after(left));
            // By so much all could begin later.
            dated.latest = left.map(|_| now.after(dated.deadline.since(end)));
            if entity.ready {
                busy(uses).for_each(|used| self.devices[used.device].free = Some(end));
            }
        }
    }

    /// From the latest deadline to the earliest: who is urgent, and by which priority the others rank.
    fn note_standings(&mut self, entities: &SchedEntities, now: Time, rankings: &mut [Ranking]) {
        let devices = &mut self.devices;
        let soon = now.after(self.slack).after(GRAIN);
        for (dated, turn) in self.order.iter_mut().rev().zip(1..) {
            let entity = &entities.all()[dated.index];
            let uses = entities.uses(entity);
            dated.urgent = !dated.late && dated.latest.is_none_or(|latest| latest < soon);
            for used in uses {
                let Device { urgent, priority, .. } = devices[used.device];
                dated.urgent |= urgent;
                dated.priority = priority.map_or(dated.priority, |priority| priority.max(dated.priority));
            }
            let rank = if dated.urgent { URGENT } else { dated.priority * STEP } + turn;
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

    /// When somebody's slack will be used up by entities without a deadline, or somebody has been late for too long.
    fn wake(&self, entities: &SchedEntities, now: Time) -> Option<Time> {
        let mut wake: Option<Time> = None;
        for dated in self.order.iter().filter(|dated| !dated.late) {
            let entity = &entities.all()[dated.index];
            if !entity.ready {
                continue;
            }
            wake = earlier(wake, dated.deadline.after(self.late));
            // Where somebody with a deadline runs, that is part of what was reckoned with, and the slack stays.
            let outranked = |used: &DeviceUse| {
                let Device { urgent, plain, priority, .. } = self.devices[used.device];
                !urgent && plain > priority.max(Some(dated.priority))
            };
            if let Some(latest) = dated.latest.filter(|_| !dated.urgent)
                && entities.uses(entity).iter().any(outranked)
            {
                // It lies more than a grain after now, or the entity would be urgent.
                wake = earlier(wake, now.after(latest.since(now).saturating_sub(self.slack)));
            }
        }
        wake
    }
}

impl History {
    /// Takes in what the entity has done from the decision at `at` until now.
    fn learn(&mut self, entity: &SchedEntity, at: Time, now: Time) {
        if !self.busy {
            self.ran = if entity.working { entity.ran } else { Duration::ZERO };
            self.busy = entity.working;
            return;
        }
        let had_device = entity.running || !entity.ran.is_zero();
        let until = |end: Time| if had_device { end.since(at) } else { Duration::ZERO };
        if !entity.working {
            // A moment in which it only counts as ready is no work.
            let end = entity.idle_since.unwrap_or(at);
            self.finish(until(end));
            self.busy = false;
        } else if entity.since > at {
            // It was idle in between. What of the time was work is not known; less is not assumed.
            self.finish(until(entity.since));
            self.ran = entity.ran.min(now.since(entity.since));
        } else {
            self.ran += entity.ran;
        }
    }

    /// A period has ended after this much more.
    fn finish(&mut self, more: Duration) {
        let took = std::mem::take(&mut self.ran) + more;
        if took.is_zero() {
            // It never had the device, so what it wanted to do is not known.
            return;
        }
        self.expected = Some(match self.expected {
            Some(expected) if took < expected => expected - (expected - took) / 8,
            _ => took,
        });
    }

    /// What is expected to be left to do, if that is known.
    fn left(&self) -> Option<Duration> {
        let expected = self.expected?;
        if self.busy { expected.checked_sub(self.ran) } else { Some(expected) }
    }
}

fn busy(uses: &[DeviceUse]) -> impl Iterator<Item = &DeviceUse> {
    uses.iter().filter(|used| used.busy)
}
