//! Status in, operations out: the policies with what every policy needs around it.

use crate::parameter::Values;
use crate::policy::{Input, Policy, Scope, Standing};
use crate::registry::Row;
use crate::resolve::{Ranked, Resolver};
use crate::starvation::Starvation;
use crate::tally::Tallies;
use crate::times::earlier;
use crate::unit::Units;
use protocol::bounds::Priority;
use protocol::ids::DeviceId;
use protocol::operation::{Merit, Operation, Permit, Reason, Window};
use protocol::status::Status;
use protocol::time::Time;
use std::time::Duration;

/// What is in force from now on.
#[derive(Debug, Clone, Copy)]
pub struct Decision<'a> {
    /// One operation for each unit of the status, in its order.
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
struct Seat {
    /// One device; without one, all that no other seat has.
    device: Option<DeviceId>,
    choice: Choice,
    policy: Box<dyn Policy>,
    /// The places of the units on its devices.
    members: Vec<usize>,
}

impl Seat {
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
    seats: Vec<Seat>,
    linger: Duration,
    starvation: Starvation,
    units: Units,
    tallies: Tallies,
    /// What devices drew when they were read.
    meters: Vec<(DeviceId, u64, Time)>,
    power: Vec<Option<(u64, Time)>>,
    rules: Vec<(usize, usize)>,
    standings: Vec<Vec<Standing>>,
    resolver: Resolver,
    permits: Vec<Permit>,
    operations: Vec<Operation>,
}

impl Engine {
    /// For how long a queue that turned idle counts as ready still, if no policy says longer ([`Standing::linger`]).
    pub const LINGER: Duration = Duration::from_micros(200);

    /// Decides with a new policy of this kind. With a linger of zero nobody lingers, whatever policies say.
    pub fn new(choice: impl Into<Choice>, linger: Duration) -> Self {
        Self {
            seats: vec![Seat::new(None, choice.into())],
            linger,
            starvation: Starvation::default(),
            units: Units::default(),
            tallies: Tallies::default(),
            meters: Vec::new(),
            power: Vec::new(),
            rules: Vec::new(),
            standings: Vec::new(),
            resolver: Resolver::default(),
            permits: Vec::new(),
            operations: Vec::new(),
        }
    }

    /// Which policy decides where no device has its own.
    pub fn policy(&self) -> &'static Row {
        self.seats[0].choice.row
    }

    /// The policies: that of all devices, then those of single ones.
    pub fn choices(&self) -> impl ExactSizeIterator<Item = (Option<DeviceId>, &Choice)> {
        self.seats.iter().map(|seat| (seat.device, &seat.choice))
    }

    /// Lets this policy decide from now on, on all devices that have none of their own. If it decides already, it takes
    /// the parameters and remembers what it knows; another one knows nothing of what was decided before.
    pub fn set_policy(&mut self, choice: impl Into<Choice>) {
        self.seats[0].choose(choice.into());
    }

    /// Lets this policy decide on one device, as [`Engine::set_policy`] does; with none the device has no policy of its
    /// own any more.
    pub fn set_device_policy(&mut self, device: DeviceId, choice: Option<Choice>) {
        let place = self.seats[1..].binary_search_by_key(&Some(device), |seat| seat.device);
        match (place.map(|place| place + 1).map_err(|place| place + 1), choice) {
            (Ok(place), Some(choice)) => self.seats[place].choose(choice),
            (Ok(place), None) => drop(self.seats.remove(place)),
            (Err(place), Some(choice)) => self.seats.insert(place, Seat::new(Some(device), choice)),
            (Err(_), None) => {}
        }
    }

    /// After how long a ready unit that does not run does so for a moment, under policies that go by priority; nothing
    /// is for ever. Off at first.
    pub fn set_starvation(&mut self, limit: Option<Duration>) {
        self.starvation.set(limit);
    }

    /// Somebody else has decided since the last decision: nothing of it tells who ran or waited.
    pub fn forget_decision(&mut self) {
        self.tallies.forget();
        self.starvation.forget();
    }

    /// How often somebody wants to know what the devices draw; nothing if nobody does.
    pub fn reads_power(&self) -> Option<Duration> {
        self.seats.iter().filter_map(|seat| seat.policy.reads_power()).min()
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
        self.seats.iter().any(|seat| seat.policy.reads_nice())
    }

    /// Whether a decision is wanted whenever a queue turns idle, also if nobody waits for that.
    pub fn hears_idle(&self) -> bool {
        self.seats.iter().any(|seat| seat.policy.hears_idle())
    }

    /// What the policies have counted, in the order of [`Engine::choices`].
    pub fn counters(&self) -> impl ExactSizeIterator<Item = (Option<DeviceId>, Vec<(&'static str, u64)>)> {
        self.seats.iter().map(|seat| (seat.device, seat.policy.counters()))
    }

    /// Devices of [`Units::devices`] of which this is the same number are competed for as one.
    pub fn contest(&self, device: usize) -> usize {
        self.rules[device].1
    }

    /// What the last decision was made from: one unit for each of its operations, in the same order.
    pub fn units(&self) -> &Units {
        &self.units
    }

    /// Who may run now.
    pub fn decide(&mut self, status: &Status, now: Time) -> Decision<'_> {
        /// What a unit has that the policy forgot: nothing waits for ever.
        const FORGOTTEN: Permit =
            Permit { run: true, limit: true, window: Window::OWN, reason: Reason::Unrivalled };
        let settles = self.units.gather(status, now, self.linger, &self.tallies);
        self.assign();
        let mut wake = settles;
        let meter = |device: &DeviceId| {
            let meter = self.meters.iter().find(|(known, ..)| known == device);
            meter.map(|&(_, milliwatts, at)| (milliwatts, at))
        };
        let all = self.units.all();
        self.standings.resize_with(self.seats.len(), Vec::new);
        for (number, (seat, standings)) in self.seats.iter_mut().zip(&mut self.standings).enumerate() {
            let ruled = self.units.devices().iter().zip(&self.rules);
            self.power.clear();
            self.power.extend(ruled.map(|(device, rule)| meter(device).filter(|_| rule.0 == number)));
            standings.clear();
            standings.resize(all.len(), Standing::new(0, Merit::Priority(Priority::DEFAULT)));
            let input = Input { units: &self.units, members: &seat.members, power: &self.power, now };
            wake = earlier(wake, seat.policy.rank(input, standings));
        }
        let counts = |place: usize| {
            let uses = self.units.uses(&all[place]);
            uses.iter().any(|used| self.seats[self.rules[used.device].0].choice.row.goes_by_priority)
        };
        let barred = |place: usize| {
            let uses = self.units.uses(&all[place]);
            uses.iter().any(|used| self.standings[self.rules[used.device].0][place].bar.is_some())
        };
        wake = earlier(wake, self.starvation.look(all, counts, barred, now));
        self.permits.clear();
        self.permits.resize(all.len(), FORGOTTEN);
        let ranked = Ranked {
            units: &self.units,
            standings: &self.standings,
            rules: &self.rules,
            starved: self.starvation.starved(),
            feeds: self.starvation.is_on(),
        };
        self.resolver.resolve(&ranked, &mut self.permits);
        wake = earlier(wake, self.starvation.note(all, &self.permits, now));
        let linger = |place: usize| {
            let uses = self.units.uses(&all[place]).iter();
            let lingers = uses.map(|used| self.standings[self.rules[used.device].0][place].linger);
            lingers.min().unwrap_or_default()
        };
        self.tallies.note(all, &self.permits, linger, now);
        self.operations.clear();
        let units = all.iter().zip(&self.permits);
        self.operations.extend(units.map(|(unit, permit)| Operation { unit: unit.id, permit: *permit }));
        // A wake-up that is not in the future would come again and again.
        let wake = wake.map(|wake| wake.max(Time(now.0.saturating_add(1))));
        Decision { operations: &self.operations, wake }
    }

    /// Says which seat rules which device, and who is on it.
    fn assign(&mut self) {
        self.rules.clear();
        for (cell, device) in self.units.devices().iter().enumerate() {
            let own = self.seats[1..].binary_search_by_key(&Some(*device), |seat| seat.device);
            let seat = own.map_or(0, |place| place + 1);
            let first = match self.seats[seat].policy.scope() {
                Scope::Device => None,
                Scope::Devices => self.rules.iter().position(|&(other, _)| other == seat),
            };
            self.rules.push((seat, first.unwrap_or(cell)));
        }
        self.seats.iter_mut().for_each(|seat| seat.members.clear());
        for (place, unit) in self.units.all().iter().enumerate() {
            let uses = self.units.uses(unit);
            if uses.is_empty() {
                // A unit without a queue is anybody's.
                self.seats[0].members.push(place);
            }
            for used in uses {
                let members = &mut self.seats[self.rules[used.device].0].members;
                if members.last() != Some(&place) {
                    members.push(place);
                }
            }
        }
    }
}
