//! Which copies and fills return only when they are done, and all in front of them in the stream: what a program then knows to
//! be complete. Anything said here that is not so would call work complete that runs still, so only what was tested with the
//! runtime, or stands in its sources, counts.
//!
//! With 5.2.3 each was called behind a wait for a value on a blocking stream, to see whether it waits, and a query of the stream
//! was made behind it, to see whether all is complete. The later ones were read (hipamd/src/hip_memory.cpp of rocm-5.6.0 to
//! 6.2.2, and of 2025).

use crate::memory::{Place, place};
use crate::real::Real;
use hip_sys::types::{
    hipMemcpyDefault, hipMemcpyDeviceToDevice, hipMemcpyDeviceToHost, hipMemcpyHostToDevice, hipMemcpyKind,
};
use std::ffi::c_void;

/// Returns true if every synchronous function of the runtime waits. Later runtimes return early from copies inside a device.
fn waits_always(real: &Real) -> bool {
    (real.major, real.minor) <= (5, 2)
}

fn is_host(place: Option<Place>) -> bool {
    matches!(place, Some(Place::Pinned | Place::Pageable))
}

fn is_device(place: Option<Place>) -> bool {
    matches!(place, Some(Place::Device { .. }))
}

fn is_pageable(place: Option<Place>) -> bool {
    place == Some(Place::Pageable)
}

/// A synchronous copy of one dimension. To the host it waits in every release; to the device up to 6.2.
pub fn copy(real: &Real, dst: *const c_void, src: *const c_void, bytes: usize, kind: hipMemcpyKind) -> bool {
    if bytes == 0 || waits_always(real) {
        return bytes != 0;
    }
    match kind {
        kind if kind == hipMemcpyDeviceToHost => is_host(place(real, dst)),
        kind if kind == hipMemcpyDefault => is_host(place(real, dst)) && is_device(place(real, src)),
        kind if kind == hipMemcpyHostToDevice => {
            (real.major, real.minor) <= (6, 2) && is_host(place(real, src))
        }
        _ => false,
    }
}

/// An asynchronous copy of one dimension, which waits where one side is memory that the runtime does not know. One of rows waits there
/// as well, but a query behind it says otherwise.
pub fn copy_async(
    real: &Real,
    dst: *const c_void,
    src: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
) -> bool {
    let down = || is_pageable(place(real, dst));
    let up = || waits_always(real) && is_pageable(place(real, src));
    bytes != 0
        && match kind {
            kind if kind == hipMemcpyDeviceToDevice => false,
            kind if kind == hipMemcpyDeviceToHost => down(),
            kind if kind == hipMemcpyHostToDevice => up(),
            kind if kind == hipMemcpyDefault => down() || up(),
            _ => false,
        }
}

/// A synchronous copy of rows with so many bytes in them. Between pageable memories it is made at once, without the stream.
pub fn rows(real: &Real, dst: *const c_void, src: *const c_void, bytes: usize) -> bool {
    if bytes == 0 {
        return false;
    }
    let places = [place(real, dst), place(real, src)];
    let lands = is_host(places[0]) && is_device(places[1]);
    let aside = places.into_iter().all(is_pageable);
    lands || waits_always(real) && !aside && places.iter().all(Option::is_some)
}

/// A synchronous copy of so many bytes from an array or a variable of the device.
pub fn landing(real: &Real, dst: *const c_void, bytes: usize) -> bool {
    bytes != 0 && (waits_always(real) || is_host(place(real, dst)))
}

/// A synchronous copy of so many bytes to a variable of the device.
pub fn leaving(real: &Real, bytes: usize) -> bool {
    bytes != 0 && waits_always(real)
}

/// A synchronous fill of so many bytes. That of memory of the device does not wait in later releases, unlike its name.
pub fn fill(real: &Real, dst: *const c_void, bytes: usize) -> bool {
    bytes != 0 && (waits_always(real) || place(real, dst) == Some(Place::Pinned))
}
