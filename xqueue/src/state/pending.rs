//! The commands of one queue that are submitted and not launched. Pure data; waiting and waking are the
//! callers' part. The type of an edge is a parameter, so that this module does not know the queue.
//!
//! An item passes through two lists: `Pending::items`, to which submitting threads append, and the *taken*
//! ones, which only the holder of the submit lock touches. Invariants:
//! * Items are in ticket order, because tickets are taken under the lock `pending`.
//! * Items are taken, and taken items launched, only under the submit lock.
//! * While anything is taken only the holder of the submit lock stores the queue's frontier; while nothing
//!   is, an append does, under `pending`. The change between the two happens under `pending`.

use std::collections::VecDeque;
use std::time::Duration;

use crate::config::Bounds;
use crate::hw::{CostKey, Footprint, Subject};
use crate::ids::Ticket;
use crate::state::storage::{CommandBox, CommandMemory};
use crate::sync::{Instant, now, spin_hint};

/// The way in which an item is launched.
pub(crate) enum Work {
    /// By the holder of the submit lock.
    Command(CommandBox),
    /// By the thread that submitted it and waits, with the caller's own arguments.
    InOrder,
}

/// One submitted command.
pub(crate) struct Item<E> {
    pub(crate) ticket: Ticket,
    pub(crate) key: CostKey,
    pub(crate) subject: Subject,
    /// See [`crate::CommandSpec::open`].
    pub(crate) open: bool,
    pub(crate) footprint: Footprint,
    /// The edges that may still be unsatisfied.
    pub(crate) edges: Vec<E>,
    pub(crate) work: Work,
}

/// The state of the holder of the submit lock: items that are not launched yet, and the memory of launched
/// ones.
pub(crate) struct Taken<E> {
    pub(crate) items: VecDeque<Item<E>>,
    pub(crate) spares: Vec<CommandMemory>,
    /// The time of the last refill, if it brought few items.
    few: Option<Instant>,
}

impl<E> Default for Taken<E> {
    fn default() -> Self {
        Self { items: VecDeque::new(), spares: Vec::new(), few: None }
    }
}

impl<E> Taken<E> {
    /// Waits until [`GATHER`] after a refill that brought few items. A worker that launches faster than the
    /// program appends would otherwise take the lock `pending` for each command, against the appending
    /// thread. Every launch of a runtime takes longer than this wait.
    pub(crate) fn gather(&mut self) {
        if let Some(last) = self.few.take() {
            while now().saturating_duration_since(last) < GATHER {
                spin_hint();
            }
        }
    }
}

/// The most items that move at once to the holder of the submit lock. One lock serves many launches, so that
/// the submitting thread seldom meets the worker in it.
const CHUNK: usize = if cfg!(loom) { 2 } else { 32 };

/// The number of commands whose memory a queue keeps while it has nothing pending.
const SPARES: usize = 256;

/// The shortest time between two refills, after one that brought few items.
const GATHER: Duration = Duration::from_micros(1);

/// The submitting side, behind the lock `pending`.
pub(crate) struct Pending<E> {
    items: VecDeque<Item<E>>,
    /// The sums of the items taken last. `sums` includes them until the next ones are taken.
    taken: Sums,
    sums: Sums,
    /// Memory for further commands: at most for as many as were pending at once.
    spares: Vec<CommandMemory>,
    /// The number of commands that were ever appended.
    pub(crate) appended: u64,
    /// The number of callers that wait for room.
    pub(crate) waiting_for_room: usize,
    pub(crate) closed: bool,
}

/// The sums that the bounds limit.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    commands: usize,
    arguments: usize,
    staged: usize,
}

impl Sums {
    fn add(&mut self, footprint: Footprint) {
        self.commands += 1;
        self.arguments += footprint.arguments;
        self.staged += footprint.staged;
    }
}

impl<E> Pending<E> {
    pub(crate) fn new() -> Self {
        Self {
            items: VecDeque::new(),
            taken: Sums::default(),
            sums: Sums::default(),
            spares: Vec::new(),
            appended: 0,
            waiting_for_room: 0,
            closed: false,
        }
    }

    /// Returns true if the queue has a frontier.
    pub(crate) fn has_any(&self) -> bool {
        !self.items.is_empty() || self.taken.commands != 0
    }

    /// Returns the number of items that are not taken.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn has_room(&self, footprint: Footprint, bounds: &Bounds) -> bool {
        let sums = &self.sums;
        let fit = |sum: usize, more: usize, most: usize| more == 0 || sum == 0 || sum + more <= most;
        sums.commands < bounds.commands.max(1)
            && fit(sums.arguments, footprint.arguments, bounds.arguments)
            && fit(sums.staged, footprint.staged, bounds.staged)
    }

    /// Returns true if waking the callers that wait for room is worth it: a quarter is free. Otherwise every
    /// launch would wake a caller for one place.
    pub(crate) fn has_waiters_and_room(&self, bounds: &Bounds) -> bool {
        self.waiting_for_room != 0 && self.sums.commands <= bounds.commands / 4 * 3
    }

    /// Appends an item. Returns true if nothing was pending before: the frontier is this item, and the
    /// launching thread has to be woken.
    pub(crate) fn append(&mut self, item: Item<E>) -> bool {
        let first = !self.has_any();
        self.appended += 1;
        self.sums.add(item.footprint);
        self.items.push_back(item);
        #[cfg(feature = "broken-order")]
        self.swap_last();
        first
    }

    #[cfg(feature = "broken-order")]
    fn swap_last(&mut self) {
        let [.., one, other] = self.items.make_contiguous() else { return };
        let commands = [&one.work, &other.work].iter().all(|work| matches!(work, Work::Command(_)));
        if commands && crate::broken::is_now(crate::broken::Fault::Swap) {
            std::mem::swap(&mut one.work, &mut other.work);
        }
    }

    /// Refuses further appends; nothing is pending.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.spares = Vec::new();
    }

    /// Takes the memory of a launched command.
    pub(crate) fn spare(&mut self) -> Option<CommandMemory> {
        self.spares.pop()
    }

    /// Moves the next items to `taken`, whose former ones are all launched. Afterwards `taken` is empty only
    /// if nothing is pending.
    pub(crate) fn take(&mut self, taken: &mut Taken<E>) {
        self.spares.append(&mut taken.spares);
        if self.items.is_empty() {
            // A suspension can have made many, and ends.
            self.spares.truncate(SPARES);
        }
        self.sums.commands -= self.taken.commands;
        self.sums.arguments -= self.taken.arguments;
        self.sums.staged -= self.taken.staged;
        self.taken = Sums::default();
        taken.few = None;
        while self.taken.commands < CHUNK
            && let Some(item) = self.items.pop_front()
        {
            self.taken.add(item.footprint);
            taken.items.push_back(item);
        }
        if !cfg!(loom) && (1..CHUNK).contains(&self.taken.commands) {
            taken.few = Some(now());
        }
    }
}
