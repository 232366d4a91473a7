//! The launch of a graph, kept apart from the launches that workers make, in runtimes that need it
//! (`hal_hip::exclusion`).
//!
//! It stands in the place of the real function, so that every way to it leads through here.

use crate::loader;
use crate::thread::Thread;
use hal_hip::exclusion;
use hip_sys::pfn;
use hip_sys::types::{hipError_t, hipGraphExec_t, hipStream_t};
use std::ffi::c_void;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

static PLAIN: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static PER_THREAD: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// What stands for this function of the runtime: itself, or what goes before it.
pub(crate) fn guarded(name: &str, real: NonNull<c_void>, runtime: NonNull<c_void>) -> NonNull<c_void> {
    let (place, guard): (_, pfn::hipGraphLaunch) = match name {
        "hipGraphLaunch" => (&PLAIN, plain),
        "hipGraphLaunch_spt" => (&PER_THREAD, per_thread),
        _ => return real,
    };
    // This name came with 6.0.
    if loader::find(runtime.as_ptr(), c"hipGetDevicePropertiesR0600").is_some() {
        return real;
    }
    place.store(real.as_ptr(), Ordering::Release);
    NonNull::new(guard as *mut c_void).unwrap_or(real)
}

unsafe extern "C" fn plain(exec: hipGraphExec_t, stream: hipStream_t) -> hipError_t {
    // SAFETY: the caller's own arguments.
    unsafe { launch(&PLAIN, exec, stream) }
}

unsafe extern "C" fn per_thread(exec: hipGraphExec_t, stream: hipStream_t) -> hipError_t {
    // SAFETY: the caller's own arguments.
    unsafe { launch(&PER_THREAD, exec, stream) }
}

/// # Safety
///
/// That of the runtime's function, which is in its place.
unsafe fn launch(place: &AtomicPtr<c_void>, exec: hipGraphExec_t, stream: hipStream_t) -> hipError_t {
    let real = place.load(Ordering::Acquire);
    // SAFETY: this function is called only where `guarded` gave it out, after it had stored a function of this type.
    let real = unsafe { mem::transmute::<*mut c_void, pfn::hipGraphLaunch>(real) };
    // A launch that is stuck inside the runtime may wait for the very callback that this is called from.
    let _apart = (!Thread::current().is_in_callback()).then(exclusion::graph_launch);
    // SAFETY: the caller's promise.
    unsafe { real(exec, stream) }
}
