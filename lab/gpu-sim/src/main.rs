//! A simulated AMD GPU under the unmodified HIP runtime.
//!
//! `gpu-sim run -- CMD` starts CMD in a mount namespace in which a supervisor process serves `/dev/kfd`, the
//! render nodes and the sysfs topology. The supervisor is the GPU: it reads the rings that AMD's libraries
//! fill, schedules their kernels in time, moves memory and completes signals. Results are exact and times are
//! modelled: no figure from it is a measurement of a GPU.
//!
//! Rooms, from the top:
//! * `launch` and `info` are the commands. `supervisor` owns the machine and serves `fuse` requests.
//! * `engine` executes calls and lets time pass. It puts the parts below in order.
//! * `ioctl` executes requests about memory and events, `driver` those about queues, `packets` the packets in
//!   the rings.
//! * `machine` is the state that all of them change.
//! * `device` models the compute units; `kernels` knows the effects of kernels, and `unexecuted` counts those
//!   it does not execute. `recording` writes the timeline of a run.
//! * `arena` and `space` are memory; `sandbox`, `topology`, `cards` and `drm` are what programs see of the
//!   device.

mod arena;
mod call;
mod cards;
mod clock;
mod control;
mod device;
mod driver;
mod drm;
mod engine;
mod fuse;
mod info;
mod ioctl;
mod kernels;
mod launch;
mod layout;
mod machine;
mod packets;
mod procfs;
mod recording;
mod sandbox;
mod space;
mod supervisor;
mod threads;
mod topology;
mod unexecuted;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The exit code if rights or kernel features are missing.
const EXIT_UNSUPPORTED: u8 = 77;
/// The exit code of errors of gpu-sim itself.
const EXIT_ERROR: u8 = 125;

/// A simulated AMD GPU under the unmodified HIP runtime.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a command on a simulated GPU. The exit code is that of the command (128 + n if signal n ended it),
    /// 125 for errors of gpu-sim, 126 if the command cannot be run, 127 if it is not found, and 77 if rights
    /// are missing. `gpu-sim info` lists the environment variables that are set for the command. Processes
    /// that the command leaves on the GPU end with the last run on it.
    Run(Box<launch::Run>),
    /// Print whether this machine can simulate a GPU, and the simulations that are running
    Info {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// The supervisor, which `run` starts
    #[command(hide = true)]
    Supervise {
        /// The path of its socket
        socket: PathBuf,
        /// The options of the set, as JSON
        setup: String,
    },
}

fn main() -> ExitCode {
    if let Some(code) = manual::asked::<Cli>() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // Exit codes from 0 to 124 belong to the command.
            return ExitCode::from(if error.use_stderr() { EXIT_ERROR } else { 0 });
        }
    };
    let result = match cli.command {
        Command::Run(args) => {
            if let Some(obstacle) = sandbox::obstacle() {
                eprintln!("{obstacle}");
                return ExitCode::from(EXIT_UNSUPPORTED);
            }
            launch::run(*args)
        }
        Command::Info { json } => {
            return if info::info(json) { ExitCode::SUCCESS } else { ExitCode::from(EXIT_UNSUPPORTED) };
        }
        Command::Supervise { socket, setup } => serde_json::from_str(&setup)
            .map_err(Into::into)
            .and_then(|setup| supervisor::main(&socket, &setup))
            .map(|()| 0),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("gpu-sim: {error:#}");
            ExitCode::from(EXIT_ERROR)
        }
    }
}
