//! `libshimhip.so`: preloaded into an unmodified HIP program, it receives the calls that matter for
//! scheduling.
//!
//! The way of a call: the exported function ([`interpose`]) enters through the [`boundary`], which checks the
//! thread's depth ([`thread`]), the [`lifecycle`] and the real function, and runs the handler in [`hooks`].
//! Work for a stream goes to its XQueue. Calls through function pointers arrive here as well, because `dlsym`
//! and HIP's look-up functions return the same exported functions. The runtime's requests to the driver pass
//! through `interpose`, too.
//!
//! [`process`] has what the library knows of streams, events, graphs and pools, [`capi`] is the C interface,
//! and [`startup`] starts and ends the library in a process.
//!
//! This is the only crate that exports symbols into a program. It never ends the program, writes nothing to
//! standard output, and in a process without HIP calls only copies its variables ([`environment`]).

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
