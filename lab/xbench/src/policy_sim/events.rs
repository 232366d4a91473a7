//! What is to happen, by time. What happens at the same time has an order that does not depend on the machine: first what
//! ends on devices, then what hosts do, then what is noticed, then what is decided; among the same, what was foreseen
//! first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens. Numbers are those of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happening {
    /// Something ends or begins on a device.
    Device(u32),
    /// A request of a client arrives.
    Arrival(u32),
    /// A host thread launches what comes next of its request.
    Submit(u32),
    /// A queue has had nothing to do for so long that it is seen to be idle, if it still has nothing. The second number
    /// tells this time from others.
    Quiet(u32, u32),
    /// What a suspended unit has launched has been waited for, if it is suspended still. The second number tells this
    /// suspension from others.
    Patience(u32, u32),
    /// The scheduler has come to a decision.
    Decision,
    /// The policy wanted to be asked.
    Wake,
    /// The server decides anew, whatever has happened.
    Heartbeat,
}

impl Happening {
    fn class(self) -> u64 {
        match self {
            Self::Device(_) => 0,
            Self::Arrival(_) | Self::Submit(_) => 1,
            Self::Quiet(..) | Self::Patience(..) => 2,
            Self::Decision | Self::Wake | Self::Heartbeat => 3,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    at: u64,
    /// The class in the highest bits, the number of the entry below.
    order: u64,
    what: Happening,
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Everything that is foreseen.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Entry>>,
    count: u64,
}

impl Events {
    /// Foresees something at this time.
    pub(super) fn push(&mut self, at: u64, what: Happening) {
        self.count += 1;
        self.heap.push(Reverse(Entry { at, order: what.class() << 60 | self.count, what }));
    }

    /// What happens next, and when, unless that is after `end`.
    pub(super) fn pop(&mut self, end: u64) -> Option<(u64, Happening)> {
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
            (5, Happening::Decision),
            (5, Happening::Quiet(1, 0)),
            (5, Happening::Arrival(2)),
            (5, Happening::Submit(1)),
            (5, Happening::Arrival(1)),
            (5, Happening::Device(0)),
            (4, Happening::Wake),
            (6, Happening::Device(0)),
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
