//! The runtime's functions, looked up once by name.

use super::types::{Device, HipError, LoadError, text_of};
use hip_sys::pfn;
use hip_sys::types::{
    hipDeviceProp_tR0000, hipDeviceProp_tR0600, hipError_t, hipErrorInvalidValue, hipErrorNotReady,
    hipFunction_t,
};
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Declares the struct of functions that every supported release has, and how it is filled.
macro_rules! functions {
    ($($name:ident)*) => {
        /// The functions, one field each, with the type of `hip-sys`.
        #[allow(non_snake_case)] // the names are HIP's
        pub(super) struct Api {
            pub(super) library: &'static Library,
            properties: Properties,
            pub(super) occupancy: Occupancy,
            $(pub(super) $name: pfn::$name,)*
        }

        impl Api {
            pub(super) fn new(name: &str, library: &'static Library) -> Result<Self, LoadError> {
                let missing = |function| LoadError::Incomplete { library: name.to_owned(), function };
                Ok(Self {
                    library,
                    $(
                        // SAFETY: the type is the prototype that hip-sys holds for exactly this name.
                        $name: unsafe { lookup(library, stringify!($name)) }
                            .ok_or(missing(stringify!($name)))?,
                    )*
                    properties: Properties::find(library)
                        .ok_or(missing("hipGetDeviceProperties"))?,
                    // SAFETY: the type is the function's prototype in hip/hip_runtime_api.h, the same in all
                    // releases.
                    occupancy: unsafe { lookup(library, OCCUPANCY) }.ok_or(missing(OCCUPANCY))?,
                })
            }
        }
    };
}

functions! {
    hipRuntimeGetVersion hipGetDeviceCount hipSetDevice hipDeviceSynchronize
    hipMalloc hipFree hipHostMalloc hipHostFree hipHostRegister hipHostUnregister hipHostGetDevicePointer hipMemcpy hipMemsetAsync
    hipStreamCreateWithFlags hipStreamDestroy hipStreamSynchronize hipStreamQuery hipStreamWaitEvent
    hipEventCreateWithFlags hipEventDestroy hipEventRecord hipEventSynchronize hipEventElapsedTime
    hipModuleLoadData hipModuleUnload hipModuleGetFunction hipModuleLaunchKernel
}

/// The function that returns how many work-groups a compute unit holds at once. The preloaded library does
/// not hook it, so hip-sys has no prototype for it.
pub(super) const OCCUPANCY: &str = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor";
/// `(out groups, function, threads of a group, dynamic local memory)`.
pub(super) type Occupancy = unsafe extern "C" fn(*mut c_int, hipFunction_t, c_int, usize) -> hipError_t;

/// The two versions of the properties call: release 6.0 changed the structure and the name of the function.
enum Properties {
    R0600(pfn::hipGetDevicePropertiesR0600),
    R0000(pfn::hipGetDeviceProperties),
}

impl Properties {
    fn find(library: &'static Library) -> Option<Self> {
        // SAFETY: the prototype that hip-sys holds for exactly this name.
        if let Some(function) = unsafe { lookup(library, "hipGetDevicePropertiesR0600") } {
            return Some(Self::R0600(function));
        }
        // SAFETY: a library without the newer name has the older structure under this name, as hip-sys
        // declares it.
        unsafe { lookup(library, "hipGetDeviceProperties") }.map(Self::R0000)
    }
}

/// Returns the function `name` of a library; `None` if it has no such symbol.
///
/// # Safety
/// `T` is the function-pointer type of the library's function `name`.
pub(crate) unsafe fn lookup<T: Copy>(library: &'static Library, name: &str) -> Option<T> {
    // SAFETY: the caller vouches for the type; the library is never unloaded.
    unsafe { library.get::<T>(name) }.ok().map(|symbol| *symbol)
}

/// Returns `Ok` for hipSuccess.
pub(super) fn check(call: &'static str, code: hipError_t) -> Result<(), HipError> {
    if code.is_success() { Ok(()) } else { Err(HipError { call, code }) }
}

/// Returns, for a query, true if the work is done.
pub(super) fn check_ready(call: &'static str, code: hipError_t) -> Result<bool, HipError> {
    if code == hipErrorNotReady {
        return Ok(false);
    }
    check(call, code).map(|()| true)
}

/// Checks a pointer that a successful call has written.
pub(super) fn non_null(call: &'static str, pointer: *mut c_void) -> Result<NonNull<c_void>, HipError> {
    NonNull::new(pointer).ok_or(HipError { call, code: hipErrorInvalidValue })
}

/// Reads the device from either structure of properties.
macro_rules! device_of {
    ($properties:expr) => {
        Device {
            name: text_of(&$properties.name),
            arch: text_of(&$properties.gcn_arch_name),
            compute_units: $properties.multi_processor_count.unsigned_abs(),
            memory: $properties.total_global_mem as u64,
        }
    };
}

impl Api {
    pub(super) fn device(&self, ordinal: u32) -> Result<Device, HipError> {
        match self.properties {
            Properties::R0600(function) => {
                let mut properties = MaybeUninit::<hipDeviceProp_tR0600>::zeroed();
                // SAFETY: the function writes one structure of the type that it is declared with.
                let code = unsafe { function(properties.as_mut_ptr(), ordinal as i32) };
                check("hipGetDevicePropertiesR0600", code)?;
                // SAFETY: zeroed, then written; every field is a number, an array of numbers or a raw
                // pointer.
                let properties = unsafe { properties.assume_init_ref() };
                Ok(device_of!(properties))
            }
            Properties::R0000(function) => {
                let mut properties = MaybeUninit::<hipDeviceProp_tR0000>::zeroed();
                // SAFETY: the function writes one structure of the type that it is declared with.
                let code = unsafe { function(properties.as_mut_ptr(), ordinal as i32) };
                check("hipGetDeviceProperties", code)?;
                // SAFETY: zeroed, then written; every field is a number, an array of numbers or a raw
                // pointer.
                let properties = unsafe { properties.assume_init_ref() };
                Ok(device_of!(properties))
            }
        }
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Api({:?})", self.library)
    }
}
