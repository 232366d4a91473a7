//! The way to the policies: what the simulation says to their engine, and hears from it. Nothing else in the simulation
//! knows how a status looks.

use super::span::nanos;
use super::workload::{Client, Model};
use policies::Engine;
use policies::registry::{self, Row};
use protocol::codes::PreemptLevel;
use protocol::event::Event;
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::status::{Activity, Gang, Queues, Status};
use protocol::time::Time;
use std::time::Duration;

/// A policy of the build.
pub type Policy = &'static Row;

/// Every policy of the build.
pub fn all() -> Vec<Policy> {
    registry::POLICIES.iter().collect()
}

/// The policy with this name.
///
/// # Errors
/// There is none; one line names those that there are.
pub fn by_name(name: &str) -> Result<Policy, String> {
    registry::by_name(name)
}

/// The policy under which a client runs that is alone.
pub(super) fn default() -> Policy {
    registry::DEFAULT
}

/// A policy's name.
pub(super) fn name(policy: Policy) -> &'static str {
    policy.kind.name()
}

/// Who is decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Processes, under a server: each client is one.
    Global,
    /// The queues of one process, to which all clients belong.
    Local,
}

/// Who may run, and how much, from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Permission {
    pub(super) run: bool,
    /// Whether the window limits what is launched.
    pub(super) limit: bool,
}

/// The policy with the status that it decides from.
#[derive(Debug)]
pub(super) struct Scheduler {
    engine: Engine,
    status: Status,
    /// Of each queue of the simulation its place in the status.
    places: Vec<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    gang: usize,
    queue: QueueId,
}

impl Scheduler {
    /// Decides about the queues of these clients with a policy that has decided nothing yet. Queues are numbered through
    /// in the order of the clients; so are *units*: the clients, or under the local scheduler the queues.
    pub(super) fn new(policy: Policy, scope: Scope, model: &Model, clients: &[&Client]) -> Self {
        let level = if model.level == 3 { PreemptLevel::Interrupt } else { PreemptLevel::Block };
        let mut lists: Vec<Queues> = Vec::new();
        let mut places = Vec::new();
        for (index, client) in clients.iter().enumerate() {
            if scope == Scope::Global || index == 0 {
                lists.push(Queues::default());
            }
            let (gang, list) =
                (lists.len() - 1, lists.last_mut().expect("one was made for the first client"));
            for on in &client.queues {
                let queue = QueueId(list.len() as u64 + 1);
                let priority = on.priority.unwrap_or(client.priority);
                let created = Event::QueueCreated { queue, device: DeviceId(on.device), priority, level };
                list.apply(&created).expect("the number is a new one");
                places.push(Place { gang, queue });
            }
        }
        let status = match scope {
            Scope::Local => Status::Local { pid: Pid(1), queues: lists.pop().unwrap_or_default() },
            Scope::Global => {
                let gang = |(index, queues)| Gang { client: ClientId(index), pid: Pid(index as u32), queues };
                Status::Global { gangs: (1..).zip(lists).map(gang).collect() }
            }
        };
        let linger = Duration::from_nanos(nanos(model.linger_us));
        Self { engine: Engine::new(policy, linger), status, places }
    }

    /// Says that a queue has work since then.
    pub(super) fn ready(&mut self, queue: usize, since: u64) {
        self.set(queue, Activity::Ready { since: Time(since) });
    }

    /// Says that a queue has had none since then.
    pub(super) fn idle(&mut self, queue: usize, since: u64) {
        self.set(queue, Activity::Idle { since: Some(Time(since)) });
    }

    fn set(&mut self, queue: usize, activity: Activity) {
        let Place { gang, queue } = self.places[queue];
        let queues = match &mut self.status {
            Status::Local { queues, .. } => queues,
            Status::Global { gangs } => &mut gangs[gang].queues,
        };
        queues.set_activity(queue, activity).expect("every place names a queue");
    }

    /// Decides. `tell` hears the permission of each unit; what comes back is when to decide anew.
    pub(super) fn decide(&mut self, now: u64, mut tell: impl FnMut(usize, Permission)) -> Option<u64> {
        let decision = self.engine.decide(&self.status, Time(now));
        for (unit, operation) in decision.operations.iter().enumerate() {
            let permit = operation.permit;
            tell(unit, Permission { run: permit.run, limit: permit.limit });
        }
        decision.wake.map(|wake| wake.0)
    }
}
