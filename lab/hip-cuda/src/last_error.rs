//! The calls about errors: their names, and the last one of the calling thread.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::OnceLock;

use hip_sys::types::*;

use crate::state::{self, api};

/// Names with their terminating zero, as `hipGetErrorName` returns them.
fn name(code: hipError_t) -> &'static CStr {
    static NAMES: OnceLock<HashMap<u32, CString>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let named = (0..LAST).filter_map(|code| Some((code, CString::new(hipError_t(code).name()?).ok()?)));
        named.collect()
    });
    names.get(&code.0).map_or(c"hipErrorUnknown", CString::as_c_str)
}

/// Behind the greatest code.
const LAST: u32 = hipErrorRuntimeOther.0 + 1;

api! {
    [value] fn hipGetErrorName(code: hipError_t) -> *const c_char { name(code).as_ptr() }
    // The sentences of AMD's runtime are not repeated here: the name says as much.
    [value] fn hipGetErrorString(code: hipError_t) -> *const c_char { name(code).as_ptr() }
    [value] fn hipGetLastError() -> hipError_t { state::take_last() }
    [value] fn hipPeekAtLastError() -> hipError_t { state::last() }
    [value] fn hipExtGetLastError() -> hipError_t { state::take_result() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_codes() {
        assert_eq!(name(hipErrorStreamCaptureImplicit), c"hipErrorStreamCaptureImplicit");
        assert_eq!(name(hipErrorRuntimeOther), c"hipErrorRuntimeOther");
        assert_eq!(name(hipError_t(4242)), c"hipErrorUnknown");
    }
}
