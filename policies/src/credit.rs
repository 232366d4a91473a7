//! CREDIT: weights, caps, and a boost for those who wake up.
//!
//! # The rule
//! Once in each period the device time of the period is handed out as credit, by utilization, to those that had work in it;
//! what somebody cannot keep, because it has more than two periods' worth (and 1 ms) already, goes to the others. What a
//! entity runs is taken off. On each device one runs at a time: first those that were boosted, then those that have
//! credit, then those that have used up theirs, and those of utilization 0 last. Among equals turns go round, `slice-us`
//! for the highest utilization there and less in proportion for the others (0.5 ms at least). One that used up its credit
//! counts as having some again from 0.5 ms on, so that it is worth switching to it.
//!
//! Under the local scheduler the utilization is that of the queue, under `xserver` that of the process (`xcli hint --pid PID
//! -u UTIL`).
//!
//! Who wakes up and has credit is boosted: it interrupts whoever runs, for `boost-us` of device time at most or until its
//! credit is used up. Boosted time costs credit like any other, so those who wake up often get no more than their part by
//! it, and the others theirs: what one boosted entity can take from them at once is two periods' worth of its own part.
//!
//! A process may have a cap of its own (`xcli hint --pid PID --cap PERCENT`): it gets at most so much of each period, also
//! while nobody else wants the device, which is then withheld from it until the next period. Its utilization says, apart from
//! that, what it gets when others want the device; what it may not use of that goes to them by theirs. With `cap` 1 those
//! that have no cap of their own have their utilization as the cap. Utilization 0 counts as 1 percent there, because nothing
//! is for ever. Under the local scheduler each queue of the process has its cap for itself: two queues of a process with cap
//! 30 get up to 60 percent together.
//!
//! An entity with credit waits at most for one turn of each of the others that have some, and for those that are boosted.
//! Without credit it waits for the next period that gives it 0.5 ms, and then like that.
//!
//! # What is different
//! What a late decision lets somebody run too much is taken off its credit (down to two periods), and time that nobody else
//! wanted is handed out again to whoever used it. So the parts of entities that always have work are exact. What work in
//! flight runs on into the next turn is not seen: per turn that time goes from one to the other. Under a cap it comes on top
//! of it: with up to 0.3 ms in flight at the end of each period of 30 ms, a point; with long kernels at level 1 more. Longer
//! periods or higher preemption levels help.
//!
//! # Several devices
//! A process has one credit for all its devices: what the scarcest of them allows; what that leaves over on the others goes
//! to those that are there, by their utilizations. It needs to be first on all its devices to run, and others use them
//! meanwhile.
//!
//! # Parameters, wake-ups
//! A decision comes at the end of each turn, each boost and each period while somebody else waits or is withheld.

use crate::fair::{self, utilization};
use crate::parameter::{Parameter, Values};
use crate::per_entity::PerEntity;
use crate::policy::{Input, Policy, Ranking};
use crate::reason::{Millis, ReasonKind, SLICE, first};
use crate::round_robin::{GRAIN, SHORTEST, nanos};
use crate::sched_entity::{SchedEntities, SchedEntity};
use crate::times::earlier;
use crate::virtual_runtime::{busy, part};
use protocol::operation::Throttle;
use protocol::time::Time;
use std::time::Duration;

/// Credit that the entity has left, in microseconds.
const CREDIT: &ReasonKind = &ReasonKind::new("Credit", |its| format!("has {} of credit", Millis(first(its))))
    .comparing(|its, own| {
        let [its, own_credit] = [its, own].map(|reason| Millis(first(reason)));
        CREDIT.is(&own).then(|| format!("has {its} of credit > {own_credit}"))
    });

/// The reasons of its row.
pub(crate) const REASONS: &[&ReasonKind] = &[CREDIT, SLICE];

const PERIOD: Parameter = Parameter {
    name: "period-ms",
    meaning: "how often credit is handed out",
    range: (1.0, 1_000.0),
    default: 30.0,
};
const SLICE_US: Parameter = Parameter { default: 5_000.0, ..fair::SLICE };
const BOOST: Parameter = Parameter {
    name: "boost-us",
    meaning: "how long one that wakes up and has credit goes before the others; 0: not at all",
    range: (0.0, 100_000.0),
    default: 2_000.0,
};
const CAP: Parameter = Parameter {
    name: "cap",
    meaning: "1: who has no cap of its own has its utilization as the cap; 0: who has none is not limited",
    range: (0.0, 1.0),
    default: 0.0,
};

/// What can be set.
pub(crate) const PARAMETERS: &[Parameter] = &[PERIOD, SLICE_US, BOOST, CAP];

/// What anybody may keep of credit, in nanoseconds, however small its part is: more than it takes to have a turn.
const KEEPS: i64 = 1_000_000;

/// The cap that is none, in percent.
const NO_CAP: u64 = 100;

/// How often what somebody cannot keep is handed on to the others, in one period.
const ROUNDS: usize = 4;

/// In which order they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Class {
    Boosted,
    HasCredit,
    #[default]
    UsedUp,
    /// Utilization 0.
    Last,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    weight: u64,
    /// The most that it gets of a period, in percent; 100 is no limit.
    cap: u64,
    credit: i64,
    /// What it may keep of that.
    most: i64,
    class: Class,
    /// What is left of its boost and of its turn.
    boost: i64,
    left: i64,
    begun: bool,
    /// Its place among equals, smaller first.
    line: u64,
    /// It had work at the last decision; it had some in this period; it has had some before.
    ready: bool,
    touched: bool,
    known: bool,
    /// What is left to it in this period, under a cap.
    allowance: i64,
    throttled: bool,
    /// In the handing out of a period: it has all that it can keep.
    full: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// The largest weight of those with work.
    heaviest: u64,
    /// How many would be disturbed by each other here.
    rivals: u32,
    claimed: bool,
    /// What there is to hand out, and was before the round; the weights of those who take part in that, or of those with
    /// work.
    pool: i64,
    before: i64,
    sum: u64,
}

/// Weights, caps and a boost; see the head of this file.
#[derive(Debug, Default)]
pub struct Credit {
    accounts: PerEntity<Account>,
    period: Duration,
    slice: i64,
    boost: i64,
    /// Whether those without a cap of their own have their weight as the cap, and whether anybody has a cap.
    by_weight: bool,
    capped: bool,
    /// When the period ends.
    end: Option<Time>,
    lines: u64,
    cells: Vec<Cell>,
    order: Vec<(Class, u64, usize)>,
}

impl Policy for Credit {
    fn configure(&mut self, values: &Values) {
        self.period = values.millis(PERIOD.name);
        self.slice = nanos(values.micros(SLICE_US.name));
        self.boost = nanos(values.micros(BOOST.name));
        self.by_weight = values.get(CAP.name) >= 0.5;
    }

    /// Under a cap counts what an entity runs also while nobody waits for it.
    fn hears_idle(&self) -> bool {
        self.by_weight || self.capped
    }

    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let entities = input.entities;
        self.cells.clear();
        self.cells.resize(entities.devices().len(), Cell::default());
        let accounts = self.accounts.align(entities.all());
        let period = nanos(self.period);
        self.capped = false;
        for (index, entity) in input.members() {
            let account = &mut accounts[index];
            account.charge(entities, entity);
            account.limit(entity, self.by_weight, period);
            self.capped |= account.is_capped();
        }
        let end = self.end.unwrap_or(Time(0));
        if end <= input.now {
            let missed = (nanos(input.now.since(end)) / period).saturating_add(1);
            // The first one begins now.
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
    /// Hands out the device time that has passed, to those that had work in it.
    fn hand_out(&mut self, input: Input<'_>, time: i64) {
        let entities = input.entities;
        let accounts = self.accounts.align(entities.all());
        let period = nanos(self.period);
        self.cells.iter_mut().for_each(|cell| cell.pool = time);
        for (index, _) in input.members() {
            let account = &mut accounts[index];
            account.full = !account.touched || account.weight == 0;
            account.touched = account.ready;
            let allowance = account.allowance.saturating_add(account.allowed(time));
            account.allowance = allowance.clamp(-period, account.most_allowed(period));
        }
        for round in 0..ROUNDS {
            self.cells.iter_mut().for_each(|cell| cell.sum = 0);
            for (index, entity) in input.members().filter(|(index, _)| !accounts[*index].full) {
                wanted(entities, entity).for_each(|device| self.cells[device].sum += accounts[index].weight);
            }
            // All are given their parts of what there was before the round.
            self.cells.iter_mut().for_each(|cell| cell.before = cell.pool);
            let mut given = 0;
            for (index, entity) in input.members() {
                let account = &mut accounts[index];
                if account.full {
                    continue;
                }
                let (weight, cells) = (account.weight, &self.cells);
                let share = wanted(entities, entity)
                    .map(|device| part(cells[device].before, weight, cells[device].sum))
                    .min()
                    .unwrap_or(0);
                if round == 0 {
                    let worth = wanted(entities, entity)
                        .map(|device| part(period, weight, cells[device].sum))
                        .min()
                        .unwrap_or(0);
                    account.most = worth.saturating_mul(2).saturating_add(KEEPS);
                }
                let room = account.most.saturating_sub(account.credit).max(0);
                let gets = share.min(room);
                account.full = gets == room;
                account.credit = account.credit.saturating_add(gets);
                given += gets;
                wanted(entities, entity).for_each(|device| self.cells[device].pool -= gets);
            }
            if given < 1_000 {
                break;
            }
        }
        for (index, _) in input.members() {
            accounts[index].credit = accounts[index].credit.max(-2 * period);
        }
    }

    /// Notes who has come, gone or woken up, and who is in which class.
    fn enter(&mut self, input: Input<'_>) {
        let entities = input.entities;
        let accounts = self.accounts.align(entities.all());
        self.cells.iter_mut().for_each(|cell| cell.sum = 0);
        for (index, entity) in input.members() {
            for used in busy(entities, entity) {
                let cell = &mut self.cells[used.device];
                cell.heaviest = cell.heaviest.max(accounts[index].weight);
                cell.sum += accounts[index].weight;
            }
        }
        let period = nanos(self.period);
        for (index, entity) in input.members() {
            let account = &mut accounts[index];
            if entity.ready && !account.known {
                let parts = busy(entities, entity)
                    .map(|used| part(period, account.weight, self.cells[used.device].sum));
                account.credit = parts.min().unwrap_or(0);
                account.most = account.credit.saturating_mul(2).saturating_add(KEEPS);
                account.allowance = account.allowed(period);
            } else if entity.ready && !account.ready && account.credit > GRAIN {
                account.boost = self.boost;
            }
            if entity.ready && !account.ready {
                self.lines += 1;
                account.line = self.lines;
                account.begun = false;
            }
            account.known |= entity.ready;
            account.ready = entity.ready;
            account.touched |= entity.ready;
            account.throttled = account.is_capped() && account.known && account.allowance <= GRAIN;
            account.classify(if entity.ready { account.boost } else { self.boost });
            if account.begun && account.left <= GRAIN {
                self.lines += 1;
                (account.begun, account.line) = (false, self.lines);
            }
            if entity.ready && !account.throttled {
                entities.uses(entity).iter().for_each(|used| self.cells[used.device].rivals += 1);
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

    /// Ranks them, finds out, as the engine will, who runs, and begins their turns. Returns when something of that ends.
    fn walk(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let entities = input.entities;
        let accounts = self.accounts.align(entities.all());
        let mut wake = None;
        for (rank, &(.., index)) in (0i64..).zip(&self.order) {
            let entity = &entities.all()[index];
            let account = &mut accounts[index];
            rankings[index] = Ranking::new(-rank, CREDIT.number(account.credit / 1_000));
            if account.throttled {
                let percent = account.cap as u32;
                rankings[index].throttle = Some(Throttle::Share { percent });
                wake = earlier(wake, self.end.filter(|_| entity.ready));
                continue;
            }
            let uses = entities.uses(entity);
            let rivals = entity.ready && uses.iter().any(|used| self.cells[used.device].rivals > 1);
            if rivals {
                wake = earlier(wake, self.end);
            }
            if !entity.ready || uses.iter().any(|used| self.cells[used.device].claimed) {
                continue;
            }
            if !account.begun {
                account.begun = true;
                let heaviest = busy(entities, entity).map(|used| self.cells[used.device].heaviest).max();
                let slice = part(self.slice, account.weight.max(1), heaviest.unwrap_or(0).max(1));
                account.left = slice.clamp(self.slice.min(SHORTEST as i64), self.slice);
            }
            rankings[index].reason = SLICE.number(account.left / 1_000);
            busy(entities, entity).for_each(|used| self.cells[used.device].claimed = true);
            let end = [
                rivals.then(|| account.left.min(account.credit_left())),
                account.is_capped().then_some(account.allowance),
            ];
            if let Some(end) = end.into_iter().flatten().min() {
                // Somebody else's decision may keep it from running: then nothing of that gets less.
                let least = if entity.running { GRAIN } else { self.slice.min(SHORTEST as i64) };
                let end = Duration::from_nanos(end.max(least).unsigned_abs());
                wake = earlier(wake, Some(input.now.after(end)));
            }
        }
        wake
    }
}

impl Account {
    /// Enters what it has run.
    fn charge(&mut self, entities: &SchedEntities, entity: &SchedEntity) {
        let ran = nanos(entity.ran);
        self.weight = utilization(entities, entity);
        for account in [&mut self.credit, &mut self.boost, &mut self.left, &mut self.allowance] {
            *account = account.saturating_sub(ran);
        }
    }

    fn classify(&mut self, boost: i64) {
        self.class = match self.class {
            _ if self.weight == 0 => Class::Last,
            _ if boost > GRAIN && self.credit > GRAIN => Class::Boosted,
            Class::Boosted | Class::HasCredit if self.credit > GRAIN => Class::HasCredit,
            _ if self.credit >= SHORTEST as i64 => Class::HasCredit,
            _ => Class::UsedUp,
        };
    }

    /// How long it may run before its class changes.
    fn credit_left(&self) -> i64 {
        match self.class {
            Class::Boosted => self.boost.min(self.credit),
            Class::HasCredit => self.credit,
            Class::UsedUp | Class::Last => i64::MAX,
        }
    }

    /// Takes the cap that is in force now. Whoever had none begins with what a period allows.
    fn limit(&mut self, entity: &SchedEntity, by_weight: bool, period: i64) {
        let own = entity.process.cap.map(|cap| u64::from(cap.get()));
        let cap = own.unwrap_or(if by_weight { self.weight.max(1) } else { NO_CAP });
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

    /// What it may have of this time.
    fn allowed(&self, time: i64) -> i64 {
        part(time, self.cap, NO_CAP)
    }

    /// What it may have at once: what a period allows, or if that is too short to run at all, more in fewer periods.
    fn most_allowed(&self, period: i64) -> i64 {
        self.allowed(period).max(2 * GRAIN)
    }
}

/// The devices on which an entity takes part in the handing out: where it has work, or while it has none all of its own.
fn wanted(entities: &SchedEntities, entity: &SchedEntity) -> impl Iterator<Item = usize> + Clone {
    let ready = entity.ready;
    entities.uses(entity).iter().filter(move |used| used.busy || !ready).map(|used| used.device)
}
