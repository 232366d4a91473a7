//! The changes of a simulation for the account of the device's time, if they are asked for. A program is an
//! entity there: with processes as entities, a client.

use crate::account::{Change, Index, Lingers, What};
use crate::policy_sim::device::{QueueIndex, Span};

/// The changes so far; `None` if nobody asked for them.
#[derive(Debug, Default)]
pub(super) struct Log {
    changes: Option<Vec<Change>>,
    lingers: Lingers,
    /// True for each entity that is within a request from its first launch, not from the begin of the host's
    /// work.
    urgent: Vec<bool>,
}

impl Log {
    pub(super) fn new(urgent: Vec<bool>) -> Self {
        Self { changes: Some(Vec::new()), lingers: Lingers::new(urgent.len()), urgent }
    }

    /// Returns true if changes are logged.
    pub(super) fn is_on(&self) -> bool {
        self.changes.is_some()
    }

    /// Logs that the host of an entity begins the work on a request, or launches its first kernel.
    pub(super) fn begins(&mut self, at: u64, entity: usize, launches: bool) {
        if self.urgent.get(entity) == Some(&launches) {
            self.of(at, entity, |index| What::Request(index, true));
        }
    }

    pub(super) fn push(&mut self, at: u64, what: What) {
        if let Some(changes) = &mut self.changes {
            changes.push(Change { at, what });
        }
    }

    /// Logs a change of an entity.
    pub(super) fn of(&mut self, at: u64, entity: usize, what: impl FnOnce(Index) -> What) {
        self.push(at, what(entity as Index));
    }

    /// Logs that an entity has turned idle and counts as ready until then, or that it has work: `None`.
    pub(super) fn lingers(&mut self, at: u64, entity: usize, until: Option<u64>) {
        if let Some(changes) = &mut self.changes {
            self.lingers.note(at, entity as Index, until, changes);
        }
    }

    /// Logs what a device did.
    pub(super) fn span(&mut self, span: Span, entity: impl Fn(QueueIndex) -> usize) {
        let Span { queue, from, to, restored } = span;
        let begin = if queue.is_some() { (from + restored).min(to) } else { to };
        self.interval(from, begin, What::Switching);
        if let Some(entity) = queue.map(entity) {
            self.interval(begin, to, |open| What::Runs(entity as Index, open));
        }
    }

    fn interval(&mut self, from: u64, to: u64, what: impl Fn(bool) -> What) {
        if let Some(changes) = self.changes.as_mut().filter(|_| from < to) {
            changes.extend(Change::interval(from, to, what));
        }
    }

    /// Returns the changes.
    pub(super) fn finish(self) -> Vec<Change> {
        let mut changes = self.changes.unwrap_or_default();
        self.lingers.finish(&mut changes);
        changes
    }
}
