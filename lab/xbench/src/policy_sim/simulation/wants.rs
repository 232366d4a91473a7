//! Which changes the server is told of: those that could change its decision, by what it saw at the last one. Of others it
//! hears at its next decision. These are the server's own rules, written anew.

use super::{Queue, Simulation};
use protocol::bounds::Priority;

/// Whether a queue had work, or since when it had none.
#[derive(Debug, Clone, Copy)]
pub(super) enum Seen {
    Ready,
    /// Nothing if it was never used.
    Idle(Option<u64>),
}

impl Queue {
    /// What the scheduler would see now.
    fn state(&self) -> Seen {
        match self.ready {
            true => Seen::Ready,
            false => Seen::Idle((self.emptied > 0).then_some(self.idle_since)),
        }
    }

    /// Keeps what the last decision, the one of this number, saw.
    fn keep(&mut self, decision: u64) {
        if self.seen.0 != decision {
            self.seen = (decision, self.state());
        }
    }
}

impl Simulation<'_> {
    /// Notes that a queue is about to change.
    pub(super) fn keep_seen(&mut self, index: usize) {
        self.queues[index].keep(self.decisions);
    }

    /// Whether the last decision counted a queue as ready, whose unit may linger for so long.
    fn counted(&self, queue: &Queue, linger: u64) -> bool {
        let seen = if queue.seen.0 == self.decisions { queue.seen.1 } else { queue.state() };
        match seen {
            Seen::Ready => true,
            Seen::Idle(since) => since.is_some_and(|since| since + linger > self.decided_at),
        }
    }

    /// Whether somebody is told when a queue of the unit turns ready: it has no other work, or the queue is more urgent
    /// than what it has, or it has no work on that device.
    pub(super) fn hears_ready(&self, unit: usize) -> bool {
        if !self.told {
            return true;
        }
        let linger = self.scheduler.linger(unit);
        let most = self.busy(unit).map(|queue| queue.priority).max();
        let busy = |device| self.busy(unit).any(|queue| queue.device == device);
        let mut idle = self.executing(unit).filter(|queue| !self.counted(queue, linger));
        !self.is_alone()
            && idle.any(|queue| most.is_none_or(|most| queue.priority > most) || !busy(queue.device))
    }

    /// Whether somebody is told when a queue of the unit turns idle: the policy always wants to know, or somebody waits
    /// for a device where the unit has work, or what is left of its work may be less urgent.
    pub(super) fn hears_idle(&self, unit: usize) -> bool {
        if !self.told {
            return true;
        }
        if self.is_alone() || !self.units[unit].permission.run {
            return false;
        }
        if self.scheduler.hears_idle() {
            return true;
        }
        let Some(most) = self.busy(unit).map(|queue| queue.priority).max() else { return false };
        let falls = self.executing(unit).any(|queue| queue.priority < most);
        let waits = |other: usize| !self.units[other].permission.run && self.busy(other).next().is_some();
        let meets = |other: usize| {
            self.executing(other).any(|queue| self.busy(unit).any(|own| own.device == queue.device))
        };
        falls || (0..self.units.len()).any(|other| other != unit && waits(other) && meets(other))
    }

    /// Whether nothing matters, because one unit is there whom nobody disturbs, and nothing may be withheld from it.
    fn is_alone(&self) -> bool {
        self.rivals < 2 && !self.scheduler.hears_idle()
    }

    /// The queues of a unit that the last decision counted as ready.
    fn busy(&self, unit: usize) -> impl Iterator<Item = &Queue> {
        let linger = self.scheduler.linger(unit);
        self.executing(unit).filter(move |queue| self.counted(queue, linger))
    }

    /// The queues of a unit that count.
    fn executing(&self, unit: usize) -> impl Iterator<Item = &Queue> {
        let queues = &self.queues[self.units[unit].queues.clone()];
        queues.iter().filter(|queue| queue.priority != Priority::NO_EXECUTE)
    }
}
