//! A small wrapper for the HIP runtime, which is loaded at run time.
//!
//! The runtime is found by name on the library search path (newest release first) and never unloaded. Every
//! handle (stream, event, memory, module) destroys itself on drop and keeps the runtime. Symbols are looked
//! up by `dlsym` on the library's handle, as PyTorch's and Triton's loaders do, so a preloaded library sees
//! these calls as well.

mod api;
mod handles;
mod types;

pub use handles::{
    DeviceBuffer, DeviceMemory, Dims, Event, Function, HostBuffer, Module, Registered, Stream,
};

pub(crate) use api::lookup;
pub use types::{Device, HipError, LoadError};

use api::Api;
use hip_sys::types::{hipErrorInvalidDevice, hipErrorNoDevice, hipMemcpyDeviceToHost, hipMemcpyHostToDevice};
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

/// The names of the runtime, newest release first; the development package has the bare name.
const LIBRARIES: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

/// The loaded runtime. Copies are cheap and share it.
#[derive(Debug, Clone)]
pub struct Hip {
    api: Arc<Api>,
}

impl Hip {
    /// Opens the newest HIP runtime on the library search path.
    pub fn load() -> Result<Self, LoadError> {
        Self::load_from(&LIBRARIES)
    }

    fn load_from(names: &[&str]) -> Result<Self, LoadError> {
        let mut reason = "no name was tried".to_owned();
        for name in names {
            // SAFETY: loading the HIP runtime runs its initialisers, as it does in every HIP program; they
            // expect nothing of their process.
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

    /// Returns the library, for functions that this wrapper does not have.
    pub fn library(&self) -> &'static Library {
        self.api.library
    }

    /// Returns the runtime's version, such as 50221153.
    pub fn runtime_version(&self) -> Result<i32, HipError> {
        let mut version: c_int = 0;
        // SAFETY: the function writes one int.
        let code = unsafe { (self.api.hipRuntimeGetVersion)(&mut version) };
        api::check("hipRuntimeGetVersion", code)?;
        Ok(version)
    }

    /// Returns the number of devices; 0 where the runtime finds none.
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

    /// Returns the properties of device `ordinal`.
    pub fn device(&self, ordinal: u32) -> Result<Device, HipError> {
        self.api.device(ordinal)
    }

    /// Allocates `bytes` of memory on the calling thread's device.
    pub fn malloc(&self, bytes: usize) -> Result<DeviceBuffer, HipError> {
        DeviceBuffer::new(&self.api, bytes)
    }

    /// Allocates `bytes` of zeroed, pinned host memory that the device can reach.
    pub fn host_malloc(&self, bytes: usize) -> Result<HostBuffer, HipError> {
        HostBuffer::new(&self.api, bytes)
    }

    /// Registers `bytes` of host memory for the device.
    ///
    /// # Safety
    /// The memory stays mapped and writable until the value is dropped, and the host touches what kernels
    /// write only by atomic words.
    pub unsafe fn register(&self, host: NonNull<c_void>, bytes: usize) -> Result<Registered, HipError> {
        // SAFETY: the caller vouches for the memory.
        unsafe { Registered::new(&self.api, host, bytes) }
    }

    /// Creates a blocking stream on the calling thread's device, one that keeps the order of the default
    /// stream.
    pub fn stream(&self) -> Result<Stream, HipError> {
        Stream::new(&self.api)
    }

    /// Returns the null stream of the calling thread's device, which PyTorch uses.
    pub fn null_stream(&self) -> Stream {
        Stream::null(&self.api)
    }

    /// Creates an event with time stamps.
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

    /// Copies `bytes` into `buffer` from `offset` on, and waits for the copy.
    ///
    /// # Panics
    /// If they reach past the buffer's end.
    pub fn copy_to_device(&self, buffer: &DeviceBuffer, offset: usize, bytes: &[u8]) -> Result<(), HipError> {
        let target = buffer.range(offset, bytes.len());
        // SAFETY: `target` starts `bytes.len()` bytes of a live allocation (checked by `range`), the source
        // is a live slice, and hipMemcpy returns when it no longer reads it.
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
        // SAFETY: `source` starts `bytes.len()` bytes of a live allocation (checked by `range`), the target
        // is a live slice of that length borrowed mutably, and hipMemcpy returns when it has been written.
        let code = unsafe {
            (self.api.hipMemcpy)(bytes.as_mut_ptr().cast(), source, bytes.len(), hipMemcpyDeviceToHost)
        };
        api::check("hipMemcpy", code)
    }
}

#[cfg(test)]
mod tests {
    use super::types::text_of;
    use super::*;
    use hip_sys::types::hipError_t;

    #[test]
    fn missing_runtime_is_one_sentence() {
        let error = Hip::load_from(&["libno-such-hip.so.0"]).unwrap_err();
        assert!(matches!(error, LoadError::NotFound(_)));
        let text = error.to_string();
        assert!(text.starts_with("no HIP runtime found: install libamdhip64"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }

    #[test]
    fn library_without_the_functions_is_named() {
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
    fn text_field_ends_at_its_zero_or_its_end() {
        let field = |s: &[u8]| s.iter().map(|b| b.cast_signed()).collect::<Vec<_>>();
        assert_eq!(text_of(&field(b"gfx90a\0junk")), "gfx90a");
        assert_eq!(text_of(&field(b"gfx90a")), "gfx90a");
        assert_eq!(text_of(&field(b"\0")), "");
    }
}
