//! The data that `scripts/hip-cuda` links into the library: the release, the kernels, and a code object.

use std::ffi::{CStr, c_char, c_int};
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The PTX of one source file.
#[repr(C)]
#[derive(Debug)]
pub struct Source {
    /// The path of the file, from the workspace's root.
    name: *const c_char,
    ptx: *const c_char,
}

/// All linked data. The generated C file declares the same structure.
#[repr(C)]
#[derive(Debug)]
pub struct Blobs {
    /// The HIP release that the library imitates: 5, 6 or 7.
    major: u32,
    /// The version that `hipRuntimeGetVersion` returns.
    version: c_int,
    sources: *const Source,
    source_count: usize,
    code: *const u8,
    code_size: usize,
}

static BLOBS: AtomicPtr<Blobs> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the data. A constructor in the generated C file calls it before any other function.
///
/// # Safety
/// The structure and what it points to live as long as the process.
// SAFETY: no other symbol of the library has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hip_cuda_use(blobs: *mut Blobs) {
    BLOBS.store(blobs, Ordering::Release);
}

fn blobs() -> Option<&'static Blobs> {
    // SAFETY: the pointer is null, or `hip_cuda_use` set it, whose caller guarantees that the data is never
    // freed.
    unsafe { BLOBS.load(Ordering::Acquire).as_ref() }
}

/// The HIP release that the library imitates; 7 in unit tests.
pub(crate) fn major() -> u32 {
    blobs().map_or(7, |blobs| blobs.major)
}

/// The version that the library reports to programs.
pub(crate) fn version() -> c_int {
    blobs().map_or(70_253_211, |blobs| blobs.version)
}

/// The path and the PTX of each source file; the project's own kernels come first.
pub(crate) fn sources() -> Vec<(&'static str, &'static CStr)> {
    let Some(blobs) = blobs() else { return Vec::new() };
    // SAFETY: the generated file sets the count from the array itself.
    let sources = unsafe { slice::from_raw_parts(blobs.sources, blobs.source_count) };
    let text = |start: *const c_char| {
        // SAFETY: the generated file ends every name and every text with a zero, and none is ever freed.
        unsafe { CStr::from_ptr(start) }
    };
    sources.iter().map(|source| (text(source.name).to_str().unwrap_or_default(), text(source.ptx))).collect()
}

/// The code object that `hiprtc` returns for every program.
pub(crate) fn code() -> &'static [u8] {
    // SAFETY: the generated file computes the size from the labels around the bytes.
    blobs().map_or(&[], |blobs| unsafe { slice::from_raw_parts(blobs.code, blobs.code_size) })
}
