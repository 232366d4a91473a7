//! A folder with a socket, a fake server, and `xcli` as its client.

// Each test program uses a part of this.
#![allow(dead_code)]

use protocol::control::{List, Reply, Request, Server};
use protocol::frame::{Decoder, Frame, REQUEST_LIMIT};
use protocol::ids::Pid;
use protocol::message::{REPLY, REQUEST};
use protocol::time::Time;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The time limit of a wait.
pub const HANG_GUARD: Duration = Duration::from_secs(60);

/// The folder of a test.
#[derive(Debug)]
pub struct TestDir {
    folder: TempDir,
}

impl TestDir {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("s.sock")
    }

    /// `xcli` without the settings of the test's environment.
    pub fn xcli(&self) -> Command {
        self.command(Path::new(env!("CARGO_BIN_EXE_xcli")))
    }

    /// The same for a copy of xcli.
    pub fn command(&self, xcli: &Path) -> Command {
        let mut command = Command::new(xcli);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name == "LD_PRELOAD" || name.starts_with("XSCHED_") || name.starts_with("GPU_SIM_") {
                command.env_remove(name);
            }
        }
        command.env("XSCHED_SOCKET", self.socket());
        command
    }

    /// Answers every request with the result of `answer`. Returns the requests.
    pub fn serve(&self, answer: impl Fn(&Request) -> Reply + Send + 'static) -> Arc<Mutex<Vec<Request>>> {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        self.serve_raw(move |stream, frame| {
            assert_eq!(frame.kind, REQUEST);
            let request: Request = serde_json::from_slice(&frame.payload).expect("a request");
            let reply = serde_json::to_vec(&answer(&request)).expect("a reply");
            kept.lock().expect("nobody panics").push(request);
            stream.write_all(&Frame::encode(REPLY, &reply)).expect("xcli reads on");
        });
        requests
    }

    /// Calls `work` with the first frame of every connection.
    pub fn serve_raw(&self, work: impl Fn(&mut UnixStream, Frame) + Send + 'static) {
        let listener = UnixListener::bind(self.socket()).expect("a socket");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                if let Some(frame) = first_frame(&mut stream) {
                    work(&mut stream, frame);
                }
            }
        });
    }
}

fn first_frame(stream: &mut UnixStream) -> Option<Frame> {
    let mut decoder = Decoder::new(REQUEST_LIMIT);
    let mut part = [0; 100];
    loop {
        if let Some(frame) = decoder.next_frame().expect("frames") {
            return Some(frame);
        }
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return None,
            Ok(n) => decoder.push(&part[..n]),
        }
    }
}

/// A server without clients.
pub fn empty_list() -> List {
    let server = Server {
        pid: Pid(4711),
        now: Time(0),
        policy: "HPF".to_owned(),
        policies: Vec::new(),
        on: true,
        uptime_ms: 65_000,
        guard_runs: 0,
        decisions: 0,
        totals: None,
        outsiders: Vec::new(),
    };
    List { server, clients: Vec::new(), held: Vec::new(), partial: false }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command. Returns exit code, standard output and standard error.
pub fn finish(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the command starts");
    (status.code(), text(&stdout), text(&stderr))
}

/// Polls until `look` returns something.
pub fn await_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + HANG_GUARD;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what} did not come");
        std::thread::yield_now();
    }
}
