//! The engine: a status goes in, operations come out. It runs the policies and everything that is common to
//! them.

use crate::lingers::{GapCounts, Lingers};
use crate::parameter::{GAPS, SHARE, Values};
use crate::policy::{Input, Policy, Ranking, Scope};
use crate::reason::PRIORITY;
use crate::registry::Row;
use crate::resolve::{Ranked, Resolver};
use crate::runtime_accounting::RuntimeAccounting;
use crate::sched_entity::SchedEntities;
use crate::shares::{Rule, ShareCounts, Shares};
use crate::starvation::Starvation;
use crate::times::earlier;
use protocol::bounds::Priority;
use protocol::ids::DeviceId;
use protocol::operation::{Operation, Permit, Reason, Share};
use protocol::status::Status;
use protocol::time::Time;
use std::time::Duration;

/// The result of a decision, in force until the next one.
#[derive(Debug, Clone, Copy)]
pub struct Decision<'a> {
    /// One operation for each entity of the status, in its order.
    pub operations: &'a [Operation],
    /// The time at which to decide again even if nothing happens.
    pub wake: Option<Time>,
}

/// A policy with its parameters.
///
/// ```
/// use policies::{Choice, registry};
///
/// let mut choice = Choice::new(registry::by_name("edf").unwrap());
/// choice.values.set("slack-ms", 2.0).unwrap();
/// assert!(choice.values.set("slack", 2.0).is_err());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The policy.
    pub row: &'static Row,
    /// Its parameters.
    pub values: Values,
}

impl Choice {
    /// Chooses the policy with the default of each parameter.
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

/// A policy and the device that it rules.
#[derive(Debug)]
struct PolicyBinding {
    /// The device; `None` for all devices without a policy of their own.
    device: Option<DeviceId>,
    choice: Choice,
    policy: Box<dyn Policy>,
    /// The indices of the entities on its devices.
    members: Vec<usize>,
    /// The gaps that were learnt for it.
    gaps: GapCounts,
    /// The bound within which the shares are found; `None` if they are fixed.
    slowdown: Option<f64>,
    shares: ShareCounts,
}

impl PolicyBinding {
    fn new(device: Option<DeviceId>, choice: Choice) -> Self {
        let (policy, slowdown) = (choice.policy(), choice.values.slowdown());
        let (members, gaps, shares) = (Vec::new(), GapCounts::default(), ShareCounts::default());
        Self { device, choice, policy, members, gaps, slowdown, shares }
    }

    /// Applies a choice. The same policy keeps its state and takes the parameters; another policy starts
    /// without state.
    fn choose(&mut self, choice: Choice) {
        if self.choice.row.kind == choice.row.kind {
            self.policy.configure(&choice.values);
        } else {
            self.policy = choice.policy();
            (self.gaps, self.shares) = Default::default();
        }
        self.slowdown = choice.values.slowdown();
        self.choice = choice;
    }

    /// Returns the counters of the policy, and of the gaps and the shares if it can use them.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.policy.counters();
        if self.choice.row.parameters.contains(&GAPS) {
            counters.extend(self.gaps.named());
        }
        if self.choice.row.parameters.contains(&SHARE) {
            let mut shares = self.shares;
            if self.slowdown.is_none() {
                shares.now = self.choice.values.share();
            }
            counters.extend(shares.named());
        }
        counters
    }
}

/// Decides with one policy, or with one for each device. The owner calls it when the status has changed and
/// at the wake-up; an additional call in between is harmless.
///
/// ```
/// use policies::{Engine, registry};
/// use protocol::bounds::Priority;
/// use protocol::codes::PreemptLevel;
/// use protocol::hint::{ProcessHints, QueueHints};
/// use protocol::ids::{DeviceId, Pid, QueueId};
/// use protocol::status::{Activity, Counts, QueueStatus, Queues, Status};
/// use protocol::time::Time;
///
/// let queue = |number: u64, priority: i64| QueueStatus {
///     queue: QueueId(number),
///     device: DeviceId(1),
///     priority: Priority::try_from(priority).unwrap(),
///     hints: QueueHints::default(),
///     level: PreemptLevel::Block,
///     activity: Activity::Ready { since: Time(1) },
///     counts: Counts::default(),
/// };
/// let queues = Queues::try_from(vec![queue(1, 0), queue(2, 10)]).unwrap();
/// let status = Status::Local { pid: Pid(1), hints: ProcessHints::default(), queues };
/// let mut engine = Engine::new(registry::by_name("HPF").unwrap(), Engine::LINGER);
/// let decision = engine.decide(&status, Time(2));
/// assert_eq!(decision.operations.iter().map(|one| one.permit.run).collect::<Vec<_>>(), [false, true]);
/// ```
#[derive(Debug)]
pub struct Engine {
    /// The binding for all devices first, then those for single devices by their numbers.
    bindings: Vec<PolicyBinding>,
    linger: Duration,
    starvation: Starvation,
    entities: SchedEntities,
    accounting: RuntimeAccounting,
    lingers: Lingers,
    shares: Shares,
    /// The last power reading of each device.
    meters: Vec<(DeviceId, u64, Time)>,
    power: Vec<Option<(u64, Time)>>,
    rules: Vec<(usize, usize)>,
    rankings: Vec<Vec<Ranking>>,
    resolver: Resolver,
    permits: Vec<Permit>,
    operations: Vec<Operation>,
}

impl Engine {
    /// The time for which an idle queue still counts as ready, unless a policy asks for another
    /// ([`Ranking::linger`]). It is about what a switch to others and back costs: handing the devices over twice,
    /// and the work in flight of the others ([`protocol::operation::Window::OWN`]).
    pub const LINGER: Duration = Duration::from_micros(200);

    /// Creates an engine with a new policy. With a linger of zero no queue lingers, whatever the policies ask
    /// for.
    pub fn new(choice: impl Into<Choice>, linger: Duration) -> Self {
        Self {
            bindings: vec![PolicyBinding::new(None, choice.into())],
            linger,
            starvation: Starvation::default(),
            entities: SchedEntities::default(),
            accounting: RuntimeAccounting::default(),
            lingers: Lingers::default(),
            shares: Shares::default(),
            meters: Vec::new(),
            power: Vec::new(),
            rules: Vec::new(),
            rankings: Vec::new(),
            resolver: Resolver::default(),
            permits: Vec::new(),
            operations: Vec::new(),
        }
    }

    /// Returns the policy of all devices that have none of their own.
    pub fn policy(&self) -> &'static Row {
        self.bindings[0].choice.row
    }

    /// Returns the policies: the one for all devices, then those for single ones.
    pub fn choices(&self) -> impl ExactSizeIterator<Item = (Option<DeviceId>, &Choice)> {
        self.bindings.iter().map(|binding| (binding.device, &binding.choice))
    }

    /// Sets the policy for all devices that have none of their own. If it is the present one, it takes the
    /// parameters and keeps its state; another one starts without knowledge of earlier decisions.
    pub fn set_policy(&mut self, choice: impl Into<Choice>) {
        self.bindings[0].choose(choice.into());
    }

    /// Sets the policy for one device, as [`Engine::set_policy`] does; `None` removes the policy of the
    /// device.
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

    /// Sets the time after which a ready entity that does not run does so for a moment, under policies by
    /// priority. Off by default.
    pub fn set_starvation_limit(&mut self, limit: Option<Duration>) {
        self.starvation.set(limit);
    }

    /// Forgets the last decision, because another decider has been in charge since then.
    pub fn forget_decision(&mut self) {
        self.accounting.forget();
        self.lingers.forget();
        self.shares.forget();
        self.starvation.forget();
    }

    /// Notes that the next change of an entity, by its index at the last decision, may not lead to a decision, because
    /// nobody asked for it. An entity for which this is not called must be decided about at each of its changes.
    pub fn note_unheard(&mut self, index: usize) {
        self.lingers.miss(index);
        self.shares.miss(index);
    }

    /// Returns how often a policy needs the power of the devices; `None` if none needs it.
    pub fn reads_power(&self) -> Option<Duration> {
        self.bindings.iter().filter_map(|binding| binding.policy.reads_power()).min()
    }

    /// Sets the power of a device at a time, in milliwatts, averaged as the driver averages it.
    pub fn set_power(&mut self, device: DeviceId, milliwatts: u64, at: Time) {
        match self.meters.iter_mut().find(|(known, ..)| *known == device) {
            Some(meter) => *meter = (device, milliwatts, at),
            None => self.meters.push((device, milliwatts, at)),
        }
    }

    /// Returns true if a policy uses the nice values of processes.
    pub fn reads_nice(&self) -> bool {
        self.bindings.iter().any(|binding| binding.policy.reads_nice())
    }

    /// Returns true if a decision is needed whenever a queue turns idle, also if no entity waits for that.
    pub fn needs_idle_events(&self) -> bool {
        self.bindings.iter().any(|binding| binding.policy.needs_idle_events())
    }

    /// Returns the counters of the policies, in the order of [`Engine::choices`].
    pub fn counters(&self) -> impl ExactSizeIterator<Item = (Option<DeviceId>, Vec<(&'static str, u64)>)> {
        self.bindings.iter().map(|binding| (binding.device, binding.counters()))
    }

    /// Returns the contest for a device: devices of [`SchedEntities::devices`] with the same number count as
    /// one.
    pub fn contest(&self, device: usize) -> usize {
        self.rules[device].1
    }

    /// Returns the entities of the last decision: one for each of its operations, in the same order.
    pub fn entities(&self) -> &SchedEntities {
        &self.entities
    }

    /// Decides which entities may run now.
    pub fn decide(&mut self, status: &Status, now: Time) -> Decision<'_> {
        /// The permission of an entity that the policy forgot to rank: it must not wait for ever.
        const FORGOTTEN: Permit = Permit::running(true, Reason::Unrivalled);
        let (lingers, fixed) = (&mut self.lingers, self.linger);
        let mut linger = |index, id, course| lingers.of(index, id, course, fixed);
        let settles = self.entities.gather(status, now, &mut linger);
        self.accounting.charge(self.entities.all_mut(), now);
        self.assign();
        self.count_gaps();
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
        self.find_shares(now);
        let all = self.entities.all();
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
            guarded: self.starvation.is_on(),
        };
        self.resolver.resolve(&ranked, &mut self.permits);
        self.shares.note(all, &self.permits, self.resolver.rivals());
        wake = earlier(wake, self.starvation.note(all, &self.permits, now));
        let linger = |index: usize| {
            let uses = self.entities.uses(&all[index]).iter();
            let lingers = uses.map(|used| self.rankings[self.rules[used.device].0][index].linger);
            lingers.min().unwrap_or_default()
        };
        self.lingers.note(all, linger);
        self.accounting.note(all, &self.permits, now);
        self.operations.clear();
        let entities = all.iter().zip(&self.permits);
        self.operations
            .extend(entities.map(|(entity, permit)| Operation { unit: entity.id, permit: *permit }));
        // A wake-up that is not in the future would repeat without end.
        let wake = wake.map(|wake| wake.max(Time(now.0.saturating_add(1))));
        Decision { operations: &self.operations, wake }
    }

    /// Replaces the largest shares in the rankings by those that were found, where they are not fixed.
    fn find_shares(&mut self, now: Time) {
        let Self { bindings, entities, rules, rankings, shares, .. } = self;
        if bindings.iter().all(|binding| binding.slowdown.is_none()) {
            shares.clear();
            return;
        }
        bindings.iter_mut().for_each(|binding| binding.shares.now = Share::NONE);
        let all = entities.all();
        for (index, (entity, watch)) in all.iter().zip(shares.align(all)).enumerate() {
            let uses = entities.uses(entity);
            let rule = |policy: usize| {
                let most = rankings[policy][index].share;
                let slowdown = bindings[policy].slowdown.filter(|_| most != Share::NONE)?;
                Some(Rule { most, slowdown })
            };
            let policies = uses.iter().map(|used| rules[used.device].0);
            let rule = policies.clone().filter_map(rule).reduce(Rule::and);
            let counts = watch.look(entity, rule, now);
            for policy in policies.clone().filter(|policy| bindings[*policy].slowdown.is_some()) {
                let share = &mut rankings[policy][index].share;
                *share = watch.share().min(*share);
            }
            if let Some(first) = policies.clone().next() {
                bindings[first].shares.add(counts);
            }
        }
    }

    /// Counts what was learnt for the policies of the entities' first devices.
    fn count_gaps(&mut self) {
        let (entities, rules, bindings) = (&self.entities, &self.rules, &mut self.bindings);
        self.lingers.count(entities.all(), |index, counts| {
            let first = entities.uses(&entities.all()[index]).first();
            bindings[first.map_or(0, |used| rules[used.device].0)].gaps.add(counts);
        });
    }

    /// Assigns the devices to the bindings, and the entities to the bindings of their devices.
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
                // An entity without a queue belongs to no device.
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
