//! Fills. A fill without a stream runs in the default stream, and the call waits for it.

use std::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};

use hip_sys::types::*;

use crate::errors::Answer;
use crate::state::api;
use crate::stream_table::{LEGACY, OWN, enter_on, per_thread};
use crate::streams::now;
use crate::{blobs, memory};

/// The value that a fill repeats.
#[derive(Clone, Copy, Debug)]
enum Value {
    Byte(u8),
    Half(u16),
    Word(u32),
}

impl Value {
    fn size(self) -> usize {
        match self {
            Value::Byte(_) => 1,
            Value::Half(_) => 2,
            Value::Word(_) => 4,
        }
    }
}

/// Refuses unknown memory, and known memory with too few bytes (`ihipMemset_validate` in hip_memory.cpp).
/// Before 6.3 the whole size counts, wherever in the memory the address is.
fn check(address: *const c_void, bytes: usize) -> Answer {
    let memory = memory::find(address).ok_or(hipErrorInvalidValue)?;
    let room = if blobs::major() < 6 { memory.size } else { memory.left(address.addr()) };
    if bytes > room { Err(hipErrorInvalidValue) } else { Ok(()) }
}

fn fill(to: *mut c_void, value: Value, count: usize, stream: hipStream_t) -> Answer {
    let driver = enter_on(stream)?;
    if count == 0 {
        return Ok(());
    }
    check(to, count.checked_mul(value.size()).ok_or(hipErrorInvalidValue)?)?;
    match value {
        Value::Byte(value) => driver.fill_8(to.addr(), value, count, stream),
        Value::Half(value) => driver.fill_16(to.addr(), value, count, stream),
        Value::Word(value) => driver.fill_32(to.addr(), value, count, stream),
    }
}

fn fill_rows(
    to: *mut c_void,
    pitch: usize,
    value: Value,
    (width, height): (usize, usize),
    stream: hipStream_t,
) -> Answer {
    let driver = enter_on(stream)?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    let row = width.checked_mul(value.size()).ok_or(hipErrorInvalidValue)?;
    let bytes = row.checked_mul(height).ok_or(hipErrorInvalidValue)?;
    check(to, bytes)?;
    if row > pitch {
        return Err(hipErrorInvalidValue);
    }
    let to = to.addr();
    match value {
        Value::Byte(value) => driver.fill_2d_8(to, pitch, value, width, height, stream),
        Value::Half(value) => driver.fill_2d_16(to, pitch, value, width, height, stream),
        Value::Word(value) => driver.fill_2d_32(to, pitch, value, width, height, stream),
    }
}

/// Fills slices of `ysize` rows each, which lie one after the other.
fn fill_slices(to: hipPitchedPtr, value: c_int, extent: hipExtent, stream: hipStream_t) -> Answer {
    if extent.count() == 0 {
        return enter_on(stream).map(drop);
    }
    let slice = to.pitch.checked_mul(to.ysize).ok_or(hipErrorInvalidValue)?;
    slice.checked_mul(extent.depth).ok_or(hipErrorInvalidValue)?;
    let all = extent.width.checked_mul(extent.height).and_then(|bytes| bytes.checked_mul(extent.depth));
    check(to.ptr, all.ok_or(hipErrorInvalidValue)?)?;
    (0..extent.depth).try_for_each(|z| {
        let start = to.ptr.wrapping_byte_add(z * slice);
        fill_rows(start, to.pitch, byte(value), (extent.width, extent.height), stream)
    })
}

/// Converts the value to a byte, as C's memset does.
fn byte(value: c_int) -> Value {
    Value::Byte(value as u8)
}

api! {
    [pfn] fn hipMemset(to: *mut c_void, value: c_int, bytes: usize) {
        now(LEGACY, || fill(to, byte(value), bytes, LEGACY))
    }
    [pfn] fn hipMemset_spt(to: *mut c_void, value: c_int, bytes: usize) {
        now(OWN, || fill(to, byte(value), bytes, OWN))
    }
    [pfn] fn hipMemsetD8(to: hipDeviceptr_t, value: c_uchar, count: usize) {
        now(LEGACY, || fill(to, Value::Byte(value), count, LEGACY))
    }
    [pfn] fn hipMemsetD16(to: hipDeviceptr_t, value: c_ushort, count: usize) {
        now(LEGACY, || fill(to, Value::Half(value), count, LEGACY))
    }
    [pfn] fn hipMemsetD32(to: hipDeviceptr_t, value: c_int, count: usize) {
        now(LEGACY, || fill(to, Value::Word(value.cast_unsigned()), count, LEGACY))
    }
    [pfn] fn hipMemsetAsync(to: *mut c_void, value: c_int, bytes: usize, stream: hipStream_t) {
        fill(to, byte(value), bytes, stream)
    }
    [pfn] fn hipMemsetAsync_spt(to: *mut c_void, value: c_int, bytes: usize, stream: hipStream_t) {
        fill(to, byte(value), bytes, per_thread(stream))
    }
    [pfn] fn hipMemsetD8Async(to: hipDeviceptr_t, value: c_uchar, count: usize, stream: hipStream_t) {
        fill(to, Value::Byte(value), count, stream)
    }
    [pfn] fn hipMemsetD16Async(to: hipDeviceptr_t, value: c_ushort, count: usize, stream: hipStream_t) {
        fill(to, Value::Half(value), count, stream)
    }
    [pfn] fn hipMemsetD32Async(to: hipDeviceptr_t, value: c_int, count: usize, stream: hipStream_t) {
        fill(to, Value::Word(value.cast_unsigned()), count, stream)
    }
    [pfn] fn hipMemset2D(to: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) {
        now(LEGACY, || fill_rows(to, pitch, byte(value), (width, height), LEGACY))
    }
    [pfn] fn hipMemset2D_spt(to: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) {
        now(OWN, || fill_rows(to, pitch, byte(value), (width, height), OWN))
    }
    [pfn] fn hipMemset2DAsync(to: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize,
        stream: hipStream_t) {
        fill_rows(to, pitch, byte(value), (width, height), stream)
    }
    [pfn] fn hipMemset2DAsync_spt(to: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize,
        stream: hipStream_t) {
        fill_rows(to, pitch, byte(value), (width, height), per_thread(stream))
    }
    [pfn] fn hipMemsetD2D8Async(to: hipDeviceptr_t, pitch: usize, value: c_uchar, width: usize, height: usize,
        stream: hipStream_t) {
        fill_rows(to, pitch, Value::Byte(value), (width, height), stream)
    }
    [pfn] fn hipMemsetD2D16Async(to: hipDeviceptr_t, pitch: usize, value: c_ushort, width: usize, height: usize,
        stream: hipStream_t) {
        fill_rows(to, pitch, Value::Half(value), (width, height), stream)
    }
    [pfn] fn hipMemsetD2D32Async(to: hipDeviceptr_t, pitch: usize, value: c_uint, width: usize, height: usize,
        stream: hipStream_t) {
        fill_rows(to, pitch, Value::Word(value), (width, height), stream)
    }
    [pfn] fn hipMemset3D(to: hipPitchedPtr, value: c_int, extent: hipExtent) {
        now(LEGACY, || fill_slices(to, value, extent, LEGACY))
    }
    [pfn] fn hipMemset3D_spt(to: hipPitchedPtr, value: c_int, extent: hipExtent) {
        now(OWN, || fill_slices(to, value, extent, OWN))
    }
    [pfn] fn hipMemset3DAsync(to: hipPitchedPtr, value: c_int, extent: hipExtent, stream: hipStream_t) {
        fill_slices(to, value, extent, stream)
    }
    [pfn] fn hipMemset3DAsync_spt(to: hipPitchedPtr, value: c_int, extent: hipExtent, stream: hipStream_t) {
        fill_slices(to, value, extent, per_thread(stream))
    }
}
