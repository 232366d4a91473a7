//! The connection to the policies' engine. No other part of the simulation knows the form of a status.

use super::distribution::nanos;
use super::hints::{Hints, Process};
use super::workload::{Client, Model};
use crate::WrongInput;
use clap::ValueEnum;
use policies::registry::{self, Row};
use policies::{Choice, Engine};
use protocol::codes::PreemptLevel;
use protocol::event::Event;
use protocol::hint::{self, Hint, ProcessHints, QueueHints};
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::operation::Window;
use protocol::status::{Activity, Gang, Queues, Status};
use protocol::time::Time;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// The name and the parameters that were set.
    words: String,
    choice: Choice,
    starvation: Option<Duration>,
}

impl Policy {
    fn new(row: &'static Row) -> Self {
        Self { words: row.kind.name().to_owned(), choice: Choice::new(row), starvation: None }
    }

    /// Returns every policy of the build, with the defaults of its parameters.
    pub fn all() -> Vec<Self> {
        registry::POLICIES.iter().map(Self::new).collect()
    }

    /// Parses a policy with parameters, as in `SLO target-ms=50`; the other parameters have their defaults.
    pub fn by_name(words: &str) -> Result<Self, WrongInput> {
        let mut words = words.split_whitespace();
        let row = registry::by_name(words.next().unwrap_or_default());
        let mut policy = Self::new(row.map_err(|error| WrongInput(error.to_string()))?);
        for word in words {
            let (name, value) = assignment(word)?;
            policy.set(name, value)?;
            policy.words += &format!(" {word}");
        }
        Ok(policy)
    }

    /// Returns the policy for a client that runs alone.
    pub(crate) fn for_one() -> Self {
        Self::new(registry::DEFAULT)
    }

    /// Returns its name with the parameters that were set.
    pub fn words(&self) -> &str {
        &self.words
    }

    pub fn name(&self) -> &'static str {
        self.choice.row.kind.name()
    }

    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.choice.values.iter().map(|(parameter, value)| (parameter.name, value))
    }

    pub fn has(&self, name: &str) -> bool {
        self.parameters().any(|(known, _)| known == name)
    }

    pub fn set(&mut self, name: &str, value: f64) -> Result<(), WrongInput> {
        let set = self.choice.values.set(name, value);
        set.map_err(|error| WrongInput(format!("{}: {error}", self.name())))
    }

    /// Sets the waiting time after which an entity runs briefly under a policy that uses priorities; `None`
    /// by default.
    pub fn set_starvation_limit(&mut self, limit: Option<Duration>) {
        self.starvation = limit;
    }
}

/// Parses a name and a number, as in `target-ms=50`.
pub(super) fn assignment(word: &str) -> Result<(&str, f64), WrongInput> {
    let parsed = word.split_once('=').and_then(|(name, value)| Some((name, value.parse().ok()?)));
    parsed.ok_or_else(|| WrongInput(format!("{word:?} is not a name=number")))
}

/// The scheduled entities. The help of the option would print doc comments of the variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    // Processes under a server, one for each client.
    Global,
    // The queues of one process, to which all clients belong. Its hints are those of the first client.
    Local,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Permission {
    pub(super) run: bool,
    /// True if the window limits the launched work.
    pub(super) limit: bool,
    /// The size of the window; the library's own choice is the model's.
    pub(super) window: Window,
}

/// What an entity did at a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    Works,
    /// It had no work, and counted as ready.
    Lingers,
    Idle,
}

/// The policy and the status from which it decides.
#[derive(Debug)]
pub(super) struct Scheduler {
    engine: Engine,
    status: Status,
    /// The index in the status of each queue of the simulation.
    indices: Vec<Index>,
}

#[derive(Debug, Clone, Copy)]
struct Index {
    gang: usize,
    queue: QueueId,
}

impl Scheduler {
    /// Creates the scheduler of these clients' queues. Queues are numbered in the order of the clients, and
    /// so are the sched entities: the clients, or under the local scheduler the queues.
    pub(super) fn new(policy: &Policy, scope: Scope, model: &Model, clients: &[&Client]) -> Self {
        let level = if model.level == 3 { PreemptLevel::Interrupt } else { PreemptLevel::Block };
        let mut lists: Vec<Queues> = Vec::new();
        let mut indices = Vec::new();
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
                let hinted = Event::Hint(Hint::Queue { queue, hints: of_queue(&client.hints) });
                for event in [created, hinted] {
                    list.apply(&event).expect("the number is a new one");
                }
                indices.push(Index { gang, queue });
            }
        }
        let status = match scope {
            Scope::Local => {
                let hints = clients.first().map(|client| of_process(&client.process)).unwrap_or_default();
                Status::Local { pid: Pid(1), hints, queues: lists.pop().unwrap_or_default() }
            }
            Scope::Global => {
                let gang = |(number, (queues, client)): (u32, (Queues, &&Client))| {
                    let (client, hints) = (ClientId(number.into()), of_process(&client.process));
                    Gang { client, pid: Pid(number), owner: 0, hints, queues }
                };
                Status::Global { gangs: (1..).zip(lists.into_iter().zip(clients)).map(gang).collect() }
            }
        };
        let linger = Duration::from_nanos(nanos(model.linger_us));
        let mut engine = Engine::new(policy.choice.clone(), linger);
        engine.set_starvation_limit(policy.starvation);
        Self { engine, status, indices }
    }

    /// Reports that a queue has had work since a moment.
    pub(super) fn ready(&mut self, queue: usize, since: u64) {
        self.set(queue, Activity::Ready { since: Time(since) });
    }

    /// Reports that a queue has been idle since a moment.
    pub(super) fn idle(&mut self, queue: usize, since: u64) {
        self.set(queue, Activity::Idle { since: Some(Time(since)) });
    }

    /// Announces work for a queue at a moment.
    pub(super) fn announce(&mut self, queue: usize, at: u64) {
        let (queues, queue) = self.find(queue);
        let known = queues.iter().find(|status| status.queue == queue).map(|status| status.hints);
        let hints = QueueHints { arrival: Some(Time(at)), ..known.unwrap_or_default() };
        let hinted = Event::Hint(Hint::Queue { queue, hints });
        queues.apply(&hinted).expect("every index names a queue");
    }

    fn set(&mut self, queue: usize, activity: Activity) {
        let (queues, queue) = self.find(queue);
        queues.set_activity(queue, activity).expect("every index names a queue");
    }

    fn find(&mut self, queue: usize) -> (&mut Queues, QueueId) {
        let Index { gang, queue } = self.indices[queue];
        match &mut self.status {
            Status::Local { queues, .. } => (queues, queue),
            Status::Global { gangs } => (&mut gangs[gang].queues, queue),
        }
    }

    /// Returns true if the policy needs every report of an idle queue, even if no other entity waits.
    pub(super) fn needs_idle_events(&self) -> bool {
        self.engine.needs_idle_events()
    }

    /// Returns the time for which an idle queue of this entity counted as ready at the last decision.
    pub(super) fn linger(&self, entity: usize) -> u64 {
        let linger = self.engine.entities().all().get(entity).map(|entity| entity.linger);
        linger.map_or(0, |linger| linger.as_nanos().try_into().unwrap_or(u64::MAX))
    }

    /// Returns the time since which an entity has no work, and the end of its linger; `None` if the last
    /// decision saw work, or if it never had any.
    pub(super) fn lingers(&self, entity: usize) -> Option<(u64, u64)> {
        let entity = self.engine.entities().all().get(entity)?;
        entity.idle_since.map(|since| (since.0, since.after(entity.linger).0))
    }

    /// Returns what an entity did at the last decision.
    pub(super) fn course(&self, entity: usize) -> Course {
        let entity = &self.engine.entities().all()[entity];
        match (entity.working, entity.ready) {
            (true, _) => Course::Works,
            (false, true) => Course::Lingers,
            (false, false) => Course::Idle,
        }
    }

    /// Tells the policies that the next change of an entity will not be reported.
    pub(super) fn note_unheard(&mut self, entity: usize) {
        self.engine.note_unheard(entity);
    }

    /// Returns a counter of the policy.
    #[cfg(test)]
    pub(super) fn counted(&self, name: &str) -> u64 {
        let counters = self.engine.counters().flat_map(|(_, counters)| counters);
        counters.filter(|(known, _)| *known == name).map(|(_, count)| count).sum()
    }

    /// Decides, and passes the permission of each entity to `tell`. Returns the moment of the next decision.
    pub(super) fn decide(&mut self, now: u64, mut tell: impl FnMut(usize, Permission)) -> Option<u64> {
        let decision = self.engine.decide(&self.status, Time(now));
        for (entity, operation) in decision.operations.iter().enumerate() {
            let permit = operation.permit;
            tell(entity, Permission { run: permit.run, limit: permit.limit, window: permit.window });
        }
        decision.wake.map(|wake| wake.0)
    }
}

fn of_queue(hints: &Hints) -> QueueHints {
    let Hints { utilization, deadline_us, laxity, preemptible } = *hints;
    QueueHints {
        utilization: utilization.unwrap_or_default(),
        deadline_us,
        laxity: laxity.map(|laxity| hint::Laxity {
            us: laxity.us,
            lax: laxity.lax,
            critical: laxity.critical,
        }),
        preemptible: preemptible.unwrap_or(true),
        ..QueueHints::default()
    }
}

fn of_process(process: &Process) -> ProcessHints {
    let Process { utilization, timeslice_us, k_deadline, window, job, cap, nice } = *process;
    ProcessHints {
        utilization: utilization.unwrap_or_default(),
        timeslice: timeslice_us,
        k_deadline,
        window,
        job,
        cap,
        nice,
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::Workload;
    use super::*;

    const TWO: &str = r#"
        duration_s = 1
        [[client]]
        name = "a"
        priority = 7
        queues = [{ device = 1 }, { device = 0, priority = 9 }]
        hints = { utilization = 75, deadline_us = 5, laxity = { us = 3, lax = 0, critical = 4 }, preemptible = false }
        process = { utilization = 60, timeslice_us = 200, k_deadline = 2, window = true, job = 3, cap = 30, nice = -5 }
        arrivals = { kind = "closed" }
        requests = [{ duration = { dist = "constant", us = 1 } }]
        [[client]]
        name = "b"
        arrivals = { kind = "closed" }
        requests = [{ duration = { dist = "constant", us = 1 } }]
    "#;

    fn scheduler(scope: Scope) -> Scheduler {
        let workload = Workload::from_toml(TWO).unwrap();
        let clients: Vec<_> = workload.client.iter().collect();
        Scheduler::new(&Policy::for_one(), scope, &Model::ideal(), &clients)
    }

    #[test]
    fn hints_of_clients_are_in_the_status() {
        let mut scheduler = scheduler(Scope::Global);
        scheduler.announce(1, 70);
        scheduler.ready(2, 30);
        scheduler.idle(2, 40);
        let Status::Global { gangs } = &scheduler.status else { panic!("a server's status") };
        let [first, second] = &gangs[..] else { panic!("two gangs: {gangs:?}") };
        assert_eq!(
            first.hints,
            ProcessHints {
                utilization: 60.try_into().unwrap(),
                timeslice: Some(200.try_into().unwrap()),
                k_deadline: 2.try_into().ok(),
                window: true,
                job: 3.try_into().ok(),
                cap: 30.try_into().ok(),
                nice: -5,
            }
        );
        let [one, two] = &first.queues[..] else { panic!("two queues: {first:?}") };
        let laxity = hint::Laxity { us: 3, lax: 0.try_into().unwrap(), critical: 4.try_into().unwrap() };
        let hints = QueueHints {
            utilization: 75.try_into().unwrap(),
            deadline_us: 5.try_into().ok(),
            laxity: Some(laxity),
            preemptible: false,
            ..QueueHints::default()
        };
        assert_eq!((one.device, one.priority.get(), one.hints), (DeviceId(1), 7, hints));
        let announced = QueueHints { arrival: Some(Time(70)), ..hints };
        assert_eq!((two.device, two.priority.get(), two.hints), (DeviceId(0), 9, announced));
        assert_eq!((second.hints, second.queues[0].hints), Default::default());
        assert_eq!(second.queues[0].activity, Activity::Idle { since: Some(Time(40)) });
        assert_eq!(second.queues[0].level, PreemptLevel::Interrupt);
    }

    #[test]
    fn entities_are_processes_or_queues() {
        for (scope, entities) in [(Scope::Global, 2), (Scope::Local, 3)] {
            let mut scheduler = scheduler(scope);
            let mut told = Vec::new();
            scheduler.ready(1, 0);
            scheduler.decide(1, |entity, permission| told.push((entity, permission.run)));
            // The second queue, of priority 9, outranks the other client on device 0.
            let runs: Vec<bool> = told.iter().map(|(_, run)| *run).collect();
            assert_eq!(
                told.iter().map(|(entity, _)| *entity).collect::<Vec<_>>(),
                (0..entities).collect::<Vec<_>>()
            );
            assert_eq!(runs, if entities == 2 { vec![true, false] } else { vec![true, true, false] });
        }
    }

    #[test]
    fn policy_has_only_its_own_parameters() {
        assert_eq!(Policy::by_name("hpf  ").unwrap(), Policy::by_name("HPF").unwrap());
        assert_eq!(Policy::by_name("HPF x").unwrap_err().0, "\"x\" is not a name=number");
        assert_eq!(
            Policy::by_name("HPF x=1").unwrap_err().0,
            "HPF: no parameter \"x\": this policy has gaps, share-percent, slowdown-percent, queues-first, \
             stream-priorities"
        );
        assert!(Policy::by_name("").unwrap_err().0.starts_with("no policy \"\""));
        for mut policy in Policy::all() {
            assert!(!policy.has("no-such"));
            let error = policy.set("no-such", 1.0).unwrap_err().0;
            assert!(error.starts_with(&format!("{}: no parameter \"no-such\"", policy.name())), "{error}");
            let parameters: Vec<_> = policy.parameters().collect();
            for (name, value) in parameters {
                policy.set(name, value).unwrap();
            }
        }
    }
}
