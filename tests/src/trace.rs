//! A recording of `xcli trace record`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::until;

/// A running `xcli trace record`. Killed when dropped.
#[derive(Debug)]
pub struct Recorder {
    child: Option<Child>,
    file: PathBuf,
}

impl Recorder {
    /// Starts the command with a file that it creates. `xcli` names the server.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(mut xcli: Command, file: &Path) -> Recorder {
        // Longer than any test: it ends by a signal.
        xcli.args(["trace", "record", "--seconds", "3600", "-o"]).arg(file);
        xcli.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Recorder { child: Some(xcli.spawn().expect("xcli")), file: file.to_owned() }
    }

    /// Waits until it reads the traces of these processes, and they write.
    pub fn until_it_reads(&self, programs: &[u64]) {
        let traces = |pid: u64| {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            maps.lines().filter(|line| line.contains("memfd:xserver-trace")).count()
        };
        until("xcli reads all programs", || (traces(self.pid()) == programs.len()).then_some(()));
        for program in programs {
            until("the program writes", || (traces(*program) > 0).then_some(()));
        }
    }

    /// Waits until it has both connections to the server.
    pub fn until_it_is_connected(&self) {
        until("both are connected", || {
            let folder = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).ok()?;
            let links = folder.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
            let sockets = links.filter(|link| link.to_string_lossy().starts_with("socket:")).count();
            (sockets >= 2).then_some(())
        });
    }

    /// The file that it writes when it ends.
    pub fn file(&self) -> &Path {
        &self.file
    }

    fn pid(&self) -> u64 {
        self.child.as_ref().expect("it runs").id().into()
    }

    /// Ends it as Ctrl-C does. Returns the file and what it said.
    ///
    /// # Panics
    /// If it fails.
    pub fn stop(self) -> (Vec<u8>, String) {
        let pid = Pid::from_child(self.child.as_ref().expect("it runs"));
        kill_process(pid, Signal::INT).expect("it runs");
        let file = self.file.clone();
        let output = self.wait();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{said}");
        (std::fs::read(file).expect("the file is there"), said)
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If that fails.
    pub fn wait(mut self) -> Output {
        self.child.take().expect("it runs").wait_with_output().expect("it ends")
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
