//! Status in, operations out: a policy with what every policy needs around it.

use crate::policy::{Input, Policy};
use crate::registry::Row;
use crate::unit::Units;
use protocol::operation::{Operation, Permit, Reason};
use protocol::status::Status;
use protocol::time::Time;
use std::time::Duration;

/// What is in force from now on.
#[derive(Debug, Clone, Copy)]
pub struct Decision<'a> {
    /// One operation for each unit of the status, in its order.
    pub operations: &'a [Operation],
    /// When to decide anew even if nothing happens.
    pub wake: Option<Time>,
}

/// Decides with one policy. Its owner calls it when the status has changed and at the wake-up; deciding once more in
/// between is harmless.
#[derive(Debug)]
pub struct Engine {
    row: &'static Row,
    policy: Box<dyn Policy>,
    linger: Duration,
    units: Units,
    permits: Vec<Permit>,
    operations: Vec<Operation>,
}

impl Engine {
    /// For how long a queue that turned idle counts as ready still, if nobody says otherwise.
    pub const LINGER: Duration = Duration::from_micros(200);

    /// Decides with a new policy of this kind.
    pub fn new(row: &'static Row, linger: Duration) -> Self {
        Self {
            row,
            policy: (row.new)(),
            linger,
            units: Units::default(),
            permits: Vec::new(),
            operations: Vec::new(),
        }
    }

    /// Which policy decides.
    pub fn policy(&self) -> &'static Row {
        self.row
    }

    /// Lets a new policy of this kind decide from now on; it knows nothing of what was decided before.
    pub fn set_policy(&mut self, row: &'static Row) {
        self.row = row;
        self.policy = (row.new)();
    }

    /// What the last decision was made from: one unit for each of its operations, in the same order.
    pub fn units(&self) -> &Units {
        &self.units
    }

    /// Who may run now.
    pub fn decide(&mut self, status: &Status, now: Time) -> Decision<'_> {
        /// What a unit has that the policy forgot: nothing waits for ever.
        const FORGOTTEN: Permit = Permit { run: true, limit: true, reason: Reason::Unrivalled };
        let settles = self.units.gather(status, now, self.linger);
        self.permits.clear();
        self.permits.resize(self.units.all().len(), FORGOTTEN);
        let wake = self.policy.decide(Input { units: &self.units, now }, &mut self.permits);
        let units = self.units.all().iter().zip(&self.permits);
        self.operations.clear();
        self.operations.extend(units.map(|(unit, permit)| Operation { unit: unit.id, permit: *permit }));
        let wake = [settles, wake].into_iter().flatten().min();
        Decision { operations: &self.operations, wake }
    }
}
