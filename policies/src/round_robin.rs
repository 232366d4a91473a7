//! Entities that take turns: the common part of UP, PUP and SPUP.
//!
//! Entities with work stand in one line, whatever their devices. Whoever stands first on all its devices has its turn there,
//! for its slice; then it goes to the end. One that wakes up or comes new goes to the end as well, so it waits for at most
//! one slice of each of the others. On several devices an entity that cannot run because of one of them keeps its place,
//! and whoever stands behind it on the others uses them meanwhile, by turns. So it is where another policy rules one of them.
//!
//! # Accounts
//! Each has an account in nanoseconds of device time: a slice is added when its turn begins, what it runs is taken off, and
//! the turn is over when nothing is left. What a late decision let it run too much is missing in the next turn; whoever
//! has nothing even then lets the turn pass. So each has had one slice for each time that the line went round, whatever
//! single turns were like, and the parts are exact over many turns. Nothing is taken off while nobody else wants its
//! devices.

use crate::per_entity::PerEntity;
use crate::policy::{Input, Ranking};
use crate::reason::{ReasonKind, SLICE, WAITS};
use crate::sched_entity::{DeviceUse, SchedEntities, SchedEntity};
use crate::times::{self, earlier};
use protocol::operation::Throttle;
use protocol::rank_reason::RankReason;
use protocol::time::Time;
use std::time::Duration;

/// The reasons of the rows of the policies that share this part.
pub(crate) const REASONS: &[&ReasonKind] = &[SLICE, WAITS];

/// A turn with less left than this is over, in nanoseconds; the rest counts in the next one.
pub(crate) const GRAIN: i64 = 10_000;

/// The shortest slice, in nanoseconds, unless all slices together are no longer: switching takes hundreds of
/// microseconds.
pub(crate) const SHORTEST: u64 = 500_000;

/// What somebody has run too much is remembered up to this many nanoseconds, or four slices if that is more.
const DEBT: i64 = 2_000_000;

/// How turns are taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// What the slices of a device add up to if nobody with work asks for less.
    pub timeslice: Duration,
    /// What part of a slice that was left over by falling idle counts in the next turn; once more for each timeslice
    /// that the entity sleeps.
    pub carry: f64,
    /// The turn of an idle entity stays unused, and whoever does not have the turn is barred.
    pub strict: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    /// Its place in the line, smaller first, if it stands there.
    line: Option<u64>,
    /// Its account.
    left: i64,
    /// The slice that was added.
    slice: i64,
    /// Its slice has been added, and its turn is not over.
    begun: bool,
    /// The last decision gave it its devices.
    owns: bool,
    /// It has its turn, but somebody else's decision keeps it from running: meanwhile it keeps its devices from nobody.
    held: bool,
    /// What it runs too much is on its account, because somebody else wants one of its devices.
    counts: bool,
    /// Since when it has not stood in the line.
    away_since: Time,
    weight: u64,
}

/// Who stands on a device.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// The sum of the weights, and the smallest of them that is not 0.
    sum: u64,
    lightest: u64,
    /// How many have the weight 0.
    weightless: u64,
    /// What the slices add up to, in nanoseconds.
    timeslice: u64,
    /// How many would be disturbed by each other here.
    rivals: u32,
    /// How many stand before the one that is looked at.
    ahead: i64,
    claimed: bool,
}

/// The line.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    turns: PerEntity<Turn>,
    /// The next place at the end.
    end: u64,
    /// The time of the last decision.
    at: Time,
    cells: Vec<Cell>,
    /// The entities in the line by their places: those with a weight, and those without.
    order: [Vec<usize>; 2],
}

impl RoundRobin {
    /// Ranks the members; `weigh` says what part each has of its devices, relative to the others. Returns the end of the
    /// first turn.
    pub fn rank(
        &mut self,
        input: Input<'_>,
        rankings: &mut [Ranking],
        rules: Rules,
        weigh: impl Fn(&SchedEntities, &SchedEntity) -> u64,
    ) -> Option<Time> {
        let entities = input.entities;
        self.cells.clear();
        self.cells.resize(entities.devices().len(), Cell::default());
        self.order.iter_mut().for_each(Vec::clear);
        let turns = self.turns.align(entities.all());
        let elapsed = input.now.since(self.at);
        self.at = input.now;
        let mut anybody = false;
        for (index, entity) in input.members() {
            let turn = &mut turns[index];
            let ran = match (rules.strict, turn.owns) {
                (false, _) => entity.ran,
                (true, true) => elapsed,
                (true, false) => Duration::ZERO,
            };
            // Nobody was kept waiting by what it ran too much.
            let least = if turn.counts { i64::MIN } else { turn.left.min(0) };
            turn.left = turn.left.saturating_sub(nanos(ran)).max(least);
            turn.held = (turn.owns || turn.held) && entity.ready && !entity.running;
            (turn.counts, turn.owns) = (false, false);
            turn.weight = weigh(entities, entity);
            if takes_part(entities, entity, rules) {
                anybody |= entity.ready;
                if turn.line.is_none() {
                    turn.join(self.end, input.now, rules);
                    self.end += 1;
                }
                self.order[usize::from(turn.weight == 0)].push(index);
                for used in entities.uses(entity) {
                    self.cells[used.device].count(entity, turn.weight, is_wanted(entity, used, rules), rules);
                }
            } else if turn.line.take().is_some() {
                turn.leave(entity, input.now, rules);
            }
        }
        for order in &mut self.order {
            order.sort_unstable_by_key(|&index| turns[index].line);
        }
        let mut walk = Walk { input, rules, turns, cells: &mut self.cells, end: &mut self.end, wake: None };
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
        for (index, entity) in input.members().filter(|(index, _)| turns[*index].line.is_none()) {
            // With work it would go to the end.
            let ahead = entities.uses(entity).iter().map(|used| self.cells[used.device].ahead).max();
            rankings[index] =
                ranking(self.end, turns[index].weight, WAITS.number(ahead.unwrap_or(0).max(1) - 1));
        }
        wake
    }
}

/// One pass along the line: what the engine will make of it, and how long that lasts.
struct Walk<'a> {
    input: Input<'a>,
    rules: Rules,
    turns: &'a mut [Turn],
    cells: &'a mut [Cell],
    end: &'a mut u64,
    wake: Option<Time>,
}

impl Walk<'_> {
    /// Says where the next of the line stands; false if it goes to the end instead.
    fn stand(&mut self, index: usize, anybody: bool, rankings: &mut [Ranking]) -> bool {
        let entities = self.input.entities;
        let entity = &entities.all()[index];
        let uses = entities.uses(entity);
        let turn = &mut self.turns[index];
        let strict = self.rules.strict;
        let shut = strict && turn.weight == 0 && uses.iter().any(|used| self.cells[used.device].sum > 0);
        let blocked = shut || uses.iter().any(|used| self.cells[used.device].claimed);
        let ahead = uses.iter().map(|used| self.cells[used.device].ahead).max().unwrap_or(0);
        let mut reason = WAITS.number(ahead.max(1) - 1);
        if !blocked {
            let slice = self.slice(index);
            let turn = &mut self.turns[index];
            if turn.begun && turn.slice != slice {
                // Somebody has come or gone: this turn is as long as if they had been there, or not, from its beginning.
                turn.left = turn.left.saturating_add(slice - turn.slice).max(turn.left.min(0));
                turn.slice = slice;
            }
            if turn.begun && turn.left <= GRAIN {
                turn.begun = false;
                turn.left = turn.left.max(-DEBT.max(slice.saturating_mul(4)));
                turn.line = Some(take_place(self.end));
                return false;
            }
            if !turn.begun {
                turn.left = turn.left.saturating_add(slice);
                if turn.left <= GRAIN {
                    turn.line = Some(take_place(self.end));
                    return false;
                }
                (turn.begun, turn.slice) = (true, slice);
            }
            reason = SLICE.number(turn.left / 1_000);
        }
        let turn = &mut self.turns[index];
        let claims = !blocked && !turn.held;
        turn.owns = claims;
        turn.counts = anybody && uses.iter().any(|used| self.cells[used.device].rivals > 1);
        if claims && turn.counts {
            // Somebody else's decision may keep it from running: then its account does not change.
            let least =
                if entity.running || strict { GRAIN } else { SHORTEST.min(self.rules.slices()) as i64 };
            let end = self.input.now.after(Duration::from_nanos(turn.left.max(least).unsigned_abs()));
            self.wake = earlier(self.wake, end);
        }
        let line = turn.line.unwrap_or(*self.end);
        let wanted = uses.iter().filter(|used| is_wanted(entity, used, self.rules));
        let shortest = wanted.map(|used| self.cells[used.device].shortest()).min();
        let shortest = Duration::from_nanos(shortest.unwrap_or_default());
        rankings[index] = ranking(line, turn.weight, reason).in_turn(shortest);
        if blocked && strict {
            rankings[index].throttle =
                Some(if shut { Throttle::Share { percent: 0 } } else { Throttle::Turn });
        }
        for used in uses.iter().filter(|used| is_wanted(entity, used, self.rules)) {
            let cell = &mut self.cells[used.device];
            cell.claimed |= claims;
            cell.ahead += 1;
        }
        true
    }

    /// The slice of an entity in nanoseconds: the shortest that it has on any of its devices.
    fn slice(&self, index: usize) -> i64 {
        let entity = &self.input.entities.all()[index];
        let uses = self.input.entities.uses(entity).iter().filter(|used| is_wanted(entity, used, self.rules));
        let slice = uses.map(|used| self.cells[used.device].slice(self.turns[index].weight)).min();
        slice.unwrap_or(self.rules.slices()).try_into().unwrap_or(i64::MAX)
    }
}

impl Rules {
    fn slices(&self) -> u64 {
        times::nanos(self.timeslice)
    }
}

impl Turn {
    fn join(&mut self, line: u64, now: Time, rules: Rules) {
        let away = now.since(self.away_since);
        if self.left > 0 {
            let slept = away.as_nanos() / u128::from(rules.slices().max(1));
            self.left = (self.left as f64 * rules.carry.powi(slept.min(1_000) as i32)) as i64;
        } else {
            // What it had too much it has given back by being away.
            self.left = self.left.saturating_add(nanos(away)).min(0);
        }
        self.line = Some(line);
    }

    fn leave(&mut self, entity: &SchedEntity, now: Time, rules: Rules) {
        if self.left > 0 {
            self.left = (self.left as f64 * rules.carry) as i64;
        }
        self.begun = false;
        self.away_since = entity.idle_since.unwrap_or(now);
    }
}

impl Cell {
    fn count(&mut self, entity: &SchedEntity, weight: u64, wanted: bool, rules: Rules) {
        self.rivals += 1;
        if !wanted {
            return;
        }
        let asked = entity.process.timeslice.map_or(u64::MAX, |slice| slice.get() * 1_000);
        if self.timeslice == 0 {
            self.timeslice = rules.slices();
        }
        self.timeslice = self.timeslice.min(asked);
        self.sum += weight;
        self.weightless += u64::from(weight == 0);
        if weight > 0 && (self.lightest == 0 || weight < self.lightest) {
            self.lightest = weight;
        }
    }

    /// The shortest slice here of those with a weight, or of all without one, in nanoseconds. What runs on at the end of a turn
    /// takes from the next one's: with one window for all each takes as much as it gives.
    fn shortest(&self) -> u64 {
        self.slice(self.lightest)
    }

    /// The slice of one with this weight here, in nanoseconds.
    fn slice(&self, weight: u64) -> u64 {
        let shortest = SHORTEST.min(self.timeslice);
        if weight == 0 {
            return (self.timeslice / self.weightless.max(1)).max(shortest);
        }
        // If the shortest of them is too short, all are longer in the same proportion.
        let all = self.timeslice.max(shortest * self.sum / self.lightest.max(1));
        all * weight / self.sum.max(1)
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

/// Whether the entity keeps others from the device in its turn.
fn is_wanted(entity: &SchedEntity, used: &DeviceUse, rules: Rules) -> bool {
    used.busy && entity.ready || rules.strict
}

pub(crate) fn nanos(span: Duration) -> i64 {
    span.as_nanos().try_into().unwrap_or(i64::MAX)
}
