//! The work that threads do for each other. No thread of the library is indispensable: a program can have one
//! ended by a filter for system calls, or block it.
//!
//! * The scheduling thread suspends queues for a lease ([`crate::Domain::renew_policy_lease`]), which it renews. A
//!   thread that checks the queues anyway sees the lease expire and lets all of them run.
//! * The watcher launches in place of a worker that does not respond (`threads/watcher.rs`).
//! * In place of a watcher that does not respond, a worker that may not launch checks for completion, and so
//!   does a waiting thread of the program.
//! * Where no worker can be started, submitting threads launch.

use std::time::Duration;

use crate::ids::Ticket;
use crate::path::launch::Stop;
use crate::permission::QueuePermission;
use crate::state::device::{Core, Device};
use crate::state::lease::UNRESPONSIVE_AFTER;
use crate::state::queue::XQueue;
use crate::sync::{Key, now};
use crate::threads::backoff::Backoff;

/// The longest sleep of a thread that does the work of one that could not be started.
pub(crate) const STANDIN_PERIOD: Duration = Duration::from_millis(1);

impl Core {
    /// Lets every queue run that the local policy suspends, if the policy's lease has expired at this moment.
    pub(crate) fn end_policy_lease(&self, at: u64) {
        if !self.lease.expires(at) {
            return;
        }
        // A policy that suspends nothing has nothing to renew.
        let mut suspended = false;
        self.for_each_queue(|queue| {
            if queue.state.permission.has(QueuePermission::POLICY) {
                suspended = true;
                queue.set_policy_run(true);
            }
        });
        if suspended && self.lease.note_expired() {
            tracing::warn!(
                "the thread that schedules this program's queues does not answer: they run unscheduled until it does"
            );
        }
    }
}

impl Device {
    /// Does the watcher's work for this device if the watcher is missing or does not respond: ends an expired
    /// lease and checks for completion and idleness. Returns true if it did.
    pub(crate) fn stand_in_for_watcher(&self, core: &Core) -> bool {
        let at = core.epoch.of(now());
        let absent = core.watcher.is_absent(at);
        if absent {
            core.end_policy_lease(at);
            self.check_completion();
        }
        absent
    }
}

impl XQueue {
    /// Waits for a notification after `key`, and does the work of a watcher that does not respond.
    pub(crate) fn wait_for_progress(&self, key: Key) {
        self.device.stand_in_for_watcher(&self.core);
        self.core.progress.wait_or_check(key, UNRESPONSIVE_AFTER);
    }

    /// Hands what is pending, up to this ticket, to the worker; launches it on this thread if there is none.
    pub(crate) fn hand_to_worker(&self, ticket: Ticket) {
        if !self.device.wake_worker(&self.core) {
            self.launch_without_worker(ticket);
        }
    }

    /// Does the work of a worker that could not be started. Sleeps between two attempts, as a worker does: a
    /// thread that queries the hardware without a pause keeps the runtime's own threads from reporting
    /// completion.
    pub(crate) fn launch_without_worker(&self, ticket: Ticket) {
        let mut backoff = Backoff::new();
        while self.frontier() <= ticket {
            let key = self.core.progress.key();
            match self.advance(1) {
                Stop::Empty | Stop::More => backoff.reset(),
                Stop::Full => backoff.wait(&self.core.progress, key),
                Stop::Blocked => {
                    self.device.stand_in_for_watcher(&self.core);
                    self.core.progress.wait_at_most(key, STANDIN_PERIOD);
                }
            }
        }
    }
}
