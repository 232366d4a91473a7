//! The entities that a policy ranks: queues or gangs, in one form.

use crate::per_entity::PerEntity;
use crate::rows::{self, Course, EntityQueue, Revision, Rows, Sums, Times};
use crate::times::earlier;
use protocol::bounds::{Priority, StreamPriority};
use protocol::codes::PreemptLevel;
use protocol::hint::ProcessHints;
use protocol::ids::{DeviceId, Pid, QueueId};
use protocol::operation::EntityId;
use protocol::status::{Gang, QueueStatus, Status};
use protocol::time::Time;
use std::fmt;
use std::num::NonZeroU64;
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
    /// The queue with that priority, the one with the highest stream priority and then the smallest number among equals; 0
    /// if it has no queue.
    pub lead: QueueId,
    /// The lowest priority of its queues, to which its own can fall.
    pub floor: Priority,
    /// The highest priority of its queues, to which its own can rise.
    pub ceiling: Priority,
    /// The stream priorities that belong to these priorities.
    pub streams: StreamPriorities,
    /// The number of launches of its queues when one of them turned ready or idle last. It also falls: a queue that
    /// is gone does not count.
    pub launched: u64,
    /// The deepest preemption level that one of its queues asks for.
    pub level: PreemptLevel,
    /// The highest utilization hinted for its ready queues, or for all its queues while none is ready; 0 if it has no
    /// queue.
    pub utilization: u64,
    /// The shortest deadline hinted for one of its queues, ready or not, in microseconds, and that queue.
    pub deadline: Option<(NonZeroU64, QueueId)>,
    /// The hints about its process.
    pub process: ProcessHints,
    /// The time for which a queue still counts as ready after it has turned idle.
    pub linger: Duration,
    /// True if the last decision let it run and it has had work since then.
    pub running: bool,
    /// The time for which it had its devices since the last decision: it was ready and was allowed to run.
    pub ran: Duration,
    /// Its place among the entities.
    pub(crate) index: usize,
    /// Stands for what its queues say.
    pub(crate) revision: Revision,
    uses: Range<usize>,
    queues: Range<usize>,
}

/// The priorities of an entity's streams (`hipStreamCreateWithPriority`), which decide between equal priorities where the
/// policy says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamPriorities {
    /// That of [`SchedEntity::lead`].
    pub own: StreamPriority,
    /// The lowest one among the queues with the lowest priority.
    pub floor: StreamPriority,
    /// The highest one among the queues with the highest priority.
    pub ceiling: StreamPriority,
}

impl SchedEntity {
    /// Returns the number of its queues that may run at all.
    pub(crate) fn queue_count(&self) -> usize {
        self.queues.len()
    }
}

/// A device on which an entity has a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceUse {
    /// The index in [`SchedEntities::devices`].
    pub device: usize,
    /// True if one of these queues is ready.
    pub busy: bool,
}

/// The entities of a status. The same value is used for every decision, so that gathering allocates only
/// while they grow.
#[derive(Default)]
pub struct SchedEntities {
    all: Vec<SchedEntity>,
    uses: Vec<DeviceUse>,
    devices: Vec<DeviceId>,
    /// The queues of entities that are queues. A new decision reads all of them: what would be kept of one is as much.
    queues: Vec<EntityQueue>,
    /// The queues of gangs. Empty under the local scheduler.
    rows: PerEntity<Rows>,
    /// The uses and the devices of the decision before.
    last: (Vec<DeviceUse>, Vec<DeviceId>),
    /// The last revision.
    revision: Revision,
    rebuilt: usize,
}

/// Only what decisions depend on.
impl fmt::Debug for SchedEntities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { all, uses, devices, queues, rows, .. } = self;
        f.debug_struct("SchedEntities")
            .field("all", all)
            .field("uses", uses)
            .field("devices", devices)
            .field("queues", queues)
            .field("rows", &rows.values())
            .finish_non_exhaustive()
    }
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
        let all = self.rows.values().get(entity.index).map_or(&self.queues, |rows| &rows.queues);
        &all[entity.queues.clone()]
    }

    /// Returns the number of entities whose queues the last decision has read: those that are new or have changed, or
    /// whose queues stop to count as ready with the time. It is for measurements.
    pub fn rebuilt(&self) -> usize {
        self.rebuilt
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
        std::mem::swap(&mut self.uses, &mut self.last.0);
        std::mem::swap(&mut self.devices, &mut self.last.1);
        self.uses.clear();
        self.devices.clear();
        self.queues.clear();
        self.rebuilt = 0;
        let mut settles = None;
        match status {
            Status::Local { pid, hints, queues } => {
                self.rows.clear();
                for queue in queues.iter() {
                    let source =
                        Source { id: EntityId::Queue(queue.queue), pid: *pid, owner: 0, hints: *hints };
                    let ends = self.push_queue(source, std::slice::from_ref(queue), now, linger);
                    settles = earlier(settles, ends);
                }
            }
            Status::Global { gangs } => {
                self.rows.align_to(gangs.iter().map(|gang| EntityId::Gang(gang.client)));
                for gang in gangs {
                    settles = earlier(settles, self.push_gang(gang, now, linger));
                }
            }
        }
        settles
    }

    /// Adds a queue of this process. Returns the time at which it no longer counts as ready, if it does without work.
    #[inline(always)]
    fn push_queue(
        &mut self,
        source: Source,
        queue: &[QueueStatus],
        now: Time,
        linger: &mut dyn FnMut(usize, EntityId, Course) -> Duration,
    ) -> Option<Time> {
        let Self { all, uses, devices, queues, .. } = self;
        let (first_use, first_queue) = (uses.len(), queues.len());
        let course = Times::of(queue).course(now);
        let linger = linger(all.len(), source.id, course);
        let (sums, settles) = rows::read(queue, now, linger, queues, |device, busy| {
            note_use(uses, devices, first_use, device, busy)
        });
        self.rebuilt += 1;
        let revision = self.revision.next();
        let (uses, queues) = (first_use..uses.len(), first_queue..queues.len());
        self.push(&source, (course, linger, now), &sums, revision, uses, queues);
        settles
    }

    /// Adds a gang. Returns the first time after `now` at which one of its queues no longer counts as ready.
    #[inline(always)]
    fn push_gang(
        &mut self,
        gang: &Gang,
        now: Time,
        linger: &mut dyn FnMut(usize, EntityId, Course) -> Duration,
    ) -> Option<Time> {
        let Gang { client, pid, owner, hints, ref queues } = *gang;
        let source = Source { id: EntityId::Gang(client), pid, owner, hints };
        let Self { all, uses, devices, rows, last, .. } = self;
        let (index, first_use) = (all.len(), uses.len());
        let rows = &mut rows.values_mut()[index];
        rows.note(queues, queues.version());
        let course = rows.times.course(now);
        let linger = linger(index, source.id, course);
        let mut settles = None;
        let sums = match rows.known(now, linger) {
            Some(sums) => {
                // The devices can have other indices than before.
                for used in &last.0[rows.uses.clone()] {
                    let device = place(devices, last.1[used.device], used.device);
                    uses.push(DeviceUse { device, busy: used.busy });
                }
                sums
            }
            None => {
                self.rebuilt += 1;
                rows.revision = self.revision.next();
                let sums;
                (sums, settles) = rows.read(queues, now, linger, |device, busy| {
                    note_use(uses, devices, first_use, device, busy)
                });
                sums
            }
        };
        rows.uses = first_use..uses.len();
        let (revision, uses, queues) = (rows.revision, rows.uses.clone(), 0..rows.queues.len());
        self.push(&source, (course, linger, now), &sums, revision, uses, queues);
        settles
    }

    // For each entity of each decision: a call would copy all that again.
    #[inline(always)]
    fn push(
        &mut self,
        source: &Source,
        (course, linger, now): (Course, Duration, Time),
        sums: &Sums,
        revision: Revision,
        uses: Range<usize>,
        queues: Range<usize>,
    ) {
        let Source { id, pid, owner, hints } = *source;
        self.all.push(SchedEntity {
            id,
            pid,
            owner,
            ready: sums.ready_since.is_some(),
            since: sums.ready_since.map_or(now, |since| since.min(now)),
            working: matches!(course, Course::Working(_)),
            idle_since: match course {
                Course::Idle(since) => Some(since),
                _ => None,
            },
            priority: sums.urgency.priority,
            lead: sums.lead,
            floor: sums.floor.priority,
            ceiling: sums.ceiling.priority,
            streams: StreamPriorities {
                own: sums.urgency.stream,
                floor: sums.floor.stream,
                ceiling: sums.ceiling.stream,
            },
            launched: sums.launched,
            level: sums.level,
            utilization: sums.utilization,
            deadline: sums.deadline,
            process: hints,
            linger,
            running: false,
            ran: Duration::ZERO,
            index: self.all.len(),
            revision,
            uses,
            queues,
        });
    }
}

/// Where an entity comes from.
#[derive(Debug, Clone, Copy)]
struct Source {
    id: EntityId,
    pid: Pid,
    owner: u32,
    hints: ProcessHints,
}

/// Returns the index of a device. The guess is tried first.
fn place(devices: &mut Vec<DeviceId>, device: DeviceId, guess: usize) -> usize {
    if devices.get(guess) == Some(&device) {
        return guess;
    }
    // A host has few devices, so a linear search costs less than hashing.
    devices.iter().position(|known| *known == device).unwrap_or_else(|| {
        devices.push(device);
        devices.len() - 1
    })
}

/// Enters the device among the uses of the entity that begin at `first`.
fn note_use(
    uses: &mut Vec<DeviceUse>,
    devices: &mut Vec<DeviceId>,
    first: usize,
    device: DeviceId,
    busy: bool,
) {
    match uses[first..].iter_mut().find(|used| devices[used.device] == device) {
        Some(used) => used.busy |= busy,
        None => uses.push(DeviceUse { device: place(devices, device, 0), busy }),
    }
}
