//! Error codes: the union of what the supported releases define. Codes keep their number from release to
//! release.

use core::fmt;

/// Result of a HIP function.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[must_use]
pub struct hipError_t(pub u32);

impl hipError_t {
    /// Returns true for `hipSuccess`.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for hipError_t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for hipError_t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "hipError_t({})", self.0),
        }
    }
}

macro_rules! errors {
    ($($name:ident = $value:literal;)*) => {
        $(
            #[doc = concat!("Error code ", stringify!($value), ".")]
            pub const $name: hipError_t = hipError_t($value);
        )*

        impl hipError_t {
            /// C's name of the code; `None` for a code that no supported release defines.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

errors! {
    hipSuccess = 0;
    hipErrorInvalidValue = 1;
    hipErrorOutOfMemory = 2;
    hipErrorNotInitialized = 3;
    hipErrorDeinitialized = 4;
    hipErrorProfilerDisabled = 5;
    hipErrorProfilerNotInitialized = 6;
    hipErrorProfilerAlreadyStarted = 7;
    hipErrorProfilerAlreadyStopped = 8;
    hipErrorInvalidConfiguration = 9;
    hipErrorInvalidPitchValue = 12;
    hipErrorInvalidSymbol = 13;
    hipErrorInvalidDevicePointer = 17;
    hipErrorInvalidMemcpyDirection = 21;
    hipErrorInsufficientDriver = 35;
    hipErrorMissingConfiguration = 52;
    hipErrorPriorLaunchFailure = 53;
    hipErrorInvalidDeviceFunction = 98;
    hipErrorNoDevice = 100;
    hipErrorInvalidDevice = 101;
    hipErrorInvalidImage = 200;
    hipErrorInvalidContext = 201;
    hipErrorContextAlreadyCurrent = 202;
    hipErrorMapFailed = 205;
    hipErrorUnmapFailed = 206;
    hipErrorArrayIsMapped = 207;
    hipErrorAlreadyMapped = 208;
    hipErrorNoBinaryForGpu = 209;
    hipErrorAlreadyAcquired = 210;
    hipErrorNotMapped = 211;
    hipErrorNotMappedAsArray = 212;
    hipErrorNotMappedAsPointer = 213;
    hipErrorECCNotCorrectable = 214;
    hipErrorUnsupportedLimit = 215;
    hipErrorContextAlreadyInUse = 216;
    hipErrorPeerAccessUnsupported = 217;
    hipErrorInvalidKernelFile = 218;
    hipErrorInvalidGraphicsContext = 219;
    hipErrorInvalidSource = 300;
    hipErrorFileNotFound = 301;
    hipErrorSharedObjectSymbolNotFound = 302;
    hipErrorSharedObjectInitFailed = 303;
    hipErrorOperatingSystem = 304;
    hipErrorInvalidHandle = 400;
    hipErrorIllegalState = 401;
    hipErrorNotFound = 500;
    hipErrorNotReady = 600;
    hipErrorIllegalAddress = 700;
    hipErrorLaunchOutOfResources = 701;
    hipErrorLaunchTimeOut = 702;
    hipErrorPeerAccessAlreadyEnabled = 704;
    hipErrorPeerAccessNotEnabled = 705;
    hipErrorSetOnActiveProcess = 708;
    hipErrorContextIsDestroyed = 709;
    hipErrorAssert = 710;
    hipErrorHostMemoryAlreadyRegistered = 712;
    hipErrorHostMemoryNotRegistered = 713;
    hipErrorLaunchFailure = 719;
    hipErrorCooperativeLaunchTooLarge = 720;
    hipErrorNotSupported = 801;
    hipErrorStreamCaptureUnsupported = 900;
    hipErrorStreamCaptureInvalidated = 901;
    hipErrorStreamCaptureMerge = 902;
    hipErrorStreamCaptureUnmatched = 903;
    hipErrorStreamCaptureUnjoined = 904;
    hipErrorStreamCaptureIsolation = 905;
    hipErrorStreamCaptureImplicit = 906;
    hipErrorCapturedEvent = 907;
    hipErrorStreamCaptureWrongThread = 908;
    hipErrorGraphExecUpdateFailure = 910;
    hipErrorInvalidChannelDescriptor = 911;
    hipErrorInvalidTexture = 912;
    hipErrorUnknown = 999;
    hipErrorRuntimeMemory = 1052;
    hipErrorRuntimeOther = 1053;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(hipSuccess.name(), Some("hipSuccess"));
        assert_eq!(hipError_t(600).name(), Some("hipErrorNotReady"));
        assert_eq!(hipError_t(4242).name(), None);
        assert_eq!(
            format!("{} {:?}", hipErrorNotReady, hipError_t(4242)),
            "hipErrorNotReady (600) hipError_t(4242)"
        );
    }
}
