//! Who has run since the last decision, and who has waited: the same for every policy.

use crate::ledger::Ledger;
use crate::unit::Unit;
use protocol::operation::Permit;
use protocol::time::Time;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    /// The last decision let it run.
    permitted: bool,
    /// It counted as having work then.
    ready: bool,
    waits_since: Option<Time>,
}

/// What the last decision was, and when.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    ledger: Ledger<Tally>,
    at: Time,
    /// There is a decision whenever a unit turns idle.
    heard: bool,
}

impl Tallies {
    /// Says what each unit has had since the last decision.
    ///
    /// If there is a decision whenever a unit turns idle, as there is while somebody waits, one that had work at the last
    /// and has other work now went from one to the other without a gap that counts. Otherwise it may have been idle for
    /// long.
    pub fn tell(&self, units: &mut [Unit], now: Time, linger: Duration) {
        for (place, unit) in units.iter_mut().enumerate() {
            let tally = self.ledger.get(place, unit.id);
            let Some(tally) = tally else { continue };
            unit.waits_since = tally.waits_since.filter(|_| unit.ready);
            if !tally.permitted {
                continue;
            }
            unit.running = unit.ready;
            // While it only counts as ready it keeps others away as well.
            let (from, to) = match (unit.ready, unit.idle_since) {
                (true, _) if self.heard && tally.ready => (self.at, now),
                (true, _) => (unit.since.max(self.at), now),
                (false, Some(idle)) => (self.at, idle.after(linger).min(now)),
                (false, None) => continue,
            };
            unit.ran = to.since(from);
        }
    }

    /// Notes a decision, and whether the next comes at the latest when a unit turns idle.
    pub fn note(&mut self, units: &[Unit], permits: &[Permit], now: Time, heard: bool) {
        for ((tally, unit), permit) in self.ledger.align(units).iter_mut().zip(units).zip(permits) {
            tally.permitted = permit.run;
            tally.ready = unit.ready;
            let waits = unit.ready && !permit.run;
            tally.waits_since = waits.then(|| tally.waits_since.unwrap_or(now));
        }
        self.at = now;
        self.heard = heard || units.iter().zip(permits).any(|(unit, permit)| unit.ready && !permit.run);
    }

    /// Somebody else has decided meanwhile: nothing is known of who ran.
    pub fn forget(&mut self) {
        self.ledger.clear();
    }
}
