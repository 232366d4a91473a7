//! Owners of what the runtime hands out: memory, streams, events, modules and their functions.
//!
//! A drop ignores the runtime's error, because it cannot return one and the process is usually about to end.

use super::Hip;
use super::api::{Api, OCCUPANCY, call, check, non_null};
use anyhow::Result;
use hip_sys::types::{
    hipError_t, hipErrorNotReady, hipEvent_t, hipEventDefault, hipFunction_t, hipModule_t, hipStream_t,
    hipStreamDefault,
};
use libloading::Library;
use std::ffi::{CStr, c_uint, c_void};
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that kernels can work on, given back on drop, which waits for the device.
#[derive(Debug)]
pub struct Memory {
    /// Its address as the call has it that gives it back.
    address: NonNull<c_void>,
    /// Its address as the device sees it.
    device: NonNull<c_void>,
    bytes: usize,
    give_back: unsafe extern "C" fn(*mut c_void) -> hipError_t,
}

impl Memory {
    pub fn device_address(&self) -> *mut c_void {
        self.device.as_ptr()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the address came from the counterpart of `give_back`, and is given back once, here, when no
        // reference into it is left; the call waits for work that uses the memory.
        let _ = unsafe { (self.give_back)(self.address.as_ptr()) };
    }
}

#[derive(Debug)]
pub struct DeviceBuffer(Memory);

impl DeviceBuffer {
    /// Returns the address of its first `length` bytes.
    pub(super) fn first(&self, length: usize) -> *mut c_void {
        assert!(length <= self.bytes, "a copy reaches past its device buffer");
        self.address.as_ptr()
    }
}

impl Deref for DeviceBuffer {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.0
    }
}

/// Pinned host memory that the device reaches as well, by the same address. Kernels may change it at any time,
/// so the host accesses it by atomic words only.
#[derive(Debug)]
pub struct HostBuffer(Memory);

impl HostBuffer {
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

impl Deref for HostBuffer {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.0
    }
}

impl Hip {
    /// Allocates `bytes` of memory on the calling thread's device.
    pub fn malloc(&self, bytes: usize) -> Result<DeviceBuffer> {
        let mut address = ptr::null_mut();
        // SAFETY: the function writes one pointer.
        unsafe { call!(self.api, hipMalloc(&mut address, bytes)) }?;
        let address = non_null("hipMalloc", address)?;
        Ok(DeviceBuffer(Memory { address, device: address, bytes, give_back: self.api.hipFree }))
    }

    /// Allocates `bytes` of zeroed, pinned host memory that the device can reach.
    pub fn host_malloc(&self, bytes: usize) -> Result<HostBuffer> {
        /// Portable to all devices, mapped into the device, coherent: a kernel's stores reach the host while
        /// it runs.
        const FLAGS: c_uint = 0x1 | 0x2 | 0x4000_0000;
        let mut address = ptr::null_mut();
        // SAFETY: the function writes one pointer.
        unsafe { call!(self.api, hipHostMalloc(&mut address, bytes, FLAGS)) }?;
        let address = non_null("hipHostMalloc", address)?;
        // SAFETY: the memory is new, has `bytes` bytes, and nothing else refers to it.
        unsafe { ptr::write_bytes(address.as_ptr().cast::<u8>(), 0, bytes) };
        Ok(HostBuffer(Memory { address, device: address, bytes, give_back: self.api.hipHostFree }))
    }

    /// Registers `bytes` of the program's own host memory for kernels; the drop unregisters it.
    ///
    /// # Safety
    /// The memory stays mapped and writable until the value is dropped, and the host touches what kernels
    /// write only by atomic words.
    pub unsafe fn register(&self, host: NonNull<c_void>, bytes: usize) -> Result<Memory> {
        /// Portable to all devices, mapped into the device.
        const FLAGS: c_uint = 0x1 | 0x2;
        // SAFETY: the caller vouches for the memory.
        unsafe { call!(self.api, hipHostRegister(host.as_ptr(), bytes, FLAGS)) }?;
        let mut memory = Memory { address: host, device: host, bytes, give_back: self.api.hipHostUnregister };
        let mut device = ptr::null_mut();
        // SAFETY: the memory is registered; the function writes one pointer.
        unsafe { call!(self.api, hipHostGetDevicePointer(&mut device, host.as_ptr(), 0)) }?;
        memory.device = non_null("hipHostGetDevicePointer", device)?;
        Ok(memory)
    }

    /// Creates a blocking stream on the calling thread's device, one that keeps the order of the default
    /// stream.
    pub fn stream(&self) -> Result<Stream> {
        let mut stream = self.null_stream();
        // SAFETY: the function writes one handle.
        unsafe { call!(self.api, hipStreamCreateWithFlags(&mut stream.handle, hipStreamDefault)) }?;
        Ok(stream)
    }

    /// Returns the null stream of the calling thread's device, which PyTorch uses.
    pub fn null_stream(&self) -> Stream {
        Stream { api: self.api, handle: hipStream_t::NULL }
    }

    /// Creates an event with time stamps.
    pub fn event(&self) -> Result<Event> {
        let mut handle = hipEvent_t::NULL;
        // SAFETY: the function writes one handle.
        unsafe { call!(self.api, hipEventCreateWithFlags(&mut handle, hipEventDefault)) }?;
        Ok(Event { api: self.api, handle })
    }

    /// Loads a code object on the calling thread's device.
    pub fn load_module(&self, code: &[u8]) -> Result<Arc<Module>> {
        let mut handle = hipModule_t::NULL;
        // SAFETY: the function writes one handle and copies the code object; a malformed one is an error of
        // the call.
        unsafe { call!(self.api, hipModuleLoadData(&mut handle, code.as_ptr().cast())) }?;
        Ok(Arc::new(Module { api: self.api, handle }))
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
    api: &'static Api,
    handle: hipStream_t,
}

impl Stream {
    /// Returns the owner of a stream that a call of the runtime has just created.
    pub(super) fn adopted(api: &'static Api, handle: hipStream_t) -> Self {
        Self { api, handle }
    }

    pub(super) fn library(&self) -> &'static Library {
        self.api.library
    }

    /// Returns the runtime's own handle, which is valid as long as the value.
    pub(crate) fn handle(&self) -> hipStream_t {
        self.handle
    }

    /// Makes all later work of the stream wait for the work before the event's last record.
    pub fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: stream and event are live; the flags must be 0.
        unsafe { call!(self.api, hipStreamWaitEvent(self.handle, event.handle, 0)) }
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
    ) -> Result<()> {
        let ([gx, gy, gz], [bx, by, bz]) = (dims.grid, dims.block);
        let (kernel, stream, extra) = (function.handle, self.handle, ptr::null_mut());
        let (shared, arguments) = (dims.shared_bytes, arguments.as_mut_ptr());
        // SAFETY: function and stream are live; the runtime copies the arguments, which the caller vouches
        // for, before it returns.
        unsafe {
            call!(
                self.api,
                hipModuleLaunchKernel(kernel, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra)
            )
        }
    }

    /// Fills the first `bytes` bytes of `memory`, behind the stream's work so far.
    ///
    /// # Panics
    /// If the memory is smaller.
    pub fn memset(&self, memory: &DeviceBuffer, byte: u8, bytes: usize) -> Result<()> {
        let target = memory.first(bytes);
        // SAFETY: `target` starts `bytes` bytes of a live allocation (checked by `first`); freeing it waits
        // for the device.
        unsafe { call!(self.api, hipMemsetAsync(target, i32::from(byte), bytes, self.handle)) }
    }

    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is live.
        unsafe { call!(self.api, hipStreamSynchronize(self.handle)) }
    }

    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: the stream is live.
        let code = unsafe { (self.api.hipStreamQuery)(self.handle) };
        if code == hipErrorNotReady {
            return Ok(false);
        }
        check("hipStreamQuery", code).map(|()| true)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.handle == hipStream_t::NULL {
            return;
        }
        // SAFETY: the handle came from a call that created the stream, and is destroyed once, here.
        let _ = unsafe { (self.api.hipStreamDestroy)(self.handle) };
    }
}

/// An event with time stamps, destroyed on drop.
#[derive(Debug)]
pub struct Event {
    api: &'static Api,
    handle: hipEvent_t,
}

impl Event {
    /// Records the event behind all work of `stream` so far.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: event and stream are live.
        unsafe { call!(self.api, hipEventRecord(self.handle, stream.handle)) }
    }

    /// Waits until the work before the last record has run.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the event is live.
        unsafe { call!(self.api, hipEventSynchronize(self.handle)) }
    }

    /// Returns the milliseconds between two completed events, by the device's time stamps.
    pub fn milliseconds_since(&self, earlier: &Event) -> Result<f32> {
        let mut milliseconds = 0f32;
        // SAFETY: both events are live; the function writes one float.
        unsafe { call!(self.api, hipEventElapsedTime(&mut milliseconds, earlier.handle, self.handle)) }?;
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
    api: &'static Api,
    handle: hipModule_t,
}

impl Module {
    pub fn function(self: &Arc<Self>, name: &CStr) -> Result<Function> {
        let mut handle = hipFunction_t::NULL;
        // SAFETY: the module is live, the name zero-terminated; the function writes one handle.
        unsafe { call!(self.api, hipModuleGetFunction(&mut handle, self.handle, name.as_ptr())) }?;
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

/// The registers and the static local memory of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupied {
    /// Registers of a work-item, 32 bits each.
    pub registers: u32,
    /// Local memory of a work-group, bytes, without the dynamic part.
    pub shared_bytes: u32,
}

/// A kernel of a module, which it keeps loaded.
#[derive(Debug)]
pub struct Function {
    handle: hipFunction_t,
    module: Arc<Module>,
}

impl Function {
    pub(super) fn handle(&self) -> hipFunction_t {
        self.handle
    }

    pub(super) fn library(&self) -> &'static Library {
        self.module.api.library
    }

    /// Returns the number of work-groups of this shape that a compute unit holds at once.
    pub fn groups_per_unit(&self, dims: &Dims) -> Result<u32> {
        let occupancy = self.module.api.occupancy;
        let threads = dims.block.iter().product::<u32>() as i32;
        let mut groups = 0;
        // SAFETY: the function is live and the call writes one int.
        let code = unsafe { occupancy(&mut groups, self.handle, threads, dims.shared_bytes as usize) };
        check(OCCUPANCY, code)?;
        Ok(groups.unsigned_abs())
    }
}
