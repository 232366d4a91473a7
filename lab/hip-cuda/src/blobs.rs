//! What is linked beside this crate: the release, the kernels, and a code object (`scripts/hip-cuda` makes them).

use std::ffi::{CStr, c_char, c_int};
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The kernels of one source file as PTX.
#[repr(C)]
#[derive(Debug)]
pub struct Source {
    /// The path of the file, from the workspace's root.
    name: *const c_char,
    ptx: *const c_char,
}

/// Everything, as the generated C file declares it.
#[repr(C)]
#[derive(Debug)]
pub struct Blobs {
    /// The HIP release whose rules hold: 5, 6 or 7.
    major: u32,
    /// As `hipRuntimeGetVersion` returns it.
    version: c_int,
    sources: *const Source,
    source_count: usize,
    code: *const u8,
    code_size: usize,
}

static BLOBS: AtomicPtr<Blobs> = AtomicPtr::new(std::ptr::null_mut());

/// Called by a constructor of the generated C file, before any other function.
///
/// # Safety
/// The structure and what it points to live as long as the process.
// SAFETY: no other symbol of the library has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hip_cuda_use(blobs: *mut Blobs) {
    BLOBS.store(blobs, Ordering::Release);
}

fn blobs() -> Option<&'static Blobs> {
    // SAFETY: the pointer is null, or `hip_cuda_use` got it for the life of the process.
    unsafe { BLOBS.load(Ordering::Acquire).as_ref() }
}

/// The release whose rules hold; in unit tests 7.
pub(crate) fn major() -> u32 {
    blobs().map_or(7, |blobs| blobs.major)
}

/// The version that programs are told.
pub(crate) fn version() -> c_int {
    blobs().map_or(70_253_211, |blobs| blobs.version)
}

/// The path and the PTX of each source file; the project's own kernels come first.
pub(crate) fn sources() -> Vec<(&'static str, &'static CStr)> {
    let Some(blobs) = blobs() else { return Vec::new() };
    // SAFETY: the generated file counts its own array, whose strings end with a zero.
    let sources = unsafe { slice::from_raw_parts(blobs.sources, blobs.source_count) };
    let text = |start: *const c_char| {
        // SAFETY: as above.
        unsafe { CStr::from_ptr(start) }
    };
    sources.iter().map(|source| (text(source.name).to_str().unwrap_or_default(), text(source.ptx))).collect()
}

/// The code object that the compiler of this runtime hands out.
pub(crate) fn code() -> &'static [u8] {
    // SAFETY: the generated file has the bytes between two labels of its own.
    blobs().map_or(&[], |blobs| unsafe { slice::from_raw_parts(blobs.code, blobs.code_size) })
}
