//! State of the process (the driver, the devices' contexts) and of its threads (the current device, the last
//! error).

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use hip_sys::types::*;

use crate::blobs;
use crate::driver::{Driver, Opaque};
use crate::errors::{self, Answer};
use crate::legacy;

/// Declares functions that the library exports.
///
/// * `[pfn]`: the body returns an [`Answer`], and the compiler checks the signature against the type in
///   `hip-sys`.
/// * `[own]`: the same for a function that `hip-sys` has no type for.
/// * `[value]`: the function returns the body's value and leaves the last error unchanged.
macro_rules! api {
    () => {};
    ([pfn] fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        const _: hip_sys::pfn::$name = $name;
        $crate::state::api! { [own] fn $name($($argument: $type),*) $body $($rest)* }
    };
    ([own] fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*) => {
        #[doc = concat!("HIP's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// The arguments are as HIP requires: pointers refer to values of their types, for as long as HIP
        /// says.
        // SAFETY: no other symbol of the library has this name, and its type is the one of HIP's headers.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> hip_sys::types::hipError_t {
            #[allow(clippy::redundant_closure_call, reason = "`?` ends the closure")]
            $crate::state::keep((|| -> $crate::errors::Answer { $body })())
        }
        $crate::state::api! { $($rest)* }
    };
    ([value] fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block $($rest:tt)*) => {
        #[doc = concat!("HIP's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// The arguments are as HIP requires.
        // SAFETY: no other symbol of the library has this name, and its type is the one of HIP's headers.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result $body
        $crate::state::api! { $($rest)* }
    };
}
pub(crate) use api;

/// The loaded driver and its devices.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) driver: Driver,
    /// How many devices there are.
    pub(crate) devices: c_int,
    contexts: Mutex<Vec<Option<Opaque>>>,
}

/// The function that prepares a device whose context has been made.
static PREPARE: OnceLock<fn(c_int)> = OnceLock::new();
/// True if the devices in use are to be prepared again at the next call.
static AGAIN: AtomicBool = AtomicBool::new(false);

/// Names the function that is called with each device whose context has been made.
pub(crate) fn on_new_context(prepare: fn(c_int)) {
    let _ = PREPARE.set(prepare);
}

/// Calls that function again, for each device in use, before the next call on a device.
pub(crate) fn prepare_again() {
    AGAIN.store(true, Ordering::Release);
}

static STARTED: OnceLock<Answer<Started>> = OnceLock::new();

thread_local! {
    static DEVICE: Cell<c_int> = const { Cell::new(0) };
    /// The device whose context is current in CUDA on this thread.
    static ENTERED: Cell<c_int> = const { Cell::new(-1) };
    static LAST: Cell<hipError_t> = const { Cell::new(hipSuccess) };
    static RESULT: Cell<hipError_t> = const { Cell::new(hipSuccess) };
}

fn start() -> Answer<Started> {
    let driver = Driver::load()?;
    let mut devices = 0;
    driver.init(0)?;
    driver.device_count(&mut devices)?;
    if devices == 0 {
        return Err(hipErrorNoDevice);
    }
    let contexts = Mutex::new(vec![None; usize::try_from(devices).unwrap_or(0)]);
    Ok(Started { driver, devices, contexts })
}

fn prepare(device: c_int) {
    if let Some(prepare) = PREPARE.get() {
        prepare(device);
    }
}

/// The driver, loaded by the first call.
pub(crate) fn started() -> Answer<&'static Started> {
    STARTED.get_or_init(start).as_ref().map_err(|&code| code)
}

impl Started {
    /// Returns a device's context, which the first call creates.
    pub(crate) fn context(&self, device: c_int) -> Answer<Opaque> {
        let (context, new) = self.open(device)?;
        if new {
            prepare(device);
        }
        Ok(context)
    }

    /// Returns the devices that have a context.
    fn in_use(&self) -> Vec<c_int> {
        let contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        (0..)
            .zip(contexts.iter())
            .filter(|(_, context)| context.is_some())
            .map(|(device, _)| device)
            .collect()
    }

    /// Returns a device's context, and true if this call has created it.
    fn open(&self, device: c_int) -> Answer<(Opaque, bool)> {
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(device).map_err(|_| hipErrorInvalidDevice)?;
        let place = contexts.get_mut(index).ok_or(hipErrorInvalidDevice)?;
        if let Some(context) = *place {
            return Ok((context, false));
        }
        let mut context = Opaque::NULL;
        self.driver.context_retain(&mut context, device)?;
        *place = Some(context);
        Ok((context, true))
    }

    /// Makes a device's context current in CUDA on this thread.
    pub(crate) fn enter(&self, device: c_int) -> Answer<&Driver> {
        if AGAIN.load(Ordering::Relaxed) && AGAIN.swap(false, Ordering::Acquire) {
            self.in_use().into_iter().for_each(prepare);
        }
        if ENTERED.get() != device {
            self.driver.context_set(self.context(device)?)?;
            ENTERED.set(device);
        }
        Ok(&self.driver)
    }
}

impl Started {
    /// Like [`Started::enter`], for a thread that ends: CUDA may have dropped the thread's current context
    /// already.
    pub(crate) fn enter_at_end(&self, device: c_int) -> Answer<&Driver> {
        self.driver.context_set(self.context(device)?)?;
        Ok(&self.driver)
    }
}

/// Returns the driver, with the calling thread's device current.
pub(crate) fn enter() -> Answer<&'static Driver> {
    started()?.enter(DEVICE.get())
}

/// The calling thread's device.
pub(crate) fn device() -> c_int {
    DEVICE.get()
}

/// Sets the calling thread's device.
pub(crate) fn set_device(device: c_int) -> Answer {
    check_device(device)?;
    DEVICE.set(device);
    Ok(())
}

/// Refuses a device that does not exist.
pub(crate) fn check_device(device: c_int) -> Answer<&'static Started> {
    let started = started()?;
    if (0..started.devices).contains(&device) { Ok(started) } else { Err(hipErrorInvalidDevice) }
}

/// Converts an answer to its code and keeps it as the last error. Up to release 6 every result counts, from 7
/// on only errors (`HIP_RETURN` in AMD's hip_internal.hpp), and once a kernel has failed every call returns its error
/// (measured on 7.2.4).
pub(crate) fn keep(answer: Answer) -> hipError_t {
    legacy::call_ends();
    let major = blobs::major();
    let lost = errors::lost().filter(|_| major >= 7);
    let code = lost.or(answer.err()).unwrap_or(hipSuccess);
    RESULT.set(code);
    if major < 7 || (code != hipSuccess && code != hipErrorNotReady) {
        LAST.set(code);
    }
    code
}

pub(crate) fn take_last() -> hipError_t {
    LAST.replace(hipSuccess)
}

pub(crate) fn last() -> hipError_t {
    LAST.get()
}

pub(crate) fn take_result() -> hipError_t {
    RESULT.replace(hipSuccess)
}

/// Writes a result to the program's pointer.
///
/// # Errors
/// `hipErrorInvalidValue` for null.
pub(crate) fn put<T>(place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(hipErrorInvalidValue);
    }
    // SAFETY: the prototype of the exported function makes the program pass a valid pointer for a value of
    // this type.
    unsafe { place.write(value) };
    Ok(())
}

/// Reads a value that the program passes by pointer.
///
/// # Errors
/// `hipErrorInvalidValue` for null.
pub(crate) fn get<T: Copy>(place: *const T) -> Answer<T> {
    if place.is_null() {
        return Err(hipErrorInvalidValue);
    }
    // SAFETY: the prototype of the exported function makes the program pass a pointer to a value of this
    // type.
    Ok(unsafe { place.read() })
}

/// Refuses a null pointer.
pub(crate) fn required<T>(place: *const T) -> Answer {
    if place.is_null() { Err(hipErrorInvalidValue) } else { Ok(()) }
}
