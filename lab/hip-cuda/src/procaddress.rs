//! Functions by name. Like AMD's runtime, this one searches only its own file, so it skips libraries in front
//! of it.

use std::ffi::{CString, c_char, c_int, c_ulonglong, c_void};
use std::ptr;

use hip_sys::types::*;

use crate::blobs;
use crate::errors::Answer;
use crate::modules::text;
use crate::state::{api, put, required};

/// `HIP_GET_PROC_ADDRESS_SUCCESS` and `-SYMBOL_NOT_FOUND`.
const FOUND: u32 = 0;
const NOT_FOUND: u32 = 1;
/// `hipEnablePerThreadDefaultStream`: names with the suffix `_spt` come first.
const PER_THREAD: u64 = 2;

/// Returns a handle of this library, found by the address of a function in it.
fn own() -> *mut c_void {
    // SAFETY: every byte of the structure may be zero; the function fills it for an address of this library.
    let path = unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(own as *const c_void, &mut found) == 0 {
            return ptr::null_mut();
        }
        found.dli_fname
    };
    // SAFETY: the loader keeps the name for as long as the library is loaded, and this one is never unloaded.
    unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}

fn find(name: &str) -> *mut c_void {
    let library = own();
    if library.is_null() {
        return ptr::null_mut();
    }
    CString::new(name).map_or(ptr::null_mut(), |name| {
        // SAFETY: the handle is this library's, and the name ends with a zero.
        unsafe { libc::dlsym(library, name.as_ptr()) }
    })
}

fn look_up(symbol: *const c_char, place: *mut *mut c_void, version: c_int, flags: u64) -> Answer<bool> {
    required(place)?;
    let name = text(symbol)?;
    // The newer structure has a function of its own.
    let newer = version >= 600 && name == "hipGetDeviceProperties";
    let name = if newer { "hipGetDevicePropertiesR0600".to_owned() } else { name };
    let mut found = ptr::null_mut();
    if flags & PER_THREAD != 0 {
        found = find(&format!("{name}_spt"));
    }
    if found.is_null() && name.starts_with("hip") {
        found = find(&name);
    }
    put(place, found)?;
    Ok(!found.is_null())
}

api! {
    [pfn] fn hipGetProcAddress(symbol: *const c_char, place: *mut *mut c_void, version: c_int, flags: u64,
        status: *mut hipDriverProcAddressQueryResult) {
        let found = look_up(symbol, place, version, flags)?;
        let _ = put(status, hipDriverProcAddressQueryResult(if found { FOUND } else { NOT_FOUND }));
        // From 7 on the status reports it, if the program asks for the status.
        if found || blobs::major() >= 7 && !status.is_null() { Ok(()) } else { Err(hipErrorInvalidValue) }
    }
    [pfn] fn hipGetDriverEntryPoint(symbol: *const c_char, place: *mut *mut c_void, flags: c_ulonglong,
        status: *mut hipDriverEntryPointQueryResult) {
        let found = look_up(symbol, place, 600, flags)?;
        let _ = put(status, hipDriverEntryPointQueryResult(if found { FOUND } else { NOT_FOUND }));
        Ok(())
    }
    [pfn] fn hipGetDriverEntryPoint_spt(symbol: *const c_char, place: *mut *mut c_void, flags: c_ulonglong,
        status: *mut hipDriverEntryPointQueryResult) {
        let found = look_up(symbol, place, 600, flags | PER_THREAD)?;
        let _ = put(status, hipDriverEntryPointQueryResult(if found { FOUND } else { NOT_FOUND }));
        Ok(())
    }
}
