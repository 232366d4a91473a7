//! Suspend, resume, drop, wait, destroy. Nothing here takes submit: control is atomic words and
//! wake-ups, so that it comes through while a launch blocks inside the runtime.
//!
//! After [`XQueue::suspend`] has returned no launch of the queue begins, except one whose decision
//! was made before (its thread is between the look at the word and the call: at most one, since
//! there is one submit) and those that a running queue waits for. [`SuspendFlags::SYNC_HW_QUEUE`]
//! waits for that one as well.

use std::ops::BitOr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::config::{QueueConfig, TestMode};
use crate::error::HwResult;
use crate::lease::SILENCE;
use crate::order::Ticket;
use crate::permission::{OwnWord, Window};
use crate::queue::XQueue;
use crate::sync::{now, spin_hint};
use crate::worker::Backoff;

/// Flags of [`XQueue::suspend`]; the values are those of `XQueueSuspendFlag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SuspendFlags(u32);

impl SuspendFlags {
    /// Only suspends.
    pub const NONE: Self = Self(0);
    /// After suspending, waits until everything launched has completed.
    pub const SYNC_HW_QUEUE: Self = Self(1);
    /// Before suspending, waits until everything submitted so far has completed.
    pub const WAIT_ALL: Self = Self(2);
    /// Before suspending, waits until the queue is idle.
    pub const WAIT_IDLE: Self = Self(4);

    /// From the bits of the C interface; unknown bits are ignored.
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

/// Flags of [`XQueue::resume`]; the values are those of `XQueueResumeFlag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResumeFlags(u32);

impl ResumeFlags {
    /// Only resumes.
    pub const NONE: Self = Self(0);
    /// What is pending at this moment is discarded instead of launched. What is in flight completes.
    pub const DROP_COMMANDS: Self = Self(1);

    /// From the bits of the C interface; unknown bits are ignored.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & 1)
    }
}

impl XQueue {
    /// One more suspension of the application; the queue runs again after as many resumptions.
    ///
    /// The flags that wait do so holding nothing, and first: a queue that is already suspended with
    /// work pending keeps them waiting until somebody else resumes it.
    pub fn suspend(&self, flags: SuspendFlags) {
        if flags.has(SuspendFlags::WAIT_ALL) {
            self.wait_completed(self.core.tickets.bound());
        }
        if flags.has(SuspendFlags::WAIT_IDLE) {
            self.wait_until(|queue| !queue.is_ready());
        }
        self.state.own.count_up();
        self.note_permission();
        if flags.has(SuspendFlags::SYNC_HW_QUEUE) {
            // Whoever takes submit from here on sees the suspension.
            self.wait_until(|queue| !queue.hot.submit.is_held());
            self.wait_flight();
        }
    }

    /// One suspension of the application less; without one it changes nothing but what the flags say.
    pub fn resume(&self, flags: ResumeFlags) {
        if flags == ResumeFlags::DROP_COMMANDS {
            self.drop_below.fetch_max(self.core.tickets.bound().0, Ordering::AcqRel);
        }
        self.state.own.count_down();
        self.note_permission();
        self.wake();
    }

    /// How many suspensions of the application are open.
    pub fn suspend_count(&self) -> u16 {
        self.state.own.count()
    }

    /// The in-process policy's word on this queue: whether it runs. Independent of the application's.
    pub fn set_policy_run(&self, run: bool) {
        self.state.own.set(OwnWord::POLICY, !run);
        self.note_permission();
        if run {
            self.wake();
        }
    }

    /// The in-process policy's word on this queue: the window that counts even where the gang's
    /// permission has no limit, or a wider one.
    pub fn set_policy_limit(&self, limit: Option<Window>) {
        if self.state.own.set_limit(limit) {
            // There may be more room than before.
            self.wake();
        }
    }

    /// Whether launches are permitted at this moment, inheritance aside.
    pub fn may_run(&self) -> bool {
        let own = self.state.own.load();
        self.gate(own).run() && OwnWord::runs(own)
    }

    /// Whether the gang's permission covers this queue. One that it does not cover is held and limited by nothing but
    /// what is said to the queue itself.
    pub fn set_covered(&self, covered: bool) {
        self.state.own.set(OwnWord::FREE, !covered);
        self.note_permission();
        self.wake();
    }

    /// Waits, holding nothing, until everything submitted to this queue with a ticket below `before`
    /// is launched, failed, or dropped. On a suspended queue that is after its resumption.
    pub fn wait_launched(&self, before: Ticket) {
        // The common case takes no lock.
        if self.frontier() >= before {
            return;
        }
        loop {
            let key = self.core.progress.key();
            if !self.want_launched(before, false) {
                return;
            }
            self.device.stand_in_for_watcher(&self.core);
            self.core.progress.wait_and_look(key, SILENCE);
        }
    }

    /// Waits until everything submitted with a ticket below `before`, and whatever was launched until
    /// then, is known to have completed. While a watcher runs it makes no call to the hardware, but for
    /// a default queue among blocking ones.
    pub fn wait_completed(&self, before: Ticket) {
        self.wait_launched(before);
        self.wait_flight();
    }

    /// Waits until what is in flight now has completed.
    fn wait_flight(&self) {
        let launched = self.hot.flight.snapshot();
        if self.has_foreign_launches() {
            self.look();
            if self.hot.flight.is_unmarked() {
                // No mark may show it. A synchronisation may: it queues nothing behind the others.
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

    /// `XQueueWaitAll`: waits until everything submitted so far is launched, then synchronizes the
    /// hardware queue on this thread. While the queue is suspended with work pending it waits for the
    /// resumption. Returns the error of the synchronisation, else the sticky error of the queue.
    pub fn wait_all(&self) -> HwResult {
        self.wait_launched(self.core.tickets.bound());
        let wait = self.begin_wait();
        self.hw.synchronize()?;
        wait.succeeded();
        self.take_error().map_or(Ok(()), Err)
    }

    /// Ends the queue: what is pending is launched (`discard` off) or discarded, its own suspensions
    /// no longer count (the gang's still does), and afterwards every submission is refused. Waits
    /// holding nothing. The hardware queue is not synchronized, and no longer used afterwards: it may be destroyed.
    /// Doing it twice is harmless.
    pub fn destroy(&self, discard: bool) {
        if discard {
            self.drop_below.store(u64::MAX, Ordering::Release);
        }
        self.state.own.set(OwnWord::CLOSING, true);
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
        self.state.own.set(OwnWord::CLOSED, true);
        // Whoever takes submit from here on sees that, and leaves the hardware queue alone.
        self.wait_until(|queue| !queue.hot.submit.is_held());
        // Callers that waited for room learn that there will be none.
        self.room.notify_all();
        self.device.remove(self);
        while !self.hot.flight.release_all(&*self.hw) {
            spin_hint();
        }
    }

    /// Gives all marks back to the hardware layer, which is about to lose them. The caller has seen to it that everything
    /// launched is known to have completed, and that nothing is launched meanwhile.
    pub fn release_marks(&self) {
        while self.hot.flight.in_flight() == 0 && self.hot.flight.has_marks() {
            self.poll(false);
            spin_hint();
        }
    }

    /// Waits until nobody makes or queries a mark any more, because something comes to the hardware queue that no mark must
    /// meet. The caller has seen to it that everything launched is known to have completed, and that nothing is launched
    /// meanwhile.
    pub fn rest(&self) {
        // Whoever takes submit from here on sees that there is nothing to mark.
        self.wait_until(|queue| !queue.hot.submit.is_held());
        // And whoever looks at marks from here on, that there are none: one that is being looked at is there until then.
        self.release_marks();
    }

    /// Whether what is in flight can last until the program does something ([`crate::Spec::open`]), so that its completion is
    /// not to be waited for.
    pub fn is_open(&self) -> bool {
        self.hot.flight.is_open()
    }

    /// The same as [`XQueue::rest`] where what is in flight is not to be waited for: gives all marks back unseen, and no other is
    /// made of what has been launched until [`XQueue::allow_marks`].
    pub fn forsake_marks(&self) {
        self.wait_until(|queue| {
            let submit = queue.try_submit();
            submit.inspect(|submit| queue.hot.flight.forsake(submit)).is_some()
        });
        while !self.hot.flight.release_all(&*self.hw) {
            spin_hint();
        }
    }

    /// Marks meet nothing any more that they must not meet. The watcher makes one for what has none.
    pub fn allow_marks(&self) {
        self.hot.flight.allow_marks();
    }

    /// Begins anew after [`XQueue::destroy`]: its hardware queue stands for another one, with nothing in flight. False:
    /// it was not destroyed. Name, class, device and counters stay.
    pub(crate) fn reopen(&self, config: &QueueConfig) -> bool {
        let submit = loop {
            // Only the watcher may have it, for a moment, and only to see that the queue is closed.
            match self.try_submit() {
                Some(submit) => break submit,
                None => spin_hint(),
            }
        };
        let mut pending = self.pending.lock();
        if !std::mem::replace(&mut pending.closed, false) {
            return false;
        }
        self.hot.flight.restart(&submit);
        self.follows.lock().clear();
        self.has_follows.store(false, Ordering::Release);
        self.sticky.store(0, Ordering::Release);
        self.drop_below.store(0, Ordering::Release);
        self.launch_config.store(config.launch.pack(), Ordering::Relaxed);
        self.priority.store(config.priority, Ordering::Relaxed);
        drop(pending);
        self.state.own.restart(config.covered);
        drop(submit);
        self.note_permission();
        self.try_idle();
        true
    }

    /// Waits for something that only the marks can show.
    fn wait_until(&self, done: impl Fn(&XQueue) -> bool) {
        let mut backoff = Backoff::new();
        while !done(self) {
            let key = self.core.progress.key();
            if self.core.watcher.is_running() {
                self.core.watcher.arm(&self.core);
            }
            if !self.core.watcher.is_running() || self.core.watcher.is_absent(self.core.epoch.of(now())) {
                self.look();
            }
            backoff.wait(&self.core.progress, key);
        }
    }

    /// One look for completion and idleness: a mark behind the tail if there is none and nobody waits inside the runtime, a poll.
    pub(crate) fn look(&self) {
        let flight = &self.hot.flight;
        if flight.is_recoverable()
            && let Some(submit) = self.try_submit()
        {
            flight.recover(&submit);
        }
        if flight.is_unmarked()
            && let Some(submit) = self.try_submit()
            // Again: between the two everything may have completed, and somebody rely on it ([`XQueue::rest`]).
            && flight.is_unmarked()
            && !self.is_awaited_inside()
        {
            self.mark_tail(&submit);
        }
        self.poll(false);
        self.try_idle();
    }

    /// Whether somebody waits inside the runtime for what is in flight ([`crate::Wait`]).
    pub(crate) fn is_awaited_inside(&self) -> bool {
        self.waits.load(Ordering::Acquire) != 0
    }

    /// The chaos test: submissions hold their queue at random, for so many looks of the watcher.
    pub(crate) fn chaos_step(&self, deferred: u64) {
        if !matches!(self.core.config.test, TestMode::Chaos(_)) || !self.core.watcher.is_running() {
            return;
        }
        let mut seed = self.chaos.load(Ordering::Relaxed);
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        self.chaos.store(seed, Ordering::Relaxed);
        if deferred == 1 || seed.is_multiple_of(8) {
            self.state.own.set(OwnWord::CHAOS, true);
            self.note_permission();
            self.core.watcher.arm(&self.core);
        }
    }

    /// The watcher's part of it: one look in eight lets the queue go.
    pub(crate) fn chaos_release(&self) {
        if self.state.own.has(OwnWord::CHAOS) {
            let mut seed = self.chaos.load(Ordering::Relaxed);
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) | 1;
            self.chaos.store(seed, Ordering::Relaxed);
            if (seed >> 32).is_multiple_of(8) {
                self.state.own.set(OwnWord::CHAOS, false);
                self.note_permission();
                self.wake();
            }
        }
    }
}

/// Shortest pause of a watcher that looks after a limited queue.
pub(crate) const QUIET: Duration = Duration::from_micros(100);
