//! Code that the program registers or loads: which handle means which kernel is remembered, for deferred launches.

use crate::boundary::{Call, Failure};
use crate::interpose::bindings;
use crate::process::{self, Base};
use agent::errno;
use hip_sys::pfn;
use hip_sys::types::{hipError_t, hipFunction_t, hipModule_t, hipStream_t, hipSuccess};
use std::ffi::{CStr, c_char, c_void};
use std::mem;
use xqueue::Scope;

fn of(own: bool) -> Option<&'static Base> {
    process::base().filter(|_| own)
}

/// Everything that could use what is about to go is launched.
fn drain(own: bool) {
    if let Some(process) = process::get().filter(|_| own) {
        process.drain(Scope::Process);
        process.cooperative.forget();
    }
}

/// `__hipRegisterFatBinary`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn register_fat_binary(
    call: Call<pfn::__hipRegisterFatBinary>,
    data: *const c_void,
) -> *mut *mut c_void {
    let body = |real: pfn::__hipRegisterFatBinary, own| {
        // The first call of a library that has kernels: the wrapper is in its own memory.
        let other = errno::kept(|| bindings::in_another_runtime(data, c"__hipRegisterFatBinary"));
        if let Some(other) = other {
            // SAFETY: the function of this name in a runtime has this type.
            let register = unsafe { mem::transmute::<*const c_void, pfn::__hipRegisterFatBinary>(other) };
            // SAFETY: the caller's own argument.
            return unsafe { register(data) };
        }
        // SAFETY: the caller's own argument.
        let modules = unsafe { real(data) };
        if let Some(base) = of(own) {
            // SAFETY: the runtime relies on the wrapper as well, until it is unregistered.
            errno::kept(|| unsafe { base.kernels.add_binary(modules.cast_const().cast(), data) });
        }
        modules
    };
    call.handle(body)
}

/// `__hipRegisterFunction`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn register_function<R: Failure>(
    call: Call<pfn::__hipRegisterFunction>,
    modules: *mut *mut c_void,
    host: *const c_void,
    name: *const c_char,
    invoke: impl FnOnce(pfn::__hipRegisterFunction) -> R,
) -> R {
    let body = |real: pfn::__hipRegisterFunction, own| {
        let result = invoke(real);
        if let Some(base) = of(own) {
            // SAFETY: the name is the caller's, a C string or null.
            errno::kept(|| unsafe {
                base.kernels.add_host_function(modules.cast_const().cast(), host, name);
            });
        }
        result
    };
    call.handle(body)
}

/// `__hipUnregisterFatBinary`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn unregister_fat_binary(
    call: Call<pfn::__hipUnregisterFatBinary>,
    modules: *mut *mut c_void,
) {
    let body = |real: pfn::__hipUnregisterFatBinary, own| {
        if process::is_inherited() {
            // A forked child at its end. The device memory of the kernels is the parent's, and the runtime, which frees it
            // here, may have been in the middle of something on a thread of ours that the child does not have.
            return;
        }
        drain(own);
        if let Some(base) = of(own) {
            errno::kept(|| base.kernels.remove_binary(modules.cast_const().cast()));
        }
        // SAFETY: the caller's own argument.
        unsafe { real(modules) };
    };
    call.handle(body)
}

/// `hipModuleGetFunction`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn get_function(
    call: Call<pfn::hipModuleGetFunction>,
    function: *mut hipFunction_t,
    module: hipModule_t,
    name: *const c_char,
) -> hipError_t {
    let body = |real: pfn::hipModuleGetFunction, own| {
        // SAFETY: the caller's own arguments.
        let code = unsafe { real(function, module, name) };
        if let Some(base) = of(own)
            && code == hipSuccess
            && !function.is_null()
        {
            // SAFETY: the runtime has just written the handle there.
            let handle = unsafe { *function };
            // SAFETY: the runtime has read the name, so that it is a C string.
            errno::kept(|| unsafe { base.kernels.add_function(module, handle, name) });
        }
        code
    };
    call.handle(body)
}

/// `hipGetFuncBySymbol`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn function_of_symbol(
    call: Call<pfn::hipGetFuncBySymbol>,
    function: *mut hipFunction_t,
    symbol: *const c_void,
) -> hipError_t {
    let body = |real: pfn::hipGetFuncBySymbol, own| {
        // SAFETY: the caller's own arguments.
        let code = unsafe { real(function, symbol) };
        if let Some(base) = of(own)
            && code == hipSuccess
            && !function.is_null()
        {
            // SAFETY: the runtime has just written the handle there.
            let handle = unsafe { *function };
            let is_known = errno::kept(|| base.kernels.add_alias(handle, symbol));
            if !is_known
                && process::get()
                    .is_some_and(|process| process.note_past(hipStream_t::NULL, symbol, bindings::leads_here))
            {
                errno::kept(|| base.kernels.add_alias(handle, symbol));
            }
        }
        code
    };
    call.handle(body)
}

/// `hipModuleLoad`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn load(
    call: Call<pfn::hipModuleLoad>,
    module: *mut hipModule_t,
    path: *const c_char,
) -> hipError_t {
    let body = |real: pfn::hipModuleLoad, own| {
        let base = of(own).filter(|_| !path.is_null() && !module.is_null());
        // SAFETY: the path is the caller's C string.
        let image =
            base.map(|base| errno::kept(|| base.kernels.image_of_file(unsafe { CStr::from_ptr(path) })));
        // SAFETY: the caller's own arguments.
        let code = unsafe { real(module, path) };
        if let (Some(base), Some(image), true) = (base, image, code == hipSuccess) {
            // SAFETY: the runtime has just written the handle there.
            let handle = unsafe { *module };
            errno::kept(|| base.kernels.add_module(handle, image));
        }
        code
    };
    call.handle(body)
}

/// The functions that load a module from memory
///
/// # Safety
///
/// `F` is the type of the call's function; `module` and `image` are its arguments.
pub(crate) unsafe fn load_data<F: Copy>(
    call: Call<F>,
    module: *mut hipModule_t,
    image: *const c_void,
    invoke: impl FnOnce(F) -> hipError_t,
) -> hipError_t {
    let body = |real: F, own| {
        let code = invoke(real);
        if let Some(base) = of(own).filter(|_| code == hipSuccess && !module.is_null()) {
            // SAFETY: the runtime has just written the handle there.
            let handle = unsafe { *module };
            errno::kept(|| {
                // SAFETY: the runtime has loaded this code, and the caller is still in its call.
                let image = unsafe { base.kernels.image_of_data(image) };
                base.kernels.add_module(handle, image);
            });
        }
        code
    };
    call.handle(body)
}

/// `hipModuleUnload`
///
/// # Safety
///
/// That of the runtime's function.
pub(crate) unsafe fn unload(call: Call<pfn::hipModuleUnload>, module: hipModule_t) -> hipError_t {
    let body = |real: pfn::hipModuleUnload, own| {
        drain(own);
        if let Some(base) = of(own) {
            errno::kept(|| base.kernels.remove_module(module));
        }
        // SAFETY: the caller's own argument.
        unsafe { real(module) }
    };
    call.handle(body)
}
