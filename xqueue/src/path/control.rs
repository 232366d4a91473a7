//! Control of a queue: suspend, resume, drop, wait, destroy. Nothing here takes the submit lock: control is
//! atomic words and wake-ups, so that it comes through while a launch blocks inside the runtime.
//!
//! After [`XQueue::suspend`] has returned no launch of the queue begins, except those that a running queue
//! waits for, and at most one that was decided before: there is one submit lock, and its holder may be
//! between the check of the word and the call. [`SuspendFlags::SYNC_HW_QUEUE`] waits for that one as well.

use std::ops::BitOr;

use crate::error::HwResult;
use crate::ids::Ticket;
use crate::permission::QueuePermission;
use crate::state::flight::CompletionSnapshot;
use crate::state::queue::XQueue;
use crate::sync::{Ordering, now, spin_hint};
use crate::threads::backoff::Backoff;

/// The flags of [`XQueue::suspend`]; the values are those of `XQueueSuspendFlag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SuspendFlags(u32);

impl SuspendFlags {
    /// Suspends without waiting.
    pub const NONE: Self = Self(0);
    /// After suspending, waits until everything launched has completed.
    pub const SYNC_HW_QUEUE: Self = Self(1);
    /// Before suspending, waits until everything submitted so far has completed.
    pub const WAIT_ALL: Self = Self(2);
    /// Before suspending, waits until the queue is idle.
    pub const WAIT_IDLE: Self = Self(4);

    /// Converts the bits of the C interface; unknown bits are ignored.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & 7)
    }

    fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

impl BitOr for SuspendFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The flags of [`XQueue::resume`]; the values are those of `XQueueResumeFlag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResumeFlags(u32);

impl ResumeFlags {
    /// Resumes and launches what is pending.
    pub const NONE: Self = Self(0);
    /// Discards what is pending at this moment instead of launching it. What is in flight completes.
    pub const DROP_COMMANDS: Self = Self(1);

    /// Converts the bits of the C interface; unknown bits are ignored.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & 1)
    }
}

/// The commands that were submitted to a queue before [`XQueue::work_so_far`] was called. The default has no commands.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// Its commands have tickets below this one; `None` once all of them are launched.
    before: Option<Ticket>,
    /// The launches that must complete; `None` until all commands are launched.
    launched: Option<CompletionSnapshot>,
}

impl XQueue {
    /// Returns the commands that were submitted to this queue so far.
    pub fn work_so_far(&self) -> Work {
        let before = self.core.tickets.bound();
        let mut work = Work { before: Some(before), launched: None };
        self.note_launched(&mut work);
        work
    }

    /// Returns true if the work is known to have completed, or was dropped. Launches soon after the work may have to complete
    /// as well. The work must be that of this queue.
    pub fn has_completed(&self, work: &mut Work) -> bool {
        self.note_launched(work);
        work.before.is_none() && work.launched.is_none_or(|launched| self.hot.flight.covers(launched))
    }

    fn note_launched(&self, work: &mut Work) {
        if work.before.is_some_and(|before| self.frontier() >= before) {
            // Read after the frontier, so that it includes every launch before that.
            *work = Work { before: None, launched: Some(self.hot.flight.snapshot()) };
        }
    }

    /// Suspends the queue for the program. Suspensions do not count: one resumption ends them all.
    ///
    /// The flags that wait before the suspension do so holding nothing. They have no effect on a queue that is suspended
    /// already, because what is pending there may complete only after a resumption.
    pub fn suspend(&self, flags: SuspendFlags) {
        if !self.is_suspended() {
            if flags.has(SuspendFlags::WAIT_ALL) {
                self.wait_completed(self.core.tickets.bound());
            }
            if flags.has(SuspendFlags::WAIT_IDLE) {
                self.wait_until(|queue| !queue.is_ready() || queue.is_known_complete());
            }
        }
        self.state.permission.set(QueuePermission::PROGRAM, true);
        self.note_permission();
        if flags.has(SuspendFlags::SYNC_HW_QUEUE) {
            // A thread that takes the submit lock from here on sees the suspension.
            self.wait_until(|queue| !queue.hot.submit.is_held());
            self.wait_flight();
        }
    }

    /// Ends the suspension by the program. Without one only the flags have an effect.
    pub fn resume(&self, flags: ResumeFlags) {
        if flags == ResumeFlags::DROP_COMMANDS {
            self.drop_below.fetch_max(self.core.tickets.bound().0, Ordering::AcqRel);
        }
        self.state.permission.set(QueuePermission::PROGRAM, false);
        self.note_permission();
        self.wake();
    }

    /// Waits, holding nothing, until everything submitted to this queue with a ticket below `before` is
    /// launched, failed, or dropped. On a suspended queue that is after its resumption.
    pub fn wait_launched(&self, before: Ticket) {
        if self.frontier() >= before {
            return;
        }
        loop {
            let key = self.core.progress.key();
            if !self.register_waiter(before, false) {
                return;
            }
            self.wait_for_progress(key);
        }
    }

    /// Waits until everything submitted with a ticket below `before`, and all that was launched until then,
    /// is known to have completed. While a watcher runs this makes no call to the hardware, except for a
    /// default queue among blocking ones.
    pub fn wait_completed(&self, before: Ticket) {
        self.wait_launched(before);
        self.wait_flight();
    }

    /// Waits until what is in flight now has completed.
    fn wait_flight(&self) {
        let launched = self.hot.flight.snapshot();
        if self.has_foreign_launches() {
            self.check_completion();
            if self.hot.flight.is_unmarked() {
                // No marker may show it. A synchronisation may: it queues nothing behind the other queues.
                let wait = self.begin_wait();
                let result = self.hw.synchronize();
                self.synced(launched);
                drop(wait);
                if let Err(error) = result {
                    self.keep_error(error);
                }
            }
        }
        self.wait_until(|queue| queue.hot.flight.covers(launched));
    }

    /// Waits until everything submitted so far is launched, then synchronizes the hardware queue on this
    /// thread (`XQueueWaitAll`). While the queue is suspended with work pending it waits for the resumption.
    /// Returns the error of the synchronisation, otherwise the sticky error of the queue.
    pub fn wait_all(&self) -> HwResult {
        self.wait_launched(self.core.tickets.bound());
        let wait = self.begin_wait();
        self.hw.synchronize()?;
        wait.succeeded();
        self.take_error().map_or(Ok(()), Err)
    }

    /// Ends the queue. What is pending is launched, or discarded if `discard` is set; its own suspensions no
    /// longer count (that of the process still does); afterwards every submission is refused. Waits holding
    /// nothing. The hardware queue is not synchronized, and no longer used afterwards: it may be destroyed. A
    /// second call is harmless.
    pub fn destroy(&self, discard: bool) {
        if discard {
            self.drop_below.store(u64::MAX, Ordering::Release);
        }
        self.state.permission.set(QueuePermission::CLOSING, true);
        self.note_permission();
        self.wake();
        loop {
            self.wait_launched(self.core.tickets.bound());
            let mut pending = self.pending.lock();
            if self.frontier() == Ticket::NONE {
                pending.close();
                break;
            }
        }
        self.state.permission.set(QueuePermission::CLOSED, true);
        // A thread that takes the submit lock from here on sees that, and leaves the hardware queue alone.
        self.wait_until(|queue| !queue.hot.submit.is_held());
        // Callers that wait for room learn that there will be none.
        self.room.notify_all();
        self.device.remove(self);
        while !self.hot.flight.release_all(&*self.hw) {
            spin_hint();
        }
    }

    /// Gives all markers back to the hardware layer, which is about to lose them. The caller has made sure
    /// that everything launched is known to have completed, and that nothing is launched meanwhile.
    pub fn release_markers(&self) {
        while self.hot.flight.in_flight() == 0 && self.hot.flight.has_markers() {
            self.poll(false);
            spin_hint();
        }
    }

    /// Waits until no thread makes or queries a marker, because something comes to the hardware queue that no
    /// marker must meet. The caller has made sure that everything launched is known to have completed, and
    /// that nothing is launched meanwhile.
    pub fn rest(&self) {
        // A thread that takes the submit lock from here on sees that there is nothing to mark.
        self.wait_until(|queue| !queue.hot.submit.is_held());
        // A thread that polls from here on finds no marker; the one that is polled now exists until the end
        // of that poll.
        self.release_markers();
    }

    /// Returns true if what is in flight can last until the program does something ([`crate::CommandSpec::open`]),
    /// so that its completion must not be waited for.
    pub fn is_open(&self) -> bool {
        self.hot.flight.is_open()
    }

    /// Gives all markers back unseen, like [`XQueue::rest`] but without waiting for what is in flight. Until
    /// [`XQueue::allow_markers`] no marker is recorded for what has been launched.
    pub fn abandon_markers(&self) {
        self.wait_until(|queue| {
            let submit = queue.try_submit();
            submit.inspect(|submit| queue.hot.flight.abandon(submit)).is_some()
        });
        while !self.hot.flight.release_all(&*self.hw) {
            spin_hint();
        }
    }

    /// Permits markers again. The watcher records one for what has none.
    pub fn allow_markers(&self) {
        self.hot.flight.allow_markers();
    }

    /// Waits for something that only markers can show.
    fn wait_until(&self, done: impl Fn(&XQueue) -> bool) {
        let mut backoff = Backoff::new();
        while !done(self) {
            let key = self.core.progress.key();
            if self.core.watcher.is_running() {
                self.core.arm_watcher();
            }
            if !self.core.watcher.is_running() || self.core.watcher.is_absent(self.core.epoch.of(now())) {
                self.check_completion();
            }
            backoff.wait(&self.core.progress, key);
        }
    }
}
