//! LAX: laxity.
//!
//! # The rule
//! A queue with a laxity has its lax priority from the time at which it turns ready. It has its critical
//! priority from the time at which it has been ready for its laxity, until it is idle. Other queues have
//! their plain priority. An entity has the highest priority of its queues with work. On each device the
//! highest priority runs, and all that are equal to it. With a lax priority of -256 the work of the queue
//! does not run before it is critical. A queue whose plain priority is -256 never runs.
//!
//! # What is different
//! A laxity belongs to its queue and is forgotten with it. A queue that was critical begins anew after it has
//! been idle.
//!
//! # Parameters, wake-ups
//! No parameters; the three numbers are hints of the queue. A decision comes when the next queue turns
//! critical. The order changes with time, so the window limits where others use the device. An
//! entity of low priority can starve, unless `XSCHED_STARVATION_MS` is set.

use crate::memo::Memo;
use crate::per_entity::PerEntity;
use crate::policy::{Input, Policy, Ranking};
use crate::reason::PRIORITY;
use crate::rows::EntityQueue;
use crate::times::earlier;
use protocol::bounds::Priority;
use protocol::ids::QueueId;
use protocol::operation::Throttle;
use protocol::time::Time;
use std::time::Duration;

/// Laxity; see the head of this file. It keeps no state.
#[derive(Debug, Default)]
pub struct Lax {
    /// The priority of each idle entity if it turned ready, and the queue from which it comes.
    idle: PerEntity<Memo<(Priority, QueueId)>>,
}

impl Policy for Lax {
    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let mut wake: Option<Time> = None;
        let memos = self.idle.align(input.entities.all());
        for (index, entity) in input.members() {
            let highest = |queues: &mut dyn Iterator<Item = (Priority, QueueId)>| {
                // The first of equals has the smallest number.
                let higher = |one: (Priority, QueueId), other: (Priority, QueueId)| {
                    if other.0 > one.0 { other } else { one }
                };
                queues.reduce(higher).unwrap_or((entity.priority, entity.lead))
            };
            let queues = input.entities.queues(entity).iter();
            let (priority, lead) = if entity.ready {
                let mut ready = queues.filter(|queue| queue.ready_since.is_some()).map(|queue| {
                    let (priority, change) = priority(queue, input.now);
                    wake = earlier(wake, change);
                    (priority, queue.queue)
                });
                highest(&mut ready)
            } else {
                // Whether a queue is critical as soon as it turns ready does not depend on the time.
                let mut idle = queues.map(|queue| (priority(queue, input.now).0, queue.queue));
                memos[index].get(entity, || highest(&mut idle))
            };
            let throttle = (priority == Priority::NO_EXECUTE).then_some(Throttle::NoExecute);
            rankings[index] = Ranking {
                throttle,
                lead: Some(lead),
                ..Ranking::new(priority.into(), PRIORITY.number(priority.into()))
            };
        }
        wake
    }
}

/// Returns the priority of a queue, as if it turned ready now if it is not ready, and the time of its next
/// change.
fn priority(queue: &EntityQueue, now: Time) -> (Priority, Option<Time>) {
    let Some(laxity) = queue.hints.laxity else { return (queue.priority, None) };
    let critical = queue.ready_since.unwrap_or(now).after(Duration::from_micros(laxity.us));
    if critical <= now {
        (laxity.critical, None)
    } else {
        (laxity.lax, (laxity.lax != laxity.critical).then_some(critical))
    }
}
