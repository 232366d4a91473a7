//! An `xserver` for a measurement: how it is started, and when it is there.

use anyhow::{Context, Result, bail};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long it may take to listen, which takes milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at something that tells nobody when it changes.
pub(crate) const LOOK: Duration = Duration::from_millis(2);

/// The command of a server with this policy on this socket, which says only what is wrong.
pub(crate) fn command(program: &Path, policy: &str, socket: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(policy).env("XSCHED_SOCKET", socket).env("XSCHED_LOG_LEVEL", "warn").env_remove("LD_PRELOAD");
    command
}

/// Waits until it listens.
///
/// # Errors
/// It has ended, or does not listen in time.
pub(crate) fn await_listening(server: &mut Child, socket: &Path) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while UnixStream::connect(socket).is_err() {
        if let Some(status) = server.try_wait().context("cannot wait for xserver")? {
            bail!("xserver ended with {status}");
        }
        if Instant::now() > end {
            bail!("xserver does not listen on {}", socket.display());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
