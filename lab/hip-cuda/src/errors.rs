//! Translates the CUDA driver's error codes to those of AMD's runtime.
//!
//! Most codes have the same number in both interfaces, because HIP took them from CUDA (`hipError_t` in AMD's
//! hip_runtime_api.h, `CUresult` in NVIDIA's driver API reference). This module maps the others. Where a
//! single function of AMD's returns another code than CUDA's, that function maps it.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU32, Ordering};

use hip_sys::types::*;

/// The result of this crate's functions, before it becomes a code.
pub(crate) type Answer<T = ()> = Result<T, hipError_t>;

/// Translates one of CUDA's codes to HIP's.
pub(crate) fn result(code: c_uint) -> Answer {
    match code {
        0 => Ok(()),
        // A kernel failed: stack error, illegal instruction, misaligned address, invalid address space or
        // program counter.
        714..=718 => Err(hipErrorLaunchFailure),
        // Not permitted: HIP has one code for this and for "not supported".
        800 => Err(hipErrorNotSupported),
        // The driver's compiler rejects the PTX.
        218 | 220 | 221 | 222 | 223 => Err(hipErrorInvalidImage),
        // These numbers mean something else in HIP.
        703 | 706 | 707 | 711 => Err(hipErrorUnknown),
        code => {
            let same = hipError_t(code);
            Err(if same.name().is_some() { same } else { hipErrorUnknown })
        }
    }
}

/// The error of a kernel that has failed; 0 if none has.
static LOST: AtomicU32 = AtomicU32::new(0);

/// Translates the code of a call of the driver, and keeps it if it says that a kernel has failed.
pub(crate) fn answered(code: c_uint) -> Answer {
    let answer = result(code);
    if let (700 | 714..=719, Err(error)) = (code, answer) {
        LOST.store(error.0, Ordering::Relaxed);
    }
    answer
}

/// Returns the error of a kernel that has failed. CUDA's context can do nothing from then on.
pub(crate) fn lost() -> Option<hipError_t> {
    let code = LOST.load(Ordering::Relaxed);
    (code != 0).then_some(hipError_t(code))
}

/// Replaces one code with another.
pub(crate) fn instead(result: Answer, code: hipError_t, other: hipError_t) -> Answer {
    result.map_err(|error| if error == code { other } else { error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_both_have_stay_and_others_are_mapped() {
        assert_eq!(result(0), Ok(()));
        for code in [1, 2, 100, 400, 600, 700, 719, 720, 801, 900, 906] {
            assert_eq!(result(code), Err(hipError_t(code)));
        }
        assert_eq!(result(716), Err(hipErrorLaunchFailure));
        assert_eq!(result(222), Err(hipErrorInvalidImage));
        assert_eq!(result(46), Err(hipErrorUnknown), "a code that HIP does not have");
    }
}
