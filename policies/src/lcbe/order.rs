//! Slices within a class, and entities that must not be interrupted.
//!
//! Both depend on which entities run. That follows from the ranks alone, so this walks through the entities
//! as the engine will do.

use super::STRIDE;
use super::{CLASS_SLICE, CLASS_WAITS};
use crate::policy::{Input, Ranking};
use crate::reason::UNINTERRUPTED;
use crate::times::{earlier, micros};
use protocol::bounds::{Priority, Timeslice};
use protocol::time::Time;
use std::time::Duration;

/// State of an entity's slice.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClassSlice {
    /// The time at which it joined the line; `None` without work.
    since: Option<Time>,
    /// The used part of its slice.
    used: Duration,
    /// The length of its slice.
    slice: Duration,
}

impl ClassSlice {
    /// Counts the time that the entity has had since the last decision. An entity that has used up its slice,
    /// or turns ready, goes to the end of the line. One that must not be interrupted keeps its place until it
    /// is idle.
    pub fn note(&mut self, ready: bool, uninterrupted: bool, ran: Duration, slice: Duration, now: Time) {
        self.slice = slice;
        if !ready {
            *self = Self::default();
            return;
        }
        self.used = self.used.saturating_add(ran);
        match self.since {
            None => *self = Self { since: Some(now), used: Duration::ZERO, slice },
            Some(_) if self.used >= slice && !uninterrupted => {
                (self.since, self.used) = (Some(now), Duration::ZERO);
            }
            Some(_) => {}
        }
    }

    /// Returns the rest of the slice.
    fn left(&self, running: bool) -> Duration {
        /// The shortest time for which an entity that was interrupted gets the device. It also prevents
        /// useless wake-ups if the entity runs for a reason that is not known here.
        const LEAST: Duration = Duration::from_micros(100);
        let left = self.slice.saturating_sub(self.used);
        if running { left } else { left.max(LEAST.min(self.slice)) }
    }
}

/// The lengths of slices by class.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Slices {
    /// The slice of the highest class; zero if all of a class run together.
    pub first: Duration,
    /// The factor from one class to the next lower one.
    pub growth: f64,
}

impl Slices {
    /// Returns the slice of a class with so many classes above it, limited to the longest slice that is
    /// allowed.
    pub fn of(&self, above: u32) -> Duration {
        if self.growth == 1.0 {
            return self.first;
        }
        let most = Duration::from_micros(Timeslice::MAX.get());
        let nanos = self.first.as_nanos() as f64 * self.growth.powi(above.min(1_000) as i32);
        Duration::from_nanos(nanos.min(most.as_nanos() as f64) as u64)
    }
}

/// The classes that have entities.
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

    /// Returns the number of classes above this one.
    pub fn above(&self, class: i32) -> u32 {
        let (word, bit) = Self::cell(class);
        let higher: u32 = self.0[word + 1..].iter().map(|word| word.count_ones()).sum();
        // Two shifts, because one shift by 64 would do nothing.
        higher + (self.0[word] >> bit >> 1).count_ones()
    }
}

/// An entity that wants a device, packed into one number that sorts in the order in which entities are taken:
/// higher classes first, then those that must not be interrupted, those with work, and those in the line for
/// longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Item(u128);

/// The highest class: above every priority, for a hint of the class where even those count as best effort.
const HIGHEST: i32 = Priority::MAX.get() + 1;

impl Item {
    fn new(class: i32, interruptible: bool, idle: bool, since: Option<Time>, index: usize) -> Self {
        let class = HIGHEST.saturating_sub(class).max(0) as u128;
        let [interruptible, idle] = [interruptible, idle].map(u128::from);
        let since = u128::from(since.unwrap_or_default().0);
        // There are fewer than 2^32 entities.
        Self(class << 98 | interruptible << 97 | idle << 96 | since << 32 | u128::from(index as u32))
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

    fn index(self) -> usize {
        self.0 as u32 as usize
    }
}

/// The state of a device while the entities are taken.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// The rank of the entity that has it.
    rank: Option<i64>,
    /// The time at which the slice of that entity ends.
    ends: Option<Time>,
    /// A class, and the number of its entities that want the device.
    line: (i64, i64),
}

/// Memory of the order, kept for the next decision.
#[derive(Debug, Default)]
pub(super) struct Order {
    items: Vec<Item>,
    cells: Vec<Cell>,
    /// The indices of the entities that must not be interrupted.
    pub uninterrupted: Vec<usize>,
}

impl Order {
    /// Ranks the entities of a class one after the other if there are slices, and lets no entity rank above
    /// those that must not be interrupted. `slice_of` gives the class and the slice of an entity, and true if
    /// it must not be interrupted. Returns the time at which the first slice ends for which another entity
    /// waits.
    pub fn arrange(
        &mut self,
        input: &Input<'_>,
        slice_of: impl Fn(usize) -> (i32, ClassSlice, bool),
        slices: bool,
        rankings: &mut [Ranking],
    ) -> Option<Time> {
        let mut items = std::mem::take(&mut self.items);
        items.clear();
        let wants = input.members().filter(|(index, entity)| entity.ready || rankings[*index].reserves);
        items.extend(wants.map(|(index, entity)| {
            let (class, slice, uninterrupted) = slice_of(index);
            Item::new(class, !uninterrupted, !entity.ready, slice.since, index)
        }));
        items.sort_unstable();
        self.cells.clear();
        self.cells.resize(input.entities.devices().len(), Cell::default());
        let mut wake: Option<Time> = None;
        let mut position = (i64::MIN, 0);
        for item in &items {
            let (class, index, interruptible) = (item.class(), item.index(), item.is_interruptible());
            let ranking = &mut rankings[index];
            let has_slice = slices && !item.is_idle();
            if has_slice {
                position = if position.0 == class { (class, position.1 + 1) } else { (class, 0) };
                ranking.rank = class * STRIDE + STRIDE - 1 - position.1;
            }
            let entity = &input.entities.all()[index];
            let uses = input.entities.uses(entity);
            let mut waits = 0;
            let mut blocked = false;
            for used in uses {
                let cell = &mut self.cells[used.device];
                if cell.line.0 != class {
                    cell.line = (class, 0);
                }
                waits = waits.max(cell.line.1);
                if cell.rank.is_some_and(|rank| rank > ranking.rank) {
                    blocked = true;
                    if cell.rank.is_some_and(|rank| rank.div_euclid(STRIDE) == class) {
                        wake = earlier(wake, cell.ends);
                    }
                }
                if has_slice && used.busy {
                    cell.line.1 += 1;
                }
            }
            let left = slice_of(index).1.left(entity.running);
            if has_slice {
                ranking.reason = match (interruptible, waits) {
                    (false, _) => UNINTERRUPTED.plain(),
                    (true, 0) => CLASS_SLICE.pair(["class", "us"], [class, micros(left)]),
                    (true, others) => CLASS_WAITS.pair(["class", "others"], [class, others - 1]),
                };
            }
            if blocked {
                continue;
            }
            let ends = (has_slice && interruptible).then(|| input.now.after(left));
            for used in uses.iter().filter(|used| used.busy || ranking.reserves) {
                let cell = &mut self.cells[used.device];
                if cell.rank.is_none_or(|rank| rank < ranking.rank) {
                    (cell.rank, cell.ends) = (Some(ranking.rank), ends);
                }
            }
        }
        self.items = items;
        self.raise(input, rankings);
        wake
    }

    /// Ranks the entities that must not be interrupted beside those that outrank them, so that both run.
    fn raise(&mut self, input: &Input<'_>, rankings: &mut [Ranking]) {
        let all = input.entities.all();
        let mut again = true;
        while std::mem::take(&mut again) {
            for &index in &self.uninterrupted {
                let uses = input.entities.uses(&all[index]);
                let highest = uses.iter().filter_map(|used| self.cells[used.device].rank).max();
                let ranking = &mut rankings[index];
                if let Some(rank) = highest.filter(|rank| *rank > ranking.rank) {
                    (ranking.rank, ranking.reason) = (rank, UNINTERRUPTED.plain());
                }
                for used in uses.iter().filter(|used| used.busy) {
                    let cell = &mut self.cells[used.device];
                    if cell.rank.is_none_or(|rank| rank < ranking.rank) {
                        cell.rank = Some(ranking.rank);
                        again = true;
                    }
                }
            }
        }
    }
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
        assert_eq!(items.map(Item::index), [7, 6, 9, 3, 4, 1, u32::MAX as usize]);
        assert_eq!(items.map(Item::is_idle), [false, false, false, false, false, true, false]);
        assert_eq!(items.map(Item::is_interruptible), [false, true, true, true, true, true, true]);
    }

    #[test]
    fn slices_grow_up_to_the_longest() {
        let first = Duration::from_millis(2);
        let slices = |growth| [0, 1, 3, 500].map(|above| Slices { first, growth }.of(above).as_millis());
        assert_eq!(slices(1.0), [2, 2, 2, 2]);
        assert_eq!(slices(2.0), [2, 4, 16, 10_000]);
    }
}
