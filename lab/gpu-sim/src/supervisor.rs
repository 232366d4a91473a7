//! The supervisor: the process that simulates the machine. It serves the KFD file, runs the device, and ends
//! after its last launcher.

mod launchers;
mod plan;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::thread::CpuSet;

use crate::arena::{self, Arena};
use crate::call::Call;
use crate::clock::now;
use crate::control::Setup;
use crate::engine::{self, Pace};
use crate::fuse::{Connection, FILE_SIZE, Request};
use crate::machine::{DriverState, Machine, Outbox, Process, Sysfs, Timeline};
use crate::procfs::{ancestors, name, thread_group};
use crate::recording::{self, Recording};
use crate::sandbox::{self, Place};
use crate::topology::GpuConfig;
use crate::unexecuted::Launches;
use crate::{driver, drm, threads};
use launchers::Launchers;
use plan::Plan;

/// The largest number of threads that serve the KFD file; a waiting call does not occupy one.
const SERVERS: usize = 4;
/// The wait for the machine after which a thread starts another server thread: far longer than calls take.
const STUCK: Duration = Duration::from_millis(5);
/// The time without requests after which such a server thread ends.
const EXTRA_SERVER: Duration = Duration::from_millis(100);
/// The largest number of notifications for debuggers that wait to be written.
const MAX_NOTICES: usize = 1024;
/// The time that an aborted process has to end (it may write a core file) before it is killed.
const ABORT_LIMIT: Duration = Duration::from_secs(10);

/// The state that the threads of the supervisor share.
#[derive(Debug)]
pub struct Supervisor {
    machine: Mutex<Machine>,
    /// Takes freed memory, which a thread clears outside the lock.
    cleaner: mpsc::Sender<Vec<(u64, u64)>>,
    /// Takes descriptors of debuggers that get a byte. A separate thread writes, because a descriptor can be
    /// any file, even the KFD file, and a server thread must not wait for it.
    notifier: mpsc::SyncSender<Arc<OwnedFd>>,
    pub connection: Connection,
    /// The render nodes, in the order of the GPUs; empty if the kernel cannot serve them.
    nodes: Vec<Connection>,
    pub pace: Pace,
    clients: Mutex<Clients>,
    launchers: Mutex<Launchers>,
    /// Counts the kernels that are not executed, for each launcher. It has a separate lock, so that a count
    /// never waits for the connection to a launcher.
    launches: Launches,
    setup: Setup,
    /// The place from which the supervisor was started.
    place: Place,
    socket: PathBuf,
    this: Weak<Self>,
}

#[derive(Debug, Default)]
struct Clients {
    open: HashMap<u64, Open>,
    next_handle: u64,
    watched: HashSet<i32>,
    doorbells: u64,
}

#[derive(Debug)]
struct Open {
    pid: i32,
    /// The threads that are known to belong to the process.
    threads: HashSet<i32>,
}

/// Runs the supervisor of the set with its socket at `path`. Writes `ready` to standard output once launchers
/// can join, or the reason why they cannot. Returns after the last launcher has left.
pub fn main(path: &Path, setup: &Setup) -> anyhow::Result<()> {
    // It was started as /proc/self/exe, which lists of processes would show as "exe".
    let _ = rustix::thread::set_name(c"gpu-sim");
    let started = start(path, setup);
    let mut out = std::io::stdout();
    match started {
        Ok((shared, listener)) => {
            let served = serve(&shared);
            writeln!(out, "{}", served.as_ref().map_or_else(ToString::to_string, |()| "ready".to_owned()))?;
            out.flush()?;
            served?;
            launchers::wait_for_the_last(&shared, listener);
            shared.write_timeline();
            Ok(())
        }
        Err(error) => {
            writeln!(out, "{error:#}")?;
            Err(error)
        }
    }
}

fn start(path: &Path, setup: &Setup) -> anyhow::Result<(Arc<Supervisor>, UnixListener)> {
    let Plan { gpus, durations, settings, faults, setup } = Plan::new(setup)?;
    let arena = Arena::new().context("cannot create the device memory")?;
    let (connection, mount) =
        Connection::mount().context("cannot mount the KFD file, which needs root and /dev/fuse")?;
    let configs: Vec<GpuConfig> = gpus.iter().map(|gpu| gpu.config).collect();
    // Bind the socket before /dev and /sys change, in the launchers' view of the file system.
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    let nodes: io::Result<Vec<_>> = configs.iter().map(|_| Connection::mount_over(arena.fd())).collect();
    let (nodes, mounts) = match nodes {
        Ok(nodes) => nodes.into_iter().unzip(),
        Err(error) => {
            // HIP 5 runs nevertheless; newer runtimes report that libdrm cannot query the device.
            eprintln!(
                "render nodes cannot answer requests, which needs Linux 6.9: only ROCr 5 works ({error})"
            );
            (Vec::new(), Vec::new())
        }
    };
    // Open the file before /dev changes: it can lie there.
    let timeline = setup.timeline.as_deref().map(|path| {
        recording::create(path).with_context(|| format!("--timeline: cannot write {}", path.display()))
    });
    let timeline = timeline.transpose()?;
    let place = Place::here().context("cannot determine the root directory of this process")?;
    sandbox::enter(mount, mounts, arena.fd(), &configs, &settings)?;
    let pace = Pace::new()?;
    let memory = arena.fd().try_clone_to_owned()?;
    let (cleaner, freed) = mpsc::channel();
    let (notifier, notices) = mpsc::sync_channel::<Arc<OwnedFd>>(MAX_NOTICES);
    std::thread::spawn(move || notices.iter().for_each(|descriptor| driver::notify(&descriptor)));
    let mut machine = Machine::new(arena, gpus, durations);
    let sysfs = Sysfs::at(Path::new(sandbox::PROC)).context("cannot show queues in sysfs")?;
    machine.driver = DriverState { settings, faults, sysfs, compute_queues: 0 };
    let shared = Arc::new_cyclic(|this| Supervisor {
        cleaner,
        notifier,
        machine: Mutex::new(machine),
        connection,
        nodes,
        pace,
        clients: Mutex::default(),
        launchers: Mutex::default(),
        launches: Launches::default(),
        setup,
        place,
        socket: path.to_owned(),
        this: this.clone(),
    });
    if let Some(file) = timeline {
        shared.record_to(file).context("cannot record the timeline")?;
    }
    let recycler = Arc::clone(&shared);
    std::thread::spawn(move || {
        for ranges in freed {
            arena::clear(memory.as_fd(), &ranges);
            recycler.machine.lock().memory.arena.recycle(ranges);
        }
    });
    Ok((shared, listener))
}

/// Returns the processor of each server thread, or `None` for any. With few processors there is one thread on
/// each: the thread on the processor of a calling thread runs as soon as the caller blocks, without waking
/// another processor.
fn server_processors() -> Vec<Option<usize>> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return vec![None; SERVERS] };
    // Never a single thread: a client's memory can lie in a page of the KFD file that only another server
    // thread can provide.
    if !(2..=SERVERS).contains(&(allowed.count() as usize)) {
        return vec![None; SERVERS];
    }
    (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).map(Some).collect()
}

/// Starts the threads that serve the files and run the device.
fn serve(shared: &Arc<Supervisor>) -> std::io::Result<()> {
    for processor in server_processors() {
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            threads::run_promptly();
            if let Some(processor) = processor {
                threads::keep_to(processor);
            }
            shared.connection.serve(None, |request| shared.handle(request));
        });
    }
    for i in 0..shared.nodes.len() {
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            let gpu = shared.machine.lock().gpus[i].config;
            drm::serve(&shared.nodes[i], &gpu);
        });
    }
    // The kernel learns the file's size only by this request, and a doorbell beyond the size would be a
    // SIGBUS. It must come before the engine runs, because an invalidation during the request makes the
    // kernel ignore the answer.
    let size = std::fs::metadata(sandbox::KFD)?.len();
    if size != FILE_SIZE {
        return Err(std::io::Error::other(format!("/dev/kfd has {size} bytes instead of {FILE_SIZE}")));
    }
    let (shared, invalidating) = (Arc::clone(shared), Arc::clone(shared));
    std::thread::spawn(move || {
        engine::run(
            &shared.pace,
            shared.connection.pending(),
            move || invalidating.connection.invalidate_pages(),
            || shared.with_machine(|machine| engine::tick(machine, now())),
        );
    });
    Ok(())
}

impl Supervisor {
    /// Runs `work` on the machine, then sends the resulting answers and messages.
    pub fn with_machine<R>(&self, work: impl FnOnce(&mut Machine) -> R) -> R {
        let machine = self.machine.try_lock_for(STUCK).unwrap_or_else(|| {
            self.start_extra_server();
            self.machine.lock()
        });
        self.work(machine, work)
    }

    /// Starts another server thread while all others may wait for the machine. The holder of the machine can
    /// be reading client memory that is a page of the KFD file, which a server thread must provide.
    fn start_extra_server(&self) {
        let Some(shared) = self.this.upgrade() else { return };
        // Without the thread, the others keep waiting.
        let _ = std::thread::Builder::new().spawn(move || {
            threads::run_normally();
            shared.connection.serve(Some(EXTRA_SERVER), |request| shared.handle(request));
        });
    }

    fn work<R>(&self, mut machine: MutexGuard<'_, Machine>, work: impl FnOnce(&mut Machine) -> R) -> R {
        let result = work(&mut machine);
        let Outbox { answers, failures, remarks, notices } = std::mem::take(&mut machine.outbox);
        let freed = machine.memory.arena.take_freed();
        drop(machine);
        for descriptor in notices {
            // Excess notifications are dropped.
            let _ = self.notifier.try_send(descriptor);
        }
        for (unique, answer) in answers {
            match answer {
                Ok(reply) => self.connection.ioctl(unique, &reply),
                Err(errno) => self.connection.error(unique, errno),
            }
        }
        for (pid, text) in remarks {
            self.remark(pid, &text);
        }
        for (pid, reason) in failures {
            self.end_process(pid, &reason);
        }
        if !freed.is_empty() {
            let _ = self.cleaner.send(freed);
        }
        result
    }

    /// Records the run to this file. A failure ends the recording, and every launcher gets one line about it.
    fn record_to(&self, file: File) -> io::Result<()> {
        let this = self.this.clone();
        let recording = Recording::start(file, move |why| {
            if let Some(shared) = this.upgrade() {
                let text =
                    format!("gpu-sim: the timeline is incomplete, because its file cannot be written: {why}");
                shared.launchers.lock().send_to_all(&text);
            }
        })?;
        self.machine.lock().timeline = Some(Timeline::new(recording));
        Ok(())
    }

    /// Waits until the timeline up to now is written, if there is one.
    fn write_timeline(&self) {
        let written = self.with_machine(|machine| engine::record_until(machine, now()));
        // If the sender is lost, the recording has failed, which was reported.
        let _ = written.map(|written| written.recv());
    }

    fn handle(&self, request: Request<'_>) {
        match request {
            Request::Open { unique, tid } => match self.open(tid) {
                Some(handle) => self.connection.opened(unique, handle),
                None => self.connection.error(unique, libc::ESRCH),
            },
            Request::Release { handle } => self.released(handle),
            Request::Ioctl { unique, tid, handle, command, argument, out_size } => {
                match self.caller(handle, tid) {
                    Some(pid) => {
                        // Read the time under the lock, so that the device is not ahead of the call.
                        self.with_machine(|machine| {
                            let argument = argument.to_vec();
                            let call = Call { unique, pid, tid, command, argument, out_size, now: now() };
                            engine::ioctl(machine, &call);
                        });
                        self.pace.wake();
                    }
                    // The driver answers so for a descriptor that was inherited over fork.
                    None => self.connection.error(unique, libc::EBADF),
                }
            }
            Request::Interrupt { unique, interrupt } => {
                if !self.with_machine(|machine| machine.interrupt(unique)) {
                    self.connection.interrupt_again(interrupt);
                }
            }
            Request::Touched { unique, size } => {
                // Tick here, because the engine may still be waking up. Never wait for the machine, whose
                // holder may wait for this answer.
                if let Some(machine) = self.machine.try_lock() {
                    self.work(machine, |machine| engine::tick(machine, now()));
                }
                // Answer first, because waking the engine can wait for a sleeping processor.
                self.connection.touched(unique, size);
                self.pace.wake();
            }
        }
    }

    fn open(&self, tid: i32) -> Option<u64> {
        let pid = thread_group(tid)?;
        let mut clients = self.clients.lock();
        clients.next_handle += 1;
        let handle = clients.next_handle;
        clients.open.insert(handle, Open { pid, threads: HashSet::from([tid]) });
        clients.doorbells += 1;
        let doorbell = clients.doorbells;
        let watch = clients.watched.insert(pid);
        drop(clients);
        let name = name(pid);
        let unexecuted = self.launches.nearest(&ancestors(pid));
        self.with_machine(|machine| {
            machine
                .processes
                .entry(pid)
                .or_insert_with(|| Process { unexecuted, ..Process::new(pid, name, doorbell) });
        });
        if watch {
            self.watch(pid);
        }
        Some(handle)
    }

    /// Removes a process from the machine at its end; a child that inherited its descriptor would otherwise
    /// keep its queues alive.
    fn watch(&self, pid: i32) {
        let Some(target) = Pid::from_raw(pid) else { return };
        let Ok(fd) = rustix::process::pidfd_open(target, PidfdFlags::empty()) else { return };
        let Some(shared) = self.this.upgrade() else { return };
        let _ = std::thread::Builder::new().spawn(move || {
            threads::run_normally();
            // The descriptor becomes readable when the process ends.
            while rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).is_err() {}
            shared.clients.lock().watched.remove(&pid);
            shared.remove_process(pid);
        });
    }

    fn released(&self, handle: u64) {
        let mut clients = self.clients.lock();
        let Some(open) = clients.open.remove(&handle) else { return };
        if clients.open.values().any(|other| other.pid == open.pid) {
            return;
        }
        drop(clients);
        self.remove_process(open.pid);
    }

    /// Removes a process that has ended, or has closed the KFD and unmapped its doorbells.
    fn remove_process(&self, pid: i32) {
        self.with_machine(|machine| engine::remove_process(machine, now(), pid));
        self.pace.wake();
    }

    /// Returns the calling process, if it is the one that opened the file.
    fn caller(&self, handle: u64, tid: i32) -> Option<i32> {
        let mut clients = self.clients.lock();
        let open = clients.open.get_mut(&handle)?;
        if !open.threads.contains(&tid) {
            if thread_group(tid)? != open.pid {
                return None;
            }
            open.threads.insert(tid);
        }
        Some(open.pid)
    }

    /// Sends a message about a process to its launcher.
    fn remark(&self, pid: i32, text: &str) {
        self.launchers.lock().send_message(pid, &format!("gpu-sim: process {pid} ({}): {text}", name(pid)));
    }

    /// Ends a process that did something that is not simulated, and informs its launcher.
    fn end_process(&self, pid: i32, reason: &str) {
        let text = format!("gpu-sim: process {pid} ({}) is aborted: {reason}", name(pid));
        self.launchers.lock().send_message(pid, &text);
        let target = Pid::from_raw(pid).map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
        let Some(Ok(target)) = target else { return };
        let _ = rustix::process::pidfd_send_signal(&target, Signal::ABORT);
        // A process that handles or ignores the signal would wait for its GPU forever.
        let _ = std::thread::Builder::new().spawn(move || {
            threads::run_normally();
            let limit = Timespec { tv_sec: ABORT_LIMIT.as_secs().cast_signed(), tv_nsec: 0 };
            if let Ok(0) = rustix::event::poll(&mut [PollFd::new(&target, PollFlags::IN)], Some(&limit)) {
                let _ = rustix::process::pidfd_send_signal(&target, Signal::KILL);
            }
        });
    }
}
