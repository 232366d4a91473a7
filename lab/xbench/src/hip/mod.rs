//! A small owner-typed wrapper over the HIP runtime, loaded at run time: what measurements need and no more.
//!
//! The runtime is found by name on the library search path (newest release first) and never unloaded. Every handle
//! (stream, event, memory, module) destroys itself and holds on to the runtime. Symbols are looked up by `dlsym` on the
//! library's handle, as PyTorch's and Triton's loaders do, so a preloaded shim sees these calls as well.

mod api;
mod handles;

pub use handles::{
    DeviceBuffer, DeviceMemory, Dims, Event, Function, HostBuffer, Module, Registered, Stream,
};

pub(crate) use api::lookup;

use api::Api;
use hip_sys::types::{
    hipError_t, hipErrorInvalidDevice, hipErrorNoDevice, hipMemcpyDeviceToHost, hipMemcpyHostToDevice,
};
use libloading::Library;
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Names of the runtime, newest release first; the bare name is there where the development package is.
const LIBRARIES: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

/// A HIP call that returned an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HipError {
    /// The function that was called.
    pub call: &'static str,
    /// What it returned.
    pub code: hipError_t,
}

/// Call, HIP's name of the error, and its number.
impl fmt::Display for HipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returned {}", self.call, self.code)
    }
}

impl std::error::Error for HipError {}

/// Why there is no runtime to call.
#[derive(Debug)]
pub enum LoadError {
    /// No library of any known name can be opened; the reason for the last one tried.
    NotFound(String),
    /// A library is there, and lacks a function that every supported release has.
    Incomplete {
        /// Name under which the library was opened.
        library: String,
        /// The function it lacks.
        function: &'static str,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(reason) => write!(
                f,
                "no HIP runtime found: install libamdhip64 (Debian: libamdhip64-5 or libamdhip64-dev) or put its \
                 directory on LD_LIBRARY_PATH ({reason})"
            ),
            Self::Incomplete { library, function } => {
                write!(f, "{library} is no usable HIP runtime: it has no function {function}")
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// The loaded runtime. Copies are cheap and share it.
#[derive(Debug, Clone)]
pub struct Hip {
    api: Arc<Api>,
}

/// What the runtime says about a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Marketing name; empty where the runtime has none.
    pub name: String,
    /// Full target id, such as `gfx90a:sramecc+:xnack-`.
    pub arch: String,
    /// Compute units.
    pub compute_units: u32,
    /// Device memory in bytes.
    pub memory: u64,
}

impl Device {
    /// For people: `AMD Instinct MI210 (gfx90a:sramecc+:xnack-)`.
    pub fn title(&self) -> String {
        match self.name.as_str() {
            "" => self.arch.clone(),
            name => format!("{name} ({})", self.arch),
        }
    }
}

impl Hip {
    /// Opens the newest HIP runtime on the library search path.
    pub fn load() -> Result<Self, LoadError> {
        Self::load_from(&LIBRARIES)
    }

    fn load_from(names: &[&str]) -> Result<Self, LoadError> {
        let mut reason = "no name was tried".to_owned();
        for name in names {
            // SAFETY: loading the HIP runtime runs its initialisers, as it does in every HIP program; they expect
            // nothing of their process.
            match unsafe { Library::new(*name) } {
                // Leaked on purpose: the runtime starts threads and cannot be unloaded.
                Ok(library) => {
                    let api = Api::new(name, Box::leak(Box::new(library)))?;
                    return Ok(Self { api: Arc::new(api) });
                }
                Err(error) => reason = error.to_string(),
            }
        }
        Err(LoadError::NotFound(reason))
    }

    /// The library itself, for functions that this wrapper does not have.
    pub fn library(&self) -> &'static Library {
        self.api.library
    }

    /// The runtime's version as it reports it, such as 50221153.
    pub fn runtime_version(&self) -> Result<i32, HipError> {
        let mut version: c_int = 0;
        // SAFETY: the function writes one int.
        let code = unsafe { (self.api.hipRuntimeGetVersion)(&mut version) };
        api::check("hipRuntimeGetVersion", code)?;
        Ok(version)
    }

    /// Number of devices; 0 where the runtime finds none.
    pub fn device_count(&self) -> Result<u32, HipError> {
        let mut count: c_int = 0;
        // SAFETY: the function writes one int.
        let code = unsafe { (self.api.hipGetDeviceCount)(&mut count) };
        if code == hipErrorNoDevice || code == hipErrorInvalidDevice {
            return Ok(0);
        }
        api::check("hipGetDeviceCount", code)?;
        Ok(count.unsigned_abs())
    }

    /// Makes `ordinal` the calling thread's device.
    pub fn set_device(&self, ordinal: u32) -> Result<(), HipError> {
        // SAFETY: the function takes any number and refuses those that are no device.
        let code = unsafe { (self.api.hipSetDevice)(ordinal as c_int) };
        api::check("hipSetDevice", code)
    }

    /// Properties of device `ordinal`.
    pub fn device(&self, ordinal: u32) -> Result<Device, HipError> {
        self.api.device(ordinal)
    }

    /// `bytes` of memory on the calling thread's device.
    pub fn malloc(&self, bytes: usize) -> Result<DeviceBuffer, HipError> {
        DeviceBuffer::new(&self.api, bytes)
    }

    /// `bytes` of pinned host memory that the device can reach, zeroed.
    pub fn host_malloc(&self, bytes: usize) -> Result<HostBuffer, HipError> {
        HostBuffer::new(&self.api, bytes)
    }

    /// Lets the device reach `bytes` of host memory.
    ///
    /// # Safety
    /// The memory stays mapped and writable until the value is dropped, and the host touches what kernels write only by
    /// atomic words.
    pub unsafe fn register(&self, host: NonNull<c_void>, bytes: usize) -> Result<Registered, HipError> {
        // SAFETY: the caller vouches for the memory.
        unsafe { Registered::new(&self.api, host, bytes) }
    }

    /// A blocking stream on the calling thread's device (one that keeps the order of the default stream).
    pub fn stream(&self) -> Result<Stream, HipError> {
        Stream::new(&self.api)
    }

    /// The null stream of the calling thread's device, where PyTorch works.
    pub fn null_stream(&self) -> Stream {
        Stream::null(&self.api)
    }

    /// An event that takes time stamps.
    pub fn event(&self) -> Result<Event, HipError> {
        Event::new(&self.api)
    }

    /// Loads a code object on the calling thread's device.
    pub fn load_module(&self, code: &[u8]) -> Result<Arc<Module>, HipError> {
        Module::new(&self.api, code)
    }

    /// Waits for all work of the calling thread's device.
    pub fn synchronize(&self) -> Result<(), HipError> {
        // SAFETY: takes nothing.
        let code = unsafe { (self.api.hipDeviceSynchronize)() };
        api::check("hipDeviceSynchronize", code)
    }

    /// Copies `bytes` into `buffer` from `offset` on, and returns when they are there.
    ///
    /// # Panics
    /// If they reach past the buffer's end.
    pub fn copy_to_device(&self, buffer: &DeviceBuffer, offset: usize, bytes: &[u8]) -> Result<(), HipError> {
        let target = buffer.range(offset, bytes.len());
        // SAFETY: `target` starts `bytes.len()` bytes of a live allocation (checked by `range`), the source is a live
        // slice, and hipMemcpy returns when it no longer reads it.
        let code = unsafe {
            (self.api.hipMemcpy)(target, bytes.as_ptr().cast(), bytes.len(), hipMemcpyHostToDevice)
        };
        api::check("hipMemcpy", code)
    }

    /// Copies from `buffer`, from `offset` on, into `bytes`, after all earlier work of the default stream.
    ///
    /// # Panics
    /// If that reaches past the buffer's end.
    pub fn copy_from_device(
        &self,
        bytes: &mut [u8],
        buffer: &DeviceBuffer,
        offset: usize,
    ) -> Result<(), HipError> {
        let source: *mut c_void = buffer.range(offset, bytes.len());
        // SAFETY: `source` starts `bytes.len()` bytes of a live allocation (checked by `range`), the target is a live
        // slice of that length borrowed mutably, and hipMemcpy returns when it has been written.
        let code = unsafe {
            (self.api.hipMemcpy)(bytes.as_mut_ptr().cast(), source, bytes.len(), hipMemcpyDeviceToHost)
        };
        api::check("hipMemcpy", code)
    }
}

/// The text of a fixed-size C string field.
fn text_of(field: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|c| c.cast_unsigned()).collect();
    let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_bytes).unwrap_or(&bytes);
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_runtime_is_one_sentence() {
        let error = Hip::load_from(&["libno-such-hip.so.0"]).unwrap_err();
        assert!(matches!(error, LoadError::NotFound(_)));
        let text = error.to_string();
        assert!(text.starts_with("no HIP runtime found: install libamdhip64"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }

    #[test]
    fn a_library_without_the_functions_is_named() {
        let error = Hip::load_from(&["libc.so.6"]).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("libc.so.6 is no usable HIP runtime: it has no function hip"), "{text}");
    }

    #[test]
    fn errors_name_call_and_code() {
        let error = HipError { call: "hipMalloc", code: hipError_t(2) };
        assert_eq!(error.to_string(), "hipMalloc returned hipErrorOutOfMemory (2)");
    }

    #[test]
    fn text_fields_end_at_the_zero_or_the_field() {
        let field = |s: &[u8]| s.iter().map(|b| b.cast_signed()).collect::<Vec<_>>();
        assert_eq!(text_of(&field(b"gfx90a\0junk")), "gfx90a");
        assert_eq!(text_of(&field(b"gfx90a")), "gfx90a");
        assert_eq!(text_of(&field(b"\0")), "");
    }
}
