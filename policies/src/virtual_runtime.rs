//! Entities ordered by what they have used: the common part of CFS and FAIR.
//!
//! Each entity has a virtual runtime: the device time that it has had while somebody else wanted the device, divided by its
//! weight. Whoever has the smallest on all its devices begins a turn there, and keeps for the whole turn the place that it
//! had when it began, so that the order does not change with every decision. Between entities that have work all the time the
//! difference never grows beyond a turn of each, which makes the parts exact.
//!
//! # Coming and going
//! Who comes new, or wakes up, begins at the smallest of those with work there, or at its own if that is larger: nobody
//! collects time by sleeping, besides the credit that the rules allow. Nobody is farther ahead of the smallest on its
//! devices than a few turns: what somebody had while others were held back elsewhere, or long ago, is forgotten.

use crate::per_entity::PerEntity;
use crate::policy::{Input, Ranking};
use crate::reason::{Millis, ReasonKind, SLICE, first};
use crate::round_robin::{GRAIN, SHORTEST, nanos};
use crate::sched_entity::{DeviceUse, SchedEntities, SchedEntity};
use crate::times::earlier;
use protocol::operation::Throttle;
use protocol::time::Time;
use std::time::Duration;

/// Device time that the entity has used, weighed by its share, in microseconds.
pub(crate) const RUNTIME: &ReasonKind =
    &ReasonKind::new("Runtime", |its| format!("has used {} of the device by its share", Millis(first(its))))
        .comparing(|its, own| {
            let [its, own_time] = [its, own].map(|reason| Millis(first(reason)));
            RUNTIME.is(&own).then(|| format!("has used {its} of the device < {own_time}, by its share"))
        });

/// The reasons of the rows of the policies that share this part.
pub(crate) const REASONS: &[&ReasonKind] = &[RUNTIME, SLICE];

/// The weight with which virtual time is device time.
pub(crate) const ONE: u64 = 1024;

/// How far an entity may be ahead of the smallest, besides a turn, in nanoseconds of its own time.
const AHEAD: i64 = 2_000_000;

/// What may be saved where parts are strict, besides two turns, in nanoseconds.
const SPARE: i64 = 1_000_000;

/// How turns follow from runtimes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// How long a turn is; with `by_weight` that of the heaviest on the device.
    pub slice: Duration,
    /// Turns are as long as the weight says.
    pub by_weight: bool,
    /// One that wakes up having missed this much may begin so far before the others, and interrupts a turn.
    pub credit: Duration,
    /// Nobody gets more than its part of all that have a queue on the device.
    pub strict: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    weight: u64,
    /// It runs only while nobody else has work.
    last: bool,
    /// Virtual runtime.
    virtual_time: i64,
    /// By what it is ordered.
    key: i64,
    /// Smaller first among equals.
    line: u64,
    /// It is in a turn, which has so many nanoseconds left.
    begun: bool,
    left: i64,
    /// It had work at the last decision.
    stays: bool,
    /// It has had work before.
    known: bool,
    /// What it runs counts, because somebody else wants one of its devices.
    counts: bool,
    /// The last decision gave it its devices.
    owns: bool,
    /// It has its turn, but somebody else's decision keeps it from running: meanwhile it keeps its devices from nobody, and
    /// nobody is ahead of it.
    held: bool,
    /// Where that is strict: how much device time it may have at once, whether that counts, and whether it has to wait for
    /// more.
    allowance: i64,
    rationed: bool,
    throttled: bool,
}

/// Who is on a device.
#[derive(Debug, Clone, Copy)]
struct Cell {
    /// The smallest key of those with work, of those that run only while nobody else has work apart.
    least: [i64; 2],
    /// The largest weight of those with work, of all where parts are strict.
    heaviest: u64,
    /// The farthest that somebody may be ahead of the smallest here.
    ahead: i64,
    /// The shortest turn of those with work. What runs on at its end takes from the next one's: with one window for all each
    /// takes as much as it gives.
    shortest: i64,
    /// How many would be disturbed by each other here.
    rivals: u32,
    claimed: bool,
    /// The sum of the weights of all that have a queue here.
    sum: u64,
}

/// The runtimes.
#[derive(Debug, Default)]
pub(crate) struct VirtualRuntimes {
    accounts: PerEntity<Account>,
    /// Counts up, to tell equals apart.
    lines: u64,
    /// The time of the last decision.
    at: Time,
    cells: Vec<Cell>,
    order: Vec<(bool, i64, bool, u64, usize)>,
}

impl VirtualRuntimes {
    /// Ranks the members; `weigh` gives their weights, 0 for who shall run only while nobody else has work. Returns when
    /// the first turn ends, or somebody may run again.
    pub fn rank(
        &mut self,
        input: Input<'_>,
        rankings: &mut [Ranking],
        rules: Rules,
        weigh: impl Fn(&SchedEntities, &SchedEntity) -> u64,
    ) -> Option<Time> {
        let entities = input.entities;
        self.cells.clear();
        self.cells.resize(entities.devices().len(), Cell::EMPTY);
        let accounts = self.accounts.align(entities.all());
        let mut released = false;
        for (index, entity) in input.members() {
            let account = &mut accounts[index];
            let weight = weigh(entities, entity);
            (account.weight, account.last) = (weight.max(1), weight == 0);
            account.charge(entity);
            let held = (account.owns || account.held) && entity.ready && !entity.running;
            released |= std::mem::replace(&mut account.held, held) && entity.running;
            for used in entities.uses(entity) {
                let cell = &mut self.cells[used.device];
                cell.sum += weight;
                if used.busy || rules.strict {
                    cell.heaviest = cell.heaviest.max(account.weight);
                }
            }
        }
        let mut wake = None;
        let elapsed = nanos(input.now.since(self.at));
        for (index, entity) in input.members() {
            let account = &mut accounts[index];
            if rules.strict {
                wake = earlier(wake, account.ration(input, entity, elapsed, rules, &self.cells));
            } else {
                (account.rationed, account.throttled) = (false, false);
            }
        }
        self.at = input.now;
        for (index, entity) in input.members() {
            let account = &mut accounts[index];
            if entity.ready && account.stays {
                account.end_turn();
                note_least(entities, entity, account, &mut self.cells);
            }
        }
        for (index, entity) in input.members() {
            let account = &mut accounts[index];
            if entity.ready && !account.stays {
                account.key = account.start(entities, entity, rules, &self.cells);
                account.join(&mut self.lines);
            }
            account.stays = entity.ready;
            account.begun &= entity.ready;
        }
        self.limit(input, rules, released);
        let accounts = self.accounts.align(entities.all());
        for (index, entity) in input.members() {
            // Where it would begin with work.
            let account = &mut accounts[index];
            if !account.stays {
                account.key = account.start(entities, entity, rules, &self.cells);
            }
        }
        self.sort(input, rankings, rules);
        earlier(wake, self.walk(input, rankings, rules))
    }

    /// Takes back those that are too far ahead. A turn keeps its place, but for those that were interrupted because somebody is
    /// held up no longer, of whom they knew nothing when they began.
    fn limit(&mut self, input: Input<'_>, rules: Rules, released: bool) {
        let entities = input.entities;
        let accounts = self.accounts.align(entities.all());
        for (index, entity) in input.members() {
            let account = &mut accounts[index];
            if !account.stays {
                continue;
            }
            if account.line == u64::MAX {
                account.line = take_line(&mut self.lines);
            }
            note_least(entities, entity, account, &mut self.cells);
            let slice = account.slice(entities, entity, rules, &self.cells);
            let ahead = account.in_virtual(slice.saturating_mul(4).max(slice + AHEAD));
            for used in entities.uses(entity) {
                let cell = &mut self.cells[used.device];
                cell.rivals += u32::from(!account.throttled);
                if used.busy {
                    cell.shortest = cell.shortest.min(slice);
                    cell.ahead = cell.ahead.max(ahead);
                }
            }
        }
        // Whoever is taken back may take others back on its other devices.
        for _ in 0..=self.cells.len() {
            let mut changed = false;
            for (index, entity) in input.members() {
                let account = &mut accounts[index];
                let group = usize::from(account.last);
                let most = busy(entities, entity).map(|used| {
                    let cell = &self.cells[used.device];
                    cell.least[group].saturating_add(cell.ahead)
                });
                let may = account.stays && (!account.begun || released && !entity.running);
                let Some(most) = most.min().filter(|_| may) else { continue };
                if account.key > most {
                    (account.virtual_time, account.key, changed) = (most, most, true);
                    note_least(entities, entity, account, &mut self.cells);
                }
            }
            if !changed {
                break;
            }
        }
    }

    /// Brings the members into their order, and ranks them.
    fn sort(&mut self, input: Input<'_>, rankings: &mut [Ranking], rules: Rules) {
        let accounts = self.accounts.align(input.entities.all());
        self.order.clear();
        self.order.extend(input.members().map(|(index, _)| {
            let account = &accounts[index];
            let line = if account.stays { account.line } else { u64::MAX };
            (account.last, account.key, !account.begun, line, index)
        }));
        self.order.sort_unstable();
        for (rank, &(.., index)) in (0i64..).zip(&self.order) {
            let account = &accounts[index];
            let entity = &input.entities.all()[index];
            let least = busy(input.entities, entity)
                .map(|used| self.cells[used.device].least[usize::from(account.last)])
                .min()
                .unwrap_or(account.key);
            let reason = RUNTIME.number(account.key.saturating_sub(least).max(0) / 1_000);
            let shortest = busy(input.entities, entity).map(|used| self.cells[used.device].shortest).min();
            let shortest = Duration::from_nanos(shortest.unwrap_or_default().unsigned_abs());
            rankings[index] = Ranking::new(-rank, reason).in_turn(shortest);
            if rules.credit > Duration::ZERO {
                // Who sleeps for a short while gets credit for that, and needs no place.
                rankings[index].linger = Duration::ZERO;
            }
            if account.throttled {
                let percent = account.percent(input.entities, entity, &self.cells);
                rankings[index].throttle = Some(Throttle::Share { percent });
            }
        }
    }

    /// Finds out, as the engine will, who runs, and begins their turns. Returns when the first of them ends.
    fn walk(&mut self, input: Input<'_>, rankings: &mut [Ranking], rules: Rules) -> Option<Time> {
        let entities = input.entities;
        let accounts = self.accounts.align(entities.all());
        let mut wake = None;
        for &(.., index) in &self.order {
            let entity = &entities.all()[index];
            let account = &mut accounts[index];
            let uses = entities.uses(entity);
            account.counts = account.stays && uses.iter().any(|used| self.cells[used.device].rivals > 1);
            account.owns = false;
            if !account.stays || account.throttled || uses.iter().any(|used| self.cells[used.device].claimed)
            {
                account.held = false;
                continue;
            }
            if account.held {
                continue;
            }
            account.owns = true;
            if !account.begun {
                account.begun = true;
                // Behind equals that have begun before: their turns are not cut short by this one's.
                account.line = take_line(&mut self.lines);
                account.left = account.slice(entities, entity, rules, &self.cells);
            }
            rankings[index].reason = SLICE.number(account.left / 1_000);
            busy(entities, entity).for_each(|used| self.cells[used.device].claimed = true);
            let end = [account.counts.then_some(account.left), account.rationed.then_some(account.allowance)];
            if let Some(end) = end.into_iter().flatten().min() {
                // Somebody else's decision may keep it from running: then its turn gets no shorter.
                let least = if entity.running { GRAIN } else { SHORTEST.min(rules.turn() as u64) as i64 };
                let end = Duration::from_nanos(end.max(least).unsigned_abs());
                wake = earlier(wake, Some(input.now.after(end)));
            }
        }
        wake
    }
}

impl Rules {
    fn turn(&self) -> i64 {
        nanos(self.slice)
    }
}

impl Cell {
    const EMPTY: Self = Self {
        least: [i64::MAX; 2],
        heaviest: 0,
        ahead: 0,
        shortest: i64::MAX,
        rivals: 0,
        claimed: false,
        sum: 0,
    };
}

impl Account {
    /// Enters what it has run.
    fn charge(&mut self, entity: &SchedEntity) {
        let ran = nanos(entity.ran);
        self.allowance = self.allowance.saturating_sub(ran);
        self.left = self.left.saturating_sub(ran);
        if self.counts {
            self.virtual_time = self.virtual_time.saturating_add(self.in_virtual(ran));
        }
        self.counts = false;
    }

    /// Says whether it has had its part where that is strict; returns when it may run again.
    fn ration(
        &mut self,
        input: Input<'_>,
        entity: &SchedEntity,
        elapsed: i64,
        rules: Rules,
        cells: &[Cell],
    ) -> Option<Time> {
        let entities = input.entities;
        let sum = entities.uses(entity).iter().map(|used| cells[used.device].sum).max().unwrap_or(0);
        let weight = if self.last { 0 } else { self.weight };
        let before = std::mem::replace(&mut self.rationed, weight < sum);
        if !self.rationed {
            // Nobody else has a part of its devices.
            (self.allowance, self.throttled) = (0, false);
            return None;
        }
        if weight == 0 {
            self.throttled = true;
            return None;
        }
        let slice = self.slice(entities, entity, rules, cells);
        let most = slice.saturating_mul(2).saturating_add(SPARE);
        let income = part(elapsed, weight, sum);
        // While nobody else had a part, what it ran was nobody's.
        self.allowance = match self.known && before {
            true => self.allowance.saturating_add(income).clamp(-most, most),
            false => slice,
        };
        let enough = if self.throttled { slice } else { GRAIN };
        self.throttled = self.allowance < enough;
        let wait = part(slice.saturating_sub(self.allowance).max(0), sum, weight) + 1;
        (self.throttled && entity.ready).then(|| input.now.after(Duration::from_nanos(wait.unsigned_abs())))
    }

    /// Whether its turn is over, and where it stands then.
    fn end_turn(&mut self) {
        self.begun &= !self.throttled;
        if self.begun && self.left <= GRAIN {
            // Behind all that come meanwhile.
            (self.begun, self.line) = (false, u64::MAX);
        }
        if !self.begun {
            self.key = self.virtual_time;
        }
    }

    /// Where it would begin, or begins.
    fn start(&self, entities: &SchedEntities, entity: &SchedEntity, rules: Rules, cells: &[Cell]) -> i64 {
        let group = usize::from(self.last);
        let there = entities.uses(entity).iter().map(|used| cells[used.device].least[group]);
        let Some(least) = there.filter(|least| *least < i64::MAX).max() else {
            return self.virtual_time;
        };
        let credit = self.in_virtual(nanos(rules.credit));
        let missed = least.saturating_sub(self.virtual_time);
        if self.known && credit > 0 && missed >= credit {
            least - credit
        } else {
            least.max(self.virtual_time)
        }
    }

    fn join(&mut self, lines: &mut u64) {
        self.virtual_time = self.key;
        self.known = true;
        self.begun = false;
        self.line = take_line(lines);
    }

    /// How long a turn of it is, in nanoseconds.
    fn slice(&self, entities: &SchedEntities, entity: &SchedEntity, rules: Rules, cells: &[Cell]) -> i64 {
        if !rules.by_weight {
            return rules.turn();
        }
        let uses = entities.uses(entity).iter().filter(|used| used.busy || rules.strict);
        let heaviest = uses.map(|used| cells[used.device].heaviest).max();
        let heaviest = heaviest.unwrap_or(0).max(self.weight);
        // Rounded up, so that after equal turns nobody is a nanosecond behind.
        let slice = part(rules.turn(), self.weight, heaviest) + 1;
        slice.clamp(rules.turn().min(SHORTEST as i64), rules.turn())
    }

    fn percent(&self, entities: &SchedEntities, entity: &SchedEntity, cells: &[Cell]) -> u32 {
        let weight = if self.last { 0 } else { self.weight };
        let uses = entities.uses(entity).iter();
        uses.map(|used| weight * 100 / cells[used.device].sum.max(1)).min().unwrap_or(0) as u32
    }

    /// Its own time as virtual time.
    fn in_virtual(&self, time: i64) -> i64 {
        part(time, ONE, self.weight)
    }
}

/// Where the entity has work.
pub(crate) fn busy<'a>(
    entities: &'a SchedEntities,
    entity: &SchedEntity,
) -> impl Iterator<Item = &'a DeviceUse> + use<'a> {
    entities.uses(entity).iter().filter(|used| used.busy)
}

fn note_least(entities: &SchedEntities, entity: &SchedEntity, account: &Account, cells: &mut [Cell]) {
    for used in busy(entities, entity).filter(|_| !account.held) {
        let least = &mut cells[used.device].least[usize::from(account.last)];
        *least = account.key.min(*least);
    }
}

fn take_line(lines: &mut u64) -> u64 {
    *lines += 1;
    *lines
}

/// The time × a weight ÷ a sum of weights.
pub(crate) fn part(time: i64, weight: u64, sum: u64) -> i64 {
    // Weights are small; times that do not fit are cut.
    let [weight, sum] = [weight, sum.max(1)].map(|weight| i64::try_from(weight).unwrap_or(i64::MAX));
    time.saturating_mul(weight) / sum
}
