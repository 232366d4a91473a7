//! The program's side of the agent, which the shim implements.

use crate::QueueSlot;
use protocol::codes::PreemptLevel;
use protocol::config::Config;
use protocol::cost::{CostKey, EvictCost};
use protocol::hint::QueueHints;
use protocol::page::ClientHeader;
use std::fmt;
use std::sync::Arc;
use xqueue::{Domain, XQueue};

/// The process that the agent works for.
pub trait Host: fmt::Debug + Sync {
    /// Returns the configuration; `None` before the library has started.
    fn config(&self) -> Option<&'static Config>;

    /// Returns the queues that have an XQueue.
    fn queues(&self) -> Vec<ManagedQueue>;

    /// Visits the queues that have an XQueue. None gains or loses its XQueue meanwhile, so `visit` must not
    /// wait and must not call the host.
    fn for_each_queue(&self, visit: &mut dyn FnMut(&XQueue));

    /// Returns true if this domain belongs to the current process. The agent's threads end when it does not.
    fn is_current(&self, domain: &Domain) -> bool;

    /// Returns true if the program has launched anything.
    fn has_launched(&self) -> bool;

    /// Marks the calling thread as one of the library's: its calls are not the program's.
    fn adopt_thread(&self);

    /// Writes the counts of launches on the slow path.
    fn write_slow_counts(&self, header: &ClientHeader);

    /// Returns true if a server is to decide, connected or not.
    fn expects_server(&self) -> bool;

    /// Returns the cost of an eviction as the server's page shows it.
    fn cost_from_server(&self, key: CostKey) -> Option<EvictCost>;

    /// Returns the name of what a command is about, for a trace ([`xqueue::Subject`]); `None` if nothing is known.
    fn name_of_subject(&self, subject: u64) -> Option<String>;

    /// Tells the scheduler that the preemption level in force may have changed.
    fn level_changed(&self);

    /// Changes settings of a queue, as a person wants: its requested level, the most commands in flight, and the commands from
    /// one marker to the next. What is `None` stays.
    fn configure(&self, handle: u64, level: Option<PreemptLevel>, threshold: Option<u32>, batch: Option<u32>);

    /// Takes back hints of parts of the program that have ended and whose work has completed. Returns true if there are
    /// others that have ended.
    fn settle_hints(&self) -> bool;

    /// Returns true if [`Host::settle_hints`] may have something to do. Takes no lock.
    fn has_ended_hints(&self) -> bool;
}

/// A queue whose permission a decider sets.
#[derive(Debug)]
pub struct ManagedQueue {
    /// The number of its XQueue.
    pub handle: u64,
    /// The device's KFD id.
    pub device: u32,
    /// The preemption level that is requested for it.
    pub level: PreemptLevel,
    /// The hints for it, except its priority.
    pub hints: QueueHints,
    /// The queue.
    pub queue: Arc<XQueue>,
    /// The place of its state for the server.
    pub slot: &'static QueueSlot,
}
