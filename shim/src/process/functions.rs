//! The functions of the runtime that the library calls for itself.

use super::architecture::Ask;
use super::devices::Devices;
use super::pools::Following;
use super::{graphs, occupancy, slow_path};
use crate::interpose::runtime;
use hal_hip::real::RuntimeFunctions;
use hip_sys::pfn;
use hip_sys::types::hipSuccess;
use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ptr::NonNull;

/// Finds a function of the runtime.
///
/// # Safety
///
/// `F` is the pointer type of the function of this name.
unsafe fn find<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    let found = runtime::find(name)?;
    // SAFETY: by the contract `F` is the type of this function pointer; the size was checked.
    Some(unsafe { mem::transmute_copy::<NonNull<c_void>, F>(&found) })
}

/// Finds the function of this name, under its type in `pfn`.
macro_rules! find {
    ($name:ident) => {{
        let name = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes());
        // SAFETY: `pfn` has the pointer type of each function under its name.
        name.ok().and_then(|name| unsafe { find::<pfn::$name>(name) })
    }};
}

/// Finds the functions for queues; `None` if one is missing or there is no device.
pub(super) fn real() -> Option<RuntimeFunctions> {
    let (count, version) = (find!(hipGetDeviceCount)?, find!(hipRuntimeGetVersion)?);
    let (mut devices, mut number): (c_int, c_int) = (0, 0);
    // SAFETY: both functions get a valid place for their answer.
    let (counted, versioned) = unsafe { (count(&mut devices), version(&mut number)) };
    let devices = u32::try_from(devices).ok().filter(|&devices| counted == hipSuccess && devices > 0)?;
    let number = if versioned == hipSuccess { number } else { 0 };
    // Versions look like 50221153 (5.2.3) since 5.2.3. An unknown version counts as a recent one.
    let number = u32::try_from(number).unwrap_or(0);
    let (major, minor) =
        if number < 10_000_000 { (6, 99) } else { (number / 10_000_000, number / 100_000 % 100) };
    Some(RuntimeFunctions {
        event_create: find!(hipEventCreateWithFlags)?,
        event_destroy: find!(hipEventDestroy)?,
        event_record: find!(hipEventRecord)?,
        event_query: find!(hipEventQuery)?,
        event_synchronize: find!(hipEventSynchronize)?,
        event_elapsed: find!(hipEventElapsedTime)?,
        stream_create: find!(hipStreamCreateWithFlags)?,
        stream_destroy: find!(hipStreamDestroy)?,
        stream_synchronize: find!(hipStreamSynchronize)?,
        stream_is_capturing: find!(hipStreamIsCapturing)?,
        stream_get_flags: find!(hipStreamGetFlags)?,
        stream_get_priority: find!(hipStreamGetPriority)?,
        get_device: find!(hipGetDevice)?,
        set_device: find!(hipSetDevice)?,
        exchange_capture_mode: find!(hipThreadExchangeStreamCaptureMode)?,
        pointer_attributes: find!(hipPointerGetAttributes)?,
        address_range: find!(hipMemGetAddressRange)?,
        pointer_attribute: find!(hipPointerGetAttribute)?,
        symbol_address: find!(hipGetSymbolAddress)?,
        symbol_size: find!(hipGetSymbolSize)?,
        ended: Box::leak(Box::default()),
        devices,
        major,
        minor,
    })
}

pub(super) fn graphs() -> Option<graphs::Functions> {
    Some(graphs::Functions {
        nodes: find!(hipGraphGetNodes)?,
        node_type: find!(hipGraphNodeGetType)?,
        child: find!(hipGraphChildGraphNodeGetGraph)?,
        destroy: find!(hipGraphExecDestroy)?,
    })
}

pub(super) fn occupancy() -> Option<occupancy::Functions> {
    Some(occupancy::Functions {
        host: find!(hipOccupancyMaxPotentialBlockSize)?,
        module: find!(hipModuleOccupancyMaxPotentialBlockSize)?,
    })
}

pub(super) fn names() -> Option<slow_path::Names> {
    // SAFETY: the fields of `Names` have the types of the functions of these names.
    unsafe {
        let (host, module) = (find(c"hipKernelNameRefByPtr")?, find(c"hipKernelNameRef")?);
        Some(slow_path::Names { host, module })
    }
}

pub(super) fn device_properties() -> Option<Ask> {
    // A runtime without the newer function has the older structure.
    find!(hipGetDevicePropertiesR0600)
        .map(Ask::R0600)
        .or_else(|| find!(hipGetDeviceProperties).map(Ask::R0000))
}

pub(super) fn devices(real: &RuntimeFunctions) -> Devices {
    Devices::of(real, find!(hipDeviceGetPCIBusId), find!(hipGetDevicePropertiesR0600))
}

pub(super) fn current_pool() -> Option<pfn::hipDeviceGetMemPool> {
    find!(hipDeviceGetMemPool)
}

/// Finds the functions for pools that follow events, which pools of older runtimes do not.
pub(super) fn following(real: &RuntimeFunctions) -> Option<Following> {
    if real.major < 7 {
        return None;
    }
    Some(Following {
        attribute: find!(hipMemPoolGetAttribute)?,
        allocate: find!(hipMallocFromPoolAsync)?,
        free: find!(hipFreeAsync)?,
    })
}
