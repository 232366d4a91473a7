//! Entities ordered by virtual runtime: the common part of CFS and FAIR.
//!
//! The virtual runtime of an entity is the device time that it has had while another entity wanted the
//! device, divided by its weight. The entity with the smallest one on all its devices begins a slice there.
//! It keeps its key for the whole slice, so that the order does not change with every decision. Between
//! entities that have work all the time the difference never grows beyond a slice of each, which makes the
//! shares exact.
//!
//! # Coming and going
//! An entity that is new or wakes up begins at the smallest virtual runtime of those with work there, or at
//! its own if that is larger. So no entity collects time by sleeping, besides the credit that the rules allow.
//! No entity is farther ahead of the smallest on its devices than a few slices: time that an entity had long
//! ago, or while others were held back elsewhere, is forgotten.

use crate::per_entity::PerEntity;
use crate::policy::{Input, Linger, Ranking};
use crate::reason::{Millis, ReasonKind, SLICE, first};
use crate::sched_entity::{DeviceUse, SchedEntities, SchedEntity};
use crate::slice::{self, Devices, GRAIN, SliceAccount, busy, nanos, part};
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

/// The reasons of the rows of CFS and FAIR.
pub(crate) const REASONS: &[&ReasonKind] = &[RUNTIME, SLICE];

/// The weight at which virtual time is device time.
pub(crate) const ONE: u64 = 1024;

/// The largest lead of an entity over the smallest, besides a slice, in nanoseconds of its own time.
const AHEAD: i64 = 2_000_000;

/// The most that may be saved with strict shares, besides two slices, in nanoseconds.
const SPARE: i64 = 1_000_000;

/// Rules by which slices follow from runtimes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// The length of a slice; with `by_weight` that of the heaviest entity on the device.
    pub slice: Duration,
    /// True if the length of slices follows the weight.
    pub by_weight: bool,
    /// The lead with which an entity that wakes up may begin if it has missed as much; it then interrupts a
    /// slice.
    pub credit: Duration,
    /// True if shares are strict: no entity gets more than its part among all that have a queue on the device.
    pub strict: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    slice: SliceAccount,
    /// True if it runs only while no other has work.
    last: bool,
    /// Virtual runtime.
    virtual_time: i64,
    /// Key of the order: the virtual runtime at the beginning of its slice.
    key: i64,
    /// Position among equals, smaller first.
    line: u64,
    /// True if it had work at the last decision.
    stays: bool,
    /// True if it has had work before.
    known: bool,
    /// Device time that it may have at once, where shares are strict.
    allowance: i64,
    /// True while the allowance limits it.
    rationed: bool,
    /// True while it waits for more allowance.
    throttled: bool,
}

/// The state of a device in one decision.
#[derive(Debug, Clone, Copy)]
struct Cell {
    /// The smallest key of the entities with work, separately for those that run only while no other has work.
    least: [i64; 2],
    /// The largest lead that an entity may have over the smallest key here.
    ahead: i64,
    /// The shortest slice of the entities with work. Work in flight at the end of a slice takes time from the next
    /// slice; with one window for all, each entity takes as much as it gives.
    shortest: i64,
}

/// The virtual runtimes of all entities.
#[derive(Debug, Default)]
pub(crate) struct VirtualRuntimes {
    accounts: PerEntity<Account>,
    /// A counter that orders equals.
    lines: u64,
    /// The time of the last decision.
    at: Time,
    devices: Devices,
    cells: Vec<Cell>,
    order: Vec<(bool, i64, bool, u64, usize)>,
}

impl VirtualRuntimes {
    /// Ranks the members. `weigh` gives their weights, 0 for those that run only while no other has work.
    /// Returns the time at which the first slice ends, or at which an entity may run again.
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
        self.cells.resize(entities.devices().len(), Cell::EMPTY);
        let accounts = self.accounts.align(entities.all());
        let mut released = false;
        for (index, entity) in input.members() {
            let account = &mut accounts[index];
            let weight = weigh(entities, entity);
            (account.slice.weight, account.last) = (weight.max(1), weight == 0);
            account.charge(entity);
            released |= account.slice.note_held(entity);
            for used in entities.uses(entity) {
                self.devices.0[used.device].sum += weight;
                if used.busy || rules.strict {
                    let device = &mut self.devices.0[used.device];
                    device.heaviest = device.heaviest.max(account.slice.weight);
                }
            }
        }
        let mut wake = None;
        let elapsed = nanos(input.now.since(self.at));
        for (index, entity) in input.members() {
            let account = &mut accounts[index];
            if rules.strict {
                wake = earlier(wake, account.ration(input, entity, elapsed, rules, &self.devices));
            } else {
                (account.rationed, account.throttled) = (false, false);
            }
        }
        self.at = input.now;
        for (index, entity) in input.members() {
            let account = &mut accounts[index];
            if entity.ready && account.stays {
                account.end_slice();
                account.note_least(entities.uses(entity), &mut self.cells);
            }
        }
        for (index, entity) in input.members() {
            let account = &mut accounts[index];
            if entity.ready && !account.stays {
                account.key = account.start(entities.uses(entity), rules, &self.cells);
                account.join(&mut self.lines);
            }
            account.stays = entity.ready;
            account.slice.begun &= entity.ready;
        }
        self.limit(input, rules, released);
        let accounts = self.accounts.align(entities.all());
        for (index, entity) in input.members() {
            // The key that it would begin with, if it had work.
            let account = &mut accounts[index];
            if !account.stays {
                account.key = account.start(entities.uses(entity), rules, &self.cells);
            }
        }
        self.sort(input, rankings, rules);
        earlier(wake, self.walk(input, rankings, rules))
    }

    /// Limits the lead of the entities. A slice keeps its key, except one that was interrupted because an
    /// entity is held up no longer: it did not know of that entity when it began.
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
            account.note_least(entities.uses(entity), &mut self.cells);
            let slice = account.length(entities.uses(entity), rules, &self.devices);
            let ahead = account.in_virtual(slice.saturating_mul(4).max(slice + AHEAD));
            if !account.throttled {
                self.devices.add_rival(entities.uses(entity));
            }
            for used in busy(entities.uses(entity)) {
                let cell = &mut self.cells[used.device];
                cell.shortest = cell.shortest.min(slice);
                cell.ahead = cell.ahead.max(ahead);
            }
        }
        // An entity whose lead shrinks may limit others on its other devices.
        for _ in 0..=self.cells.len() {
            let mut changed = false;
            for (index, entity) in input.members() {
                let account = &mut accounts[index];
                let group = usize::from(account.last);
                let most = busy(entities.uses(entity)).map(|used| {
                    let cell = &self.cells[used.device];
                    cell.least[group].saturating_add(cell.ahead)
                });
                let may = account.stays && (!account.slice.begun || released && !entity.running);
                let Some(most) = most.min().filter(|_| may) else { continue };
                if account.key > most {
                    (account.virtual_time, account.key, changed) = (most, most, true);
                    account.note_least(entities.uses(entity), &mut self.cells);
                }
            }
            if !changed {
                break;
            }
        }
    }

    /// Sorts the members and ranks them.
    fn sort(&mut self, input: Input<'_>, rankings: &mut [Ranking], rules: Rules) {
        let accounts = self.accounts.align(input.entities.all());
        self.order.clear();
        self.order.extend(input.members().map(|(index, _)| {
            let account = &accounts[index];
            let line = if account.stays { account.line } else { u64::MAX };
            (account.last, account.key, !account.slice.begun, line, index)
        }));
        self.order.sort_unstable();
        for (rank, &(.., index)) in (0i64..).zip(&self.order) {
            let account = &accounts[index];
            let entity = &input.entities.all()[index];
            let least = busy(input.entities.uses(entity))
                .map(|used| self.cells[used.device].least[usize::from(account.last)])
                .min()
                .unwrap_or(account.key);
            let reason = RUNTIME.number(account.key.saturating_sub(least).max(0) / 1_000);
            let shortest =
                busy(input.entities.uses(entity)).map(|used| self.cells[used.device].shortest).min();
            let shortest = Duration::from_nanos(shortest.unwrap_or_default().unsigned_abs());
            rankings[index] = Ranking::new(-rank, reason).with_slices(shortest);
            rankings[index].may_withhold = account.rationed;
            if rules.credit > Duration::ZERO {
                // An entity that sleeps for a short while gets credit for that, and needs no linger.
                rankings[index].linger = Linger::Fixed;
            }
            if account.throttled {
                let percent = account.percent(input.entities.uses(entity), &self.devices);
                rankings[index].throttle = Some(Throttle::Share { percent });
            }
        }
    }

    /// Finds the entities that the engine will let run, and begins their slices. Returns the time at which
    /// the first of them ends.
    fn walk(&mut self, input: Input<'_>, rankings: &mut [Ranking], rules: Rules) -> Option<Time> {
        let entities = input.entities;
        let accounts = self.accounts.align(entities.all());
        let mut wake = None;
        for &(.., index) in &self.order {
            let entity = &entities.all()[index];
            let account = &mut accounts[index];
            let uses = entities.uses(entity);
            let slice = &mut account.slice;
            slice.contended = account.stays && self.devices.is_contended(uses);
            slice.owns = false;
            if !account.stays || account.throttled || self.devices.is_claimed(uses) {
                slice.held = false;
                continue;
            }
            if slice.held {
                continue;
            }
            slice.owns = true;
            if !account.slice.begun {
                account.slice.begun = true;
                // Behind equals that began before: this slice must not cut theirs short.
                account.line = take_line(&mut self.lines);
                account.slice.left = account.length(entities.uses(entity), rules, &self.devices);
            }
            rankings[index].reason = SLICE.number(account.slice.left / 1_000);
            self.devices.claim(busy(uses));
            let SliceAccount { left, contended, .. } = account.slice;
            let ends = [contended.then_some(left), account.rationed.then_some(account.allowance)];
            if let Some(left) = ends.into_iter().flatten().min() {
                wake = earlier(wake, slice::end(input.now, left, entity.running, rules.longest()));
            }
        }
        wake
    }
}

impl Rules {
    fn longest(&self) -> i64 {
        nanos(self.slice)
    }
}

impl Cell {
    const EMPTY: Self = Self { least: [i64::MAX; 2], ahead: 0, shortest: i64::MAX };
}

impl Account {
    /// Enters the time that it has run.
    fn charge(&mut self, entity: &SchedEntity) {
        let ran = nanos(entity.ran);
        self.allowance = self.allowance.saturating_sub(ran);
        self.slice.left = self.slice.left.saturating_sub(ran);
        if std::mem::take(&mut self.slice.contended) {
            self.virtual_time = self.virtual_time.saturating_add(self.in_virtual(ran));
        }
    }

    /// Checks whether it has had its part, with strict shares. Returns the time at which it may run again.
    fn ration(
        &mut self,
        input: Input<'_>,
        entity: &SchedEntity,
        elapsed: i64,
        rules: Rules,
        devices: &Devices,
    ) -> Option<Time> {
        let uses = input.entities.uses(entity);
        let sum = uses.iter().map(|used| devices.0[used.device].sum).max().unwrap_or(0);
        let weight = self.share();
        let before = std::mem::replace(&mut self.rationed, weight < sum);
        if !self.rationed {
            // No other entity has a part of its devices.
            (self.allowance, self.throttled) = (0, false);
            return None;
        }
        if weight == 0 {
            self.throttled = true;
            return None;
        }
        let slice = self.length(uses, rules, devices);
        let most = slice.saturating_mul(2).saturating_add(SPARE);
        let income = part(elapsed, weight, sum);
        // While no other entity had a part, the time that it ran was not shared.
        self.allowance = match self.known && before {
            true => self.allowance.saturating_add(income).clamp(-most, most),
            false => slice,
        };
        let enough = if self.throttled { slice } else { GRAIN };
        self.throttled = self.allowance < enough;
        let wait = part(slice.saturating_sub(self.allowance).max(0), sum, weight) + 1;
        (self.throttled && entity.ready).then(|| input.now.after(Duration::from_nanos(wait.unsigned_abs())))
    }

    /// Ends its slice if that is over, and updates its key.
    fn end_slice(&mut self) {
        self.slice.begun &= !self.throttled;
        if self.slice.is_over() {
            // It goes behind all that come meanwhile.
            (self.slice.begun, self.line) = (false, u64::MAX);
        }
        if !self.slice.begun {
            self.key = self.virtual_time;
        }
    }

    /// Returns the key with which it begins, or would begin.
    fn start(&self, uses: &[DeviceUse], rules: Rules, cells: &[Cell]) -> i64 {
        let group = usize::from(self.last);
        let there = uses.iter().map(|used| cells[used.device].least[group]);
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
        self.slice.begun = false;
        self.line = take_line(lines);
    }

    /// Returns the length of its slice, in nanoseconds.
    fn length(&self, uses: &[DeviceUse], rules: Rules, devices: &Devices) -> i64 {
        if !rules.by_weight {
            return rules.longest();
        }
        let weight = self.slice.weight;
        let heaviest = devices.heaviest(uses.iter().filter(|used| used.busy || rules.strict)).max(weight);
        // Rounded up, so that after equal slices no entity is a nanosecond behind.
        slice::limited(part(rules.longest(), weight, heaviest) + 1, rules.longest())
    }

    /// Returns its share of its devices in percent: the smallest of them.
    fn percent(&self, uses: &[DeviceUse], devices: &Devices) -> u32 {
        let percent = uses.iter().map(|used| self.share() * 100 / devices.0[used.device].sum.max(1));
        percent.min().unwrap_or(0) as u32
    }

    /// Returns its weight among the shares: 0 if it runs only while no other has work.
    fn share(&self) -> u64 {
        if self.last { 0 } else { self.slice.weight }
    }

    /// Converts its own time to virtual time.
    fn in_virtual(&self, time: i64) -> i64 {
        part(time, ONE, self.slice.weight)
    }

    /// Takes its key into account on the devices where it has work.
    fn note_least(&self, uses: &[DeviceUse], cells: &mut [Cell]) {
        for used in busy(uses).filter(|_| !self.slice.held) {
            let least = &mut cells[used.device].least[usize::from(self.last)];
            *least = self.key.min(*least);
        }
    }
}

fn take_line(lines: &mut u64) -> u64 {
    *lines += 1;
    *lines
}
