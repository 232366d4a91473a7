//! The KFD's ioctls as the kernel driver executes them, error codes included.
//!
//! Facts and error codes: Linux 6.12 `kfd_chardev.c`, `kfd_process_queue_manager.c`, `kfd_events.c`. Requests
//! that the tested runtimes do not need fail with EINVAL, as in a driver that does not know them. The
//! requests about queues are in `driver/`.

use hip_sys::kfd::{self, Ioctl as _, Plain as _};

use crate::call::{Answer, Call, run};
use crate::driver;
use crate::fuse::Reply;
use crate::layout::{MAX_GPUS, MMIO_OFFSET, apertures, doorbell_offset, is_mappable};
use crate::machine::{Allocation, Failure, Machine};
use crate::space::{Backing, Range, client};

/// The largest number of events of a wait; ROCr waits for a few hundred.
const MAX_WAIT: u32 = 2 * kfd::SIGNAL_EVENT_LIMIT;
/// The interface's version. Queues and events behave as in Linux 6.12 (1.17), but mappings by the render
/// node's GEM_VA request (1.15) are missing, and ROCr takes 1.15 for a promise of virtual memory management
/// (`CheckVirtualMemApiSupport`).
const VERSION: (u32, u32) = (1, 14);

/// Returns the process whose lock (`kfd_process.mutex`) a request takes.
pub fn lock_domain(nr: u8, call: &Call) -> Option<i32> {
    match nr {
        kfd::GetVersion::NR
        | kfd::GetClockCounters::NR
        | kfd::GetTileConfig::NR
        | kfd::CreateEvent::NR
        | kfd::DestroyEvent::NR
        | kfd::SetEvent::NR
        | kfd::ResetEvent::NR
        | kfd::WaitEvents::NR => None,
        kfd::debug::DbgTrap::NR => Some(driver::target(call)),
        _ => Some(call.pid),
    }
}

/// Returns true if a request changes queues or reads their state.
pub fn is_about_queues(nr: u8) -> bool {
    matches!(
        nr,
        kfd::CreateQueue::NR
            | kfd::DestroyQueue::NR
            | kfd::UpdateQueue::NR
            | kfd::SetCuMask::NR
            | kfd::GetQueueWaveState::NR
            | kfd::debug::RuntimeEnable::NR
            | kfd::debug::DbgTrap::NR
    )
}

/// Executes a call that has the lock of its process.
pub fn execute(machine: &mut Machine, call: &Call) {
    let Some(nr) = kfd::request_number(call.command) else { return };
    let failure = machine.driver.faults.as_mut().and_then(|faults| faults.strike(call.pid, nr));
    if let Some(Failure { errno, after: false }) = failure {
        if nr == kfd::UpdateQueue::NR {
            driver::keep_values(machine, call.pid, &call.decode());
        }
        machine.outbox.answers.push((call.unique, Err(errno)));
        return;
    }
    // The named requests answer the call themselves, now or later, unless they fail at once.
    let result = match nr {
        kfd::WaitEvents::NR => wait_events(machine, call),
        kfd::CreateQueue::NR => driver::create_queue(machine, call, call.decode()),
        kfd::DestroyQueue::NR => driver::destroy_queue(machine, call, call.decode()),
        kfd::UpdateQueue::NR => {
            driver::update_queue(machine, call, call.decode(), failure.map(|failure| failure.errno))
        }
        kfd::SetCuMask::NR => driver::set_cu_mask(machine, call, call.decode()),
        kfd::GetQueueWaveState::NR => driver::wave_state(machine, call, call.decode()),
        kfd::debug::RuntimeEnable::NR => driver::runtime_enable(machine, call, call.decode()),
        kfd::debug::DbgTrap::NR => driver::debug_trap(machine, call, call.decode()),
        _ => at_once(machine, nr, call).and_then(|reply| machine.outbox.answer(call, reply)),
    };
    if let Err(errno) = result {
        machine.outbox.answers.push((call.unique, Err(errno)));
    }
}

fn at_once(machine: &mut Machine, nr: u8, call: &Call) -> Answer<Reply> {
    match nr {
        kfd::GetVersion::NR => run(call, |a: &mut kfd::GetVersion| {
            (a.major, a.minor) = VERSION;
            Ok(())
        }),
        kfd::GetClockCounters::NR => run(call, |a: &mut kfd::GetClockCounters| {
            // All clocks and signals use one unit; otherwise the runtime reads the clocks for every event.
            (a.gpu_clock_counter, a.cpu_clock_counter) = (call.now, call.now);
            (a.system_clock_counter, a.system_clock_freq) = (call.now, 1_000_000_000);
            Ok(())
        }),
        kfd::GetTileConfig::NR => run(call, |a: &mut kfd::GetTileConfig| {
            (a.num_tile_configs, a.num_macro_tile_configs, a.gb_addr_config) = (0, 0, 0x1000_0444);
            Ok(())
        }),
        kfd::SetXnackMode::NR => run(call, |a: &mut kfd::SetXnackMode| match a.xnack_enabled {
            1.. => Err(libc::EPERM),
            _ => {
                a.xnack_enabled = 0;
                Ok(())
            }
        }),
        kfd::GetProcessAperturesNew::NR => run(call, |a| get_apertures(machine, call.pid, a)),
        kfd::AcquireVm::NR => run(call, |a: &mut kfd::AcquireVm| known_gpu(machine, a.gpu_id)),
        kfd::SetMemoryPolicy::NR => run(call, |a: &mut kfd::SetMemoryPolicy| known_gpu(machine, a.gpu_id)),
        kfd::SetTrapHandler::NR => run(call, |a: &mut kfd::SetTrapHandler| known_gpu(machine, a.gpu_id)),
        kfd::SetScratchBackingVa::NR => {
            run(call, |a: &mut kfd::SetScratchBackingVa| known_gpu(machine, a.gpu_id))
        }
        kfd::GetAvailableMemory::NR => run(call, |a: &mut kfd::GetAvailableMemory| {
            let gpu = &machine.gpus[machine.gpu_index(a.gpu_id).ok_or(libc::EINVAL)?];
            a.available = gpu.config.vram - gpu.used;
            Ok(())
        }),
        kfd::AllocMemoryOfGpu::NR => run(call, |a| alloc(machine, call.pid, a)),
        kfd::FreeMemoryOfGpu::NR => run(call, |a| free(machine, call.pid, a)),
        kfd::IpcExportHandle::NR => run(call, |a| export(machine, call.pid, a)),
        kfd::IpcImportHandle::NR => run(call, |a| import(machine, call.pid, a)),
        kfd::ExportDmabuf::NR | kfd::ImportDmabuf::NR | kfd::GetDmabufInfo::NR => {
            machine.not_simulated(call.pid, "memory shared as a dma-buf");
            Err(libc::EINVAL)
        }
        kfd::MapMemoryToGpu::NR => run(call, |a| map(machine, call.pid, a)),
        kfd::UnmapMemoryFromGpu::NR => run(call, |a| unmap(machine, call.pid, a)),
        kfd::CreateEvent::NR => run(call, |a| create_event(machine, call.pid, a)),
        kfd::DestroyEvent::NR => run(call, |a: &mut kfd::DestroyEvent| {
            let done = machine.destroy_event(call.pid, a.event_id);
            machine.wake(call.now);
            found(done)
        }),
        kfd::SetEvent::NR => run(call, |a: &mut kfd::SetEvent| {
            found(machine.process(call.pid)?.events.can_be_set(a.event_id))?;
            machine.set_event(call.pid, a.event_id);
            machine.wake(call.now);
            Ok(())
        }),
        kfd::ResetEvent::NR => {
            run(call, |a: &mut kfd::ResetEvent| found(machine.process(call.pid)?.events.reset(a.event_id)))
        }
        kfd::AllocQueueGws::NR => run(call, |a: &mut kfd::AllocQueueGws| {
            // Cooperative launches need this request. No executed kernel uses the counters.
            a.first_gws = 0;
            found(machine.process(call.pid)?.queues.contains_key(&a.queue_id))
        }),
        _ => Err(libc::EINVAL),
    }
}

fn known_gpu(machine: &Machine, gpu_id: u32) -> Answer<()> {
    machine.gpu_index(gpu_id).map(|_| ()).ok_or(libc::EINVAL)
}

fn get_apertures(machine: &Machine, pid: i32, a: &mut kfd::GetProcessAperturesNew) -> Answer<()> {
    let capacity = a.num_of_nodes as usize;
    a.num_of_nodes = machine.gpus.len() as u32;
    if capacity == 0 {
        return Ok(());
    }
    a.num_of_nodes = a.num_of_nodes.min(capacity as u32);
    let entries = machine.gpus.iter().take(capacity).map(|gpu| apertures(gpu.config.gpu_id));
    let bytes: Vec<u8> = entries.flat_map(|entry| entry.as_bytes().to_vec()).collect();
    client::write(pid, a.apertures_ptr, &bytes)
}

fn alloc(machine: &mut Machine, pid: i32, a: &mut kfd::AllocMemoryOfGpu) -> Answer<()> {
    let gpu = machine.gpu_index(a.gpu_id).ok_or(libc::EINVAL)?;
    if !is_mappable(a.va_addr, a.size) {
        return Err(libc::EINVAL);
    }
    let doorbell = doorbell_offset(machine.process(pid)?.doorbell, gpu);
    let size = a.size.div_ceil(crate::arena::PAGE) * crate::arena::PAGE;
    let vram = a.flags & kfd::ALLOC_VRAM != 0;
    let (backing, offset) = if a.flags & kfd::ALLOC_DOORBELL != 0 {
        a.mmap_offset = doorbell;
        (Backing::Device, None)
    } else if a.flags & kfd::ALLOC_MMIO_REMAP != 0 {
        a.mmap_offset = MMIO_OFFSET;
        (Backing::Device, None)
    } else if a.flags & kfd::ALLOC_USERPTR != 0 {
        client::check_mapped(pid, a.mmap_offset, size, a.flags & kfd::ALLOC_WRITABLE != 0)?;
        (Backing::Client(a.mmap_offset), None)
    } else if vram || a.flags & kfd::ALLOC_GTT != 0 {
        let config = &machine.gpus[gpu].config;
        let (used, limit) = if vram {
            (machine.gpus[gpu].used, config.vram)
        } else {
            (machine.memory.host_used, machine.memory.host_limit)
        };
        if size > limit - used {
            return Err(libc::ENOMEM);
        }
        let offset = machine.memory.arena.alloc(size).ok_or(libc::ENOMEM)?;
        a.mmap_offset = offset;
        (Backing::Arena(offset), Some(offset))
    } else {
        return Err(libc::EINVAL);
    };
    let allocation = Allocation { gpu, va: a.va_addr, size, offset, vram, imported: false };
    let process = machine.process(pid)?;
    if !process.space.insert(a.va_addr, Range { len: a.size, backing, gpus: 0 }) {
        if let Some(offset) = offset {
            machine.memory.arena.free(offset, size);
        }
        return Err(libc::EINVAL);
    }
    a.handle = process.next_handle;
    process.next_handle += 1;
    process.allocations.insert(a.handle, allocation);
    match offset {
        Some(_) if vram => machine.gpus[gpu].used += size,
        Some(_) => machine.memory.host_used += size,
        None => {}
    }
    machine.show_memory(pid, &allocation);
    Ok(())
}

fn free(machine: &mut Machine, pid: i32, a: &mut kfd::FreeMemoryOfGpu) -> Answer<()> {
    let process = machine.process(pid)?;
    let allocation = process.allocations.remove(&a.handle).ok_or(libc::EINVAL)?;
    process.space.remove(allocation.va);
    // A code object in this memory can be replaced by another at the same address.
    let range = allocation.va..allocation.va + allocation.size;
    process.kernels.retain(|object, _| !range.contains(object));
    machine.release(&allocation);
    machine.show_memory(pid, &allocation);
    Ok(())
}

/// Gives memory a name by which other processes import it (`kfd_ipc_export_as_handle` of AMD's packaged
/// driver).
fn export(machine: &mut Machine, pid: i32, a: &mut kfd::IpcExportHandle) -> Answer<()> {
    let gpu = machine.gpu_index(a.gpu_id).ok_or(libc::EINVAL)?;
    let process = machine.process(pid)?;
    let allocation = *process.allocations.get(&a.handle).ok_or(libc::EINVAL)?;
    if allocation.gpu != gpu {
        return Err(libc::EINVAL);
    }
    let Some(offset) = allocation.offset else {
        // Memory of the process itself (userptr) and doorbells are not buffers of the driver.
        let client =
            matches!(process.space.find(allocation.va), Some((_, Range { backing: Backing::Client(_), .. })));
        return Err(if client { libc::EPERM } else { libc::EINVAL });
    };
    a.share_handle = machine.memory.shared.export(offset, allocation, a.flags).ok_or(libc::ENOMEM)?;
    Ok(())
}

/// Imports memory of another process (`kfd_ipc_import_handle` of AMD's packaged driver).
fn import(machine: &mut Machine, pid: i32, a: &mut kfd::IpcImportHandle) -> Answer<()> {
    let gpu = machine.gpu_index(a.gpu_id).ok_or(libc::EINVAL)?;
    let (offset, memory, flags) = machine.memory.shared.find(a.share_handle).ok_or(libc::EINVAL)?;
    if memory.gpu != gpu || !is_mappable(a.va_addr, memory.size) {
        return Err(libc::EINVAL);
    }
    let process = machine.process(pid)?;
    if !process.space.insert(a.va_addr, Range { len: memory.size, backing: Backing::Arena(offset), gpus: 0 })
    {
        return Err(libc::EINVAL);
    }
    (a.handle, a.mmap_offset, a.flags) = (process.next_handle, offset, flags);
    process.next_handle += 1;
    process.allocations.insert(a.handle, Allocation { va: a.va_addr, imported: true, ..memory });
    machine.memory.shared.add_user(offset);
    Ok(())
}

/// Returns the address of an allocation, and the GPUs that a map or unmap names from `done` on.
fn targets(
    machine: &mut Machine,
    pid: i32,
    handle: u64,
    ids_at: u64,
    count: u32,
    done: u32,
) -> Answer<(u64, u32)> {
    let va = machine.process(pid)?.allocations.get(&handle).ok_or(libc::EINVAL)?.va;
    if count == 0 || u64::from(count) > MAX_GPUS || done > count {
        return Err(libc::EINVAL);
    }
    let mut bytes = vec![0; 4 * count as usize];
    client::read(pid, ids_at, &mut bytes)?;
    let mut gpus = 0;
    for id in bytes.chunks_exact(4).skip(done as usize) {
        let id = u32::from_le_bytes([id[0], id[1], id[2], id[3]]);
        gpus |= 1 << machine.gpu_index(id).ok_or(libc::EINVAL)?;
    }
    Ok((va, gpus))
}

fn map(machine: &mut Machine, pid: i32, a: &mut kfd::MapMemoryToGpu) -> Answer<()> {
    let (va, gpus) = targets(machine, pid, a.handle, a.device_ids_array_ptr, a.n_devices, a.n_success)?;
    machine.process(pid)?.space.get_mut(va).ok_or(libc::EINVAL)?.gpus |= gpus;
    a.n_success = a.n_devices;
    Ok(())
}

fn unmap(machine: &mut Machine, pid: i32, a: &mut kfd::UnmapMemoryFromGpu) -> Answer<()> {
    let (va, gpus) = targets(machine, pid, a.handle, a.device_ids_array_ptr, a.n_devices, a.n_success)?;
    machine.process(pid)?.space.get_mut(va).ok_or(libc::EINVAL)?.gpus &= !gpus;
    a.n_success = a.n_devices;
    Ok(())
}

fn create_event(machine: &mut Machine, pid: i32, a: &mut kfd::CreateEvent) -> Answer<()> {
    let id = machine.process(pid)?.events.create(a.event_type, a.auto_reset != 0).ok_or(libc::ENOSPC)?;
    (a.event_id, a.event_trigger_data, a.event_slot_index) = (id, id, id % kfd::SIGNAL_EVENT_LIMIT);
    // Without an event page the runtime never requests a completion interrupt. The caller of a discrete GPU
    // has its own page and only checks that this is not zero.
    a.event_page_offset = 1 << 62;
    Ok(())
}

fn wait_events(machine: &mut Machine, call: &Call) -> Answer<()> {
    let arguments: kfd::WaitEvents = call.decode();
    if arguments.num_events > MAX_WAIT {
        return Err(libc::EINVAL);
    }
    let size = size_of::<kfd::EventData>();
    let mut bytes = vec![0; size * arguments.num_events as usize];
    client::read(call.pid, arguments.events_ptr, &mut bytes)?;
    machine.wait(call, arguments, bytes.chunks_exact(size).map(kfd::EventData::from_bytes))?;
    machine.wake(call.now);
    Ok(())
}

fn found(done: bool) -> Answer<()> {
    if done { Ok(()) } else { Err(libc::EINVAL) }
}
