//! The hardware layer for HIP: what `xqueue` needs of the real runtime.
//!
//! A deferred launch outlives the caller's arguments, so they are copied by their true sizes. Those are known from the
//! code objects that the program registers or loads: [`code_object`] reads them, [`kernels`] remembers which handle
//! means which kernel, [`args`] copies. What cannot be known for certain is [`layout::Unknown`] with a reason, and such
//! a launch waits for its turn with the caller's own arguments instead.
//!
//! [`queue`] is a stream as an XQueue sees it, [`command`] what is launched on it later, [`memory`] says which copies
//! may be launched later. The real functions come in as [`real::Real`]; no HIP symbol is named here.
//!
//! Nothing here exports a symbol, prints, ends the process or panics: it runs inside other people's programs.

pub mod args;
pub mod code_object;
pub mod command;
pub mod ended;
pub mod exclusion;
mod handles;
pub mod kernels;
pub mod layout;
pub mod map;
pub mod memory;
pub mod queue;
pub mod real;
pub mod waits;

#[cfg(test)]
mod sample;
