//! Turns within a class, and those who are not to be interrupted.
//!
//! Both depend on who runs, which follows from the ranks alone; so the units are gone through as the engine will do it.

use super::STRIDE;
use crate::policy::{Input, Standing};
use crate::times::earlier;
use protocol::bounds::{Priority, Timeslice};
use protocol::operation::Merit;
use protocol::time::Time;
use std::time::Duration;

/// What is remembered of a unit's turn.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Turn {
    /// Since when it has stood in line; nothing without work.
    since: Option<Time>,
    /// What it has used of its slice.
    used: Duration,
    /// Its slice.
    slice: Duration,
}

impl Turn {
    /// Counts what the unit has had of the device since the last decision. Who has used up its slice, or turns ready,
    /// stands at the end of the line; who is not to be interrupted keeps its place until it is idle.
    pub fn note(&mut self, ready: bool, firm: bool, ran: Duration, slice: Duration, now: Time) {
        self.slice = slice;
        if !ready {
            *self = Self::default();
            return;
        }
        self.used = self.used.saturating_add(ran);
        match self.since {
            None => *self = Self { since: Some(now), used: Duration::ZERO, slice },
            Some(_) if self.used >= slice && !firm => {
                (self.since, self.used) = (Some(now), Duration::ZERO);
            }
            Some(_) => {}
        }
    }

    /// What is left of it.
    fn left(&self, running: bool) -> Duration {
        /// Who was interrupted has the device for so long at least, and no wake-up comes for nothing if it gets on for
        /// a reason that is not known here.
        const LEAST: Duration = Duration::from_micros(100);
        let left = self.slice.saturating_sub(self.used);
        if running { left } else { left.max(LEAST.min(self.slice)) }
    }
}

/// Slices by class.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Slices {
    /// That of the highest class; none if all of a class run together.
    pub first: Duration,
    /// Each lower class has one so many times as long.
    pub growth: f64,
}

impl Slices {
    /// The slice of a class with so many above it, at most as long as any slice may be.
    pub fn of(&self, above: u32) -> Duration {
        if self.growth == 1.0 {
            return self.first;
        }
        let most = Duration::from_micros(Timeslice::MAX.get());
        let nanos = self.first.as_nanos() as f64 * self.growth.powi(above.min(1_000) as i32);
        Duration::from_nanos(nanos.min(most.as_nanos() as f64) as u64)
    }
}

/// The classes that there are.
#[derive(Debug, Default)]
pub(super) struct Classes([u64; 8]);

impl Classes {
    fn cell(class: i32) -> (usize, u32) {
        // Priorities have 512 values, from -256 on.
        let number = (class + 256).clamp(0, 511) as u32;
        ((number / 64) as usize, number % 64)
    }

    pub fn insert(&mut self, class: i32) {
        let (word, bit) = Self::cell(class);
        self.0[word] |= 1 << bit;
    }

    /// How many are above this one.
    pub fn above(&self, class: i32) -> u32 {
        let (word, bit) = Self::cell(class);
        let higher: u32 = self.0[word + 1..].iter().map(|word| word.count_ones()).sum();
        // Twice, because shifting by 64 at once is none.
        higher + (self.0[word] >> bit >> 1).count_ones()
    }
}

/// A unit that wants a device, packed into one number by which units are sorted in the order in which they are taken:
/// higher classes first, then who is not to be interrupted, who has work, who has stood in line for longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Item(u128);

/// The highest class: above every priority, for a hint of the class where even those count as best effort.
const HIGHEST: i32 = Priority::MAX.get() + 1;

impl Item {
    fn new(class: i32, interruptible: bool, idle: bool, since: Option<Time>, place: usize) -> Self {
        let class = HIGHEST.saturating_sub(class).max(0) as u128;
        let [interruptible, idle] = [interruptible, idle].map(u128::from);
        let since = u128::from(since.unwrap_or_default().0);
        // There are fewer than 2^32 units.
        Self(class << 98 | interruptible << 97 | idle << 96 | since << 32 | u128::from(place as u32))
    }

    fn class(self) -> i64 {
        i64::from(HIGHEST) - (self.0 >> 98) as i64
    }

    fn is_interruptible(self) -> bool {
        self.0 >> 97 & 1 == 1
    }

    fn is_idle(self) -> bool {
        self.0 >> 96 & 1 == 1
    }

    fn place(self) -> usize {
        self.0 as u32 as usize
    }
}

/// What is known of a device.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// The rank of whoever has it.
    rank: Option<i64>,
    /// When the turn of that one ends.
    ends: Option<Time>,
    /// How many of which class want it.
    line: (i64, i64),
}

/// Memory of the order, kept for the next decision.
#[derive(Debug, Default)]
pub(super) struct Order {
    items: Vec<Item>,
    cells: Vec<Cell>,
    /// Those who are not to be interrupted, by their places.
    pub firm: Vec<usize>,
}

impl Order {
    /// Ranks those of a class one after the other if there are slices, and lets nobody rank above those who are not to
    /// be interrupted; returns when the first turn ends for which somebody waits. `turn` gives the class of a place, its turn,
    /// and true if it must not be interrupted.
    pub fn arrange(
        &mut self,
        input: &Input<'_>,
        turn: impl Fn(usize) -> (i32, Turn, bool),
        slices: bool,
        standings: &mut [Standing],
    ) -> Option<Time> {
        let mut items = std::mem::take(&mut self.items);
        items.clear();
        let wants = input.members().filter(|(place, unit)| unit.ready || standings[*place].reserves);
        items.extend(wants.map(|(place, unit)| {
            let (class, turn, firm) = turn(place);
            Item::new(class, !firm, !unit.ready, turn.since, place)
        }));
        items.sort_unstable();
        self.cells.clear();
        self.cells.resize(input.units.devices().len(), Cell::default());
        let mut wake: Option<Time> = None;
        let mut position = (i64::MIN, 0);
        for item in &items {
            let (class, place, interruptible) = (item.class(), item.place(), item.is_interruptible());
            let standing = &mut standings[place];
            let takes_turns = slices && !item.is_idle();
            if takes_turns {
                position = if position.0 == class { (class, position.1 + 1) } else { (class, 0) };
                standing.rank = class * STRIDE + STRIDE - 1 - position.1;
            }
            let unit = &input.units.all()[place];
            let uses = input.units.uses(unit);
            let mut waits = 0;
            let mut blocked = false;
            for used in uses {
                let cell = &mut self.cells[used.device];
                if cell.line.0 != class {
                    cell.line = (class, 0);
                }
                waits = waits.max(cell.line.1);
                if cell.rank.is_some_and(|rank| rank > standing.rank) {
                    blocked = true;
                    if cell.rank.is_some_and(|rank| rank.div_euclid(STRIDE) == class) {
                        wake = earlier(wake, cell.ends);
                    }
                }
                if takes_turns && used.busy {
                    cell.line.1 += 1;
                }
            }
            let left = turn(place).1.left(unit.running);
            if takes_turns {
                standing.merit = match (interruptible, waits) {
                    (false, _) => Merit::Uninterrupted,
                    (true, 0) => Merit::ClassTurn { class, us: micros(left) },
                    (true, others) => Merit::ClassWaits { class, others: others - 1 },
                };
            }
            if blocked {
                continue;
            }
            let ends = (takes_turns && interruptible).then(|| input.now.after(left));
            for used in uses.iter().filter(|used| used.busy || standing.reserves) {
                let cell = &mut self.cells[used.device];
                if cell.rank.is_none_or(|rank| rank < standing.rank) {
                    (cell.rank, cell.ends) = (Some(standing.rank), ends);
                }
            }
        }
        self.items = items;
        self.raise(input, standings);
        wake
    }

    /// Ranks those who are not to be interrupted beside whoever outranks them, so that both run.
    fn raise(&mut self, input: &Input<'_>, standings: &mut [Standing]) {
        let all = input.units.all();
        let mut again = true;
        while std::mem::take(&mut again) {
            for &place in &self.firm {
                let uses = input.units.uses(&all[place]);
                let highest = uses.iter().filter_map(|used| self.cells[used.device].rank).max();
                let standing = &mut standings[place];
                if let Some(rank) = highest.filter(|rank| *rank > standing.rank) {
                    (standing.rank, standing.merit) = (rank, Merit::Uninterrupted);
                }
                for used in uses.iter().filter(|used| used.busy) {
                    let cell = &mut self.cells[used.device];
                    if cell.rank.is_none_or(|rank| rank < standing.rank) {
                        cell.rank = Some(standing.rank);
                        again = true;
                    }
                }
            }
        }
    }
}

fn micros(span: Duration) -> i64 {
    span.as_micros().try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_counted_from_the_highest() {
        let mut classes = Classes::default();
        for class in [-255, -193, -192, 0, 63, 64, 255] {
            classes.insert(class);
            classes.insert(class);
        }
        let above = [255, 64, 63, 0, -192, -193, -255].map(|class| classes.above(class));
        assert_eq!(above, [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn items_stand_in_the_order_in_which_they_are_taken() {
        let at = |nanos| Some(Time(nanos));
        let items = [
            Item::new(255, false, false, at(9), 7),
            Item::new(255, true, false, at(u64::MAX), 6),
            Item::new(0, true, false, at(1), 9),
            Item::new(0, true, false, at(2), 3),
            Item::new(0, true, false, at(2), 4),
            Item::new(0, true, true, None, 1),
            Item::new(-255, true, false, None, u32::MAX as usize),
        ];
        assert!(items.is_sorted());
        assert_eq!(items.map(Item::class), [255, 255, 0, 0, 0, 0, -255]);
        assert_eq!(items.map(Item::place), [7, 6, 9, 3, 4, 1, u32::MAX as usize]);
        assert_eq!(items.map(Item::is_idle), [false, false, false, false, false, true, false]);
        assert_eq!(items.map(Item::is_interruptible), [false, true, true, true, true, true, true]);
    }

    #[test]
    fn slices_grow_up_to_the_longest_that_there_is() {
        let first = Duration::from_millis(2);
        let slices = |growth| [0, 1, 3, 500].map(|above| Slices { first, growth }.of(above).as_millis());
        assert_eq!(slices(1.0), [2, 2, 2, 2]);
        assert_eq!(slices(2.0), [2, 4, 16, 10_000]);
    }
}
