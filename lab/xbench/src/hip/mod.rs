//! A small wrapper for the HIP runtime, which is loaded at run time.
//!
//! The runtime is found by name on the library search path (newest release first) and never unloaded. Every
//! handle (stream, event, memory, module) destroys itself on drop and keeps the runtime. Symbols are looked
//! up by `dlsym` on the library's handle, as PyTorch's and Triton's loaders do, so a preloaded library sees
//! these calls as well.

mod api;
mod device;
mod handles;
mod optional;

pub(crate) use api::{function_table, lookup};
pub use device::Device;
pub use handles::{DeviceBuffer, Dims, Event, Function, HostBuffer, Memory, Occupied, Stream};

use anyhow::{Result, anyhow, bail};
use api::{Api, call, check};
use hip_sys::types::{hipErrorInvalidDevice, hipErrorNoDevice, hipMemcpyDeviceToHost, hipMemcpyHostToDevice};
use libloading::Library;
use std::ffi::c_int;

/// The names of the runtime, newest release first; the development package has the bare name.
const LIBRARIES: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

#[derive(Debug, Clone, Copy)]
pub struct Hip {
    api: &'static Api,
}

impl Hip {
    /// Opens the newest HIP runtime on the library search path.
    pub fn load() -> Result<Self> {
        Self::load_from(&LIBRARIES)
    }

    fn load_from(names: &[&str]) -> Result<Self> {
        let mut reason = "no name was tried".to_owned();
        for name in names {
            // SAFETY: loading the HIP runtime runs its initialisers, as it does in every HIP program; they
            // expect nothing of their process.
            match unsafe { Library::new(*name) } {
                // Both leaked on purpose: the runtime starts threads and cannot be unloaded.
                Ok(library) => {
                    let api = Api::new(Box::leak(Box::new(library))).map_err(|function| {
                        anyhow!("{name} is no usable HIP runtime: it has no function {function}")
                    })?;
                    return Ok(Self { api: Box::leak(Box::new(api)) });
                }
                Err(error) => reason = error.to_string(),
            }
        }
        bail!(
            "no HIP runtime found: install libamdhip64 (Debian: libamdhip64-5 or libamdhip64-dev) or put its \
             directory on LD_LIBRARY_PATH ({reason})"
        )
    }

    /// Returns the library, for functions that this wrapper does not have.
    pub fn library(&self) -> &'static Library {
        self.api.library
    }

    /// Returns the runtime's version, such as 50221153.
    pub fn runtime_version(&self) -> Result<i32> {
        let mut version: c_int = 0;
        // SAFETY: the function writes one int.
        unsafe { call!(self.api, hipRuntimeGetVersion(&mut version)) }?;
        Ok(version)
    }

    /// Returns the number of devices; 0 where the runtime finds none.
    pub fn device_count(&self) -> Result<u32> {
        let mut count: c_int = 0;
        // SAFETY: the function writes one int.
        let code = unsafe { (self.api.hipGetDeviceCount)(&mut count) };
        if code == hipErrorNoDevice || code == hipErrorInvalidDevice {
            return Ok(0);
        }
        check("hipGetDeviceCount", code)?;
        Ok(count.unsigned_abs())
    }

    /// Makes `ordinal` the calling thread's device.
    pub fn set_device(&self, ordinal: u32) -> Result<()> {
        // SAFETY: the function takes any number and refuses those that are no device.
        unsafe { call!(self.api, hipSetDevice(ordinal as c_int)) }
    }

    pub fn device(&self, ordinal: u32) -> Result<Device> {
        self.api.device(ordinal)
    }

    /// Creates a blocking stream whose kernels run on the compute units of `mask` only: bit `i % 32` of word `i / 32` is unit `i`.
    ///
    /// # Errors
    /// The runtime lacks the function, or it or the driver refuses the mask.
    pub fn stream_on_units(&self, mask: &[u32]) -> Result<Stream> {
        Stream::on_units(self.api, mask)
    }

    /// Waits for all work of the calling thread's device.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: takes nothing.
        unsafe { call!(self.api, hipDeviceSynchronize()) }
    }

    /// Copies `bytes` to the begin of `buffer`, and waits for the copy.
    ///
    /// # Panics
    /// If they reach past the buffer's end.
    pub fn copy_to_device(&self, buffer: &DeviceBuffer, bytes: &[u8]) -> Result<()> {
        let (target, source, size) = (buffer.first(bytes.len()), bytes.as_ptr().cast(), bytes.len());
        // SAFETY: `target` starts `size` bytes of a live allocation (checked by `first`), the source is a live
        // slice, and hipMemcpy returns when it no longer reads it.
        unsafe { call!(self.api, hipMemcpy(target, source, size, hipMemcpyHostToDevice)) }
    }

    /// Copies from the begin of `buffer` into `bytes`, after all earlier work of the default stream.
    ///
    /// # Panics
    /// If that reaches past the buffer's end.
    pub fn copy_from_device(&self, bytes: &mut [u8], buffer: &DeviceBuffer) -> Result<()> {
        self.copy_part_from_device(bytes, buffer, 0)
    }

    /// Copies from `offset` bytes behind the begin of `buffer` into `bytes`, after all earlier work of the default stream.
    ///
    /// # Panics
    /// If that reaches past the buffer's end.
    pub fn copy_part_from_device(
        &self,
        bytes: &mut [u8],
        buffer: &DeviceBuffer,
        offset: usize,
    ) -> Result<()> {
        let size = bytes.len();
        let source = buffer.first(offset + size).wrapping_byte_add(offset);
        let target = bytes.as_mut_ptr().cast();
        // SAFETY: `source` starts `size` bytes of a live allocation (checked by `first`), the target is a live
        // slice of that length borrowed mutably, and hipMemcpy returns when it has been written.
        unsafe { call!(self.api, hipMemcpy(target, source, size, hipMemcpyDeviceToHost)) }
    }
}

#[cfg(test)]
mod tests {
    use super::device::text_of;
    use super::*;
    use hip_sys::types::hipError_t;

    #[test]
    fn missing_runtime_is_one_sentence() {
        let error = Hip::load_from(&["libno-such-hip.so.0"]).unwrap_err();
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
        let error = check("hipMalloc", hipError_t(2)).unwrap_err();
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
