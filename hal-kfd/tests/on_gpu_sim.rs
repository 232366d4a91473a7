//! The registry with the driver of `gpu-sim`. Each case starts this program again on a simulated GPU with its
//! options. There the program is a client of `/dev/kfd` without ROCr: it makes memory, queues and packets
//! itself.

use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use hal_kfd::attach::{Attachment, Problem};
use hal_kfd::capabilities::{self, Choice, Facts, Refusal, Scheduler};
use hal_kfd::costs;
use hal_kfd::session::SuspendStatus;
use hal_kfd::{Errno, Kernel, Kfd, MechanismKind, Registry};
use hip_sys::kfd::{self, Ioctl};
use host::process::Untraceable;

/// A wait longer than this is a hang.
const HANG: Duration = Duration::from_secs(60);
/// AQL packets: nothing, a kernel, a barrier.
const INVALID: u16 = 1;
const DISPATCH: u16 = 2;
const BARRIER: u16 = 3;

/// The name, the options of gpu-sim, and the function of a case.
type Case = (&'static str, &'static [&'static str], fn());

const CASES: &[Case] = &[
    ("update-queue on HWS", &[], || evicts(MechanismKind::UpdateQueue)),
    ("update-queue on MES", &["--arch", "gfx1100"], || evicts(MechanismKind::UpdateQueue)),
    ("debug-trap on HWS", &[], || evicts(MechanismKind::DebugTrap)),
    ("debug-trap on MES", &["--arch", "gfx1100"], || evicts(MechanismKind::DebugTrap)),
    ("update-queue with costs", &["--save-us", "200", "--restore-us", "100"], || {
        evicts(MechanismKind::UpdateQueue)
    }),
    ("update-queue that drains", &["--no-cwsr"], || evicts(MechanismKind::UpdateQueue)),
    ("update-queue with failures", &["--fail-ioctls", "11:3"], || failures(MechanismKind::UpdateQueue)),
    ("debug-trap with failures", &["--fail-ioctls", "12:3:dbg_trap,update_queue"], || {
        failures(MechanismKind::DebugTrap);
    }),
    ("a queue that cannot be evicted", &["--stuck-queue", "1", "--preemption-timeout-ms", "50"], stuck),
    ("limits on HWS", &["--save-us", "50"], limits),
    ("limits on MES, where compute units are paired", &["--arch", "gfx1100"], limits),
    ("limits with failures", &["--fail-ioctls", "11:3:set_cu_mask,update_queue"], limits_with_failures),
    ("another process on HWS", &["--save-us", "50"], another_process),
    ("another process on MES", &["--arch", "gfx1100"], another_process),
    ("the measurement", &["--save-us", "50"], measured),
    ("the measurement without CWSR", &["--no-cwsr"], measured_without_cwsr),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some("--inside") {
        let name = arguments.next().unwrap_or_default();
        if name == "target" {
            target();
            return ExitCode::SUCCESS;
        }
        let case = CASES.iter().find(|(other, ..)| *other == name).expect("a case of this name");
        case.2();
        return ExitCode::SUCCESS;
    }
    let me = std::env::current_exe().expect("this program");
    let gpu_sim = gpu_sim(&me);
    let mut failed = 0;
    let wanted =
        |name: &str| first.as_deref().is_none_or(|part| part.starts_with('-') || name.contains(part));
    for (name, options, _) in CASES.iter().filter(|(name, ..)| wanted(name)) {
        let mut command = Command::new(&gpu_sim);
        command.arg("run").args(*options).arg("--");
        if std::env::var_os("GIVEWAY_TEST_KERNEL").is_some() {
            // Only the case runs as on an old kernel, not the simulator.
            command.arg(gpu_sim.with_file_name("old-kernel"));
        }
        command.arg(&me).arg("--inside").arg(name);
        let good = command.status().is_ok_and(|status| status.success());
        println!("{name} ... {}", if good { "ok" } else { "FAILED" });
        failed += usize::from(!good);
    }
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Returns the path of the simulator, in the folder above that of the tests.
fn gpu_sim(me: &Path) -> PathBuf {
    let path = me.ancestors().nth(2).expect("target/PROFILE/deps/TEST").join("gpu-sim");
    assert!(path.exists(), "{} does not exist: run `cargo build --workspace` first", path.display());
    path
}

/// A client of the driver whose requests go through a registry.
struct Client {
    kfd: Arc<Kfd>,
    registry: Registry,
    file: File,
    node: File,
    gpu_id: u32,
}

/// A queue of the client.
struct Queue {
    id: u32,
    ring: *mut u8,
    /// The page with the write index, the read index, and the completion signal.
    shared: *mut u8,
    doorbell: *const AtomicU64,
}

const RING: usize = 1 << 16;
const PAGE: usize = 4096;
const SIGNAL: usize = 256;

impl Client {
    fn new(kind: MechanismKind) -> Self {
        let file = File::options().read(true).write(true).open("/dev/kfd").expect("/dev/kfd");
        let kfd = Arc::new(Kfd::recognise(file.as_raw_fd()).expect("that is the KFD"));
        assert!(Kfd::exists() && Kfd::is_simulated());
        let node = File::options().read(true).write(true).open("/dev/dri/renderD128").expect("a render node");
        let gpu_id = std::fs::read_to_string("/sys/class/kfd/kfd/topology/nodes/1/gpu_id").expect("a GPU");
        let gpu_id = gpu_id.trim().parse().expect("a number");
        let client =
            Self { registry: Registry::new(kfd.clone() as Arc<dyn Kernel>, kind), kfd, file, node, gpu_id };
        let drm_fd = client.node.as_raw_fd().cast_unsigned();
        client.call(&mut kfd::AcquireVm { drm_fd, gpu_id }).expect("the address space");
        client
    }

    /// Makes a call of the runtime.
    fn call<A: Ioctl>(&self, argument: &mut A) -> Result<i32, Errno> {
        let mut bytes = argument.as_bytes().to_vec();
        let result = self
            .registry
            .intercept(&*self.kfd, A::COMMAND, &mut bytes)
            .unwrap_or_else(|| self.kfd.execute(A::COMMAND, &mut bytes));
        *argument = A::from_bytes(&bytes);
        result
    }

    fn map(fd: Option<&File>, at: *mut u8, len: usize, offset: u64) -> *mut u8 {
        let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
        let (kind, fd) = match fd {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the call makes a new mapping, or replaces a reservation that `memory` has made.
        let p = unsafe { libc::mmap(at.cast(), len, protection, kind | fixed, fd, offset.cast_signed()) };
        assert_ne!(p, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        p.cast()
    }

    /// Allocates memory that the device reaches at the same address.
    fn memory(&self, len: usize) -> *mut u8 {
        let at = Self::map(None, std::ptr::null_mut(), len, 0);
        let mut alloc = kfd::AllocMemoryOfGpu {
            va_addr: at as u64,
            size: len as u64,
            gpu_id: self.gpu_id,
            flags: kfd::ALLOC_GTT,
            ..Default::default()
        };
        self.call(&mut alloc).expect("memory");
        let devices = [self.gpu_id];
        let mut map = kfd::MapMemoryToGpu {
            handle: alloc.handle,
            device_ids_array_ptr: devices.as_ptr() as u64,
            n_devices: 1,
            n_success: 0,
        };
        self.call(&mut map).expect("the memory on the device");
        Self::map(Some(&self.node), at, len, alloc.mmap_offset)
    }

    fn queue(&self) -> Queue {
        let (ring, shared) = (self.memory(RING), self.memory(PAGE));
        for slot in (0..RING).step_by(64) {
            // SAFETY: the slot lies inside the new ring, which no other thread uses yet.
            unsafe { ring.wrapping_add(slot).cast::<u16>().write(INVALID) };
        }
        let mut create = kfd::CreateQueue {
            ring_base_address: ring as u64,
            write_pointer_address: shared as u64,
            read_pointer_address: shared as u64 + 8,
            ring_size: RING as u32,
            gpu_id: self.gpu_id,
            queue_type: kfd::QUEUE_TYPE_COMPUTE_AQL,
            queue_percentage: 100,
            queue_priority: 7,
            ctx_save_restore_address: self.memory(PAGE) as u64,
            ctx_save_restore_size: PAGE as u32,
            ctl_stack_size: 256,
            ..Default::default()
        };
        self.call(&mut create).expect("a queue");
        let page = create.doorbell_offset & !(PAGE as u64 - 1);
        let doorbells = Self::map(Some(&self.file), std::ptr::null_mut(), PAGE, page);
        let at = (create.doorbell_offset - page) as usize;
        Queue { id: create.queue_id, ring, shared, doorbell: doorbells.wrapping_add(at).cast() }
    }

    fn evict(&self) -> hal_kfd::Outcome {
        // SAFETY: the queues belong to this process, which never frees their memory.
        unsafe { self.registry.evict(self.gpu_id) }
    }

    /// Sends pending changes until the driver has all of them.
    fn settle(&self) {
        let begin = Instant::now();
        while self.registry.reconcile().unsettled > 0 {
            assert!(begin.elapsed() < HANG, "never settled: {:?}", self.registry.queues());
        }
    }
}

impl Queue {
    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the words are aligned, and their page stays mapped until the process ends.
        unsafe { AtomicU64::from_ptr(self.shared.wrapping_add(at).cast()) }
    }

    fn signal(&self) -> &AtomicI64 {
        // SAFETY: the word is aligned, and its page stays mapped until the process ends.
        unsafe { AtomicI64::from_ptr(self.shared.wrapping_add(SIGNAL + 8).cast()) }
    }

    /// Submits a packet that completes the signal: a barrier, or a kernel of this many work-items.
    fn submit(&self, items: Option<u32>) {
        self.signal().store(1, Ordering::Release);
        let index = self.word(0).fetch_add(1, Ordering::AcqRel);
        let slot = self.ring.wrapping_add(index as usize * 64 % RING);
        let mut packet = [0u8; 64];
        let kind = if let Some(items) = items {
            for (at, value) in [(4, 64u16), (6, 1), (8, 1)] {
                packet[at..at + 2].copy_from_slice(&value.to_le_bytes());
            }
            for (at, value) in [(12, items), (16, 1), (20, 1)] {
                packet[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            DISPATCH
        } else {
            BARRIER
        };
        packet[56..].copy_from_slice(&(self.shared as u64 + SIGNAL as u64).to_le_bytes());
        // SAFETY: the slot belongs to this thread until its header is stored, as the ring is never full here.
        unsafe { std::ptr::copy_nonoverlapping(packet[2..].as_ptr(), slot.wrapping_add(2), 62) };
        // SAFETY: the header is aligned, and the device reads it by an atomic load.
        let header = unsafe { AtomicU16::from_ptr(slot.cast()) };
        header.store(kind, Ordering::Release);
        // SAFETY: the page of the doorbell stays mapped until the process ends.
        unsafe { &*self.doorbell }.store(index, Ordering::Release);
    }

    fn done(&self) -> bool {
        self.signal().load(Ordering::Acquire) == 0
    }

    fn must_end(&self) {
        let begin = Instant::now();
        while !self.done() {
            assert!(begin.elapsed() < HANG, "a packet was never taken");
            std::thread::yield_now();
        }
    }

    /// Asserts that no packet is taken for 5 ms; an idle device takes a packet of a running queue within
    /// microseconds.
    fn must_not_move(&self) {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(5) {
            assert!(!self.done(), "a packet of an evicted queue was taken");
            std::thread::yield_now();
        }
    }
}

/// Work-items of a kernel of about 20 ms: 5 µs for each round of 3,328 work-groups.
const LONG: u32 = 64 * 3328 * 4000;

fn evicts(kind: MechanismKind) {
    let client = Client::new(kind);
    let (first, second) = (client.queue(), client.queue());
    first.submit(None);
    first.must_end();
    // SAFETY: the queues belong to this process, which never frees their memory.
    let mark = unsafe { client.registry.marker(client.gpu_id) };
    client.registry.note_complete(&mark);
    // The device takes the kernel at once, so that the indices are equal although the queue is busy.
    first.submit(Some(LONG));
    while first.word(8).load(Ordering::Acquire) < 2 {
        std::thread::yield_now();
    }
    let outcome = client.evict();
    assert_eq!((outcome.queues, outcome.unsettled, outcome.error), (1, 0, None));
    if !first.done() {
        first.must_not_move();
    }
    second.submit(None);
    second.must_end();
    // A new queue is created evicted, and an idle one is evicted once it has work.
    let third = client.queue();
    third.submit(None);
    third.must_not_move();
    second.submit(None);
    second.must_end();
    assert!(client.evict().queues >= 2);
    second.submit(None);
    second.must_not_move();
    // An update of the runtime does not restore the queue.
    let wish = client.registry.queues().iter().find(|queue| queue.id == second.id).map(|q| q.arbiter.wish());
    client.call(&mut wish.expect("known").update(second.id)).expect("an update");
    second.must_not_move();
    let outcome = client.registry.restore(client.gpu_id);
    assert_eq!((outcome.unsettled, outcome.error), (0, None));
    [&first, &second, &third].iter().for_each(|queue| queue.must_end());
    // Queues are destroyed while they are evicted.
    second.submit(None);
    second.must_end();
    assert!(client.evict().queues >= 1);
    for queue in [&first, &second, &third] {
        client.call(&mut kfd::DestroyQueue { queue_id: queue.id, pad: 0 }).expect("destroyed");
    }
    assert!(client.registry.queues().is_empty());
    assert_eq!(client.registry.shut_down().error, None);
}

fn limits() {
    let client = Client::new(MechanismKind::UpdateQueue);
    let (first, second) = (client.queue(), client.queue());
    let units = facts(&client).units.expect("the units of the device");
    // SAFETY: the queues belong to this process, which never frees their memory.
    let limit = |keep: u32| unsafe { client.registry.limit(client.gpu_id, units, keep) };
    for share in [1, 16, 48] {
        first.submit(Some(LONG));
        second.submit(None);
        let outcome = limit(units.share(share).expect("a share")).expect("the driver takes the mask");
        assert!(outcome.queues >= 1 && outcome.error.is_none(), "{outcome:?}");
        // What is limited goes on, also what comes meanwhile.
        first.must_end();
        second.submit(Some(LONG / 64));
        assert!(limit(units.share(share).expect("a share")).is_some());
        second.must_end();
        // The mask that the runtime sets is limited as well, and stays when the limit goes.
        let own = vec![0xf0f0_f0f0u32; units.all.div_ceil(32) as usize];
        let num_cu_mask = 32 * own.len() as u32;
        let mut set = kfd::SetCuMask { queue_id: first.id, num_cu_mask, cu_mask_ptr: own.as_ptr() as u64 };
        client.call(&mut set).expect("the runtime's mask");
        first.submit(Some(LONG / 64));
        first.must_end();
        let outcome = client.registry.restore(client.gpu_id);
        assert_eq!((outcome.unsettled, outcome.error), (0, None));
        assert!(client.registry.held_devices().is_empty());
        let kept = client.registry.queues().into_iter().find(|queue| queue.id == first.id);
        assert_eq!(kept.map(|queue| queue.cu_mask), Some(own));
        [&first, &second].iter().for_each(|queue| queue.submit(None));
        [&first, &second].iter().for_each(|queue| queue.must_end());
    }
    // A queue is destroyed while it is limited.
    first.submit(None);
    assert!(limit(units.step).is_some());
    for queue in [&first, &second] {
        client.call(&mut kfd::DestroyQueue { queue_id: queue.id, pad: 0 }).expect("destroyed");
    }
    assert_eq!(client.registry.shut_down().error, None);
}

/// Whatever fails, the queues run, limited or evicted instead, and everything is restored.
fn limits_with_failures() {
    let client = Client::new(MechanismKind::UpdateQueue);
    let queues = [client.queue(), client.queue(), client.queue()];
    let units = facts(&client).units.expect("the units of the device");
    let mut errors = 0;
    let (mut limited, mut evicted) = (0, 0);
    for _ in 0..100 {
        queues.iter().for_each(|queue| queue.submit(Some(LONG / 64)));
        // SAFETY: the queues belong to this process, which never frees their memory.
        match unsafe { client.registry.limit(client.gpu_id, units, units.step) } {
            Some(outcome) => {
                limited += 1;
                errors += usize::from(outcome.error.is_some());
                queues.iter().for_each(Queue::must_end);
            }
            None => {
                evicted += 1;
                client.evict();
                client.settle();
            }
        }
        errors += usize::from(client.registry.restore(client.gpu_id).error.is_some());
        client.settle();
        assert!(!client.registry.has_pending());
        queues.iter().for_each(Queue::must_end);
    }
    assert!(limited > 0 && errors + evicted > 10, "{limited} limited, {evicted} evicted, {errors} failures");
    assert_eq!(client.registry.given_up(), None);
}

fn failures(kind: MechanismKind) {
    let client = Client::new(kind);
    let queues = [client.queue(), client.queue(), client.queue()];
    let mut requests = 0;
    let mut errors = 0;
    for _ in 0..100 {
        for queue in &queues {
            queue.submit(None);
            queue.must_end();
        }
        let outcome = client.evict();
        requests += outcome.requests;
        errors += usize::from(outcome.error.is_some());
        client.settle();
        queues.iter().for_each(|queue| queue.submit(None));
        queues[0].must_not_move();
        assert!(queues.iter().all(|queue| !queue.done()));
        errors += usize::from(client.registry.restore(client.gpu_id).error.is_some());
        client.settle();
        queues.iter().for_each(Queue::must_end);
    }
    assert!(requests >= 100 && errors > 10, "{errors} failures in {requests} requests");
    assert_eq!(client.registry.given_up(), None);
}

fn stuck() {
    let client = Client::new(MechanismKind::UpdateQueue);
    let queue = client.queue();
    queue.submit(Some(u32::MAX));
    while queue.word(8).load(Ordering::Acquire) < 1 {
        std::thread::yield_now();
    }
    assert_eq!(client.evict().error, Some(Errno(libc::ETIME)));
    assert_eq!(client.registry.given_up(), Some(Errno(libc::ETIME)));
    // The registry makes no further requests.
    let again = client.evict();
    assert_eq!((again.error, again.requests), (Some(Errno(libc::ETIME)), 0));
    assert!(client.registry.held_devices().is_empty());
    client
        .call(&mut kfd::DestroyQueue { queue_id: queue.id, pad: 0 })
        .expect("a lost queue can be destroyed");
}

/// The other process: prints the id of its queue, then submits a packet for each line of input, and prints
/// when it is done.
fn target() {
    // With this mechanism the registry enables debugging, as newer runtimes do.
    let client = Client::new(MechanismKind::DebugTrap);
    let queue = client.queue();
    println!("{}", queue.id);
    for _ in std::io::stdin().lines() {
        queue.submit(None);
        println!("submitted");
        queue.must_end();
        println!("done");
    }
}

fn another_process() {
    let me = std::env::current_exe().expect("this program");
    let mut child = Command::new(me)
        .args(["--inside", "target"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the other process");
    let (sender, lines) = mpsc::channel();
    let output = child.stdout.take().expect("its output");
    std::thread::spawn(move || {
        std::io::BufReader::new(output).lines().map_while(Result::ok).for_each(|line| {
            let _ = sender.send(line);
        });
    });
    let next = || lines.recv_timeout(HANG).expect("a line of the other process");
    let id: u32 = next().parse().expect("an id");
    let mut input = child.stdin.take().expect("its input");
    let mut submit = || {
        input.write_all(b"go\n").expect("it reads");
        assert_eq!(next(), "submitted");
    };
    let kfd = Arc::new(Kfd::open().expect("/dev/kfd"));
    let pid = child.id().cast_signed();
    let attachment = Attachment::new(kfd.clone(), pid).expect("a child can be attached to");
    assert!(attachment.can_suspend());
    assert_eq!(Attachment::new(kfd.clone(), pid).map(|_| ()), Err(Problem::Debugged));
    let queues = attachment.queues().expect("its queues");
    assert_eq!(
        queues.iter().map(|queue| (queue.queue_id, queue.ring_size)).collect::<Vec<_>>(),
        [(id, RING as u32)]
    );
    // A number with a result bit of the driver is invalid as well.
    for marked in [id | 1 << 31, id | 1 << 30] {
        assert_eq!(attachment.suspend(&[marked]), Ok(vec![SuspendStatus::Invalid]));
    }
    assert_eq!(attachment.suspend(&[99, id]), Ok(vec![SuspendStatus::Invalid, SuspendStatus::Done]));
    submit();
    assert!(lines.recv_timeout(Duration::from_millis(5)).is_err(), "a suspended queue ran");
    assert_eq!(attachment.resume(&[id]), Ok(vec![SuspendStatus::Done]));
    assert_eq!(next(), "done");
    assert_eq!(attachment.suspend(&[id]), Ok(vec![SuspendStatus::Done]));
    submit();
    assert_eq!(attachment.resume(&[id]), Ok(vec![SuspendStatus::Done]));
    assert_eq!(next(), "done");
    assert_eq!(attachment.suspend(&[id]), Ok(vec![SuspendStatus::Done]));
    submit();
    drop(attachment);
    assert_eq!(next(), "done", "the end of the attachment resumes");
    let attachment = Attachment::new(kfd.clone(), pid).expect("again");
    assert_eq!(attachment.suspend(&[id]), Ok(vec![SuspendStatus::Done]));
    // SAFETY: the call takes numbers only. The pid is that of a child that was not waited for.
    unsafe { libc::kill(pid, libc::SIGTERM) };
    let status = child.wait().expect("its end");
    assert_eq!(status.signal(), Some(libc::SIGTERM));
    assert_eq!(attachment.queues(), Err(Problem::NoProcess));
    drop(attachment);
    assert_eq!(
        Attachment::new(kfd, std::process::id().cast_signed()).map(|_| ()),
        Err(Problem::NotTraceable(Untraceable::Own))
    );
}

fn facts(client: &Client) -> Facts {
    Facts::read(&*client.kfd, Path::new("/sys"), client.gpu_id, Kfd::is_simulated()).expect("facts")
}

fn measured() {
    let client = Client::new(MechanismKind::UpdateQueue);
    let facts = facts(&client);
    let want = Facts {
        version: (1, 14),
        scheduler: Scheduler::Hws,
        cwsr: Some(true),
        debugger: true,
        simulated: true,
        units: facts.units,
    };
    assert_eq!(facts, want);
    let units = facts.units.expect("the units of the device");
    assert!(units.all >= units.step && units.share(16) < Some(units.all));
    for (choice, kind) in [
        (Choice::Auto, MechanismKind::UpdateQueue),
        (Choice::Only(MechanismKind::DebugTrap), MechanismKind::DebugTrap),
    ] {
        assert_eq!(capabilities::choose(choice, &facts, false), Ok(kind));
    }
    let queue = client.queue();
    let cost = costs::measure(&client.registry, &*client.kfd, queue.id, HANG, true).expect("a cost");
    assert!(cost.hold > Duration::ZERO && cost.release > Duration::ZERO, "{cost:?}");
    queue.submit(None);
    queue.must_end();
}

fn measured_without_cwsr() {
    let client = Client::new(MechanismKind::UpdateQueue);
    let facts = facts(&client);
    assert_eq!(capabilities::choose(Choice::Auto, &facts, false), Err(Refusal::NoCwsr));
    assert_eq!(capabilities::choose(Choice::Auto, &facts, true), Ok(MechanismKind::UpdateQueue));
    let queue = client.queue();
    let measured = costs::measure(&client.registry, &*client.kfd, queue.id, HANG, true);
    assert_eq!(measured, Err(Refusal::NoCwsr), "the driver returns no saved state");
    costs::measure(&client.registry, &*client.kfd, queue.id, HANG, false)
        .expect("simulated drains are allowed");
}
