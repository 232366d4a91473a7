//! Functions by name: `cuGetProcAddress`.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};

use crate::abi::{Answer, INVALID_VALUE, NOT_FOUND};
use crate::gate::{Out, Text};

/// Names that mean another symbol from some version of the caller on: name, version, symbol.
/// Sources: the macros of `cuda.h` in 12.4, and `cudaTypedefs.h`.
const VERSIONED: &[(&str, c_int, &CStr)] = &[
    ("cuGraphInstantiate", 12000, c"cuGraphInstantiateWithFlags"),
    ("cuGraphAddKernelNode", 12000, c"cuGraphAddKernelNode_v2"),
    ("cuGraphKernelNodeGetParams", 12000, c"cuGraphKernelNodeGetParams_v2"),
    ("cuGraphKernelNodeSetParams", 12000, c"cuGraphKernelNodeSetParams_v2"),
    ("cuGraphExecKernelNodeSetParams", 12000, c"cuGraphExecKernelNodeSetParams_v2"),
    ("cuGraphExecUpdate", 12000, c"cuGraphExecUpdate_v2"),
    ("cuStreamGetCaptureInfo", 12000, c"cuStreamGetCaptureInfo_v2"),
    ("cuGetProcAddress", 12000, c"cuGetProcAddress_v2"),
    ("cuDeviceGetUuid", 11040, c"cuDeviceGetUuid_v2"),
];

/// Returns the symbol of a name in `VERSIONED` for a caller of this version. `None`: the table does not have
/// the name.
fn symbol(name: &str, version: c_int) -> Option<CString> {
    if let Some((_, from, symbol)) = VERSIONED.iter().find(|(known, ..)| *known == name) {
        return if version >= *from { Some((*symbol).to_owned()) } else { CString::new(name).ok() };
    }
    None
}

/// Returns the address of one of this library's own functions, or null.
fn own(symbol: &CStr) -> *mut c_void {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `dladdr` fills the structure if it succeeds, and its strings live as long as this library,
    // which is never unloaded. The symbol ends with a zero.
    unsafe {
        if libc::dladdr(own as *const c_void, info.as_mut_ptr()) == 0 {
            return std::ptr::null_mut();
        }
        let handle = libc::dlopen(info.assume_init().dli_fname, libc::RTLD_NOLOAD | libc::RTLD_NOW);
        if handle.is_null() { handle } else { libc::dlsym(handle, symbol.as_ptr()) }
    }
}

/// Returns the function of this name for a caller of this version, or null. A name without a suffix means the
/// `_v2` function if there is one.
fn find(name: &str, version: c_int) -> *mut c_void {
    if !name.starts_with("cu") {
        return std::ptr::null_mut();
    }
    if let Some(symbol) = symbol(name, version) {
        return own(&symbol);
    }
    let suffixed = [format!("{name}_v2"), name.to_owned()];
    let found = suffixed.into_iter().filter_map(|name| CString::new(name).ok()).map(|name| own(&name));
    found.into_iter().find(|address| !address.is_null()).unwrap_or(std::ptr::null_mut())
}

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`: this library lacks these variants.
const PER_THREAD: u64 = 2;

fn get(name: Text, to: Out<*mut c_void>, version: c_int, flags: u64, result: Option<Out<c_uint>>) -> Answer {
    if flags > 3 || to.is_null() {
        return Err(INVALID_VALUE);
    }
    let name = name.text()?;
    let found = if flags & PER_THREAD == 0 { find(&name, version) } else { std::ptr::null_mut() };
    to.set(found)?;
    // Found, or `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`.
    if let Some(result) = result {
        result.offer(found.is_null() as c_uint);
    }
    if found.is_null() { Err(NOT_FOUND) } else { Ok(()) }
}

crate::api! {
    fn cuGetProcAddress(name: Text, to: Out<*mut c_void>, version: c_int, flags: u64) {
        get(name, to, version, flags, None)
    }

    fn cuGetProcAddress_v2(name: Text, to: Out<*mut c_void>, version: c_int, flags: u64, result: Out<c_uint>) {
        get(name, to, version, flags, Some(result))
    }

    /// This library has no private tables.
    fn cuGetExportTable(to: Out<*const c_void>, _id: usize) {
        to.set(std::ptr::null())?;
        Err(NOT_FOUND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_choose_the_symbol() {
        assert_eq!(symbol("cuGraphInstantiate", 12000).as_deref(), Some(c"cuGraphInstantiateWithFlags"));
        assert_eq!(symbol("cuGraphInstantiate", 11000).as_deref(), Some(c"cuGraphInstantiate"));
        assert_eq!(symbol("cuMemAlloc", 12000), None);
    }
}
