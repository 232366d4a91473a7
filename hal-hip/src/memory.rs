//! What memory a copy or fill touches, and what follows for launching it later.
//!
//! Only what is certain to succeed, and asynchronous in the runtime as well, is launched later. For everything else the
//! caller makes the call itself, in its turn, and gets the runtime's own answer.

use crate::real::Real;
use hip_sys::types::{
    MemoryKind, hipMemcpyDefault, hipMemcpyDeviceToDevice, hipMemcpyDeviceToHost, hipMemcpyHostToDevice,
    hipMemcpyKind, hipMemoryType, hipPointerAttribute_t, hipSuccess,
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
    /// Not at all.
    No,
}

/// Where an address lies; nothing if that cannot be told. Leaves no error behind in a runtime of the releases that
/// keep the last result whatever it is.
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "the runtime looks the address up and does not follow it")]
pub fn place(real: &Real, address: *const c_void) -> Option<Place> {
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
        return (real.major < 6).then_some(Place::Pageable);
    }
    match attributes.memory_type.kind(real.major)? {
        MemoryKind::Unregistered => Some(Place::Pageable),
        MemoryKind::Host | MemoryKind::Managed | MemoryKind::Unified => Some(Place::Pinned),
        MemoryKind::Device if attributes.is_managed != 0 => Some(Place::Pinned),
        MemoryKind::Device => {
            let (mut base, mut size) = (ptr::null_mut(), 0_usize);
            // SAFETY: the runtime's function gets places for its answers.
            let code = unsafe { (real.address_range)(&mut base, &mut size, address.cast_mut()) };
            if code != hipSuccess {
                return None;
            }
            let into = address.addr().checked_sub(base.addr())?;
            Some(Place::Device { left: size.checked_sub(into)? })
        }
        MemoryKind::Array => None,
    }
}

/// How a one-dimensional asynchronous copy can be launched later.
pub fn copy_later(
    real: &Real,
    dst: *const c_void,
    src: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
) -> Later {
    let known = [hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice, hipMemcpyDefault]
        .contains(&kind);
    if bytes == 0 || !known {
        return Later::No;
    }
    let fits = |place: Option<Place>| match place {
        Some(Place::Device { left }) if left < bytes => None,
        place => place,
    };
    match (fits(place(real, dst)), fits(place(real, src))) {
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

/// Whether a synchronous copy is known to return only when it is done, and all in front of it. To the host it does; to the
/// device up to ROCm 6.2. One of nothing, or inside the device whatever it is called, returns at once in some releases
/// (`ihipMemcpy` in hipamd/src/hip_memory.cpp, read in rocm-5.6.0, 5.7.1, 6.0.2, 6.1.2, 6.2.0 and 6.2.2; 5.2.3 tested).
pub fn copy_waits(
    real: &Real,
    dst: *const c_void,
    src: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
) -> bool {
    let upload = kind == hipMemcpyHostToDevice && (real.major, real.minor) <= (6, 2);
    if bytes == 0 || !upload && kind != hipMemcpyDeviceToHost {
        return false;
    }
    matches!(place(real, if upload { src } else { dst }), Some(Place::Pinned | Place::Pageable))
}

/// Whether a fill of so many bytes can be launched later.
pub fn fill_later(real: &Real, dst: *const c_void, bytes: usize) -> bool {
    bytes != 0 && matches!(place(real, dst), Some(Place::Device { left }) if left >= bytes)
}
