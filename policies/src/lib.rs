//! Scheduling policies: pure decisions about who may launch.
//!
//! A status and the time go in; permissions and the next wake-up come out. Nothing here reads a clock, starts a thread,
//! asks the environment or calls back, so the same code decides in a preloaded process, in the server and in a
//! simulation.
//!
//! # One formulation for queues and gangs
//! A policy sees [`Entities`]. Under the local scheduler an entity is one queue; under the global one it is a gang: a process
//! with all its queues on all its devices, because HIP blocks process-wide and a half-suspended process deadlocks.
//! [`Entities::gather`] makes the entities out of a status and is the only code that knows the difference.
//!
//! # Rooms
//! `entity` what is decided about · `policy` the contract of a policy: it ranks · one file for each policy · `turns` and
//! `runtime` what policies that share have in common · `deadline` by when work should be done · [`forecast`] when a queue's
//! next work arrives · `parameter` what can be set of a policy · `registry` the table of the policies that are built ·
//! `named` policies as people name them · `resolve` ranks to permissions, for gangs and for `jobs` · `starvation` the guard
//! · `tally` who has run · `ledger` memory of entities between decisions · `times` reckoning with times · `engine` status in,
//! operations out.
//!
//! # Adding a policy
//! One file that implements [`Policy`], its `mod` line here, and one row of [`registry::POLICIES`]. Its name and number are a
//! row in `protocol/src/policy.rs` and an enumerator in `include/xsched/types.h`, which a test compares; a scene in
//! `tests/docs.rs` shows what is special about it. Parser, list and documentation follow.

mod awf;
mod cfs;
mod chpf;
mod credit;
mod deadline;
mod edf;
mod engine;
mod fair;
pub mod forecast;
mod gang;
mod hhpf;
mod hpf;
mod jobs;
mod kedf;
mod lax;
mod lcbe;
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
mod runtime_accounting;
mod sched_entity;
mod slo;
mod spup;
mod starvation;
mod times;
mod up;
mod virtual_runtime;

pub use engine::{Choice, Decision, Engine};
pub use parameter::{Parameter, ParameterError, Values};
pub use per_entity::PerEntity;
pub use policy::{Input, Policy, Ranking, Scope};
pub use sched_entity::{DeviceUse, EntityQueue, SchedEntities, SchedEntity};
