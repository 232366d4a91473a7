//! One simulated GPU for several programs, a server that sees it, and `xcli` outside: for what a person does to programs that
//! run. The program is `held_outside`, which does a step of work when it is told to.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;
use tempfile::TempDir;

use crate::{Gpu, Mode, Run, Running, kernel, product, until};

/// A GPU, kept in being, with a place for a server.
#[derive(Debug)]
pub struct Stage {
    // Ends before what it runs on.
    /// `cat` beside the device, which knows nothing of GPUs.
    pub keep: Running,
    /// The GPU.
    pub gpu: Gpu,
    /// Of its own; the socket lies there.
    pub folder: TempDir,
}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    /// Waits for its turn.
    pub fn new() -> Self {
        let gpu = Gpu::take();
        Self { keep: gpu.keep(), gpu, folder: tempfile::tempdir().expect("a folder") }
    }

    /// Where the server is, or would be.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("xserver.sock")
    }

    /// A server that sees the GPU.
    pub fn server(&self) -> Running {
        let server =
            self.gpu.shared_product("xserver").env("XSCHED_SOCKET", &self.socket().display().to_string());
        let server = server.start();
        until("the server answers", || self.list());
        server
    }

    /// Runs `xcli` outside the simulation.
    pub fn xcli(&self, words: &[&str]) -> Output {
        let xcli = product("xcli").unwrap_or_else(|reason| panic!("{reason}"));
        let mut command = kernel::command(xcli);
        command.env("XSCHED_SOCKET", self.socket()).env_remove("LD_PRELOAD");
        command.args(words).output().expect("xcli")
    }

    /// The same, which succeeds, says nothing on standard error, and prints JSON.
    pub fn json(&self, words: &[&str]) -> Value {
        let output = self.xcli(words);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{words:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Reads `xcli list --json`; none if no server answers.
    pub fn list(&self) -> Option<Value> {
        let output = self.xcli(&["list", "--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    /// The processes that are held.
    pub fn held(&self) -> Vec<Value> {
        self.list().expect("a server")["held"].as_array().expect("a list of what is held").clone()
    }

    /// A program that does a step when it is told to, and its number.
    pub fn program(&self, words: &[&str], env: &[(&str, &str)]) -> (Running, String) {
        let mut run = self.gpu.shared("held_outside");
        for word in words {
            run = run.arg(*word);
        }
        for (name, value) in env {
            run = run.env(name, value);
        }
        Self::started(run)
    }

    /// The same, preloaded and under the server.
    pub fn client(&self, priority: &str) -> (Running, String) {
        let env = [("XSCHED_SCHEDULER", "GLB"), ("XSCHED_AUTO_XQUEUE_PRIORITY", priority)];
        self.preloaded(&[], &env)
    }

    /// A preloaded one, with a queue for each stream and these words and further variables.
    pub fn preloaded(&self, words: &[&str], env: &[(&str, &str)]) -> (Running, String) {
        let socket = self.socket().display().to_string();
        let always = [("XSCHED_SOCKET", socket.as_str()), ("XSCHED_AUTO_XQUEUE", "ON")];
        let env = always.iter().chain(env).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut run = self.gpu.shared("held_outside").mode(Mode::Shimmed { env: env.collect() });
        for word in words {
            run = run.arg(*word);
        }
        Self::started(run)
    }

    /// Starts it, waits until it is ready; with its number.
    fn started(run: Run) -> (Running, String) {
        let mut running = run.start();
        assert_eq!(running.line(), "ready");
        let pid = running.program().expect("it runs").as_raw_nonzero().to_string();
        (running, pid)
    }
}

/// Returns a command's output as text.
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// Gives `held_outside` a line, and reads its answer.
pub fn tell(program: &mut Running) -> String {
    program.answer();
    program.line()
}

/// Has it do a step, to the end.
pub fn step(program: &mut Running) {
    assert_eq!(tell(program), "submitted");
    complete(program);
}

/// Waits until the step that it has submitted is complete.
pub fn complete(program: &mut Running) {
    until("the step is complete", || (tell(program) == "complete").then_some(()));
}

/// The other program does more on the same device than the first one has submitted, and that has not come to anything.
pub fn stands_still(program: &mut Running, other: &mut Running) {
    assert_eq!(tell(program), "submitted");
    step(other);
    step(other);
    assert_eq!(tell(program), "pending");
}

/// Returns true if a process ends within this time.
pub fn is_over(pid: Pid, within: Duration) -> bool {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let limit = Timespec::try_from(within).expect("a short time");
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).expect("poll") == 1
}
