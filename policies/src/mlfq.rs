//! MLFQ: the multi-level feedback queue.
//!
//! # The rule
//! Every entity begins on level 0. On each device the entity with work on the highest level (0 is the
//! highest) runs, one at a time; those of one level run round robin. A slice lasts `slice-ms` on level 0 and
//! doubles with each level below it: 10, 20, 40, 80 ms. An entity that has used up its slice goes one level
//! down, or to the end of the line on the last level. An entity that a higher level interrupts keeps its
//! place in the line and the rest of its slice. So short work stays in front although no hint says which work
//! is short, and long work gets longer slices. Priorities do not count, but a queue of priority -256 never
//! runs.
//!
//! Time without the device counts as waiting, and time with it is taken off again. After `promote-ms` of
//! waiting the entity goes one level up, to the end of that line, and begins to wait anew.
//!
//! # An entity that turns idle
//! It keeps its level and the used part of its slice, and comes back to the end of its line. So, as in the
//! textbook rule, a program cannot keep its level by a pause shortly before the end of each slice. Unlike in
//! the textbook rule, there is no periodic lift of all entities to the top. Idle time counts as waiting
//! instead, so a program that did nothing for long begins at the top.
//!
//! # What is different
//! No entity starves: a waiting one is on level 0 after `levels` - 1 times `promote-ms`, and those before it
//! leave that level after a slice.
//!
//! # Parameters, wake-ups
//! `levels`, `slice-ms`, `promote-ms`. While several entities want a device, a decision comes when a slice
//! ends there and when an entity has waited for long enough. Slices are device time, so an entity that is
//! interrupted loses nothing.

use crate::parameter::{Parameter, Values, parameter};
use crate::per_entity::PerEntity;
use crate::policy::{Input, Policy, Ranking};
use crate::reason::{ReasonKind, first};
use crate::sched_entity::SchedEntity;
use crate::times::earlier;
use protocol::operation::EntityId;
use protocol::time::Time;
use std::time::Duration;

/// Level of the entity, 0 first.
pub(crate) const LEVEL: &ReasonKind = &ReasonKind::new("Level", |its| format!("is on level {}", first(its)))
    .comparing(|its, own| {
        let (level, own_level) = (first(its), LEVEL.is(&own).then(|| first(own))?);
        Some(match level == own_level {
            true => format!("is on level {level} as well, and its turn comes first"),
            false => format!("is on level {level} < {own_level}"),
        })
    });

pub(crate) const PARAMETERS: &[Parameter] = &[
    parameter!("levels" in (1.0, 16.0), default 4.0, "the number of levels"),
    parameter!("slice-ms" in (0.1, 10_000.0), default 10.0,
        "the slice on the highest level, in milliseconds; it doubles with each level below"),
    parameter!("promote-ms" in (1.0, 1e6), default 100.0,
        "the milliseconds of waiting after which an entity goes one level up"),
];

/// The shortest time to a wake-up. Without it a slice that stands still shortly before its end would cause
/// one wake-up after the other.
const GRAIN: Duration = Duration::from_micros(100);

/// State of an entity.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    level: u32,
    /// The used part of the slice.
    used: Duration,
    /// The time for which it has waited, less the time for which it ran; zero on level 0.
    waited: Duration,
    /// The time at which it joined the line of its level.
    queued: Time,
    /// True if it had work at the last decision.
    ready: bool,
}

/// Parameters of the levels.
#[derive(Debug, Clone, Copy, Default)]
struct Rules {
    levels: u32,
    slice: Duration,
    promote: Duration,
}

/// The multi-level feedback queue; see the head of this file.
#[derive(Debug, Default)]
pub struct Mlfq {
    rules: Rules,
    entries: PerEntity<Entry>,
    /// The time of the last decision.
    at: Option<Time>,
    /// The members in the order in which they are taken: the level, the time in its line, and what makes the
    /// order complete.
    order: Vec<(u32, Time, Time, EntityId, usize)>,
    /// For each device: true if an entity has it, and the number of entities with work that use it.
    devices: Vec<(bool, usize)>,
}

impl Policy for Mlfq {
    fn configure(&mut self, values: &Values) {
        self.rules = Rules {
            levels: values.get("levels") as u32,
            slice: values.millis("slice-ms"),
            promote: values.millis("promote-ms"),
        };
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let Self { rules, entries, at, order, devices } = self;
        let (entities, now) = (input.entities, input.now);
        let passed = now.since(at.unwrap_or(now));
        *at = Some(now);
        let entries = entries.align(entities.all());
        order.clear();
        devices.clear();
        devices.resize(entities.devices().len(), (false, 0));
        for (index, entity) in input.members() {
            let entry = &mut entries[index];
            rules.pass(entry, entity, passed, now);
            // With work an idle entity would join the end of its line.
            let queued = if entity.ready { entry.queued } else { Time(u64::MAX) };
            order.push((entry.level, queued, entity.since, entity.id, index));
            if entity.ready {
                entities.uses(entity).iter().for_each(|used| devices[used.device].1 += 1);
            }
        }
        order.sort_unstable();
        let (mut slice_ends, mut promotion) = (None, None);
        for (&(level, .., index), rank) in order.iter().zip((1..=order.len() as i64).rev()) {
            rankings[index] = Ranking::new(rank, LEVEL.number(level.into()));
            let entity = &entities.all()[index];
            if !entity.ready {
                continue;
            }
            let entry = &entries[index];
            let uses = entities.uses(entity);
            if uses.iter().any(|used| devices[used.device].0) {
                if level > 0 {
                    promotion = earlier(promotion, rules.promote.saturating_sub(entry.waited));
                }
                continue;
            }
            uses.iter().filter(|used| used.busy).for_each(|used| devices[used.device].0 = true);
            // Also if no entity waits, because it might keep another entity from a device on which it has no
            // work itself.
            if uses.iter().any(|used| devices[used.device].1 > 1) {
                slice_ends = earlier(slice_ends, rules.slice(level).saturating_sub(entry.used));
            }
        }
        let next = earlier(slice_ends, promotion);
        next.map(|span| now.after(span.max(GRAIN)))
    }

    fn needs_idle_events(&self) -> bool {
        // Otherwise short work in quick succession would never use up a slice.
        true
    }
}

impl Rules {
    fn slice(&self, level: u32) -> Duration {
        self.slice * (1 << level)
    }

    /// Brings the state of an entity up to date.
    fn pass(&self, entry: &mut Entry, entity: &SchedEntity, passed: Duration, now: Time) {
        let last = self.levels - 1;
        entry.level = entry.level.min(last);
        entry.used += entity.ran;
        entry.waited = (entry.waited + passed.saturating_sub(entity.ran)).saturating_sub(entity.ran);
        while entry.used >= self.slice(entry.level) {
            let slice = self.slice(entry.level);
            if entry.level == last {
                // Any number of slices may have passed.
                let rest = entry.used.as_nanos() % slice.as_nanos();
                entry.used = Duration::from_nanos(rest.try_into().unwrap_or(0));
            } else {
                entry.used -= slice;
                entry.level += 1;
            }
            entry.waited = Duration::ZERO;
            entry.queued = now;
        }
        while entry.level > 0 && entry.waited >= self.promote {
            entry.level -= 1;
            entry.waited -= self.promote;
            entry.used = Duration::ZERO;
            entry.queued = now;
        }
        if entry.level == 0 {
            entry.waited = Duration::ZERO;
        }
        if entity.ready && !entry.ready {
            entry.queued = entity.since;
        }
        entry.ready = entity.ready;
    }
}
