//! The hardware layer for HIP: implements the traits of `xqueue` with the real runtime.
//!
//! A deferred launch outlives the caller's arguments, so they are copied by their true sizes. The sizes come
//! from the code objects that the program registers or loads: [`code_object`] reads them, [`kernels`] maps
//! handles to kernels, [`args`] copies. A kernel about which anything is uncertain is [`layout::Unknown`]
//! with a reason, and its launch is made in order with the caller's own arguments instead.
//!
//! [`queue`] implements the hardware queue of a stream, [`command`] the deferred commands; [`memory`] decides
//! which copies can be deferred. The real functions come in as [`real::RuntimeFunctions`]; no HIP symbol is named here.
//!
//! Nothing here exports a symbol, prints, ends the process or panics: the code runs inside other people's
//! programs.

pub mod args;
pub mod code_object;
pub mod command;
pub mod ended;
pub mod exclusion;
pub mod kernels;
pub mod layout;
pub mod map;
pub mod memory;
mod mix;
pub mod queue;
pub mod real;
pub mod waits;

#[cfg(test)]
#[path = "tests/sample.rs"]
mod sample;
