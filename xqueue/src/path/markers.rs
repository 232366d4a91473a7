//! The markers of a queue: recording and polling them. A marker on a default queue serializes it with the
//! blocking queues of the device, so it is recorded there only where it disturbs none of them.

use std::time::Duration;

use crate::ids::{OrderClass, Ticket};
use crate::permission::QueuePermission;
use crate::state::device::Device;
use crate::state::flight::{Lesson, Polled};
use crate::state::queue::{Submit, XQueue};
use crate::sync::Ordering;

impl XQueue {
    /// Polls the markers. Returns true if something completed. `has_submit`: the caller holds the submit
    /// lock.
    pub(crate) fn poll(&self, has_submit: bool) -> bool {
        self.poll_markers(has_submit).progress
    }

    /// Polls the markers and returns all that the poll brought.
    pub(crate) fn poll_markers(&self, has_submit: bool) -> Polled {
        let polled = self.hot.flight.poll(&*self.hw, self.learning(), has_submit);
        if let Some(error) = polled.error {
            self.keep_error(error);
        }
        if polled.progress {
            self.trace_completed();
        }
        polled
    }

    /// Gives back the markers of what a synchronization has shown to be complete. Makes no query.
    pub(crate) fn settle_markers(&self) {
        self.hot.flight.settle(&*self.hw, || self.learning());
    }

    /// Returns how polls learn from times; none while nothing is limited, or while the commands run slowly.
    fn learning(&self) -> Option<Lesson<'_>> {
        if self.core.in_share.load(Ordering::Acquire) {
            return None;
        }
        // Other queues of the device have about as much in flight.
        let others = Duration::from_nanos(self.budget()?);
        Some(Lesson { estimates: &self.device.estimates, others, suspended: !self.may_run() })
    }

    /// Records a marker behind everything launched.
    pub(crate) fn record(&self, submit: &Submit<'_>) {
        let spacing = self.core.marker_spacing.load(Ordering::Relaxed);
        if let Err(error) = self.hot.flight.record(submit, &*self.hw, spacing) {
            self.keep_error(error);
        }
    }

    /// Makes sure that the completion of what is in flight will be seen. Returns false if it cannot be.
    pub(crate) fn ensure_marker(&self, submit: &Submit<'_>) -> bool {
        let flight = &self.hot.flight;
        flight.recover(submit);
        !flight.is_unmarked()
            || !flight.has_no_marker()
            || self.is_awaited_inside()
            || self.record_tail_marker(submit)
    }

    /// Records a marker behind the last launch, unless that would disturb other queues. Returns true if it
    /// did.
    pub(crate) fn record_tail_marker(&self, submit: &Submit<'_>) -> bool {
        if self.state.permission.has(QueuePermission::CLOSED) {
            return false;
        }
        if self.class != OrderClass::Default {
            self.record(submit);
            return true;
        }
        // On the default queue a marker waits for all blocking queues. With their submit locks held none of
        // them can launch between the check and the marker. The locks are only tried, so there is no circle
        // of locks.
        let queues = self.device.queues.read().clone();
        let own = self.hot.last_ticket.load(Ordering::Acquire);
        let (mut held, mut foreign) = (Vec::new(), false);
        for queue in queues.iter() {
            if queue.class == OrderClass::Blocking {
                match queue.try_submit() {
                    Some(submit) => held.push(submit),
                    None => return false,
                }
                if queue.hot.last_ticket.load(Ordering::Acquire) > own {
                    foreign = true;
                    if queue.hot.flight.in_flight() == 0 {
                        // Its last launch waited on the device for all of this queue, and has completed.
                        self.hot.flight.complete_through(submit, self.begin_sync());
                        self.reconcile();
                        return false;
                    }
                }
            }
        }
        if !foreign {
            self.record(submit);
        }
        !foreign
    }

    /// Checks for completion and idleness: records a marker behind the tail if there is none and no thread
    /// waits inside the runtime, and polls.
    pub(crate) fn check_completion(&self) {
        let flight = &self.hot.flight;
        if flight.is_recoverable()
            && let Some(submit) = self.try_submit()
        {
            flight.recover(&submit);
        }
        if flight.is_unmarked()
            && let Some(submit) = self.try_submit()
            // Again: between the two everything may have completed, and a thread rely on it
            // ([`XQueue::rest`]).
            && flight.is_unmarked()
            && !self.is_awaited_inside()
        {
            self.record_tail_marker(&submit);
        }
        self.poll(false);
        self.try_idle(self.is_awaited_inside());
    }

    /// Returns true if a thread waits inside the runtime for what is in flight ([`crate::Wait`]).
    pub(crate) fn is_awaited_inside(&self) -> bool {
        self.waits.load(Ordering::Acquire) != 0
    }

    /// Returns true if everything submitted to this queue is known to have completed. Queries the marker at
    /// the end of the queue, if there is one; makes no other call to the hardware.
    ///
    /// While this returns true the program must not be told that the hardware queue is busy: it could know
    /// better, and only a marker keeps the queue busy.
    pub fn is_complete(&self) -> bool {
        if self.is_known_complete() {
            return true;
        }
        if self.frontier() != Ticket::NONE || self.hot.flight.is_unmarked() {
            return false;
        }
        self.poll(false);
        self.is_known_complete()
    }
}

impl Device {
    /// Checks all ready queues of the device for completion and idleness, on the calling thread.
    pub(crate) fn check_completion(&self) {
        let queues = self.queues.read().clone();
        queues.iter().filter(|queue| queue.is_ready()).for_each(|queue| queue.check_completion());
    }
}
