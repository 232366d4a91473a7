//! The hints in force of queues and processes. A later layer wins: what the configuration gives to programs of this name,
//! what the program asks for, what people have said since then. The limits of the program's rule hold for all of it, except
//! for what an administrator has said.
//!
//! A program always sends all of its hints. One with the library's default value counts as not set.

use super::client::{ClientState, Slot};
use super::client_page::ClientPage;
use crate::access::Grant;
use crate::limits::Limits;
use crate::programs::Program;
use protocol::control::{Given, HintUpdate};
use protocol::event::Event;
use protocol::hint::table::Scope;
use protocol::hint::{Hint, Hints, ProcessHints};
use protocol::ids::QueueId;
use protocol::status::{Gang, Queues};
use protocol::time::Time;
use std::mem::discriminant;

/// A hint from a person.
#[derive(Debug, Clone, Copy)]
struct Word {
    update: HintUpdate,
    at: Time,
    /// True if the person administers the server.
    administers: bool,
}

/// The hints from people for a queue or a process, each since the program itself last changed the same hint.
#[derive(Debug, Default)]
pub(super) struct Words(Vec<Word>);

impl Words {
    /// Notes a word, which replaces an earlier one of the same hint.
    pub fn note(&mut self, update: HintUpdate, at: Time, administers: bool) {
        self.forget(update);
        self.0.push(Word { update, at, administers });
    }

    /// Forgets the word of the hint of this update.
    pub fn forget(&mut self, update: HintUpdate) {
        self.0.retain(|word| discriminant(&word.update) != discriminant(&update));
    }

    /// Forgets the words of hints that the program has changed.
    pub fn forget_changed(&mut self, before: &Hints, after: &Hints) {
        self.0.retain(|word| !differs(word.update, word.at, before, after));
    }

    /// Returns true if there is a word of the hint of this update.
    fn has(&self, update: HintUpdate) -> bool {
        self.0.iter().any(|word| discriminant(&word.update) == discriminant(&update))
    }

    fn apply(&self, hints: &mut Hints, of_administrators: bool) {
        for word in self.0.iter().filter(|word| word.administers == of_administrators) {
            word.update.apply(hints, word.at);
        }
    }
}

/// Returns true if two states differ in the hint of an update.
fn differs(update: HintUpdate, at: Time, before: &Hints, after: &Hints) -> bool {
    let same = |hints: &Hints| {
        let mut hints = *hints;
        update.apply(&mut hints, at);
        hints
    };
    // All other changes.
    let mut others = *before;
    follow(&mut others, &same(before), &same(after));
    others != *after
}

/// Takes over what differs between two states of a program's own hints.
fn follow(hints: &mut Hints, before: &Hints, after: &Hints) {
    if before.priority != after.priority {
        hints.priority = after.priority;
    }
    hints.queue.follow(&before.queue, &after.queue);
    hints.process.follow(&before.process, &after.process);
}

/// The hints in force. `own` has those of the program.
fn in_force(program: Option<&Program>, own: &Hints, words: &Words, grant: &Grant) -> Hints {
    let mut hints = Hints::default();
    for update in program.iter().flat_map(|program| &program.hints) {
        update.apply(&mut hints, Time(0));
    }
    follow(&mut hints, &Hints::default(), own);
    words.apply(&mut hints, false);
    hints.priority = hints.priority.min(grant.max_priority);
    for share in [&mut hints.queue.utilization, &mut hints.process.utilization] {
        *share = (*share).min(grant.max_share);
    }
    words.apply(&mut hints, true);
    hints
}

impl Slot {
    fn own(&self) -> Hints {
        Hints { priority: self.own_priority, queue: self.reported, ..Hints::default() }
    }
}

impl<P: ClientPage> ClientState<P> {
    /// Puts the hints of a queue in force.
    pub fn show_queue(&self, queue: QueueId, queues: &mut Queues) {
        if let Some(slot) = self.slots.iter().find(|slot| slot.queue == queue) {
            self.show_slot(slot, queues);
        }
    }

    fn show_slot(&self, slot: &Slot, queues: &mut Queues) {
        let queue = slot.queue;
        let Hints { priority, queue: hints, .. } =
            in_force(self.program.as_deref(), &slot.own(), &slot.words, &self.grant);
        for hint in [Hint::Priority { queue, priority }, Hint::Queue { queue, hints }] {
            // The gang and the slots have the same queues.
            let _ = queues.apply(&Event::Hint(hint));
        }
        let _ = queues.set_level(queue, slot.level.min(self.grant.max_level));
    }

    /// Puts the hints of the process in force. Slices stay within the limits.
    pub fn show_process(&self, hints: &mut ProcessHints, limits: &Limits) {
        let own = Hints { process: self.reported, ..Hints::default() };
        let new = in_force(self.program.as_deref(), &own, &self.words, &self.grant).process;
        let timeslice =
            new.timeslice.map(|slice| slice.clamp(limits.min_timeslice_us, limits.max_timeslice_us));
        // The kernel tells the nice value, and one process at a time has the window.
        *hints = ProcessHints { nice: hints.nice, window: hints.window, timeslice, ..new };
    }

    /// Puts all of its hints in force.
    pub fn show_hints(&self, gang: &mut Gang, limits: &Limits) {
        for slot in &self.slots {
            self.show_slot(slot, &mut gang.queues);
        }
        self.show_process(&mut gang.hints, limits);
    }

    /// The hints from the configuration that are in force; none if there is none.
    pub fn given(&self) -> Option<Given> {
        let program = self.program.as_deref()?;
        let none = Hints::default();
        let counts = |update: HintUpdate, own: &Hints, words: &Words| {
            !words.has(update) && !differs(update, Time(0), &none, own)
        };
        let of_process = Hints { process: self.reported, ..none };
        let hints = program.hints.iter().filter(|update| {
            let scope = update.spec().scope;
            let queues = matches!(scope, Scope::Queue | Scope::QueueOrProcess);
            queues && self.slots.iter().any(|slot| counts(**update, &slot.own(), &slot.words))
                || scope != Scope::Queue && counts(**update, &of_process, &self.words)
        });
        let text = |update: &HintUpdate| (update.spec().name.to_owned(), update.text().unwrap_or_default());
        let hints = hints.map(text).collect::<std::collections::BTreeMap<_, _>>();
        (!hints.is_empty()).then(|| Given { program: program.name.to_string(), hints })
    }
}
