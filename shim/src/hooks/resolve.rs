//! Functions that return addresses of HIP functions: they return the hooks.
//!
//! The runtime is asked first, with the caller's own arguments, because it knows which functions exist and
//! chooses renamed and per-thread variants. Its answer is then replaced by the hook for that function.

use crate::boundary::Call;
use crate::interpose::{entry, runtime};
use agent::errno;
use hip_sys::pfn;
use hip_sys::types::{
    hipDriverEntryPointQueryResult, hipDriverProcAddressQueryResult, hipError_t, hipSuccess,
};
use std::ffi::{c_char, c_int, c_ulonglong, c_void};

pub(crate) unsafe fn get_proc_address(
    call: Call<pfn::hipGetProcAddress>,
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut hipDriverProcAddressQueryResult,
) -> hipError_t {
    // SAFETY: the arguments are the caller's own.
    let ask = |real: pfn::hipGetProcAddress| unsafe { real(symbol, address, version, flags, status) };
    call.handle(|real, own| replaced(ask(real), own, address))
}

pub(crate) unsafe fn get_driver_entry_point(
    call: Call<pfn::hipGetDriverEntryPoint>,
    symbol: *const c_char,
    address: *mut *mut c_void,
    flags: c_ulonglong,
    status: *mut hipDriverEntryPointQueryResult,
) -> hipError_t {
    // SAFETY: the arguments are the caller's own.
    let ask = |real: pfn::hipGetDriverEntryPoint| unsafe { real(symbol, address, flags, status) };
    call.handle(|real, own| replaced(ask(real), own, address))
}

/// Replaces the real function at `address` by its hook, after a successful look-up of the program's own.
fn replaced(result: hipError_t, own: bool, address: *mut *mut c_void) -> hipError_t {
    if own && result == hipSuccess && !address.is_null() {
        errno::kept(|| {
            // SAFETY: the runtime has just written an address there and returned success.
            let address = unsafe { &mut *address };
            if let Some(hook) = hook_for(*address) {
                *address = hook.cast_mut();
            }
        });
    }
    result
}

/// Returns the hook for this function of the runtime.
fn hook_for(real: *mut c_void) -> Option<*const c_void> {
    if real.is_null() {
        return None;
    }
    entry::all()
        .find(|entry| runtime::look_up(entry).is_some_and(|known| known.as_ptr() == real))
        .map(|entry| entry.hook())
}
