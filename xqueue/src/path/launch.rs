//! The launch of pending commands: the holder of the submit lock launches the item at the front, as far as
//! permission, order and window admit.
//!
//! One decision, `XQueue::next`, serves the worker and the threads that launch their own command in order. It
//! reads atomic words and, once for a chunk of items, takes `pending`. Everything that may take long happens
//! after it, under the submit lock alone.

use crate::hw::How;
use crate::ids::Ticket;
use crate::limit::{Limit, Limited};
use crate::state::pending::Work;
use crate::state::queue::{Edge, Item, Submit, Taken, XQueue};
use crate::state::storage::CommandMemory;
use crate::sync::{Ordering, store_load_barrier};

/// Launches in a row on one queue before the other queues are served.
pub(crate) const BATCH: usize = 16;

/// The decision about the front of pending.
pub(crate) enum Next {
    Launch(Item, Limited),
    Discard(Item),
    Empty,
    /// Suspended by a permission, or another thread's command.
    NotMine,
    /// Unsatisfied edges.
    Waits(Vec<Edge>),
    /// The window has no room for a command under this limit.
    Full(Limit),
}

/// The reason why [`XQueue::advance`] stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nothing is pending.
    Empty,
    /// It launched as many as it was asked to, or all that was pending.
    More,
    /// Another thread will wake the worker.
    Blocked,
    /// The window is full; polling makes room.
    Full,
}

impl XQueue {
    /// Decides about the front item and, if it may be launched, takes it. `mine`: the ticket of the caller's
    /// own command, which is launched in order. `force`: the window is ignored.
    pub(crate) fn next(&self, submit: &Submit<'_>, mine: Option<Ticket>, force: bool) -> Next {
        let mut taken = self.hot.taken.lock();
        if taken.items.is_empty() {
            self.refill(&mut taken);
        }
        let Some(item) = taken.items.front_mut() else {
            return Next::Empty;
        };
        let in_order = matches!(item.work, Work::InOrder);
        if in_order != mine.is_some() || mine.is_some_and(|ticket| ticket != item.ticket) {
            return Next::NotMine;
        }
        // Permission first: a thread that sees a resumption also sees the drop that came with it.
        let may_launch = self.may_launch(item.ticket);
        let drop = item.ticket.0 < self.drop_below.load(Ordering::Acquire);
        let mut limited = None;
        if !drop {
            if !may_launch {
                self.hot.flight.note_suspension();
                return Next::NotMine;
            }
            item.edges.retain(|edge| !edge.is_satisfied());
            if !item.edges.is_empty() {
                self.hot.flight.note_wait();
                return Next::Waits(item.edges.clone());
            }
            limited = self.limit(item.key);
            if let Some(limit) = limited.filter(|_| !force && !self.has_room(submit, limited)) {
                return Next::Full(limit);
            }
        }
        match taken.items.pop_front() {
            Some(item) if drop => Next::Discard(item),
            Some(item) => Next::Launch(item, limited),
            None => Next::Empty,
        }
    }

    /// Moves the frontier, because the item that `next` took is launched or discarded, and wakes those that
    /// wait for it.
    pub(crate) fn finish(&self) {
        if self.move_frontier(None) {
            self.core.wake_all();
        }
    }

    /// Moves the frontier for the worker. If nothing is left, releases the submit lock before it wakes waiters:
    /// a woken thread may preempt this one, and would find the lock held although nobody launches.
    fn finish_and_free<'s>(&self, submit: Submit<'s>, spare: Option<CommandMemory>) -> Option<Submit<'s>> {
        let wakes = self.move_frontier(spare);
        let submit = Some(submit).filter(|_| self.frontier() != Ticket::NONE);
        if wakes {
            self.core.wake_all();
        }
        submit
    }

    /// Moves the frontier. Returns true if a registered waiter waits for the new one. `spare` is the memory
    /// of the launched command.
    fn move_frontier(&self, spare: Option<CommandMemory>) -> bool {
        let mut taken = self.hot.taken.lock();
        taken.spares.extend(spare);
        let frontier = match taken.items.front() {
            Some(item) => {
                let ticket = item.ticket;
                self.hot.frontier.store(ticket.0, Ordering::SeqCst);
                self.hot.taken_left.store(taken.items.len(), Ordering::Release);
                ticket
            }
            None => self.refill(&mut taken),
        };
        drop(taken);
        // Pairs with `register_waiter`: each side stores its word and reads the other's, so one sees the
        // other.
        store_load_barrier();
        frontier.0 >= self.awaited.load(Ordering::SeqCst)
            && self.awaited.swap(Ticket::NONE.0, Ordering::SeqCst) != Ticket::NONE.0
    }

    /// Takes more items and returns the frontier; all that were taken before are launched.
    fn refill(&self, taken: &mut Taken) -> Ticket {
        taken.gather();
        let mut pending = self.pending.lock();
        pending.take(taken);
        self.hot.taken_left.store(taken.items.len(), Ordering::Release);
        let frontier = taken.items.front().map_or(Ticket::NONE, |item| item.ticket);
        let before = self.hot.frontier.load(Ordering::Relaxed);
        self.hot.frontier.store(frontier.0, Ordering::SeqCst);
        if frontier == Ticket::NONE && before != Ticket::NONE.0 {
            self.core.backlog.fetch_sub(1, Ordering::AcqRel);
        }
        let room = pending.has_waiters_and_room(&self.core.config.bounds);
        drop(pending);
        if room {
            self.room.notify_all();
        }
        frontier
    }

    /// Launches up to `most` pending commands.
    pub(crate) fn advance(&self, most: usize) -> Stop {
        let Some(mut submit) = self.submit_or_register() else {
            return Stop::Blocked;
        };
        let mut force = false;
        // Only launches count: otherwise room that is found and not used would be searched for again without
        // end.
        let mut left = most;
        while left != 0 {
            let spare = match self.next(&submit, None, force) {
                Next::Launch(item, limited) => self.launch(&submit, item, limited),
                Next::Discard(item) => self.discard(&submit, item),
                Next::Empty => return Stop::Empty,
                Next::NotMine => return Stop::Blocked,
                Next::Waits(edges) => {
                    if self.await_edges(&edges) {
                        return Stop::Blocked;
                    }
                    continue;
                }
                Next::Full(limit) => match self.make_way(&submit, limit, false) {
                    Some(forced) => {
                        force = forced;
                        continue;
                    }
                    None => return Stop::Full,
                },
            };
            force = false;
            left -= 1;
            match self.finish_and_free(submit, spare) {
                Some(kept) => submit = kept,
                None => return Stop::More,
            }
        }
        Stop::More
    }

    /// Makes room for a command that found the window full. Returns true if it may be launched whatever the
    /// window says, false if the window has to be asked again, none if the command has to wait. `waits`: the
    /// caller waits for its own command.
    pub(crate) fn make_way(&self, submit: &Submit<'_>, limit: Limit, waits: bool) -> Option<bool> {
        if self.poll_for(submit, limit) {
            return Some(false);
        }
        (self.finds_room(submit, limit) || self.admits_for_waiter(waits)).then_some(true)
    }

    /// Returns the limit under which the first pending command waits for room.
    pub(crate) fn awaits(&self) -> Limited {
        let key = self.hot.taken.lock().items.front()?.key;
        self.limit(key)
    }

    /// Launches a command and returns its memory.
    fn launch(&self, submit: &Submit<'_>, item: Item, limited: Limited) -> Option<CommandMemory> {
        let Work::Command(mut command) = item.work else {
            return None;
        };
        #[cfg(feature = "broken-order")]
        crate::broken::count_unordered();
        self.separate(submit, limited);
        let traced_at = self.traced_at();
        match command.launch(&*self.hw) {
            Ok(()) => {
                self.hot.deferred_launched.fetch_add(1, Ordering::Release);
                self.count(submit, item.ticket, item.key, limited);
                if item.open {
                    self.hot.flight.note_open(submit);
                }
                if let Some(at) = traced_at {
                    self.trace_launch(at, How::Deferred, item.subject);
                }
            }
            Err(error) => {
                self.keep_error(error);
                tracing::error!(
                    kernel = command.name(),
                    queue = self.id.0,
                    code = error.code(),
                    "a deferred launch failed"
                );
            }
        }
        command.empty()
    }

    fn discard(&self, submit: &Submit<'_>, item: Item) -> Option<CommandMemory> {
        let Work::Command(mut command) = item.work else {
            return None;
        };
        if command.discard(&*self.hw) {
            self.hot.deferred_launched.fetch_add(1, Ordering::Release);
            self.count(submit, item.ticket, item.key, None);
        }
        command.empty()
    }
}
