//! What a program learns of completion besides a synchronisation of the queue itself: from a command
//! that it can ask for (an event record), and from commands that waited for such a one on the device.
//!
//! Marks lie behind the program's commands, so a hardware queue may be busy with a mark alone. Who
//! answers for a queue therefore asks the books first ([`XQueue::is_complete`]), and the books have
//! to know all that the program can know: that is what [`Evidence`] is for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::flight::Proof;
use crate::order::{OrderClass, Ticket};
use crate::queue::XQueue;

/// Waits of one queue whose evidence is kept; beyond that the oldest is forgotten, which only means
/// that the marks have to show what it would have.
const MOST: usize = 32;

/// What has completed when one command has: it, all in front of it, and what those waited for by the
/// default-stream rule.
#[derive(Debug, Clone)]
pub struct Evidence {
    own: (Arc<XQueue>, Proof),
    kin: Vec<(Arc<XQueue>, Proof)>,
}

/// A command of a queue that waited, on the device, for something of other queues.
#[derive(Debug)]
pub(crate) struct Follow {
    /// Its index among the launches of its queue.
    index: u64,
    evidence: Arc<Evidence>,
}

impl Evidence {
    /// The command is seen complete. Turns its queue idle if nothing else is unfinished.
    pub fn seen(&self) {
        self.complete();
        self.own.0.try_idle();
    }

    /// Whether the command is known to have completed, by whatever has shown it.
    pub fn is_known(&self) -> bool {
        let (queue, proof) = &self.own;
        queue.hot.flight.covers(*proof)
    }

    fn complete(&self) {
        for (queue, proof) in std::iter::once(&self.own).chain(&self.kin) {
            queue.hot.flight.complete(*proof);
            queue.settle();
        }
    }
}

impl XQueue {
    /// What the completion of the launch will prove that the caller is about to make. Only inside a
    /// call that this queue makes or lets through holding submit: then no other launch comes between.
    pub fn evidence(self: &Arc<Self>) -> Evidence {
        Evidence { own: (self.clone(), self.begin_sync().and_next()), kin: self.begin_kin() }
    }

    /// What the launch that comes next waits for by the default-stream rule, as far as it is not known to
    /// be complete.
    pub(crate) fn begin_kin(&self) -> Vec<(Arc<XQueue>, Proof)> {
        let class = match self.class {
            OrderClass::Blocking => OrderClass::Default,
            OrderClass::Default if self.has_foreign_launches() => OrderClass::Blocking,
            _ => return Vec::new(),
        };
        let queues = self.device.queues.read();
        let busy = queues.iter().filter(|other| other.class == class && other.hot.flight.in_flight() != 0);
        busy.map(|other| (other.clone(), other.begin_sync())).collect()
    }

    /// The launch that is being made waits on the device for what the evidence is about: when it has
    /// completed, so has that. Only where [`XQueue::evidence`] may be called.
    pub fn follow(&self, evidence: Arc<Evidence>) {
        self.settle();
        let index = self.hot.flight.launched() + 1;
        let mut follows = self.follows.lock();
        if follows.len() == MOST {
            follows.remove(0);
        }
        follows.push(Follow { index, evidence });
        self.has_follows.store(true, Ordering::Release);
    }

    /// Completes what the completed commands of this queue have waited for.
    pub(crate) fn settle(&self) {
        if !self.has_follows.load(Ordering::Acquire) {
            return;
        }
        let completed = self.hot.flight.completed();
        let mut follows = self.follows.lock();
        let open = follows.iter().position(|follow| follow.index > completed).unwrap_or(follows.len());
        let settled: Vec<Follow> = follows.drain(..open).collect();
        self.has_follows.store(!follows.is_empty(), Ordering::Release);
        drop(follows);
        for follow in settled {
            follow.evidence.complete();
        }
    }

    /// Whether everything submitted to this queue is known to have completed. Asks the mark at the end of
    /// the queue, if there is one; no other call to the hardware.
    ///
    /// While this says so the program may not be told that the hardware queue is busy: it could know
    /// better, and what keeps it busy is a mark.
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

    /// The same without any call to the hardware. The queue may count as ready for a moment longer.
    pub fn is_known_complete(&self) -> bool {
        // In this order: what leaves pending is in flight before it has left.
        self.frontier() == Ticket::NONE && self.hot.flight.in_flight() == 0
    }
}
