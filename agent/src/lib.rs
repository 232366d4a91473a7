//! The scheduling agent inside a HIP program: it decides which XQueues run, or follows a server that does,
//! and evicts the process's hardware queues.
//!
//! [`Scheduler`] is the entry point. Its agent thread runs a policy in this process (`local`) or is the
//! client of `xserver` (`server`). Launching threads use only [`Scheduler`]'s observer: it writes into the
//! queue's [`QueueSlot`] and notifies the server. [`Preemption`] knows the process's hardware queues and
//! which preemption level is in force; the `evictor` decides for each suspension whether to evict them.
//!
//! # Invariants
//! * Nothing here calls HIP. The program's side is reached through [`Host`].
//! * No thread of the program waits for the server.
//! * A decision is applied only while its decider is still in force (`Shared::if_current`), so that a stale
//!   decision is never applied after the decider changes.

mod chaos;
mod clock;
pub mod descriptor;
pub mod errno;
mod evictor;
mod futex;
mod host;
mod link;
mod local;
mod notifier;
mod pages;
mod preemption;
mod process_name;
mod scheduler;
mod server;
mod shared;
mod tracer;

pub use clock::now;
pub use evictor::EvictionPause;
pub use host::{Host, ManagedQueue};
pub use link::QueueSlot;
pub use preemption::{HardwareQueues, Preemption};
pub use scheduler::Scheduler;
pub use shared::Decider;
