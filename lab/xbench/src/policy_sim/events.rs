//! The queue of events by time. Events at the same time have an order that does not depend on the machine:
//! first the ends on devices, then the actions of hosts, then observations, then decisions; events of one
//! class in the order of scheduling.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An event. Numbers are those of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A kernel ends or begins on a device.
    Device(u32),
    /// A request of a client arrives.
    Arrival(u32),
    /// A host thread launches the next kernels of its request.
    Submit(u32),
    /// A queue without work is seen to be idle, unless it has work again. The second number identifies this
    /// idle phase.
    Quiet(u32, u32),
    /// The library stops waiting for the launched work of a suspended entity, if it is still suspended. The
    /// second number identifies this suspension.
    Patience(u32, u32),
    /// The scheduler decides.
    Decision,
    /// The policy has asked for this decision.
    Wake,
    /// The server makes its regular decision.
    Heartbeat,
}

impl Event {
    fn class(self) -> u64 {
        match self {
            Self::Device(_) => 0,
            Self::Arrival(_) | Self::Submit(_) => 1,
            Self::Quiet(..) | Self::Patience(..) => 2,
            Self::Decision | Self::Wake | Self::Heartbeat => 3,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: u64,
    /// The class in the highest bits, and the number of the entry in the others: no two are equal.
    order: u64,
    what: Event,
}

#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Entry>>,
    count: u64,
}

impl Events {
    pub(super) fn push(&mut self, at: u64, what: Event) {
        self.count += 1;
        self.heap.push(Reverse(Entry { at, order: what.class() << 60 | self.count, what }));
    }

    /// Removes and returns the next event and its time, unless it is after `end`.
    pub(super) fn pop(&mut self, end: u64) -> Option<(u64, Event)> {
        let Reverse(entry) = self.heap.peek()?;
        if entry.at > end {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_then_by_class_then_as_foreseen() {
        let mut events = Events::default();
        let list = [
            (5, Event::Decision),
            (5, Event::Quiet(1, 0)),
            (5, Event::Arrival(2)),
            (5, Event::Submit(1)),
            (5, Event::Arrival(1)),
            (5, Event::Device(0)),
            (4, Event::Wake),
            (6, Event::Device(0)),
        ];
        for (at, what) in list {
            events.push(at, what);
        }
        let order: Vec<_> = std::iter::from_fn(|| events.pop(5)).collect();
        let expected = [6, 5, 2, 3, 4, 1, 0].map(|index: usize| list[index]);
        assert_eq!(order, expected);
        assert_eq!(events.pop(6), Some(list[7]));
    }
}
