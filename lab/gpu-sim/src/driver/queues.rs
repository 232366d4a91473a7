//! The ioctls about queues as the driver executes them: `kfd_chardev.c`, `kfd_process_queue_manager.c`.

use hip_sys::kfd::{self, Plain as _};

use super::batch::block_destruction;
use super::exceptions::{raise_device_exception, raise_queue_new};
use super::operations::{answer_parked, forget_queue, operate};
use crate::arena::PAGE;
use crate::call::{Answer, Call};
use crate::device::{QueueKey, Time};
use crate::fuse::Reply;
use crate::layout::doorbell_offset;
use crate::machine::{Change, Follow, Kind, Machine, Parked, Queue};
use crate::space::{Range, client};

/// The largest number of queues of a process on gfx9.4.3 and 9.4.4, and on all others (`pqm_create_queue`).
const MAX_QUEUES_943: usize = 255;
const MAX_QUEUES: usize = 127;
/// `gfx_target_version` of the MI300s.
const GFX942: u32 = 90_402;
fn checked(percentage: u32, priority: u32, ring_size: u32) -> Answer<()> {
    let percentage = percentage & 0xff;
    if percentage > kfd::MAX_QUEUE_PERCENTAGE || priority > kfd::MAX_QUEUE_PRIORITY {
        return Err(libc::EINVAL);
    }
    if ring_size != 0 && !ring_size.is_power_of_two() {
        return Err(libc::EINVAL);
    }
    Ok(())
}

/// Executes CREATE_QUEUE, which is answered once the queue is on the hardware.
pub fn create_queue(machine: &mut Machine, call: &Call, mut a: kfd::CreateQueue) -> Answer<()> {
    checked(a.queue_percentage, a.queue_priority, a.ring_size)?;
    let gpu = machine.gpu_index(a.gpu_id).ok_or(libc::EINVAL)?;
    let kind = match a.queue_type {
        kfd::QUEUE_TYPE_COMPUTE_AQL => Kind::Aql,
        kfd::QUEUE_TYPE_SDMA | kfd::QUEUE_TYPE_SDMA_XGMI | kfd::QUEUE_TYPE_SDMA_BY_ENG_ID => Kind::Sdma,
        // PM4 rings are not simulated, because HIP creates none.
        _ => return Err(libc::EINVAL),
    };
    let arch = machine.gpus[gpu].config.arch;
    let most = if arch.version == GFX942 { MAX_QUEUES_943 } else { MAX_QUEUES };
    let process = machine.process(call.pid)?;
    if process.queues.len() >= most {
        return Err(libc::ENOMEM);
    }
    if process.space.find(a.ring_base_address).is_none() {
        return Err(libc::EFAULT);
    }
    if process.queues.values().any(|queue| queue.reset && queue.gpu == gpu) {
        return Err(libc::EIO);
    }
    let id = process.free_queue_id();
    let size = a.ring_size.max(kfd::MIN_RING_SIZE);
    let (write, read) = (a.write_pointer_address, a.read_pointer_address);
    let mut queue = Queue::new(gpu, kind, a.ring_base_address, size, write, read);
    (queue.percentage, queue.priority) = (a.queue_percentage, a.queue_priority);
    (queue.active, queue.mapped) = (false, false);
    queue.kfd_type = a.queue_type;
    queue.save_area = (a.ctx_save_restore_address, a.ctx_save_restore_size, a.ctl_stack_size);
    let runs = queue.should_run();
    a.queue_id = id;
    a.doorbell_offset = doorbell_offset(process.doorbell, gpu) + u64::from(id) * 8;
    process.queues.insert(id, queue);
    if kind == Kind::Aql {
        machine.driver.compute_queues += 1;
        let stuck = machine.driver.settings.stuck == Some(machine.driver.compute_queues);
        if let Some(queue) = machine.queue_mut(QueueKey { pid: call.pid, id }) {
            queue.stuck = stuck;
        }
    }
    raise_queue_new(machine, QueueKey { pid: call.pid, id });
    machine.driver.sysfs.add(call.pid, id, size, a.queue_type, a.gpu_id);
    let out = call.reply(&a);
    if !runs {
        return machine.outbox.answer(call, out);
    }
    let change = Change::Create(QueueKey { pid: call.pid, id });
    operate_for(machine, call, gpu, change, Ok(out));
    Ok(())
}

/// Executes DESTROY_QUEUE, which is answered once a debugger has resumed the queue and the queue is off the
/// hardware.
pub fn destroy_queue(machine: &mut Machine, call: &Call, a: kfd::DestroyQueue) -> Answer<()> {
    let key = QueueKey { pid: call.pid, id: a.queue_id };
    let debugged = machine.process(call.pid)?.debug.enabled;
    let queue = machine.queue_mut(key).ok_or(libc::EINVAL)?;
    queue.being_destroyed = true;
    if debugged && queue.suspended {
        block_destruction(machine, call, key);
        return Ok(());
    }
    destroy(machine, call.now, Parked::of(call, call.pid), key, call.reply(&a));
    Ok(())
}

/// Evicts a queue and then removes it.
fn destroy(machine: &mut Machine, now: Time, parked: Parked, key: QueueKey, out: Reply) {
    let Some(queue) = machine.queue(key) else {
        answer_parked(machine, now, parked, Err(libc::EINVAL));
        return;
    };
    let (gpu, active) = (queue.gpu, queue.active);
    raise_device_exception(machine, key.pid, gpu, kfd::debug::EC_DEVICE_QUEUE_DELETE);
    if !active {
        forget_queue(machine, now, key);
        answer_parked(machine, now, parked, Ok(out));
        return;
    }
    machine.lock(&parked);
    operate(machine, now, gpu, Change::Destroy(key), Follow::Answer(parked, Ok(out)));
}

/// Executes UPDATE_QUEUE. The values are kept even if the operation fails. `failure` is returned although the
/// operation succeeds.
pub fn update_queue(
    machine: &mut Machine,
    call: &Call,
    a: kfd::UpdateQueue,
    failure: Option<i32>,
) -> Answer<()> {
    checked(a.queue_percentage, a.queue_priority, a.ring_size)?;
    let size = a.ring_size.max(kfd::MIN_RING_SIZE);
    let process = machine.process(call.pid)?;
    let Some(queue) = process.queues.get_mut(&a.queue_id) else { return Err(libc::EFAULT) };
    if a.ring_base_address != 0 {
        // The ring must be exactly one mapping (`kfd_queue_buffer_get`).
        let pages = u64::from(size).div_ceil(PAGE);
        let whole =
            |(start, range): (u64, Range)| start == a.ring_base_address && range.len.div_ceil(PAGE) == pages;
        if !process.space.find(a.ring_base_address).is_some_and(whole) {
            return Err(libc::EFAULT);
        }
    }
    (queue.ring, queue.size) = (a.ring_base_address, size);
    (queue.percentage, queue.priority) = (a.queue_percentage, a.queue_priority);
    remap(machine, call, a.queue_id, failure.map_or(Ok(call.reply(&a)), Err))
}

/// Keeps the values of an update that fails on request before it has an effect.
pub fn keep_values(machine: &mut Machine, pid: i32, a: &kfd::UpdateQueue) {
    if checked(a.queue_percentage, a.queue_priority, a.ring_size).is_ok()
        && let Some(queue) = machine.queue_mut(QueueKey { pid, id: a.queue_id })
        && queue.ring == a.ring_base_address
    {
        (queue.percentage, queue.priority) = (a.queue_percentage, a.queue_priority);
    }
}

/// Executes SET_CU_MASK: checked as in the driver, and an operation like an update.
pub fn set_cu_mask(machine: &mut Machine, call: &Call, a: kfd::SetCuMask) -> Answer<()> {
    if a.num_cu_mask == 0 || !a.num_cu_mask.is_multiple_of(32) {
        return Err(libc::EINVAL);
    }
    // The driver ignores further bits (`max_num_cus`).
    let bits = a.num_cu_mask.min(1024);
    let mut mask = vec![0; bits as usize / 8];
    client::read(call.pid, a.cu_mask_ptr, &mut mask)?;
    let key = QueueKey { pid: call.pid, id: a.queue_id };
    let debugged = machine.process(call.pid)?.debug.enabled;
    let gpu = machine.queue(key).ok_or(libc::EFAULT)?.gpu;
    if machine.gpus[gpu].config.arch.mes {
        if debugged {
            // The debugger's workaround for gfx11 uses the mask.
            return Err(libc::EBUSY);
        }
        // Two compute units form a pair there, of which both or none must be set.
        let halves = |byte: u8| (0..4).any(|pair| matches!(byte >> (2 * pair) & 3, 1 | 2));
        if mask.iter().any(|byte| halves(*byte)) {
            return Err(libc::EINVAL);
        }
    }
    let units = machine.gpus[gpu].config.arch.compute_units();
    if let Some(queue) = machine.queue_mut(key) {
        (queue.cu_masked, queue.compute_units) = (true, units_of(&mask, units));
    }
    remap(machine, call, a.queue_id, Ok(call.reply(&a)))
}

/// Returns the number of compute units of a mask, on a device with `all`. `None` if the mask has all or none of them:
/// the real device is not known to run a queue without any.
fn units_of(mask: &[u8], all: u32) -> Option<u32> {
    let bit = |unit: u32| mask.get(unit as usize / 8).is_some_and(|byte| byte >> (unit % 8) & 1 != 0);
    let units = (0..all).filter(|unit| bit(*unit)).count() as u32;
    (1..all).contains(&units).then_some(units)
}

/// Executes GET_QUEUE_WAVE_STATE, which succeeds only for an evicted compute queue on a device that saves
/// waves.
pub fn wave_state(machine: &mut Machine, call: &Call, mut a: kfd::GetQueueWaveState) -> Answer<()> {
    let cwsr = machine.driver.settings.cwsr;
    let queue = machine.queue(QueueKey { pid: call.pid, id: a.queue_id }).ok_or(libc::EFAULT)?;
    if queue.kind != Kind::Aql || queue.active || !cwsr {
        return Err(libc::EINVAL);
    }
    (a.ctl_stack_used_size, a.save_area_used_size) = queue.wave_state();
    let header = queue.save_area_header();
    let words = &header.as_bytes()[..16];
    client::write(call.pid, a.ctl_stack_address, words)?;
    machine.outbox.answer(call, call.reply(&a))
}

/// Evicts a queue and, if it should run, restores it with its new properties.
fn remap(machine: &mut Machine, call: &Call, id: u32, answer: Result<Reply, i32>) -> Answer<()> {
    let key = QueueKey { pid: call.pid, id };
    let gpu = machine.queue(key).ok_or(libc::EFAULT)?.gpu;
    if machine.process(call.pid)?.queues.values().any(|queue| queue.reset && queue.gpu == gpu) {
        return Err(libc::EACCES);
    }
    operate_for(machine, call, gpu, Change::Update(key), answer);
    Ok(())
}

/// Begins an operation that the caller waits for.
fn operate_for(machine: &mut Machine, call: &Call, gpu: usize, change: Change, answer: Result<Reply, i32>) {
    let parked = Parked::of(call, call.pid);
    machine.lock(&parked);
    operate(machine, call.now, gpu, change, Follow::Answer(parked, answer));
}
