//! Clients that are connected and idle, in processes of their own: the server limits the connections of one process.

use super::client::{Client, DEVICE};
use crate::process::{PATIENCE, Program, this_program};
use anyhow::Result;
use clap::Args;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The clients of one process.
const EACH: usize = 60;
/// The priority of their queues, between those of the clients that are measured.
const PRIORITY: i64 = 5;
const NAME: &str = "idle";

/// Options of a process of idle clients.
#[derive(Debug, Clone, Args)]
pub struct PartArgs {
    #[arg(long)]
    socket: PathBuf,
    #[arg(long)]
    clients: usize,
}

/// Connects idle clients, and keeps them until standard input ends.
///
/// # Errors
/// A client cannot connect.
pub fn run_part(args: &PartArgs) -> Result<()> {
    let connect = |_| Client::connect(&args.socket, NAME, DEVICE, PRIORITY);
    let clients = (0..args.clients).map(connect).collect::<Result<Vec<_>>>()?;
    println!("ready");
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest)?;
    drop(clients);
    Ok(())
}

/// Idle clients of a server.
#[derive(Debug)]
pub(super) struct Crowd {
    parts: Vec<Program>,
}

impl Crowd {
    /// Connects this many clients.
    pub(super) fn gather(socket: &Path, clients: usize) -> Result<Self> {
        let mut parts = Vec::new();
        for first in (0..clients).step_by(EACH) {
            let mut command = Command::new(this_program()?);
            command.args(["ipc-part", "--clients", &(clients - first).min(EACH).to_string()]);
            command.arg("--socket").arg(socket);
            parts.push(Program::start(NAME, command)?);
        }
        for part in &mut parts {
            part.expect("ready", PATIENCE)?;
        }
        Ok(Self { parts })
    }

    /// The processes of the clients.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().map(Program::pid)
    }
}
