//! The runtime's functions, looked up once by name.

use super::device::{Device, text_of};
use anyhow::{Result, bail, ensure};
use hip_sys::pfn;
use hip_sys::types::{
    hipDeviceProp_tR0000, hipDeviceProp_tR0600, hipError_t, hipErrorInvalidValue, hipFunction_t,
};
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Declares the struct of functions that every supported release has, and how it is filled.
macro_rules! functions {
    ($($name:ident)*) => {
        /// The functions, one field each, with the type of `hip-sys`.
        #[allow(non_snake_case)] // the names are HIP's
        #[derive(Debug)]
        pub(super) struct Api {
            pub(super) library: &'static Library,
            properties: Properties,
            pub(super) occupancy: Occupancy,
            $(pub(super) $name: pfn::$name,)*
        }

        impl Api {
            /// Looks the functions up; the error is the name of the first that the library does not have.
            pub(super) fn new(library: &'static Library) -> Result<Self, &'static str> {
                Ok(Self {
                    library,
                    $(
                        // SAFETY: the type is the prototype that hip-sys holds for exactly this name.
                        $name: unsafe { lookup(library, stringify!($name)) }?,
                    )*
                    properties: Properties::find(library)?,
                    // SAFETY: the type is the function's prototype in hip/hip_runtime_api.h, the same in all
                    // releases.
                    occupancy: unsafe { lookup(library, OCCUPANCY) }?,
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

/// Declares a table of a library's functions by name, and `of`, which looks them up; its error is a name that
/// the library does not have.
macro_rules! function_table {
    ($(#[$attribute:meta])* $table:ident { $($field:ident: $type:ty = $name:literal;)* }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $table {
            $($field: $type,)*
        }

        impl $table {
            /// # Safety
            /// Each type is that of the library's function of this name.
            unsafe fn of(library: &'static libloading::Library) -> Result<Self, &'static str> {
                // SAFETY: the caller vouches for the types.
                unsafe { Ok(Self { $($field: crate::hip::lookup(library, $name)?,)* }) }
            }
        }
    };
}
pub(crate) use function_table;

/// Calls a function of the runtime, and checks its result.
macro_rules! call {
    ($api:expr, $name:ident($($argument:expr),*)) => {
        $crate::hip::api::check(stringify!($name), ($api.$name)($($argument),*))
    };
}
pub(super) use call;

/// The two versions of the properties call: release 6.0 changed the structure and the name of the function.
#[derive(Debug)]
enum Properties {
    R0600(pfn::hipGetDevicePropertiesR0600),
    R0000(pfn::hipGetDeviceProperties),
}

impl Properties {
    fn find(library: &'static Library) -> Result<Self, &'static str> {
        // SAFETY: the prototype that hip-sys holds for exactly this name.
        if let Ok(function) = unsafe { lookup(library, "hipGetDevicePropertiesR0600") } {
            return Ok(Self::R0600(function));
        }
        // SAFETY: a library without the newer name has the older structure under this name, as hip-sys
        // declares it.
        unsafe { lookup(library, "hipGetDeviceProperties") }.map(Self::R0000)
    }
}

/// Returns the function `name` of a library; the error is that name if it has no such symbol.
///
/// # Safety
/// `T` is the function-pointer type of the library's function `name`.
pub(crate) unsafe fn lookup<T: Copy>(
    library: &'static Library,
    name: &'static str,
) -> Result<T, &'static str> {
    // SAFETY: the caller vouches for the type; the library is never unloaded.
    unsafe { library.get::<T>(name) }.map(|symbol| *symbol).map_err(|_| name)
}

pub(super) fn check(call: &'static str, code: hipError_t) -> Result<()> {
    ensure!(code.is_success(), "{call} returned {code}");
    Ok(())
}

/// Checks a pointer that a successful call has written.
pub(super) fn non_null(call: &'static str, pointer: *mut c_void) -> Result<NonNull<c_void>> {
    let Some(pointer) = NonNull::new(pointer) else { bail!("{call} returned {hipErrorInvalidValue}") };
    Ok(pointer)
}

/// Calls a version of the properties call, and reads the device from its structure.
macro_rules! device {
    ($call:literal, $function:expr, $structure:ty, $ordinal:expr) => {{
        let mut properties = MaybeUninit::<$structure>::zeroed();
        // SAFETY: the function writes one structure of the type that it is declared with.
        check($call, unsafe { $function(properties.as_mut_ptr(), $ordinal as i32) })?;
        // SAFETY: zeroed, then written; every field is a number, an array of numbers or a raw pointer.
        let properties = unsafe { properties.assume_init_ref() };
        Ok(Device {
            name: text_of(&properties.name),
            arch: text_of(&properties.gcn_arch_name),
            compute_units: properties.multi_processor_count.unsigned_abs(),
            memory: properties.total_global_mem as u64,
            clock_mhz: properties.clock_rate.max(0).unsigned_abs() / 1000,
            memory_clock_mhz: properties.memory_clock_rate.max(0).unsigned_abs() / 1000,
            memory_bus_bits: properties.memory_bus_width.max(0).unsigned_abs(),
        })
    }};
}

impl Api {
    pub(super) fn device(&self, ordinal: u32) -> Result<Device> {
        match self.properties {
            Properties::R0600(function) => {
                device!("hipGetDevicePropertiesR0600", function, hipDeviceProp_tR0600, ordinal)
            }
            Properties::R0000(function) => {
                device!("hipGetDeviceProperties", function, hipDeviceProp_tR0000, ordinal)
            }
        }
    }
}
