//! A server for the user, started where none runs.
//!
//! `xcli run` becomes the program that it runs, and a server that were its child would be that program's child, to be
//! waited for by somebody who knows nothing of it. So a second process, `xcli start-server`, starts the server, waits
//! until it answers and ends.

use crate::ask::{Cause, Failure, ask};
use crate::daemon::be_nobodys;
use crate::place::Place;
use crate::table::plain;
use anyhow::{Context as _, bail, ensure};
use protocol::control::Request;
use protocol::socket::{fault_of_directory, private_directories};
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

/// How long a server may take to start, on a machine that is busy.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long another server, to which ours has lost, may take from there.
const RIVAL_LIMIT: Duration = Duration::from_secs(2);
/// A log of this length is begun anew with the next server.
const LONGEST_LOG: u64 = 1 << 20;
/// Between two looks whether it answers.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Sees to it that a server answers at this place and stays until this process, which becomes the program, has ended;
/// starts one if none does.
///
/// # Errors
/// None answers and none can be started. The program finds one that is well again later.
pub fn ensure(place: &Place) -> anyhow::Result<()> {
    // A program may take long until it meets HIP, and an unused server ends.
    match look(place, &Request::Expect) {
        Look::Answers => Ok(()),
        Look::Absent => launch(place),
        Look::Unwell(failure) => Err(failure.into()),
    }
}

/// The same, for somebody who wants something of a server that only a server can do.
///
/// # Errors
/// There is none that answers and none can be started.
pub fn present(place: &Place) -> anyhow::Result<()> {
    ensure(place).context("there is no xserver, which is what could hold queues of another process")
}

/// Starts one by a process between, and asks it to stay.
fn launch(place: &Place) -> anyhow::Result<()> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let between = Command::new(this)
        .arg("start-server")
        .arg(&place.socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("cannot start this program again, which starts a server")?;
    if !between.status.success() {
        let said = String::from_utf8_lossy(&between.stderr);
        let why = said.lines().last().map(|line| plain(line.trim_start_matches("xcli: ")));
        bail!("no xserver can be started: {}", why.unwrap_or_else(|| between.status.to_string()));
    }
    match look(place, &Request::Expect) {
        Look::Answers => Ok(()),
        Look::Absent => bail!("the xserver that was started has ended again"),
        Look::Unwell(failure) => Err(failure.into()),
    }
}

/// Whether a server is there.
enum Look {
    Answers,
    /// Nobody is there, or somebody who is just ending.
    Absent,
    /// It is stopped, makes no sense, is somebody else's, or takes nobody.
    Unwell(Failure),
}

fn look(place: &Place, request: &Request) -> Look {
    match ask(place, request) {
        Ok(_) => Look::Answers,
        Err(failure) => match failure.cause {
            Cause::Absent | Cause::Closed => Look::Absent,
            _ => Look::Unwell(failure),
        },
    }
}

/// The work of `xcli start-server`: starts a server on this socket and waits until one answers there, be it ours or one
/// that another `xcli` started at the same moment; the servers' own lock decides.
///
/// # Errors
/// None does; why, with what the server said last.
pub fn start(socket: &Path) -> anyhow::Result<()> {
    be_nobodys();
    let place = Place { socket: socket.to_owned(), said: String::new() };
    let program = beside("xserver")?;
    let log = log_file(socket)?;
    let said_before = log.metadata().map_or(0, |data| data.len());
    let mut server = spawn(&program, socket, &log)?;
    let begin = Instant::now();
    let mut ended: Option<(Instant, ExitStatus)> = None;
    loop {
        // Any answer will do.
        match look(&place, &Request::List) {
            Look::Answers => return Ok(()),
            Look::Unwell(failure) => return Err(failure.into()),
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
            bail!("{} ended with {status}{}", program.display(), last_words(&log, said_before));
        }
        if begin.elapsed() > START_LIMIT {
            // Whatever it waits for, nobody waits for it any more.
            let _ = server.kill();
            let _ = server.wait();
            bail!(
                "{} does not answer within {START_LIMIT:?}{}",
                program.display(),
                last_words(&log, said_before)
            );
        }
        sleep(LOOK_AGAIN);
    }
}

/// A program or library that was installed together with this one: in the same folder.
pub fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let path = this.with_file_name(name);
    match path.is_file() {
        true => Ok(path),
        false => bail!("{name} is missing: it belongs beside {}", this.display()),
    }
}

/// What the server says goes beside its socket, where only the user can read it.
fn log_file(socket: &Path) -> anyhow::Result<File> {
    let path = socket.with_extension("log");
    if let Some(folder) = socket.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let uid = rustix::process::geteuid().as_raw();
    for folder in socket.ancestors().skip(1).take(private_directories(uid, socket)) {
        // Not where a link leads to.
        let about = fs::symlink_metadata(folder);
        let about = about.with_context(|| format!("cannot look at {}", folder.display()))?;
        if let Some(fault) = fault_of_directory(&about, uid) {
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
    // Below /tmp somebody else may have put it there.
    ensure!(about.uid() == uid, "{} is somebody else's", path.display());
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
    // What is meant for the program is not meant for the server, which serves other programs as well.
    for (name, _) in std::env::vars_os().filter(|(name, _)| of_the_program(name)) {
        command.env_remove(name);
    }
    command.env("XSCHED_SOCKET", socket);
    // SAFETY: setsid is async-signal-safe and the closure does nothing else. A session of its own keeps the terminal's
    // Ctrl-C and hang-up, which are meant for the program, from the server.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(|_| ()).map_err(Into::into)) };
    command.spawn().with_context(|| format!("cannot start {}", program.display()))
}

fn of_the_program(name: &OsStr) -> bool {
    let kept = ["XSCHED_TEST", "XSCHED_LOG_LEVEL", "XSCHED_STARVATION_MS"];
    name == "LD_PRELOAD" || name.as_bytes().starts_with(b"XSCHED_") && kept.iter().all(|kept| name != *kept)
}

/// The last line that the server wrote since then, to end a sentence with.
fn last_words(mut log: &File, since: u64) -> String {
    let mut said = Vec::new();
    if log.seek(SeekFrom::Start(since)).is_ok() {
        let _ = log.read_to_end(&mut said);
    }
    let said = String::from_utf8_lossy(&said);
    match said.lines().rfind(|line| !line.trim().is_empty()) {
        Some(line) => format!(": {}", plain(line)),
        None => String::new(),
    }
}
