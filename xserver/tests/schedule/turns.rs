//! A policy with a memory: whoever has work takes its turn. It shows that the model carries what a policy
//! remembers, and that what holds does not depend on priorities.

use policies::reason::PRIORITY;
use policies::registry::Row;
use policies::{Input, Policy, Ranking};
use protocol::policy::PolicyKind;
use protocol::time::Time;
use std::time::Duration;

/// How long a turn is while somebody else waits.
pub const TURN: Duration = Duration::from_millis(100);

/// The row of it; no build contains a policy of this number.
pub static TURNS: Row = Row {
    kind: PolicyKind::Awf,
    description: "Whoever has work takes its turn.",
    advice: "In a model.",
    parameters: &[],
    reasons: &[PRIORITY],
    goes_by_priority: false,
    conserves_work: true,
    new: || Box::new(Turns::default()),
};

#[derive(Debug, Default)]
struct Turns {
    /// Whose turn it is, as a place among the units, and until when.
    turn: usize,
    until: Time,
}

impl Policy for Turns {
    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let units = input.entities.all();
        let ready = |place: usize| units.get(place).is_some_and(|unit| unit.ready);
        if !ready(self.turn) || input.now >= self.until {
            let mut others = (1..=units.len()).map(|step| (self.turn + step) % units.len());
            self.turn = others.find(|place| ready(*place)).unwrap_or(self.turn);
            self.until = input.now.after(TURN);
        }
        for (place, unit) in input.members() {
            let rank = i64::from(place == self.turn);
            rankings[place] = Ranking::new(rank, PRIORITY.number(unit.priority.into()));
        }
        units.iter().any(|unit| unit.ready).then_some(self.until)
    }
}
