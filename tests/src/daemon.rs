//! A started `xserver`, and what it says when asked. The frames are written and read by hand here: whoever checks the
//! project's protocol does not use the project's own hand.

use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::kernel;
use crate::tree::product;

/// How long what must happen may take before it counts as hung.
pub const HANG: Duration = Duration::from_secs(60);

/// Waits until there is something.
///
/// # Panics
/// If there is nothing within [`HANG`].
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < HANG, "hang: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts `xserver HPF` on a socket, with these further variables.
///
/// # Errors
/// It is not built, or cannot be started; one line.
pub(crate) fn spawn(
    socket: &Path,
    parameters: &[&str],
    env: &[(&str, &str)],
    stderr: Stdio,
) -> Result<Child, String> {
    let mut words = vec!["HPF"];
    words.extend(parameters.iter().flat_map(|parameter| ["--set", *parameter]));
    spawn_with(&[], socket, &words, env, stderr)
}

/// Starts `xserver` with these arguments, behind a program that becomes it if there are words for one.
pub(crate) fn spawn_with(
    before: &[&str],
    socket: &Path,
    arguments: &[&str],
    env: &[(&str, &str)],
    stderr: Stdio,
) -> Result<Child, String> {
    let server = product("xserver")?;
    let mut command = match before {
        [] => kernel::command(&server),
        [first, rest @ ..] => {
            let mut command = kernel::command(first);
            command.args(rest).arg(&server);
            command
        }
    };
    // What it is told is the test's choice, not that of the shell around it.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"XSCHED_")) {
        command.env_remove(name);
    }
    command.args(arguments).env("XSCHED_SOCKET", socket).envs(env.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    command.spawn().map_err(|error| format!("cannot start {}: {error}", server.display()))
}

/// A server on a socket of its own. Killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    folder: TempDir,
}

impl Daemon {
    /// Starts one with the policy HPF and these further variables, and waits until it answers.
    pub fn start(env: &[(&str, &str)]) -> Daemon {
        Self::start_with(&[], env)
    }

    /// The same with these parameters of the policy, each `NAME=VALUE`.
    pub fn start_with(parameters: &[&str], env: &[(&str, &str)]) -> Daemon {
        let folder = tempfile::tempdir().expect("a folder for the socket");
        Daemon { child: Self::answering(&folder, parameters, env), folder }
    }

    /// Starts one for all users with this configuration, in which `DIR` stands for [`Daemon::folder`], and waits until it
    /// answers.
    pub fn for_all_users(configuration: &str) -> Daemon {
        let folder = tempfile::tempdir().expect("a folder for the socket");
        let (socket, file) = (folder.path().join("socket"), folder.path().join("giveway.toml"));
        let directory = folder.path().to_str().expect("a plain name");
        std::fs::write(&file, configuration.replace("DIR", directory)).expect("the configuration");
        Daemon { child: Self::answering_all(&socket, &file), folder }
    }

    /// Ends a server for all users, and starts another one in its place with the same configuration.
    pub fn replace(&mut self) {
        self.end();
        self.child = Self::answering_all(&self.socket(), &self.folder.path().join("giveway.toml"));
    }

    /// Kills the server. Its folder stays.
    pub fn end(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it can be waited for");
    }

    /// A server for all users that answers.
    fn answering_all(socket: &Path, file: &Path) -> Child {
        let file = file.to_str().expect("a plain name");
        let child = spawn_with(&[], socket, &["--system", "--config", file], &[], Stdio::null());
        let child = child.unwrap_or_else(|reason| panic!("{reason}"));
        until("the server answers", || UnixStream::connect(socket).is_ok().then_some(()));
        child
    }

    /// Stops it, as SIGSTOP does.
    pub fn stop(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it runs");
    }

    /// Kills it, and starts another one in its place, without further variables and parameters.
    pub fn restart(&mut self) {
        self.end();
        self.child = Self::answering(&self.folder, &[], &[]);
    }

    /// A server in this folder that answers.
    fn answering(folder: &TempDir, parameters: &[&str], env: &[(&str, &str)]) -> Child {
        let socket = folder.path().join("socket");
        let child =
            spawn(&socket, parameters, env, Stdio::null()).unwrap_or_else(|reason| panic!("{reason}"));
        until("the server answers", || UnixStream::connect(&socket).is_ok().then_some(()));
        child
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// A folder for what a test likes to keep there.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command of `xcli` that asks this server.
    ///
    /// # Panics
    /// If `xcli` is not built.
    pub fn xcli(&self) -> Command {
        let mut command = kernel::command(product("xcli").unwrap_or_else(|reason| panic!("{reason}")));
        command.arg("-a").arg(self.socket());
        command
    }

    /// The output of `xcli` with these words, asked of this server.
    ///
    /// # Panics
    /// If `xcli` is not built or fails.
    pub fn said(&self, words: &[&str]) -> String {
        let mut command = self.xcli();
        command.env_remove("LD_PRELOAD").env_remove("XSCHED_POLICY").args(words);
        let output = command.output().expect("xcli");
        assert!(output.status.success(), "xcli {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Everything that it knows, as `control::List` in JSON.
    pub fn list(&self) -> Value {
        const HEADER: usize = 12;
        let mut stream = UnixStream::connect(self.socket()).expect("the server listens");
        stream.set_read_timeout(Some(HANG)).expect("a time limit");
        let request = br#""list""#;
        let mut frame = b"GIVW\x03\x00\x01\x02".to_vec();
        frame.extend((request.len() as u32).to_le_bytes());
        frame.extend(request);
        stream.write_all(&frame).expect("the server takes the question");
        let mut header = [0; HEADER];
        stream.read_exact(&mut header).expect("the server answers");
        assert_eq!(header[..8], *b"GIVW\x03\x00\x02\x02", "the head of a reply");
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        let mut reply = vec![0; length as usize];
        stream.read_exact(&mut reply).expect("the server answers in full");
        let mut reply: Value = serde_json::from_slice(&reply).expect("the answer is JSON");
        reply["list"].take()
    }

    /// The clients of the list.
    pub fn clients(&self) -> Vec<Value> {
        self.list()["clients"].as_array().expect("the list has clients").clone()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
