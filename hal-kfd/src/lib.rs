//! Eviction of a process's queues from the hardware through the KFD driver, and their restoration: levels 2
//! and 3.
//!
//! * [`kernel`]: executes ioctls of the driver; [`Kfd`] is the real one.
//! * [`arbiter`]: merges the runtime's setting of a queue with our evictions, and decides the next request.
//!   Pure.
//! * [`queue`]: one queue as the runtime created and changed it.
//! * [`registry`]: the queues of one KFD context, between the runtime and the driver, under one lock.
//! * [`mechanism`]: the two ways to evict and restore, a file each.
//! * [`session`]: a debug session on a process.
//! * [`attach`]: control of another process's queues by such a session.
//! * [`topology`]: the devices as sysfs describes them.
//! * [`users`]: the processes that use the driver, as sysfs lists them.
//! * [`capabilities`]: the features of this machine's driver, and the choice of a mechanism.
//! * [`costs`]: the costs of an eviction and a restoration: measured, identified by a key, and judged.
//!
//! The structures and numbers of the driver's interface are in [`hip_sys::kfd`]. No code here decides when to
//! evict, reads the environment, or starts a thread, except a short one for each request about another
//! process.

pub mod arbiter;
pub mod attach;
pub mod capabilities;
pub mod costs;
#[cfg(test)]
mod fake;
pub mod kernel;
pub mod mechanism;
pub mod outcome;
mod problem;
pub mod queue;
pub mod registry;
pub mod session;
pub mod topology;
mod trace;
pub mod units;
pub mod users;

pub use kernel::{Errno, Kernel, KernelExt, Kfd};
pub use mechanism::MechanismKind;
pub use outcome::Outcome;
pub use registry::Registry;
pub use units::Units;
