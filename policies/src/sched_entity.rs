//! What is decided about: queues or gangs, brought to one form.

use crate::times::earlier;
use protocol::bounds::Priority;
use protocol::hint::{ProcessHints, QueueHints};
use protocol::ids::{DeviceId, Pid, QueueId};
use protocol::operation::UnitId;
use protocol::status::{Activity, QueueStatus, Status};
use protocol::time::Time;
use std::ops::Range;
use std::time::Duration;

/// A queue of this process, or a gang.
///
/// A gang's queues of priority [`Priority::NO_EXECUTE`] count for nothing: they give it neither work nor a device, and
/// the gang's permission does not cover them; its process holds them by itself. An entity of such queues only has that
/// priority itself.
#[derive(Debug, Clone)]
pub struct SchedEntity {
    /// What operations call it.
    pub id: UnitId,
    /// Its process.
    pub pid: Pid,
    /// Whether it has work, or had some so recently that it counts as having it.
    pub ready: bool,
    /// Since when; for an entity that is not ready, the time of the decision.
    pub since: Time,
    /// Whether it has work indeed, and does not only count as having it.
    pub working: bool,
    /// Since when it has had none; nothing while it has some, or never had any.
    pub idle_since: Option<Time>,
    /// The priority that counts: the highest of its ready queues, or of all while none is ready.
    pub priority: Priority,
    /// The queue whose priority this is, the smallest among equals; 0 if it has none.
    pub lead: QueueId,
    /// The lowest priority of its queues: how far its own can fall.
    pub floor: Priority,
    /// The highest priority of its queues: how far its own can rise.
    pub ceiling: Priority,
    /// What is said of its process.
    pub process: ProcessHints,
    /// For how long a queue of it that turned idle counts as ready still.
    pub linger: Duration,
    /// Whether the last decision let it run, and it has had work since.
    pub running: bool,
    /// For how long it has had a device since the last decision: it was ready, and might run.
    pub ran: Duration,
    uses: Range<usize>,
    queues: Range<usize>,
}

/// A device that an entity has a queue on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceUse {
    /// Index into [`Entities::devices`].
    pub device: usize,
    /// Whether one of these queues is ready.
    pub busy: bool,
}

/// A queue of an entity, of those that can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntityQueue {
    /// Its name in its process.
    pub queue: QueueId,
    /// How urgent it is.
    pub priority: Priority,
    /// Since when it has had work, or counted as having it; nothing if it does not.
    pub ready_since: Option<Time>,
    /// What is said of it.
    pub hints: QueueHints,
}

/// The entities of a status. Kept from one decision to the next, so that gathering allocates only while they grow.
#[derive(Debug, Default)]
pub struct SchedEntities {
    all: Vec<SchedEntity>,
    uses: Vec<DeviceUse>,
    queues: Vec<EntityQueue>,
    devices: Vec<DeviceId>,
}

impl SchedEntities {
    /// The entities, in the order of the status.
    pub fn all(&self) -> &[SchedEntity] {
        &self.all
    }

    /// The entities, to enter what each has run.
    pub(crate) fn all_mut(&mut self) -> &mut [SchedEntity] {
        &mut self.all
    }

    /// The devices on which any entity has a queue that can run.
    pub fn devices(&self) -> &[DeviceId] {
        &self.devices
    }

    /// The devices of one of these entities, each once.
    pub fn uses(&self, entity: &SchedEntity) -> &[DeviceUse] {
        &self.uses[entity.uses.clone()]
    }

    /// The queues of one of these entities that can run, in the order of their names.
    pub fn queues(&self, entity: &SchedEntity) -> &[EntityQueue] {
        &self.queues[entity.queues.clone()]
    }

    /// Replaces the entities by those of the status.
    ///
    /// A queue that turned idle less than `linger` ago counts as ready still, so that a program with small gaps between
    /// its submissions does not let others in and out; or less than the last decision said, if that is longer. Returns the first time after `now` at which that ends for a
    /// queue, and the entities may be others.
    pub(crate) fn gather(
        &mut self,
        status: &Status,
        now: Time,
        linger: Duration,
        last_linger: &dyn Fn(usize, UnitId) -> Duration,
    ) -> Option<Time> {
        self.all.clear();
        self.uses.clear();
        self.queues.clear();
        self.devices.clear();
        let mut gathering = Gathering { entities: self, now, linger, last_linger, settles: None };
        match status {
            Status::Local { pid, hints, queues } => {
                for queue in queues.iter() {
                    gathering.push(UnitId::Queue(queue.queue), *pid, *hints, std::slice::from_ref(queue));
                }
            }
            Status::Global { gangs } => {
                for gang in gangs {
                    gathering.push(UnitId::Gang(gang.client), gang.pid, gang.hints, &gang.queues);
                }
            }
        }
        gathering.settles
    }

    /// The index of a device.
    fn device(&mut self, device: DeviceId) -> usize {
        // A host has few devices: looking through them costs less than hashing.
        self.devices.iter().position(|known| *known == device).unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        })
    }
}

struct Gathering<'a> {
    entities: &'a mut SchedEntities,
    now: Time,
    linger: Duration,
    last_linger: &'a dyn Fn(usize, UnitId) -> Duration,
    settles: Option<Time>,
}

impl Gathering<'_> {
    fn push(&mut self, id: UnitId, pid: Pid, process: ProcessHints, queues: &[QueueStatus]) {
        let (first_use, first_queue) = (self.entities.uses.len(), self.entities.queues.len());
        let linger = match self.linger {
            Duration::ZERO => Duration::ZERO,
            linger => linger.max((self.last_linger)(self.entities.all.len(), id)),
        };
        let (mut ready, mut working) = (false, false);
        let mut since = self.now;
        let mut idle_since = None;
        let mut range: Option<(Priority, Priority)> = None;
        let (mut lead, mut idle_lead) = (None, None);
        for queue in queues.iter().filter(|queue| queue.priority != Priority::NO_EXECUTE) {
            let ready_since = self.ready_since(queue.activity, linger);
            if let Some(start) = ready_since {
                ready = true;
                since = since.min(start);
                raise(&mut lead, queue);
            }
            match queue.activity {
                Activity::Ready { .. } => working = true,
                Activity::Idle { since } => {
                    idle_since = idle_since.max(since.map(|since| since.min(self.now)))
                }
            }
            raise(&mut idle_lead, queue);
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
            ready,
            since,
            working,
            idle_since: idle_since.filter(|_| !working),
            priority,
            lead,
            floor,
            ceiling,
            process,
            linger,
            running: false,
            ran: Duration::ZERO,
            uses: first_use..self.entities.uses.len(),
            queues: first_queue..self.entities.queues.len(),
        });
    }

    /// Since when the queue counts as ready, if it does.
    fn ready_since(&mut self, activity: Activity, linger: Duration) -> Option<Time> {
        match activity {
            Activity::Ready { since } => Some(since),
            Activity::Idle { since: None } => None,
            Activity::Idle { since: Some(since) } => {
                // A time in the future is an other process's clock or its lie: no more than a full linger from now.
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
