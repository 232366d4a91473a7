//! Types of the HIP interface, as all supported releases lay them out on x86-64.
//!
//! A value that comes from the program or from the runtime can hold anything, so a C enum is a newtype over
//! `u32` with constants under C's own names, never a Rust enum; a handle is a pointer that is never followed.

#![allow(non_camel_case_types, non_upper_case_globals)]

use core::ffi::{c_int, c_uint, c_void};

mod error;
mod structs;

pub use error::*;
pub use structs::*;

/// Declares C enums as newtypes over `u32`.
macro_rules! foreign_enums {
    ($($(#[$doc:meta])* $name:ident { $($constant:ident = $value:expr,)* })*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u32);
        $(
            #[doc = concat!("`", stringify!($constant), "` of [`", stringify!($name), "`].")]
            pub const $constant: $name = $name($value);
        )*
    )*};
}

/// Declares opaque handles.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub *mut c_void);

        // SAFETY: the value is only an identifier: nothing here follows the pointer, and HIP lets any thread
        // use it.
        unsafe impl Send for $name {}
        // SAFETY: a shared reference gives only the identifier, which no code here follows.
        unsafe impl Sync for $name {}

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self::from_raw(0);

            /// The handle with this numeric value.
            pub const fn from_raw(value: usize) -> Self {
                Self(core::ptr::without_provenance_mut(value))
            }

            /// The numeric value, for keys and comparisons.
            pub fn as_raw(self) -> usize {
                self.0.addr()
            }

            /// Returns true for the null handle.
            pub const fn is_null(self) -> bool {
                self.0.is_null()
            }
        }
    )*};
}

handles! {
    /// A stream. The values 0, 1 and 2 are not objects: see the constants.
    hipStream_t;
    /// An event.
    hipEvent_t;
    /// A loaded module.
    hipModule_t;
    /// A kernel of a module.
    hipFunction_t;
    /// A loaded library (7.2 and later).
    hipLibrary_t;
    /// A graph template.
    hipGraph_t;
    /// An executable graph.
    hipGraphExec_t;
    /// A node of a graph.
    hipGraphNode_t;
    /// A reference-counted user object of graphs.
    hipUserObject_t;
    /// An array.
    hipArray_t;
    /// A mipmapped array.
    hipMipmappedArray_t;
    /// A context.
    hipCtx_t;
    /// A memory pool.
    hipMemPool_t;
    /// A physical allocation of the virtual-memory interface.
    hipMemGenericAllocationHandle_t;
    /// A texture object.
    hipTextureObject_t;
    /// A surface object.
    hipSurfaceObject_t;
    /// Imported memory.
    hipExternalMemory_t;
    /// An imported semaphore.
    hipExternalSemaphore_t;
    /// A registered graphics resource.
    hipGraphicsResource_t;
    /// A program of the run-time compiler.
    hiprtcProgram;
}

impl hipStream_t {
    /// The default stream of the calling thread's current device, by its explicit name (`hipStreamLegacy`).
    pub const LEGACY: Self = Self::from_raw(1);
    /// The calling thread's own default stream (`hipStreamPerThread`).
    pub const PER_THREAD: Self = Self::from_raw(2);

    /// Returns true for the default stream that all threads share.
    pub fn is_legacy_default(self) -> bool {
        self == Self::NULL || self == Self::LEGACY
    }
}

/// An array that is only read.
pub type hipArray_const_t = hipArray_t;
/// A mipmapped array that is only read.
pub type hipMipmappedArray_const_t = hipMipmappedArray_t;
/// A device ordinal.
pub type hipDevice_t = c_int;
/// A device address.
pub type hipDeviceptr_t = *mut c_void;
/// A host function in a stream.
pub type hipHostFn_t = Option<unsafe extern "C" fn(user_data: *mut c_void)>;
/// A stream callback.
pub type hipStreamCallback_t =
    Option<unsafe extern "C" fn(stream: hipStream_t, status: hipError_t, user_data: *mut c_void)>;

foreign_enums! {
    /// Direction of a copy.
    hipMemcpyKind {
        hipMemcpyHostToHost = 0,
        hipMemcpyHostToDevice = 1,
        hipMemcpyDeviceToHost = 2,
        hipMemcpyDeviceToDevice = 3,
        hipMemcpyDefault = 4,
        hipMemcpyDeviceToDeviceNoCU = 1024,
    }
    /// The permitted calls of other threads while a thread captures.
    hipStreamCaptureMode {
        hipStreamCaptureModeRelaxed = 2,
    }
    /// State of a stream's capture.
    hipStreamCaptureStatus {
        hipStreamCaptureStatusNone = 0,
    }
    /// Kind of memory behind a pointer. Its values changed with 6.0: see [`hipMemoryType::kind`].
    hipMemoryType {}
    /// A limit of a device.
    hipLimit_t {}
    /// The key of a launch or stream attribute.
    hipLaunchAttributeID {
        hipLaunchAttributeCooperative = 2,
        hipLaunchAttributePriority = 8,
    }
    /// An attribute of a device.
    hipDeviceAttribute_t {}
    /// An attribute of a kernel.
    hipFunction_attribute {}
    /// An attribute of a pointer.
    hipPointer_attribute {
        HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    }
    /// An attribute of a memory pool.
    hipMemPoolAttr {
        hipMemPoolReuseFollowEventDependencies = 1,
        hipMemPoolAttrReservedMemCurrent = 5,
    }
    /// An option for loading a module.
    hipJitOption {}
    /// An option for loading a library.
    hipLibraryOption {}
    /// Kind of a graph's node. Its values changed with 6.0.
    hipGraphNodeType {}
    /// The reason why a graph could not be updated.
    hipGraphExecUpdateResult {}
    /// The reason why a graph could not be instantiated.
    hipGraphInstantiateResult {}
    /// Result of `hipGetDriverEntryPoint`.
    hipDriverEntryPointQueryResult {}
    /// Result of `hipGetProcAddress`.
    hipDriverProcAddressQueryResult {}
    /// Result of a function of the run-time compiler.
    hiprtcResult {
        HIPRTC_SUCCESS = 0,
    }
}

/// The meaning of a [`hipMemoryType`], the same for every release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Not known to the runtime (6.0 and later; earlier runtimes refuse such a pointer).
    Unregistered,
    /// Pinned host memory.
    Host,
    /// Device memory.
    Device,
    /// Managed memory.
    Managed,
    /// An array.
    Array,
    /// Unified memory.
    Unified,
}

impl hipMemoryType {
    /// Returns the meaning of the value for a runtime of this major version, or `None` for a value that the
    /// version does not have.
    pub fn kind(self, runtime_major: u32) -> Option<MemoryKind> {
        use MemoryKind::*;
        let modern = runtime_major >= 6;
        match self.0 {
            0 if modern => Some(Unregistered),
            1 if modern => Some(Host),
            2 if modern => Some(Device),
            3 if modern => Some(Managed),
            10 if modern => Some(Array),
            11 if modern => Some(Unified),
            0 if !modern => Some(Host),
            1 if !modern => Some(Device),
            2 if !modern => Some(Array),
            3 if !modern => Some(Unified),
            4 if !modern => Some(Managed),
            _ => None,
        }
    }
}

/// Flags of `hipStreamCreateWithFlags`: waits for the default stream and is waited for.
pub const hipStreamDefault: c_uint = 0;
/// Flags of `hipStreamCreateWithFlags`: independent of the default stream.
pub const hipStreamNonBlocking: c_uint = 1;

/// Flags of `hipEventCreateWithFlags`: none.
pub const hipEventDefault: c_uint = 0;
/// The event takes no time stamp.
pub const hipEventDisableTiming: c_uint = 2;
/// The event can be shared with another process.
pub const hipEventInterprocess: c_uint = 4;
/// Recording releases nothing to the system (5.7 and later).
pub const hipEventDisableSystemFence: c_uint = 0x2000_0000;
/// Recording releases to the device only.
pub const hipEventReleaseToDevice: c_uint = 0x4000_0000;

/// Flag of a multi-device launch: do not wait for the streams after it.
pub const hipCooperativeLaunchMultiDeviceNoPostSync: c_uint = 2;

/// Key before the argument buffer in `extra` of a module launch.
pub const HIP_LAUNCH_PARAM_BUFFER_POINTER: *mut c_void = core::ptr::without_provenance_mut(1);
/// Key before the pointer to the buffer's size.
pub const HIP_LAUNCH_PARAM_BUFFER_SIZE: *mut c_void = core::ptr::without_provenance_mut(2);
/// End of `extra`.
pub const HIP_LAUNCH_PARAM_END: *mut c_void = core::ptr::without_provenance_mut(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_streams() {
        assert!(hipStream_t::NULL.is_legacy_default() && hipStream_t::LEGACY.is_legacy_default());
        assert!(!hipStream_t::PER_THREAD.is_legacy_default());
        assert_eq!(hipStream_t::from_raw(2), hipStream_t::PER_THREAD);
        assert_eq!(hipStream_t::LEGACY.as_raw(), 1);
    }

    #[test]
    fn memory_type_values_moved_with_6_0() {
        assert_eq!(hipMemoryType(0).kind(5), Some(MemoryKind::Host));
        assert_eq!(hipMemoryType(0).kind(6), Some(MemoryKind::Unregistered));
        assert_eq!(hipMemoryType(1).kind(5), Some(MemoryKind::Device));
        assert_eq!(hipMemoryType(1).kind(7), Some(MemoryKind::Host));
        assert_eq!(hipMemoryType(99).kind(7), None);
    }
}
