//! The calls about errors: their names, and the calling thread's last error.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::OnceLock;

use hip_sys::types::*;

use crate::state::{self, api};

/// Returns a code's name as a C string, as `hipGetErrorName` does.
fn name(code: hipError_t) -> &'static CStr {
    static NAMES: OnceLock<HashMap<u32, CString>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let named = (0..LAST).filter_map(|code| Some((code, CString::new(hipError_t(code).name()?).ok()?)));
        named.collect()
    });
    names.get(&code.0).map_or(c"hipErrorUnknown", CString::as_c_str)
}

/// One more than the greatest code.
const LAST: u32 = hipErrorRuntimeOther.0 + 1;

api! {
    [value] fn hipGetErrorName(code: hipError_t) -> *const c_char { name(code).as_ptr() }
    // The name stands in for AMD's descriptions: it says as much.
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
