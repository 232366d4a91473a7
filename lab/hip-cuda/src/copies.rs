//! Copies. The table of memory and the driver determine where an address lies. The direction that a program
//! passes is only checked, as in AMD's runtime.

use std::ffi::{c_int, c_void};

use hip_sys::types::*;

use crate::driver::{Copy3D, Place, Side};
use crate::errors::Answer;
use crate::memory::{self, Kind};
use crate::state::{api, check_device, get};
use crate::stream_table::{LEGACY, OWN, enter_on, per_thread};
use crate::streams::now;
use crate::{blobs, captures};

/// Returns where an address lies. Unknown memory is the program's own.
pub(crate) fn place(address: *const c_void) -> Place {
    match memory::find(address).map(|memory| memory.kind) {
        Some(Kind::Device | Kind::Pooled | Kind::Opened | Kind::Variable) => Place::Device,
        Some(Kind::Managed) => Place::Managed,
        Some(Kind::Host | Kind::Registered) | None => Place::Host,
    }
}

/// Refuses directions that HIP does not have, from 6.3 on (`hipMemcpyAsync` in hip_memory.cpp).
pub(crate) fn check_kind(kind: hipMemcpyKind) -> Answer {
    let known = kind.0 <= hipMemcpyDefault.0 || kind == hipMemcpyDeviceToDeviceNoCU;
    if known || blobs::major() < 6 { Ok(()) } else { Err(hipErrorInvalidMemcpyDirection) }
}

/// Copies bytes in a stream.
pub(crate) fn copy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
    stream: hipStream_t,
) -> Answer {
    let driver = enter_on(stream)?;
    if bytes == 0 {
        return Ok(());
    }
    if to.is_null() || from.is_null() {
        return Err(hipErrorInvalidValue);
    }
    memory::check(to, bytes)?;
    memory::check(from, bytes)?;
    let unknown = memory::find(to).is_none() && memory::find(from).is_none();
    if unknown && ![hipMemcpyHostToHost, hipMemcpyDefault].contains(&kind) {
        return Err(hipErrorInvalidValue);
    }
    if place(to) == Place::Host && place(from) == Place::Host && !captures::is_capturing(stream) {
        // AMD's runtime waits for the stream, then copies on the CPU (`ihipMemcpy`).
        captures::aside(driver, || driver.stream_synchronize(stream))?;
        // SAFETY: `check` has compared the size with known memory, and HIP makes the program answer for its
        // own memory. The ranges may overlap.
        unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
        return Ok(());
    }
    driver.copy(to.addr(), from.addr(), bytes, stream)
}

fn copy_async(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
    stream: hipStream_t,
) -> Answer {
    check_kind(kind)?;
    copy(to, from, bytes, kind, stream)
}

fn copy_now(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
    stream: hipStream_t,
) -> Answer {
    check_kind(kind)?;
    now(stream, || copy(to, from, bytes, kind, stream))
}

/// One side of a copy of rows.
#[derive(Clone, Copy, Debug)]
struct Rows {
    /// The address by which AMD's runtime looks up the memory.
    base: *const c_void,
    /// The distance from there to the first byte.
    offset: usize,
    /// The distance between rows, in bytes.
    pitch: usize,
    /// The distance between slices, in rows.
    rows: usize,
}

impl Rows {
    /// Refuses rows that do not fit into the known memory.
    fn check(&self, [width, height, depth]: [usize; 3]) -> Answer {
        let rows = (depth - 1).checked_mul(self.rows).and_then(|rows| rows.checked_add(height - 1));
        let span =
            rows.and_then(|rows| rows.checked_mul(self.pitch)).and_then(|bytes| bytes.checked_add(width));
        let end = span.and_then(|span| span.checked_add(self.offset));
        memory::check(self.base, end.ok_or(hipErrorInvalidValue)?)
    }

    fn side(&self) -> Side {
        Side::of(self.base.addr().wrapping_add(self.offset), place(self.base), self.pitch, self.rows)
    }
}

/// Checks a copy of rows and describes it for the driver.
fn described(to: Rows, from: Rows, extent: [usize; 3]) -> Answer<Copy3D> {
    to.check(extent)?;
    from.check(extent)?;
    Ok(Copy3D { src: from.side(), dst: to.side(), extent })
}

fn copy_rows(to: Rows, from: Rows, extent: [usize; 3], stream: hipStream_t) -> Answer {
    let copy = described(to, from, extent)?;
    enter_on(stream)?.copy_3d(&copy, stream)
}

/// One plane: `hipMemcpy2D`.
#[derive(Clone, Copy, Debug)]
struct Plane {
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
}

impl Plane {
    fn copy(self, kind: hipMemcpyKind, stream: hipStream_t) -> Answer {
        enter_on(stream)?;
        check_kind(kind)?;
        if self.width == 0 || self.height == 0 {
            return Ok(());
        }
        if self.to.is_null() || self.from.is_null() {
            return Err(hipErrorInvalidValue);
        }
        if self.width > self.to_pitch || self.width > self.from_pitch {
            return Err(hipErrorInvalidPitchValue);
        }
        let to = Rows { base: self.to, offset: 0, pitch: self.to_pitch, rows: self.height };
        let from = Rows { base: self.from, offset: 0, pitch: self.from_pitch, rows: self.height };
        copy_rows(to, from, [self.width, self.height, 1], stream)
    }
}

/// Returns the address that a description of memory means. Arrays are not supported.
fn base(kind: hipMemoryType, host: *const c_void, device: *const c_void) -> Answer<*const c_void> {
    match kind.kind(blobs::major()) {
        Some(MemoryKind::Host) => Ok(host),
        Some(MemoryKind::Device | MemoryKind::Unified | MemoryKind::Managed) => Ok(device),
        Some(MemoryKind::Array) => Err(hipErrorNotSupported),
        Some(MemoryKind::Unregistered) | None => Err(hipErrorInvalidValue),
    }
}

/// Copies one plane as `hip_Memcpy2D` describes it. Arrays are not supported.
fn copy_param(copy: *const hip_Memcpy2D, stream: hipStream_t) -> Answer {
    let copy = get(copy)?;
    enter_on(stream)?;
    if copy.width_in_bytes == 0 || copy.height == 0 {
        return Ok(());
    }
    let side = |kind: hipMemoryType,
                host: *const c_void,
                device: *const c_void,
                x: usize,
                y: usize,
                pitch: usize| {
        let base = base(kind, host, device)?;
        // A pitch of 0 means that there are no gaps between rows.
        let pitch = if pitch == 0 { copy.width_in_bytes } else { pitch };
        if base.is_null() || pitch < copy.width_in_bytes {
            return Err(hipErrorInvalidValue);
        }
        let offset =
            y.checked_mul(pitch).and_then(|bytes| bytes.checked_add(x)).ok_or(hipErrorInvalidValue)?;
        Ok(Rows { base, offset, pitch, rows: copy.height })
    };
    let from = side(
        copy.src_memory_type,
        copy.src_host,
        copy.src_device,
        copy.src_x_in_bytes,
        copy.src_y,
        copy.src_pitch,
    )?;
    let to = side(
        copy.dst_memory_type,
        copy.dst_host,
        copy.dst_device,
        copy.dst_x_in_bytes,
        copy.dst_y,
        copy.dst_pitch,
    )?;
    copy_rows(to, from, [copy.width_in_bytes, copy.height, 1], stream)
}

/// One side of `HIP_MEMCPY3D`. Up to 5.x its numbers have 32 bits, later 64 (`W`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct BoxSide<W> {
    /// The first byte in a row, the first row, the first slice, the level of detail.
    at: [W; 4],
    kind: hipMemoryType,
    host: *const c_void,
    device: *const c_void,
    array: *const c_void,
    /// The distances between rows in bytes and between slices in rows. 0: no gaps.
    pitch: W,
    rows: W,
}

/// `HIP_MEMCPY3D` of driver_types.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct BoxCopy<W> {
    from: BoxSide<W>,
    to: BoxSide<W>,
    extent: [W; 3],
}

const _: () = assert!(size_of::<BoxCopy<u32>>() == 128 && size_of::<BoxCopy<usize>>() == 184);

impl<W: Copy + TryInto<usize>> BoxCopy<W> {
    fn copy(&self, stream: hipStream_t) -> Answer {
        enter_on(stream)?;
        let wide = |number: W| number.try_into().map_err(|_| hipErrorInvalidValue);
        let [width, height, depth] = self.extent.map(wide);
        let (width, height, depth) = (width?, height?, depth?);
        if width == 0 || height == 0 || depth == 0 {
            return Ok(());
        }
        let side = |side: &BoxSide<W>| {
            let base = base(side.kind, side.host, side.device)?;
            let [x, y, z, _] = side.at.map(wide);
            let (x, y, z, pitch, rows) = (x?, y?, z?, wide(side.pitch)?, wide(side.rows)?);
            let pitch = if pitch == 0 { width } else { pitch };
            let rows = if rows == 0 { height } else { rows };
            if base.is_null() || pitch < width || depth > 1 && rows < height {
                return Err(hipErrorInvalidValue);
            }
            let start = z.checked_mul(rows).and_then(|row| row.checked_add(y));
            let start = start.and_then(|row| row.checked_mul(pitch)).and_then(|byte| byte.checked_add(x));
            Ok(Rows { base, offset: start.ok_or(hipErrorInvalidValue)?, pitch, rows })
        };
        copy_rows(side(&self.to)?, side(&self.from)?, [width, height, depth], stream)
    }
}

/// Copies a box as `HIP_MEMCPY3D` describes it. Arrays are not supported.
fn copy_box(copy: *const HIP_MEMCPY3D, stream: hipStream_t) -> Answer {
    if blobs::major() < 6 {
        get(copy.cast::<BoxCopy<u32>>())?.copy(stream)
    } else {
        get(copy.cast::<BoxCopy<usize>>())?.copy(stream)
    }
}

/// Checks a 3D copy like `ihipMemcpy3D_validate`, and describes it for the driver. `None` if it copies
/// nothing.
pub(crate) fn slices(params: *const hipMemcpy3DParms) -> Answer<Option<Copy3D>> {
    let params = get(params)?;
    if !params.src_array.is_null() || !params.dst_array.is_null() {
        return Err(hipErrorNotSupported);
    }
    if params.src_ptr.ptr.is_null() || params.dst_ptr.ptr.is_null() {
        return Err(hipErrorInvalidValue);
    }
    check_kind(params.kind)?;
    let extent = params.extent;
    if extent.count() == 0 {
        return Ok(None);
    }
    let side = |memory: hipPitchedPtr, at: hipPos| {
        if extent.width > memory.pitch {
            return Err(hipErrorInvalidPitchValue);
        }
        let rows = at.z.checked_mul(memory.ysize).and_then(|rows| rows.checked_add(at.y));
        let offset =
            rows.and_then(|rows| rows.checked_mul(memory.pitch)).and_then(|bytes| bytes.checked_add(at.x));
        let offset = offset.ok_or(hipErrorInvalidValue)?;
        let rows = if extent.depth == 1 { memory.ysize.max(extent.height) } else { memory.ysize };
        Ok(Rows { base: memory.ptr.cast_const(), offset, pitch: memory.pitch, rows })
    };
    let (to, from) = (side(params.dst_ptr, params.dst_pos)?, side(params.src_ptr, params.src_pos)?);
    described(to, from, [extent.width, extent.height, extent.depth]).map(Some)
}

fn copy_slices(params: *const hipMemcpy3DParms, stream: hipStream_t) -> Answer {
    match slices(params)? {
        Some(copy) => enter_on(stream)?.copy_3d(&copy, stream),
        None => enter_on(stream).map(drop),
    }
}

/// A copy between two devices.
fn copy_peer(
    (to, to_device): (*mut c_void, c_int),
    (from, from_device): (*const c_void, c_int),
    bytes: usize,
    stream: hipStream_t,
) -> Answer {
    check_device(to_device)?;
    check_device(from_device)?;
    if bytes == 0 {
        return Ok(());
    }
    if to.is_null() || from.is_null() {
        return Err(hipErrorInvalidValue);
    }
    // The driver determines the devices from the addresses, as for any other copy.
    copy(to, from, bytes, hipMemcpyDefault, stream)
}

api! {
    [pfn] fn hipMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) {
        copy_now(to, from, bytes, kind, LEGACY)
    }
    [pfn] fn hipMemcpy_spt(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) {
        copy_now(to, from, bytes, kind, OWN)
    }
    [pfn] fn hipMemcpyHtoD(to: hipDeviceptr_t, from: *const c_void, bytes: usize) {
        copy_now(to, from, bytes, hipMemcpyHostToDevice, LEGACY)
    }
    [pfn] fn hipMemcpyDtoH(to: *mut c_void, from: hipDeviceptr_t, bytes: usize) {
        copy_now(to, from, bytes, hipMemcpyDeviceToHost, LEGACY)
    }
    [pfn] fn hipMemcpyDtoD(to: hipDeviceptr_t, from: hipDeviceptr_t, bytes: usize) {
        copy_now(to, from, bytes, hipMemcpyDeviceToDevice, LEGACY)
    }
    [pfn] fn hipMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind,
        stream: hipStream_t) {
        copy_async(to, from, bytes, kind, stream)
    }
    [pfn] fn hipMemcpyAsync_spt(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind,
        stream: hipStream_t) {
        copy_async(to, from, bytes, kind, per_thread(stream))
    }
    [pfn] fn hipMemcpyHtoDAsync(to: hipDeviceptr_t, from: *const c_void, bytes: usize, stream: hipStream_t) {
        copy_async(to, from, bytes, hipMemcpyHostToDevice, stream)
    }
    [pfn] fn hipMemcpyDtoHAsync(to: *mut c_void, from: hipDeviceptr_t, bytes: usize, stream: hipStream_t) {
        copy_async(to, from, bytes, hipMemcpyDeviceToHost, stream)
    }
    [pfn] fn hipMemcpyDtoDAsync(to: hipDeviceptr_t, from: hipDeviceptr_t, bytes: usize, stream: hipStream_t) {
        copy_async(to, from, bytes, hipMemcpyDeviceToDevice, stream)
    }
    [pfn] fn hipMemcpyWithStream(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind,
        stream: hipStream_t) {
        copy_async(to, from, bytes, kind, stream)?;
        // A copy within a device is asynchronous (`hipMemcpyWithStream` in hip_memory.cpp), but not in 5.2 (tested on 5.2.3).
        let within = blobs::major() >= 6 && place(to) == Place::Device && place(from) == Place::Device;
        if within || captures::is_capturing(stream) {
            return Ok(());
        }
        let driver = enter_on(stream)?;
        captures::aside(driver, || driver.stream_synchronize(stream))
    }
    [pfn] fn hipMemcpyPeer(to: *mut c_void, to_device: c_int, from: *const c_void, from_device: c_int, bytes: usize) {
        now(LEGACY, || copy_peer((to, to_device), (from, from_device), bytes, LEGACY))
    }
    [pfn] fn hipMemcpyPeerAsync(to: *mut c_void, to_device: c_int, from: *const c_void, from_device: c_int,
        bytes: usize, stream: hipStream_t) {
        copy_peer((to, to_device), (from, from_device), bytes, stream)
    }
    [pfn] fn hipMemcpy2D(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize,
        height: usize, kind: hipMemcpyKind) {
        now(LEGACY, || Plane { to, to_pitch, from, from_pitch, width, height }.copy(kind, LEGACY))
    }
    [pfn] fn hipMemcpy2D_spt(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize,
        height: usize, kind: hipMemcpyKind) {
        now(OWN, || Plane { to, to_pitch, from, from_pitch, width, height }.copy(kind, OWN))
    }
    [pfn] fn hipMemcpy2DAsync(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize,
        height: usize, kind: hipMemcpyKind, stream: hipStream_t) {
        Plane { to, to_pitch, from, from_pitch, width, height }.copy(kind, stream)
    }
    [pfn] fn hipMemcpy2DAsync_spt(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize,
        width: usize, height: usize, kind: hipMemcpyKind, stream: hipStream_t) {
        Plane { to, to_pitch, from, from_pitch, width, height }.copy(kind, per_thread(stream))
    }
    [pfn] fn hipMemcpyParam2D(copy: *const hip_Memcpy2D) { now(LEGACY, || copy_param(copy, LEGACY)) }
    [pfn] fn hipDrvMemcpy2DUnaligned(copy: *const hip_Memcpy2D) { now(LEGACY, || copy_param(copy, LEGACY)) }
    [pfn] fn hipMemcpyParam2DAsync(copy: *const hip_Memcpy2D, stream: hipStream_t) { copy_param(copy, stream) }
    [pfn] fn hipDrvMemcpy3D(copy: *const HIP_MEMCPY3D) { now(LEGACY, || copy_box(copy, LEGACY)) }
    [pfn] fn hipDrvMemcpy3DAsync(copy: *const HIP_MEMCPY3D, stream: hipStream_t) { copy_box(copy, stream) }
    [pfn] fn hipMemcpy3D(params: *const hipMemcpy3DParms) { now(LEGACY, || copy_slices(params, LEGACY)) }
    [pfn] fn hipMemcpy3D_spt(params: *const hipMemcpy3DParms) { now(OWN, || copy_slices(params, OWN)) }
    [pfn] fn hipMemcpy3DAsync(params: *const hipMemcpy3DParms, stream: hipStream_t) { copy_slices(params, stream) }
    [pfn] fn hipMemcpy3DAsync_spt(params: *const hipMemcpy3DParms, stream: hipStream_t) {
        copy_slices(params, per_thread(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn rows_beyond_known_memory_are_refused() {
        memory::keep(0x10_0000, 1000, Kind::Device, 0);
        let rows = Rows { base: ptr::without_provenance(0x10_0000), offset: 0, pitch: 100, rows: 5 };
        assert_eq!(rows.check([100, 10, 1]), Ok(()));
        assert_eq!(rows.check([100, 5, 2]), Ok(()));
        assert_eq!(rows.check([100, 6, 2]), Err(hipErrorInvalidValue));
        assert_eq!(Rows { offset: 1000, ..rows }.check([1, 1, 1]), Err(hipErrorInvalidValue));
        assert_eq!(rows.check([1, usize::MAX, 2]), Err(hipErrorInvalidValue), "the product overflows");
        assert_eq!(place(ptr::without_provenance(0x10_0000)), Place::Device);
        assert_eq!(place(ptr::without_provenance(0x20_0000)), Place::Host);
    }
}
