//! What is decided about: queues or gangs, brought to one form.

use protocol::bounds::Priority;
use protocol::ids::{DeviceId, Pid, QueueId};
use protocol::operation::UnitId;
use protocol::status::{Activity, QueueStatus, Status};
use protocol::time::Time;
use std::ops::Range;
use std::time::Duration;

/// A queue of this process, or a gang.
///
/// A gang's queues of priority [`Priority::NO_EXECUTE`] count for nothing: they give it neither work nor a device, and
/// the gang's permission does not cover them; its process holds them by itself. A unit of such queues only has that
/// priority itself.
#[derive(Debug, Clone)]
pub struct Unit {
    /// What operations call it.
    pub id: UnitId,
    /// Its process.
    pub pid: Pid,
    /// Whether it has work, or had some so recently that it counts as having it.
    pub ready: bool,
    /// Since when; for a unit that is not ready, the time of the decision.
    pub since: Time,
    /// The priority that counts: the highest of its ready queues, or of all while none is ready.
    pub priority: Priority,
    /// The queue whose priority this is, the smallest among equals; 0 if it has none.
    pub lead: QueueId,
    /// The lowest priority of its queues: how far its own can fall.
    pub floor: Priority,
    /// The highest priority of its queues: how far its own can rise.
    pub ceiling: Priority,
    uses: Range<usize>,
}

/// A device that a unit has a queue on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceUse {
    /// Index into [`Units::devices`].
    pub device: usize,
    /// Whether one of these queues is ready.
    pub busy: bool,
}

/// The units of a status. Kept from one decision to the next, so that gathering allocates only while they grow.
#[derive(Debug, Default)]
pub struct Units {
    all: Vec<Unit>,
    uses: Vec<DeviceUse>,
    devices: Vec<DeviceId>,
}

impl Units {
    /// The units, in the order of the status.
    pub fn all(&self) -> &[Unit] {
        &self.all
    }

    /// The devices on which any unit has a queue that can run.
    pub fn devices(&self) -> &[DeviceId] {
        &self.devices
    }

    /// The devices of one of these units, each once.
    pub fn uses(&self, unit: &Unit) -> &[DeviceUse] {
        &self.uses[unit.uses.clone()]
    }

    /// Replaces the units by those of the status.
    ///
    /// A queue that turned idle less than `linger` ago counts as ready still, so that a program with small gaps between
    /// its submissions does not let others in and out. Returns the first time after `now` at which that ends for a
    /// queue, and the units may be others.
    pub fn gather(&mut self, status: &Status, now: Time, linger: Duration) -> Option<Time> {
        self.all.clear();
        self.uses.clear();
        self.devices.clear();
        let mut gathering = Gathering { units: self, now, linger, settles: None };
        match status {
            Status::Local { pid, queues } => {
                for queue in queues.iter() {
                    gathering.push(UnitId::Queue(queue.queue), *pid, std::slice::from_ref(queue));
                }
            }
            Status::Global { gangs } => {
                for gang in gangs {
                    gathering.push(UnitId::Gang(gang.client), gang.pid, &gang.queues);
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
    units: &'a mut Units,
    now: Time,
    linger: Duration,
    settles: Option<Time>,
}

impl Gathering<'_> {
    fn push(&mut self, id: UnitId, pid: Pid, queues: &[QueueStatus]) {
        let first = self.units.uses.len();
        let mut ready = false;
        let mut since = self.now;
        let mut range: Option<(Priority, Priority)> = None;
        let (mut lead, mut idle_lead) = (None, None);
        for queue in queues.iter().filter(|queue| queue.priority != Priority::NO_EXECUTE) {
            let ready_since = self.ready_since(queue.activity);
            if let Some(start) = ready_since {
                ready = true;
                since = since.min(start);
                raise(&mut lead, queue);
            }
            raise(&mut idle_lead, queue);
            let (floor, ceiling) = range.unwrap_or((queue.priority, queue.priority));
            range = Some((floor.min(queue.priority), ceiling.max(queue.priority)));
            self.note_use(first, queue.device, ready_since.is_some());
        }
        let none = match queues {
            [] => Priority::DEFAULT,
            _ => Priority::NO_EXECUTE,
        };
        let (floor, ceiling) = range.unwrap_or((none, none));
        let (priority, lead) = lead.or(idle_lead).unwrap_or((none, QueueId(0)));
        let uses = first..self.units.uses.len();
        self.units.all.push(Unit { id, pid, ready, since, priority, lead, floor, ceiling, uses });
    }

    /// Since when the queue counts as ready, if it does.
    fn ready_since(&mut self, activity: Activity) -> Option<Time> {
        match activity {
            Activity::Ready { since } => Some(since),
            Activity::Idle { since: None } => None,
            Activity::Idle { since: Some(since) } => {
                // A time in the future is an other process's clock or its lie: no more than a full linger from now.
                let since = since.min(self.now);
                let end = since.after(self.linger);
                if end <= self.now {
                    return None;
                }
                self.settles = Some(self.settles.map_or(end, |other| other.min(end)));
                Some(since)
            }
        }
    }

    /// Enters the device among the uses of the unit that begin at `first`.
    fn note_use(&mut self, first: usize, device: DeviceId, busy: bool) {
        let known =
            self.units.uses[first..].iter().position(|used| self.units.devices[used.device] == device);
        match known {
            Some(place) => self.units.uses[first + place].busy |= busy,
            None => {
                let device = self.units.device(device);
                self.units.uses.push(DeviceUse { device, busy });
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
