//! The deadlines of entities, for the policies that rank by them.

use crate::reason::{Millis, ReasonKind, first};
use crate::sched_entity::{SchedEntities, SchedEntity};
use protocol::ids::QueueId;
use protocol::rank_reason::RankReason;
use protocol::time::Time;
use std::num::NonZeroU64;
use std::time::Duration;

/// Time until the deadline of the entity, in microseconds; negative if the deadline has passed.
pub(crate) const DEADLINE: &ReasonKind = &ReasonKind::new("Deadline", |its| match first(its) {
    us if us < 0 => format!("missed its deadline {} ago", Millis(us.saturating_neg())),
    us => format!("has a deadline in {}", Millis(us)),
})
.comparing(|its, own| {
    let earlier = DEADLINE.is(&own) && first(its) < first(own);
    earlier.then(|| format!("has a deadline {} < {}", Millis(first(its)), Millis(first(own))))
});

/// The entity has no deadline.
pub(crate) const NO_DEADLINE: &ReasonKind = &ReasonKind::new("NoDeadline", |_| "has no deadline".to_owned())
    .comparing(|_, own| {
        NO_DEADLINE.is(&own).then(|| "has no deadline either, and had work earlier".to_owned())
    });

/// The reasons of the rows of the policies that share this part.
pub(crate) const REASONS: &[&ReasonKind] = &[DEADLINE, NO_DEADLINE];

/// Returns the earliest deadline of the entity's queues with work, and its queue. If no queue has work, all count as if
/// they got work now. `None` if none of them has a deadline.
pub(crate) fn deadline(entities: &SchedEntities, entity: &SchedEntity, now: Time) -> Option<(Time, QueueId)> {
    let (shortest, queue) = entity.deadline?;
    let after = |since: Time, us: NonZeroU64| since.after(Duration::from_micros(us.get()));
    if !entity.ready {
        return Some((after(now, shortest), queue));
    }
    let ready = entities.queues(entity).iter().filter_map(|queue| Some((queue, queue.ready_since?)));
    ready.filter_map(|(queue, since)| Some((after(since, queue.hints.deadline_us?), queue.queue))).min()
}

/// Returns the reason of a rank by deadline.
pub(crate) fn reason(deadline: Option<Time>, now: Time) -> RankReason {
    let Some(deadline) = deadline else { return NO_DEADLINE.plain() };
    // Rounded away from now, so that a deadline that was missed by a little is shown as missed.
    let micros = |span: Duration| i64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX);
    DEADLINE.number(micros(deadline.since(now)) - micros(now.since(deadline)))
}
