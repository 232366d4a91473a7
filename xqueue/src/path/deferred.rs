//! The deferred path, the submitting side: appends a copy of the command, which the worker launches in order.

use crate::error::SubmitError;
use crate::hw::{Footprint, Traced};
use crate::ids::Ticket;
use crate::path::order::CommandSpec;
use crate::state::pending::Work;
use crate::state::queue::{Item, XQueue};
use crate::state::ready::Turning;
use crate::state::storage::CommandBox;
use crate::sync::Ordering;

impl XQueue {
    /// Appends the command; the worker launches it in order. Waits, holding nothing, while pending is full.
    /// The error of the launch becomes the queue's sticky error.
    pub fn submit(
        &self,
        spec: &CommandSpec<'_>,
        command: impl Into<CommandBox>,
    ) -> Result<Ticket, SubmitError> {
        let command = command.into();
        let footprint = command.footprint();
        let (ticket, first) = self.append(spec, footprint, Work::Command(command))?;
        if first {
            self.hand_to_worker(ticket);
        }
        Ok(ticket)
    }

    /// Appends an item. Returns its ticket, and true if nothing was pending before.
    pub(crate) fn append(
        &self,
        spec: &CommandSpec<'_>,
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
        let first = pending.append(Item {
            ticket,
            key: spec.key,
            subject: spec.subject,
            open: spec.open,
            footprint,
            edges,
            work,
        });
        if first {
            self.hot.frontier.store(ticket.0, Ordering::Release);
            self.core.backlog.fetch_add(1, Ordering::AcqRel);
        }
        if !self.state.ready.is_full() {
            self.turn_ready(Turning::PLAIN);
        }
        if let Some(at) = self.traced_at() {
            self.trace(at, Traced::Submitted { subject: spec.subject });
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
