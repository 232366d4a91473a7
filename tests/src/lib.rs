//! Runs the HIP programs of `tests/programs` on a simulated GPU.
//!
//! A test takes a [`Gpu`] (at most two are in use at once on one machine), asks it for a [`Run`] of a program, and looks
//! at the [`Finished`] run: exit code, output, `gpu-sim`'s statistics. Programs are built on first use and kept in
//! `target/hip-programs`. The same program can be run [`Mode::Native`] and [`Mode::Shimmed`] and its output compared.
//! Waiting is always for a condition (an end, a line of output); the time limits only keep a hang from lasting.
//!
//! ```no_run
//! let gpu = tests::Gpu::take();
//! let run = gpu.run("copies").finish();
//! run.expect_success();
//! ```
//!
//! This crate links none of the project's libraries: what checks them shares no code with them.

pub mod clients;
mod comgr;
pub mod conformance;
mod daemon;
mod dice;
pub mod faults;
mod gpu;
pub mod hip_cuda;
pub mod kernel;
pub mod kfd_faults;
mod plain_client;
mod process;
pub mod program;
pub mod races;
pub mod random;
mod runtime;
mod slots;
pub mod stage;
mod trace;
mod tree;

pub use daemon::{Daemon, HANG, until};
pub use gpu::{Gpu, Mode, Run};
pub use plain_client::PlainClient;
pub use process::{Finished, Running, Stats};
pub use runtime::{
    Installed, Runtime, Sanitized, arch, c_program, code_object, example_program, gpreempt_example,
    gpreempt_library, hip_major, linked_program, program, program_behind_the_runtime,
};
pub use slots::{AT_ONCE, each};
pub use trace::Recorder;
pub use tree::{product, workspace};
