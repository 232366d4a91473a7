//! `libshimhip.so`: preloaded in front of an unmodified HIP program, it receives the calls that matter for scheduling.
//!
//! One call takes this way: the exported function ([`table`]) enters through the [`boundary`], which knows the thread's
//! depth ([`thread`]), the [`lifecycle`] and the real function ([`runtime`]), and runs the handler of [`hooks`]. What
//! concerns a stream goes to its XQueue. Calls through function pointers arrive here as well, because [`dlsym`] and the look-up
//! functions of HIP hand out the same exported functions. Queues, streams and events of the process are [`process`]'s, the C
//! interface is [`capi`]. What the runtime asks the driver about its hardware queues passes through [`kfd`].
//!
//! This is the only room that exports symbols into a program. It never ends the program, writes nothing to standard
//! output, and does nothing in a process that makes no HIP call except remember its variables ([`environment`]).

// `--cfg races`: ThreadSanitizer calls `dlsym` before it can be called (docs/races.md).
#![cfg_attr(races, allow(dead_code))]

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
compile_error!("the shim stands in front of glibc's dynamic linker on x86-64; ROCm runs nowhere else");

mod boundary;
mod capi;
mod environment;
mod hooks;
mod interpose;
mod lifecycle;
mod log;
mod process;
mod startup;
mod summary;
mod thread;
