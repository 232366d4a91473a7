//! What is submitted and not launched, of one queue. Pure data; waiting and waking are done by its
//! callers.
//!
//! An item passes through two lists: `Pending::items`, to which submitting threads append, and the
//! *taken* ones, which only the holder of submit touches. Invariants:
//! * items are in ticket order, because tickets are taken under the lock `pending`;
//! * items are taken, and taken items launched, only under submit;
//! * while anything is taken only the holder of submit stores the queue's frontier; while nothing is,
//!   an append does, under `pending`. The change between the two happens under `pending`.

use std::collections::VecDeque;
use std::time::Duration;

use crate::config::Bounds;
use crate::hw::{CostKey, Footprint};
use crate::order::{Edge, Ticket};
use crate::storage::{CommandBox, Spare};
use crate::sync::{Instant, now, spin_hint};

/// How an item is launched.
pub(crate) enum Work {
    /// By whoever has submit.
    Command(CommandBox),
    /// By the thread that waits for its turn, with the caller's own arguments.
    Turn,
}

/// One submitted command.
pub(crate) struct Item {
    pub(crate) ticket: Ticket,
    pub(crate) key: CostKey,
    /// See [`crate::Spec::open`].
    pub(crate) open: bool,
    pub(crate) footprint: Footprint,
    /// What must be launched first; satisfied edges are removed as they are found.
    pub(crate) edges: Vec<Edge>,
    pub(crate) work: Work,
}

/// State of the holder of submit: items that are not launched yet, and the memory of launched ones.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) items: VecDeque<Item>,
    pub(crate) spares: Vec<Spare>,
    /// When the last ones were taken, if they were few.
    few: Option<Instant>,
}

impl Taken {
    /// Waits until [`GATHER`] after a look that found few items. A worker that launches faster than the program appends would
    /// otherwise take the lock of pending for each command, against the appending thread. Every launch of a runtime takes longer
    /// than this wait.
    pub(crate) fn gather(&mut self) {
        if let Some(last) = self.few.take() {
            while now().saturating_duration_since(last) < GATHER {
                spin_hint();
            }
        }
    }
}

/// Items that move at once from the buffer to the side of whoever has submit: one lock for many
/// launches, so that the submitting thread seldom meets the worker in it.
const CHUNK: usize = if cfg!(loom) { 2 } else { 32 };

/// Commands of whose memory a queue keeps while it has nothing pending.
const SPARES: usize = 256;

/// The shortest time between two looks at the buffer, after one that found little.
const GATHER: Duration = Duration::from_micros(1);

/// The submitting side, behind the lock `pending`.
pub(crate) struct Pending {
    items: VecDeque<Item>,
    /// Of the items taken last, until the next ones are taken: the bounds count them to the end.
    taken: Sums,
    held: Sums,
    /// Memory for further commands: at most for as many as were pending at once.
    spares: Vec<Spare>,
    /// Commands that were ever appended.
    pub(crate) appended: u64,
    /// Callers that wait for room.
    pub(crate) waiting_for_room: usize,
    pub(crate) closed: bool,
}

/// What the bounds limit.
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

impl Pending {
    pub(crate) fn new() -> Self {
        Self {
            items: VecDeque::new(),
            taken: Sums::default(),
            held: Sums::default(),
            spares: Vec::new(),
            appended: 0,
            waiting_for_room: 0,
            closed: false,
        }
    }

    /// Whether the queue has a frontier.
    pub(crate) fn has_any(&self) -> bool {
        !self.items.is_empty() || self.taken.commands != 0
    }

    /// Items that nobody has taken.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn has_room(&self, footprint: Footprint, bounds: &Bounds) -> bool {
        let held = &self.held;
        let fit = |held: usize, more: usize, most: usize| more == 0 || held == 0 || held + more <= most;
        held.commands < bounds.commands.max(1)
            && fit(held.arguments, footprint.arguments, bounds.arguments)
            && fit(held.staged, footprint.staged, bounds.staged)
    }

    /// Whether it is worth waking those who wait for room: a quarter is free, or every launch would
    /// wake a caller for one place.
    pub(crate) fn has_waiters_and_room(&self, bounds: &Bounds) -> bool {
        self.waiting_for_room != 0 && self.held.commands <= bounds.commands / 4 * 3
    }

    /// Appends. True: nothing was pending before, so the frontier is this item, and whoever launches
    /// has to be woken.
    pub(crate) fn append(&mut self, item: Item) -> bool {
        let first = !self.has_any();
        self.appended += 1;
        self.held.add(item.footprint);
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

    /// Nothing is appended any more, and nothing pending.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.spares = Vec::new();
    }

    /// Memory of a command that was launched.
    pub(crate) fn spare(&mut self) -> Option<Spare> {
        self.spares.pop()
    }

    /// Moves the next items to `taken`, whose former ones are all launched. Afterwards `taken` is
    /// empty only if nothing is pending.
    pub(crate) fn take(&mut self, taken: &mut Taken) {
        self.spares.append(&mut taken.spares);
        if self.items.is_empty() {
            // A suspension can have made many, and ends.
            self.spares.truncate(SPARES);
        }
        self.held.commands -= self.taken.commands;
        self.held.arguments -= self.taken.arguments;
        self.held.staged -= self.taken.staged;
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
