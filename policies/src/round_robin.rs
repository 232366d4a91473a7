//! Weighted round robin: the common part of UP, PUP and SPUP.
//!
//! Entities with work stand in one line, whatever their devices. An entity that is first on all its devices
//! has its slice there; then it goes to the end of the line. An entity that is new or wakes up goes to the
//! end as well, so it waits for at most one slice of each of the others. An entity on several devices that
//! cannot run because of one of them keeps its place, and those behind it use its other devices meanwhile.
//! The same holds where another policy rules one of the devices.
//!
//! # Accounts
//! The account of an entity counts nanoseconds of device time. Its slice is added when the slice begins, the
//! time that it runs is taken off, and the slice is over when nothing is left. Time that it ran too much
//! because of a late decision is missing in the next slice; an entity that has nothing even then lets its
//! slice pass. So each entity has had one slice for each round, and the shares are exact over many slices.
//! The account stays as it is while no other entity wants the same devices.

use crate::per_entity::PerEntity;
use crate::policy::{Input, Ranking};
use crate::reason::{ReasonKind, SLICE, WAITS};
use crate::sched_entity::{DeviceUse, SchedEntities, SchedEntity};
use crate::slice::{self, Devices, GRAIN, SHORTEST, SliceAccount, nanos};
use crate::times::{self, earlier};
use protocol::operation::Throttle;
use protocol::rank_reason::RankReason;
use protocol::time::Time;
use std::time::Duration;

/// The reasons of the rows of UP, PUP and SPUP.
pub(crate) const REASONS: &[&ReasonKind] = &[SLICE, WAITS];

/// The most that is remembered of time that an entity ran too much, in nanoseconds, or four slices if that is
/// more.
const DEBT: i64 = 2_000_000;

/// Rules of the round robin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// The sum of the slices of a device, unless an entity with work asks for less.
    pub timeslice: Duration,
    /// The part of the rest of a slice that counts in the next one when the entity turns idle; applied once
    /// more for each timeslice that the entity sleeps.
    pub carry: f64,
    /// True if the slice of an idle entity stays unused and the devices are withheld from all others
    /// meanwhile.
    pub strict: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// Its account; a slice is added when it begins.
    account: SliceAccount,
    /// Its position in the line, smaller first, if it stands there.
    line: Option<u64>,
    /// The slice that was added.
    slice: i64,
    /// The time at which it left the line.
    away_since: Time,
}

/// The state of a device in one decision.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// The smallest weight that is not 0.
    lightest: u64,
    /// The number of entities of weight 0.
    weightless: u64,
    /// The sum of the slices, in nanoseconds.
    timeslice: u64,
    /// The number of entities before the one that is looked at.
    ahead: i64,
}

/// The line of entities.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    entries: PerEntity<Entry>,
    /// The next position at the end.
    end: u64,
    /// The time of the last decision.
    at: Time,
    devices: Devices,
    cells: Vec<Cell>,
    /// The indices of the entities in the line: those with a weight, and those without.
    order: [Vec<usize>; 2],
}

impl RoundRobin {
    /// Ranks the members. `weigh` gives the share of each on its devices, relative to the others. Returns the
    /// time at which the first slice ends.
    pub fn rank(
        &mut self,
        input: Input<'_>,
        rankings: &mut [Ranking],
        rules: Rules,
        weigh: impl Fn(&SchedEntities, &SchedEntity) -> u64,
    ) -> Option<Time> {
        let entities = input.entities;
        self.devices.reset(entities.devices().len());
        self.cells.clear();
        self.cells.resize(entities.devices().len(), Cell::default());
        self.order.iter_mut().for_each(Vec::clear);
        let entries = self.entries.align(entities.all());
        let elapsed = input.now.since(self.at);
        self.at = input.now;
        let mut anybody = false;
        for (index, entity) in input.members() {
            let entry = &mut entries[index];
            let account = &mut entry.account;
            let ran = match (rules.strict, account.owns) {
                (false, _) => entity.ran,
                (true, true) => elapsed,
                (true, false) => Duration::ZERO,
            };
            // Time that it ran too much counts only if another entity waited for it.
            let least = if account.contended { i64::MIN } else { account.left.min(0) };
            account.left = account.left.saturating_sub(nanos(ran)).max(least);
            account.note_held(entity);
            (account.contended, account.owns) = (false, false);
            let weight = weigh(entities, entity);
            account.weight = weight;
            if takes_part(entities, entity, rules) {
                anybody |= entity.ready;
                if entry.line.is_none() {
                    entry.join(self.end, input.now, rules);
                    self.end += 1;
                }
                self.order[usize::from(weight == 0)].push(index);
                self.devices.add_rival(entities.uses(entity));
                for used in entities.uses(entity).iter().filter(|used| is_wanted(entity, used, rules)) {
                    self.devices.0[used.device].sum += weight;
                    self.cells[used.device].count(entity, weight, rules);
                }
            } else if entry.line.take().is_some() {
                entry.leave(entity, input.now, rules);
            }
        }
        for order in &mut self.order {
            order.sort_unstable_by_key(|&index| entries[index].line);
        }
        let (devices, cells, end) = (&mut self.devices, &mut self.cells, &mut self.end);
        let mut walk = Walk { input, rules, entries, devices, cells, end, wake: None };
        for order in &mut self.order {
            let mut next = 0;
            while let Some(&index) = order.get(next) {
                next += 1;
                if !walk.stand(index, anybody, rankings) {
                    order.push(index);
                }
            }
        }
        let wake = walk.wake.filter(|_| anybody);
        for (index, entity) in input.members().filter(|(index, _)| entries[*index].line.is_none()) {
            // With work it would go to the end.
            let ahead = entities.uses(entity).iter().map(|used| self.cells[used.device].ahead).max();
            rankings[index] =
                ranking(self.end, entries[index].account.weight, WAITS.number(ahead.unwrap_or(0).max(1) - 1));
        }
        wake
    }
}

/// One pass along the line, which finds what the engine will do, and for how long.
struct Walk<'a> {
    input: Input<'a>,
    rules: Rules,
    entries: &'a mut [Entry],
    devices: &'a mut Devices,
    cells: &'a mut [Cell],
    end: &'a mut u64,
    wake: Option<Time>,
}

impl Walk<'_> {
    /// Ranks the next entity of the line. Returns false if it goes to the end instead.
    fn stand(&mut self, index: usize, anybody: bool, rankings: &mut [Ranking]) -> bool {
        let entities = self.input.entities;
        let entity = &entities.all()[index];
        let uses = entities.uses(entity);
        let strict = self.rules.strict;
        let weight = self.entries[index].account.weight;
        let shut = strict && weight == 0 && uses.iter().any(|used| self.devices.0[used.device].sum > 0);
        let blocked = shut || self.devices.is_claimed(uses);
        let ahead = uses.iter().map(|used| self.cells[used.device].ahead).max().unwrap_or(0);
        let mut reason = WAITS.number(ahead.max(1) - 1);
        let slice = if blocked { 0 } else { self.slice(index) };
        let entry = &mut self.entries[index];
        let account = &mut entry.account;
        if !blocked {
            if account.begun && entry.slice != slice {
                // An entity has come or gone: this slice is as long as if that had been so from its beginning.
                account.left = account.left.saturating_add(slice - entry.slice).max(account.left.min(0));
                entry.slice = slice;
            }
            if account.is_over() {
                account.begun = false;
                account.left = account.left.max(-DEBT.max(slice.saturating_mul(4)));
                entry.line = Some(take_place(self.end));
                return false;
            }
            if !account.begun {
                account.left = account.left.saturating_add(slice);
                if account.left <= GRAIN {
                    entry.line = Some(take_place(self.end));
                    return false;
                }
                (account.begun, entry.slice) = (true, slice);
            }
            reason = SLICE.number(account.left / 1_000);
        }
        let claims = !blocked && !account.held;
        account.owns = claims;
        account.contended = anybody && self.devices.is_contended(uses);
        if claims && account.contended {
            let end = slice::end(self.input.now, account.left, entity.running || strict, self.rules.slices());
            self.wake = earlier(self.wake, end);
        }
        let line = entry.line.unwrap_or(*self.end);
        let wanted = uses.iter().filter(|used| is_wanted(entity, used, self.rules));
        let shortest =
            wanted.map(|used| self.cells[used.device].shortest(self.devices.0[used.device].sum)).min();
        let shortest = Duration::from_nanos(shortest.unwrap_or_default());
        rankings[index] = ranking(line, weight, reason).with_slices(shortest);
        if blocked && strict {
            rankings[index].throttle =
                Some(if shut { Throttle::Share { percent: 0 } } else { Throttle::Turn });
        }
        let wanted = uses.iter().filter(|used| is_wanted(entity, used, self.rules));
        wanted.clone().for_each(|used| self.cells[used.device].ahead += 1);
        if claims {
            self.devices.claim(wanted);
        }
        true
    }

    /// Returns the slice of an entity in nanoseconds: the shortest that it has on any of its devices.
    fn slice(&self, index: usize) -> i64 {
        let entity = &self.input.entities.all()[index];
        let uses = self.input.entities.uses(entity).iter().filter(|used| is_wanted(entity, used, self.rules));
        let weight = self.entries[index].account.weight;
        let length =
            |used: &DeviceUse| self.cells[used.device].slice(weight, self.devices.0[used.device].sum);
        uses.map(length).min().map_or(self.rules.slices(), |slice| slice.try_into().unwrap_or(i64::MAX))
    }
}

impl Rules {
    fn slices(&self) -> i64 {
        nanos(self.timeslice)
    }
}

impl Entry {
    fn join(&mut self, line: u64, now: Time, rules: Rules) {
        let away = now.since(self.away_since);
        if self.account.left > 0 {
            let slept = away.as_nanos() / rules.timeslice.as_nanos().max(1);
            self.account.left = (self.account.left as f64 * rules.carry.powi(slept.min(1_000) as i32)) as i64;
        } else {
            // While it was away it gave back the time that it had too much.
            self.account.left = self.account.left.saturating_add(nanos(away)).min(0);
        }
        self.line = Some(line);
    }

    fn leave(&mut self, entity: &SchedEntity, now: Time, rules: Rules) {
        if self.account.left > 0 {
            self.account.left = (self.account.left as f64 * rules.carry) as i64;
        }
        self.account.begun = false;
        self.away_since = entity.idle_since.unwrap_or(now);
    }
}

impl Cell {
    fn count(&mut self, entity: &SchedEntity, weight: u64, rules: Rules) {
        let asked = entity.process.timeslice.map_or(u64::MAX, |slice| slice.get() * 1_000);
        if self.timeslice == 0 {
            self.timeslice = times::nanos(rules.timeslice);
        }
        self.timeslice = self.timeslice.min(asked);
        self.weightless += u64::from(weight == 0);
        if weight > 0 && (self.lightest == 0 || weight < self.lightest) {
            self.lightest = weight;
        }
    }

    /// Returns the shortest slice here of those with a weight, or of all if none has one, in nanoseconds.
    /// Work in flight at the end of a slice takes time from the next one; with one window for all, each
    /// entity takes as much as it gives.
    fn shortest(&self, sum: u64) -> u64 {
        self.slice(self.lightest, sum)
    }

    /// Returns the slice of an entity of this weight here, in nanoseconds.
    fn slice(&self, weight: u64, sum: u64) -> u64 {
        let shortest = (SHORTEST as u64).min(self.timeslice);
        if weight == 0 {
            return (self.timeslice / self.weightless.max(1)).max(shortest);
        }
        // If the shortest slice is too short, all are longer in the same proportion.
        let all = self.timeslice.max(shortest * sum / self.lightest.max(1));
        all * weight / sum.max(1)
    }
}

fn ranking(line: u64, weight: u64, reason: RankReason) -> Ranking {
    let line = i64::try_from(line).unwrap_or(i64::MAX);
    let rank = if weight == 0 { i64::MIN / 2 - line } else { -line };
    Ranking::new(rank, reason)
}

fn take_place(end: &mut u64) -> u64 {
    *end += 1;
    *end - 1
}

fn takes_part(entities: &SchedEntities, entity: &SchedEntity, rules: Rules) -> bool {
    entity.ready || rules.strict && !entities.uses(entity).is_empty()
}

/// Returns true if the entity keeps others from the device in its slice.
fn is_wanted(entity: &SchedEntity, used: &DeviceUse, rules: Rules) -> bool {
    used.busy && entity.ready || rules.strict
}
