//! The entities that a policy ranks: queues or gangs, in one form.

use crate::times::earlier;
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::hint::{ProcessHints, QueueHints};
use protocol::ids::{DeviceId, Pid, QueueId};
use protocol::operation::EntityId;
use protocol::status::{Activity, QueueStatus, Status};
use protocol::time::Time;
use std::ops::Range;
use std::time::Duration;

/// A queue of this process, or a gang (a process with all its queues).
///
/// Queues of priority [`Priority::NO_EXECUTE`] do not count. They give a gang neither work nor a device, and
/// the permission of the gang does not cover them: its process suspends them itself. An entity that has only
/// such queues has that priority itself.
#[derive(Debug, Clone)]
pub struct SchedEntity {
    /// The name of the entity in operations.
    pub id: EntityId,
    /// The process of the entity.
    pub pid: Pid,
    /// The owner of the process; 0 under the local scheduler.
    pub owner: u32,
    /// True if the entity has work, or had work so recently that it counts as having it.
    pub ready: bool,
    /// The time since which it is ready; the time of the decision if it is not ready.
    pub since: Time,
    /// True if the entity has work now, and does not only count as having it.
    pub working: bool,
    /// The time since which it has no work; `None` while it has work, or if it never had any.
    pub idle_since: Option<Time>,
    /// The priority that counts: the highest of its ready queues, or of all its queues while none is ready.
    pub priority: Priority,
    /// The queue with that priority, the one with the smallest number among equals; 0 if it has no queue.
    pub lead: QueueId,
    /// The lowest priority of its queues, to which its own can fall.
    pub floor: Priority,
    /// The highest priority of its queues, to which its own can rise.
    pub ceiling: Priority,
    /// The number of launches of its queues when one of them turned ready or idle last. It also falls: a queue that
    /// is gone does not count.
    pub launched: u64,
    /// The deepest preemption level that one of its queues asks for.
    pub level: PreemptLevel,
    /// The hints about its process.
    pub process: ProcessHints,
    /// The time for which a queue still counts as ready after it has turned idle.
    pub linger: Duration,
    /// True if the last decision let it run and it has had work since then.
    pub running: bool,
    /// The time for which it had its devices since the last decision: it was ready and was allowed to run.
    pub ran: Duration,
    uses: Range<usize>,
    queues: Range<usize>,
}

impl SchedEntity {
    /// Returns the number of its queues that may run at all.
    pub(crate) fn queue_count(&self) -> usize {
        self.queues.len()
    }
}

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

/// A device on which an entity has a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceUse {
    /// The index in [`SchedEntities::devices`].
    pub device: usize,
    /// True if one of these queues is ready.
    pub busy: bool,
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

/// The entities of a status. The same value is used for every decision, so that gathering allocates only
/// while they grow.
#[derive(Debug, Default)]
pub struct SchedEntities {
    all: Vec<SchedEntity>,
    uses: Vec<DeviceUse>,
    queues: Vec<EntityQueue>,
    devices: Vec<DeviceId>,
}

impl SchedEntities {
    /// Returns the entities, in the order of the status.
    pub fn all(&self) -> &[SchedEntity] {
        &self.all
    }

    /// Returns the entities, to enter the time that each has run.
    pub(crate) fn all_mut(&mut self) -> &mut [SchedEntity] {
        &mut self.all
    }

    /// Returns the devices on which any entity has a queue that can run.
    pub fn devices(&self) -> &[DeviceId] {
        &self.devices
    }

    /// Returns the devices of one of these entities, each once.
    pub fn uses(&self, entity: &SchedEntity) -> &[DeviceUse] {
        &self.uses[entity.uses.clone()]
    }

    /// Returns the queues of one of these entities that can run, in the order of their numbers.
    pub fn queues(&self, entity: &SchedEntity) -> &[EntityQueue] {
        &self.queues[entity.queues.clone()]
    }

    /// Replaces the entities by those of a status.
    ///
    /// A queue still counts as ready for a while after it has turned idle: `linger` returns how long, given
    /// the index, the name and the course of its entity. So a program with small gaps between its submissions
    /// does not let others in and out. Returns the first time after `now` at which such a time ends and the
    /// entities may change.
    pub(crate) fn gather(
        &mut self,
        status: &Status,
        now: Time,
        linger: &mut dyn FnMut(usize, EntityId, Course) -> Duration,
    ) -> Option<Time> {
        self.all.clear();
        self.uses.clear();
        self.queues.clear();
        self.devices.clear();
        let mut gathering = Gathering { entities: self, now, linger, settles: None };
        match status {
            Status::Local { pid, hints, queues } => {
                for queue in queues.iter() {
                    let id = EntityId::Queue(queue.queue);
                    gathering.push(id, (*pid, 0), *hints, std::slice::from_ref(queue));
                }
            }
            Status::Global { gangs } => {
                for gang in gangs {
                    let id = EntityId::Gang(gang.client);
                    gathering.push(id, (gang.pid, gang.owner), gang.hints, &gang.queues);
                }
            }
        }
        gathering.settles
    }

    /// Returns the index of a device.
    fn device(&mut self, device: DeviceId) -> usize {
        // A host has few devices, so a linear search costs less than hashing.
        self.devices.iter().position(|known| *known == device).unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        })
    }
}

struct Gathering<'a> {
    entities: &'a mut SchedEntities,
    now: Time,
    linger: &'a mut dyn FnMut(usize, EntityId, Course) -> Duration,
    settles: Option<Time>,
}

impl Gathering<'_> {
    /// Adds an entity of a process and its owner.
    fn push(
        &mut self,
        id: EntityId,
        (pid, owner): (Pid, u32),
        process: ProcessHints,
        queues: &[QueueStatus],
    ) {
        let (first_use, first_queue) = (self.entities.uses.len(), self.entities.queues.len());
        let course = self.course(queues);
        let linger = (self.linger)(self.entities.all.len(), id, course);
        let mut ready = false;
        let mut since = self.now;
        let mut range: Option<(Priority, Priority)> = None;
        let mut launched = 0u64;
        let mut level = PreemptLevel::Block;
        let (mut lead, mut idle_lead) = (None, None);
        for queue in queues.iter().filter(|queue| queue.priority != Priority::NO_EXECUTE) {
            let ready_since = self.ready_since(queue.activity, linger);
            if let Some(start) = ready_since {
                ready = true;
                since = since.min(start);
                raise(&mut lead, queue);
            }
            raise(&mut idle_lead, queue);
            level = level.max(queue.level);
            launched = launched.saturating_add(queue.counts.direct).saturating_add(queue.counts.deferred);
            let (floor, ceiling) = range.unwrap_or((queue.priority, queue.priority));
            range = Some((floor.min(queue.priority), ceiling.max(queue.priority)));
            self.note_use(first_use, queue.device, ready_since.is_some());
            let QueueStatus { queue, priority, hints, .. } = *queue;
            self.entities.queues.push(EntityQueue { queue, priority, ready_since, hints });
        }
        let none = match queues {
            [] => Priority::DEFAULT,
            _ => Priority::NO_EXECUTE,
        };
        let (floor, ceiling) = range.unwrap_or((none, none));
        let (priority, lead) = lead.or(idle_lead).unwrap_or((none, QueueId(0)));
        self.entities.all.push(SchedEntity {
            id,
            pid,
            owner,
            ready,
            since,
            working: matches!(course, Course::Working(_)),
            idle_since: match course {
                Course::Idle(since) => Some(since),
                _ => None,
            },
            priority,
            lead,
            floor,
            ceiling,
            launched,
            level,
            process,
            linger,
            running: false,
            ran: Duration::ZERO,
            uses: first_use..self.entities.uses.len(),
            queues: first_queue..self.entities.queues.len(),
        });
    }

    /// Returns the course of an entity with these queues.
    fn course(&self, queues: &[QueueStatus]) -> Course {
        let (mut works, mut idles) = (None, None);
        for queue in queues.iter().filter(|queue| queue.priority != Priority::NO_EXECUTE) {
            match queue.activity {
                Activity::Ready { since } => works = earlier(works, since),
                Activity::Idle { since } => idles = idles.max(since),
            }
        }
        // The times come from another process and may lie in the future.
        match (works, idles) {
            (Some(since), _) => Course::Working(since.min(self.now)),
            (None, Some(since)) => Course::Idle(since.min(self.now)),
            (None, None) => Course::New,
        }
    }

    /// Returns the time since which the queue counts as ready.
    fn ready_since(&mut self, activity: Activity, linger: Duration) -> Option<Time> {
        match activity {
            Activity::Ready { since } => Some(since),
            Activity::Idle { since: None } => None,
            Activity::Idle { since: Some(since) } => {
                // The time comes from another process and may lie in the future: never linger for longer than
                // from now on.
                let since = since.min(self.now);
                let end = since.after(linger);
                if end <= self.now {
                    return None;
                }
                self.settles = earlier(self.settles, end);
                Some(since)
            }
        }
    }

    /// Enters the device among the uses of the entity that begin at `first`.
    fn note_use(&mut self, first: usize, device: DeviceId, busy: bool) {
        let known =
            self.entities.uses[first..].iter().position(|used| self.entities.devices[used.device] == device);
        match known {
            Some(index) => self.entities.uses[first + index].busy |= busy,
            None => {
                let device = self.entities.device(device);
                self.entities.uses.push(DeviceUse { device, busy });
            }
        }
    }
}

/// Keeps the queue of the highest priority, the first among equals.
fn raise(lead: &mut Option<(Priority, QueueId)>, queue: &QueueStatus) {
    if lead.is_none_or(|(priority, _)| priority < queue.priority) {
        *lead = Some((queue.priority, queue.queue));
    }
}
