//! Memory that a policy keeps for each entity between decisions.

use crate::sched_entity::SchedEntity;
use protocol::operation::EntityId;

/// One value for each entity, in the order of the entities. The value of an entity that has gone is dropped;
/// a new entity begins with the default.
#[derive(Debug)]
pub struct PerEntity<T> {
    ids: Vec<EntityId>,
    entries: Vec<T>,
    /// True if the names ascend, as those of a status do.
    sorted: bool,
    /// Space for the next order, so that a change allocates nothing.
    spare: (Vec<EntityId>, Vec<T>),
}

impl<T> Default for PerEntity<T> {
    fn default() -> Self {
        Self { ids: Vec::new(), entries: Vec::new(), sorted: true, spare: Default::default() }
    }
}

impl<T: Default> PerEntity<T> {
    /// Returns the values of these entities. If they are those of the last call this only compares names;
    /// otherwise each is searched for.
    pub fn align(&mut self, entities: &[SchedEntity]) -> &mut [T] {
        self.align_to(entities.iter().map(|entity| entity.id))
    }

    /// Does the same for entities of these names.
    pub(crate) fn align_to(&mut self, names: impl ExactSizeIterator<Item = EntityId> + Clone) -> &mut [T] {
        if self.ids.len() == names.len() && self.ids.iter().copied().eq(names.clone()) {
            return &mut self.entries;
        }
        let (ids, entries) = &mut self.spare;
        ids.clear();
        entries.clear();
        for id in names {
            let found = find(&self.ids, self.sorted, id);
            ids.push(id);
            entries.push(found.map_or_else(T::default, |index| std::mem::take(&mut self.entries[index])));
        }
        self.sorted = ids.is_sorted();
        std::mem::swap(&mut self.ids, &mut self.spare.0);
        std::mem::swap(&mut self.entries, &mut self.spare.1);
        &mut self.entries
    }

    /// Returns the value of an entity, if it was among the last. The index is tried first.
    pub fn get(&self, index: usize, entity: EntityId) -> Option<&T> {
        self.find(index, entity).map(|index| &self.entries[index])
    }

    /// Returns the value of an entity to change it, if it was among the last. The index is tried first.
    pub fn get_mut(&mut self, index: usize, entity: EntityId) -> Option<&mut T> {
        self.find(index, entity).map(|index| &mut self.entries[index])
    }

    fn find(&self, index: usize, entity: EntityId) -> Option<usize> {
        match self.ids.get(index) {
            Some(id) if *id == entity => Some(index),
            _ => find(&self.ids, self.sorted, entity),
        }
    }

    /// Returns all values, in the order of the last entities.
    pub fn values(&self) -> &[T] {
        &self.entries
    }

    /// Returns all values to change them, in the order of the last entities.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.entries
    }

    /// Drops all values.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.entries.clear();
    }
}

fn find(ids: &[EntityId], sorted: bool, entity: EntityId) -> Option<usize> {
    if sorted { ids.binary_search(&entity).ok() } else { ids.iter().position(|id| *id == entity) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched_entity::SchedEntities;
    use protocol::bounds::Priority;
    use protocol::codes::PreemptLevel;
    use protocol::hint::{ProcessHints, QueueHints};
    use protocol::ids::{DeviceId, Pid, QueueId};
    use protocol::status::{Activity, Counts, QueueStatus, Queues, Status};
    use protocol::time::Time;
    use std::time::Duration;

    fn entities(ids: &[u64]) -> SchedEntities {
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
        let mut entities = SchedEntities::default();
        entities.gather(&status, Time(1), &mut |_, _, _| Duration::ZERO);
        entities
    }

    #[test]
    fn values_follow_their_entities() {
        let mut entries = PerEntity::<u64>::default();
        let mut look = |ids: &[u64]| -> Vec<u64> {
            let entities = entities(ids);
            let entries = entries.align(entities.all());
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
