//! `gpu-sim run`: starts or joins a set of GPUs, runs a command on it, and sees to it that neither outlives the other.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::control::{self, Receiver, Setup, ToLauncher, ToSupervisor};
use crate::sandbox::{self, Entrance, Place};

/// Where a run inside a run finds the GPUs it is on.
const SOCKET_VARIABLE: &str = "GPU_SIM_SOCKET";
/// Process id of the supervisor, for measurements.
const PID_VARIABLE: &str = "GPU_SIM_PID";
/// How long a supervisor may take to answer.
const JOIN_LIMIT: Duration = Duration::from_secs(10);
/// How long all of the line about kernels may take, which nothing depends on.
const LAST_LINE_LIMIT: Duration = Duration::from_secs(2);

/// What `gpu-sim run` was asked.
#[derive(Debug)]
pub struct Run {
    /// Name of the set, to be shared.
    pub name: Option<String>,
    /// How the set is to be made.
    pub setup: Setup,
    /// Where to write statistics.
    pub stats: Option<PathBuf>,
    /// Leave out the line about kernels that were not executed.
    pub quiet: bool,
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
    let Joined { stream, mut receiver, supervisor, place } = connect(run)?;
    let socket = stream.peer_addr()?.as_pathname().map(Path::to_owned).unwrap_or_default();

    // Descendants that lose their parent come to us, so that all of them can be ended.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok();
    let dispositions = forward_signals();
    let here = Place::here().context("cannot find out in which root directory this is")?;
    let mut command = prepare(&run.command, supervisor, &socket, dispositions)?;
    if here == place || Place::of(supervisor).is_ok_and(|inside| inside == here) {
        enter_first(&mut command, Entrance::of(supervisor)?)?;
    } else {
        // The command is to see its own files and not those of whoever made the GPUs.
        sandbox::share(supervisor).context(
            "these GPUs were made in another root directory or mount namespace, and cannot be put into this one (it needs /dev, \
             /proc and /sys; or take another --name)",
        )?;
    }
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("gpu-sim: cannot run {}: {error}", run.command[0].display());
            return Ok(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 });
        }
    };
    let child = Pid::from_child(&child);
    CHILD.store(child.as_raw_pid(), Ordering::Release);
    if let Some(signal) = Signal::from_named_raw(EARLY.swap(0, Ordering::AcqRel)) {
        let _ = rustix::process::kill_process(child, signal);
    }
    control::send(&stream, &ToSupervisor::Child(child.as_raw_pid())).ok();

    let lost = Arc::new(AtomicBool::new(false));
    let (answers, answer) = mpsc::channel();
    {
        let (lost, socket) = (Arc::clone(&lost), socket);
        std::thread::spawn(move || listen(&mut receiver, answers, &lost, &socket, supervisor));
    }
    let status = reap_until(child)?;
    CHILD.store(0, Ordering::Release);
    if let Some((file, path)) = stats
        && !lost.load(Ordering::Acquire)
    {
        control::send(&stream, &ToSupervisor::Stats)?;
        let report = match answer.recv_timeout(JOIN_LIMIT) {
            Ok(ToLauncher::Report(report)) => report,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                anyhow::bail!(
                    "the simulated GPU does not answer within {JOIN_LIMIT:?}: is it stopped? There are no statistics"
                )
            }
            _ => anyhow::bail!("the simulated GPU ended before it could report"),
        };
        serde_json::to_writer_pretty(file, &report)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    // From here on nothing is missing if the supervisor goes.
    if !lost.swap(true, Ordering::AcqRel) && !run.quiet {
        tell_unexecuted(&stream, &answer);
    }
    // Our going is what ends the set; the thread ends with the stream. It may have something to say, and to end, before.
    stream.shutdown(std::net::Shutdown::Both).ok();
    let until = Instant::now() + JOIN_LIMIT;
    while answer.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
    Ok(exit_code(status))
}

/// Says which kernels were not executed. Nothing here may keep a run from ending or change its exit code: whatever goes wrong
/// leaves the line out.
fn tell_unexecuted(stream: &UnixStream, answer: &mpsc::Receiver<ToLauncher>) {
    let until = Instant::now() + LAST_LINE_LIMIT;
    let left = || until.saturating_duration_since(Instant::now());
    if control::send_at_once(stream, &ToSupervisor::Unexecuted).is_err() {
        return;
    }
    let Ok(ToLauncher::Unexecuted(summary)) = answer.recv_timeout(left()) else { return };
    // Demangling runs on a thread of its own, because a hostile name could make it take long.
    let (line, lines) = mpsc::channel();
    let begun = std::thread::Builder::new().spawn(move || {
        let _ = line.send(summary.line());
    });
    let (Ok(_), Ok(Some(line))) = (begun, lines.recv_timeout(left())) else { return };
    // Not through the library's lock, which the thread that listens may hold, and only if there is room: who should read it
    // may have stopped. A pipe that can be written to has room for a page.
    let stderr = std::io::stderr();
    let limit = Timespec::try_from(left()).unwrap_or_default();
    if let Ok(1) = rustix::event::poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&limit)) {
        let _ = rustix::io::write(&stderr, format!("{line}\n").as_bytes());
    }
}

/// Waits for the command to end. Its orphans, which come to us, are reaped on the way.
fn reap_until(child: Pid) -> std::io::Result<ExitStatus> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => return Ok(ExitStatus::from_raw(status.as_raw())),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A set that has taken us in.
struct Joined {
    stream: UnixStream,
    receiver: Receiver,
    supervisor: i32,
    /// From where the supervisor was started.
    place: Place,
}

/// Asks the supervisor at the other end to take us in; `None` if it is just ending.
fn join(stream: UnixStream, setup: &Setup) -> anyhow::Result<Option<Joined>> {
    if control::send(&stream, &ToSupervisor::Join(setup.clone())).is_err() {
        return Ok(None);
    }
    let mut receiver = Receiver::new(&stream)?;
    // One that is stopped must not keep the others waiting behind the lock.
    stream.set_read_timeout(Some(JOIN_LIMIT))?;
    let answer = receiver.next();
    stream.set_read_timeout(None)?;
    match answer {
        Some(ToLauncher::Joined { place, pid }) => {
            Ok(Some(Joined { stream, receiver, supervisor: pid, place }))
        }
        Some(ToLauncher::Refused(why)) => anyhow::bail!("{why}"),
        _ => Ok(None),
    }
}

/// Joins the set; starts its supervisor if there is none.
fn connect(run: &Run) -> anyhow::Result<Joined> {
    if let Some(path) = std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from) {
        let here =
            path.file_stem().is_some_and(|stem| run.name.as_ref().is_some_and(|name| stem != name.as_str()));
        anyhow::ensure!(
            !here,
            "this command already runs on a simulated GPU; it cannot join another one by --name"
        );
        let stream = UnixStream::connect(&path).ok();
        let joined = stream.map(|stream| join(stream, &run.setup)).transpose()?.flatten();
        return joined.context("the simulated GPU around this command has ended");
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
    // One at a time: two first runs of a name must meet on one supervisor.
    let lock = File::create(dir.join("start.lock"))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    let begin = Instant::now();
    // A supervisor that is just ending takes its socket away before it lets us go.
    loop {
        match UnixStream::connect(&path) {
            Ok(stream) => match join(stream, &run.setup)? {
                Some(joined) => return Ok(joined),
                None => std::thread::sleep(Duration::from_millis(1)),
            },
            Err(_) => {
                sweep(&dir);
                start_supervisor(&path, &run.setup)?;
            }
        }
        anyhow::ensure!(
            begin.elapsed() < JOIN_LIMIT,
            "the simulated GPU behind {} does not answer",
            path.display()
        );
    }
}

/// Takes away what supervisors that were killed have left. Nobody else is starting one: we hold the lock.
fn sweep(dir: &Path) {
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::ConnectionRefused;
        if path.extension().is_some_and(|e| e == "sock") && UnixStream::connect(&path).is_err_and(refused) {
            for file in [path.with_extension("log"), path] {
                let _ = std::fs::remove_file(file);
            }
        }
    }
}

fn start_supervisor(path: &Path, setup: &Setup) -> anyhow::Result<()> {
    let log = File::create(path.with_extension("log"))?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("gpu-sim")
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
        let _ = std::fs::remove_file(path.with_extension("log"));
        let why = if line.trim().is_empty() { log.trim() } else { line.trim() };
        anyhow::bail!("{why}");
    }
    // Nobody waits for it: it is a child of ours only until we end, and then of init.
    Ok(())
}

/// What is set for every command, and why.
pub const ENVIRONMENT: &[(&str, &str, &str)] = &[
    // Signals would otherwise live there.
    ("HSA_USERPTR_FOR_PAGED_MEM", "0", "the device cannot change client memory atomically"),
    // HIP 7 takes the memory of its pools from there otherwise, and hipMallocAsync finds none.
    ("DEBUG_HIP_MEM_POOL_VMHEAP", "0", "there is no virtual memory management (hsa_amd_vmem_*)"),
    // ROCr from 5.7 on exports memory for other processes as DMA buffers otherwise, and aborts where the driver makes none.
    ("HSA_ENABLE_IPC_MODE_LEGACY", "1", "processes share memory by name (there are no DMA buffers)"),
];

fn prepare(
    words: &[OsString],
    supervisor: i32,
    socket: &Path,
    dispositions: Dispositions,
) -> anyhow::Result<Command> {
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .envs(ENVIRONMENT.iter().map(|(name, value, _)| (name, value)))
        .env(SOCKET_VARIABLE, socket)
        .env(PID_VARIABLE, supervisor.to_string());
    let parent = rustix::process::getpid();
    let detach = move || {
        // If the launcher is killed the command goes with it, as its device does.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(parent) {
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        for (signal, disposition) in dispositions {
            // SAFETY: restores in the child what we were started with, which is no handler.
            unsafe { libc::signal(signal, disposition) };
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls and allocates nothing (errors are plain codes).
    unsafe { command.pre_exec(detach) };
    Ok(command)
}

/// Has the command go through this entrance before it begins, and stay in the current directory.
fn enter_first(command: &mut Command, entrance: Entrance) -> anyhow::Result<()> {
    let directory = std::env::current_dir().context("no current directory")?;
    let directory = std::ffi::CString::new(directory.into_os_string().into_encoded_bytes())?;
    let enter = move || {
        entrance.enter()?;
        Ok(rustix::process::chdir(&directory)?)
    };
    // SAFETY: the closure only makes system calls and allocates nothing.
    unsafe { command.pre_exec(enter) };
    Ok(())
}

/// The running command, for signal handlers.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// A signal that came before the command ran.
static EARLY: AtomicI32 = AtomicI32::new(0);

extern "C" fn forward(signal: libc::c_int) {
    let child = CHILD.load(Ordering::Acquire);
    if child > 0 {
        // SAFETY: kill is async-signal-safe.
        unsafe { libc::kill(child, signal) };
    } else {
        EARLY.store(signal, Ordering::Release);
    }
}

/// Signals with what is done about them.
type Dispositions = [(libc::c_int, libc::sighandler_t); 2];

/// What a terminal sends to the whole group the command gets by itself; what is sent to us alone is passed on, unless
/// we were started to ignore it (`nohup`). Returns what the command is to do about the former.
fn forward_signals() -> Dispositions {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
        let handler: extern "C" fn(libc::c_int) = forward;
        // SAFETY: the handler touches two atomics and calls kill, all async-signal-safe.
        if unsafe { libc::signal(signal, handler as libc::sighandler_t) } == libc::SIG_IGN {
            // SAFETY: ignoring a signal has no preconditions.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
    // SAFETY: ignoring a signal has no preconditions.
    [libc::SIGINT, libc::SIGQUIT].map(|signal| (signal, unsafe { libc::signal(signal, libc::SIG_IGN) }))
}

/// Reads what the supervisor says until the stream ends. If that comes unasked, everything of ours is ended.
fn listen(
    receiver: &mut Receiver,
    answers: mpsc::Sender<ToLauncher>,
    lost: &AtomicBool,
    socket: &Path,
    supervisor: i32,
) {
    while let Some(message) = receiver.next() {
        match message {
            ToLauncher::Message(text) => say(&text),
            ToLauncher::Report(_) | ToLauncher::Unexecuted(_) => {
                let _ = answers.send(message);
            }
            ToLauncher::Joined { .. } | ToLauncher::Refused(_) => {}
        }
    }
    // Also when the command has just ended: losing its device may be why.
    if lost.swap(true, Ordering::AcqRel) {
        return;
    }
    let log = std::fs::read_to_string(socket.with_extension("log")).unwrap_or_default();
    say(&format!(
        "gpu-sim: the simulated GPU has ended unexpectedly; its programs are ended. {}",
        log.trim()
    ));
    end_descendants(supervisor);
}

/// Writes a line to standard error. Nobody may read that any more, which must not end us as `eprintln` would.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Kills every descendant but the supervisor, which may be one of ours and ends by itself. As we are their reaper, a
/// fork in between is found in the next round.
fn end_descendants(supervisor: i32) {
    loop {
        let mut children = descendants(std::process::id().cast_signed());
        children.retain(|pid| *pid != supervisor);
        if children.is_empty() {
            return;
        }
        for pid in children.into_iter().filter_map(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(1));
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
    parents.keys().copied().filter(|pid| below(*pid)).collect()
}

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => 128 + signal.unwrap_or(0) as u8,
    }
}
