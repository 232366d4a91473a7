//! LCBE: latency-critical and best-effort classes, and devices that are clear when critical work comes.
//!
//! # The rule
//! The priority of an entity is its class; classes above `critical-above` are latency-critical, the others best effort. On
//! each device the entities of the highest class that has work run, and the rest is suspended.
//!
//! Within a class all run together, or one after the other if `slice-ms` is set: whoever has used up its slice, or turns
//! ready, stands at the end of the line. With a `slice-growth` of 2 each class has a slice twice as long as the class
//! above it: the lower, the longer and the rarer. An entity that a higher class interrupts keeps its place and what is left
//! of its slice.
//!
//! An entity with a queue that has work and is hinted not to be preemptible is not suspended once it runs, until that is idle,
//! whatever its class: critical work runs *beside* it and shares the device with it, and a device that is cleared ahead of
//! time is not cleared of it. So each such hint is paid for with the latency of the classes above. It is for work that
//! would be lost or blocks others when it is stopped, in short pieces. Under `xserver` the entity is the whole process, with
//! its other queues. The guards against starvation and standstill may suspend it all the same. No other policy looks at
//! this hint.
//!
//! # Cleared ahead of time
//! Taking a device away from best-effort work takes time. If it is known when an idle critical entity will have work, its
//! devices are kept free from `lead-us` before that time on: lower classes are suspended already when the work arrives.
//! The same and higher classes are not. A hint says when that is (the arrival of a queue's hints, an absolute time; of
//! several the next one counts); the devices are given back `grace-us` after that time if no work has come.
//!
//! Without a hint it is learnt from the arrivals before (`learn`, `method`), if they are regular enough: then the devices
//! are kept free from `lead-us` and a margin before the expected time until a margin after it. The margins follow the
//! errors; for work that comes at random they would be too large, and nothing is kept free. After three misses in a row
//! nothing is expected until work comes.
//!
//! A hint is answered by the first work that arrives later than `lead-us` before its time, and by work that the entity has
//! at its time. One that is told too late to be prepared for holds at once.
//!
//! # What may be lost
//! A device may be kept free for nothing for `waste-percent` of any 10 s, whatever is hinted and whatever comes; whether
//! anybody would have used it makes no difference. Each time is paid for in advance: if too little is left, the devices
//! are not kept free. Work that does come costs best effort `lead-us` and the margin of the device, which is not counted.
//!
//! Counted are: `reserved`, how often devices were kept free; of these `hit` if work came, `missed` if it did not, and
//! `withdrawn` if it was not expected any more or the entity had gone; `refused`, how often the budget was spent;
//! `wasted-us`, what was missed and withdrawn, in microseconds.
//!
//! # Parameters, wake-ups
//! It wakes up when a device has to be cleared or given back, and when a slice ends for which somebody waits. Hints of a
//! slice are not looked at. At level 3, where taking a device away is fast, `lead-us` can be about 100; at level 1 it
//! should be about as long as the longest kernel. A lower class can starve, unless `XSCHED_STARVATION_MS` is set.

mod budget;
mod expectation;
mod order;

use crate::parameter::{CRITICAL_ABOVE, Parameter, Values};
use crate::per_entity::PerEntity;
use crate::policy::{Input, Policy, Ranking};
use crate::reason::{self, EXPECTED, Millis, ReasonKind, UNINTERRUPTED, first, second};
use crate::sched_entity::{SchedEntities, SchedEntity};
use crate::times::earlier;
use expectation::{Keeper, Outlook, Settings, Watch};
use order::{Classes, Order, Slices, Turn};
use protocol::rank_reason::RankReason;
use protocol::time::Time;
use std::time::Duration;

/// Class of the entity; the higher one comes first.
pub(crate) const CLASS: &ReasonKind = &ReasonKind::new("Class", |its| format!("is of class {}", first(its)))
    .comparing(|its, own| match CLASS.is(&own) {
        true => Some(higher_class(its, own)),
        false => other_class(its, own),
    });

/// The entity has the slice of its class: the class, and the microseconds that are left.
pub(crate) const CLASS_SLICE: &ReasonKind = &ReasonKind::new("ClassTurn", |its| {
    format!("has the turn of class {} for {} more", first(its), Millis(second(its)))
})
.comparing(|its, own| {
    let slice = || CLASS_WAITS.is(&own).then(|| reason::slice_before(second(its), second(own)));
    other_class(its, own).or_else(slice)
});

/// The entity waits for the slice of its class: the class, and the number of others whose slices come first.
pub(crate) const CLASS_WAITS: &ReasonKind = &ReasonKind::new("ClassWaits", |its| {
    format!("waits for the turn of class {} behind {}", first(its), second(its))
})
.comparing(other_class);

/// Compares two entities of different classes.
fn other_class(its: RankReason, own: RankReason) -> Option<String> {
    let has_class = [CLASS, CLASS_SLICE, CLASS_WAITS].iter().any(|kind| kind.is(&own));
    (has_class && first(its) != first(own)).then(|| higher_class(its, own))
}

fn higher_class(its: RankReason, own: RankReason) -> String {
    format!("is of class {} > {}", first(its), first(own))
}

/// The reasons of its row.
pub(crate) const REASONS: &[&ReasonKind] = &[CLASS, CLASS_SLICE, CLASS_WAITS, EXPECTED, UNINTERRUPTED];

/// What can be set.
pub(crate) const PARAMETERS: &[Parameter] = &[
    CRITICAL_ABOVE,
    Parameter {
        name: "slice-ms",
        meaning: "how long an entity runs before the next one of its class; 0: all of a class run together",
        range: (0.0, 10_000.0),
        default: 0.0,
    },
    Parameter {
        name: "slice-growth",
        meaning: "how many times as long the slice of each lower class is, up to 10 s",
        range: (1.0, 16.0),
        default: 1.0,
    },
    Parameter {
        name: "lead-us",
        meaning: "how long before expected work its devices are cleared",
        range: (0.0, 100_000.0),
        default: 500.0,
    },
    Parameter {
        name: "grace-us",
        meaning: "how long after a hinted time the devices stay clear for work that has not come",
        range: (0.0, 100_000.0),
        default: 1_000.0,
    },
    Parameter {
        name: "waste-percent",
        meaning: "the share of time in which a device may be kept free for work that does not come",
        range: (0.0, 100.0),
        default: 2.0,
    },
    Parameter {
        name: "learn",
        meaning: "1: it is learnt when an entity has work, and used where nothing is hinted; 0: it is not",
        range: (0.0, 1.0),
        default: 1.0,
    },
    Parameter {
        name: "method",
        meaning: "accepted for old scripts, without effect: a repeating pattern (1) is always learnt",
        range: (0.0, 2.0),
        default: PATTERN,
    },
];

/// The only method of learning that is left.
const PATTERN: f64 = 1.0;

/// Returns the line for a user who asks for a method of learning that was removed.
pub(crate) fn removed_method(values: &Values) -> Option<String> {
    let method = values.get("method");
    (method.floor() != PATTERN)
        .then(|| format!("LCBE learns a repeating pattern (method 1): method {method} was removed"))
}

/// Ranks of one class lie within so many.
const STRIDE: i64 = 1 << 32;

/// Latency-critical and best-effort classes; see the head of this file.
#[derive(Debug, Default)]
pub struct Lcbe {
    keeper: Keeper,
    slices: Slices,
    order: Order,
    entries: PerEntity<Entry>,
}

/// What is remembered of an entity.
#[derive(Debug, Default)]
struct Entry {
    watch: Watch,
    turn: Turn,
    /// It has begun what is not to be interrupted.
    begun: bool,
}

fn settings(values: &Values) -> Settings {
    Settings {
        above: values.get(CRITICAL_ABOVE.name) as i32,
        lead: values.micros("lead-us"),
        grace: values.micros("grace-us"),
        waste: values.get("waste-percent") / 1e2,
        learn: values.get("learn") >= 0.5,
    }
}

fn slices(values: &Values) -> Slices {
    Slices { first: values.millis("slice-ms"), growth: values.get("slice-growth") }
}

impl Policy for Lcbe {
    fn configure(&mut self, values: &Values) {
        self.keeper.configure(settings(values));
        self.slices = slices(values);
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let Input { entities, now, .. } = input;
        let takes_turns = !self.slices.first.is_zero();
        let entries = self.entries.align(entities.all());
        let mut wake = None;
        let mut classes = Classes::default();
        let mut highest = i64::MIN;
        let mut members = input.members.iter().copied().peekable();
        self.order.firm.clear();
        self.keeper.begin();
        for (index, (entity, entry)) in entities.all().iter().zip(entries.iter_mut()).enumerate() {
            if members.next_if_eq(&index).is_none() {
                self.keeper.leave(&mut entry.watch, now);
                (entry.turn, entry.begun) = Default::default();
                continue;
            }
            let Outlook { reserves, wake: look } = self.keeper.look(&mut entry.watch, entity, entities, now);
            wake = earlier(wake, look);
            classes.insert(entity.priority.get());
            highest = highest.max(entity.ceiling.into());
            entry.begun = entity.working && is_firm(entity, entities) && (entity.running || entry.begun);
            if entry.begun {
                self.order.firm.push(index);
            }
            let class = i64::from(entity.priority);
            let reason = match reserves {
                Some(expected) => EXPECTED.number(micros(now, expected)),
                None => CLASS.number(class),
            };
            rankings[index] =
                Ranking { reserves: reserves.is_some(), ..Ranking::new(class * STRIDE, reason) };
        }
        self.keeper.end(now);
        for (index, entity) in input.members() {
            if takes_turns {
                let slice = self.slices.of(classes.above(entity.priority.get()));
                let Entry { turn, begun, .. } = &mut entries[index];
                turn.note(entity.ready, *begun, entity.ran, slice, now);
            } else {
                let may_rise = entities.queues(entity).iter().any(|queue| !queue.hints.preemptible);
                let ceiling = if may_rise { highest } else { entity.ceiling.into() };
                rankings[index].range = Some((i64::from(entity.floor) * STRIDE, ceiling * STRIDE));
            }
        }
        if takes_turns || !self.order.firm.is_empty() {
            let turn = |index: usize| (entries[index].turn, entries[index].begun);
            wake = earlier(wake, self.order.arrange(&input, turn, takes_turns, rankings));
        }
        wake
    }

    fn hears_idle(&self) -> bool {
        self.keeper.learns()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.keeper.counters()
    }
}

/// Whether a queue with work is not to be interrupted.
fn is_firm(entity: &SchedEntity, entities: &SchedEntities) -> bool {
    entities.queues(entity).iter().any(|queue| queue.ready_since.is_some() && !queue.hints.preemptible)
}

/// Microseconds from now until then; negative if that has passed.
fn micros(now: Time, then: Time) -> i64 {
    let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    if then >= now { micros(then.since(now)) } else { -micros(now.since(then)) }
}
