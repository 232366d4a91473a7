//! CREDIT: weights, caps, and a boost for entities that wake up.
//!
//! # The rule
//! Once in each period the device time of the period is handed out as credit, by utilization, to the entities
//! that had work in it. Credit that an entity cannot keep, because it has more than two periods' worth (and 1
//! ms) already, goes to the others. The time that an entity runs is taken off its credit. On each device one
//! entity runs at a time: first those with a boost, then those with credit, then those that have used up
//! theirs, then those of utilization 0. Equals run round robin, `slice-us` for the highest utilization there
//! and less in proportion for the others (0.5 ms at least). An entity that used up its credit counts as
//! having some again from 0.5 ms on, so that it is worth switching to it.
//!
//! Under the local scheduler the utilization is that of the queue, under `xserver` that of the process (`xcli
//! hint --pid PID -u UTIL`).
//!
//! An entity that wakes up and has credit gets a boost: it interrupts the one that runs, for at most
//! `boost-us` of device time or until its credit is used up. Boosted time costs credit like any other. So
//! entities that wake up often get no more than their part, and the others get theirs: one boosted entity can
//! take from them at once at most two periods' worth of its own part.
//!
//! A process may have a cap (`xcli hint --pid PID --cap PERCENT`). It then gets at most that part of each
//! period, even if no other wants the device: once it has used its part, it waits for the next period. Its
//! utilization still says what it gets when others want the device; what it may not use of that goes to them
//! by their utilizations. With `cap` 1 the utilization is the cap of those that have none of their own.
//! Utilization 0 counts as 1 percent there, so that no entity waits for ever. Under the local scheduler the cap
//! holds for each queue of the process separately: two queues of a process with cap 30 get up to 60 percent
//! together.
//!
//! An entity with credit waits at most for one slice of each of the others with credit, and for those with a
//! boost. Without credit it waits for the next period that gives it 0.5 ms, and then like one with credit.
//!
//! # What is different
//! Time that an entity ran too much because of a late decision is taken off its credit (down to two periods),
//! and time that no other entity wanted is given again to those that used it. So the parts of entities that
//! always have work are exact. Work in flight that runs on into the next slice is not seen: with each slice
//! that time goes from one entity to the other. Under a cap it comes on top: with up to 0.3 ms in flight at
//! the end of each period of 30 ms a point, with long kernels at level 1 more. Longer periods or higher
//! preemption levels help.
//!
//! # Several devices
//! A process has one credit for all its devices: as much as the scarcest of them allows. What that leaves
//! over on the others goes to those that are there, by their utilizations. The process has to be first on all
//! its devices to run; others use them meanwhile.
//!
//! # Parameters, wake-ups
//! A decision comes at the end of each slice, each boost and each period while another entity waits or a
//! device is withheld.

use crate::fair::{self, utilization};
use crate::parameter::{Parameter, Values, parameter};
use crate::per_entity::PerEntity;
use crate::policy::{Input, Policy, Ranking};
use crate::reason::{Millis, ReasonKind, SLICE, first};
use crate::sched_entity::{SchedEntities, SchedEntity};
use crate::slice::{self, Devices, GRAIN, SHORTEST, SliceAccount, busy, nanos, part};
use crate::times::earlier;
use protocol::operation::Throttle;
use protocol::time::Time;
use std::time::Duration;

/// Credit that the entity has left, in microseconds.
const CREDIT: &ReasonKind = &ReasonKind::new("Credit", |its| format!("has {} of credit", Millis(first(its))))
    .comparing(|its, own| {
        let [its, own_credit] = [its, own].map(|reason| Millis(first(reason)));
        CREDIT.is(&own).then(|| format!("has {its} of credit > {own_credit}"))
    });

pub(crate) const REASONS: &[&ReasonKind] = &[CREDIT, SLICE];

const PERIOD: Parameter = parameter!("period-ms" in (1.0, 1_000.0), default 30.0,
    "the time after which credit is handed out again");
const SLICE_US: Parameter = Parameter { default: 5_000.0, ..fair::SLICE };
const BOOST: Parameter = parameter!("boost-us" in (0.0, 100_000.0), default 2_000.0,
    "the boost of an entity that wakes up and has credit; 0: none");
const CAP: Parameter = parameter!("cap" in (0.0, 1.0), default 0.0,
    "1: the utilization is the cap of processes without one; 0: those are not limited");

pub(crate) const PARAMETERS: &[Parameter] = &[PERIOD, SLICE_US, BOOST, CAP];

/// Credit that every entity may keep, in nanoseconds, however small its part is: more than a slice takes.
const KEEPS: i64 = 1_000_000;

/// The cap of an entity without a cap, in percent.
const NO_CAP: u64 = 100;

/// The number of rounds per period in which credit that an entity cannot keep is handed on to the others.
const ROUNDS: usize = 4;

/// The classes of entities, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Class {
    Boosted,
    HasCredit,
    #[default]
    UsedUp,
    /// An entity of utilization 0.
    Last,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    slice: SliceAccount,
    /// The largest part of a period that it gets, in percent; 100 is no limit.
    cap: u64,
    credit: i64,
    /// The most credit that it may keep.
    most: i64,
    class: Class,
    /// Device time that is left of its boost.
    boost: i64,
    /// Position among equals, smaller first.
    line: u64,
    /// True if it had work at the last decision, in this period, or ever.
    ready: bool,
    touched: bool,
    known: bool,
    /// Device time that is left to it in this period, under a cap.
    allowance: i64,
    throttled: bool,
    /// True in the rounds of handing out once it has all the credit that it can keep.
    full: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Pool {
    /// Device time that is left to hand out.
    left: i64,
    /// The same before the round.
    before: i64,
}

/// Weights, caps and a boost; see the head of this file.
#[derive(Debug, Default)]
pub struct Credit {
    accounts: PerEntity<Account>,
    period: Duration,
    slice: i64,
    boost: i64,
    /// True if the weight is the cap of those without one of their own; true if any entity has a cap.
    by_weight: bool,
    capped: bool,
    /// The end of the period.
    end: Option<Time>,
    lines: u64,
    devices: Devices,
    pools: Vec<Pool>,
    order: Vec<(Class, u64, usize)>,
}

impl Policy for Credit {
    fn configure(&mut self, values: &Values) {
        self.period = values.millis(PERIOD.name);
        self.slice = nanos(values.micros(SLICE_US.name));
        self.boost = nanos(values.micros(BOOST.name));
        self.by_weight = values.get(CAP.name) >= 0.5;
    }

    /// Under a cap the time that an entity runs counts also while no entity waits for it.
    fn needs_idle_events(&self) -> bool {
        self.by_weight || self.capped
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let entities = input.entities;
        self.devices.reset(entities.devices().len());
        self.pools.clear();
        self.pools.resize(entities.devices().len(), Pool::default());
        let accounts = self.accounts.align(entities.all());
        let period = nanos(self.period);
        self.capped = false;
        for (index, entity) in input.members() {
            let account = &mut accounts[index];
            account.charge(entity);
            account.limit(entity, self.by_weight, period);
            self.capped |= account.is_capped();
        }
        let end = self.end.unwrap_or(Time(0));
        if end <= input.now {
            let missed = (nanos(input.now.since(end)) / period).saturating_add(1);
            // The first period begins now.
            let fresh = self.end.is_none();
            self.end = Some(if fresh {
                input.now.after(self.period)
            } else {
                end.after(Duration::from_nanos(period.saturating_mul(missed).unsigned_abs()))
            });
            if !fresh {
                self.hand_out(input, period.saturating_mul(missed));
            }
        }
        self.enter(input);
        self.sort(input);
        self.walk(input, rankings)
    }
}

impl Credit {
    /// Hands out the device time that has passed to the entities that had work in it.
    fn hand_out(&mut self, input: Input<'_>, time: i64) {
        let entities = input.entities;
        let accounts = self.accounts.align(entities.all());
        let period = nanos(self.period);
        self.pools.iter_mut().for_each(|pool| pool.left = time);
        for (index, _) in input.members() {
            let account = &mut accounts[index];
            account.full = !account.touched || account.slice.weight == 0;
            account.touched = account.ready;
            let allowance = account.allowance.saturating_add(account.allowed(time));
            account.allowance = allowance.clamp(-period, account.most_allowed(period));
        }
        for round in 0..ROUNDS {
            self.devices.0.iter_mut().for_each(|device| device.sum = 0);
            for (index, entity) in input.members().filter(|(index, _)| !accounts[*index].full) {
                wanted(entities, entity)
                    .for_each(|device| self.devices.0[device].sum += accounts[index].slice.weight);
            }
            // All get their parts of what there was before the round.
            self.pools.iter_mut().for_each(|pool| pool.before = pool.left);
            let mut given = 0;
            for (index, entity) in input.members() {
                let account = &mut accounts[index];
                if account.full {
                    continue;
                }
                let (weight, devices) = (account.slice.weight, &self.devices);
                let share = wanted(entities, entity)
                    .map(|device| part(self.pools[device].before, weight, devices.0[device].sum))
                    .min()
                    .unwrap_or(0);
                if round == 0 {
                    let worth = wanted(entities, entity)
                        .map(|device| part(period, weight, devices.0[device].sum))
                        .min()
                        .unwrap_or(0);
                    account.most = worth.saturating_mul(2).saturating_add(KEEPS);
                }
                let room = account.most.saturating_sub(account.credit).max(0);
                let gets = share.min(room);
                account.full = gets == room;
                account.credit = account.credit.saturating_add(gets);
                given += gets;
                wanted(entities, entity).for_each(|device| self.pools[device].left -= gets);
            }
            if given < 1_000 {
                break;
            }
        }
        for (index, _) in input.members() {
            accounts[index].credit = accounts[index].credit.max(-2 * period);
        }
    }

    /// Notes which entities have come, gone or woken up, and their classes.
    fn enter(&mut self, input: Input<'_>) {
        let entities = input.entities;
        let accounts = self.accounts.align(entities.all());
        self.devices.0.iter_mut().for_each(|device| device.sum = 0);
        for (index, entity) in input.members() {
            for used in busy(entities.uses(entity)) {
                let device = &mut self.devices.0[used.device];
                device.heaviest = device.heaviest.max(accounts[index].slice.weight);
                self.devices.0[used.device].sum += accounts[index].slice.weight;
            }
        }
        let period = nanos(self.period);
        for (index, entity) in input.members() {
            let account = &mut accounts[index];
            if entity.ready && !account.known {
                let parts = busy(entities.uses(entity))
                    .map(|used| part(period, account.slice.weight, self.devices.0[used.device].sum));
                account.credit = parts.min().unwrap_or(0);
                account.most = account.credit.saturating_mul(2).saturating_add(KEEPS);
                account.allowance = account.allowed(period);
            } else if entity.ready && !account.ready && account.credit > GRAIN {
                account.boost = self.boost;
            }
            if entity.ready && !account.ready {
                self.lines += 1;
                account.line = self.lines;
                account.slice.begun = false;
            }
            account.known |= entity.ready;
            account.ready = entity.ready;
            account.touched |= entity.ready;
            account.throttled = account.is_capped() && account.known && account.allowance <= GRAIN;
            account.classify(if entity.ready { account.boost } else { self.boost });
            if account.slice.is_over() {
                self.lines += 1;
                (account.slice.begun, account.line) = (false, self.lines);
            }
            if entity.ready && !account.throttled {
                self.devices.add_rival(entities.uses(entity));
            }
        }
    }

    fn sort(&mut self, input: Input<'_>) {
        let accounts = self.accounts.align(input.entities.all());
        self.order.clear();
        self.order.extend(input.members().map(|(index, entity)| {
            let account = &accounts[index];
            (account.class, if entity.ready { account.line } else { u64::MAX }, index)
        }));
        self.order.sort_unstable();
    }

    /// Ranks the entities, finds those that the engine will let run, and begins their slices. Returns the
    /// time at which the first slice, boost or period ends.
    fn walk(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let entities = input.entities;
        let accounts = self.accounts.align(entities.all());
        let mut wake = None;
        for (rank, &(.., index)) in (0i64..).zip(&self.order) {
            let entity = &entities.all()[index];
            let account = &mut accounts[index];
            rankings[index] = Ranking::new(-rank, CREDIT.number(account.credit / 1_000));
            rankings[index].may_withhold = account.is_capped();
            if account.throttled {
                let percent = account.cap as u32;
                rankings[index].throttle = Some(Throttle::Share { percent });
                wake = earlier(wake, self.end.filter(|_| entity.ready));
                continue;
            }
            let uses = entities.uses(entity);
            let slice = &mut account.slice;
            slice.contended = entity.ready && self.devices.is_contended(uses);
            if slice.contended {
                wake = earlier(wake, self.end);
            }
            if !entity.ready || self.devices.is_claimed(uses) {
                continue;
            }
            if !slice.begun {
                let heaviest = self.devices.heaviest(busy(uses)).max(1);
                slice.left = slice::limited(part(self.slice, slice.weight.max(1), heaviest), self.slice);
                slice.begun = true;
            }
            let SliceAccount { left, contended, .. } = *slice;
            rankings[index].reason = SLICE.number(left / 1_000);
            self.devices.claim(busy(uses));
            let ends = [
                contended.then(|| left.min(account.credit_left())),
                account.is_capped().then_some(account.allowance),
            ];
            if let Some(left) = ends.into_iter().flatten().min() {
                wake = earlier(wake, slice::end(input.now, left, entity.running, self.slice));
            }
        }
        wake
    }
}

impl Account {
    /// Takes the time that it has run off its accounts.
    fn charge(&mut self, entity: &SchedEntity) {
        let ran = nanos(entity.ran);
        self.slice.weight = utilization(entity);
        for account in [&mut self.credit, &mut self.boost, &mut self.slice.left, &mut self.allowance] {
            *account = account.saturating_sub(ran);
        }
    }

    fn classify(&mut self, boost: i64) {
        self.class = match self.class {
            _ if self.slice.weight == 0 => Class::Last,
            _ if boost > GRAIN && self.credit > GRAIN => Class::Boosted,
            Class::Boosted | Class::HasCredit if self.credit > GRAIN => Class::HasCredit,
            _ if self.credit >= SHORTEST => Class::HasCredit,
            _ => Class::UsedUp,
        };
    }

    /// Returns how long it may run before its class changes.
    fn credit_left(&self) -> i64 {
        match self.class {
            Class::Boosted => self.boost.min(self.credit),
            Class::HasCredit => self.credit,
            Class::UsedUp | Class::Last => i64::MAX,
        }
    }

    /// Applies the present cap. An entity that had none begins with what a period allows.
    fn limit(&mut self, entity: &SchedEntity, by_weight: bool, period: i64) {
        let own = entity.process.cap.map(|cap| u64::from(cap.get()));
        let cap = own.unwrap_or(if by_weight { self.slice.weight.max(1) } else { NO_CAP });
        let allowed = part(period, cap, NO_CAP);
        if self.cap == NO_CAP {
            self.allowance = allowed;
        } else if self.cap != cap {
            self.allowance = self.allowance.min(allowed);
        }
        self.cap = cap;
    }

    fn is_capped(&self) -> bool {
        self.cap < NO_CAP
    }

    /// Returns how much of this time it may have.
    fn allowed(&self, time: i64) -> i64 {
        part(time, self.cap, NO_CAP)
    }

    /// Returns how much it may have at once: what a period allows, or if that is too short to run at all,
    /// more in fewer periods.
    fn most_allowed(&self, period: i64) -> i64 {
        self.allowed(period).max(2 * GRAIN)
    }
}

/// Returns the devices on which an entity gets credit: where it has work, or all of its own while it has
/// none.
fn wanted(entities: &SchedEntities, entity: &SchedEntity) -> impl Iterator<Item = usize> + Clone {
    let ready = entity.ready;
    entities.uses(entity).iter().filter(move |used| used.busy || !ready).map(|used| used.device)
}
