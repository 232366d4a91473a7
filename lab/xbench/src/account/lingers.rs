//! The times for which programs count as ready without work.

use super::sweep::{Change, Index, What};

/// For each program the end of the last such time, which later work can bring forward.
#[derive(Debug, Default)]
pub(crate) struct Lingers(Vec<Option<u64>>);

impl Lingers {
    pub(crate) fn new(programs: usize) -> Self {
        Self(vec![None; programs])
    }

    /// Notes that a program lingers from a time until another, or works or leaves: `None`. That ends its last
    /// linger. The same end again changes nothing.
    pub(crate) fn note(&mut self, at: u64, program: Index, until: Option<u64>, changes: &mut Vec<Change>) {
        let next = until.filter(|until| *until > at);
        let Some(end) = self.0.get_mut(usize::from(program)).filter(|end| **end != next) else { return };
        if let Some(until) = std::mem::replace(end, next) {
            changes.push(Change { at: until.min(at), what: What::Lingers(program, false) });
        }
        if next.is_some() {
            changes.push(Change { at, what: What::Lingers(program, true) });
        }
    }

    /// Ends all lingers.
    pub(crate) fn finish(self, changes: &mut Vec<Change>) {
        for (program, until) in (0..).zip(self.0) {
            changes.extend(until.map(|at| Change { at, what: What::Lingers(program, false) }));
        }
    }
}
