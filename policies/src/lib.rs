//! Scheduling policies: pure decisions about who may launch.
//!
//! A status and the time go in; permissions and the next wake-up come out. Nothing here reads a clock, starts a thread,
//! asks the environment or calls back, so the same code decides in a preloaded process, in the server and in a
//! simulation.
//!
//! # One formulation for queues and gangs
//! A policy sees [`Units`]. Under the local scheduler a unit is one queue; under the global one it is a gang: a process
//! with all its queues on all its devices, because HIP blocks process-wide and a half-suspended process deadlocks.
//! [`Units::gather`] makes the units out of a status and is the only code that knows the difference.
//!
//! # Rooms
//! `unit` what is decided about · `policy` the contract of a policy: it ranks · one file for each policy · `parameter` what
//! can be set of one · `registry` the table of the policies that are built · `resolve` ranks to permissions, gangs and jobs
//! · `starvation` the guard · `tally` who has run · `ledger` memory of units between decisions · `engine` status in,
//! operations out.
//!
//! # Adding a policy
//! One file that implements [`Policy`], and one row of [`registry::POLICIES`]. Parser, list and documentation follow.

mod cfs;
mod credit;
mod engine;
mod fair;
mod hpf;
mod ledger;
pub mod parameter;
mod policy;
mod pup;
pub mod registry;
mod resolve;
mod runtime;
mod spup;
mod starvation;
mod tally;
mod turns;
mod unit;
mod up;

pub use cfs::Cfs;
pub use credit::Credit;
pub use engine::{Choice, Decision, Engine};
pub use fair::Fair;
pub use hpf::Hpf;
pub use ledger::Ledger;
pub use parameter::{Parameter, ParameterError, Values};
pub use policy::{Input, Policy, Scope, Standing};
pub use pup::Pup;
pub use spup::Spup;
pub use unit::{DeviceUse, Unit, UnitQueue, Units};
pub use up::Up;
