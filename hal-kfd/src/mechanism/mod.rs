//! The two ways to evict queues from the hardware, and the masks that limit them to some compute units.

pub(crate) mod cu_mask;
pub(crate) mod debug_trap;
pub(crate) mod update_queue;

use crate::kernel::Kernel;
use crate::outcome::Outcome;
use crate::queue::Queue;

/// The number of immediate attempts of a request; after the last one the state stays unknown.
const ATTEMPTS: usize = 3;

/// Names a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MechanismKind {
    /// `UPDATE_QUEUE` with percentage 0 and with the percentage that the runtime set.
    UpdateQueue,
    /// `SUSPEND_QUEUES` and `RESUME_QUEUES` of `DBG_TRAP`.
    DebugTrap,
}

impl MechanismKind {
    /// Returns the name as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::UpdateQueue => "update-queue",
            Self::DebugTrap => "debug-trap",
        }
    }
}

/// Evicts queues from the hardware and restores them.
pub trait Mechanism: Send + Sync + std::fmt::Debug {
    /// Returns the kind of mechanism.
    fn kind(&self) -> MechanismKind;

    /// Returns true if an eviction changes the percentage, so that the runtime's updates are merged with it.
    fn merges(&self) -> bool {
        self.kind() == MechanismKind::UpdateQueue
    }

    /// Sends requests until the driver has the settings that the arbiters of these queues want.
    fn apply(&mut self, kernel: &dyn Kernel, queues: &mut [&mut Queue], outcome: &mut Outcome);

    /// Returns true if the queue is evicted and false if it is restored; `None` while the driver is not known
    /// to have the wanted state.
    fn state(&self, queue: &Queue) -> Option<bool>;

    /// Ends what the mechanism keeps open. Returns true if that restored all queues.
    fn end(&mut self, _kernel: &dyn Kernel) -> bool {
        false
    }
}
