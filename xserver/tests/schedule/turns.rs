//! A policy with a memory, for models: entities with work take turns. It shows that the model keeps the state
//! of a policy, and that the properties do not depend on priorities.

use policies::reason::PRIORITY;
use policies::registry::Row;
use policies::{Input, Policy, Ranking};
use protocol::policy::PolicyKind;
use protocol::time::Time;
use std::time::Duration;

/// The length of a turn while another entity has work.
pub const TURN: Duration = Duration::from_millis(100);

/// The policy's row. It has the number of AWF; no model uses both.
pub static TURNS: Row = Row {
    kind: PolicyKind::Awf,
    description: "Entities with work take turns.",
    advice: "For models only.",
    parameters: &[],
    reasons: &[PRIORITY],
    goes_by_priority: false,
    conserves_work: true,
    new: || Box::new(Turns::default()),
};

#[derive(Debug, Default)]
struct Turns {
    /// The index of the entity whose turn it is, and the time at which its turn ends.
    turn: usize,
    until: Time,
}

impl Policy for Turns {
    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        let entities = input.entities.all();
        let ready = |index: usize| entities.get(index).is_some_and(|entity| entity.ready);
        if !ready(self.turn) || input.now >= self.until {
            let mut others = (1..=entities.len()).map(|step| (self.turn + step) % entities.len());
            self.turn = others.find(|index| ready(*index)).unwrap_or(self.turn);
            self.until = input.now.after(TURN);
        }
        for (index, entity) in input.members() {
            let rank = i64::from(index == self.turn);
            rankings[index] = Ranking::new(rank, PRIORITY.number(entity.priority.into()));
        }
        entities.iter().any(|entity| entity.ready).then_some(self.until)
    }
}
