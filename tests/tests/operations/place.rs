//! A server for all users, simulated GPUs, and programs of several users there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tests::{Daemon, Gpu, Run, Running, product, program, until};

/// Two users without rights of their own.
pub const ALICE: u32 = 40_001;
pub const BOB: u32 = 40_002;

/// A rule that gives Alice priorities up to 100.
pub const CONFIGURATION: &str = r#"
    [[rule]]
    name = "serving"
    users = [40001]
    max_priority = 100
"#;

/// The server and its GPUs.
pub struct Place {
    pub gpu: Gpu,
    pub daemon: Daemon,
    _keep: Running,
}

impl Place {
    /// Starts a server for all users with this configuration, in which `DIR` stands for its folder.
    pub fn new(configuration: &str) -> Place {
        let gpu = Gpu::take();
        let keep = gpu.keep();
        let daemon = Daemon::for_all_users(configuration);
        // All users reach it.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(daemon.folder(), mode).expect("the folder of the server");
        Place { gpu, daemon, _keep: keep }
    }

    /// `xcli` of a user, outside the simulated GPUs.
    pub fn xcli(&self, uid: u32, arguments: &[&str]) -> Output {
        self.command(uid).args(arguments).output().expect("setpriv")
    }

    /// A command of `xcli` of a user.
    pub fn command(&self, uid: u32) -> Command {
        let mut command = Command::new("setpriv");
        command.args(as_user(uid)).arg(built("xcli")).env("XSCHED_SOCKET", self.daemon.socket());
        command
    }

    /// What `xcli` of a user says. It succeeds.
    #[track_caller]
    pub fn said(&self, uid: u32, arguments: &[&str]) -> String {
        let output = self.xcli(uid, arguments);
        let (out, err) = texts(&output);
        assert!(output.status.success(), "xcli {arguments:?}: {err}");
        out
    }

    /// Why `xcli` of a user fails.
    #[track_caller]
    pub fn refused(&self, uid: u32, arguments: &[&str]) -> String {
        let output = self.xcli(uid, arguments);
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "xcli {arguments:?}: {out}{err}");
        err
    }

    /// The list as a user sees it.
    pub fn list(&self, uid: u32) -> Value {
        serde_json::from_str(&self.said(uid, &["list", "--json"])).expect("JSON")
    }

    /// A run of `rounds` by a user under `xcli run` with these options, which waits behind its line "ready".
    pub fn rounds(&self, uid: u32, options: &[&str], arguments: &[&str]) -> Running {
        let rounds = program("rounds").unwrap_or_else(|reason| panic!("{reason}"));
        let mut run = self.run(uid).arg(text(&built("xcli"))).arg("run").arg("--strict");
        run = options.iter().chain(&["--"]).fold(run, |run, option| run.arg(*option));
        run = run.arg(text(&rounds));
        let mut running = arguments.iter().fold(run, |run, argument| run.arg(*argument)).start();
        assert_eq!(running.line(), "ready");
        running
    }

    /// A run by a user at the shared GPUs. The arguments are program and arguments.
    pub fn run(&self, uid: u32) -> Run {
        let run = self.gpu.shared_executable(Path::new("/usr/bin/setpriv"));
        let run = run.env("XSCHED_SOCKET", self.daemon.socket().to_str().expect("a plain name"));
        as_user(uid).iter().fold(run, |run, word| run.arg(word))
    }

    /// Waits until a client in the list of a user fulfills a condition.
    #[track_caller]
    pub fn until(&self, uid: u32, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        until(what, || {
            let list = self.list(uid);
            list["clients"].as_array().expect("clients").iter().find(|client| is_so(client)).cloned()
        })
    }
}

/// The options of `setpriv` for a user. Root keeps all rights. Others reach the workspace wherever it lies, and have no other right.
fn as_user(uid: u32) -> Vec<String> {
    if uid == 0 {
        return vec!["--reuid=0".to_owned()];
    }
    let caps = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search", "--clear-groups"];
    [format!("--reuid={uid}"), format!("--regid={uid}")].into_iter().chain(caps.map(str::to_owned)).collect()
}

/// A product of the workspace.
pub fn built(name: &str) -> PathBuf {
    product(name).unwrap_or_else(|reason| panic!("{reason}"))
}

/// A path as text.
pub fn text(path: &Path) -> String {
    path.to_str().expect("a plain name").to_owned()
}

/// Standard output and standard error.
pub fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Returns true if a queue of the client is in this state.
pub fn has(client: &Value, state: &str) -> bool {
    client["queues"].as_array().is_some_and(|queues| queues.iter().any(|queue| queue["state"] == state))
}

/// Returns true if the client belongs to this user and has a queue.
pub fn is_of(client: &Value, uid: u32) -> bool {
    client["owner"]["uid"] == uid && client["queues"].as_array().is_some_and(|queues| !queues.is_empty())
}
