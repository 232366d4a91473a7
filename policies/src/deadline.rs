//! By when a unit's work should be done, for the policies that go by deadlines.

use crate::unit::{Unit, Units};
use protocol::ids::QueueId;
use protocol::operation::Merit;
use protocol::time::Time;
use std::time::Duration;

/// The earliest deadline of the unit's queues that have work, or what it would be if all got some now while none has;
/// nothing if none of them has a deadline. With the queue whose it is.
pub(crate) fn deadline(units: &Units, unit: &Unit, now: Time) -> Option<(Time, QueueId)> {
    let counts = units.queues(unit).iter().filter(|queue| queue.ready_since.is_some() || !unit.ready);
    let deadlines = counts.filter_map(|queue| {
        let span = Duration::from_micros(queue.hints.deadline_us?.get());
        Some((queue.ready_since.unwrap_or(now).after(span), queue.queue))
    });
    deadlines.min()
}

/// What people are told of it.
pub(crate) fn merit(deadline: Option<Time>, now: Time) -> Merit {
    let Some(deadline) = deadline else { return Merit::NoDeadline };
    // Rounded towards the deadline's side of now, so that one that was missed by a little is seen as missed.
    let micros = |span: Duration| i64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX);
    Merit::Deadline(micros(deadline.since(now)) - micros(now.since(deadline)))
}
