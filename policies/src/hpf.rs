//! HPF: highest priority first.
//!
//! # The rule
//! On each device the entities with the highest priority run, of those that run there and have work there;
//! the others are suspended. Entities of equal priority share the device. An entity of priority
//! [`Priority::NO_EXECUTE`] never runs.
//!
//! # The priority of streams
//! HIP's priority of a stream (`hipStreamCreateWithPriority`) decides between equal priorities. Under the local scheduler it
//! does so for the queues of the process. Under `xserver` it does so between processes if `stream-priorities` is 1: a
//! process has that of its most urgent queue with work.
//!
//! # What is different
//! XSched compares single queues. Here a process under `xserver` has the highest priority of its queues with
//! work, and runs on all its devices or on none. While it is suspended because of one device, lower work may
//! use its others. An idle entity is suspended as well where a higher one has work, so that its next work
//! does not run before the next decision.
//!
//! # The limit
//! The limit is cleared for an entity if no queue on its devices, its own and idle ones included, has a
//! priority above the *lowest* of its own queues: deep work that is launched now still drains after the
//! entity's priority has fallen to that.
//!
//! # Gaps
//! An entity that turns idle keeps its devices for a while, in case its next work comes soon. Its earlier
//! gaps decide how long (`gaps`): not at all if all were long, and as long as the short ones,
//! 1 ms at most, if there are short ones. With fewer than 32 gaps, with gaps of all lengths mixed, or if what was
//! learnt did worse in the last 64 gaps, it is 200 µs.
//!
//! Counters: `gaps`, gaps whose length is known; of these `gaps-shorter` and `gaps-longer` if the entity kept
//! its devices for a shorter or longer time than 200 µs; `gaps-wrong` if its work came less than 200 µs after
//! that time, so that to let others in was not worth it.
//!
//! # The share of suspended entities
//! With `share-percent` an entity that is outranked is not evicted at level 3. It goes on within its window, on this part of
//! the compute units, beside the more urgent one. The part is rounded down to 64ths. An entity that is suspended for any other
//! reason than a more urgent entity has no share, and neither has one behind an entity that `XSCHED_STARVATION_MS` lets
//! run. At levels 1 and 2 the parameter has no effect.
//!
//! A share costs the more urgent entity compute units, bandwidth and caches: little where its kernels are long, much where
//! they are short. The policy therefore measures what a share costs, unless `slowdown-percent` is 0. It begins with none and
//! goes to a quarter, half and all of `share-percent` while requests of the urgent entity take at most half of
//! `slowdown-percent` longer than without a share. It goes back if they take more than all of `slowdown-percent` longer.
//!
//! A request lasts from the time at which the entity turns ready to the time at which it turns idle. Its length is divided
//! by the number of its launches. Every fourth request, on average, runs without a share, for comparison. A share changes
//! between requests only. It takes 32 requests under which others are suspended for a first share, and about 43 more for
//! each next one. A share that failed is tried again after 64 requests, and after twice as many each time, up to 4,096.
//!
//! An entity that hardly ever turns idle leaves no share, and one that stops turning idle keeps the share that it left
//! last. Where the time of a launch varies by a fifth or more from request to request, a difference of a few percent does
//! not show, and there is no share for most of the time. The policy does not know whether a process could limit its
//! queues: where no process of level 3 can, the share rises without an effect.
//!
//! Counters: `shares-raised` and `shares-lowered`, how often; `share-now-percent`, the largest share that an entity leaves
//! now, in percent of the compute units.
//!
//! # The priority of hardware queues
//! With `queues-first` the hardware queues of the most urgent entity get a high priority. Where work of several programs is
//! on the device, the dispatcher should take its kernels first, which makes a share cheaper for it. An entity goes first
//! while none of its queues, idle ones included, can be outranked on any of its devices, and it outranks another entity on
//! each device that others use. Entities of equal priority go first together. This changes as programs come and go, or as
//! their priorities change, and not with each request.
//!
//! The library sends `UPDATE_QUEUE` for each hardware queue. It needs a driver that saves running waves, and has no effect
//! where evictions use debug-trap or are off. What a card does with the priority is not known. The simulated GPU
//! gives free compute units to the queue of the highest priority.
//!
//! # Parameters, wake-ups
//! It wakes up when the time is over for which an idle entity keeps its devices. An entity of low priority can
//! starve as long as a higher one has work, unless `XSCHED_STARVATION_MS` is set.
//!
//! [`Priority::NO_EXECUTE`]: protocol::bounds::Priority::NO_EXECUTE

use crate::parameter::{FIRST, GAPS, Parameter, SHARE, SLOWDOWN, Values, parameter};
use crate::policy::{Input, Manner, Policy, Ranking};
use crate::reason::{PRIORITY, ReasonKind, first, second};
use crate::sched_entity::SchedEntity;
use protocol::bounds::{Priority, StreamPriority};
use protocol::operation::EntityId;
use protocol::time::Time;
use std::cmp::Ordering;

const STREAMS: Parameter = parameter!("stream-priorities" in (0.0, 1.0), default 0.0,
    "1: between processes of equal priority HIP's priorities of their streams decide; 0: they decide within a process only");

pub(crate) const PARAMETERS: &[Parameter] = &[GAPS, SHARE, SLOWDOWN, FIRST, STREAMS];

/// Priority of the entity, and priority of its stream.
pub(crate) const STREAM: &ReasonKind = &ReasonKind::new("StreamPriority", |its| {
    format!("has priority {} and stream priority {}", first(its), second(its))
})
.comparing(|its, own| {
    if !STREAM.is(&own) {
        return None;
    }
    let stream = || format!("has priority {} as well", first(its));
    match (first(its).cmp(&first(own)), second(its).cmp(&second(own))) {
        (Ordering::Greater, _) => Some(format!("has priority {} > {}", first(its), first(own))),
        (Ordering::Equal, Ordering::Greater) => {
            Some(format!("{}, and stream priority {} > {}", stream(), second(its), second(own)))
        }
        (Ordering::Equal, Ordering::Equal) => Some(format!("{}, and its turn comes first", stream())),
        _ => None,
    }
});

/// The number of ranks for each priority: one for each stream priority.
const STEP: i64 = *StreamPriority::RANGE.end() - *StreamPriority::RANGE.start() + 1;

fn rank_of(priority: Priority, stream: StreamPriority) -> i64 {
    i64::from(priority) * STEP + i64::from(stream)
}

/// Highest priority first; see the head of this file.
#[derive(Debug, Default)]
pub struct Hpf {
    manner: Manner,
    streams_of_gangs: bool,
}

impl Hpf {
    fn counts_streams(&self, entity: &SchedEntity) -> bool {
        self.streams_of_gangs || matches!(entity.id, EntityId::Queue(_))
    }
}

impl Policy for Hpf {
    fn configure(&mut self, values: &Values) {
        self.manner = values.manner();
        self.streams_of_gangs = values.get(STREAMS.name) >= 0.5;
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let mut counts = input.members().filter(|(_, entity)| self.counts_streams(entity));
        let differ = counts.any(|(_, entity)| entity.streams != Default::default());
        for (index, entity) in input.members() {
            let streams = if self.counts_streams(entity) { entity.streams } else { Default::default() };
            let (rank, priority) = (rank_of(entity.priority, streams.own), i64::from(entity.priority));
            let reason = if differ {
                STREAM.pair(["priority", "stream"], [priority, streams.own.into()])
            } else {
                PRIORITY.number(priority)
            };
            let range = (rank_of(entity.floor, streams.floor), rank_of(entity.ceiling, streams.ceiling));
            rankings[index] =
                Ranking { range: Some(range), ..Ranking::new(rank, reason).with_manner(self.manner) };
        }
        None
    }
}
