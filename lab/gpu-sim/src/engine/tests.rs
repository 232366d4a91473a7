//! Costs, order and answers of the driver's operations, with fake clients.

use hip_sys::kfd::debug::{self, DbgTrap, Operation as _, QUEUE_ERROR, QUEUE_INVALID};
use hip_sys::kfd::{self, Ioctl, Plain as _};

mod blocked;
mod packets;
mod shared;

use crate::arena::Arena;
use crate::call::Call;
use crate::device::{Shared, Time};
use crate::driver::RESET;
use crate::engine;
use crate::kernels::Durations;
use crate::machine::{Faults, Gpu, Machine, Process, Settings, State};
use crate::space::{Backing, Range, View};
use crate::topology::{Arch, GpuConfig, Part};

const RING: u64 = 0x1000;
const RINGS: u64 = 0x10_0000;
const INDICES: u64 = 0x20_0000;
const SIGNALS: u64 = 0x30_0000;
/// The time of an unknown kernel.
const KERNEL: Time = 5_000;

/// A GPU, with this process and a fake second one.
struct Bench {
    machine: Machine,
    next: u64,
    ids: Vec<u32>,
}

fn me() -> i32 {
    std::process::id().cast_signed()
}

/// No process has this id.
const OTHER: i32 = 0x7fff_ffff;

impl Bench {
    fn new(arch: &str, settings: Settings) -> Self {
        let config = GpuConfig {
            arch: Arch::find(arch).unwrap(),
            gpu_id: 1,
            vram: 1 << 30,
            render_minor: 128,
            part: Part::whole(0),
        };
        let gpu = Gpu::new(config, Box::new(Shared::new(3328)));
        let mut machine = Machine::new(Arena::new().unwrap(), vec![gpu], Durations::default());
        machine.driver.settings = settings;
        for pid in [me(), OTHER] {
            let mut process = Process::new(pid, "test".into(), 1);
            for i in 0..4 {
                let at = machine.memory.arena.alloc(RING).unwrap();
                process
                    .space
                    .insert(RINGS + i * RING, Range { len: RING, backing: Backing::Arena(at), gpus: 1 });
            }
            for va in [INDICES, SIGNALS] {
                let at = machine.memory.arena.alloc(RING).unwrap();
                process.space.insert(va, Range { len: RING, backing: Backing::Arena(at), gpus: 1 });
            }
            machine.processes.insert(pid, process);
        }
        let bench = Self { machine, next: 0, ids: Vec::new() };
        for pid in [me(), OTHER] {
            for i in 0..8 {
                bench.view(pid).write(SIGNALS + 64 * i + 8, &1u64.to_le_bytes()).unwrap();
            }
        }
        bench
    }

    fn view(&self, pid: i32) -> View<'_> {
        self.machine.view(pid, 0).unwrap()
    }

    /// Lets everything happen that is due at `now`.
    fn tick(&mut self, now: Time) {
        engine::tick(&mut self.machine, now);
    }

    /// Makes a call and returns its number.
    fn call<A: Ioctl>(&mut self, now: Time, pid: i32, argument: &A) -> u64 {
        self.next += 1;
        let call = Call {
            unique: self.next,
            pid,
            tid: pid,
            command: A::COMMAND,
            argument: argument.as_bytes(),
            out_size: size_of::<A>(),
            now,
        };
        engine::ioctl(&mut self.machine, &call);
        self.next
    }

    /// Returns the answer of a call, if there is one.
    fn answer(&mut self, unique: u64) -> Option<Result<(i32, Vec<u8>), i32>> {
        let at = self.machine.outbox.answers.iter().position(|(other, _)| *other == unique)?;
        Some(self.machine.outbox.answers.remove(at).1.map(|reply| (reply.result, reply.out)))
    }

    /// Makes a call that is answered at once, and returns the answer.
    fn now<A: Ioctl>(&mut self, now: Time, pid: i32, argument: &A) -> Result<(i32, A), i32> {
        let unique = self.call(now, pid, argument);
        let (result, out) = self.answer(unique).expect("answered at once")?;
        Ok((result, A::from_bytes(&out)))
    }

    /// Creates a compute queue in ring `i` of a process.
    fn create(&mut self, now: Time, pid: i32, i: u64) -> u32 {
        let unique = self.call(now, pid, &queue(i));
        self.tick(now + 100_000_000);
        let (_, out) = self.answer(unique).expect("created").expect("created");
        let id = kfd::CreateQueue::from_bytes(&out).queue_id;
        self.ids.push(id);
        id
    }

    /// Launches a kernel of unknown name in ring `i`, with signal `signal`.
    fn launch(&self, pid: i32, i: u64, signal: u64) {
        let (view, index) = (self.view(pid), INDICES + 16 * i);
        let slot = view.load_u64(index).unwrap();
        let mut packet = [0u8; 64];
        packet[..2].copy_from_slice(&2u16.to_le_bytes());
        packet[56..].copy_from_slice(&(SIGNALS + 64 * signal).to_le_bytes());
        view.write(RINGS + RING * i + 64 * slot, &packet).unwrap();
        view.write(index, &(slot + 1).to_le_bytes()).unwrap();
    }

    /// Returns the begin and the end of a kernel; `None` before its end.
    fn times(&self, pid: i32, signal: u64) -> Option<[u64; 2]> {
        let load = |offset: u64| self.view(pid).load_u64(SIGNALS + 64 * signal + offset).unwrap();
        (load(8) == 0).then(|| [load(32), load(40)])
    }

    fn trap<A: debug::Operation>(
        &mut self,
        now: Time,
        caller: i32,
        target: i32,
        operation: &A,
    ) -> Result<(i32, A), i32> {
        let (result, out) = self.now(now, caller, &operation.on(target.cast_unsigned()))?;
        Ok((result, DbgTrap::get(&out)))
    }

    /// Enables the runtime and a debug session of this process on itself.
    fn debug_self(&mut self, now: Time) {
        let enable = debug::RuntimeEnable { mode_mask: debug::RUNTIME_ENABLE, ..Default::default() };
        self.now(now, me(), &enable).unwrap();
        self.enable(now).unwrap();
    }

    fn enable(&mut self, now: Time) -> Result<debug::RuntimeInfo, i32> {
        let mut info = debug::RuntimeInfo::default();
        let enable = debug::Enable {
            rinfo_ptr: (&raw mut info) as u64,
            rinfo_size: 16,
            dbg_fd: 0,
            ..Default::default()
        };
        let (_, out) = self.trap(now, me(), me(), &enable)?;
        assert_eq!(out.rinfo_size, 16);
        Ok(info)
    }

    /// Suspends queues. Returns the number of the call; `ids` has the ids as they come back.
    fn suspend(&mut self, now: Time, ids: &[u32]) -> u64 {
        self.ids = ids.to_vec();
        let suspend = debug::SuspendQueues {
            queue_array_ptr: self.ids.as_mut_ptr() as u64,
            num_queues: ids.len() as u32,
            ..Default::default()
        };
        self.call(now, me(), &suspend.on(me().cast_unsigned()))
    }

    fn resume(&mut self, now: Time, ids: &[u32]) -> u64 {
        self.ids = ids.to_vec();
        let at = if ids.is_empty() { 0 } else { self.ids.as_mut_ptr() as u64 };
        let resume = debug::ResumeQueues { queue_array_ptr: at, num_queues: ids.len() as u32, pad: 0 };
        self.call(now, me(), &resume.on(me().cast_unsigned()))
    }
}

fn queue(i: u64) -> kfd::CreateQueue {
    kfd::CreateQueue {
        ring_base_address: RINGS + i * RING,
        write_pointer_address: INDICES + 16 * i,
        read_pointer_address: INDICES + 16 * i + 8,
        ring_size: RING as u32,
        gpu_id: 1,
        queue_type: kfd::QUEUE_TYPE_COMPUTE_AQL,
        queue_percentage: 100,
        ..Default::default()
    }
}

fn update(id: u32, i: u64, percentage: u32) -> kfd::UpdateQueue {
    kfd::UpdateQueue {
        ring_base_address: RINGS + i * RING,
        queue_id: id,
        ring_size: RING as u32,
        queue_percentage: percentage,
        queue_priority: 0,
    }
}

const COSTS: Settings = Settings { save: 1_000, restore: 500, cwsr: true, timeout: 9_000_000, stuck: None };

#[test]
fn update_under_hws_stops_every_process_for_a_moment() {
    let mut bench = Bench::new("gfx90a", COSTS);
    let (mine, _) = (bench.create(0, me(), 0), bench.create(0, OTHER, 0));
    let t0 = 200_000_000;
    bench.launch(OTHER, 0, 0);
    bench.tick(t0);
    // The queue is idle, but the waves of the other process are saved and restored nevertheless.
    let call = bench.call(t0 + 2_000, me(), &update(mine, 0, 0));
    assert_eq!(bench.answer(call), None, "the waves are being saved");
    bench.tick(t0 + 3_000);
    assert!(bench.answer(call).unwrap().is_ok());
    bench.tick(t0 + 100_000);
    assert_eq!(bench.times(OTHER, 0), Some([t0, t0 + KERNEL + 1_500]));
    let report = bench.machine.gpus[0].scheduler.report();
    assert_eq!((&report["saves"], &report["save_restore_us"]), (&1.into(), &1.5.into()));
}

#[test]
fn update_under_mes_stops_only_its_queue() {
    let mut bench = Bench::new("gfx1100", COSTS);
    let (mine, _) = (bench.create(0, me(), 0), bench.create(0, OTHER, 0));
    let t0 = 200_000_000;
    bench.launch(OTHER, 0, 0);
    bench.launch(me(), 0, 0);
    bench.tick(t0);
    let evict = bench.call(t0 + 2_000, me(), &update(mine, 0, 0));
    bench.tick(t0 + 50_000);
    assert!(bench.answer(evict).unwrap().is_ok());
    assert_eq!(bench.times(OTHER, 0), Some([t0, t0 + KERNEL]));
    let restore = bench.call(t0 + 60_000, me(), &update(mine, 0, 100));
    assert!(bench.answer(restore).unwrap().is_ok(), "no running waves have to be saved");
    bench.tick(t0 + 100_000);
    // 3 µs were left, and were restored within 500 ns.
    assert_eq!(bench.times(me(), 0), Some([t0, t0 + 60_500 + 3_000]));
}

#[test]
fn operations_of_a_device_are_sequential() {
    let mut bench = Bench::new("gfx90a", COSTS);
    let (mine, theirs) = (bench.create(0, me(), 0), bench.create(0, OTHER, 0));
    let t0 = 200_000_000;
    bench.launch(OTHER, 0, 0);
    bench.launch(me(), 0, 0);
    bench.tick(t0);
    let first = bench.call(t0 + 1_000, me(), &update(mine, 0, 0));
    let second = bench.call(t0 + 1_100, OTHER, &update(theirs, 0, 0));
    bench.tick(t0 + 2_000);
    assert!(bench.answer(first).is_some() && bench.answer(second).is_none());
    // The first operation restores the other's kernel until 2,500; then the second one saves it again.
    bench.tick(t0 + 3_499);
    assert_eq!(bench.answer(second), None);
    bench.tick(t0 + 3_500);
    assert!(bench.answer(second).unwrap().is_ok());
}

#[test]
fn call_waits_for_an_update_of_its_process() {
    let mut bench = Bench::new("gfx90a", COSTS);
    let mine = bench.create(0, me(), 0);
    let t0 = 200_000_000;
    bench.launch(me(), 0, 0);
    bench.tick(t0);
    let evict = bench.call(t0 + 1_000, me(), &update(mine, 0, 0));
    let memory = bench.call(t0 + 1_000, me(), &kfd::GetAvailableMemory { gpu_id: 1, ..Default::default() });
    let version = bench.call(t0 + 1_000, me(), &kfd::GetVersion::default());
    assert!(bench.answer(version).is_some(), "this request needs no lock");
    assert!(bench.answer(memory).is_none() && bench.machine.interrupt(memory), "uninterruptible");
    bench.tick(t0 + 2_000);
    assert!(bench.answer(evict).unwrap().is_ok() && bench.answer(memory).unwrap().is_ok());
}

#[test]
fn eviction_without_cwsr_waits_for_the_kernels() {
    let mut bench = Bench::new("gfx90a", Settings { cwsr: false, ..Settings::default() });
    let mine = bench.create(0, me(), 0);
    let t0 = 200_000_000;
    bench.launch(me(), 0, 0);
    bench.launch(me(), 0, 1);
    bench.tick(t0);
    let evict = bench.call(t0 + 1_000, me(), &update(mine, 0, 0));
    bench.tick(t0 + KERNEL - 1);
    assert_eq!(bench.answer(evict), None);
    bench.tick(t0 + KERNEL);
    assert!(bench.answer(evict).unwrap().is_ok());
    assert_eq!(bench.times(me(), 0), Some([t0, t0 + KERNEL]));
    // Both kernels had been launched; a new one is not.
    bench.launch(me(), 0, 2);
    bench.tick(t0 + 1_000_000);
    assert_eq!((bench.times(me(), 1), bench.times(me(), 2)), (Some([t0, t0 + KERNEL]), None));
    let state = kfd::GetQueueWaveState { queue_id: mine, ..Default::default() };
    assert_eq!(bench.now(t0 + 1_000_000, me(), &state), Err(libc::EINVAL));
}

#[test]
fn drain_time_out_resets_the_device_for_every_process() {
    let settings = Settings { cwsr: false, timeout: 1_000, ..Settings::default() };
    let mut bench = Bench::new("gfx90a", settings);
    let (mine, theirs) = (bench.create(0, me(), 0), bench.create(0, OTHER, 0));
    let event = bench.machine.processes.get_mut(&OTHER).unwrap();
    let event = event.events.create(kfd::EVENT_HW_EXCEPTION, false).unwrap();
    let t0 = 200_000_000;
    bench.launch(me(), 0, 0);
    bench.tick(t0);
    let evict = bench.call(t0, me(), &update(mine, 0, 0));
    let late = bench.call(t0 + 10, OTHER, &update(theirs, 0, 0));
    bench.tick(t0 + 1_000);
    assert_eq!(bench.answer(evict), Some(Err(libc::ETIME)));
    assert_eq!(bench.answer(late), Some(Err(libc::EIO)));
    let of = |bench: &Bench, pid: i32| bench.machine.processes[&pid].queues[&0].state;
    assert_eq!((of(&bench, me()), of(&bench, OTHER)), (State::Dead, State::Dead));
    assert!(bench.machine.processes[&OTHER].events.is_signaled(event));
    // The queues of a process on this device are lost.
    assert_eq!(bench.now(t0 + RESET / 2, me(), &update(mine, 0, 100)), Err(libc::EACCES));
    assert_eq!(bench.now(t0 + 2 * RESET, me(), &queue(1)), Err(libc::EIO));
    assert_eq!(bench.machine.gpus[0].scheduler.report()["resets"], 1);
}

#[test]
fn stuck_queue_is_evicted_only_while_idle() {
    let settings = Settings { stuck: Some(2), timeout: 1_000, ..Settings::default() };
    let mut bench = Bench::new("gfx1100", settings);
    let (sane, stuck) = (bench.create(0, me(), 0), bench.create(0, me(), 1));
    let t0 = 300_000_000;
    for percentage in [0, 100] {
        bench.now(t0, me(), &update(stuck, 1, percentage)).unwrap();
    }
    bench.launch(me(), 1, 0);
    bench.tick(t0);
    bench.now(t0 + 10, me(), &update(sane, 0, 0)).expect("under MES the stuck queue does not matter");
    let evict = bench.call(t0 + 20, me(), &update(stuck, 1, 0));
    bench.tick(t0 + 1_019);
    assert_eq!(bench.answer(evict), None);
    bench.tick(t0 + 1_020);
    assert_eq!(bench.answer(evict), Some(Err(libc::ETIME)));
}

#[test]
fn invalid_update_is_refused_with_the_errno_of_the_driver() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    let id = bench.create(0, me(), 0);
    let good = update(id, 0, 100);
    let cases = [
        (kfd::UpdateQueue { queue_percentage: 101, ..good }, libc::EINVAL),
        (kfd::UpdateQueue { queue_priority: 16, ..good }, libc::EINVAL),
        (kfd::UpdateQueue { ring_size: 0x1001, ..good }, libc::EINVAL),
        (kfd::UpdateQueue { queue_id: 77, ..good }, libc::EFAULT),
        // The mapping of the ring has one page.
        (kfd::UpdateQueue { ring_size: 0x2000, ..good }, libc::EFAULT),
        (kfd::UpdateQueue { ring_base_address: RINGS + 64, ..good }, libc::EFAULT),
        (kfd::UpdateQueue { ring_base_address: 0x10, ..good }, libc::EFAULT),
    ];
    for (wrong, errno) in cases {
        assert_eq!(bench.now(1, me(), &wrong), Err(errno), "{wrong:?}");
    }
    // Bits 8 to 15 have another meaning and are ignored.
    bench.now(1, me(), &kfd::UpdateQueue { queue_percentage: 0x0300 | 100, ..good }).unwrap();
    assert!(bench.machine.processes[&me()].queues[&id].mapped);
    bench.now(1, me(), &kfd::UpdateQueue { queue_percentage: 0x0300, ..good }).unwrap();
    assert!(!bench.machine.processes[&me()].queues[&id].mapped);
}

#[test]
fn failed_update_keeps_its_values() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    let id = bench.create(0, me(), 0);
    bench.machine.driver.faults = Some(Faults::parse("3:1:update_queue").unwrap());
    let mut took_effect = [false; 2];
    for round in 0..32u32 {
        let percentage = if round.is_multiple_of(2) { 0 } else { 100 };
        assert!(bench.now(1, me(), &update(id, 0, percentage)).is_err(), "every first call fails");
        let queue = &bench.machine.processes[&me()].queues[&id];
        assert_eq!(queue.percentage, percentage);
        took_effect[usize::from(queue.mapped == (percentage > 0))] = true;
        bench.now(1, me(), &update(id, 0, percentage)).expect("the repetition succeeds");
        assert_eq!(bench.machine.processes[&me()].queues[&id].mapped, percentage > 0);
    }
    assert_eq!(took_effect, [true; 2], "some failed calls took effect, and some did not");
}

#[test]
fn invalid_cu_mask_is_refused() {
    let mut bench = Bench::new("gfx1100", Settings::default());
    let id = bench.create(0, me(), 0);
    let mask = [u32::MAX, 0b1100, 0b0100];
    let set = |queue_id: u32, num_cu_mask: u32, i: usize| kfd::SetCuMask {
        queue_id,
        num_cu_mask,
        cu_mask_ptr: (&raw const mask[i]) as u64,
    };
    assert_eq!(bench.now(1, me(), &set(id, 0, 0)), Err(libc::EINVAL));
    assert_eq!(bench.now(1, me(), &set(id, 33, 0)), Err(libc::EINVAL));
    assert_eq!(bench.now(1, me(), &set(9, 32, 0)), Err(libc::EFAULT));
    assert_eq!(bench.now(1, me(), &kfd::SetCuMask { cu_mask_ptr: 8, ..set(id, 32, 0) }), Err(libc::EFAULT));
    assert_eq!(bench.now(1, me(), &set(id, 32, 2)), Err(libc::EINVAL), "one unit of a pair");
    bench.now(1, me(), &set(id, 32, 1)).unwrap();
    let enable = debug::RuntimeEnable { mode_mask: debug::RUNTIME_ENABLE, ..Default::default() };
    assert_eq!(bench.now(1, me(), &enable), Err(libc::EEXIST));
}

#[test]
fn cu_mask_and_debugger_exclude_each_other_on_gfx11() {
    let mut bench = Bench::new("gfx1100", Settings::default());
    let enable = debug::RuntimeEnable { mode_mask: debug::RUNTIME_ENABLE, ..Default::default() };
    bench.now(1, me(), &enable).unwrap();
    let id = bench.create(1, me(), 0);
    let mask = u32::MAX;
    let set = kfd::SetCuMask { queue_id: id, num_cu_mask: 32, cu_mask_ptr: (&raw const mask) as u64 };
    bench.now(2, me(), &set).unwrap();
    assert_eq!(bench.enable(3).unwrap().runtime_state, debug::STATE_ENABLED_BUSY);
    let suspend = bench.suspend(4, &[id]);
    assert_eq!(bench.answer(suspend), Some(Err(libc::EPERM)));
    bench.trap(5, me(), me(), &debug::Disable::default()).unwrap();
    assert_eq!(bench.now(6, me(), &enable), Err(libc::EBUSY), "the runtime is still enabled");
}

#[test]
fn debug_requests_without_permission_are_refused() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    let absent = debug::Disable::default().on(1);
    assert_eq!(bench.now(1, me(), &absent), Err(libc::ESRCH), "the process has not opened the device");
    assert_eq!(
        bench.trap(1, me(), OTHER, &debug::Disable::default()),
        Err(libc::EPERM),
        "the process is not traced"
    );
    assert_eq!(
        bench.trap(1, me(), me(), &debug::Disable::default()),
        Err(libc::EINVAL),
        "there is no session"
    );
    let bad = debug::Enable { dbg_fd: 9_999, ..Default::default() };
    assert_eq!(bench.trap(1, me(), me(), &bad).map(|_| ()), Err(libc::EBADF));
    assert_eq!(bench.enable(1).unwrap().runtime_state, debug::STATE_DISABLED);
    assert_eq!(bench.enable(1), Err(libc::EALREADY));
    let suspend = bench.suspend(1, &[0]);
    assert_eq!(bench.answer(suspend), Some(Err(libc::EPERM)), "the runtime is not enabled");
    // In a session, RUNTIME_ENABLE waits until the debugger acknowledges it.
    let runtime = debug::RuntimeEnable { mode_mask: debug::RUNTIME_ENABLE, ..Default::default() };
    let waits = bench.call(1, me(), &runtime);
    assert_eq!(bench.answer(waits), None);
    let seen = debug::SendRuntimeEvent {
        exception_mask: debug::exception_bit(debug::EC_PROCESS_RUNTIME),
        ..Default::default()
    };
    bench.trap(1, me(), me(), &seen).unwrap();
    assert!(bench.answer(waits).unwrap().is_ok());
    let many = debug::SuspendQueues { num_queues: 1025, queue_array_ptr: 8, ..Default::default() };
    assert_eq!(bench.trap(1, me(), me(), &many).map(|_| ()), Err(libc::EINVAL));
    let nowhere = debug::SuspendQueues { num_queues: 1, queue_array_ptr: 8, ..Default::default() };
    assert_eq!(bench.trap(1, me(), me(), &nowhere).map(|_| ()), Err(libc::EFAULT));
    let unknown = DbgTrap { op: 15, ..debug::Disable::default().on(me().cast_unsigned()) };
    assert_eq!(bench.now(1, me(), &unknown), Err(libc::EINVAL));
}

#[test]
fn new_queue_is_suspended_only_after_a_snapshot() {
    let mut bench = Bench::new("gfx90a", COSTS);
    bench.debug_self(0);
    let id = bench.create(1, me(), 0);
    let t0 = 200_000_000;
    let suspend = bench.suspend(t0, &[id, 77]);
    assert_eq!(bench.answer(suspend).unwrap().unwrap().0, 0);
    assert_eq!(bench.ids, [id | QUEUE_INVALID, 77 | QUEUE_INVALID]);
    let mut entries = [debug::QueueEntry::default(); 2];
    let snapshot = debug::QueueSnapshot {
        exception_mask: debug::exception_bit(debug::EC_QUEUE_NEW),
        snapshot_buf_ptr: entries.as_mut_ptr() as u64,
        num_queues: 2,
        entry_size: 64,
    };
    let (_, out) = bench.trap(t0, me(), me(), &snapshot).unwrap();
    assert_eq!((out.num_queues, out.entry_size), (1, 64));
    assert_eq!((entries[0].queue_id, entries[0].ring_base_address), (id, RINGS));
    assert_eq!(entries[0].exception_status, 1 << 30);
    let sized = debug::QueueSnapshot { entry_size: 0, ..snapshot };
    assert_eq!(bench.trap(t0, me(), me(), &sized).map(|_| ()), Err(libc::EINVAL));

    bench.launch(me(), 0, 0);
    bench.tick(t0);
    let suspend = bench.suspend(t0 + 1_000, &[id, 77]);
    bench.tick(t0 + 2_000);
    assert_eq!(bench.answer(suspend).unwrap().unwrap().0, 1);
    assert_eq!(bench.ids, [id, 77 | QUEUE_INVALID]);
    // An update of the program does not restore it.
    let own = bench.call(t0 + 3_000, me(), &update(id, 0, 100));
    bench.tick(t0 + 1_000_000);
    assert!(bench.answer(own).unwrap().is_ok() && bench.times(me(), 0).is_none());
    let resume = bench.resume(t0 + 2_000_000, &[id]);
    assert_eq!(bench.answer(resume).unwrap().unwrap().0, 1);
    bench.tick(t0 + 9_000_000);
    assert_eq!(bench.times(me(), 0), Some([t0, t0 + 2_000_000 + 500 + 4_000]));
}

#[test]
fn suspended_queue_is_destroyed_once_it_is_resumed() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    bench.debug_self(0);
    let id = bench.create(1, me(), 0);
    let query = debug::QueryDebugEvent { exception_mask: u64::MAX, ..Default::default() };
    bench.trap(1, me(), me(), &debug::SetExceptionsEnabled { exception_mask: u64::MAX }).unwrap();
    let (_, event) = bench.trap(1, me(), me(), &query).unwrap();
    assert_eq!((event.exception_mask, event.queue_id, event.gpu_id), (1 << 30, id, 1));
    assert_eq!(bench.trap(1, me(), me(), &query).map(|_| ()), Err(libc::EAGAIN));
    let suspend = bench.suspend(2, &[id]);
    assert_eq!(bench.answer(suspend).unwrap().unwrap().0, 1);
    let destroy = bench.call(3, me(), &kfd::DestroyQueue { queue_id: id, pad: 0 });
    assert_eq!(bench.answer(destroy), None);
    assert!(bench.machine.interrupt(destroy));
    assert_eq!(bench.answer(destroy), Some(Err(libc::EINTR)));
    let again = bench.call(4, me(), &kfd::DestroyQueue { queue_id: id, pad: 0 });
    let resume = bench.resume(5, &[]);
    assert_eq!(bench.answer(resume).unwrap().unwrap().0, 1);
    assert!(bench.answer(again).unwrap().is_ok());
    assert!(bench.machine.processes[&me()].queues.is_empty());
}

#[test]
fn session_end_resumes_all_queues() {
    let mut bench = Bench::new("gfx1100", Settings::default());
    bench.debug_self(0);
    let id = bench.create(1, me(), 0);
    let clear = debug::QueueSnapshot {
        exception_mask: u64::MAX,
        entry_size: 64,
        num_queues: 0,
        ..Default::default()
    };
    bench.trap(1, me(), me(), &clear).unwrap();
    let suspend = bench.suspend(2, &[id]);
    assert_eq!(
        bench.answer(suspend).unwrap().unwrap().0,
        0,
        "a snapshot without entries clears no exception"
    );
    bench.trap(3, me(), me(), &debug::Disable::default()).unwrap();
    bench.enable(4).unwrap();
    let suspend = bench.suspend(5, &[id]);
    assert_eq!(bench.answer(suspend).unwrap().unwrap().0, 1, "the queue is older than the session");
    bench.trap(6, me(), me(), &debug::Disable::default()).unwrap();
    assert!(bench.machine.processes[&me()].queues[&id].mapped);
    assert!(bench.ids.iter().all(|id| id & (QUEUE_ERROR | QUEUE_INVALID) == 0));
}

#[test]
fn wave_state_is_available_only_for_an_evicted_queue() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    let mut area = [0u32; 64];
    let create = kfd::CreateQueue {
        ctx_save_restore_address: area.as_mut_ptr() as u64,
        ctx_save_restore_size: 1 << 20,
        ctl_stack_size: 4096,
        ..queue(0)
    };
    let id = bench.now(0, me(), &create).unwrap().1.queue_id;
    let state = kfd::GetQueueWaveState {
        ctl_stack_address: area.as_mut_ptr() as u64,
        queue_id: id,
        ..Default::default()
    };
    assert_eq!(bench.now(1, me(), &state), Err(libc::EINVAL), "the queue is on the hardware");
    bench.launch(me(), 0, 0);
    bench.tick(1);
    bench.now(2, me(), &update(id, 0, 0)).unwrap();
    let (_, out) = bench.now(3, me(), &state).unwrap();
    assert!(out.save_area_used_size > 0 && area[3] == out.save_area_used_size);
    assert_eq!(bench.now(3, me(), &kfd::GetQueueWaveState { queue_id: 9, ..state }), Err(libc::EFAULT));
    assert_eq!(
        bench.now(3, me(), &kfd::GetQueueWaveState { ctl_stack_address: 8, ..state }),
        Err(libc::EFAULT)
    );
}

#[test]
fn ended_process_leaves_no_waiting_calls() {
    let mut bench = Bench::new("gfx90a", COSTS);
    let mine = bench.create(0, me(), 0);
    bench.create(0, OTHER, 0);
    let t0 = 200_000_000;
    bench.launch(me(), 0, 0);
    bench.launch(OTHER, 0, 0);
    bench.tick(t0);
    bench.call(t0 + 100, me(), &update(mine, 0, 0));
    let memory = bench.call(t0 + 100, me(), &kfd::GetAvailableMemory { gpu_id: 1, ..Default::default() });
    engine::remove_process(&mut bench.machine, t0 + 200, me());
    assert_eq!(bench.answer(memory), Some(Err(libc::EINTR)));
    bench.tick(t0 + 1_000_000);
    assert!(bench.times(OTHER, 0).is_some());
    assert!(bench.machine.calls.uninterruptible.is_empty());
}
