//! What the queues of an entity say, kept from one decision to the next.
//!
//! Most entities are idle, and their queues have not changed since the last decision. So nothing is read again that says
//! the same: a decision costs as much as what has changed, and a constant for each entity.

use crate::times::earlier;
use protocol::bounds::{Priority, StreamPriority};
use protocol::codes::PreemptLevel;
use protocol::hint::QueueHints;
use protocol::ids::{DeviceId, QueueId};
use protocol::status::{Activity, Counts, QueueStatus, Version};
use protocol::time::Time;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;
use std::time::Duration;

/// The work of an entity, on those of its queues that may run at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    /// It never had work.
    New,
    /// It has had work since then.
    Working(Time),
    /// It has had none since then.
    Idle(Time),
}

/// A queue of an entity that is allowed to run at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntityQueue {
    /// The number of the queue in its process.
    pub queue: QueueId,
    /// The priority of the queue.
    pub priority: Priority,
    /// The time since which the queue counts as ready; `None` if it does not.
    pub ready_since: Option<Time>,
    /// The hints about the queue.
    pub hints: QueueHints,
}

/// Stands for what the queues of an entity say: as long as it is the same, they are. No decision depends on the number, so
/// its text does not show it.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Revision(u64);

impl Revision {
    /// Returns the next one, which nothing has yet.
    pub fn next(&mut self) -> Self {
        self.0 += 1;
        *self
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Revision")
    }
}

/// The priority of a queue, and the priority of its stream, which decides between equal ones where a policy says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Urgency {
    pub priority: Priority,
    pub stream: StreamPriority,
}

impl Urgency {
    fn of(queue: &QueueStatus) -> Self {
        Self { priority: queue.priority, stream: queue.hints.stream_priority }
    }
}

impl From<Priority> for Urgency {
    fn from(priority: Priority) -> Self {
        Self { priority, stream: StreamPriority::DEFAULT }
    }
}

/// What the queues of an entity say together. Queues of priority [`Priority::NO_EXECUTE`] do not count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sums {
    /// The time since which one of them counts as ready; `None` if none does.
    pub ready_since: Option<Time>,
    pub urgency: Urgency,
    pub lead: QueueId,
    pub floor: Urgency,
    pub ceiling: Urgency,
    pub launched: u64,
    pub level: PreemptLevel,
    pub utilization: u64,
    pub deadline: Option<(NonZeroU64, QueueId)>,
}

impl Sums {
    /// Those of an entity none of whose queues counts.
    fn none(queues: &[QueueStatus]) -> Self {
        let priority = if queues.is_empty() { Priority::DEFAULT } else { Priority::NO_EXECUTE };
        Self {
            ready_since: None,
            urgency: priority.into(),
            lead: QueueId(0),
            floor: priority.into(),
            ceiling: priority.into(),
            launched: 0,
            level: PreemptLevel::Block,
            utilization: 0,
            deadline: None,
        }
    }
}

/// The times of an entity's queues.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    /// The time since which the first of them has work.
    works: Option<Time>,
    /// The time at which the last of the others has turned idle.
    idles: Option<Time>,
}

impl Times {
    pub fn of(queues: &[QueueStatus]) -> Self {
        let mut times = Self::default();
        for queue in queues.iter().filter(|queue| queue.priority != Priority::NO_EXECUTE) {
            match queue.activity {
                Activity::Ready { since } => times.works = earlier(times.works, since),
                Activity::Idle { since } => times.idles = times.idles.max(since),
            }
        }
        times
    }

    /// Returns the course of the entity.
    pub fn course(&self, now: Time) -> Course {
        // The times come from another process and may lie in the future.
        match (self.works, self.idles) {
            (Some(since), _) => Course::Working(since.min(now)),
            (None, Some(since)) => Course::Idle(since.min(now)),
            (None, None) => Course::New,
        }
    }

    /// Returns true if no idle queue counts as ready.
    fn is_settled(&self, now: Time, linger: Duration) -> bool {
        self.idles.is_none_or(|since| since.min(now).after(linger) <= now)
    }
}

/// The queues of an entity, kept from one decision to the next.
#[derive(Default)]
pub(crate) struct Rows {
    /// The version of the status; `None` before the first one.
    version: Option<Version>,
    pub times: Times,
    /// What the queues say together, if they were read at a time when no idle one counted as ready. Then it holds until the
    /// version changes, unless one counts as ready because the linger grows.
    settled: Option<Sums>,
    pub revision: Revision,
    pub queues: Vec<EntityQueue>,
    /// The devices, as a range of the uses of all entities.
    pub uses: Range<usize>,
}

/// Only what decisions depend on.
impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.queues.fmt(f)
    }
}

impl Rows {
    /// Notes the times of these queues, unless the version is that of the last call.
    pub fn note(&mut self, queues: &[QueueStatus], version: Version) {
        if self.version != Some(version) {
            (self.version, self.times, self.settled) = (Some(version), Times::of(queues), None);
        }
    }

    /// Returns what the queues say together, if that is known. Otherwise they must be read.
    pub fn known(&self, now: Time, linger: Duration) -> Option<Sums> {
        if self.times.is_settled(now, linger) { self.settled } else { None }
    }

    /// Reads the queues again; see [`read`].
    pub fn read(
        &mut self,
        queues: &[QueueStatus],
        now: Time,
        linger: Duration,
        note_use: impl FnMut(DeviceId, bool),
    ) -> (Sums, Option<Time>) {
        self.queues.clear();
        let (sums, settles) = read(queues, now, linger, &mut self.queues, note_use);
        self.settled = settles.is_none().then_some(sums);
        (sums, settles)
    }
}

/// Appends those of these queues that may run at all, and calls `note_use` with the device of each, and true if it counts
/// as ready there. Returns what they say together, and the first time after `now` at which one no longer counts as ready.
#[inline(always)]
pub(crate) fn read(
    queues: &[QueueStatus],
    now: Time,
    linger: Duration,
    rows: &mut Vec<EntityQueue>,
    mut note_use: impl FnMut(DeviceId, bool),
) -> (Sums, Option<Time>) {
    let mut sums = Sums::none(queues);
    let mut range: Option<(Urgency, Urgency)> = None;
    let (mut lead, mut idle_lead) = (None, None);
    let (mut utilization, mut idle_utilization) = (0, 0);
    let mut settles = None;
    for queue in queues.iter().filter(|queue| queue.priority != Priority::NO_EXECUTE) {
        let ready_since = ready_since(queue.activity, linger, now, &mut settles);
        let share = u64::from(queue.hints.utilization.get());
        if let Some(start) = ready_since {
            sums.ready_since = earlier(sums.ready_since, start);
            raise(&mut lead, queue);
            utilization = share.max(utilization);
        }
        raise(&mut idle_lead, queue);
        idle_utilization = share.max(idle_utilization);
        sums.level = sums.level.max(queue.level);
        let Counts { direct, deferred, .. } = queue.counts;
        sums.launched = sums.launched.saturating_add(direct).saturating_add(deferred);
        let urgency = Urgency::of(queue);
        let (floor, ceiling) = range.unwrap_or((urgency, urgency));
        range = Some((floor.min(urgency), ceiling.max(urgency)));
        if let Some(us) = queue.hints.deadline_us {
            sums.deadline = earlier(sums.deadline, (us, queue.queue));
        }
        note_use(queue.device, ready_since.is_some());
        let QueueStatus { queue, priority, hints, .. } = *queue;
        rows.push(EntityQueue { queue, priority, ready_since, hints });
    }
    if let Some((floor, ceiling)) = range {
        (sums.floor, sums.ceiling) = (floor, ceiling);
    }
    if let Some((urgency, lead)) = lead.or(idle_lead) {
        (sums.urgency, sums.lead) = (urgency, lead);
    }
    sums.utilization = if sums.ready_since.is_some() { utilization } else { idle_utilization };
    (sums, settles)
}

/// Returns the time since which a queue counts as ready.
fn ready_since(activity: Activity, linger: Duration, now: Time, settles: &mut Option<Time>) -> Option<Time> {
    match activity {
        Activity::Ready { since } => Some(since),
        Activity::Idle { since: None } => None,
        Activity::Idle { since: Some(since) } => {
            // The time comes from another process and may lie in the future: never linger for longer than from now on.
            let since = since.min(now);
            let end = since.after(linger);
            if end <= now {
                return None;
            }
            *settles = earlier(*settles, end);
            Some(since)
        }
    }
}

/// Keeps the most urgent queue, the first among equals.
fn raise(lead: &mut Option<(Urgency, QueueId)>, queue: &QueueStatus) {
    let urgency = Urgency::of(queue);
    if lead.is_none_or(|(known, _)| known < urgency) {
        *lead = Some((urgency, queue.queue));
    }
}
