//! LCBE: latency-critical and best-effort classes, with devices that are clear when critical work arrives.
//!
//! # The rule
//! The priority of an entity is its class. Classes above `critical-above` are latency-critical, the others
//! best effort. On each device the entities of the highest class that has work run; the others are suspended.
//! The class hint of a queue (`XHintClass`) overrides its priority: a latency-critical queue has at least the
//! class `critical-above` + 1, a best-effort queue at most `critical-above`.
//!
//! Within a class all run together, or round robin if `slice-ms` is set: an entity that has used up its
//! slice, or turns ready, goes to the end of the line. With a `slice-growth` of 2 each class has a slice
//! twice as long as the class above it: the lower the class, the longer and rarer its slices. An entity that
//! a higher class interrupts keeps its place and the rest of its slice.
//!
//! Some queues are hinted not to be preemptible. An entity with such a queue that has work is not suspended
//! once it runs, until that queue is idle, whatever its class: critical work runs *beside* it and shares the
//! device with it, and a device that is cleared ahead of time is not cleared of it. So each such hint costs
//! the classes above latency. It is meant for short work that would be lost or would block others when it is
//! stopped. Under `xserver` the entity is the whole process, with its other queues. The guards against
//! starvation and standstill may suspend it all the same. No other policy uses this hint.
//!
//! # Cleared ahead of time
//! To take a device away from best-effort work takes time. If it is known when an idle critical entity will
//! have work, its devices are kept free from `lead-us` before that time on: lower classes are suspended
//! already when the work arrives. The same and higher classes are not. A hint gives that time (the arrival of
//! a queue's hints, an absolute time; of several the next one counts). The devices are given back `grace-us`
//! after that time if no work has come.
//!
//! Without a hint the time is learnt from earlier arrivals (`learn`), if they are regular enough. Then the
//! devices are kept free from `lead-us` and a margin before the expected time until a margin after it. The
//! margins follow the errors; for work that comes at random they would be too large, and nothing is kept
//! free. After three misses in a row nothing is expected until work comes.
//!
//! The first work that arrives later than `lead-us` before the time of a hint answers the hint, and so does
//! work that the entity has at that time. A hint that comes too late to prepare for it holds at once.
//!
//! # What may be lost
//! A device may be kept free for work that does not come for at most `waste-percent` of any 10 s, whatever
//! the hints say. Time counts as lost even if no other entity would have used the device. Each window is
//! paid for in advance: if too little is left, the devices are not kept free. Work that does come costs
//! best effort `lead-us` and the margin of the device, which is not counted.
//!
//! Counters: `reserved`, windows in which devices were kept free; of these `hit` if work came, `missed` if it
//! did not, and `withdrawn` if it was not expected any more or the entity had gone; `refused`, windows for
//! which the budget was spent; `wasted-us`, the time of those missed and withdrawn, in microseconds.
//!
//! # Gaps
//! An idle entity keeps its devices for as long as its earlier gaps suggest (`gaps`), as under HPF, with the
//! counters of HPF. With slices it keeps them for 200 µs.
//!
//! # The share of suspended entities
//! With `share-percent` an entity that is outranked goes on at level 3 on a part of the compute units, as under HPF. With
//! slices it does not. `queues-first` is as under HPF as well, without slices.
//!
//! # Parameters, wake-ups
//! It wakes up when a device has to be cleared or given back, and when a slice ends for which another entity
//! waits. Hints of a slice are not used. At level 3, where taking a device away is fast, `lead-us` can be
//! about 100; at level 1 it should be about as long as the longest kernel. A lower class can starve, unless
//! `XSCHED_STARVATION_MS` is set.

mod budget;
mod class;
mod expectation;
mod order;

use crate::memo::Memo;
use crate::parameter::{CRITICAL_ABOVE, FIRST, GAPS, Parameter, SHARE, SLOWDOWN, Values, parameter};
use crate::per_entity::PerEntity;
use crate::policy::{Input, Manner, Policy, Ranking};
use crate::reason::{self, EXPECTED, Millis, ReasonKind, UNINTERRUPTED, first, second};
use crate::times::{earlier, micros};
use class::{ClassRange, QueueSums};
use expectation::{Keeper, Outlook, Settings, Watch};
use order::{ClassSlice, Classes, Order, Slices};
use protocol::rank_reason::RankReason;
use protocol::time::Time;

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

pub(crate) const REASONS: &[&ReasonKind] = &[CLASS, CLASS_SLICE, CLASS_WAITS, EXPECTED, UNINTERRUPTED];

pub(crate) const PARAMETERS: &[Parameter] = &[
    CRITICAL_ABOVE,
    parameter!("slice-ms" in (0.0, 10_000.0), default 0.0,
        "the slice of an entity within its class; 0: all of a class run together"),
    parameter!("slice-growth" in (1.0, 16.0), default 1.0,
        "the factor from the slice of a class to that of the next lower one, up to 10 s"),
    parameter!("lead-us" in (0.0, 100_000.0), default 500.0,
        "the time before expected work at which its devices are cleared"),
    parameter!("grace-us" in (0.0, 100_000.0), default 1_000.0,
        "the time after a hinted time for which the devices stay clear for work that has not come"),
    parameter!("waste-percent" in (0.0, 100.0), default 2.0,
        "the share of time in which a device may be kept free for work that does not come"),
    parameter!("learn" in (0.0, 1.0), default 1.0,
        "1: arrivals of work are learnt, and used where nothing is hinted; 0: they are not"),
    parameter!("method" in (0.0, 2.0), default PATTERN,
        "accepted for old scripts, without effect: a repeating pattern (1) is always learnt"),
    GAPS,
    SHARE,
    SLOWDOWN,
    FIRST,
];

/// The number of the only method of learning.
const PATTERN: f64 = 1.0;

/// Returns the line for a user who asks for a method of learning that was removed.
pub(crate) fn removed_method(values: &Values) -> Option<String> {
    let method = values.get("method");
    (method.floor() != PATTERN)
        .then(|| format!("LCBE learns a repeating pattern (method 1): method {method} was removed"))
}

/// The range of ranks of one class.
const STRIDE: i64 = 1 << 32;

/// Latency-critical and best-effort classes; see the head of this file.
#[derive(Debug, Default)]
pub struct Lcbe {
    keeper: Keeper,
    slices: Slices,
    order: Order,
    entries: PerEntity<Entry>,
    manner: Manner,
}

/// State of an entity.
#[derive(Debug, Default)]
struct Entry {
    watch: Watch,
    memo: Memo<QueueSums>,
    classes: ClassRange,
    may_rise: bool,
    slice: ClassSlice,
    /// True once it has begun work that must not be interrupted.
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
        // Classes follow from the settings as well.
        self.entries.values_mut().iter_mut().for_each(|entry| entry.memo = Memo::default());
        self.slices = slices(values);
        // Within a slice a gap costs the entity itself.
        self.manner = if self.slices.first.is_zero() { values.manner() } else { Manner::default() };
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let Input { entities, now, .. } = input;
        let has_slices = !self.slices.first.is_zero();
        let entries = self.entries.align(entities.all());
        let mut wake = None;
        let mut all_classes = Classes::default();
        let mut highest = i64::MIN;
        let mut members = input.members.iter().copied().peekable();
        self.order.uninterrupted.clear();
        self.keeper.begin();
        for (index, (entity, entry)) in entities.all().iter().zip(entries.iter_mut()).enumerate() {
            if members.next_if_eq(&index).is_none() {
                self.keeper.leave(&mut entry.watch, now);
                (entry.slice, entry.begun) = Default::default();
                continue;
            }
            let above = self.keeper.above();
            let queues = entry.memo.get(entity, || class::sums_of(entity, entities, above));
            (entry.classes, entry.may_rise) = (queues.classes, queues.may_rise);
            let ClassRange { class, ceiling, .. } = queues.classes;
            let Outlook { reserves, wake: look } =
                self.keeper.look(&mut entry.watch, entity, queues, entities, now);
            wake = earlier(wake, look);
            all_classes.insert(class);
            highest = highest.max(ceiling.into());
            entry.begun = entity.working && queues.uninterrupted && (entity.running || entry.begun);
            if entry.begun {
                self.order.uninterrupted.push(index);
            }
            let class = i64::from(class);
            let reason = match reserves {
                Some(expected) => EXPECTED.number(micros(expected.since(now)) - micros(now.since(expected))),
                None => CLASS.number(class),
            };
            let ranking = Ranking::new(class * STRIDE, reason).with_manner(self.manner);
            rankings[index] = Ranking { reserves: reserves.is_some(), ..ranking };
        }
        self.keeper.end(now);
        for (index, entity) in input.members() {
            let Entry { slice: own, begun, classes, may_rise, .. } = &mut entries[index];
            let ClassRange { class, floor, ceiling } = *classes;
            if has_slices {
                let slice = self.slices.of(all_classes.above(class));
                own.note(entity.ready, *begun, entity.ran, slice, now);
            } else {
                let ceiling = if *may_rise { highest } else { i64::from(ceiling) };
                rankings[index].range = Some((i64::from(floor) * STRIDE, ceiling * STRIDE));
            }
        }
        if has_slices || !self.order.uninterrupted.is_empty() {
            let slice_of =
                |index: usize| (entries[index].classes.class, entries[index].slice, entries[index].begun);
            wake = earlier(wake, self.order.arrange(&input, slice_of, has_slices, rankings));
        }
        wake
    }

    fn needs_idle_events(&self) -> bool {
        self.keeper.learns()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.keeper.counters()
    }
}
