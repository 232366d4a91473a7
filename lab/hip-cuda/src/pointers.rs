//! Queries about addresses.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use hip_sys::types::*;

use crate::blobs;
use crate::memory::{Kind, Memory, find};
use crate::state::{api, put, required};

/// Returns HIP's number for a kind of memory, which 6.0 changed ([`hipMemoryType::kind`]).
fn number(kind: Kind) -> u32 {
    let modern = blobs::major() >= 6;
    match kind {
        Kind::Host | Kind::Registered => u32::from(modern),
        Kind::Device | Kind::Pooled | Kind::Opened | Kind::Variable => 1 + u32::from(modern),
        Kind::Managed if modern => 3,
        // 5.x reports managed memory as host memory and sets a separate field.
        Kind::Managed => 0,
    }
}

fn described(memory: &Memory, address: *const c_void) -> hipPointerAttribute_t {
    let here = address.cast_mut();
    hipPointerAttribute_t {
        memory_type: hipMemoryType(number(memory.kind)),
        device: memory.device,
        device_pointer: here,
        host_pointer: if memory.kind.is_on_host() { here } else { ptr::null_mut() },
        is_managed: c_int::from(memory.kind == Kind::Managed),
        allocation_flags: memory.flags,
    }
}

const UNKNOWN: hipPointerAttribute_t = hipPointerAttribute_t {
    memory_type: hipMemoryType(0),
    device: -2,
    device_pointer: ptr::null_mut(),
    host_pointer: ptr::null_mut(),
    is_managed: 0,
    allocation_flags: 0,
};

/// `HIP_POINTER_ATTRIBUTE_*` of hip_runtime_api.h.
const MEMORY_TYPE: u32 = 2;
const DEVICE_POINTER: u32 = 3;
const HOST_POINTER: u32 = 4;
const IS_MANAGED: u32 = 8;
const DEVICE_ORDINAL: u32 = 9;
const RANGE_SIZE: u32 = 12;
const MAPPED: u32 = 13;

api! {
    [pfn] fn hipPointerGetAttributes(attributes: *mut hipPointerAttribute_t, address: *const c_void) {
        required(attributes)?;
        match find(address) {
            Some(memory) => put(attributes, described(&memory, address)),
            // From 6.0 on unknown memory has a type of its own.
            None if blobs::major() >= 6 && !address.is_null() => put(attributes, UNKNOWN),
            None => Err(hipErrorInvalidValue),
        }
    }
    [pfn] fn hipPointerGetAttribute(data: *mut c_void, attribute: hipPointer_attribute, address: hipDeviceptr_t) {
        required(data)?;
        let memory = find(address).ok_or(hipErrorInvalidValue)?;
        match attribute.0 {
            MEMORY_TYPE => put(data.cast::<c_uint>(), number(memory.kind)),
            DEVICE_POINTER => put(data.cast(), address),
            HOST_POINTER if memory.kind.is_on_host() => put(data.cast(), address),
            IS_MANAGED => put(data.cast::<bool>(), memory.kind == Kind::Managed),
            DEVICE_ORDINAL => put(data.cast::<c_int>(), memory.device),
            start if start == HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR.0 => {
                put(data.cast::<usize>(), memory.start)
            }
            RANGE_SIZE => put(data.cast::<usize>(), memory.size),
            MAPPED => put(data.cast::<bool>(), true),
            _ => Err(hipErrorInvalidValue),
        }
    }
}
