//! The two ways of taking queues off the hardware.

mod debug_trap;
mod update_queue;

pub use debug_trap::DebugTrap;
pub use update_queue::UpdateQueue;

use crate::kernel::Kernel;
use crate::registry::{Outcome, Queue};

/// How often a request that failed is made again at once; what still fails then stays unknown.
const ATTEMPTS: usize = 3;

/// Names a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `UPDATE_QUEUE` with percentage 0 and the percentage that the runtime wants.
    UpdateQueue,
    /// `DBG_TRAP`'s `SUSPEND_QUEUES` and `RESUME_QUEUES`.
    DebugTrap,
}

impl Kind {
    /// The name as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::UpdateQueue => "update-queue",
            Self::DebugTrap => "debug-trap",
        }
    }
}

/// Takes queues off the hardware and puts them back.
pub trait Mechanism: Send + Sync + std::fmt::Debug {
    /// Which.
    fn kind(&self) -> Kind;

    /// Whether a hold is part of the percentage, so that the runtime's updates are merged with it.
    fn merges(&self) -> bool;

    /// Whether RUNTIME_ENABLE must have come before the first queue.
    fn needs_runtime(&self) -> bool {
        false
    }

    /// Brings the driver where these queues' arbiters want it.
    fn apply(&mut self, kernel: &dyn Kernel, queues: &mut [&mut Queue], outcome: &mut Outcome);

    /// Whether the queue is held, if that is known to be as it is wanted.
    fn state(&self, queue: &Queue) -> Option<bool>;

    /// Ends what the mechanism keeps open; `true` if that put everything back.
    fn end(&mut self, _kernel: &dyn Kernel) -> bool {
        false
    }
}
