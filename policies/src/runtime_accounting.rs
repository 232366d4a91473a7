//! Runtime accounting: the time for which each entity had its devices since the last decision.

use crate::per_entity::PerEntity;
use crate::sched_entity::SchedEntity;
use protocol::operation::Permit;
use protocol::time::Time;

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// True if the last decision let it run.
    permitted: bool,
    /// True if it counted as having work then.
    ready: bool,
}

/// The permissions of the last decision, and its time.
#[derive(Debug, Default)]
pub(crate) struct RuntimeAccounting {
    entries: PerEntity<Entry>,
    at: Time,
}

impl RuntimeAccounting {
    /// Enters the time that each entity has run since the last decision.
    ///
    /// An entity that had work at the last decision and has other work now counts as having had work all the
    /// time. A policy that needs to know of gaps asks to be called when an entity turns idle
    /// ([`crate::Policy::needs_idle_events`]).
    pub fn charge(&self, entities: &mut [SchedEntity], now: Time) {
        for (index, entity) in entities.iter_mut().enumerate() {
            let entry = self.entries.get(index, entity.id).filter(|entry| entry.permitted);
            let Some(entry) = entry else { continue };
            entity.running = entity.ready;
            // While it only counts as ready it keeps others from its devices as well.
            let (began, to) = match (entity.ready, entity.idle_since) {
                (true, _) => (entity.since, now),
                (false, Some(idle)) => (idle, idle.after(entity.linger).min(now)),
                (false, None) => continue,
            };
            // Its present work may be other work than at the last decision. Work that came and went in
            // between is unknown.
            let from = if entry.ready { self.at } else { began.max(self.at) };
            entity.ran = to.since(from);
        }
    }

    /// Stores a decision.
    pub fn note(&mut self, entities: &[SchedEntity], permits: &[Permit], now: Time) {
        for (index, entry) in self.entries.align(entities).iter_mut().enumerate() {
            *entry = Entry { permitted: permits[index].run, ready: entities[index].ready };
        }
        // A clock that goes back must not make a time count twice.
        self.at = self.at.max(now);
    }

    /// Forgets the last decision, because another decider has been in charge since then.
    pub fn forget(&mut self) {
        self.entries.clear();
    }
}
