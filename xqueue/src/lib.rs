//! XQueue, launch window, launch order, worker: the core of preemption level 1.
//!
//! An [`XQueue`] stands in front of one hardware queue. A program *submits* to it; commands are
//! *launched* on the hardware queue at once by the submitting thread (direct path) or later by a
//! worker (deferred path), as far as permission, launch order and window admit. The crate knows the
//! hardware only through [`HwQueue`], [`HwCommand`] and [`HwDevice`]: no HIP, no policy, no IPC.
//!
//! # Use
//! One [`Domain`] a process; its devices; an [`XQueue`] in front of each hardware queue. A launch asks
//! [`XQueue::try_direct`] first, then [`XQueue::submit`] with copies of what it needs, or
//! [`XQueue::submit_in_turn`] where nothing can be copied. What needs a quiet queue waits with
//! [`Domain::wait_launched`]. What has synchronized says so: [`XQueue::begin_sync`] before the call,
//! [`XQueue::synced`] after its success, and [`XQueue::begin_wait`] if the call waits inside the runtime; what shows
//! completion in another way is [`Evidence`]. Whoever decides writes permissions and suspends.
//!
//! # Rooms
//! `domain` what a process shares · `queue` the XQueue's parts · `submit` the way in · `pending` what
//! waits · `launch` the way out · `flight` what is on the hardware · `span` what lies
//! between its marks · `estimate` how long it takes ·
//! `order` tickets and edges · `permission` who may · `control` suspend, resume, wait, destroy ·
//! `ready` ready and idle · `evidence` what else a program learns · `worker`, `watcher` the threads ·
//! `lease` what they do for each other · `hw` the contract · `sync` primitives.
//!
//! # Locks, in the order in which they nest
//! 1. *submit* of a queue: held across the real call; only ever tried, never waited for. Who needs it
//!    and finds it taken leaves a wish, which the release answers.
//! 2. *taken* of a queue: what its holder of submit has taken from pending. Nobody else locks it.
//! 3. *pending* of a queue: short; never two of them at a time.
//! 4. The lists of devices and queues (read for a moment; cloned where callbacks follow).
//! 5. Leaves: the spans of marks, the waits for others, the books, stalls, the estimates, the sleeps of signals.
//!
//! The real call is made with submit held and nothing else.
//!
//! The *poller's role* of a queue is tried, with or without submit, and takes only leaves.
//!
//! # Invariants
//! * A command is launched exactly once, or discarded exactly once, or refused at submit.
//! * Commands of one queue are launched in the order of their tickets; a command is launched after
//!   every command that its edges name. Every edge points to an earlier ticket, so somebody can
//!   always go on, permissions aside.
//! * Nobody waits for room, for a turn, for a launch or for a completion holding a lock of this crate.
//! * Suspending, resuming, limiting and permission changes take no submit, and wait for nothing
//!   unless a flag asks for it.
//! * After a suspension has returned, launches begin only if decided before it (at most one), or if a
//!   running queue waits for them.
//! * With the limit on, at most the window is in flight; a launch that fails is not in flight. Except where somebody waits for a
//!   launch: behind what only the program can end ([`Spec::open`]) nothing is kept back, and behind what does not end one
//!   command more goes now and then (`stall.rs`).
//! * Idle means proved: nothing pending, nothing in flight, with both locks held.
//! * Waits end: whoever changes what somebody waits for bumps the signal whose key the waiter took
//!   before it looked. Only completion is polled, because the hardware tells nobody.
//! * No thread of this crate, nor the one that decides, is needed for a wait to end or a suspension by the policy (`lease.rs`).

#[cfg(all(feature = "broken-order", not(debug_assertions)))]
compile_error!("the feature broken-order is for tests of the tests, and never in an optimized build");

#[cfg(feature = "broken-order")]
pub mod broken;
mod config;
mod control;
mod domain;
mod error;
mod estimate;
mod evidence;
mod flight;
mod hw;
mod launch;
mod lead;
mod lease;
#[cfg(all(test, loom))]
mod model;
mod order;
mod pending;
mod permission;
mod queue;
mod ready;
mod span;
mod stall;
mod storage;
mod submit;
mod sync;
mod thread;
mod watcher;
mod worker;

pub use config::{Bounds, Config, LaunchConfig, QueueConfig, TestMode};
pub use control::{ResumeFlags, SuspendFlags};
pub use domain::{Domain, Outstanding, Snapshot};
pub use error::{HwError, HwResult, SubmitError, hw_result};
pub use evidence::Evidence;
pub use flight::Proof;
pub use hw::{CostKey, Footprint, HwCommand, HwDevice, HwQueue, Mark, Observer, Unobserved};
pub use order::{After, DeviceId, OrderClass, QueueId, Scope, Ticket};
pub use permission::{Permission, Window};
pub use queue::{Stats, XQueue};
pub use ready::Wait;
pub use storage::{CommandBox, Spare};
pub use submit::{Direct, Spec};
