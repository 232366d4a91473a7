//! The launch order: tickets and the edges between them. Pure data; who waits for what is decided in
//! `pending.rs` and `domain.rs`.
//!
//! Every call of the process takes one [`Ticket`]; every edge says "launched after everything of
//! these queues whose ticket is *smaller* than this one", and that bound is never larger than the
//! waiting command's own ticket. So every edge points to earlier tickets and no circle can arise.
//!
//! Only commands that are pending have an edge to wait for: a queue's *frontier* is the ticket of
//! its first command that is not launched, [`Ticket::NONE`] if there is none. A direct launch never
//! moves it: who learnt of that launch learnt of it after the call had returned.

use std::sync::Arc;

use crate::queue::XQueue;
use crate::sync::{AtomicU64, Ordering};

/// Place of a call in the order of all calls of the process. Starts at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// Later than every call: as a frontier, nothing is pending; as a bound, everything counts.
    pub const NONE: Ticket = Ticket(u64::MAX);

    /// The number, for logs.
    pub fn number(self) -> u64 {
        self.0
    }

    /// As an exclusive bound: everything up to and including this ticket.
    pub fn next(self) -> Ticket {
        Ticket(self.0.saturating_add(1))
    }
}

/// Gives out the tickets.
#[derive(Debug)]
pub(crate) struct Tickets(AtomicU64);

impl Tickets {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(1))
    }

    /// Calls that follow each other take ascending tickets: modifications of one word have one order.
    #[inline]
    pub(crate) fn take(&self) -> Ticket {
        Ticket(self.0.fetch_add(1, Ordering::Relaxed))
    }

    /// A bound behind every ticket that a call which has returned can hold.
    pub(crate) fn bound(&self) -> Ticket {
        Ticket(self.0.load(Ordering::Relaxed))
    }
}

/// Names an XQueue in its process; never used again after the queue's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// Names a device in its process. The number is the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

/// The default-stream rule that a queue follows among those of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderClass {
    /// No rule: a non-blocking stream.
    Independent,
    /// Launched after everything earlier of the device's default queue.
    Blocking,
    /// The default queue: launched after everything earlier of all blocking queues. Marks are
    /// recorded only with its own launches, or while no blocking queue has launched since.
    Default,
}

/// An explicit edge: launched after everything of `queue` up to and including ticket `through`.
#[derive(Debug, Clone)]
pub struct After {
    /// The queue that is waited for.
    pub queue: Arc<XQueue>,
    /// The last of its commands that counts.
    pub through: Ticket,
}

/// A set of queues.
#[derive(Debug, Clone, Copy)]
pub enum Scope<'a> {
    /// Only this one.
    Queue(&'a XQueue),
    /// All queues of a device.
    Device(DeviceId),
    /// All queues of the process.
    Process,
}

/// An edge as it is kept with a pending command: everything of `queue` below `before`.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    pub(crate) queue: Arc<XQueue>,
    pub(crate) before: Ticket,
}

impl Edge {
    pub(crate) fn is_satisfied(&self) -> bool {
        self.queue.frontier() >= self.before
    }
}
