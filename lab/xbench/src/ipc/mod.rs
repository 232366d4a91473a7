//! `xbench ipc`: measures the way between programs and `xserver`, without a device and without the library.
//!
//! A server is started for each measurement, and clients that speak the protocol and have no work. Four parts:
//!
//! * `way`: from before the store of one client's readiness to the moment when another client's permission shows on its page,
//!   which the same thread reads again and again; for several numbers of connected clients. The thread needs a processor and
//!   the server another one.
//! * `idle`: processor time of a server whose clients are idle.
//! * `load`: many transitions a second, and whether one was lost ([`load`]).
//! * `memory`: resident memory of the server for each client.
//!
//! Times suffer from whatever else the machine does, so `way` is measured in blocks, and the one with the lowest p99 is judged.
//! The figures of all blocks, and the cores that other processes used meanwhile, are told as well.

mod bed;
mod client;
mod crowd;
mod echo;
mod figures;
mod load;
mod placement;
mod upkeep;
mod way;

pub use crowd::{PartArgs, run_part};

use crate::WrongInput;
use crate::files::{ensure_writable, write_json};
use crate::process::{ensure_beside, this_program};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum, value_parser};
use figures::Figures;
use placement::Placement;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The most connections that a server accepts.
const MOST_CLIENTS: usize = 1024;
/// Idle clients of `idle`, and its length in seconds.
const IDLE_CLIENTS: usize = 64;
const IDLE_SECONDS: u32 = 10;
/// Clients of `memory`.
const MEMORY_CLIENTS: usize = 512;

/// Options of `xbench ipc`.
#[derive(Debug, Clone, Args)]
pub struct IpcArgs {
    /// Parts of the measurement
    #[arg(long, value_name = "PART,...", value_delimiter = ',', default_values_t = [Part::Way, Part::Idle, Part::Load, Part::Memory])]
    part: Vec<Part>,
    /// Numbers of connected clients for which the way of a permission is measured, 2 to 1024
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [2, 8, 64, 256, 1024])]
    clients: Vec<usize>,
    /// Blocks for each number of clients
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=1000))]
    blocks: u32,
    /// Transitions to ready in each block, and as many to idle
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Processors of the server and of the bare thread, seen from the thread that measures the way of a permission
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = Placement::Free)]
    placement: Placement,
    /// Transitions a second of the load, of all clients together
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = value_parser!(u32).range(1..=10_000_000))]
    rate: u32,
    /// Seconds of the load
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Pairs of clients of the load, each with a thread and a device
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u32).range(1..=30))]
    pairs: u32,
    /// Shorter: two blocks of 200, 1 s for each of the others
    #[arg(long, conflicts_with_all = ["blocks", "rounds", "seconds"])]
    quick: bool,
    /// File for all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// From a transition to another client's permission
    Way,
    /// Processor time of a server whose clients are idle
    Idle,
    /// Many transitions a second
    Load,
    /// Memory for each client
    Memory,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::table::value_name(*self))
    }
}

/// Runs the command. The exit code is 1 if a transition was lost; missed limits do not change it.
///
/// # Errors
/// Something could not be measured.
pub fn run(args: &IpcArgs) -> Result<ExitCode> {
    if let Some(wrong) = args.clients.iter().find(|clients| !(2..=MOST_CLIENTS).contains(clients)) {
        return Err(WrongInput(format!("--clients {wrong} is not in 2..{MOST_CLIENTS}")).into());
    }
    ensure_beside(&this_program()?, &["xserver"])?;
    if let Some(file) = &args.json {
        ensure_writable(file)?;
    }
    let wants = |part| args.part.contains(&part);
    let (blocks, rounds) = if args.quick { (2, 200) } else { (args.blocks as usize, args.rounds as usize) };
    let seconds = |usual| Duration::from_secs(if args.quick { 1 } else { usual });
    let mut way = Vec::new();
    for &clients in args.clients.iter().filter(|_| wants(Part::Way)) {
        eprintln!("xbench: {clients} clients");
        let row = way::measure(clients, blocks, rounds, args.placement)
            .with_context(|| format!("with {clients} clients"))?;
        way.push(row);
    }
    let idle = wants(Part::Idle).then(|| {
        eprintln!("xbench: {IDLE_CLIENTS} idle clients");
        upkeep::idle(IDLE_CLIENTS, seconds(IDLE_SECONDS.into())).context("with idle clients")
    });
    let load = wants(Part::Load).then(|| {
        let plan = load::Plan { pairs: args.pairs, rate: args.rate, length: seconds(args.seconds.into()) };
        eprintln!("xbench: {} transitions a second for {} s", plan.rate, plan.length.as_secs());
        load::measure(plan).context("with many transitions")
    });
    let memory = wants(Part::Memory).then(|| {
        let clients = if args.quick { IDLE_CLIENTS } else { MEMORY_CLIENTS };
        eprintln!("xbench: memory of {clients} clients");
        upkeep::memory(clients).context("of the memory")
    });
    let figures =
        Figures::new(args.quick, args.rate, way, idle.transpose()?, load.transpose()?, memory.transpose()?);
    if let Some(file) = &args.json {
        write_json(file, &figures)?;
    }
    print!("{}", figures.table());
    Ok(if figures.has_losses() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::parse;

    #[test]
    fn options_are_checked() {
        let args = parse::<IpcArgs>(&[]).unwrap();
        assert_eq!((args.rate, args.seconds, args.part.len()), (100_000, 60, 4));
        assert_eq!(args.clients, [2, 8, 64, 256, 1024]);
        assert_eq!(parse::<IpcArgs>(&["--part", "way,load"]).unwrap().part, [Part::Way, Part::Load]);
        assert!(parse::<IpcArgs>(&["--part", "none"]).is_err());
        assert!(parse::<IpcArgs>(&["--quick", "--seconds", "5"]).is_err());
        for wrong in ["1", "1025"] {
            let error = run(&parse(&["--clients", wrong]).unwrap()).unwrap_err();
            assert!(error.is::<WrongInput>(), "{error}");
        }
    }
}
