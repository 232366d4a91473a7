//! The state of each thread: whether it is inside the runtime, and its counters.
//!
//! The runtime calls some of its own exports through the PLT, and those calls arrive at our hooks. While the
//! depth is not zero, a hook forwards the call. The state is initialised at compile time and needs no
//! destructor, so its first use in a thread neither allocates nor registers anything.

use crate::process::lost;
use crate::summary;
use interception::Class;
use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Deref;
use std::ptr;

/// One thread's state.
#[derive(Debug)]
pub(crate) struct Thread {
    /// The number of hooks of this thread on the stack.
    depth: Cell<u32>,
    /// The index of this thread's counters plus one; 0 until the first count.
    counters: Cell<u32>,
    /// True while the runtime calls a function of the program on this thread, in which nothing may wait.
    in_callback: Cell<bool>,
    /// A last error that the runtime does not know (0 is none), and the placeholder error that the runtime
    /// keeps instead.
    error: Cell<(u32, u32)>,
    /// The host function that the runtime launches through its own export on this thread, or null.
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
    /// Returns the calling thread's state: a hook's only access to thread-local storage.
    #[inline(always)]
    pub(crate) fn current() -> CurrentThread {
        // The closure returns the address. A hook's body inside it would be compiled as a function of its
        // own.
        CurrentThread(THREAD.with(ptr::from_ref))
    }

    /// Returns true if the thread is inside the runtime, called by one of our hooks.
    #[inline(always)]
    pub(crate) fn is_inside(&self) -> bool {
        self.depth.get() != 0
    }

    /// Runs `body` as inside the runtime.
    #[inline(always)]
    pub(crate) fn inside<R>(&self, body: impl FnOnce() -> R) -> R {
        let depth = self.depth.get();
        self.depth.set(depth.wrapping_add(1));
        let result = body();
        // Not `depth - 1`: a jump out of a nested call leaves its increment, which this removes.
        self.depth.set(depth);
        result
    }

    /// Makes this a thread of the library: none of its calls is the program's.
    pub(crate) fn adopt(&self) {
        self.depth.set(1);
    }

    pub(crate) fn call_back<R>(&self, body: impl FnOnce() -> R) -> R {
        self.outside(&self.in_callback, true, body)
    }

    /// Runs `body`, in which the runtime makes the program's launch of this host function through its own
    /// export. That launch counts as the program's call.
    pub(crate) fn launching<R>(&self, function: *const c_void, body: impl FnOnce() -> R) -> R {
        self.outside(&self.launches, function, body)
    }

    /// Runs `body` as outside the runtime, and with this value in the cell.
    fn outside<T, R>(&self, cell: &Cell<T>, value: T, body: impl FnOnce() -> R) -> R {
        let (depth, before) = (self.depth.replace(0), cell.replace(value));
        let result = body();
        self.depth.set(depth);
        cell.set(before);
        result
    }

    pub(crate) fn launches(&self) -> *const c_void {
        self.launches.get()
    }

    /// Returns how many calls of a class this thread has counted; `None` if it shares its counters.
    pub(crate) fn counted(&self, class: Class) -> Option<u64> {
        summary::of(self.counters.get(), class)
    }

    #[inline(always)]
    pub(crate) fn is_in_callback(&self) -> bool {
        self.in_callback.get()
    }

    /// Keeps an error that the runtime does not know, as long as the runtime's last error is `placeholder`; 0
    /// is none.
    pub(crate) fn keep_error(&self, code: u32, placeholder: u32) {
        self.error.set((code, placeholder));
    }

    /// Notes an error that a call of the program has returned. If it equals the placeholder of a kept error,
    /// it replaces that error.
    #[cold]
    pub(crate) fn refused(&self, code: u32) {
        lost::failed(code);
        let (kept, placeholder) = self.error();
        if kept != 0 && code == placeholder {
            self.keep_error(0, 0);
        }
    }

    pub(crate) fn error(&self) -> (u32, u32) {
        self.error.get()
    }

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

/// A handle to the state of the thread that made it.
#[derive(Clone, Copy)]
pub(crate) struct CurrentThread(*const Thread);

impl Deref for CurrentThread {
    type Target = Thread;

    #[inline(always)]
    fn deref(&self) -> &Thread {
        // SAFETY: the raw pointer makes this type `!Send`, so the thread that made it is running, and its
        // state has no destructor.
        unsafe { &*self.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_nests_per_thread() {
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
