//! Copies and fills of two and three dimensions, copies of the program's variables, and copies between
//! devices. Their parameters are small and copied. The memory of the rows decides whether they may be
//! deferred, as in one dimension.

#![allow(clippy::too_many_arguments, reason = "the runtime's functions have as many")]

use super::copy::{go_later, visits_others};
use super::defer::{self, after_all_if};
use super::{copy, drain, turn};
use crate::boundary::Call;
use crate::process::streams::{Found, Target};
use crate::process::subject;
use crate::process::{self, Process};
use hal_hip::command::memory_key;
use hal_hip::memory::{self, Deferral, Rows};
use hal_hip::real::RuntimeFunctions;
use hal_hip::waits;
use hip_sys::pfn;
use hip_sys::types::{
    MemoryKind, hip_Memcpy2D, hipError_t, hipExtent, hipMemcpy3DParms, hipMemcpyDefault,
    hipMemcpyDeviceToDevice, hipMemcpyKind, hipPitchedPtr, hipPos, hipStream_t, hipSuccess,
};
use std::ffi::{c_int, c_void};
use xqueue::{CommandSpec, CostKey};

/// Makes a copy from side to side, or defers it. A copy with an unknown side is made in order, or at once if
/// `is_refused` says that the runtime refuses it. `sides` are destination and source.
///
/// # Safety
///
/// As for [`go_later`].
unsafe fn go(
    found: Found,
    key: CostKey,
    sides: Option<(Rows, Rows)>,
    is_refused: impl FnOnce() -> bool,
    later: impl FnOnce(&RuntimeFunctions, &Rows, &Rows) -> Deferral,
    invoke: impl Fn(Option<*const c_void>) -> hipError_t + 'static,
) -> hipError_t {
    let Some((to, from)) = sides else {
        return if is_refused() {
            invoke(None)
        } else {
            turn::take(found, &turn::spec(key).about(subject::COPY), || invoke(None))
        };
    };
    let spec = after_all_if(visits_others(found, [to.start, from.start]), key);
    // SAFETY: this function requires what `go_later` does.
    unsafe { go_later(found, &spec, |real| later(real, &to, &from), || from, invoke) }
}

pub(crate) unsafe fn rows(
    call: Call<pfn::hipMemcpy2DAsync>,
    per_thread: bool,
    dst: *mut c_void,
    dpitch: usize,
    src: *const c_void,
    spitch: usize,
    width: usize,
    height: usize,
    kind: hipMemcpyKind,
    stream: hipStream_t,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        let invoke = move |packed: Option<*const c_void>| {
            let (src, spitch) = packed.map_or((src, spitch), |packed| (packed, width));
            // SAFETY: the arguments are the caller's own, or the source is a packed copy of its rows.
            unsafe { real(dst, dpitch, src, spitch, width, height, kind, raw) }
        };
        let Some(found) = found else { return invoke(None) };
        let to = Rows::plane(dst.cast_const(), dpitch, width, height);
        let from = Rows::plane(src, spitch, width, height);
        let key = memory_key(64 + kind.0, from.bytes());
        let later = |real: &RuntimeFunctions, to: &Rows, from: &Rows| match width > dpitch.min(spitch) {
            true => Deferral::Nothing, // refused, unless there are no rows
            false => memory::rows_deferral(real, to, from, kind),
        };
        // SAFETY: the arguments are the caller's own, and any thread may make the copy.
        unsafe { go(found, key, Some((to, from)), || false, later, invoke) }
    })
}

/// Returns one side of a three-dimensional copy, if it is no array and its position lies in its rows.
fn side(memory: &hipPitchedPtr, position: hipPos, extent: hipExtent) -> Option<Rows> {
    let hipPitchedPtr { ptr, pitch, ysize, .. } = *memory;
    let hipExtent { width, height, depth } = extent;
    let slice = pitch.checked_mul(ysize)?;
    let fits = position.x.checked_add(width)? <= pitch
        && (depth == 1 && position.z == 0 || position.y.checked_add(height)? <= ysize);
    let rows = position.z.checked_mul(slice)?.checked_add(position.y.checked_mul(pitch)?)?;
    let offset = rows.checked_add(position.x)?;
    let start = ptr.cast_const().wrapping_byte_add(offset);
    (fits && !ptr.is_null()).then_some(Rows { start, offset, pitch, slice, extent: [width, height, depth] })
}

fn has_array(given: &hipMemcpy3DParms) -> bool {
    !given.src_array.is_null() || !given.dst_array.is_null()
}

pub(crate) unsafe fn slices(
    call: Call<pfn::hipMemcpy3DAsync>,
    per_thread: bool,
    params: *const hipMemcpy3DParms,
    stream: hipStream_t,
) -> hipError_t {
    // SAFETY: the parameters are the caller's own, or null.
    let given = unsafe { params.as_ref() }.copied();
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        let (Some(found), Some(given)) = (found, given) else {
            // SAFETY: the arguments are the caller's own.
            return unsafe { real(params, raw) };
        };
        let hipExtent { width, height, .. } = given.extent;
        let invoke = move |packed: Option<*const c_void>| {
            let mut params = given;
            if let Some(packed) = packed {
                let ptr = packed.cast_mut();
                params.src_ptr = hipPitchedPtr { ptr, pitch: width, xsize: width, ysize: height };
                params.src_pos = hipPos { x: 0, y: 0, z: 0 };
            }
            // SAFETY: the parameters are a copy of the caller's, or the source is a packed copy of its rows.
            unsafe { real(&params, raw) }
        };
        let in_memory = || {
            let to = side(&given.dst_ptr, given.dst_pos, given.extent)?;
            Some((to, side(&given.src_ptr, given.src_pos, given.extent)?))
        };
        let sides = if has_array(&given) { None } else { in_memory() };
        let key = memory_key(128 + given.kind.0, given.extent.count());
        let later = |real: &RuntimeFunctions, to: &Rows, from: &Rows| {
            memory::rows_deferral(real, to, from, given.kind)
        };
        // SAFETY: the arguments are the caller's own, and any thread may make the copy.
        unsafe { go(found, key, sides, || slices_are_refused(&given), later, invoke) }
    })
}

/// Returns true if the runtime refuses a copy for its parameters, or has nothing to copy. Each side must be
/// an array or memory, and a row of memory must not be longer than the pitch (`ihipMemcpy3D_validate` in
/// hipamd/src/hip_memory.cpp, `BufferRect::create` in rocclr/platform/memory.cpp).
fn slices_are_refused(given: &hipMemcpy3DParms) -> bool {
    let hipExtent { width, height, depth } = given.extent;
    let sides = [(&given.dst_ptr, given.dst_array.is_null()), (&given.src_ptr, given.src_array.is_null())];
    if sides.iter().any(|(memory, no_array)| *no_array && memory.ptr.is_null()) {
        return true;
    }
    let too_long = sides.iter().any(|(memory, _)| memory.pitch != 0 && memory.pitch < width);
    !has_array(given) && (too_long || [width, height, depth].contains(&0))
}

/// Returns true if a synchronous copy with these parameters returns only when it is done.
///
/// # Safety
///
/// The parameters are null or can be read.
pub(crate) unsafe fn slices_wait(real: &RuntimeFunctions, params: *const hipMemcpy3DParms) -> bool {
    // SAFETY: by the contract the parameters are null or can be read.
    let Some(given) = (unsafe { params.as_ref() }) else { return false };
    !has_array(given) && waits::rows(real, given.dst_ptr.ptr, given.src_ptr.ptr, given.extent.count())
}

/// Returns true if a synchronous copy of rows with these parameters returns only when it is done.
///
/// # Safety
///
/// As for [`slices_wait`].
pub(crate) unsafe fn described_waits(real: &RuntimeFunctions, params: *const hip_Memcpy2D) -> bool {
    // SAFETY: by the contract the parameters are null or can be read.
    let Some(given) = (unsafe { params.as_ref() }) else { return false };
    let [dst, src] = Described::sides(given, real.major).map(|side| side.base());
    let bytes = given.width_in_bytes.saturating_mul(given.height);
    dst.zip(src).is_some_and(|(dst, src)| waits::rows(real, dst, src, bytes))
}

/// One side of a copy by [`hip_Memcpy2D`].
struct Described {
    kind: Option<MemoryKind>,
    host: *const c_void,
    device: *const c_void,
    pitch: usize,
    /// The offset in the row, in bytes, and the row.
    position: [usize; 2],
}

impl Described {
    /// Returns destination and source.
    fn sides(given: &hip_Memcpy2D, major: u32) -> [Self; 2] {
        let to = Self {
            kind: given.dst_memory_type.kind(major),
            host: given.dst_host,
            device: given.dst_device,
            pitch: given.dst_pitch,
            position: [given.dst_x_in_bytes, given.dst_y],
        };
        let from = Self {
            kind: given.src_memory_type.kind(major),
            host: given.src_host,
            device: given.src_device,
            pitch: given.src_pitch,
            position: [given.src_x_in_bytes, given.src_y],
        };
        [to, from]
    }

    /// Returns the address that counts; `None` for an array, and for a kind that no copy may state.
    fn base(&self) -> Option<*const c_void> {
        match self.kind? {
            MemoryKind::Host => Some(self.host),
            MemoryKind::Device | MemoryKind::Unified => Some(self.device),
            MemoryKind::Managed | MemoryKind::Array | MemoryKind::Unregistered => None,
        }
    }

    fn rows(&self, width: usize, height: usize) -> Option<Rows> {
        let base = self.base()?;
        let [x, y] = self.position;
        let offset = y.checked_mul(self.pitch)?.checked_add(x)?;
        let fits = x.checked_add(width)? <= self.pitch && !base.is_null();
        let rows = Rows::plane(base.wrapping_byte_add(offset), self.pitch, width, height);
        fits.then_some(Rows { offset, ..rows })
    }

    /// Returns true if the copy states device memory and these rows are not: the runtime believes what it
    /// states.
    fn is_wrong(&self, real: &RuntimeFunctions, rows: &Rows) -> bool {
        self.kind == Some(MemoryKind::Device)
            && memory::place(real, rows.start) == Some(memory::Location::Pageable)
    }

    /// Returns true if the runtime refuses rows of this width here; `None` if that is unknown.
    fn is_refused(&self, width: usize) -> Option<bool> {
        let base = self.base().filter(|_| self.kind != Some(MemoryKind::Unified))?;
        Some(base.is_null() || self.pitch != 0 && self.pitch < width)
    }
}

pub(crate) unsafe fn described(
    call: Call<pfn::hipMemcpyParam2DAsync>,
    params: *const hip_Memcpy2D,
    stream: hipStream_t,
) -> hipError_t {
    // SAFETY: the parameters are the caller's own, or null.
    let given = unsafe { params.as_ref() }.copied();
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, false);
        let (Some(found), Some(given)) = (found, given) else {
            // SAFETY: the arguments are the caller's own.
            return unsafe { real(params, raw) };
        };
        let (width, height) = (given.width_in_bytes, given.height);
        let invoke = move |packed: Option<*const c_void>| {
            let mut params = given;
            if let Some(packed) = packed {
                (params.src_host, params.src_device) = (packed, packed.cast_mut());
                (params.src_pitch, params.src_x_in_bytes, params.src_y) = (width, 0, 0);
            }
            // SAFETY: the parameters are a copy of the caller's, or the source is a packed copy of its rows.
            unsafe { real(&params, raw) }
        };
        let [dst, src] = Described::sides(&given, found.process.real.major);
        let sides = dst.rows(width, height).zip(src.rows(width, height));
        let key = memory_key(192, width.saturating_mul(height));
        // The runtime refuses parameters in `BufferRect::create` (rocclr/platform/memory.cpp) and its callers
        // (hipamd/src/hip_memory.cpp), or has nothing to copy.
        let is_refused = || {
            let refused = dst.is_refused(width).zip(src.is_refused(width));
            refused.is_some_and(|(to, from)| to || from) || width == 0 || height == 0
        };
        let later = |real: &RuntimeFunctions, to: &Rows, from: &Rows| match dst.is_wrong(real, to)
            || src.is_wrong(real, from)
        {
            true => Deferral::No,
            false => memory::rows_deferral(real, to, from, hipMemcpyDefault),
        };
        // SAFETY: the arguments are the caller's own, and any thread may make the copy.
        unsafe { go(found, key, sides, is_refused, later, invoke) }
    })
}

/// The copies between the program's variables and `other` memory, which is the source if `to_symbol` is true.
/// `invoke` makes the real call with the other memory, or a copy of the source.
///
/// # Safety
///
/// The addresses meet the contract of the runtime's function, which may be called on any thread.
pub(crate) unsafe fn symbol<F: Copy + 'static>(
    call: Call<F>,
    (stream, per_thread): (hipStream_t, bool),
    (symbol, offset): (*const c_void, usize),
    (other, to_symbol): (*const c_void, bool),
    (bytes, kind): (usize, hipMemcpyKind),
    invoke: impl Fn(F, *const c_void, hipStream_t) -> hipError_t + 'static,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, per_thread);
        let invoke = move |staged: Option<*const c_void>| invoke(real, staged.unwrap_or(other), raw);
        let Some(found) = found else { return invoke(None) };
        let spec = after_all_if(visits_others(found, [other, other]), memory_key(kind.0, bytes));
        let later = |real: &RuntimeFunctions| {
            let variable = memory::symbol(real, symbol, offset, bytes);
            match memory::symbol_deferral(real, variable, other, !to_symbol, (bytes, kind)) {
                Deferral::Staged if !to_symbol => Deferral::No,
                later => later,
            }
        };
        // SAFETY: this function requires what `go_later` does; a source has `bytes` bytes.
        unsafe { go_later(found, &spec, later, || Rows::plane(other, bytes, bytes, 1), invoke) }
    })
}

pub(crate) unsafe fn peer(
    call: Call<pfn::hipMemcpyPeerAsync>,
    dst: *mut c_void,
    dst_device: c_int,
    src: *const c_void,
    src_device: c_int,
    bytes: usize,
    stream: hipStream_t,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, false);
        // SAFETY: the arguments are the caller's own.
        let invoke = move |src| unsafe { real(dst, dst_device, src, src_device, bytes, raw) };
        let Some(found) = found else {
            drain::beside(own, &drain::after_all());
            return invoke(src);
        };
        let devices = i64::from(found.process.real.devices);
        let exist = [dst_device, src_device].iter().all(|&device| (0..devices).contains(&device.into()));
        if !exist {
            return invoke(src); // The runtime refuses it, whatever is pending.
        }
        // SAFETY: the arguments are the caller's own, and any thread may make the copy.
        unsafe { copy::go(found, dst.cast_const(), src, bytes, hipMemcpyDeviceToDevice, invoke) }
    })
}

/// `hipMemcpyWithStream`, which waits for the copy unless it stays inside a device
pub(crate) unsafe fn with_stream(
    call: Call<pfn::hipMemcpyWithStream>,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
    stream: hipStream_t,
) -> hipError_t {
    call.handle(|real, own| {
        let Target { raw, found } = Target::of(own, stream, false);
        // SAFETY: the arguments are the caller's own.
        let invoke = move |src| unsafe { real(dst, src, bytes, kind, raw) };
        let Some(found) = found else { return invoke(src) };
        let completes = waits::copy(found.process.real, dst, src, bytes, kind);
        if kind == hipMemcpyDeviceToDevice && !completes {
            // SAFETY: the arguments are the caller's own, and any thread may make the copy.
            return unsafe { copy::go(found, dst.cast_const(), src, bytes, kind, invoke) };
        }
        let spec = CommandSpec {
            completes,
            ..after_all_if(visits_others(found, [dst, src]), memory_key(kind.0, bytes))
        }
        .about(subject::COPY);
        let later = |real: &RuntimeFunctions| match memory::copy_deferral(real, dst, src, bytes, kind) {
            Deferral::Nothing => Deferral::Nothing,
            _ => Deferral::No,
        };
        let invoke = move |_| invoke(src);
        // SAFETY: the copy is made on the calling thread, with the caller's own arguments.
        unsafe { go_later(found, &spec, later, || Rows::plane(src, bytes, bytes, 1), invoke) }
    })
}

/// The destination of a prefetch to the host.
const HOST: c_int = -1;

pub(crate) unsafe fn prefetch(
    call: Call<pfn::hipMemPrefetchAsync>,
    address: *const c_void,
    count: usize,
    device: c_int,
    stream: hipStream_t,
) -> hipError_t {
    // A prefetch on the default stream runs on the default stream of its device.
    let elsewhere = stream.is_legacy_default() && device != HOST;
    let spec = after_all_if(elsewhere, memory_key(256, count));
    let later = |process: &Process| {
        let exists = device == HOST || (0..i64::from(process.real.devices)).contains(&device.into());
        if !exists || memory::prefetch_is_refused(process.real, address, count) {
            return Deferral::Nothing;
        }
        // Some runtimes and devices refuse prefetches, by the call's error.
        Deferral::if_certain(
            process.prefetches.lock().contains(&device) && memory::is_managed(process.real, address, count),
        )
    };
    let invoke = move |real: pfn::hipMemPrefetchAsync, stream| {
        // SAFETY: the arguments are the caller's own.
        let code = unsafe { real(address, count, device, stream) };
        if let Some(process) = process::get().filter(|_| code == hipSuccess) {
            process.prefetches.lock().insert(device);
        }
        code
    };
    // SAFETY: the memory stays valid until the stream is done with it, as natively.
    unsafe { defer::own(call, (stream, false), ("prefetch", spec), later, invoke) }
}

/// The asynchronous fills of rows. `extent` has the values of a row, the rows, and the bytes of a value
pub(crate) unsafe fn fill<V: Copy + 'static>(
    call: Call<unsafe extern "C" fn(*mut c_void, usize, V, usize, usize, hipStream_t) -> hipError_t>,
    dst: *mut c_void,
    pitch: usize,
    value: V,
    extent: [usize; 3],
    (stream, per_thread): (hipStream_t, bool),
) -> hipError_t {
    let [width, height, size] = extent;
    let rows = Rows::plane(dst.cast_const(), pitch, width.saturating_mul(size), height);
    // The runtime refuses rows of bytes that are longer than the pitch (`ihipMemset3DCommand` in
    // hipamd/src/hip_memory.cpp). For larger values that is unknown.
    let too_long = size == 1 && pitch < width;
    let later = |process: &Process| match too_long {
        true => Deferral::Nothing,
        false => memory::fill_rows_deferral(process.real, &rows),
    };
    let invoke = move |real: unsafe extern "C" fn(_, _, _, _, _, _) -> _, stream| {
        // SAFETY: the arguments are the caller's own.
        unsafe { real(dst, pitch, value, width, height, stream) }
    };
    let command = ("fill", turn::spec(memory_key(17, rows.bytes())).about(subject::FILL));
    // SAFETY: the memory stays valid until the fill is done, as natively.
    unsafe { defer::own(call, (stream, per_thread), command, later, invoke) }
}

pub(crate) unsafe fn fill_slices(
    call: Call<pfn::hipMemset3DAsync>,
    per_thread: bool,
    memory: hipPitchedPtr,
    value: c_int,
    extent: hipExtent,
    stream: hipStream_t,
) -> hipError_t {
    let rows = side(&memory, hipPos { x: 0, y: 0, z: 0 }, extent);
    // As in `fill`, but the runtime compares the memory's own width.
    let too_long = memory.pitch < memory.xsize && memory.pitch != extent.width;
    let later = |process: &Process| match rows {
        _ if too_long => Deferral::Nothing,
        Some(rows) => memory::fill_rows_deferral(process.real, &rows),
        // It does not fit into its rows, so only a refusal whatever the rows is certain.
        None => match memory::fill_deferral(process.real, memory.ptr, extent.count()) {
            Deferral::Nothing => Deferral::Nothing,
            _ => Deferral::No,
        },
    };
    let invoke = move |real: pfn::hipMemset3DAsync, stream| {
        // SAFETY: the arguments are the caller's own.
        unsafe { real(memory, value, extent, stream) }
    };
    let command =
        ("fill", turn::spec(memory_key(18, rows.map_or(0, |rows| rows.bytes()))).about(subject::FILL));
    // SAFETY: the memory stays valid until the fill is done, as natively.
    unsafe { defer::own(call, (stream, per_thread), command, later, invoke) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_follows_position_and_pitch() {
        let mut bytes = [0_u8; 1];
        let ptr = bytes.as_mut_ptr().cast::<c_void>();
        let memory = |pitch, ysize| hipPitchedPtr { ptr, pitch, xsize: 0, ysize };
        let at = |x, y, z| hipPos { x, y, z };
        let of = |width, height, depth| hipExtent { width, height, depth };
        let rows = side(&memory(16, 4), at(3, 2, 1), of(13, 2, 3)).expect("it fits");
        assert_eq!(rows.start.addr() - ptr.addr(), 64 + 32 + 3);
        assert_eq!((rows.pitch, rows.slice), (16, 64));
        // With one slice the number of rows is not limited.
        assert!(side(&memory(16, 0), at(0, 0, 0), of(16, 9, 1)).is_some());
        assert!(side(&memory(16, 4), at(4, 0, 0), of(13, 1, 1)).is_none(), "past the end of the row");
        assert!(side(&memory(16, 4), at(0, 3, 1), of(1, 2, 1)).is_none(), "past the end of the slice");
        assert!(side(&memory(16, 4), at(0, 1, 0), of(1, 4, 2)).is_none(), "past the end of the slice");
        assert!(side(&memory(usize::MAX, 2), at(0, 0, 0), of(1, 1, 1)).is_none(), "the slice overflows");
        let nothing = hipPitchedPtr { ptr: std::ptr::null_mut(), pitch: 16, xsize: 0, ysize: 4 };
        assert!(side(&nothing, at(0, 0, 0), of(1, 1, 1)).is_none());
    }
}
