//! The account of the device's time: who used each nanosecond, and why nobody did.
//!
//! `sweep` is the account itself, a pure function of the changes of a run. A run is measured: the simulated
//! device writes a [`timeline`], the server its [`decisions`], each replay its launches and its requests; `run`
//! puts them together. `latency` tells what each request waited for. `policy-sim` gives the changes of its simulation to the same function. `loss` compares
//! the accounts of all blocks of a mode with the loss that the programs' own counts show.

mod decisions;
mod entry;
mod latency;
mod lingers;
mod loss;
mod run;
mod sweep;
#[cfg(test)]
mod tests;
mod timeline;

#[cfg(test)]
pub(crate) use entry::Entry;
pub(crate) use lingers::Lingers;
pub(crate) use loss::{Accounts, Runs};
pub(crate) use run::{Part, Program, RunAccount};
pub(crate) use sweep::{Change, Class, Index, What, sweep};
