//! What is remembered of units from one decision to the next.

use crate::unit::Unit;
use protocol::operation::UnitId;

/// One entry for each unit, in the order of the units; one that is gone is forgotten, one that comes begins anew.
#[derive(Debug)]
pub struct Ledger<T> {
    ids: Vec<UnitId>,
    entries: Vec<T>,
    /// Whether the names ascend, as those of a status do.
    sorted: bool,
    /// Room for the next order.
    spare: (Vec<UnitId>, Vec<T>),
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Self { ids: Vec::new(), entries: Vec::new(), sorted: true, spare: Default::default() }
    }
}

impl<T: Default> Ledger<T> {
    /// The entries of these units. Costs next to nothing if they are those of the last call, and a search for each if some
    /// have come or gone.
    pub fn align(&mut self, units: &[Unit]) -> &mut [T] {
        if self.ids.len() == units.len() && self.ids.iter().zip(units).all(|(id, unit)| *id == unit.id) {
            return &mut self.entries;
        }
        let (ids, entries) = &mut self.spare;
        ids.clear();
        entries.clear();
        for unit in units {
            let found = find(&self.ids, self.sorted, unit.id);
            ids.push(unit.id);
            entries.push(found.map_or_else(T::default, |place| std::mem::take(&mut self.entries[place])));
        }
        self.sorted = ids.is_sorted();
        std::mem::swap(&mut self.ids, &mut self.spare.0);
        std::mem::swap(&mut self.entries, &mut self.spare.1);
        &mut self.entries
    }

    /// The entry of a unit, if it was among the last; it is looked for at this place first.
    pub fn get(&self, place: usize, unit: UnitId) -> Option<&T> {
        let found = match self.ids.get(place) {
            Some(id) if *id == unit => Some(place),
            _ => find(&self.ids, self.sorted, unit),
        };
        found.map(|place| &self.entries[place])
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.entries.clear();
    }
}

fn find(ids: &[UnitId], sorted: bool, unit: UnitId) -> Option<usize> {
    if sorted { ids.binary_search(&unit).ok() } else { ids.iter().position(|id| *id == unit) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Tallies;
    use crate::unit::Units;
    use protocol::bounds::Priority;
    use protocol::codes::PreemptLevel;
    use protocol::hint::{ProcessHints, QueueHints};
    use protocol::ids::{DeviceId, Pid, QueueId};
    use protocol::status::{Activity, Counts, QueueStatus, Queues, Status};
    use protocol::time::Time;
    use std::time::Duration;

    fn units(ids: &[u64]) -> Units {
        let status = |id: &u64| QueueStatus {
            queue: QueueId(*id),
            device: DeviceId(1),
            priority: Priority::DEFAULT,
            hints: QueueHints::default(),
            level: PreemptLevel::Block,
            activity: Activity::Idle { since: None },
            counts: Counts::default(),
        };
        let queues = Queues::try_from(ids.iter().map(status).collect::<Vec<_>>()).unwrap();
        let status = Status::Local { pid: Pid(1), hints: ProcessHints::default(), queues };
        let mut units = Units::default();
        units.gather(&status, Time(1), Duration::ZERO, &Tallies::default());
        units
    }

    #[test]
    fn entries_follow_their_units() {
        let mut ledger = Ledger::<u64>::default();
        let mut look = |ids: &[u64]| -> Vec<u64> {
            let units = units(ids);
            let entries = ledger.align(units.all());
            let before = entries.to_vec();
            entries.iter_mut().zip(ids).for_each(|(entry, id)| *entry = *id);
            before
        };
        assert_eq!(look(&[1, 2, 4]), [0, 0, 0]);
        assert_eq!(look(&[1, 2, 4]), [1, 2, 4]);
        assert_eq!(look(&[2, 3, 4, 5]), [2, 0, 4, 0]);
        assert_eq!(look(&[1, 5]), [0, 5], "who has gone and comes again begins anew");
        assert_eq!(look(&[]), [] as [u64; 0]);
    }
}
