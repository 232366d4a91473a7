//! Completion and readiness: the completion that a synchronisation, an event or a wait on the device shows,
//! and the changes between ready and idle.
//!
//! Markers lie behind the program's commands, so a hardware queue may be busy with a marker alone. A thread
//! that answers for a queue therefore asks [`XQueue::is_complete`] first, and the queue has to know all that
//! the program can know: that is the purpose of [`Completion`].
//!
//! A queue is ready from its first unfinished command on. It turns idle with both locks held. It turns ready
//! under the submit lock (direct) or under `pending` (append). So one change follows the other, and a thread
//! that proves idleness cannot miss an unfinished command. Behind a synchronization it may stay ready until the
//! watcher looks (ADR 35).

use std::sync::Arc;
use std::time::Duration;

use crate::error::HwResult;
use crate::hw::{CostKey, Done};
use crate::ids::{OrderClass, Ticket};
use crate::state::flight::CompletionSnapshot;
use crate::state::queue::{Completion, DeviceWait, XQueue};
use crate::state::ready::{GRACE, Ready, Turning};
use crate::sync::{Instant, Ordering, now};

/// The most waits of one queue that are kept. Beyond that the oldest is forgotten, and markers have to show
/// its completion.
const MOST: usize = 32;

/// The most synchronizations between two looks of the watcher that leave the queue ready.
const MOST_STAYS: u32 = 64 * 1024;

/// A call that waits inside the runtime for everything that has been launched on a queue. While there is one,
/// no thread records a marker only to see the tail complete: the runtime would make the recording thread wait
/// as long (`hipEventRecord` beside `hipStreamSynchronize`, seen with ROCm 5.2.3), and the return of the call
/// proves as much.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Wait<'q> {
    queue: &'q XQueue,
    snapshot: CompletionSnapshot,
}

impl Wait<'_> {
    /// Notes that the call has returned with success. Turns the queue idle if nothing else is unfinished.
    pub fn succeeded(self) {
        // Before the drop: until then no other thread records a marker under the submit lock.
        self.queue.synced(self.snapshot);
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.queue.waits.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Completion {
    /// Notes that the command is seen complete. Turns its queue idle if nothing else is unfinished.
    pub fn seen(&self) {
        self.complete();
        self.own.0.idle_or_stay();
    }

    /// Returns true if the command is known to have completed, by whatever has shown it.
    pub fn is_known(&self) -> bool {
        let (queue, snapshot) = &self.own;
        queue.hot.flight.covers(*snapshot)
    }

    fn complete(&self) {
        for (queue, snapshot) in std::iter::once(&self.own).chain(&self.dependencies) {
            queue.hot.flight.complete(*snapshot);
            queue.trace_completed();
            queue.reconcile();
        }
    }
}

impl XQueue {
    /// Returns the time since which the queue has been idle; none while it is ready or was never used. Work
    /// that the observer was told to count as idle does not interrupt it.
    pub fn idle_since(&self) -> Option<Instant> {
        self.accounting.lock().idle_since.filter(|_| !self.is_ready())
    }

    /// Returns the time since which the queue has been ready without a gap, however short; none while it is
    /// idle.
    pub fn ready_since(&self) -> Option<Instant> {
        self.accounting.lock().ready_since.filter(|_| self.is_ready())
    }

    /// Returns for how much longer the running commands will run, where that can be foreseen: the times of
    /// all commands up to the next marker are known, and they are not overdue.
    pub fn busy_for(&self) -> Option<Duration> {
        let expected = self.hot.flight.expectation()?;
        expected.takes?.checked_sub(expected.ran)
    }

    /// Turns the queue ready, fully or briefly, for this command. Called under the submit lock or under
    /// `pending`, with `ready` read as not full.
    #[cold]
    pub(crate) fn turn_ready(&self, command: Turning) {
        let at = now();
        let idle = self.state.ready.load() == Ready::No;
        let (as_what, grace) =
            if idle { self.begin_request(command, at) } else { (self.continue_request(command, at), GRACE) };
        // If another thread has turned it ready meanwhile, that counts.
        if as_what == Ready::Briefly {
            if self.state.ready.begin(Ready::Briefly) {
                self.core.observer.turned_ready_briefly(self.id, self.tag, at, grace);
                // Another thread may have appended more work, and reported that before. Nothing turns the queue idle
                // meanwhile: this thread holds a lock that this needs.
                if self.state.ready.load() == Ready::Yes {
                    self.core.observer.turned_ready(self.id, self.tag, at);
                }
                self.core.arm_watcher();
            }
            return;
        }
        let before = match as_what {
            Ready::First if self.state.ready.begin(Ready::First) => Ready::No,
            _ => self.state.ready.swap(Ready::Yes),
        };
        if matches!(before, Ready::No | Ready::Briefly) {
            self.core.observer.turned_ready(self.id, self.tag, at);
        }
        if before == Ready::No {
            self.core.arm_watcher();
        }
    }

    /// Notes that a command comes to an idle queue. Returns how the queue turns ready, and for how long it may
    /// count as idle if that is briefly.
    fn begin_request(&self, command: Turning, at: Instant) -> (Ready, Duration) {
        let counts_brief = self.core.observer.counts_brief();
        let mut accounting = self.accounting.lock();
        // The time first: a thread that sees the queue ready must see since when.
        accounting.ready_since = Some(at);
        if !counts_brief {
            return (Ready::Yes, GRACE);
        }
        let key = if self.core.config.preludes { command.key } else { CostKey::UNKNOWN };
        let begin = accounting.preludes.begin(key, at);
        let learnt = Some(begin.brief).filter(|grace| !grace.is_zero());
        let brief = learnt.is_some()
            || command.brief && {
                let idle_since = accounting.idle_since;
                accounting.brief.admits(idle_since, at)
            };
        accounting.learnt_grace = learnt;
        let follows = accounting.preludes.has_begun();
        drop(accounting);
        if begin.marked {
            self.hot.flight.request_marker();
        }
        let as_what = match (brief, follows) {
            (true, _) => Ready::Briefly,
            (false, true) => Ready::First,
            (false, false) => Ready::Yes,
        };
        (as_what, learnt.unwrap_or(GRACE))
    }

    /// Notes that a command comes behind the first one. Returns how the queue turns ready.
    fn continue_request(&self, command: Turning, at: Instant) -> Ready {
        let wants_proof = self.accounting.lock().preludes.wants_proof();
        let complete = if wants_proof && command.has_submit {
            let polled = self.poll_markers(true).polled;
            let complete = self.hot.flight.in_flight() == 0;
            // Another thread may be polling.
            (polled || complete).then_some(complete)
        } else {
            None
        };
        self.accounting.lock().preludes.follow(at, complete);
        Ready::Yes
    }

    /// Returns the snapshot that a synchronisation which the caller begins now will prove.
    #[inline]
    pub fn begin_sync(&self) -> CompletionSnapshot {
        self.hot.flight.snapshot()
    }

    /// Begins a wait of the caller, inside the runtime, for everything that has been launched.
    pub fn begin_wait(&self) -> Wait<'_> {
        self.waits.fetch_add(1, Ordering::AcqRel);
        Wait { queue: self, snapshot: self.begin_sync() }
    }

    /// Notes that the synchronisation has returned with success: everything in the snapshot has completed.
    /// If nothing else is unfinished, turns the queue idle, or leaves that to the watcher if the observer permits it
    /// ([`crate::Observer::needs_idle_report`]).
    pub fn synced(&self, snapshot: CompletionSnapshot) {
        self.hot.flight.complete(snapshot);
        self.trace_completed();
        self.reconcile();
        self.idle_or_stay();
        self.settle_markers();
    }

    /// Accounts for the return of a call that, with success, completes everything in front of it, on other
    /// queues as well.
    pub(crate) fn completed_through(
        &self,
        result: &HwResult,
        dependencies: &[(Arc<XQueue>, CompletionSnapshot)],
    ) {
        if result.is_ok() {
            self.reconcile();
            for (queue, snapshot) in dependencies {
                queue.synced(*snapshot);
            }
        }
        self.idle_or_stay();
    }

    /// Returns true while the queue has a command that is brief by what is learnt and does not count yet. To turn
    /// it idle would let others run on until the second command comes.
    fn is_brief_still(&self) -> bool {
        self.state.ready.load() == Ready::Briefly && {
            let accounting = self.accounting.lock();
            let since = accounting.ready_since;
            let still = |grace| since.is_some_and(|since| now().saturating_duration_since(since) < grace);
            accounting.learnt_grace.is_some_and(still)
        }
    }

    /// Handles a completion that the program has seen. If the observer needs the report at once, this turns the queue idle.
    /// Otherwise the queue stays ready, and the watcher turns it idle if no other command comes.
    fn idle_or_stay(&self) {
        let ready = self.state.ready.load();
        let stays = matches!(ready, Ready::First | Ready::Yes)
            && self.is_known_complete()
            && self.is_watched()
            && !self.core.observer.needs_idle_report();
        if !stays {
            return self.try_idle(true);
        }
        let stays = &self.watch.stays;
        stays.store(stays.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        // The next command follows an end that the program has asked for, so it is not the second one of a request.
        if ready == Ready::First && self.state.ready.fill() {
            self.accounting.lock().preludes.turned_idle(true);
        }
    }

    /// Returns true if the watcher will look at this queue soon. In a limited process other programs may wait, so the
    /// watcher must be in its shortest pause. The clock is not read, so a stopped watcher shows only in the number of
    /// synchronizations without a look.
    fn is_watched(&self) -> bool {
        let watcher = &self.core.watcher;
        watcher.awake.load(Ordering::Relaxed)
            && (!self.is_limited() || watcher.is_quick.load(Ordering::Relaxed))
            && self.watch.stays.load(Ordering::Relaxed) < MOST_STAYS
    }

    /// Turns idle if nothing is pending or in flight. If a lock is taken another thread is at work, and a
    /// later check will do. `by_program`: the program has asked for completion, or waits for it.
    pub(crate) fn try_idle(&self, by_program: bool) {
        // Check before locking, to avoid contention with a launch.
        let unfinished = || self.frontier() != Ticket::NONE || self.hot.flight.in_flight() != 0;
        if !self.is_ready() && by_program && self.state.asks.load(Ordering::Relaxed) {
            self.state.asks.store(false, Ordering::Relaxed);
            self.accounting.lock().preludes.turned_idle(true);
        }
        if !self.is_ready() || unfinished() || !by_program && self.is_brief_still() {
            return;
        }
        let Some(_submit) = self.try_submit() else {
            return;
        };
        let pending = self.pending.lock();
        if unfinished() {
            return;
        }
        let before = self.state.ready.swap(Ready::No);
        if before != Ready::No {
            let at = now();
            let mut accounting = self.accounting.lock();
            let brief = before == Ready::Briefly && {
                let began = accounting.ready_since.unwrap_or(at);
                let took = at.saturating_duration_since(began);
                accounting.learnt_grace.map_or_else(|| accounting.brief.judge(took), |grace| took < grace)
            };
            let since = accounting.idle_since.filter(|_| brief).unwrap_or(at);
            accounting.idle_since = Some(since);
            accounting.preludes.turned_idle(by_program);
            self.state.asks.store(accounting.preludes.is_open(), Ordering::Relaxed);
            drop(accounting);
            let worked = self.hot.flight.worked.completed();
            let done = Done { direct: self.direct_launches(), deferred: pending.appended, worked };
            self.core.observer.turned_idle(self.id, self.tag, since, done);
        }
        drop(pending);
    }

    /// Returns what the completion of the launch that the caller is about to make will prove. Call it only
    /// inside a call that this queue makes or lets through under the submit lock: then no other launch comes
    /// between.
    pub fn evidence(self: &Arc<Self>) -> Completion {
        Completion {
            own: (self.clone(), self.begin_sync().and_next()),
            dependencies: self.snapshot_dependencies(),
        }
    }

    /// Returns the snapshots for which the next launch waits by the default-stream rule, as far as they are
    /// not known to be complete.
    pub(crate) fn snapshot_dependencies(&self) -> Vec<(Arc<XQueue>, CompletionSnapshot)> {
        let class = match self.class {
            OrderClass::Blocking => OrderClass::Default,
            OrderClass::Default if self.has_foreign_launches() => OrderClass::Blocking,
            _ => return Vec::new(),
        };
        let queues = self.device.queues.read();
        let busy = queues.iter().filter(|other| other.class == class && other.hot.flight.in_flight() != 0);
        busy.map(|other| (other.clone(), other.begin_sync())).collect()
    }

    /// Notes that the launch being made waits on the device for the command of the evidence: once the launch
    /// has completed, so has that command. Call it only where [`XQueue::evidence`] may be called.
    pub fn follow(&self, evidence: Arc<Completion>) {
        self.reconcile();
        let index = self.hot.flight.launched() + 1;
        let mut device_waits = self.device_waits.lock();
        if device_waits.len() == MOST {
            device_waits.remove(0);
        }
        device_waits.push(DeviceWait { index, evidence });
        self.has_device_waits.store(true, Ordering::Release);
    }

    /// Completes everything for which the completed commands of this queue have waited on the device.
    pub(crate) fn reconcile(&self) {
        if !self.has_device_waits.load(Ordering::Acquire) {
            return;
        }
        let completed = self.hot.flight.completed();
        let mut device_waits = self.device_waits.lock();
        let open = device_waits.iter().position(|wait| wait.index > completed).unwrap_or(device_waits.len());
        let complete: Vec<DeviceWait> = device_waits.drain(..open).collect();
        self.has_device_waits.store(!device_waits.is_empty(), Ordering::Release);
        drop(device_waits);
        for wait in complete {
            wait.evidence.complete();
        }
    }

    /// Returns true if everything submitted to this queue is known to have completed. Makes no call to the
    /// hardware. The queue may count as ready for a moment longer.
    pub fn is_known_complete(&self) -> bool {
        // In this order: a command is in flight before it leaves pending.
        self.frontier() == Ticket::NONE && self.hot.flight.in_flight() == 0
    }
}
