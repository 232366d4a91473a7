//! Identifiers: tickets, queues, devices, and the default-stream rule of a queue.

use crate::sync::{AtomicU64, Ordering};

/// The place of a call in the order of all calls of the process. Starts at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// The ticket behind every call. As a frontier it means that nothing is pending; as a bound it includes
    /// every call.
    pub const NONE: Ticket = Ticket(u64::MAX);

    /// Returns the number, for logs.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the exclusive bound that includes this ticket.
    pub fn next(self) -> Ticket {
        Ticket(self.0.saturating_add(1))
    }
}

#[derive(Debug)]
pub(crate) struct Tickets(AtomicU64);

impl Tickets {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(1))
    }

    /// Takes the next ticket. Relaxed order suffices: one word has one modification order, so calls that
    /// follow each other take ascending tickets.
    #[inline]
    pub(crate) fn take(&self) -> Ticket {
        Ticket(self.0.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns an exclusive bound that includes every call which has returned.
    pub(crate) fn bound(&self) -> Ticket {
        Ticket(self.0.load(Ordering::Relaxed))
    }
}

/// The number of an XQueue within its process. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// The number of a device within its process, chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

/// The default-stream rule that a queue follows among the queues of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderClass {
    /// No rule: a non-blocking stream.
    Independent,
    /// A stream whose commands are launched after everything earlier of the device's default queue.
    Blocking,
    /// The default queue: launched after everything earlier of all blocking queues. Its markers are recorded
    /// only with its own launches, or while no blocking queue has launched since.
    Default,
}
