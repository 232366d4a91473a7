//! The way to the policies: what the simulation says to their engine, and hears from it. Nothing else in the simulation
//! knows how a status looks.

use super::hints::{Hints, Process};
use super::span::nanos;
use super::workload::{Client, Model};
use policies::registry::{self, Row};
use policies::{Choice, Engine};
use protocol::codes::PreemptLevel;
use protocol::event::Event;
use protocol::hint::{self, Hint, ProcessHints, QueueHints};
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::operation::Window;
use protocol::status::{Activity, Gang, Queues, Status};
use protocol::time::Time;
use std::time::Duration;

/// A policy of the build with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// How it was named.
    words: String,
    choice: Choice,
    starvation: Option<Duration>,
}

impl Policy {
    fn new(row: &'static Row) -> Self {
        Self { words: row.kind.name().to_owned(), choice: Choice::new(row), starvation: None }
    }

    /// Every policy of the build, with the defaults of its parameters.
    pub fn all() -> Vec<Self> {
        registry::POLICIES.iter().map(Self::new).collect()
    }

    /// The policy with this name, with parameters behind it, as in `SLO target-ms=50`, and the defaults of the others.
    ///
    /// # Errors
    /// There is no such policy, or it has no such parameter; one line says which there are.
    pub fn by_name(words: &str) -> Result<Self, String> {
        let mut words = words.split_whitespace();
        let mut policy = Self::new(registry::by_name(words.next().unwrap_or_default())?);
        for word in words {
            let (name, value) = assignment(word)?;
            policy.set(name, value)?;
            policy.words += &format!(" {word}");
        }
        Ok(policy)
    }

    /// The policy under which a client runs that is alone.
    pub(crate) fn for_one() -> Self {
        Self::new(registry::DEFAULT)
    }

    /// Its name, with the parameters that were set with it.
    pub fn words(&self) -> &str {
        &self.words
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.choice.row.kind.name()
    }

    /// Its parameters with their values.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.choice.values.iter().map(|(parameter, value)| (parameter.name, value))
    }

    /// Whether it has a parameter of this name.
    pub fn has(&self, name: &str) -> bool {
        self.parameters().any(|(known, _)| known == name)
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// It has none of that name, or the value is outside its range; one line says which.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), String> {
        self.choice.values.set(name, value).map_err(|error| format!("{}: {error}", self.name()))
    }

    /// After how long whoever has waited runs for a moment, under a policy that goes by priority; off at first.
    pub fn set_starvation(&mut self, limit: Option<Duration>) {
        self.starvation = limit;
    }
}

/// A name and a number, as in `target-ms=50`.
///
/// # Errors
/// It is something else; one line says what.
pub(super) fn assignment(word: &str) -> Result<(&str, f64), String> {
    let parsed = word.split_once('=').and_then(|(name, value)| Some((name, value.parse().ok()?)));
    parsed.ok_or_else(|| format!("{word:?} is not a name=number"))
}

/// Who is decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Processes, under a server: each client is one.
    Global,
    /// The queues of one process, to which all clients belong. What is said of it is what is said of the first.
    Local,
}

/// Who may run, and how much, from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Permission {
    pub(super) run: bool,
    /// Whether the window limits what is launched.
    pub(super) limit: bool,
    /// How much of it; the library's own choice is the model's.
    pub(super) window: Window,
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
    pub(super) fn new(policy: &Policy, scope: Scope, model: &Model, clients: &[&Client]) -> Self {
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
                let told = Event::Hint(Hint::Queue { queue, hints: of_queue(&client.hints) });
                for event in [created, told] {
                    list.apply(&event).expect("the number is a new one");
                }
                places.push(Place { gang, queue });
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
                    Gang { client, pid: Pid(number), hints, queues }
                };
                Status::Global { gangs: (1..).zip(lists.into_iter().zip(clients)).map(gang).collect() }
            }
        };
        let linger = Duration::from_nanos(nanos(model.linger_us));
        let mut engine = Engine::new(policy.choice.clone(), linger);
        engine.set_starvation(policy.starvation);
        Self { engine, status, places }
    }

    /// Says that a queue has work since then.
    pub(super) fn ready(&mut self, queue: usize, since: u64) {
        self.set(queue, Activity::Ready { since: Time(since) });
    }

    /// Says that a queue has had none since then.
    pub(super) fn idle(&mut self, queue: usize, since: u64) {
        self.set(queue, Activity::Idle { since: Some(Time(since)) });
    }

    /// Says that work comes for a queue at that time.
    pub(super) fn announce(&mut self, queue: usize, at: u64) {
        let (queues, queue) = self.find(queue);
        let known = queues.iter().find(|status| status.queue == queue).map(|status| status.hints);
        let hints = QueueHints { arrival: Some(Time(at)), ..known.unwrap_or_default() };
        let told = Event::Hint(Hint::Queue { queue, hints });
        queues.apply(&told).expect("every place names a queue");
    }

    fn set(&mut self, queue: usize, activity: Activity) {
        let (queues, queue) = self.find(queue);
        queues.set_activity(queue, activity).expect("every place names a queue");
    }

    fn find(&mut self, queue: usize) -> (&mut Queues, QueueId) {
        let Place { gang, queue } = self.places[queue];
        match &mut self.status {
            Status::Local { queues, .. } => (queues, queue),
            Status::Global { gangs } => (&mut gangs[gang].queues, queue),
        }
    }

    /// Whether the policy wants to decide whenever a queue turns idle, also if nobody waits for that.
    pub(super) fn hears_idle(&self) -> bool {
        self.engine.hears_idle()
    }

    /// For how long a queue of this unit that turned idle counted as ready at the last decision.
    pub(super) fn linger(&self, unit: usize) -> u64 {
        let linger = self.engine.entities().all().get(unit).map(|unit| unit.linger);
        linger.map_or(0, |linger| linger.as_nanos().try_into().unwrap_or(u64::MAX))
    }

    /// Decides. `tell` hears the permission of each unit; what comes back is when to decide anew.
    pub(super) fn decide(&mut self, now: u64, mut tell: impl FnMut(usize, Permission)) -> Option<u64> {
        let decision = self.engine.decide(&self.status, Time(now));
        for (unit, operation) in decision.operations.iter().enumerate() {
            let permit = operation.permit;
            tell(unit, Permission { run: permit.run, limit: permit.limit, window: permit.window });
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
    fn what_clients_say_stands_in_the_status() {
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
    fn units_are_processes_or_queues() {
        for (scope, units) in [(Scope::Global, 2), (Scope::Local, 3)] {
            let mut scheduler = scheduler(scope);
            let mut told = Vec::new();
            scheduler.ready(1, 0);
            scheduler.decide(1, |unit, permission| told.push((unit, permission.run)));
            // The second queue, of priority 9, outranks whoever is on device 0.
            let runs: Vec<bool> = told.iter().map(|(_, run)| *run).collect();
            assert_eq!(
                told.iter().map(|(unit, _)| *unit).collect::<Vec<_>>(),
                (0..units).collect::<Vec<_>>()
            );
            assert_eq!(runs, if units == 2 { vec![true, false] } else { vec![true, true, false] });
        }
    }

    #[test]
    fn a_policy_has_only_its_own_parameters() {
        assert_eq!(Policy::by_name("hpf  ").unwrap(), Policy::by_name("HPF").unwrap());
        assert_eq!(Policy::by_name("HPF x").unwrap_err(), "\"x\" is not a name=number");
        assert_eq!(Policy::by_name("HPF x=1").unwrap_err(), "HPF: no parameter \"x\": this policy has none");
        assert!(Policy::by_name("").unwrap_err().starts_with("no policy \"\""));
        for mut policy in Policy::all() {
            assert!(!policy.has("no-such"));
            let error = policy.set("no-such", 1.0).unwrap_err();
            assert!(error.starts_with(&format!("{}: no parameter \"no-such\"", policy.name())), "{error}");
            let parameters: Vec<_> = policy.parameters().collect();
            for (name, value) in parameters {
                policy.set(name, value).unwrap();
            }
        }
    }
}
