//! Packets, kernels and signals in virtual time, however late the device looks.

use hip_sys::kfd::{self, Ioctl as _, Plain as _};

use crate::arena::Arena;
use crate::call::Call;
use crate::device::{Shared, Time};
use crate::engine;
use crate::kernels::Durations;
use crate::machine::{Gpu, Kind, Machine, Process, Queue};
use crate::space::{Backing, Range, View};
use crate::topology::{ARCHS, GpuConfig, Part};

const PID: i32 = 1;
const RINGS: u64 = 0x1_0000;
const RING: u64 = 0x1000;
const INDICES: u64 = 0x1_3000;
const SIGNALS: u64 = 0x1_4000;
/// The time of an unknown kernel.
const KERNEL: Time = 5_000;

/// Makes a GPU with two queues of one process; signal `i` is at `SIGNALS + 64 * i` and holds 1.
fn machine() -> Machine {
    let config =
        GpuConfig { arch: &ARCHS[0], gpu_id: 1, vram: 1 << 30, render_minor: 128, part: Part::whole(0) };
    let gpu = Gpu::new(config, Box::new(Shared::new(3328)));
    let mut arena = Arena::new().unwrap();
    let at = arena.alloc(0x5000).unwrap();
    let mut process = Process::new(PID, "test".into(), 1);
    // Each ring is a separate mapping, as the driver requires.
    for (at, va, len) in [(at, RINGS, RING), (at + RING, RINGS + RING, RING), (at + 0x2000, INDICES, 0x3000)]
    {
        process.space.insert(va, Range { len, backing: Backing::Arena(at), gpus: 1 });
    }
    for id in 0..2 {
        let indices = INDICES + 16 * u64::from(id);
        let ring = RINGS + RING * u64::from(id);
        process.queues.insert(id, Queue::new(0, Kind::Aql, ring, 0x1000, indices, indices + 8));
    }
    let mut machine = Machine::new(arena, vec![gpu], Durations::default());
    machine.processes.insert(PID, process);
    for i in 0..4 {
        view(&machine).write(SIGNALS + 64 * i + 8, &1u64.to_le_bytes()).unwrap();
    }
    machine
}

fn view(machine: &Machine) -> View<'_> {
    machine.view(PID, 0).unwrap()
}

/// Puts a packet of this header into a queue's ring, with one dependency (0 for none) and a completion
/// signal.
fn submit(machine: &Machine, id: u64, header: u16, dependency: u64, signal: u64) {
    let (view, index) = (view(machine), INDICES + 16 * id);
    let slot = view.load_u64(index).unwrap();
    let mut packet = [0u8; 64];
    packet[..2].copy_from_slice(&header.to_le_bytes());
    packet[8..16].copy_from_slice(&dependency.to_le_bytes());
    packet[56..].copy_from_slice(&(SIGNALS + 64 * signal).to_le_bytes());
    view.write(RINGS + RING * id + 64 * slot, &packet).unwrap();
    view.write(index, &(slot + 1).to_le_bytes()).unwrap();
}

/// Returns the value of a signal and its two time stamps.
fn signal(machine: &Machine, i: u64) -> [u64; 3] {
    [8, 32, 40].map(|offset| view(machine).load_u64(SIGNALS + 64 * i + offset).unwrap())
}

#[test]
fn waiting_packet_continues_at_the_end_of_the_kernel_after_a_late_tick() {
    let mut machine = machine();
    submit(&machine, 0, 2, 0, 0);
    submit(&machine, 1, 3, SIGNALS, 1);
    submit(&machine, 1, 2 | 1 << 8, 0, 2);
    assert_eq!(engine::tick(&mut machine, 1_000).next, Some(1_000 + KERNEL));
    engine::tick(&mut machine, 90_000);
    assert_eq!(signal(&machine, 0), [0, 1_000, 1_000 + KERNEL]);
    assert_eq!(signal(&machine, 1), [0, 1_000 + KERNEL, 1_000 + KERNEL]);
    assert_eq!(signal(&machine, 2), [0, 1_000 + KERNEL, 1_000 + 2 * KERNEL]);
}

#[test]
fn barrier_or_waits_for_the_first_signal() {
    let mut machine = machine();
    // The packet names signals 1 and 2, which both have the value 1.
    let (view, both) = (view(&machine), [SIGNALS + 64, SIGNALS + 128]);
    let mut packet = [0u8; 64];
    packet[..2].copy_from_slice(&5u16.to_le_bytes());
    packet[8..16].copy_from_slice(&both[0].to_le_bytes());
    packet[40..48].copy_from_slice(&both[1].to_le_bytes());
    packet[56..].copy_from_slice(&SIGNALS.to_le_bytes());
    view.write(RINGS, &packet).unwrap();
    view.write(INDICES, &1u64.to_le_bytes()).unwrap();
    assert!(engine::tick(&mut machine, 1_000).watching);
    assert_eq!(signal(&machine, 0)[0], 1);
    self::view(&machine).write(both[1] + 8, &0u64.to_le_bytes()).unwrap();
    engine::tick(&mut machine, 2_000);
    assert_eq!(signal(&machine, 0), [0, 2_000, 2_000]);
    // A packet without signals does not wait.
    submit(&machine, 1, 5, 0, 3);
    engine::tick(&mut machine, 3_000);
    assert_eq!(signal(&machine, 3), [0, 3_000, 3_000]);
}

#[test]
fn ended_kernel_completes_before_an_eviction() {
    let mut machine = machine();
    submit(&machine, 0, 2, 0, 0);
    submit(&machine, 0, 2, 0, 1);
    submit(&machine, 0, 2 | 1 << 8, 0, 2);
    engine::tick(&mut machine, 0);
    let update = |machine: &mut Machine, now: Time, queue_percentage: u32| {
        let update = kfd::UpdateQueue {
            ring_base_address: RINGS,
            ring_size: 0x1000,
            queue_percentage,
            ..Default::default()
        };
        let command = kfd::UpdateQueue::COMMAND;
        engine::ioctl(
            machine,
            &Call {
                unique: 1,
                pid: PID,
                tid: PID,
                command,
                argument: update.as_bytes().to_vec(),
                out_size: 0,
                now,
            },
        );
        assert!(matches!(machine.outbox.answers.pop(), Some((1, Ok(_)))));
    };
    update(&mut machine, KERNEL + 2_000, 0);
    assert_eq!(signal(&machine, 0), [0, 0, KERNEL]);
    assert_eq!(signal(&machine, 1), [0, 0, KERNEL]);
    // The third kernel had begun at the end of the others; the rest of it runs after the restoration.
    engine::tick(&mut machine, 1_000_000);
    update(&mut machine, 2_000_000, 100);
    engine::tick(&mut machine, 3_000_000);
    assert_eq!(signal(&machine, 2), [0, KERNEL, 2_000_000 + KERNEL - 2_000]);
}

#[test]
fn invalid_packet_faults_without_panic() {
    for (header, signal) in [(2u16, u64::MAX), (3, u64::MAX), (5, u64::MAX - 7), (0, u64::MAX)] {
        for fill in [0xffu8, 0x80, 0] {
            for format in 0..3 {
                let mut machine = machine();
                let mut packet = [fill; 64];
                packet[..2].copy_from_slice(&header.to_le_bytes());
                packet[2] = format;
                packet[56..].copy_from_slice(&signal.to_le_bytes());
                view(&machine).write(RINGS, &packet).unwrap();
                view(&machine).write(INDICES, &1u64.to_le_bytes()).unwrap();
                submit(&machine, 1, 2, 0, 0);
                for now in [0, 1, KERNEL, u64::MAX / 2] {
                    engine::tick(&mut machine, now);
                }
                assert_eq!(machine.processes.len(), 1);
            }
        }
    }
}
