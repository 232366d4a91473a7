//! The account of a run from its changes: one pass over them in the order of time.

use super::entry::{Entries, Entry};
use super::latency::Wait;

/// The number of a program in its run.
pub(crate) type Index = u16;

/// The two sides of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// The latency of its requests is a figure.
    Urgent,
    /// Its latency is no figure.
    Batch,
}

/// A change of a program, the device or the server. A `bool` is true at the begin of an interval and false at
/// its end; intervals of one kind may overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The program's kernels are on compute units. A program that is not in the run is one of the others.
    Runs(Index, bool),
    /// The program's host has launched so many kernels.
    Launched(Index, u32),
    /// So many kernels have arrived on a queue of the device.
    Arrived(Index, u32),
    Ended(Index, u32),
    /// A queue of the program is off the hardware.
    Evicted(Index, bool),
    /// The program is within a request: of an urgent program from its first launch to the end of its wait; of
    /// others from the begin of the host's work, so that a program back to back always is.
    Request(Index, bool),
    /// The program is idle for the server, and counts as ready.
    Lingers(Index, bool),
    /// The server lets the program run, or suspends it. Without a word it runs.
    Permission(Index, bool),
    /// The guard lets all programs run. Not an interval: the last word counts.
    Guard(bool),
    /// The device saves or restores running work.
    Switching(bool),
}

/// A change and its time, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) at: u64,
    pub(crate) what: What,
}

impl Change {
    /// Returns the begin and the end of an interval.
    pub(crate) fn interval(from: u64, to: u64, what: impl Fn(bool) -> What) -> [Self; 2] {
        [Self { at: from, what: what(true) }, Self { at: to, what: what(false) }]
    }
}

/// Accounts for the time between `from` and `to`, nanoseconds; nothing if `to` is not later. The class of a
/// program is that of its number. Sorts the changes by time; those at the same time keep their order.
/// Changes before `from` count for the state at `from`.
pub(crate) fn sweep(classes: &[Class], changes: &mut [Change], from: u64, to: u64) -> Entries {
    changes.sort_by_key(|change| change.at);
    let mut state = State::new(classes);
    let (mut entries, mut now) = (Entries::default(), from);
    for change in &*changes {
        let until = change.at.min(to);
        if until > now {
            entries[state.entry()] += until - now;
            now = until;
        }
        if change.at >= to {
            break;
        }
        state.apply(change.what);
    }
    if to > now {
        entries[state.entry()] += to - now;
    }
    entries
}

#[derive(Debug)]
struct Program {
    class: Class,
    /// Kernels since the begin.
    launched: i64,
    arrived: i64,
    ended: i64,
    /// Open intervals.
    runs: i32,
    evicted: i32,
    requests: i32,
    lingers: i32,
    suspended: bool,
    /// True from a permission until the program has acted on it.
    resuming: bool,
}

impl Program {
    fn is_batch(&self) -> bool {
        self.class == Class::Batch
    }

    /// Returns true if its host waits for kernels.
    fn has_work(&self) -> bool {
        self.launched.max(self.arrived) > self.ended
    }
}

/// All programs and the device at a moment.
#[derive(Debug)]
pub(super) struct State {
    programs: Vec<Program>,
    /// Open intervals in which programs run that are not in the run.
    strangers: i32,
    guard: bool,
    switching: i32,
}

impl State {
    pub(super) fn new(classes: &[Class]) -> Self {
        let program = |class: &Class| Program {
            class: *class,
            launched: 0,
            arrived: 0,
            ended: 0,
            runs: 0,
            evicted: 0,
            requests: 0,
            lingers: 0,
            suspended: false,
            resuming: false,
        };
        let programs = classes.iter().map(program).collect();
        Self { programs, strangers: 0, guard: false, switching: 0 }
    }

    pub(super) fn apply(&mut self, what: What) {
        let step = |open: bool| if open { 1 } else { -1 };
        let index = match what {
            What::Guard(on) => return self.guard = on,
            What::Switching(open) => return self.switching += step(open),
            What::Runs(index, _)
            | What::Launched(index, _)
            | What::Arrived(index, _)
            | What::Ended(index, _)
            | What::Evicted(index, _)
            | What::Request(index, _)
            | What::Lingers(index, _)
            | What::Permission(index, _) => index,
        };
        let Some(program) = self.programs.get_mut(usize::from(index)) else {
            if let What::Runs(_, open) = what {
                self.strangers += step(open);
            }
            return;
        };
        match what {
            What::Runs(_, open) => {
                program.runs += step(open);
                program.resuming &= !open;
            }
            What::Launched(_, count) => program.launched += i64::from(count),
            What::Arrived(_, count) => {
                program.arrived += i64::from(count);
                program.resuming = false;
            }
            What::Ended(_, count) => program.ended += i64::from(count),
            What::Evicted(_, open) => program.evicted += step(open),
            What::Request(_, open) => program.requests += step(open),
            What::Lingers(_, open) => program.lingers += step(open),
            What::Permission(_, run) => {
                program.resuming = run && (program.suspended || program.resuming);
                program.suspended = !run;
            }
            What::Guard(_) | What::Switching(_) => (),
        }
    }

    /// Returns the entry of the time until the next change.
    fn entry(&self) -> Entry {
        let runs = |class| self.programs.iter().any(|program| program.class == class && program.runs > 0);
        match (runs(Class::Urgent), runs(Class::Batch) || self.strangers > 0) {
            (true, true) => Entry::Both,
            (true, false) => Entry::Urgent,
            (false, true) => Entry::Others,
            (false, false) => self.reason(),
        }
    }

    /// Returns what a request of this program waits for until the next change.
    pub(super) fn wait(&self, index: Index) -> Wait {
        let others = self.strangers > 0
            || (0..).zip(&self.programs).any(|(other, program)| other != index && program.runs > 0);
        let Some(own) = self.programs.get(usize::from(index)) else { return Wait::Host };
        match (own.runs > 0, others) {
            (true, true) => Wait::Beside,
            (true, false) => Wait::Own,
            _ if !own.has_work() => Wait::Host,
            (false, true) => Wait::Others,
            _ if self.switching > 0 => Wait::Switching,
            (false, false) => Wait::Dispatch,
        }
    }

    /// Returns the reason why nothing runs.
    fn reason(&self) -> Entry {
        let free = || self.programs.iter().filter(|program| !program.suspended);
        let any_request = || free().any(|program| program.requests > 0);
        if self.switching > 0 {
            return Entry::Switching;
        }
        if self.guard {
            return Entry::Guard;
        }
        if self.programs.iter().any(|program| program.evicted == 0 && program.arrived > program.ended) {
            return Entry::Dispatch;
        }
        let waiting = || free().filter(|program| program.is_batch() && program.has_work());
        if waiting().next().is_none()
            && self.programs.iter().any(|program| program.suspended && program.has_work())
        {
            return match (any_request(), free().any(|program| program.lingers > 0)) {
                (true, _) => Entry::Gap,
                (false, true) => Entry::Linger,
                (false, false) => Entry::Decision,
            };
        }
        if waiting().any(|program| program.resuming || program.evicted > 0) {
            return Entry::Resume;
        }
        if waiting().next().is_some() {
            return Entry::Window;
        }
        if self.programs.iter().any(|program| program.is_batch() && program.requests > 0) {
            return Entry::Host;
        }
        if any_request() { Entry::Gap } else { Entry::None }
    }
}
