//! Stream-ordered allocation and memory pools. The attributes of pools have the same numbers as CUDA's.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hip_sys::types::*;

use crate::driver::{DevicePointer, PoolProperties};
use crate::errors::Answer;
use crate::memory::{self, Kind};
use crate::state::{api, check_device, enter, get, put, required, started};
use crate::stream_table::{device_of, enter_on};

/// The pools that the program has created or queried, with their devices.
static POOLS: Mutex<Option<HashMap<usize, c_int>>> = Mutex::new(None);

fn pools() -> MutexGuard<'static, Option<HashMap<usize, c_int>>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a pool's device.
///
/// # Errors
/// `hipErrorInvalidValue` if there is no such pool.
fn check(pool: hipMemPool_t) -> Answer<c_int> {
    pools().as_ref().and_then(|pools| pools.get(&pool.as_raw()).copied()).ok_or(hipErrorInvalidValue)
}

fn known(place: *mut hipMemPool_t, pool: hipMemPool_t, device: c_int) -> Answer {
    pools().get_or_insert_default().insert(pool.as_raw(), device);
    put(place, pool)
}

/// Returns the unused memory of all pools to the devices.
pub(crate) fn release_all() {
    let Ok(started) = started() else { return };
    let Ok(driver) = enter() else { return };
    if driver.context_synchronize().is_err() {
        return;
    }
    let mut all: HashMap<usize, c_int> = pools().clone().unwrap_or_default();
    for device in 0..started.devices {
        let mut pool = hipMemPool_t::NULL;
        if driver.default_pool(&mut pool, device).is_ok() {
            all.insert(pool.as_raw(), device);
        }
    }
    for pool in all.into_keys() {
        let _ = driver.pool_trim(hipMemPool_t::from_raw(pool), 0);
    }
}

fn allocated(place: *mut *mut c_void, made: DevicePointer, bytes: usize, device: c_int) -> Answer {
    memory::keep_on(device, made, bytes, Kind::Pooled, 0);
    put(place, ptr::with_exposed_provenance_mut(made))
}

/// `hipMemAllocationTypePinned` and `hipMemLocationTypeDevice`.
const PINNED: c_int = 1;
const OF_A_DEVICE: c_int = 1;

api! {
    [pfn] fn hipMallocAsync(place: *mut *mut c_void, bytes: usize, stream: hipStream_t) {
        required(place)?;
        let driver = enter_on(stream)?;
        if bytes == 0 {
            return put(place, ptr::null_mut());
        }
        let mut made = 0;
        driver.allocate_async(&mut made, bytes, stream)?;
        allocated(place, made, bytes, device_of(stream)?)
    }
    [pfn] fn hipMallocFromPoolAsync(place: *mut *mut c_void, bytes: usize, pool: hipMemPool_t, stream: hipStream_t) {
        required(place)?;
        let device = check(pool)?;
        let driver = enter_on(stream)?;
        if bytes == 0 {
            return put(place, ptr::null_mut());
        }
        let mut made = 0;
        driver.allocate_from_pool(&mut made, bytes, pool, stream)?;
        allocated(place, made, bytes, device)
    }
    [pfn] fn hipFreeAsync(address: *mut c_void, stream: hipStream_t) {
        required(address)?;
        let driver = enter_on(stream)?;
        match memory::find(address).filter(|memory| memory.start == address.addr()).map(|memory| memory.kind) {
            Some(Kind::Pooled) => {
                // It leaves the table first: once it is free, another thread may get the same address.
                let memory = memory::forget(address, &[Kind::Pooled]).ok_or(hipErrorInvalidValue)?;
                driver.free_async(address.addr(), stream).inspect_err(|_| memory::restore(memory))
            }
            // Frees other memory like hipFree, after the stream's work (`hipFreeAsync` in hip_mempool.cpp).
            Some(Kind::Device) => {
                driver.context_synchronize()?;
                memory::forget(address, &[Kind::Device]);
                driver.free(address.addr())
            }
            _ => Err(hipErrorInvalidValue),
        }
    }
    [pfn] fn hipDeviceGetDefaultMemPool(place: *mut hipMemPool_t, device: c_int) {
        required(place)?;
        let mut pool = hipMemPool_t::NULL;
        check_device(device)?.enter(device)?.default_pool(&mut pool, device)?;
        known(place, pool, device)
    }
    [pfn] fn hipDeviceGetMemPool(place: *mut hipMemPool_t, device: c_int) {
        required(place)?;
        let mut pool = hipMemPool_t::NULL;
        check_device(device)?.enter(device)?.current_pool(&mut pool, device)?;
        known(place, pool, device)
    }
    [own] fn hipDeviceSetMemPool(device: c_int, pool: hipMemPool_t) {
        check_device(device)?;
        check(pool)?;
        enter()?.set_pool(device, pool)
    }
    [pfn] fn hipMemPoolCreate(place: *mut hipMemPool_t, properties: *const hipMemPoolProps) {
        required(place)?;
        let given = get(properties.cast::<PoolProperties>())?;
        let [kind, device] = given.location;
        if given.allocation != PINNED || kind != OF_A_DEVICE || given.handles > 1 {
            return Err(hipErrorInvalidValue);
        }
        let driver = check_device(device)?.enter(device)?;
        let wanted = PoolProperties { reserved: [0; 9], ..given };
        let mut pool = hipMemPool_t::NULL;
        driver.pool_create(&mut pool, &wanted)?;
        known(place, pool, device)
    }
    [pfn] fn hipMemPoolDestroy(pool: hipMemPool_t) {
        let driver = enter()?;
        // It leaves the table first: once it is destroyed, another thread may get the same handle.
        let device = pools().get_or_insert_default().remove(&pool.as_raw()).ok_or(hipErrorInvalidValue)?;
        // The driver refuses to destroy a device's own pool.
        driver.pool_destroy(pool).inspect_err(|_| {
            pools().get_or_insert_default().insert(pool.as_raw(), device);
        })
    }
    [pfn] fn hipMemPoolGetAttribute(pool: hipMemPool_t, attribute: hipMemPoolAttr, value: *mut c_void) {
        required(value)?;
        check(pool)?;
        enter()?.pool_attribute(pool, attribute.0, value)
    }
    [pfn] fn hipMemPoolSetAttribute(pool: hipMemPool_t, attribute: hipMemPoolAttr, value: *mut c_void) {
        required(value)?;
        check(pool)?;
        enter()?.pool_set_attribute(pool, attribute.0, value)
    }
    [pfn] fn hipMemPoolTrimTo(pool: hipMemPool_t, bytes: usize) {
        check(pool)?;
        enter()?.pool_trim(pool, bytes)
    }
}
