//! Code that the program registers or loads. The kernel behind each handle is remembered, for deferred
//! launches.

use super::made;
use crate::boundary::{Call, Failure};
use crate::interpose::bindings;
use crate::process::{self, Base, Process};
use agent::errno;
use hip_sys::pfn;
use hip_sys::types::{hipError_t, hipFunction_t, hipModule_t, hipStream_t, hipSuccess};
use std::ffi::{CStr, c_char, c_void};
use std::mem;
use xqueue::Scope;

fn of(own: bool) -> Option<&'static Base> {
    process::base().filter(|_| own)
}

/// Launches everything that may use code that is about to be unloaded.
fn drain(own: bool) {
    if let Some(process) = process::for_call(own) {
        process.drain(Scope::Process);
        process.cooperative.forget();
    }
}

/// Looks for the kernel of a host function that was registered past us. Returns true if it is known now.
/// `stream` is one of the runtime's own.
pub(super) fn note_past(process: &Process, stream: hipStream_t, function: *const c_void) -> bool {
    let (kernels, past) = (&process.base.kernels, &process.past);
    process.names.is_some_and(|names| past.note(names, kernels, stream, function, bindings::leads_here))
}

pub(crate) unsafe fn register_fat_binary(
    call: Call<pfn::__hipRegisterFatBinary>,
    data: *const c_void,
) -> *mut *mut c_void {
    call.handle(|real, own| {
        // This is a library's first call. Its wrapper lies in its own memory, which identifies it.
        let other = errno::kept(|| bindings::in_another_runtime(data, c"__hipRegisterFatBinary"));
        if let Some(other) = other {
            // SAFETY: the function of this name in a runtime has this type, and the argument is the caller's
            // own.
            return unsafe { mem::transmute::<*const c_void, pfn::__hipRegisterFatBinary>(other)(data) };
        }
        // SAFETY: the argument is the caller's own.
        let modules = unsafe { real(data) };
        if let Some(base) = of(own) {
            // SAFETY: the wrapper stays valid until it is unregistered, because the runtime uses it as well.
            errno::kept(|| unsafe { base.kernels.add_binary(modules.cast_const().cast(), data) });
        }
        modules
    })
}

pub(crate) unsafe fn register_function<R: Failure>(
    call: Call<pfn::__hipRegisterFunction>,
    modules: *mut *mut c_void,
    host: *const c_void,
    name: *const c_char,
    invoke: impl FnOnce(pfn::__hipRegisterFunction) -> R,
) -> R {
    call.handle(|real, own| {
        let result = invoke(real);
        if let Some(base) = of(own) {
            // SAFETY: the name is a C string or null.
            errno::kept(|| unsafe {
                base.kernels.add_host_function(modules.cast_const().cast(), host, name);
            });
        }
        result
    })
}

pub(crate) unsafe fn unregister_fat_binary(
    call: Call<pfn::__hipUnregisterFatBinary>,
    modules: *mut *mut c_void,
) {
    call.handle(|real, own| {
        if process::is_inherited() {
            // This is a forked child that ends. The runtime would free device memory of the parent, and may
            // have been forked in the middle of a call on a thread of the library that the child does not
            // have.
            return;
        }
        drain(own);
        if let Some(base) = of(own) {
            errno::kept(|| base.kernels.remove_binary(modules.cast_const().cast()));
        }
        // SAFETY: the argument is the caller's own.
        unsafe { real(modules) };
    })
}

pub(crate) unsafe fn get_function(
    call: Call<pfn::hipModuleGetFunction>,
    function: *mut hipFunction_t,
    module: hipModule_t,
    name: *const c_char,
) -> hipError_t {
    let note = |function| {
        if let Some(base) = process::base() {
            // SAFETY: the runtime has read the name, which therefore is a C string.
            errno::kept(|| unsafe { base.kernels.add_function(module, function, name) });
        }
    };
    // SAFETY: the arguments are the caller's own.
    unsafe { made::note(call, function, note, |real| real(function, module, name)) }
}

pub(crate) unsafe fn function_of_symbol(
    call: Call<pfn::hipGetFuncBySymbol>,
    function: *mut hipFunction_t,
    symbol: *const c_void,
) -> hipError_t {
    let note = |function| {
        let Some(base) = process::base() else { return };
        let add_alias = || errno::kept(|| base.kernels.add_alias(function, symbol));
        if !add_alias() && process::get().is_some_and(|process| note_past(process, hipStream_t::NULL, symbol))
        {
            add_alias();
        }
    };
    // SAFETY: the arguments are the caller's own.
    unsafe { made::note(call, function, note, |real| real(function, symbol)) }
}

pub(crate) unsafe fn load(
    call: Call<pfn::hipModuleLoad>,
    module: *mut hipModule_t,
    path: *const c_char,
) -> hipError_t {
    call.handle(|real, own| {
        let base = of(own).filter(|_| !path.is_null() && !module.is_null());
        // SAFETY: the path is the caller's C string.
        let image =
            base.map(|base| errno::kept(|| base.kernels.image_of_file(unsafe { CStr::from_ptr(path) })));
        // SAFETY: the arguments are the caller's own.
        let code = unsafe { real(module, path) };
        if let (Some(base), Some(image), true) = (base, image, code == hipSuccess) {
            // SAFETY: the runtime has just written the handle there.
            let handle = unsafe { *module };
            errno::kept(|| base.kernels.add_module(handle, image));
        }
        code
    })
}

/// The functions that load a module from memory
///
/// # Safety
///
/// `module` and `image` are the function's arguments.
pub(crate) unsafe fn load_data<F: Copy>(
    call: Call<F>,
    module: *mut hipModule_t,
    image: *const c_void,
    invoke: impl FnOnce(F) -> hipError_t,
) -> hipError_t {
    let note = |module| {
        if let Some(base) = process::base() {
            errno::kept(|| {
                // SAFETY: the runtime has just loaded this code during the caller's call.
                let image = unsafe { base.kernels.image_of_data(image) };
                base.kernels.add_module(module, image);
            });
        }
    };
    // SAFETY: this function requires it.
    unsafe { made::note(call, module, note, invoke) }
}

pub(crate) unsafe fn unload(call: Call<pfn::hipModuleUnload>, module: hipModule_t) -> hipError_t {
    call.handle(|real, own| {
        drain(own);
        if let Some(base) = of(own) {
            errno::kept(|| base.kernels.remove_module(module));
        }
        // SAFETY: the argument is the caller's own.
        unsafe { real(module) }
    })
}
