//! Who has run since the last decision: the same for every policy.

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
}

/// What the last decision was, and when.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    ledger: Ledger<Tally>,
    at: Time,
}

impl Tallies {
    /// Says what each unit has had since the last decision.
    ///
    /// One that had work at the last and has other work now counts as having had some all the time: whoever is to know of
    /// gaps asks to be called when a unit turns idle.
    pub fn tell(&self, units: &mut [Unit], now: Time, linger: Duration) {
        for (place, unit) in units.iter_mut().enumerate() {
            let tally = self.ledger.get(place, unit.id).filter(|tally| tally.permitted);
            let Some(tally) = tally else { continue };
            unit.running = unit.ready;
            // While it only counts as ready it keeps others away as well.
            let (began, to) = match (unit.ready, unit.idle_since) {
                (true, _) => (unit.since, now),
                (false, Some(idle)) => (idle, idle.after(linger).min(now)),
                (false, None) => continue,
            };
            // Its work of now may be other work than that of then, and work that came and went unseen is not known.
            let from = if tally.ready { self.at } else { began.max(self.at) };
            unit.ran = to.since(from);
        }
    }

    /// Notes a decision.
    pub fn note(&mut self, units: &[Unit], permits: &[Permit], now: Time) {
        for ((tally, unit), permit) in self.ledger.align(units).iter_mut().zip(units).zip(permits) {
            *tally = Tally { permitted: permit.run, ready: unit.ready };
        }
        // What lies behind is not counted twice, whatever clock comes.
        self.at = self.at.max(now);
    }

    /// Somebody else has decided meanwhile: nothing is known of who ran.
    pub fn forget(&mut self) {
        self.ledger.clear();
    }
}
