//! The way in: the direct path, the deferred path, turns, and launches from inside user callbacks.
//!
//! A caller asks [`XQueue::try_direct`] first. If that says [`Direct::NotNow`] it copies what the
//! launch needs and calls [`XQueue::submit`]; where the sizes are unknown, [`XQueue::submit_in_turn`];
//! inside a user callback, where nothing may wait, [`Spec::may_wait`] is off and
//! [`XQueue::launch_now`] stands for the turn.
//!
//! Why a direct launch cannot overtake: it happens under submit, and the frontier, read after submit
//! was taken, says that nothing is pending. Items leave pending only under submit and count as
//! pending until they are launched, so "nothing pending" stays true for what this thread, or anybody
//! it heard from, had submitted before. A command appended meanwhile by another thread is concurrent
//! with this call, and either order is right.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::config::LaunchConfig;
use crate::error::{HwResult, SubmitError};
use crate::estimate::Estimate;
use crate::flight::Proof;
use crate::hw::{CostKey, Footprint};
use crate::launch::Turned;
use crate::lease::SILENCE;
use crate::order::{After, Scope, Ticket};
use crate::pending::{Item, Work};
use crate::permission::OwnWord;
use crate::queue::{Submit, XQueue};
use crate::storage::{CommandBox, Spare};
use crate::sync::spin_hint;
use crate::worker::Backoff;

/// What the order and the window have to know of a command.
#[derive(Debug, Clone, Copy)]
pub struct Spec<'a> {
    /// For the estimate of its time.
    pub key: CostKey,
    /// Explicit edges.
    pub after: &'a [After],
    /// Everything earlier of these queues is launched first.
    pub scope: Option<Scope<'a>>,
    /// Off inside user callbacks: the bounds of pending are ignored, because a marker behind the
    /// callback may block the stream, and with it whoever would make room.
    pub may_wait: bool,
    /// The call returns only when the hardware queue has completed it and everything in front of it.
    pub completes: bool,
    /// Once launched it can last until the program's own threads do something: a wait for a value, a host function. While it
    /// lasts the window keeps nobody waiting.
    pub open: bool,
}

impl Spec<'_> {
    /// A command that only follows its own queue.
    pub fn new(key: CostKey) -> Self {
        Self { key, after: &[], scope: None, may_wait: true, completes: false, open: false }
    }
}

/// Looks at a lock that another thread has, before a command is deferred: about a microsecond.
pub(crate) const RETRIES: u32 = if cfg!(loom) { 0 } else { 25 };

/// What [`XQueue::try_direct`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Direct {
    /// The call was made; this is what it returned.
    Launched(Ticket, HwResult),
    /// The call was not made, and has to be deferred.
    NotNow,
}

/// The limit under which a command is launched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) config: LaunchConfig,
    /// How much estimated time may be in flight, in nanoseconds.
    pub(crate) budget: u64,
    /// Its share of that; what is unknown fills it.
    pub(crate) cost: u64,
    /// Its key at its place in the program.
    pub(crate) placed: CostKey,
    /// How long it will probably take, where that is known.
    pub(crate) known: Option<Estimate>,
}

impl Limit {
    /// The command is worth a span of its own: it can be learnt, and little is known of it. In a span with others its time does
    /// not show, and what was learnt of it first, probably too long a time, would stay.
    pub(crate) fn is_studied(&self) -> bool {
        self.config == LaunchConfig::Adaptive
            && self.placed != CostKey::UNKNOWN
            && self.known.is_none_or(|known| known.fresh)
    }
}

/// No limit, or this one.
pub(crate) type Limited = Option<Limit>;

impl XQueue {
    /// The direct path: makes the call at once, on this thread, with the caller's own arguments, if
    /// nothing is pending in front of it, the queue may run and the window has room. No copy, no
    /// allocation, no clock, no waiting. `call` runs under submit; it must not submit to this queue.
    #[inline]
    pub fn try_direct(&self, spec: &Spec<'_>, call: impl FnOnce() -> HwResult) -> Direct {
        // A first look without submit, which is not taken from the worker in vain: to defer is always right.
        if !OwnWord::may_be_direct(self.state.own.load()) || self.frontier() != Ticket::NONE {
            return Direct::NotNow;
        }
        let Some(submit) = self.try_submit().or_else(|| self.retry_submit()) else {
            return Direct::NotNow;
        };
        let own = self.state.own.load();
        let plain = (own == 0 && self.core.gate.load().is_unlimited_run() || own == OwnWord::FREE)
            && self.core.backlog.load(Ordering::Acquire) == 0;
        let limited = if plain {
            None
        } else {
            match self.admit(&submit, spec) {
                Some(limited) => limited,
                None => return Direct::NotNow,
            }
        };
        let ticket = self.core.tickets.take();
        if !self.state.ready.load(Ordering::Relaxed) {
            self.turn_ready();
        }
        if spec.completes {
            return Direct::Launched(ticket, self.call_through(submit, ticket, call));
        }
        let result = call();
        if result.is_ok() {
            self.count(&submit, ticket, spec.key, limited);
            if spec.open {
                self.hot.flight.note_open(&submit);
            }
        } else {
            self.direct_failed.fetch_add(1, Ordering::Relaxed);
        }
        Direct::Launched(ticket, result)
    }

    /// The holder of submit may be through in a moment; copying the command and waking the worker
    /// would cost more than that moment. Bounded, so it is no waiting.
    #[cold]
    #[inline(never)]
    fn retry_submit(&self) -> Option<Submit<'_>> {
        for _ in 0..RETRIES {
            spin_hint();
            // The holder may be the worker, with a command that has come meanwhile.
            if self.frontier() != Ticket::NONE {
                return None;
            }
            if let Some(submit) = self.try_submit() {
                return Some(submit);
            }
        }
        None
    }

    /// Makes a direct call that completes everything in front of it.
    #[cold]
    #[inline(never)]
    fn call_through(&self, submit: Submit<'_>, ticket: Ticket, call: impl FnOnce() -> HwResult) -> HwResult {
        let (proof, kin) = (self.begin_sync(), self.begin_kin());
        let result = call();
        if result.is_ok() {
            self.count_completed(&submit, ticket, proof);
        } else {
            self.direct_failed.fetch_add(1, Ordering::Relaxed);
        }
        drop(submit);
        self.completed_through(&result, &kin);
        result
    }

    /// A call has returned that completes everything in front of it, that of other queues included.
    fn completed_through(&self, result: &HwResult, kin: &[(Arc<XQueue>, Proof)]) {
        if result.is_ok() {
            self.settle();
            for (queue, proof) in kin {
                queue.synced(*proof);
            }
        }
        self.try_idle();
    }

    /// The careful half of the direct path's decision.
    #[cold]
    #[inline(never)]
    fn admit(&self, submit: &Submit<'_>, spec: &Spec<'_>) -> Option<Limited> {
        let own = self.state.own.load();
        let gate = self.gate(own);
        if !OwnWord::may_be_direct(own) || !gate.run() {
            return None;
        }
        if self.frontier() != Ticket::NONE {
            return None;
        }
        if self.core.backlog.load(Ordering::Acquire) != 0
            && (self.core.exclusive.load(Ordering::Acquire) != 0 || self.is_blocked_by_order(spec))
        {
            return None;
        }
        let limited = self.limit(spec.key);
        let admitted = self.make_room(submit, limited);
        if admitted {
            self.mark_before(submit, limited);
        }
        admitted.then_some(limited)
    }

    /// The deferred path: appends the command; the worker launches it in order. Waits, holding
    /// nothing, while pending is full. The error of the launch becomes the queue's sticky error.
    pub fn submit(&self, spec: &Spec<'_>, command: impl Into<CommandBox>) -> Result<Ticket, SubmitError> {
        let command = command.into();
        let footprint = command.footprint();
        let (ticket, first) = self.append(spec, footprint, Work::Command(command))?;
        if first && !self.device.wake_worker(&self.core) {
            self.launch_without_worker(ticket);
        }
        Ok(ticket)
    }

    /// Memory for the next command: that of an earlier one if there is any, else fresh.
    #[inline]
    pub fn spare(&self) -> Spare {
        self.take_spare().unwrap_or_else(Spare::new)
    }

    pub(crate) fn take_spare(&self) -> Option<Spare> {
        let raw = self.spare.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: the word holds null or a pointer from `into_raw`; the swap made this thread its only owner.
        unsafe { Spare::from_raw(raw) }
    }

    /// Keeps this memory for the next submit.
    fn offer_spare(&self, spare: Spare) {
        let raw = self.spare.swap(spare.into_raw(), Ordering::AcqRel);
        // SAFETY: as above.
        drop(unsafe { Spare::from_raw(raw) });
    }

    /// For a command whose arguments cannot be copied: waits for its turn, holding nothing, and
    /// makes the call on this thread. `call` runs under submit, as on the direct path.
    pub fn submit_in_turn(
        &self,
        spec: &Spec<'_>,
        call: impl FnOnce() -> HwResult,
    ) -> Result<(Ticket, HwResult), SubmitError> {
        let (ticket, _) = self.append(spec, Footprint::default(), Work::Turn)?;
        let mut backoff = Backoff::new();
        loop {
            let key = self.core.progress.key();
            match self.take_turn(ticket) {
                Turned::Mine(submit, limited) => {
                    let proof = self.begin_sync();
                    let kin = if spec.completes { self.begin_kin() } else { Vec::new() };
                    let result = call();
                    if result.is_ok() {
                        self.hot.deferred_launched.fetch_add(1, Ordering::Release);
                        if spec.completes {
                            self.count_completed(&submit, ticket, proof);
                        } else {
                            self.count(&submit, ticket, spec.key, limited);
                            if spec.open {
                                self.hot.flight.note_open(&submit);
                            }
                        }
                    }
                    self.finish();
                    drop(submit);
                    self.hand_on();
                    if spec.completes {
                        self.completed_through(&result, &kin);
                    }
                    return Ok((ticket, result));
                }
                Turned::Dropped => {
                    self.hand_on();
                    return Err(SubmitError::Dropped);
                }
                Turned::Full => {
                    if self.poll(false) {
                        backoff.reset();
                    } else {
                        backoff.wait(&self.core.progress, key);
                    }
                }
                Turned::Blocked => {
                    self.device.stand_in_for_watcher(&self.core);
                    self.core.progress.wait_and_look(key, SILENCE);
                }
            }
        }
    }

    /// Makes the call at once whatever is pending: only for a command that cannot be copied inside a
    /// user callback, where nothing may wait. Takes no submit, because its holder may be waiting,
    /// inside the runtime, for this very callback.
    pub fn launch_now(&self, call: impl FnOnce() -> HwResult) -> HwResult {
        let pending = self.pending.lock();
        self.hot.flight.begin_stray();
        if !self.state.ready.load(Ordering::Relaxed) {
            self.turn_ready();
        }
        drop(pending);
        let result = call();
        self.hot.flight.end_stray();
        result
    }

    /// After a turn: what is pending behind it is the worker's.
    fn hand_on(&self) {
        let frontier = self.frontier();
        if frontier != Ticket::NONE && !self.device.wake_worker(&self.core) {
            self.launch_without_worker(frontier);
        }
    }

    fn append(
        &self,
        spec: &Spec<'_>,
        footprint: Footprint,
        work: Work,
    ) -> Result<(Ticket, bool), SubmitError> {
        let bounds = &self.core.config.bounds;
        #[cfg(feature = "broken-order")]
        crate::broken::count_unordered();
        let mut pending = self.pending.lock();
        loop {
            if pending.closed {
                return Err(SubmitError::Closed);
            }
            if !spec.may_wait || pending.has_room(footprint, bounds) {
                break;
            }
            pending.waiting_for_room += 1;
            self.room.wait(&mut pending);
            pending.waiting_for_room -= 1;
        }
        // Under the lock, so that the items of a queue are in ticket order.
        let ticket = self.core.tickets.take();
        let mut edges = Vec::new();
        // This queue counts in the backlog exactly if it has a frontier: both change under `pending`.
        let own = usize::from(pending.has_any());
        if self.core.backlog.load(Ordering::Acquire) > own {
            self.unsatisfied(spec, ticket, |edge| {
                edges.push(edge);
                true
            });
        }
        let first = pending.append(Item { ticket, key: spec.key, open: spec.open, footprint, edges, work });
        if first {
            self.hot.frontier.store(ticket.0, Ordering::Release);
            self.core.backlog.fetch_add(1, Ordering::AcqRel);
        }
        if !self.state.ready.load(Ordering::Relaxed) {
            self.turn_ready();
        }
        let count = pending.appended;
        let spare = pending.spare();
        drop(pending);
        if let Some(spare) = spare {
            self.offer_spare(spare);
        }
        self.chaos_step(count);
        Ok((ticket, first))
    }
}
