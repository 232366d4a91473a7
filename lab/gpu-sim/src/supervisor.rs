//! The supervisor: the process that is the simulated machine. It serves the KFD file, runs the device, and lives until
//! its last launcher has gone.

mod launchers;

use std::collections::{HashMap, HashSet};
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
use crate::device::{self, Fcfs, Model, Shared as SharedModel};
use crate::engine::{self, Pace};
use crate::fuse::{Connection, FILE_SIZE, Request};
use crate::kernels::Durations;
use crate::layout::MAX_GPUS;
use crate::machine::{DriverState, Faults, Gpu, Machine, Outbox, Process, Settings, Sysfs};
use crate::procfs::{ancestors, name, thread_group};
use crate::sandbox::{self, Place};
use crate::topology::{ARCHS, Arch, GpuConfig, Part, gpu_ids};
use crate::unexecuted::Launches;
use crate::{driver, drm, threads};
use launchers::Launchers;

/// First minor number of render nodes.
const RENDER_MINOR: u32 = 128;
/// Threads that serve the KFD file at most; a wait does not occupy one.
const SERVERS: usize = 4;
/// Whoever waits so long for the machine sees to it that the file is served meanwhile: far longer than calls take.
const STUCK: Duration = Duration::from_millis(5);
/// How long a thread that does so stays without requests.
const STAND_IN: Duration = Duration::from_millis(100);
/// Bytes for debuggers that wait to be written at most.
const UNTOLD: usize = 1024;
/// How long a process that is to end has for it (it may write a core file) before it is killed.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// What the supervisor's threads share.
#[derive(Debug)]
pub struct Shared {
    machine: Mutex<Machine>,
    /// Takes memory that has been given back, to be cleared outside the lock.
    cleaner: mpsc::Sender<Vec<(u64, u64)>>,
    /// Takes descriptors of debuggers' that are to get a byte. They may be anything, which a thread that serves the file
    /// must not wait for; the KFD file itself among them.
    teller: mpsc::SyncSender<Arc<OwnedFd>>,
    /// The KFD file.
    pub connection: Connection,
    /// The render nodes, in the order of the GPUs; none where the kernel cannot serve them.
    nodes: Vec<Connection>,
    /// The engine's alarm.
    pub pace: Pace,
    clients: Mutex<Clients>,
    launchers: Mutex<Launchers>,
    /// Counts the kernels that are not executed, per launcher. It has a lock of its own, so that counting never waits for a launcher
    /// that is being talked to.
    launches: Launches,
    setup: Setup,
    /// From where we were started.
    place: Place,
    socket: PathBuf,
    me: Weak<Self>,
}

/// Open files of the KFD.
#[derive(Debug, Default)]
struct Clients {
    open: HashMap<u64, Open>,
    next_handle: u64,
    /// Processes whose end is watched.
    watched: HashSet<i32>,
    doorbells: u64,
}

#[derive(Debug)]
struct Open {
    pid: i32,
    /// Threads known to belong to the process.
    threads: HashSet<i32>,
}

/// What a set of GPUs is made of once the defaults are filled in.
#[derive(Debug)]
struct Plan {
    gpus: Vec<Gpu>,
    durations: Durations,
    settings: Settings,
    faults: Option<Faults>,
    setup: Setup,
}

impl Plan {
    fn new(setup: &Setup) -> anyhow::Result<Self> {
        let count = setup.gpus.unwrap_or(1);
        anyhow::ensure!((1..=MAX_GPUS as u32).contains(&count), "--gpus takes 1 to {MAX_GPUS}, not {count}");
        let name = setup.arch.as_deref().unwrap_or(ARCHS[0].name);
        let known = || ARCHS.iter().map(|arch| arch.name).collect::<Vec<_>>().join(", ");
        let arch = Arch::find(name).with_context(|| {
            format!("--arch {name} is not a device that the installed runtime knows: {}", known())
        })?;
        let partitions = setup.partitions.unwrap_or(1);
        anyhow::ensure!(
            (1..=MAX_GPUS as u32 / count).contains(&partitions),
            "--gpus times --partitions is at most {MAX_GPUS}, not {count} times {partitions}"
        );
        let arch = match partitions {
            1 => arch,
            // As long-lived as the process, like those of the table.
            of => &*Box::leak(Box::new(arch.partition(of).with_context(|| {
                format!("--partitions {of}: {name} has no compute dies that can be divided so (gfx942 and gfx950 have 8)")
            })?)),
        };
        let vram = setup.vram.unwrap_or(64);
        anyhow::ensure!((1..=1024).contains(&vram), "--vram takes 1 to 1024 GiB, not {vram}");
        let cu_model = setup.cu_model.as_deref().unwrap_or("shared");
        let model = || -> Box<dyn Model> {
            match cu_model {
                "fcfs" => Box::new(Fcfs::default()),
                _ => Box::new(SharedModel::new(device::slots(arch))),
            }
        };
        let durations = setup.durations.as_deref().map(Durations::load).transpose();
        let durations = durations.context("--durations")?.unwrap_or_default();
        let parts = (0..count).flat_map(|device| {
            (0..partitions).map(move |partition| Part { device, partition, of: partitions })
        });
        let gpus = gpu_ids(std::process::id(), count * partitions)
            .zip(RENDER_MINOR..)
            .zip(parts)
            .map(|((gpu_id, render_minor), part)| {
                // Partitions divide the memory among them.
                let vram = (vram << 30) / u64::from(partitions);
                Gpu::new(GpuConfig { arch, gpu_id, vram, render_minor, part }, model())
            })
            .collect();
        let micros = |value: Option<u64>| value.unwrap_or(0).saturating_mul(1000);
        let default = Settings::default();
        let settings = Settings {
            save: micros(setup.save_us),
            restore: micros(setup.restore_us),
            cwsr: !setup.no_cwsr.unwrap_or(false),
            timeout: setup.preemption_timeout_ms.map_or(default.timeout, |ms| ms.saturating_mul(1_000_000)),
            stuck: setup.stuck_queue,
        };
        let faults = setup.fail_ioctls.as_deref().map(Faults::parse).transpose();
        let faults = faults.map_err(|why| anyhow::anyhow!("--fail-ioctls: {why}"))?;
        let setup = Setup {
            save_us: Some(setup.save_us.unwrap_or(0)),
            restore_us: Some(setup.restore_us.unwrap_or(0)),
            no_cwsr: Some(!settings.cwsr),
            preemption_timeout_ms: Some(settings.timeout / 1_000_000),
            stuck_queue: settings.stuck,
            fail_ioctls: setup.fail_ioctls.clone(),
            gpus: Some(count),
            partitions: Some(partitions),
            arch: Some(arch.name.into()),
            vram: Some(vram),
            cu_model: Some(cu_model.into()),
            durations: setup.durations.clone(),
        };
        Ok(Self { gpus, durations, settings, faults, setup })
    }
}

/// Becomes the supervisor of the set whose socket is at `path`. Writes `ready` or one sentence to standard output once
/// launchers may come (or why not), and returns when the last one has gone.
pub fn main(path: &Path, setup: &Setup) -> anyhow::Result<()> {
    // It was started as /proc/self/exe, which would make it "exe" in a list of processes.
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
            Ok(())
        }
        Err(error) => {
            writeln!(out, "{error:#}")?;
            Err(error)
        }
    }
}

fn start(path: &Path, setup: &Setup) -> anyhow::Result<(Arc<Shared>, UnixListener)> {
    let Plan { gpus, durations, settings, faults, setup } = Plan::new(setup)?;
    let arena = Arena::new().context("cannot make the device memory")?;
    let (connection, mount) =
        Connection::mount().context("cannot mount the KFD file (needs root and /dev/fuse)")?;
    let configs: Vec<GpuConfig> = gpus.iter().map(|gpu| gpu.config).collect();
    // The socket is made before /dev and /sys change, in the launchers' view of the file system.
    let _ = std::fs::remove_file(path);
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    let nodes: io::Result<Vec<_>> = configs.iter().map(|_| Connection::mount_over(arena.fd())).collect();
    let (nodes, mounts) = match nodes {
        Ok(nodes) => nodes.into_iter().unzip(),
        Err(error) => {
            // HIP 5 runs all the same; libdrm says for newer runtimes that it cannot ask the device.
            eprintln!(
                "render nodes answer no requests, which ROCr 6 and newer need (Linux 6.9 and newer): {error}"
            );
            (Vec::new(), Vec::new())
        }
    };
    let place = Place::here().context("cannot find out in which root directory this is")?;
    sandbox::enter(mount, mounts, arena.fd(), &configs, &settings)?;
    let pace = Pace::new()?;
    let memory = arena.fd().try_clone_to_owned()?;
    let (cleaner, freed) = mpsc::channel();
    let (teller, told) = mpsc::sync_channel::<Arc<OwnedFd>>(UNTOLD);
    std::thread::spawn(move || told.iter().for_each(|descriptor| driver::notify(&descriptor)));
    let mut machine = Machine::new(arena, gpus, durations);
    let sysfs = Sysfs::at(Path::new(sandbox::PROC)).context("cannot show queues in sysfs")?;
    machine.driver = DriverState { settings, faults, sysfs, compute_queues: 0 };
    let shared = Arc::new_cyclic(|me| Shared {
        cleaner,
        teller,
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
        me: me.clone(),
    });
    let recycler = Arc::clone(&shared);
    std::thread::spawn(move || {
        for ranges in freed {
            arena::clear(memory.as_fd(), &ranges);
            recycler.machine.lock().memory.arena.recycle(ranges);
        }
    });
    Ok((shared, listener))
}

/// Where the serving threads stand. With few processors one stands on each: the one on the processor of a calling
/// thread runs as soon as that thread blocks, and no sleeping processor has to be woken first.
fn posts() -> Vec<Option<usize>> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return vec![None; SERVERS] };
    // Never a single one: a client's address may lie in a page that only another server can provide.
    if !(2..=SERVERS).contains(&(allowed.count() as usize)) {
        return vec![None; SERVERS];
    }
    (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).map(Some).collect()
}

/// Starts the threads that serve the file and run the device.
fn serve(shared: &Arc<Shared>) -> std::io::Result<()> {
    for processor in posts() {
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
    // The kernel learns the file's size only when asked about it, and a doorbell beyond it would be a SIGBUS. Before the
    // engine runs: an invalidation between question and answer makes the kernel ignore the answer.
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

impl Shared {
    /// Runs `work` on the machine, then tells clients and users what came of it.
    pub fn with_machine<R>(&self, work: impl FnOnce(&mut Machine) -> R) -> R {
        let machine = self.machine.try_lock_for(STUCK).unwrap_or_else(|| {
            self.stand_in();
            self.machine.lock()
        });
        self.work(machine, work)
    }

    /// Starts a thread that serves the file for those who wait for the machine. Whoever has the machine may be reading memory of
    /// a client, which waits for the client's page faults, and one of those for an answer to its touch.
    fn stand_in(&self) {
        let Some(shared) = self.me.upgrade() else { return };
        // Without a thread those who wait go on waiting.
        let _ = std::thread::Builder::new().spawn(move || {
            threads::run_normally();
            shared.connection.serve(Some(STAND_IN), |request| shared.handle(request));
        });
    }

    fn work<R>(&self, mut machine: MutexGuard<'_, Machine>, work: impl FnOnce(&mut Machine) -> R) -> R {
        let result = work(&mut machine);
        let Outbox { answers, failures, remarks, notices } = std::mem::take(&mut machine.outbox);
        let freed = machine.memory.arena.take_freed();
        drop(machine);
        for descriptor in notices {
            // One too many is lost: nobody reads them.
            let _ = self.teller.try_send(descriptor);
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
                        // Under the lock: the device may not have gone further than the call's time.
                        self.with_machine(|machine| {
                            engine::ioctl(
                                machine,
                                &Call { unique, pid, tid, command, argument, out_size, now: now() },
                            );
                        });
                        self.pace.ring();
                    }
                    // As the driver answers a descriptor that was inherited over fork.
                    None => self.connection.error(unique, libc::EBADF),
                }
            }
            Request::Interrupt { unique, interrupt } => {
                if !self.with_machine(|machine| machine.interrupt(unique)) {
                    self.connection.interrupt_again(interrupt);
                }
            }
            Request::Touched { unique, size } => {
                // Whoever is first looks: the engine may still be waking up. Never waiting for the machine: whoever has it may
                // wait for this answer.
                if let Some(machine) = self.machine.try_lock() {
                    self.work(machine, |machine| engine::tick(machine, now()));
                }
                // The toucher first: whoever rings a sleeping processor waits for it.
                self.connection.touched(unique, size);
                self.pace.ring();
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

    /// Follows a process to its end: a child that inherited its descriptor would otherwise keep its queues alive.
    fn watch(&self, pid: i32) {
        let Some(target) = Pid::from_raw(pid) else { return };
        let Ok(fd) = rustix::process::pidfd_open(target, PidfdFlags::empty()) else { return };
        let Some(shared) = self.me.upgrade() else { return };
        let _ = std::thread::Builder::new().spawn(move || {
            threads::run_normally();
            // The descriptor becomes readable when the process ends.
            while rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).is_err() {}
            shared.clients.lock().watched.remove(&pid);
            shared.gone(pid);
        });
    }

    fn released(&self, handle: u64) {
        let mut clients = self.clients.lock();
        let Some(open) = clients.open.remove(&handle) else { return };
        if clients.open.values().any(|other| other.pid == open.pid) {
            return;
        }
        drop(clients);
        self.gone(open.pid);
    }

    /// A process has ended, or has closed the KFD and unmapped its doorbells.
    fn gone(&self, pid: i32) {
        self.with_machine(|machine| engine::remove_process(machine, now(), pid));
        self.pace.ring();
    }

    /// The process behind a call, if the calling thread belongs to the one that opened the file.
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

    /// Says something of a process to whoever started it.
    fn remark(&self, pid: i32, text: &str) {
        self.launchers.lock().tell(pid, &format!("gpu-sim: process {pid} ({}): {text}", name(pid)));
    }

    /// Ends a process that did what is not simulated, and says so to whoever started it.
    fn end_process(&self, pid: i32, reason: &str) {
        let text = format!("gpu-sim: process {pid} ({}) is ended: {reason}", name(pid));
        self.launchers.lock().tell(pid, &text);
        let target = Pid::from_raw(pid).map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
        let Some(Ok(target)) = target else { return };
        let _ = rustix::process::pidfd_send_signal(&target, Signal::ABORT);
        // One that handles or ignores that would wait for its GPU for ever.
        let _ = std::thread::Builder::new().spawn(move || {
            threads::run_normally();
            let limit = Timespec { tv_sec: LAST_WORDS.as_secs().cast_signed(), tv_nsec: 0 };
            if let Ok(0) = rustix::event::poll(&mut [PollFd::new(&target, PollFlags::IN)], Some(&limit)) {
                let _ = rustix::process::pidfd_send_signal(&target, Signal::KILL);
            }
        });
    }
}
