//! Scheduling policies: pure decisions about which entities may launch.
//!
//! A status and the time go in; permissions and the next wake-up come out. Nothing here reads a clock, starts a thread,
//! reads the environment or calls back. So the same code decides in a preloaded process, in the server and in a
//! simulation.
//!
//! # Entities
//! A policy ranks [`SchedEntities`]. Under the local scheduler an entity is one queue. Under the global scheduler it is a
//! gang, a process with all its queues on all its devices: HIP blocks process-wide, so a half-suspended process
//! deadlocks. [`SchedEntities::gather`] makes the entities out of a status; nothing else treats queues and gangs
//! differently.
//!
//! # Modules
//! * `engine` takes a status and returns operations. It uses `resolve` (ranks to permissions, with `jobs`), `starvation`
//!   (the guard against it), `runtime_accounting` (the time that each entity ran) and `lingers` (for how long an idle
//!   entity counts as ready, by what `gaps` learns).
//! * `sched_entity` is what policies rank (with `rows`, what its queues say), `policy` their contract, `per_entity` their
//!   memory between decisions, and `memo` what they keep of queues that have not changed.
//! * Each policy has one file. `slice` holds the accounts of those with slices, `round_robin` and `virtual_runtime` the
//!   rules that several of these share, `deadline` that of the policies by deadline.
//! * [`registry`] is the table of the policies, [`reason`] the kinds of their reasons, `explanation` the text of a
//!   decision's reason, `parameter` their parameters and [`named`] their names in orders and answers.
//! * [`forecast`] foresees the next work of a queue. `times` is arithmetic.
//!
//! # Adding a policy
//! Write one file that implements [`Policy`], its `mod` line here, and one row of [`registry::POLICIES`]. Its name and
//! number are a row in `protocol/src/policy.rs` and an enumerator in `include/xsched/types.h`; a test compares the two. A
//! scenario in `tests/docs.rs` shows what is special about it. Parser, list and documentation follow. Reasons of its own
//! are [`reason::ReasonKind`]s in its file that its row lists.

mod awf;
mod cfs;
mod chpf;
mod credit;
mod deadline;
mod edf;
mod engine;
mod explanation;
mod fair;
pub mod forecast;
mod gang;
mod gaps;
mod hhpf;
mod hpf;
mod jobs;
mod kedf;
mod lax;
mod lcbe;
mod lingers;
mod memo;
mod mlfq;
pub mod named;
pub mod parameter;
mod per_entity;
mod policy;
mod power;
mod pup;
pub mod reason;
pub mod registry;
mod resolve;
mod round_robin;
mod rows;
mod runtime_accounting;
mod sched_entity;
mod shares;
mod slice;
mod slo;
mod spup;
mod starvation;
mod times;
mod up;
mod virtual_runtime;

pub use engine::{Choice, Decision, Engine};
pub use explanation::explain;
pub use parameter::{Parameter, ParameterError, Values};
pub use per_entity::PerEntity;
pub use policy::{Input, Linger, Policy, Ranking, Scope};
pub use rows::EntityQueue;
pub use sched_entity::{DeviceUse, SchedEntities, SchedEntity};
