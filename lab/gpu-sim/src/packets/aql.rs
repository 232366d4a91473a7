//! The compute packet processor: AQL packets (HSA runtime specification 1.2, section 2.9; vendor packets from
//! ROCr's `hsa_ext_amd.h` and `amd_gpu_pm4.h`).

use std::sync::atomic::Ordering;

use super::completion::{complete_signal, run_model};
use crate::device::{self, QueueKey, Time, Work};
use crate::kernels::{self, Act, Condition, Dispatch, Effect, Kernel};
use crate::machine::{AQL_KERNEL_DISPATCH as KERNEL_DISPATCH, Execution, Machine, State, Unusable};
use crate::space::{Bytes, Fault, View};

/// The bit of the header's second byte that makes the packet wait for all before it.
const BARRIER_BIT: u8 = 1;
const VENDOR_SPECIFIC: u8 = 0;
const BARRIER_AND: u8 = 3;
const BARRIER_OR: u8 = 5;
const FORMAT_PM4: u8 = 1;
const FORMAT_BARRIER_VALUE: u8 = 2;
/// The size of ROCr's buffer for PM4 (4 KiB), words.
const PM4_WORDS: u64 = 1024;

type Packet = Bytes<64>;

/// The action for the packet at the head.
enum Decision {
    /// Wait until memory changes.
    Block,
    /// Complete the packet, and count it under this name.
    Retire(&'static str),
    /// Launch a kernel with this effect.
    Launch(Work, Effect),
}

/// Executes the AQL packet at the head of a queue at `t`.
pub fn aql_packet(machine: &mut Machine, key: QueueKey, t: Time) -> Result<(), Unusable> {
    let id = machine.work.new_id();
    let Some(process) = machine.processes.get_mut(&key.pid) else { return Ok(()) };
    let Some(queue) = process.queues.get_mut(&key.id) else { return Ok(()) };
    let view = View { arena: &machine.memory.arena, space: &process.space, pid: key.pid, gpu: queue.gpu };
    let packet: Packet = view.bytes(queue.slot(queue.read))?;
    let [kind, flags, format] = packet.array(0);
    let signal = packet.u64(56);
    if flags & BARRIER_BIT != 0 && queue.outstanding > 0 {
        queue.state = State::Barrier;
        return Ok(());
    }
    let arch = machine.gpus[queue.gpu].config.arch;
    let decision = match kind {
        KERNEL_DISPATCH => {
            let items =
                (4..10).step_by(2).map(|at| u32::from(packet.u16(at).max(1))).fold(1, u32::saturating_mul);
            let cost = device::group_cost(arch, items, packet.u32(28));
            let groups = (0..3)
                .map(|i| {
                    u64::from(packet.u32(12 + i * 4).max(1).div_ceil(u32::from(packet.u16(4 + i * 2).max(1))))
                })
                .fold(1, u64::saturating_mul);
            let rounds = device::rounds(device::slots(arch), groups, cost);
            let dispatch = Dispatch {
                object: packet.u64(32),
                arguments: packet.u64(40),
                grid: [packet.u32(12), packet.u32(16), packet.u32(20)],
                group: u32::from(packet.u16(4).max(1)),
                rounds,
            };
            let kernel = process
                .kernels
                .entry(dispatch.object)
                .or_insert_with(|| Kernel::find(&view, dispatch.object));
            let act = kernels::plan(&view, kernel.as_ref(), &dispatch, &machine.durations);
            let work = |alone| Work { id, queue: key, groups, cost, alone };
            match act.map_err(Unusable::Unknown)? {
                Act::Wait(conditions, _) if !Condition::all_hold(&conditions, &view)? => Decision::Block,
                Act::Wait(_, effect) => Decision::Launch(work(0), effect),
                Act::Pass(time) => {
                    if let Some(counts) = &process.unexecuted {
                        counts.note(kernel.as_ref().map(|kernel| kernel.name.as_str()));
                    }
                    Decision::Launch(work(time), Effect::default())
                }
                Act::Run { time, effect } => Decision::Launch(work(time), effect),
            }
        }
        BARRIER_AND if dependencies(&view, &packet)?.all(|value| value == 0) => {
            Decision::Retire("barrier_and")
        }
        BARRIER_OR if any_or_none(dependencies(&view, &packet)?) => Decision::Retire("barrier_or"),
        BARRIER_AND | BARRIER_OR => Decision::Block,
        VENDOR_SPECIFIC if format == FORMAT_PM4 => {
            check_pm4(&view, &packet)?;
            Decision::Retire("pm4")
        }
        VENDOR_SPECIFIC if format == FORMAT_BARRIER_VALUE => {
            if barrier_value(&view, &packet)? {
                Decision::Retire("barrier_value")
            } else {
                Decision::Block
            }
        }
        _ => {
            return Err(Unusable::Unknown(format!(
                "AQL packet of type {kind} (vendor format {format}) is not simulated"
            )));
        }
    };
    match decision {
        Decision::Block => queue.state = State::Blocked,
        Decision::Retire(kind) => {
            queue.consume(&view)?;
            queue.counts.add(kind);
            complete_signal(machine, key, signal, t, t)?;
        }
        Decision::Launch(work, effect) => {
            queue.consume(&view)?;
            queue.outstanding += 1;
            queue.state = State::Launching(work.id);
            let gpu = queue.gpu;
            let alone = work.alone;
            machine.work.executions.insert(work.id, Execution { queue: key, signal, alone, effect });
            run_model(machine, gpu, t, |model, progress| model.submit(t, work, progress));
        }
    }
    Ok(())
}

/// Returns the values of the signals that a barrier packet names.
fn dependencies(view: &View<'_>, packet: &Packet) -> Result<impl Iterator<Item = i64> + use<>, Fault> {
    let mut values = Vec::with_capacity(5);
    for at in (8..48).step_by(8) {
        let signal = packet.u64(at);
        if signal != 0 {
            values.push(view.atomic(signal.wrapping_add(8))?.load(Ordering::Acquire));
        }
    }
    Ok(values.into_iter())
}

/// Returns true if any value is 0, or if there are no values.
fn any_or_none(values: impl Iterator<Item = i64>) -> bool {
    let mut values = values.peekable();
    values.peek().is_none() || values.any(|value| value == 0)
}

/// Returns true if the condition of a `hsa_amd_barrier_value_packet_t` holds, which compares a masked signal
/// value with a constant.
fn barrier_value(view: &View<'_>, packet: &Packet) -> Result<bool, Unusable> {
    let signal = packet.u64(8);
    if signal == 0 {
        return Ok(true);
    }
    let (value, mask) = (packet.u64(16).cast_signed(), packet.u64(24).cast_signed());
    let now = view.atomic(signal.wrapping_add(8))?.load(Ordering::Acquire) & mask;
    match packet.u32(32) {
        0 => Ok(now == value),
        1 => Ok(now != value),
        2 => Ok(now < value),
        3 => Ok(now >= value),
        other => {
            Err(Unusable::Unknown(format!("barrier-value packet with condition {other} is not defined")))
        }
    }
}

/// Checks that PM4 commands only flush caches, which the simulated memory does not have. The runtime sends no
/// other commands.
fn check_pm4(view: &View<'_>, packet: &Packet) -> Result<(), Unusable> {
    const NOP: u32 = 0x10;
    const ACQUIRE_MEM: u32 = 0x58;
    let at = packet.u64(8) & !3;
    let words = u64::from(packet.u32(16) & 0xf_ffff);
    if words > PM4_WORDS {
        return Err(Unusable::Unknown(format!("a PM4 buffer of {words} words is not simulated")));
    }
    let mut i = 0;
    while i < words {
        let header = view.load_u32(at.wrapping_add(i * 4))?;
        let (kind, op) = (header >> 30, header >> 8 & 0xff);
        if kind != 3 || (op != NOP && op != ACQUIRE_MEM) {
            return Err(Unusable::Unknown(format!("PM4 packet {header:#010x} is not simulated")));
        }
        i += u64::from(header >> 16 & 0x3fff) + 2;
    }
    Ok(())
}
