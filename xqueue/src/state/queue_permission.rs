//! The permissions of one queue: the process permission as far as it covers the queue, and the queue's own.
//! Writing them takes no lock of the launch path.

use crate::config::nanos;
use crate::ids::Ticket;
use crate::permission::{Permission, QueuePermission, Window};
use crate::state::queue::XQueue;
use crate::sync::Ordering;

impl XQueue {
    /// Returns the process permission as it applies to this queue, whose own permission word is `own`.
    #[inline]
    pub(crate) fn process_permission(&self, own: u64) -> Permission {
        if own & QueuePermission::UNCOVERED == 0 {
            let process = self.core.permission.load();
            if process.is_partial() && self.core.in_share.load(Ordering::SeqCst) {
                process.within_share()
            } else {
                process
            }
        } else {
            Permission::unlimited()
        }
    }

    /// Returns true if a window limits the queue at present.
    pub(crate) fn is_limited(&self) -> bool {
        let own = self.state.permission.load();
        self.process_permission(own).limit() || own & QueuePermission::LIMIT != 0
    }

    /// Returns the estimated time that the window admits at present, in nanoseconds; none without a limit.
    pub(crate) fn budget(&self) -> Option<u64> {
        let own = self.state.permission.load();
        let process = self.process_permission(own);
        let nanos = |window: Window| window.time().map_or(self.core.budget, nanos);
        let of_process = process.limit().then(|| nanos(process.window()));
        let of_queue = (own & QueuePermission::LIMIT != 0).then(|| nanos(QueuePermission::window(own)));
        // Each limited launch comes here: an iterator over both costs it 30 instructions more.
        let budget = match (of_process, of_queue) {
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other)?,
        };
        Some(budget.max(self.core.least_budget.load(Ordering::Relaxed)))
    }

    /// Returns true if the permissions, inheritance included, let a command with this ticket be launched.
    pub(crate) fn may_launch(&self, ticket: Ticket) -> bool {
        let own = self.state.permission.load();
        self.process_permission(own).run()
            && (QueuePermission::runs(own) || ticket.0 < self.inherit.load(Ordering::Acquire))
    }

    /// Returns true if launches are permitted at this moment, inheritance aside.
    pub fn may_run(&self) -> bool {
        let own = self.state.permission.load();
        self.process_permission(own).run() && QueuePermission::runs(own)
    }

    /// Accounts for a change of a permission.
    pub(crate) fn note_permission(&self) {
        let mut accounting = self.accounting.lock();
        // Read under the lock: the last to note sees the last change.
        if accounting.note(!self.may_run()) {
            self.hot.flight.note_suspension();
        }
    }

    /// Returns true if the program suspends the queue.
    pub fn is_suspended(&self) -> bool {
        self.state.permission.has(QueuePermission::PROGRAM)
    }

    /// Sets whether the local policy lets this queue run. Independent of a suspension by the program.
    pub fn set_policy_run(&self, run: bool) {
        self.state.permission.set(QueuePermission::POLICY, !run);
        self.note_permission();
        if run {
            self.wake();
        }
    }

    /// Sets the local policy's window for this queue. It counts even where the process permission has no
    /// limit, or a wider one.
    pub fn set_policy_limit(&self, limit: Option<Window>) {
        if self.state.permission.set_limit(limit) {
            // There may be more room than before.
            self.wake();
        }
    }

    /// Sets whether the process permission covers this queue. An uncovered queue is suspended and limited
    /// only by its own permission.
    pub fn set_covered(&self, covered: bool) {
        self.state.permission.set(QueuePermission::UNCOVERED, !covered);
        self.note_permission();
        self.wake();
    }
}
