//! Who has run since the last decision: the same for every policy.

use crate::ledger::Ledger;
use crate::unit::Unit;
use protocol::operation::{Permit, UnitId};
use protocol::time::Time;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    /// The last decision let it run.
    permitted: bool,
    /// It counted as having work then.
    ready: bool,
    /// For how long the policies let it linger.
    linger: Duration,
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
    pub fn tell(&self, units: &mut [Unit], now: Time) {
        for (place, unit) in units.iter_mut().enumerate() {
            let tally = self.ledger.get(place, unit.id).filter(|tally| tally.permitted);
            let Some(tally) = tally else { continue };
            unit.running = unit.ready;
            // While it only counts as ready it keeps others away as well.
            let (began, to) = match (unit.ready, unit.idle_since) {
                (true, _) => (unit.since, now),
                (false, Some(idle)) => (idle, idle.after(unit.linger).min(now)),
                (false, None) => continue,
            };
            // Its work of now may be other work than that of then, and work that came and went unseen is not known.
            let from = if tally.ready { self.at } else { began.max(self.at) };
            unit.ran = to.since(from);
        }
    }

    /// For how long the last decision lets a unit linger.
    pub fn linger(&self, place: usize, unit: UnitId) -> Duration {
        self.ledger.get(place, unit).map_or(Duration::ZERO, |tally| tally.linger)
    }

    /// Notes a decision, in which each unit may linger for so long.
    pub fn note(
        &mut self,
        units: &[Unit],
        permits: &[Permit],
        linger: impl Fn(usize) -> Duration,
        now: Time,
    ) {
        for (place, tally) in self.ledger.align(units).iter_mut().enumerate() {
            *tally =
                Tally { permitted: permits[place].run, ready: units[place].ready, linger: linger(place) };
        }
        // What lies behind is not counted twice, whatever clock comes.
        self.at = self.at.max(now);
    }

    /// Somebody else has decided meanwhile: nothing is known of who ran.
    pub fn forget(&mut self) {
        self.ledger.clear();
    }
}
