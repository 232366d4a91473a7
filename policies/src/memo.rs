//! What a policy has worked out from the queues of an entity, kept while they say the same.

use crate::rows::Revision;
use crate::sched_entity::SchedEntity;
use std::fmt;

/// A result for an entity. It must follow from [`SchedEntities::queues`](crate::SchedEntities::queues) alone.
pub(crate) struct Memo<T>(Option<(Revision, T)>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(None)
    }
}

/// No decision depends on what is kept.
impl<T> fmt::Debug for Memo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memo")
    }
}

impl<T: Copy> Memo<T> {
    /// Returns the result.
    pub fn get(&mut self, entity: &SchedEntity, work_out: impl FnOnce() -> T) -> T {
        match self.0 {
            Some((revision, result)) if revision == entity.revision => result,
            _ => {
                let result = work_out();
                self.0 = Some((entity.revision, result));
                result
            }
        }
    }
}
