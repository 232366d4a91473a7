//! The memory that a copy or fill touches, and the way in which the call can be deferred.
//!
//! Only a call that is certain to succeed, and asynchronous in the runtime as well, is deferred. A call that
//! the runtime is certain to refuse is made at once (docs/refusals.md). In all other cases the caller makes
//! the call itself, in order, and gets the runtime's own answer.

use crate::real::RuntimeFunctions;
use hip_sys::types::{
    HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, MemoryKind, hipError_t, hipMemcpyDefault,
    hipMemcpyDeviceToDevice, hipMemcpyDeviceToHost, hipMemcpyHostToDevice, hipMemcpyKind, hipMemoryType,
    hipPointerAttribute_t, hipSuccess,
};
use std::ffi::c_void;
use std::ptr;

/// The most bytes of pageable host memory that the runtime stages, so that the call returns at once.
pub const STAGED: usize = 4 << 20;

/// `hipMemcpyDeviceToDeviceNoCU` (hip_runtime_api.h from 6.0 on): a copy by a copy engine.
const DEVICE_TO_DEVICE_NO_CU: hipMemcpyKind = hipMemcpyKind(1024);

/// The directions that every release knows and that may be deferred.
const DIRECTIONS: [hipMemcpyKind; 4] =
    [hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice, hipMemcpyDefault];

/// The kind of memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// Memory of a device.
    Device {
        /// The bytes from the address to the end of its allocation.
        left: usize,
    },
    /// Pinned or managed memory.
    Pinned,
    /// Memory that the runtime does not know.
    Pageable,
}

/// The way in which a copy can be deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferral {
    /// Deferred with the caller's own addresses.
    AsItIs,
    /// Deferred with a copy of the source.
    Staged,
    /// Launched in order by the caller only.
    No,
    /// Called at once, whatever is pending: the runtime refuses it or has nothing to do.
    Nothing,
}

impl Deferral {
    /// Defers a call that is certain to succeed, with the caller's own addresses.
    pub fn if_certain(certain: bool) -> Self {
        if certain { Self::AsItIs } else { Self::No }
    }
}

/// Rows of bytes in slices: the memory that a copy or fill of two or three dimensions touches on one side.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The first byte.
    pub start: *const c_void,
    /// The distance of the first byte from the address that the runtime gets, by which it identifies the
    /// memory.
    pub offset: usize,
    /// The bytes from row to row.
    pub pitch: usize,
    /// The bytes from slice to slice.
    pub slice: usize,
    /// The bytes of a row, the rows of a slice, and the slices.
    pub extent: [usize; 3],
}

impl Rows {
    /// Creates rows in one slice.
    pub fn plane(start: *const c_void, pitch: usize, width: usize, height: usize) -> Self {
        Self { start, offset: 0, pitch, slice: 0, extent: [width, height, 1] }
    }

    /// Returns the number of bytes from the first to the last one; none if there are no bytes, or if rows or
    /// slices would overlap.
    pub fn span(&self) -> Option<usize> {
        let [width, height, depth] = self.extent;
        let fits = width <= self.pitch && (depth == 1 || self.pitch.checked_mul(height)? <= self.slice);
        if !fits || width == 0 || height == 0 || depth == 0 {
            return None;
        }
        let slices = self.slice.checked_mul(depth - 1)?;
        let rows = self.pitch.checked_mul(height - 1)?;
        slices.checked_add(rows)?.checked_add(width)
    }

    /// Returns the number of bytes in the rows.
    pub fn bytes(&self) -> usize {
        self.extent.into_iter().fold(1, usize::saturating_mul)
    }

    /// Copies all rows, one directly after the other.
    ///
    /// # Safety
    ///
    /// [`Rows::span`] returns a number, and all rows can be read.
    pub unsafe fn pack(&self) -> Vec<u8> {
        let [width, height, depth] = self.extent;
        let mut packed = Vec::with_capacity(self.bytes());
        for (z, y) in (0..depth).flat_map(|z| (0..height).map(move |y| (z, y))) {
            let row = self.start.cast::<u8>().wrapping_add(z * self.slice + y * self.pitch);
            // SAFETY: the caller guarantees that each row can be read.
            packed.extend_from_slice(unsafe { std::slice::from_raw_parts(row, width) });
        }
        packed
    }
}

/// Returns true if a look-up has succeeded. Otherwise it leaves no last error behind.
fn is_found(real: &RuntimeFunctions, code: hipError_t) -> bool {
    if code != hipSuccess {
        real.reset_last_error();
    }
    code == hipSuccess
}

/// Returns the runtime's attributes of an address, where it knows the memory.
fn attributes(real: &RuntimeFunctions, address: *const c_void) -> Option<hipPointerAttribute_t> {
    let mut attributes = hipPointerAttribute_t {
        memory_type: hipMemoryType(u32::MAX),
        device: 0,
        device_pointer: ptr::null_mut(),
        host_pointer: ptr::null_mut(),
        is_managed: 0,
        allocation_flags: 0,
    };
    // SAFETY: the function writes one structure to the given place, and looks the address up without
    // following it.
    let code = unsafe { (real.pointer_attributes)(&mut attributes, address) };
    is_found(real, code).then_some(attributes)
}

/// Returns the kind of memory at an address; none if it cannot be determined. Leaves no error behind in
/// releases that keep every result as the last error.
pub fn place(real: &RuntimeFunctions, address: *const c_void) -> Option<Location> {
    let Some(attributes) = attributes(real, address) else {
        return (real.major < 6).then_some(Location::Pageable);
    };
    match attributes.memory_type.kind(real.major)? {
        MemoryKind::Unregistered => Some(Location::Pageable),
        MemoryKind::Host | MemoryKind::Managed | MemoryKind::Unified => Some(Location::Pinned),
        MemoryKind::Device if attributes.is_managed != 0 => Some(Location::Pinned),
        MemoryKind::Device => Some(Location::Device { left: left(real, address)? }),
        MemoryKind::Array => None,
    }
}

/// Returns the number of bytes from the address to the end of the memory that the runtime knows there; none
/// if it knows none.
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "the runtime looks the address up and does not follow it")]
pub fn left(real: &RuntimeFunctions, address: *const c_void) -> Option<usize> {
    let (base, size) = range(real, address)?;
    size.checked_sub(address.addr().checked_sub(base.addr())?)
}

/// Calls the real `hipMemGetAddressRange`; none if the runtime knows no memory there.
fn address_range(real: &RuntimeFunctions, address: *const c_void) -> Option<(*mut c_void, usize)> {
    let (mut base, mut size) = (ptr::null_mut(), 0_usize);
    // SAFETY: the function writes to the two given places, and looks the address up without following it.
    let code = unsafe { (real.address_range)(&mut base, &mut size, address.cast_mut()) };
    is_found(real, code).then_some((base, size))
}

/// Returns the start and the size of the memory that the runtime knows there.
fn range(real: &RuntimeFunctions, address: *const c_void) -> Option<(*const c_void, usize)> {
    let (base, size) = address_range(real, address)?;
    // For the program's own memory that it has registered the runtime reports no start.
    let base = if base.is_null() { start_of(real, address)? } else { base };
    Some((base.cast_const(), size))
}

/// Returns true if the runtime knows no memory there: then it refuses a call that needs some. Memory of
/// unknown extent counts as known.
pub fn is_unknown(real: &RuntimeFunctions, address: *const c_void) -> bool {
    address_range(real, address).is_none()
}

/// Returns true if `bytes` exceed the `here` bytes up to the end of the memory there. If the next memory is
/// known as well, both may be mapped side by side, and newer runtimes then check the whole range of
/// addresses.
fn is_beyond(real: &RuntimeFunctions, address: *const c_void, here: usize, bytes: usize) -> bool {
    here < bytes && (real.major < 6 || left(real, address.wrapping_byte_add(here)).is_none())
}

/// The size with which the runtime compares a number of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// The rest of the memory from the address on.
    Rest,
    /// The whole memory, wherever the address is.
    Whole,
}

/// Returns true if the runtime surely refuses so many bytes there, because the memory that it knows has
/// fewer.
fn is_too_much(real: &RuntimeFunctions, address: *const c_void, bytes: usize, by: Bound) -> bool {
    let Some((base, whole)) = range(real, address) else { return false };
    let here = whole.saturating_sub(address.addr().wrapping_sub(base.addr()));
    (by == Bound::Rest || whole < bytes) && is_beyond(real, address, here, bytes)
}

/// Returns the start of the memory that the runtime knows there.
fn start_of(real: &RuntimeFunctions, address: *const c_void) -> Option<*mut c_void> {
    let mut start: *mut c_void = ptr::null_mut();
    let answer = ptr::from_mut(&mut start).cast();
    // SAFETY: this attribute is an address, and the function writes it to a place for one.
    let code = unsafe {
        (real.pointer_attribute)(answer, HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, address.cast_mut())
    };
    (is_found(real, code) && !start.is_null()).then_some(start)
}

/// Returns true if the runtime surely refuses a prefetch: of no bytes, of more bytes than a known memory has,
/// and in 5.2 of unknown memory (`hipMemPrefetchAsync` in hipamd/src/hip_hmm.cpp; 5.2.3 tested).
pub fn prefetch_is_refused(real: &RuntimeFunctions, address: *const c_void, bytes: usize) -> bool {
    if address.is_null() || bytes == 0 {
        return true;
    }
    // Unknown memory is not looked up again: from 7 on a failed look-up stays the thread's last error.
    if matches!(place(real, address), Some(Location::Pageable) | None) {
        return (real.major, real.minor) < (5, 3) && is_unknown(real, address);
    }
    left(real, address).is_some_and(|here| is_beyond(real, address, here, bytes))
}

/// Returns true if all of this is managed memory.
pub fn is_managed(real: &RuntimeFunctions, address: *const c_void, bytes: usize) -> bool {
    let managed = attributes(real, address).is_some_and(|found| {
        found.is_managed != 0 || found.memory_type.kind(real.major) == Some(MemoryKind::Managed)
    });
    managed && left(real, address).is_some_and(|left| left >= bytes)
}

/// Returns the device that owns the memory at the address.
pub fn device_of(real: &RuntimeFunctions, address: *const c_void) -> Option<u32> {
    let found = attributes(real, address)?;
    (found.memory_type.kind(real.major)? == MemoryKind::Device).then(|| u32::try_from(found.device).ok())?
}

/// Decides how a one-dimensional asynchronous copy can be deferred. [`Deferral::Nothing`] for no bytes, a null
/// address, or more bytes than are allocated (`ihipMemcpy` and `ihipMemcpy_validate` in
/// hipamd/src/hip_memory.cpp; 5.2.3 tested).
pub fn copy_deferral(
    real: &RuntimeFunctions,
    dst: *const c_void,
    src: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
) -> Deferral {
    if bytes == 0 || dst.is_null() || src.is_null() || refuses_direction(real, kind) {
        return Deferral::Nothing;
    }
    let sides = [dst, src].map(|side| holds(real, side, bytes, Bound::Rest));
    let [Ok(to), Ok(from)] = sides else { return Deferral::Nothing };
    if DIRECTIONS.contains(&kind) { decide([to, from], bytes, kind) } else { Deferral::No }
}

/// Returns the kind of memory at an address if it has so many bytes or the runtime does not know it; none if
/// it may have fewer. Fails if the memory is known and surely has fewer.
fn holds(
    real: &RuntimeFunctions,
    address: *const c_void,
    bytes: usize,
    by: Bound,
) -> Result<Option<Location>, ()> {
    let place = place(real, address);
    let here = match place {
        Some(Location::Device { left }) => Some(left),
        Some(Location::Pinned) => left(real, address),
        Some(Location::Pageable) | None => None,
    };
    match here {
        Some(here) if here < bytes && is_too_much(real, address, bytes, by) => Err(()),
        Some(here) if here < bytes => Ok(None),
        _ => Ok(place),
    }
}

/// Returns true if the runtime checks the direction and does not know this one (`hipMemcpyAsync` in
/// hipamd/src/hip_memory.cpp of October 2024; 5.2.3 copies in spite of it).
fn refuses_direction(real: &RuntimeFunctions, kind: hipMemcpyKind) -> bool {
    (real.major, real.minor) >= (6, 3) && kind.0 > hipMemcpyDefault.0 && kind != DEVICE_TO_DEVICE_NO_CU
}

/// Decides how an asynchronous copy of rows can be deferred. [`Deferral::Nothing`] without rows, for a null
/// address, or beyond the end of known memory (`ihipMemcpyParam3D` and its callees in
/// hipamd/src/hip_memory.cpp, `Buffer::validateRegion` in rocclr/platform/memory.cpp; 5.2.3 tested).
pub fn rows_deferral(real: &RuntimeFunctions, dst: &Rows, src: &Rows, kind: hipMemcpyKind) -> Deferral {
    if dst.extent.contains(&0) || dst.start.is_null() || src.start.is_null() {
        return Deferral::Nothing;
    }
    let (Some(to), Some(from)) = (dst.span(), src.span()) else { return Deferral::No };
    if !DIRECTIONS.contains(&kind) {
        return Deferral::No;
    }
    // 7.2.4 ignores the position of an address in its memory; 5.2.3 and 6.4.3 do not.
    let by = if (real.major, real.minor) < (7, 0) { Bound::Rest } else { Bound::Whole };
    let sides = [(dst, to), (src, from)].map(|(rows, span)| {
        holds(real, rows.start.wrapping_byte_sub(rows.offset), rows.offset.saturating_add(span), by)
    });
    let [Ok(to), Ok(from)] = sides else { return Deferral::Nothing };
    let later = decide([to, from], src.bytes(), kind);
    if later == Deferral::Staged { pageable_rows(real) } else { later }
}

/// Decides how a copy of pageable rows is deferred. Up to 6.4.3 the runtime has read them when its call
/// returns, so the command can own a copy. 7.2.4 reads them when the copy runs, and the caller keeps them
/// until then (both tested, of 100 B to 16 MiB). The other releases are unknown: launched in order, the call
/// is the caller's own in every way.
fn pageable_rows(real: &RuntimeFunctions) -> Deferral {
    match (real.major, real.minor) {
        (..=6, _) => Deferral::Staged,
        (7, 2) => Deferral::AsItIs,
        _ => Deferral::No,
    }
}

/// Returns the kind of memory, if it has so many bytes.
fn fits(place: Option<Location>, bytes: usize) -> Option<Location> {
    match place {
        Some(Location::Device { left }) if left < bytes => None,
        place => place,
    }
}

/// Decides how a copy of so many bytes can be deferred, by the memory of destination and source.
fn decide([dst, src]: [Option<Location>; 2], bytes: usize, kind: hipMemcpyKind) -> Deferral {
    match (dst, src) {
        (Some(Location::Device { .. }), Some(Location::Pageable)) if bytes <= STAGED => {
            // The runtime judges a copy whose direction contradicts the addresses.
            if kind == hipMemcpyHostToDevice || kind == hipMemcpyDefault {
                Deferral::Staged
            } else {
                Deferral::No
            }
        }
        (Some(Location::Pageable) | None, _) | (_, Some(Location::Pageable) | None) => Deferral::No,
        // Between host memories the runtime copies at once.
        (Some(Location::Pinned), Some(Location::Pinned)) => Deferral::No,
        (Some(to), Some(from)) => {
            let agrees = match (to, from) {
                (Location::Device { .. }, Location::Device { .. }) => kind == hipMemcpyDeviceToDevice,
                (Location::Device { .. }, _) => kind == hipMemcpyHostToDevice,
                (_, Location::Device { .. }) => kind == hipMemcpyDeviceToHost,
                _ => false,
            };
            if agrees || kind == hipMemcpyDefault { Deferral::AsItIs } else { Deferral::No }
        }
    }
}

/// Decides how a fill of rows can be deferred. [`Deferral::Nothing`] without rows, in unknown memory, or for
/// more bytes than there are (`ihipMemset3D_validate` in hipamd/src/hip_memory.cpp; 5.2.3 tested).
pub fn fill_rows_deferral(real: &RuntimeFunctions, rows: &Rows) -> Deferral {
    let later = fill_deferral(real, rows.start, rows.bytes());
    match (later, rows.span()) {
        (Deferral::Nothing, _) => Deferral::Nothing,
        (_, None) => Deferral::No,
        (_, Some(span)) => {
            Deferral::if_certain(fits(place(real, rows.start), span).is_some_and(is_of_a_device))
        }
    }
}

/// The address of a part of a program's variable, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// The address on the current device.
    At(*mut c_void),
    /// The runtime refuses: it does not know the variable, or the variable has fewer bytes
    /// (`ihipMemcpySymbol_validate` in hipamd/src/hip_memory.cpp; 5.2.3 tested).
    None,
    /// Known to the runtime only.
    Unknown,
}

/// Returns the address of so many bytes of a program's variable, from this offset on.
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "the runtime looks the symbol up and does not follow it")]
pub fn symbol(real: &RuntimeFunctions, symbol: *const c_void, offset: usize, bytes: usize) -> Symbol {
    let (mut start, mut size) = (ptr::null_mut(), 0_usize);
    // SAFETY: each function writes to one given place, and looks the symbol up without following it.
    let (found, sized) =
        unsafe { ((real.symbol_address)(&mut start, symbol), (real.symbol_size)(&mut size, symbol)) };
    if found != hipSuccess || sized != hipSuccess {
        real.reset_last_error();
        return Symbol::None;
    }
    match offset.checked_add(bytes) {
        Some(end) if end > size => Symbol::None,
        Some(_) if !start.is_null() => Symbol::At(start.wrapping_byte_add(offset)),
        // The runtime adds without checking for overflow.
        _ => Symbol::Unknown,
    }
}

/// Decides how a copy to a variable (`is_source`: from it) can be deferred; `other` is its other side.
pub fn symbol_deferral(
    real: &RuntimeFunctions,
    variable: Symbol,
    other: *const c_void,
    is_source: bool,
    (bytes, kind): (usize, hipMemcpyKind),
) -> Deferral {
    let own = if is_source { hipMemcpyDeviceToHost } else { hipMemcpyHostToDevice };
    match variable {
        Symbol::None => Deferral::Nothing,
        // From October 2024 (6.3) on only these directions are accepted; 5.2.3 copies in every one.
        _ if (real.major, real.minor) >= (6, 3)
            && ![own, hipMemcpyDeviceToDevice, DEVICE_TO_DEVICE_NO_CU].contains(&kind) =>
        {
            Deferral::Nothing
        }
        Symbol::Unknown => Deferral::No,
        Symbol::At(variable) if is_source => copy_deferral(real, other, variable, bytes, kind),
        Symbol::At(variable) => copy_deferral(real, variable, other, bytes, kind),
    }
}

/// Decides how a fill of so many bytes can be deferred. [`Deferral::Nothing`] without bytes, in unknown memory,
/// or beyond its end (`ihipMemset_validate` in hipamd/src/hip_memory.cpp; 5.2.3 tested).
pub fn fill_deferral(real: &RuntimeFunctions, dst: *const c_void, bytes: usize) -> Deferral {
    // 5.2.3 ignores the position of an address in its memory; the code of October 2024 (6.3) does not.
    let by = if (real.major, real.minor) < (6, 3) { Bound::Whole } else { Bound::Rest };
    if bytes == 0 || dst.is_null() {
        return Deferral::Nothing;
    }
    match left(real, dst) {
        None if is_unknown(real, dst) => Deferral::Nothing,
        None => Deferral::No,
        Some(_) if is_too_much(real, dst, bytes, by) => Deferral::Nothing,
        Some(here) => Deferral::if_certain(here >= bytes && place(real, dst).is_some_and(is_of_a_device)),
    }
}

pub(crate) fn is_of_a_device(place: Location) -> bool {
    matches!(place, Location::Device { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(start: &[u8], pitch: usize, slice: usize, extent: [usize; 3]) -> Rows {
        Rows { start: start.as_ptr().cast(), offset: 0, pitch, slice, extent }
    }

    #[test]
    fn span_of_rows_ends_with_the_last_row() {
        assert_eq!(rows(&[], 16, 0, [5, 4, 1]).span(), Some(53));
        assert_eq!(rows(&[], 16, 64, [5, 4, 3]).span(), Some(181));
        assert_eq!(rows(&[], 5, 20, [5, 4, 3]).span(), Some(60));
        assert_eq!(rows(&[], 16, 0, [5, 4, 1]).bytes(), 20);
        // No bytes, overlapping rows or slices, and more bytes than an address space has.
        for (pitch, slice, extent) in [
            (16, 64, [0, 4, 3]),
            (16, 64, [5, 0, 3]),
            (16, 64, [5, 4, 0]),
            (4, 64, [5, 4, 3]),
            (16, 63, [5, 4, 3]),
            (usize::MAX, 0, [5, 4, 1]),
            (usize::MAX, usize::MAX, [5, 4, 2]),
        ] {
            assert_eq!(rows(&[], pitch, slice, extent).span(), None, "{pitch} {slice} {extent:?}");
        }
    }

    #[test]
    fn pack_leaves_out_the_gaps_between_rows() {
        let bytes: Vec<u8> = (0..100).collect();
        // SAFETY: the last byte of the span is 1 * 40 + 2 * 10 + 3 - 1.
        let packed = unsafe { rows(&bytes, 10, 40, [3, 3, 2]).pack() };
        assert_eq!(packed, [0, 1, 2, 10, 11, 12, 20, 21, 22, 40, 41, 42, 50, 51, 52, 60, 61, 62]);
    }

    #[test]
    fn copies_are_deferred_exactly_if_asynchronous_and_consistent() {
        let (device, pinned, pageable) =
            (Location::Device { left: 100 }, Location::Pinned, Location::Pageable);
        let copy =
            |to, from, bytes, kind| decide([fits(Some(to), bytes), fits(Some(from), bytes)], bytes, kind);
        for kind in [hipMemcpyHostToDevice, hipMemcpyDefault] {
            assert_eq!(copy(device, pageable, 100, kind), Deferral::Staged);
            assert_eq!(copy(device, pinned, 100, kind), Deferral::AsItIs);
            assert_eq!(copy(device, pageable, 101, kind), Deferral::No);
            assert_eq!(copy(Location::Device { left: usize::MAX }, pageable, STAGED, kind), Deferral::Staged);
            assert_eq!(copy(Location::Device { left: usize::MAX }, pageable, STAGED + 1, kind), Deferral::No);
        }
        assert_eq!(copy(device, device, 100, hipMemcpyDeviceToDevice), Deferral::AsItIs);
        assert_eq!(copy(pinned, device, 100, hipMemcpyDeviceToHost), Deferral::AsItIs);
        for (to, from, kind) in [
            (pageable, device, hipMemcpyDeviceToHost),
            (pinned, pinned, hipMemcpyDefault),
            (device, pageable, hipMemcpyDeviceToDevice),
            (device, device, hipMemcpyHostToDevice),
            (pinned, device, hipMemcpyHostToDevice),
        ] {
            assert_eq!(copy(to, from, 100, kind), Deferral::No, "{to:?} {from:?} {kind:?}");
        }
    }
}
