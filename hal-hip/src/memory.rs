//! What memory a copy or fill touches, and what follows for launching it later.
//!
//! Only what is certain to succeed, and asynchronous in the runtime as well, is launched later. What the runtime is certain to
//! refuse it refuses at once (docs/refusals.md). For everything else the caller makes the call itself, in its turn, and gets
//! the runtime's own answer.

use crate::real::Real;
use hip_sys::types::{
    HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, MemoryKind, hipMemcpyDefault, hipMemcpyDeviceToDevice,
    hipMemcpyDeviceToHost, hipMemcpyHostToDevice, hipMemcpyKind, hipMemoryType, hipPointerAttribute_t,
    hipSuccess,
};
use std::ffi::c_void;
use std::ptr;

/// Pageable host memory is copied aside by the runtime up to this size, so that the call returns at once.
pub const STAGED: usize = 4 << 20;

/// Where an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In memory of a device, this many bytes in front of its end.
    Device {
        /// Bytes from the address to the end of its allocation.
        left: usize,
    },
    /// In pinned or managed memory.
    Pinned,
    /// In memory that the runtime does not know.
    Pageable,
}

/// How a copy can be launched later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// With the caller's own addresses.
    AsItIs,
    /// With a copy of the source.
    Staged,
    /// In its turn only.
    No,
    /// It is nothing to launch: the runtime refuses it or has nothing to do, whatever is pending.
    Nothing,
}

impl Later {
    /// With the caller's own addresses if that is certain to succeed, else in its turn.
    pub fn if_certain(certain: bool) -> Self {
        if certain { Self::AsItIs } else { Self::No }
    }
}

/// Rows of bytes in slices: what a copy or fill of two or three dimensions touches on one side.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The first byte.
    pub start: *const c_void,
    /// How far that is behind the address that the runtime is given, by which it knows the memory.
    pub offset: usize,
    /// Bytes from row to row.
    pub pitch: usize,
    /// Bytes from slice to slice.
    pub slice: usize,
    /// Bytes of a row, rows of a slice, slices.
    pub extent: [usize; 3],
}

impl Rows {
    /// Rows in one slice.
    pub fn plane(start: *const c_void, pitch: usize, width: usize, height: usize) -> Self {
        Self { start, offset: 0, pitch, slice: 0, extent: [width, height, 1] }
    }

    /// Bytes from the first to the last one; nothing if there is none, or if rows or slices would overlap.
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

    /// How many bytes there are in the rows.
    pub fn bytes(&self) -> usize {
        self.extent.into_iter().fold(1, usize::saturating_mul)
    }

    /// All rows, one directly after the other.
    ///
    /// # Safety
    ///
    /// There is a [`Rows::span`], and all rows can be read.
    pub unsafe fn pack(&self) -> Vec<u8> {
        let [width, height, depth] = self.extent;
        let mut packed = Vec::with_capacity(self.bytes());
        for (z, y) in (0..depth).flat_map(|z| (0..height).map(move |y| (z, y))) {
            let row = self.start.cast::<u8>().wrapping_add(z * self.slice + y * self.pitch);
            // SAFETY: one of the rows, which can be read.
            packed.extend_from_slice(unsafe { std::slice::from_raw_parts(row, width) });
        }
        packed
    }
}

fn attributes(real: &Real, address: *const c_void) -> Option<hipPointerAttribute_t> {
    let mut attributes = hipPointerAttribute_t {
        memory_type: hipMemoryType(u32::MAX),
        device: 0,
        device_pointer: ptr::null_mut(),
        host_pointer: ptr::null_mut(),
        is_managed: 0,
        allocation_flags: 0,
    };
    // SAFETY: the runtime's function gets a place for its answer, and looks the address up without following it.
    let code = unsafe { (real.pointer_attributes)(&mut attributes, address) };
    if code != hipSuccess {
        real.forget_result();
        return None;
    }
    Some(attributes)
}

/// Where an address lies; nothing if that cannot be told. Leaves no error behind in a runtime of the releases that
/// keep the last result whatever it is.
pub fn place(real: &Real, address: *const c_void) -> Option<Place> {
    let Some(attributes) = attributes(real, address) else {
        return (real.major < 6).then_some(Place::Pageable);
    };
    match attributes.memory_type.kind(real.major)? {
        MemoryKind::Unregistered => Some(Place::Pageable),
        MemoryKind::Host | MemoryKind::Managed | MemoryKind::Unified => Some(Place::Pinned),
        MemoryKind::Device if attributes.is_managed != 0 => Some(Place::Pinned),
        MemoryKind::Device => Some(Place::Device { left: left(real, address)? }),
        MemoryKind::Array => None,
    }
}

/// Bytes from the address to the end of the memory that the runtime knows there, of whatever kind; nothing if it knows
/// none.
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "the runtime looks the address up and does not follow it")]
pub fn left(real: &Real, address: *const c_void) -> Option<usize> {
    let (base, size) = range(real, address)?;
    size.checked_sub(address.addr().checked_sub(base.addr())?)
}

/// Where the memory begins that the runtime knows there, and how large it is.
fn range(real: &Real, address: *const c_void) -> Option<(*const c_void, usize)> {
    let (mut base, mut size) = (ptr::null_mut(), 0_usize);
    // SAFETY: the runtime's function gets places for its answers.
    let code = unsafe { (real.address_range)(&mut base, &mut size, address.cast_mut()) };
    if code != hipSuccess {
        real.forget_result();
        return None;
    }
    if base.is_null() {
        // Memory of the program's own, which it has registered: the runtime has no address of its own for that.
        base = start_of(real, address)?;
    }
    Some((base.cast_const(), size))
}

/// Whether the runtime knows no memory there: then it refuses what needs some. Memory of which only the extent cannot be told is
/// known.
pub fn is_unknown(real: &Real, address: *const c_void) -> bool {
    let (mut base, mut size) = (ptr::null_mut(), 0_usize);
    // SAFETY: the runtime's function gets places for its answers.
    let code = unsafe { (real.address_range)(&mut base, &mut size, address.cast_mut()) };
    if code != hipSuccess {
        real.forget_result();
    }
    code != hipSuccess
}

/// Whether so many bytes are more than there are, by the `left` ones in front of the end of the memory there. Where the next
/// memory is known as well both may be mapped side by side, and newer runtimes then look at the whole range of addresses.
fn is_beyond(real: &Real, address: *const c_void, here: usize, bytes: usize) -> bool {
    here < bytes && (real.major < 6 || left(real, address.wrapping_byte_add(here)).is_none())
}

/// With what the runtime compares a number of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// What is left of the memory from the address on.
    WhatIsLeft,
    /// All of it, wherever the address is.
    All,
}

/// Whether the runtime surely refuses so many bytes there, because the memory that it knows has fewer.
fn is_too_much(real: &Real, address: *const c_void, bytes: usize, by: By) -> bool {
    let Some((base, whole)) = range(real, address) else { return false };
    let here = whole.saturating_sub(address.addr().wrapping_sub(base.addr()));
    (by == By::WhatIsLeft || whole < bytes) && is_beyond(real, address, here, bytes)
}

/// Where the memory begins that the runtime knows there.
fn start_of(real: &Real, address: *const c_void) -> Option<*mut c_void> {
    let mut start: *mut c_void = ptr::null_mut();
    let place = ptr::from_mut(&mut start).cast();
    // SAFETY: the runtime's function gets a place for an address, which is what this attribute is.
    let code = unsafe {
        (real.pointer_attribute)(place, HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, address.cast_mut())
    };
    if code != hipSuccess {
        real.forget_result();
    }
    (code == hipSuccess && !start.is_null()).then_some(start)
}

/// Whether the runtime surely refuses a prefetch of this: of no bytes, of more than a memory that it knows has, and in 5.2 of memory that it
/// does not know (`hipMemPrefetchAsync` in hipamd/src/hip_hmm.cpp; 5.2.3 tested).
pub fn prefetch_is_refused(real: &Real, address: *const c_void, bytes: usize) -> bool {
    if address.is_null() || bytes == 0 {
        return true;
    }
    // Memory that the runtime does not know is not asked about: from 7 on a look-up in vain stays the thread's last error.
    if matches!(place(real, address), Some(Place::Pageable) | None) {
        return (real.major, real.minor) < (5, 3) && is_unknown(real, address);
    }
    left(real, address).is_some_and(|here| is_beyond(real, address, here, bytes))
}

/// Whether all of this is managed memory.
pub fn is_managed(real: &Real, address: *const c_void, bytes: usize) -> bool {
    let managed = attributes(real, address).is_some_and(|found| {
        found.is_managed != 0 || found.memory_type.kind(real.major) == Some(MemoryKind::Managed)
    });
    managed && left(real, address).is_some_and(|left| left >= bytes)
}

/// The device whose memory the address is in.
pub fn device_of(real: &Real, address: *const c_void) -> Option<u32> {
    let found = attributes(real, address)?;
    (found.memory_type.kind(real.major)? == MemoryKind::Device).then(|| u32::try_from(found.device).ok())?
}

/// How a one-dimensional asynchronous copy can be launched later. Of no bytes, from or to nowhere, or beyond the end of what
/// is allocated there, it is nothing (`ihipMemcpy` and `ihipMemcpy_validate` in hipamd/src/hip_memory.cpp; 5.2.3 tested).
pub fn copy_later(
    real: &Real,
    dst: *const c_void,
    src: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
) -> Later {
    if bytes == 0 || dst.is_null() || src.is_null() || refuses_direction(real, kind) {
        return Later::Nothing;
    }
    let sides = [dst, src].map(|side| holds(real, side, bytes, By::WhatIsLeft));
    let [Ok(to), Ok(from)] = sides else { return Later::Nothing };
    let known = [hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice, hipMemcpyDefault];
    if known.contains(&kind) { decide([to, from], bytes, kind) } else { Later::No }
}

/// The place of an address, if so many bytes are there or the runtime does not know the memory; nothing if it may be otherwise.
/// The error is that the memory is known, and surely has not as many.
fn holds(real: &Real, address: *const c_void, bytes: usize, by: By) -> Result<Option<Place>, ()> {
    let place = place(real, address);
    let here = match place {
        Some(Place::Device { left }) => Some(left),
        Some(Place::Pinned) => left(real, address),
        Some(Place::Pageable) | None => None,
    };
    match here {
        Some(here) if here < bytes => {
            if is_too_much(real, address, bytes, by) {
                Err(())
            } else {
                Ok(None)
            }
        }
        _ => Ok(place),
    }
}

/// Whether the runtime has a look at the direction and knows no such one (`hipMemcpyAsync` in hipamd/src/hip_memory.cpp of
/// October 2024; 5.2.3 copies all the same).
fn refuses_direction(real: &Real, kind: hipMemcpyKind) -> bool {
    const WITHOUT_COMPUTE_UNITS: u32 = 1024;
    (real.major, real.minor) >= (6, 3) && kind.0 > hipMemcpyDefault.0 && kind.0 != WITHOUT_COMPUTE_UNITS
}

/// How an asynchronous copy of rows can be launched later. Without rows, from or to nowhere, or beyond the end of memory that the
/// runtime knows, it is nothing (`ihipMemcpyParam3D` and what it calls in hipamd/src/hip_memory.cpp, `Buffer::validateRegion` in
/// rocclr/platform/memory.cpp; 5.2.3 tested).
pub fn rows_later(real: &Real, dst: &Rows, src: &Rows, kind: hipMemcpyKind) -> Later {
    let known = [hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice, hipMemcpyDefault];
    if dst.extent.contains(&0) || dst.start.is_null() || src.start.is_null() {
        return Later::Nothing;
    }
    let (Some(to), Some(from)) = (dst.span(), src.span()) else { return Later::No };
    if !known.contains(&kind) {
        return Later::No;
    }
    // 7.2.4 does not look where in its memory an address is; 5.2.3 and 6.4.3 do.
    let by = if (real.major, real.minor) < (7, 0) { By::WhatIsLeft } else { By::All };
    let sides = [(dst, to), (src, from)].map(|(rows, span)| {
        holds(real, rows.start.wrapping_byte_sub(rows.offset), rows.offset.saturating_add(span), by)
    });
    let [Ok(to), Ok(from)] = sides else { return Later::Nothing };
    let later = decide([to, from], src.bytes(), kind);
    if later == Later::Staged { pageable_rows(real) } else { later }
}

/// How pageable rows are copied later. Up to 6.4.3 the runtime has read them when its call returns, so that a copy of them
/// can go with the command. 7.2.4 reads them when the copy runs, and they stay the caller's until then (both tested, of 100 B to
/// 16 MiB). Of the releases between and behind nothing is known: in its turn it is the caller's call in every way.
fn pageable_rows(real: &Real) -> Later {
    match (real.major, real.minor) {
        (..=6, _) => Later::Staged,
        (7, 2) => Later::AsItIs,
        _ => Later::No,
    }
}

/// The place, if so many bytes are there.
fn fits(place: Option<Place>, bytes: usize) -> Option<Place> {
    match place {
        Some(Place::Device { left }) if left < bytes => None,
        place => place,
    }
}

/// What the places of destination and source mean for a copy of so many bytes.
fn decide([dst, src]: [Option<Place>; 2], bytes: usize, kind: hipMemcpyKind) -> Later {
    match (dst, src) {
        (Some(Place::Device { .. }), Some(Place::Pageable)) if bytes <= STAGED => {
            // A copy that says otherwise than the addresses is the runtime's to judge.
            if kind == hipMemcpyHostToDevice || kind == hipMemcpyDefault { Later::Staged } else { Later::No }
        }
        (Some(Place::Pageable) | None, _) | (_, Some(Place::Pageable) | None) => Later::No,
        // Between host memories the runtime copies at once.
        (Some(Place::Pinned), Some(Place::Pinned)) => Later::No,
        (Some(to), Some(from)) => {
            let agrees = match (to, from) {
                (Place::Device { .. }, Place::Device { .. }) => kind == hipMemcpyDeviceToDevice,
                (Place::Device { .. }, _) => kind == hipMemcpyHostToDevice,
                (_, Place::Device { .. }) => kind == hipMemcpyDeviceToHost,
                _ => false,
            };
            if agrees || kind == hipMemcpyDefault { Later::AsItIs } else { Later::No }
        }
    }
}

/// How a fill of rows can be launched later. It is nothing without rows, in memory that the runtime does not know, or of more bytes
/// than there are (`ihipMemset3D_validate` in hipamd/src/hip_memory.cpp; 5.2.3 tested).
pub fn fill_rows_later(real: &Real, rows: &Rows) -> Later {
    let later = fill_later(real, rows.start, rows.bytes());
    match (later, rows.span()) {
        (Later::Nothing, _) => Later::Nothing,
        (_, None) => Later::No,
        (_, Some(span)) => Later::if_certain(fits(place(real, rows.start), span).is_some_and(is_of_a_device)),
    }
}

/// What is known of a part of a variable of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// Its address on the current device.
    At(*mut c_void),
    /// The runtime knows no such variable, or it has not as many bytes: refused (`ihipMemcpySymbol_validate` in
    /// hipamd/src/hip_memory.cpp; 5.2.3 tested).
    None,
    /// Only the runtime knows.
    Unknown,
}

/// So many bytes from this offset on of a variable of the program's.
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "the runtime looks the symbol up and does not follow it")]
pub fn symbol(real: &Real, symbol: *const c_void, offset: usize, bytes: usize) -> Symbol {
    let (mut start, mut size) = (ptr::null_mut(), 0_usize);
    // SAFETY: the runtime's function gets a place for its answer, and looks the symbol up without following it.
    let found = unsafe { (real.symbol_address)(&mut start, symbol) };
    // SAFETY: as above.
    let sized = unsafe { (real.symbol_size)(&mut size, symbol) };
    if found != hipSuccess || sized != hipSuccess {
        real.forget_result();
        return Symbol::None;
    }
    match offset.checked_add(bytes) {
        Some(end) if end > size => Symbol::None,
        Some(_) if !start.is_null() => Symbol::At(start.wrapping_byte_add(offset)),
        // The runtime adds without a look at the carry.
        _ => Symbol::Unknown,
    }
}

/// `hipMemcpyDeviceToDeviceNoCU` (hip_runtime_api.h from 6.0 on): by a copy engine.
const DEVICE_TO_DEVICE_NO_CU: hipMemcpyKind = hipMemcpyKind(1024);

/// How a copy to a variable (`is_source`: from it) can be launched later; `other` is its other side.
pub fn symbol_later(
    real: &Real,
    variable: Symbol,
    other: *const c_void,
    is_source: bool,
    (bytes, kind): (usize, hipMemcpyKind),
) -> Later {
    let own = if is_source { hipMemcpyDeviceToHost } else { hipMemcpyHostToDevice };
    match variable {
        Symbol::None => Later::Nothing,
        // From the code of October 2024 (6.3) on only these directions are taken; 5.2.3 copies in every one.
        _ if (real.major, real.minor) >= (6, 3)
            && ![own, hipMemcpyDeviceToDevice, DEVICE_TO_DEVICE_NO_CU].contains(&kind) =>
        {
            Later::Nothing
        }
        Symbol::Unknown => Later::No,
        Symbol::At(variable) if is_source => copy_later(real, other, variable, bytes, kind),
        Symbol::At(variable) => copy_later(real, variable, other, bytes, kind),
    }
}

/// How a fill of so many bytes can be launched later. It is nothing without bytes, in memory that the runtime does not know, or
/// beyond its end (`ihipMemset_validate` in hipamd/src/hip_memory.cpp; 5.2.3 tested).
pub fn fill_later(real: &Real, dst: *const c_void, bytes: usize) -> Later {
    // 5.2.3 does not look where in its memory an address is, the code of October 2024 (6.3) does.
    let by = if (real.major, real.minor) < (6, 3) { By::All } else { By::WhatIsLeft };
    if bytes == 0 || dst.is_null() {
        return Later::Nothing;
    }
    match left(real, dst) {
        None if is_unknown(real, dst) => Later::Nothing,
        None => Later::No,
        Some(_) if is_too_much(real, dst, bytes, by) => Later::Nothing,
        Some(here) => Later::if_certain(here >= bytes && place(real, dst).is_some_and(is_of_a_device)),
    }
}

fn is_of_a_device(place: Place) -> bool {
    matches!(place, Place::Device { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(start: &[u8], pitch: usize, slice: usize, extent: [usize; 3]) -> Rows {
        Rows { start: start.as_ptr().cast(), offset: 0, pitch, slice, extent }
    }

    #[test]
    fn a_span_ends_with_the_last_row() {
        assert_eq!(rows(&[], 16, 0, [5, 4, 1]).span(), Some(53));
        assert_eq!(rows(&[], 16, 64, [5, 4, 3]).span(), Some(181));
        assert_eq!(rows(&[], 5, 20, [5, 4, 3]).span(), Some(60));
        assert_eq!(rows(&[], 16, 0, [5, 4, 1]).bytes(), 20);
        // Nothing in it, rows or slices that overlap, and more than there can be.
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
    fn packing_leaves_out_what_is_between_the_rows() {
        let bytes: Vec<u8> = (0..100).collect();
        // SAFETY: the last byte of the span is 1 * 40 + 2 * 10 + 3 - 1.
        let packed = unsafe { rows(&bytes, 10, 40, [3, 3, 2]).pack() };
        assert_eq!(packed, [0, 1, 2, 10, 11, 12, 20, 21, 22, 40, 41, 42, 50, 51, 52, 60, 61, 62]);
    }

    #[test]
    fn copies_are_later_exactly_if_they_are_asynchronous_and_agree() {
        let (device, pinned, pageable) = (Place::Device { left: 100 }, Place::Pinned, Place::Pageable);
        let copy =
            |to, from, bytes, kind| decide([fits(Some(to), bytes), fits(Some(from), bytes)], bytes, kind);
        for kind in [hipMemcpyHostToDevice, hipMemcpyDefault] {
            assert_eq!(copy(device, pageable, 100, kind), Later::Staged);
            assert_eq!(copy(device, pinned, 100, kind), Later::AsItIs);
            assert_eq!(copy(device, pageable, 101, kind), Later::No);
            assert_eq!(copy(Place::Device { left: usize::MAX }, pageable, STAGED, kind), Later::Staged);
            assert_eq!(copy(Place::Device { left: usize::MAX }, pageable, STAGED + 1, kind), Later::No);
        }
        assert_eq!(copy(device, device, 100, hipMemcpyDeviceToDevice), Later::AsItIs);
        assert_eq!(copy(pinned, device, 100, hipMemcpyDeviceToHost), Later::AsItIs);
        for (to, from, kind) in [
            (pageable, device, hipMemcpyDeviceToHost),
            (pinned, pinned, hipMemcpyDefault),
            (device, pageable, hipMemcpyDeviceToDevice),
            (device, device, hipMemcpyHostToDevice),
            (pinned, device, hipMemcpyHostToDevice),
        ] {
            assert_eq!(copy(to, from, 100, kind), Later::No, "{to:?} {from:?} {kind:?}");
        }
    }
}
