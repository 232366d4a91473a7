//! Who has run since the last decision: the same for every policy.

use crate::per_entity::PerEntity;
use crate::sched_entity::SchedEntity;
use protocol::operation::{Permit, UnitId};
use protocol::time::Time;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// The last decision let it run.
    permitted: bool,
    /// It counted as having work then.
    ready: bool,
    /// For how long the policies let it linger.
    linger: Duration,
}

/// What the last decision was, and when.
#[derive(Debug, Default)]
pub(crate) struct RuntimeAccounting {
    entries: PerEntity<Entry>,
    at: Time,
}

impl RuntimeAccounting {
    /// Says what each entity has had since the last decision.
    ///
    /// One that had work at the last and has other work now counts as having had some all the time: whoever is to know of
    /// gaps asks to be called when an entity turns idle.
    pub fn charge(&self, entities: &mut [SchedEntity], now: Time) {
        for (index, entity) in entities.iter_mut().enumerate() {
            let entry = self.entries.get(index, entity.id).filter(|entry| entry.permitted);
            let Some(entry) = entry else { continue };
            entity.running = entity.ready;
            // While it only counts as ready it keeps others away as well.
            let (began, to) = match (entity.ready, entity.idle_since) {
                (true, _) => (entity.since, now),
                (false, Some(idle)) => (idle, idle.after(entity.linger).min(now)),
                (false, None) => continue,
            };
            // Its work of now may be other work than that of then, and work that came and went unseen is not known.
            let from = if entry.ready { self.at } else { began.max(self.at) };
            entity.ran = to.since(from);
        }
    }

    /// For how long the last decision lets an entity linger.
    pub fn linger(&self, index: usize, entity: UnitId) -> Duration {
        self.entries.get(index, entity).map_or(Duration::ZERO, |entry| entry.linger)
    }

    /// Notes a decision, in which each entity may linger for so long.
    pub fn note(
        &mut self,
        entities: &[SchedEntity],
        permits: &[Permit],
        linger: impl Fn(usize) -> Duration,
        now: Time,
    ) {
        for (index, entry) in self.entries.align(entities).iter_mut().enumerate() {
            *entry =
                Entry { permitted: permits[index].run, ready: entities[index].ready, linger: linger(index) };
        }
        // What lies behind is not counted twice, whatever clock comes.
        self.at = self.at.max(now);
    }

    /// Somebody else has decided meanwhile: nothing is known of who ran.
    pub fn forget(&mut self) {
        self.entries.clear();
    }
}
