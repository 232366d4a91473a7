//! The entry of a call into the library: the thread's depth, the life cycle, errno, and the counters.
//!
//! A hook's body is one [`Call`]. The path of a launch has one access to thread-local storage, two loads, one
//! count and the call itself: no lock, allocation, clock read or libc call, so errno is the runtime's.
//! Everything else happens out of line, in [`prepare`], at a function's first call or while the library is
//! not in force.

use crate::interpose::entry::Entry;
use crate::interpose::runtime;
use crate::thread::Thread;
use crate::{lifecycle, startup};
use agent::errno;
use hip_sys::types::hipError_t;
use interception::Class;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;

/// One call of an exported function with the pointer type `F`.
pub(crate) struct Call<F> {
    entry: &'static Entry,
    class: Class,
    signature: PhantomData<F>,
}

impl<F: Copy> Call<F> {
    /// Makes the call of an entry's function.
    ///
    /// # Safety
    ///
    /// `F` is the type of the entry's function.
    #[inline(always)]
    pub(crate) unsafe fn new(entry: &'static Entry, class: Class) -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        Self { entry, class, signature: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Runs `body` with the real function, and with true if the call is the program's own: not one that the
    /// runtime makes to itself, and in a process in which the library is in force. `body` runs as inside the
    /// runtime.
    #[inline(always)]
    pub(crate) fn handle<R: Failure>(self, body: impl FnOnce(F, bool) -> R) -> R {
        let thread = Thread::current();
        let (real, ready) = match self.entry.real() {
            Some(real) if lifecycle::is_ready() => (real, true),
            _ => match prepare(self.entry, &thread) {
                Ok(prepared) => prepared,
                Err(code) => return R::failure(code),
            },
        };
        let inside = thread.is_inside();
        let own = ready && !inside;
        let mut real = real;
        if own {
            thread.count(self.class);
        } else if inside {
            // An interposer between us and the runtime has had this call already, and may have called us.
            real = self.entry.runtimes().unwrap_or(real);
        }
        // SAFETY: `new` requires that `F` is the function's type, and has checked its size.
        let real = unsafe { mem::transmute_copy::<NonNull<c_void>, F>(&real) };
        let result = thread.inside(|| body(real, own));
        let code = result.code();
        if own && code != 0 {
            thread.refused(code);
        }
        result
    }
}

/// Starts the library if this call is the one to start with, and finds the real function. Keeps errno.
#[cold]
#[inline(never)]
fn prepare(entry: &Entry, thread: &Thread) -> Result<(NonNull<c_void>, bool), hipError_t> {
    let nested = thread.is_inside();
    errno::kept(|| {
        // Opening the runtime, or a look-up, may run code that calls HIP.
        thread.inside(|| {
            entry.register();
            let ready = startup::ready_for(entry.class());
            // Before the entry has its real function: until then no other thread can call it and start the
            // runtime.
            if ready && !nested {
                startup::start_queues_if_wanted(entry);
            }
            let real = entry.real().map_or_else(|| runtime::resolve(entry), Ok)?;
            Ok((real, ready))
        })
    })
}

/// The result of a function that cannot be called.
pub(crate) trait Failure {
    /// Returns the value for this error.
    fn failure(code: hipError_t) -> Self;

    /// Returns the error of a result; 0 is none.
    fn code(&self) -> u32 {
        0
    }
}

impl Failure for hipError_t {
    fn failure(code: hipError_t) -> Self {
        code
    }

    fn code(&self) -> u32 {
        self.0
    }
}

impl<T> Failure for *mut T {
    fn failure(_: hipError_t) -> Self {
        std::ptr::null_mut()
    }
}

impl Failure for i32 {
    /// Functions that return a number return a device's, and -1 is none.
    fn failure(_: hipError_t) -> Self {
        -1
    }
}

impl Failure for () {
    fn failure(_: hipError_t) -> Self {}
}
