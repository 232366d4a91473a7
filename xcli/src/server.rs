//! Starts a server for the user if none runs.
//!
//! `xcli run` becomes the program, so a child of xcli would become a child of the program, which does not
//! expect one. Therefore a second process, `xcli start-server`, starts the server, waits until it answers,
//! and ends.

use crate::ask::{Cause, Failure, ask};
use crate::daemon;
use crate::endpoint::Endpoint;
use crate::table::plain;
use anyhow::{Context as _, bail, ensure};
use protocol::control::Request;
use protocol::socket::{directory_fault, private_directories};
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time limit for the start of a server on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The time limit for another server to answer, after ours has lost the lock to it.
const RIVAL_LIMIT: Duration = Duration::from_secs(2);
/// The next server truncates a log that is longer than this.
const LONGEST_LOG: u64 = 1 << 20;
/// The interval at which the server is polled.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Ensures that a server answers and stays until this process, which becomes the program, has ended. Starts
/// one if none runs.
///
/// # Errors
/// No server answers, and none can be started. The program connects as soon as a server answers.
pub fn ensure(endpoint: &Endpoint) -> anyhow::Result<()> {
    // An unused server ends, and the program may use HIP much later.
    match look(endpoint, &Request::Expect) {
        Look::Answers => Ok(()),
        Look::Absent => launch(endpoint),
        Look::Unusable(failure) => Err(failure.into()),
    }
}

/// Ensures that a server answers, for a command that needs one.
///
/// # Errors
/// No server answers, and none can be started.
pub fn require(endpoint: &Endpoint) -> anyhow::Result<()> {
    ensure(endpoint).context("suspending another process needs an xserver")
}

/// Starts a server through a second process, and asks it to stay for this process.
fn launch(endpoint: &Endpoint) -> anyhow::Result<()> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let between = Command::new(this)
        .arg("start-server")
        .arg(&endpoint.socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("cannot run xcli start-server")?;
    if !between.status.success() {
        let text = String::from_utf8_lossy(&between.stderr);
        let why = text.lines().last().map(|line| plain(line.trim_start_matches("xcli: ")));
        bail!("cannot start an xserver: {}", why.unwrap_or_else(|| between.status.to_string()));
    }
    match look(endpoint, &Request::Expect) {
        Look::Answers => Ok(()),
        Look::Absent => bail!("xserver started and ended again"),
        Look::Unusable(failure) => Err(failure.into()),
    }
}

/// The state of a server.
enum Look {
    Answers,
    /// No server is there, or it is ending.
    Absent,
    /// The server does not answer, sends invalid data, belongs to another user, or refuses.
    Unusable(Failure),
}

fn look(endpoint: &Endpoint, request: &Request) -> Look {
    match ask(endpoint, request) {
        Ok(_) => Look::Answers,
        Err(failure) => match failure.cause {
            Cause::Absent | Cause::Closed => Look::Absent,
            _ => Look::Unusable(failure),
        },
    }
}

/// The work of `xcli start-server`: starts a server on this socket, and waits until it answers. If another
/// xcli starts one at the same time, the lock of the servers decides which of the two stays, and either may
/// answer.
///
/// # Errors
/// No server answers. The error includes the last line of its log.
pub fn start(socket: &Path) -> anyhow::Result<()> {
    daemon::reset_process();
    let endpoint = Endpoint { socket: socket.to_owned(), options: String::new() };
    let program = beside("xserver")?;
    let log = log_file(socket)?;
    let logged_before = log.metadata().map_or(0, |data| data.len());
    let mut server = spawn(&program, socket, &log)?;
    let begin = Instant::now();
    let mut ended: Option<(Instant, ExitStatus)> = None;
    loop {
        // Any answer proves that the server works.
        match look(&endpoint, &Request::List) {
            Look::Answers => return Ok(()),
            Look::Unusable(failure) => return Err(failure.into()),
            Look::Absent => {}
        }
        if ended.is_none() {
            ended = server
                .try_wait()
                .context("cannot wait for the server")?
                .map(|status| (Instant::now(), status));
        }
        if let Some((at, status)) = ended
            && at.elapsed() > RIVAL_LIMIT
        {
            bail!("{} ended with {status}{}", program.display(), last_line(&log, logged_before));
        }
        if begin.elapsed() > START_LIMIT {
            let _ = server.kill();
            let _ = server.wait();
            bail!(
                "{} did not answer within {START_LIMIT:?}{}",
                program.display(),
                last_line(&log, logged_before)
            );
        }
        sleep(LOOK_AGAIN);
    }
}

/// The path of a program that is installed in the same folder as xcli.
pub fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let path = this.with_file_name(name);
    match path.is_file() {
        true => Ok(path),
        false => bail!("{name} is missing: install it in the folder of {}", this.display()),
    }
}

/// Opens the log of the server beside its socket, readable by the user only.
fn log_file(socket: &Path) -> anyhow::Result<File> {
    let path = socket.with_extension("log");
    if let Some(folder) = socket.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let uid = rustix::process::geteuid().as_raw();
    for folder in socket.ancestors().skip(1).take(private_directories(uid, socket)) {
        // A link is not followed.
        let about = fs::symlink_metadata(folder);
        let about = about.with_context(|| format!("cannot look at {}", folder.display()))?;
        if let Some(fault) = directory_fault(&about, uid) {
            bail!("{} {fault}", folder.display());
        }
    }
    let open = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path);
    let log = open.with_context(|| format!("cannot write {}", path.display()))?;
    let about = log.metadata()?;
    // Another user can create files below /tmp.
    ensure!(about.uid() == uid, "{} belongs to another user", path.display());
    if about.len() > LONGEST_LOG {
        log.set_len(0)?;
    }
    Ok(log)
}

fn spawn(program: &Path, socket: &Path, log: &File) -> anyhow::Result<Child> {
    let mut command = Command::new(program);
    command
        .arg("--exit-when-unused")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?);
    // The server also serves other programs: settings of this one must not reach it.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_for_the_program(name)) {
        command.env_remove(name);
    }
    command.env("XSCHED_SOCKET", socket);
    // In its own session the server does not get the Ctrl-C and hang-up of the program's terminal.
    // SAFETY: setsid is async-signal-safe, and the closure does nothing else.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(|_| ()).map_err(Into::into)) };
    command.spawn().with_context(|| format!("cannot start {}", program.display()))
}

fn is_for_the_program(name: &OsStr) -> bool {
    let is_for_the_server = || protocol::config::SERVER_VARIABLES.iter().any(|kept| name == *kept);
    name == "LD_PRELOAD" || name.as_bytes().starts_with(b"XSCHED_") && !is_for_the_server()
}

/// The last line that the server has logged since position `since`, as the end of a sentence.
fn last_line(mut log: &File, since: u64) -> String {
    let mut bytes = Vec::new();
    if log.seek(SeekFrom::Start(since)).is_ok() {
        let _ = log.read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    match text.lines().rfind(|line| !line.trim().is_empty()) {
        Some(line) => format!(": {}", plain(line)),
        None => String::new(),
    }
}
