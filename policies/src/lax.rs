//! LAX: laxity.
//!
//! # The rule
//! A queue with a laxity has its lax priority from the moment it turns ready, and its critical one when it has been ready
//! for its laxity, until it is idle. Other queues have their plain priority. An entity has the highest of its queues that
//! have work; on each device the highest runs, and all that are equal to it. If the lax priority is -256, the queue's
//! work does not run before it is critical. A queue whose plain priority is -256 never runs.
//!
//! # What is different
//! A laxity goes with its queue, and is forgotten with it. What was critical begins anew when it has been idle.
//!
//! # Parameters, wake-ups
//! None; the three numbers are hints of the queue. It is decided anew when the next queue turns critical. The order
//! changes with time, so the window always limits. A low entity can starve unless `XSCHED_STARVATION_MS` is set.

use crate::policy::{Input, Policy, Ranking};
use crate::reason::PRIORITY;
use crate::sched_entity::EntityQueue;
use crate::times::earlier;
use protocol::bounds::Priority;
use protocol::operation::Throttle;
use protocol::time::Time;
use std::time::Duration;

/// Laxity; see the head of this file. It remembers nothing.
#[derive(Debug, Default)]
pub struct Lax;

impl Policy for Lax {
    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let mut wake: Option<Time> = None;
        for (index, entity) in input.members() {
            let mut highest = None;
            let queues = input.entities.queues(entity).iter();
            for queue in queues.filter(|queue| queue.ready_since.is_some() || !entity.ready) {
                let (priority, change) = priority(queue, input.now);
                // The first of equals has the smallest name.
                if highest.is_none_or(|(other, _)| other < priority) {
                    highest = Some((priority, queue.queue));
                }
                if entity.ready {
                    wake = earlier(wake, change);
                }
            }
            let (priority, lead) = highest.unwrap_or((entity.priority, entity.lead));
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

/// The priority of a queue, as if it turned ready now if it is not, and when it changes next.
fn priority(queue: &EntityQueue, now: Time) -> (Priority, Option<Time>) {
    let Some(laxity) = queue.hints.laxity else { return (queue.priority, None) };
    let critical = queue.ready_since.unwrap_or(now).after(Duration::from_micros(laxity.us));
    if critical <= now {
        (laxity.critical, None)
    } else {
        (laxity.lax, (laxity.lax != laxity.critical).then_some(critical))
    }
}
