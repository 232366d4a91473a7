//! Units ordered by what they have used: the common part of CFS and FAIR.
//!
//! Each unit has a virtual runtime: the device time that it has had while somebody else wanted the device, divided by its
//! weight. Whoever has the smallest on all its devices begins a turn there, and keeps for the whole turn the place that it
//! had when it began, so that the order does not change with every decision. Between units that have work all the time the
//! difference never grows beyond a turn of each, which makes the parts exact.
//!
//! # Coming and going
//! Who comes new, or wakes up, begins at the smallest of those with work there, or at its own if that is larger: nobody
//! collects time by sleeping, besides the credit that the rules allow. Nobody is farther ahead of the smallest on its
//! devices than a few turns: what somebody had while others were held back elsewhere, or long ago, is forgotten.

use crate::ledger::Ledger;
use crate::policy::{Input, Standing};
use crate::times::earlier;
use crate::turns::{GRAIN, SHORTEST, nanos};
use crate::unit::{DeviceUse, Unit, Units};
use protocol::operation::{Bar, Merit};
use protocol::time::Time;
use std::time::Duration;

/// The weight with which virtual time is device time.
pub(crate) const ONE: u64 = 1024;

/// How far a unit may be ahead of the smallest, besides a turn, in nanoseconds of its own time.
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
    barred: bool,
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
pub(crate) struct Runtimes {
    accounts: Ledger<Account>,
    /// Counts up, to tell equals apart.
    lines: u64,
    /// The time of the last decision.
    at: Time,
    cells: Vec<Cell>,
    order: Vec<(bool, i64, bool, u64, usize)>,
}

impl Runtimes {
    /// Ranks the members; `weigh` gives their weights, 0 for who shall run only while nobody else has work. Returns when
    /// the first turn ends, or somebody may run again.
    pub fn rank(
        &mut self,
        input: Input<'_>,
        standings: &mut [Standing],
        rules: Rules,
        weigh: impl Fn(&Units, &Unit) -> u64,
    ) -> Option<Time> {
        let units = input.units;
        self.cells.clear();
        self.cells.resize(units.devices().len(), Cell::EMPTY);
        let accounts = self.accounts.align(units.all());
        let mut released = false;
        for (place, unit) in input.members() {
            let account = &mut accounts[place];
            let weight = weigh(units, unit);
            (account.weight, account.last) = (weight.max(1), weight == 0);
            account.charge(unit);
            let held = (account.owns || account.held) && unit.ready && !unit.running;
            released |= std::mem::replace(&mut account.held, held) && unit.running;
            for used in units.uses(unit) {
                let cell = &mut self.cells[used.device];
                cell.sum += weight;
                if used.busy || rules.strict {
                    cell.heaviest = cell.heaviest.max(account.weight);
                }
            }
        }
        let mut wake = None;
        let elapsed = nanos(input.now.since(self.at));
        for (place, unit) in input.members() {
            let account = &mut accounts[place];
            if rules.strict {
                wake = earlier(wake, account.ration(input, unit, elapsed, rules, &self.cells));
            } else {
                (account.rationed, account.barred) = (false, false);
            }
        }
        self.at = input.now;
        for (place, unit) in input.members() {
            let account = &mut accounts[place];
            if unit.ready && account.stays {
                account.end_turn();
                note_least(units, unit, account, &mut self.cells);
            }
        }
        for (place, unit) in input.members() {
            let account = &mut accounts[place];
            if unit.ready && !account.stays {
                account.key = account.start(units, unit, rules, &self.cells);
                account.join(&mut self.lines);
            }
            account.stays = unit.ready;
            account.begun &= unit.ready;
        }
        self.limit(input, rules, released);
        let accounts = self.accounts.align(units.all());
        for (place, unit) in input.members() {
            // Where it would begin with work.
            let account = &mut accounts[place];
            if !account.stays {
                account.key = account.start(units, unit, rules, &self.cells);
            }
        }
        self.sort(input, standings, rules);
        earlier(wake, self.walk(input, standings, rules))
    }

    /// Takes back those that are too far ahead. A turn keeps its place, but for those that were interrupted because somebody is
    /// held up no longer, of whom they knew nothing when they began.
    fn limit(&mut self, input: Input<'_>, rules: Rules, released: bool) {
        let units = input.units;
        let accounts = self.accounts.align(units.all());
        for (place, unit) in input.members() {
            let account = &mut accounts[place];
            if !account.stays {
                continue;
            }
            if account.line == u64::MAX {
                account.line = take_line(&mut self.lines);
            }
            note_least(units, unit, account, &mut self.cells);
            let slice = account.slice(units, unit, rules, &self.cells);
            let ahead = account.in_virtual(slice.saturating_mul(4).max(slice + AHEAD));
            for used in units.uses(unit) {
                let cell = &mut self.cells[used.device];
                cell.rivals += u32::from(!account.barred);
                if used.busy {
                    cell.shortest = cell.shortest.min(slice);
                    cell.ahead = cell.ahead.max(ahead);
                }
            }
        }
        // Whoever is taken back may take others back on its other devices.
        for _ in 0..=self.cells.len() {
            let mut changed = false;
            for (place, unit) in input.members() {
                let account = &mut accounts[place];
                let group = usize::from(account.last);
                let most = busy(units, unit).map(|used| {
                    let cell = &self.cells[used.device];
                    cell.least[group].saturating_add(cell.ahead)
                });
                let may = account.stays && (!account.begun || released && !unit.running);
                let Some(most) = most.min().filter(|_| may) else { continue };
                if account.key > most {
                    (account.virtual_time, account.key, changed) = (most, most, true);
                    note_least(units, unit, account, &mut self.cells);
                }
            }
            if !changed {
                break;
            }
        }
    }

    /// Brings the members into their order, and ranks them.
    fn sort(&mut self, input: Input<'_>, standings: &mut [Standing], rules: Rules) {
        let accounts = self.accounts.align(input.units.all());
        self.order.clear();
        self.order.extend(input.members().map(|(place, _)| {
            let account = &accounts[place];
            let line = if account.stays { account.line } else { u64::MAX };
            (account.last, account.key, !account.begun, line, place)
        }));
        self.order.sort_unstable();
        for (rank, &(.., place)) in (0i64..).zip(&self.order) {
            let account = &accounts[place];
            let unit = &input.units.all()[place];
            let least = busy(input.units, unit)
                .map(|used| self.cells[used.device].least[usize::from(account.last)])
                .min()
                .unwrap_or(account.key);
            let merit = Merit::Runtime(account.key.saturating_sub(least).max(0) / 1_000);
            let shortest = busy(input.units, unit).map(|used| self.cells[used.device].shortest).min();
            let shortest = Duration::from_nanos(shortest.unwrap_or_default().unsigned_abs());
            standings[place] = Standing::new(-rank, merit).in_turn(shortest);
            if rules.credit > Duration::ZERO {
                // Who sleeps for a short while gets credit for that, and needs no place.
                standings[place].linger = Duration::ZERO;
            }
            if account.barred {
                let percent = account.percent(input.units, unit, &self.cells);
                standings[place].bar = Some(Bar::Share { percent });
            }
        }
    }

    /// Finds out, as the engine will, who runs, and begins their turns. Returns when the first of them ends.
    fn walk(&mut self, input: Input<'_>, standings: &mut [Standing], rules: Rules) -> Option<Time> {
        let units = input.units;
        let accounts = self.accounts.align(units.all());
        let mut wake = None;
        for &(.., place) in &self.order {
            let unit = &units.all()[place];
            let account = &mut accounts[place];
            let uses = units.uses(unit);
            account.counts = account.stays && uses.iter().any(|used| self.cells[used.device].rivals > 1);
            account.owns = false;
            if !account.stays || account.barred || uses.iter().any(|used| self.cells[used.device].claimed) {
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
                account.left = account.slice(units, unit, rules, &self.cells);
            }
            standings[place].merit = Merit::Turn(account.left / 1_000);
            busy(units, unit).for_each(|used| self.cells[used.device].claimed = true);
            let end = [account.counts.then_some(account.left), account.rationed.then_some(account.allowance)];
            if let Some(end) = end.into_iter().flatten().min() {
                // Somebody else's decision may keep it from running: then its turn gets no shorter.
                let least = if unit.running { GRAIN } else { SHORTEST.min(rules.turn() as u64) as i64 };
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
    fn charge(&mut self, unit: &Unit) {
        let ran = nanos(unit.ran);
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
        unit: &Unit,
        elapsed: i64,
        rules: Rules,
        cells: &[Cell],
    ) -> Option<Time> {
        let units = input.units;
        let sum = units.uses(unit).iter().map(|used| cells[used.device].sum).max().unwrap_or(0);
        let weight = if self.last { 0 } else { self.weight };
        let before = std::mem::replace(&mut self.rationed, weight < sum);
        if !self.rationed {
            // Nobody else has a part of its devices.
            (self.allowance, self.barred) = (0, false);
            return None;
        }
        if weight == 0 {
            self.barred = true;
            return None;
        }
        let slice = self.slice(units, unit, rules, cells);
        let most = slice.saturating_mul(2).saturating_add(SPARE);
        let income = part(elapsed, weight, sum);
        // While nobody else had a part, what it ran was nobody's.
        self.allowance = match self.known && before {
            true => self.allowance.saturating_add(income).clamp(-most, most),
            false => slice,
        };
        let enough = if self.barred { slice } else { GRAIN };
        self.barred = self.allowance < enough;
        let wait = part(slice.saturating_sub(self.allowance).max(0), sum, weight) + 1;
        (self.barred && unit.ready).then(|| input.now.after(Duration::from_nanos(wait.unsigned_abs())))
    }

    /// Whether its turn is over, and where it stands then.
    fn end_turn(&mut self) {
        self.begun &= !self.barred;
        if self.begun && self.left <= GRAIN {
            // Behind all that come meanwhile.
            (self.begun, self.line) = (false, u64::MAX);
        }
        if !self.begun {
            self.key = self.virtual_time;
        }
    }

    /// Where it would begin, or begins.
    fn start(&self, units: &Units, unit: &Unit, rules: Rules, cells: &[Cell]) -> i64 {
        let group = usize::from(self.last);
        let there = units.uses(unit).iter().map(|used| cells[used.device].least[group]);
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
    fn slice(&self, units: &Units, unit: &Unit, rules: Rules, cells: &[Cell]) -> i64 {
        if !rules.by_weight {
            return rules.turn();
        }
        let uses = units.uses(unit).iter().filter(|used| used.busy || rules.strict);
        let heaviest = uses.map(|used| cells[used.device].heaviest).max();
        let heaviest = heaviest.unwrap_or(0).max(self.weight);
        // Rounded up, so that after equal turns nobody is a nanosecond behind.
        let slice = part(rules.turn(), self.weight, heaviest) + 1;
        slice.clamp(rules.turn().min(SHORTEST as i64), rules.turn())
    }

    fn percent(&self, units: &Units, unit: &Unit, cells: &[Cell]) -> u32 {
        let weight = if self.last { 0 } else { self.weight };
        let uses = units.uses(unit).iter();
        uses.map(|used| weight * 100 / cells[used.device].sum.max(1)).min().unwrap_or(0) as u32
    }

    /// Its own time as virtual time.
    fn in_virtual(&self, time: i64) -> i64 {
        part(time, ONE, self.weight)
    }
}

/// Where the unit has work.
pub(crate) fn busy<'a>(units: &'a Units, unit: &Unit) -> impl Iterator<Item = &'a DeviceUse> + use<'a> {
    units.uses(unit).iter().filter(|used| used.busy)
}

fn note_least(units: &Units, unit: &Unit, account: &Account, cells: &mut [Cell]) {
    for used in busy(units, unit).filter(|_| !account.held) {
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
