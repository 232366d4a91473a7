//! `gpu-sim run`: starts or joins a set of GPUs, runs a command on it, and sees to it that neither outlives the other.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, mpsc};

use anyhow::Context as _;
use rustix::process::{Pid, Signal};

use crate::control::{self, Receiver, Setup, ToLauncher, ToSupervisor};

/// Where a run inside a run finds the GPUs it is on.
const SOCKET_VARIABLE: &str = "GPU_SIM_SOCKET";
/// Process id of the supervisor, for measurements.
const PID_VARIABLE: &str = "GPU_SIM_PID";

/// What `gpu-sim run` was asked.
#[derive(Debug)]
pub struct Run {
    /// Name of the set, to be shared.
    pub name: Option<String>,
    /// How the set is to be made.
    pub setup: Setup,
    /// Where to write statistics.
    pub stats: Option<PathBuf>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// Runs the command; returns the exit code to end with.
pub fn run(run: &Run) -> anyhow::Result<u8> {
    // A file that cannot be written is found out before the command has run, not after.
    let stats = run.stats.as_ref().map(|path| {
        File::create(path)
            .map(|file| (file, path))
            .with_context(|| format!("cannot write {}", path.display()))
    });
    let stats = stats.transpose()?;
    let stream = connect(run)?;
    control::send(&stream, &ToSupervisor::Join(run.setup.clone()))?;
    let mut receiver = Receiver::new(&stream)?;
    let supervisor = match receiver.next() {
        Some(ToLauncher::Joined { pid }) => pid,
        Some(ToLauncher::Refused(why)) => anyhow::bail!("{why}"),
        _ => anyhow::bail!("the simulated GPU ended before the command could start"),
    };
    let socket = stream.peer_addr()?.as_pathname().map(Path::to_owned).unwrap_or_default();

    // Descendants that lose their parent come to us, so that all of them can be ended.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok();
    let mut command = prepare(&run.command, supervisor, &socket)?;
    forward_signals();
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("gpu-sim: cannot run {}: {error}", run.command[0].display());
            return Ok(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 });
        }
    };
    let child_pid = child.id().cast_signed();
    CHILD.store(child_pid, Ordering::Release);
    control::send(&stream, &ToSupervisor::Child(child_pid)).ok();

    let lost = Arc::new(AtomicBool::new(false));
    let (reports, report) = mpsc::channel();
    let listener = {
        let (lost, socket) = (Arc::clone(&lost), socket);
        std::thread::spawn(move || listen(&mut receiver, &reports, &lost, &socket))
    };
    let status = child.wait()?;
    CHILD.store(0, Ordering::Release);
    if let Some((file, path)) = stats
        && !lost.load(Ordering::Acquire)
    {
        control::send(&stream, &ToSupervisor::Stats)?;
        let report = report.recv().context("the simulated GPU ended before it could report")?;
        serde_json::to_writer_pretty(file, &report)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    // Our going is what ends the set; the thread ends with the stream.
    stream.shutdown(std::net::Shutdown::Both).ok();
    lost.store(true, Ordering::Release);
    let _ = listener.join();
    Ok(exit_code(status))
}

/// Connects to the set's supervisor; starts one if there is none.
fn connect(run: &Run) -> anyhow::Result<UnixStream> {
    if let Some(path) = std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from) {
        let here =
            path.file_stem().is_some_and(|stem| run.name.as_ref().is_some_and(|name| stem != name.as_str()));
        anyhow::ensure!(
            !here,
            "this command already runs on a simulated GPU; it cannot join another one by --name"
        );
        return UnixStream::connect(&path).context("the simulated GPU around this command has ended");
    }
    if let Some(name) = &run.name {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        anyhow::ensure!(
            !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.chars().all(plain),
            "--name takes 1 to 64 letters, digits, '-', '_' and '.', not {name:?}"
        );
    }
    let dir = control::run_dir();
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let name = run.name.clone().unwrap_or_else(|| format!("unnamed-{}", std::process::id()));
    let path = control::socket(&dir, &name);
    // One starter at a time: two first runs of a name must meet on one supervisor.
    let lock = File::create(dir.join(format!("{name}.lock")))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    let stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(_) => {
            start_supervisor(&path, &run.setup)?;
            UnixStream::connect(&path).context("the simulated GPU ended at once")?
        }
    };
    if run.name.is_none() {
        let _ = std::fs::remove_file(dir.join(format!("{name}.lock")));
    }
    Ok(stream)
}

fn start_supervisor(path: &Path, setup: &Setup) -> anyhow::Result<()> {
    let log = File::create(path.with_extension("log"))?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("supervise")
        .arg(path)
        .arg(serde_json::to_string(setup)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log);
    // SAFETY: setsid is async-signal-safe and the closure does nothing else. A session of its own keeps the
    // terminal's Ctrl-C, which is meant for the command, from the device.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(|_| ()).map_err(Into::into)) };
    let mut child = command.spawn().context("cannot start the supervisor")?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.trim() != "ready" {
        child.wait().ok();
        let log = std::fs::read_to_string(path.with_extension("log")).unwrap_or_default();
        let why = if line.trim().is_empty() { log.trim() } else { line.trim() };
        anyhow::bail!("{why}");
    }
    // Nobody waits for it: it is a child of ours only until we end, and then of init.
    Ok(())
}

fn prepare(words: &[OsString], supervisor: i32, socket: &Path) -> anyhow::Result<Command> {
    let namespace = File::open(format!("/proc/{supervisor}/ns/mnt"))
        .context("cannot reach the simulated GPU's namespace")?;
    let directory = std::env::current_dir().context("no current directory")?;
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        // Signals would otherwise live in client memory, which the device cannot change atomically.
        .env("HSA_USERPTR_FOR_PAGED_MEM", "0")
        .env(SOCKET_VARIABLE, socket)
        .env(PID_VARIABLE, supervisor.to_string());
    let parent = rustix::process::getpid();
    let directory = std::ffi::CString::new(directory.into_os_string().into_encoded_bytes())?;
    let enter = move || {
        // SAFETY: a system call on a descriptor that the closure owns.
        let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS) } == 0;
        // SAFETY: a system call with a terminated string that the closure owns.
        if !entered || unsafe { libc::chdir(directory.as_ptr()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // If the launcher is killed the command goes with it, as its device does.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(parent) {
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: restores a default disposition in the child.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls and allocates nothing (errors are plain codes).
    unsafe { command.pre_exec(enter) };
    Ok(command)
}

/// The running command, for signal handlers.
static CHILD: AtomicI32 = AtomicI32::new(0);

extern "C" fn forward(signal: libc::c_int) {
    let child = CHILD.load(Ordering::Acquire);
    if child > 0 {
        // SAFETY: kill is async-signal-safe.
        unsafe { libc::kill(child, signal) };
    }
}

/// What a terminal sends to the whole group the command gets by itself; what is sent to us alone is passed on.
fn forward_signals() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: ignoring a signal has no preconditions.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
        let handler: extern "C" fn(libc::c_int) = forward;
        // SAFETY: the handler touches one atomic and calls kill, both async-signal-safe.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Reads what the supervisor says until the stream ends. If that comes unasked, everything of ours is ended.
fn listen(
    receiver: &mut Receiver,
    reports: &mpsc::Sender<serde_json::Value>,
    lost: &AtomicBool,
    socket: &Path,
) {
    while let Some(message) = receiver.next() {
        match message {
            ToLauncher::Message(text) => eprintln!("{text}"),
            ToLauncher::Report(report) => {
                let _ = reports.send(report);
            }
            ToLauncher::Joined { .. } | ToLauncher::Refused(_) => {}
        }
    }
    if CHILD.load(Ordering::Acquire) == 0 || lost.swap(true, Ordering::AcqRel) {
        return;
    }
    let log = std::fs::read_to_string(socket.with_extension("log")).unwrap_or_default();
    eprintln!("gpu-sim: the simulated GPU has ended unexpectedly; its programs are ended. {}", log.trim());
    end_descendants();
}

/// Kills every descendant; as we are their reaper, a fork in between is found in the next round.
fn end_descendants() {
    loop {
        let children = descendants(std::process::id().cast_signed());
        if children.is_empty() {
            return;
        }
        for pid in children.into_iter().filter_map(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        std::thread::yield_now();
    }
}

/// Living descendants of a process (zombies have nothing left to end).
fn descendants(root: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut parents = std::collections::BTreeMap::new();
    for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // "pid (name) state ppid": the name may hold anything, so count from its last parenthesis.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        if let (Some(state), Some(Ok(parent))) = (fields.next(), fields.next().map(str::parse::<i32>))
            && state != "Z"
        {
            parents.insert(pid, parent);
        }
    }
    let below = |mut pid: i32| {
        while let Some(&parent) = parents.get(&pid) {
            if parent == root {
                return true;
            }
            pid = parent;
        }
        false
    };
    // The supervisor may still be a child of ours; it ends by itself.
    let supervisor = |pid: i32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|c| c.windows(11).any(|w| w == b"\0supervise\0"))
    };
    parents.keys().copied().filter(|pid| below(*pid) && !supervisor(*pid)).collect()
}

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => 128 + signal.unwrap_or(0) as u8,
    }
}
