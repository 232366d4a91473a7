//! The launch order: the edges of a command, and waiting for them.
//!
//! Every call of the process takes one [`Ticket`]. An edge means "launched after everything of that queue
//! whose ticket is *smaller* than this bound", and the bound is never larger than the waiting command's own
//! ticket. So every edge points to earlier tickets and no circle can arise.
//!
//! Only pending commands are waited for: a queue's *frontier* is the ticket of its first command that is not
//! launched, [`Ticket::NONE`] if there is none. A direct launch never moves it: a thread learns of that
//! launch only after the call has returned.

use std::sync::Arc;

use crate::hw::{CostKey, Subject};
use crate::ids::{OrderClass, Ticket};
use crate::permission::QueuePermission;
use crate::state::queue::{After, Edge, Scope, XQueue};
use crate::sync::{Ordering, store_load_barrier};

/// The properties of a command that order and window have to know.
#[derive(Debug, Clone, Copy)]
pub struct CommandSpec<'a> {
    /// The key of its estimated time.
    pub key: CostKey,
    /// Its explicit edges.
    pub after: &'a [After],
    /// The queues of which everything earlier is launched first.
    pub scope: Option<Scope<'a>>,
    /// False inside user callbacks: the bounds of pending are ignored there, because a marker behind the
    /// callback may block the stream, and with it the thread that would make room.
    pub may_wait: bool,
    /// True if the call returns only once the hardware queue has completed it and everything in front of it.
    pub completes: bool,
    /// True if the command, once launched, can last until the program's own threads do something: a wait for
    /// a value, a host function. While it lasts the window keeps no caller waiting.
    pub open: bool,
    /// True if the device itself needs only microseconds for it: a small copy. It can still wait for another
    /// program's kernel. Alone it is no reason to suspend others ([`crate::Observer::turned_ready_briefly`]).
    pub brief: bool,
    /// The subject in a trace.
    pub subject: Subject,
}

impl CommandSpec<'_> {
    /// Returns a command that follows only its own queue.
    pub fn new(key: CostKey) -> Self {
        Self {
            key,
            after: &[],
            scope: None,
            may_wait: true,
            completes: false,
            open: false,
            brief: false,
            subject: Subject(0),
        }
    }

    /// Returns the same command with a subject.
    #[inline]
    pub fn about(self, subject: Subject) -> Self {
        Self { subject, ..self }
    }
}

impl XQueue {
    /// Calls `found` with every unsatisfied edge of a command until it returns false.
    pub(crate) fn unsatisfied(
        &self,
        spec: &CommandSpec<'_>,
        before: Ticket,
        mut found: impl FnMut(Edge) -> bool,
    ) {
        let mut check = |queue: &Arc<XQueue>, before: Ticket| {
            queue.id == self.id || queue.frontier() >= before || found(Edge { queue: queue.clone(), before })
        };
        let rule = match self.class {
            OrderClass::Independent => None,
            OrderClass::Blocking => Some(OrderClass::Default),
            OrderClass::Default => Some(OrderClass::Blocking),
        };
        #[cfg(feature = "broken-order")]
        let rule = rule.filter(|_| !crate::broken::is(crate::broken::Fault::DefaultStream));
        if let Some(class) = rule
            && !self
                .device
                .queues
                .read()
                .iter()
                .filter(|queue| queue.class == class)
                .all(|queue| check(queue, before))
        {
            return;
        }
        #[cfg(feature = "broken-order")]
        let spec = &CommandSpec {
            after: if crate::broken::is(crate::broken::Fault::Events) { &[] } else { spec.after },
            ..*spec
        };
        for after in spec.after {
            if !check(&after.queue, after.through.next().min(before)) {
                return;
            }
        }
        if let Some(scope) = spec.scope {
            self.core.each_queue(scope, |queue| check(queue, before));
        }
    }

    /// Returns true if the command has an unsatisfied edge.
    pub(crate) fn is_blocked_by_order(&self, spec: &CommandSpec<'_>) -> bool {
        let mut blocked = false;
        self.unsatisfied(spec, self.core.tickets.bound(), |_| {
            blocked = true;
            false
        });
        blocked
    }

    /// Registers a waiter for each edge, and lets the queues that are waited for run until then. Returns
    /// false if all edges are satisfied already.
    pub(crate) fn await_edges(&self, edges: &[Edge]) -> bool {
        let mut waits = false;
        for edge in edges {
            waits |= edge.queue.register_waiter(edge.before, true);
        }
        waits
    }

    /// Registers a waiter for the launch of everything below `before`. Returns false if that is launched
    /// already.
    pub(crate) fn register_waiter(&self, before: Ticket, inherit: bool) -> bool {
        // `Ticket::NONE` means "no waiter", so a waiter for everything registers the ticket before it.
        self.awaited.fetch_min(before.0.min(Ticket::NONE.0 - 1), Ordering::SeqCst);
        store_load_barrier();
        if self.hot.frontier.load(Ordering::SeqCst) >= before.0 {
            return false;
        }
        // Inheritance: a running queue waits for this one.
        if inherit
            && self.core.config.inherit
            && self.inherit.fetch_max(before.0, Ordering::AcqRel) < before.0
            && !QueuePermission::runs(self.state.permission.load())
        {
            self.wake();
        }
        true
    }
}
