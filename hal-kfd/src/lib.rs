//! Taking a process's queues off the hardware and putting them back through the KFD driver: levels 2 and 3.
//!
//! * [`kernel`]: the driver as something that executes ioctls; [`Kfd`] is the real one.
//! * [`queue`]: what the runtime wants of a queue, what we want, what the driver was told last; says what to tell it
//!   next. Pure.
//! * [`registry`]: the queues of one KFD context, in between the runtime and the driver, under one lock.
//! * [`mechanism`]: the two ways of holding, a file each.
//! * [`session`], [`outside`]: a debug session, and control of another process's queues by it.
//! * [`handle`]: identifies one process, even if the kernel gives its pid to another one later.
//! * [`process`]: what the kernel says of a process, and why one may not be traced.
//! * [`user`]: whether two user ids are one user's.
//! * [`topology`]: the devices as sysfs describes them.
//! * [`prompt`]: threads that are to run soon after they were woken.
//! * [`probe`]: what this machine's driver can do, which way is chosen, and what it costs here.
//!
//! Structures and numbers of the driver's interface are in [`hip_sys::kfd`] and nowhere else. Nothing here decides
//! when to hold, reads the environment, or starts a thread, but for the short one that a request about another process needs.

#[cfg(test)]
mod fake;
pub mod handle;
pub mod kernel;
pub mod mechanism;
pub mod outside;
pub mod probe;
pub mod process;
pub mod prompt;
pub mod queue;
pub mod registry;
pub mod session;
pub mod topology;
mod trace;
pub mod user;

pub use kernel::{Errno, Kernel, KernelExt, Kfd};
pub use mechanism::Kind;
pub use registry::{Outcome, Registry};
