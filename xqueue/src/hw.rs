//! The contract with the hardware layer: the traits that it implements ([`HwDevice`], [`HwQueue`],
//! [`HwCommand`], [`Observer`]) and the guarantees on which it may rely. There is no implementation here, but
//! an example in the crate's documentation.
//!
//! The documentation of each method names the calling threads, the locks that they hold, and whether it may
//! block. The *submit lock* is the right to launch on one queue: its holder is the only thread inside a
//! launch of that queue.

use std::time::Duration;

use crate::error::HwResult;
use crate::ids::QueueId;
use crate::sync::Instant;

/// A completion marker as the hardware layer knows it, for example the address of a pooled event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker(pub u64);

/// A key of commands that probably take the same time, for example a hash of function and grid.
/// [`CostKey::UNKNOWN`] is never learnt: such a command counts as a full budget, so it is in flight alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CostKey(pub u64);

impl CostKey {
    /// The key of a command about which nothing is known.
    pub const UNKNOWN: CostKey = CostKey(0);
}

/// The memory that a deferred command owns until it is launched; [`crate::Bounds`] limits the sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Bytes of copied arguments.
    pub arguments: usize,
    /// Bytes of staged host memory.
    pub staged: usize,
}

/// A device, whose queues are served by one worker.
pub trait HwDevice: Send + Sync {
    /// Prepares the calling thread. Called on the worker's thread before its first launch, and on the
    /// watcher's before it checks a queue of another device than the last one. Handle 0 means the current
    /// device, so the device is set here, as is the relaxed capture mode. The thread's timer slack should be
    /// the least possible: the worker sleeps until shortly before a foreseen completion, and the default
    /// slack of 50 µs costs a device behind a small window up to a quarter of its time. May block.
    fn enter(&self);
}

/// A hardware queue, for example a HIP stream.
///
/// Launches come through [`HwCommand::launch`] or through the closures given to [`crate::XQueue::try_direct`]
/// and [`crate::XQueue::submit_in_order`], never through this trait.
pub trait HwQueue: Send + Sync {
    /// Records a marker behind everything launched so far: timing disabled, no system-scope release.
    ///
    /// Called under the submit lock of this queue, by the launching thread (right after its launch), by the
    /// worker, by the watcher, or by a thread that waits for completion, whose current device may be another
    /// one. May take as long as a launch. A failure counts as a failed device: everything launched so far
    /// counts as completed, so that no wait lasts for ever, and the error becomes the queue's sticky error.
    fn record_marker(&self) -> Result<Marker, crate::HwError>;

    /// Returns true if everything in front of the marker has completed. A query that must not block.
    ///
    /// Called by one thread at a time for this queue, on any thread. The thread holds no lock, or, where a
    /// submitting thread looks for room, the submit lock. An error counts as completed and becomes the
    /// queue's sticky error.
    fn query_marker(&self, mark: Marker) -> Result<bool, crate::HwError>;

    /// Gives a marker back to the pool, under the same locks as the query. Called once for each recorded
    /// marker, after its last query. Must not block.
    fn release_marker(&self, mark: Marker);

    /// Waits until everything launched has completed. Called by [`crate::XQueue::wait_all`] on the thread of
    /// its caller, which holds no lock. Blocks.
    fn synchronize(&self) -> HwResult;

    /// Returns true if a launch here makes the runtime read other hardware queues, so that none of them may
    /// end meanwhile. For the commands that keep the two apart; nothing in this crate depends on it.
    fn reads_other_streams(&self) -> bool {
        false
    }
}

/// A deferred command: owns copies of all that its launch needs.
pub trait HwCommand: Send {
    /// Makes the real call. Called exactly once, unless [`HwCommand::discard`] is called instead, on the
    /// worker's thread and under the submit lock of the queue. May block as long as the runtime likes. The
    /// command is dropped soon after, still under the submit lock.
    fn launch(&mut self, queue: &dyn HwQueue) -> HwResult;

    /// Discards the command. Called once instead of [`HwCommand::launch`] when the program drops what is
    /// pending, at the command's place in the order, under the submit lock. A command whose absence would
    /// break the program (an event record that others wait for) is launched here anyway. Returns true
    /// if it was launched.
    fn discard(&mut self, _queue: &dyn HwQueue) -> bool {
        false
    }

    /// Returns the memory that the command owns. Called once, at submit.
    fn footprint(&self) -> Footprint {
        Footprint::default()
    }

    /// Returns the name for the log line of a failed launch.
    fn name(&self) -> &str;
}

/// What a queue has done when it turns idle; see the fields of [`crate::Stats`] with these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Launches by submitting threads.
    pub direct: u64,
    /// Deferred commands.
    pub deferred: u64,
    /// The device time of the completed commands, as far as it is known.
    pub worked: Duration,
}

/// The subject of a command in a trace. This crate passes it on; only its caller knows the meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Subject(pub u64);

/// The way of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The submitting thread launched it at once.
    Direct,
    /// A thread of this crate launched it.
    Deferred,
    /// The submitting thread launched it when its turn came.
    InOrder,
}

/// An event of a queue, for a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traced {
    /// A command was launched. The time is that of the call's begin.
    Launched {
        /// How.
        how: How,
        /// The launches of the queue so far, with this one.
        number: u64,
        /// The subject of the command.
        subject: Subject,
    },
    /// A command was deferred.
    Submitted {
        /// The subject of the command.
        subject: Subject,
    },
    /// A thread has seen that so many launches of the queue have completed.
    Completed {
        /// The number.
        number: u64,
    },
}

/// A listener that is notified when queues turn ready or idle.
///
/// Both methods are called under the locks of the queue, one at a time for one queue and in the order of the
/// changes. They store, and at most wake a thread. They must not block and must not call into this crate, not
/// even a getter of `XQueue`.
pub trait Observer: Send + Sync {
    /// Notes that the queue has its first unfinished command. Called before that command is launched. `tag`
    /// is that of the queue's [`crate::QueueConfig`]; it identifies the observer's own data about the queue
    /// without a look-up. `at` is the present time.
    fn turned_ready(&self, queue: QueueId, tag: usize, at: Instant);
    /// Notes that the queue has proved to have nothing pending and nothing in flight. `since`: the time from
    /// which on it counts as idle. That is earlier than now after a brief command that completed before it
    /// counted.
    fn turned_idle(&self, queue: QueueId, tag: usize, since: Instant, done: Done);
    /// Returns true if the observer needs to know at once when a queue turns idle. If it does not, a queue stays ready after
    /// a synchronization, and the watcher turns it idle a few of its pauses later. This saves two state changes for each
    /// launch of a program that synchronizes after each launch.
    fn needs_idle_report(&self) -> bool {
        true
    }
    /// Returns true if the observer tells brief work from other work. Called before
    /// [`Observer::turned_ready_briefly`], each time.
    fn counts_brief(&self) -> bool {
        false
    }
    /// Notes, in place of [`Observer::turned_ready`], that the only unfinished command is a brief one
    /// ([`crate::CommandSpec::brief`]), or one behind which the program usually pauses. It need not count
    /// before the grace has passed, which is at most [`crate::GRACE`]. If more work comes, `turned_ready`
    /// follows.
    fn turned_ready_briefly(&self, queue: QueueId, tag: usize, at: Instant, _grace: Duration) {
        self.turned_ready(queue, tag, at);
    }
    /// Returns the present time, in the observer's own unit. Called while [`crate::Domain::set_traced`] is on, at the begin of
    /// what [`Observer::traced`] gets to know. It costs a launch its own time.
    fn traced_at(&self) -> u64 {
        0
    }
    /// Notes an event while [`crate::Domain::set_traced`] is on, with a time of [`Observer::traced_at`]. Called by any thread, also by several at a time, with or
    /// without the locks of the queue. Costs the launch its own time: it stores, and does nothing else.
    fn traced(&self, _at: u64, _queue: QueueId, _event: Traced) {}
}

/// An [`Observer`] that ignores every notification.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullObserver;

impl Observer for NullObserver {
    fn turned_ready(&self, _: QueueId, _: usize, _: Instant) {}
    fn turned_idle(&self, _: QueueId, _: usize, _: Instant, _: Done) {}
}
