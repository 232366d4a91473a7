//! The KFD's ioctl interface: argument structures, numbers and constants of `/dev/kfd`.
//!
//! Layouts follow Linux's `include/uapi/linux/kfd_ioctl.h` (ABI 1.17); fields marked *in* are read by the
//! driver, *out* written by it. Number, direction and structure are tied together by [`Ioctl`], and sizes are
//! asserted at compile time. The driver dispatches on the number alone and zero-fills shorter structures of
//! older callers, so a size in a request may differ from the one here (`kfd_chardev.c`, `kfd_ioctl`).

pub mod debug;

use core::mem::size_of;

use debug::{DbgTrap, RuntimeEnable};

/// The ioctl type byte of every KFD request. The console uses the same byte, so it never identifies a KFD
/// alone.
pub const TYPE: u8 = b'K';

/// A structure that crosses the KFD boundary: plain integers, no padding that matters, any bit pattern valid.
///
/// # Safety
/// The type must be `repr(C)`, contain only integers (and arrays or structures of such), and have no padding
/// bytes.
pub unsafe trait Plain: Copy + Default {
    /// Reads the structure from the front of `bytes`; missing bytes are zero, as the driver treats them.
    fn from_bytes(bytes: &[u8]) -> Self {
        let mut value = Self::default();
        let len = bytes.len().min(size_of::<Self>());
        // SAFETY: `len` is within both; the trait promises that any bit pattern is a valid value.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut value).cast::<u8>(), len) };
        value
    }

    /// The structure's bytes.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: the trait promises no padding, so every byte of the value is initialised.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast::<u8>(), size_of::<Self>()) }
    }
}

/// Ties an argument structure to its request.
pub trait Ioctl: Plain {
    /// The request number (the low byte of the ioctl command).
    const NR: u8;
    /// True if the driver reads the structure.
    const READS: bool;
    /// True if the driver writes the structure back.
    const WRITES: bool;
    /// The kernel's name without `AMDKFD_IOC_`, in lower case.
    const NAME: &'static str;
    /// The whole ioctl command, as user space passes it.
    const COMMAND: u32 = ((Self::WRITES as u32) << 31)
        | ((Self::READS as u32) << 30)
        | ((size_of::<Self>() as u32) << 16)
        | ((TYPE as u32) << 8)
        | Self::NR as u32;
}

/// The request by which a descriptor stands for a further context (ABI 1.19). It has no argument.
pub const CREATE_PROCESS: u8 = 0x27;

/// The request number of an ioctl command if its type byte is the KFD's.
pub const fn request_number(command: u32) -> Option<u8> {
    if (command >> 8) as u8 == TYPE { Some(command as u8) } else { None }
}

/// Types of which every pattern of bits is a value: integers, and arrays and structures of them.
///
/// # Safety
/// That is true of the type.
pub unsafe trait AnyBits {}

macro_rules! integers {
    ($($type:ty)*) => {$(
        // SAFETY: an integer.
        unsafe impl AnyBits for $type {}
    )*};
}

integers! { u8 u16 u32 u64 i8 i16 i32 i64 }

// SAFETY: the elements are such types, and an array has no padding between them.
unsafe impl<T: AnyBits, const N: usize> AnyBits for [T; N] {}

#[doc(hidden)]
pub const fn any_bits<T: AnyBits>() {}

/// Structures of a kernel interface: C layout, integers, the kernel's size, no padding.
#[macro_export]
macro_rules! plain {
    ($($(#[$meta:meta])* $name:ident = $size:literal { $($(#[$fmeta:meta])* $field:ident : $ty:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty),* }
        const _: () = assert!(core::mem::size_of::<$name>() == $size);
        const _: () = assert!(0 $(+ core::mem::size_of::<$ty>())* == $size, "padding");
        const _: () = { $($crate::kfd::any_bits::<$ty>();)* };
        // SAFETY: repr(C), and the assertion above admits only fields of such types.
        unsafe impl $crate::kfd::AnyBits for $name {}
        // SAFETY: repr(C), integers only, and the assertions above rule out padding and other fields.
        unsafe impl $crate::kfd::Plain for $name {}
    )*};
}

use plain;

macro_rules! ioctls {
    ($($name:ident: $label:literal, $nr:literal, $dir:ident;)*) => {
        $(impl Ioctl for $name {
            const NR: u8 = $nr;
            const READS: bool = ioctls!(@reads $dir);
            const WRITES: bool = ioctls!(@writes $dir);
            const NAME: &'static str = $label;
        })*
        /// The kernel's name of a request (without `AMDKFD_IOC_`, in lower case), or `None` if unknown here.
        pub const fn request_name(nr: u8) -> Option<&'static str> {
            match nr { $($nr => Some($label),)* _ => None }
        }
    };
    (@reads R) => { false }; (@reads W) => { true }; (@reads RW) => { true };
    (@writes R) => { true }; (@writes W) => { false }; (@writes RW) => { true };
}

plain! {
    /// `GET_VERSION`.
    GetVersion = 8 { #[doc = "Out."] major: u32, #[doc = "Out."] minor: u32 }
    /// `CREATE_QUEUE`. Callers before ABI 1.17 pass 88 bytes (no `sdma_engine_id`).
    CreateQueue = 96 {
        #[doc = "In: virtual address of the ring."] ring_base_address: u64,
        #[doc = "In: virtual address of the 64-bit write index."] write_pointer_address: u64,
        #[doc = "In: virtual address of the 64-bit read index."] read_pointer_address: u64,
        #[doc = "Out: mmap offset of the process's doorbell page plus the doorbell's offset in it."] doorbell_offset: u64,
        #[doc = "In: bytes, a power of two."] ring_size: u32,
        #[doc = "In."] gpu_id: u32,
        #[doc = "In: one of the `QUEUE_TYPE_` constants."] queue_type: u32,
        #[doc = "In: 0..=100 in bits 0–7; bits 8–15 are the PM4 target XCC."] queue_percentage: u32,
        #[doc = "In: 0..=15."] queue_priority: u32,
        #[doc = "Out: unique within the process."] queue_id: u32,
        #[doc = "In."] eop_buffer_address: u64,
        #[doc = "In: bytes."] eop_buffer_size: u64,
        #[doc = "In."] ctx_save_restore_address: u64,
        #[doc = "In: bytes."] ctx_save_restore_size: u32,
        #[doc = "In: bytes."] ctl_stack_size: u32,
        #[doc = "In, from ABI 1.17."] sdma_engine_id: u32,
        #[doc = "Unused."] pad: u32,
    }
    /// `DESTROY_QUEUE`.
    DestroyQueue = 8 { #[doc = "In."] queue_id: u32, #[doc = "Unused."] pad: u32 }
    /// `SET_MEMORY_POLICY`.
    SetMemoryPolicy = 32 {
        #[doc = "In."] alternate_aperture_base: u64, #[doc = "In: bytes."] alternate_aperture_size: u64,
        #[doc = "In."] gpu_id: u32, #[doc = "In."] default_policy: u32, #[doc = "In."] alternate_policy: u32,
        #[doc = "Unused."] pad: u32,
    }
    /// `GET_CLOCK_COUNTERS`. Signal timestamps are in the unit of `gpu_clock_counter`.
    GetClockCounters = 40 {
        #[doc = "Out."] gpu_clock_counter: u64, #[doc = "Out: nanoseconds."] cpu_clock_counter: u64,
        #[doc = "Out."] system_clock_counter: u64, #[doc = "Out: hertz."] system_clock_freq: u64,
        #[doc = "In."] gpu_id: u32, #[doc = "Unused."] pad: u32,
    }
    /// `UPDATE_QUEUE`: rewrites all of base, size, percentage and priority.
    UpdateQueue = 24 {
        #[doc = "In."] ring_base_address: u64, #[doc = "In."] queue_id: u32, #[doc = "In: bytes."] ring_size: u32,
        #[doc = "In: bits 0–7 0..=100, where 0 takes the queue off the hardware."] queue_percentage: u32,
        #[doc = "In: 0..=15."] queue_priority: u32,
    }
    /// `CREATE_EVENT`.
    CreateEvent = 32 {
        #[doc = "In: on a dGPU the handle of the event page the first time. Out: non-zero."] event_page_offset: u64,
        #[doc = "Out."] event_trigger_data: u32, #[doc = "In: one of the `EVENT_` constants."] event_type: u32,
        #[doc = "In: non-zero for an event that resets when a wait returns."] auto_reset: u32, #[doc = "In."] node_id: u32,
        #[doc = "Out."] event_id: u32, #[doc = "Out: slot in the event page."] event_slot_index: u32,
    }
    /// `DESTROY_EVENT`.
    DestroyEvent = 8 { #[doc = "In."] event_id: u32, #[doc = "Unused."] pad: u32 }
    /// `SET_EVENT`.
    SetEvent = 8 { #[doc = "In."] event_id: u32, #[doc = "Unused."] pad: u32 }
    /// `RESET_EVENT`.
    ResetEvent = 8 { #[doc = "In."] event_id: u32, #[doc = "Unused."] pad: u32 }
    /// `WAIT_EVENTS`.
    WaitEvents = 24 {
        #[doc = "In: address of an array of [`EventData`]."] events_ptr: u64, #[doc = "In."] num_events: u32,
        #[doc = "In: non-zero to wait for all."] wait_for_all: u32,
        #[doc = "In: milliseconds; 0 polls, `u32::MAX` waits for ever."] timeout: u32,
        #[doc = "Out: one of the `WAIT_RESULT_` constants."] wait_result: u32,
    }
    /// One element of `WAIT_EVENTS`' array. The first 32 bytes are a union: a memory exception, a hardware
    /// exception, or (signal events, ABI 1.14) the event's age in the first 8 bytes.
    EventData = 48 {
        #[doc = "Out: `[0]` not present, `[1]` read only, `[2]` no execute, `[3]` imprecise; or the age (in and out) in `[0]`, `[1]`."]
        failure: [u32; 4],
        #[doc = "Out: faulting virtual address."] va: u64, #[doc = "Out."] gpu_id: u32, #[doc = "Out."] error_type: u32,
        #[doc = "In: extension pointer, unused."] kfd_event_data_ext: u64, #[doc = "In."] event_id: u32,
        #[doc = "Unused."] pad: u32,
    }
    /// `SET_SCRATCH_BACKING_VA`.
    SetScratchBackingVa = 16 { #[doc = "In."] va_addr: u64, #[doc = "In."] gpu_id: u32, #[doc = "Unused."] pad: u32 }
    /// `GET_TILE_CONFIG`.
    GetTileConfig = 40 {
        #[doc = "In: address of a `u32` array."] tile_config_ptr: u64,
        #[doc = "In: address of a `u32` array."] macro_tile_config_ptr: u64,
        #[doc = "In and out: elements."] num_tile_configs: u32, #[doc = "In and out: elements."] num_macro_tile_configs: u32,
        #[doc = "In."] gpu_id: u32, #[doc = "Out."] gb_addr_config: u32, #[doc = "Out."] num_banks: u32,
        #[doc = "Out."] num_ranks: u32,
    }
    /// `SET_TRAP_HANDLER`.
    SetTrapHandler = 24 {
        #[doc = "In."] tba_addr: u64, #[doc = "In."] tma_addr: u64, #[doc = "In."] gpu_id: u32, #[doc = "Unused."] pad: u32,
    }
    /// `GET_PROCESS_APERTURES_NEW`.
    GetProcessAperturesNew = 16 {
        #[doc = "In: address of an array of [`ProcessDeviceApertures`]."] apertures_ptr: u64,
        #[doc = "In: capacity; out: entries filled, or the number needed if the capacity is 0."] num_of_nodes: u32,
        #[doc = "Unused."] pad: u32,
    }
    /// One element of `GET_PROCESS_APERTURES_NEW`'s array: limits are inclusive.
    ProcessDeviceApertures = 56 {
        #[doc = "Out."] lds_base: u64, #[doc = "Out."] lds_limit: u64, #[doc = "Out."] scratch_base: u64,
        #[doc = "Out."] scratch_limit: u64, #[doc = "Out."] gpuvm_base: u64, #[doc = "Out."] gpuvm_limit: u64,
        #[doc = "Out."] gpu_id: u32, #[doc = "Unused."] pad: u32,
    }
    /// `ACQUIRE_VM`.
    AcquireVm = 8 { #[doc = "In."] drm_fd: u32, #[doc = "In."] gpu_id: u32 }
    /// `ALLOC_MEMORY_OF_GPU`.
    AllocMemoryOfGpu = 40 {
        #[doc = "In: GPU virtual address."] va_addr: u64, #[doc = "In: bytes."] size: u64, #[doc = "Out."] handle: u64,
        #[doc = "In: CPU address of a userptr; out: offset to mmap."] mmap_offset: u64, #[doc = "In."] gpu_id: u32,
        #[doc = "In: `ALLOC_` bits."] flags: u32,
    }
    /// `FREE_MEMORY_OF_GPU`.
    FreeMemoryOfGpu = 8 { #[doc = "In."] handle: u64 }
    /// `MAP_MEMORY_TO_GPU`.
    MapMemoryToGpu = 24 {
        #[doc = "In."] handle: u64, #[doc = "In: address of a `u32` array of GPU ids."] device_ids_array_ptr: u64,
        #[doc = "In."] n_devices: u32, #[doc = "In and out: devices done."] n_success: u32,
    }
    /// `UNMAP_MEMORY_FROM_GPU`.
    UnmapMemoryFromGpu = 24 {
        #[doc = "In."] handle: u64, #[doc = "In: address of a `u32` array of GPU ids."] device_ids_array_ptr: u64,
        #[doc = "In."] n_devices: u32, #[doc = "In and out: devices done."] n_success: u32,
    }
    /// `SET_CU_MASK`.
    SetCuMask = 16 {
        #[doc = "In."] queue_id: u32, #[doc = "In: bits, a multiple of 32."] num_cu_mask: u32, #[doc = "In: address."] cu_mask_ptr: u64,
    }
    /// `GET_QUEUE_WAVE_STATE`: what a queue that is off the hardware has saved (needs CWSR).
    GetQueueWaveState = 24 {
        #[doc = "In: address of the queue's save area."] ctl_stack_address: u64, #[doc = "Out: bytes."] ctl_stack_used_size: u32,
        #[doc = "Out: bytes."] save_area_used_size: u32, #[doc = "In."] queue_id: u32, #[doc = "Unused."] pad: u32,
    }
    /// `ALLOC_QUEUE_GWS`.
    AllocQueueGws = 16 {
        #[doc = "In."] queue_id: u32, #[doc = "In: 0 gives them back."] num_gws: u32, #[doc = "Out."] first_gws: u32,
        #[doc = "Unused."] pad: u32,
    }
    /// `SET_XNACK_MODE`.
    SetXnackMode = 4 { #[doc = "In and out: negative asks, 0 off, 1 on."] xnack_enabled: i32 }
    /// `GET_DMABUF_INFO`.
    GetDmabufInfo = 32 {
        #[doc = "Out: bytes."] size: u64, #[doc = "In."] metadata_ptr: u64, #[doc = "In and out: bytes."] metadata_size: u32,
        #[doc = "Out."] gpu_id: u32, #[doc = "Out: `ALLOC_` bits."] flags: u32, #[doc = "In."] dmabuf_fd: u32,
    }
    /// `IMPORT_DMABUF`.
    ImportDmabuf = 24 {
        #[doc = "In: GPU virtual address."] va_addr: u64, #[doc = "Out."] handle: u64, #[doc = "In."] gpu_id: u32,
        #[doc = "In."] dmabuf_fd: u32,
    }
    /// `EXPORT_DMABUF`.
    ExportDmabuf = 16 { #[doc = "In."] handle: u64, #[doc = "In."] flags: u32, #[doc = "Out."] dmabuf_fd: u32 }
    /// `IPC_IMPORT_HANDLE` of AMD's packaged driver (amdgpu-dkms); Linux has it not. Layout: the thunk's
    /// `kfd_ioctl.h`.
    IpcImportHandle = 48 {
        #[doc = "Out."] handle: u64, #[doc = "In: GPU virtual address."] va_addr: u64, #[doc = "Out: offset to mmap."] mmap_offset: u64,
        #[doc = "In: what the exporter got."] share_handle: [u32; 4], #[doc = "In."] gpu_id: u32,
        #[doc = "Out: what the exporter passed."] flags: u32,
    }
    /// `IPC_EXPORT_HANDLE` of AMD's packaged driver.
    IpcExportHandle = 32 {
        #[doc = "In."] handle: u64, #[doc = "Out: names the memory for every process."] share_handle: [u32; 4],
        #[doc = "In."] gpu_id: u32, #[doc = "In: the thunk's flags of the memory, for the importer's thunk."] flags: u32,
    }
    /// `AVAILABLE_MEMORY`.
    GetAvailableMemory = 16 { #[doc = "Out: bytes."] available: u64, #[doc = "In."] gpu_id: u32, #[doc = "Unused."] pad: u32 }
}

ioctls! {
    GetVersion: "get_version", 0x01, R;
    CreateQueue: "create_queue", 0x02, RW;
    DestroyQueue: "destroy_queue", 0x03, RW;
    SetMemoryPolicy: "set_memory_policy", 0x04, W;
    GetClockCounters: "get_clock_counters", 0x05, RW;
    UpdateQueue: "update_queue", 0x07, W;
    CreateEvent: "create_event", 0x08, RW;
    DestroyEvent: "destroy_event", 0x09, W;
    SetEvent: "set_event", 0x0a, W;
    ResetEvent: "reset_event", 0x0b, W;
    WaitEvents: "wait_events", 0x0c, RW;
    SetScratchBackingVa: "set_scratch_backing_va", 0x11, RW;
    GetTileConfig: "get_tile_config", 0x12, RW;
    SetTrapHandler: "set_trap_handler", 0x13, W;
    GetProcessAperturesNew: "get_process_apertures_new", 0x14, RW;
    AcquireVm: "acquire_vm", 0x15, W;
    AllocMemoryOfGpu: "alloc_memory_of_gpu", 0x16, RW;
    FreeMemoryOfGpu: "free_memory_of_gpu", 0x17, W;
    MapMemoryToGpu: "map_memory_to_gpu", 0x18, RW;
    UnmapMemoryFromGpu: "unmap_memory_from_gpu", 0x19, RW;
    SetCuMask: "set_cu_mask", 0x1a, W;
    GetQueueWaveState: "get_queue_wave_state", 0x1b, RW;
    GetDmabufInfo: "get_dmabuf_info", 0x1c, RW;
    ImportDmabuf: "import_dmabuf", 0x1d, RW;
    AllocQueueGws: "alloc_queue_gws", 0x1e, RW;
    SetXnackMode: "set_xnack_mode", 0x21, RW;
    GetAvailableMemory: "available_memory", 0x23, RW;
    ExportDmabuf: "export_dmabuf", 0x24, RW;
    RuntimeEnable: "runtime_enable", 0x25, RW;
    DbgTrap: "dbg_trap", 0x26, RW;
    IpcImportHandle: "ipc_import_handle", 0x80, RW;
    IpcExportHandle: "ipc_export_handle", 0x81, RW;
}

/// PM4 compute queue.
pub const QUEUE_TYPE_COMPUTE: u32 = 0;
/// Copy engine queue.
pub const QUEUE_TYPE_SDMA: u32 = 1;
/// AQL compute queue.
pub const QUEUE_TYPE_COMPUTE_AQL: u32 = 2;
/// Copy engine queue for links between GPUs.
pub const QUEUE_TYPE_SDMA_XGMI: u32 = 3;
/// Queue of the copy engine that `sdma_engine_id` names (ABI 1.17).
pub const QUEUE_TYPE_SDMA_BY_ENG_ID: u32 = 4;
/// Largest queue percentage (bits 0–7).
pub const MAX_QUEUE_PERCENTAGE: u32 = 100;
/// Largest queue priority.
pub const MAX_QUEUE_PRIORITY: u32 = 15;
/// Smallest ring, bytes: the driver clamps smaller ones up to this.
pub const MIN_RING_SIZE: u32 = 1024;

/// A signal event.
pub const EVENT_SIGNAL: u32 = 0;
/// A hardware exception event (GPU reset and the like).
pub const EVENT_HW_EXCEPTION: u32 = 3;
/// A debug event; behaves as a signal event.
pub const EVENT_DEBUG: u32 = 5;
/// A memory exception event (page fault).
pub const EVENT_MEMORY: u32 = 8;
/// Signal events a process may have.
pub const SIGNAL_EVENT_LIMIT: u32 = 4096;
/// The wait ended because the events came.
pub const WAIT_RESULT_COMPLETE: u32 = 0;
/// The wait ended by its time.
pub const WAIT_RESULT_TIMEOUT: u32 = 1;
/// The wait failed (an event was destroyed).
pub const WAIT_RESULT_FAIL: u32 = 2;
/// `WAIT_EVENTS` timeout that means for ever.
pub const TIMEOUT_INFINITE: u32 = u32::MAX;

/// Device memory.
pub const ALLOC_VRAM: u32 = 1 << 0;
/// System memory owned by the driver.
pub const ALLOC_GTT: u32 = 1 << 1;
/// Memory of the calling process.
pub const ALLOC_USERPTR: u32 = 1 << 2;
/// The process's doorbell page.
pub const ALLOC_DOORBELL: u32 = 1 << 3;
/// The remapped register page.
pub const ALLOC_MMIO_REMAP: u32 = 1 << 4;
/// The device may write it.
pub const ALLOC_WRITABLE: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_kernels() {
        assert_eq!(GetVersion::COMMAND, 0x8008_4b01);
        assert_eq!(CreateQueue::COMMAND, 0xc060_4b02);
        assert_eq!(UpdateQueue::COMMAND, 0x4018_4b07);
        assert_eq!(SetCuMask::COMMAND, 0x4010_4b1a);
        assert_eq!(WaitEvents::COMMAND, 0xc018_4b0c);
        assert_eq!(DestroyQueue::COMMAND, 0xc008_4b03);
        assert_eq!(GetQueueWaveState::COMMAND, 0xc018_4b1b);
        assert_eq!(AllocQueueGws::COMMAND, 0xc010_4b1e);
        assert_eq!(RuntimeEnable::COMMAND, 0xc010_4b25);
        assert_eq!(DbgTrap::COMMAND, 0xc020_4b26);
        assert_eq!(ExportDmabuf::COMMAND, 0xc010_4b24);
        assert_eq!(IpcImportHandle::COMMAND, 0xc030_4b80);
        assert_eq!(IpcExportHandle::COMMAND, 0xc020_4b81);
    }

    #[test]
    fn short_structures_are_zero_filled() {
        let full = CreateQueue { gpu_id: 7, sdma_engine_id: 9, ..CreateQueue::default() };
        let old = CreateQueue::from_bytes(&full.as_bytes()[..88]);
        assert_eq!((old.gpu_id, old.sdma_engine_id), (7, 0));
    }

    #[test]
    fn type_byte_is_checked() {
        assert_eq!(request_number(UpdateQueue::COMMAND), Some(7));
        assert_eq!(request_number(0x5401), None);
        assert_eq!(request_name(0x16), Some("alloc_memory_of_gpu"));
        assert_eq!(request_name(0xff), None);
    }
}
