//! Owners of what the runtime hands out: memory, streams, events, modules and their functions.
//!
//! A drop ignores the runtime's error, because it cannot return one and the process is usually about to end.

use super::api::{Api, OCCUPANCY, check, check_ready, non_null};
use super::types::HipError;
use hip_sys::types::{
    hipEvent_t, hipEventDefault, hipFunction_t, hipModule_t, hipStream_t, hipStreamDefault,
};
use std::ffi::{CStr, c_uint, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that kernels can work on.
pub trait DeviceMemory {
    /// Its address as the device sees it.
    fn device_address(&self) -> *mut c_void;
    /// Its size.
    fn bytes(&self) -> usize;
}

/// Memory on a device, freed on drop (which waits for the device).
#[derive(Debug)]
pub struct DeviceBuffer {
    api: Arc<Api>,
    address: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: HIP lets any thread use and free an address on the device; the host never dereferences it.
unsafe impl Send for DeviceBuffer {}
// SAFETY: methods only pass the address to HIP, which any threads may do at once.
unsafe impl Sync for DeviceBuffer {}

impl DeviceBuffer {
    pub(super) fn new(api: &Arc<Api>, bytes: usize) -> Result<Self, HipError> {
        let mut address = ptr::null_mut();
        // SAFETY: the function writes one pointer.
        let code = unsafe { (api.hipMalloc)(&mut address, bytes) };
        check("hipMalloc", code)?;
        Ok(Self { api: Arc::clone(api), address: non_null("hipMalloc", address)?, bytes })
    }

    /// Returns the address of `length` bytes from `offset` on.
    pub(super) fn range(&self, offset: usize, length: usize) -> *mut c_void {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.bytes), "a copy reaches past its device buffer");
        self.address.as_ptr().wrapping_byte_add(offset)
    }
}

impl DeviceMemory for DeviceBuffer {
    fn device_address(&self) -> *mut c_void {
        self.address.as_ptr()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // SAFETY: the address came from hipMalloc and is freed once, here; hipFree waits for work that uses
        // it.
        let _ = unsafe { (self.api.hipFree)(self.address.as_ptr()) };
    }
}

/// Pinned host memory that the device reaches as well. Kernels may change it at any time, so the host
/// accesses it by atomic words only. Freed on drop, which waits for the device.
#[derive(Debug)]
pub struct HostBuffer {
    api: Arc<Api>,
    address: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: HIP lets any thread use and free the memory.
unsafe impl Send for HostBuffer {}
// SAFETY: the host accesses the memory by atomic words only.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    pub(super) fn new(api: &Arc<Api>, bytes: usize) -> Result<Self, HipError> {
        /// Portable to all devices, mapped into the device, coherent: a kernel's stores reach the host while
        /// it runs.
        const FLAGS: c_uint = 0x1 | 0x2 | 0x4000_0000;
        let mut address = ptr::null_mut();
        // SAFETY: the function writes one pointer.
        let code = unsafe { (api.hipHostMalloc)(&mut address, bytes, FLAGS) };
        check("hipHostMalloc", code)?;
        let address = non_null("hipHostMalloc", address)?;
        // SAFETY: the memory is new, has `bytes` bytes, and nothing else refers to it.
        unsafe { ptr::write_bytes(address.as_ptr().cast::<u8>(), 0, bytes) };
        Ok(Self { api: Arc::clone(api), address, bytes })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.bytes / size_of::<u64>(), "there is no word {index} in the buffer");
        let word = self.address.as_ptr().cast::<AtomicU64>().wrapping_add(index);
        // SAFETY: the word is in bounds (checked above) and aligned, because allocations are page-aligned;
        // the memory lives as long as `self`, and host code accesses it in no other way.
        unsafe { &*word }
    }

    /// Loads the 64-bit word `index`.
    ///
    /// # Panics
    /// If the buffer has no such word.
    pub fn load_word(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    /// Stores the 64-bit word `index`; later launches see it.
    ///
    /// # Panics
    /// If the buffer has no such word.
    pub fn store_word(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Release);
    }
}

impl DeviceMemory for HostBuffer {
    /// The same address on both sides (all devices that HIP supports share the address space).
    fn device_address(&self) -> *mut c_void {
        self.address.as_ptr()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // SAFETY: the address came from hipHostMalloc and is freed once, here, when no reference into it is
        // left.
        let _ = unsafe { (self.api.hipHostFree)(self.address.as_ptr()) };
    }
}

/// The program's own host memory, registered for kernels; unregistered on drop.
#[derive(Debug)]
pub struct Registered {
    api: Arc<Api>,
    host: NonNull<c_void>,
    device: NonNull<c_void>,
    bytes: usize,
}

impl Registered {
    /// # Safety
    /// The memory stays mapped and writable until the value is dropped, and the host touches what kernels
    /// write only by atomic words.
    pub(super) unsafe fn new(api: &Arc<Api>, host: NonNull<c_void>, bytes: usize) -> Result<Self, HipError> {
        /// Portable to all devices, mapped into the device.
        const FLAGS: c_uint = 0x1 | 0x2;
        // SAFETY: the caller vouches for the memory.
        let code = unsafe { (api.hipHostRegister)(host.as_ptr(), bytes, FLAGS) };
        check("hipHostRegister", code)?;
        let mut registered = Self { api: Arc::clone(api), host, device: host, bytes };
        let mut device = ptr::null_mut();
        // SAFETY: the memory is registered; the function writes one pointer.
        let code = unsafe { (api.hipHostGetDevicePointer)(&mut device, host.as_ptr(), 0) };
        check("hipHostGetDevicePointer", code)?;
        registered.device = non_null("hipHostGetDevicePointer", device)?;
        Ok(registered)
    }
}

impl DeviceMemory for Registered {
    fn device_address(&self) -> *mut c_void {
        self.device.as_ptr()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: `new` registered the memory, only this call unregisters it, and it waits for work that uses
        // the memory.
        let _ = unsafe { (self.api.hipHostUnregister)(self.host.as_ptr()) };
    }
}

/// Extent of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dims {
    /// Work-groups in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a work-group in x, y, z.
    pub block: [u32; 3],
    /// Local memory that a work-group gets besides what its kernel declares, bytes.
    pub shared_bytes: u32,
}

/// A stream, destroyed on drop (its work still runs to its end); the null stream stays.
#[derive(Debug)]
pub struct Stream {
    api: Arc<Api>,
    handle: hipStream_t,
}

impl Stream {
    pub(super) fn new(api: &Arc<Api>) -> Result<Self, HipError> {
        let mut handle = hipStream_t::NULL;
        // SAFETY: the function writes one handle.
        let code = unsafe { (api.hipStreamCreateWithFlags)(&mut handle, hipStreamDefault) };
        check("hipStreamCreateWithFlags", code)?;
        Ok(Self { api: Arc::clone(api), handle })
    }

    pub(super) fn null(api: &Arc<Api>) -> Self {
        Self { api: Arc::clone(api), handle: hipStream_t::NULL }
    }

    /// Returns the runtime's own handle, which is valid as long as the value.
    pub(crate) fn handle(&self) -> hipStream_t {
        self.handle
    }

    /// Makes all later work of the stream wait for the work before the event's last record.
    pub fn wait(&self, event: &Event) -> Result<(), HipError> {
        // SAFETY: stream and event are live; the flags must be 0.
        let code = unsafe { (self.api.hipStreamWaitEvent)(self.handle, event.handle, 0) };
        check("hipStreamWaitEvent", code)
    }

    /// Launches `function`.
    ///
    /// # Safety
    /// `arguments` points at one value for each of the kernel's parameters, in order and of its type, and
    /// what the kernel does with them must be sound: its memory stays allocated until it has run.
    pub unsafe fn launch(
        &self,
        function: &Function,
        dims: Dims,
        arguments: &mut [*mut c_void],
    ) -> Result<(), HipError> {
        let ([gx, gy, gz], [bx, by, bz]) = (dims.grid, dims.block);
        // SAFETY: function and stream are live; the runtime copies the arguments, which the caller vouches
        // for, before it returns.
        let code = unsafe {
            (self.api.hipModuleLaunchKernel)(
                function.handle,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                dims.shared_bytes,
                self.handle,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        check("hipModuleLaunchKernel", code)
    }

    /// Fills the first `bytes` bytes of `memory`, behind the stream's work so far.
    ///
    /// # Panics
    /// If the memory is smaller.
    pub fn memset(&self, memory: &DeviceBuffer, byte: u8, bytes: usize) -> Result<(), HipError> {
        let target = memory.range(0, bytes);
        // SAFETY: `target` starts `bytes` bytes of a live allocation (checked by `range`); freeing it waits
        // for the device.
        let code = unsafe { (self.api.hipMemsetAsync)(target, i32::from(byte), bytes, self.handle) };
        check("hipMemsetAsync", code)
    }

    /// Waits for all work of the stream.
    pub fn synchronize(&self) -> Result<(), HipError> {
        // SAFETY: the stream is live.
        let code = unsafe { (self.api.hipStreamSynchronize)(self.handle) };
        check("hipStreamSynchronize", code)
    }

    /// Returns true if all work of the stream has run.
    pub fn is_done(&self) -> Result<bool, HipError> {
        // SAFETY: the stream is live.
        let code = unsafe { (self.api.hipStreamQuery)(self.handle) };
        check_ready("hipStreamQuery", code)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.handle == hipStream_t::NULL {
            return;
        }
        // SAFETY: the handle came from hipStreamCreateWithFlags and is destroyed once, here.
        let _ = unsafe { (self.api.hipStreamDestroy)(self.handle) };
    }
}

/// An event with time stamps, destroyed on drop.
#[derive(Debug)]
pub struct Event {
    api: Arc<Api>,
    handle: hipEvent_t,
}

impl Event {
    pub(super) fn new(api: &Arc<Api>) -> Result<Self, HipError> {
        let mut handle = hipEvent_t::NULL;
        // SAFETY: the function writes one handle.
        let code = unsafe { (api.hipEventCreateWithFlags)(&mut handle, hipEventDefault) };
        check("hipEventCreateWithFlags", code)?;
        Ok(Self { api: Arc::clone(api), handle })
    }

    /// Records the event behind all work of `stream` so far.
    pub fn record(&self, stream: &Stream) -> Result<(), HipError> {
        // SAFETY: event and stream are live.
        let code = unsafe { (self.api.hipEventRecord)(self.handle, stream.handle) };
        check("hipEventRecord", code)
    }

    /// Waits until the work before the last record has run.
    pub fn synchronize(&self) -> Result<(), HipError> {
        // SAFETY: the event is live.
        let code = unsafe { (self.api.hipEventSynchronize)(self.handle) };
        check("hipEventSynchronize", code)
    }

    /// Returns the milliseconds between two completed events, by the device's time stamps.
    pub fn milliseconds_since(&self, earlier: &Event) -> Result<f32, HipError> {
        let mut milliseconds = 0f32;
        // SAFETY: both events are live; the function writes one float.
        let code = unsafe { (self.api.hipEventElapsedTime)(&mut milliseconds, earlier.handle, self.handle) };
        check("hipEventElapsedTime", code)?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle came from hipEventCreateWithFlags and is destroyed once, here.
        let _ = unsafe { (self.api.hipEventDestroy)(self.handle) };
    }
}

/// A loaded code object; unloaded when the last of its functions is gone.
#[derive(Debug)]
pub struct Module {
    api: Arc<Api>,
    handle: hipModule_t,
}

impl Module {
    pub(super) fn new(api: &Arc<Api>, code: &[u8]) -> Result<Arc<Self>, HipError> {
        let mut handle = hipModule_t::NULL;
        // SAFETY: the function writes one handle and copies the code object; a malformed one is an error of
        // the call.
        let result = unsafe { (api.hipModuleLoadData)(&mut handle, code.as_ptr().cast()) };
        check("hipModuleLoadData", result)?;
        Ok(Arc::new(Self { api: Arc::clone(api), handle }))
    }

    /// Returns the kernel `name`.
    pub fn function(self: &Arc<Self>, name: &CStr) -> Result<Function, HipError> {
        let mut handle = hipFunction_t::NULL;
        // SAFETY: the module is live, the name zero-terminated; the function writes one handle.
        let code = unsafe { (self.api.hipModuleGetFunction)(&mut handle, self.handle, name.as_ptr()) };
        check("hipModuleGetFunction", code)?;
        Ok(Function { handle, module: Arc::clone(self) })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the handle came from hipModuleLoadData and is unloaded once, here, when no function of it
        // is left.
        let _ = unsafe { (self.api.hipModuleUnload)(self.handle) };
    }
}

/// A kernel of a module, which it keeps loaded.
#[derive(Debug)]
pub struct Function {
    handle: hipFunction_t,
    module: Arc<Module>,
}

impl Function {
    /// Returns the number of work-groups of this shape that a compute unit holds at once.
    pub fn groups_per_unit(&self, dims: &Dims) -> Result<u32, HipError> {
        let api = &self.module.api;
        let threads = dims.block.iter().product::<u32>() as i32;
        let mut groups = 0;
        // SAFETY: the function is live and the call writes one int.
        let code = unsafe { (api.occupancy)(&mut groups, self.handle, threads, dims.shared_bytes as usize) };
        check(OCCUPANCY, code)?;
        Ok(groups.unsigned_abs())
    }
}
