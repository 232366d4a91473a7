//! Status in, operations out: the policies with what every policy needs around it.

use crate::parameter::Values;
use crate::policy::{Input, Policy, Ranking, Scope};
use crate::reason::PRIORITY;
use crate::registry::Row;
use crate::resolve::{Ranked, Resolver};
use crate::runtime_accounting::RuntimeAccounting;
use crate::sched_entity::SchedEntities;
use crate::starvation::Starvation;
use crate::times::earlier;
use protocol::bounds::Priority;
use protocol::ids::DeviceId;
use protocol::operation::{Operation, Permit, Reason, Window};
use protocol::status::Status;
use protocol::time::Time;
use std::time::Duration;

/// What is in force from now on.
#[derive(Debug, Clone, Copy)]
pub struct Decision<'a> {
    /// One operation for each entity of the status, in its order.
    pub operations: &'a [Operation],
    /// When to decide anew even if nothing happens.
    pub wake: Option<Time>,
}

/// A policy with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Which policy.
    pub row: &'static Row,
    /// Its parameters.
    pub values: Values,
}

impl Choice {
    /// The policy with the default of each parameter.
    pub fn new(row: &'static Row) -> Self {
        Self { row, values: Values::new(row.parameters) }
    }

    fn policy(&self) -> Box<dyn Policy> {
        let mut policy = (self.row.new)();
        policy.configure(&self.values);
        policy
    }
}

impl From<&'static Row> for Choice {
    fn from(row: &'static Row) -> Self {
        Self::new(row)
    }
}

/// A policy, and what it rules.
#[derive(Debug)]
struct PolicyBinding {
    /// One device; without one, all that no other seat has.
    device: Option<DeviceId>,
    choice: Choice,
    policy: Box<dyn Policy>,
    /// The places of the entities on its devices.
    members: Vec<usize>,
}

impl PolicyBinding {
    fn new(device: Option<DeviceId>, choice: Choice) -> Self {
        let policy = choice.policy();
        Self { device, choice, policy, members: Vec::new() }
    }

    /// The same policy with other parameters remembers what it knows; another one knows nothing of what was decided.
    fn choose(&mut self, choice: Choice) {
        if self.choice.row.kind == choice.row.kind {
            self.policy.configure(&choice.values);
        } else {
            self.policy = choice.policy();
        }
        self.choice = choice;
    }
}

/// Decides with one policy, or with one for each device. Its owner calls it when the status has changed and at the
/// wake-up; deciding once more in between is harmless.
#[derive(Debug)]
pub struct Engine {
    /// The one for all devices first, then those of single devices by their numbers.
    bindings: Vec<PolicyBinding>,
    linger: Duration,
    starvation: Starvation,
    entities: SchedEntities,
    accounting: RuntimeAccounting,
    /// What devices drew when they were read.
    meters: Vec<(DeviceId, u64, Time)>,
    power: Vec<Option<(u64, Time)>>,
    rules: Vec<(usize, usize)>,
    rankings: Vec<Vec<Ranking>>,
    resolver: Resolver,
    permits: Vec<Permit>,
    operations: Vec<Operation>,
}

impl Engine {
    /// For how long a queue that turned idle counts as ready still, if no policy says longer ([`Ranking::linger`]).
    pub const LINGER: Duration = Duration::from_micros(200);

    /// Decides with a new policy of this kind. With a linger of zero nobody lingers, whatever policies say.
    pub fn new(choice: impl Into<Choice>, linger: Duration) -> Self {
        Self {
            bindings: vec![PolicyBinding::new(None, choice.into())],
            linger,
            starvation: Starvation::default(),
            entities: SchedEntities::default(),
            accounting: RuntimeAccounting::default(),
            meters: Vec::new(),
            power: Vec::new(),
            rules: Vec::new(),
            rankings: Vec::new(),
            resolver: Resolver::default(),
            permits: Vec::new(),
            operations: Vec::new(),
        }
    }

    /// Which policy decides where no device has its own.
    pub fn policy(&self) -> &'static Row {
        self.bindings[0].choice.row
    }

    /// The policies: that of all devices, then those of single ones.
    pub fn choices(&self) -> impl ExactSizeIterator<Item = (Option<DeviceId>, &Choice)> {
        self.bindings.iter().map(|binding| (binding.device, &binding.choice))
    }

    /// Lets this policy decide from now on, on all devices that have none of their own. If it decides already, it takes
    /// the parameters and remembers what it knows; another one knows nothing of what was decided before.
    pub fn set_policy(&mut self, choice: impl Into<Choice>) {
        self.bindings[0].choose(choice.into());
    }

    /// Lets this policy decide on one device, as [`Engine::set_policy`] does; with none the device has no policy of its
    /// own any more.
    pub fn set_device_policy(&mut self, device: DeviceId, choice: Option<Choice>) {
        let index = self.bindings[1..].binary_search_by_key(&Some(device), |binding| binding.device);
        match (index.map(|index| index + 1).map_err(|index| index + 1), choice) {
            (Ok(index), Some(choice)) => self.bindings[index].choose(choice),
            (Ok(index), None) => drop(self.bindings.remove(index)),
            (Err(index), Some(choice)) => {
                self.bindings.insert(index, PolicyBinding::new(Some(device), choice))
            }
            (Err(_), None) => {}
        }
    }

    /// After how long a ready entity that does not run does so for a moment, under policies that go by priority; nothing
    /// is for ever. Off at first.
    pub fn set_starvation(&mut self, limit: Option<Duration>) {
        self.starvation.set(limit);
    }

    /// Somebody else has decided since the last decision: nothing of it tells who ran or waited.
    pub fn forget_decision(&mut self) {
        self.accounting.forget();
        self.starvation.forget();
    }

    /// How often somebody wants to know what the devices draw; nothing if nobody does.
    pub fn reads_power(&self) -> Option<Duration> {
        self.bindings.iter().filter_map(|binding| binding.policy.reads_power()).min()
    }

    /// What a device drew at this moment, in milliwatts; averaged over whatever time the driver takes.
    pub fn set_power(&mut self, device: DeviceId, milliwatts: u64, at: Time) {
        match self.meters.iter_mut().find(|(known, ..)| *known == device) {
            Some(meter) => *meter = (device, milliwatts, at),
            None => self.meters.push((device, milliwatts, at)),
        }
    }

    /// Whether somebody goes by the nice values of processes.
    pub fn reads_nice(&self) -> bool {
        self.bindings.iter().any(|binding| binding.policy.reads_nice())
    }

    /// Whether a decision is wanted whenever a queue turns idle, also if nobody waits for that.
    pub fn hears_idle(&self) -> bool {
        self.bindings.iter().any(|binding| binding.policy.hears_idle())
    }

    /// What the policies have counted, in the order of [`Engine::choices`].
    pub fn counters(&self) -> impl ExactSizeIterator<Item = (Option<DeviceId>, Vec<(&'static str, u64)>)> {
        self.bindings.iter().map(|binding| (binding.device, binding.policy.counters()))
    }

    /// Devices of [`Entities::devices`] of which this is the same number are competed for as one.
    pub fn contest(&self, device: usize) -> usize {
        self.rules[device].1
    }

    /// What the last decision was made from: one entity for each of its operations, in the same order.
    pub fn entities(&self) -> &SchedEntities {
        &self.entities
    }

    /// Who may run now.
    pub fn decide(&mut self, status: &Status, now: Time) -> Decision<'_> {
        /// What an entity has that the policy forgot: nothing waits for ever.
        const FORGOTTEN: Permit =
            Permit { run: true, limit: true, window: Window::OWN, reason: Reason::Unrivalled };
        let last_linger = |index, id| self.accounting.linger(index, id);
        let settles = self.entities.gather(status, now, self.linger, &last_linger);
        self.accounting.charge(self.entities.all_mut(), now);
        self.assign();
        let mut wake = settles;
        let meter = |device: &DeviceId| {
            let meter = self.meters.iter().find(|(known, ..)| known == device);
            meter.map(|&(_, milliwatts, at)| (milliwatts, at))
        };
        let all = self.entities.all();
        self.rankings.resize_with(self.bindings.len(), Vec::new);
        for (number, (binding, rankings)) in self.bindings.iter_mut().zip(&mut self.rankings).enumerate() {
            let ruled = self.entities.devices().iter().zip(&self.rules);
            self.power.clear();
            self.power.extend(ruled.map(|(device, rule)| meter(device).filter(|_| rule.0 == number)));
            rankings.clear();
            rankings.resize(all.len(), Ranking::new(0, PRIORITY.number(Priority::DEFAULT.into())));
            let input =
                Input { entities: &self.entities, members: &binding.members, power: &self.power, now };
            wake = earlier(wake, binding.policy.rank(input, rankings));
        }
        let counts = |index: usize| {
            let uses = self.entities.uses(&all[index]);
            uses.iter().any(|used| self.bindings[self.rules[used.device].0].choice.row.goes_by_priority)
        };
        let throttled = |index: usize| {
            let uses = self.entities.uses(&all[index]);
            uses.iter().any(|used| self.rankings[self.rules[used.device].0][index].throttle.is_some())
        };
        wake = earlier(wake, self.starvation.look(all, counts, throttled, now));
        self.permits.clear();
        self.permits.resize(all.len(), FORGOTTEN);
        let ranked = Ranked {
            entities: &self.entities,
            rankings: &self.rankings,
            rules: &self.rules,
            starved: self.starvation.starved(),
            feeds: self.starvation.is_on(),
        };
        self.resolver.resolve(&ranked, &mut self.permits);
        wake = earlier(wake, self.starvation.note(all, &self.permits, now));
        let linger = |index: usize| {
            let uses = self.entities.uses(&all[index]).iter();
            let lingers = uses.map(|used| self.rankings[self.rules[used.device].0][index].linger);
            lingers.min().unwrap_or_default()
        };
        self.accounting.note(all, &self.permits, linger, now);
        self.operations.clear();
        let entities = all.iter().zip(&self.permits);
        self.operations
            .extend(entities.map(|(entity, permit)| Operation { unit: entity.id, permit: *permit }));
        // A wake-up that is not in the future would come again and again.
        let wake = wake.map(|wake| wake.max(Time(now.0.saturating_add(1))));
        Decision { operations: &self.operations, wake }
    }

    /// Says which seat rules which device, and who is on it.
    fn assign(&mut self) {
        self.rules.clear();
        for (cell, device) in self.entities.devices().iter().enumerate() {
            let own = self.bindings[1..].binary_search_by_key(&Some(*device), |binding| binding.device);
            let binding = own.map_or(0, |index| index + 1);
            let first = match self.bindings[binding].policy.scope() {
                Scope::Device => None,
                Scope::Devices => self.rules.iter().position(|&(other, _)| other == binding),
            };
            self.rules.push((binding, first.unwrap_or(cell)));
        }
        self.bindings.iter_mut().for_each(|binding| binding.members.clear());
        for (index, entity) in self.entities.all().iter().enumerate() {
            let uses = self.entities.uses(entity);
            if uses.is_empty() {
                // An entity without a queue is anybody's.
                self.bindings[0].members.push(index);
            }
            for used in uses {
                let members = &mut self.bindings[self.rules[used.device].0].members;
                if members.last() != Some(&index) {
                    members.push(index);
                }
            }
        }
    }
}
