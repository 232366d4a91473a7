//! Error codes: what the CUDA driver says, as the code that AMD's runtime has for the same mistake.
//!
//! The numbers of most codes are the same in both interfaces, because HIP took them from CUDA (`hipError_t` in AMD's
//! hip_runtime_api.h, `CUresult` in NVIDIA's driver API reference). The others are mapped here. Where AMD answers a
//! mistake with another code than CUDA, the function of the call says so.

use std::ffi::c_uint;

use hip_sys::types::*;

/// What a function of this crate returns before it becomes a code.
pub(crate) type Answer<T = ()> = Result<T, hipError_t>;

/// The code of HIP for one of CUDA.
pub(crate) fn result(code: c_uint) -> Answer {
    match code {
        0 => Ok(()),
        // Illegal instruction, misaligned address, invalid address space, invalid program counter, stack error: a kernel failed.
        714..=718 => Err(hipErrorLaunchFailure),
        // Not permitted: HIP has one code for what cannot be done.
        800 => Err(hipErrorNotSupported),
        // PTX that the driver's compiler does not take.
        218 | 220 | 221 | 222 | 223 => Err(hipErrorInvalidImage),
        // The same number means something else in HIP.
        703 | 706 | 707 | 711 => Err(hipErrorUnknown),
        code => {
            let same = hipError_t(code);
            Err(if same.name().is_some() { same } else { hipErrorUnknown })
        }
    }
}

/// Replaces one code by another.
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
