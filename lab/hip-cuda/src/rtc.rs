//! The run-time compiler (hiprtc). Every program gets the same code object: the project's own kernels,
//! compiled for AMD's gfx90a. The library in front reads the sizes of arguments from it; launches run the PTX
//! kernels of the same names.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use hip_sys::types::*;

use crate::blobs;
use crate::modules::text;
use crate::state::{api, put};

/// `HIPRTC_ERROR_INVALID_INPUT`, `-INVALID_PROGRAM` and `-COMPILATION` of hiprtc.h.
const INVALID_INPUT: hiprtcResult = hiprtcResult(3);
const INVALID_PROGRAM: hiprtcResult = hiprtcResult(4);
const COMPILATION: hiprtcResult = hiprtcResult(6);

/// The handle of all programs: they all get the same code object.
const PROGRAM: usize = 0x67_7772_7463;

const LOG: &[u8] =
    b"hip-cuda compiles only sources whose kernels it has: see examples/kernels and scripts/hip-cuda\0";

fn check(program: hiprtcProgram) -> Result<(), hiprtcResult> {
    if program.as_raw() == PROGRAM { Ok(()) } else { Err(INVALID_PROGRAM) }
}

fn result(result: Result<(), hiprtcResult>) -> hiprtcResult {
    result.err().unwrap_or(HIPRTC_SUCCESS)
}

fn place<T>(place: *mut T, value: T) -> Result<(), hiprtcResult> {
    put(place, value).map_err(|_| INVALID_INPUT)
}

fn copy(bytes: &[u8], to: *mut c_char) -> Result<(), hiprtcResult> {
    if to.is_null() {
        return Err(INVALID_INPUT);
    }
    // SAFETY: hiprtc requires the program to pass a buffer of the size that it was told.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len()) };
    Ok(())
}

api! {
    [value] fn hiprtcCreateProgram(program: *mut hiprtcProgram, source: *const c_char, name: *const c_char,
        count: c_int, headers: *mut *const c_char, include_names: *mut *const c_char) -> hiprtcResult {
        let _ = (name, count, headers, include_names);
        result(text(source).map_err(|_| INVALID_INPUT).and_then(|_| place(program, hiprtcProgram::from_raw(PROGRAM))))
    }
    [value] fn hiprtcCompileProgram(program: hiprtcProgram, count: c_int, options: *mut *const c_char) -> hiprtcResult {
        let _ = (count, options);
        result(check(program).and_then(|()| if blobs::code().is_empty() { Err(COMPILATION) } else { Ok(()) }))
    }
    [value] fn hiprtcGetProgramLogSize(program: hiprtcProgram, size: *mut usize) -> hiprtcResult {
        result(check(program).and_then(|()| place(size, LOG.len())))
    }
    [value] fn hiprtcGetProgramLog(program: hiprtcProgram, log: *mut c_char) -> hiprtcResult {
        result(check(program).and_then(|()| copy(LOG, log)))
    }
    [value] fn hiprtcGetCodeSize(program: hiprtcProgram, size: *mut usize) -> hiprtcResult {
        result(check(program).and_then(|()| place(size, blobs::code().len())))
    }
    [value] fn hiprtcGetCode(program: hiprtcProgram, code: *mut c_char) -> hiprtcResult {
        result(check(program).and_then(|()| copy(blobs::code(), code)))
    }
    [value] fn hiprtcDestroyProgram(program: *mut hiprtcProgram) -> hiprtcResult {
        result(place(program, hiprtcProgram::NULL))
    }
    [value] fn hiprtcGetErrorString(code: hiprtcResult) -> *const c_char {
        let text = match code {
            HIPRTC_SUCCESS => c"HIPRTC_SUCCESS",
            COMPILATION => c"HIPRTC_ERROR_COMPILATION",
            INVALID_INPUT => c"HIPRTC_ERROR_INVALID_INPUT",
            INVALID_PROGRAM => c"HIPRTC_ERROR_INVALID_PROGRAM",
            _ => c"HIPRTC_ERROR_INTERNAL_ERROR",
        };
        text.as_ptr()
    }
    [value] fn hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> hiprtcResult {
        result(place(major, 9).and_then(|()| place(minor, 0)))
    }
}

/// A program's handle is a number of the size of a pointer; nothing dereferences it.
const _: () = assert!(size_of::<hiprtcProgram>() == size_of::<*mut c_void>());
