//! The information for a debugger: exceptions of queues, devices and the process, and snapshots of queues and
//! devices. Facts: `kfd_debug.c` and `kfd_process_queue_manager.c` of Linux 6.12.

use std::os::fd::{AsFd as _, OwnedFd};

use hip_sys::kfd::Plain as _;
use hip_sys::kfd::debug::{self, exception_bit};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::call::Answer;
use crate::device::QueueKey;
use crate::layout::apertures;
use crate::machine::{Machine, Process};
use crate::space::client;
use crate::topology;

/// Writes a byte for an exception to a debugger's descriptor. The byte is dropped if the write would block.
pub fn notify(descriptor: &OwnedFd) {
    let mut fds = [PollFd::new(descriptor, PollFlags::OUT)];
    if matches!(rustix::event::poll(&mut fds, Some(&Timespec::default())), Ok(1)) {
        let _ = rustix::io::write(descriptor.as_fd(), b".");
    }
}

pub fn query_event(machine: &mut Machine, pid: i32, a: &mut debug::QueryDebugEvent) -> Answer<()> {
    let clear = a.exception_mask;
    (a.exception_mask, a.gpu_id, a.queue_id) = (0, 0, 0);
    let gpu_ids: Vec<u32> = machine.gpus.iter().map(|gpu| gpu.config.gpu_id).collect();
    let process = machine.process(pid)?;
    let reported = process.debug.reported;
    for (id, queue) in &mut process.queues {
        if queue.exceptions & reported != 0 {
            (a.exception_mask, a.queue_id, a.gpu_id) = (queue.exceptions, *id, gpu_ids[queue.gpu]);
            queue.exceptions &= !clear;
            return Ok(());
        }
    }
    for (raised, gpu_id) in process.debug.devices.iter_mut().zip(gpu_ids) {
        if *raised & reported != 0 {
            (a.exception_mask, a.gpu_id) = (*raised, gpu_id);
            *raised &= !clear;
            return Ok(());
        }
    }
    if process.debug.raised & reported != 0 {
        a.exception_mask = process.debug.raised;
        process.debug.raised &= !clear;
        return Ok(());
    }
    Err(libc::EAGAIN)
}

pub fn exception_info(
    machine: &mut Machine,
    caller: i32,
    pid: i32,
    a: &mut debug::QueryExceptionInfo,
) -> Answer<()> {
    if a.info_ptr == 0 || !(1..64).contains(&a.exception_code) {
        return Err(libc::EINVAL);
    }
    let bit = exception_bit(a.exception_code);
    let gpu = machine.gpu_index(a.source_id);
    let process = machine.process(pid)?;
    let info = process.debug.runtime;
    let status = match a.exception_code {
        1..=31 => &mut process.queues.get_mut(&a.source_id).ok_or(libc::EINVAL)?.exceptions,
        32..=36 => gpu.and_then(|gpu| process.debug.devices.get_mut(gpu)).ok_or(libc::EINVAL)?,
        48..=49 => &mut process.debug.raised,
        _ => return Err(libc::EINVAL),
    };
    if *status & bit == 0 {
        return Err(libc::ENODATA);
    }
    let mut size = 0;
    if a.exception_code == debug::EC_PROCESS_RUNTIME {
        size = size_of::<debug::RuntimeInfo>();
        let bytes = &info.as_bytes()[..size.min(a.info_size as usize)];
        client::write(caller, a.info_ptr, bytes)?;
    }
    a.info_size = size as u32;
    if a.clear_exception != 0 {
        *status &= !bit;
    }
    Ok(())
}

pub fn queue_snapshot(
    machine: &mut Machine,
    caller: i32,
    pid: i32,
    a: &mut debug::QueueSnapshot,
) -> Answer<()> {
    let (stride, room) = (a.entry_size, a.num_queues);
    a.num_queues = 0;
    if stride == 0 {
        return Err(libc::EINVAL);
    }
    a.entry_size = stride.min(size_of::<debug::QueueEntry>() as u32);
    let gpu_ids: Vec<u32> = machine.gpus.iter().map(|gpu| gpu.config.gpu_id).collect();
    let mut at = a.snapshot_buf_ptr;
    for (id, queue) in &mut machine.process(pid)?.queues {
        if a.num_queues < room {
            let entry = debug::QueueEntry {
                exception_status: queue.exceptions,
                ring_base_address: queue.ring,
                write_pointer_address: queue.write_pointer,
                read_pointer_address: queue.read_pointer,
                ctx_save_restore_address: queue.save_area.0,
                queue_id: *id,
                gpu_id: gpu_ids[queue.gpu],
                ring_size: queue.size,
                queue_type: queue.kfd_type,
                ctx_save_restore_area_size: queue.save_area.1,
                reserved: 0,
            };
            queue.exceptions &= !a.exception_mask;
            client::write(caller, at, &entry.as_bytes()[..a.entry_size as usize])?;
            at = at.wrapping_add(stride.into());
        }
        a.num_queues += 1;
    }
    Ok(())
}

pub fn device_snapshot(
    machine: &mut Machine,
    caller: i32,
    pid: i32,
    a: &mut debug::DeviceSnapshot,
) -> Answer<()> {
    if a.snapshot_buf_ptr == 0 {
        return Err(libc::EINVAL);
    }
    let (stride, room) = (a.entry_size, a.num_devices as usize);
    a.num_devices = machine.gpus.len() as u32;
    a.entry_size = stride.min(size_of::<debug::DeviceEntry>() as u32);
    let mut at = a.snapshot_buf_ptr;
    for gpu in 0..room.min(machine.gpus.len()) {
        let raised = machine.process(pid)?.debug.devices.get(gpu).copied().unwrap_or(0);
        let config = &machine.gpus[gpu].config;
        let seen = apertures(config.gpu_id);
        let entry = debug::DeviceEntry {
            lds_base: seen.lds_base,
            lds_limit: seen.lds_limit,
            scratch_base: seen.scratch_base,
            scratch_limit: seen.scratch_limit,
            gpuvm_base: seen.gpuvm_base,
            gpuvm_limit: seen.gpuvm_limit,
            ..topology::debug_entry(config, raised)
        };
        if let Some(raised) = machine.process(pid)?.debug.devices.get_mut(gpu) {
            *raised &= !a.exception_mask;
        }
        client::write(caller, at, &entry.as_bytes()[..a.entry_size as usize])?;
        at = at.wrapping_add(stride.into());
    }
    Ok(())
}

/// Raises the exception of a new queue, which the debugger has not seen.
pub fn raise_queue_new(machine: &mut Machine, key: QueueKey) {
    raise(machine, key.pid, debug::EC_QUEUE_NEW, |process| {
        process.queues.get_mut(&key.id).map(|queue| &mut queue.exceptions)
    });
}

pub fn raise_process_exception(machine: &mut Machine, pid: i32, code: u32) {
    raise(machine, pid, code, |process| Some(&mut process.debug.raised));
}

pub fn raise_device_exception(machine: &mut Machine, pid: i32, gpu: usize, code: u32) {
    raise(machine, pid, code, |process| process.debug.devices.get_mut(gpu));
}

/// Sets the bit of an exception where the process keeps it, and notifies the debugger if it asked for that.
fn raise(machine: &mut Machine, pid: i32, code: u32, of: impl FnOnce(&mut Process) -> Option<&mut u64>) {
    let Some(process) = machine.processes.get_mut(&pid).filter(|process| process.debug.enabled) else {
        return;
    };
    if let Some(raised) = of(process) {
        *raised |= exception_bit(code);
    }
    if process.debug.reported & exception_bit(code) != 0 {
        notify_debugger(machine, pid);
    }
}

pub fn notify_debugger(machine: &mut Machine, pid: i32) {
    let descriptor = machine.processes.get(&pid).and_then(|process| process.debug.descriptor.clone());
    machine.outbox.notices.extend(descriptor);
}
