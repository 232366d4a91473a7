//! Admission: the limit of the next command, room in the window, and the accounting of a launch. Both the
//! direct path and the launch of pending commands pass through here.

use crate::config::LaunchConfig;
use crate::estimate::Estimate;
use crate::hw::CostKey;
use crate::ids::Ticket;
use crate::limit::{Limit, Limited};
use crate::state::flight::CompletionSnapshot;
use crate::state::queue::{Submit, XQueue};
use crate::sync::{Ordering, now, spin_hint};

/// Attempts at a lock that another thread holds, before a command is deferred: about a microsecond.
pub(crate) const RETRIES: u32 = if cfg!(loom) { 0 } else { 25 };

/// The share of the budget above which a command may take all of it. With shorter commands the worker would wake more often.
const LONG: (u64, u64) = (2, 5);
/// The time in nanoseconds for a sleep between two launches and for the least launch-ahead.
const SLEEP: u64 = 80_000;

impl XQueue {
    /// Returns the limit under which the next command of this key would be launched.
    pub(crate) fn limit(&self, key: CostKey) -> Limited {
        let budget = self.budget()?;
        let config = self.launch_config();
        let (cost, placed, known) = match config {
            LaunchConfig::Fixed { .. } => (0, key, None),
            LaunchConfig::Adaptive => {
                let estimates = &self.device.estimates;
                let placed = self.hot.flight.placed(key);
                let known = estimates.get(placed).or_else(|| estimates.get(key));
                let again = |known: Estimate| self.hot.flight.is_restudied(known, budget);
                let known = known.map(|known| Estimate { fresh: known.fresh || again(known), ..known });
                (known.map_or(budget, |known| self.cost(known, budget)), placed, known)
            }
        };
        Some(Limit { config, budget, cost, placed, known })
    }

    /// Returns the share of this budget that a command with this estimate takes. It takes all of it if the worker can sleep while the
    /// command runs and still launch the next one in time. A second long command in flight would then gain nothing.
    fn cost(&self, known: Estimate, budget: u64) -> u64 {
        let (part, of) = LONG;
        let late = self.device.lateness.load(Ordering::Relaxed);
        if known.nanos > (budget / of * part).max(late + SLEEP) { budget } else { known.nanos.min(budget) }
    }

    pub(crate) fn has_room(&self, submit: &Submit<'_>, limited: Limited) -> bool {
        limited.is_none_or(|limit| self.hot.flight.has_room(submit, limit))
    }

    /// Returns true if the window has room. Polls the markers if it seems full.
    pub(crate) fn make_room(&self, submit: &Submit<'_>, limited: Limited) -> bool {
        if self.has_room(submit, limited) {
            return true;
        }
        // Another thread may be polling, and through in a moment. The number of attempts is bounded.
        for _ in 0..=RETRIES {
            let polled = self.poll_markers(true).polled;
            if self.has_room(submit, limited) {
                return true;
            }
            if polled {
                break;
            }
            spin_hint();
        }
        limited.is_some_and(|limit| self.finds_room(submit, limit))
    }

    /// Returns true if a command may be launched although the window is full by what is known to have
    /// completed. If that cannot be foreseen, makes sure that the completion of what is in flight will be
    /// seen.
    pub(crate) fn finds_room(&self, submit: &Submit<'_>, limit: Limit) -> bool {
        // Work whose completion is unobservable must not fill the window.
        self.hot.flight.foresees_room(submit, limit).unwrap_or_else(|| !self.ensure_marker(submit))
    }

    /// Returns true if a command may be launched into a full window because a thread waits for it (`waits`:
    /// the caller itself) that may be the only one which can bring what is in flight to its end.
    pub(crate) fn admits_for_waiter(&self, waits: bool) -> bool {
        let is_awaited = || {
            self.awaited.load(Ordering::SeqCst) != Ticket::NONE.0 || self.pending.lock().waiting_for_room != 0
        };
        let flight = &self.hot.flight;
        (waits || is_awaited()) && (flight.is_open() || self.stall.lock().is_over(flight.completed(), now()))
    }

    /// Polls the markers for a command that waits for room.
    pub(crate) fn poll_for(&self, submit: &Submit<'_>, limit: Limit) -> bool {
        let progress = self.poll(true);
        self.hot.flight.judge_launch_ahead(submit, limit);
        progress
    }

    /// Ends the interval of what was launched so far, before a launch under this limit, if the command is to
    /// have its own, or if the queue was suspended: an interval with a pause in it would teach too long a time.
    pub(crate) fn separate(&self, submit: &Submit<'_>, limited: Limited) {
        let Some(limit) = limited else { return };
        let (flight, studied) = (&self.hot.flight, limit.is_studied());
        let resumed = limit.config == LaunchConfig::Adaptive && flight.was_suspended();
        if !studied && !resumed {
            return;
        }
        let alone = flight.in_flight() == 0;
        if !alone && flight.is_unmarked() && !self.has_foreign_launches() {
            // A default queue among blocking ones gets a marker at each launch, and none later.
            self.record(submit);
        }
        if resumed {
            flight.interrupt(now());
        }
        if alone && studied {
            flight.note_unstarted(submit);
        }
    }

    /// Accounts for a successful launch and records a marker where one is due.
    #[inline]
    pub(crate) fn count(&self, submit: &Submit<'_>, ticket: Ticket, key: CostKey, limited: Limited) {
        self.hot.last_ticket.store(ticket.0, Ordering::Release);
        let flight = &self.hot.flight;
        match limited {
            None => {
                if flight.count_free(submit) {
                    self.record(submit);
                    // No other thread polls while nothing is limited: the markers must not pile up.
                    self.poll(true);
                }
            }
            Some(limit) => {
                let due = flight.count_limited(submit, limit, key);
                // A default queue among others cannot get a marker later without serializing them.
                if due || self.has_foreign_launches() {
                    self.record(submit);
                }
            }
        }
    }

    /// Accounts for a call that has completed itself and everything in front of it; `before` was taken before
    /// the call.
    pub(crate) fn count_completed(&self, submit: &Submit<'_>, ticket: Ticket, before: CompletionSnapshot) {
        self.hot.last_ticket.store(ticket.0, Ordering::Release);
        // No marker, even if one is due: nothing is left that it could show.
        let _ = self.hot.flight.count_free(submit);
        self.hot.flight.complete_through(submit, before);
    }
}
