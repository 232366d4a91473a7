//! The guard against starvation, for policies under which somebody may wait for ever.
//!
//! Off unless a limit is set (`XSCHED_STARVATION_MS`). An entity that has been ready for the limit without running ranks
//! above all others then, for a tenth of the limit (1 ms at least, 20 ms at most), and begins to wait anew after that.
//! Several of them run together. What a policy withholds stays withheld, and what is never to run never runs.

use crate::per_entity::PerEntity;
use crate::sched_entity::SchedEntity;
use crate::times::earlier;
use protocol::operation::Permit;
use protocol::time::Time;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Default)]
struct Hunger {
    /// It has waited since then, short turns of this guard apart.
    since: Option<Time>,
    /// Its turn: for how long it had waited, and until when it runs.
    turn: Option<(u64, Time)>,
}

/// Who has waited for too long.
#[derive(Debug, Default)]
pub(crate) struct Starvation {
    limit: Option<Duration>,
    hungry: PerEntity<Hunger>,
    starved: Vec<Option<u64>>,
}

impl Starvation {
    /// From now on nobody waits for longer than this.
    pub fn set(&mut self, limit: Option<Duration>) {
        self.limit = limit.filter(|limit| !limit.is_zero());
        if self.limit.is_none() {
            self.hungry.clear();
        }
    }

    /// Nobody has waited yet.
    pub fn forget(&mut self) {
        self.hungry.clear();
    }

    /// Finds those whose turn it is, of those who count; returns when a turn ends. None begins while the device is withheld.
    pub fn look(
        &mut self,
        entities: &[SchedEntity],
        counts: impl Fn(usize) -> bool,
        throttled: impl Fn(usize) -> bool,
        now: Time,
    ) -> Option<Time> {
        self.starved.clear();
        self.starved.resize(entities.len(), None);
        let limit = self.limit?;
        let mut wake = None;
        for (index, (hunger, entity)) in self.hungry.align(entities).iter_mut().zip(entities).enumerate() {
            if !entity.ready || !counts(index) {
                *hunger = Hunger::default();
                continue;
            }
            if hunger.turn.is_some_and(|(_, until)| until <= now) {
                hunger.turn = None;
            }
            if let Some(since) = hunger.since.filter(|since| since.after(limit) <= now && !throttled(index)) {
                let turn = (limit / 10).clamp(Duration::from_millis(1), Duration::from_millis(20));
                let waited = now.since(since).as_millis();
                *hunger = Hunger {
                    since: None,
                    turn: Some((waited.try_into().unwrap_or(u64::MAX), now.after(turn))),
                };
            }
            if let Some((waited, until)) = hunger.turn {
                self.starved[index] = Some(waited);
                wake = earlier(wake, until);
            }
        }
        wake
    }

    /// Whether there is a limit.
    pub fn is_on(&self) -> bool {
        self.limit.is_some()
    }

    /// For each entity for how many milliseconds it had waited, if it has its turn.
    pub fn starved(&self) -> &[Option<u64>] {
        &self.starved
    }

    /// Notes who waits from now on; returns when the first of them has waited for too long.
    pub fn note(&mut self, entities: &[SchedEntity], permits: &[Permit], now: Time) -> Option<Time> {
        let limit = self.limit?;
        let mut wake = None;
        for ((hunger, entity), permit) in self.hungry.align(entities).iter_mut().zip(entities).zip(permits) {
            let waits = entity.ready && !permit.run;
            hunger.since = waits.then(|| hunger.since.unwrap_or(now));
            // One whose time has passed is withheld, and its policy knows until when.
            let due = hunger.since.map(|since| since.after(limit)).filter(|at| *at > now);
            wake = earlier(wake, due);
        }
        wake
    }
}
