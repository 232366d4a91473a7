//! XQueue, launch window, launch order, worker: the core of preemption level 1.
//!
//! An [`XQueue`] stands in front of one hardware queue. A program *submits* to it; commands are *launched* on
//! the hardware queue at once by the submitting thread (direct path) or later by a worker (deferred path), as
//! far as permission, launch order and window admit. The crate knows the hardware only through [`HwQueue`],
//! [`HwCommand`] and [`HwDevice`]: no HIP, no policy, no IPC.
//!
//! # Use
//! Create one [`Domain`] in each process, add its devices, and create an [`XQueue`] in front of each hardware
//! queue. A launch tries [`XQueue::try_direct`] first, then [`XQueue::submit`] with copies of what it needs,
//! or [`XQueue::submit_in_order`] where nothing can be copied. A call that needs a quiet queue waits with
//! [`Domain::wait_launched`]. A call that synchronizes takes [`XQueue::begin_sync`] before and reports its
//! success with [`XQueue::synced`]; if it waits inside the runtime it uses [`XQueue::begin_wait`] instead.
//! [`Completion`] reports completion that shows in another way. A policy writes permissions and suspends
//! queues.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicUsize, Ordering};
//! use std::time::{Duration, Instant};
//! use xqueue::*;
//!
//! struct Gpu;
//! impl HwDevice for Gpu {
//!     fn enter(&self) {
//!         // Here: make it the current device of the calling thread.
//!     }
//! }
//!
//! /// A queue that completes everything at once.
//! struct Stream;
//! impl HwQueue for Stream {
//!     fn record_marker(&self) -> Result<Marker, HwError> {
//!         Ok(Marker(1))
//!     }
//!     fn query_marker(&self, _: Marker) -> Result<bool, HwError> {
//!         Ok(true)
//!     }
//!     fn release_marker(&self, _: Marker) {}
//!     fn synchronize(&self) -> HwResult {
//!         Ok(())
//!     }
//! }
//!
//! struct Fill {
//!     byte: u8,
//! }
//! impl HwCommand for Fill {
//!     fn launch(&mut self, _queue: &dyn HwQueue) -> HwResult {
//!         // Here: the real call, with `self.byte`.
//!         Ok(())
//!     }
//!     fn name(&self) -> &str {
//!         "fill"
//!     }
//! }
//!
//! #[derive(Default)]
//! struct ReadyCount(AtomicUsize);
//! impl Observer for ReadyCount {
//!     fn turned_ready(&self, _: QueueId, _tag: usize, _at: Instant) {
//!         self.0.fetch_add(1, Ordering::Relaxed);
//!     }
//!     fn turned_idle(&self, _: QueueId, _tag: usize, _since: Instant, _done: Done) {
//!         self.0.fetch_sub(1, Ordering::Relaxed);
//!     }
//! }
//!
//! let domain = Domain::new(Config::default(), Arc::new(ReadyCount::default()));
//! domain.add_device(DeviceId(0), Arc::new(Gpu));
//! let queue = domain.create_queue(DeviceId(0), Arc::new(Stream), QueueConfig::default());
//! let queue = queue.expect("the device is known");
//!
//! let spec = CommandSpec::new(CostKey(7));
//! // The closure makes the real call, with the caller's own arguments.
//! if queue.try_direct(&spec, || Ok(())) == Direct::NotNow {
//!     // Suspended, or the window is full: a worker launches a copy of the command later.
//!     queue.submit(&spec, queue.spare().put(Fill { byte: 0 })).expect("the queue is open");
//! }
//! queue.wait_all().expect("the launch succeeded");
//! assert_eq!((queue.stats().launched, queue.stats().in_flight), (1, 0));
//!
//! // Suspend every queue of the process.
//! domain.store_permission(Permission::new(1, false, false, 1));
//! assert!(!queue.may_run());
//! domain.store_permission(Permission::unlimited());
//! // Wait until everything submitted so far is launched.
//! domain.wait_launched(Scope::Process, Ticket::NONE);
//! assert!(!domain.has_pending());
//! ```
//!
//! # Rooms
//! | module | contents |
//! |---|---|
//! | `hw` | the contract with the hardware layer |
//! | `ids`, `config`, `error`, `permission`, `limit`, `estimate` | plain data |
//! | `sync`, `submit_lock` | primitives |
//! | `state` | queues and devices, what is pending, in flight and complete |
//! | `path` | the paths of a command: admission, order, direct, deferred and in-order launches; control of a queue |
//! | `threads` | worker and watcher |
//! | `domain` | the top: all queues of a process |
//!
//! # Locks, in the order in which they nest
//! 1. The *submit lock* of a queue: held across the real call; only ever tried, never waited for. A thread
//!    that needs it and finds it taken registers as a waiter, which the release wakes.
//! 2. *taken* of a queue: what its holder of the submit lock has taken from pending. Other threads only look.
//! 3. *pending* of a queue: short; never two of them at a time.
//! 4. The lists of devices and queues (read for a moment; cloned where callbacks follow).
//! 5. Leaves: the intervals between markers, the waits on the device, the accounting, stalls, the estimates,
//!    the sleeps of signals.
//!
//! The real call is made with the submit lock held and nothing else. The *poller lock* of a queue is only
//! tried, with or without the submit lock, and its holder takes only leaves.
//!
//! # Invariants
//! * A command is launched exactly once, or discarded exactly once, or refused at submit.
//! * Commands of one queue are launched in the order of their tickets; a command is launched after every
//!   command that its edges name. Every edge points to an earlier ticket, so, permissions aside, some command
//!   can always be launched.
//! * No thread waits for room, for an in-order launch, for a launch or for a completion while it holds a lock
//!   of this crate.
//! * Suspending, resuming, limiting and permission changes do not take the submit lock, and wait for nothing
//!   unless a flag asks for it.
//! * After a suspension has returned, launches begin only if they were decided before it (at most one), or if
//!   a running queue waits for them.
//! * With the limit on, at most the window is in flight; a launch that fails is not in flight. Two exceptions
//!   serve a waiting thread: behind a command that only the program can end ([`CommandSpec::open`]) nothing is kept
//!   back, and behind a command that does not end one more is launched at growing intervals
//!   (`state/stall.rs`).
//! * Idle is proved: nothing pending, nothing in flight, with both locks held.
//! * Waits end: a thread that changes a condition notifies the signal whose key the waiter took before it
//!   checked. Only completion is polled, because the hardware sends no notification.
//! * No thread of this crate, nor the one that schedules, is needed for a wait or for a suspension by the
//!   policy to end (`path/stand_in.rs`).

#[cfg(all(feature = "broken-order", not(debug_assertions)))]
compile_error!("the feature broken-order is for tests of the tests, and never in an optimized build");

#[cfg(feature = "broken-order")]
pub mod broken;
mod config;
mod domain;
mod error;
mod estimate;
mod hw;
mod ids;
mod limit;
mod path;
mod permission;
mod state;
mod submit_lock;
mod sync;
#[cfg(all(test, loom))]
mod tests;
mod threads;

pub use config::{Bounds, Config, LaunchConfig, QueueConfig, TestMode};
pub use domain::{Domain, Outstanding, Snapshot};
pub use error::{HwError, HwResult, SubmitError, hw_result};
pub use hw::{
    CostKey, Done, Footprint, How, HwCommand, HwDevice, HwQueue, Marker, NullObserver, Observer, Subject,
    Traced,
};
pub use ids::{DeviceId, OrderClass, QueueId, Ticket};
pub use path::control::{ResumeFlags, SuspendFlags, Work};
pub use path::direct::Direct;
pub use path::order::CommandSpec;
pub use permission::{Permission, Window};
pub use state::completion::Wait;
pub use state::flight::CompletionSnapshot;
pub use state::queue::{After, Completion, Scope, Stats, XQueue};
pub use state::ready::GRACE;
pub use state::storage::{CommandBox, CommandMemory};
