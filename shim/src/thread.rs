//! What the library keeps for each thread: whether it is inside the runtime, and which counters are its own.
//!
//! The runtime calls some of its own exports through the PLT, and those calls arrive at our hooks. While the depth is
//! not zero a hook hands the call straight on. The state is initialised at compile time and needs no destructor, so
//! that its first use in a thread neither allocates nor registers anything.

use crate::process::lost;
use crate::summary;
use hip_sys::table::Class;
use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Deref;
use std::ptr;

/// One thread's state.
#[derive(Debug)]
pub(crate) struct Thread {
    /// How many hooks of this thread are on the stack.
    depth: Cell<u32>,
    /// Index of this thread's counters plus one; 0 until the first count.
    counters: Cell<u32>,
    /// Whether the runtime is calling a function of the program's here, in which nothing may wait.
    in_callback: Cell<bool>,
    /// An error that the runtime does not know of, for the next question after the last error; 0 is none. And what the
    /// runtime holds in its place.
    error: Cell<(u32, u32)>,
    /// The host function of the launch that the runtime makes to itself here, or null.
    launches: Cell<*const c_void>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            depth: Cell::new(0),
            counters: Cell::new(0),
            in_callback: Cell::new(false),
            error: Cell::new((0, 0)),
            launches: Cell::new(ptr::null()),
        }
    };
}

impl Thread {
    /// The calling thread's state: the one access to thread-local storage of a hook.
    #[inline(always)]
    pub(crate) fn current() -> CurrentThread {
        // Only the address leaves the closure: the rest of a hook inside it would be compiled as a function of its own.
        CurrentThread(THREAD.with(ptr::from_ref))
    }

    /// Whether the thread is in the runtime on behalf of one of our hooks.
    #[inline(always)]
    pub(crate) fn is_inside(&self) -> bool {
        self.depth.get() != 0
    }

    /// Runs `body` as being inside the runtime.
    #[inline(always)]
    pub(crate) fn inside<R>(&self, body: impl FnOnce() -> R) -> R {
        let depth = self.depth.get();
        self.depth.set(depth.wrapping_add(1));
        let result = body();
        // Not `depth - 1`: a jump out of a nested call leaves its increment behind, and this takes it back.
        self.depth.set(depth);
        result
    }

    /// Makes this a thread of the library's own: nothing that it does is a call of the program.
    pub(crate) fn adopt(&self) {
        self.depth.set(1);
    }

    /// Runs a function that the program has given to the runtime.
    pub(crate) fn call_back<R>(&self, body: impl FnOnce() -> R) -> R {
        let (depth, nested) = (self.depth.replace(0), self.in_callback.replace(true));
        let result = body();
        self.depth.set(depth);
        self.in_callback.set(nested);
        result
    }

    /// Runs `body`, a call of the runtime in which it makes the program's launch of this host function to itself, so that it
    /// counts as the program's.
    pub(crate) fn launching<R>(&self, function: *const c_void, body: impl FnOnce() -> R) -> R {
        let (depth, launches) = (self.depth.replace(0), self.launches.replace(function));
        let result = body();
        self.depth.set(depth);
        self.launches.set(launches);
        result
    }

    /// The host function that the runtime is launching to itself here, or null.
    pub(crate) fn launches(&self) -> *const c_void {
        self.launches.get()
    }

    /// How many calls of a class this thread has counted; nothing if it shares its counters.
    pub(crate) fn counted(&self, class: Class) -> Option<u64> {
        summary::of(self.counters.get(), class)
    }

    /// Whether the runtime is calling a function of the program's here.
    #[inline(always)]
    pub(crate) fn is_in_callback(&self) -> bool {
        self.in_callback.get()
    }

    /// Keeps an error that the runtime does not know of, as long as the runtime's last error is `place`; 0 is none.
    pub(crate) fn keep_error(&self, code: u32, place: u32) {
        self.error.set((code, place));
    }

    /// A call of the program has returned this error. If it is the one that holds the place of a kept error, it is the
    /// program's own from now on.
    #[cold]
    pub(crate) fn refused(&self, code: u32) {
        lost::failed(code);
        let (kept, place) = self.error();
        if kept != 0 && code == place {
            self.keep_error(0, 0);
        }
    }

    /// The error kept, and what holds its place.
    pub(crate) fn error(&self) -> (u32, u32) {
        self.error.get()
    }

    /// Counts one call.
    #[inline(always)]
    pub(crate) fn count(&self, class: Class) {
        let mut counters = self.counters.get();
        if counters == 0 {
            counters = summary::assign();
            self.counters.set(counters);
        }
        summary::add(counters, class);
    }
}

/// The state of the thread that holds this.
#[derive(Clone, Copy)]
pub(crate) struct CurrentThread(*const Thread);

impl Deref for CurrentThread {
    type Target = Thread;

    #[inline(always)]
    fn deref(&self) -> &Thread {
        // SAFETY: a raw pointer keeps this value in the thread that made it, whose storage has no destructor and stays
        // as long as the thread runs code.
        unsafe { &*self.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_nests_and_belongs_to_the_thread() {
        let thread = Thread::current();
        assert!(!thread.is_inside());
        thread.inside(|| {
            assert!(thread.is_inside());
            Thread::current().inside(|| assert!(thread.is_inside()));
            assert!(thread.is_inside());
            let other = std::thread::spawn(|| Thread::current().is_inside());
            assert!(!other.join().expect("the thread ends"));
        });
        assert!(!thread.is_inside());
    }
}
