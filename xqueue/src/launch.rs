//! The way out: who has submit launches what is at the front of pending, as far as permission, order
//! and window admit.
//!
//! One decision, `XQueue::next`, serves the worker and the threads that wait for their turn. It reads
//! atomic words and, for a chunk of items at a time, takes `pending`; all that may take long happens
//! after it, under submit alone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::config::LaunchConfig;
use crate::estimate::Estimate;
use crate::flight::{Polled, Proof};
use crate::hw::CostKey;
use crate::order::{Edge, OrderClass, Ticket};
use crate::pending::{Item, Taken, Work};
use crate::permission::OwnWord;
use crate::queue::{Submit, XQueue};
use crate::storage::Spare;
use crate::submit::{Limit, Limited, RETRIES};
use crate::sync::{now, spin_hint, store_load_barrier};
use crate::worker::{Backoff, LOOK};

/// What the front of pending allows.
enum Next {
    Launch(Item, Limited),
    Discard(Item),
    Empty,
    /// Held by a permission, or the turn of another thread.
    NotMine,
    /// Edges that are not satisfied.
    Waits(Vec<Edge>),
    /// The window has no room for a command under this limit.
    Full(Limit),
}

/// Where [`XQueue::advance`] stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing is pending.
    Empty,
    /// It launched as many as it was asked to, or all that was pending.
    More,
    /// Somebody else will wake the worker.
    Blocked,
    /// The window is full: polling brings it on.
    Full,
}

/// What a thread finds that waits for its turn.
pub(crate) enum Turned<'q> {
    /// It is: launch, then `finish`.
    Mine(Submit<'q>, Limited),
    Dropped,
    Full,
    Blocked,
}

impl XQueue {
    /// The limit under which the next command of this key would be launched.
    pub(crate) fn limit(&self, key: CostKey) -> Limited {
        let budget = self.budget()?;
        let config = self.launch_config();
        let (cost, placed, known) = match config {
            LaunchConfig::Fixed { .. } => (0, key, None),
            LaunchConfig::Adaptive => {
                let estimates = &self.device.estimates;
                let placed = self.hot.flight.placed(key);
                let known = estimates.get(placed).or_else(|| estimates.get(key));
                let again = |known: Estimate| self.hot.flight.is_restudied(known.nanos);
                let known = known.map(|known| Estimate { fresh: known.fresh || again(known), ..known });
                (known.map_or(budget, |known| known.nanos.min(budget)), placed, known)
            }
        };
        Some(Limit { config, budget, cost, placed, known })
    }

    fn has_room(&self, submit: &Submit<'_>, limited: Limited) -> bool {
        limited.is_none_or(|limit| self.hot.flight.has_room(submit, limit))
    }

    /// Whether the window has room, having looked at the marks if it seemed full.
    pub(crate) fn make_room(&self, submit: &Submit<'_>, limited: Limited) -> bool {
        if self.has_room(submit, limited) {
            return true;
        }
        // Another thread may be looking, and through in a moment. Bounded, so it is no waiting.
        for _ in 0..=RETRIES {
            let looked = self.look_at_marks(true).looked;
            if self.has_room(submit, limited) {
                return true;
            }
            if looked {
                break;
            }
            spin_hint();
        }
        limited.is_some_and(|limit| self.finds_room(submit, limit))
    }

    /// Whether a command may be launched although the window is full by what is known to have completed. If that cannot be
    /// foreseen, sees to it that the completion of what is in flight will be seen.
    fn finds_room(&self, submit: &Submit<'_>, limit: Limit) -> bool {
        // What nobody can ever see complete must not keep the window full.
        self.hot.flight.foresees_room(submit, limit).unwrap_or_else(|| !self.ensure_mark(submit))
    }

    /// Whether a command may be launched into a full window because somebody waits for that (`waits`: the caller itself) who may be
    /// the only one that can bring what is in flight to its end.
    fn is_due_to_who_waits(&self, waits: bool) -> bool {
        let is_awaited = || {
            self.wanted.load(Ordering::SeqCst) != Ticket::NONE.0 || self.pending.lock().waiting_for_room != 0
        };
        let flight = &self.hot.flight;
        (waits || is_awaited()) && (flight.is_open() || self.stall.lock().is_over(flight.completed(), now()))
    }

    /// Looks at the marks. True: something completed.
    pub(crate) fn poll(&self, has_submit: bool) -> bool {
        self.look_at_marks(has_submit).progress
    }

    /// The same for a command that waits for room.
    fn poll_for(&self, submit: &Submit<'_>, limit: Limit) -> bool {
        let progress = self.poll(true);
        self.hot.flight.judge_lead(submit, limit);
        progress
    }

    fn look_at_marks(&self, has_submit: bool) -> Polled {
        // Others on the device have about as much in flight, which may come in between.
        let learn = self.budget().map(|budget| (&self.device.estimates, Duration::from_nanos(budget)));
        let polled = self.hot.flight.poll(&*self.hw, learn, has_submit);
        if let Some(error) = polled.error {
            self.keep_error(error);
        }
        polled
    }

    /// Before a launch under this limit: ends the span of what was launched so far where the command is to have its own.
    pub(crate) fn mark_before(&self, submit: &Submit<'_>, limited: Limited) {
        let flight = &self.hot.flight;
        // What is foreign has marks of its own, and may not be marked late.
        if limited.is_some_and(|limit| limit.is_studied())
            && flight.is_unmarked()
            && flight.in_flight() != 0
            && !self.has_foreign_launches()
        {
            self.record(submit);
        }
    }

    /// Books a successful launch and records a mark where one is due.
    #[inline]
    pub(crate) fn count(&self, submit: &Submit<'_>, ticket: Ticket, key: CostKey, limited: Limited) {
        self.hot.last_ticket.store(ticket.0, Ordering::Release);
        let flight = &self.hot.flight;
        match limited {
            None => {
                if flight.count_free(submit) {
                    self.record(submit);
                    // Nobody else looks while nothing is limited: the marks must not pile up.
                    self.poll(true);
                }
            }
            Some(limit) => {
                let due = flight.count_limited(submit, limit, key);
                // A default queue among others cannot be marked later without serializing them.
                if due || self.has_foreign_launches() {
                    self.record(submit);
                }
            }
        }
    }

    /// Books a call that has completed itself and everything in front of it; `before` was taken before the call.
    pub(crate) fn count_completed(&self, submit: &Submit<'_>, ticket: Ticket, before: Proof) {
        self.hot.last_ticket.store(ticket.0, Ordering::Release);
        // No mark, even if one is due: nothing is left that it could show.
        let _ = self.hot.flight.count_free(submit);
        self.hot.flight.complete_through(submit, before);
    }

    fn record(&self, submit: &Submit<'_>) {
        let spacing = self.core.mark_spacing.load(Ordering::Relaxed);
        if let Err(error) = self.hot.flight.record(submit, &*self.hw, spacing) {
            self.keep_error(error);
        }
    }

    /// Sees to it that the completion of what is in flight will be seen. False: it cannot be.
    fn ensure_mark(&self, submit: &Submit<'_>) -> bool {
        let flight = &self.hot.flight;
        flight.recover(submit);
        !flight.is_unmarked() || !flight.has_no_mark() || self.is_awaited_inside() || self.mark_tail(submit)
    }

    /// Records a mark behind the last launch, if that disturbs nobody.
    pub(crate) fn mark_tail(&self, submit: &Submit<'_>) -> bool {
        if self.state.own.has(OwnWord::CLOSED) {
            return false;
        }
        if self.class != OrderClass::Default {
            self.record(submit);
            return true;
        }
        // On the default queue a mark waits for all blocking queues. With their submits held none
        // of them can launch between the look and the mark. Only tries: no circle of locks.
        let queues = self.device.queues.read().clone();
        let own = self.hot.last_ticket.load(Ordering::Acquire);
        let (mut held, mut foreign) = (Vec::new(), false);
        for queue in queues.iter() {
            if queue.class == OrderClass::Blocking {
                match queue.try_submit() {
                    Some(submit) => held.push(submit),
                    None => return false,
                }
                if queue.hot.last_ticket.load(Ordering::Acquire) > own {
                    foreign = true;
                    if queue.hot.flight.in_flight() == 0 {
                        // Its last launch waited on the device for all of this queue, and has completed.
                        self.hot.flight.complete_through(submit, self.begin_sync());
                        self.settle();
                        return false;
                    }
                }
            }
        }
        if !foreign {
            self.record(submit);
        }
        !foreign
    }

    /// Decides about the front item and, if it may be launched, takes it. `force`: whatever the
    /// window says. Reads nothing but atomic words.
    fn next(&self, submit: &Submit<'_>, mine: Option<Ticket>, force: bool) -> Next {
        let mut taken = self.hot.taken.lock();
        if taken.items.is_empty() {
            self.refill(&mut taken);
        }
        let Some(item) = taken.items.front_mut() else {
            return Next::Empty;
        };
        let turn = matches!(item.work, Work::Turn);
        if turn != mine.is_some() || mine.is_some_and(|ticket| ticket != item.ticket) {
            return Next::NotMine;
        }
        // Permission first: who sees a resumption sees the dropping that came with it.
        let may_launch = self.may_launch(item.ticket);
        let drop = item.ticket.0 < self.drop_below.load(Ordering::Acquire);
        let mut limited = None;
        if !drop {
            if !may_launch {
                return Next::NotMine;
            }
            item.edges.retain(|edge| !edge.is_satisfied());
            if !item.edges.is_empty() {
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

    /// The item that `next` took is launched or discarded: the frontier moves. Whoever waits for that is woken.
    pub(crate) fn finish(&self) {
        if self.move_frontier(None) {
            self.core.wake_all();
        }
    }

    /// The same for the worker, which gives submit up where nothing is left: whoever waited for the last command may take this
    /// thread's processor, wait for the device, and then find submit taken that nobody uses.
    fn finish_and_free<'s>(&self, submit: Submit<'s>, spare: Option<Spare>) -> Option<Submit<'s>> {
        let wakes = self.move_frontier(spare);
        let submit = Some(submit).filter(|_| self.frontier() != Ticket::NONE);
        if wakes {
            self.core.wake_all();
        }
        submit
    }

    /// Returns whether somebody waits for the new frontier. `spare` is the memory of what was launched.
    fn move_frontier(&self, spare: Option<Spare>) -> bool {
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
        // With `want_launched`: each side stores its word and reads the other's, one sees the other.
        store_load_barrier();
        frontier.0 >= self.wanted.load(Ordering::SeqCst)
            && self.wanted.swap(Ticket::NONE.0, Ordering::SeqCst) != Ticket::NONE.0
    }

    /// Takes more items and returns the frontier; what was taken before is launched.
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
    pub(crate) fn advance(&self, most: usize) -> Rest {
        let Some(mut submit) = self.submit_or_wish() else {
            return Rest::Blocked;
        };
        let mut force = false;
        // Only launches count: a look that found room, and did not use it, would be made again for ever.
        let mut left = most;
        while left != 0 {
            let spare = match self.next(&submit, None, force) {
                Next::Launch(item, limited) => self.launch(&submit, item, limited),
                Next::Discard(item) => self.discard(&submit, item),
                Next::Empty => return Rest::Empty,
                Next::NotMine => return Rest::Blocked,
                Next::Waits(edges) => {
                    if self.await_edges(&edges) {
                        return Rest::Blocked;
                    }
                    continue;
                }
                Next::Full(limit) => {
                    if !self.poll_for(&submit, limit) {
                        force = self.finds_room(&submit, limit) || self.is_due_to_who_waits(false);
                        if !force {
                            return Rest::Full;
                        }
                    }
                    continue;
                }
            };
            force = false;
            left -= 1;
            match self.finish_and_free(submit, spare) {
                Some(kept) => submit = kept,
                None => return Rest::More,
            }
        }
        Rest::More
    }

    /// The limit under which the first pending command waits for room.
    pub(crate) fn awaits(&self) -> Limited {
        let key = self.hot.taken.lock().items.front()?.key;
        self.limit(key)
    }

    /// Launches a command and returns its memory.
    fn launch(&self, submit: &Submit<'_>, item: Item, limited: Limited) -> Option<Spare> {
        let Work::Command(mut command) = item.work else {
            return None;
        };
        #[cfg(feature = "broken-order")]
        crate::broken::count_unordered();
        self.mark_before(submit, limited);
        match command.launch(&*self.hw) {
            Ok(()) => {
                self.hot.deferred_launched.fetch_add(1, Ordering::Release);
                self.count(submit, item.ticket, item.key, limited);
                if item.open {
                    self.hot.flight.note_open(submit);
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

    fn discard(&self, submit: &Submit<'_>, item: Item) -> Option<Spare> {
        let Work::Command(mut command) = item.work else {
            return None;
        };
        if command.discard(&*self.hw) {
            self.hot.deferred_launched.fetch_add(1, Ordering::Release);
            self.count(submit, item.ticket, item.key, None);
        }
        command.empty()
    }

    /// Looks whether it is this ticket's turn. Edges ask for the launch of what they wait for.
    pub(crate) fn take_turn(&self, ticket: Ticket) -> Turned<'_> {
        let Some(submit) = self.submit_or_wish() else {
            return Turned::Blocked;
        };
        let mut force = false;
        loop {
            match self.next(&submit, Some(ticket), force) {
                Next::Launch(_, limited) => return Turned::Mine(submit, limited),
                Next::Discard(_) => {
                    self.finish();
                    return Turned::Dropped;
                }
                Next::Empty | Next::NotMine => {
                    self.wanted.fetch_min(ticket.0, Ordering::SeqCst);
                    store_load_barrier();
                    return match self.frontier() {
                        // It came to the front between the look and the wish.
                        frontier if frontier == ticket && self.may_launch(ticket) => continue,
                        _ => Turned::Blocked,
                    };
                }
                Next::Waits(edges) => {
                    if self.await_edges(&edges) {
                        return Turned::Blocked;
                    }
                }
                Next::Full(limit) => {
                    if !self.poll_for(&submit, limit) {
                        force = self.finds_room(&submit, limit) || self.is_due_to_who_waits(true);
                        if !force {
                            return Turned::Full;
                        }
                    }
                }
            }
        }
    }

    /// Asks for a wake-up when the edges are satisfied, and lets those that are waited for run until
    /// then. False: they are satisfied already.
    fn await_edges(&self, edges: &[Edge]) -> bool {
        let mut waits = false;
        for edge in edges {
            waits |= edge.queue.want_launched(edge.before, true);
        }
        waits
    }

    /// Asks for a wake-up when everything below `before` is launched. False: it is.
    pub(crate) fn want_launched(&self, before: Ticket, inherit: bool) -> bool {
        // "Everything" is a wish as well, so it must differ from "no wish".
        self.wanted.fetch_min(before.0.min(Ticket::NONE.0 - 1), Ordering::SeqCst);
        store_load_barrier();
        if self.hot.frontier.load(Ordering::SeqCst) >= before.0 {
            return false;
        }
        // Inheritance: a running queue waits for this one.
        if inherit
            && self.core.config.inherit
            && self.inherit.fetch_max(before.0, Ordering::AcqRel) < before.0
            && !OwnWord::runs(self.state.own.load())
        {
            self.wake();
        }
        true
    }

    /// No worker thread could be started: the submitting thread does its work. It sleeps between two looks, as a worker does:
    /// who asks the hardware without a pause keeps the runtime's own threads from telling what has completed.
    pub(crate) fn launch_without_worker(&self, ticket: Ticket) {
        let mut backoff = Backoff::new();
        while self.frontier() <= ticket {
            let key = self.core.progress.key();
            match self.advance(1) {
                Rest::Empty | Rest::More => backoff.reset(),
                Rest::Full => backoff.wait(&self.core.progress, key),
                Rest::Blocked => {
                    self.device.stand_in_for_watcher(&self.core);
                    self.core.progress.wait_at_most(key, LOOK);
                }
            }
        }
    }
}
