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
    /// It was ready then.
    ready: bool,
    waits_since: Option<Time>,
}

/// What the last decision was, and when.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    ledger: Ledger<Tally>,
    at: Time,
    /// Somebody waited, so that a decision would have come if anybody had turned idle.
    awaited: bool,
}

impl Tallies {
    /// Says what each unit has had since the last decision.
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
                // It may have been idle for a moment that nobody has seen.
                (true, _) if tally.ready && self.awaited => (self.at, now),
                (true, _) => (unit.since.max(self.at), now),
                (false, Some(idle)) => (self.at, idle.after(linger).min(now)),
                (false, None) => continue,
            };
            unit.ran = to.since(from);
        }
    }

    /// Notes a decision.
    pub fn note(&mut self, units: &[Unit], permits: &[Permit], now: Time) {
        self.awaited = false;
        for ((tally, unit), permit) in self.ledger.align(units).iter_mut().zip(units).zip(permits) {
            (tally.permitted, tally.ready) = (permit.run, unit.ready);
            let waits = unit.ready && !permit.run;
            self.awaited |= waits;
            tally.waits_since = waits.then(|| tally.waits_since.unwrap_or(now));
        }
        self.at = now;
    }

    /// Somebody else has decided meanwhile: nothing is known of who ran.
    pub fn forget(&mut self) {
        self.ledger.clear();
    }
}
