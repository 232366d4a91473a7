//! Memory: the calls that allocate, register and free it, and a table of it. Calls are checked against the
//! table as in AMD's runtime (docs/refusals.md).

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::{PoisonError, RwLock};

use hip_sys::types::*;

use crate::driver::DevicePointer;
use crate::errors::{Answer, instead};
use crate::state::{self, api, enter, put, required, started};
use crate::{captures, pools};

/// The origin of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    /// Allocated from a pool, in stream order.
    Pooled,
    Host,
    /// The program's own memory, registered.
    Registered,
    Managed,
    /// Opened from another process.
    Opened,
    /// A variable of a program or module.
    Variable,
}

impl Kind {
    /// Returns true if the host reaches the memory at the same address.
    pub(crate) fn is_on_host(self) -> bool {
        matches!(self, Kind::Host | Kind::Registered | Kind::Managed)
    }
}

/// One piece of memory that the runtime knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) start: usize,
    pub(crate) size: usize,
    pub(crate) kind: Kind,
    pub(crate) device: c_int,
    pub(crate) flags: c_uint,
}

impl Memory {
    /// Returns the number of bytes from an address in it to its end.
    pub(crate) fn left(&self, address: usize) -> usize {
        self.start + self.size - address
    }
}

static MEMORY: RwLock<BTreeMap<usize, Memory>> = RwLock::new(BTreeMap::new());

/// Returns the memory at an address, if the runtime knows it.
pub(crate) fn find(address: *const c_void) -> Option<Memory> {
    let address = address.addr();
    let table = MEMORY.read().unwrap_or_else(PoisonError::into_inner);
    let (_, memory) = table.range(..=address).next_back()?;
    (address - memory.start < memory.size).then_some(*memory)
}

/// Adds memory of the calling thread's device to the table.
pub(crate) fn keep(start: usize, size: usize, kind: Kind, flags: c_uint) {
    keep_on(state::device(), start, size, kind, flags);
}

/// Adds memory of a device to the table.
pub(crate) fn keep_on(device: c_int, start: usize, size: usize, kind: Kind, flags: c_uint) {
    restore(Memory { start, size, kind, device, flags });
}

/// Adds memory to the table again, because it was not freed.
pub(crate) fn restore(memory: Memory) {
    MEMORY.write().unwrap_or_else(PoisonError::into_inner).insert(memory.start, memory);
}

/// Removes the memory that begins at this address from the table, if it is of one of these kinds.
pub(crate) fn forget(start: *const c_void, kinds: &[Kind]) -> Option<Memory> {
    let mut table = MEMORY.write().unwrap_or_else(PoisonError::into_inner);
    let memory = *table.get(&start.addr())?;
    if kinds.contains(&memory.kind) { table.remove(&start.addr()) } else { None }
}

/// Refuses a range that exceeds known memory. Unknown memory is the program's own and is not checked.
pub(crate) fn check(address: *const c_void, bytes: usize) -> Answer {
    match find(address) {
        Some(memory) if memory.left(address.addr()) < bytes => Err(hipErrorInvalidValue),
        _ => Ok(()),
    }
}

fn allocate(place: *mut *mut c_void, bytes: usize) -> Answer {
    required(place)?;
    captures::refuse_unsafe()?;
    if bytes == 0 {
        return put(place, ptr::null_mut());
    }
    let mut made: DevicePointer = 0;
    let driver = enter()?;
    let mut result = driver.allocate(&mut made, bytes);
    if result == Err(hipErrorOutOfMemory) {
        // Pools return their unused memory first, as in AMD's runtime.
        pools::release_all();
        result = driver.allocate(&mut made, bytes);
    }
    result?;
    keep(made, bytes, Kind::Device, 0);
    put(place, ptr::with_exposed_provenance_mut(made))
}

/// `hipHostMallocPortable`, `-Mapped` and `-WriteCombined`, the same numbers as CUDA's. The others are about
/// caches.
const HOST_FLAGS: c_uint = 7;
/// All flags that AMD's runtime accepts (`ihipHostMalloc`).
const KNOWN_HOST_FLAGS: c_uint = 7 | 0x2000_0000 | 0x4000_0000 | 0x8000_0000;
/// `CU_MEMHOSTALLOC_PORTABLE` and `CU_MEMHOSTALLOC_DEVICEMAP`: HIP's pinned memory always has both
/// properties.
const PORTABLE_MAPPED: c_uint = 3;

/// Allocates pinned memory.
fn host_allocate(place: *mut *mut c_void, bytes: usize, flags: c_uint) -> Answer {
    required(place)?;
    captures::refuse_unsafe()?;
    if flags & !KNOWN_HOST_FLAGS != 0 {
        return Err(hipErrorInvalidValue);
    }
    if bytes == 0 {
        return put(place, ptr::null_mut());
    }
    let mut made = ptr::null_mut();
    enter()?.host_allocate(&mut made, bytes, (flags & HOST_FLAGS) | PORTABLE_MAPPED)?;
    keep(made.addr(), bytes, Kind::Host, flags);
    put(place, made)
}

fn free(address: *mut c_void) -> Answer {
    if address.is_null() {
        return Ok(());
    }
    captures::refuse_unsafe()?;
    // AMD's runtime frees memory of any kind here.
    let memory = find(address).filter(|memory| memory.start == address.addr()).ok_or(hipErrorInvalidValue)?;
    let driver = started()?.enter(memory.device)?;
    // AMD's runtime waits for all work on the device before it frees; CUDA does not wait for all of it.
    driver.context_synchronize()?;
    match memory.kind {
        Kind::Host => {
            forget(address, &[Kind::Host]);
            driver.host_free(address)
        }
        Kind::Device | Kind::Managed | Kind::Pooled => {
            forget(address, &[memory.kind]);
            driver.free(address.addr())
        }
        Kind::Registered | Kind::Opened | Kind::Variable => Err(hipErrorInvalidValue),
    }
}

fn host_free(address: *mut c_void) -> Answer {
    if address.is_null() {
        return Ok(());
    }
    captures::refuse_unsafe()?;
    let memory = find(address).filter(|memory| memory.start == address.addr()).ok_or(hipErrorInvalidValue)?;
    if memory.kind != Kind::Host {
        return Err(hipErrorInvalidValue);
    }
    let driver = started()?.enter(memory.device)?;
    driver.context_synchronize()?;
    forget(address, &[Kind::Host]);
    driver.host_free(address)
}

/// A pitch alignment that suits all devices, in bytes.
const PITCH: usize = 256;

/// Allocates rows. Returns the address, and the distance between rows in bytes.
fn allocate_rows(width: usize, rows: usize) -> Answer<(*mut c_void, usize)> {
    let pitch = width.checked_next_multiple_of(PITCH).ok_or(hipErrorOutOfMemory)?;
    let bytes = pitch.checked_mul(rows).ok_or(hipErrorOutOfMemory)?;
    let mut made = ptr::null_mut();
    allocate(&mut made, bytes)?;
    Ok((made, pitch))
}

/// `hipDeviceMallocFinegrained` and `hipMallocSignalMemory`.
const FINE_GRAINED: c_uint = 1;
const SIGNAL: c_uint = 2;

api! {
    [pfn] fn hipMalloc(place: *mut *mut c_void, bytes: usize) { allocate(place, bytes) }
    [pfn] fn hipExtMallocWithFlags(place: *mut *mut c_void, bytes: usize, flags: c_uint) {
        match flags {
            0 | FINE_GRAINED => allocate(place, bytes),
            // A signal is a word that both host and device wait for.
            SIGNAL if bytes == 8 => host_allocate(place, bytes, 0),
            _ => Err(hipErrorInvalidValue),
        }
    }
    [pfn] fn hipMallocManaged(place: *mut *mut c_void, bytes: usize, flags: c_uint) {
        required(place)?;
        captures::refuse_unsafe()?;
        // CU_MEM_ATTACH_GLOBAL and -HOST.
        if bytes == 0 || !matches!(flags, 1 | 2) {
            return Err(hipErrorInvalidValue);
        }
        let mut made: DevicePointer = 0;
        enter()?.allocate_managed(&mut made, bytes, flags)?;
        keep(made, bytes, Kind::Managed, flags);
        put(place, ptr::with_exposed_provenance_mut(made))
    }
    [pfn] fn hipMallocPitch(place: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) {
        required(place)?;
        required(pitch)?;
        if width == 0 || height == 0 {
            return put(place, ptr::null_mut());
        }
        let (made, bytes) = allocate_rows(width, height)?;
        put(pitch, bytes)?;
        put(place, made)
    }
    [own] fn hipMemAllocPitch(place: *mut hipDeviceptr_t, pitch: *mut usize, width: usize, height: usize,
        element: c_uint) {
        required(place)?;
        required(pitch)?;
        if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
            return Err(hipErrorInvalidValue);
        }
        let (made, bytes) = allocate_rows(width, height)?;
        put(pitch, bytes)?;
        put(place, made)
    }
    [pfn] fn hipMalloc3D(place: *mut hipPitchedPtr, extent: hipExtent) {
        required(place)?;
        let empty = hipPitchedPtr { ptr: ptr::null_mut(), pitch: 0, xsize: extent.width, ysize: extent.height };
        if extent.count() == 0 {
            return put(place, empty);
        }
        let rows = extent.height.checked_mul(extent.depth).ok_or(hipErrorOutOfMemory)?;
        let (made, pitch) = allocate_rows(extent.width, rows)?;
        put(place, hipPitchedPtr { ptr: made, pitch, ..empty })
    }
    [pfn] fn hipFree(address: *mut c_void) { free(address) }
    [pfn] fn hipFreeArray(array: hipArray_t) {
        // No function of this library makes arrays.
        let _ = array;
        Err(hipErrorInvalidValue)
    }
    [pfn] fn hipHostMalloc(place: *mut *mut c_void, bytes: usize, flags: c_uint) { host_allocate(place, bytes, flags) }
    [pfn] fn hipHostAlloc(place: *mut *mut c_void, bytes: usize, flags: c_uint) { host_allocate(place, bytes, flags) }
    [pfn] fn hipMallocHost(place: *mut *mut c_void, bytes: usize) { host_allocate(place, bytes, 0) }
    [own] fn hipMemAllocHost(place: *mut *mut c_void, bytes: usize) { host_allocate(place, bytes, 0) }
    [pfn] fn hipHostFree(address: *mut c_void) { host_free(address) }
    [pfn] fn hipFreeHost(address: *mut c_void) { host_free(address) }
    [pfn] fn hipHostRegister(address: *mut c_void, bytes: usize, flags: c_uint) {
        // Portable, mapped, I/O memory, read-only, and AMD's own flag about caches.
        if address.is_null() || bytes == 0 || flags & !0x8000_000F != 0 {
            return Err(hipErrorInvalidValue);
        }
        let driver = enter()?;
        let result = driver.host_register(address, bytes, (flags & 1) | PORTABLE_MAPPED);
        instead(result, hipErrorNotSupported, hipErrorInvalidValue)?;
        keep(address.addr(), bytes, Kind::Registered, flags);
        Ok(())
    }
    [pfn] fn hipHostUnregister(address: *mut c_void) {
        required(address)?;
        let memory = find(address).filter(|memory| memory.start == address.addr() && memory.kind == Kind::Registered);
        let memory = memory.ok_or(hipErrorHostMemoryNotRegistered)?;
        let driver = started()?.enter(memory.device)?;
        driver.context_synchronize()?;
        forget(address, &[Kind::Registered]);
        driver.host_unregister(address).inspect_err(|_| restore(memory))
    }
    [pfn] fn hipHostGetDevicePointer(place: *mut *mut c_void, address: *mut c_void, flags: c_uint) {
        required(place)?;
        if address.is_null() || flags != 0 || find(address).is_none_or(|memory| !memory.kind.is_on_host()) {
            return Err(hipErrorInvalidValue);
        }
        // With unified addressing the devices see pinned and registered memory at the host's address.
        let mut found: DevicePointer = 0;
        enter()?.host_device_pointer(&mut found, address, 0)?;
        put(place, ptr::with_exposed_provenance_mut(found))
    }
    [pfn] fn hipHostGetFlags(flags: *mut c_uint, address: *mut c_void) {
        required(flags)?;
        let memory = find(address).filter(|memory| memory.kind == Kind::Host).ok_or(hipErrorInvalidValue)?;
        put(flags, memory.flags)
    }
    [pfn] fn hipMemGetInfo(free: *mut usize, total: *mut usize) {
        required(free)?;
        required(total)?;
        let (mut left, mut all) = (0, 0);
        enter()?.memory_info(&mut left, &mut all)?;
        put(free, left)?;
        put(total, all)
    }
    [pfn] fn hipMemGetAddressRange(base: *mut hipDeviceptr_t, size: *mut usize, address: hipDeviceptr_t) {
        required(base)?;
        required(size)?;
        let memory = find(address).ok_or(hipErrorNotFound)?;
        // AMD's runtime reports no start for the program's own memory.
        let start = if memory.kind == Kind::Registered { 0 } else { memory.start };
        put(base, ptr::with_exposed_provenance_mut(start))?;
        put(size, memory.size)
    }
    [own] fn hipMemPtrGetInfo(address: *mut c_void, size: *mut usize) {
        required(size)?;
        put(size, find(address).ok_or(hipErrorInvalidValue)?.size)
    }
    [pfn] fn hipMemPrefetchAsync(address: *const c_void, bytes: usize, device: c_int, stream: hipStream_t) {
        prefetch(address, bytes, device, stream)
    }
    [own] fn hipMemRangeGetAttribute(data: *mut c_void, size: usize, attribute: c_uint, address: *const c_void,
        bytes: usize) {
        required(data)?;
        if size == 0 || address.is_null() || bytes == 0 {
            return Err(hipErrorInvalidValue);
        }
        check(address, bytes)?;
        find(address).filter(|memory| memory.kind == Kind::Managed).ok_or(hipErrorInvalidValue)?;
        // The attributes that CUDA has too have the same numbers.
        enter()?.range_attribute(data, size, attribute, address.addr(), bytes)
    }
    [own] fn hipMemAdvise(address: *const c_void, bytes: usize, advice: c_uint, device: c_int) {
        if address.is_null() || bytes == 0 || find(address).is_none() || !(1..=6).contains(&advice) && advice < 100 {
            return Err(hipErrorInvalidValue);
        }
        if device < -2 || device >= started()?.devices {
            return Err(hipErrorInvalidDevice);
        }
        // Advice is only a hint, so errors do not matter. CUDA has the same numbers up to 6.
        let _ = enter()?.advise(address.addr(), bytes, advice, device.max(-1));
        Ok(())
    }
}

/// `hipCpuDeviceId`.
const CPU: c_int = -1;

fn prefetch(address: *const c_void, bytes: usize, device: c_int, stream: hipStream_t) -> Answer {
    if address.is_null() || bytes == 0 {
        return Err(hipErrorInvalidValue);
    }
    check(address, bytes)?;
    let memory = find(address).ok_or(hipErrorInvalidValue)?;
    if device < CPU || device >= started()?.devices {
        return Err(hipErrorInvalidDevice);
    }
    let driver = crate::stream_table::enter_on(stream)?;
    if memory.kind == Kind::Managed {
        // A prefetch is only a hint, which a device without paging refuses.
        let _ = driver.prefetch(address.addr(), bytes, device, stream);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: usize) -> *const c_void {
        ptr::without_provenance(address)
    }

    #[test]
    fn memory_is_found_from_its_first_to_its_last_byte() {
        keep(0x7000, 0x100, Kind::Device, 0);
        assert!(find(at(0x6FFF)).is_none() && find(at(0x7100)).is_none());
        assert_eq!(find(at(0x70FF)).map(|memory| memory.left(0x70FF)), Some(1));
        assert_eq!(check(at(0x7010), 0xF0), Ok(()));
        assert_eq!(check(at(0x7010), 0xF1), Err(hipErrorInvalidValue));
        assert_eq!(check(at(0x9000), 1 << 40), Ok(()), "the program's own");
        assert!(forget(at(0x7000), &[Kind::Host]).is_none());
        assert!(forget(at(0x7000), &[Kind::Device]).is_some());
        assert!(find(at(0x7000)).is_none());
    }
}
