//! A program without HIP that is a client of a server.

use std::process::{Child, Command, Stdio};

use crate::daemon::Daemon;
use crate::tree::product;

/// A started `plain-client`. It ends when this is dropped.
#[derive(Debug)]
pub struct PlainClient(Child);

impl PlainClient {
    /// Starts one with this name and priority. It connects soon.
    pub fn start(server: &Daemon, name: &str, priority: i32) -> Self {
        let mut command = Command::new(product("plain-client").unwrap_or_else(|reason| panic!("{reason}")));
        command.arg(server.socket()).arg(name).arg(priority.to_string()).stdin(Stdio::piped());
        Self(command.spawn().expect("plain-client"))
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for PlainClient {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It may have been killed.
        let _ = self.0.wait();
    }
}
