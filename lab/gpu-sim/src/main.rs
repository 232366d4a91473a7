//! A simulated AMD GPU under the unmodified HIP runtime.
//!
//! `gpu-sim run -- CMD` starts CMD where `/dev/kfd`, the render nodes and the sysfs topology are served by a supervisor
//! process, which is the GPU: it reads the rings that AMD's own libraries fill, schedules their kernels in time, moves
//! memory and completes signals. Functional truth and modelled time: no figure from it is a GPU measurement.
//!
//! Rooms: `launch` and `info` are the commands; `supervisor` owns the machine and serves `fuse` requests, which `ioctl`
//! executes on `machine`; `engine` lets time pass; `device` models the compute units; `kernels` knows what a kernel
//! does, and `unexecuted` counts those it leaves out; `arena` and `space` are memory; `sandbox`, `topology` and `cards` are what
//! programs see.

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
mod sandbox;
mod space;
mod supervisor;
mod threads;
mod topology;
mod unexecuted;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use control::Setup;

/// Exit code when the rights or the kernel facilities are missing.
const EXIT_NOT_HERE: u8 = 77;
/// Exit code of errors of gpu-sim itself.
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
    /// Run a command on a simulated GPU. The exit code is the command's (128 + n if signal n ended it); 125 for errors
    /// of gpu-sim, 126 and 127 if the command cannot be run or found, 77 without the rights. What
    /// it sets for the command stands in `gpu-sim info`. What the command leaves running on the GPU ends with the last run
    /// on it.
    Run(RunArgs),
    /// Say whether a simulated GPU can be had here, and what is running.
    Info {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// The supervisor itself; started by `run`.
    #[command(hide = true)]
    Supervise {
        /// Its socket.
        socket: PathBuf,
        /// How the set is made, as JSON.
        setup: String,
    },
}

#[derive(Args)]
struct RunArgs {
    /// Share the GPUs with other runs of this name; the first one makes them
    #[arg(long)]
    name: Option<String>,
    /// Number of GPUs (1 to 8) [default: 1]
    #[arg(long)]
    gpus: Option<u32>,
    /// Partitions of each GPU, as in compute partition mode CPX: devices at one PCI address that divide compute units and memory
    /// (gfx942 and gfx950: 2, 4 or 8) [default: 1]
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// Device model [default: gfx90a]
    #[arg(long)]
    arch: Option<String>,
    /// Memory of each GPU (1 to 1024) [default: 64]
    #[arg(long, value_name = "GIB")]
    vram: Option<u64>,
    /// How compute units are shared [default: shared]
    #[arg(long)]
    cu_model: Option<CuModel>,
    /// JSON object: kernel name, or prefix ending in '*', to microseconds
    #[arg(long, value_name = "FILE")]
    durations: Option<PathBuf>,
    /// Microseconds that the device takes to save what runs on queues that it takes off [default: 0]
    #[arg(long, value_name = "N")]
    save_us: Option<u64>,
    /// Microseconds that it takes to bring that back [default: 0]
    #[arg(long, value_name = "N")]
    restore_us: Option<u64>,
    /// Waves are not saved: taking a queue off waits until its kernels have ended
    #[arg(long)]
    no_cwsr: bool,
    /// Milliseconds after which queues that do not come off make the driver reset the device [default: 9000]
    #[arg(long, value_name = "N")]
    preemption_timeout_ms: Option<u64>,
    /// The N-th compute queue created never comes off while a kernel of its runs
    #[arg(long, value_name = "N")]
    stuck_queue: Option<u32>,
    /// Fail ioctls at random: one in ONE_IN (16) of these REQUESTs (those that holds are made of), ROW times in a row (1),
    /// after which the next one succeeds
    #[arg(long, value_name = "SEED[:ONE_IN[:REQUEST,...[:ROW]]]")]
    fail_ioctls: Option<String>,
    /// Write statistics of the GPUs so far as JSON when the command ends
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Do not say at the end which kernels were not executed
    #[arg(long)]
    quiet: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum CuModel {
    /// Work-groups of all queues are placed in turn as slots become free.
    Shared,
    /// One kernel at a time, in order of arrival.
    Fcfs,
}

fn main() -> ExitCode {
    if let Some(code) = manual::asked::<Cli>() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // Exit codes of 0 to 124 are the command's.
            return ExitCode::from(if error.use_stderr() { EXIT_ERROR } else { 0 });
        }
    };
    let result = match cli.command {
        Command::Run(args) => {
            if let Some(obstacle) = sandbox::obstacle() {
                eprintln!("{obstacle}");
                return ExitCode::from(EXIT_NOT_HERE);
            }
            run(args)
        }
        Command::Info { json } => {
            return if info::info(json) { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NOT_HERE) };
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

fn run(args: RunArgs) -> anyhow::Result<u8> {
    // The supervisor has another working directory in its namespace.
    let durations = args.durations.map(std::path::absolute).transpose()?;
    let cu_model = args.cu_model.and_then(|model| Some(model.to_possible_value()?.get_name().to_owned()));
    let setup = Setup {
        gpus: args.gpus,
        partitions: args.partitions,
        arch: args.arch,
        vram: args.vram,
        cu_model,
        durations,
        save_us: args.save_us,
        restore_us: args.restore_us,
        no_cwsr: args.no_cwsr.then_some(true),
        preemption_timeout_ms: args.preemption_timeout_ms,
        stuck_queue: args.stuck_queue,
        fail_ioctls: args.fail_ioctls,
    };
    let RunArgs { name, stats, quiet, command, .. } = args;
    launch::run(&launch::Run { name, setup, stats, quiet, command })
}
