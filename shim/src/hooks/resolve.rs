//! Functions that hand out addresses of HIP functions: they hand out ours.
//!
//! The runtime is asked first, with the caller's own arguments, so that an answer exists only where the real one does
//! and renamed or per-thread variants are its choice. Its answer is then exchanged for the hook that leads to it.

use crate::boundary::Call;
use crate::interpose::{entry, runtime};
use agent::errno;
use hip_sys::pfn;
use hip_sys::types::{
    hipDriverEntryPointQueryResult, hipDriverProcAddressQueryResult, hipError_t, hipSuccess,
};
use std::ffi::{c_char, c_int, c_ulonglong, c_void};

/// `hipGetProcAddress`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn get_proc_address(
    call: Call<pfn::hipGetProcAddress>,
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut hipDriverProcAddressQueryResult,
) -> hipError_t {
    // SAFETY: the real function gets the caller's own arguments.
    let ask = |real: pfn::hipGetProcAddress| unsafe { real(symbol, address, version, flags, status) };
    call.handle(|real, own| exchanged(ask(real), own, address))
}

/// `hipGetDriverEntryPoint` and its per-thread twin
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn get_driver_entry_point(
    call: Call<pfn::hipGetDriverEntryPoint>,
    symbol: *const c_char,
    address: *mut *mut c_void,
    flags: c_ulonglong,
    status: *mut hipDriverEntryPointQueryResult,
) -> hipError_t {
    // SAFETY: the real function gets the caller's own arguments.
    let ask = |real: pfn::hipGetDriverEntryPoint| unsafe { real(symbol, address, flags, status) };
    call.handle(|real, own| exchanged(ask(real), own, address))
}

/// After a successful look-up of the program's own, puts the hook in the place of the real function at `address`.
fn exchanged(result: hipError_t, own: bool, address: *mut *mut c_void) -> hipError_t {
    if own && result == hipSuccess && !address.is_null() {
        errno::kept(|| {
            // SAFETY: the runtime has just written an address there and reported success.
            let found = unsafe { *address };
            if let Some(hook) = hook_for(found) {
                // SAFETY: as above; the place is the caller's, who will call what stands in it.
                unsafe { *address = hook.cast_mut() };
            }
        });
    }
    result
}

/// The hook that leads to this function of the runtime.
fn hook_for(real: *mut c_void) -> Option<*const c_void> {
    if real.is_null() {
        return None;
    }
    entry::all()
        .find(|entry| runtime::look_up(entry).is_some_and(|known| known.as_ptr() == real))
        .map(|entry| entry.hook())
}
