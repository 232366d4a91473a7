//! The changes of a simulation for the account of the device's time, if they are asked for. A program is an
//! entity there: with processes as entities, a client.

use crate::account::{Change, Index, What};
use crate::policy_sim::device::{QueueIndex, Span};

/// The changes so far; `None` if nobody asked for them.
#[derive(Debug, Default)]
pub(super) struct Log {
    changes: Option<Vec<Change>>,
    /// For each entity the end of the time for which it counts as ready without work.
    lingers: Vec<Option<u64>>,
    /// True for each entity that is within a request from its first launch, not from the begin of the host's
    /// work.
    urgent: Vec<bool>,
}

impl Log {
    pub(super) fn new(urgent: Vec<bool>) -> Self {
        Self { changes: Some(Vec::new()), lingers: vec![None; urgent.len()], urgent }
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

    /// Logs that an entity turns idle and counts as ready until then.
    pub(super) fn idle(&mut self, at: u64, entity: usize, until: u64) {
        self.works(at, entity);
        if let Some(lingers) = self.lingers.get_mut(entity)
            && until > at
        {
            *lingers = Some(until);
            self.of(at, entity, |index| What::Lingers(index, true));
        }
    }

    /// Logs that an entity has work.
    pub(super) fn works(&mut self, at: u64, entity: usize) {
        if let Some(until) = self.lingers.get_mut(entity).and_then(Option::take) {
            self.of(until.min(at), entity, |index| What::Lingers(index, false));
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
    pub(super) fn finish(mut self, end: u64) -> Vec<Change> {
        (0..self.lingers.len()).for_each(|entity| self.works(end, entity));
        self.changes.unwrap_or_default()
    }
}
