//! Costs, order and answers of the driver's operations, with fake clients.

use hip_sys::kfd::debug::{self, DbgTrap, Operation as _, QUEUE_ERROR, QUEUE_INVALID};
use hip_sys::kfd::{self, Ioctl, Plain as _};

mod blocked;
mod debugging;
mod packets;
mod shared;
mod timeline;
mod updates;

use crate::arena::Arena;
use crate::call::Call;
use crate::device::{Shared, Time};
use crate::driver::RESET;
use crate::engine;
use crate::kernels::Durations;
use crate::machine::{Faults, Gpu, Machine, Process, Settings, State};
use crate::space::{Backing, Range, View};
use crate::topology::GpuConfig;

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
        let config = GpuConfig { gpu_id: 1, vram: 1 << 30, ..GpuConfig::example(arch) };
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
            argument: argument.as_bytes().to_vec(),
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
