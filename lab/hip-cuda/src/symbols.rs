//! Copies to and from a program's variables, and queries about variables and kernels.

use std::ffi::{c_int, c_void};
use std::ptr;

use hip_sys::types::*;

use crate::blobs;
use crate::copies::copy;
use crate::errors::Answer;
use crate::registration::{kernel, variable};
use crate::state::{self, api, enter, put, required, started};
use crate::stream_table::{LEGACY, OWN, per_thread};
use crate::streams::now;

/// Returns the address of a part of a variable (`ihipMemcpySymbol_validate` in hip_memory.cpp). From 6.3 on
/// it permits only the direction `own` of the calling function, and copies within a device.
fn part(
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: hipMemcpyKind,
    own: hipMemcpyKind,
) -> Answer<*mut c_void> {
    enter()?;
    let (start, size) = variable(symbol)?;
    if offset.checked_add(bytes).is_none_or(|end| end > size) {
        return Err(hipErrorInvalidValue);
    }
    let permitted = [own, hipMemcpyDeviceToDevice, hipMemcpyDeviceToDeviceNoCU];
    if blobs::major() >= 6 && !permitted.contains(&kind) {
        return Err(hipErrorInvalidMemcpyDirection);
    }
    Ok(ptr::with_exposed_provenance_mut(start + offset))
}

/// A part of a variable, with the direction that the program passes.
#[derive(Clone, Copy, Debug)]
struct Part {
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: hipMemcpyKind,
}

fn to(part_of: Part, from: *const c_void, stream: hipStream_t) -> Answer {
    let Part { symbol, bytes, offset, kind } = part_of;
    copy(part(symbol, bytes, offset, kind, hipMemcpyHostToDevice)?, from, bytes, kind, stream)
}

fn from(part_of: Part, to: *mut c_void, stream: hipStream_t) -> Answer {
    let Part { symbol, bytes, offset, kind } = part_of;
    copy(to, part(symbol, bytes, offset, kind, hipMemcpyDeviceToHost)?, bytes, kind, stream)
}

/// `hipFuncAttributes` of hip_runtime_api.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FunctionAttributes {
    binary_version: c_int,
    cache_mode: c_int,
    constant_bytes: usize,
    local_bytes: usize,
    max_dynamic_shared: c_int,
    max_threads: c_int,
    registers: c_int,
    carveout: c_int,
    ptx_version: c_int,
    shared_bytes: usize,
}

const _: () = assert!(size_of::<FunctionAttributes>() == 56);

fn attributes(host: *const c_void) -> Answer<FunctionAttributes> {
    enter()?;
    let function = kernel(host, state::device())?;
    let driver = started()?.enter(function.device)?;
    // CU_FUNC_ATTRIBUTE_*: threads, shared, constant, local, registers, PTX, binary, cache, dynamic shared.
    let ask = |attribute: c_int| {
        let mut value = 0;
        driver.function_attribute(&mut value, attribute, function.handle).map(|()| value)
    };
    let bytes = |attribute| ask(attribute).map(|bytes| usize::try_from(bytes).unwrap_or(0));
    Ok(FunctionAttributes {
        max_threads: ask(0)?,
        shared_bytes: bytes(1)?,
        constant_bytes: bytes(2)?,
        local_bytes: bytes(3)?,
        registers: ask(4)?,
        ptx_version: ask(5)?,
        binary_version: ask(6)?,
        cache_mode: ask(7)?,
        max_dynamic_shared: ask(8)?,
        carveout: 0,
    })
}

/// `hipFuncAttributeMaxDynamicSharedMemorySize` and `-PreferredSharedMemoryCarveout`.
const MAX_DYNAMIC_SHARED: c_int = 8;
const CARVEOUT: c_int = 9;

api! {
    [pfn] fn hipMemcpyToSymbol(symbol: *const c_void, source: *const c_void, bytes: usize, offset: usize,
        kind: hipMemcpyKind) {
        now(LEGACY, || to(Part { symbol, bytes, offset, kind }, source, LEGACY))
    }
    [pfn] fn hipMemcpyToSymbol_spt(symbol: *const c_void, source: *const c_void, bytes: usize, offset: usize,
        kind: hipMemcpyKind) {
        now(OWN, || to(Part { symbol, bytes, offset, kind }, source, OWN))
    }
    [pfn] fn hipMemcpyToSymbolAsync(symbol: *const c_void, source: *const c_void, bytes: usize, offset: usize,
        kind: hipMemcpyKind, stream: hipStream_t) {
        to(Part { symbol, bytes, offset, kind }, source, stream)
    }
    [pfn] fn hipMemcpyToSymbolAsync_spt(symbol: *const c_void, source: *const c_void, bytes: usize, offset: usize,
        kind: hipMemcpyKind, stream: hipStream_t) {
        to(Part { symbol, bytes, offset, kind }, source, per_thread(stream))
    }
    [pfn] fn hipMemcpyFromSymbol(target: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize,
        kind: hipMemcpyKind) {
        now(LEGACY, || from(Part { symbol, bytes, offset, kind }, target, LEGACY))
    }
    [pfn] fn hipMemcpyFromSymbol_spt(target: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize,
        kind: hipMemcpyKind) {
        now(OWN, || from(Part { symbol, bytes, offset, kind }, target, OWN))
    }
    [pfn] fn hipMemcpyFromSymbolAsync(target: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize,
        kind: hipMemcpyKind, stream: hipStream_t) {
        from(Part { symbol, bytes, offset, kind }, target, stream)
    }
    [pfn] fn hipMemcpyFromSymbolAsync_spt(target: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize,
        kind: hipMemcpyKind, stream: hipStream_t) {
        from(Part { symbol, bytes, offset, kind }, target, per_thread(stream))
    }
    [pfn] fn hipGetSymbolAddress(place: *mut *mut c_void, symbol: *const c_void) {
        required(place)?;
        enter()?;
        put(place, ptr::with_exposed_provenance_mut(variable(symbol)?.0))
    }
    [pfn] fn hipGetSymbolSize(size: *mut usize, symbol: *const c_void) {
        required(size)?;
        enter()?;
        put(size, variable(symbol)?.1)
    }
    [own] fn hipFuncGetAttributes(place: *mut FunctionAttributes, host: *const c_void) {
        required(place)?;
        put(place, attributes(host)?)
    }
    [own] fn hipFuncSetAttribute(host: *const c_void, attribute: c_int, value: c_int) {
        enter()?;
        // There is nothing to set: a kernel may use all dynamic memory from the start (`modules::look_up`).
        kernel(host, state::device())?;
        if !matches!(attribute, MAX_DYNAMIC_SHARED | CARVEOUT) || value < 0 {
            return Err(hipErrorInvalidValue);
        }
        Ok(())
    }
    [own] fn hipFuncSetCacheConfig(host: *const c_void, preference: c_int) {
        let _ = host;
        enter()?;
        // AMD's devices have no cache configuration, and the call succeeds.
        if (0..=3).contains(&preference) { Ok(()) } else { Err(hipErrorInvalidValue) }
    }
    [own] fn hipFuncSetSharedMemConfig(host: *const c_void, config: c_int) {
        let _ = (host, config);
        enter().map(drop)
    }
}
