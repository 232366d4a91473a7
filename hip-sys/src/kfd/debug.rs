//! The debugger's half of the KFD's interface: RUNTIME_ENABLE and DBG_TRAP (`kfd_ioctl.h`, ABI 1.13 and
//! newer).
//!
//! DBG_TRAP carries one of several structures behind the process id and the operation. [`Operation`] ties
//! each to its number, as [`Ioctl`](super::Ioctl) ties arguments to requests.

use super::{Plain, plain};

/// Bytes of DBG_TRAP's union.
const UNION: usize = 24;

/// Ties a structure of DBG_TRAP's union to its operation.
pub trait Operation: Plain {
    /// The operation (`KFD_IOC_DBG_TRAP_`).
    const OP: u32;

    /// DBG_TRAP's whole argument for this operation on process `pid`.
    fn on(&self, pid: u32) -> DbgTrap {
        let mut argument = DbgTrap { pid, op: Self::OP, words: [0; UNION / 8] };
        argument.put(self);
        argument
    }
}

impl DbgTrap {
    /// The union as this operation's structure.
    pub fn get<A: Plain>(&self) -> A {
        A::from_bytes(&self.as_bytes()[size_of::<Self>() - UNION..])
    }

    /// Puts a structure into the union; what lies behind it stays.
    pub fn put<A: Plain>(&mut self, value: &A) {
        let mut bytes = self.as_bytes().to_vec();
        let (from, at) = (value.as_bytes(), size_of::<Self>() - UNION);
        let len = from.len().min(UNION);
        bytes[at..at + len].copy_from_slice(&from[..len]);
        *self = Self::from_bytes(&bytes);
    }
}

plain! {
    /// `RUNTIME_ENABLE`: tells the driver that a runtime that works with a debugger is there. Fails with
    /// EEXIST once the process has queues, with EBUSY if it was done already.
    RuntimeEnable = 16 {
        #[doc = "In: address that a debugger is told."] r_debug: u64, #[doc = "In: `RUNTIME_` bits."] mode_mask: u32,
        #[doc = "Out."] capabilities_mask: u32,
    }
    /// `DBG_TRAP`.
    DbgTrap = 32 {
        #[doc = "In: the process to be debugged."] pid: u32, #[doc = "In: an [`Operation::OP`]."] op: u32,
        #[doc = "A structure of the operation's."] words: [u64; UNION / 8],
    }
    /// Operation 0: begins a debug session. A second one fails with EALREADY.
    Enable = 24 {
        #[doc = "In: `EC_` bits that are told by `dbg_fd`."] exception_mask: u64,
        #[doc = "In: address of a [`RuntimeInfo`] to be filled."] rinfo_ptr: u64,
        #[doc = "In: bytes there; out: bytes that there are."] rinfo_size: u32,
        #[doc = "In: a descriptor that a byte is written to for each exception."] dbg_fd: u32,
    }
    /// Operation 1: ends the session; everything suspended goes on.
    Disable = 0 {}
    /// Operation 2: raises exceptions to the runtime.
    SendRuntimeEvent = 16 { #[doc = "In."] exception_mask: u64, #[doc = "In."] gpu_id: u32, #[doc = "In."] queue_id: u32 }
    /// Operation 3.
    SetExceptionsEnabled = 8 { #[doc = "In."] exception_mask: u64 }
    /// Operation 6: takes queues off the hardware. The result is how many there are off now; the others' ids
    /// carry [`QUEUE_ERROR`] or [`QUEUE_INVALID`] then.
    SuspendQueues = 24 {
        #[doc = "In: exceptions to be cleared."] exception_mask: u64, #[doc = "In: address of a `u32` array, in and out."] queue_array_ptr: u64,
        #[doc = "In."] num_queues: u32, #[doc = "In: units of 1,000 device clocks, or [`GRACE_DEFAULT`]."] grace_period: u32,
    }
    /// Operation 7: puts suspended queues back. Without an array all of them.
    ResumeQueues = 16 { #[doc = "In: address of a `u32` array, in and out, or 0."] queue_array_ptr: u64, #[doc = "In."] num_queues: u32, #[doc = "Unused."] pad: u32 }
    /// Operation 10.
    SetFlags = 8 { #[doc = "In: flags wanted; out: flags before."] flags: u32, #[doc = "Unused."] pad: u32 }
    /// Operation 11: one source of exceptions; EAGAIN if there is none.
    QueryDebugEvent = 16 {
        #[doc = "In: exceptions to be cleared; out: those that it has."] exception_mask: u64, #[doc = "Out."] gpu_id: u32, #[doc = "Out."] queue_id: u32,
    }
    /// Operation 12.
    QueryExceptionInfo = 24 {
        #[doc = "In: address."] info_ptr: u64, #[doc = "In and out: bytes."] info_size: u32, #[doc = "In: queue or GPU."] source_id: u32,
        #[doc = "In: an `EC_` code."] exception_code: u32, #[doc = "In: 1 clears it."] clear_exception: u32,
    }
    /// Operation 13.
    QueueSnapshot = 24 {
        #[doc = "In: exceptions to be cleared."] exception_mask: u64, #[doc = "In: address of [`QueueEntry`]s."] snapshot_buf_ptr: u64,
        #[doc = "In: entries there; out: queues that there are."] num_queues: u32, #[doc = "In: bytes an entry; out: bytes filled."] entry_size: u32,
    }
    /// Operation 14.
    DeviceSnapshot = 24 {
        #[doc = "In: exceptions to be cleared."] exception_mask: u64, #[doc = "In: address of [`DeviceEntry`]s."] snapshot_buf_ptr: u64,
        #[doc = "In: entries there; out: devices that there are."] num_devices: u32, #[doc = "In: bytes an entry; out: bytes filled."] entry_size: u32,
    }
    /// Information about the runtime for ENABLE.
    RuntimeInfo = 16 { #[doc = "As given."] r_debug: u64, #[doc = "A `STATE_` constant."] runtime_state: u32, #[doc = "Whether trap temporaries are set up."] ttmp_setup: u32 }
    /// A queue as a debugger sees it.
    QueueEntry = 64 {
        #[doc = "`EC_` bits."] exception_status: u64, #[doc = "Address."] ring_base_address: u64, #[doc = "Address."] write_pointer_address: u64,
        #[doc = "Address."] read_pointer_address: u64, #[doc = "Address."] ctx_save_restore_address: u64, #[doc = "Within its process."] queue_id: u32,
        #[doc = "Its device."] gpu_id: u32, #[doc = "Bytes."] ring_size: u32, #[doc = "A `QUEUE_TYPE_` constant."] queue_type: u32,
        #[doc = "Bytes."] ctx_save_restore_area_size: u32, #[doc = "Unused."] reserved: u32,
    }
    /// A device as a debugger sees it.
    DeviceEntry = 120 {
        #[doc = "`EC_` bits."] exception_status: u64, #[doc = "Address."] lds_base: u64, #[doc = "Address."] lds_limit: u64,
        #[doc = "Address."] scratch_base: u64, #[doc = "Address."] scratch_limit: u64, #[doc = "Address."] gpuvm_base: u64,
        #[doc = "Address."] gpuvm_limit: u64, #[doc = "Its id."] gpu_id: u32, #[doc = "PCI."] location_id: u32, #[doc = "PCI."] vendor_id: u32,
        #[doc = "PCI."] device_id: u32, #[doc = "PCI."] revision_id: u32, #[doc = "PCI."] subsystem_vendor_id: u32,
        #[doc = "PCI."] subsystem_device_id: u32, #[doc = "Of the compute engine."] fw_version: u32, #[doc = "As in sysfs."] gfx_target_version: u32,
        #[doc = "As in sysfs."] simd_count: u32, #[doc = "As in sysfs."] max_waves_per_simd: u32, #[doc = "As in sysfs."] array_count: u32,
        #[doc = "As in sysfs."] simd_arrays_per_engine: u32, #[doc = "As in sysfs."] num_xcc: u32, #[doc = "As in sysfs."] capability: u32,
        #[doc = "As in sysfs."] debug_prop: u32,
    }
    /// Front of a queue's save area, as the driver writes it when it takes the queue off for a debugger.
    SaveAreaHeader = 40 {
        #[doc = "Bytes from the front."] control_stack_offset: u32, #[doc = "Bytes."] control_stack_size: u32,
        #[doc = "Bytes from the front."] wave_state_offset: u32, #[doc = "Bytes."] wave_state_size: u32, #[doc = "Bytes from the front."] debug_offset: u32,
        #[doc = "Bytes."] debug_size: u32, #[doc = "Address."] err_payload_addr: u64, #[doc = "Event."] err_event_id: u32, #[doc = "Unused."] reserved: u32,
    }
}

macro_rules! operations {
    ($($name:ident = $op:literal;)*) => { $(impl Operation for $name { const OP: u32 = $op; })* };
}

operations! {
    Enable = 0;
    Disable = 1;
    SendRuntimeEvent = 2;
    SetExceptionsEnabled = 3;
    SuspendQueues = 6;
    ResumeQueues = 7;
    SetFlags = 10;
    QueryDebugEvent = 11;
    QueryExceptionInfo = 12;
    QueueSnapshot = 13;
    DeviceSnapshot = 14;
}

/// Number of the operation that changes what waves do at launch; like the next ones it needs an enabled
/// runtime.
pub const OP_SET_WAVE_LAUNCH_OVERRIDE: u32 = 4;
/// See [`OP_SET_WAVE_LAUNCH_OVERRIDE`].
pub const OP_SET_WAVE_LAUNCH_MODE: u32 = 5;
/// See [`OP_SET_WAVE_LAUNCH_OVERRIDE`].
pub const OP_SET_NODE_ADDRESS_WATCH: u32 = 8;
/// See [`OP_SET_WAVE_LAUNCH_OVERRIDE`].
pub const OP_CLEAR_NODE_ADDRESS_WATCH: u32 = 9;

/// RUNTIME_ENABLE: enable (else disable).
pub const RUNTIME_ENABLE: u32 = 1;
/// RUNTIME_ENABLE: set up trap temporaries.
pub const RUNTIME_TTMP_SAVE: u32 = 2;
/// No runtime has been enabled.
pub const STATE_DISABLED: u32 = 0;
/// It has.
pub const STATE_ENABLED: u32 = 1;
/// It has, but a device could not be set up for debugging.
pub const STATE_ENABLED_BUSY: u32 = 2;
/// In an array of queue ids: the hardware failed.
pub const QUEUE_ERROR: u32 = 1 << 30;
/// In an array of queue ids: there is no such queue, it is new, or it is being destroyed.
pub const QUEUE_INVALID: u32 = 1 << 31;
/// The driver's own grace period.
pub const GRACE_DEFAULT: u32 = u32::MAX;
/// A queue that the debugger has not been told of yet.
pub const EC_QUEUE_NEW: u32 = 31;
/// A device's queue was destroyed.
pub const EC_DEVICE_QUEUE_DELETE: u32 = 32;
/// The runtime was enabled or disabled.
pub const EC_PROCESS_RUNTIME: u32 = 48;

/// The bit of an exception in a mask.
pub const fn exception_bit(code: u32) -> u64 {
    1 << (code - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_union_carries_each_operation() {
        let suspend = SuspendQueues {
            exception_mask: 1 << 30,
            queue_array_ptr: 0x1234,
            num_queues: 3,
            grace_period: 7,
        };
        let mut argument = suspend.on(42);
        assert_eq!((argument.pid, argument.op), (42, 6));
        assert_eq!(argument.get::<SuspendQueues>(), suspend);
        argument.put(&SetFlags { flags: 9, pad: 0 });
        let after = argument.get::<SuspendQueues>();
        assert_eq!((after.exception_mask, after.num_queues), (9, 3));
        assert_eq!(Disable::default().on(1).words, [0; 3]);
    }

    #[test]
    fn exceptions_are_numbered_from_one() {
        assert_eq!(exception_bit(EC_QUEUE_NEW), 1 << 30);
    }
}
