//! The copies and fills that return only once they, and everything in front of them in the stream, are
//! complete. Each function returns true for such a call; the program then knows that the work is complete. A
//! wrong true would report running work as complete, so every rule was tested with the runtime or read in its
//! sources.
//!
//! With 5.2.3 each call was made behind a wait for a value on a blocking stream, to see whether it waits, and
//! a query of the stream followed, to see whether everything is complete. The later releases were read
//! (hipamd/src/hip_memory.cpp of rocm-5.6.0 to 6.2.2, and of 2025).

use crate::memory::{Location, is_of_a_device, place};
use crate::real::RuntimeFunctions;
use hip_sys::types::{
    hipMemcpyDefault, hipMemcpyDeviceToDevice, hipMemcpyDeviceToHost, hipMemcpyHostToDevice, hipMemcpyKind,
};
use std::ffi::c_void;

/// Returns true if every synchronous function of the runtime waits. Later runtimes return early from copies
/// inside a device.
fn waits_always(real: &RuntimeFunctions) -> bool {
    (real.major, real.minor) <= (5, 2)
}

fn is_host(place: Option<Location>) -> bool {
    matches!(place, Some(Location::Pinned | Location::Pageable))
}

fn is_pageable(place: Option<Location>) -> bool {
    place == Some(Location::Pageable)
}

/// Returns true if a synchronous copy of one dimension waits. To the host it does in every release; to the
/// device up to 6.2.
pub fn copy(
    real: &RuntimeFunctions,
    dst: *const c_void,
    src: *const c_void,
    bytes: usize,
    kind: hipMemcpyKind,
) -> bool {
    if bytes == 0 || waits_always(real) {
        return bytes != 0;
    }
    match kind {
        kind if kind == hipMemcpyDeviceToHost => is_host(place(real, dst)),
        kind if kind == hipMemcpyDefault => {
            is_host(place(real, dst)) && place(real, src).is_some_and(is_of_a_device)
        }
        kind if kind == hipMemcpyHostToDevice => {
            (real.major, real.minor) <= (6, 2) && is_host(place(real, src))
        }
        _ => false,
    }
}

/// Returns true if an asynchronous copy of one dimension waits: where one side is memory that the runtime
/// does not know. A copy of rows waits there as well, but a query behind it reports unfinished work.
pub fn copy_async(
    real: &RuntimeFunctions,
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

/// Returns true if a synchronous copy of rows with so many bytes in them waits. Between pageable memories it
/// is made at once, without the stream.
pub fn rows(real: &RuntimeFunctions, dst: *const c_void, src: *const c_void, bytes: usize) -> bool {
    if bytes == 0 {
        return false;
    }
    let places = [place(real, dst), place(real, src)];
    let lands = is_host(places[0]) && places[1].is_some_and(is_of_a_device);
    let aside = places.into_iter().all(is_pageable);
    lands || waits_always(real) && !aside && places.iter().all(Option::is_some)
}

/// Returns true if a synchronous copy of so many bytes from an array or a variable of the device waits.
pub fn copy_to_host(real: &RuntimeFunctions, dst: *const c_void, bytes: usize) -> bool {
    bytes != 0 && (waits_always(real) || is_host(place(real, dst)))
}

/// Returns true if a synchronous copy of so many bytes to a variable of the device waits.
pub fn leaving(real: &RuntimeFunctions, bytes: usize) -> bool {
    bytes != 0 && waits_always(real)
}

/// Returns true if a synchronous fill of so many bytes waits. In later releases a fill of device memory does
/// not, in spite of its name.
pub fn fill(real: &RuntimeFunctions, dst: *const c_void, bytes: usize) -> bool {
    bytes != 0 && (waits_always(real) || place(real, dst) == Some(Location::Pinned))
}
