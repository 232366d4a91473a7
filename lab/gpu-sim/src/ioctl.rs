//! The KFD's ioctls as the kernel driver executes them, error codes included.
//!
//! Facts and error codes: Linux 6.12 `kfd_chardev.c`, `kfd_process_queue_manager.c`, `kfd_events.c`. Requests that the
//! tested runtimes do not need fail with EINVAL, as a driver that does not know them would answer. What is about
//! queues is in `driver/`.

use hip_sys::kfd::{self, Ioctl, Plain};

use crate::device::Time;
use crate::driver::Failure;
use crate::fuse::{FILE_SIZE, Reply, Unique};
use crate::machine::{Allocation, Machine, Process};
use crate::space::{Backing, Range, client};

/// Distance between the doorbells of two processes or GPUs in the KFD file. The thunk of ROCr 5.2.3 takes the whole
/// lower half of the first offset for the place within the page (`queues.c`: it masks with a size that is still 0).
const DOORBELLS: u64 = 1 << 32;
/// GPUs of one machine at most; each process has doorbells on all of them.
pub const MAX_GPUS: u64 = 8;
/// Offset of the register page in the KFD file.
const MMIO_OFFSET: u64 = FILE_SIZE / 2;
/// Elements of a wait at most; ROCr waits for a few hundred.
const MAX_WAIT: u32 = 2 * kfd::SIGNAL_EVENT_LIMIT;
/// The interface's version. What Linux 6.12 (1.17) does with queues and events is done here, but mappings by the render node's
/// GEM_VA request (1.15) are not, and ROCr takes 1.15 for a promise of virtual memory management (`CheckVirtualMemApiSupport`).
const VERSION: (u32, u32) = (1, 14);
/// Highest GPU virtual address: 47 bits, so that GPU and CPU addresses are the same.
const GPUVM_LIMIT: u64 = (1 << 47) - 1;

/// A call as it came in.
#[derive(Debug)]
pub struct Call<'a> {
    /// Its request.
    pub unique: Unique,
    /// The calling process.
    pub pid: i32,
    /// The calling thread.
    pub tid: i32,
    /// The ioctl command.
    pub command: u32,
    /// The argument's bytes.
    pub argument: &'a [u8],
    /// Bytes the caller takes back.
    pub out_size: usize,
    /// When it came.
    pub now: Time,
}

/// A call that waits for a lock of the driver's.
#[derive(Debug)]
pub struct OwnedCall {
    /// Its request.
    pub unique: Unique,
    pid: i32,
    tid: i32,
    command: u32,
    argument: Vec<u8>,
    out_size: usize,
}

impl OwnedCall {
    /// A copy of the call, to be executed later.
    pub fn of(call: &Call<'_>) -> Self {
        let Call { unique, pid, tid, command, argument, out_size, .. } = *call;
        Self { unique, pid, tid, command, argument: argument.to_vec(), out_size }
    }

    /// The call, at `now`.
    pub fn call(&self, now: Time) -> Call<'_> {
        let Self { unique, pid, tid, command, out_size, .. } = *self;
        Call { unique, pid, tid, command, argument: &self.argument, out_size, now }
    }
}

/// A result, or the errno of the failure.
pub type Answer<T> = Result<T, i32>;

/// The process whose lock (`kfd_process.mutex`) a call takes.
fn domain(nr: u8, call: &Call<'_>) -> Option<i32> {
    match nr {
        kfd::GetVersion::NR
        | kfd::GetClockCounters::NR
        | kfd::GetTileConfig::NR
        | kfd::CreateEvent::NR
        | kfd::DestroyEvent::NR
        | kfd::SetEvent::NR
        | kfd::ResetEvent::NR
        | kfd::WaitEvents::NR => None,
        kfd::debug::DbgTrap::NR => Some(Machine::target(call)),
        _ => Some(call.pid),
    }
}

impl Machine {
    /// Executes a call; the answer is left in `answers`, now or when a wait ends.
    pub fn ioctl(&mut self, call: &Call<'_>) {
        let Some(nr) = kfd::request_number(call.command) else {
            self.answers.push((call.unique, Err(libc::ENOTTY)));
            return;
        };
        let name = kfd::request_name(nr).map_or_else(|| format!("unknown_{nr:#04x}"), str::to_owned);
        *self.stats.ioctls.entry(name).or_insert(0) += 1;
        if let Some(pid) = domain(nr, call)
            && let Some(process) = self.processes.get_mut(&pid)
            && process.locked
        {
            self.uninterruptible.insert(call.unique);
            process.parked.push_back(OwnedCall::of(call));
            return;
        }
        // A change made now must find the device as it is now.
        if self.changes_queues(nr) {
            self.catch_up(call.now);
        }
        self.execute(call);
    }

    fn changes_queues(&self, nr: u8) -> bool {
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

    /// Executes a call that has the lock that it needs.
    pub fn execute(&mut self, call: &Call<'_>) {
        let Some(nr) = kfd::request_number(call.command) else { return };
        let failure = self.faults.as_mut().and_then(|faults| faults.strike(call.pid, nr));
        if let Some(Failure { errno, after: false }) = failure {
            if nr == kfd::UpdateQueue::NR {
                self.keep_values(call.pid, &kfd::UpdateQueue::from_bytes(call.argument));
            }
            self.answers.push((call.unique, Err(errno)));
            return;
        }
        // These answer by themselves, now or later, unless they fail at once.
        let argument = call.argument;
        let later = match nr {
            kfd::WaitEvents::NR => Some(self.wait_events(call)),
            kfd::CreateQueue::NR => Some(self.create_queue(call, kfd::CreateQueue::from_bytes(argument))),
            kfd::DestroyQueue::NR => Some(self.destroy_queue(call, kfd::DestroyQueue::from_bytes(argument))),
            kfd::UpdateQueue::NR => {
                let errno = failure.map(|failure| failure.errno);
                Some(self.update_queue(call, kfd::UpdateQueue::from_bytes(argument), errno))
            }
            kfd::SetCuMask::NR => Some(self.set_cu_mask(call, kfd::SetCuMask::from_bytes(argument))),
            kfd::GetQueueWaveState::NR => {
                Some(self.wave_state(call, kfd::GetQueueWaveState::from_bytes(argument)))
            }
            kfd::debug::RuntimeEnable::NR => {
                Some(self.runtime_enable(call, kfd::debug::RuntimeEnable::from_bytes(argument)))
            }
            kfd::debug::DbgTrap::NR => Some(self.debug_trap(call, kfd::debug::DbgTrap::from_bytes(argument))),
            _ => None,
        };
        match later {
            Some(Ok(())) => {}
            Some(Err(errno)) => self.answers.push((call.unique, Err(errno))),
            None => {
                let answer = self.at_once(nr, call);
                self.answers.push((call.unique, answer));
            }
        }
    }

    /// Answers a call.
    pub fn answer(&mut self, call: &Call<'_>, reply: Reply) -> Answer<()> {
        self.answers.push((call.unique, Ok(reply)));
        Ok(())
    }

    fn at_once(&mut self, nr: u8, call: &Call<'_>) -> Answer<Reply> {
        match nr {
            kfd::GetVersion::NR => run(call, |a: &mut kfd::GetVersion| {
                (a.major, a.minor) = VERSION;
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
            kfd::IpcExportHandle::NR => run(call, |a| self.export(call.pid, a)),
            kfd::IpcImportHandle::NR => run(call, |a| self.import(call.pid, a)),
            kfd::ExportDmabuf::NR | kfd::ImportDmabuf::NR | kfd::GetDmabufInfo::NR => {
                self.not_simulated(call.pid, "memory shared as a dma-buf");
                Err(libc::EINVAL)
            }
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
            kfd::AllocQueueGws::NR => run(call, |a: &mut kfd::AllocQueueGws| {
                // Cooperative launches ask for it. Nothing that is simulated uses the counters.
                a.first_gws = 0;
                found(self.process(call.pid)?.queues.contains_key(&a.queue_id))
            }),
            _ => Err(libc::EINVAL),
        }
    }

    /// The process, if it has opened the device.
    pub fn process(&mut self, pid: i32) -> Answer<&mut Process> {
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
        let entries = self.gpus.iter().take(capacity).map(|gpu| apertures(gpu.config.gpu_id));
        let bytes: Vec<u8> = entries.flat_map(|entry| entry.as_bytes().to_vec()).collect();
        client::write(pid, a.apertures_ptr, &bytes).map_err(|_| libc::EFAULT)
    }

    fn alloc(&mut self, pid: i32, a: &mut kfd::AllocMemoryOfGpu) -> Answer<()> {
        let gpu = self.gpu_index(a.gpu_id).ok_or(libc::EINVAL)?;
        if !is_mappable(a.va_addr, a.size) {
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
            client::check_mapped(pid, a.mmap_offset, size, a.flags & kfd::ALLOC_WRITABLE != 0)?;
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

    /// Gives memory a name by which other processes get it (`kfd_ipc_export_as_handle` of AMD's packaged driver).
    fn export(&mut self, pid: i32, a: &mut kfd::IpcExportHandle) -> Answer<()> {
        let gpu = self.gpu_index(a.gpu_id).ok_or(libc::EINVAL)?;
        let process = self.process(pid)?;
        let allocation = *process.allocations.get(&a.handle).ok_or(libc::EINVAL)?;
        if allocation.gpu != gpu {
            return Err(libc::EINVAL);
        }
        let Some(offset) = allocation.offset else {
            // Memory of the process itself (userptr) and doorbells are no buffers of the driver's.
            let client = matches!(
                process.space.find(allocation.va),
                Some((_, Range { backing: Backing::Client(_), .. }))
            );
            return Err(if client { libc::EPERM } else { libc::EINVAL });
        };
        a.share_handle = self.shared.export(offset, allocation, a.flags).ok_or(libc::ENOMEM)?;
        Ok(())
    }

    /// Gives a process memory of another one (`kfd_ipc_import_handle` there).
    fn import(&mut self, pid: i32, a: &mut kfd::IpcImportHandle) -> Answer<()> {
        let gpu = self.gpu_index(a.gpu_id).ok_or(libc::EINVAL)?;
        let (offset, memory, flags) = self.shared.find(a.share_handle).ok_or(libc::EINVAL)?;
        if memory.gpu != gpu || !is_mappable(a.va_addr, memory.size) {
            return Err(libc::EINVAL);
        }
        let process = self.process(pid)?;
        if !process
            .space
            .insert(a.va_addr, Range { len: memory.size, backing: Backing::Arena(offset), gpus: 0 })
        {
            return Err(libc::EINVAL);
        }
        (a.handle, a.mmap_offset, a.flags) = (process.next_handle, offset, flags);
        process.next_handle += 1;
        process.allocations.insert(a.handle, Allocation { va: a.va_addr, ..memory });
        self.shared.add_user(offset);
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
}

/// Where a GPU sees what.
pub fn apertures(gpu_id: u32) -> kfd::ProcessDeviceApertures {
    kfd::ProcessDeviceApertures {
        lds_base: 0x1_0000_0000_0000,
        lds_limit: 0x1_0000_ffff_ffff,
        scratch_base: 0x2_0000_0000_0000,
        scratch_limit: 0x2_0000_ffff_ffff,
        gpuvm_base: 0x4000,
        gpuvm_limit: GPUVM_LIMIT,
        gpu_id,
        pad: 0,
    }
}

/// Offset in the KFD file of a process's doorbells on a GPU.
pub fn doorbell_offset(process: u64, gpu: usize) -> u64 {
    (process * MAX_GPUS + gpu as u64) * DOORBELLS
}

/// Whether a range of GPU virtual addresses can be had at all.
fn is_mappable(va: u64, size: u64) -> bool {
    size > 0 && va > 0 && va.checked_add(size).is_some_and(|end| end - 1 <= GPUVM_LIMIT)
}

fn found(done: bool) -> Answer<()> {
    if done { Ok(()) } else { Err(libc::EINVAL) }
}

/// What goes back to the caller: as much as it passed, whatever ABI version it was built for.
pub fn reply<A: Plain>(argument: &A, out_size: usize) -> Reply {
    let mut out = argument.as_bytes().to_vec();
    out.resize(out_size, 0);
    Reply { result: 0, out }
}

/// Decodes the argument, executes, and encodes what goes back.
fn run<A: Ioctl>(call: &Call<'_>, execute: impl FnOnce(&mut A) -> Answer<()>) -> Answer<Reply> {
    let mut argument = A::from_bytes(call.argument);
    execute(&mut argument)?;
    Ok(reply(&argument, call.out_size))
}
