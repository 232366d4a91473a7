//! The contract with the hardware layer: what it must provide ([`HwDevice`], [`HwQueue`],
//! [`HwCommand`], [`Observer`]) and what it may rely on. No implementation lives here.
//!
//! Every method says who calls it, what the caller holds, and what may block. "Submit" is the right
//! to launch on one queue: whoever has it is the only thread inside a launch of that queue.

use crate::error::HwResult;
use crate::order::QueueId;

/// A completion mark as the hardware layer knows it, for example the address of a pooled event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub u64);

/// What is likely to take the same time again, for example a hash of function and grid.
/// [`CostKey::UNKNOWN`] is never learnt: it counts as a full budget, so it is in flight alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CostKey(pub u64);

impl CostKey {
    /// Nothing is known about the command.
    pub const UNKNOWN: CostKey = CostKey(0);
}

/// Memory that a deferred command owns until it is launched; [`crate::Bounds`] limits the sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Bytes of copied arguments.
    pub arguments: usize,
    /// Bytes of staged host memory.
    pub staged: usize,
}

/// A device: the worker of its queues launches in its name.
pub trait HwDevice: Send + Sync {
    /// Called on the worker's thread before its first launch, and on the watcher's before it looks at
    /// a queue of another device than it looked at last. Handle 0 means the current device, so the
    /// device is set here, as is the relaxed capture mode. The thread's timer slack
    /// should be the least possible: the worker sleeps until shortly before a foreseen completion,
    /// and the default slack of 50 µs costs a device behind a small window up to a quarter of its
    /// time. May block.
    fn enter(&self);
}

/// A hardware queue, for example a HIP stream.
///
/// Launches come through [`HwCommand::launch`] or through the closures given to
/// [`crate::XQueue::try_direct`] and [`crate::XQueue::submit_in_turn`], never through this trait.
pub trait HwQueue: Send + Sync {
    /// Records a mark behind everything launched so far: timing disabled, no system-scope release.
    ///
    /// Called holding submit of this queue, by the launching thread (right after its launch), by the
    /// worker, by the watcher, or by a thread that waits for completion, whose current device may be
    /// another one. May take as long as a launch. A failure counts as a failed
    /// device: everything launched so far counts as completed, so that nobody waits for ever, and
    /// the error becomes the queue's sticky error.
    fn record_mark(&self) -> Result<Mark, crate::HwError>;

    /// Whether everything in front of the mark has completed. Only ever a query; must not block.
    ///
    /// Called by one thread at a time for this queue, on any thread, which holds no lock but, where
    /// a submitting thread looks for room, submit. An error counts as completed and becomes the
    /// queue's sticky error.
    fn query_mark(&self, mark: Mark) -> Result<bool, crate::HwError>;

    /// Gives a mark back to the pool, under the same locks as the query. Called once for each
    /// recorded mark; nobody queries it any more. Must not block.
    fn release_mark(&self, mark: Mark);

    /// Waits until everything launched has completed. Called by [`crate::XQueue::wait_all`] on the
    /// thread of its caller, which holds nothing. Blocks.
    fn synchronize(&self) -> HwResult;

    /// Whether launching here makes the runtime read other hardware queues, so that none of them may end meanwhile. For the
    /// commands that keep the two apart; nothing in this crate depends on it.
    fn reads_others(&self) -> bool {
        false
    }
}

/// A deferred command: owns copies of all that its launch needs.
pub trait HwCommand: Send {
    /// Makes the real call. Called exactly once unless [`HwCommand::discard`] is, holding submit of
    /// the queue, on the worker's thread. May block as long as the runtime likes. The command is
    /// dropped soon after, still holding submit.
    fn launch(&mut self, queue: &dyn HwQueue) -> HwResult;

    /// Called once instead of [`HwCommand::launch`] when the program drops what is pending, at the
    /// command's place in the order, holding submit. A command whose absence would break the
    /// program (an event record that others wait for) is launched here all the same; then this says true.
    fn discard(&mut self, _queue: &dyn HwQueue) -> bool {
        false
    }

    /// The memory it owns. Asked once, at submit.
    fn footprint(&self) -> Footprint {
        Footprint::default()
    }

    /// Name for the log line of a failed launch.
    fn name(&self) -> &str;
}

/// Is told when queues turn ready or idle.
///
/// Both methods are called under the locks of the queue, one at a time for one queue and in the
/// order of the changes: they store, and at most wake somebody; they never block and never call
/// into this crate (reading `XQueue` getters included).
pub trait Observer: Send + Sync {
    /// The queue has its first unfinished command. Called before that command is launched. The tag is the one of its
    /// [`crate::QueueConfig`]; what is stored about the queue elsewhere is found by it without a look-up.
    fn turned_ready(&self, queue: QueueId, tag: usize);
    /// The queue is proved to have nothing pending and nothing in flight.
    fn turned_idle(&self, queue: QueueId, tag: usize);
}

/// An [`Observer`] for those who need none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn turned_ready(&self, _: QueueId, _: usize) {}
    fn turned_idle(&self, _: QueueId, _: usize) {}
}
