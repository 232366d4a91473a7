//! A server for one measurement, with its directory.

use super::crowd::Crowd;
use crate::files::{RunFiles, scratch};
use crate::process::{Program, SERVER_PATIENCE, beside, poll, this_program};
use crate::server::Connection;
use anyhow::{Context, Result};
use protocol::control::List;
use std::path::PathBuf;
use tempfile::TempDir;

/// A started `xserver`.
#[derive(Debug)]
pub(super) struct Bed {
    server: Program,
    pub(super) socket: PathBuf,
    _directory: TempDir,
}

impl Bed {
    /// Starts a server with the default policy.
    pub(super) fn start() -> Result<Self> {
        let directory = scratch()?;
        let socket = RunFiles(directory.path()).socket();
        let server = Program::server(&beside(&this_program()?, "xserver"), &["HPF".to_owned()], &socket)?;
        Ok(Self { server, socket, _directory: directory })
    }

    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// The server, this process and those of the idle clients.
    pub(super) fn pids(&self, crowd: &Crowd) -> Vec<u32> {
        crowd.pids().chain([std::process::id(), self.pid()]).collect()
    }

    /// Asks the server for its list, on a connection that ends with the answer.
    pub(super) fn list(&self) -> Result<List> {
        Connection::open(&self.socket)?.list()
    }

    /// Waits until the server knows a queue of each of these clients.
    pub(super) fn wait_for_queues(&self, clients: usize) -> Result<List> {
        let known = poll(SERVER_PATIENCE, || {
            let list = self.list()?;
            let all =
                list.clients.len() == clients && list.clients.iter().all(|client| !client.queues.is_empty());
            Ok(all.then_some(list))
        })?;
        known.with_context(|| format!("xserver does not know the queues of {clients} clients"))
    }

    /// Ends the server, which must still run.
    pub(super) fn end(self) -> Result<()> {
        self.server.terminate()
    }
}
