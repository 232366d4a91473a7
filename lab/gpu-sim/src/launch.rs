//! `gpu-sim run`: starts or joins a set of GPUs and runs a command on it. If one of them ends, so does the
//! other.

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
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::control::{self, Receiver, Setup, ToLauncher, ToSupervisor};
use crate::procfs;
use crate::sandbox::{self, Entrance, Place};

/// The variable by which a run inside a run finds its GPUs.
const SOCKET_VARIABLE: &str = "GPU_SIM_SOCKET";
/// The variable with the process id of the supervisor, for measurements.
const PID_VARIABLE: &str = "GPU_SIM_PID";
/// The time within which a supervisor must answer.
const JOIN_LIMIT: Duration = Duration::from_secs(10);
/// The time within which the message about kernels must be written; afterwards it is omitted.
const LAST_LINE_LIMIT: Duration = Duration::from_secs(2);

/// The options of `gpu-sim run`.
#[derive(Args, Debug)]
pub struct Run {
    /// Share the GPUs with other runs of this name; the first run makes them
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    setup: Setup,
    /// Write the statistics of the GPUs as JSON when the command ends
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Do not list the kernels that were not executed at the end
    #[arg(long)]
    quiet: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command. Returns the exit code.
pub fn run(mut run: Run) -> anyhow::Result<u8> {
    // The supervisor has another working directory.
    run.setup.durations = run.setup.durations.map(std::path::absolute).transpose()?;
    run.setup.timeline = run.setup.timeline.map(std::path::absolute).transpose()?;
    // Open the file before the command runs, so that an error is reported early.
    let stats = run.stats.as_ref().map(|path| {
        File::create(path)
            .map(|file| (file, path))
            .with_context(|| format!("cannot write {}", path.display()))
    });
    let stats = stats.transpose()?;
    let Joined { stream, mut receiver, supervisor, place } = connect(&run)?;
    let socket = stream.peer_addr()?.as_pathname().map(Path::to_owned).unwrap_or_default();

    // Orphaned descendants become children of this process, so that it can end all of them.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok();
    let dispositions = forward_signals();
    let here = Place::here().context("cannot determine the root directory of this process")?;
    let mut command = prepare(&run.command, supervisor, &socket, dispositions)?;
    if here == place || Place::of(supervisor).is_ok_and(|inside| inside == here) {
        enter_first(&mut command, Entrance::of(supervisor)?)?;
    } else {
        // The command must see the files of this root directory, and not those of the supervisor.
        sandbox::share(supervisor).context(
            "these GPUs were made in another root directory or mount namespace and cannot be mounted in this one. Provide /dev, /proc \
             and /sys here, or choose another --name",
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
    if run.setup.timeline.is_some() && !lost.load(Ordering::Acquire) {
        // The supervisor ends later than this run, whose user reads the file next.
        ask(&stream, &answer, &ToSupervisor::Record, "The timeline is incomplete")?;
    }
    if let Some((file, path)) = stats
        && !lost.load(Ordering::Acquire)
    {
        let report = ask(&stream, &answer, &ToSupervisor::Stats, "There are no statistics")?;
        serde_json::to_writer_pretty(file, &report)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    // From here on the end of the supervisor is no error.
    if !lost.swap(true, Ordering::AcqRel) && !run.quiet {
        print_unexecuted(&stream, &answer);
    }
    // The set ends once its last launcher disconnects. The listening thread ends with the stream, and may
    // have messages to print and processes to end before.
    stream.shutdown(std::net::Shutdown::Both).ok();
    let until = Instant::now() + JOIN_LIMIT;
    while answer.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
    Ok(exit_code(status))
}

/// Asks the supervisor for a report; `otherwise` is what its absence means to the user.
fn ask(
    stream: &UnixStream,
    answer: &mpsc::Receiver<ToLauncher>,
    request: &ToSupervisor,
    otherwise: &str,
) -> anyhow::Result<serde_json::Value> {
    control::send(stream, request)?;
    match answer.recv_timeout(JOIN_LIMIT) {
        Ok(ToLauncher::Report(report)) => Ok(report),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            anyhow::bail!(
                "the simulated GPU does not answer within {JOIN_LIMIT:?}: is it stopped? {otherwise}"
            )
        }
        _ => anyhow::bail!("the simulated GPU ended before it could report. {otherwise}"),
    }
}

/// Prints the kernels that were not executed. It must not delay the end of a run or change its exit code:
/// after an error it prints nothing.
fn print_unexecuted(stream: &UnixStream, answer: &mpsc::Receiver<ToLauncher>) {
    let until = Instant::now() + LAST_LINE_LIMIT;
    let left = || until.saturating_duration_since(Instant::now());
    if control::send_at_once(stream, &ToSupervisor::Unexecuted).is_err() {
        return;
    }
    let Ok(ToLauncher::Unexecuted(summary)) = answer.recv_timeout(left()) else { return };
    // A separate thread demangles, because a hostile name could take long.
    let (line, lines) = mpsc::channel();
    let begun = std::thread::Builder::new().spawn(move || {
        let _ = line.send(summary.line());
    });
    let (Ok(_), Ok(Some(line))) = (begun, lines.recv_timeout(left())) else { return };
    // Write without the standard library's lock, which the listening thread may hold, and only if there is
    // room, because the reader may be stopped. A writable pipe has room for a page.
    let stderr = std::io::stderr();
    let limit = Timespec::try_from(left()).unwrap_or_default();
    if let Ok(1) = rustix::event::poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&limit)) {
        let _ = rustix::io::write(&stderr, format!("{line}\n").as_bytes());
    }
}

/// Waits until the command has ended, and reaps orphaned descendants meanwhile.
fn reap_until(child: Pid) -> std::io::Result<ExitStatus> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => return Ok(ExitStatus::from_raw(status.as_raw())),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The connection to a set that this run has joined.
struct Joined {
    stream: UnixStream,
    receiver: Receiver,
    supervisor: i32,
    /// The place from which the supervisor was started.
    place: Place,
}

/// Joins the set of a supervisor. Returns `None` if the supervisor is ending.
fn join(stream: UnixStream, setup: &Setup) -> anyhow::Result<Option<Joined>> {
    if control::send(&stream, &ToSupervisor::Join(setup.clone())).is_err() {
        return Ok(None);
    }
    let mut receiver = Receiver::new(&stream)?;
    // A stopped supervisor must not block other runs that wait for the lock.
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

/// Joins the set. Starts its supervisor if there is none.
fn connect(run: &Run) -> anyhow::Result<Joined> {
    if let Some(path) = std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from) {
        let here =
            path.file_stem().is_some_and(|stem| run.name.as_ref().is_some_and(|name| stem != name.as_str()));
        anyhow::ensure!(
            !here,
            "this command runs on a simulated GPU already and cannot join another one; omit --name"
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
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let name = run.name.clone().unwrap_or_else(|| format!("unnamed-{}", std::process::id()));
    let path = dir.join(format!("{name}.sock"));
    // One run at a time, so that two simultaneous first runs of a name share one supervisor.
    let lock = File::create(dir.join("start.lock"))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    let begin = Instant::now();
    // A supervisor that is ending removes its socket before it disconnects.
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
            "the simulated GPU of {} does not answer within {JOIN_LIMIT:?}: is it stopped?",
            path.display()
        );
    }
}

/// Removes the files of killed supervisors. The lock excludes that another run is starting one.
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
    // A new session keeps the terminal's Ctrl-C, which is meant for the command, from the supervisor.
    // SAFETY: the closure only calls setsid, which is async-signal-safe.
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
    // No wait: the supervisor becomes a child of init once this process ends.
    Ok(())
}

/// The variables that are set for every command, with values and reasons.
pub const ENVIRONMENT: &[(&str, &str, &str)] = &[
    // Otherwise the runtime puts signals into client memory.
    ("HSA_USERPTR_FOR_PAGED_MEM", "0", "the device cannot change client memory atomically"),
    // Otherwise HIP 7 takes the memory of its pools from virtual memory management, and hipMallocAsync fails.
    ("DEBUG_HIP_MEM_POOL_VMHEAP", "0", "virtual memory management (hsa_amd_vmem_*) is not simulated"),
    // Otherwise ROCr from 5.7 on exports memory as DMA buffers, and aborts because the driver makes none.
    (
        "HSA_ENABLE_IPC_MODE_LEGACY",
        "1",
        "processes share memory by name, because DMA buffers are not simulated",
    ),
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
        // If the launcher is killed, the command ends with it, as its device does.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(parent) {
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        for (signal, disposition) in dispositions {
            // SAFETY: signal is async-signal-safe, and the disposition is the inherited one, which is no
            // handler.
            unsafe { libc::signal(signal, disposition) };
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls and allocates nothing (its errors are plain codes).
    unsafe { command.pre_exec(detach) };
    Ok(command)
}

/// Makes the command enter a namespace and a root directory before it begins, and keep the current directory.
fn enter_first(command: &mut Command, entrance: Entrance) -> anyhow::Result<()> {
    let directory = std::env::current_dir().context("the current directory does not exist")?;
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
/// A signal that arrived before the command ran.
static EARLY: AtomicI32 = AtomicI32::new(0);

extern "C" fn forward(signal: libc::c_int) {
    let child = CHILD.load(Ordering::Acquire);
    if child > 0 {
        // SAFETY: kill takes numbers only and is async-signal-safe.
        unsafe { libc::kill(child, signal) };
    } else {
        EARLY.store(signal, Ordering::Release);
    }
}

/// Signals and their dispositions.
type Dispositions = [(libc::c_int, libc::sighandler_t); 2];

/// Forwards signals that are sent to this process alone, unless they were ignored at its start (`nohup`), and
/// ignores those that a terminal sends to the whole group, which reach the command directly. Returns the
/// command's dispositions of the latter.
fn forward_signals() -> Dispositions {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
        let handler: extern "C" fn(libc::c_int) = forward;
        // SAFETY: the handler accesses two atomics and calls kill, all of which is async-signal-safe.
        if unsafe { libc::signal(signal, handler as libc::sighandler_t) } == libc::SIG_IGN {
            // SAFETY: SIG_IGN runs no code, so that it has no preconditions.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
    // SAFETY: SIG_IGN runs no code, so that it has no preconditions.
    [libc::SIGINT, libc::SIGQUIT].map(|signal| (signal, unsafe { libc::signal(signal, libc::SIG_IGN) }))
}

/// Receives messages of the supervisor until the stream ends. If the end is unexpected, ends all descendants.
fn listen(
    receiver: &mut Receiver,
    answers: mpsc::Sender<ToLauncher>,
    lost: &AtomicBool,
    socket: &Path,
    supervisor: i32,
) {
    while let Some(message) = receiver.next() {
        match message {
            ToLauncher::Message(text) => print(&text),
            ToLauncher::Report(_) | ToLauncher::Unexecuted(_) => {
                let _ = answers.send(message);
            }
            ToLauncher::Joined { .. } | ToLauncher::Refused(_) => {}
        }
    }
    // Print this even if the command has just ended, because the loss of its device can be the reason.
    if lost.swap(true, Ordering::AcqRel) {
        return;
    }
    let log = std::fs::read_to_string(socket.with_extension("log")).unwrap_or_default();
    print(&format!(
        "gpu-sim: the simulated GPU has ended unexpectedly, and its programs are killed. {}",
        log.trim()
    ));
    end_descendants(supervisor);
}

/// Writes a line to standard error. Unlike `eprintln`, it does not panic if standard error is closed.
fn print(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Kills every descendant except the supervisor, which can be one and ends by itself. New children of killed
/// ones become descendants of this process, so that the next round finds them.
fn end_descendants(supervisor: i32) {
    loop {
        let mut children = procfs::descendants(std::process::id().cast_signed());
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

fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => 128 + signal.unwrap_or(0) as u8,
    }
}
