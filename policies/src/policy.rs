//! The contract of a policy.

use crate::unit::Units;
use protocol::operation::Permit;
use protocol::time::Time;
use std::fmt;

/// What a decision is made from. What users hint stands in the units, as attributes that go with them.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Everyone who is connected, idle ones included.
    pub units: &'a Units,
    /// The time of the decision; never earlier than in the call before.
    pub now: Time,
}

/// Decides who runs.
///
/// A policy keeps what it likes between decisions, but reads no clock and asks nobody: the same sequence of inputs
/// gives the same sequence of decisions.
///
/// # What a decision holds for
/// It stays in force until the next one, which the owner asks for whenever something has changed and at the wake-up.
/// A unit that turns ready meanwhile has the permission that it got while idle: an idle unit that would run at once if
/// it turned ready is permitted to, so that the urgent one does not wait for a decision.
///
/// # The limit
/// A policy clears [`Permit::limit`] only for a unit that no queue on its devices, of whatever unit and ready or not,
/// could outrank; such a unit may have any amount of work in flight. Policies whose order changes with time never
/// clear it.
pub trait Policy: fmt::Debug + Send {
    /// Writes the permission of `input.units.all()[i]` to `permits[i]`, for every unit; what stood there means nothing.
    ///
    /// Returns when to decide anew even if nothing happens, later than `input.now`; nothing if that need not be.
    fn decide(&mut self, input: Input<'_>, permits: &mut [Permit]) -> Option<Time>;
}
