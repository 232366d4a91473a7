//! Memory and events that processes share.

use std::ffi::{c_uint, c_void};
use std::ptr;

use hip_sys::types::*;

use crate::blobs;
use crate::events;
use crate::memory::{self, Kind};
use crate::state::{api, enter, get, put, required, started};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY: c_uint = 1;

/// Returns `hipIpcMemLazyEnablePeerAccess`, which is 0 in the headers of 5.2 and 1 in later ones.
fn lazy() -> c_uint {
    u32::from(blobs::major() >= 6)
}

api! {
    [pfn] fn hipIpcGetMemHandle(handle: *mut hipIpcMemHandle_t, address: *mut c_void) {
        required(handle)?;
        let memory = memory::find(address).filter(|memory| memory.start == address.addr() && memory.kind == Kind::Device);
        let memory = memory.ok_or(hipErrorInvalidDevicePointer)?;
        let mut made = hipIpcMemHandle_t { reserved: [0; 64] };
        started()?.enter(memory.device)?.ipc_memory(&mut made, address.addr())?;
        put(handle, made)
    }
    [pfn] fn hipIpcOpenMemHandle(place: *mut *mut c_void, handle: hipIpcMemHandle_t, flags: c_uint) {
        required(place)?;
        if flags != lazy() {
            return Err(hipErrorInvalidValue);
        }
        let mut made = 0;
        let driver = enter()?;
        driver.ipc_open_memory(&mut made, handle, LAZY)?;
        let (mut start, mut size) = (0, 0);
        driver.address_range(&mut start, &mut size, made)?;
        memory::keep(made, (start + size).saturating_sub(made), Kind::Opened, 0);
        put(place, ptr::with_exposed_provenance_mut(made))
    }
    [pfn] fn hipIpcCloseMemHandle(address: *mut c_void) {
        required(address)?;
        let memory = memory::find(address).filter(|memory| memory.start == address.addr() && memory.kind == Kind::Opened);
        let memory = memory.ok_or(hipErrorInvalidValue)?;
        let driver = started()?.enter(memory.device)?;
        driver.context_synchronize()?;
        // It leaves the table first: once it is closed, another thread may get the same address.
        memory::forget(address, &[Kind::Opened]);
        driver.ipc_close_memory(address.addr()).inspect_err(|_| memory::restore(memory))
    }
    [pfn] fn hipIpcGetEventHandle(handle: *mut hipIpcEventHandle_t, event: hipEvent_t) {
        required(handle)?;
        events::check(event)?;
        let mut made = hipIpcEventHandle_t { reserved: [0; 64] };
        enter()?.ipc_event(&mut made, event)?;
        put(handle, made)
    }
    [pfn] fn hipIpcOpenEventHandle(place: *mut hipEvent_t, handle: hipIpcEventHandle_t) {
        required(place)?;
        let mut made = hipEvent_t::NULL;
        enter()?.ipc_open_event(&mut made, get(&raw const handle)?)?;
        events::opened(made);
        put(place, made)
    }
}
