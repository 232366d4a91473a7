//! In-order launches: a command whose arguments cannot be copied is launched by its own thread when
//! everything in front of it is launched. Also the launch out of order, for user callbacks, where nothing may
//! wait.

use crate::error::{HwResult, SubmitError};
use crate::hw::{Footprint, How};
use crate::ids::Ticket;
use crate::limit::Limited;
use crate::path::launch::Next;
use crate::path::order::CommandSpec;
use crate::state::pending::Work;
use crate::state::queue::{Submit, XQueue};
use crate::state::ready::Turning;
use crate::sync::{Ordering, store_load_barrier};
use crate::threads::backoff::Backoff;

/// The result of [`XQueue::try_in_order`].
enum InOrder<'q> {
    /// The command is at the front and may be launched; `finish` follows.
    Mine(Submit<'q>, Limited),
    Dropped,
    Full,
    Blocked,
}

impl XQueue {
    /// Waits, holding nothing, until everything in front of the command is launched, and makes the call on
    /// this thread. For a command whose arguments cannot be copied. `call` runs under the submit lock, as on
    /// the direct path.
    pub fn submit_in_order(
        &self,
        spec: &CommandSpec<'_>,
        call: impl FnOnce() -> HwResult,
    ) -> Result<(Ticket, HwResult), SubmitError> {
        let (ticket, _) = self.append(spec, Footprint::default(), Work::InOrder)?;
        let mut backoff = Backoff::new();
        loop {
            let key = self.core.progress.key();
            match self.try_in_order(ticket) {
                InOrder::Mine(submit, limited) => {
                    if !spec.completes {
                        self.separate(&submit, limited);
                    }
                    let snapshot = self.begin_sync();
                    let dependencies = if spec.completes { self.snapshot_dependencies() } else { Vec::new() };
                    let traced_at = self.traced_at();
                    let result = call();
                    if result.is_ok() {
                        self.hot.deferred_launched.fetch_add(1, Ordering::Release);
                        if spec.completes {
                            self.count_completed(&submit, ticket, snapshot);
                        } else {
                            self.count(&submit, ticket, spec.key, limited);
                            if spec.open {
                                self.hot.flight.note_open(&submit);
                            }
                        }
                        if let Some(at) = traced_at {
                            self.trace_launch(at, How::InOrder, spec.subject);
                        }
                    }
                    self.finish();
                    drop(submit);
                    self.hand_on();
                    if spec.completes {
                        self.trace_completed();
                        self.completed_through(&result, &dependencies);
                    }
                    return Ok((ticket, result));
                }
                InOrder::Dropped => {
                    self.hand_on();
                    return Err(SubmitError::Dropped);
                }
                InOrder::Full => {
                    if self.poll(false) {
                        backoff.reset();
                    } else {
                        backoff.wait(&self.core.progress, key);
                    }
                }
                InOrder::Blocked => self.wait_for_progress(key),
            }
        }
    }

    /// Makes the call at once, whatever is pending: only for a command that cannot be copied inside a user
    /// callback, where nothing may wait. Does not take the submit lock, because its holder may be waiting,
    /// inside the runtime, for this very callback.
    pub fn launch_unordered(&self, call: impl FnOnce() -> HwResult) -> HwResult {
        let pending = self.pending.lock();
        self.hot.flight.begin_unordered();
        if !self.state.ready.is_full() {
            self.turn_ready(Turning::PLAIN);
        }
        drop(pending);
        let result = call();
        self.hot.flight.end_unordered();
        result
    }

    /// Hands what is pending behind an in-order launch to the worker.
    fn hand_on(&self) {
        let frontier = self.frontier();
        if frontier != Ticket::NONE {
            self.hand_to_worker(frontier);
        }
    }

    /// Checks whether the command with this ticket is at the front and may be launched. Lets the queues run
    /// that its edges wait for.
    fn try_in_order(&self, ticket: Ticket) -> InOrder<'_> {
        let Some(submit) = self.submit_or_register() else {
            return InOrder::Blocked;
        };
        let mut force = false;
        loop {
            match self.next(&submit, Some(ticket), force) {
                Next::Launch(_, limited) => return InOrder::Mine(submit, limited),
                Next::Discard(_) => {
                    self.finish();
                    return InOrder::Dropped;
                }
                Next::Empty | Next::NotMine => {
                    self.awaited.fetch_min(ticket.0, Ordering::SeqCst);
                    store_load_barrier();
                    return match self.frontier() {
                        // It came to the front between the check and the registration.
                        frontier if frontier == ticket && self.may_launch(ticket) => continue,
                        _ => InOrder::Blocked,
                    };
                }
                Next::Waits(edges) => {
                    if self.await_edges(&edges) {
                        return InOrder::Blocked;
                    }
                }
                Next::Full(limit) => match self.make_way(&submit, limit, true) {
                    Some(forced) => force = forced,
                    None => return InOrder::Full,
                },
            }
        }
    }
}
