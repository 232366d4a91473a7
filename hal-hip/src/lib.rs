//! The hardware layer for HIP: what `xqueue` needs of the real runtime.
//!
//! A deferred launch outlives the caller's arguments, so they are copied by their true sizes. Those are known from the
//! code objects that the program registers or loads: [`code_object`] reads them, [`kernels`] remembers which handle
//! means which kernel, [`args`] copies. What cannot be known for certain is [`layout::Unknown`] with a reason, and such
//! a launch waits for its turn with the caller's own arguments instead.
//!
//! Nothing here exports a symbol, prints, ends the process or panics: it runs inside other people's programs.

pub mod args;
pub mod code_object;
mod handles;
pub mod kernels;
pub mod layout;

#[cfg(test)]
mod sample;
