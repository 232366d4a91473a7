//! The guard against starvation, for policies under which an entity may wait for ever.
//!
//! It is off unless a limit is set (`XSCHED_STARVATION_MS`). An entity that has been ready for the limit
//! without running ranks above all others for a tenth of the limit (1 ms at least, 20 ms at most), and begins
//! to wait anew after that. Several of them run together. The guard lifts neither what a policy withholds nor
//! a priority that never runs.

use crate::per_entity::PerEntity;
use crate::sched_entity::SchedEntity;
use crate::times::earlier;
use protocol::operation::Permit;
use protocol::time::Time;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Default)]
struct Wait {
    /// The time since which it has waited. Short boosts by this guard do not count.
    since: Option<Time>,
    /// Its boost: the time that it had waited, and the end of the boost.
    boost: Option<(u64, Time)>,
}

/// The entities that have waited for too long.
#[derive(Debug, Default)]
pub(crate) struct Starvation {
    limit: Option<Duration>,
    waits: PerEntity<Wait>,
    starved: Vec<Option<u64>>,
}

impl Starvation {
    /// Sets the limit.
    pub fn set(&mut self, limit: Option<Duration>) {
        self.limit = limit.filter(|limit| !limit.is_zero());
        if self.limit.is_none() {
            self.waits.clear();
        }
    }

    /// Forgets who has waited.
    pub fn forget(&mut self) {
        self.waits.clear();
    }

    /// Begins and ends boosts, of the entities that count. None begins while the device is withheld. Returns
    /// the time at which the first boost ends.
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
        for (index, (wait, entity)) in self.waits.align(entities).iter_mut().zip(entities).enumerate() {
            if !entity.ready || !counts(index) {
                *wait = Wait::default();
                continue;
            }
            if wait.boost.is_some_and(|(_, until)| until <= now) {
                wait.boost = None;
            }
            if let Some(since) = wait.since.filter(|since| since.after(limit) <= now && !throttled(index)) {
                let boost = (limit / 10).clamp(Duration::from_millis(1), Duration::from_millis(20));
                let waited = now.since(since).as_millis();
                *wait = Wait {
                    since: None,
                    boost: Some((waited.try_into().unwrap_or(u64::MAX), now.after(boost))),
                };
            }
            if let Some((waited, until)) = wait.boost {
                self.starved[index] = Some(waited);
                wake = earlier(wake, until);
            }
        }
        wake
    }

    /// Returns true if there is a limit.
    pub fn is_on(&self) -> bool {
        self.limit.is_some()
    }

    /// Returns for each entity the milliseconds that it had waited, if it has a boost.
    pub fn starved(&self) -> &[Option<u64>] {
        &self.starved
    }

    /// Notes which entities wait from now on. Returns the time at which the first of them has waited for too
    /// long.
    pub fn note(&mut self, entities: &[SchedEntity], permits: &[Permit], now: Time) -> Option<Time> {
        let limit = self.limit?;
        let mut wake = None;
        for ((wait, entity), permit) in self.waits.align(entities).iter_mut().zip(entities).zip(permits) {
            let waits = entity.ready && !permit.run;
            wait.since = waits.then(|| wait.since.unwrap_or(now));
            // The device is withheld from one whose time has passed already, and its policy knows until when.
            let due = wait.since.map(|since| since.after(limit)).filter(|at| *at > now);
            wake = earlier(wake, due);
        }
        wake
    }
}
