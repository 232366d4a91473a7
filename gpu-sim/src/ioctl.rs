//! The KFD's ioctls as the kernel driver executes them, error codes included.
//!
//! Facts and error codes: Linux 6.12 `kfd_chardev.c`, `kfd_process_queue_manager.c`, `kfd_events.c`. Requests that ROCr
//! 5.2.3 does not use fail with EINVAL, as a driver that does not know them would answer.

use hip_sys::kfd::{self, Ioctl, Plain};

use crate::device::{QueueKey, Time};
use crate::fuse::{FILE_SIZE, Unique};
use crate::machine::{Allocation, Kind, Machine, Process, Queue};
use crate::space::{Backing, Range, client};

/// Distance between the doorbells of two processes or GPUs in the KFD file. The thunk of ROCr 5.2.3 takes the whole
/// lower half of the first offset for the place within the page (`queues.c`: it masks with a size that is still 0).
const DOORBELLS: u64 = 1 << 32;
/// GPUs of one machine at most; each process has doorbells on all of them.
pub const MAX_GPUS: u64 = 8;
/// Offset of the register page in the KFD file.
const MMIO_OFFSET: u64 = FILE_SIZE / 2;
/// Queues of a process (`kfd_process_queue_manager.c`).
const MAX_QUEUES: usize = 127;
/// Elements of a wait at most; ROCr waits for a few hundred.
const MAX_WAIT: u32 = 2 * kfd::SIGNAL_EVENT_LIMIT;
/// Highest GPU virtual address: 47 bits, so that GPU and CPU addresses are the same.
const GPUVM_LIMIT: u64 = (1 << 47) - 1;

/// A call as it came in.
#[derive(Debug)]
pub struct Call<'a> {
    /// Its request.
    pub unique: Unique,
    /// The calling process.
    pub pid: i32,
    /// The ioctl command.
    pub command: u32,
    /// The argument's bytes.
    pub argument: &'a [u8],
    /// Bytes the caller takes back.
    pub out_size: usize,
    /// When it came.
    pub now: Time,
}

type Answer<T> = Result<T, i32>;

impl Machine {
    /// Executes a call; the answer is left in `answers`, now or when a wait ends.
    pub fn ioctl(&mut self, call: &Call<'_>) {
        let Some(nr) = kfd::request_number(call.command) else {
            self.answers.push((call.unique, Err(libc::ENOTTY)));
            return;
        };
        let name = kfd::request_name(nr).map_or_else(|| format!("unknown_{nr:#04x}"), str::to_owned);
        *self.stats.ioctls.entry(name).or_insert(0) += 1;
        let answer = match nr {
            kfd::WaitEvents::NR => match self.wait_events(call) {
                Ok(()) => return,
                Err(errno) => Err(errno),
            },
            kfd::GetVersion::NR => run(call, |a: &mut kfd::GetVersion| {
                (a.major, a.minor) = (1, 14);
                Ok(())
            }),
            kfd::GetClockCounters::NR => run(call, |a: &mut kfd::GetClockCounters| {
                // One unit for all clocks and for signals, or the runtime asks again for every event.
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
            kfd::GetProcessAperturesNew::NR => run(call, |a| self.apertures(call.pid, a)),
            kfd::AcquireVm::NR => run(call, |a: &mut kfd::AcquireVm| self.known_gpu(a.gpu_id)),
            kfd::SetMemoryPolicy::NR => run(call, |a: &mut kfd::SetMemoryPolicy| self.known_gpu(a.gpu_id)),
            kfd::SetTrapHandler::NR => run(call, |a: &mut kfd::SetTrapHandler| self.known_gpu(a.gpu_id)),
            kfd::SetScratchBackingVa::NR => {
                run(call, |a: &mut kfd::SetScratchBackingVa| self.known_gpu(a.gpu_id))
            }
            kfd::GetAvailableMemory::NR => run(call, |a: &mut kfd::GetAvailableMemory| {
                let gpu = &self.gpus[self.gpu_index(a.gpu_id).ok_or(libc::EINVAL)?];
                a.available = gpu.config.vram - gpu.used;
                Ok(())
            }),
            kfd::AllocMemoryOfGpu::NR => run(call, |a| self.alloc(call.pid, a)),
            kfd::FreeMemoryOfGpu::NR => run(call, |a| self.free(call.pid, a)),
            kfd::MapMemoryToGpu::NR => run(call, |a| self.map(call.pid, a)),
            kfd::UnmapMemoryFromGpu::NR => run(call, |a| self.unmap(call.pid, a)),
            kfd::CreateEvent::NR => run(call, |a| self.create_event(call.pid, a)),
            kfd::DestroyEvent::NR => run(call, |a: &mut kfd::DestroyEvent| {
                let done = self.destroy_event(call.pid, a.event_id);
                self.wake(call.now);
                found(done)
            }),
            kfd::SetEvent::NR => run(call, |a: &mut kfd::SetEvent| {
                found(self.process(call.pid)?.events.settable(a.event_id))?;
                self.set_event(call.pid, a.event_id);
                self.wake(call.now);
                Ok(())
            }),
            kfd::ResetEvent::NR => {
                run(call, |a: &mut kfd::ResetEvent| found(self.process(call.pid)?.events.reset(a.event_id)))
            }
            kfd::CreateQueue::NR => run(call, |a| self.create_queue(call.pid, a)),
            kfd::DestroyQueue::NR => run(call, |a: &mut kfd::DestroyQueue| {
                found(self.destroy_queue(call.now, QueueKey { pid: call.pid, id: a.queue_id }))
            }),
            kfd::UpdateQueue::NR => run(call, |a| self.update_queue(call.pid, call.now, a)),
            kfd::AllocQueueGws::NR => run(call, |a: &mut kfd::AllocQueueGws| {
                // Cooperative launches ask for it. Nothing that is simulated uses the counters.
                a.first_gws = 0;
                found(self.process(call.pid)?.queues.contains_key(&a.queue_id))
            }),
            kfd::SetCuMask::NR => run(call, |a| self.set_cu_mask(call.pid, a)),
            _ => Err(libc::EINVAL),
        };
        self.answers.push((call.unique, answer));
    }

    fn process(&mut self, pid: i32) -> Answer<&mut Process> {
        self.processes.get_mut(&pid).ok_or(libc::EBADF)
    }

    fn known_gpu(&self, gpu_id: u32) -> Answer<()> {
        self.gpu_index(gpu_id).map(|_| ()).ok_or(libc::EINVAL)
    }

    fn apertures(&self, pid: i32, a: &mut kfd::GetProcessAperturesNew) -> Answer<()> {
        let capacity = a.num_of_nodes as usize;
        a.num_of_nodes = self.gpus.len() as u32;
        if capacity == 0 {
            return Ok(());
        }
        a.num_of_nodes = a.num_of_nodes.min(capacity as u32);
        let entries = self.gpus.iter().take(capacity).map(|gpu| kfd::ProcessDeviceApertures {
            lds_base: 0x1_0000_0000_0000,
            lds_limit: 0x1_0000_ffff_ffff,
            scratch_base: 0x2_0000_0000_0000,
            scratch_limit: 0x2_0000_ffff_ffff,
            gpuvm_base: 0x4000,
            gpuvm_limit: GPUVM_LIMIT,
            gpu_id: gpu.config.gpu_id,
            pad: 0,
        });
        let bytes: Vec<u8> = entries.flat_map(|entry| entry.as_bytes().to_vec()).collect();
        client::write(pid, a.apertures_ptr, &bytes).map_err(|_| libc::EFAULT)
    }

    fn alloc(&mut self, pid: i32, a: &mut kfd::AllocMemoryOfGpu) -> Answer<()> {
        let gpu = self.gpu_index(a.gpu_id).ok_or(libc::EINVAL)?;
        if a.size == 0
            || a.va_addr == 0
            || a.va_addr.checked_add(a.size).is_none_or(|end| end - 1 > GPUVM_LIMIT)
        {
            return Err(libc::EINVAL);
        }
        let doorbell = doorbell_offset(self.process(pid)?.doorbell, gpu);
        let size = a.size.div_ceil(crate::arena::PAGE) * crate::arena::PAGE;
        let vram = a.flags & kfd::ALLOC_VRAM != 0;
        let (backing, offset) = if a.flags & kfd::ALLOC_DOORBELL != 0 {
            a.mmap_offset = doorbell;
            (Backing::Device, None)
        } else if a.flags & kfd::ALLOC_MMIO_REMAP != 0 {
            a.mmap_offset = MMIO_OFFSET;
            (Backing::Device, None)
        } else if a.flags & kfd::ALLOC_USERPTR != 0 {
            (Backing::Client(a.mmap_offset), None)
        } else if vram || a.flags & kfd::ALLOC_GTT != 0 {
            let config = &self.gpus[gpu].config;
            let (used, limit) =
                if vram { (self.gpus[gpu].used, config.vram) } else { (self.host_used, self.host_limit) };
            if size > limit - used {
                return Err(libc::ENOMEM);
            }
            let offset = self.arena.alloc(size).ok_or(libc::ENOMEM)?;
            a.mmap_offset = offset;
            (Backing::Arena(offset), Some(offset))
        } else {
            return Err(libc::EINVAL);
        };
        let allocation = Allocation { gpu, va: a.va_addr, size, offset, vram };
        let process = self.process(pid)?;
        if !process.space.insert(a.va_addr, Range { len: a.size, backing, gpus: 0 }) {
            if let Some(offset) = offset {
                self.arena.free(offset, size);
            }
            return Err(libc::EINVAL);
        }
        a.handle = process.next_handle;
        process.next_handle += 1;
        process.allocations.insert(a.handle, allocation);
        match offset {
            Some(_) if vram => self.gpus[gpu].used += size,
            Some(_) => self.host_used += size,
            None => {}
        }
        Ok(())
    }

    fn free(&mut self, pid: i32, a: &mut kfd::FreeMemoryOfGpu) -> Answer<()> {
        let process = self.process(pid)?;
        let allocation = process.allocations.remove(&a.handle).ok_or(libc::EINVAL)?;
        process.space.remove(allocation.va);
        // A code object may have lain there, and another may follow at the same address.
        let range = allocation.va..allocation.va + allocation.size;
        process.kernels.retain(|object, _| !range.contains(object));
        self.release(&allocation);
        Ok(())
    }

    /// The range of an allocation, and the GPUs that a map or unmap names from `done` on.
    fn targets(&mut self, pid: i32, handle: u64, ids_at: u64, count: u32, done: u32) -> Answer<(u64, u32)> {
        let va = self.process(pid)?.allocations.get(&handle).ok_or(libc::EINVAL)?.va;
        if count == 0 || u64::from(count) > MAX_GPUS || done > count {
            return Err(libc::EINVAL);
        }
        let mut bytes = vec![0; 4 * count as usize];
        client::read(pid, ids_at, &mut bytes).map_err(|_| libc::EFAULT)?;
        let mut gpus = 0;
        for id in bytes.chunks_exact(4).skip(done as usize) {
            let id = u32::from_le_bytes([id[0], id[1], id[2], id[3]]);
            gpus |= 1 << self.gpu_index(id).ok_or(libc::EINVAL)?;
        }
        Ok((va, gpus))
    }

    fn map(&mut self, pid: i32, a: &mut kfd::MapMemoryToGpu) -> Answer<()> {
        let (va, gpus) = self.targets(pid, a.handle, a.device_ids_array_ptr, a.n_devices, a.n_success)?;
        self.process(pid)?.space.get_mut(va).ok_or(libc::EINVAL)?.gpus |= gpus;
        a.n_success = a.n_devices;
        Ok(())
    }

    fn unmap(&mut self, pid: i32, a: &mut kfd::UnmapMemoryFromGpu) -> Answer<()> {
        let (va, gpus) = self.targets(pid, a.handle, a.device_ids_array_ptr, a.n_devices, a.n_success)?;
        self.process(pid)?.space.get_mut(va).ok_or(libc::EINVAL)?.gpus &= !gpus;
        a.n_success = a.n_devices;
        Ok(())
    }

    fn create_event(&mut self, pid: i32, a: &mut kfd::CreateEvent) -> Answer<()> {
        let id = self.process(pid)?.events.create(a.event_type, a.auto_reset != 0).ok_or(libc::ENOSPC)?;
        (a.event_id, a.event_trigger_data, a.event_slot_index) = (id, id, id % kfd::SIGNAL_EVENT_LIMIT);
        // Without an event page the runtime never asks for a completion interrupt. A discrete GPU's caller brings its
        // own page and only looks whether this is non-zero.
        a.event_page_offset = 1 << 62;
        Ok(())
    }

    fn wait_events(&mut self, call: &Call<'_>) -> Answer<()> {
        let arguments = kfd::WaitEvents::from_bytes(call.argument);
        if arguments.num_events > MAX_WAIT {
            return Err(libc::EINVAL);
        }
        let size = size_of::<kfd::EventData>();
        let mut bytes = vec![0; size * arguments.num_events as usize];
        client::read(call.pid, arguments.events_ptr, &mut bytes).map_err(|_| libc::EFAULT)?;
        self.wait(call, arguments, bytes.chunks_exact(size).map(kfd::EventData::from_bytes))?;
        self.wake(call.now);
        Ok(())
    }

    fn create_queue(&mut self, pid: i32, a: &mut kfd::CreateQueue) -> Answer<()> {
        if a.queue_percentage & 0xff > kfd::MAX_QUEUE_PERCENTAGE || a.queue_priority > kfd::MAX_QUEUE_PRIORITY
        {
            return Err(libc::EINVAL);
        }
        if a.ring_size != 0 && !a.ring_size.is_power_of_two() {
            return Err(libc::EINVAL);
        }
        let gpu = self.gpu_index(a.gpu_id).ok_or(libc::EINVAL)?;
        let kind = match a.queue_type {
            kfd::QUEUE_TYPE_COMPUTE_AQL => Kind::Aql,
            kfd::QUEUE_TYPE_SDMA | kfd::QUEUE_TYPE_SDMA_XGMI => Kind::Sdma,
            // PM4 rings are not simulated; nothing that HIP does creates one.
            _ => return Err(libc::EINVAL),
        };
        let process = self.process(pid)?;
        if process.queues.len() >= MAX_QUEUES {
            return Err(libc::ENOMEM);
        }
        if process.space.find(a.ring_base_address).is_none() {
            return Err(libc::EFAULT);
        }
        let id = process.free_queue_id();
        let size = a.ring_size.max(kfd::MIN_RING_SIZE);
        let (write, read) = (a.write_pointer_address, a.read_pointer_address);
        let mut queue = Queue::new(gpu, kind, a.ring_base_address, size, write, read);
        (queue.percentage, queue.priority) = (a.queue_percentage, a.queue_priority);
        a.queue_id = id;
        a.doorbell_offset = doorbell_offset(process.doorbell, gpu) + u64::from(id) * 8;
        process.queues.insert(id, queue);
        Ok(())
    }

    fn update_queue(&mut self, pid: i32, now: Time, a: &mut kfd::UpdateQueue) -> Answer<()> {
        if a.queue_percentage & 0xff > kfd::MAX_QUEUE_PERCENTAGE || a.queue_priority > kfd::MAX_QUEUE_PRIORITY
        {
            return Err(libc::EINVAL);
        }
        if a.ring_size != 0 && !a.ring_size.is_power_of_two() {
            return Err(libc::EINVAL);
        }
        let key = QueueKey { pid, id: a.queue_id };
        self.catch_up(now);
        let process = self.process(pid)?;
        let mapped = a.ring_base_address == 0 || process.space.find(a.ring_base_address).is_some();
        let queue = process.queues.get_mut(&a.queue_id).filter(|_| mapped).ok_or(libc::EFAULT)?;
        let was = queue.active();
        queue.ring = a.ring_base_address;
        queue.size = a.ring_size.max(kfd::MIN_RING_SIZE);
        (queue.percentage, queue.priority) = (a.queue_percentage, a.queue_priority);
        let (gpu, is) = (queue.gpu, queue.active());
        let mut progress = Vec::new();
        match (was, is) {
            (true, false) => self.gpus[gpu].model.hold(now, key, &mut progress),
            (false, true) => {
                // Packets that arrived meanwhile begin now, not when they came.
                queue.ready_at = queue.ready_at.max(now);
                self.gpus[gpu].model.resume(now, key, &mut progress);
            }
            _ => {}
        }
        self.account_busy(gpu, now);
        self.apply(now, progress);
        Ok(())
    }

    /// Masks are checked as the driver does and otherwise have no effect on the model.
    fn set_cu_mask(&mut self, pid: i32, a: &mut kfd::SetCuMask) -> Answer<()> {
        if a.num_cu_mask == 0 || !a.num_cu_mask.is_multiple_of(32) {
            return Err(libc::EINVAL);
        }
        self.process(pid)?.queues.get(&a.queue_id).map(|_| ()).ok_or(libc::EFAULT)
    }
}

/// Offset in the KFD file of a process's doorbells on a GPU.
fn doorbell_offset(process: u64, gpu: usize) -> u64 {
    (process * MAX_GPUS + gpu as u64) * DOORBELLS
}

fn found(done: bool) -> Answer<()> {
    if done { Ok(()) } else { Err(libc::EINVAL) }
}

/// Decodes the argument, executes, and encodes what goes back.
fn run<A: Ioctl>(call: &Call<'_>, execute: impl FnOnce(&mut A) -> Answer<()>) -> Answer<Vec<u8>> {
    let mut argument = A::from_bytes(call.argument);
    execute(&mut argument)?;
    let mut out = argument.as_bytes().to_vec();
    // A caller of another ABI version takes back as much as it passed.
    out.resize(call.out_size, 0);
    Ok(out)
}
