//! Registration of compiled programs before `main`: their code, their kernels' host functions, their
//! variables.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use hip_sys::types::*;

use crate::driver::DevicePointer;
use crate::errors::Answer;
use crate::image::Image;
use crate::modules::{self, Function, text};
use crate::state::{self, api, put};

/// A kernel of a compiled program.
#[derive(Debug)]
struct Kernel {
    image: Arc<Image>,
    name: String,
    on: Mutex<HashMap<c_int, Function>>,
}

/// A variable of a compiled program.
#[derive(Clone, Debug)]
struct Variable {
    image: Arc<Image>,
    name: String,
    size: usize,
}

/// Registered kernels and variables, by their address in the program.
#[derive(Debug, Default)]
struct Registered {
    kernels: HashMap<usize, Arc<Kernel>>,
    variables: HashMap<usize, Variable>,
    /// By the handle that the program holds.
    images: HashMap<usize, Arc<Image>>,
}

static REGISTERED: RwLock<Option<Registered>> = RwLock::new(None);

fn registered<T>(change: impl FnOnce(&mut Registered) -> T) -> T {
    change(REGISTERED.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Returns a host function's kernel on a device.
///
/// # Errors
/// `hipErrorInvalidDeviceFunction` if the function has no kernel.
pub(crate) fn kernel(host: *const c_void, device: c_int) -> Answer<Function> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    let kernel = registered.as_ref().and_then(|all| all.kernels.get(&host.addr()).cloned());
    drop(registered);
    let kernel = kernel.ok_or(hipErrorInvalidDeviceFunction)?;
    let mut on = kernel.on.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&function) = on.get(&device) {
        return Ok(function);
    }
    let function = modules::look_up(&kernel.image, device, &kernel.name).inspect_err(|_| {
        eprintln!(
            "hip-cuda: there is no kernel {} in the sources of which the PTX was made (scripts/hip-cuda)",
            kernel.name
        );
    });
    let function = function.map_err(|_| hipErrorInvalidDeviceFunction)?;
    on.insert(device, function);
    Ok(function)
}

/// Loads the registered kernels and variables on a device. CUDA may wait for running
/// work when it loads code, so a first launch behind work that waits for the host would hang. What cannot be loaded
/// is refused at its first use.
fn prepare(device: c_int) {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    let Some(all) = registered.as_ref() else { return };
    let kernels: Vec<Arc<Kernel>> = all.kernels.values().cloned().collect();
    let variables: Vec<Variable> = all.variables.values().cloned().collect();
    drop(registered);
    kernels.iter().for_each(|kernel| kernel.load(device));
    for Variable { image, name, size } in variables {
        let _ = image.variable(device, &name, Some(size));
    }
}

impl Kernel {
    fn load(&self, device: c_int) {
        // Another call loads it already, or this thread does: its look-up is the first call after a registration.
        let Ok(mut on) = self.on.try_lock() else { return };
        if on.contains_key(&device) {
            return;
        }
        if let Ok(function) = modules::look_up(&self.image, device, &self.name) {
            on.insert(device, function);
        }
    }
}

/// Returns a variable's address on the calling thread's device, and its size in bytes.
///
/// # Errors
/// `hipErrorInvalidSymbol` if the symbol is not a variable.
pub(crate) fn variable(symbol: *const c_void) -> Answer<(DevicePointer, usize)> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    let variable = registered.as_ref().and_then(|all| all.variables.get(&symbol.addr()).cloned());
    drop(registered);
    let variable = variable.ok_or(hipErrorInvalidSymbol)?;
    let found = variable.image.variable(state::device(), &variable.name, Some(variable.size));
    found.map_err(|_| hipErrorInvalidSymbol)
}

/// The launch configuration of `<<<...>>>`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Configuration {
    pub(crate) grid: dim3,
    pub(crate) block: dim3,
    pub(crate) shared: usize,
    pub(crate) stream: hipStream_t,
}

thread_local! {
    static PUSHED: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

api! {
    [value] fn __hipRegisterFatBinary(data: *const c_void) -> *mut *mut c_void {
        // The handle points to memory, because the program may read it.
        let handle = Box::into_raw(Box::new(data.cast_mut()));
        state::on_new_context(prepare);
        registered(|all| all.images.insert(handle.addr(), Arc::default()));
        handle
    }
    [value] fn __hipUnregisterFatBinary(handle: *mut *mut c_void) -> () {
        // The modules stay loaded: the process may be ending, and the driver may be gone already.
        registered(|all| {
            let Some(image) = all.images.remove(&handle.addr()) else { return };
            all.kernels.retain(|_, kernel| !Arc::ptr_eq(&kernel.image, &image));
            all.variables.retain(|_, variable| !Arc::ptr_eq(&variable.image, &image));
        });
    }
    [value] fn __hipRegisterFunction(handle: *mut *mut c_void, host: *const c_void, device_function: *mut c_char,
        name: *const c_char, limit: c_uint, tid: *mut uint3, bid: *mut uint3, block: *mut dim3, grid: *mut dim3,
        size: *mut c_int) -> () {
        let _ = (device_function, limit, tid, bid, block, grid, size);
        let Ok(name) = text(name) else { return };
        registered(|all| {
            let Some(image) = all.images.get(&handle.addr()).cloned() else { return };
            all.kernels.insert(host.addr(), Arc::new(Kernel { image, name, on: Mutex::default() }));
        });
        // Not now: the program may be opening a library, and work that is waited for may need the loader's lock.
        state::prepare_again();
    }
    [value] fn __hipRegisterVar(handle: *mut *mut c_void, host: *mut c_void, host_name: *mut c_char,
        name: *mut c_char, external: c_int, size: usize, constant: c_int, global: c_int) -> () {
        let _ = (host_name, external, constant, global);
        let Ok(name) = text(name) else { return };
        registered(|all| {
            let Some(image) = all.images.get(&handle.addr()).cloned() else { return };
            all.variables.insert(host.addr(), Variable { image, name, size });
        });
        state::prepare_again();
    }
    [pfn] fn __hipPushCallConfiguration(grid: dim3, block: dim3, shared: usize, stream: hipStream_t) {
        PUSHED.with_borrow_mut(|pushed| pushed.push(Configuration { grid, block, shared, stream }));
        Ok(())
    }
    [pfn] fn __hipPopCallConfiguration(grid: *mut dim3, block: *mut dim3, shared: *mut usize,
        stream: *mut hipStream_t) {
        let top = PUSHED.with_borrow_mut(Vec::pop).ok_or(hipErrorMissingConfiguration)?;
        put(grid, top.grid)?;
        put(block, top.block)?;
        put(shared, top.shared)?;
        put(stream, top.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_that_is_being_looked_up_is_not_waited_for() {
        let kernel = Kernel { image: Arc::default(), name: "none".to_owned(), on: Mutex::default() };
        let looking_up = kernel.on.lock().unwrap();
        kernel.load(0);
        assert!(looking_up.is_empty());
    }
}
