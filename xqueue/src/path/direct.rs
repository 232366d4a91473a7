//! The direct path: the submitting thread makes the call at once.
//!
//! A caller asks [`XQueue::try_direct`] first. If that returns [`Direct::NotNow`] it copies what the launch
//! needs and calls [`XQueue::submit`]; where the sizes are unknown, [`XQueue::submit_in_order`]; inside a user
//! callback, where nothing may wait, it turns [`CommandSpec::may_wait`] off and calls [`XQueue::launch_unordered`] in
//! place of the latter.
//!
//! A direct launch cannot overtake. It happens under the submit lock, and the frontier, read after the lock
//! was taken, shows that nothing is pending. Items leave pending only under the submit lock and count as
//! pending until they are launched. So "nothing pending" stays true for everything that this thread, or any
//! thread it heard from, had submitted before. A command that another thread appends meanwhile is concurrent
//! with this call, and either order is right.

use crate::error::HwResult;
use crate::hw::How;
use crate::ids::Ticket;
use crate::limit::Limited;
use crate::path::admission::RETRIES;
use crate::path::order::CommandSpec;
use crate::permission::QueuePermission;
use crate::state::queue::{Submit, XQueue};
use crate::state::ready::Turning;
use crate::sync::{Ordering, spin_hint};

/// The result of [`XQueue::try_direct`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Direct {
    /// The call was made and returned this.
    Launched(Ticket, HwResult),
    /// The call was not made and has to be deferred.
    NotNow,
}

impl XQueue {
    /// Makes the call at once, on this thread, with the caller's own arguments, if nothing is pending in
    /// front of it, the queue may run and the window has room. No copy, no allocation, no clock, no waiting.
    /// `call` runs under the submit lock; it must not submit to this queue.
    #[inline]
    pub fn try_direct(&self, spec: &CommandSpec<'_>, call: impl FnOnce() -> HwResult) -> Direct {
        // Check before locking, to avoid contention with the worker. Deferring is always safe.
        if !QueuePermission::may_be_direct(self.state.permission.load()) || self.frontier() != Ticket::NONE {
            return Direct::NotNow;
        }
        let Some(submit) = self.try_submit().or_else(|| self.retry_submit()) else {
            return Direct::NotNow;
        };
        let own = self.state.permission.load();
        let plain = (own == 0 && self.core.permission.load().is_unlimited_run()
            || own == QueuePermission::UNCOVERED)
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
        if !self.state.ready.is_full() {
            self.turn_ready(Turning { brief: spec.brief, key: spec.key, has_submit: true });
        }
        if spec.completes {
            return Direct::Launched(ticket, self.call_through(submit, ticket, spec, call));
        }
        let traced_at = self.traced_at();
        let result = call();
        if result.is_ok() {
            self.count(&submit, ticket, spec.key, limited);
            if spec.open {
                self.hot.flight.note_open(&submit);
            }
            if let Some(at) = traced_at {
                self.trace_launch(at, How::Direct, spec.subject);
            }
        } else {
            self.direct_failed.fetch_add(1, Ordering::Relaxed);
        }
        Direct::Launched(ticket, result)
    }

    /// Tries the submit lock again: its holder may be through in a moment, and copying the command and waking
    /// the worker would cost more. The number of attempts is bounded, so this is no waiting.
    #[cold]
    #[inline(never)]
    fn retry_submit(&self) -> Option<Submit<'_>> {
        for _ in 0..RETRIES {
            spin_hint();
            // The holder may be the worker, with a command that was appended meanwhile.
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
    fn call_through(
        &self,
        submit: Submit<'_>,
        ticket: Ticket,
        spec: &CommandSpec<'_>,
        call: impl FnOnce() -> HwResult,
    ) -> HwResult {
        let (snapshot, dependencies) = (self.begin_sync(), self.snapshot_dependencies());
        let traced_at = self.traced_at();
        let result = call();
        if result.is_ok() {
            self.count_completed(&submit, ticket, snapshot);
            if let Some(at) = traced_at {
                self.trace_launch(at, How::Direct, spec.subject);
                self.trace_completed();
            }
        } else {
            self.direct_failed.fetch_add(1, Ordering::Relaxed);
        }
        drop(submit);
        self.completed_through(&result, &dependencies);
        result
    }

    /// Decides in full whether the command may be launched directly: none if it may not, otherwise its limit.
    #[cold]
    #[inline(never)]
    fn admit(&self, submit: &Submit<'_>, spec: &CommandSpec<'_>) -> Option<Limited> {
        let own = self.state.permission.load();
        let process = self.process_permission(own);
        if !QueuePermission::may_be_direct(own) || !process.run() {
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
        // A command that completes everything ends the interval itself.
        if admitted && !spec.completes {
            self.separate(submit, limited);
        }
        admitted.then_some(limited)
    }
}
