//! The daemon that workers connect to: a server of this measurement's own, on a socket of its own.

use crate::daemon::{self, LOOK, PATIENCE};
use anyhow::{Context, Result, anyhow};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Instant;

/// An `xserver`, which ends with this value.
#[derive(Debug)]
pub(super) struct Server {
    process: Child,
    directory: PathBuf,
    socket: PathBuf,
}

impl Server {
    /// Starts one under highest priority first, and waits until it listens.
    pub(super) fn start(program: &Path) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("xbench-xserver-{}", std::process::id()));
        // Fails if it exists: what somebody else has put there is not used.
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let socket = directory.join("socket");
        let mut command = daemon::command(program, "HPF", &socket);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = match command.spawn() {
            Ok(process) => process,
            Err(error) => {
                let _ = std::fs::remove_dir_all(&directory);
                return Err(error).with_context(|| format!("cannot start {}", program.display()));
            }
        };
        let mut server = Self { process, directory, socket };
        daemon::await_listening(&mut server.process, &server.socket)?;
        Ok(server)
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Waits until so many clients are connected.
    pub(super) fn wait_for(&self, clients: usize) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let sockets = std::fs::read_to_string("/proc/net/unix").context("cannot read /proc/net/unix")?;
            let connected = connections(&sockets, &self.socket.to_string_lossy());
            if connected >= clients {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(anyhow!("{connected} of {clients} processes have connected to xserver"));
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ended = |process: &mut Child| !matches!(process.try_wait(), Ok(None));
        if let Some(pid) = rustix::process::Pid::from_raw(self.process.id() as i32)
            && !ended(&mut self.process)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let end = Instant::now() + PATIENCE;
        while !ended(&mut self.process) && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
        // Nothing to do for one that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// How many accepted sockets at this path are connected, by the kernel's list: columns flags, type, state, inode, path.
fn connections(list: &str, path: &str) -> usize {
    list.lines()
        .filter(|line| line.strip_suffix(path).is_some_and(|rest| rest.ends_with(' ')))
        .filter(|line| line.split_whitespace().nth(5) == Some("03"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn accepted_sockets_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let count =
            || connections(&std::fs::read_to_string("/proc/net/unix").unwrap(), path.to_str().unwrap());
        assert_eq!(count(), 0);
        let clients = [UnixStream::connect(&path).unwrap(), UnixStream::connect(&path).unwrap()];
        let accepted = clients.each_ref().map(|_| listener.accept().unwrap());
        assert_eq!(count(), 2);
        drop((clients, accepted));
        // A process that another test has just forked has them until it executes.
        let end = Instant::now() + PATIENCE;
        while count() != 0 {
            assert!(Instant::now() < end, "{} are left", count());
            std::thread::sleep(LOOK);
        }
    }

    #[test]
    fn a_server_that_ends_is_said_so() {
        let error = Server::start(Path::new("/bin/false")).unwrap_err().to_string();
        assert!(error.starts_with("xserver ended with"), "{error}");
        let error = Server::start(Path::new("/nowhere/xserver")).unwrap_err().to_string();
        assert_eq!(error, "cannot start /nowhere/xserver");
    }
}
